// ARIA in sliced form.
//
// The linear map commutes with exchanging bytes i and i ^ 2, and so do odd and even substitution layers with one
// another. So every round is an odd one whose bytes are exchanged afterwards: half the code, and no moves.
#pragma once
#include "aria.cuh"
#include "aria_linear.cuh"
#include "sbox_aria_s1.cuh"
#include "sbox_aria_s2.cuh"
#include "sbox_aria_x1.cuh"
#include "sbox_aria_x2.cuh"

struct SlicedAria {
    static constexpr u32 BITS = 128, BLOCK = 16;
    static constexpr u32 MASKS = 17 * 128;
    using Keys = AriaKeys;

    DEVICE bool key_fits(u32 bytes) { return aria_key_fits(bytes); }

    template <bool DECRYPT>
    DEVICE void schedule(Keys& keys, const u8*, const u8* key, u32 bytes, u32) {
        aria_schedule<DECRYPT>(keys, ARIA_TABLES, 0, key, bytes);
    }

    DEVICE u32 mask(const Keys& keys, u32 index) {
        const u32 round = index / 128;
        if (round > keys.rounds) return 0;
        const u32 exchanged = round == keys.rounds ? 1 : round % 2;
        const u32 byte = index / 8 % 16 ^ 2 * exchanged;
        return mask_of(keys.round[round][byte / 4], byte % 4 * 8 + index % 8);
    }

    DEVICE void add_key(Word (&s)[BITS], const Quad* masks) {
        FULL_UNROLL
        for (u32 i = 0; i < BITS / 4; i++) {
            const Quad quad = masks[i];
            FULL_UNROLL
            for (u32 j = 0; j < 4; j++) s[4 * i + j] ^= quad.x[j];
        }
    }

    template <class Box>
    DEVICE void substitute_byte(Word* byte, Box box) {
        Word x[8];
        FULL_UNROLL
        for (u32 i = 0; i < 8; i++) x[i] = byte[i];
        box(x);
        FULL_UNROLL
        for (u32 i = 0; i < 8; i++) byte[i] = x[i];
    }

    DEVICE void substitute(Word (&s)[BITS]) {
        UNROLL
        for (u32 word = 0; word < 4; word++) {
            substitute_byte(s + 32 * word, [](Word(&x)[8]) { sbox_aria_s1(x); });
            substitute_byte(s + 32 * word + 8, [](Word(&x)[8]) { sbox_aria_s2(x); });
            substitute_byte(s + 32 * word + 16, [](Word(&x)[8]) { sbox_aria_x1(x); });
            substitute_byte(s + 32 * word + 24, [](Word(&x)[8]) { sbox_aria_x2(x); });
        }
    }

    DEVICE void mix_and_exchange(Word (&s)[BITS]) {
        UNROLL
        for (u32 bit = 0; bit < 8; bit++) {
            Word x[16], y[16];
            FULL_UNROLL
            for (u32 i = 0; i < 16; i++) x[i] = s[8 * i + bit];
            aria_mix_bit(y, x);
            FULL_UNROLL
            for (u32 i = 0; i < 16; i++) s[8 * i + bit] = y[i ^ 2];
        }
    }

    DEVICE void exchange_bytes(Word (&s)[BITS]) {
        FULL_UNROLL
        for (u32 i = 0; i < BITS; i++) {
            if (i & 16) continue;
            const Word t = s[i];
            s[i] = s[i | 16], s[i | 16] = t;
        }
    }

    DEVICE void encrypt(Word (&s)[BITS], const Quad* masks, const Keys& keys) {
        NO_UNROLL
        for (u32 round = 1;; round++, masks += 32) {
            add_key(s, masks);
            substitute(s);
            if (round == keys.rounds) break;
            mix_and_exchange(s);
        }
        add_key(s, masks + 32);
        exchange_bytes(s);
    }

    DEVICE void decrypt(Word (&s)[BITS], const Quad* masks, const Keys& keys) { encrypt(s, masks, keys); }
};
