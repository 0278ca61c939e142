// What ECDSA does to an item before and after the curve: parsing, hashing, scalars.
//
// A curve C is described in curve.cuh.
#pragma once
#include "curve_key.cuh"
#include "curve_signature.cuh"
#include "keccak.cuh"
#include "sha256.cuh"
#include "sm3.cuh"

// Batch.parameters in the manifest's order. The first five are the same for every operation.
enum Parameter : u32 {
    INPUT_KIND = 0,
    HASH = 1,
    DIGEST_BYTES = 2,
    LOW_S = 3,
    SIGNATURE_ENCODING = 4,
    KEY_ENCODING = 5,  // verify
    ADDRESS_HASH = 5,  // recover
};

typedef ItemScratch<ALL_PLANES> Planes;

// Tells P-256 from secp256k1 where keys name their curve (SPKI).
template <class C>
constexpr Algorithm ALGORITHM_OF = Algorithm::UNSPECIFIED;
template <>
constexpr Algorithm ALGORITHM_OF<P256Curve> = Algorithm::ECDSA_P256;
template <>
constexpr Algorithm ALGORITHM_OF<Secp256k1Curve> = Algorithm::ECDSA_SECP256K1;

DEVICE void hash_message(Hash hash, u32 (&digest)[8], Bytes bytes) {
    const Bytes message[1] = {bytes};
    if (hash == Hash::SM3) {
        sm3(digest, message);
    } else if (hash == Hash::KECCAK256 || hash == Hash::SHA3_256) {
        keccak256(digest, message, hash == Hash::SHA3_256 ? SHA3_256_SUFFIX : KECCAK256_SUFFIX);
    } else {
        sha256(digest, message);
        if (hash == Hash::SHA256D) sha256_of_digest(digest);
    }
}

// Stage: the plane U1 becomes the integer of the digest's leftmost 256 bits (FIPS 186-5, 6.4.1). A stage of its own,
// because the hash functions together need more registers than the rest of the preparation.
DEVICE void hash_input(const Batch& batch, const Lane& lane, u32 item) {
    const Bytes input = value(batch.inputs[0], item);
    Words e;
    if ((InputKind)batch.parameters[INPUT_KIND] == InputKind::MESSAGE) {
        u32 digest[8];
        hash_message((Hash)batch.parameters[HASH], digest, input);
        e = digest_number(digest);
    } else if (input.size >= 32) {
        load_be256(e.w, input.data);
    } else {
        load_be_short(e.w, input.data, input.size);
    }
    if (lane.live) store(item_scratch<ALL_PLANES>(batch, item), U1, e);
}

DEVICE bool input_fits(const Batch& batch, u32 item) {
    return (InputKind)batch.parameters[INPUT_KIND] == InputKind::MESSAGE ||
           value(batch.inputs[0], item).size == batch.parameters[DIGEST_BYTES];
}

template <class C>
DEVICE Code take_signature(const Batch& batch, u32 item, Signature& signature) {
    return take_signature<typename C::Order>((SignatureEncoding)batch.parameters[SIGNATURE_ENCODING],
                                             (LowS)batch.parameters[LOW_S], value(batch.inputs[1], item), signature);
}

// Stage: decides what is malformed or out of range; otherwise QX, QY = the key, TARGET = r, U1 = e, VALUE = s. Where it
// returns true QY is the parity of a root that is to be taken LATER.
template <class C, bool LATER = false>
DEVICE bool prepare_verify(const Batch& batch, const Lane& lane, u32 item) {
    const Planes scratch = item_scratch<ALL_PLANES>(batch, item);
    const KeyEncoding encoding = (KeyEncoding)batch.parameters[KEY_ENCODING];
    Signature signature;
    PublicKey key;
    Code code = take_signature<C>(batch, item, signature);
    if (!code) code = parse_key(ALGORITHM_OF<C>, encoding, value(batch.inputs[2], item), key);
    AwaitedKey<C, LATER> root;
    if (!code) code = root.settle(root, key);
    if (!code && !input_fits(batch, item)) code = root.reject(root, key, INPUT_LENGTH);
    if (!lane.live) return false;
    batch.codes[item] = code;
    if (code) {
        store(scratch, VALUE, small_words(0));  // takes no part in its group's inversion
        return false;
    }
    store(scratch, VALUE, signature.s);
    store(scratch, U1, Scalar<typename C::Order>::reduce(load(scratch, U1)));
    store(scratch, TARGET, signature.r);
    store(scratch, QX, key.x);
    store(scratch, QY, LATER && root.awaits ? small_words(key.odd) : key.y);
    return LATER && root.awaits;
}

// Stage, a group: U1 = e / s, U2 = r / s.
template <class C>
DEVICE void verify_scalars(const Batch& batch, const Lane&, u32 first, u32 stride, u32 count) {
    typedef Scalar<typename C::Order> S;
    invert_scalars<typename C::Order, ALL_PLANES>(batch, first, stride, count);
    NO_UNROLL for (u32 k = 0; k < count; k++) {
        const Planes scratch = item_scratch<ALL_PLANES>(batch, first + k * stride);
        const Words inverse = load(scratch, VALUE);
        store(scratch, U1, S::multiply(inverse, load(scratch, U1)));
        store(scratch, U2, S::multiply(inverse, load(scratch, TARGET)));
    }
}

// Stage: decides what is malformed, out of range or names no point R; otherwise QX, QY = R, U1 = e, U2 = s, VALUE = r.
// Of the recovery id bit 0 is R's parity, and bit 1 says that R's x was r + n (SEC 1, 4.1.6). LATER as for
// prepare_verify.
template <class C, bool LATER = false>
DEVICE bool prepare_recover(const Batch& batch, const Lane& lane, u32 item) {
    typedef Scalar<typename C::Order> S;
    const Planes scratch = item_scratch<ALL_PLANES>(batch, item);
    Signature signature;
    Words x, y;
    Code code = take_signature<C>(batch, item, signature);
    if (!code && !input_fits(batch, item)) code = INPUT_LENGTH;
    if (!code) {
        u32 carry = 0;
        x = signature.r;
        if (signature.recovery & 2) carry = add(x, x, C::Order::modulus());
        const bool below = !carry && less(x, C::Field::Prime::p());
        if constexpr (LATER) {
            y = small_words(signature.recovery & 1);
            if (!below) code = INVALID;
        } else {
            if (!below || !decompress<C>(y, x, signature.recovery & 1)) code = INVALID;
        }
    }
    if (!lane.live) return false;
    batch.codes[item] = code;
    if (code) {
        store(scratch, VALUE, small_words(0));
        return false;
    }
    store(scratch, VALUE, signature.r);
    store(scratch, U1, S::reduce(load(scratch, U1)));
    store(scratch, U2, signature.s);
    store(scratch, QX, x);
    store(scratch, QY, y);
    return LATER;
}

// Stage, a group: U1 = -e / r, U2 = s / r.
template <class C>
DEVICE void recover_scalars(const Batch& batch, const Lane&, u32 first, u32 stride, u32 count) {
    typedef Scalar<typename C::Order> S;
    invert_scalars<typename C::Order, ALL_PLANES>(batch, first, stride, count);
    NO_UNROLL for (u32 k = 0; k < count; k++) {
        const Planes scratch = item_scratch<ALL_PLANES>(batch, first + k * stride);
        const Words inverse = load(scratch, VALUE);
        const Words e_over_r = S::multiply(inverse, load(scratch, U1));
        store(scratch, U1, subtract_mod(small_words(0), e_over_r, C::Order::modulus()));
        store(scratch, U2, S::multiply(inverse, load(scratch, U2)));
    }
}
