// SKINNY a block at a time. CELL is the bits of a cell: 8 (128-bit blocks) or 4 (64-bit blocks).
//
// The state is four rows of four cells, filled row by row; here a row is a word and a cell one of its bytes, also for
// cells of four bits. With tables, a word is a column instead: SubCells, ShiftRows and MixColumns of a column are four
// lookups, as Xie, Wei and Liu (J. Computer Applications 41(4), 2021) do.
#pragma once
#include "cipher.cuh"

#ifndef TABLES_IN_CONSTANT
#define TABLES_IN_CONSTANT 0
#endif

DEVICE constexpr u32 skinny_substitute(u32 x, u32 cell_bits) {
    if (cell_bits == 4) {
        for (u32 step = 0; step < 4; step++) {
            x ^= ~(x >> 3 | x >> 2) & 1;
            if (step < 3) x = (x << 1 | x >> 3) & 15;
        }
        return x;
    }
    constexpr u32 FROM[8] = {5, 3, 0, 4, 6, 7, 1, 2};  // new bit i is old bit FROM[i]
    for (u32 step = 0; step < 4; step++) {
        x ^= (~(x >> 7 | x >> 6) & 1) << 4 | (~(x >> 3 | x >> 2) & 1);
        u32 moved = 0;
        for (u32 i = 0; i < 8; i++) moved |= (x >> (step < 3 ? FROM[i] : i == 1 ? 2 : i == 2 ? 1 : i) & 1) << i;
        x = moved;
    }
    return x;
}

struct SkinnyTables {
    u32 columns[4][256];  // what a cell of row r adds to its column, after SubCells and MixColumns
    u8 inverse[256];
};

template <u32 CELL>
DEVICE constexpr SkinnyTables skinny_tables() {
    constexpr u32 MIX[4] = {0x01000101, 0x00010000, 0x01010001, 0x00000001};
    SkinnyTables tables = {};
    for (u32 x = 0; x < 1u << CELL; x++) {
        const u32 y = skinny_substitute(x, CELL);
        for (u32 row = 0; row < 4; row++) tables.columns[row][x] = y * MIX[row];
        tables.inverse[y] = (u8)x;
    }
    return tables;
}

CONSTANT SkinnyTables SKINNY_TABLES_4 = skinny_tables<4>();
CONSTANT SkinnyTables SKINNY_TABLES_8 = skinny_tables<8>();

template <u32 CELL>
DEVICE const SkinnyTables& skinny_constant() {
    if constexpr (CELL == 4)
        return SKINNY_TABLES_4;
    else
        return SKINNY_TABLES_8;
}

constexpr u32 SKINNY_MAX_ROUNDS = 56;

struct SkinnyKeys {
    u32 rounds;
    u32 pad[3];
    u32 rows[SKINNY_MAX_ROUNDS][2];  // what AddConstants and AddRoundTweakey add to rows 0 and 1
};

// The 16 cells of 2 or 4 words in memory order, a byte each. For cells of four bits the high nibble comes first.
template <u32 CELL>
DEVICE void skinny_unpack(u32 (&rows)[4], const u32 (&block)[CELL / 2]) {
    if constexpr (CELL == 8) {
        FULL_UNROLL
        for (u32 i = 0; i < 4; i++) rows[i] = block[i];
    } else {
        FULL_UNROLL
        for (u32 i = 0; i < 4; i++) {
            const u32 half = block[i / 2] >> (16 * (i % 2)) & 0xffff;
            rows[i] = (half >> 4 & 15) | (half & 15) << 8 | (half >> 12) << 16 | (half >> 8 & 15) << 24;
        }
    }
}

template <u32 CELL>
DEVICE void skinny_pack(u32 (&block)[CELL / 2], const u32 (&rows)[4]) {
    FULL_UNROLL
    for (u32 i = 0; i < CELL / 2; i++) block[i] = 0;
    FULL_UNROLL
    for (u32 i = 0; i < 4; i++) {
        const u32 x = rows[i];
        if constexpr (CELL == 8)
            block[i] = x;
        else
            block[i / 2] |= ((x & 15) << 4 | (x >> 8 & 15) | (x >> 16 & 15) << 12 | (x >> 24) << 8) << (16 * (i % 2));
    }
}

// Four cells of TK2 (which 0) or TK3 through their shift register.
template <u32 CELL>
DEVICE u32 skinny_step_cells(u32 x, u32 which) {
    if constexpr (CELL == 8) {
        if (which == 0) return (x << 1 & 0xfefefefe) | ((x >> 7 ^ x >> 5) & 0x01010101);
        return (x >> 1 & 0x7f7f7f7f) | ((x << 7 ^ x << 1) & 0x80808080);
    } else {
        if (which == 0) return (x << 1 & 0x0e0e0e0e) | ((x >> 3 ^ x >> 2) & 0x01010101);
        return (x >> 1 & 0x07070707) | ((x << 3 ^ x) & 0x08080808);
    }
}

template <u32 CELL>
DEVICE bool skinny_key_fits(u32 bytes) {
    return bytes == 2 * CELL || bytes == 4 * CELL || bytes == 6 * CELL;
}

template <u32 CELL>
DEVICE void skinny_schedule(SkinnyKeys& keys, const u8* key, u32 bytes) {
    const u32 parts = bytes / (2 * CELL);  // TK1 to TK3
    u32 part[3][4] = {};
    FULL_UNROLL
    for (u32 z = 0; z < 3; z++) {
        if (z < parts) {
            u32 words[CELL / 2];
            FULL_UNROLL
            for (u32 i = 0; i < CELL / 2; i++) words[i] = load_le32(key + 2 * CELL * z + 4 * i);
            skinny_unpack<CELL>(part[z], words);
        }
    }
    keys.rounds = CELL == 4 ? 28 + 4 * parts : 32 + 8 * parts;
    u32 constant = 0;
    NO_UNROLL
    for (u32 round = 0; round < keys.rounds; round++) {
        constant = (constant << 1 & 0x3e) | (1 ^ (constant >> 5 & 1) ^ (constant >> 4 & 1));
        keys.rows[round][0] = part[0][0] ^ part[1][0] ^ part[2][0] ^ (constant & 15);
        keys.rows[round][1] = part[0][1] ^ part[1][1] ^ part[2][1] ^ constant >> 4;
        FULL_UNROLL
        for (u32 z = 0; z < 3; z++) {
            u32(&w)[4] = part[z];
            const u32 upper = pick_bytes(w[2], w[3], 0x5071), lower = pick_bytes(w[2], w[3], 0x3462);
            w[2] = w[0], w[3] = w[1];
            w[0] = z ? skinny_step_cells<CELL>(upper, z - 1) : upper;
            w[1] = z ? skinny_step_cells<CELL>(lower, z - 1) : lower;
        }
    }
}

template <u32 CELL>
struct Skinny {
    static constexpr u32 BLOCK = 2 * CELL;
    using Keys = SkinnyKeys;
#if TARGET_GPU && !TABLES_IN_CONSTANT
    template <bool DECRYPT>
    using Tables = SkinnyTables;
    DEVICE void fill(SkinnyTables& tables, const u8*, u32 thread, u32 threads) {
        for (u32 i = thread; i < sizeof(SkinnyTables) / 4; i += threads)
            ((u32*)&tables)[i] = ((const u32*)&skinny_constant<CELL>())[i];
    }
    DEVICE const SkinnyTables& lookup(const SkinnyTables& tables) { return tables; }
#else
    template <bool DECRYPT>
    using Tables = NoTables;
    DEVICE void fill(NoTables&, const u8*, u32, u32) {}
    DEVICE const SkinnyTables& lookup(const NoTables&) { return skinny_constant<CELL>(); }
#endif

    DEVICE bool key_fits(u32 bytes) { return skinny_key_fits<CELL>(bytes); }

    template <bool DECRYPT, class T>
    DEVICE void schedule(Keys& keys, const T&, const u8*, u32, const u8* key, u32 bytes, u32) {
        skinny_schedule<CELL>(keys, key, bytes);
    }

    // Rows to columns, and back.
    DEVICE void turn(u32 (&x)[4]) {
        const u32 a = pick_bytes(x[0], x[1], 0x5140), b = pick_bytes(x[2], x[3], 0x5140);
        const u32 c = pick_bytes(x[0], x[1], 0x7362), d = pick_bytes(x[2], x[3], 0x7362);
        x[0] = pick_bytes(a, b, 0x5410), x[1] = pick_bytes(a, b, 0x7632);
        x[2] = pick_bytes(c, d, 0x5410), x[3] = pick_bytes(c, d, 0x7632);
    }

    template <class T>
    DEVICE void encrypt(const T& tables, const Keys& keys, u32, u32 (&block)[CELL / 2]) {
        const SkinnyTables& t = lookup(tables);
        u32 x[4];
        skinny_unpack<CELL>(x, block);
        turn(x);
        NO_UNROLL
        for (u32 round = 0; round < keys.rounds; round++) {
            const u32 upper = keys.rows[round][0], lower = keys.rows[round][1];
            u32 y[4];
            FULL_UNROLL
            for (u32 j = 0; j < 4; j++) {
                y[j] = t.columns[0][byte_of(x[j], 0)] ^ t.columns[1][byte_of(x[(j + 3) % 4], 1)] ^
                       t.columns[2][byte_of(x[(j + 2) % 4], 2)] ^ t.columns[3][byte_of(x[(j + 1) % 4], 3)];
                y[j] ^= pick_bytes(upper, lower, j << 12 | (4 + (j + 3) % 4) << 8 | j << 4 | j);
            }
            y[2] ^= 0x02020002;
            FULL_UNROLL
            for (u32 j = 0; j < 4; j++) x[j] = y[j];
        }
        turn(x);
        skinny_pack<CELL>(block, x);
    }

    template <class T>
    DEVICE void decrypt(const T& tables, const Keys& keys, u32, u32 (&block)[CELL / 2]) {
        const SkinnyTables& t = lookup(tables);
        u32 x[4];
        skinny_unpack<CELL>(x, block);
        NO_UNROLL
        for (u32 round = keys.rounds; round-- > 0;) {
            const u32 c = x[1] ^ x[3];
            u32 y[4] = {x[1], rotate_left(x[2] ^ c, 24), rotate_left(c, 16) ^ 2, rotate_left(x[0] ^ x[3], 8)};
            y[0] ^= keys.rows[round][0];
            y[1] ^= keys.rows[round][1];
            FULL_UNROLL
            for (u32 i = 0; i < 4; i++)
                x[i] = t.inverse[byte_of(y[i], 0)] | t.inverse[byte_of(y[i], 1)] << 8 |
                       t.inverse[byte_of(y[i], 2)] << 16 | (u32)t.inverse[byte_of(y[i], 3)] << 24;
        }
        skinny_pack<CELL>(block, x);
    }
};
