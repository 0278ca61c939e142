// Any function of three bits on words: one instruction on GPUs and with AVX-512.
#pragma once
#include "bitslice.cuh"

// Bit 2p + q of FUNCTION is the value for a's bit p and b's bit q.
template <u32 FUNCTION>
DEVICE Word lut2(Word a, Word b) {
    constexpr u32 f = FUNCTION;
    if constexpr (f == 0x0) return a ^ a;
    if constexpr (f == 0x1) return ~(a | b);
    if constexpr (f == 0x2) return ~a & b;
    if constexpr (f == 0x3) return ~a;
    if constexpr (f == 0x4) return a & ~b;
    if constexpr (f == 0x5) return ~b;
    if constexpr (f == 0x6) return a ^ b;
    if constexpr (f == 0x7) return ~(a & b);
    if constexpr (f == 0x8) return a & b;
    if constexpr (f == 0x9) return ~(a ^ b);
    if constexpr (f == 0xa) return b;
    if constexpr (f == 0xb) return ~a | b;
    if constexpr (f == 0xc) return a;
    if constexpr (f == 0xd) return a | ~b;
    if constexpr (f == 0xe) return a | b;
    if constexpr (f == 0xf) return ~(a ^ a);
}

// Whether sliced ciphers name their three-input functions themselves. Compilers find most of them, not all; the GPU
// builds that were measured before are left as they are.
#if (TARGET_GPU && defined(STRIDED) && STRIDED) || (!TARGET_GPU && defined(__AVX512F__))
#define NAMED_LOGIC 1
#else
#define NAMED_LOGIC 0
#endif

// What the multiplier's pipe of a GPU, which sliced ciphers leave idle, takes off the logic pipe, which bounds them: 0
// nothing, 1 the shifts of transposes, 2 also additions of round keys.
#if NAMED_LOGIC && TARGET_GPU
#ifndef MULTIPLIED
#if defined(UNIFORM_MASKS) && UNIFORM_MASKS  // which is another way for the keys
#define MULTIPLIED 1
#else
#define MULTIPLIED 2
#endif
#endif
#else
#undef MULTIPLIED
#define MULTIPLIED 0
#endif

// A mask as a word, in every lane.
DEVICE Word all_lanes(u32 mask) {
#if TARGET_GPU
    return mask;
#else
    return (Word){} | mask;
#endif
}

// x ^= mask, by the logic pipe unless `masks` has another way (masks_gpu.cuh).
template <class Masks>
DEVICE void add_mask(Word& x, u32 mask, const Masks&) {
    x ^= mask;
}

enum : u32 { XOR3 = 0x96, XNOR3 = 0x69, XNOR2 = 0xc3, MAJORITY = 0xe8, SELECT = 0xe4 };  // SELECT: of a and b where c is 1 and 0

// Bit 4p + 2q + r of TABLE is the value for the bits p, q and r of a, b and c.
template <u32 TABLE>
DEVICE Word lut(Word a, Word b, Word c) {
#if TARGET_GPU && !defined(GPU_EMULATED)  // tests compile this branch for the CPU
    u32 r;
    asm("lop3.b32 %0, %1, %2, %3, %4;" : "=r"(r) : "r"(a), "r"(b), "r"(c), "n"(TABLE));
    return r;
#elif defined(__AVX512F__) && __has_builtin(__builtin_ia32_pternlogd512_mask)
    typedef int Signed __attribute__((vector_size(64)));
    return (Word)__builtin_ia32_pternlogd512_mask((Signed)a, (Signed)b, (Signed)c, TABLE, (unsigned short)-1);
#else
    // Where c is 0, and what c changes.
    constexpr u32 zero = (TABLE & 1) | (TABLE >> 2 & 1) << 1 | (TABLE >> 4 & 1) << 2 | (TABLE >> 6 & 1) << 3;
    constexpr u32 one = (TABLE >> 1 & 1) | (TABLE >> 3 & 1) << 1 | (TABLE >> 5 & 1) << 2 | (TABLE >> 7 & 1) << 3;
    if constexpr (zero == one) return lut2<zero>(a, b);
    if constexpr ((zero ^ one) == 15) return lut2<zero>(a, b) ^ c;
    if constexpr (zero == 0) return lut2<one>(a, b) & c;
    if constexpr (one == 15) return lut2<zero>(a, b) | c;
    return lut2<zero>(a, b) ^ (lut2<zero ^ one>(a, b) & c);
#endif
}
