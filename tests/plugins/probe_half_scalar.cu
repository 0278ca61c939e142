// half_scalars, for a test: 4 + 4 words, whether b is negative, whether there is a result.
#include "half_scalar.cuh"

EXPORT void probe_half_scalars(const u32* t, const u32* n, u32* result) {
    Words a, modulus;
    for (u32 i = 0; i < 8; i++) a.w[i] = t[i], modulus.w[i] = n[i];
    const HalfScalars half = half_scalars(a, modulus);
    for (u32 i = 0; i < 4; i++) result[i] = half.a[i], result[4 + i] = half.b[i];
    result[8] = half.negative, result[9] = half.found;
}
