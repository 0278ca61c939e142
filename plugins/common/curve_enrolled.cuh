// Enrolled keys: a key whose multiples stand in a comb table on the device needs no doublings at all.
//
// A plugin built with KEY_SLOTS above 0 has that many slots in its state, one key each: a header, then the table.
// Enrolling writes a slot; whoever launches it sees to it that nothing else that uses the slot is in flight, and
// names no slot twice in a batch.
#pragma once
#include "curve_finish.cuh"
#include "curve_key.cuh"

// Window of the keys' combs. A slot takes 262 KB with 8 and 54 KB with 5.
#ifndef WINDOW_KEY
#define WINDOW_KEY 8
#endif
#ifndef WINDOW_KEY_CPU
#define WINDOW_KEY_CPU 5
#endif
#ifndef KEY_SLOTS
#define KEY_SLOTS 0
#endif

constexpr u32 ENROLLED_THREADS = 512, ENROLL_THREADS = 32;

template <class C>
struct KeySlots {
    typedef typename C::Field F;
    typedef Exact<F> E;
    typedef typename F::Element Element;
    typedef CombTable<C, C::BITS < 32 ? 4 : TARGET_GPU ? WINDOW_KEY : WINDOW_KEY_CPU> Table;
    static constexpr u32 SLOTS = KEY_SLOTS;
    static constexpr u32 HEADER_WORDS = 32, SLOT_WORDS = HEADER_WORDS + Table::ENTRIES * Table::ENTRY_WORDS;
    static constexpr u64 BYTES = 4ull * SLOTS * SLOT_WORDS;

    DEVICE u32* slot(u32* slots, u32 index) { return slots + (u64)index * SLOT_WORDS; }
    DEVICE const u32* slot(const u32* slots, u32 index) { return slots + (u64)index * SLOT_WORDS; }
    DEVICE const u32* table(const u32* slots, u32 index) { return slot(slots, index) + HEADER_WORDS; }

    // The key of a slot, or KEY_INDEX where none is enrolled.
    DEVICE Code key(const u32* slots, u32 index, PublicKey& key) {
        if (index >= SLOTS) return KEY_INDEX;
        const u32* header = slot(slots, index);
        if (header[0] != VALID) return KEY_INDEX;
        UNROLL for (u32 i = 0; i < 8; i++) key.x.w[i] = header[8 + i], key.y.w[i] = header[16 + i];
        key.compressed = false;
        return UNDECIDED;
    }

    // Writes a slot. Every entry is computed by complete formulas; sixteen at a time share an inversion.
    DEVICE void enroll(u32* slots, u32 index, const PublicKey& key) {
        typedef ExactPoint<C> P;
        constexpr u32 SHARE = Table::ROW < 16 ? Table::ROW : 16;
        u32* header = slot(slots, index);
        header[0] = UNDECIDED;
        UNROLL for (u32 i = 0; i < 8; i++) header[8 + i] = key.x.w[i], header[16 + i] = key.y.w[i];
        u32* entry = header + HEADER_WORDS;
        P base = P::affine(E::from_words(key.x), E::from_words(key.y));
        NO_UNROLL for (u32 i = 0; i < Table::BASES; i++) {
            const P step = P::twice(base);
            P p = base;
            NO_UNROLL for (u32 e = 0; e < Table::ROW; e += SHARE) {
                Element z[SHARE], before[SHARE], product = F::one();
                NO_UNROLL for (u32 k = 0; k < SHARE; k++) {
                    F::store(entry + k * Table::ENTRY_WORDS, p.x), F::store(entry + k * Table::ENTRY_WORDS + 8, p.y);
                    z[k] = p.z, before[k] = product;
                    product = E::mul(product, p.z);
                    p = P::add(p, step);
                }
                Element inverse = E::invert(product);
                NO_UNROLL for (u32 k = SHARE; k-- > 0;) {
                    u32* place = entry + k * Table::ENTRY_WORDS;
                    const Element one_over_z = E::mul(inverse, before[k]), square = E::sqr(one_over_z);
                    inverse = E::mul(inverse, z[k]);
                    F::store(place, E::mul(F::load(place), square));
                    F::store(place + 8, E::mul(F::load(place + 8), E::mul(square, one_over_z)));
                }
                entry += SHARE * Table::ENTRY_WORDS;
            }
            NO_UNROLL for (u32 k = 0; k < Table::WIDTH; k++) base = P::twice(base);
        }
        header[0] = VALID;
    }
};

// The windows of u1 and u2 against the tables of G and of the key.
template <class C>
struct EnrolledLadder {
    typedef KeySlots<C> Slots;
    typedef typename Comb<C>::Windows CombWindows;
    typedef typename Slots::Table::Windows KeyWindows;
    static constexpr u32 DIGIT_WORDS = CombWindows::WORDS + KeyWindows::WORDS;
    static constexpr u32 ADDITIONS = CombWindows::COUNT + KeyWindows::COUNT;

    CombWindows g;
    KeyWindows key;
    const u32 *g_table, *key_table;

    template <u32 PLANES>
    DEVICE EnrolledLadder start(
        u32* digits, u32 stride, const ItemScratch<PLANES>& scratch, const u32* comb, const u32* slots) {
        // An item that is decided already may name any slot.
        const u32 index = load(scratch, QX).w[0];
        const EnrolledLadder ladder = {{digits, stride}, {digits + CombWindows::WORDS * stride, stride}, comb,
                                       Slots::table(slots, index < Slots::SLOTS ? index : 0)};
        Words odd;
        u32 negative = odd_representative(odd, load(scratch, U1), C::Order::modulus());
        CombWindows::set(ladder.g, odd, negative);
        negative = odd_representative(odd, load(scratch, U2), C::Order::modulus());
        KeyWindows::set(ladder.key, odd, negative);
        return ladder;
    }

    // The i-th point to be added, and a mask that tells whether it is negative.
    DEVICE const u32* entry(const EnrolledLadder& ladder, u32 i, u32& negative) {
        if (i < CombWindows::COUNT)
            return Comb<C>::entry(ladder.g_table, i, CombWindows::digit(ladder.g, i, negative));
        i -= CombWindows::COUNT;
        return Slots::Table::entry(ladder.key_table, i, KeyWindows::digit(ladder.key, i, negative));
    }
};

// u1 G + u2 Q from the two tables, as double_scalar.
template <class C, bool COMPLETE, u32 PLANES>
DEVICE FastPoint<C> double_scalar_enrolled(
    const Lane& lane, const ItemScratch<PLANES>& scratch, const u32* comb, const u32* slots, Flags& flags) {
    typedef typename C::Field F;
    typedef typename F::Element Element;
    typedef EnrolledLadder<C> L;
    typedef FastPoint<C> P;
#if TARGET_GPU
    __shared__ u32 shared[L::DIGIT_WORDS * ENROLLED_THREADS];
    u32* digits = shared + lane.thread;
    const u32 stride = ENROLLED_THREADS;
#else
    u32 digits[L::DIGIT_WORDS];
    const u32 stride = 1;
#endif
    const L ladder = L::start(digits, stride, scratch, comb, slots);
    u32 negative;
    const u32* entry = L::entry(ladder, 0, negative);
    P p;
    p.x = F::load_constant(entry), p.y = F::negate_if(F::load_constant(entry + 8), negative, flags), p.z = F::one();
    entry = L::entry(ladder, 1, negative);
    Element x = F::load_constant(entry), y = F::load_constant(entry + 8);
    NO_UNROLL for (u32 i = 1; i < L::ADDITIONS; i++) {
        const Element now_x = x, now_y = F::negate_if(y, negative, flags);
        if (i + 1 < L::ADDITIONS) {
            entry = L::entry(ladder, i + 1, negative);
            x = F::load_constant(entry), y = F::load_constant(entry + 8);
        }
        if (!COMPLETE || !P::template add_exception<true>(p, now_x, now_y, isomorphic_a<C>(F::one(), flags), flags))
            P::add_plain(p, now_x, now_y, flags);
        if constexpr (!COMPLETE) sync(lane);
    }
    return p;
}

template <class C, u32 PLANES>
DEVICE ExactPoint<C> double_scalar_enrolled_exact(
    const ItemScratch<PLANES>& scratch, const u32* comb, const u32* slots) {
    typedef typename C::Field F;
    typedef EnrolledLadder<C> L;
    u32 digits[L::DIGIT_WORDS];
    const L ladder = L::start(digits, 1, scratch, comb, slots);
    ExactPoint<C> p = ExactPoint<C>::infinity();
    NO_UNROLL for (u32 i = 0; i < L::ADDITIONS; i++) {
        u32 negative;
        const u32* entry = L::entry(ladder, i, negative);
        ExactPoint<C> q = ExactPoint<C>::affine(F::load_constant(entry), F::load_constant(entry + 8));
        if (negative) q.y = Exact<F>::negate(q.y);
        p = ExactPoint<C>::add(p, q);
    }
    return p;
}

// The body of an ITEM_STAGE of ENROLLED_THREADS threads: as verify_item, with the key's slot in QX.
template <class C, u32 PLANES>
DEVICE void verify_enrolled_item(const Batch& batch, const Lane& lane, u32 item, const u32* comb, const u32* slots) {
#if !TARGET_GPU
    if (batch.codes[item] != UNDECIDED) return;
#endif
    const ItemScratch<PLANES> scratch = item_scratch<PLANES>(batch, item);
    Flags flags = {0, 0};
    const FastPoint<C> p = double_scalar_enrolled<C, false>(lane, scratch, comb, slots, flags);
    settle_item<C>(batch, lane, item, p, load(scratch, TARGET), flags);
}

// The body of the ITEM_STAGE after it, of as many threads: decides every item that is RETRY.
template <class C, u32 PLANES>
DEVICE void finish_enrolled_item(const Batch& batch, const Lane& lane, u32 item, const u32* comb, const u32* slots) {
    if (!lane.live || batch.codes[item] != RETRY) return;
    const ItemScratch<PLANES> scratch = item_scratch<PLANES>(batch, item);
    const Words target = load(scratch, TARGET);
    Flags flags = {0, 0};
    const FastPoint<C> p = double_scalar_enrolled<C, true>(lane, scratch, comb, slots, flags);
    bool valid = is_target<C>(p, target, flags) && !C::Field::is_zero(p.z);
    if (raised(flags)) valid = is_target<C>(double_scalar_enrolled_exact<C>(scratch, comb, slots), target);
    batch.codes[item] = valid ? VALID : INVALID;
}
