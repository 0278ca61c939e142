// The field of eight elements, one operation a call: elements are limb[5][8], plain integers limb[4][8].
#include "field_lanes.cuh"

#if HAS_LANES

template <class P>
WITH_IFMA static void run(u32 operation, const u64* a, const u64* b, const u64* c, const u64* mask, u64* out) {
    typedef LaneField<P> F;
    typedef typename F::Element Element;
    Flags flags = {0, 0};
    Lanes m;
    __builtin_memcpy(&m, mask, sizeof m);
    const Element x = F::load((const u32*)a), y = F::load((const u32*)b), z = F::load((const u32*)c);
    Element r = {};
    switch (operation) {
        case 0: r = F::mul(x, y, flags); break;
        case 1: r = F::sqr(x, flags); break;
        case 2: r = F::add(x, y, flags); break;
        case 3: r = F::twice(x, flags); break;
        case 4: r = F::triple(x, flags); break;
        case 5: r = F::triple_add(x, y, flags); break;
        case 6: r = F::sub(x, y, flags); break;
        case 7: r = F::sub_twice(x, y, flags); break;
        case 8: r = F::sub_sub(x, y, z, flags); break;
        case 9: r = F::sub_sub_twice(x, y, z, flags); break;
        case 10: r = F::half(x); break;
        case 11: r = F::negate_if(x, m, flags); break;
        case 12: r.limb[0] = F::is_zero(x); break;
        case 13: r = F::one(); break;
    }
    F::store((u32*)out, r);
}

// Plain integers to elements (0), elements of the field of one (1), and elements to plain integers (2).
template <class P>
WITH_IFMA static void convert(u32 operation, const u64* in, u64* out) {
    typedef LaneField<P> F;
    if (operation == 2) {
        Lanes limbs[4];
        F::to_limbs(limbs, F::load((const u32*)in));
        __builtin_memcpy(out, limbs, sizeof limbs);
        return;
    }
    Lanes limbs[4];
    __builtin_memcpy(limbs, in, sizeof limbs);
    F::store((u32*)out, operation ? F::from_host(limbs) : F::from_limbs(limbs));
}

#define PROBE(name, P)                                                                                     \
    EXPORT void run_##name(u32 operation, const u64* a, const u64* b, const u64* c, const u64* m, u64* out) { \
        run<P>(operation, a, b, c, m, out);                                                                \
    }                                                                                                      \
    EXPORT void convert_##name(u32 operation, const u64* in, u64* out) { convert<P>(operation, in, out); }

PROBE(sm2, Sm2Prime)
PROBE(p256, P256Prime)
PROBE(secp256k1, Secp256k1Prime)

#endif
