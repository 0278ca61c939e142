// A field on the CPU: four 64-bit limbs, every element canonical. Products are reduced by the form of the prime
// (field_primes.cuh), with radix 2^256 where it is a Montgomery reduction.
#pragma once
#include "field_primes.cuh"

template <class P>
struct HostField {
    typedef P Prime;
    struct Element {
        u64 v[4];
    };
    static constexpr bool LAZY = false;
    static constexpr bool PLAIN = P::PLAIN;
    static constexpr u32 WORDS = 8;  // of an element in memory

    DEVICE Element mul(const Element& a, const Element& b) {
        typedef unsigned __int128 u128;
        u64 t[8];
        u128 sum = 0;
        LIMBS for (u32 j = 0; j < 4; j++) {
            sum += (u128)a.v[0] * b.v[j];
            t[j] = (u64)sum;
            sum >>= 64;
        }
        t[4] = (u64)sum;
        LIMBS for (u32 i = 1; i < 4; i++) {
            sum = 0;
            LIMBS for (u32 j = 0; j < 4; j++) {
                sum += (u128)a.v[i] * b.v[j] + t[i + j];
                t[i + j] = (u64)sum;
                sum >>= 64;
            }
            t[i + 4] = (u64)sum;
        }
        return reduce(t);
    }

    DEVICE Element sqr(const Element& a) {
        typedef unsigned __int128 u128;
        u64 t[8];
        u128 sum = (u128)a.v[0] * a.v[1];
        t[1] = (u64)sum;
        sum = (sum >> 64) + (u128)a.v[0] * a.v[2];
        t[2] = (u64)sum;
        sum = (sum >> 64) + (u128)a.v[0] * a.v[3];
        t[3] = (u64)sum;
        t[4] = (u64)(sum >> 64);
        sum = (u128)a.v[1] * a.v[2] + t[3];
        t[3] = (u64)sum;
        sum = (sum >> 64) + (u128)a.v[1] * a.v[3] + t[4];
        t[4] = (u64)sum;
        sum = (sum >> 64) + (u128)a.v[2] * a.v[3];
        t[5] = (u64)sum;
        t[6] = (u64)(sum >> 64);
        t[7] = t[6] >> 63;
        LIMBS for (u32 i = 6; i > 1; i--) t[i] = t[i] << 1 | t[i - 1] >> 63;
        t[1] <<= 1;
        u64 carry = 0;
        LIMBS for (u32 i = 0; i < 4; i++) {
            const u128 square = (u128)a.v[i] * a.v[i];
            t[2 * i] = i ? add_carry(t[2 * i], (u64)square, carry) : (u64)square;
            t[2 * i + 1] = add_carry(t[2 * i + 1], (u64)(square >> 64), carry);
        }
        return reduce(t);
    }

    DEVICE Element add(const Element& a, const Element& b) {
        Element sum;
        u64 carry = 0;
        LIMBS for (u32 i = 0; i < 4; i++) sum.v[i] = add_carry(a.v[i], b.v[i], carry);
        return settle(sum, carry);
    }

    DEVICE Element sub(const Element& a, const Element& b) {
        Element r;
        u64 borrow = 0, carry = 0;
        LIMBS for (u32 i = 0; i < 4; i++) r.v[i] = subtract_borrow(a.v[i], b.v[i], borrow);
        const u64 mask = 0 - borrow;
        LIMBS for (u32 i = 0; i < 4; i++) r.v[i] = add_carry(r.v[i], prime(i) & mask, carry);
        return r;
    }

    DEVICE Element twice(const Element& a) { return add(a, a); }
    DEVICE Element half(const Element& a) {
        const u64 mask = 0 - (a.v[0] & 1);
        Element r;
        u64 carry = 0;
        LIMBS for (u32 i = 0; i < 4; i++) r.v[i] = add_carry(a.v[i], prime(i) & mask, carry);
        LIMBS for (u32 i = 0; i < 4; i++) r.v[i] = r.v[i] >> 1 | (i < 3 ? r.v[i + 1] : carry) << 63;
        return r;
    }
    DEVICE Element negate_if(const Element& a, u32 mask) {
        const Element negative = sub(zero(), a);
        const u64 wide = 0 - (u64)(mask & 1);
        Element r;
        LIMBS for (u32 i = 0; i < 4; i++) r.v[i] = (negative.v[i] & wide) | (a.v[i] & ~wide);
        return r;
    }
    DEVICE bool is_zero(const Element& a) { return (a.v[0] | a.v[1] | a.v[2] | a.v[3]) == 0; }
    DEVICE Element canonical(const Element& a) { return a; }

    // The interface of lazy fields; no flag is ever raised.
    DEVICE Element mul(const Element& a, const Element& b, Flags&) { return mul(a, b); }
    DEVICE Element sqr(const Element& a, Flags&) { return sqr(a); }
    DEVICE Element add(const Element& a, const Element& b, Flags&) { return add(a, b); }
    DEVICE Element sub(const Element& a, const Element& b, Flags&) { return sub(a, b); }
    DEVICE Element twice(const Element& a, Flags&) { return twice(a); }
    DEVICE Element triple(const Element& a, Flags&) { return add(twice(a), a); }
    DEVICE Element triple_add(const Element& a, const Element& b, Flags&) { return add(add(twice(a), a), b); }
    DEVICE Element sub_twice(const Element& a, const Element& b, Flags&) { return sub(a, twice(b)); }
    DEVICE Element sub_sub(const Element& a, const Element& b, const Element& c, Flags&) { return sub(sub(a, b), c); }
    DEVICE Element sub_sub_twice(const Element& a, const Element& b, const Element& c, Flags&) {
        return sub(sub(a, b), twice(c));
    }
    DEVICE Element negate_if(const Element& a, u32 mask, Flags&) { return negate_if(a, mask); }

    DEVICE constexpr Element zero() { return {{0, 0, 0, 0}}; }
    DEVICE constexpr Element one() { return from_plain(P::one_host()); }
    DEVICE constexpr Element radix_squared() { return from_plain(P::radix_squared_host()); }

    // Limbs as they are, without conversion to Montgomery form.
    DEVICE constexpr Element from_plain(const Words& a) { return {{limb(a, 0), limb(a, 1), limb(a, 2), limb(a, 3)}}; }
    DEVICE Words to_plain(const Element& a) {
        Words r;
        LIMBS for (u32 i = 0; i < 4; i++) r.w[2 * i] = (u32)a.v[i], r.w[2 * i + 1] = (u32)(a.v[i] >> 32);
        return r;
    }
    DEVICE Element from_words(const Words& a, Flags&) {
        if constexpr (PLAIN) return from_plain(a);
        else return mul(from_plain(a), radix_squared());
    }

    DEVICE Element load(const u32* memory) {
        Element r;
        __builtin_memcpy(r.v, memory, 32);
        return r;
    }
    DEVICE Element load_constant(const u32* memory) { return load(memory); }
    DEVICE void store(u32* memory, const Element& a) { __builtin_memcpy(memory, a.v, 32); }

private:
    DEVICE constexpr u64 limb(const Words& a, u32 i) { return a.w[2 * i] | (u64)a.w[2 * i + 1] << 32; }
    DEVICE constexpr u64 prime(u32 i) { return limb(P::p(), i); }

    DEVICE Element reduce(const u64 (&t)[8]) {
        Element r;
        const u64 carry = P::reduce(r.v, t);
        return settle(r, carry);
    }

    // a + carry 2^256, below 2p, minus p where it is not below p.
    DEVICE Element settle(const Element& a, u64 carry) {
        Element r;
        u64 borrow = 0;
        LIMBS for (u32 i = 0; i < 4; i++) r.v[i] = subtract_borrow(a.v[i], prime(i), borrow);
        const u64 mask = carry - borrow;  // all ones where a < p and no carry; a carry always meets a borrow
        LIMBS for (u32 i = 0; i < 4; i++) r.v[i] = (a.v[i] & mask) | (r.v[i] & ~mask);
        return r;
    }
};
