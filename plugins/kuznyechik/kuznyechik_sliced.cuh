// Kuznyechik in sliced form. The linear map is 16 steps that each change one byte, in a ring.
#pragma once
#include "kuznyechik.cuh"
#include "kuznyechik_linear.cuh"
#include "sbox_kuznyechik.cuh"
#include "sbox_kuznyechik_inverse.cuh"

// Bytes that a pass of the loops below does; in a pass of less than 16 the state moves on, so that the code is smaller
// than the instruction cache.
#ifndef BYTES_A_PASS
#if TARGET_GPU && STRIDED
#define BYTES_A_PASS 8
#else
#define BYTES_A_PASS 16
#endif
#endif

struct SlicedKuznyechik {
    static constexpr u32 BITS = 128, BLOCK = 16;
    static constexpr u32 MASKS = 10 * 128;
    using Keys = KuznyechikKeys;

    DEVICE bool key_fits(u32 bytes) { return bytes == 32; }

    template <bool DECRYPT>
    DEVICE void schedule(Keys& keys, const u8* state, const u8* key, u32, u32) {
        kuznyechik_schedule(keys, state, key);
    }

    DEVICE u32 mask(const Keys& keys, u32 index) { return mask_of(keys.round[index / 128][index / 32 % 4], index % 32); }

    template <class Masks>
    DEVICE void add_key(Word (&s)[BITS], Masks masks) {
        const auto key = opened<32>(masks);
        FULL_UNROLL
        for (u32 i = 0; i < BITS / 4; i++) {
            const Quad quad = key[i];
            FULL_UNROLL
            for (u32 j = 0; j < 4; j++) add_mask(s[4 * i + j], quad.x[j], key);
        }
    }

    template <bool INVERSE>
    DEVICE void substitute(Word (&s)[BITS]) {
        UNROLL
        for (u32 byte = 0; byte < 16; byte++) {
            Word x[8];
            FULL_UNROLL
            for (u32 i = 0; i < 8; i++) x[i] = s[8 * byte + i];
            if constexpr (INVERSE)
                sbox_kuznyechik_inverse(x);
            else
                sbox_kuznyechik(x);
            FULL_UNROLL
            for (u32 i = 0; i < 8; i++) s[8 * byte + i] = x[i];
        }
    }

    // After k steps byte i lies at place i - k. A step is its own inverse: undone, they run from the last to the first.
    template <bool INVERSE>
    DEVICE void mix(Word (&s)[BITS]) {
        UNROLL
        for (u32 step = 0; step < 16; step++) {
            const u32 done = INVERSE ? 15 - step : step;
            Word* x[16];
            FULL_UNROLL
            for (u32 i = 0; i < 16; i++) x[i] = s + (i + 16 - done) % 16 * 8;
            kuznyechik_step(x);
        }
    }

#if BYTES_A_PASS < 16
    // Byte i takes the place of byte i - COUNT.
    template <u32 COUNT>
    DEVICE void move_bytes(Word (&s)[BITS]) {
        Word t[BITS];
        FULL_UNROLL
        for (u32 i = 0; i < BITS; i++) t[i] = s[(i + 8 * COUNT) % BITS];
        FULL_UNROLL
        for (u32 i = 0; i < BITS; i++) s[i] = t[i];
    }

    template <bool INVERSE>
    DEVICE void substitute_in_passes(Word (&s)[BITS]) {
        NO_UNROLL
        for (u32 pass = 0; pass < 16 / BYTES_A_PASS; pass++) {
            FULL_UNROLL
            for (u32 byte = 0; byte < BYTES_A_PASS; byte++) {
                Word x[8];
                FULL_UNROLL
                for (u32 i = 0; i < 8; i++) x[i] = s[8 * byte + i];
                if constexpr (INVERSE)
                    sbox_kuznyechik_inverse(x);
                else
                    sbox_kuznyechik(x);
                FULL_UNROLL
                for (u32 i = 0; i < 8; i++) s[8 * byte + i] = x[i];
            }
            move_bytes<BYTES_A_PASS>(s);
        }
    }

    template <bool INVERSE>
    DEVICE void mix_in_passes(Word (&s)[BITS]) {
        NO_UNROLL
        for (u32 pass = 0; pass < 16 / BYTES_A_PASS; pass++) {
            if (INVERSE) move_bytes<BYTES_A_PASS>(s);
            FULL_UNROLL
            for (u32 step = 0; step < BYTES_A_PASS; step++) {
                const u32 done = INVERSE ? BYTES_A_PASS - 1 - step : step;
                Word* x[16];
                FULL_UNROLL
                for (u32 i = 0; i < 16; i++) x[i] = s + (i + 16 - done) % 16 * 8;
                kuznyechik_step(x);
            }
            if (!INVERSE) move_bytes<16 - BYTES_A_PASS>(s);
        }
    }
#endif

    template <class Masks>
    DEVICE void encrypt(Word (&s)[BITS], Masks masks, const Keys&) {
        NO_UNROLL
        for (u32 round = 0; round < 9; round++, masks += 32) {
            add_key(s, masks);
#if BYTES_A_PASS < 16
            substitute_in_passes<false>(s);
            mix_in_passes<false>(s);
#else
            substitute<false>(s);
            mix<false>(s);
#endif
        }
        add_key(s, masks);
    }

    template <class Masks>
    DEVICE void decrypt(Word (&s)[BITS], Masks masks, const Keys&) {
        masks += 9 * 32;
        add_key(s, masks);
        NO_UNROLL
        for (u32 round = 0; round < 9; round++) {
            masks -= 32;
#if BYTES_A_PASS < 16
            mix_in_passes<true>(s);
            substitute_in_passes<true>(s);
#else
            mix<true>(s);
            substitute<true>(s);
#endif
            add_key(s, masks);
        }
    }
};
