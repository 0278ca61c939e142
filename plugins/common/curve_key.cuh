// Public keys as points: what is still to be checked after the parser, and decompression.
#pragma once
#include "curve_points.cuh"
#include "encodings.cuh"

// Makes of a parsed key an affine point of the curve, or says why it is none.
template <class C>
DEVICE Code settle_key(PublicKey& key) {
    const Words p = C::Field::Prime::p();
    if (!less(key.x, p) || !less(key.y, p)) return KEY_RANGE;
    const bool point = key.compressed ? decompress<C>(key.y, key.x, key.odd) : on_curve<C>(key.x, key.y);
    return point ? UNDECIDED : KEY_NOT_ON_CURVE;
}
