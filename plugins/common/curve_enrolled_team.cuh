// Whether x(u1 G + u2 Q) is the target, for few items with enrolled keys: a team of four lanes an item.
//
// Each lane adds every fourth of the windows' points, and the lanes' sums are added in the end: of 45 additions in a row
// 11 or 12 are left, and two of Jacobian points. All of it takes a third more products than a lane alone does, so it is
// for launches that leave the multiprocessors waiting.
//
// An item is left as RETRY where a lane's flag is raised or the sum's z is zero, which it stays from where two equal or
// opposite points met, in a lane or between them.
#pragma once
#include "curve_enrolled.cuh"
#include "curve_team.cuh"

// The body of a FEW_STAGE of TEAM_LANES lanes and TEAM_BLOCK threads, in the place of verify_enrolled_item.
template <class C, u32 PLANES>
DEVICE void verify_enrolled_item_by_team(
    const Batch& batch, const Lane& lane, u32 item, const u32* comb, const u32* slots) {
    typedef typename C::Field F;
    typedef typename F::Element Element;
    typedef EnrolledLadder<C> L;
    typedef FastPoint<C> P;
    static_assert(L::ADDITIONS >= TEAM_LANES, "a point for each lane to begin with");
    __shared__ u32 digits[L::DIGIT_WORDS * TEAM_BLOCK];
    const ItemScratch<PLANES> scratch = item_scratch<PLANES>(batch, item);
    const L ladder = L::start(digits + lane.thread, TEAM_BLOCK, scratch, comb, slots);
    const u32 share = lane.thread % TEAM_LANES;
    Flags flags = {0, 0};
    u32 negative, next = share;
    Element x, y;
    // The next entry is loaded while the one before it is added.
    auto fetch = [&] {
        if (next >= L::ADDITIONS) return;
        const u32* entry = L::entry(ladder, next, negative);
        x = F::load_constant(entry), y = F::load_constant(entry + 8);
        next += TEAM_LANES;
    };
    fetch();
    P p;
    p.x = x, p.y = F::negate_if(y, negative, flags), p.z = F::one();
    fetch();
    NO_UNROLL for (u32 i = share + TEAM_LANES; i < L::ADDITIONS; i += TEAM_LANES) {
        const Element now_x = x, now_y = F::negate_if(y, negative, flags);
        fetch();
        P::add_plain(p, now_x, now_y, flags);
    }
    p = sum_of_team<C>(p, flags);
    u32 open = raised(flags) ? 1 : 0;
    open |= __shfl_xor_sync(~0u, open, 1);
    open |= __shfl_xor_sync(~0u, open, 2);
    flags.over |= open;
    if (share == 0) settle_item<C>(batch, lane, item, p, load(scratch, TARGET), flags);
}
