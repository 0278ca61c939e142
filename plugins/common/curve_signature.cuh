// Signatures (r, s) as scalars: what is still to be checked after the parser.
#pragma once
#include "encodings.cuh"
#include "scalar.cuh"

// Parses a signature whose r and s must be in [1, n), and s in the lower half where that is required.
template <class Order>
DEVICE Code take_signature(SignatureEncoding encoding, LowS low_s, Bytes bytes, Signature& signature) {
    typedef Scalar<Order> S;
    const Code code = parse_signature(encoding, bytes, signature);
    if (code) return code;
    if (!S::in_range(signature.r) || !S::in_range(signature.s)) return OUT_OF_RANGE;
    Words rest;  // n - s, which is below s just where s > n / 2, as n is odd
    subtract(rest, Order::modulus(), signature.s);
    return low_s == LowS::REQUIRE && less(rest, signature.s) ? HIGH_S : UNDECIDED;
}
