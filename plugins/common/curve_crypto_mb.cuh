// u1 G + u2 Q by Intel's crypto_mb, eight items at a time, where a CPU's build is linked with that library.
//
// It stands in the place of the formulas of curve_lanes.cuh for keys without tables. Everything else is this source's
// own: encodings, ranges, the curve equation, scalars, enrolled keys, and the verdicts of items that are left over, or
// that the library leaves open.
//
// What is called are the point operations below the library's own verification, with 512-bit registers: they take any
// two scalars, so that a digest will do where its SM2 call hashes a message itself. They are in none of its headers,
// which is no risk where the manifest names the digest of the library's bytes (docs/decisions/0021-providers.md).
//
// Their addition knows two equal points only where their coordinates come out as the same number, though both of x
// and x + p may stand for one: of some pairs the sum is then no point but z = 0, as of opposite ones. After the last
// addition that leaves the item open. Inside the multiplication of Q it would be taken for infinity. There it can
// happen in the last window alone, where 16 times what came before is the last digit d modulo n, |d| <= 8: for the
// scalar n + 2d. Scalars so near to n are left open. The multiplication of G does not look for equal points, and need
// not: it adds d 2^(7i) G to the sum of lower windows, whose scalar is smaller than 2^(7i), so that the two are never
// equal or opposite for a scalar below n.
//
// Source: github.com/intel/cryptography-primitives, sources/ippcp/crypto_mb: ifma_ecpoint_sm2.c, ifma_ecpoint_p256.c.
#pragma once
#include "curve_lanes.cuh"

#if TARGET_GPU
#error "crypto_mb is for CPUs"
#endif

namespace crypto_mb {

constexpr u32 LANES = 8;
// Twice the largest digit of the library's windows.
constexpr u32 LAST_WINDOW = 16;

// A number of each of eight items: limb i of item k is limb[i][k]. Of the field 52 bits a limb, below 2p; of scalars
// 64 bits, the fifth zero.
struct alignas(64) Numbers {
    u64 limb[5][LANES];
};

// Jacobian, in Montgomery form with the radix 2^260. z = 0 is infinity.
struct Points {
    Numbers x, y, z;
};

extern "C" {
void ifma_ec_sm2_mul_pointbase_mb8(Points* r, const Numbers* scalars);
void ifma_ec_sm2_mul_point_mb8(Points* r, const Points* p, const Numbers* scalars);
void ifma_ec_sm2_add_point_mb8(Points* r, const Points* p, const Points* q);
void ifma_tomont52_psm2_mb8(Numbers* r, const Numbers* a);
void ifma_frommont52_psm2_mb8(Numbers* r, const Numbers* a);
void ifma_amm52_psm2_mb8(Numbers* r, const Numbers* a, const Numbers* b);
void ifma_ams52_psm2_mb8(Numbers* r, const Numbers* a);
void ifma_sub52_psm2_mb8(Numbers* r, const Numbers* a, const Numbers* b);

void ifma_ec_nistp256_mul_pointbase_mb8(Points* r, const Numbers* scalars);
void ifma_ec_nistp256_mul_point_mb8(Points* r, const Points* p, const Numbers* scalars);
void ifma_ec_nistp256_add_point_mb8(Points* r, const Points* p, const Points* q);
void ifma_tomont52_p256_mb8(Numbers* r, const Numbers* a);
void ifma_frommont52_p256_mb8(Numbers* r, const Numbers* a);
void ifma_amm52_p256_mb8(Numbers* r, const Numbers* a, const Numbers* b);
void ifma_ams52_p256_mb8(Numbers* r, const Numbers* a);
void ifma_sub52_p256_mb8(Numbers* r, const Numbers* a, const Numbers* b);
}

// The library's operations on a curve; those it has not are left to this source.
template <class C>
struct Library {
    static constexpr bool HAS = false;
};

#define CRYPTO_MB_CURVE(C, curve, field)                                                                          \
    template <>                                                                                                   \
    struct Library<C> {                                                                                           \
        static constexpr bool HAS = true;                                                                         \
        DEVICE void multiply_base(Points& r, const Numbers& k) { ifma_ec_##curve##_mul_pointbase_mb8(&r, &k); }   \
        DEVICE void multiply(Points& r, const Numbers& k) { ifma_ec_##curve##_mul_point_mb8(&r, &r, &k); }        \
        DEVICE void add(Points& r, const Points& p) { ifma_ec_##curve##_add_point_mb8(&r, &r, &p); }              \
        DEVICE void to_montgomery(Numbers& r) { ifma_tomont52_##field##_mb8(&r, &r); }                            \
        DEVICE void from_montgomery(Numbers& r) { ifma_frommont52_##field##_mb8(&r, &r); }                        \
        DEVICE void mul(Numbers& r, const Numbers& a) { ifma_amm52_##field##_mb8(&r, &r, &a); }                   \
        DEVICE void sqr(Numbers& r, const Numbers& a) { ifma_ams52_##field##_mb8(&r, &a); }                       \
        DEVICE void sub(Numbers& r, const Numbers& a, const Numbers& b) { ifma_sub52_##field##_mb8(&r, &a, &b); } \
    };

CRYPTO_MB_CURVE(Sm2Curve, sm2, psm2)
CRYPTO_MB_CURVE(P256Curve, nistp256, p256)

DEVICE u64 wide_limb(const Words& a, u32 i) { return a.w[2 * i] | (u64)a.w[2 * i + 1] << 32; }

DEVICE void put_scalar(Numbers& numbers, u32 lane, const Words& a) {
    LIMBS for (u32 i = 0; i < 4; i++) numbers.limb[i][lane] = wide_limb(a, i);
    numbers.limb[4][lane] = 0;
}

DEVICE void put_element(Numbers& numbers, u32 lane, const Words& a) {
    constexpr u64 mask = (1ull << 52) - 1;
    const u64 v0 = wide_limb(a, 0), v1 = wide_limb(a, 1), v2 = wide_limb(a, 2), v3 = wide_limb(a, 3);
    numbers.limb[0][lane] = v0 & mask;
    numbers.limb[1][lane] = (v0 >> 52 | v1 << 12) & mask;
    numbers.limb[2][lane] = (v1 >> 40 | v2 << 24) & mask;
    numbers.limb[3][lane] = (v2 >> 28 | v3 << 36) & mask;
    numbers.limb[4][lane] = v3 >> 16;
}

// Whether the multiplication of Q may meet a point equal to its sum, for 0 < k < n.
template <class C>
DEVICE bool meets_itself(const Words& k) {
    Words left;
    subtract(left, C::Order::modulus(), k);
    return !less(small_words(LAST_WINDOW), left);
}

// Whether a number that left Montgomery form is zero modulo p: it is between 0 and p, both included.
template <class C>
DEVICE bool is_zero(const Numbers& numbers, u32 lane, const Numbers& p) {
    u64 zero = 0, prime = 0;
    LIMBS for (u32 i = 0; i < 5; i++) {
        zero |= numbers.limb[i][lane];
        prime |= numbers.limb[i][lane] ^ p.limb[i][0];
    }
    return zero == 0 || prime == 0;
}

// The codes of eight items, all UNDECIDED with their planes filled; those that are left open stay so.
template <class C, u32 PLANES>
DEVICE_CALL void verify_lanes(const Batch& batch, const u32* items) {
    typedef Library<C> L;
    Points sum, q;
    Numbers u1, u2, target, alias, zz, p;
    bool aliased = false, open[LANES];
    put_element(p, 0, C::Field::Prime::p());
    for (u32 k = 0; k < LANES; k++) {
        const ItemScratch<PLANES> scratch = item_scratch<PLANES>(batch, items[k]);
        const Words of_key = load(scratch, U2);
        put_scalar(u1, k, load(scratch, U1)), put_scalar(u2, k, of_key);
        open[k] = meets_itself<C>(of_key);
        put_element(q.x, k, load(scratch, QX)), put_element(q.y, k, load(scratch, QY));
        put_element(q.z, k, small_words(1));
        const Words wanted = load(scratch, TARGET);
        Words other;
        const bool two = target_alias<C>(other, wanted);
        put_element(target, k, wanted), put_element(alias, k, select(two, other, wanted));
        aliased |= two;
    }
    L::to_montgomery(q.x), L::to_montgomery(q.y), L::to_montgomery(q.z);
    L::multiply(q, u2);
    L::multiply_base(sum, u1);
    L::add(sum, q);

    // x = X / Z^2 is the target where X - target Z^2 = 0. No inversion: the library's own verification has one.
    L::sqr(zz, sum.z);
    L::to_montgomery(target), L::mul(target, zz), L::sub(target, sum.x, target), L::from_montgomery(target);
    if (aliased) L::to_montgomery(alias), L::mul(alias, zz), L::sub(alias, sum.x, alias), L::from_montgomery(alias);
    L::from_montgomery(sum.z);
    for (u32 k = 0; k < LANES; k++) {
        const bool equal = is_zero<C>(target, k, p) || (aliased && is_zero<C>(alias, k, p));
        if (!open[k] && !is_zero<C>(sum.z, k, p)) batch.codes[items[k]] = equal ? VALID : INVALID;
    }
}

// The body of a RANGE_STAGE in the place of verify_item.
template <class C, u32 PLANES>
DEVICE void verify_range(const Batch& batch, const Lane& lane, u32 begin, u32 end, const u32* comb) {
    u32 items[LANES], count = 0;
    for (u32 item = begin; item < end; item++) {
        if (batch.codes[item] != UNDECIDED) continue;
        items[count++] = item;
        if (count < LANES) continue;
        verify_lanes<C, PLANES>(batch, items);
        count = 0;
    }
    verify_in_lanes<C, PLANES>(batch, lane, begin, end, comb);
}

}  // namespace crypto_mb
