// Operations whose items are messages, each with its own key, by one thread an item.
//
// Inputs: data of at most EACH_BYTES bytes, key, iv; for GCM also aad, and tag where it is checked. Output 0 has
// EACH_BYTES bytes an item: the message, then zeros. ECB and CBC take whole blocks. A CTR counter shorter than a block
// is followed by zeros, as GOST R 34.13 has it. GCM takes an iv of 12 bytes and tags of 16.
#pragma once
#include "gf128.cuh"

constexpr u32 EACH_BYTES = 512;
enum EachMode { EACH_ECB = 1, EACH_CTR = 2, EACH_CBC = 3 };

template <u32 WORDS>
DEVICE void load_bytes(u32 (&block)[WORDS], const u8* from, u32 size) {
    FULL_UNROLL
    for (u32 i = 0; i < WORDS; i++) block[i] = 0;
    FULL_UNROLL
    for (u32 i = 0; i < 4 * WORDS; i++)
        if (i < size) block[i / 4] |= (u32)from[i] << (8 * (i % 4));
}

template <u32 WORDS>
DEVICE void store_bytes(u8* to, const u32 (&block)[WORDS], u32 size) {
    FULL_UNROLL
    for (u32 i = 0; i < 4 * WORDS; i++)
        if (i < size) to[i] = (u8)(block[i / 4] >> (8 * (i % 4)));
}

template <u32 WORDS>
DEVICE void copy_block(u32 (&to)[WORDS], const u32 (&from)[WORDS]) {
    FULL_UNROLL
    for (u32 i = 0; i < WORDS; i++) to[i] = from[i];
}

DEVICE void clear_from(u8* cell, u32 size) {
    NO_UNROLL
    for (u32 i = size; i < EACH_BYTES; i++) cell[i] = 0;
}

// out = data ^ keystream from `counter` on.
template <class C, class T>
DEVICE void each_ctr(const T& tables, const typename C::Keys& keys, u32 lane, u32 (&counter)[C::BLOCK / 4], Bytes data,
                     u8* out) {
    NO_UNROLL
    for (u32 at = 0; at < data.size; at += C::BLOCK) {
        const u32 size = data.size - at < C::BLOCK ? data.size - at : C::BLOCK;
        u32 stream[C::BLOCK / 4], block[C::BLOCK / 4];
        copy_block(stream, counter);
        C::encrypt(tables, keys, lane, stream);
        load_bytes(block, data.data + at, size);
        xor_block(block, stream);
        store_bytes(out + at, block, size);
        add_counter(counter, 1);
    }
}

template <class C, bool DECRYPT>
struct Each {
    using Tables = typename C::template Tables<DECRYPT>;

    DEVICE Code run(const Batch& batch, const Tables& tables, u32 lane, u32 item) {
        constexpr u32 BLOCK = C::BLOCK, WORDS = BLOCK / 4;
        const Bytes data = value(batch.inputs[0], item), key = value(batch.inputs[1], item);
        const Bytes iv = value(batch.inputs[2], item);
        const u32 mode = batch.parameters[0];
        u8* const out = batch.outputs[0] + (u64)item * batch.output_strides[0];
        if (!C::key_fits(key.size)) return KEY_LENGTH;
        if (data.size > EACH_BYTES || (mode != EACH_CTR && data.size % BLOCK != 0)) return INPUT_LENGTH;
        if (mode == EACH_CBC ? iv.size != BLOCK : mode == EACH_CTR && iv.size > BLOCK) return INPUT_LENGTH;
        typename C::Keys keys;
        C::template schedule<DECRYPT>(keys, tables, batch.state, lane, key.data, key.size, batch.parameters[1]);
        u32 chain[WORDS];
        load_bytes(chain, iv.data, iv.size < BLOCK ? iv.size : BLOCK);
        if (mode == EACH_CTR) {
            if constexpr (!DECRYPT) each_ctr<C>(tables, keys, lane, chain, data, out);
        } else {
            NO_UNROLL
            for (u32 at = 0; at < data.size; at += BLOCK) {
                u32 block[WORDS], before[WORDS];
                load_bytes(block, data.data + at, BLOCK);
                if constexpr (DECRYPT) {
                    copy_block(before, block);
                    C::decrypt(tables, keys, lane, block);
                    if (mode == EACH_CBC) xor_block(block, chain);
                    copy_block(chain, before);
                } else {
                    if (mode == EACH_CBC) xor_block(block, chain);
                    C::encrypt(tables, keys, lane, block);
                    copy_block(chain, block);
                }
                store_bytes(out + at, block, BLOCK);
            }
        }
        clear_from(out, data.size);
        wipe(&keys, sizeof keys);
        return VALID;
    }
};

// The hash goes on over data, padded with zeros to whole blocks.
DEVICE Gf128 gcm_hash(const HashKey& key, Gf128 hash, Bytes data) {
    NO_UNROLL
    for (u32 at = 0; at < data.size; at += 16) {
        u32 block[4];
        load_bytes(block, data.data + at, data.size - at < 16 ? data.size - at : 16);
        hash = HashKey::times(key, hash ^ gf_load(block));
    }
    return hash;
}

// The first counter block: iv and 1.
DEVICE void gcm_first(u32 (&counter)[4], const u8* iv) {
    load_bytes(counter, iv, 12);
    counter[3] = swap_bytes(1);
}

template <class C, bool DECRYPT>
struct EachGcm {
    using Tables = typename C::template Tables<false>;

    DEVICE Code run(const Batch& batch, const Tables& tables, u32 lane, u32 item) {
        const Bytes data = value(batch.inputs[0], item), key = value(batch.inputs[1], item);
        const Bytes iv = value(batch.inputs[2], item), aad = value(batch.inputs[3], item);
        u8* const out = batch.outputs[0] + (u64)item * batch.output_strides[0];
        if (!C::key_fits(key.size)) return KEY_LENGTH;
        if (data.size > EACH_BYTES || iv.size != 12) return INPUT_LENGTH;
        if (DECRYPT && value(batch.inputs[4], item).size != 16) return INPUT_LENGTH;
        typename C::Keys keys;
        C::template schedule<false>(keys, tables, batch.state, lane, key.data, key.size, 0);
        u32 first[4], counter[4], block[4] = {};
        C::encrypt(tables, keys, lane, block);
        HashKey hash_key;
        HashKey::make(hash_key, gf_load(block));
        gcm_first(first, iv.data);
        copy_block(counter, first);
        add_counter(counter, 1);
        if constexpr (!DECRYPT) each_ctr<C>(tables, keys, lane, counter, data, out);
        Gf128 hash = gcm_hash(hash_key, {}, aad);
        hash = gcm_hash(hash_key, hash, {DECRYPT ? data.data : out, data.size});
        hash = HashKey::times(hash_key, hash ^ Gf128{(u64)aad.size * 8, (u64)data.size * 8});
        u32 tag[4];
        gf_store(tag, hash);
        C::encrypt(tables, keys, lane, first);
        xor_block(tag, first);
        bool right = true;
        if constexpr (DECRYPT) {
            load_bytes(block, value(batch.inputs[4], item).data, 16);
            xor_block(block, tag);
            right = (block[0] | block[1] | block[2] | block[3]) == 0;
            if (right) each_ctr<C>(tables, keys, lane, counter, data, out);
        } else {
            store_bytes(batch.outputs[1] + (u64)item * batch.output_strides[1], tag, 16);
        }
        clear_from(out, right ? data.size : 0);
        wipe(&keys, sizeof keys);
        wipe(&hash_key, sizeof hash_key);
        return right ? VALID : INVALID;
    }
};

// GCM of a long message: what `ctr` and `ghash` left, as the tag. An item is a message; all share the key in
// `constant`. Inputs: the hashes of its whole stripes, folded `parameters[0]` times; the hash of the last, incomplete
// stripe, which counts where there is one; the length of the data as u64; iv; aad.
template <class C>
struct GcmTag {
    using Tables = typename C::template Tables<false>;

    DEVICE Code run(const Batch& batch, const Tables& tables, u32 lane, u32 item) {
        const Bytes folded = value(batch.inputs[0], item), last = value(batch.inputs[1], item);
        const Bytes length = value(batch.inputs[2], item), iv = value(batch.inputs[3], item);
        const Bytes aad = value(batch.inputs[4], item);
        if (batch.constant_bytes > 64 || !C::key_fits((u32)batch.constant_bytes)) return KEY_LENGTH;
        if (folded.size % 16 || last.size != 16 || length.size != 8 || iv.size != 12) return INPUT_LENGTH;
        const u64 bytes = (u64)load_le32(length.data + 4) << 32 | load_le32(length.data);
        typename C::Keys keys;
        C::template schedule<false>(keys, tables, batch.state, lane, batch.constant, (u32)batch.constant_bytes, 0);
        u32 block[4] = {}, tag[4];
        C::encrypt(tables, keys, lane, block);
        const Gf128 h = gf_load(block);
        Gf128 step = h;
        NO_UNROLL
        for (u32 i = 0; i < 5 * (batch.parameters[0] + 1); i++) step = gf_multiply(step, step);
        HashKey key;
        HashKey::make(key, step);
        Gf128 hash = {};
        NO_UNROLL
        for (u32 at = 0; at < folded.size; at += 16) {
            load_bytes(block, folded.data + at, 16);
            hash = HashKey::times(key, hash) ^ gf_load(block);
        }
        const u32 rest = (u32)((bytes % 512 + 15) / 16);
        load_bytes(block, last.data, 16);
        if (rest) hash = gf_multiply(hash, gf_power(h, rest)) ^ gf_load(block);
        HashKey::make(key, h);
        const Gf128 before = gcm_hash(key, {}, aad);
        hash = hash ^ gf_multiply(before, gf_power(h, (bytes + 15) / 16));
        hash = HashKey::times(key, hash ^ Gf128{(u64)aad.size * 8, bytes * 8});
        gf_store(tag, hash);
        gcm_first(block, iv.data);
        C::encrypt(tables, keys, lane, block);
        xor_block(tag, block);
        store_bytes(batch.outputs[0] + (u64)item * batch.output_strides[0], tag, 16);
        wipe(&keys, sizeof keys);
        wipe(&key, sizeof key);
        return VALID;
    }
};

#if TARGET_GPU

template <class E, class C, u32 THREADS>
DEVICE void each(const Batch& batch) {
    auto& tables = *(typename E::Tables*)shared_memory;
    C::fill(tables, batch.state, threadIdx.x, THREADS);
    __syncthreads();
    for_each_item<THREADS>(batch.items, [&](u32 item, const Lane& self) {
        if (self.live) batch.codes[item] = E::run(batch, tables, threadIdx.x % 32, item);
    });
}

#define EACH_STAGE(name, Cipher, ...)                                                                    \
    extern "C" __constant__ const u32 name##_shared = 16 * quads(sizeof(typename __VA_ARGS__::Tables));   \
    extern "C" __constant__ const u32 name##_threads = 256;                                               \
    extern "C" __global__ void __launch_bounds__(256, 1) name(const Batch batch) {                        \
        each<__VA_ARGS__, Cipher, 256>(batch);                                                            \
    }

#else

template <class E, class C>
DEVICE void each(const Batch& batch, u32 begin, u32 end) {
    typename E::Tables tables;
    C::fill(tables, batch.state, 0, 1);
    for (u32 item = begin; item < end; item++) batch.codes[item] = E::run(batch, tables, 0, item);
}

#define EACH_STAGE(name, Cipher, ...) \
    EXPORT void name(const Batch* batch, u32 begin, u32 end, u32) { each<__VA_ARGS__, Cipher>(*batch, begin, end); }

#endif
