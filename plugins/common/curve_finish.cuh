// u1 G + u2 Q for the items that the fast formulas left open: every item is decided.
//
// First with formulas for every case, still in the lazy field; that costs a fifth more than the fast stage, so that a
// batch made to leave it is not a lever. Only where a flag is raised, which nobody can arrange cheaply, exact
// arithmetic decides, about four times slower.
#pragma once
#include "curve_verify.cuh"

constexpr u32 FINISH_THREADS = VERIFY_THREADS;  // double_scalar's

template <class C, u32 PLANES>
FORMULA ExactPoint<C> double_scalar_exact(
    const Batch& batch, const Lane& lane, const ItemScratch<PLANES>& scratch, const u32* comb) {
    typedef typename C::Field F;
    typedef Exact<F> E;
    typedef ExactPoint<C> P;
    typedef Ladder<C> L;
    u32 digits[L::DIGIT_WORDS];
    const L ladder = L::start(digits, 1, load(scratch, U1), load(scratch, U2));

    u32* table = lane_table<C>(batch, lane);
    P p = P::affine(E::from_words(load(scratch, QX)), E::from_words(load(scratch, QY)));
    const P q2 = P::twice(p);
    NO_UNROLL for (u32 e = 0; e < L::TABLE; e++) {
        F::store(table + e * 24, p.x), F::store(table + e * 24 + 8, p.y), F::store(table + e * 24 + 16, p.z);
        p = P::add(p, q2);
    }

    p = P::infinity();
    NO_UNROLL for (u32 i = L::Windows::COUNT; i-- > 0;) {
        NO_UNROLL for (u32 j = 0; j < L::WIDTH; j++) p = P::twice(p);
        NO_UNROLL for (u32 h = 0; h < C::PARTS; h++) {
            u32 negative;
            const u32* entry = table + L::part_digit(ladder, h, i, negative) * 24;
            P q = {F::load(entry), F::load(entry + 8), F::load(entry + 16)};
            if constexpr (C::PARTS == 2) {
                if (h) q.x = E::mul(q.x, E::from_words(C::beta()));
            }
            if (negative) q.y = E::negate(q.y);
            p = P::add(p, q);
        }
    }
    NO_UNROLL for (u32 i = 0; i < L::CombWindows::COUNT; i++) {
        u32 negative;
        const u32* entry = Comb<C>::entry(comb, i, L::comb_digit(ladder, i, negative));
        P q = P::affine(F::load_constant(entry), F::load_constant(entry + 8));
        if (negative) q.y = E::negate(q.y);
        p = P::add(p, q);
    }
    return p;
}

// Whether p is not infinity and its x is the target modulo n.
template <class C>
FORMULA bool is_target(const ExactPoint<C>& p, const Words& target) {
    typedef Exact<typename C::Field> E;
    Words alias;
    const auto zz = E::sqr(p.z);
    bool equal = E::equal(p.x, E::mul(E::from_words(target), zz));
    if (target_alias<C>(alias, target)) equal |= E::equal(p.x, E::mul(E::from_words(alias), zz));
    return equal && !ExactPoint<C>::is_infinity(p);
}

// The body of the ITEM_STAGE after verify_item's: decides every item that is RETRY.
template <class C, u32 PLANES>
DEVICE void finish_verify_item(const Batch& batch, const Lane& lane, u32 item, const u32* comb) {
    if (!lane.live || batch.codes[item] != RETRY) return;
    const ItemScratch<PLANES> scratch = item_scratch<PLANES>(batch, item);
    const Words target = load(scratch, TARGET);
    Flags flags = {0, 0};
    const FastPoint<C> p = double_scalar<C, true>(batch, lane, scratch, comb, flags);
    bool valid = is_target<C>(p, target, flags) && !C::Field::is_zero(p.z);
    if (raised(flags)) valid = is_target<C>(double_scalar_exact<C>(batch, lane, scratch, comb), target);
    batch.codes[item] = valid ? VALID : INVALID;
}

// The body of the ITEM_STAGE after multiply_item's: what was RETRY becomes VALID with its point in the planes, or
// INVALID where that is infinity.
template <class C, u32 PLANES>
DEVICE void finish_multiply_item(const Batch& batch, const Lane& lane, u32 item, const u32* comb) {
    typedef typename C::Field F;
    if (!lane.live || batch.codes[item] != RETRY) return;
    const ItemScratch<PLANES> scratch = item_scratch<PLANES>(batch, item);
    Flags flags = {0, 0};
    const FastPoint<C> p = double_scalar<C, true>(batch, lane, scratch, comb, flags);
    ExactPoint<C> q = {F::canonical(p.x), F::canonical(p.y), F::canonical(p.z)};
    if (raised(flags)) q = double_scalar_exact<C>(batch, lane, scratch, comb);
    const bool infinity = ExactPoint<C>::is_infinity(q);
    if (!infinity) store_point<C>(scratch, q.x, q.y, q.z);
    batch.codes[item] = infinity ? INVALID : VALID;
}
