// Whether x(u1 G + u2 Q) is the target, for few items: a team of four lanes an item, for the time that one takes.
//
// With u2 = +-a / b mod n for a, b < 2^128 (half_scalar.cuh) and R a point whose x is the target,
//     u1 G + u2 Q = +-R    just where    x(b u1 G +- a Q) = x(b R),
// as the order is prime and b is not 0 modulo it. So a Q and b R take half of the doublings, side by side: two lanes
// have Q, two have R, and b u1 G is divided among all four (Antipa and others, SAC 2005, for R with a known y).
//
// The y of R is not known and not needed. With v = x^3 + a x + b at the target, (x v, v^2) is a point of
// y^2 = x^3 + a v^2 x + b v^3, and X there stands for X / v on C. Where v is no square there is no R; the points of
// that curve then stand for values of x that no point of C has, so that the two sides differ.
//
// An item is left as RETRY where a flag is raised, a z is zero, u2 is not halved, or a second integer is the target
// modulo n. In the ladder no addition meets its own point while R is on C: the multiples are below 2^128.
#pragma once
#include "curve_pair.cuh"
#include "half_scalar.cuh"

#ifndef TEAM_BLOCK
#define TEAM_BLOCK 256  // threads of a block, one a multiprocessor
#endif
constexpr u32 TEAM_LANES = 4;

// p += q for points with plain ordinates, neither of them infinity, equal nor opposite: else z = 0. 12M + 4S.
template <class C>
DEVICE void add_jacobian(FastPoint<C>& p, const FastPoint<C>& q, Flags& flags) {
    typedef typename C::Field F;
    typedef CalledProducts<F> M;
    const auto pzz = M::sqr(p.z, flags), qzz = M::sqr(q.z, flags);
    const auto u = M::mul(p.x, qzz, flags), s = M::mul(p.y, M::mul(qzz, q.z, flags), flags);
    const auto h = F::sub(M::mul(q.x, pzz, flags), u, flags);
    const auto r = F::sub(M::mul(q.y, M::mul(pzz, p.z, flags), flags), s, flags);
    const auto hh = M::sqr(h, flags), hhh = M::mul(h, hh, flags), v = M::mul(u, hh, flags);
    p.x = F::sub_sub_twice(M::sqr(r, flags), hhh, v, flags);
    p.y = F::sub(M::mul(r, F::sub(v, p.x, flags), flags), M::mul(s, hhh, flags), flags);
    p.z = M::mul(M::mul(p.z, q.z, flags), h, flags);
}

// The sum of the points that a team's lanes have, in each of them.
template <class C>
DEVICE FastPoint<C> sum_of_team(FastPoint<C> p, Flags& flags) {
    NO_UNROLL for (u32 distance = 1; distance < TEAM_LANES; distance *= 2) {
        const FastPoint<C> q = {from_lane(p.x, distance), from_lane(p.y, distance), from_lane(p.z, distance), {}};
        add_jacobian<C>(p, q, flags);
    }
    return p;
}

// k G in the team's four lanes, for 0 < k < n: each adds every fourth window, and their sums are added. `share` is
// the lane's number in its team, `digits` has Comb::Windows::WORDS words, `stride` apart.
template <class C>
DEVICE FastPoint<C> multiply_generator(
    const u32* comb, const Words& k, u32 share, u32* digits, u32 stride, Flags& flags) {
    typedef typename C::Field F;
    typedef CalledProducts<F> M;
    typedef typename Comb<C>::Windows Windows;
    static_assert(Windows::COUNT >= TEAM_LANES);
    const Windows windows = {digits, stride};
    Words odd;
    const u32 opposite = odd_representative(odd, k, C::Order::modulus());
    Windows::set(windows, odd, opposite);
    u32 negative;
    const u32* entry = Comb<C>::entry(comb, share, Windows::digit(windows, share, negative));
    FastPoint<C> p;
    p.x = F::load_constant(entry), p.y = F::negate_if(F::load_constant(entry + 8), negative, flags), p.z = F::one();
    NO_UNROLL for (u32 i = share + TEAM_LANES; i < Windows::COUNT; i += TEAM_LANES) {
        entry = Comb<C>::entry(comb, i, Windows::digit(windows, i, negative));
        const auto x = F::load_constant(entry), y = F::negate_if(F::load_constant(entry + 8), negative, flags);
        const auto zz = M::sqr(p.z, flags);
        const auto h = F::sub(M::mul(x, zz, flags), p.x, flags);
        const auto r = F::sub(M::mul(y, M::mul(p.z, zz, flags), flags), p.y, flags);
        const auto hh = M::sqr(h, flags), hhh = M::mul(h, hh, flags), v = M::mul(p.x, hh, flags);
        p.z = M::mul(p.z, h, flags);
        p.x = F::sub_sub_twice(M::sqr(r, flags), hhh, v, flags);
        p.y = F::sub(M::mul(r, F::sub(v, p.x, flags), flags), M::mul(p.y, hhh, flags), flags);
    }
    return sum_of_team<C>(p, flags);
}

// The body of a FEW_STAGE of TEAM_LANES lanes and TEAM_BLOCK threads, in the place of verify_item.
template <class C, u32 PLANES>
DEVICE void verify_item_by_team(const Batch& batch, const Lane& lane, u32 item, const u32* comb) {
    typedef typename C::Field F;
    typedef typename F::Element Element;
    typedef CalledProducts<F> M;
    typedef PairMemory<C> Memory;
    typedef Scalar<typename C::Order> S;
    static_assert(C::PARTS == 1 && C::A_IS_MINUS_3);
    __shared__ u32 digits[Comb<C>::Windows::WORDS * TEAM_BLOCK];
    const ItemScratch<PLANES> scratch = item_scratch<PLANES>(batch, item);
    const bool odd = lane.thread & 1, has_r = lane.thread & 2;
    const Memory memory = {lane_table<C>(batch, lane)};
    Flags flags = {0, 0}, called = {0, 0};  // apart, lest the loop's be kept in memory for the calls

    // Scratch of an item that is decided may hold anything, and Euclid's algorithm wants numbers in order.
    const Words t = load(scratch, U2);
    const HalfScalars half = half_scalars(select(S::in_range(t), t, small_words(1)), C::Order::modulus());
    const Words b = {{half.b[0], half.b[1], half.b[2], half.b[3], 0, 0, 0, 0}};
    u32 k[4];
    UNROLL for (u32 i = 0; i < 4; i++) k[i] = has_r ? half.b[i] : half.a[i];

    const Words target = load(scratch, TARGET);
    {
        const Element x = M::mul(target, F::radix_squared(), called), xx = M::sqr(x, called);
        const Element curve_b = M::mul(C::b(), F::radix_squared(), called);
        const Element v = F::add(
            M::mul(x, F::sub(F::sub(F::sub(xx, F::one(), called), F::one(), called), F::one(), called), called),
            curve_b, called);
        Memory::put(memory, Memory::V, v);
        const Element vv = M::sqr(v, called);
        const Element scale = select(has_r, vv, F::one());
        const Element a = F::sub_sub_twice(F::zero(), scale, scale, called);
        const Element radix = F::radix_squared(), one = F::one();  // the key is not in the field's form yet
        build_pair_table<C>(
            memory, odd, M::mul(select(has_r, x, load(scratch, QX)), select(has_r, v, radix), called),
            M::mul(select(has_r, vv, load(scratch, QY)), select(has_r, one, radix), called), a, called);
    }
    const FastPoint<C> mine = multiply_pair<C>(lane, memory, odd, k, half.negative && !has_r ? ~0u : 0u, flags);

    FastPoint<C> p = multiply_generator<C>(
        comb, S::multiply(S::to_montgomery(b), load(scratch, U1)), lane.thread % TEAM_LANES, digits + lane.thread,
        TEAM_BLOCK, called);
    add_jacobian<C>(p, mine, called);  // void in the lanes that have R

    const Element rx = from_lane(mine.x, 2), rz = from_lane(mine.z, 2);
    const Element left = M::mul(M::mul(p.x, Memory::get(memory, Memory::V), called), M::sqr(rz, called), called);
    const bool equal = F::is_zero(F::sub(left, M::mul(rx, M::sqr(p.z, called), called), called));
    Words alias;
    u32 open = !half.found || raised(flags) || raised(called) || target_alias<C>(alias, target) ? 1 : 0;
    open |= __shfl_xor_sync(~0u, open, 1);
    open |= __shfl_xor_sync(~0u, open, 2);
    open |= F::is_zero(p.z) || F::is_zero(rz) ? 1 : 0;
    if (lane.thread % TEAM_LANES == 0 && lane.live && batch.codes[item] == UNDECIDED)
        batch.codes[item] = open ? RETRY : equal ? VALID : INVALID;
}
