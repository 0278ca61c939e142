// GHASH of stripes (NIST SP 800-38D): the bulk half of GCM, for messages of any length.
//
// A stripe's hash is that of its blocks alone. The hashes of a message's whole stripes are folded, 32 to one, as often
// as the caller likes, by the same kernel with a power of the key; `gcm_tag` (modes_each.cuh) ends it.
//   GHASH_OUTPUT, GHASH_INPUT   of output 0 (encryption) or input 0 (decryption) to output 1; input 2 is a u32 an item,
//                               the message's bytes in the stripe
//   GHASH_FOLD                  of input 0, 32 hashes, to output 0; parameter 0 counts the folds: 1, 2, ...; a group
//                               that is not full starts with zeros
#pragma once
#include "gf128.cuh"
#include "modes.cuh"

enum GhashMode { GHASH_OUTPUT, GHASH_INPUT, GHASH_FOLD };

template <class C>
DEVICE Code ghash_problem(const Batch& batch, GhashMode mode) {
    if (batch.constant_bytes > 64 || !C::key_fits((u32)batch.constant_bytes)) return KEY_LENGTH;
    if (batch.inputs[0].offsets || batch.inputs[0].stride != 512) return INPUT_LENGTH;
    if (mode != GHASH_FOLD && (batch.inputs[2].offsets || batch.inputs[2].stride != 4)) return INPUT_LENGTH;
    if (mode == GHASH_FOLD && (batch.parameters[0] < 1 || batch.parameters[0] > 8)) return INPUT_LENGTH;
    return VALID;
}

DEVICE const u8* ghash_stripe(const Batch& batch, GhashMode mode, u32 item) {
    return (mode == GHASH_OUTPUT ? batch.outputs[0] : batch.inputs[0].data) + (u64)item * 512;
}

DEVICE u32 ghash_bytes(const Batch& batch, GhashMode mode, u32 item) {
    if (mode == GHASH_FOLD) return 512;
    const u32 bytes = load_le32(batch.inputs[2].data + 4 * (u64)item);
    return bytes < 512 ? bytes : 512;
}

DEVICE u8* ghash_output(const Batch& batch, GhashMode mode, u32 item) {
    return batch.outputs[mode == GHASH_FOLD ? 0 : 1] + 16 * (u64)item;
}

// A block of a stripe of `bytes` bytes; what lies beyond counts as zeros.
DEVICE void ghash_block(u32 (&block)[4], const u8* stripe, u32 index, u32 bytes) {
    load_block(block, stripe + 16 * index);
    if (bytes < 16 * index + 16) {
        FULL_UNROLL
        for (u32 i = 0; i < 4; i++) {
            const u32 begin = 16 * index + 4 * i;
            const u32 kept = bytes <= begin ? 0 : bytes - begin;
            if (kept < 4) block[i] &= (1u << (8 * kept)) - 1;
        }
    }
}

// The key of the hash, or its power for a fold: H to the 32nd, 1024th, ...
DEVICE Gf128 ghash_key(const u32 (&h)[4], u32 folds) {
    Gf128 key = gf_load(h);
    NO_UNROLL
    for (u32 i = 0; i < 5 * folds; i++) key = gf_multiply(key, key);
    return key;
}

#if TARGET_GPU

// key * (any nibble at any of 32 places), eight times over, so that the eight lanes that shared memory serves at once
// never wait for one another.
struct GhashTables {
    Quad entry[32][16][8];
    u32 power[128][4];  // key * x^k
};

DEVICE void ghash_multiply(const GhashTables& tables, u32 lane, u32 (&x)[4]) {
    u32 y[4] = {};
    const u32 copy = lane % 8 * 16;
    FULL_UNROLL
    for (u32 i = 0; i < 32; i++) {
        // The first nibble of a byte is its high one.
        constexpr u32 ROW = 128;
        const u32 shift = i / 2 % 4 * 8 + (i % 2 ? 0 : 4);
        const u32 nibble = shift < 7 ? x[i / 8] << (7 - shift) : x[i / 8] >> (shift - 7);
        const u32 offset = (nibble & 15 * ROW) | copy;
        const Quad entry = *(const Quad*)((const u8*)&tables + i * 16 * ROW + offset);
        FULL_UNROLL
        for (u32 j = 0; j < 4; j++) y[j] ^= entry.x[j];
    }
    copy_block(x, y);
}

template <class C>
struct GhashShared {
    union {
        typename C::template Tables<false> cipher;
        GhashTables hash;
    };
    typename C::Keys keys;
    u32 h[4];
};

template <class C, GhashMode MODE, u32 THREADS>
DEVICE void ghash(const Batch& batch) {
    const Code problem = ghash_problem<C>(batch, MODE);
    if (problem != VALID) return give_up(batch, problem, THREADS);
    if (!is_aligned(batch, false)) return;
    auto& shared = *(GhashShared<C>*)shared_memory;
    C::fill(shared.cipher, batch.state, threadIdx.x, THREADS);
    __syncthreads();
    if (threadIdx.x == 0) {
        u32 block[4] = {};
        C::template schedule<false>(shared.keys, shared.cipher, batch.state, 0, batch.constant,
                                    (u32)batch.constant_bytes, 0);
        C::encrypt(shared.cipher, shared.keys, 0, block);
        gf_store(shared.h, ghash_key(block, MODE == GHASH_FOLD ? batch.parameters[0] : 0));
    }
    __syncthreads();
    GhashTables& tables = shared.hash;
    if (threadIdx.x < 128) {
        Gf128 power = gf_load(shared.h);
        NO_UNROLL
        for (u32 i = 0; i < threadIdx.x; i++) power = gf_times_x(power);
        gf_store(tables.power[threadIdx.x], power);
    }
    __syncthreads();
    for (u32 i = threadIdx.x; i < 32 * 16 * 8; i += THREADS) {
        Quad sum = {};
        FULL_UNROLL
        for (u32 bit = 0; bit < 4; bit++) {
            const u32 take = mask_of(i / 8 % 16, 3 - bit);
            FULL_UNROLL
            for (u32 j = 0; j < 4; j++) sum.x[j] ^= tables.power[i / 128 * 4 + bit][j] & take;
        }
        tables.entry[i / 128][i / 8 % 16][i % 8] = sum;
    }
    __syncthreads();
    for_each_item<THREADS>(batch.items, [&](u32 item, const Lane& self) {
        if (!self.live) return;
        const u8* const stripe = ghash_stripe(batch, MODE, item);
        const u32 bytes = ghash_bytes(batch, MODE, item);
        u32 hash[4] = {};
        NO_UNROLL
        for (u32 i = 0; 16 * i < bytes; i++) {
            u32 block[4];
            ghash_block(block, stripe, i, bytes);
            if (MODE == GHASH_FOLD) {
                ghash_multiply(tables, threadIdx.x % 32, hash);
                xor_block(hash, block);
            } else {
                xor_block(hash, block);
                ghash_multiply(tables, threadIdx.x % 32, hash);
            }
        }
        store_block(ghash_output(batch, MODE, item), hash);
        batch.codes[item] = VALID;
    });
    __syncthreads();
    wipe(&shared, sizeof shared, threadIdx.x, THREADS);
}

#define GHASH_STAGE(name, Cipher, mode, threads)                                             \
    extern "C" __constant__ const u32 name##_shared = 16 * quads(sizeof(GhashShared<Cipher>)); \
    extern "C" __constant__ const u32 name##_threads = threads;                              \
    extern "C" __global__ void __launch_bounds__(threads, 1) name(const Batch batch) {       \
        ghash<Cipher, mode, threads>(batch);                                                 \
    }

#else

#if defined(__x86_64__)
// Four stripes at once: a product waits for the one before it in its own stripe only.
template <GhashMode MODE>
__attribute__((target("pclmul,sse2"))) static void ghash_fast(const Batch& batch, Gf128 key, u32 first, u32 count) {
    Gf128 hash[4] = {};
    const u8* stripe[4];
    u32 bytes[4];
    for (u32 k = 0; k < count; k++)
        stripe[k] = ghash_stripe(batch, MODE, first + k), bytes[k] = ghash_bytes(batch, MODE, first + k);
    for (u32 i = 0; i < 32; i++) {
        for (u32 k = 0; k < count; k++) {
            if (16 * i >= bytes[k]) continue;
            u32 block[4];
            ghash_block(block, stripe[k], i, bytes[k]);
            if (MODE == GHASH_FOLD)
                hash[k] = gf_multiply_fast(hash[k], key) ^ gf_load(block);
            else
                hash[k] = gf_multiply_fast(hash[k] ^ gf_load(block), key);
        }
    }
    for (u32 k = 0; k < count; k++) {
        u32 block[4];
        gf_store(block, hash[k]);
        store_block(ghash_output(batch, MODE, first + k), block);
    }
}
#endif

template <class C, GhashMode MODE>
DEVICE void ghash(const Batch& batch, u32 begin, u32 end) {
    const Code problem = ghash_problem<C>(batch, MODE);
    __builtin_memset(batch.codes + begin, problem, end - begin);
    if (problem != VALID) return;
    typename C::template Tables<false> tables;
    typename C::Keys keys;
    C::fill(tables, batch.state, 0, 1);
    C::template schedule<false>(keys, tables, batch.state, 0, batch.constant, (u32)batch.constant_bytes, 0);
    u32 block[4] = {};
    C::encrypt(tables, keys, 0, block);
    HashKey key;
    HashKey::make(key, ghash_key(block, MODE == GHASH_FOLD ? batch.parameters[0] : 0));
    u32 item = begin;
#if defined(__x86_64__)
    for (; key.fast && item < end; item += 4)
        ghash_fast<MODE>(batch, key.multiple[8], item, end - item < 4 ? end - item : 4);
#endif
    for (; item < end; item++) {
        const u8* const stripe = ghash_stripe(batch, MODE, item);
        const u32 bytes = ghash_bytes(batch, MODE, item);
        Gf128 hash = {};
        for (u32 i = 0; 16 * i < bytes; i++) {
            ghash_block(block, stripe, i, bytes);
            if (MODE == GHASH_FOLD)
                hash = HashKey::times(key, hash) ^ gf_load(block);
            else
                hash = HashKey::times(key, hash ^ gf_load(block));
        }
        gf_store(block, hash);
        store_block(ghash_output(batch, MODE, item), block);
    }
    wipe(&keys, sizeof keys);
    wipe(&key, sizeof key);
}

#define GHASH_STAGE(name, Cipher, mode, threads) \
    EXPORT void name(const Batch* batch, u32 begin, u32 end, u32) { ghash<Cipher, mode>(*batch, begin, end); }

#endif
