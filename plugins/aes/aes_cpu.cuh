// AES with the processor's instructions, where it has them; else with the tables. x86 only.
#pragma once
#include "aes.cuh"
#include "modes.cuh"

#if !TARGET_GPU && defined(__x86_64__)

typedef long long AesBlock __attribute__((vector_size(16)));

#define WITH_AES __attribute__((target("aes,sse4.1")))
// Four blocks a vector. The two compilers name the instructions differently.
#if defined(__AVX512F__) && (!defined(__clang__) || __has_builtin(__builtin_ia32_aesenc512))
#define WITH_WIDE_AES __attribute__((target("vaes,avx512f")))
#if defined(__clang__)
typedef long long AesBlocks __attribute__((vector_size(64)));
#define WIDE_AES(step, x, key) __builtin_ia32_##step##512(x, key)
#else
typedef char AesBlocks __attribute__((vector_size(64)));
#define WIDE_AES(step, x, key) (AesBlocks) __builtin_ia32_v##step##_v64qi(x, key)
#endif
#endif

struct AesInstructions {
    bool narrow, wide;
};

// CPUID leaf 1, ECX bit 25, and leaf 7, ECX bit 9. What the library is built for says that the system keeps vectors.
DEVICE AesInstructions aes_instructions() {
    u32 a = 1, b, c = 0, d;
    asm volatile("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
    const bool narrow = c >> 25 & 1;
    a = 7, c = 0;
    asm volatile("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
    return {narrow, narrow && (c >> 9 & 1)};
}

// Eight blocks at once hide an instruction's latency.
template <bool DECRYPT>
WITH_AES static void aes_run_stripe(const AesKeys& keys, u8* blocks) {
    AesBlock round[15];
    for (u32 i = 0; i <= keys.rounds; i++) __builtin_memcpy(&round[i], keys.word + 4 * i, 16);
    for (u32 first = 0; first < STRIPE_BLOCKS; first += 8) {
        AesBlock x[8];
        __builtin_memcpy(x, blocks + 16 * first, sizeof x);
        FULL_UNROLL
        for (u32 i = 0; i < 8; i++) x[i] ^= round[0];
        for (u32 r = 1; r < keys.rounds; r++) {
            FULL_UNROLL
            for (u32 i = 0; i < 8; i++)
                x[i] = DECRYPT ? __builtin_ia32_aesdec128(x[i], round[r]) : __builtin_ia32_aesenc128(x[i], round[r]);
        }
        FULL_UNROLL
        for (u32 i = 0; i < 8; i++)
            x[i] = DECRYPT ? __builtin_ia32_aesdeclast128(x[i], round[keys.rounds])
                           : __builtin_ia32_aesenclast128(x[i], round[keys.rounds]);
        __builtin_memcpy(blocks + 16 * first, x, sizeof x);
    }
    wipe(round, sizeof round);
}

#if defined(WITH_WIDE_AES)
// `wide` are the round keys, each four times. A stripe is eight vectors.
template <bool DECRYPT>
WITH_WIDE_AES static void aes_run_wide(const AesBlocks* wide, u32 rounds, u8* blocks) {
    AesBlocks x[8];
    __builtin_memcpy(x, blocks, sizeof x);
    FULL_UNROLL
    for (u32 i = 0; i < 8; i++) x[i] ^= wide[0];
    for (u32 r = 1; r < rounds; r++) {
        const AesBlocks key = wide[r];
        FULL_UNROLL
        for (u32 i = 0; i < 8; i++)
            x[i] = DECRYPT ? WIDE_AES(aesdec, x[i], key) : WIDE_AES(aesenc, x[i], key);
    }
    FULL_UNROLL
    for (u32 i = 0; i < 8; i++)
        x[i] = DECRYPT ? WIDE_AES(aesdeclast, x[i], wide[rounds]) : WIDE_AES(aesenclast, x[i], wide[rounds]);
    __builtin_memcpy(blocks, x, sizeof x);
}
#endif

template <class C, bool DECRYPT>
struct InstructionGroup {
    static constexpr u32 GROUP = 1, BLOCK = 16;
    DirectGroup<C, DECRYPT> direct;
    AesInstructions has;
#if defined(WITH_WIDE_AES)
    AesBlocks wide[15];
#endif

    void open(const Batch& batch) {
        has = aes_instructions();
        direct.open(batch);
#if defined(WITH_WIDE_AES)
        for (u32 i = 0; i <= direct.keys.rounds; i++)
            for (u32 j = 0; j < 4; j++) __builtin_memcpy((u8*)&wide[i] + 16 * j, direct.keys.word + 4 * i, 16);
#endif
    }

    void run(u8* blocks) {
#if defined(WITH_WIDE_AES)
        if (has.wide) return aes_run_wide<DECRYPT>(wide, direct.keys.rounds, blocks);
#endif
        if (has.narrow)
            aes_run_stripe<DECRYPT>(direct.keys, blocks);
        else
            direct.template run<GROUP>(blocks);
    }
};

#endif
