// HIGHT in sliced form: the rotations of F0 and F1 and the moves of the bytes are renaming, additions ripple.
#pragma once
#include "hight.cuh"
#include "lut.cuh"

#if TARGET_GPU && NAMED_LOGIC
struct HightDeltas {
    u32 four[32];
};

DEVICE constexpr HightDeltas hight_deltas() {
    HightDeltas deltas = {};
    u32 delta = 0x5a;
    for (u32 i = 0; i < 128; i++) {
        deltas.four[i / 4] |= delta << (8 * (i % 4));
        delta = delta >> 1 | ((delta >> 3 ^ delta) & 1) << 6;
    }
    return deltas;
}

// hight_schedule for a thread that others wait for: the deltas are constants, and four bytes are added at once.
DEVICE void hight_schedule_at_once(HightKeys& keys, const u8* key, u32 option) {
    constexpr HightDeltas DELTAS = hight_deltas();
    u32 master[4];
    FULL_UNROLL
    for (u32 i = 0; i < 4; i++)
        master[i] = option ? swap_bytes(load_le32(key + 12 - 4 * i)) : load_le32(key + 4 * i);
    keys.reversed = option;
    keys.whitening[0] = master[3];
    keys.whitening[1] = master[0];
    FULL_UNROLL
    for (u32 i = 0; i < 32; i++) {
        // The halves of the key turn by a byte every eight bytes of each.
        const u32 half = i % 4 / 2 * 2, turn = i / 4, odd = (i % 2 + turn / 4) % 2, shift = 8 * (turn % 4);
        const u32 low = master[half + odd], before = master[half + 1 - odd];
        const u32 bytes = shift ? low << shift | before >> (32 - shift) : low, delta = DELTAS.four[i];
        keys.sub[i] = ((bytes & 0x7f7f7f7f) + delta) ^ (bytes & 0x80808080);  // deltas have seven bits
    }
}
#endif

struct SlicedHight {
    static constexpr u32 BITS = 64, BLOCK = 8;
    static constexpr u32 MASKS = (128 + 8) * 8;  // subkeys, then whitening keys
    using Keys = HightKeys;

    DEVICE bool key_fits(u32 bytes) { return hight_key_fits(bytes); }
    template <bool DECRYPT>
    DEVICE void schedule(Keys& keys, const u8*, const u8* key, u32, u32 option) {
#if TARGET_GPU && NAMED_LOGIC
        hight_schedule_at_once(keys, key, option);
#else
        hight_schedule(keys, key, option);
#endif
    }

    DEVICE u32 mask(const Keys& keys, u32 index) {
        const u32 byte = index / 8;
        const u32 word = byte < 128 ? keys.sub[byte / 4] : keys.whitening[(byte - 128) / 4];
        return mask_of(word, byte % 4 * 8 + index % 8);
    }

    struct Key {
        u32 bit[8];
    };

    template <class Four>
    DEVICE Key load(const Four& four, u32 byte) {
        const Quad low = four[2 * byte], high = four[2 * byte + 1];
        return {{low.x[0], low.x[1], low.x[2], low.x[3], high.x[0], high.x[1], high.x[2], high.x[3]}};
    }

    // x + y, or x - y, modulo 256.
    template <bool SUBTRACT, class Addend>
    DEVICE void add(Word* x, const Addend* y) {
        Word carry = x[0] ^ x[0];
        FULL_UNROLL
        for (u32 b = 0; b < 8; b++) {
            const Word a = x[b], c = carry;
            x[b] = a ^ y[b] ^ c;
            if (b < 7) {
                if constexpr (SUBTRACT)
                    carry = (~a & (c ^ y[b])) | (c & y[b]);
                else
                    carry = (a & (c ^ y[b])) | (c & y[b]);
            }
        }
    }

#if NAMED_LOGIC
    // to ^= F0(from) + key
    template <class Four>
    DEVICE void mix0(Word* to, const Word* from, const Key& key, const Four& four) {
        Word carry;
        FULL_UNROLL
        for (u32 b = 0; b < 8; b++) {
            const Word f = lut<XOR3>(from[(b + 7) % 8], from[(b + 6) % 8], from[(b + 1) % 8]);
            const Word k = all_lanes(key.bit[b]);
            if (b && MULTIPLIED > 1) {
                Word addend = f;
                add_mask(addend, key.bit[b], four);
                to[b] = lut<XOR3>(to[b], addend, carry);
            } else {
                to[b] = lut<XOR3>(to[b], f, k);
                if (b) to[b] ^= carry;
            }
            carry = b ? lut<MAJORITY>(f, k, carry) : f & k;
        }
    }

    // to += F1(from) ^ key, or -=: a - b is ~(~a + b)
    template <bool SUBTRACT, class Four>
    DEVICE void mix1(Word* to, const Word* from, const Key& key, const Four& four) {
        constexpr u32 FIRST = SUBTRACT ? 0x06 : 0x60;  // the carry out of bit 0: a & (f ^ k), or ~a & (f ^ k)
        Word carry;
        FULL_UNROLL
        for (u32 b = 0; b < 8; b++) {
            const Word f = lut<XOR3>(from[(b + 5) % 8], from[(b + 4) % 8], from[(b + 2) % 8]);
            const Word k = all_lanes(key.bit[b]), a = to[b];
            if (b == 0) {
                to[b] = lut<XOR3>(a, f, k);
                carry = lut<FIRST>(a, f, k);
            } else {
                Word addend = f;
                add_mask(addend, key.bit[b], four);
                to[b] = lut<XOR3>(a, addend, carry);
                carry = lut<SUBTRACT ? 0x8e : MAJORITY>(a, addend, carry);
            }
        }
    }
#else
    // to ^= F0(from) + key
    template <class Four>
    DEVICE void mix0(Word* to, const Word* from, const Key& key, const Four&) {
        Word f[8];
        FULL_UNROLL
        for (u32 b = 0; b < 8; b++) f[b] = from[(b + 7) % 8] ^ from[(b + 6) % 8] ^ from[(b + 1) % 8];
        add<false>(f, key.bit);
        FULL_UNROLL
        for (u32 b = 0; b < 8; b++) to[b] ^= f[b];
    }

    // to += F1(from) ^ key, or -=
    template <bool SUBTRACT, class Four>
    DEVICE void mix1(Word* to, const Word* from, const Key& key, const Four&) {
        Word f[8];
        FULL_UNROLL
        for (u32 b = 0; b < 8; b++) f[b] = from[(b + 5) % 8] ^ from[(b + 4) % 8] ^ from[(b + 2) % 8] ^ key.bit[b];
        add<SUBTRACT>(to, f);
    }
#endif

    template <bool DECRYPT, class Masks>
    DEVICE void round(Word (&s)[BITS], u32 r, Masks masks) {
        const auto four = opened<8>(masks);
        Word* x[8];
        FULL_UNROLL
        for (u32 i = 0; i < 8; i++) x[i] = s + (i + 8 - r) % 8 * 8;
        mix0(x[7], x[6], load(four, 3), four);
        mix1<DECRYPT>(x[1], x[0], load(four, 0), four);
        mix0(x[3], x[2], load(four, 1), four);
        mix1<DECRYPT>(x[5], x[4], load(four, 2), four);
    }

    // Whitening of bytes 0, 2, 4 and 6 counted from `first`.
    template <bool SUBTRACT, class Masks>
    DEVICE void whiten(Word (&s)[BITS], u32 first, Masks masks) {
        const auto four = opened<8>(masks);
        FULL_UNROLL
        for (u32 i = 0; i < 4; i++) {
            Word* const x = s + (first + 2 * i) % 8 * 8;
            const Key key = load(four, i);
            if (i % 2 == 0) {
                add<SUBTRACT>(x, key.bit);
            } else {
                FULL_UNROLL
                for (u32 b = 0; b < 8; b++) x[b] ^= key.bit[b];
            }
        }
    }

    // The bytes one place down (UP false) or up.
    template <bool UP>
    DEVICE void move_bytes(Word (&s)[BITS]) {
        Word t[BITS];
        FULL_UNROLL
        for (u32 i = 0; i < BITS; i++) t[i] = s[(i + (UP ? BITS - 8 : 8)) % BITS];
        FULL_UNROLL
        for (u32 i = 0; i < BITS; i++) s[i] = t[i];
    }

    DEVICE void reverse_bytes(Word (&s)[BITS]) {
        keep_branch();
        FULL_UNROLL
        for (u32 i = 0; i < BITS / 2; i++) {
            const u32 j = (7 - i / 8) * 8 + i % 8;
            const Word t = s[i];
            s[i] = s[j], s[j] = t;
        }
    }

    template <class Masks>
    DEVICE void encrypt(Word (&s)[BITS], Masks masks, const Keys& keys) {
        if (keys.reversed) reverse_bytes(s);
        whiten<false>(s, 0, masks + 128 * 2);
        NO_UNROLL
        for (u32 first = 0; first < 32; first += 8) {
            FULL_UNROLL
            for (u32 r = 0; r < 8; r++) round<false>(s, r, masks + (first + r) * 8);
        }
        whiten<false>(s, 1, masks + 132 * 2);
        move_bytes<false>(s);
        if (keys.reversed) reverse_bytes(s);
    }

    template <class Masks>
    DEVICE void decrypt(Word (&s)[BITS], Masks masks, const Keys& keys) {
        if (keys.reversed) reverse_bytes(s);
        move_bytes<true>(s);
        whiten<true>(s, 1, masks + 132 * 2);
        NO_UNROLL
        for (u32 first = 32; first > 0; first -= 8) {
            FULL_UNROLL
            for (u32 undone = 0; undone < 8; undone++) round<true>(s, 7 - undone, masks + (first - 1 - undone) * 8);
        }
        whiten<true>(s, 0, masks + 128 * 2);
        if (keys.reversed) reverse_bytes(s);
    }
};
