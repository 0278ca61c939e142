// The rows of fifteen bytes as constants: sixteen would be all the constant memory that there is. The last byte's rows are
// read from the plugin's state, and so are those of decryption.
#pragma once
#include "kuznyechik.cuh"

struct KuznyechikConstantRows {
    u32 row[15][256][4];
};

DEVICE constexpr u32 kuznyechik_product(u32 a, u32 b) {
    u32 product = 0;
    for (; b; b >>= 1) {
        if (b & 1) product ^= a;
        a = a << 1 ^ (a & 0x80 ? 0x1c3 : 0);
    }
    return product;
}

// The map is linear: the rows of the eight bits of a byte, then their sums.
DEVICE constexpr KuznyechikConstantRows kuznyechik_constant_rows() {
    constexpr u32 COEFFICIENTS[16] = {148, 32, 133, 16, 194, 192, 1, 251, 1, 192, 194, 16, 133, 32, 148, 1};
    KuznyechikConstantRows rows = {};
    for (u32 place = 0; place < 15; place++) {
        u32 basis[8][4] = {};
        for (u32 bit = 0; bit < 8; bit++) {
            u32 x[16] = {};
            x[place] = 1u << bit;
            for (u32 step = 0; step < 16; step++) {
                u32 sum = 0;
                for (u32 i = 0; i < 16; i++)
                    if (x[i]) sum ^= kuznyechik_product(COEFFICIENTS[i], x[i]);
                for (u32 i = 15; i > 0; i--) x[i] = x[i - 1];
                x[0] = sum;
            }
            for (u32 i = 0; i < 16; i++) basis[bit][i / 4] |= x[i] << (8 * (i % 4));
        }
        for (u32 value = 0; value < 256; value++)
            for (u32 bit = 0; bit < 8; bit++)
                if (KUZNYECHIK_PI[value] >> bit & 1)
                    for (u32 j = 0; j < 4; j++) rows.row[place][value][j] ^= basis[bit][j];
    }
    return rows;
}

CONSTANT KuznyechikConstantRows KUZNYECHIK_ROWS = kuznyechik_constant_rows();

DEVICE void kuznyechik_constant_layer(const Quad (&last)[256], u32 (&x)[4]) {
    const Quad row = last[byte_of(x[3], 3)];
    u32 y[4] = {row.x[0], row.x[1], row.x[2], row.x[3]};
    FULL_UNROLL
    for (u32 i = 0; i < 15; i++) {
        const u32(&from)[4] = KUZNYECHIK_ROWS.row[i][byte_of(x[i / 4], i % 4)];
        FULL_UNROLL
        for (u32 j = 0; j < 4; j++) y[j] ^= from[j];
    }
    FULL_UNROLL
    for (u32 j = 0; j < 4; j++) x[j] = y[j];
}
