// A scalar as a quotient of two numbers of half its length.
#pragma once
#include "words.cuh"

// a = +-b t mod n with 0 < a, b < 2^128; `negative`: it is -b. Void where it is not `found`.
struct HalfScalars {
    u32 a[4], b[4];
    bool negative, found;
};

// For 0 < t < n, n prime and below 2^256: the first remainder a < 2^128 of Euclid's algorithm on n and t, and the
// multiple b of t that it is (Antipa and others, SAC 2005). b times the remainder before it is at most n, and so
// b < 2^128. Not found where a quotient comes near 2^32 or above, for one random t in 60 million.
DEVICE HalfScalars half_scalars(const Words& t, const Words& n) {
    Words r0 = n, r1 = t;
    u32 b0[4] = {0, 0, 0, 0}, b1[4] = {1, 0, 0, 0};  // magnitudes; their signs differ
    bool negative = false, found = true;
    NO_UNROLL while (r1.w[4] | r1.w[5] | r1.w[6] | r1.w[7]) {
        // A quotient that is never too large and nearly always right: from 33 to 64 leading bits of both, in floating
        // point, with more taken off than all roundings can add. Too small a one costs another turn or two.
        u64 upper0 = (u64)r0.w[4] << 32 | r0.w[3], upper1 = (u64)r1.w[4] << 32 | r1.w[3];
        UNROLL for (u32 k = 5; k < 8; k++) {
            if (r0.w[k]) {
                upper0 = (u64)r0.w[k] << 32 | r0.w[k - 1];
                upper1 = (u64)r1.w[k] << 32 | r1.w[k - 1];
            }
        }
        const float estimate = (float)upper0 / ((float)upper1 + 1.0f) * (1.0f - 1.0f / (1 << 20));
        if (estimate >= 4294967040.0f) {  // the largest below 2^32
            found = false;
            break;
        }
        const u32 q = estimate > 1.0f ? (u32)estimate : 1;

        u64 product = 0, borrow = 0;
        LIMBS for (u32 i = 0; i < 8; i++) {
            product += (u64)q * r1.w[i];
            const u64 difference = (u64)r0.w[i] - (u32)product - borrow;
            r0.w[i] = (u32)difference;
            borrow = difference >> 63;
            product >>= 32;
        }
        u64 sum = 0;
        UNROLL for (u32 i = 0; i < 4; i++) {
            sum += (u64)q * b1[i] + b0[i];
            b0[i] = (u32)sum;
            sum >>= 32;
        }
        if (less(r0, r1)) {
            const Words r = r0;
            r0 = r1, r1 = r;
            UNROLL for (u32 i = 0; i < 4; i++) {
                const u32 b = b0[i];
                b0[i] = b1[i], b1[i] = b;
            }
            negative = !negative;
        }
    }
    HalfScalars half;
    UNROLL for (u32 i = 0; i < 4; i++) half.a[i] = r1.w[i], half.b[i] = b1[i];
    half.negative = negative, half.found = found;
    return half;
}
