// Kuznyechik a block at a time (GOST R 34.12-2015, RFC 7801), with tables of the S-box and the linear map together.
//
// Byte 0 in memory is a15 of the standard. A row of the tables is 16 bytes in memory order, so that nothing is swapped.
#pragma once
#include "cipher.cuh"

#ifndef TABLES_IN_GLOBAL
#define TABLES_IN_GLOBAL (!TARGET_GPU)
#endif

#ifndef TABLES_IN_CONSTANT
#define TABLES_IN_CONSTANT 0
#endif

CONSTANT constexpr u8 KUZNYECHIK_PI[256] = {
    252, 238, 221,  17, 207, 110,  49,  22, 251, 196, 250, 218,  35, 197,   4,  77,
    233, 119, 240, 219, 147,  46, 153, 186,  23,  54, 241, 187,  20, 205,  95, 193,
    249,  24, 101,  90, 226,  92, 239,  33, 129,  28,  60,  66, 139,   1, 142,  79,
      5, 132,   2, 174, 227, 106, 143, 160,   6,  11, 237, 152, 127, 212, 211,  31,
    235,  52,  44,  81, 234, 200,  72, 171, 242,  42, 104, 162, 253,  58, 206, 204,
    181, 112,  14,  86,   8,  12, 118,  18, 191, 114,  19,  71, 156, 183,  93, 135,
     21, 161, 150,  41,  16, 123, 154, 199, 243, 145, 120, 111, 157, 158, 178, 177,
     50, 117,  25,  61, 255,  53, 138, 126, 109,  84, 198, 128, 195, 189,  13,  87,
    223, 245,  36, 169,  62, 168,  67, 201, 215, 121, 214, 246, 124,  34, 185,   3,
    224,  15, 236, 222, 122, 148, 176, 188, 220, 232,  40,  80,  78,  51,  10,  74,
    167, 151,  96, 115,  30,   0,  98,  68,  26, 184,  56, 130, 100, 159,  38,  65,
    173,  69,  70, 146,  39,  94,  85,  47, 140, 163, 165, 125, 105, 213, 149,  59,
      7,  88, 179,  64, 134, 172,  29, 247,  48,  55, 107, 228, 136, 217, 231, 137,
    225,  27, 131,  73,  76,  63, 248, 254, 141,  83, 170, 144, 202, 216, 133,  97,
     32, 113, 103, 164,  45,  43,   9,  91, 203, 155,  37, 208, 190, 229, 108,  82,
     89, 166, 116, 210, 230, 244, 180, 192, 209, 102, 175, 194,  57,  75,  99, 182};

struct KuznyechikRows {
    Quad row[16][256];  // the linear map of the substituted value at byte i
};

// The plugin's state.
struct KuznyechikState {
    KuznyechikRows forward, inverse;
    u8 pi[256], pi_inverse[256];
};

DEVICE u32 kuznyechik_multiply(u32 a, u32 b) {
    u32 product = 0;
    NO_UNROLL
    for (; b; b >>= 1) {
        if (b & 1) product ^= a;
        a = a << 1 ^ (a & 0x80 ? 0x1c3 : 0);
    }
    return product;
}

// Row entry `index` of forward, then of inverse.
DEVICE void kuznyechik_entry(u8* state, u32 index) {
    constexpr u8 COEFFICIENTS[16] = {148, 32, 133, 16, 194, 192, 1, 251, 1, 192, 194, 16, 133, 32, 148, 1};
    auto& tables = *(KuznyechikState*)state;
    const bool inverse = index >= 4096;
    const u32 place = index / 256 % 16, value = index % 256;
    u32 substituted = KUZNYECHIK_PI[value];
    if (inverse) {
        substituted = 0;
        while (KUZNYECHIK_PI[substituted] != value) substituted++;
    }
    if (place == 0) (inverse ? tables.pi_inverse : tables.pi)[value] = (u8)substituted;
    u8 x[16] = {};
    x[place] = (u8)substituted;
    NO_UNROLL
    for (u32 step = 0; step < 16; step++) {
        const u8 first = x[0];
        u32 sum = 0;
        NO_UNROLL
        for (u32 i = 0; i < 15; i++) {
            if (inverse) x[i] = x[i + 1];
            sum ^= kuznyechik_multiply(x[i], COEFFICIENTS[i]);
        }
        if (inverse) {
            x[15] = (u8)(sum ^ first);
        } else {
            sum ^= x[15];
            NO_UNROLL
            for (u32 i = 15; i > 0; i--) x[i] = x[i - 1];
            x[0] = (u8)sum;
        }
    }
    Quad& to = (inverse ? tables.inverse : tables.forward).row[place][value];
    NO_UNROLL
    for (u32 i = 0; i < 4; i++)
        to.x[i] = x[4 * i] | x[4 * i + 1] << 8 | x[4 * i + 2] << 16 | (u32)x[4 * i + 3] << 24;
}

// One layer: y = L(S(x)) with the forward rows, L^-1(S^-1(x)) with the inverse ones.
DEVICE void kuznyechik_layer(const KuznyechikRows& rows, u32 (&x)[4]) {
    u32 y[4] = {};
    FULL_UNROLL
    for (u32 i = 0; i < 16; i++) {
        const Quad& from = rows.row[i][byte_of(x[i / 4], i % 4)];
#if TARGET_GPU && TABLES_IN_GLOBAL
        const uint4 v = __ldg((const uint4*)&from);  // the read-only path
        const Quad row = {{v.x, v.y, v.z, v.w}};
#else
        const Quad row = from;
#endif
        FULL_UNROLL
        for (u32 j = 0; j < 4; j++) y[j] ^= row.x[j];
    }
    FULL_UNROLL
    for (u32 j = 0; j < 4; j++) x[j] = y[j];
}

DEVICE void kuznyechik_substitute(const u8* box, u32 (&x)[4]) {
    FULL_UNROLL
    for (u32 j = 0; j < 4; j++)
        x[j] = box[byte_of(x[j], 0)] | box[byte_of(x[j], 1)] << 8 | box[byte_of(x[j], 2)] << 16 |
               (u32)box[byte_of(x[j], 3)] << 24;
}

struct alignas(16) KuznyechikKeys {
    u32 round[10][4];
};

DEVICE void kuznyechik_schedule(KuznyechikKeys& keys, const u8* state, const u8* key) {
    const auto& tables = *(const KuznyechikState*)state;
    u32 left[4], right[4];
    FULL_UNROLL
    for (u32 j = 0; j < 4; j++) {
        keys.round[0][j] = left[j] = load_le32(key + 4 * j);
        keys.round[1][j] = right[j] = load_le32(key + 16 + 4 * j);
    }
    NO_UNROLL
    for (u32 i = 1; i <= 32; i++) {
        // The constant is L of i in the last byte.
        const Quad constant = tables.forward.row[15][tables.pi_inverse[i]];
        u32 x[4];
        FULL_UNROLL
        for (u32 j = 0; j < 4; j++) x[j] = left[j] ^ constant.x[j];
        kuznyechik_layer(tables.forward, x);
        FULL_UNROLL
        for (u32 j = 0; j < 4; j++) {
            x[j] ^= right[j];
            right[j] = left[j];
            left[j] = x[j];
            if (i % 8 == 0) keys.round[i / 4][j] = left[j], keys.round[i / 4 + 1][j] = right[j];
        }
    }
}

#if TABLES_IN_GLOBAL
template <bool DECRYPT>
struct KuznyechikTables {
    const KuznyechikState* state;
    DEVICE const KuznyechikRows& rows(const KuznyechikTables& t) { return DECRYPT ? t.state->inverse : t.state->forward; }
    DEVICE const u8* pi_inverse(const KuznyechikTables& t) { return t.state->pi_inverse; }
};
#else
template <bool DECRYPT>
struct KuznyechikTables {
    KuznyechikRows copy;
    u8 box[256];
    DEVICE const KuznyechikRows& rows(const KuznyechikTables& t) { return t.copy; }
    DEVICE const u8* pi_inverse(const KuznyechikTables& t) { return t.box; }
};
#endif

#if TABLES_IN_CONSTANT
#include "kuznyechik_constant.cuh"
#endif

struct Kuznyechik {
    static constexpr u32 BLOCK = 16;
    template <bool DECRYPT>
    using Tables = KuznyechikTables<DECRYPT>;
    using Keys = KuznyechikKeys;

    DEVICE bool key_fits(u32 bytes) { return bytes == 32; }

    template <bool DECRYPT>
    DEVICE void fill(KuznyechikTables<DECRYPT>& tables, const u8* state, u32 thread, u32 threads) {
        const auto& from = *(const KuznyechikState*)state;
#if TABLES_IN_GLOBAL
        if (thread == 0) tables.state = &from;
#else
        const Quad* const rows = (const Quad*)&(DECRYPT ? from.inverse : from.forward);
        Quad* const copy = (Quad*)&tables.copy;
        for (u32 i = thread; i < 4096; i += threads) copy[i] = rows[i];
        for (u32 i = thread; i < 256; i += threads) tables.box[i] = from.pi_inverse[i];
#endif
    }

    template <bool DECRYPT>
    DEVICE void schedule(Keys& keys, const Tables<DECRYPT>&, const u8* state, u32, const u8* key, u32, u32) {
        const auto& all = *(const KuznyechikState*)state;
        kuznyechik_schedule(keys, state, key);
        // Rounds 2 to 10 are undone with keys that went through L^-1, so that the rows fit in between.
        NO_UNROLL
        for (u32 i = 1; DECRYPT && i < 10; i++) {
            kuznyechik_substitute(all.pi, keys.round[i]);
            kuznyechik_layer(all.inverse, keys.round[i]);
        }
    }

    DEVICE void add_key(u32 (&x)[4], const Keys& keys, u32 round) {
        const Quad quad = *(const Quad*)keys.round[round];
        FULL_UNROLL
        for (u32 j = 0; j < 4; j++) x[j] ^= quad.x[j];
    }

    DEVICE void encrypt(const KuznyechikTables<false>& tables, const Keys& keys, u32, u32 (&x)[4]) {
        NO_UNROLL
        for (u32 round = 0; round < 9; round++) {
            add_key(x, keys, round);
#if TABLES_IN_CONSTANT
            kuznyechik_constant_layer(Tables<false>::rows(tables).row[15], x);
#else
            kuznyechik_layer(Tables<false>::rows(tables), x);
#endif
        }
        add_key(x, keys, 9);
    }

    DEVICE void decrypt(const KuznyechikTables<true>& tables, const Keys& keys, u32, u32 (&x)[4]) {
        decrypt_outer(tables, x);
        add_key(x, keys, 9);
        NO_UNROLL
        for (u32 round = 8; round > 0; round--) {
            kuznyechik_layer(Tables<true>::rows(tables), x);
            add_key(x, keys, round);
        }
        kuznyechik_substitute(Tables<true>::pi_inverse(tables), x);
        add_key(x, keys, 0);
    }

    // L^-1 alone: the rows of S(x).
    DEVICE void decrypt_outer(const KuznyechikTables<true>& tables, u32 (&x)[4]) {
        kuznyechik_substitute(KUZNYECHIK_PI, x);
        kuznyechik_layer(Tables<true>::rows(tables), x);
    }
};
