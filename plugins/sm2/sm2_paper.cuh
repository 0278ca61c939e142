// SM2 verification as in the source paper, to be compared with: no windows and no table of the generator.
//
//   simultaneous   s G + t Q by one doubling chain, a bit of both scalars at a time (Shamir's trick), from G, Q and
//                  G + Q on one shared z, which a co-Z addition gives (Meloni 2007)
//   separate       s G and t Q each by its own chain, and their sum                       PAPER_SEPARATE
//   inversion      of z, for the affine x: binary Euclid, or by Fermat's theorem          PAPER_FERMAT
//
// Additions depend on the scalars' bits, so that the lanes of a warp part. Items that the incomplete formulas leave
// open become RETRY and are finished as those of the other kernel.
#pragma once
#include "curve_finish.cuh"

#ifndef PAPER_SEPARATE
#define PAPER_SEPARATE 0
#endif
#ifndef PAPER_FERMAT
#define PAPER_FERMAT 0
#endif
#ifndef PAPER_THREADS
#define PAPER_THREADS 128
#endif

// Points as (x, doubled y) on the curve isomorphic to C by a common z; entry 1 is G, 2 is Q, 3 is G + Q.
template <class C>
struct SharedZTable {
    typedef typename C::Field F;
    typedef typename F::Element Element;
    static constexpr u32 ENTRY_WORDS = 16;

    DEVICE void put(u32* table, u32 index, const Element& x, const Element& y, Flags& flags) {
        F::store(table + index * ENTRY_WORDS, x), F::store(table + index * ENTRY_WORDS + 8, F::twice(y, flags));
    }

    // P = (x1, y1), R = (x2, y2): with z = x2 - x1, (x1 z^2, y1 z^3) and (x2 z^2, y2 z^3) are they and
    // ((y2 - y1)^2 - x1 z^2 - x2 z^2, ...) their sum, all on that z. Zero where they are equal or opposite.
    DEVICE Element build(u32* table, const Words& qx, const Words& qy, Flags& flags) {
        const Element x1 = F::from_words(C::gx(), flags), y1 = F::from_words(C::gy(), flags);
        const Element x2 = F::from_words(qx, flags), y2 = F::from_words(qy, flags);
        const Element z = F::sub(x2, x1, flags), zz = F::sqr(z, flags);
        const Element gx = F::mul(x1, zz, flags), px = F::mul(x2, zz, flags);
        const Element zzz = F::sub(px, gx, flags);  // z^3
        const Element gy = F::mul(y1, zzz, flags), py = F::mul(y2, zzz, flags);
        const Element r = F::sub(y2, y1, flags);
        const Element sx = F::sub_sub(F::sqr(r, flags), gx, px, flags);
        const Element sy = F::sub(F::mul(r, F::sub(gx, sx, flags), flags), gy, flags);
        put(table, 1, gx, gy, flags), put(table, 2, px, py, flags), put(table, 3, sx, sy, flags);
        return z;
    }
};

// The sum of the entries that the bits of `one` and `two` name, from the top bit down; z = 0 where an addition went
// wrong or both are zero. `a` is the isomorphic curve's.
template <class C>
FORMULA FastPoint<C> bit_by_bit(
    const u32* table, Words one, Words two, const typename C::Field::Element& a, Flags& flags) {
    typedef typename C::Field F;
    typedef FastPoint<C> P;
    P p;
    p.x = p.y = F::one(), p.z = F::zero(), p.w = F::zero();
    bool begun = false;
    NO_UNROLL for (u32 i = 0; i < 256; i++) {
        const u32 digit = one.w[7] >> 31 | two.w[7] >> 31 << 1;
        LIMBS for (u32 k = 7; k > 0; k--) {
            one.w[k] = one.w[k] << 1 | one.w[k - 1] >> 31, two.w[k] = two.w[k] << 1 | two.w[k - 1] >> 31;
        }
        one.w[0] <<= 1, two.w[0] <<= 1;
        if (begun) P::twice(p, digit == 0, flags);
        if (digit == 0) continue;
        const u32* entry = table + digit * SharedZTable<C>::ENTRY_WORDS;
        const auto x = F::load(entry), y = F::load(entry + 8);
        if (begun) P::add_doubled(p, x, y, flags);
        else p.x = x, p.y = y, p.z = F::one();
        begun = true;
        p.w = F::mul(F::sqr(F::sqr(p.z, flags), flags), a, flags);
    }
    return p;
}

// x and z of the sum of two points with doubled ordinates: 9M + 4S.
template <class C>
DEVICE void add_abscissa(FastPoint<C>& p, const FastPoint<C>& q, Flags& flags) {
    typedef typename C::Field F;
    const auto pz2 = F::sqr(p.z, flags), qz2 = F::sqr(q.z, flags);
    const auto u = F::mul(p.x, qz2, flags);
    const auto h = F::sub(F::mul(q.x, pz2, flags), u, flags);
    const auto s = F::mul(F::half(p.y), F::mul(qz2, q.z, flags), flags);
    const auto r = F::sub(F::mul(F::half(q.y), F::mul(pz2, p.z, flags), flags), s, flags);
    const auto hh = F::sqr(h, flags);
    p.z = F::mul(F::mul(p.z, q.z, flags), h, flags);
    p.x = F::sub_sub_twice(F::sqr(r, flags), F::mul(h, hh, flags), F::mul(u, hh, flags), flags);
}

// a / 2 mod the odd m.
DEVICE void halve_mod(Words& a, const Words& m) {
    u32 carry = 0;
    if (a.w[0] & 1) carry = add(a, a, m);
    LIMBS for (u32 k = 0; k < 8; k++) a.w[k] = a.w[k] >> 1 | (k < 7 ? a.w[k + 1] : carry) << 31;
}

DEVICE void halve(Words& a) {
    LIMBS for (u32 k = 0; k < 8; k++) a.w[k] = a.w[k] >> 1 | (k < 7 ? a.w[k + 1] << 31 : 0);
}

// 1 / a mod the odd prime m by the binary Euclidean algorithm (Guide to Elliptic Curve Cryptography, 2.22), which
// keeps r a = u and t a = v mod m. Zero gives zero.
DEVICE_CALL Words invert_by_euclid(const Words a, const Words m) {
    Words u = a, v = m, r = small_words(1), t = small_words(0);
    const Words one = small_words(1);
    if (is_zero(a)) return a;
    while (!equal(u, one) && !equal(v, one)) {
        while (!(u.w[0] & 1)) halve(u), halve_mod(r, m);
        while (!(v.w[0] & 1)) halve(v), halve_mod(t, m);
        if (less(u, v)) subtract(v, v, u), t = subtract_mod(t, r, m);
        else subtract(u, u, v), r = subtract_mod(r, t, m);
    }
    return equal(u, one) ? r : t;
}

template <class C>
DEVICE typename C::Field::Element invert_as_in_the_paper(const typename C::Field::Element& z) {
    typedef Exact<typename C::Field> E;
#if PAPER_FERMAT
    return E::invert(z);
#else
    COUNT(inversions);
    return E::from_words(invert_by_euclid(E::to_words(z), C::Field::Prime::p()));
#endif
}

// The body of an ITEM_STAGE in the place of verify_item's.
template <class C, u32 PLANES>
DEVICE void verify_item_as_in_the_paper(const Batch& batch, const Lane& lane, u32 item) {
    typedef typename C::Field F;
    typedef Exact<F> E;
    typedef FastPoint<C> P;
#if !TARGET_GPU
    if (batch.codes[item] != UNDECIDED) return;
#endif
    const ItemScratch<PLANES> scratch = item_scratch<PLANES>(batch, item);
    Flags flags = {0, 0};
    u32* const table = lane_table<C>(batch, lane);
    const Words s = load(scratch, U1), t = load(scratch, U2);
#if PAPER_SEPARATE
    typedef SharedZTable<C> Table;
    Table::put(table, 1, F::from_words(C::gx(), flags), F::from_words(C::gy(), flags), flags);
    Table::put(table, 2, F::from_words(load(scratch, QX), flags), F::from_words(load(scratch, QY), flags), flags);
    const auto a = isomorphic_a<C>(F::one(), flags);
    P p = bit_by_bit<C>(table, s, small_words(0), a, flags);
    const P q = bit_by_bit<C>(table, small_words(0), t, a, flags);
    add_abscissa<C>(p, q, flags);
#else
    const auto z = SharedZTable<C>::build(table, load(scratch, QX), load(scratch, QY), flags);
    P p = bit_by_bit<C>(table, s, t, isomorphic_a<C>(z, flags), flags);
    p.z = F::mul(p.z, z, flags);  // back on C
#endif
    const auto inverse = invert_as_in_the_paper<C>(F::canonical(p.z));
    const Words x = E::to_words(E::mul(F::canonical(p.x), E::sqr(inverse)));
    const bool valid = equal(Scalar<typename C::Order>::reduce(x), load(scratch, TARGET));
    if (lane.live && batch.codes[item] == UNDECIDED)
        batch.codes[item] = is_open(p, flags) ? RETRY : valid ? VALID : INVALID;
}
