// The field of eight elements, one operation a call: elements are limb[5][8], plain integers limb[4][8].
#include "field_lanes.cuh"
#include "lazy_operation.cuh"

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
        LAZY_OPERATIONS(F, r, x, y, z, m, flags)
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
