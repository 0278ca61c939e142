// The double-scalar stages on curves so small that every case can be run: TOY_ENDOMORPHISM chooses the one
// with a = 0. With TOY_FLAG_EVERY = k every k-th lazy operation is wrong and says so, as lazy fields do once in a while.
#include "curve_finish.cuh"

#ifdef TOY_ENDOMORPHISM
constexpr u32 TOY_P = 79, TOY_N = 67, TOY_B = 6, TOY_GX = 5, TOY_GY = 17;
#else
constexpr u32 TOY_P = 83, TOY_N = 71, TOY_B = 24, TOY_GX = 2, TOY_GY = 21;
#endif

struct ToyPrime {
    DEVICE constexpr Words p() { return small_words(TOY_P); }
};

struct ToyField {
    typedef ToyPrime Prime;
    struct Element {
        u32 v;
    };
    static constexpr bool LAZY = false, PLAIN = true;
    static constexpr u32 WORDS = 8;

    DEVICE Element number(u32 v) { return {v % TOY_P}; }
    DEVICE Element mul(const Element& a, const Element& b) { return number(a.v * b.v); }
    DEVICE Element sqr(const Element& a) { return number(a.v * a.v); }
    DEVICE Element add(const Element& a, const Element& b) { return number(a.v + b.v); }
    DEVICE Element sub(const Element& a, const Element& b) { return number(a.v + TOY_P - b.v); }

    DEVICE Element lazy(const Element& a, Flags& flags) {
#ifdef TOY_FLAG_EVERY
        static u32 count = 0;
        if (++count % TOY_FLAG_EVERY == 0) {
            flags.over++;
            return number(a.v + 1);
        }
#endif
        (void)flags;
        return a;
    }
    DEVICE Element mul(const Element& a, const Element& b, Flags& flags) { return lazy(mul(a, b), flags); }
    DEVICE Element sqr(const Element& a, Flags& flags) { return lazy(sqr(a), flags); }
    DEVICE Element add(const Element& a, const Element& b, Flags& flags) { return lazy(add(a, b), flags); }
    DEVICE Element sub(const Element& a, const Element& b, Flags& flags) { return lazy(sub(a, b), flags); }
    DEVICE Element twice(const Element& a, Flags& flags) { return lazy(add(a, a), flags); }
    DEVICE Element triple(const Element& a, Flags& flags) { return lazy(number(3 * a.v), flags); }
    DEVICE Element triple_add(const Element& a, const Element& b, Flags& flags) {
        return lazy(number(3 * a.v + b.v), flags);
    }
    DEVICE Element sub_twice(const Element& a, const Element& b, Flags& flags) {
        return lazy(number(a.v + 2 * TOY_P - 2 * b.v), flags);
    }
    DEVICE Element sub_sub(const Element& a, const Element& b, const Element& c, Flags& flags) {
        return lazy(number(a.v + 2 * TOY_P - b.v - c.v), flags);
    }
    DEVICE Element sub_sub_twice(const Element& a, const Element& b, const Element& c, Flags& flags) {
        return lazy(number(a.v + 3 * TOY_P - b.v - 2 * c.v), flags);
    }
    DEVICE Element half(const Element& a) { return {(a.v & 1 ? a.v + TOY_P : a.v) / 2}; }
    DEVICE Element negate_if(const Element& a, u32 mask, Flags& flags) {
        return mask ? lazy(number(TOY_P - a.v), flags) : a;
    }
    DEVICE bool is_zero(const Element& a) { return a.v == 0; }
    DEVICE Element canonical(const Element& a) { return a; }
    DEVICE Element zero() { return {0}; }
    DEVICE Element one() { return {1}; }
    DEVICE Element from_plain(const Words& a) { return {a.w[0]}; }
    DEVICE Words to_plain(const Element& a) { return small_words(a.v); }
    DEVICE Element from_words(const Words& a, Flags&) { return from_plain(a); }
    DEVICE Element load(const u32* memory) { return {*memory}; }
    DEVICE Element load_constant(const u32* memory) { return {*memory}; }
    DEVICE void store(u32* memory, const Element& a) { *memory = a.v; }
};

struct ToyOrder {
    DEVICE constexpr Words modulus() { return small_words(TOY_N); }
};

struct ToyCurve {
    typedef ToyField Field;
    typedef ToyOrder Order;
    static constexpr u32 BITS = 8, PART_BITS = 8;
    DEVICE constexpr Words b() { return small_words(TOY_B); }
    DEVICE constexpr Words gx() { return small_words(TOY_GX); }
    DEVICE constexpr Words gy() { return small_words(TOY_GY); }
#ifdef TOY_ENDOMORPHISM
    static constexpr bool A_IS_MINUS_3 = false;
    static constexpr u32 PARTS = 2;
    DEVICE constexpr Words beta() { return small_words(TOY_BETA); }
    DEVICE void split(const Words& k, Words (&part)[2], u32 (&negative)[2]) {
        const u32 second = 2 * (k.w[0] % 16) + 1;
        part[1] = small_words(second);
        negative[1] = k.w[0] % 3 ? ~0u : 0u;
        const u32 image = second * TOY_LAMBDA % TOY_N;
        const u32 first = (k.w[0] + (negative[1] ? image : TOY_N - image)) % TOY_N;
        negative[0] = odd_representative(part[0], small_words(first), small_words(TOY_N));
    }
#else
    static constexpr bool A_IS_MINUS_3 = true;
    static constexpr u32 PARTS = 1;
    DEVICE void split(const Words& k, Words (&part)[1], u32 (&negative)[1]) {
        negative[0] = odd_representative(part[0], k, small_words(TOY_N));
    }
#endif
};

typedef Comb<ToyCurve> ToyComb;

DEVICE void base(u8* state, u32 index) { ToyComb::build_base((u32*)state, index); }
DEVICE void entry(u8* state, u32 index) { ToyComb::build_entry((u32*)state, index); }

// An item is five bytes: u1, u2, Q's x and y, target.
DEVICE void prepare(const Batch& batch, const Lane&, u32 item) {
    const Bytes bytes = value(batch.inputs[0], item);
    const auto scratch = item_scratch<VERIFY_PLANES>(batch, item);
    for (u32 plane = U1; plane <= TARGET; plane++) store(scratch, (Plane)plane, small_words(bytes.data[plane]));
    batch.codes[item] = UNDECIDED;
}
DEVICE void verify(const Batch& batch, const Lane& lane, u32 item) {
    verify_item<ToyCurve, VERIFY_PLANES>(batch, lane, item, (const u32*)batch.state);
}
DEVICE void finish(const Batch& batch, const Lane& lane, u32 item) {
    finish_verify_item<ToyCurve, VERIFY_PLANES>(batch, lane, item, (const u32*)batch.state);
}
DEVICE void multiply(const Batch& batch, const Lane& lane, u32 item) {
    multiply_item<ToyCurve, VERIFY_PLANES>(batch, lane, item, (const u32*)batch.state);
}
DEVICE void finish_multiply(const Batch& batch, const Lane& lane, u32 item) {
    finish_multiply_item<ToyCurve, VERIFY_PLANES>(batch, lane, item, (const u32*)batch.state);
}
// The point that `multiply` left, as three bytes.
DEVICE void result(const Batch& batch, const Lane&, u32 item) {
    const auto scratch = item_scratch<VERIFY_PLANES>(batch, item);
    u8* output = batch.outputs[0] + item * batch.output_strides[0];
    for (u32 i = 0; i < 3; i++) output[i] = (u8)load(scratch, (Plane)(QX + i)).w[0];
}

PLUGIN_INFO(ToyComb::BYTES, ItemScratch<VERIFY_PLANES>::BYTES, Ladder<ToyCurve>::LANE_BYTES)
STATE_STAGE(toy_bases, base, ToyComb::BASES, 32)
STATE_STAGE(toy_entries, entry, ToyComb::ENTRIES, 32)
ITEM_STAGE(toy_prepare, prepare, 128, 1)
ITEM_STAGE(toy_verify, verify, VERIFY_THREADS, 1)
ITEM_STAGE(toy_finish, finish, FINISH_THREADS, 1)
ITEM_STAGE(toy_multiply, multiply, VERIFY_THREADS, 1)
ITEM_STAGE(toy_finish_multiply, finish_multiply, FINISH_THREADS, 1)
ITEM_STAGE(toy_result, result, 128, 1)
