// Bit-sliced words: bit i of a word belongs to block i, and word k holds bit k of every block.
//
// On a GPU a word is 32 bits and a thread works on 32 blocks. On the CPU a word is the compiler's vector of as
// many 32-bit lanes as the target has, and a thread works on 32 blocks a lane. A block's bit k is bit k % 8 of its
// byte k / 8, bytes in memory order.
#pragma once
#include "abi.cuh"

#if TARGET_GPU
#define FULL_UNROLL _Pragma("unroll")
constexpr u32 LANES = 1;
typedef u32 Word;
#else
#if defined(__clang__)
#define FULL_UNROLL _Pragma("unroll")
#else
#define FULL_UNROLL _Pragma("GCC unroll 128")
#endif
#if defined(__AVX512F__)
constexpr u32 LANES = 16;
#elif defined(__AVX2__)
constexpr u32 LANES = 8;
#else
constexpr u32 LANES = 4;
#endif
typedef u32 Word __attribute__((vector_size(4 * LANES)));
#endif

// Four masks, each all zeros or all ones: what a thread loads at once.
struct alignas(16) Quad {
    u32 x[4];
};

// A step's masks, opened where the step begins: a pointer already is (masks_gpu.cuh has another kind).
template <u32 COUNT>
DEVICE const Quad* opened(const Quad* masks) {
    return masks;
}

DEVICE u32 mask_of(u32 value, u32 bit) { return 0u - (value >> bit & 1u); }

template <u32 SHIFT>
DEVICE void exchange(Word& a, Word& b, u32 mask) {
    const Word t = ((a >> SHIFT) ^ b) & mask;
    b ^= t;
    a ^= t << SHIFT;
}

#if TARGET_GPU
// The exchanges by 16 and by 8 of a transposition: whole bytes, an instruction a word.
DEVICE void exchange_bytes(u32* x) {
    FULL_UNROLL
    for (u32 i = 0; i < 16; i++) {
        const u32 a = x[i], b = x[i + 16];
        x[i] = __byte_perm(a, b, 0x5410);
        x[i + 16] = __byte_perm(a, b, 0x7632);
    }
    FULL_UNROLL
    for (u32 i = 0; i < 32; i++) {
        if (i & 8) continue;
        const u32 a = x[i], b = x[i + 8];
        x[i] = __byte_perm(a, b, 0x6240);
        x[i + 8] = __byte_perm(a, b, 0x7351);
    }
}
#endif

// Bit j of x[i] and bit i of x[j] change places, for all i and j below 32.
DEVICE void transpose32(Word* x) {
#if TARGET_GPU
    exchange_bytes(x);
#else
    FULL_UNROLL
    for (u32 i = 0; i < 16; i++) exchange<16>(x[i], x[i + 16], 0x0000ffffu);
    FULL_UNROLL
    for (u32 i = 0; i < 32; i++)
        if (!(i & 8)) exchange<8>(x[i], x[i + 8], 0x00ff00ffu);
#endif
    FULL_UNROLL
    for (u32 i = 0; i < 32; i++)
        if (!(i & 4)) exchange<4>(x[i], x[i + 4], 0x0f0f0f0fu);
    FULL_UNROLL
    for (u32 i = 0; i < 32; i++)
        if (!(i & 2)) exchange<2>(x[i], x[i + 2], 0x33333333u);
    FULL_UNROLL
    for (u32 i = 0; i < 32; i++)
        if (!(i & 1)) exchange<1>(x[i], x[i + 1], 0x55555555u);
}

#if !TARGET_GPU

// Picks lanes of two vectors joined: unpack<HALF, WIDTH> interleaves groups of WIDTH lanes within each 16 bytes,
// taking the low (HALF 0) or the high half of each. It is its own kind: two layers of it transpose 4 x 4 lanes.
template <u32 HALF, u32 WIDTH>
DEVICE Word unpack(Word a, Word b) {
    Word pick;
    FULL_UNROLL
    for (u32 i = 0; i < LANES; i++) {
        const u32 base = i / 4 * 4, k = i % 4;
        const u32 from = WIDTH == 1 ? HALF * 2 + k / 2 : HALF * 2 + k % 2;
        const u32 second = WIDTH == 1 ? k % 2 : k / 2;
#if defined(__clang__)
        pick[i] = second ? b[base + from] : a[base + from];
    }
    return pick;
#else
        pick[i] = base + from + second * LANES;
    }
    return __builtin_shuffle(a, b, pick);
#endif
}

DEVICE Word load_word(const u8* from) {
    Word word;
    __builtin_memcpy(&word, from, sizeof(Word));
    return word;
}

DEVICE void store_word(u8* to, Word word) { __builtin_memcpy(to, &word, sizeof(Word)); }

// 4 x 4 transpose of the 32-bit lanes in each 16 bytes of four vectors; its own inverse.
DEVICE void transpose4(Word& a, Word& b, Word& c, Word& d) {
    const Word ab = unpack<0, 1>(a, b), AB = unpack<1, 1>(a, b), cd = unpack<0, 1>(c, d), CD = unpack<1, 1>(c, d);
    a = unpack<0, 2>(ab, cd);
    b = unpack<1, 2>(ab, cd);
    c = unpack<0, 2>(AB, CD);
    d = unpack<1, 2>(AB, CD);
}

// Reads 32 * LANES blocks of BITS bits into sliced form. Which block becomes which bit is free as long as `unslice`
// undoes it.
template <u32 BITS>
DEVICE void slice(Word (&s)[BITS], const u8* blocks) {
    constexpr u32 WORDS = BITS / 32;  // of a block: 4 or 2
    NO_UNROLL
    for (u32 i = 0; i < 32; i += 4 / WORDS) {
        const u8* const from = blocks + i * LANES * 4 * WORDS;
        Word a = load_word(from), b = load_word(from + sizeof(Word));
        Word c = load_word(from + 2 * sizeof(Word)), d = load_word(from + 3 * sizeof(Word));
        transpose4(a, b, c, d);
        if constexpr (WORDS == 4) {
            s[i] = a, s[32 + i] = b, s[64 + i] = c, s[96 + i] = d;
        } else {
            s[i] = a, s[32 + i] = b, s[i + 1] = c, s[33 + i] = d;
        }
    }
    NO_UNROLL
    for (u32 j = 0; j < WORDS; j++) transpose32(s + 32 * j);
}

template <u32 BITS>
DEVICE void unslice(u8* blocks, Word (&s)[BITS]) {
    constexpr u32 WORDS = BITS / 32;
    NO_UNROLL
    for (u32 j = 0; j < WORDS; j++) transpose32(s + 32 * j);
    NO_UNROLL
    for (u32 i = 0; i < 32; i += 4 / WORDS) {
        u8* const to = blocks + i * LANES * 4 * WORDS;
        Word a, b, c, d;
        if constexpr (WORDS == 4) {
            a = s[i], b = s[32 + i], c = s[64 + i], d = s[96 + i];
        } else {
            a = s[i], b = s[32 + i], c = s[i + 1], d = s[33 + i];
        }
        transpose4(a, b, c, d);
        store_word(to, a), store_word(to + sizeof(Word), b);
        store_word(to + 2 * sizeof(Word), c), store_word(to + 3 * sizeof(Word), d);
    }
}

#endif
