// Roots of compressed keys and of recovered points on the CPU, eight at a time where it has AVX-512 IFMA: a root taken
// alone costs more than a verification does in eight lanes.
#pragma once
#include "curve_lanes.cuh"

#if HAS_LANES

// a^((p + 1) / 4), four bits of the exponent at a time: a root of a, if it has one, as p = 3 mod 4.
template <class F>
DEVICE_CALL WITH_IFMA void root_lanes(typename F::Element& root, const typename F::Element& a) {
    Words exponent;
    add(exponent, F::Prime::p(), small_words(1));
    LIMBS for (u32 i = 0; i < 8; i++) exponent.w[i] = exponent.w[i] >> 2 | (i < 7 ? exponent.w[i + 1] << 30 : 0);
    typename F::Element power[16];
    power[0] = F::one();
    for (u32 i = 1; i < 16; i++) power[i] = F::mul(power[i - 1], a);
    root = power[0];
    for (u32 i = 64; i-- > 0;) {
        if (i < 63) for (u32 j = 0; j < 4; j++) root = F::sqr(root);
        root = F::mul(root, power[exponent.w[i / 8] >> 4 * (i % 8) & 15]);
    }
}

// QY of `count` items becomes the ordinate above QX of the parity that stands there; `otherwise` is the code of those
// above which there is none.
template <class C, u32 PLANES>
DEVICE_CALL WITH_IFMA void take_roots(const Batch& batch, const u32* items, u32 count, Code otherwise) {
    typedef LaneLadder<C> L;
    typedef typename L::F F;
    typedef typename F::Element Element;
    Lanes limbs[4];
    for (u32 k = 0; k < LANE_COUNT; k++)
        L::put(limbs, k, load(item_scratch<PLANES>(batch, items[k < count ? k : 0]), QX));
    const Element x = F::from_limbs(limbs);
    LIMBS for (u32 i = 0; i < 4; i++) limbs[i] = every_lane(C::b().w[2 * i] | (u64)C::b().w[2 * i + 1] << 32);
    Element square = F::add(F::mul(F::sqr(x), x), F::from_limbs(limbs)), root;
    Flags flags = {0, 0};
    if constexpr (C::A_IS_MINUS_3) square = F::sub(square, F::triple(x, flags));
    root_lanes<F>(root, square);
    const Lanes found = F::is_zero(F::sub(F::sqr(root), square));
    F::to_limbs(limbs, root);
    for (u32 k = 0; k < count; k++) {
        const ItemScratch<PLANES> scratch = item_scratch<PLANES>(batch, items[k]);
        if (!found[k]) {
            batch.codes[items[k]] = otherwise;
            if constexpr (PLANES > VALUE) store(scratch, VALUE, small_words(0));  // takes no part in its group's inversion
            continue;
        }
        Words y = L::take(limbs, k);
        if ((y.w[0] & 1) != load(scratch, QY).w[0]) subtract(y, C::Field::Prime::p(), y);
        store(scratch, QY, y);
    }
}

#endif

// The body of a RANGE_STAGE of items that may await a root: later(item) leaves it and says so, now(item) takes it.
template <class C, u32 PLANES, class Now, class Later>
DEVICE void prepare_in_lanes(
    const Batch& batch, u32 begin, u32 end, [[maybe_unused]] Code otherwise, Now now, [[maybe_unused]] Later later) {
#if HAS_LANES
    if (lanes_run()) {
        u32 items[LANE_COUNT], count = 0;
        for (u32 item = begin; item < end; item++) {
            if (later(item)) items[count++] = item;
            if (count < LANE_COUNT) continue;
            take_roots<C, PLANES>(batch, items, count, otherwise);
            count = 0;
        }
        if (count) take_roots<C, PLANES>(batch, items, count, otherwise);
        return;
    }
#else
    (void)batch;
#endif
    for (u32 item = begin; item < end; item++) now(item);
}
