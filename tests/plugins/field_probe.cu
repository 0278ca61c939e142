// Every function of every field, as C functions for test_field.py: probe_*(function, a, b, c, mask, result).
#include "curve.cuh"
#include "lazy_operation.cuh"

// Lazy functions: `result` as it stands in memory; returns the flags.
template <class F>
DEVICE u32 lazy(u32 function, const Words& a, const Words& b, const Words& c, u32 mask, Words& result) {
    const typename F::Element x = F::from_plain(a), y = F::from_plain(b), z = F::from_plain(c);
    typename F::Element r = F::zero();
    Flags flags = {0, 0};
    switch (function) {
        LAZY_OPERATIONS(F, r, x, y, z, mask, flags)
        case 12: r = F::canonical(x); break;
        case 13: r = F::from_words(a, flags); break;
        case 14: r = F::is_zero(x) ? F::one() : F::zero(); break;
    }
    result = F::to_plain(r);
    return flags.over | flags.under;
}

// Exact functions of plain integers below p, and plain results; returns false where there is none.
template <class F>
DEVICE u32 exact(u32 function, const Words& a, const Words& b, Words& result) {
    typedef Exact<F> E;
    const typename F::Element x = E::from_words(a), y = E::from_words(b);
    typename F::Element r = F::zero();
    bool found = true;
    switch (function) {
        case 0: r = E::mul(x, y); break;
        case 1: r = E::sqr(x); break;
        case 2: r = E::add(x, y); break;
        case 3: r = E::sub(x, y); break;
        case 4: r = E::triple(x); break;
        case 5: r = E::negate(x); break;
        case 6: r = E::invert(x); break;
        case 7: found = E::sqrt(r, x); break;
        case 8: r = E::pow(x, b); break;
    }
    result = E::to_words(r);
    return found;
}

// Modulo the order: plain integers in and out.
template <class M>
DEVICE void scalar(u32 function, const Words& a, const Words& b, Words& result) {
    typedef Scalar<M> S;
    switch (function) {
        case 0: result = S::multiply(S::to_montgomery(a), b); break;
        case 1: result = S::from_montgomery(S::invert(S::to_montgomery(a))); break;
        case 2: result = S::reduce(a); break;
        case 3: result = small_words(S::in_range(a)); break;
    }
}

#define PROBES(name, C)                                                                                         \
    EXPORT u32 lazy_##name(u32 function, const Words* a, const Words* b, const Words* c, u32 mask, Words* r) {   \
        return lazy<C::Field>(function, *a, *b, *c, mask, *r);                                                  \
    }                                                                                                           \
    EXPORT u32 exact_##name(u32 function, const Words* a, const Words* b, Words* r) {                            \
        return exact<C::Field>(function, *a, *b, *r);                                                           \
    }                                                                                                           \
    EXPORT void scalar_##name(u32 function, const Words* a, const Words* b, Words* r) {                          \
        scalar<C::Order>(function, *a, *b, *r);                                                                 \
    }

PROBES(sm2, Sm2Curve)
PROBES(p256, P256Curve)
PROBES(secp256k1, Secp256k1Curve)

EXPORT void split_secp256k1(const Words* k, Words* parts, u32* negative) {
    Words part[2];
    u32 sign[2];
    Secp256k1Curve::split(*k, part, sign);
    for (u32 h = 0; h < 2; h++) parts[h] = part[h], negative[h] = sign[h];
}

// A GROUP_STAGE over the plane VALUE.
DEVICE void prepare(const Batch& batch, const Lane&, u32 item) {
    Words number;
    load_be256(number.w, value(batch.inputs[0], item).data);
    store(item_scratch<ALL_PLANES>(batch, item), VALUE, number);
    batch.codes[item] = VALID;
}
DEVICE void invert(const Batch& batch, const Lane&, u32 first, u32 stride, u32 count) {
    invert_scalars<Sm2Order, ALL_PLANES>(batch, first, stride, count);
}
DEVICE void result(const Batch& batch, const Lane&, u32 item) {
    const Words number = load(item_scratch<ALL_PLANES>(batch, item), VALUE);
    store_be256(batch.outputs[0] + item * batch.output_strides[0], number.w);
}
PLUGIN_INFO(0, ItemScratch<ALL_PLANES>::BYTES, 0)
ITEM_STAGE(probe_prepare, prepare, 128, 1)
GROUP_STAGE(probe_invert, invert, 16, 128, 1)
ITEM_STAGE(probe_result, result, 128, 1)
