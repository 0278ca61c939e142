// Lets g++ compile the GPU's branches of a plugin's source, put in front of it by -include. gpu_emulator.cpp runs them:
// threads of a block take turns, so barriers, votes and shuffles are what they are on a GPU. Inline PTX is not emulated.
#pragma once
#define __CUDACC_RTC__
#define GPU_EMULATED
#define __device__
#define __global__
#define __constant__
#define __shared__
#define __forceinline__ inline __attribute__((always_inline, unused))
#define __noinline__ __attribute__((noinline, unused))
#define __launch_bounds__(...)

struct uint4 {
    unsigned x, y, z, w;
};
struct uint2 {
    unsigned x, y;
};
static inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
static inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }

struct Index {
    unsigned x;
};
extern "C" {
extern Index threadIdx, blockIdx, gridDim;
void emulated_barrier();
unsigned emulated_ballot(int vote);
unsigned emulated_or(unsigned word);
unsigned emulated_shuffle_xor(unsigned word, unsigned distance);
}
#define __syncthreads emulated_barrier
#define __syncwarp() emulated_ballot(0)
#define __ballot_sync(members, vote) emulated_ballot(vote)
#define __reduce_or_sync(members, word) emulated_or(word)
#define __shfl_xor_sync(members, word, distance) emulated_shuffle_xor(word, distance)
#define __ldg(address) (*(address))

static inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
    return (unsigned)(((unsigned long long)high << 32 | low) << (shift & 31) >> 32);
}
static inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
    return (unsigned)(((unsigned long long)high << 32 | low) >> (shift & 31));
}
static inline int __clz(unsigned a) { return a ? __builtin_clz(a) : 32; }
static inline unsigned __brev(unsigned a) {
    unsigned reversed = 0;
    for (unsigned i = 0; i < 32; i++) reversed |= (a >> i & 1) << (31 - i);
    return reversed;
}
static inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selector) {
    const unsigned long long bytes = (unsigned long long)b << 32 | a;
    unsigned picked = 0;
    for (unsigned i = 0; i < 4; i++)
        picked |= (unsigned)(bytes >> 8 * (selector >> 4 * i & 7) & 0xff) << 8 * i;
    return picked;
}
