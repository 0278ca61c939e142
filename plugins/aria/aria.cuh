// ARIA a block at a time (RFC 5794), with a table for each of the four S-boxes and a part of the linear map together.
//
// Words are little-endian: a word's byte 0 is the first. The linear map is a map within words, then sums of words, then
// moves of bytes within words, then the same sums; the first of the four is in the tables. In even rounds the tables of
// bytes 2 and 3 serve bytes 0 and 1, which turns every word by two bytes; the moves make up for it.
#pragma once
#include "galois.cuh"
#include "tables.cuh"

constexpr u64 ARIA_S1_COLUMNS = 0x8fc7e3f1f87c3e1full;
constexpr u64 ARIA_S2_COLUMNS = 0xee855f5bcf12c5acull;  // of x^247, which is the inverse's eighth power

DEVICE constexpr TableSource aria_tables() {
    const ByteTable inverse = gf_inverses(0x11b, 3);
    ByteTable box[4] = {};  // S1, S2 and their inverses
    for (u32 x = 0; x < 256; x++) {
        u32 eighth = inverse.of[x];
        for (u32 i = 0; i < 3; i++) eighth = gf_multiply(eighth, eighth, 0x11b);
        box[0].of[x] = (u8)(0x63 ^ bit_matrix(ARIA_S1_COLUMNS, inverse.of[x]));
        box[1].of[x] = (u8)(0xe2 ^ bit_matrix(ARIA_S2_COLUMNS, eighth));
        box[2].of[box[0].of[x]] = (u8)x;
        box[3].of[box[1].of[x]] = (u8)x;
    }
    constexpr u32 OTHERS[4] = {0x01010100, 0x01010001, 0x01000101, 0x00010101};
    TableSource tables = {};
    for (u32 i = 0; i < 4; i++)
        for (u32 x = 0; x < 256; x++) tables.word[i][x] = box[i].of[x] * OTHERS[i];
    return tables;
}

CONSTANT TableSource ARIA_TABLES = aria_tables();

struct alignas(16) AriaKeys {
    u32 round[17][4];
    u32 rounds;
    u32 pad[3];
};

DEVICE bool aria_key_fits(u32 bytes) { return bytes == 16 || bytes == 24 || bytes == 32; }

DEVICE void aria_sums(u32 (&x)[4]) {
    x[1] ^= x[2], x[2] ^= x[3], x[0] ^= x[1];
    x[3] ^= x[1], x[2] ^= x[0], x[1] ^= x[2];
}

// Substitution and linear map of an odd or an even round.
template <bool EVEN, class T>
DEVICE void aria_layer(const T& tables, u32 lane, u32 (&x)[4]) {
    FULL_UNROLL
    for (u32 i = 0; i < 4; i++) {
        if constexpr (EVEN)
            x[i] = look_up<2, 0>(tables, x[i], lane) ^ look_up<3, 1>(tables, x[i], lane) ^
                   look_up<0, 2>(tables, x[i], lane) ^ look_up<1, 3>(tables, x[i], lane);
        else
            x[i] = look_up<0, 0>(tables, x[i], lane) ^ look_up<1, 1>(tables, x[i], lane) ^
                   look_up<2, 2>(tables, x[i], lane) ^ look_up<3, 3>(tables, x[i], lane);
    }
    aria_sums(x);
    constexpr u32 FIRST = EVEN ? 2 : 0;  // the word that is not moved
    x[(FIRST + 1) % 4] = pick_bytes(x[(FIRST + 1) % 4], 0, 0x2301);
    x[(FIRST + 2) % 4] = pick_bytes(x[(FIRST + 2) % 4], 0, 0x1032);
    x[(FIRST + 3) % 4] = pick_bytes(x[(FIRST + 3) % 4], 0, 0x0123);
    aria_sums(x);
}

// The linear map alone.
DEVICE void aria_mix(u32 (&x)[4]) {
    FULL_UNROLL
    for (u32 i = 0; i < 4; i++) x[i] = rotate_left(x[i], 8) ^ rotate_left(x[i], 16) ^ rotate_left(x[i], 24);
    aria_sums(x);
    x[1] = pick_bytes(x[1], 0, 0x2301), x[2] = pick_bytes(x[2], 0, 0x1032), x[3] = pick_bytes(x[3], 0, 0x0123);
    aria_sums(x);
}

// x turned right by `bits` as one big-endian number.
DEVICE void aria_turn(u32 (&y)[4], const u32 (&x)[4], u32 bits) {
    FULL_UNROLL
    for (u32 i = 0; i < 4; i++) {
        u32 high = 0, low = 0;
        FULL_UNROLL
        for (u32 j = 0; j < 4; j++) {
            if (j == (i - bits / 32 - 1) % 4) high = swap_bytes(x[j]);
            if (j == (i - bits / 32) % 4) low = swap_bytes(x[j]);
        }
        y[i] = swap_bytes(high << (32 - bits % 32) | low >> bits % 32);
    }
}

template <bool DECRYPT, class T>
DEVICE void aria_schedule(AriaKeys& keys, const T& tables, u32 lane, const u8* key, u32 bytes) {
    // In memory order: C1, C2, C3 of the standard.
    constexpr u32 CONSTANTS[3][4] = {{0xb7c17c51, 0x940a2227, 0xe8ab13fe, 0xe06e9afa},
                                     {0xcc4ab16d, 0x20c8219e, 0xd5b128ff, 0xb0e25def},
                                     {0x1d3792db, 0x70e92621, 0x75972403, 0x0ec9e804}};
    const u32 which = bytes / 8 - 2;
    u32 w[4][4];
    FULL_UNROLL
    for (u32 i = 0; i < 4; i++) {
        w[0][i] = load_le32(key + 4 * i);
        w[1][i] = 16 + 4 * i < bytes ? load_le32(key + 16 + 4 * i) : 0;
    }
    u32 t[4];
    FULL_UNROLL
    for (u32 step = 0; step < 3; step++) {
        FULL_UNROLL
        for (u32 i = 0; i < 4; i++) t[i] = w[step][i] ^ CONSTANTS[(which + step) % 3][i];
        if (step == 1)
            aria_layer<true>(tables, lane, t);
        else
            aria_layer<false>(tables, lane, t);
        // W1 adds the right half of the key, which waits in w[1]; W2 adds W0, W3 adds W1.
        FULL_UNROLL
        for (u32 i = 0; i < 4; i++) w[step + 1][i] = t[i] ^ (step == 0 ? w[1][i] : w[step - 1][i]);
    }
    keys.rounds = 12 + 2 * which;
    NO_UNROLL
    for (u32 i = 0; i <= keys.rounds; i++) {
        constexpr u32 TURNS[5] = {19, 31, 128 - 61, 128 - 31, 128 - 19};
        u32 a[4], b[4];
        FULL_UNROLL
        for (u32 j = 0; j < 4; j++) {
            a[j] = b[j] = 0;
            FULL_UNROLL
            for (u32 k = 0; k < 4; k++) {
                if (i % 4 == k) a[j] = w[k][j], b[j] = w[(k + 1) % 4][j];
            }
        }
        u32 turn = 0;
        FULL_UNROLL
        for (u32 k = 0; k < 5; k++)
            if (i / 4 == k) turn = TURNS[k];
        aria_turn(t, b, turn);
        FULL_UNROLL
        for (u32 j = 0; j < 4; j++) t[j] ^= a[j];
        if (DECRYPT && i > 0 && i < keys.rounds) aria_mix(t);
        FULL_UNROLL
        for (u32 j = 0; j < 4; j++) keys.round[DECRYPT ? keys.rounds - i : i][j] = t[j];
    }
}

struct Aria {
    static constexpr u32 BLOCK = 16;
    template <bool DECRYPT>
    using Tables = FourTables;
    using Keys = AriaKeys;

    DEVICE bool key_fits(u32 bytes) { return aria_key_fits(bytes); }

    DEVICE void fill(FourTables& tables, const u8*, u32 thread, u32 threads) {
        fill_tables(tables, ARIA_TABLES, thread, threads);
    }

    template <bool DECRYPT>
    DEVICE void schedule(Keys& keys, const FourTables& tables, const u8*, u32 lane, const u8* key, u32 bytes, u32) {
        aria_schedule<DECRYPT>(keys, tables, lane, key, bytes);
    }

    DEVICE void add_key(u32 (&x)[4], const Keys& keys, u32 round) {
        const Quad quad = *(const Quad*)keys.round[round];
        FULL_UNROLL
        for (u32 j = 0; j < 4; j++) x[j] ^= quad.x[j];
    }

    DEVICE void encrypt(const FourTables& tables, const Keys& keys, u32 lane, u32 (&x)[4]) {
        add_key(x, keys, 0);
        aria_layer<false>(tables, lane, x);
        NO_UNROLL
        for (u32 round = 1; round + 1 < keys.rounds; round += 2) {
            add_key(x, keys, round);
            aria_layer<true>(tables, lane, x);
            add_key(x, keys, round + 1);
            aria_layer<false>(tables, lane, x);
        }
        add_key(x, keys, keys.rounds - 1);
        // The last round has no linear map. Every entry holds its value in three bytes, among them the wanted one.
        FULL_UNROLL
        for (u32 i = 0; i < 4; i++) {
            const u32 low = pick_bytes(look_up<2, 0>(tables, x[i], lane), look_up<3, 1>(tables, x[i], lane), 0x0050);
            const u32 high = pick_bytes(look_up<0, 2>(tables, x[i], lane), look_up<1, 3>(tables, x[i], lane), 0x7200);
            x[i] = pick_bytes(low, high, 0x7610);
        }
        add_key(x, keys, keys.rounds);
    }

    // The same with other round keys, which `schedule` has made.
    DEVICE void decrypt(const FourTables& tables, const Keys& keys, u32 lane, u32 (&x)[4]) {
        encrypt(tables, keys, lane, x);
    }
};
