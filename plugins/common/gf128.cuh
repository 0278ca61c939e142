// GF(2^128) of GCM (NIST SP 800-38D): the highest bit of a block's byte 0 is the coefficient of x^0.
#pragma once
#include "cipher.cuh"

struct Gf128 {
    u64 high, low;  // the block as one big-endian number
};

DEVICE Gf128 gf_load(const u32 (&block)[4]) {
    return {(u64)swap_bytes(block[0]) << 32 | swap_bytes(block[1]), (u64)swap_bytes(block[2]) << 32 | swap_bytes(block[3])};
}

DEVICE void gf_store(u32 (&block)[4], Gf128 x) {
    block[0] = swap_bytes((u32)(x.high >> 32)), block[1] = swap_bytes((u32)x.high);
    block[2] = swap_bytes((u32)(x.low >> 32)), block[3] = swap_bytes((u32)x.low);
}

DEVICE Gf128 operator^(Gf128 a, Gf128 b) { return {a.high ^ b.high, a.low ^ b.low}; }

DEVICE Gf128 gf_times_x(Gf128 a) {
    const u64 carry = 0 - (a.low & 1);
    return {a.high >> 1 ^ (carry & 0xe1ull << 56), a.high << 63 | a.low >> 1};
}

// Times x^8.
DEVICE Gf128 gf_times_byte(Gf128 a) {
    const u64 out = a.low & 255;
    return {a.high >> 8 ^ (out << 56 ^ out << 55 ^ out << 54 ^ out << 49), a.high << 56 | a.low >> 8};
}

// Takes the same time for all values.
DEVICE Gf128 gf_multiply(Gf128 a, Gf128 b) {
    Gf128 product = {};
    NO_UNROLL
    for (u32 i = 0; i < 128; i++) {
        const u64 take = 0 - (a.high >> 63);
        product.high ^= b.high & take, product.low ^= b.low & take;
        a.high = a.high << 1 | a.low >> 63;
        a.low <<= 1;
        b = gf_times_x(b);
    }
    return product;
}

DEVICE Gf128 gf_power(Gf128 base, u64 exponent) {
    Gf128 power = {1ull << 63, 0};
    NO_UNROLL
    for (; exponent; exponent >>= 1) {
        if (exponent & 1) power = gf_multiply(power, base);
        base = gf_multiply(base, base);
    }
    return power;
}

#if !TARGET_GPU && defined(__x86_64__)

typedef long long Gf128Halves __attribute__((vector_size(16)));

// CPUID leaf 1, ECX bit 1.
DEVICE bool has_carryless_multiply() {
    u32 a = 1, b, c = 0, d;
    asm volatile("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
    return c >> 1 & 1;
}

// The product of the reflected polynomials is one bit short of 256, hence the shift; then it is reduced from below.
__attribute__((target("pclmul,sse2"))) static inline Gf128 gf_multiply_fast(Gf128 a, Gf128 b) {
    const Gf128Halves x = {(long long)a.low, (long long)a.high}, y = {(long long)b.low, (long long)b.high};
    const Gf128Halves ll = __builtin_ia32_pclmulqdq128(x, y, 0x00), hh = __builtin_ia32_pclmulqdq128(x, y, 0x11);
    const Gf128Halves lh = __builtin_ia32_pclmulqdq128(x, y, 0x10) ^ __builtin_ia32_pclmulqdq128(x, y, 0x01);
    u64 w0 = (u64)ll[0], w1 = (u64)ll[1] ^ (u64)lh[0], w2 = (u64)hh[0] ^ (u64)lh[1], w3 = (u64)hh[1];
    w3 = w3 << 1 | w2 >> 63, w2 = w2 << 1 | w1 >> 63, w1 = w1 << 1 | w0 >> 63, w0 <<= 1;
    // x^128 = 1 + x + x^2 + x^7, reflected: w0 folds into w1 and w2, then w1 into w2 and w3.
    w1 ^= w0 << 63 ^ w0 << 62 ^ w0 << 57;
    w2 ^= w0 ^ w0 >> 1 ^ w0 >> 2 ^ w0 >> 7;
    w2 ^= w1 << 63 ^ w1 << 62 ^ w1 << 57;
    w3 ^= w1 ^ w1 >> 1 ^ w1 >> 2 ^ w1 >> 7;
    return {w3, w2};
}

#endif

// Multiplication by one value many times: four bits at a time (Shoup), or the processor's instruction.
struct HashKey {
    Gf128 multiple[16];  // the highest bit of the index stands for x^0
    bool fast;

    DEVICE void make(HashKey& key, Gf128 value) {
        key.fast = false;
#if !TARGET_GPU && defined(__x86_64__)
        key.fast = has_carryless_multiply();
#endif
        key.multiple[0] = {};
        key.multiple[8] = value;
        for (u32 i = 4; i > 0; i >>= 1) key.multiple[i] = gf_times_x(key.multiple[2 * i]);
        for (u32 i = 3; i < 16; i++) {
            const u32 top = i & 8 ? 8 : i & 4 ? 4 : 2;
            if (i != top) key.multiple[i] = key.multiple[top] ^ key.multiple[i ^ top];
        }
    }

    DEVICE Gf128 times(const HashKey& key, Gf128 x) {
#if !TARGET_GPU && defined(__x86_64__)
        if (key.fast) return gf_multiply_fast(x, key.multiple[8]);
#endif
        Gf128 z = {};
        NO_UNROLL
        for (u32 i = 0; i < 32; i++) {
            const u32 nibble = (u32)x.low & 15;
            const u64 out = z.low & 15;
            z.low = z.high << 60 | z.low >> 4;
            z.high = z.high >> 4 ^ (out ^ out << 5 ^ out << 6 ^ out << 7) << 53;
            z = z ^ key.multiple[nibble];
            x.low = x.high << 60 | x.low >> 4;
            x.high >>= 4;
        }
        return z;
    }
};
