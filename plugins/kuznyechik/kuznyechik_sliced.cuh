// Kuznyechik in sliced form. The linear map is 16 steps that each change one byte, in a ring.
#pragma once
#include "kuznyechik.cuh"
#include "kuznyechik_linear.cuh"
#include "sbox_kuznyechik.cuh"
#include "sbox_kuznyechik_inverse.cuh"

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

    DEVICE void add_key(Word (&s)[BITS], const Quad* masks) {
        FULL_UNROLL
        for (u32 i = 0; i < BITS / 4; i++) {
            const Quad quad = masks[i];
            FULL_UNROLL
            for (u32 j = 0; j < 4; j++) s[4 * i + j] ^= quad.x[j];
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

    DEVICE void encrypt(Word (&s)[BITS], const Quad* masks, const Keys&) {
        NO_UNROLL
        for (u32 round = 0; round < 9; round++, masks += 32) {
            add_key(s, masks);
            substitute<false>(s);
            mix<false>(s);
        }
        add_key(s, masks);
    }

    DEVICE void decrypt(Word (&s)[BITS], const Quad* masks, const Keys&) {
        masks += 9 * 32;
        add_key(s, masks);
        NO_UNROLL
        for (u32 round = 0; round < 9; round++) {
            masks -= 32;
            mix<true>(s);
            substitute<true>(s);
            add_key(s, masks);
        }
    }
};
