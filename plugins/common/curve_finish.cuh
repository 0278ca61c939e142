// u1 G + u2 Q for the items that the fast formulas left open, with complete formulas and exact arithmetic: every item is
// decided. The same windows as curve_verify.cuh, with a table in Jacobian coordinates, so that a batch made to leave
// the fast formulas costs about twice more, not a bit-by-bit ladder.
#pragma once
#include "curve_verify.cuh"

constexpr u32 FINISH_THREADS = 128;

template <class C, u32 PLANES>
DEVICE ExactPoint<C> double_scalar_exact(
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
DEVICE bool is_target(const ExactPoint<C>& p, const Words& target) {
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
    const ExactPoint<C> p = double_scalar_exact<C>(batch, lane, scratch, comb);
    batch.codes[item] = is_target<C>(p, load(scratch, TARGET)) ? VALID : INVALID;
}

// The body of the ITEM_STAGE after multiply_item's: what was RETRY becomes VALID with its point in the planes, or INVALID
// where that is infinity.
template <class C, u32 PLANES>
DEVICE void finish_multiply_item(const Batch& batch, const Lane& lane, u32 item, const u32* comb) {
    typedef typename C::Field F;
    typedef Exact<F> E;
    if (!lane.live || batch.codes[item] != RETRY) return;
    const ItemScratch<PLANES> scratch = item_scratch<PLANES>(batch, item);
    const ExactPoint<C> p = double_scalar_exact<C>(batch, lane, scratch, comb);
    if (F::is_zero(p.z)) {
        batch.codes[item] = INVALID;
        return;
    }
    store(scratch, QX, E::to_words(p.x));
    store(scratch, QY, E::to_words(p.y));
    store(scratch, TARGET, E::to_words(p.z));
    batch.codes[item] = VALID;
}
