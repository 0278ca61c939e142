// AES (FIPS 197) a block at a time, with the four tables of Daemen and Rijmen. Words are little-endian, so that a
// block needs no byte swaps. Decryption is the equivalent inverse cipher (FIPS 197, 5.3.5).
#pragma once
#include "galois.cuh"
#include "tables.cuh"

constexpr u64 AES_COLUMNS = 0x8fc7e3f1f87c3e1full;

DEVICE constexpr ByteTable aes_box() {
    const ByteTable inverse = gf_inverses(0x11b, 3);
    ByteTable box = {};
    for (u32 x = 0; x < 256; x++) box.of[x] = (u8)(0x63 ^ bit_matrix(AES_COLUMNS, inverse.of[x]));
    return box;
}

DEVICE constexpr ByteTable aes_inverse_box() {
    const ByteTable box = aes_box();
    ByteTable inverse = {};
    for (u32 x = 0; x < 256; x++) inverse.of[box.of[x]] = (u8)x;
    return inverse;
}

// What byte 0 of a column with this value gives to the column; the other bytes' tables are turns of it.
DEVICE constexpr TableSource aes_tables(const ByteTable& box, u32 m0, u32 m1, u32 m2, u32 m3) {
    TableSource tables = {};
    for (u32 x = 0; x < 256; x++) {
        const u32 y = box.of[x];
        const u32 column = gf_multiply(y, m0, 0x11b) | gf_multiply(y, m1, 0x11b) << 8 |
                           gf_multiply(y, m2, 0x11b) << 16 | gf_multiply(y, m3, 0x11b) << 24;
        for (u32 byte = 0; byte < 4; byte++) tables.word[byte][x] = rotate_constant(column, 8 * byte);
    }
    return tables;
}

CONSTANT ByteTable AES_BOX = aes_box();
CONSTANT ByteTable AES_INVERSE_BOX = aes_inverse_box();
CONSTANT TableSource AES_TABLES = aes_tables(aes_box(), 2, 1, 1, 3);
CONSTANT TableSource AES_INVERSE_TABLES = aes_tables(aes_inverse_box(), 14, 9, 13, 11);

struct AesTables {
    FourTables four;
};

struct AesInverseTables {
    FourTables four;
    u8 box[256];  // of the last round
};

template <bool DECRYPT>
struct AesTablesOf {
    using Type = AesTables;
};

template <>
struct AesTablesOf<true> {
    using Type = AesInverseTables;
};

struct alignas(16) AesKeys {
    u32 word[60];
    u32 rounds;
    u32 pad[3];
};

DEVICE bool aes_key_fits(u32 bytes) { return bytes == 16 || bytes == 24 || bytes == 32; }

DEVICE u32 aes_substitute(u32 x) {
    u32 y = 0;
    FULL_UNROLL
    for (u32 i = 0; i < 4; i++) y |= (u32)AES_BOX.of[byte_of(x, i)] << (8 * i);
    return y;
}

DEVICE u32 aes_double(u32 x) { return (x << 1 & 0xfefefefe) ^ (x >> 7 & 0x01010101) * 0x1b; }

DEVICE u32 aes_inverse_mix(u32 x) {
    const u32 two = aes_double(x), four = aes_double(two), eight = aes_double(four);
    const u32 nine = eight ^ x;
    return (eight ^ four ^ two) ^ rotate_left(nine, 8) ^ rotate_left(nine ^ four, 16) ^ rotate_left(nine ^ two, 24);
}

DEVICE void aes_expand(AesKeys& keys, const u8* key, u32 bytes) {
    const u32 length = bytes / 4;
    keys.rounds = length + 6;
    u32 constant = 1;
    NO_UNROLL
    for (u32 i = 0; i < length; i++) keys.word[i] = load_le32(key + 4 * i);
    NO_UNROLL
    for (u32 i = length; i < 4 * (keys.rounds + 1); i++) {
        u32 x = keys.word[i - 1];
        if (i % length == 0) {
            x = aes_substitute(rotate_left(x, 24)) ^ constant;
            constant = gf_double(constant, 0x11b);
        } else if (length == 8 && i % 8 == 4) {
            x = aes_substitute(x);
        }
        keys.word[i] = keys.word[i - length] ^ x;
    }
}

// Round keys of the equivalent inverse cipher: in reverse order, all but the outer two through InvMixColumns.
DEVICE void aes_invert(AesKeys& keys) {
    NO_UNROLL
    for (u32 low = 0; 2 * low <= keys.rounds; low++) {
        const u32 high = keys.rounds - low;
        FULL_UNROLL
        for (u32 j = 0; j < 4; j++) {
            const u32 a = keys.word[4 * low + j], b = keys.word[4 * high + j];
            keys.word[4 * low + j] = low ? aes_inverse_mix(b) : b;
            keys.word[4 * high + j] = low ? aes_inverse_mix(a) : a;
        }
    }
}

struct Aes {
    static constexpr u32 BLOCK = 16;
    template <bool DECRYPT>
    using Tables = typename AesTablesOf<DECRYPT>::Type;
    using Keys = AesKeys;

    DEVICE bool key_fits(u32 bytes) { return aes_key_fits(bytes); }

    DEVICE void fill(AesTables& tables, const u8*, u32 thread, u32 threads) {
        fill_tables(tables.four, AES_TABLES, thread, threads);
    }

    DEVICE void fill(AesInverseTables& tables, const u8*, u32 thread, u32 threads) {
        fill_tables(tables.four, AES_INVERSE_TABLES, thread, threads);
        for (u32 i = thread; i < 64; i += threads) ((u32*)tables.box)[i] = ((const u32*)AES_INVERSE_BOX.of)[i];
    }

    template <bool DECRYPT, class T>
    DEVICE void schedule(Keys& keys, const T&, const u8*, u32, const u8* key, u32 bytes, u32) {
        aes_expand(keys, key, bytes);
        if (DECRYPT) aes_invert(keys);
    }

    DEVICE void add_key(u32 (&x)[4], const Keys& keys, u32 round) {
        const Quad quad = *(const Quad*)(keys.word + 4 * round);
        FULL_UNROLL
        for (u32 j = 0; j < 4; j++) x[j] ^= quad.x[j];
    }

    // All rounds but the last. Byte i of a column comes from the column i places on, or back for decryption.
    template <u32 STEP>
    DEVICE void rounds(const FourTables& t, const Keys& keys, u32 lane, u32 (&x)[4]) {
        add_key(x, keys, 0);
        NO_UNROLL
        for (u32 round = 1; round < keys.rounds; round++) {
            u32 y[4];
            FULL_UNROLL
            for (u32 j = 0; j < 4; j++)
                y[j] = look_up<0, 0>(t, x[j], lane) ^ look_up<1, 1>(t, x[(j + STEP) % 4], lane) ^
                       look_up<2, 2>(t, x[(j + 2) % 4], lane) ^ look_up<3, 3>(t, x[(j + 3 * STEP) % 4], lane);
            FULL_UNROLL
            for (u32 j = 0; j < 4; j++) x[j] = y[j];
            add_key(x, keys, round);
        }
    }

    // The S-box alone stands in byte 1 and 2 of the table for byte 0, one byte further in the next.
    DEVICE void encrypt(const AesTables& tables, const Keys& keys, u32 lane, u32 (&x)[4]) {
        const FourTables& t = tables.four;
        rounds<1>(t, keys, lane, x);
        u32 y[4];
        FULL_UNROLL
        for (u32 j = 0; j < 4; j++) {
            const u32 low = pick_bytes(look_up<2, 0>(t, x[j], lane), look_up<3, 1>(t, x[(j + 1) % 4], lane), 0x0050);
            const u32 high =
                pick_bytes(look_up<0, 2>(t, x[(j + 2) % 4], lane), look_up<1, 3>(t, x[(j + 3) % 4], lane), 0x7200);
            y[j] = pick_bytes(low, high, 0x7610);
        }
        FULL_UNROLL
        for (u32 j = 0; j < 4; j++) x[j] = y[j];
        add_key(x, keys, keys.rounds);
    }

    DEVICE void decrypt(const AesInverseTables& tables, const Keys& keys, u32 lane, u32 (&x)[4]) {
        rounds<3>(tables.four, keys, lane, x);
        u32 y[4];
        FULL_UNROLL
        for (u32 j = 0; j < 4; j++)
            y[j] = tables.box[byte_of(x[j], 0)] | tables.box[byte_of(x[(j + 3) % 4], 1)] << 8 |
                   tables.box[byte_of(x[(j + 2) % 4], 2)] << 16 | (u32)tables.box[byte_of(x[(j + 1) % 4], 3)] << 24;
        FULL_UNROLL
        for (u32 j = 0; j < 4; j++) x[j] = y[j];
        add_key(x, keys, keys.rounds);
    }
};
