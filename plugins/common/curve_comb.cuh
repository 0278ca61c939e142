// Fixed signed windows, and the table of the generator's multiples that a comb reads.
//
// An odd k < 2^(w m) is the sum over m windows of d[i] 2^(w i) with odd digits d[i], |d[i]| < 2^w: where v[i] are the
// w-bit windows of V = (k >> 1) + 2^(w m - 1), d[i] = 2 v[i] + 1 - 2^w, because
// sum (2 v[i] + 1 - 2^w) 2^(w i) = 2 V + 1 - 2^(w m) = k. Inverting all bits of V negates every digit, and so k.
// Every window has an addition, so that a warp never diverges.
#pragma once
#include "curve_points.cuh"

// Window of the generator's comb: its table has ceil(BITS / window) * 2^(window - 1) entries of 64 bytes, 436 MB for 20
// and 33.5 MB for 16. A GPU takes it from its memory; on the CPU it should stay in the second-level cache.
#ifndef WINDOW_G
#define WINDOW_G 20
#endif
#ifndef WINDOW_G_CPU
#define WINDOW_G_CPU 8
#endif

// V's words of an odd k below 2^(WIDTH * COUNT), to be cut into windows. `stride` is the distance of its words, so
// that the threads of a block can keep theirs in shared memory side by side.
template <u32 WIDTH_, u32 COUNT_>
struct Windows {
    static constexpr u32 WIDTH = WIDTH_, COUNT = COUNT_;
    static constexpr u32 WORDS = (WIDTH * COUNT + 31) / 32 + 1;  // the last window may look one word further
    static_assert(WIDTH * COUNT <= 288);

    u32* words;
    u32 stride;

    // `negative` is a mask: all ones stand for -k.
    DEVICE void set(const Windows& windows, const Words& k, u32 negative) {
        constexpr u32 TOP = WIDTH * COUNT - 1;
        UNROLL for (u32 i = 0; i < WORDS; i++) {
            u32 word = 0;
            if (i < 8) word = k.w[i] >> 1 | (i < 7 ? k.w[i + 1] << 31 : 0);
            if (i == TOP / 32) word |= 1u << TOP % 32;
            windows.words[i * windows.stride] = word ^ negative;
        }
    }

    // Digit i as an index e with |d| = 2 e + 1, and its sign as a mask.
    DEVICE u32 digit(const Windows& windows, u32 i, u32& negative) {
        const u32 bit = i * WIDTH, shift = bit & 31;
        const u32 low = windows.words[bit / 32 * windows.stride];
        u32 window = low >> shift;
        if (shift + WIDTH > 32) window |= windows.words[(bit / 32 + 1) * windows.stride] << (32 - shift);
        window &= (1u << WIDTH) - 1;
        negative = window >> (WIDTH - 1) ? 0u : ~0u;
        return (window ^ negative) & ((1u << (WIDTH - 1)) - 1);
    }
};

// A point's multiples for a comb: entry[i][e] = (2 e + 1) 2^(WIDTH i) P, as x and y in the field's form.
template <class C, u32 WIDTH_>
struct CombTable {
    static constexpr u32 WIDTH = WIDTH_;
    typedef ::Windows<WIDTH, (C::BITS + WIDTH - 1) / WIDTH> Windows;
    static constexpr u32 BASES = Windows::COUNT, ROW = 1u << (WIDTH - 1), ENTRIES = BASES * ROW;
    static constexpr u32 ENTRY_WORDS = 16;
    static_assert(WIDTH >= 2 && WIDTH <= 24);

    DEVICE const u32* entry(const u32* table, u32 i, u32 e) { return table + (u64)(i * ROW + e) * ENTRY_WORDS; }
};

// The generator's, and behind it the bases 2^(WIDTH i) G.
template <class C>
struct Comb : CombTable<C, C::BITS < 32 ? 4 : TARGET_GPU ? WINDOW_G : WINDOW_G_CPU> {
    typedef CombTable<C, C::BITS < 32 ? 4 : TARGET_GPU ? WINDOW_G : WINDOW_G_CPU> Table;
    typedef typename C::Field F;
    typedef typename F::Element Element;
    using Table::BASES, Table::ENTRIES, Table::ENTRY_WORDS, Table::ROW, Table::WIDTH;
    static constexpr u64 BYTES = (u64)(ENTRIES + BASES) * ENTRY_WORDS * 4;

    // The bodies of two STATE_STAGEs, of BASES and of ENTRIES indices.
    DEVICE void build_base(u32* table, u32 i) {
        ExactPoint<C> p = ExactPoint<C>::generator();
        NO_UNROLL for (u32 k = 0; k < WIDTH * i; k++) p = ExactPoint<C>::twice(p);
        put(table + (u64)(ENTRIES + i) * ENTRY_WORDS, p);
    }

    DEVICE void build_entry(u32* table, u32 index) {
        const u32 i = index / ROW, multiple = 2 * (index % ROW) + 1;
        const u32* base = table + (u64)(ENTRIES + i) * ENTRY_WORDS;
        const ExactPoint<C> once = ExactPoint<C>::affine(F::load(base), F::load(base + 8));
        ExactPoint<C> p = ExactPoint<C>::infinity();
        NO_UNROLL for (u32 bit = WIDTH; bit-- > 0;) {
            p = ExactPoint<C>::twice(p);
            if (multiple >> bit & 1) p = ExactPoint<C>::add(p, once);
        }
        put(table + (u64)index * ENTRY_WORDS, p);
    }

private:
    DEVICE void put(u32* entry, const ExactPoint<C>& p) {
        Element x, y;
        ExactPoint<C>::to_affine(x, y, p);
        F::store(entry, x), F::store(entry + 8, y);
    }
};
