// u1 G + u2 Q on the CPU, eight items at a time where it has AVX-512 IFMA: the windows, tables and formulas of
// curve_verify.cuh and curve_enrolled.cuh in a field of eight elements (field_lanes.cuh).
//
// The stages here stand in the place of verify_item, multiply_item and verify_enrolled_item. What is left over, and
// every item where the CPU has no such instructions, goes one by one. The digits of eight items differ, so that entries
// of tables are gathered.
//
// Nothing is left open for the finishing stage, which goes item by item: whoever makes items that leave the formulas
// would slow a CPU down six times. An addition of equal or opposite points shows by its z, which comes out zero; it is
// then done again with every case, in those lanes alone.
#pragma once
#include "curve_enrolled.cuh"
#include "field_lanes.cuh"

#if TARGET_GPU
#error "lanes are for CPUs: a GPU's are its threads"
#endif

#if HAS_LANES

// The curve C over fields of eight elements.
template <class C>
struct LaneCurve : C {
    typedef LaneField<typename C::Field::Prime> Field;
};

template <class C>
struct LaneLadder {
    typedef typename LaneCurve<C>::Field F;
    typedef typename F::Element Element;
    typedef FastPoint<LaneCurve<C>> Point;

    // u1 G + u2 Q with plain ordinate, infinity where z is zero: double_scalar for eight items. All ones in the lanes
    // that are left open: Q's order is too small for the table.
    template <u32 PLANES>
    DEVICE_CALL WITH_IFMA Lanes multiply(Point& p, const Batch& batch, const u32* items, const u32* comb) {
        typedef Ladder<LaneCurve<C>> L;
        typedef typename L::Windows Windows;
        constexpr u32 ENTRY = L::ENTRY_WORDS / F::WORDS, Y = F::WORDS, BETA_X = 2 * F::WORDS;
        alignas(sizeof(Lanes)) u32 table[L::FAST_WORDS], digits[L::DIGIT_WORDS * LANE_COUNT];
        Lanes x_limbs[4], y_limbs[4];
        for (u32 k = 0; k < LANE_COUNT; k++) {
            const ItemScratch<PLANES> scratch = item_scratch<PLANES>(batch, items[k]);
            L::start(digits + k, LANE_COUNT, load(scratch, U1), load(scratch, U2));
            put(x_limbs, k, load(scratch, QX)), put(y_limbs, k, load(scratch, QY));
        }
        Flags flags = {0, 0};
        const Element qx = F::from_limbs(x_limbs), qy = F::from_limbs(y_limbs);
        const Element common_z = build_table<LaneCurve<C>>(table, qx, qy, flags);
        Element a = {};
        if constexpr (C::A_IS_MINUS_3) a = p.w = isomorphic_a<LaneCurve<C>>(common_z, flags);

        for (u32 i = Windows::COUNT; i-- > 0;) {
            const bool first = i == Windows::COUNT - 1;
            for (u32 j = 0; j < (first ? 0 : L::WIDTH); j++) Point::twice(p, j < L::WIDTH - 1, flags);
            for (u32 h = 0; h < C::PARTS; h++) {
                Lanes negative;
                const Lanes e = digit<Windows>(digits + h * Windows::WORDS * LANE_COUNT, i, negative);
                const Element x = F::gather(table + (h ? BETA_X : 0), e, ENTRY);
                const Element y = F::negate_if(F::gather(table + Y, e, ENTRY), negative);
                if (first && h == 0) p.x = x, p.y = y, p.z = F::one();
                else add<false>(p, x, y, a);
            }
            if constexpr (C::A_IS_MINUS_3) {
                if (!first && i > 0) p.w = F::mul(F::sqr(F::sqr(p.z)), a);
            }
        }
        p.z = F::mul(p.z, common_z);  // back on C
        p.y = F::half(p.y);
        add_comb<Comb<C>>(p, comb, Lanes{}, digits + C::PARTS * Windows::WORDS * LANE_COUNT, false);
        return F::is_zero(common_z);
    }

    // The same for keys that are enrolled: double_scalar_enrolled.
    template <u32 PLANES>
    DEVICE_CALL WITH_IFMA Lanes multiply_enrolled(
        Point& p, const Batch& batch, const u32* items, const u32* comb, const u32* slots) {
        typedef EnrolledLadder<C> L;
        alignas(sizeof(Lanes)) u32 digits[L::DIGIT_WORDS * LANE_COUNT];
        Lanes key_table;
        for (u32 k = 0; k < LANE_COUNT; k++) {
            const L ladder = L::start(digits + k, LANE_COUNT, item_scratch<PLANES>(batch, items[k]), comb, slots);
            key_table[k] = (u64)(ladder.key_table - slots) / 2;
        }
        add_comb<Comb<C>>(p, comb, Lanes{}, digits, true);
        const u32* key_digits = digits + L::CombWindows::WORDS * LANE_COUNT;
        add_comb<typename KeySlots<C>::Table>(p, slots, key_table, key_digits, false);
        return Lanes{};
    }

    DEVICE void put(Lanes (&limbs)[4], u32 lane, const Words& a) {
        LIMBS for (u32 i = 0; i < 4; i++) limbs[i][lane] = a.w[2 * i] | (u64)a.w[2 * i + 1] << 32;
    }

    DEVICE Words take(const Lanes (&limbs)[4], u32 lane) {
        Words a;
        LIMBS for (u32 i = 0; i < 4; i++)
            a.w[2 * i] = (u32)limbs[i][lane], a.w[2 * i + 1] = (u32)(limbs[i][lane] >> 32);
        return a;
    }

private:
    // p += (x, y), with PLAIN ordinates or doubled ones, on the curve whose a is `a`; every case.
    template <bool PLAIN>
    DEVICE WITH_IFMA void add(Point& p, const Element& x, const Element& y, const Element& a) {
        const Point before = p;
        Flags flags = {0, 0};
        if constexpr (PLAIN) Point::add_plain(p, x, y, flags);
        else Point::add_doubled(p, x, y, flags);
        const Lanes vanished = F::is_zero(p.z);
        if (any(vanished)) add_exception<PLAIN>(p, before, x, y, a, vanished);
    }

    // The sum again in the lanes of which it came out with z = 0: what was there before is infinity, the same point, or
    // the opposite one, of which infinity is right.
    template <bool PLAIN>
    DEVICE_CALL WITH_IFMA void add_exception(
        Point& p, const Point& before, const Element& x, const Element& y, const Element& a, const Lanes& vanished) {
        Flags flags = {0, 0};
        const Lanes empty = F::is_zero(before.z);
        const Element zz = F::sqr(before.z);
        const Element r = F::sub(F::mul(y, F::mul(zz, before.z)), before.y);
        const Lanes same = vanished & ~empty & F::is_zero(r);
        Point twice = before;
        if constexpr (PLAIN) twice.y = F::twice(twice.y);
        if constexpr (C::A_IS_MINUS_3) twice.w = F::mul(F::sqr(zz), a);
        Point::twice(twice, false, flags);
        if constexpr (PLAIN) twice.y = F::half(twice.y);
        p.x = F::select(same, twice.x, F::select(empty, x, p.x));
        p.y = F::select(same, twice.y, F::select(empty, y, p.y));
        p.z = F::select(same, twice.z, F::select(empty, F::one(), p.z));
    }

    // p += the sum of an entry of each row of a comb, or p = it where `begin`. Tables begin `table` 64-bit limbs behind
    // `memory`, each lane's own.
    template <class Table>
    DEVICE WITH_IFMA void add_comb(
        Point& p, const u32* memory, const Lanes& table, const u32* digits, bool begin) {
        typedef typename Table::Windows Windows;
        Element a = {};
        Flags flags = {0, 0};
        if constexpr (C::A_IS_MINUS_3) a = isomorphic_a<LaneCurve<C>>(F::one(), flags);
        Lanes next_negative, next = entry<Table>(memory, table, digits, 0, next_negative);
        for (u32 i = 0; i < Windows::COUNT; i++) {
            const Lanes at = next, negative = next_negative;
            if (i + 1 < Windows::COUNT) next = entry<Table>(memory, table, digits, i + 1, next_negative);
            Lanes x_limbs[4], y_limbs[4];
            LIMBS for (u32 j = 0; j < 4; j++) {
                x_limbs[j] = gather((const u64*)memory + j, at);
                y_limbs[j] = gather((const u64*)memory + 4 + j, at);
            }
            const Element x = F::from_host(x_limbs), y = F::negate_if(F::from_host(y_limbs), negative);
            if (begin && i == 0) p.x = x, p.y = y, p.z = F::one();
            else add<true>(p, x, y, a);
        }
    }

    // Where each lane's entry of a row begins; it is on its way to the cache when this returns.
    template <class Table>
    DEVICE Lanes entry(const u32* memory, const Lanes& table, const u32* digits, u32 row, Lanes& negative) {
        const Lanes e = digit<typename Table::Windows>(digits, row, negative);
        const Lanes at = table + (e + (u64)row * Table::ROW) * (Table::ENTRY_WORDS / 2);
        for (u32 k = 0; k < LANE_COUNT; k++) __builtin_prefetch((const u64*)memory + at[k]);
        return at;
    }

    // Windows::digit of eight items whose words stand side by side.
    template <class Windows>
    DEVICE Lanes digit(const u32* words, u32 i, Lanes& negative) {
        const u32 bit = i * Windows::WIDTH;
        Lanes window = (wide(words, bit / 32) | wide(words, bit / 32 + 1) << 32) >> bit % 32;
        window &= (1u << Windows::WIDTH) - 1;
        negative = (Lanes)(window >> (Windows::WIDTH - 1) == 0);
        return (window ^ negative) & ((1u << (Windows::WIDTH - 1)) - 1);
    }
    DEVICE Lanes wide(const u32* words, u32 i) {
        NarrowLanes r;
        __builtin_memcpy(&r, words + i * LANE_COUNT, sizeof r);
        return __builtin_convertvector(r, Lanes);
    }
};

// The codes of `count` items from their points, as settle_item.
template <class C, u32 PLANES>
DEVICE_CALL WITH_IFMA void settle_lanes(
    const Batch& batch, const u32* items, u32 count, const typename LaneLadder<C>::Point& p, const Lanes& open) {
    typedef LaneLadder<C> L;
    typedef typename L::F F;
    Lanes target[4], alias[4];
    bool aliased = false;
    for (u32 k = 0; k < LANE_COUNT; k++) {
        const Words wanted = load(item_scratch<PLANES>(batch, items[k]), TARGET);
        Words other;
        const bool two = target_alias<C>(other, wanted);
        L::put(target, k, wanted), L::put(alias, k, select(two, other, wanted));
        aliased |= two;
    }
    const auto zz = F::sqr(p.z);
    Lanes equal = F::is_zero(F::sub(p.x, F::mul(F::from_limbs(target), zz)));
    if (aliased) equal |= F::is_zero(F::sub(p.x, F::mul(F::from_limbs(alias), zz)));
    equal &= ~F::is_zero(p.z);
    for (u32 k = 0; k < count; k++) batch.codes[items[k]] = open[k] ? RETRY : equal[k] ? VALID : INVALID;
}

// The points of recovery into their planes, as multiply_item and finish_multiply_item.
template <class C, u32 PLANES>
DEVICE_CALL WITH_IFMA void store_lanes(
    const Batch& batch, const u32* items, u32 count, const typename LaneLadder<C>::Point& p, const Lanes& open) {
    typedef LaneLadder<C> L;
    Lanes x[4], y[4], z[4];
    L::F::to_limbs(x, p.x), L::F::to_limbs(y, p.y), L::F::to_limbs(z, p.z);
    const Lanes infinity = L::F::is_zero(p.z);
    for (u32 k = 0; k < count; k++) {
        batch.codes[items[k]] = open[k] ? RETRY : infinity[k] ? INVALID : VALID;
        if (open[k] || infinity[k]) continue;
        const ItemScratch<PLANES> scratch = item_scratch<PLANES>(batch, items[k]);
        store(scratch, QX, L::take(x, k)), store(scratch, QY, L::take(y, k)), store(scratch, TARGET, L::take(z, k));
    }
}

// One item alone is done sooner by itself.
constexpr u32 LEAST_LANES = 2;

#endif

// Items of a range that are UNDECIDED: several(items, count) where eight go together, of which the last are the first
// again where fewer are left, and one(item) for what is done alone.
template <class One, class Several>
DEVICE void in_lanes(const Batch& batch, u32 begin, u32 end, One one, [[maybe_unused]] Several several) {
#if HAS_LANES
    if (lanes_run()) {
        u32 items[LANE_COUNT], count = 0;
        for (u32 item = begin; item < end; item++) {
            if (batch.codes[item] != UNDECIDED) continue;
            items[count++] = item;
            if (count < LANE_COUNT) continue;
            several(items, count);
            count = 0;
        }
        if (count >= LEAST_LANES) {
            for (u32 k = count; k < LANE_COUNT; k++) items[k] = items[0];
            several(items, count);
        } else {
            for (u32 k = 0; k < count; k++) one(items[k]);
        }
        return;
    }
#endif
    for (u32 item = begin; item < end; item++) one(item);
}

// The bodies of RANGE_STAGEs.
template <class C, u32 PLANES>
DEVICE void verify_in_lanes(const Batch& batch, const Lane& lane, u32 begin, u32 end, const u32* comb) {
    in_lanes(
        batch, begin, end, [&](u32 item) { verify_item<C, PLANES>(batch, lane, item, comb); },
        [&]([[maybe_unused]] const u32* items, [[maybe_unused]] u32 count) {
#if HAS_LANES
            typename LaneLadder<C>::Point p;
            const Lanes open = LaneLadder<C>::template multiply<PLANES>(p, batch, items, comb);
            settle_lanes<C, PLANES>(batch, items, count, p, open);
#endif
        });
}

template <class C, u32 PLANES>
DEVICE void multiply_in_lanes(const Batch& batch, const Lane& lane, u32 begin, u32 end, const u32* comb) {
    in_lanes(
        batch, begin, end, [&](u32 item) { multiply_item<C, PLANES>(batch, lane, item, comb); },
        [&]([[maybe_unused]] const u32* items, [[maybe_unused]] u32 count) {
#if HAS_LANES
            typename LaneLadder<C>::Point p;
            const Lanes open = LaneLadder<C>::template multiply<PLANES>(p, batch, items, comb);
            store_lanes<C, PLANES>(batch, items, count, p, open);
#endif
        });
}

template <class C, u32 PLANES>
DEVICE void verify_enrolled_in_lanes(
    const Batch& batch, const Lane& lane, u32 begin, u32 end, const u32* comb, const u32* slots) {
    in_lanes(
        batch, begin, end, [&](u32 item) { verify_enrolled_item<C, PLANES>(batch, lane, item, comb, slots); },
        [&]([[maybe_unused]] const u32* items, [[maybe_unused]] u32 count) {
#if HAS_LANES
            typename LaneLadder<C>::Point p;
            const Lanes open = LaneLadder<C>::template multiply_enrolled<PLANES>(p, batch, items, comb, slots);
            settle_lanes<C, PLANES>(batch, items, count, p, open);
#endif
        });
}
