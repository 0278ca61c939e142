// A field on the CPU, eight elements at once: five limbs of 52 bits, multiplied by AVX-512 IFMA.
//
// An element is any integer below 5/4 p that stands for its residue: of Montgomery form with the radix 2^260, or plain
// where the prime is (field_primes.cuh). Products of such elements come out below 5/4 p again. Sums and differences
// are made non-negative by a multiple of p, carried, and brought below 2^256 + 2^230 by subtracting as many times p as
// 2^256 goes into them; 2^256 + 2^230 < 5/4 p.
#pragma once
#include "field_primes.cuh"
#include "lanes.cuh"

#if HAS_LANES

template <class P>
struct LaneField {
    typedef P Prime;
    struct Element {
        Lanes limb[5];
    };
    static constexpr bool LAZY = false;
    static constexpr bool PLAIN = P::PLAIN;
    static constexpr u32 WORDS = 5 * 2 * LANE_COUNT;  // of an element in memory

    DEVICE WITH_IFMA Element mul(const Element& a, const Element& b) {
        Lanes t[10] = {};
        LIMBS for (u32 i = 0; i < 5; i++) {
            LIMBS for (u32 j = 0; j < 5; j++) {
                t[i + j] = add_low_product(t[i + j], a.limb[i], b.limb[j]);
                t[i + j + 1] = add_high_product(t[i + j + 1], a.limb[i], b.limb[j]);
            }
        }
        return reduce(t);
    }

    DEVICE WITH_IFMA Element sqr(const Element& a) {
        Lanes t[10] = {};
        LIMBS for (u32 i = 0; i < 4; i++) {
            LIMBS for (u32 j = i + 1; j < 5; j++) {
                t[i + j] = add_low_product(t[i + j], a.limb[i], a.limb[j]);
                t[i + j + 1] = add_high_product(t[i + j + 1], a.limb[i], a.limb[j]);
            }
        }
        LIMBS for (u32 i = 1; i < 9; i++) t[i] += t[i];
        LIMBS for (u32 i = 0; i < 5; i++) {
            t[2 * i] = add_low_product(t[2 * i], a.limb[i], a.limb[i]);
            t[2 * i + 1] = add_high_product(t[2 * i + 1], a.limb[i], a.limb[i]);
        }
        return reduce(t);
    }

    DEVICE Element add(const Element& a, const Element& b) { return settle(plus(a, b)); }
    DEVICE Element sub(const Element& a, const Element& b) { return settle(minus(lift(a, 2), b)); }
    DEVICE Element twice(const Element& a) { return add(a, a); }

    // (a + p) / 2 where a is odd.
    DEVICE Element half(const Element& a) {
        const Lanes odd = -(a.limb[0] & 1);
        Element r;
        LIMBS for (u32 i = 0; i < 5; i++) r.limb[i] = a.limb[i] + (odd & prime(i));
        r = carried(r);
        LIMBS for (u32 i = 0; i < 5; i++)
            r.limb[i] = i < 4 ? r.limb[i] >> 1 | (r.limb[i + 1] << 51 & MASK) : r.limb[i] >> 1;
        return r;
    }

    DEVICE Element negate_if(const Element& a, const Lanes& mask) {
        return settle(select(mask, minus(multiple(2), a), a));
    }

    // Lane by lane a where the mask is all ones, else b.
    DEVICE Element select(const Lanes& mask, const Element& a, const Element& b) {
        Element r;
        LIMBS for (u32 i = 0; i < 5; i++) r.limb[i] = ::select(mask, a.limb[i], b.limb[i]);
        return r;
    }

    // All ones in the lanes of which the element is zero: it is 0 or p.
    DEVICE Lanes is_zero(const Element& a) {
        Lanes zero = {}, same = {};
        LIMBS for (u32 i = 0; i < 5; i++) zero |= a.limb[i], same |= a.limb[i] ^ prime(i);
        return (Lanes)(zero == 0) | (Lanes)(same == 0);
    }

    // The interface of lazy fields; no flag is ever raised.
    DEVICE WITH_IFMA Element mul(const Element& a, const Element& b, Flags&) { return mul(a, b); }
    DEVICE WITH_IFMA Element sqr(const Element& a, Flags&) { return sqr(a); }
    DEVICE Element add(const Element& a, const Element& b, Flags&) { return add(a, b); }
    DEVICE Element sub(const Element& a, const Element& b, Flags&) { return sub(a, b); }
    DEVICE Element twice(const Element& a, Flags&) { return twice(a); }
    DEVICE Element triple(const Element& a, Flags&) { return settle(plus(plus(a, a), a)); }
    DEVICE Element triple_add(const Element& a, const Element& b, Flags&) {
        return settle(plus(plus(plus(a, a), a), b));
    }
    DEVICE Element sub_twice(const Element& a, const Element& b, Flags&) {
        return settle(minus(minus(lift(a, 3), b), b));
    }
    DEVICE Element sub_sub(const Element& a, const Element& b, const Element& c, Flags&) {
        return settle(minus(minus(lift(a, 3), b), c));
    }
    DEVICE Element sub_sub_twice(const Element& a, const Element& b, const Element& c, Flags&) {
        return settle(minus(minus(minus(lift(a, 4), b), c), c));
    }
    DEVICE Element negate_if(const Element& a, const Lanes& mask, Flags&) { return negate_if(a, mask); }

    // The same integer, a plain one below p, in every lane.
    DEVICE WITH_IFMA Element from_words(const Words& a, Flags&) {
        if constexpr (PLAIN) return constant(a);
        else return mul(constant(a), constant(radix_squared()));
    }

    DEVICE Element zero() { return {}; }
    DEVICE Element one() { return constant(PLAIN ? small_words(1) : radix()); }

    // Four limbs of 64 bits of plain integers below p.
    DEVICE WITH_IFMA Element from_limbs(const Lanes (&v)[4]) {
        if constexpr (PLAIN) return cut<0>(v);
        else return mul(cut<0>(v), constant(radix_squared()));
    }

    // The same of elements of HostField<P>. With the radix 2^256 a R' = a 2^256, and 16 a R' = a 2^260.
    DEVICE Element from_host(const Lanes (&v)[4]) {
        if constexpr (PLAIN) return cut<0>(v);
        else return settle(cut<4>(v));
    }

    // Plain integers below p, four limbs of 64 bits.
    DEVICE WITH_IFMA void to_limbs(Lanes (&v)[4], const Element& a) {
        Element r = a;
        if constexpr (!PLAIN) {
            r = zero();
            r.limb[0] += 1;
            r = mul(a, r);
        }
        const Element less = carried(minus(r, multiple(1)));
        r = select(signed_shift(less.limb[4], 63), r, less);
        LIMBS for (u32 i = 0; i < 4; i++) v[i] = r.limb[i] >> 12 * i | r.limb[i + 1] << (52 - 12 * i);
    }

    DEVICE Element load(const u32* memory) {
        Element r;
        __builtin_memcpy(r.limb, memory, sizeof r);
        return r;
    }
    DEVICE void store(u32* memory, const Element& a) { __builtin_memcpy(memory, a.limb, sizeof a); }

    // Each lane's element of a row of them, WORDS apart times `stride`.
    DEVICE Element gather(const u32* memory, const Lanes& index, u32 stride) {
        const Lanes at = index * (u64)(stride * WORDS / 2) + lane_numbers();
        Element r;
        LIMBS for (u32 i = 0; i < 5; i++) r.limb[i] = ::gather((const u64*)memory + i * LANE_COUNT, at);
        return r;
    }

private:
    static constexpr u64 MASK = (1ull << 52) - 1;

    // 52 bits of an integer.
    DEVICE constexpr u64 limb(const Words& a, u32 i) {
        const u32 at = 52 * i / 32, shift = 52 * i % 32;
        u64 value = a.w[at] >> shift;
        if (at < 7) value |= (u64)a.w[at + 1] << (32 - shift);
        if (at < 6 && shift > 12) value |= (u64)a.w[at + 2] << (64 - shift);
        return value & MASK;
    }
    DEVICE constexpr u64 prime(u32 i) { return limb(P::p(), i); }

    // 2^256 - p.
    DEVICE constexpr u64 rest(u32 i) {
        Words r = {};
        u64 borrow = 0;
        for (u32 k = 0; k < 8; k++) {
            const u64 difference = 0 - (u64)P::p().w[k] - borrow;
            r.w[k] = (u32)difference;
            borrow = difference >> 63;
        }
        return limb(r, i);
    }

    // 2^k a mod p for a below p.
    DEVICE constexpr Words shifted(Words a, u32 k) {
        const Words p = P::p();
        for (; k; k--) {
            u64 carry = 0, borrow = 0;
            Words reduced = {};
            for (u32 i = 0; i < 8; i++) {
                carry += (u64)a.w[i] << 1;
                a.w[i] = (u32)carry;
                carry >>= 32;
            }
            for (u32 i = 0; i < 8; i++) {
                const u64 difference = (u64)a.w[i] - p.w[i] - borrow;
                reduced.w[i] = (u32)difference;
                borrow = difference >> 63;
            }
            if (carry || !borrow) a = reduced;
        }
        return a;
    }
    DEVICE constexpr Words radix() { return shifted(P::one_host(), 4); }
    DEVICE constexpr Words radix_squared() { return shifted(P::radix_squared_host(), 8); }

    DEVICE Element constant(const Words& a) {
        Element r;
        LIMBS for (u32 i = 0; i < 5; i++) r.limb[i] = every_lane(limb(a, i));
        return r;
    }
    DEVICE Element multiple(u64 k) {
        Element r;
        LIMBS for (u32 i = 0; i < 5; i++) r.limb[i] = every_lane(k * prime(i));
        return r;
    }

    // Limb by limb, to be carried.
    DEVICE Element plus(const Element& a, const Element& b) {
        Element r;
        LIMBS for (u32 i = 0; i < 5; i++) r.limb[i] = a.limb[i] + b.limb[i];
        return r;
    }
    DEVICE Element minus(const Element& a, const Element& b) {
        Element r;
        LIMBS for (u32 i = 0; i < 5; i++) r.limb[i] = a.limb[i] - b.limb[i];
        return r;
    }
    DEVICE Element lift(const Element& a, u64 k) { return plus(a, multiple(k)); }

    DEVICE Element carried(const Element& numbers) {
        Element a = numbers;
        LIMBS for (u32 i = 0; i < 4; i++) {
            a.limb[i + 1] += signed_shift(a.limb[i], 52);
            a.limb[i] &= MASK;
        }
        return a;
    }

    // A number that is not negative, of signed limbs below 2^60, less q p for q = its upper limb / 2^48. Of that limb
    // 2^8 are left out, more than lower limbs can lack: so what is left is not negative, and below 2^256 + 2^230.
    DEVICE Element settle(const Element& number) {
        Element a = number;
        const Lanes q = signed_shift(a.limb[4] - 256, 48);
        a.limb[4] -= q << 48;
        LIMBS for (u32 i = 0; i < 5; i++)
            if (rest(i)) a.limb[i] += q * rest(i);
        return carried(a);
    }

    template <u32 SHIFT>
    DEVICE Element cut(const Lanes (&v)[4]) {
        Element r;
        r.limb[0] = v[0] << SHIFT & MASK;
        LIMBS for (u32 i = 1; i < 4; i++) {
            const u32 at = 52 * i - SHIFT;  // in bits
            r.limb[i] = (v[at / 64] >> at % 64 | v[at / 64 + 1] << (64 - at % 64)) & MASK;
        }
        r.limb[4] = v[3] >> (208 - SHIFT - 192);
        return r;
    }

    DEVICE WITH_IFMA Element reduce(Lanes (&t)[10]) {
        if constexpr (PLAIN) return fold(t);
        else return divide_by_radix(t);
    }

    // Montgomery's reduction. p = -1 mod 2^52, so that the digit is the lowest limb m itself, and
    // t + m p = (t - m) + m (p + 1).
    DEVICE WITH_IFMA Element divide_by_radix(Lanes (&t)[10]) {
        LIMBS for (u32 i = 0; i < 5; i++) {
            const Lanes m = t[i] & MASK;
            t[i + 1] += t[i] >> 52;
            LIMBS for (u32 j = 1; j < 5; j++) {
                if (prime(j) == 0) continue;
                const Lanes of_prime = every_lane(prime(j) + (j == 1));  // p + 1, whose lowest limb is zero
                t[i + j] = add_low_product(t[i + j], m, of_prime);
                t[i + j + 1] = add_high_product(t[i + j + 1], m, of_prime);
            }
        }
        Element r;
        LIMBS for (u32 i = 0; i < 5; i++) r.limb[i] = t[5 + i];
        return carried(r);
    }

    // 2^260 = 16 (2^32 + 977) modulo p: the upper limbs times that, and what is above 2^256 once more.
    DEVICE WITH_IFMA Element fold(Lanes (&t)[10]) {
        LIMBS for (u32 i = 5; i < 9; i++) {
            t[i + 1] += t[i] >> 52;
            t[i] &= MASK;
        }
        Lanes r[6] = {t[0], t[1], t[2], t[3], t[4], {}};
        const Lanes rest = every_lane(0x1000003d10), once = every_lane(0x1000003d1);
        LIMBS for (u32 i = 0; i < 5; i++) {
            r[i] = add_low_product(r[i], t[5 + i], rest);
            r[i + 1] = add_high_product(r[i + 1], t[5 + i], rest);
        }
        const Lanes q = (r[4] >> 48) + (r[5] << 4);
        r[4] &= (1ull << 48) - 1;
        r[0] = add_low_product(r[0], q, once), r[1] = add_high_product(r[1], q, once);
        return carried({{r[0], r[1], r[2], r[3], r[4]}});
    }
};

#endif
