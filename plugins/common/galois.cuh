// GF(2^8) while compiling: what S-boxes that invert are made of.
#pragma once
#include "cipher.cuh"

DEVICE constexpr u32 gf_double(u32 x, u32 polynomial) { return x << 1 ^ (x & 0x80 ? polynomial : 0); }

DEVICE constexpr u32 gf_multiply(u32 a, u32 b, u32 polynomial) {
    u32 product = 0;
    for (; b; b >>= 1, a = gf_double(a, polynomial))
        if (b & 1) product ^= a;
    return product;
}

struct ByteTable {
    u8 of[256];
};

// The inverses of all elements, 0 for 0. `generator` must be primitive.
DEVICE constexpr ByteTable gf_inverses(u32 polynomial, u32 generator) {
    ByteTable power = {}, inverse = {};
    u32 x = 1;
    for (u32 i = 0; i < 255; i++) {
        power.of[i] = (u8)x;
        x = gf_multiply(x, generator, polynomial);
    }
    for (u32 i = 0; i < 255; i++) inverse.of[power.of[i]] = power.of[(255 - i) % 255];
    return inverse;
}

// columns holds the values for bits 0 to 7, lowest byte first.
DEVICE constexpr u32 bit_matrix(u64 columns, u32 x) {
    u32 y = 0;
    for (u32 i = 0; i < 8; i++)
        if (x >> i & 1) y ^= (u32)(columns >> (8 * i)) & 0xff;
    return y;
}

DEVICE constexpr u32 rotate_constant(u32 x, u32 bits) { return bits ? x << bits | x >> (32 - bits) : x; }
