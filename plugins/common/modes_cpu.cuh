// Bulk modes on the CPU: groups of stripes in a buffer that stays in the nearest cache.
#pragma once
#include "modes.cuh"

// A Direct or a Sliced cipher as something that works in place on GROUP stripes in memory. One that has a faster way
// for counter mode says so with HAS_CTR, and does single stripes by `ctr(first counter, in, out)`.
template <class C, bool DECRYPT>
struct DirectGroup {
    static constexpr u32 GROUP = 4, BLOCK = C::BLOCK;
    static constexpr bool HAS_CTR = false;
    typename C::template Tables<DECRYPT> tables;
    typename C::Keys keys;

    void open(const Batch& batch) {
        C::fill(tables, batch.state, 0, 1);
        C::template schedule<DECRYPT>(keys, tables, batch.state, 0, batch.constant, (u32)batch.constant_bytes, batch.parameters[0]);
    }

    template <u32 STRIPES = GROUP>
    void run(u8* blocks) {
        for (u32 i = 0; i < STRIPES * STRIPE_BLOCKS; i++) {
            u32 block[BLOCK / 4];
            load_block(block, blocks + i * BLOCK);
            if constexpr (DECRYPT)
                C::decrypt(tables, keys, 0, block);
            else
                C::encrypt(tables, keys, 0, block);
            store_block(blocks + i * BLOCK, block);
        }
    }
};

template <class C, bool DECRYPT>
struct SlicedGroup {
    static constexpr u32 GROUP = LANES, BLOCK = C::BITS / 8;
    static constexpr bool HAS_CTR = false;
    typename C::Keys keys;
    Quad masks[C::MASKS / 4];

    void open(const Batch& batch) {
        C::template schedule<DECRYPT>(keys, batch.state, batch.constant, (u32)batch.constant_bytes, batch.parameters[0]);
        for (u32 i = 0; i < C::MASKS; i++) masks[i / 4].x[i % 4] = C::mask(keys, i);
    }

    void run(u8* blocks) {
        Word s[C::BITS];
        slice(s, blocks);
        if constexpr (DECRYPT)
            C::decrypt(s, masks, keys);
        else
            C::encrypt(s, masks, keys);
        unslice(blocks, s);
    }
};

// 32 counters from `first` on. Where the last four bytes do not overflow, vectors of them.
template <u32 BLOCK>
DEVICE void write_counters(u8* blocks, const u8* first) {
    constexpr u32 WORDS = BLOCK / 4;
    u32 counter[WORDS];
    load_block(counter, first);
    const u32 low = swap_bytes(counter[WORDS - 1]);
    if (low > 0u - STRIPE_BLOCKS) {
        for (u32 i = 0; i < STRIPE_BLOCKS; i++) {
            store_block(blocks + i * BLOCK, counter);
            add_counter(counter, 1);
        }
        return;
    }
    // Which lanes hold word j of a block, and the blocks' numbers.
    Word lanes[WORDS], number;
    FULL_UNROLL
    for (u32 i = 0; i < LANES; i++) {
        FULL_UNROLL
        for (u32 j = 0; j < WORDS; j++) lanes[j][i] = i % WORDS == j ? ~0u : 0;
        number[i] = i / WORDS;
    }
    const Word last = lanes[WORDS - 1];
    Word v = (number + low) & last;
    FULL_UNROLL
    for (u32 j = 0; j + 1 < WORDS; j++) v |= lanes[j] & counter[j];
    const Word step = last & (LANES / WORDS);
#if !defined(__clang__)
    typedef u8 ByteLanes __attribute__((vector_size(sizeof(Word))));
    ByteLanes order;  // the last word of every block reversed
    FULL_UNROLL
    for (u32 i = 0; i < sizeof(Word); i++) order[i] = (u8)(i / 4 % WORDS == WORDS - 1 ? i ^ 3 : i);
#endif
    FULL_UNROLL
    for (u32 i = 0; i < STRIPE_BLOCKS * WORDS / LANES; i++) {
#if defined(__clang__)
        const Word swapped = v >> 24 | (v >> 8 & 0xff00u) | (v << 8 & 0xff0000u) | v << 24;
        store_word(blocks + i * sizeof(Word), (swapped & last) | (v & ~last));
#else
        store_word(blocks + i * sizeof(Word), (Word)__builtin_shuffle((ByteLanes)v, order));
#endif
        v += step;
    }
}

DEVICE void xor_bytes(u8* to, const u8* a, const u8* b, u32 bytes) {
    u32 i = 0;
    for (; i + sizeof(Word) <= bytes; i += sizeof(Word)) store_word(to + i, load_word(a + i) ^ load_word(b + i));
    for (; i < bytes; i++) to[i] = a[i] ^ b[i];
}

template <class G, class C, Mode MODE>
DEVICE void bulk(const Batch& batch, u32 begin, u32 end) {
    constexpr u32 STRIPE = STRIPE_BLOCKS * G::BLOCK;
    constexpr bool CHAINED = MODE == CTR || MODE == CBC_DECRYPT;
    const Code problem = bulk_problem<C>(batch, G::BLOCK, CHAINED);
    __builtin_memset(batch.codes + begin, problem, end - begin);
    if (problem != VALID) return;
    G group;
    alignas(64) u8 buffer[G::GROUP * STRIPE] = {};
    group.open(batch);
    if constexpr (MODE == CTR && G::HAS_CTR) {
        for (u64 item = begin; item < end; item++)
            group.ctr(batch.inputs[1].data + item * G::BLOCK, batch.inputs[0].data + item * STRIPE,
                      batch.outputs[0] + item * STRIPE);
        wipe(&group, sizeof group);
        return;
    }
    for (u32 first = begin; first < end; first += G::GROUP) {
        const u32 count = end - first < G::GROUP ? end - first : G::GROUP;
        const u8* const in = batch.inputs[0].data + (u64)first * STRIPE;
        const u8* const chain = CHAINED ? batch.inputs[1].data + (u64)first * G::BLOCK : nullptr;
        u8* const out = batch.outputs[0] + (u64)first * STRIPE;
        if constexpr (MODE == CTR)
            for (u32 i = 0; i < count; i++) write_counters<G::BLOCK>(buffer + i * STRIPE, chain + i * G::BLOCK);
        else
            __builtin_memcpy(buffer, in, count * STRIPE);
        group.run(buffer);
        if constexpr (MODE == CTR) {
            xor_bytes(out, buffer, in, count * STRIPE);
        } else if constexpr (MODE == CBC_DECRYPT) {
            for (u32 i = 0; i < count; i++) {
                u8* const to = out + i * STRIPE;
                const u8* const from = in + i * STRIPE;
                xor_bytes(to, buffer + i * STRIPE, chain + i * G::BLOCK, G::BLOCK);
                xor_bytes(to + G::BLOCK, buffer + i * STRIPE + G::BLOCK, from, STRIPE - G::BLOCK);
            }
        } else {
            __builtin_memcpy(out, buffer, count * STRIPE);
        }
    }
    wipe(&group, sizeof group);
    wipe(buffer, sizeof buffer);
}

#define BULK_STAGE(name, Group, Cipher, mode, threads, blocks)                                   \
    EXPORT void name(const Batch* batch, u32 begin, u32 end, u32) {                        \
        bulk<Group<Cipher, decrypts(mode)>, Cipher, mode>(*batch, begin, end);                            \
    }
