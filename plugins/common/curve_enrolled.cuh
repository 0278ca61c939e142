// Enrolled keys: a key whose multiples stand in a comb table on the device needs no doublings at all.
//
// A plugin built with KEY_SLOTS above 0 has that many slots a curve in its state, one key each: a header, then the
// table. A key comes into a slot in two steps, each a batch of its own:
//
//   tabulate   one item a row of the table: writes the row and marks it with the enrolment's generation
//   enroll     one item a slot: names the key and makes the slot serve, where every row has the generation's mark
//
// so that a slot never serves a table that is not whole, whatever was lost in between. Whoever verifies names slot and
// generation; a slot of another generation answers KEY_INDEX. Generations of a slot rise and are never 0. The host sees
// to it that nothing that uses a slot is in flight while its rows are written (verifier/keys).
#pragma once
#include "curve_finish.cuh"
#include "curve_key.cuh"

// Window of the keys' combs: ceil(BITS / window) rows of 2^(window - 1) entries of 64 bytes. A slot takes 263 KB with
// 8, 2.9 MB with 12, and 54 KB with 5.
#ifndef WINDOW_KEY
#define WINDOW_KEY 8
#endif
#ifndef WINDOW_KEY_CPU
#define WINDOW_KEY_CPU 5
#endif
#ifndef KEY_SLOTS
#define KEY_SLOTS 0
#endif

// Threads of a block that verifies; 512 run on a multiprocessor, as one block in step or as several that are not.
#ifndef COMB_THREADS
#define COMB_THREADS 128
#endif
constexpr u32 ENROLLED_THREADS = COMB_THREADS, ENROLLED_BLOCKS = 512 / COMB_THREADS, TABULATE_THREADS = 128;

// What the `slot` and `row` columns hold, u32 little-endian each.
struct SlotName {
    static constexpr u32 BYTES = 8, ROW_BYTES = 12;
    static constexpr u32 EVERY_ROW = ~0u;
    u32 slot, generation, row;
};

DEVICE Code take_slot(SlotName& name, Bytes bytes, u32 size) {
    name = {0, 0, 0};
    if (bytes.size != size) return KEY_LENGTH;
    name.slot = load_le32(bytes.data), name.generation = load_le32(bytes.data + 4);
    if (size == SlotName::ROW_BYTES) name.row = load_le32(bytes.data + 8);
    return UNDECIDED;
}

// A slot's header is read by batches while it is enrolled: what was written before its state is seen by whoever sees
// the state.
DEVICE u32 observe(const u32* state) {
#if INLINE_PTX
    u32 value;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(state) : "memory");
    return value;
#else
    return __atomic_load_n(state, __ATOMIC_ACQUIRE);
#endif
}

DEVICE void announce(u32* state, u32 value) {
#if INLINE_PTX
    asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(state), "r"(value) : "memory");
#else
    __atomic_store_n(state, value, __ATOMIC_RELEASE);
#endif
}

template <class C>
struct KeySlots {
    typedef typename C::Field F;
    typedef Exact<F> E;
    typedef typename F::Element Element;
    typedef CombTable<C, C::BITS < 32 ? 4 : TARGET_GPU ? WINDOW_KEY : WINDOW_KEY_CPU> Table;
    static constexpr u32 SLOTS = KEY_SLOTS;
    static constexpr u32 STATE = 0, GENERATION = 1, X = 8, Y = 16, MARKS = 32, MAX_ROWS = 64;  // of the header's words
    static constexpr u32 HEADER_WORDS = MARKS + MAX_ROWS;
    static constexpr u32 SLOT_WORDS = HEADER_WORDS + Table::ENTRIES * Table::ENTRY_WORDS;
    static constexpr u64 BYTES = 4ull * SLOTS * SLOT_WORDS;
    static_assert(Table::BASES <= MAX_ROWS, "a window of 4 at least");

    DEVICE u32* slot(u32* slots, u32 index) { return slots + (u64)index * SLOT_WORDS; }
    DEVICE const u32* slot(const u32* slots, u32 index) { return slots + (u64)index * SLOT_WORDS; }
    DEVICE const u32* table(const u32* slots, u32 index) { return slot(slots, index) + HEADER_WORDS; }

    DEVICE void empty(u32* slots, u32 index) {
        u32* header = slot(slots, index);
        NO_UNROLL for (u32 i = 0; i < HEADER_WORDS; i++) header[i] = 0;
    }

    // The key that serves in a slot under a generation, or KEY_INDEX.
    DEVICE Code key(const u32* slots, const SlotName& name, PublicKey& key) {
        if (name.slot >= SLOTS) return KEY_INDEX;
        const u32* header = slot(slots, name.slot);
        if (observe(header + STATE) != VALID || header[GENERATION] != name.generation) return KEY_INDEX;
        UNROLL for (u32 i = 0; i < 8; i++) key.x.w[i] = header[X + i], key.y.w[i] = header[Y + i];
        key.compressed = false;
        return UNDECIDED;
    }

    // The body of `tabulate`: writes a row of a slot's table, or every row, for a key that was checked. A slot that
    // serves under this generation is left as it is. What served under another one serves no more.
    DEVICE Code tabulate(u32* slots, const SlotName& name, const PublicKey& key) {
        const bool every = name.row == SlotName::EVERY_ROW;
        if (name.slot >= SLOTS || !name.generation || (!every && name.row >= Table::BASES)) return KEY_INDEX;
        u32* header = slot(slots, name.slot);
        if (header[STATE] == VALID && header[GENERATION] == name.generation) return VALID;
        announce(header + STATE, UNDECIDED);
        typedef ExactPoint<C> P;
        P base = P::affine(E::from_words(key.x), E::from_words(key.y));
        u32 row = every ? 0 : name.row;
        NO_UNROLL for (u32 i = 0; i < row * Table::WIDTH; i++) base = P::twice(base);
        const u32 end = every ? Table::BASES : row + 1;
        while (true) {
            write_row(header + HEADER_WORDS + row * Table::ROW * Table::ENTRY_WORDS, base);
            header[MARKS + row] = name.generation;
            if (++row == end) return VALID;
            NO_UNROLL for (u32 i = 0; i < Table::WIDTH; i++) base = P::twice(base);
        }
    }

    // The body of `enroll`: VALID where the slot serves this key from now on, UNDECIDED where its table is not whole, or
    // another key's under this generation.
    DEVICE Code enroll(u32* slots, const SlotName& name, const PublicKey& key) {
        if (name.slot >= SLOTS || !name.generation) return KEY_INDEX;
        u32* header = slot(slots, name.slot);
        if (header[STATE] == VALID && header[GENERATION] == name.generation) {
            bool same = true;
            UNROLL for (u32 i = 0; i < 8; i++) same &= header[X + i] == key.x.w[i] && header[Y + i] == key.y.w[i];
            return same ? VALID : UNDECIDED;
        }
        bool whole = true;
        NO_UNROLL for (u32 i = 0; i < Table::BASES; i++) whole &= header[MARKS + i] == name.generation;
        if (!whole) return UNDECIDED;
        UNROLL for (u32 i = 0; i < 8; i++) header[X + i] = key.x.w[i], header[Y + i] = key.y.w[i];
        header[GENERATION] = name.generation;
        announce(header + STATE, VALID);
        return VALID;
    }

private:
    // (2 e + 1) base for e below ROW. Every entry is computed by complete formulas; sixteen at a time share an
    // inversion. None is infinity: the order is a prime above 2 ROW.
    DEVICE_CALL void write_row(u32* entry, const ExactPoint<C> base) {
        typedef ExactPoint<C> P;
        constexpr u32 SHARE = Table::ROW < 16 ? Table::ROW : 16;
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
    }
};

// The bodies of the two ITEM_STAGEs that enrol: inputs are the slot's name and the key, the parameter its encoding.
template <class C, bool ROWS>
DEVICE void enroll_item(const Batch& batch, const Lane& lane, u32 item, Algorithm algorithm, u32* slots) {
    SlotName name;
    PublicKey key;
    Code code = take_slot(name, value(batch.inputs[0], item), ROWS ? SlotName::ROW_BYTES : SlotName::BYTES);
    if (!code) code = parse_key(algorithm, (KeyEncoding)batch.parameters[0], value(batch.inputs[1], item), key);
    if (!code) code = settle_key<C>(key);
    if (!lane.live) return;
    if (!code) code = ROWS ? KeySlots<C>::tabulate(slots, name, key) : KeySlots<C>::enroll(slots, name, key);
    batch.codes[item] = code;
}

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
    u32 negative, next = 0;
    Element x, y;
    // The next entry is loaded while the one before it is added.
    auto fetch = [&] {
        if (next == L::ADDITIONS) return;
        const u32* entry = L::entry(ladder, next++, negative);
        x = F::load_constant(entry), y = F::load_constant(entry + 8);
    };
    fetch();
    P p;
    p.x = x, p.y = F::negate_if(y, negative, flags), p.z = F::one();
    fetch();
    if constexpr (!COMPLETE) {
        const Element now_x = x, now_y = F::negate_if(y, negative, flags);
        fetch();
        P::add_affine(p, now_x, now_y, flags);
    }
    NO_UNROLL for (u32 i = COMPLETE ? 1 : 2; i < L::ADDITIONS; i++) {
        const Element now_x = x, now_y = F::negate_if(y, negative, flags);
        fetch();
        if (!COMPLETE || !P::template add_exception<true>(p, now_x, now_y, isomorphic_a<C>(F::one(), flags), flags))
            P::add_plain(p, now_x, now_y, flags);
        if constexpr (!COMPLETE && ENROLLED_BLOCKS == 1) sync(lane);
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
