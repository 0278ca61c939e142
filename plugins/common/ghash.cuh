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

// What of a stripe's block lies beyond the stripe's `bytes` bytes counts as zeros.
DEVICE void cut_block(u32 (&block)[4], u32 index, u32 bytes) {
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

// Bytes of a block that are looked up without a shift between them: 4 take 128 KB of shared memory, 2 take 64. By
// architecture, since images for older ones also run where a block has 99 KB.
#ifndef GHASH_TABLES
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900 && __CUDA_ARCH__ < 1200
#define GHASH_TABLES 4
#else
#define GHASH_TABLES 2
#endif
#endif
#ifndef GHASH_THREADS
#define GHASH_THREADS 512
#endif

// key * (any byte at any place of GHASH_TABLES, evenly spread), eight times over, so that the eight lanes that shared
// memory serves at once never wait for one another.
struct GhashTables {
    Quad entry[GHASH_TABLES / 2][256][2][8];  // byte and lane are the address with one instruction
    u32 power[8 * GHASH_TABLES][4];           // key * x^k, eight to a table
};

// Times the key. Bytes at the same distance from the tables' places are looked up and summed, then the sum moves one
// byte on. What moves out of the block is reduced once, at the end.
DEVICE void ghash_multiply(const GhashTables& tables, u32 lane, u32 (&x)[4]) {
    constexpr u32 STEPS = 16 / GHASH_TABLES, OUT = STEPS / 4, WORDS = 4 + OUT;
    u32 y[WORDS] = {};
    FULL_UNROLL
    for (u32 step = STEPS; step-- > 0;) {
        FULL_UNROLL
        for (u32 i = WORDS; i-- > 1;) y[i] = y[i] << 8 | y[i - 1] >> 24;
        y[0] <<= 8;
        FULL_UNROLL
        for (u32 i = 0; i < GHASH_TABLES; i++) {
            const u32 at = i * STEPS + step;
            const u32 offset = __byte_perm(x[at / 4], lane % 8 * 16, 0x5504 | at % 4 << 4);
            const Quad entry = *(const Quad*)((const u8*)&tables + i / 2 * 65536 + i % 2 * 128 + offset);
            FULL_UNROLL
            for (u32 j = 0; j < 4; j++) y[j] ^= entry.x[j];
        }
    }
    // x^128 = 1 + x + x^2 + x^7; less than 32 * OUT - 7 bits are out.
    if constexpr (OUT == 1) {
        const u32 out = swap_bytes(y[4]);
        y[0] ^= swap_bytes(out ^ out >> 1 ^ out >> 2 ^ out >> 7);
    } else {
        const u64 out = (u64)swap_bytes(y[4]) << 32 | swap_bytes(y[WORDS - 1]);
        const u64 in = out ^ out >> 1 ^ out >> 2 ^ out >> 7;
        y[0] ^= swap_bytes((u32)(in >> 32)), y[1] ^= swap_bytes((u32)in);
    }
    FULL_UNROLL
    for (u32 i = 0; i < 4; i++) x[i] = y[i];
}

// By all threads of a block, between barriers.
DEVICE void ghash_fill(GhashTables& tables, const u32 (&h)[4], u32 threads) {
    if (threadIdx.x < 8 * GHASH_TABLES) {
        Gf128 power = gf_load(h);
        NO_UNROLL
        for (u32 i = 0; i < threadIdx.x % 8; i++) power = gf_times_x(power);
        NO_UNROLL
        for (u32 i = 0; i < threadIdx.x / 8 * (16 / GHASH_TABLES); i++) power = gf_times_byte(power);
        gf_store(tables.power[threadIdx.x], power);
    }
    __syncthreads();
    NO_UNROLL
    for (u32 i = threadIdx.x; i < 256 * GHASH_TABLES; i += threads) {
        const u32 table = i / 256, byte = i % 256;
        Quad sum = {};
        FULL_UNROLL
        for (u32 bit = 0; bit < 8; bit++) {
            const u32 take = mask_of(byte, 7 - bit);
            FULL_UNROLL
            for (u32 j = 0; j < 4; j++) sum.x[j] ^= tables.power[8 * table + bit][j] & take;
        }
        FULL_UNROLL
        for (u32 copy = 0; copy < 8; copy++) tables.entry[table / 2][byte][table % 2][(threadIdx.x + copy) % 8] = sum;
    }
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
    ghash_fill(tables, shared.h, THREADS);
    __syncthreads();
    for_each_item<THREADS>(batch.items, [&](u32 item, const Lane& self) {
        if (!self.live) return;
        const u8* const stripe = ghash_stripe(batch, MODE, item);
        const u32 bytes = ghash_bytes(batch, MODE, item);
        u32 hash[4] = {};
        // Two blocks, a sector of memory, are loaded while the two before are multiplied.
        u32 ahead[2][4];
        load_block(ahead[0], stripe), load_block(ahead[1], stripe + 16);
        NO_UNROLL
        for (u32 i = 0; 16 * i < bytes; i += 2) {
            u32 blocks[2][4];
            const u8* const next = stripe + 16 * (i < 30 ? i + 2 : i);
            FULL_UNROLL
            for (u32 k = 0; k < 2; k++) {
                copy_block(blocks[k], ahead[k]);
                load_block(ahead[k], next + 16 * k);
            }
            FULL_UNROLL
            for (u32 k = 0; k < 2; k++) {
                if (16 * (i + k) >= bytes) continue;
                cut_block(blocks[k], i + k, bytes);
                if (MODE == GHASH_FOLD) {
                    ghash_multiply(tables, threadIdx.x, hash);
                    xor_block(hash, blocks[k]);
                } else {
                    xor_block(hash, blocks[k]);
                    ghash_multiply(tables, threadIdx.x, hash);
                }
            }
        }
        store_block(ghash_output(batch, MODE, item), hash);
        batch.codes[item] = VALID;
    });
    __syncthreads();
    wipe(&shared, sizeof shared, threadIdx.x, THREADS);
}

#define GHASH_STAGE(name, Cipher, mode)                                                        \
    extern "C" __constant__ const u32 name##_shared = 16 * quads(sizeof(GhashShared<Cipher>)); \
    extern "C" __constant__ const u32 name##_threads = GHASH_THREADS;                          \
    extern "C" __global__ void __launch_bounds__(GHASH_THREADS, 1) name(const Batch batch) {   \
        ghash<Cipher, mode, GHASH_THREADS>(batch);                                             \
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
            load_block(block, stripe[k] + 16 * i);
            cut_block(block, i, bytes[k]);
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
            load_block(block, stripe + 16 * i);
            cut_block(block, i, bytes);
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

#define GHASH_STAGE(name, Cipher, mode) \
    EXPORT void name(const Batch* batch, u32 begin, u32 end, u32) { ghash<Cipher, mode>(*batch, begin, end); }

#endif
