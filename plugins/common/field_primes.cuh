// The primes of the three curves, and their constants in both radices: 2^288 of the generated blocks ("lazy") and
// 2^256 of the CPU ("host"). tests/plugins/test_field.py checks them.
#pragma once
#include "words.cuh"

// Raised by lazy operations whose result did not fit; whatever was computed is then void.
struct Flags {
    u32 over, under;
};

DEVICE bool raised(const Flags& flags) { return (flags.over | flags.under) != 0; }

#if !TARGET_GPU

// a + b + carry and a - b - borrow; both are 0 or 1. Compilers differ in what they recognise as a carry chain.
DEVICE u64 add_carry(u64 a, u64 b, u64& carry) {
#if defined(__clang__)
    return __builtin_addcll(a, b, carry, &carry);
#elif defined(__x86_64__)
    unsigned long long sum;
    carry = __builtin_ia32_addcarryx_u64((unsigned char)carry, a, b, &sum);
    return sum;
#else
    const unsigned __int128 sum = (unsigned __int128)a + b + carry;
    carry = (u64)(sum >> 64);
    return (u64)sum;
#endif
}

DEVICE u64 subtract_borrow(u64 a, u64 b, u64& borrow) {
#if defined(__clang__)
    return __builtin_subcll(a, b, borrow, &borrow);
#elif defined(__x86_64__)
    unsigned long long difference;
    borrow = __builtin_ia32_sbb_u64((unsigned char)borrow, a, b, &difference);
    return difference;
#else
    const unsigned __int128 difference = (unsigned __int128)a - b - borrow;
    borrow = (u64)(difference >> 64) & 1;
    return (u64)difference;
#endif
}

// r = a + the upper half of t; returns the carry.
DEVICE u64 add_upper(u64 (&r)[4], const u64 (&a)[4], const u64 (&t)[8]) {
    u64 carry = 0;
    LIMBS for (u32 i = 0; i < 4; i++) r[i] = add_carry(a[i], t[4 + i], carry);
    return carry;
}

#endif

// p = 2^256 - 2^224 - 2^96 + 2^64 - 1
struct Sm2Prime {
    static constexpr bool PLAIN = false;
    DEVICE constexpr Words p() {
        return {{0xffffffff, 0xffffffff, 0x00000000, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0xfffffffe}};
    }
    DEVICE constexpr Words one_lazy() {
        return {{0x00000001, 0x00000001, 0xffffffff, 0xffffffff, 0x00000000, 0x00000000, 0x00000000, 0x00000001}};
    }
    DEVICE constexpr Words radix_squared_lazy() {
        return {{0x00000006, 0x00000004, 0xfffffffd, 0x00000003, 0x00000003, 0x00000003, 0x00000001, 0x00000007}};
    }
    DEVICE constexpr Words one_host() {
        return {{0x00000001, 0x00000000, 0xffffffff, 0x00000000, 0x00000000, 0x00000000, 0x00000000, 0x00000001}};
    }
    DEVICE constexpr Words radix_squared_host() {
        return {{0x00000003, 0x00000002, 0xffffffff, 0x00000002, 0x00000001, 0x00000001, 0x00000002, 0x00000004}};
    }

#if !TARGET_GPU
    // t / 2^256 mod p, below 2p. p = -1 mod 2^64: the Montgomery digit is the lowest limb m itself, and
    // (t + m p) / 2^64 = t / 2^64 + m (2^192 - 2^160 - 2^32 + 1) without the limb that vanishes.
    DEVICE u64 reduce(u64 (&r)[4], const u64 (&t)[8]) {
        u64 a[4] = {t[0], t[1], t[2], t[3]};
        LIMBS for (u32 i = 0; i < 4; i++) {
            const u64 m = a[0], low = m << 32, high = m >> 32;
            u64 borrow = 0, carry = 0;
            const u64 d0 = subtract_borrow(m, low, borrow), d1 = subtract_borrow(0, high, borrow);
            const u64 d2 = subtract_borrow(0, low, borrow), d3 = m - high - borrow;
            a[0] = add_carry(a[1], d0, carry), a[1] = add_carry(a[2], d1, carry), a[2] = add_carry(a[3], d2, carry);
            a[3] = d3 + carry;  // m 2^192 and what it carries stays below 2^256
        }
        return add_upper(r, a, t);
    }
#endif
};

// p = 2^256 - 2^224 + 2^192 + 2^96 - 1
struct P256Prime {
    static constexpr bool PLAIN = false;
    DEVICE constexpr Words p() {
        return {{0xffffffff, 0xffffffff, 0xffffffff, 0x00000000, 0x00000000, 0x00000000, 0x00000001, 0xffffffff}};
    }
    DEVICE constexpr Words one_lazy() {
        return {{0x00000000, 0x00000001, 0x00000000, 0x00000000, 0xffffffff, 0xffffffff, 0xffffffff, 0xfffffffe}};
    }
    DEVICE constexpr Words radix_squared_lazy() {
        return {{0x00000002, 0x00000005, 0x00000003, 0xfffffffe, 0xfffffff9, 0xfffffffb, 0xfffffffc, 0xfffffffc}};
    }
    DEVICE constexpr Words one_host() {
        return {{0x00000001, 0x00000000, 0x00000000, 0xffffffff, 0xffffffff, 0xffffffff, 0xfffffffe, 0x00000000}};
    }
    DEVICE constexpr Words radix_squared_host() {
        return {{0x00000003, 0x00000000, 0xffffffff, 0xfffffffb, 0xfffffffe, 0xffffffff, 0xfffffffd, 0x00000004}};
    }

#if !TARGET_GPU
    // t / 2^256 mod p, below 2p. p = -1 mod 2^64: the Montgomery digit is the lowest limb m itself, and
    // (t + m p) / 2^64 = t / 2^64 + m (2^192 - 2^160 + 2^128 + 2^32) without the limb that vanishes.
    DEVICE u64 reduce(u64 (&r)[4], const u64 (&t)[8]) {
        u64 a[4] = {t[0], t[1], t[2], t[3]};
        LIMBS for (u32 i = 0; i < 4; i++) {
            const u64 m = a[0], low = m << 32, high = m >> 32;
            u64 borrow = 0, carry = 0;
            const u64 d2 = subtract_borrow(m, low, borrow), d3 = m - high - borrow;
            a[0] = add_carry(a[1], low, carry), a[1] = add_carry(a[2], high, carry);
            a[2] = add_carry(a[3], d2, carry), a[3] = d3 + carry;
        }
        return add_upper(r, a, t);
    }
#endif
};

// p = 2^256 - 2^32 - 977
struct Secp256k1Prime {
    static constexpr bool PLAIN = true;  // elements are plain integers, not in Montgomery form
    DEVICE constexpr Words p() {
        return {{0xfffffc2f, 0xfffffffe, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}};
    }
    DEVICE constexpr Words one_lazy() { return small_words(1); }
    DEVICE constexpr Words one_host() { return small_words(1); }
    DEVICE constexpr Words radix_squared_lazy() { return small_words(1); }
    DEVICE constexpr Words radix_squared_host() { return small_words(1); }

#if !TARGET_GPU
    // t mod p, below 2^256: the upper half times 2^256 mod p = 2^32 + 977, folded twice.
    DEVICE u64 reduce(u64 (&r)[4], const u64 (&t)[8]) {
        constexpr u64 DELTA = 0x1000003d1;
        unsigned __int128 sum = 0;
        LIMBS for (u32 i = 0; i < 4; i++) {
            sum += (unsigned __int128)t[4 + i] * DELTA + t[i];
            r[i] = (u64)sum;
            sum >>= 64;
        }
        sum *= DELTA;  // below 2^67
        u64 carry = 0;
        r[0] = add_carry(r[0], (u64)sum, carry), r[1] = add_carry(r[1], (u64)(sum >> 64), carry);
        r[2] = add_carry(r[2], 0, carry), r[3] = add_carry(r[3], 0, carry);
        return carry;
    }
#endif
};
