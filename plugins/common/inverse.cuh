// Inversion modulo an odd number below 2^256 by division steps (D. J. Bernstein and B.-Y. Yang, "Fast constant-time gcd
// computation and modular inversion", 2019), in variable time: what is inverted here is public.
//
// A step takes (f, g) with f odd to (g, (g - f) / 2) or (f, (g + f) / 2) or (f, g / 2), so that gcd(f, g) stays and g
// comes to 0. Thirty steps see the last thirty bits of f and g alone, and are one matrix
//
//     (f, g) = (u f + v g, q f + r g) / 2^30      |u| + |v| <= 2^30, |q| + |r| <= 2^30
//
// which is then applied to the numbers, and modulo m to (d, e), where f = d a and g = e a (mod m) all along. At the end
// f is 1 or -1 and d its inverse. About 18 rounds of thirty steps do, against 320 products for a power of m - 2, and in
// a chain that is a tenth as long.
#pragma once
#include "words.cuh"

namespace division_steps {

typedef int i32;
typedef long long i64;

constexpr u32 BITS = 30, COUNT = 9;       // signed numbers of 270 bits: limbs of 30, the top one with the sign
constexpr u32 MASK = (1u << BITS) - 1;

struct Number {
    i32 limb[COUNT];
};

struct Matrix {
    i32 u, v, q, r;
};

DEVICE constexpr Number from_words(const Words& a) {
    Number r = {};
    LIMBS for (u32 i = 0; i < COUNT; i++) {
        const u32 bit = i * BITS, word = bit / 32, shift = bit % 32;
        u32 limb = a.w[word] >> shift;
        if (shift > 32 - BITS && word < 7) limb |= a.w[word + 1] << (32 - shift);
        r.limb[i] = (i32)(limb & MASK);
    }
    return r;
}

// Of a number that is not negative and below 2^256.
DEVICE Words to_words(const Number& a) {
    Words r;
    LIMBS for (u32 i = 0; i < 8; i++) {
        const u32 bit = i * 32, limb = bit / BITS, shift = bit % BITS;
        u32 word = (u32)a.limb[limb] >> shift | (u32)a.limb[limb + 1] << (BITS - shift);
        if (2 * BITS - shift < 32) word |= (u32)a.limb[limb + 2] << (2 * BITS - shift);
        r.w[i] = word;
    }
    return r;
}

DEVICE u32 trailing_zeros(u32 a) {  // a is not 0
#if TARGET_GPU
    return __clz(__brev(a));
#else
    return __builtin_ctz(a);
#endif
}

// Thirty steps on the last bits of f (odd) and g. `eta` tells which number is the longer one, and is carried along.
DEVICE i32 thirty_steps(i32 eta, u32 f, u32 g, Matrix& matrix) {
    u32 u = 1, v = 0, q = 0, r = 1;
    i32 left = BITS;
    while (true) {
        // Halving g while it is even; the bit above those that are left ends it.
        const i32 zeros = (i32)trailing_zeros(g | ~0u << left);
        g >>= zeros, u <<= zeros, v <<= zeros;
        eta -= zeros, left -= zeros;
        if (left == 0) break;
        if (eta < 0) {
            const u32 old_f = f, old_u = u, old_v = v;
            eta = -eta;
            f = g, g = 0u - old_f, u = q, q = 0u - old_u, v = r, r = 0u - old_v;
        }
        // The next eta + 1 steps keep f. Adding w f clears as many bits of g, up to six of them:
        // w = -g / f mod 2^6, and 1 / f = f (2 - f^2) there, as f^2 = 1 mod 8.
        const i32 steps = eta + 1 < left ? eta + 1 : left;
        const u32 w = f * g * (f * f - 2) & ~0u >> (32 - steps) & 63;
        g += f * w, q += u * w, r += v * w;
    }
    matrix = {(i32)u, (i32)v, (i32)q, (i32)r};
    return eta;
}

// (f, g) times the matrix; both sums are multiples of 2^30.
DEVICE void apply(Number& f, Number& g, const Matrix& t) {
    i64 sum_f = (i64)t.u * f.limb[0] + (i64)t.v * g.limb[0];
    i64 sum_g = (i64)t.q * f.limb[0] + (i64)t.r * g.limb[0];
    LIMBS for (u32 i = 1; i < COUNT; i++) {
        sum_f = (sum_f >> BITS) + (i64)t.u * f.limb[i] + (i64)t.v * g.limb[i];
        sum_g = (sum_g >> BITS) + (i64)t.q * f.limb[i] + (i64)t.r * g.limb[i];
        f.limb[i - 1] = (i32)(sum_f & MASK), g.limb[i - 1] = (i32)(sum_g & MASK);
    }
    f.limb[COUNT - 1] = (i32)(sum_f >> BITS), g.limb[COUNT - 1] = (i32)(sum_g >> BITS);
}

// (d, e) times the matrix modulo m, for d and e in (-2 m, m), where they stay. What is added to make the sums multiples
// of 2^30 is a multiple of m: `inverse` is 1 / m mod 2^30.
DEVICE void apply_modulo(Number& d, Number& e, const Matrix& t, const Number& m, u32 inverse) {
    // A negative d counts as d + m, a negative e as e + m, which keeps the sums in range.
    const i32 negative_d = d.limb[COUNT - 1] >> 31, negative_e = e.limb[COUNT - 1] >> 31;
    i32 more_d = (t.u & negative_d) + (t.v & negative_e), more_e = (t.q & negative_d) + (t.r & negative_e);
    i64 sum_d = (i64)t.u * d.limb[0] + (i64)t.v * e.limb[0];
    i64 sum_e = (i64)t.q * d.limb[0] + (i64)t.r * e.limb[0];
    more_d -= (i32)((inverse * (u32)sum_d + (u32)more_d) & MASK);
    more_e -= (i32)((inverse * (u32)sum_e + (u32)more_e) & MASK);
    sum_d += (i64)m.limb[0] * more_d, sum_e += (i64)m.limb[0] * more_e;
    LIMBS for (u32 i = 1; i < COUNT; i++) {
        sum_d = (sum_d >> BITS) + (i64)t.u * d.limb[i] + (i64)t.v * e.limb[i] + (i64)m.limb[i] * more_d;
        sum_e = (sum_e >> BITS) + (i64)t.q * d.limb[i] + (i64)t.r * e.limb[i] + (i64)m.limb[i] * more_e;
        d.limb[i - 1] = (i32)(sum_d & MASK), e.limb[i - 1] = (i32)(sum_e & MASK);
    }
    d.limb[COUNT - 1] = (i32)(sum_d >> BITS), e.limb[COUNT - 1] = (i32)(sum_e >> BITS);
}

// Adds m where d is negative, then turns the sign where `negate` is all ones; limbs are 30 bits again, with a carry
// into the top one.
DEVICE void settle(Number& d, const Number& m, i32 negate) {
    const i32 add = d.limb[COUNT - 1] >> 31;
    LIMBS for (u32 i = 0; i < COUNT; i++) d.limb[i] = ((d.limb[i] + (m.limb[i] & add)) ^ negate) - negate;
    LIMBS for (u32 i = 0; i + 1 < COUNT; i++) d.limb[i + 1] += d.limb[i] >> BITS, d.limb[i] &= (i32)MASK;
}

}  // namespace division_steps

// 1 / a modulo m for a in [0, m) without a common divisor, 0 for a = 0. `negative_inverse` is -1 / m mod 2^32.
DEVICE Words inverse_modulo(const Words& a, const Words& m, u32 negative_inverse) {
    using namespace division_steps;
    const Number modulus = from_words(m);
    const u32 inverse = (0u - negative_inverse) & MASK;
    Number f = modulus, g = from_words(a), d = {}, e = {};
    e.limb[0] = 1;
    i32 eta = -1;
    while (true) {
        u32 rest = 0;
        LIMBS for (u32 i = 0; i < COUNT; i++) rest |= (u32)g.limb[i];
        if (rest == 0) break;
        Matrix matrix;
        eta = thirty_steps(eta, (u32)f.limb[0], (u32)g.limb[0], matrix);
        apply_modulo(d, e, matrix, modulus, inverse);
        apply(f, g, matrix);
    }
    settle(d, modulus, f.limb[COUNT - 1] >> 31);
    settle(d, modulus, 0);
    return to_words(d);
}
