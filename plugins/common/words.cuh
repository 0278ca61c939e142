// 256-bit integers as eight 32-bit words, least significant first: scalars, coordinates and moduli between the
// parser, the item scratch and the field, on both targets.
#pragma once
#include "bytes.cuh"

// A loop over limbs, whose carries must stay in flags: unrolled before anything else, on every compiler.
#if TARGET_GPU || defined(__clang__)
#define LIMBS _Pragma("unroll")
#else
#define LIMBS _Pragma("GCC unroll 8")
#endif

struct Words {
    u32 w[8];
};

// r = a + b; returns the carry.
DEVICE u32 add(Words& r, const Words& a, const Words& b) {
    u64 carry = 0;
    LIMBS for (u32 i = 0; i < 8; i++) {
        carry += (u64)a.w[i] + b.w[i];
        r.w[i] = (u32)carry;
        carry >>= 32;
    }
    return (u32)carry;
}

// r = a - b; returns the borrow.
DEVICE u32 subtract(Words& r, const Words& a, const Words& b) {
    u64 borrow = 0;
    LIMBS for (u32 i = 0; i < 8; i++) {
        const u64 difference = (u64)a.w[i] - b.w[i] - borrow;
        r.w[i] = (u32)difference;
        borrow = difference >> 63;
    }
    return (u32)borrow;
}

DEVICE bool less(const Words& a, const Words& b) {
    Words unused;
    return subtract(unused, a, b);
}

DEVICE bool is_zero(const Words& a) {
    u32 any = 0;
    LIMBS for (u32 i = 0; i < 8; i++) any |= a.w[i];
    return any == 0;
}

DEVICE bool equal(const Words& a, const Words& b) {
    u32 any = 0;
    LIMBS for (u32 i = 0; i < 8; i++) any |= a.w[i] ^ b.w[i];
    return any == 0;
}

// yes ? a : b, without a branch.
DEVICE Words select(bool yes, const Words& a, const Words& b) {
    Words r;
    LIMBS for (u32 i = 0; i < 8; i++) r.w[i] = yes ? a.w[i] : b.w[i];
    return r;
}

DEVICE constexpr Words small_words(u32 value) { return {{value, 0, 0, 0, 0, 0, 0, 0}}; }

// (a + b) mod m and (a - b) mod m for a, b < m.
DEVICE Words add_mod(const Words& a, const Words& b, const Words& m) {
    Words sum, reduced;
    const u32 carry = add(sum, a, b);
    const u32 borrow = subtract(reduced, sum, m);
    return select(carry || !borrow, reduced, sum);
}

DEVICE Words subtract_mod(const Words& a, const Words& b, const Words& m) {
    Words difference, wrapped;
    const u32 borrow = subtract(difference, a, b);
    add(wrapped, difference, m);
    return select(borrow, wrapped, difference);
}

// a mod m for a < 2m.
DEVICE Words reduce_once(const Words& a, const Words& m) {
    Words reduced;
    const u32 borrow = subtract(reduced, a, m);
    return select(borrow, a, reduced);
}
