// 1 / a in a curve's field by division steps.
#pragma once
#include "field.cuh"
#include "inverse.cuh"

// -1 / p modulo 2^32 for odd p: x = p is right in three bits, and every step doubles them.
DEVICE constexpr u32 negative_inverse_of(u32 p) {
    u32 x = p;
    for (u32 bits = 3; bits < 32; bits *= 2) x *= 2 - p * x;
    return 0u - x;
}

// Zero gives zero. No product of the field but those that correct the form: with the radix R the element a R gives
// 1 / (a R), which R^2 is to be multiplied to.
template <class F>
DEVICE_CALL typename F::Element invert_by_steps(const typename F::Element a) {
    typedef Exact<F> E;
    COUNT(inversions);
    constexpr Words p = F::Prime::p();
    const Words inverse = inverse_modulo(F::to_plain(F::canonical(a)), p, negative_inverse_of(p.w[0]));
    return E::from_words(F::to_plain(E::from_words(inverse)));
}
