// A scalar as a quotient of two numbers of half its length.
#pragma once
#include "words.cuh"

// a = +-b t mod n with 0 < a, b < 2^128; `negative`: it is -b. Void where it is not `found`.
struct HalfScalars {
    u32 a[4], b[4];
    bool negative, found;
};

// A remainder of Euclid's algorithm, and the magnitude of the multiple of t that it is modulo n.
struct Remainder {
    Words r;
    u32 b[4];

    DEVICE bool is_half(const Remainder& x) { return !(x.r.w[4] | x.r.w[5] | x.r.w[6] | x.r.w[7]); }
};

// Takes from x what of y is in it, or a little less; false where that is 2^32 times or nearly.
DEVICE bool take(Remainder& x, const Remainder& y) {
    // A quotient that is never too large and nearly always right: from 33 to 64 leading bits of both, in floating
    // point, with more taken off than all roundings can add. What is left goes at a later turn.
    u64 upper_x = (u64)x.r.w[4] << 32 | x.r.w[3], upper_y = (u64)y.r.w[4] << 32 | y.r.w[3];
    UNROLL for (u32 k = 5; k < 8; k++) {
        if (x.r.w[k] | y.r.w[k]) {
            upper_x = (u64)x.r.w[k] << 32 | x.r.w[k - 1];
            upper_y = (u64)y.r.w[k] << 32 | y.r.w[k - 1];
        }
    }
    const float estimate = (float)upper_x / ((float)upper_y + 1.0f) * (1.0f - 1.0f / (1 << 20));
    if (estimate >= 4294967040.0f) return false;  // the largest below 2^32
    u32 q = (u32)estimate;
    if (q == 0) {  // x is below y, as a little too much was left to it, or they are nearly equal
        if (less(x.r, y.r)) return true;
        q = 1;
    }
    u64 product = 0, borrow = 0;
    LIMBS for (u32 i = 0; i < 8; i++) {
        product += (u64)q * y.r.w[i];
        const u64 difference = (u64)x.r.w[i] - (u32)product - borrow;
        x.r.w[i] = (u32)difference;
        borrow = difference >> 63;
        product >>= 32;
    }
    u64 sum = 0;
    UNROLL for (u32 i = 0; i < 4; i++) {
        sum += (u64)q * y.b[i] + x.b[i];
        x.b[i] = (u32)sum;
        sum >>= 32;
    }
    return true;
}

// For 0 < t < n, n prime and below 2^256: the first remainder a < 2^128 of Euclid's algorithm on n and t, and the
// multiple b of t that it is (Antipa and others, SAC 2005). b times the remainder before it is at most n, and so
// b < 2^128. Not found where a quotient comes near 2^32 or above, for one random t in 40 million.
DEVICE HalfScalars half_scalars(const Words& t, const Words& n) {
    Remainder even = {n, {0, 0, 0, 0}}, odd = {t, {1, 0, 0, 0}};  // multiples by -b, and by b
    bool negative = false, found = true;
    NO_UNROLL while (found && !Remainder::is_half(odd)) {
        found = take(even, odd);
        if (Remainder::is_half(even)) {
            negative = true;
            break;
        }
        found = found && take(odd, even);
    }
    HalfScalars half;
    UNROLL for (u32 i = 0; i < 4; i++) {
        half.a[i] = negative ? even.r.w[i] : odd.r.w[i];
        half.b[i] = negative ? even.b[i] : odd.b[i];
    }
    half.negative = negative, half.found = found;
    return half;
}
