// u1 G + u2 Q, fast: what all signature schemes rest on.
//
//   1. A table of Q's odd multiples on one common z, without an inversion (co-Z additions, Meloni 2007).
//   2. u2 Q from fixed signed windows of five bits: five doublings and an addition a window; where the curve has an
//      endomorphism, two half-size scalars share the doublings.
//   3. u1 G added from a comb table, with mixed additions.
//   4. The verdict without an inversion: x == target z^2, for both integers that are the target modulo n.
//
// Formulas are incomplete and fields lazy: an item that met an exception is left as RETRY for curve_finish.cuh.
//
// One block of VERIFY_THREADS runs on an SM. The loop's code is larger than the instruction cache; `sync` keeps the
// warps at the same window, so that they fetch it once for all.
#pragma once
#include "curve_comb.cuh"

#ifndef LADDER_THREADS
#define LADDER_THREADS 512
#endif
constexpr u32 VERIFY_THREADS = LADDER_THREADS;

DEVICE void prefetch(const u32* memory) {
#if INLINE_PTX
    asm volatile("prefetch.global.L1 [%0];" ::"l"(memory));
#else
    __builtin_prefetch(memory);
#endif
}

// The windows of u2's parts and the table of Q that both the fast and the finishing ladder use.
template <class C>
struct Ladder {
    static constexpr u32 WIDTH = 5, TABLE = 1u << (WIDTH - 1);
    typedef ::Windows<WIDTH, (C::PART_BITS + WIDTH - 1) / WIDTH> Windows;
    typedef typename Comb<C>::Windows CombWindows;
    static constexpr u32 DIGIT_WORDS = C::PARTS * Windows::WORDS + CombWindows::WORDS;
    // An entry of Q's table: x, y, and with an endomorphism beta x. Behind the table the factors of the co-Z chain.
    static constexpr u32 ENTRY_WORDS = (C::PARTS == 2 ? 3 : 2) * C::Field::WORDS;
    static constexpr u32 FAST_WORDS = TABLE * ENTRY_WORDS + (TABLE - 1) * C::Field::WORDS;
    static constexpr u32 FINISH_WORDS = TABLE * 24;  // Jacobian coordinates
    static constexpr u32 LANE_BYTES = 4 * (FAST_WORDS > FINISH_WORDS ? FAST_WORDS : FINISH_WORDS);

    u32* digits;  // DIGIT_WORDS, `stride` apart: those of u2's parts, then those of u1
    u32 stride;

    DEVICE Ladder start(u32* digits, u32 stride, const Words& u1, const Words& u2) {
        const Ladder ladder = {digits, stride};
        Words odd[C::PARTS];
        u32 negative[C::PARTS];
        C::split(u2, odd, negative);
        UNROLL for (u32 h = 0; h < C::PARTS; h++) Windows::set(part(ladder, h), odd[h], negative[h]);
        Words odd_u1;
        const u32 negative_u1 = odd_representative(odd_u1, u1, C::Order::modulus());
        CombWindows::set(comb(ladder), odd_u1, negative_u1);
        return ladder;
    }

    // Digit i of part h of u2, or of u1: its index in the table, and a mask that tells whether it is negative.
    DEVICE u32 part_digit(const Ladder& ladder, u32 h, u32 i, u32& negative) {
        return Windows::digit(part(ladder, h), i, negative);
    }
    DEVICE u32 comb_digit(const Ladder& ladder, u32 i, u32& negative) {
        return CombWindows::digit(comb(ladder), i, negative);
    }

private:
    DEVICE Windows part(const Ladder& ladder, u32 h) {
        return {ladder.digits + h * Windows::WORDS * ladder.stride, ladder.stride};
    }
    DEVICE CombWindows comb(const Ladder& ladder) {
        return {ladder.digits + C::PARTS * Windows::WORDS * ladder.stride, ladder.stride};
    }
};

template <class C>
DEVICE u32* lane_table(const Batch& batch, const Lane& lane) {
    return (u32*)(batch.lane_scratch + (u64)lane.index * Ladder<C>::LANE_BYTES);
}

// Q's odd multiples (2 e + 1) Q, e < TABLE, as (x, doubled y) on the curve isomorphic to C by a common z, which is
// returned, and left behind the table: (X, Y) there is (X / z^2, Y / z^3) on C. It takes 8M + 3S an entry.
template <class C>
FORMULA typename C::Field::Element build_table(
    u32* table, const typename C::Field::Element& x, const typename C::Field::Element& y, Flags& flags) {
    typedef typename C::Field F;
    typedef typename F::Element Element;
    typedef Ladder<C> L;
    constexpr u32 Y = F::WORDS, BETA_X = 2 * F::WORDS;  // in an entry
    u32* factors = table + L::TABLE * L::ENTRY_WORDS;
    // 2 Q = (M^2 - 2S, M (S - x') - 8 y^4) with z = 2 y, and Q itself with that z: (4 x y^2, 8 y^4) = (S, 8 y^4).
    const Element x2 = F::sqr(x, flags), y2 = F::sqr(y, flags), y4 = F::sqr(y2, flags);
    const Element s = F::twice(F::twice(F::mul(x, y2, flags), flags), flags);
    Element m;
    if constexpr (C::A_IS_MINUS_3) m = F::triple(F::sub(x2, F::one(), flags), flags);
    else m = F::triple(x2, flags);
    Element px = s, py = F::twice(F::twice(F::twice(y4, flags), flags), flags);
    Element dx = F::sub_twice(F::sqr(m, flags), s, flags);
    Element dy = F::sub(F::mul(m, F::sub(s, dx, flags), flags), py, flags);
    Element z = F::twice(y, flags);
    F::store(table, px), F::store(table + Y, py);
    // P + D for P = (px, py) and D = 2Q on one z: the sum has z' = z f with f = dx - px, and D is rewritten on z' on
    // the way.
    NO_UNROLL for (u32 e = 1; e < L::TABLE; e++) {
        const Element f = F::sub(dx, px, flags), ff = F::sqr(f, flags);
        const Element dxf = F::mul(dx, ff, flags), pxf = F::mul(px, ff, flags);
        const Element g = F::sub(dy, py, flags);
        const Element dyf = F::mul(dy, F::sub(dxf, pxf, flags), flags);
        F::store(factors + (e - 1) * F::WORDS, f);
        px = F::sub_sub(F::sqr(g, flags), dxf, pxf, flags);
        py = F::sub(F::mul(g, F::sub(dxf, px, flags), flags), dyf, flags);
        dx = dxf, dy = dyf;
        F::store(table + e * L::ENTRY_WORDS, px), F::store(table + e * L::ENTRY_WORDS + Y, py);
    }
    // Entry e is on the z of all factors before it: bring it to the last z by the product of the factors from e on.
    Element scale = F::load(factors + (L::TABLE - 2) * F::WORDS);
    NO_UNROLL for (u32 e = L::TABLE; e-- > 0;) {
        u32* entry = table + e * L::ENTRY_WORDS;
        px = F::load(entry), py = F::load(entry + Y);
        if (e < L::TABLE - 1) {
            const Element square = F::sqr(scale, flags);
            px = F::mul(px, square, flags), py = F::mul(py, F::mul(square, scale, flags), flags);
            F::store(entry, px);
            if (e > 0) scale = F::mul(scale, F::load(factors + (e - 1) * F::WORDS), flags);
        }
        F::store(entry + Y, F::twice(py, flags));
        if constexpr (C::PARTS == 2) F::store(entry + BETA_X, F::mul(px, F::from_words(C::beta(), flags), flags));
    }
    z = F::mul(z, scale, flags);
    F::store(factors, z);
    return z;
}

// -3 on the curve whose points (x, y) are (x / z^2, y / z^3) on C: -3 z^4. Unused where a = 0.
template <class C>
FORMULA typename C::Field::Element isomorphic_a(const typename C::Field::Element& z, Flags& flags) {
    typedef typename C::Field F;
    const auto z4 = F::sqr(F::sqr(z, flags), flags);
    return F::sub_sub_twice(F::zero(), z4, z4, flags);
}

// u1 G + u2 Q with plain ordinate; void where a flag was raised, and where z is zero unless COMPLETE: then z = 0 is
// infinity. COMPLETE costs a fifth more, and its warps need not run together.
template <class C, bool COMPLETE, u32 PLANES>
DEVICE FastPoint<C> double_scalar(
    const Batch& batch, const Lane& lane, const ItemScratch<PLANES>& scratch, const u32* comb, Flags& flags) {
    typedef typename C::Field F;
    typedef typename F::Element Element;
    typedef Ladder<C> L;
    typedef FastPoint<C> P;
#if TARGET_GPU
    __shared__ u32 shared[L::DIGIT_WORDS * VERIFY_THREADS];
    u32* digits = shared + lane.thread;
    const u32 stride = VERIFY_THREADS;
#else
    u32 digits[L::DIGIT_WORDS];
    const u32 stride = 1;
#endif
    const L ladder = L::start(digits, stride, load(scratch, U1), load(scratch, U2));
    u32* table = lane_table<C>(batch, lane);
    const Words x_words = load(scratch, QX), y_words = load(scratch, QY);
    const Element qx = F::from_words(x_words, flags), qy = F::from_words(y_words, flags);
    const Element common_z = build_table<C>(table, qx, qy, flags);

    // The isomorphic curve's z and a are kept in memory: the loop has no registers for them.
    u32* const kept_z = table + L::TABLE * L::ENTRY_WORDS;
    u32* const kept_a = kept_z + 8;
    P p;
    p.z = F::one();
    if constexpr (C::A_IS_MINUS_3) {
        p.w = isomorphic_a<C>(common_z, flags);
        F::store(kept_a, p.w);
    }
    if (COMPLETE && F::is_zero(common_z)) flags.over = 1;  // Q's order is too small for the table
    u32 negative;
    u32 e = L::part_digit(ladder, 0, L::Windows::COUNT - 1, negative);
    p.x = F::load(table + e * L::ENTRY_WORDS);
    p.y = F::negate_if(F::load(table + e * L::ENTRY_WORDS + 8), negative, flags);
    if constexpr (C::PARTS == 2) {
        e = L::part_digit(ladder, 1, L::Windows::COUNT - 1, negative);
        const Element x = F::load(table + e * L::ENTRY_WORDS + 16);
        const Element y = F::negate_if(F::load(table + e * L::ENTRY_WORDS + 8), negative, flags);
        if (!COMPLETE || !P::template add_exception<false>(p, x, y, p.z, flags)) P::add_doubled(p, x, y, flags);
    }
    NO_UNROLL for (u32 i = L::Windows::COUNT - 1; i-- > 0;) {
        if constexpr (C::PARTS == 1) {
            e = L::part_digit(ladder, 0, i, negative);
            prefetch(table + e * L::ENTRY_WORDS);
        }
        NO_UNROLL for (u32 j = 0; j < L::WIDTH; j++) P::twice(p, j < L::WIDTH - 1, flags);
        NO_UNROLL for (u32 h = 0; h < C::PARTS; h++) {
            if constexpr (C::PARTS == 2) e = L::part_digit(ladder, h, i, negative);
            const u32* entry = table + e * L::ENTRY_WORDS;
            const Element x = F::load(entry + (h ? 16 : 0));
            const Element y = F::negate_if(F::load(entry + 8), negative, flags);
            if (!COMPLETE || !P::template add_exception<false>(p, x, y, F::load(kept_a), flags))
                P::add_doubled(p, x, y, flags);
        }
        if constexpr (C::A_IS_MINUS_3) {
            if (i > 0) p.w = F::mul(F::sqr(F::sqr(p.z, flags), flags), F::load(kept_a), flags);
        }
        if constexpr (!COMPLETE) sync(lane);
    }
    p.z = F::mul(p.z, F::load(kept_z), flags);  // back on C
    p.y = F::half(p.y);

    // The next entry is on its way while one is added.
    e = L::comb_digit(ladder, 0, negative);
    const u32* entry = Comb<C>::entry(comb, 0, e);
    Element x = F::load_constant(entry), y = F::load_constant(entry + 8);
    NO_UNROLL for (u32 i = 0; i < L::CombWindows::COUNT; i++) {
        const Element now_x = x, now_y = F::negate_if(y, negative, flags);
        if (i + 1 < L::CombWindows::COUNT) {
            e = L::comb_digit(ladder, i + 1, negative);
            entry = Comb<C>::entry(comb, i + 1, e);
            x = F::load_constant(entry), y = F::load_constant(entry + 8);
        }
        if (!COMPLETE || !P::template add_exception<true>(p, now_x, now_y, isomorphic_a<C>(F::one(), flags), flags))
            P::add_plain(p, now_x, now_y, flags);
    }
    return p;
}

// The second integer below p that is the target modulo n, if there is one.
template <class C>
DEVICE bool target_alias(Words& alias, const Words& target) {
    return !add(alias, target, C::Order::modulus()) && less(alias, C::Field::Prime::p());
}

template <class C>
DEVICE bool is_open(const FastPoint<C>& p, const Flags& flags) {
    return raised(flags) || C::Field::is_zero(p.z);
}

// Whether x of a point that is not infinity is the target modulo n.
template <class C>
FORMULA bool is_target(const FastPoint<C>& p, const Words& target, Flags& flags) {
    typedef typename C::Field F;
    Words alias;
    const auto zz = F::sqr(p.z, flags);
    bool equal = F::is_zero(F::sub(p.x, F::mul(F::from_words(target, flags), zz, flags), flags));
    if (target_alias<C>(alias, target))
        equal |= F::is_zero(F::sub(p.x, F::mul(F::from_words(alias, flags), zz, flags), flags));
    return equal;
}

// The code of an item that is UNDECIDED, from its point: VALID, INVALID or RETRY.
template <class C>
DEVICE void settle_item(
    const Batch& batch, const Lane& lane, u32 item, const FastPoint<C>& p, const Words& target, Flags& flags) {
    const bool equal = is_target<C>(p, target, flags);
    if (lane.live && batch.codes[item] == UNDECIDED)
        batch.codes[item] = is_open(p, flags) ? RETRY : equal ? VALID : INVALID;
}

// The body of an ITEM_STAGE of VERIFY_THREADS threads, one block an SM: VALID, INVALID or RETRY for every item that
// is UNDECIDED.
template <class C, u32 PLANES>
DEVICE void verify_item(const Batch& batch, const Lane& lane, u32 item, const u32* comb) {
#if !TARGET_GPU
    if (batch.codes[item] != UNDECIDED) return;
#endif
    const ItemScratch<PLANES> scratch = item_scratch<PLANES>(batch, item);
    Flags flags = {0, 0};
    const FastPoint<C> p = double_scalar<C, false>(batch, lane, scratch, comb, flags);
    settle_item<C>(batch, lane, item, p, load(scratch, TARGET), flags);
}

// X, Y, Z as plain integers into the planes of a recovered point.
template <class C, u32 PLANES>
DEVICE void store_point(
    const ItemScratch<PLANES>& scratch, const typename C::Field::Element& x, const typename C::Field::Element& y,
    const typename C::Field::Element& z) {
    typedef Exact<typename C::Field> E;
    store(scratch, QX, E::to_words(x));
    store(scratch, QY, E::to_words(y));
    store(scratch, TARGET, E::to_words(z));
}

// The same for recovery: every item that is UNDECIDED becomes VALID with X, Y, Z of its point, plain integers, in the
// planes QX, QY, TARGET, or RETRY with its planes as they were.
template <class C, u32 PLANES>
DEVICE void multiply_item(const Batch& batch, const Lane& lane, u32 item, const u32* comb) {
    typedef typename C::Field F;
#if !TARGET_GPU
    if (batch.codes[item] != UNDECIDED) return;
#endif
    const ItemScratch<PLANES> scratch = item_scratch<PLANES>(batch, item);
    Flags flags = {0, 0};
    const FastPoint<C> p = double_scalar<C, false>(batch, lane, scratch, comb, flags);
    if (!lane.live || batch.codes[item] != UNDECIDED) return;
    if (is_open(p, flags)) {
        batch.codes[item] = RETRY;
        return;
    }
    store_point<C>(scratch, F::canonical(p.x), F::canonical(p.y), F::canonical(p.z));
    batch.codes[item] = VALID;
}
