// HIGHT a block at a time (Hong et al., CHES 2006; TTAK.KO-12.0040).
//
// Two byte orders are in use. In the order of KISA's code byte i of key, plaintext and ciphertext is MK_i, P_i and
// C_i; the standards print the highest index first. Option 0 is the first, 1 the second: the three strings reversed.
#pragma once
#include "cipher.cuh"

struct HightKeys {
    u32 reversed;
    u32 sub[32];        // a round's four subkeys, the first lowest
    u32 whitening[2];   // WK0 to WK3, WK4 to WK7
};

DEVICE bool hight_key_fits(u32 bytes) { return bytes == 16; }

// delta_i: seven bits of a shift register with polynomial x^7 + x^3 + 1, from 0x5a on.
DEVICE void hight_schedule(HightKeys& keys, const u8* key, u32 option) {
    keys.reversed = option;
    u32 master[4];
    FULL_UNROLL
    for (u32 i = 0; i < 4; i++)
        master[i] = option ? swap_bytes(load_le32(key + 12 - 4 * i)) : load_le32(key + 4 * i);
    keys.whitening[0] = master[3];
    keys.whitening[1] = master[0];
    u64 low = (u64)master[1] << 32 | master[0], high = (u64)master[3] << 32 | master[2];
    u32 delta = 0x5a;
    NO_UNROLL
    for (u32 i = 0; i < 8; i++) {
        NO_UNROLL
        for (u32 quarter = 0; quarter < 4; quarter++) {
            const u64 half = quarter < 2 ? low : high;
            u32 four = 0;
            FULL_UNROLL
            for (u32 j = 0; j < 4; j++) {
                const u32 byte = (u32)(half >> (32 * (quarter % 2) + 8 * j)) & 0xff;
                four |= (byte + delta & 0xff) << (8 * j);
                delta = delta >> 1 | ((delta >> 3 ^ delta) & 1) << 6;
            }
            keys.sub[4 * i + quarter] = four;
        }
        low = low << 8 | low >> 56;
        high = high << 8 | high >> 56;
    }
}

DEVICE u32 hight_f0(u32 x) {
    const u32 y = x | x << 8;
    return (y >> 7 ^ y >> 6 ^ y >> 1) & 0xff;
}

DEVICE u32 hight_f1(u32 x) {
    const u32 y = x | x << 8;
    return (y >> 5 ^ y >> 4 ^ y >> 2) & 0xff;
}

struct Hight {
    static constexpr u32 BLOCK = 8;
    template <bool DECRYPT>
    using Tables = NoTables;
    using Keys = HightKeys;

    DEVICE bool key_fits(u32 bytes) { return hight_key_fits(bytes); }
    DEVICE void fill(NoTables&, const u8*, u32, u32) {}
    template <bool DECRYPT>
    DEVICE void schedule(Keys& keys, const NoTables&, const u8*, u32, const u8* key, u32, u32 option) {
        hight_schedule(keys, key, option);
    }

    DEVICE void unpack(u32 (&x)[8], const u32 (&block)[2], const Keys& keys) {
        const u32 low = keys.reversed ? swap_bytes(block[1]) : block[0];
        const u32 high = keys.reversed ? swap_bytes(block[0]) : block[1];
        FULL_UNROLL
        for (u32 i = 0; i < 4; i++) x[i] = byte_of(low, i), x[4 + i] = byte_of(high, i);
    }

    DEVICE void pack(u32 (&block)[2], const u32 (&x)[8], const Keys& keys) {
        u32 half[2] = {};
        FULL_UNROLL
        for (u32 i = 0; i < 8; i++) half[i / 4] |= (x[i] & 0xff) << (8 * (i % 4));
        block[0] = keys.reversed ? swap_bytes(half[1]) : half[0];
        block[1] = keys.reversed ? swap_bytes(half[0]) : half[1];
    }

    // Eight rounds bring the bytes back to their places, so a round renames instead of moving.
    DEVICE void encrypt(const NoTables&, const Keys& keys, u32, u32 (&block)[2]) {
        u32 x[8];
        unpack(x, block, keys);
        u32 w = keys.whitening[0];
        x[0] += byte_of(w, 0), x[2] ^= byte_of(w, 1), x[4] += byte_of(w, 2), x[6] ^= byte_of(w, 3);
        x[0] &= 0xff, x[4] &= 0xff;
        NO_UNROLL
        for (u32 first = 0; first < 32; first += 8) {
            FULL_UNROLL
            for (u32 r = 0; r < 8; r++) {
                const u32 k = keys.sub[first + r];
                u32 &x0 = x[(8 - r) % 8], &x1 = x[(9 - r) % 8], &x2 = x[(10 - r) % 8], &x3 = x[(11 - r) % 8];
                u32 &x4 = x[(12 - r) % 8], &x5 = x[(13 - r) % 8], &x6 = x[(14 - r) % 8], &x7 = x[(15 - r) % 8];
                x7 = x7 ^ (hight_f0(x6) + byte_of(k, 3) & 0xff);
                x1 = x1 + (hight_f1(x0) ^ byte_of(k, 0)) & 0xff;
                x3 = x3 ^ (hight_f0(x2) + byte_of(k, 1) & 0xff);
                x5 = x5 + (hight_f1(x4) ^ byte_of(k, 2)) & 0xff;
            }
        }
        w = keys.whitening[1];
        const u32 y[8] = {x[1] + byte_of(w, 0), x[2], x[3] ^ byte_of(w, 1), x[4],
                          x[5] + byte_of(w, 2), x[6], x[7] ^ byte_of(w, 3), x[0]};
        pack(block, y, keys);
    }

    DEVICE void decrypt(const NoTables&, const Keys& keys, u32, u32 (&block)[2]) {
        u32 y[8];
        unpack(y, block, keys);
        u32 w = keys.whitening[1];
        u32 x[8] = {y[7], y[0] - byte_of(w, 0) & 0xff, y[1], y[2] ^ byte_of(w, 1),
                    y[3], y[4] - byte_of(w, 2) & 0xff, y[5], y[6] ^ byte_of(w, 3)};
        NO_UNROLL
        for (u32 first = 32; first > 0; first -= 8) {
            FULL_UNROLL
            for (u32 undone = 0; undone < 8; undone++) {
                const u32 r = 7 - undone;
                const u32 k = keys.sub[first - 1 - undone];
                u32 &x0 = x[(8 - r) % 8], &x1 = x[(9 - r) % 8], &x2 = x[(10 - r) % 8], &x3 = x[(11 - r) % 8];
                u32 &x4 = x[(12 - r) % 8], &x5 = x[(13 - r) % 8], &x6 = x[(14 - r) % 8], &x7 = x[(15 - r) % 8];
                x7 = x7 ^ (hight_f0(x6) + byte_of(k, 3) & 0xff);
                x1 = x1 - (hight_f1(x0) ^ byte_of(k, 0)) & 0xff;
                x3 = x3 ^ (hight_f0(x2) + byte_of(k, 1) & 0xff);
                x5 = x5 - (hight_f1(x4) ^ byte_of(k, 2)) & 0xff;
            }
        }
        w = keys.whitening[0];
        x[0] -= byte_of(w, 0), x[2] ^= byte_of(w, 1), x[4] -= byte_of(w, 2), x[6] ^= byte_of(w, 3);
        pack(block, x, keys);
    }
};
