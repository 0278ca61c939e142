// Eight 64-bit numbers of eight items at once, and the two multiply-adds of AVX-512 IFMA on their lower 52 bits.
//
// With LANES_PORTABLE the multiply-adds are plain C++, for tests on other CPUs. It is slower than item by item.
#pragma once
#include "words.cuh"

#ifndef ITEM_LANES
#define ITEM_LANES 1
#endif

// Builds that count operations or emulate a GPU's field go item by item.
#if !TARGET_GPU && ITEM_LANES > 1 && (defined(__AVX512F__) || defined(LANES_PORTABLE)) && \
    !defined(COUNT_OPERATIONS) && !defined(EMULATE_GPU_FIELD)
#define HAS_LANES 1
#else
#define HAS_LANES 0
#endif

// What calls the multiply-adds, or may be inlined with them, is compiled for CPUs that have them.
#if HAS_LANES && !defined(LANES_PORTABLE)
#define WITH_IFMA __attribute__((target("avx512ifma")))
#else
#define WITH_IFMA
#endif

#if HAS_LANES

constexpr u32 LANE_COUNT = 8;

typedef u64 Lanes __attribute__((vector_size(8 * LANE_COUNT)));
typedef long long SignedLanes __attribute__((vector_size(8 * LANE_COUNT)));
typedef u32 NarrowLanes __attribute__((vector_size(4 * LANE_COUNT)));

// Vectors in and out of functions that are inlined are no matter of the calling convention.
#if !defined(__clang__)
#pragma GCC diagnostic ignored "-Wpsabi"
#endif

DEVICE Lanes every_lane(u64 value) { return Lanes{} + value; }
DEVICE Lanes lane_numbers() { return Lanes{0, 1, 2, 3, 4, 5, 6, 7}; }
DEVICE Lanes signed_shift(const Lanes& a, u32 bits) { return (Lanes)((SignedLanes)a >> bits); }
DEVICE Lanes select(const Lanes& mask, const Lanes& a, const Lanes& b) { return (a & mask) | (b & ~mask); }

DEVICE bool any(const Lanes& mask) {
    u64 found = 0;
    LIMBS for (u32 k = 0; k < LANE_COUNT; k++) found |= mask[k];
    return found != 0;
}

// sum + the lower 52 bits of the product of 52-bit numbers, and sum + what is above them.
#if defined(LANES_PORTABLE)
DEVICE Lanes add_low_product(const Lanes& sum, const Lanes& a, const Lanes& b) {
    Lanes r = sum;
    for (u32 k = 0; k < LANE_COUNT; k++) r[k] += a[k] * b[k] & ((1ull << 52) - 1);
    return r;
}
DEVICE Lanes add_high_product(const Lanes& sum, const Lanes& a, const Lanes& b) {
    Lanes r = sum;
    for (u32 k = 0; k < LANE_COUNT; k++) r[k] += (u64)((unsigned __int128)a[k] * b[k] >> 52);
    return r;
}
#else
#if defined(__clang__)
#define IFMA(half, sum, a, b) \
    (Lanes) __builtin_ia32_vpmadd52##half##uq512((SignedLanes)(sum), (SignedLanes)(a), (SignedLanes)(b))
#else
#define IFMA(half, sum, a, b) \
    (Lanes) __builtin_ia32_vpmadd52##half##uq512_mask((SignedLanes)(sum), (SignedLanes)(a), (SignedLanes)(b), 255)
#endif
DEVICE WITH_IFMA Lanes add_low_product(const Lanes& sum, const Lanes& a, const Lanes& b) { return IFMA(l, sum, a, b); }
DEVICE WITH_IFMA Lanes add_high_product(const Lanes& sum, const Lanes& a, const Lanes& b) {
    return IFMA(h, sum, a, b);
}
#endif

// base[index[k]] for each lane k.
DEVICE Lanes gather(const u64* base, const Lanes& index) {
#if defined(__AVX512F__)
    return (Lanes)__builtin_ia32_gatherdiv8di(SignedLanes{}, base, (SignedLanes)index, 255, 8);
#else
    Lanes r;
    for (u32 k = 0; k < LANE_COUNT; k++) r[k] = base[index[k]];
    return r;
#endif
}

#if defined(LANES_PORTABLE)
DEVICE bool lanes_run() { return true; }
#else
// CPUID leaf 7, EBX bit 21. What the library is built for says that the system keeps vectors.
static bool find_ifma() {
    u32 a = 7, b, c = 0, d;
    asm volatile("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
    return b >> 21 & 1;
}

// Asked once, when the library is loaded.
static const bool IFMA_RUNS = find_ifma();
DEVICE bool lanes_run() { return IFMA_RUNS; }
#endif

#endif
