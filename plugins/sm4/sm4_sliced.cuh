// SM4 in sliced form: the linear map is renaming and five-fold sums.
#pragma once
#include "sbox_sm4.cuh"
#include "sm4.cuh"

struct SlicedSm4 {
    static constexpr u32 BITS = 128, BLOCK = 16;
    static constexpr u32 MASKS = 32 * 32;
    using Keys = Sm4Keys;

    DEVICE bool key_fits(u32 bytes) { return bytes == 16; }

    template <bool DECRYPT>
    DEVICE void schedule(Keys& keys, const u8*, const u8* key, u32, u32) {
        sm4_schedule<DECRYPT>(keys, key);
    }

    // Where bit n of a big-endian word is among its 32 bits in memory order.
    DEVICE constexpr u32 at(u32 n) { return 24 - n / 8 * 8 + n % 8; }

    DEVICE u32 mask(const Keys& keys, u32 index) { return mask_of(keys.round[index / 32], at(index % 32)); }

    DEVICE void round(Word* x0, const Word* x1, const Word* x2, const Word* x3, const Quad* masks) {
        Word t[4][8];
        FULL_UNROLL
        for (u32 byte = 0; byte < 4; byte++) {
            FULL_UNROLL
            for (u32 half = 0; half < 2; half++) {
                const Quad quad = masks[2 * byte + half];
                FULL_UNROLL
                for (u32 j = 0; j < 4; j++) {
                    const u32 i = 8 * byte + 4 * half + j;
                    t[byte][4 * half + j] = x1[i] ^ x2[i] ^ x3[i] ^ quad.x[j];
                }
            }
            sbox_sm4(t[byte]);
        }
        FULL_UNROLL
        for (u32 n = 0; n < 32; n++) {
            const auto bit = [&](u32 turned) { return t[at(turned % 32) / 8][turned % 8]; };
            x0[at(n)] ^= bit(n) ^ bit(n + 30) ^ bit(n + 22) ^ bit(n + 14) ^ bit(n + 8);
        }
    }

    DEVICE void encrypt(Word (&s)[BITS], const Quad* masks, const Keys&) {
        NO_UNROLL
        for (u32 i = 0; i < 8; i++, masks += 32) {
            FULL_UNROLL
            for (u32 r = 0; r < 4; r++)
                round(s + r * 32, s + (r + 1) % 4 * 32, s + (r + 2) % 4 * 32, s + (r + 3) % 4 * 32, masks + 8 * r);
        }
        FULL_UNROLL
        for (u32 i = 0; i < 64; i++) {
            const u32 j = 96 - i / 32 * 32 + i % 32;
            const Word t = s[i];
            s[i] = s[j], s[j] = t;
        }
    }

    DEVICE void decrypt(Word (&s)[BITS], const Quad* masks, const Keys& keys) { encrypt(s, masks, keys); }
};
