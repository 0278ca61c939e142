// Lets g++ compile the GPU's branches of kernels that use no inline assembly and no other thread's values: put in front of
// a plugin's source by -include. A caller sets the indices and calls the kernel once for each thread.
#pragma once
#define __CUDACC_RTC__
#define __device__
#define __global__
#define __constant__
#define __forceinline__ inline __attribute__((always_inline, unused))
#define __noinline__ __attribute__((noinline, unused))
#define __launch_bounds__(...)

struct uint4 {
    unsigned x, y, z, w;
};
struct Index {
    unsigned x;
};
extern "C" {
Index threadIdx, blockIdx, gridDim;
}

static inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
    return (unsigned)(((unsigned long long)high << 32 | low) << (shift & 31) >> 32);
}
static inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
    return (unsigned)(((unsigned long long)high << 32 | low) >> (shift & 31));
}
static inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selector) {
    const unsigned long long bytes = (unsigned long long)b << 32 | a;
    unsigned r = 0;
    for (unsigned i = 0; i < 4; i++) r |= (unsigned)(bytes >> 8 * (selector >> 4 * i & 7) & 0xff) << 8 * i;
    return r;
}
static inline unsigned __ballot_sync(unsigned, bool) { return 0; }  // publish is compiled, never called
