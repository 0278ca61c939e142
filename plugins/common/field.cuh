// The fields of the three curves behind one interface, and exact arithmetic on top of it.
//
// A field F has a type F::Element and static functions. Results may be lazy: on a GPU an element is any integer below
// 2^256 that stands for its residue, and the rare operation whose result does not fit raises a flag in Flags; whoever
// uses F must then discard what was computed. On the CPU results are canonical and no flag is ever raised.
//
//   mul sqr add sub twice half        as named; half(a) = a / 2
//   triple(a) = 3a                    triple_add(a, b) = 3a + b
//   sub_twice(a, b) = a - 2b          sub_sub(a, b, c) = a - b - c          sub_sub_twice(a, b, c) = a - b - 2c
//   negate_if(a, mask)                -a where mask is all ones, a where it is zero
//   is_zero canonical                 for lazy elements too
//   from_words to_words               plain integers below p, canonical
//   load store                        elements in memory, 32 bytes at a 16-byte boundary; no conversion
//
// Exact<F> has the same functions without flags on canonical elements, and pow, invert and sqrt.
#pragma once
#include "field_primes.cuh"
#include "counting.cuh"

#if TARGET_GPU || defined(EMULATE_GPU_FIELD)
#include "field_lazy.cuh"
typedef LazyField<Sm2Prime, Sm2Blocks> Sm2Field;
typedef LazyField<P256Prime, P256Blocks> P256Field;
typedef LazyField<Secp256k1Prime, Secp256k1Blocks> Secp256k1Field;
#else
#include "field_host.cuh"
#if defined(COUNT_OPERATIONS)
typedef CountingField<HostField<Sm2Prime>> Sm2Field;
typedef CountingField<HostField<P256Prime>> P256Field;
typedef CountingField<HostField<Secp256k1Prime>> Secp256k1Field;
#else
typedef HostField<Sm2Prime> Sm2Field;
typedef HostField<P256Prime> P256Field;
typedef HostField<Secp256k1Prime> Secp256k1Field;
#endif
#endif

template <class F>
struct Exact {
    typedef typename F::Element Element;

    DEVICE_CALL Element mul(const Element a, const Element b) {
        if constexpr (F::LAZY) {
            Flags flags = {0, 0};
            return settle(F::mul(a, b, flags), flags);
        } else {
            return F::mul(a, b);
        }
    }
    DEVICE_CALL Element sqr(const Element a) {
        if constexpr (F::LAZY) {
            Flags flags = {0, 0};
            return settle(F::sqr(a, flags), flags);
        } else {
            return F::sqr(a);
        }
    }
    DEVICE Element add(const Element& a, const Element& b) {
        if constexpr (F::LAZY) return add_mod(a, b, F::Prime::p());
        else return F::add(a, b);
    }
    DEVICE Element sub(const Element& a, const Element& b) {
        if constexpr (F::LAZY) return subtract_mod(a, b, F::Prime::p());
        else return F::sub(a, b);
    }
    DEVICE Element twice(const Element& a) { return add(a, a); }
    DEVICE Element triple(const Element& a) { return add(add(a, a), a); }
    DEVICE Element negate(const Element& a) { return sub(F::zero(), a); }
    DEVICE bool is_zero(const Element& a) { return F::is_zero(a); }
    DEVICE bool equal(const Element& a, const Element& b) { return F::is_zero(sub(a, b)); }

    DEVICE Element from_words(const Words& a) {
        if constexpr (F::PLAIN) return F::from_plain(a);
        else return mul(F::from_plain(a), F::radix_squared());
    }
    DEVICE Words to_words(const Element& a) {
        if constexpr (F::PLAIN) return F::to_plain(a);
        else return F::to_plain(mul(a, F::from_plain(small_words(1))));
    }

    // a^exponent, four bits at a time.
    DEVICE_CALL Element pow(const Element a, Words exponent) {
        Element power[16];
        power[0] = F::one();
        NO_UNROLL for (u32 i = 1; i < 16; i++) power[i] = mul(power[i - 1], a);
        Element r = power[0];
        NO_UNROLL for (u32 i = 0; i < 64; i++) {
            if (i) NO_UNROLL for (u32 j = 0; j < 4; j++) r = sqr(r);
            r = mul(r, power[exponent.w[7] >> 28]);
            LIMBS for (u32 k = 7; k > 0; k--) exponent.w[k] = exponent.w[k] << 4 | exponent.w[k - 1] >> 28;
            exponent.w[0] <<= 4;
        }
        return r;
    }

    // 1 / a by Fermat; zero gives zero.
    DEVICE Element invert(const Element& a) {
        COUNT(inversions);
        Words exponent;
        subtract(exponent, F::Prime::p(), small_words(2));
        return pow(a, exponent);
    }

    // A root of a, or false where a has none: a^((p + 1) / 4), as p = 3 mod 4.
    DEVICE bool sqrt(Element& root, const Element& a) {
        static_assert((F::Prime::p().w[0] & 3) == 3, "the root needs p = 3 mod 4");
        Words exponent;
        ::add(exponent, F::Prime::p(), small_words(1));
        LIMBS for (u32 i = 0; i < 8; i++) exponent.w[i] = exponent.w[i] >> 2 | (i < 7 ? exponent.w[i + 1] << 30 : 0);
        root = pow(a, exponent);
        return equal(sqr(root), a);
    }

private:
    // A product, less 2^256 where it overflowed, as the canonical element.
    DEVICE Element settle(const Words& r, const Flags& flags) {
        Words wrapped;
        const Words p = F::Prime::p();
        subtract(wrapped, r, p);  // after an overflow 2^256 + r - p, which is below 2^256
        return select(flags.over, wrapped, reduce_once(r, p));
    }
};
