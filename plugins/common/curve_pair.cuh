// Multiples of a point by 128 bits of scalar in a pair of lanes, on a curve y^2 = x^3 + a x + b of any a.
//
// The two lanes share every formula, two products at a time. The even one has x, the odd one the doubled y and z;
// what one makes and the other needs goes by a shuffle. "A | B" is A in the even lane and B in the odd one. Lanes
// compute what they do not need too, so that all do the same. Formulas are those of curve_verify.cuh and fail as
// those do.
#pragma once
#include "curve_verify.cuh"

#ifndef TEAM_CALLS
#define TEAM_CALLS 0  // 1: the loop calls its products instead of having them inlined
#endif

DEVICE Words from_lane(const Words& a, u32 distance) {
    Words r;
    UNROLL for (u32 i = 0; i < 8; i++) r.w[i] = __shfl_xor_sync(~0u, a.w[i], distance);
    return r;
}

// Products by a call: for code that runs once an item, whose instructions would have to be fetched for that.
template <class F>
struct CalledProducts {
    typedef typename F::Element Element;
    DEVICE_CALL Element mul(const Element a, const Element b, Flags& flags) { return F::mul(a, b, flags); }
    DEVICE_CALL Element sqr(const Element a, Flags& flags) { return F::sqr(a, flags); }
};

template <class F, bool CALLED>
struct LoopProducts : F {};
template <class F>
struct LoopProducts<F, true> : CalledProducts<F> {};

// A multiple of a point on a curve y^2 = x^3 + a x + b of any a, in a pair of lanes.
template <class C>
struct PairPoint {
    typedef typename C::Field F;
    typedef typename F::Element Element;
    typedef LoopProducts<F, TEAM_CALLS> M;

    bool odd;
    Element own;  // x | doubled y
    Element z;    // in both after an addition, else in the odd lane
    Element w;    // in both: a z^4, or z^2 before an addition

    // FastPoint::twice: 2M + 2S. `last`: an addition follows.
    DEVICE void twice(PairPoint& p, bool last, Flags& flags) {
        const Element square = M::sqr(p.own, flags);                              // x^2 | y^2
        const Element y2 = from_lane(square, 1);
        const Element m = F::triple_add(square, p.w, flags);
        const Element r = M::sqr(select(p.odd, square, m), flags);                // m^2 | y^4
        const Element s = M::mul(p.own, select(p.odd, p.z, y2), flags);           // x y^2 | z' = y z
        const Element s2 = F::twice(s, flags);
        const Element x = F::sub(r, s2, flags);
        const Element d = F::sub_twice(s2, x, flags);
        const Element t = M::mul(                                                 // m d | w y^4, or z'^2
            select(p.odd, select(last, s, r), m), select(p.odd, select(last, s, p.w), d), flags);
        const Element others = from_lane(t, 1);
        p.w = select(p.odd, t, others);
        p.own = select(p.odd, F::sub(others, r, flags), x);
        p.z = s;
    }

    // FastPoint::add_doubled for z^2 in w: 6M + S, w = a z^4 included. `entry`: x | doubled y.
    DEVICE void add(PairPoint& p, const Element& entry, const Element& a, Flags& flags) {
        const Element u = M::mul(p.w, select(p.odd, p.z, entry), flags);          // x z^2 | z^3
        const Element h = F::sub(u, p.own, flags);
        const Element s = M::mul(select(p.odd, u, h), select(p.odd, entry, h), flags);          // h^2 | y z^3
        const Element r2 = F::sub(s, p.own, flags);
        const Element other = from_lane(select(p.odd, r2, h), 1);                 // r2 | h
        const Element cube = M::mul(select(p.odd, p.z, h), select(p.odd, other, s), flags);     // h^3 | z' = z h
        const Element others = from_lane(cube, 1);                                // z' | h^3
        const Element v = M::mul(select(p.odd, cube, p.own), select(p.odd, cube, s), flags);    // x h^2 | z'^2
        const Element square = M::sqr(select(p.odd, v, F::half(other)), flags);   // r^2 | z'^4
        const Element x = F::sub_sub_twice(square, cube, v, flags);
        const Element d = F::sub(v, x, flags);
        const Element t = M::mul(select(p.odd, others, other), select(p.odd, p.own, d), flags);  // r2 d | y h^3
        const Element last = from_lane(select(p.odd, square, t), 1);              // z'^4 | r2 d
        p.own = select(p.odd, F::sub(last, t, flags), x);
        p.z = select(p.odd, cube, others);
        p.w = M::mul(select(p.odd, square, last), a, flags);
    }
};

// What a lane keeps in its memory, in elements: its coordinate of the odd multiples, the factors of their z, and what
// the loop has no registers for.
template <class C>
struct PairMemory {
    static constexpr u32 WIDTH = 4, COUNT = 128 / WIDTH, TABLE = 1u << (WIDTH - 1);
    enum Place : u32 { ENTRIES = 0, FACTORS = TABLE, A = FACTORS + TABLE - 1, Z, V, KEPT_OWN, KEPT_Z, END };
    static_assert(END * 32 <= Ladder<C>::LANE_BYTES);

    u32* words;

    DEVICE typename C::Field::Element get(const PairMemory& memory, u32 place) {
        return C::Field::load(memory.words + place * 8);
    }
    DEVICE void put(const PairMemory& memory, u32 place, const typename C::Field::Element& a) {
        C::Field::store(memory.words + place * 8, a);
    }
};

// The odd multiples of (x, y) as x | doubled y, on one common z, which is kept with a z^4: build_table for a pair and
// any a. `a`: the curve's.
template <class C>
DEVICE void build_pair_table(
    const PairMemory<C>& memory, bool odd, const typename C::Field::Element& x, const typename C::Field::Element& y,
    const typename C::Field::Element& a, Flags& flags) {
    typedef typename C::Field F;
    typedef typename F::Element Element;
    typedef CalledProducts<F> M;
    typedef PairMemory<C> Memory;
    const Element y2 = M::sqr(y, flags), y4 = M::sqr(y2, flags);
    const Element s = F::twice(F::twice(M::mul(x, y2, flags), flags), flags);
    const Element m = F::triple_add(M::sqr(x, flags), a, flags);
    Element px = s, py = F::twice(F::twice(F::twice(y4, flags), flags), flags);
    Element dx = F::sub_twice(M::sqr(m, flags), s, flags);
    Element dy = F::sub(M::mul(m, F::sub(s, dx, flags), flags), py, flags);
    Memory::put(memory, Memory::ENTRIES, select(odd, py, px));
    NO_UNROLL for (u32 e = 1; e < Memory::TABLE; e++) {
        const Element f = F::sub(dx, px, flags), g = F::sub(dy, py, flags);
        const Element square = M::sqr(select(odd, g, f), flags);                  // f^2 | g^2
        const Element other_square = from_lane(square, 1);
        const Element ff = select(odd, other_square, square), gg = select(odd, square, other_square);
        const Element moved = M::mul(select(odd, px, dx), ff, flags);             // dx f^2 | px f^2
        const Element other_moved = from_lane(moved, 1);
        const Element pxf = select(odd, moved, other_moved);
        dx = select(odd, other_moved, moved);
        px = F::sub_sub(gg, dx, pxf, flags);
        const Element t = M::mul(select(odd, dy, g), F::sub(dx, select(odd, pxf, px), flags), flags);
        const Element other_t = from_lane(t, 1);
        dy = select(odd, t, other_t);
        py = F::sub(select(odd, other_t, t), dy, flags);
        Memory::put(memory, Memory::FACTORS + e - 1, f);
        Memory::put(memory, Memory::ENTRIES + e, select(odd, py, px));
    }
    // Entry e is on the z of all factors before it: bring it to the last z by the product of the factors from e on.
    Element scale = Memory::get(memory, Memory::FACTORS + Memory::TABLE - 2);
    Element own = Memory::get(memory, Memory::ENTRIES + Memory::TABLE - 1);
    Memory::put(memory, Memory::ENTRIES + Memory::TABLE - 1, select(odd, F::twice(own, flags), own));
    NO_UNROLL for (u32 e = Memory::TABLE - 1; e-- > 0;) {
        const Element factor = e > 0 ? Memory::get(memory, Memory::FACTORS + e - 1) : F::one();
        const Element product = M::mul(scale, select(odd, factor, scale), flags);  // scale^2 | the next scale
        const Element other = from_lane(product, 1);
        const Element square = select(odd, other, product);
        own = M::mul(Memory::get(memory, Memory::ENTRIES + e), square, flags);
        const Element y_own = M::mul(own, scale, flags);
        Memory::put(memory, Memory::ENTRIES + e, select(odd, F::twice(y_own, flags), own));
        scale = select(odd, product, other);
    }
    const Element z = M::mul(F::twice(y, flags), scale, flags);
    Memory::put(memory, Memory::Z, z);
    Memory::put(memory, Memory::A, M::mul(M::sqr(M::sqr(z, flags), flags), a, flags));
}

// +-k times the point of the table, on C or R's curve: plain x, plain y and z in both lanes. `negative`: a mask.
template <class C>
DEVICE FastPoint<C> multiply_pair(
    const Lane& lane, const PairMemory<C>& memory, bool odd, const u32 (&k)[4], u32 negative, Flags& flags) {
    typedef typename C::Field F;
    typedef typename F::Element Element;
    typedef PairMemory<C> Memory;
    typedef PairPoint<C> Pair;
    // Signed odd digits of k or k + 1, as in curve_comb.cuh; k + 1 < 2^128 where k is even. The digit of the top four
    // bits is the next one.
    u32 windows[4];
    UNROLL for (u32 i = 0; i < 4; i++) {
        const u32 above = i < 3 ? k[i + 1] << 31 : 1u << 31;
        windows[i] = (k[i] >> 1 | above) ^ negative;
    }
    const bool even = (k[0] & 1) == 0;
    const auto next_entry = [&]() {
        const u32 window = windows[3] >> 28, minus = window >> 3 ? 0u : ~0u;
        UNROLL for (u32 i = 3; i > 0; i--) windows[i] = windows[i] << 4 | windows[i - 1] >> 28;
        windows[0] <<= 4;
        const Element entry = Memory::get(memory, Memory::ENTRIES + ((window ^ minus) & (Memory::TABLE - 1)));
        return F::negate_if(entry, odd ? minus : 0u, flags);
    };
    Pair p;
    p.odd = odd;
    p.own = next_entry();
    p.z = F::one();
    p.w = Memory::get(memory, Memory::A);
    NO_UNROLL for (u32 i = Memory::COUNT - 1;; i--) {
        Element entry;
        if (i > 0) {
            entry = next_entry();
            NO_UNROLL for (u32 j = Memory::WIDTH; j-- > 0;) Pair::twice(p, j == 0, flags);
        } else {  // once more, for the one that k + 1 has too much
            Memory::put(memory, Memory::KEPT_OWN, p.own), Memory::put(memory, Memory::KEPT_Z, p.z);
            p.w = CalledProducts<F>::sqr(p.z, flags);
            entry = F::negate_if(Memory::get(memory, Memory::ENTRIES), odd ? ~negative : 0u, flags);
        }
        Pair::add(p, entry, Memory::get(memory, Memory::A), flags);
        if (i == 0) break;
        sync(lane);
    }
    const Element own = select(even, p.own, Memory::get(memory, Memory::KEPT_OWN));
    const Element z = select(even, p.z, Memory::get(memory, Memory::KEPT_Z));
    const Element plain = select(odd, F::half(own), own), other = from_lane(plain, 1);
    FastPoint<C> point;
    point.x = select(odd, other, plain), point.y = select(odd, plain, other);
    point.z = CalledProducts<F>::mul(z, Memory::get(memory, Memory::Z), flags);
    return point;
}
