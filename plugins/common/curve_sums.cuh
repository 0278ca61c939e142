// u1 G + u2 Q with enrolled keys by affine additions that share inversions: for many items, on a GPU.
//
// With d = x2 - x1 and l = (y2 - y1) / d the sum of two affine points is (l^2 - x1 - x2, l (x1 - x) - y1). Of many
// numbers d[i] one inversion and 3M each give all inverses (Montgomery's trick):
//
//     product[i] = d[0] ... d[i - 1],   u = 1 / product[n],   then for i = n - 1, ..., 0:   1 / d[i] = u product[i],
//                                                                                          u = u d[i]
//
// so that an addition is 5M + S, where one in Jacobian coordinates is 8M + 3S. A lane has ENROLLED_SHARE items, and goes
// over the points of all of them three times:
//
//   1. multiply_differences   the product of the differences of neighbours in the list of points
//   2. add_points             after an inversion and backwards: the sums of neighbours, and the product of the
//                             differences of neighbours among these sums
//   3. add_sums               after an inversion and forwards: the sums of neighbours among the sums, which are added
//                             up in Jacobian coordinates
//
// A difference that is zero, of equal or opposite points, leaves its item as RETRY and counts as one: the items that
// share its inversion do not see it. So do all differences of an item that is decided already, whose slot's rows may be
// written between the passes. A raised flag leaves all items of the lane as RETRY, as their inverses are void.
#pragma once
#include "curve_enrolled.cuh"
#include "field_inverse.cuh"

// Items of a lane; 0: every item by itself in Jacobian coordinates (verify_enrolled_item).
#ifndef ENROLLED_SHARE
#define ENROLLED_SHARE 2
#endif
// Launches over at most so many items a multiprocessor go item by item too: a lane for each of them.
#ifndef ENROLLED_FEW
#define ENROLLED_FEW 512
#endif
// How the next points are fetched ahead: 0: not, 1: their abscissae into registers, 2: the same into the cache.
#ifndef ENROLLED_AHEAD
#define ENROLLED_AHEAD 2
#endif

// A build that counts operations counts these on the CPU.
#if ENROLLED_SHARE > 0 && KEY_SLOTS > 0 && (TARGET_GPU || defined(COUNT_OPERATIONS))
#define ENROLLED_SUMS 1
#else
#define ENROLLED_SUMS 0
#endif

// The sum of two affine points, 2M + S and an inversion: `inverse` is 1 / (x2 - x1).
template <class C>
DEVICE void add_affine_points(
    typename C::Field::Element& x, typename C::Field::Element& y, const typename C::Field::Element& x1,
    const typename C::Field::Element& y1, const typename C::Field::Element& x2, const typename C::Field::Element& y2,
    const typename C::Field::Element& inverse, Flags& flags) {
    typedef typename C::Field F;
    const auto slope = F::mul(F::sub(y2, y1, flags), inverse, flags);
    x = F::sub_sub(F::sqr(slope, flags), x1, x2, flags);
    y = F::sub(F::mul(slope, F::sub(x1, x, flags), flags), y1, flags);
}

// What a lane keeps of its items, in lane scratch, the lanes of a warp side by side: the products of the differences of
// sums, then the sums of neighbouring points. In a sum's x stands at first the product of the differences before.
template <class C>
struct SumMemory {
    typedef EnrolledLadder<C> L;
    static constexpr u32 POINTS = L::ADDITIONS, PAIRS = POINTS / 2;
    static constexpr u32 SUMS = POINTS - PAIRS;  // a point without a neighbour is a sum
    static constexpr u32 SUM_PAIRS = SUMS / 2, TERMS = SUMS - SUM_PAIRS;
    static constexpr u32 PRODUCTS = ENROLLED_SHARE * SUM_PAIRS + 1, ELEMENTS = PRODUCTS + ENROLLED_SHARE * 2 * SUMS;
    static constexpr u32 WORDS = C::Field::WORDS, LANE_BYTES = ELEMENTS * WORDS * 4;
    static constexpr u32 SIDE_BY_SIDE = TARGET_GPU ? 32 : 1;

    u32 *products, *sums;  // the item's

    DEVICE SumMemory of_item(const Batch& batch, const Lane& lane, u32 k) {
        const u64 before = (u64)(lane.index / SIDE_BY_SIDE) * SIDE_BY_SIDE * (LANE_BYTES / 4);
        u32* const words = (u32*)batch.lane_scratch + before + lane.index % SIDE_BY_SIDE * WORDS;
        return {at(words, k * SUM_PAIRS), at(words, PRODUCTS + k * 2 * SUMS)};
    }
    DEVICE u32* x(const SumMemory& memory, u32 sum) { return at(memory.sums, 2 * sum); }
    DEVICE u32* y(const SumMemory& memory, u32 sum) { return at(memory.sums, 2 * sum + 1); }
    // The product of the sums' differences from a pair on, up to the end of the lane's last item; there it is one.
    DEVICE u32* product(const SumMemory& memory, u32 pair) { return at(memory.products, pair); }

private:
    DEVICE u32* at(u32* words, u32 element) { return words + element * (SIDE_BY_SIDE * WORDS); }
};

// Of a plugin that verifies on C, with enrolled keys and without.
template <class C>
constexpr u32 VERIFY_LANE_BYTES = ENROLLED_SUMS && SumMemory<C>::LANE_BYTES > Ladder<C>::LANE_BYTES
                                      ? SumMemory<C>::LANE_BYTES
                                      : Ladder<C>::LANE_BYTES;

// The three passes over an item.
template <class C>
struct ItemSums {
    typedef typename C::Field F;
    typedef typename F::Element Element;
    typedef EnrolledLadder<C> L;
    typedef SumMemory<C> Memory;

    Memory memory;
    bool open;    // not decided yet
    u32 failure;  // its bit among those of the lane's items

    // `product` is that of the differences of the items before, and then of this one's too.
    DEVICE void multiply_differences(
        const ItemSums& item, const Lane& lane, const L& ladder, Element& product, u32& failed, Flags& flags) {
        Element x1, x2;
        auto fetch = [&](u32 i) {
            u32 unused;
            x1 = F::load_constant(L::entry(ladder, 2 * i, unused));
            x2 = F::load_constant(L::entry(ladder, 2 * i + 1, unused));
        };
        fetch(0);
        NO_UNROLL for (u32 i = 0; i < Memory::PAIRS; i++) {
            const Element d = factor(item, F::sub(x2, x1, flags), failed);
            if (i + 1 < Memory::PAIRS) fetch(i + 1);
            F::store(Memory::x(item.memory, i), product);
            product = F::mul(product, d, flags);
            in_step(lane);
        }
    }

    // `inverse` is that of the product up to this item's differences, and then up to the item's before.
    DEVICE void add_points(
        const ItemSums& item, const Lane& lane, const L& ladder, Element& inverse, u32& failed, Flags& flags) {
        const Memory& memory = item.memory;
        u32 negative;
        if constexpr (Memory::SUMS > Memory::PAIRS) {
            const u32* entry = L::entry(ladder, Memory::POINTS - 1, negative);
            F::store(Memory::x(memory, Memory::PAIRS), F::load_constant(entry));
            F::store(Memory::y(memory, Memory::PAIRS), F::negate_if(F::load_constant(entry + 8), negative, flags));
        }
        Element next1, next2;
        const u32 *entry1, *entry2;
        u32 negative1, negative2;
        auto fetch = [&](u32 i) {
            entry1 = L::entry(ladder, 2 * i, negative1), entry2 = L::entry(ladder, 2 * i + 1, negative2);
            if constexpr (ENROLLED_AHEAD == 1) next1 = F::load_constant(entry1), next2 = F::load_constant(entry2);
            if constexpr (ENROLLED_AHEAD == 2) prefetch(entry1), prefetch(entry2), prefetch(Memory::x(memory, i));
        };
        fetch(Memory::PAIRS - 1);
        NO_UNROLL for (u32 i = Memory::PAIRS; i-- > 0;) {
            if constexpr (ENROLLED_AHEAD != 1) next1 = F::load_constant(entry1), next2 = F::load_constant(entry2);
            const Element x1 = next1, x2 = next2;
            const Element y1 = F::negate_if(F::load_constant(entry1 + 8), negative1, flags);
            const Element y2 = F::negate_if(F::load_constant(entry2 + 8), negative2, flags);
            const Element d = factor(item, F::sub(x2, x1, flags), failed);
            const Element one_over_d = F::mul(inverse, F::load(Memory::x(memory, i)), flags);
            inverse = F::mul(inverse, d, flags);
            if (i) fetch(i - 1);
            Element x, y;
            add_affine_points<C>(x, y, x1, y1, x2, y2, one_over_d, flags);
            F::store(Memory::x(memory, i), x), F::store(Memory::y(memory, i), y);
            if (i % 2 == 0 && i + 1 < Memory::SUMS) {
                const Element d = factor(item, F::sub(F::load(Memory::x(memory, i + 1)), x, flags), failed);
                const Element product = F::load(Memory::product(memory, i / 2 + 1));
                F::store(Memory::product(memory, i / 2), F::mul(product, d, flags));
            }
            in_step(lane);
        }
    }

    // The item's point. `inverse` is that of the product of the sums' differences from this item on, and then of those
    // of the items behind.
    DEVICE FastPoint<C> add_sums(const ItemSums& item, const Lane& lane, Element& inverse, u32& failed, Flags& flags) {
        const Memory& memory = item.memory;
        FastPoint<C> p;
        NO_UNROLL for (u32 j = 0; j < Memory::TERMS; j++) {
            Element x = F::load(Memory::x(memory, 2 * j)), y = F::load(Memory::y(memory, 2 * j));
            if (j < Memory::SUM_PAIRS) {
                const Element x2 = F::load(Memory::x(memory, 2 * j + 1)), y2 = F::load(Memory::y(memory, 2 * j + 1));
                const Element one_over_d = F::mul(inverse, F::load(Memory::product(memory, j + 1)), flags);
                inverse = F::mul(inverse, factor(item, F::sub(x2, x, flags), failed), flags);
                const Element x1 = x, y1 = y;
                add_affine_points<C>(x, y, x1, y1, x2, y2, one_over_d, flags);
            }
            if (ENROLLED_AHEAD && j + 1 < Memory::SUM_PAIRS) {
                UNROLL for (u32 e = 0; e < 2; e++) {
                    prefetch(Memory::x(memory, 2 * j + 2 + e)), prefetch(Memory::y(memory, 2 * j + 2 + e));
                }
                prefetch(Memory::product(memory, j + 2));
            }
            if (j == 0) p.x = x, p.y = y, p.z = F::one();
            else if (j == 1) FastPoint<C>::add_affine(p, x, y, flags);
            else FastPoint<C>::add_plain(p, x, y, flags);
            in_step(lane);
        }
        return p;
    }

private:
    // A difference as it is multiplied, the same in two passes.
    DEVICE Element factor(const ItemSums& item, const Element& d, u32& failed) {
        const bool zero = F::is_zero(d);
        if (zero) failed |= item.failure;
        return zero || !item.open ? F::one() : d;
    }

    DEVICE void in_step(const Lane& lane) {
        if constexpr (ENROLLED_BLOCKS == 1) sync(lane);
    }
};

// The body of a SHARE_STAGE of ENROLLED_THREADS threads, with ENROLLED_SHARE: as verify_enrolled_item, for the items
// first, first + stride, ..., `count` of them.
template <class C, u32 PLANES>
DEVICE void verify_enrolled_share(
    const Batch& batch, const Lane& lane, u32 first, u32 stride, u32 count, const u32* comb, const u32* slots) {
    typedef ItemSums<C> Item;
    typedef EnrolledLadder<C> L;
    typedef typename C::Field F;
#if TARGET_GPU
    __shared__ u32 shared[L::DIGIT_WORDS * ENROLLED_THREADS];
    u32* digits = shared + lane.thread;
    const u32 apart = ENROLLED_THREADS;
#else
    u32 digits[L::DIGIT_WORDS];
    const u32 apart = 1;
#endif
    // A lane without its k-th item has its first one in the place, to compute and not to write.
    auto number = [&](u32 k) { return k < count ? first + k * stride : first; };
    auto take = [&](u32 k) -> Item {
        const bool open = lane.live && k < count && batch.codes[number(k)] == UNDECIDED;
        return {SumMemory<C>::of_item(batch, lane, k), open, 1u << k};
    };
    auto ladder = [&](u32 k) {
        return L::start(digits, apart, item_scratch<PLANES>(batch, number(k)), comb, slots);
    };
    Flags flags = {0, 0};
    u32 failed = 0;
    auto product = F::one();
    NO_UNROLL for (u32 k = 0; k < ENROLLED_SHARE; k++)
        Item::multiply_differences(take(k), lane, ladder(k), product, failed, flags);
    auto inverse = invert_by_steps<F>(product);
    F::store(SumMemory<C>::product(SumMemory<C>::of_item(batch, lane, ENROLLED_SHARE), 0), F::one());
    NO_UNROLL for (u32 k = ENROLLED_SHARE; k-- > 0;)
        Item::add_points(take(k), lane, ladder(k), inverse, failed, flags);
    inverse = invert_by_steps<F>(F::load(SumMemory<C>::product(SumMemory<C>::of_item(batch, lane, 0), 0)));
    NO_UNROLL for (u32 k = 0; k < ENROLLED_SHARE; k++) {
        const Item item = take(k);
        const FastPoint<C> p = Item::add_sums(item, lane, inverse, failed, flags);
        Flags own = flags;
        own.over |= failed & item.failure;
        const Lane self = {lane.index, lane.thread, lane.members, item.open};
        settle_item<C>(batch, self, number(k), p, load(item_scratch<PLANES>(batch, number(k)), TARGET), own);
    }
}
