// Arithmetic modulo a group order: Montgomery form with R = 2^256, every value canonical (below the modulus).
//
// An order is described by a struct M: M::modulus() odd and above 2, M::r2() = 2^512 mod the modulus, and
// M::NEGATIVE_INVERSE = -1 / modulus mod 2^64.
#pragma once
#include "counting.cuh"
#include "curve_item.cuh"
#include "inverse.cuh"

template <class M>
struct Scalar {
    // a b / 2^256 mod the modulus for a, b below it (one of them may be any 256-bit integer).
    DEVICE_CALL Words multiply(const Words a, const Words b) {
        COUNT(order_multiplications);
        constexpr Words m = M::modulus();
        Words r, reduced;
#if TARGET_GPU
        constexpr u32 inverse = (u32)M::NEGATIVE_INVERSE;
        u32 t[9] = {};
        LIMBS for (u32 i = 0; i < 8; i++) {
            u64 carry = 0;
            LIMBS for (u32 j = 0; j < 8; j++) {
                carry += (u64)a.w[j] * b.w[i] + t[j];
                t[j] = (u32)carry;
                carry >>= 32;
            }
            carry += t[8];
            const u32 low = (u32)carry, high = (u32)(carry >> 32);
            const u32 q = t[0] * inverse;
            carry = ((u64)q * m.w[0] + t[0]) >> 32;
            LIMBS for (u32 j = 1; j < 8; j++) {
                carry += (u64)q * m.w[j] + t[j];
                t[j - 1] = (u32)carry;
                carry >>= 32;
            }
            carry += low;
            t[7] = (u32)carry;
            t[8] = high + (u32)(carry >> 32);
        }
        LIMBS for (u32 i = 0; i < 8; i++) r.w[i] = t[i];
        const u32 above = t[8];
#else
        typedef unsigned __int128 u128;
        u64 t[5] = {};
        LIMBS for (u32 i = 0; i < 4; i++) {
            const u64 digit = limb(b, i);
            u128 carry = 0;
            LIMBS for (u32 j = 0; j < 4; j++) {
                carry += (u128)limb(a, j) * digit + t[j];
                t[j] = (u64)carry;
                carry >>= 64;
            }
            carry += t[4];
            const u64 low = (u64)carry, high = (u64)(carry >> 64);
            const u64 q = t[0] * M::NEGATIVE_INVERSE;
            carry = ((u128)q * limb(m, 0) + t[0]) >> 64;
            LIMBS for (u32 j = 1; j < 4; j++) {
                carry += (u128)q * limb(m, j) + t[j];
                t[j - 1] = (u64)carry;
                carry >>= 64;
            }
            carry += low;
            t[3] = (u64)carry;
            t[4] = high + (u64)(carry >> 64);
        }
        LIMBS for (u32 i = 0; i < 4; i++) r.w[2 * i] = (u32)t[i], r.w[2 * i + 1] = (u32)(t[i] >> 32);
        const u32 above = (u32)t[4];
#endif
        const u32 borrow = subtract(reduced, r, m);
        return select(above || !borrow, reduced, r);
    }

    // Any 256-bit integer to a 2^256 mod the modulus, and back to the plain canonical integer.
    DEVICE Words to_montgomery(const Words& a) { return multiply(a, M::r2()); }
    DEVICE Words from_montgomery(const Words& a) { return multiply(a, small_words(1)); }
    DEVICE Words one() { return to_montgomery(small_words(1)); }

    // Any 256-bit integer modulo the order. The orders are above 2^255, so that one subtraction does.
    DEVICE Words reduce(const Words& a) {
        static_assert(M::modulus().w[7] >> 31, "one subtraction reduces 256 bits only below twice the order");
        return reduce_once(a, M::modulus());
    }

    DEVICE bool in_range(const Words& a) { return !is_zero(a) && less(a, M::modulus()); }

    // 1 / a, in and out in Montgomery form: 1 / (a R) = (1 / a) / R, and R^2 is missing. Zero gives zero.
    DEVICE_CALL Words invert(const Words a) {
        COUNT(order_inversions);
        return to_montgomery(to_montgomery(inverse_modulo(a, M::modulus(), (u32)M::NEGATIVE_INVERSE)));
    }

#if !TARGET_GPU
    DEVICE constexpr u64 limb(const Words& a, u32 i) { return a.w[2 * i] | (u64)a.w[2 * i + 1] << 32; }
#endif
};

// A GROUP_STAGE's body: replaces the plane VALUE of every item of the group by its Montgomery inverse
// R / VALUE (so that multiply(that, x) is the plain x / VALUE), with one inversion for all (Montgomery's trick).
// A value outside [1, n) stays as it is and does not disturb its group.
template <class M, u32 PLANES>
DEVICE void invert_scalars(const Batch& batch, u32 first, u32 stride, u32 count) {
    static_assert(PLANES > PREFIX, "the planes VALUE and PREFIX are needed");
    typedef Scalar<M> S;
    Words product = S::one();
    NO_UNROLL for (u32 k = 0; k < count; k++) {
        const ItemScratch<PLANES> scratch = item_scratch<PLANES>(batch, first + k * stride);
        store(scratch, PREFIX, product);
        const Words value = load(scratch, VALUE);
        if (S::in_range(value)) product = S::multiply(product, S::to_montgomery(value));
    }
    Words inverse = S::invert(product);
    NO_UNROLL for (u32 k = count; k-- > 0;) {
        const ItemScratch<PLANES> scratch = item_scratch<PLANES>(batch, first + k * stride);
        const Words value = load(scratch, VALUE);
        if (!S::in_range(value)) continue;
        store(scratch, VALUE, S::multiply(inverse, load(scratch, PREFIX)));
        inverse = S::multiply(inverse, S::to_montgomery(value));
    }
}

struct Sm2Order {
    static constexpr u64 NEGATIVE_INVERSE = 0x327f9e8872350975;
    DEVICE constexpr Words modulus() {
        return {{0x39d54123, 0x53bbf409, 0x21c6052b, 0x7203df6b, 0xffffffff, 0xffffffff, 0xffffffff, 0xfffffffe}};
    }
    DEVICE constexpr Words r2() {
        return {{0x7c114f20, 0x901192af, 0xde6fa2fa, 0x3464504a, 0x3affe0d4, 0x620fc84c, 0xa22b3d3b, 0x1eb5e412}};
    }
};

struct P256Order {
    static constexpr u64 NEGATIVE_INVERSE = 0xccd1c8aaee00bc4f;
    DEVICE constexpr Words modulus() {
        return {{0xfc632551, 0xf3b9cac2, 0xa7179e84, 0xbce6faad, 0xffffffff, 0xffffffff, 0x00000000, 0xffffffff}};
    }
    DEVICE constexpr Words r2() {
        return {{0xbe79eea2, 0x83244c95, 0x49bd6fa6, 0x4699799c, 0x2b6bec59, 0x2845b239, 0xf3d95620, 0x66e12d94}};
    }
};

struct Secp256k1Order {
    static constexpr u64 NEGATIVE_INVERSE = 0x4b0dff665588b13f;
    DEVICE constexpr Words modulus() {
        return {{0xd0364141, 0xbfd25e8c, 0xaf48a03b, 0xbaaedce6, 0xfffffffe, 0xffffffff, 0xffffffff, 0xffffffff}};
    }
    DEVICE constexpr Words r2() {
        return {{0x67d7d140, 0x896cf214, 0x0e7cf878, 0x741496c2, 0x5bcd07c6, 0xe697f5e4, 0x81c69bc5, 0x9d671cd5}};
    }
};
