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

// A key whose root may be taken LATER, with those of other items (curve_key_lanes.cuh).
template <class C, bool LATER>
struct AwaitedKey {
    bool awaits = false;

    // As settle_key, but for a root.
    DEVICE Code settle(AwaitedKey& self, PublicKey& key) {
        if constexpr (LATER) {
            self.awaits = key.compressed && less(key.x, C::Field::Prime::p());
            if (self.awaits) return UNDECIDED;
        }
        return settle_key<C>(key);
    }

    // An item is rejected: no key is what it says first.
    DEVICE Code reject(AwaitedKey& self, PublicKey& key, Code code) {
        if constexpr (LATER) {
            if (!self.awaits) return code;
            self.awaits = false;
            const Code of_key = settle_key<C>(key);
            if (of_key) return of_key;
        }
        return code;
    }
};
