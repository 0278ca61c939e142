// Keccak-f[1600] with a rate of 136 bytes: Keccak-256 (as submitted, suffix 01, used by Ethereum) and SHA3-256
// (FIPS 202, suffix 06). A digest is eight big-endian words, the first word first.
#pragma once
#include "hash.cuh"

constexpr u8 KECCAK256_SUFFIX = 0x01, SHA3_256_SUFFIX = 0x06;
constexpr u32 KECCAK_RATE_WORDS = 34;

CONSTANT u64 KECCAK_ROUND_CONSTANTS[24] = {
    0x0000000000000001, 0x0000000000008082, 0x800000000000808a, 0x8000000080008000, 0x000000000000808b,
    0x0000000080000001, 0x8000000080008081, 0x8000000000008009, 0x000000000000008a, 0x0000000000000088,
    0x0000000080008009, 0x000000008000000a, 0x000000008000808b, 0x800000000000008b, 0x8000000000008089,
    0x8000000000008003, 0x8000000000008002, 0x8000000000000080, 0x000000000000800a, 0x800000008000000a,
    0x8000000080008081, 0x8000000000008080, 0x0000000080000001, 0x8000000080008008,
};

DEVICE u64 rotate_left_64(u64 x, u32 bits) { return bits ? x << bits | x >> (64 - bits) : x; }

// Lane (x, y) of the state is s[x + 5 * y].
DEVICE void keccak_permute(u64 (&s)[25]) {
    NO_UNROLL
    for (u32 round = 0; round < 24; round++) {
        u64 column[5], t[25];
        UNROLL for (u32 x = 0; x < 5; x++) column[x] = s[x] ^ s[x + 5] ^ s[x + 10] ^ s[x + 15] ^ s[x + 20];
        UNROLL
        for (u32 x = 0; x < 5; x++) {
            const u64 d = column[(x + 4) % 5] ^ rotate_left_64(column[(x + 1) % 5], 1);
            UNROLL for (u32 y = 0; y < 25; y += 5) s[x + y] ^= d;
        }
        // rho and pi: lane (x, y) goes to (y, 2x + 3y), rotated.
        t[0] = s[0], t[10] = rotate_left_64(s[1], 1), t[20] = rotate_left_64(s[2], 62);
        t[5] = rotate_left_64(s[3], 28), t[15] = rotate_left_64(s[4], 27);
        t[16] = rotate_left_64(s[5], 36), t[1] = rotate_left_64(s[6], 44), t[11] = rotate_left_64(s[7], 6);
        t[21] = rotate_left_64(s[8], 55), t[6] = rotate_left_64(s[9], 20);
        t[7] = rotate_left_64(s[10], 3), t[17] = rotate_left_64(s[11], 10), t[2] = rotate_left_64(s[12], 43);
        t[12] = rotate_left_64(s[13], 25), t[22] = rotate_left_64(s[14], 39);
        t[23] = rotate_left_64(s[15], 41), t[8] = rotate_left_64(s[16], 45), t[18] = rotate_left_64(s[17], 15);
        t[3] = rotate_left_64(s[18], 21), t[13] = rotate_left_64(s[19], 8);
        t[14] = rotate_left_64(s[20], 18), t[24] = rotate_left_64(s[21], 2), t[9] = rotate_left_64(s[22], 61);
        t[19] = rotate_left_64(s[23], 56), t[4] = rotate_left_64(s[24], 14);
        UNROLL
        for (u32 y = 0; y < 25; y += 5) {
            UNROLL for (u32 x = 0; x < 5; x++) s[y + x] = t[y + x] ^ (~t[y + (x + 1) % 5] & t[y + (x + 2) % 5]);
        }
        s[0] ^= KECCAK_ROUND_CONSTANTS[round];
    }
}

// The sponge over the ranges, one behind the other.
template <u32 N>
DEVICE void keccak256(u32 (&digest)[8], const Bytes (&parts)[N], u8 suffix) {
    u64 s[25];
    UNROLL for (u32 i = 0; i < 25; i++) s[i] = 0;
    const u64 blocks = total_size(parts) / (4 * KECCAK_RATE_WORDS) + 1;
    NO_UNROLL
    for (u64 index = 0; index < blocks; index++) {
        u32 block[KECCAK_RATE_WORDS];
        gather(block, parts, (long long)(index * 4 * KECCAK_RATE_WORDS), suffix);
        if (index + 1 == blocks) block[KECCAK_RATE_WORDS - 1] ^= 0x80000000;
        UNROLL
        for (u32 i = 0; i < KECCAK_RATE_WORDS / 2; i++) s[i] ^= (u64)block[2 * i + 1] << 32 | block[2 * i];
        keccak_permute(s);
    }
    UNROLL
    for (u32 i = 0; i < 4; i++) {
        digest[2 * i] = swap_bytes((u32)s[i]);
        digest[2 * i + 1] = swap_bytes((u32)(s[i] >> 32));
    }
}
