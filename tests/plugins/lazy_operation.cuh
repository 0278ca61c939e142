// The operations that every field has, one or eight elements at once, by the numbers of _field_operations.py.
#pragma once
#include "field_primes.cuh"

#define LAZY_OPERATIONS(F, r, x, y, z, mask, flags)         \
    case 0: r = F::mul(x, y, flags); break;                 \
    case 1: r = F::sqr(x, flags); break;                    \
    case 2: r = F::add(x, y, flags); break;                 \
    case 3: r = F::twice(x, flags); break;                  \
    case 4: r = F::triple(x, flags); break;                 \
    case 5: r = F::triple_add(x, y, flags); break;          \
    case 6: r = F::sub(x, y, flags); break;                 \
    case 7: r = F::sub_twice(x, y, flags); break;           \
    case 8: r = F::sub_sub(x, y, z, flags); break;          \
    case 9: r = F::sub_sub_twice(x, y, z, flags); break;    \
    case 10: r = F::half(x); break;                         \
    case 11: r = F::negate_if(x, mask, flags); break;
