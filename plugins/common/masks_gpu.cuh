// What modes_strided.cuh gives sliced ciphers on a GPU: round keys as masks that other pipes than the logic's add or make,
// and a transpose that spares that pipe.
#pragma once
#include "lut.cuh"

#if TARGET_GPU

#ifndef UNIFORM_MASKS
#define UNIFORM_MASKS 0
#endif

// A word that is the same in all lanes, or zero, so that the compiler knows. From sm_80 on.
DEVICE u32 same_in_warp(u32 word) { return __reduce_or_sync(~0u, word); }

// Masks as bits: bit b of word w is mask 32 * w + b.
struct MaskBits {
    const u32* words;
};

DEVICE MaskBits operator+(MaskBits bits, u32 quads) { return {bits.words + quads / 8}; }
DEVICE MaskBits& operator+=(MaskBits& bits, u32 quads) { return bits = bits + quads; }
DEVICE MaskBits& operator-=(MaskBits& bits, u32 quads) { return bits = {bits.words - quads / 8}; }

template <u32 COUNT>
struct OpenedBits {
    u32 word[(COUNT + 7) / 8];

    __device__ __forceinline__ Quad operator[](u32 index) const {
        Quad quad;
        FULL_UNROLL
        for (u32 j = 0; j < 4; j++) quad.x[j] = (u32)((int)(word[index / 8] << (31 - (index % 8 * 4 + j))) >> 31);
        return quad;
    }
};

template <u32 COUNT>
DEVICE OpenedBits<COUNT> opened(MaskBits bits) {
    OpenedBits<COUNT> held;
    FULL_UNROLL
    for (u32 i = 0; i < (COUNT + 7) / 8; i++) held.word[i] = same_in_warp(bits.words[i]);
    return held;
}

// Masks in shared memory. One is added as x * sign + mask, where sign = mask * two + 1 is 1 or -1: two multiply-adds.
// `two` comes from where the compiler does not see it: it would make a shift of the first, for the logic pipe.
struct Multipliers {
    const Quad* quads;
    u32 two;

    __device__ __forceinline__ const Quad& operator[](u32 index) const { return quads[index]; }
};

DEVICE Multipliers operator+(Multipliers masks, u32 quads) { return {masks.quads + quads, masks.two}; }
DEVICE Multipliers& operator+=(Multipliers& masks, u32 quads) { return masks = masks + quads; }
DEVICE Multipliers& operator-=(Multipliers& masks, u32 quads) { return masks = {masks.quads - quads, masks.two}; }

template <u32 COUNT>
DEVICE Multipliers opened(Multipliers masks) {
    return masks;
}

DEVICE void add_mask(Word& x, u32 mask, const Multipliers& masks) {
#if defined(GPU_EMULATED)
    x = x * (mask * masks.two + 1) + mask;
#else
    asm("{\n\t"
        ".reg .u32 sign;\n\t"
        "mad.lo.u32 sign, %1, %2, 1;\n\t"
        "mad.lo.u32 %0, %0, sign, %1;\n\t"
        "}"
        : "+r"(x)
        : "r"(mask), "r"(masks.two));
#endif
}

// x >> SHIFT as the upper half of a product.
template <u32 SHIFT>
DEVICE u32 shifted_down(u32 x) {
#if MULTIPLIED && !defined(GPU_EMULATED)
    u32 high;
    asm("mul.hi.u32 %0, %1, %2;" : "=r"(high) : "r"(x), "n"(1u << (32 - SHIFT)));
    return high;
#else
    return x >> SHIFT;
#endif
}

// The fields of a SHIFT above those of `fields`, and those of b in `fields`, change places.
template <u32 SHIFT>
DEVICE void change_fields(u32& a, u32& b, u32 fields) {
    const u32 up = b << SHIFT, down = shifted_down<SHIFT>(a);
    a = lut<SELECT>(a, up, fields);
    b = lut<SELECT>(down, b, fields);
}

// transpose32 (bitslice.cuh) with two functions an exchange, where `exchange` has three.
DEVICE void turn32(u32* x) {
    exchange_bytes(x);
    FULL_UNROLL
    for (u32 i = 0; i < 32; i++)
        if (!(i & 4)) change_fields<4>(x[i], x[i + 4], 0x0f0f0f0f);
    FULL_UNROLL
    for (u32 i = 0; i < 32; i++)
        if (!(i & 2)) change_fields<2>(x[i], x[i + 2], 0x33333333);
    FULL_UNROLL
    for (u32 i = 0; i < 32; i++)
        if (!(i & 1)) change_fields<1>(x[i], x[i + 1], 0x55555555);
}

#endif
