// inverse_modulo, for a test: 8 words of a number and of a modulus.
#include "inverse.cuh"

EXPORT void probe_inverse(const u32* a, const u32* m, u32 negative_inverse, u32* result) {
    Words number, modulus;
    for (u32 i = 0; i < 8; i++) number.w[i] = a[i], modulus.w[i] = m[i];
    const Words inverse = inverse_modulo(number, modulus, negative_inverse);
    for (u32 i = 0; i < 8; i++) result[i] = inverse.w[i];
}
