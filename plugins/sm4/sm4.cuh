// SM4 a block at a time (GB/T 32907-2016), with tables of the S-box and the linear map together.
#pragma once
#include "galois.cuh"
#include "tables.cuh"

// Before and after the inversion modulo x^8 + x^7 + x^6 + x^5 + x^4 + x^2 + 1 stands the same affine map.
constexpr u64 SM4_COLUMNS = 0xe5f279bc5e2f97cb;

DEVICE constexpr ByteTable sm4_box() {
    const ByteTable inverse = gf_inverses(0x1f5, 2);
    ByteTable box = {};
    for (u32 x = 0; x < 256; x++)
        box.of[x] = (u8)(0xd3 ^ bit_matrix(SM4_COLUMNS, inverse.of[0xd3 ^ bit_matrix(SM4_COLUMNS, x)]));
    return box;
}

DEVICE constexpr u32 sm4_spread(u32 x) {
    return x ^ rotate_constant(x, 2) ^ rotate_constant(x, 10) ^ rotate_constant(x, 18) ^ rotate_constant(x, 24);
}

DEVICE constexpr TableSource sm4_tables() {
    const ByteTable box = sm4_box();
    TableSource tables = {};
    for (u32 x = 0; x < 256; x++)
        for (u32 byte = 0; byte < 4; byte++) tables.word[byte][x] = sm4_spread((u32)box.of[x] << (8 * byte));
    return tables;
}

CONSTANT ByteTable SM4_BOX = sm4_box();
CONSTANT TableSource SM4_TABLES = sm4_tables();

struct Sm4Keys {
    u32 round[32];
};

template <bool DECRYPT>
DEVICE void sm4_schedule(Sm4Keys& keys, const u8* key) {
    constexpr u32 FAMILY[4] = {0xa3b1bac6, 0x56aa3350, 0x677d9197, 0xb27022dc};
    u32 k[4];
    FULL_UNROLL
    for (u32 i = 0; i < 4; i++) k[i] = load_be32(key + 4 * i) ^ FAMILY[i];
    NO_UNROLL
    for (u32 i = 0; i < 32; i++) {
        u32 constant = 0;
        FULL_UNROLL
        for (u32 j = 0; j < 4; j++) constant = constant << 8 | ((4 * i + j) * 7 & 0xff);
        const u32 x = k[1] ^ k[2] ^ k[3] ^ constant;
        u32 y = 0;
        FULL_UNROLL
        for (u32 j = 0; j < 4; j++) y |= (u32)SM4_BOX.of[byte_of(x, j)] << (8 * j);
        y = k[0] ^ y ^ rotate_left(y, 13) ^ rotate_left(y, 23);
        k[0] = k[1], k[1] = k[2], k[2] = k[3], k[3] = y;
        keys.round[DECRYPT ? 31 - i : i] = y;
    }
}

struct Sm4 {
    static constexpr u32 BLOCK = 16;
    template <bool DECRYPT>
    using Tables = FourTables;
    using Keys = Sm4Keys;

    DEVICE bool key_fits(u32 bytes) { return bytes == 16; }
    DEVICE void fill(FourTables& tables, const u8*, u32 thread, u32 threads) { fill_tables(tables, SM4_TABLES, thread, threads); }

    template <bool DECRYPT>
    DEVICE void schedule(Keys& keys, const FourTables&, const u8*, u32, const u8* key, u32, u32) {
        sm4_schedule<DECRYPT>(keys, key);
    }

    DEVICE void encrypt(const FourTables& tables, const Keys& keys, u32 lane, u32 (&block)[4]) {
        u32 x[4];
        FULL_UNROLL
        for (u32 i = 0; i < 4; i++) x[i] = swap_bytes(block[i]);
        NO_UNROLL
        for (u32 first = 0; first < 32; first += 4) {
            FULL_UNROLL
            for (u32 r = 0; r < 4; r++) {
                const u32 t = x[(r + 1) % 4] ^ x[(r + 2) % 4] ^ x[(r + 3) % 4] ^ keys.round[first + r];
                x[r] ^= look_up<0, 0>(tables, t, lane) ^ look_up<1, 1>(tables, t, lane) ^
                        look_up<2, 2>(tables, t, lane) ^ look_up<3, 3>(tables, t, lane);
            }
        }
        FULL_UNROLL
        for (u32 i = 0; i < 4; i++) block[i] = swap_bytes(x[3 - i]);
    }

    // The same with the round keys reversed, which `schedule` has done.
    DEVICE void decrypt(const FourTables& tables, const Keys& keys, u32 lane, u32 (&block)[4]) {
        encrypt(tables, keys, lane, block);
    }
};
