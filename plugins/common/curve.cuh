// The three curves y^2 = x^3 + a x + b over their fields, with a = -3 or a = 0, prime order n and generator G.
//
// A curve C is described by
//   Field, Order           its arithmetic
//   A_IS_MINUS_3           a = -3, else a = 0
//   b() gx() gy()          plain integers
//   BITS                   n < 2^BITS
//   PARTS, PART_BITS       split(k) writes k as one or two odd parts below 2^PART_BITS:
//                          k = sum of +-part[i] lambda^i mod n; with two parts lambda (x, y) = (beta x, y)
#pragma once
#include "field.cuh"
#include "scalar.cuh"

// The odd one of k and n - k, and a mask that tells whether it is the second. k = 0 gives n.
DEVICE u32 odd_representative(Words& odd, const Words& k, const Words& n) {
    Words opposite;
    subtract(opposite, n, k);
    const bool even = (k.w[0] & 1) == 0;
    odd = select(even, opposite, k);
    return even ? ~0u : 0u;
}

struct Sm2Curve {
    typedef Sm2Field Field;
    typedef Sm2Order Order;
    static constexpr bool A_IS_MINUS_3 = true;
    static constexpr u32 BITS = 256, PARTS = 1, PART_BITS = 256;

    DEVICE constexpr Words b() {
        return {{0x4d940e93, 0xddbcbd41, 0x15ab8f92, 0xf39789f5, 0xcf6509a7, 0x4d5a9e4b, 0x9d9f5e34, 0x28e9fa9e}};
    }
    DEVICE constexpr Words gx() {
        return {{0x334c74c7, 0x715a4589, 0xf2660be1, 0x8fe30bbf, 0x6a39c994, 0x5f990446, 0x1f198119, 0x32c4ae2c}};
    }
    DEVICE constexpr Words gy() {
        return {{0x2139f0a0, 0x02df32e5, 0xc62a4740, 0xd0a9877c, 0x6b692153, 0x59bdcee3, 0xf4f6779c, 0xbc3736a2}};
    }
    DEVICE void split(const Words& k, Words (&part)[1], u32 (&negative)[1]) {
        negative[0] = odd_representative(part[0], k, Order::modulus());
    }
};

struct P256Curve {
    typedef P256Field Field;
    typedef P256Order Order;
    static constexpr bool A_IS_MINUS_3 = true;
    static constexpr u32 BITS = 256, PARTS = 1, PART_BITS = 256;

    DEVICE constexpr Words b() {
        return {{0x27d2604b, 0x3bce3c3e, 0xcc53b0f6, 0x651d06b0, 0x769886bc, 0xb3ebbd55, 0xaa3a93e7, 0x5ac635d8}};
    }
    DEVICE constexpr Words gx() {
        return {{0xd898c296, 0xf4a13945, 0x2deb33a0, 0x77037d81, 0x63a440f2, 0xf8bce6e5, 0xe12c4247, 0x6b17d1f2}};
    }
    DEVICE constexpr Words gy() {
        return {{0x37bf51f5, 0xcbb64068, 0x6b315ece, 0x2bce3357, 0x7c0f9e16, 0x8ee7eb4a, 0xfe1a7f9b, 0x4fe342e2}};
    }
    DEVICE void split(const Words& k, Words (&part)[1], u32 (&negative)[1]) {
        negative[0] = odd_representative(part[0], k, Order::modulus());
    }
};

struct Secp256k1Curve {
    typedef Secp256k1Field Field;
    typedef Secp256k1Order Order;
    static constexpr bool A_IS_MINUS_3 = false;
    static constexpr u32 BITS = 256, PARTS = 2, PART_BITS = 130;

    DEVICE constexpr Words b() { return small_words(7); }
    DEVICE constexpr Words gx() {
        return {{0x16f81798, 0x59f2815b, 0x2dce28d9, 0x029bfcdb, 0xce870b07, 0x55a06295, 0xf9dcbbac, 0x79be667e}};
    }
    DEVICE constexpr Words gy() {
        return {{0xfb10d4b8, 0x9c47d08f, 0xa6855419, 0xfd17b448, 0x0e1108a8, 0x5da4fbfc, 0x26a3c465, 0x483ada77}};
    }
    DEVICE constexpr Words beta() {
        return {{0x719501ee, 0xc1396c28, 0x12f58995, 0x9cf04975, 0xac3434e9, 0x6e64479e, 0x657c0710, 0x7ae96a2b}};
    }

    // The lattice of all (u, v) with u + v lambda = 0 mod n has the short basis (A1, B1), (A2, B2), B1 < 0. With
    // c1 = B2 k / n and c2 = -B1 k / n rounded, (k, 0) - c1 (A1, B1) - c2 (A2, B2) is short too
    // (Gallant, Lambert, Vanstone, CRYPTO 2001). The quotients come from G1 = 2^384 B2 / n and G2 = -2^384 B1 / n.
    // Both parts are then made odd: (A1, B1) is odd in both places, (A2, B2) in the second only.
    DEVICE void split(const Words& k, Words (&part)[2], u32 (&negative)[2]) {
        constexpr Words G1 = {
            {0x45dbb031, 0xe893209a, 0x71e8ca7f, 0x3daa8a14, 0x9284eb15, 0xe86c90e4, 0xa7d46bcd, 0x3086d221}};
        constexpr Words G2 = {
            {0x8ac47f71, 0x1571b4ae, 0x9df506c6, 0x221208ac, 0x0abfe4c4, 0x6f547fa9, 0x010e8828, 0xe4437ed6}};
        constexpr Signed160 A1 = {{0x9284eb15, 0xe86c90e4, 0xa7d46bcd, 0x3086d221, 0}};
        constexpr Signed160 A2 = {{0x9d44cfd8, 0x57c1108d, 0xa8e2f3f6, 0x14ca50f7, 1}};
        constexpr Signed160 B1 = {{0xf5401b3d, 0x90ab8056, 0xfef177d7, 0x1bbc8129, 0xffffffff}};
        constexpr Signed160 B2 = A1;
        const Signed160 c1 = upper_product(k, G1), c2 = upper_product(k, G2);
        Signed160 first = {{k.w[0], k.w[1], k.w[2], k.w[3], k.w[4]}}, second = {{0, 0, 0, 0, 0}};
        subtract_product(first, c1, A1), subtract_product(first, c2, A2);
        subtract_product(second, c1, B1), subtract_product(second, c2, B2);
        const u32 even = first.w[0] & 1 ? 0u : ~0u, differ = (first.w[0] ^ second.w[0]) & 1 ? ~0u : 0u;
        add_if(first, A1, even), add_if(second, B1, even);
        add_if(first, A2, differ), add_if(second, B2, differ);
        negative[0] = magnitude(part[0], first), negative[1] = magnitude(part[1], second);
    }

private:
    struct Signed160 {
        u32 w[5];  // two's complement
    };

    // k g / 2^384 rounded to the nearest, below 2^128.
    DEVICE Signed160 upper_product(const Words& k, const Words& g) {
        u32 t[16] = {};
        UNROLL for (u32 i = 0; i < 8; i++) {
            u64 carry = 0;
            UNROLL for (u32 j = 0; j < 8; j++) {
                carry += (u64)k.w[j] * g.w[i] + t[i + j];
                t[i + j] = (u32)carry;
                carry >>= 32;
            }
            t[i + 8] = (u32)carry;
        }
        u64 carry = t[11] >> 31;
        Signed160 r;
        UNROLL for (u32 i = 0; i < 4; i++) {
            carry += t[12 + i];
            r.w[i] = (u32)carry;
            carry >>= 32;
        }
        r.w[4] = 0;
        return r;
    }

    // a -= b c mod 2^160.
    DEVICE void subtract_product(Signed160& a, const Signed160& b, const Signed160& c) {
        u32 t[5] = {};
        UNROLL for (u32 i = 0; i < 5; i++) {
            u64 carry = 0;
            UNROLL for (u32 j = 0; i + j < 5; j++) {
                carry += (u64)b.w[i] * c.w[j] + t[i + j];
                t[i + j] = (u32)carry;
                carry >>= 32;
            }
        }
        u64 borrow = 0;
        UNROLL for (u32 i = 0; i < 5; i++) {
            const u64 difference = (u64)a.w[i] - t[i] - borrow;
            a.w[i] = (u32)difference;
            borrow = difference >> 63;
        }
    }

    DEVICE void add_if(Signed160& a, const Signed160& b, u32 mask) {
        u64 carry = 0;
        UNROLL for (u32 i = 0; i < 5; i++) {
            carry += (u64)a.w[i] + (b.w[i] & mask);
            a.w[i] = (u32)carry;
            carry >>= 32;
        }
    }

    DEVICE u32 magnitude(Words& r, const Signed160& a) {
        const u32 mask = a.w[4] >> 31 ? ~0u : 0u;
        u64 carry = mask & 1;
        r = small_words(0);
        UNROLL for (u32 i = 0; i < 5; i++) {
            carry += a.w[i] ^ mask;
            r.w[i] = (u32)carry;
            carry >>= 32;
        }
        return mask;
    }
};
