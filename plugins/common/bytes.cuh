// Loads and stores of byte strings at any address. Nothing here touches a byte outside the range it is given.
//
// A 256-bit integer is u32[8], least significant limb first.
#pragma once
#include "abi.cuh"

DEVICE u32 rotate_left(u32 x, u32 bits) {
#if TARGET_GPU
    return __funnelshift_l(x, x, bits);
#else
    return x << (bits & 31) | x >> (-bits & 31);
#endif
}

DEVICE u32 swap_bytes(u32 x) {
#if TARGET_GPU
    return __byte_perm(x, 0, 0x0123);
#else
    return __builtin_bswap32(x);
#endif
}

DEVICE u32 load_le32(const u8* bytes) {
#if TARGET_GPU
    if (((u64)bytes & 3) == 0) return *(const u32*)bytes;
    return (u32)bytes[0] | (u32)bytes[1] << 8 | (u32)bytes[2] << 16 | (u32)bytes[3] << 24;
#else
    u32 word;
    __builtin_memcpy(&word, bytes, 4);
    return word;
#endif
}

DEVICE u32 load_be32(const u8* bytes) { return swap_bytes(load_le32(bytes)); }

DEVICE void store_be32(u8* bytes, u32 word) {
#if TARGET_GPU
    if (((u64)bytes & 3) == 0) {
        *(u32*)bytes = swap_bytes(word);
        return;
    }
    bytes[0] = (u8)(word >> 24), bytes[1] = (u8)(word >> 16), bytes[2] = (u8)(word >> 8), bytes[3] = (u8)word;
#else
    word = swap_bytes(word);
    __builtin_memcpy(bytes, &word, 4);
#endif
}

// COUNT consecutive little-endian words. An unaligned run is read as the aligned words inside it and shifted
// together; the bytes before the first and after the last aligned word are read one by one.
template <u32 COUNT>
DEVICE void load_le32s(u32 (&words)[COUNT], const u8* bytes) {
#if TARGET_GPU
    const u32 ahead = (u32)(u64)bytes & 3;
    if (COUNT % 4 == 0 && ((u64)bytes & 15) == 0) {
        UNROLL for (u32 i = 0; i < COUNT / 4; i++) {
            const uint4 four = ((const uint4*)bytes)[i];
            words[4 * i] = four.x, words[4 * i + 1] = four.y, words[4 * i + 2] = four.z, words[4 * i + 3] = four.w;
        }
    } else if (ahead == 0) {
        UNROLL for (u32 i = 0; i < COUNT; i++) words[i] = ((const u32*)bytes)[i];
    } else {
        const u32* aligned = (const u32*)(bytes - ahead);
        u32 low = 0, last = 0;
        UNROLL for (u32 i = 1; i < 4; i++) {
            if (i >= ahead) low |= (u32)bytes[i - ahead] << 8 * i;
            if (i <= ahead) last |= (u32)bytes[4 * COUNT - ahead + i - 1] << 8 * (i - 1);
        }
        UNROLL for (u32 i = 0; i < COUNT; i++) {
            const u32 high = i + 1 < COUNT ? aligned[i + 1] : last;
            words[i] = __funnelshift_r(low, high, 8 * ahead);
            low = high;
        }
    }
#else
    __builtin_memcpy(words, bytes, 4 * COUNT);
#endif
}

template <u32 COUNT>
DEVICE void load_be32s(u32 (&words)[COUNT], const u8* bytes) {
    load_le32s(words, bytes);
    UNROLL for (u32 i = 0; i < COUNT; i++) words[i] = swap_bytes(words[i]);
}

// A big-endian integer of 32 bytes.
DEVICE void load_be256(u32 (&limbs)[8], const u8* bytes) {
    u32 words[8];
    load_be32s(words, bytes);
    UNROLL for (u32 i = 0; i < 8; i++) limbs[i] = words[7 - i];
}

// A big-endian integer of any length up to 32 bytes.
DEVICE void load_be_short(u32 (&limbs)[8], const u8* bytes, u32 size) {
    UNROLL for (u32 i = 0; i < 8; i++) {
        u32 limb = 0;
        UNROLL for (u32 j = 0; j < 4; j++) {
            const u32 from_end = 4 * i + j;
            if (from_end < size) limb |= (u32)bytes[size - 1 - from_end] << 8 * j;
        }
        limbs[i] = limb;
    }
}

DEVICE void store_be256(u8* bytes, const u32 (&limbs)[8]) {
    UNROLL for (u32 i = 0; i < 8; i++) store_be32(bytes + 4 * i, limbs[7 - i]);
}
