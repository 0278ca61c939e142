// A field of lazy elements on the generated blocks: the GPU's, and with EMULATE_GPU_FIELD the CPU's in tests.
#pragma once
#include "field_p256_blocks.cuh"
#include "field_primes.cuh"
#include "field_secp256k1_blocks.cuh"
#include "field_sm2_blocks.cuh"

template <class P, class Blocks>
struct LazyField {
    typedef P Prime;
    typedef Words Element;
    static constexpr bool LAZY = true;
    static constexpr bool PLAIN = P::PLAIN;
    static constexpr u32 WORDS = 8;  // of an element in memory

    DEVICE Element mul(const Element& a, const Element& b, Flags& flags) {
        Element r;
        Blocks::mul(r.w, a.w, b.w, flags.over, opaque_zero());
        return r;
    }
    DEVICE Element sqr(const Element& a, Flags& flags) {
        Element r;
        Blocks::sqr(r.w, a.w, flags.over, opaque_zero());
        return r;
    }
    DEVICE Element add(const Element& a, const Element& b, Flags& flags) {
        Element r;
        Blocks::add(r.w, a.w, b.w, flags.over, opaque_zero());
        return r;
    }
    DEVICE Element twice(const Element& a, Flags& flags) {
        Element r;
        Blocks::twice(r.w, a.w, flags.over, opaque_zero());
        return r;
    }
    DEVICE Element triple(const Element& a, Flags& flags) {
        Element r;
        Blocks::triple(r.w, a.w, flags.over, opaque_zero());
        return r;
    }
    DEVICE Element triple_add(const Element& a, const Element& b, Flags& flags) {
        Element r;
        Blocks::triple_add(r.w, a.w, b.w, flags.over, opaque_zero());
        return r;
    }
    DEVICE Element sub(const Element& a, const Element& b, Flags& flags) {
        Element r;
        Blocks::sub(r.w, a.w, b.w, flags.under, opaque_zero());
        return r;
    }
    DEVICE Element sub_twice(const Element& a, const Element& b, Flags& flags) {
        Element r;
        Blocks::sub_twice(r.w, a.w, b.w, flags.under, opaque_zero());
        return r;
    }
    DEVICE Element sub_sub(const Element& a, const Element& b, const Element& c, Flags& flags) {
        Element r;
        Blocks::sub_sub(r.w, a.w, b.w, c.w, flags.under, opaque_zero());
        return r;
    }
    DEVICE Element sub_sub_twice(const Element& a, const Element& b, const Element& c, Flags& flags) {
        Element r;
        Blocks::sub_sub_twice(r.w, a.w, b.w, c.w, flags.under, opaque_zero());
        return r;
    }
    DEVICE Element half(const Element& a) {
        Element r;
        u32 never = 0;
        Blocks::half(r.w, a.w, never, 0);
        return r;
    }
    DEVICE Element negate_if(const Element& a, u32 mask, Flags& flags) {
        Element r;
        Blocks::negate_if(r.w, a.w, mask, flags.under, 0);
        return r;
    }

    // Zero stands as 0 and as p; p is the only multiple below 2^256 besides 0, as p > 2^255.
    DEVICE bool is_zero(const Element& a) { return ::is_zero(a) || equal(a, P::p()); }
    DEVICE Element canonical(const Element& a) { return reduce_once(a, P::p()); }

    DEVICE constexpr Element zero() { return small_words(0); }
    DEVICE constexpr Element one() { return P::one_lazy(); }
    DEVICE constexpr Element radix_squared() { return P::radix_squared_lazy(); }
    DEVICE Element from_plain(const Words& a) { return a; }
    DEVICE Words to_plain(const Element& a) { return a; }

    DEVICE Element from_words(const Words& a, Flags& flags) {
        if constexpr (PLAIN) return a;
        else return mul(a, radix_squared(), flags);
    }

    DEVICE Element load(const u32* memory) {
        Element r;
#if TARGET_GPU
        const uint4 low = ((const uint4*)memory)[0], high = ((const uint4*)memory)[1];
        r = {{low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w}};
#else
        UNROLL for (u32 i = 0; i < 8; i++) r.w[i] = memory[i];
#endif
        return r;
    }
    // From memory that no kernel of this launch writes.
    DEVICE Element load_constant(const u32* memory) {
#if TARGET_GPU
        const uint4 low = __ldg((const uint4*)memory), high = __ldg((const uint4*)memory + 1);
        return {{low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w}};
#else
        return load(memory);
#endif
    }
    DEVICE void store(u32* memory, const Element& a) {
#if TARGET_GPU
        ((uint4*)memory)[0] = make_uint4(a.w[0], a.w[1], a.w[2], a.w[3]);
        ((uint4*)memory)[1] = make_uint4(a.w[4], a.w[5], a.w[6], a.w[7]);
#else
        UNROLL for (u32 i = 0; i < 8; i++) memory[i] = a.w[i];
#endif
    }
};
