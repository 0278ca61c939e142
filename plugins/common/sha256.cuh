// SHA-256, FIPS 180-4, and the same applied twice. A digest is eight big-endian words, the first word first.
#pragma once
#include "hash.cuh"

struct Sha256 {};

CONSTANT u32 SHA256_K[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

DEVICE void hash_initial(Sha256, u32 (&state)[8]) {
    state[0] = 0x6a09e667, state[1] = 0xbb67ae85, state[2] = 0x3c6ef372, state[3] = 0xa54ff53a;
    state[4] = 0x510e527f, state[5] = 0x9b05688c, state[6] = 0x1f83d9ab, state[7] = 0x5be0cd19;
}

// One round with the registers renamed instead of moved: the caller passes them rotated by one from round to
// round.
DEVICE void sha256_round(u32 a, u32 b, u32 c, u32& d, u32 e, u32 f, u32 g, u32& h, u32 wk) {
    const u32 sum1 = rotate_left(e, 26) ^ rotate_left(e, 21) ^ rotate_left(e, 7);
    const u32 sum0 = rotate_left(a, 30) ^ rotate_left(a, 19) ^ rotate_left(a, 10);
    h += sum1 + ((e & f) ^ (~e & g)) + wk;
    d += h;
    h += sum0 + ((a & b) ^ (a & c) ^ (b & c));
}

DEVICE void sha256_eight_rounds(u32 (&s)[8], const u32 (&w)[16], u32 j, const u32* k) {
    sha256_round(s[0], s[1], s[2], s[3], s[4], s[5], s[6], s[7], w[j] + k[0]);
    sha256_round(s[7], s[0], s[1], s[2], s[3], s[4], s[5], s[6], w[j + 1] + k[1]);
    sha256_round(s[6], s[7], s[0], s[1], s[2], s[3], s[4], s[5], w[j + 2] + k[2]);
    sha256_round(s[5], s[6], s[7], s[0], s[1], s[2], s[3], s[4], w[j + 3] + k[3]);
    sha256_round(s[4], s[5], s[6], s[7], s[0], s[1], s[2], s[3], w[j + 4] + k[4]);
    sha256_round(s[3], s[4], s[5], s[6], s[7], s[0], s[1], s[2], w[j + 5] + k[5]);
    sha256_round(s[2], s[3], s[4], s[5], s[6], s[7], s[0], s[1], w[j + 6] + k[6]);
    sha256_round(s[1], s[2], s[3], s[4], s[5], s[6], s[7], s[0], w[j + 7] + k[7]);
}

DEVICE void hash_compress(Sha256, u32 (&state)[8], u32 (&w)[16]) {
    u32 s[8];
    UNROLL for (u32 i = 0; i < 8; i++) s[i] = state[i];
    NO_UNROLL
    for (u32 round = 0; round < 64; round += 16) {
        if (round) {
            UNROLL
            for (u32 i = 0; i < 16; i++) {
                const u32 w1 = w[(i + 1) & 15], w14 = w[(i + 14) & 15];
                w[i] += (rotate_left(w1, 25) ^ rotate_left(w1, 14) ^ w1 >> 3) + w[(i + 9) & 15] +
                        (rotate_left(w14, 15) ^ rotate_left(w14, 13) ^ w14 >> 10);
            }
        }
        sha256_eight_rounds(s, w, 0, SHA256_K + round);
        sha256_eight_rounds(s, w, 8, SHA256_K + round + 8);
    }
    UNROLL for (u32 i = 0; i < 8; i++) state[i] += s[i];
}

// SHA-256 of the ranges, one behind the other.
template <u32 N>
DEVICE void sha256(u32 (&digest)[8], const Bytes (&parts)[N]) {
    const u32 none[1] = {0};
    merkle_damgard<Sha256>(digest, none, 0, parts);
}

// SHA-256 of a SHA-256 digest.
DEVICE void sha256_of_digest(u32 (&digest)[8]) {
    u32 block[16];
    UNROLL for (u32 i = 0; i < 8; i++) block[i] = digest[i];
    block[8] = 0x80000000;
    UNROLL for (u32 i = 9; i < 15; i++) block[i] = 0;
    block[15] = 256;
    hash_initial(Sha256{}, digest);
    hash_compress(Sha256{}, digest, block);
}
