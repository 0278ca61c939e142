// SM3, GB/T 32905-2016. A digest is eight big-endian words, the first word first.
#pragma once
#include "hash.cuh"

struct Sm3 {};

DEVICE void hash_initial(Sm3, u32 (&state)[8]) {
    state[0] = 0x7380166f, state[1] = 0x4914b2b9, state[2] = 0x172442d7, state[3] = 0xda8a0600;
    state[4] = 0xa96f30bc, state[5] = 0x163138aa, state[6] = 0xe38dee4d, state[7] = 0xb0fb0e4e;
}

// One round with the registers renamed instead of moved: the caller passes them rotated by one from round to
// round. `w` is W[j], `w4` is W[j + 4] and `t` the round's constant, rotated.
template <bool EARLY>
DEVICE void sm3_round(u32 a, u32& b, u32 c, u32& d, u32 e, u32& f, u32 g, u32& h, u32 w, u32 w4, u32 t) {
    const u32 a12 = rotate_left(a, 12);
    const u32 ss1 = rotate_left(a12 + e + t, 7);
    const u32 ff = EARLY ? a ^ b ^ c : (a & b) | (a & c) | (b & c);
    const u32 gg = EARLY ? e ^ f ^ g : (e & f) | (~e & g);
    const u32 tt2 = gg + h + ss1 + w;
    d = ff + d + (ss1 ^ a12) + (w ^ w4);
    b = rotate_left(b, 9);
    f = rotate_left(f, 19);
    h = tt2 ^ rotate_left(tt2, 9) ^ rotate_left(tt2, 17);
}

// W[j + 4] into the place of W[j - 12].
DEVICE void sm3_expand(u32 (&w)[16], u32 j) {
    const u32 i = j + 4;
    const u32 x = w[i & 15] ^ w[(i + 7) & 15] ^ rotate_left(w[(i + 13) & 15], 15);
    w[i & 15] = x ^ rotate_left(x, 15) ^ rotate_left(x, 23) ^ rotate_left(w[(i + 3) & 15], 7) ^ w[(i + 10) & 15];
}

template <bool EARLY>
DEVICE void sm3_sixteen_rounds(u32 (&s)[8], u32 (&w)[16], u32& t) {
    UNROLL
    for (u32 j = 0; j < 16; j += 4) {
        if (!EARLY || j == 12) sm3_expand(w, j);
        sm3_round<EARLY>(s[0], s[1], s[2], s[3], s[4], s[5], s[6], s[7], w[j], w[(j + 4) & 15], t);
        if (!EARLY || j == 12) sm3_expand(w, j + 1);
        sm3_round<EARLY>(s[3], s[0], s[1], s[2], s[7], s[4], s[5], s[6], w[j + 1], w[(j + 5) & 15],
                         rotate_left(t, 1));
        if (!EARLY || j == 12) sm3_expand(w, j + 2);
        sm3_round<EARLY>(s[2], s[3], s[0], s[1], s[6], s[7], s[4], s[5], w[j + 2], w[(j + 6) & 15],
                         rotate_left(t, 2));
        if (!EARLY || j == 12) sm3_expand(w, j + 3);
        sm3_round<EARLY>(s[1], s[2], s[3], s[0], s[5], s[6], s[7], s[4], w[j + 3], w[(j + 7) & 15],
                         rotate_left(t, 3));
        t = rotate_left(t, 4);
    }
}

DEVICE void hash_compress(Sm3, u32 (&state)[8], u32 (&w)[16]) {
    u32 s[8];
    UNROLL for (u32 i = 0; i < 8; i++) s[i] = state[i];
    u32 t = 0x79cc4519;
    sm3_sixteen_rounds<true>(s, w, t);
    t = rotate_left(0x7a879d8a, 16);
    NO_UNROLL
    for (u32 j = 16; j < 64; j += 16) sm3_sixteen_rounds<false>(s, w, t);
    UNROLL for (u32 i = 0; i < 8; i++) state[i] ^= s[i];
}

// SM3 of the ranges, one behind the other.
template <u32 N>
DEVICE void sm3(u32 (&digest)[8], const Bytes (&parts)[N]) {
    const u32 none[1] = {0};
    merkle_damgard<Sm3>(digest, none, 0, parts);
}

// SM3 of PREFIX big-endian words and then the ranges.
template <u32 PREFIX, u32 N>
DEVICE void sm3(u32 (&digest)[8], const u32 (&prefix)[PREFIX], const Bytes (&parts)[N]) {
    merkle_damgard<Sm3>(digest, prefix, PREFIX, parts);
}
