// AES with the processor's instructions, where it has them; else with the tables. x86 only.
#pragma once
#include "aes.cuh"
#include "modes.cuh"

#if !TARGET_GPU && defined(__x86_64__)

typedef long long AesBlock __attribute__((vector_size(16)));

#define WITH_AES __attribute__((target("aes,sse4.1")))
// Four blocks a vector, two where there is no AVX-512. The two compilers name the instructions differently.
#if defined(__AVX512F__) && (!defined(__clang__) || __has_builtin(__builtin_ia32_aesenc512))
#define WITH_WIDE_AES __attribute__((target("vaes,avx512f")))
#if defined(__clang__)
typedef long long AesBlocks __attribute__((vector_size(64)));
#define WIDE_AES(step, x, key) __builtin_ia32_##step##512(x, key)
#else
typedef char AesBlocks __attribute__((vector_size(64)));
#define WIDE_AES(step, x, key) (AesBlocks) __builtin_ia32_v##step##_v64qi(x, key)
#endif
#elif defined(__AVX2__) && (!defined(__clang__) || __has_builtin(__builtin_ia32_aesenc256))
#define WITH_WIDE_AES __attribute__((target("vaes,avx2")))
#if defined(__clang__)
typedef long long AesBlocks __attribute__((vector_size(32)));
#define WIDE_AES(step, x, key) __builtin_ia32_##step##256(x, key)
#else
typedef char AesBlocks __attribute__((vector_size(32)));
#define WIDE_AES(step, x, key) (AesBlocks) __builtin_ia32_v##step##_v32qi(x, key)
#endif
#endif

struct AesInstructions {
    bool narrow, wide;
};

// CPUID leaf 1, ECX bit 25, and leaf 7, ECX bit 9. What the library is built for says that the system keeps vectors.
static AesInstructions aes_find_instructions() {
    u32 a = 1, b, c = 0, d;
    asm volatile("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
    const bool narrow = c >> 25 & 1;
    a = 7, c = 0;
    asm volatile("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
    return {narrow, narrow && (c >> 9 & 1)};
}

// Asked once, when the library is loaded: in a virtual machine CPUID leaves it, for longer than a stripe takes.
static const AesInstructions AES_INSTRUCTIONS = aes_find_instructions();

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
// Eight vectors at once hide an instruction's latency: a stripe of AVX-512's, half of one of AVX2's.
constexpr u32 AES_WIDE_BLOCKS = sizeof(AesBlocks) / 16, AES_WIDE_BYTES = 8 * sizeof(AesBlocks);

// Eight vectors through ROUNDS rounds. `wide` are the round keys, each once a block.
template <bool DECRYPT, u32 ROUNDS>
WITH_WIDE_AES DEVICE void aes_wide_rounds(AesBlocks (&x)[8], const AesBlocks* wide) {
    FULL_UNROLL
    for (u32 i = 0; i < 8; i++) x[i] ^= wide[0];
    FULL_UNROLL
    for (u32 r = 1; r < ROUNDS; r++) {
        const AesBlocks key = wide[r];
        FULL_UNROLL
        for (u32 i = 0; i < 8; i++)
            x[i] = DECRYPT ? WIDE_AES(aesdec, x[i], key) : WIDE_AES(aesenc, x[i], key);
    }
    FULL_UNROLL
    for (u32 i = 0; i < 8; i++)
        x[i] = DECRYPT ? WIDE_AES(aesdeclast, x[i], wide[ROUNDS]) : WIDE_AES(aesenclast, x[i], wide[ROUNDS]);
}

template <bool DECRYPT>
WITH_WIDE_AES DEVICE void aes_wide(AesBlocks (&x)[8], const AesBlocks* wide, u32 rounds) {
    if (rounds == 10)
        aes_wide_rounds<DECRYPT, 10>(x, wide);
    else if (rounds == 12)
        aes_wide_rounds<DECRYPT, 12>(x, wide);
    else
        aes_wide_rounds<DECRYPT, 14>(x, wide);
}

template <bool DECRYPT>
WITH_WIDE_AES static void aes_run_wide(const AesBlocks* wide, u32 rounds, u8* blocks) {
    for (u32 at = 0; at < STRIPE_BLOCKS * 16; at += AES_WIDE_BYTES) {
        AesBlocks x[8];
        __builtin_memcpy(x, blocks + at, sizeof x);
        aes_wide<DECRYPT>(x, wide, rounds);
        __builtin_memcpy(blocks + at, x, sizeof x);
    }
}

// A stripe of counter mode: the keystream never leaves the registers.
WITH_WIDE_AES static void aes_ctr_wide(const AesBlocks* wide, u32 rounds, const u8* counter, const u8* in, u8* out) {
    constexpr u32 AHEAD = 4 * STRIPE_BLOCKS * 16;  // what comes from memory is asked for four stripes early
    FULL_UNROLL
    for (u32 i = 0; i < 8; i++) __builtin_prefetch(in + AHEAD + 64 * i), __builtin_prefetch(out + AHEAD + 64 * i, 1);
    alignas(64) u8 counters[STRIPE_BLOCKS * 16];
    write_counters<16>(counters, counter);
    for (u32 at = 0; at < sizeof counters; at += AES_WIDE_BYTES) {
        AesBlocks x[8], data[8];
        __builtin_memcpy(x, counters + at, sizeof x);
        aes_wide<false>(x, wide, rounds);
        __builtin_memcpy(data, in + at, sizeof data);
        FULL_UNROLL
        for (u32 i = 0; i < 8; i++) x[i] ^= data[i];
        __builtin_memcpy(out + at, x, sizeof x);
    }
}
#endif

template <class C, bool DECRYPT>
struct InstructionGroup {
    static constexpr u32 GROUP = 1, BLOCK = 16;
    static constexpr bool HAS_CTR = true;
    DirectGroup<C, DECRYPT> direct;
#if defined(WITH_WIDE_AES)
    AesBlocks wide[15];
#endif

    void open(const Batch& batch) {
        direct.open(batch);
#if defined(WITH_WIDE_AES)
        for (u32 i = 0; i <= direct.keys.rounds; i++)
            for (u32 j = 0; j < AES_WIDE_BLOCKS; j++) __builtin_memcpy((u8*)&wide[i] + 16 * j, direct.keys.word + 4 * i, 16);
#endif
    }

    void run(u8* blocks) {
#if defined(WITH_WIDE_AES)
        if (AES_INSTRUCTIONS.wide) return aes_run_wide<DECRYPT>(wide, direct.keys.rounds, blocks);
#endif
        if (AES_INSTRUCTIONS.narrow)
            aes_run_stripe<DECRYPT>(direct.keys, blocks);
        else
            direct.template run<GROUP>(blocks);
    }

    void ctr(const u8* counter, const u8* in, u8* out) {
#if defined(WITH_WIDE_AES)
        if (AES_INSTRUCTIONS.wide) return aes_ctr_wide(wide, direct.keys.rounds, counter, in, out);
#endif
        alignas(64) u8 stream[STRIPE_BLOCKS * BLOCK];
        write_counters<BLOCK>(stream, counter);
        run(stream);
        xor_bytes(out, stream, in, sizeof stream);
    }
};

#endif
