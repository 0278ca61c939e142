// From the recovered point to the key and the address.
#pragma once
#include "ecdsa_prepare.cuh"

// Stage, a group: the Jacobian point in QX, QY, TARGET (its Z, never zero where the item is valid) becomes the key
// x || y = (X / Z^2, Y / Z^3), with one inversion for all. Keys of items that are not valid are zero.
template <class C>
DEVICE void recovered_keys(const Batch& batch, const Lane&, u32 first, u32 stride, u32 count) {
    typedef Exact<typename C::Field> E;
    typedef typename E::Element Element;
    Element product = E::from_words(small_words(1));
    NO_UNROLL for (u32 k = 0; k < count; k++) {
        const u32 item = first + k * stride;
        const Planes scratch = item_scratch<ALL_PLANES>(batch, item);
        if (batch.codes[item] != VALID) continue;
        store(scratch, PREFIX, E::to_words(product));
        product = E::mul(product, E::from_words(load(scratch, TARGET)));
    }
    Element inverse = E::invert(product);
    NO_UNROLL for (u32 k = count; k-- > 0;) {
        const u32 item = first + k * stride;
        const Planes scratch = item_scratch<ALL_PLANES>(batch, item);
        Words x = small_words(0), y = small_words(0);
        if (batch.codes[item] == VALID) {
            const Element z_inverse = E::mul(inverse, E::from_words(load(scratch, PREFIX)));
            inverse = E::mul(inverse, E::from_words(load(scratch, TARGET)));
            const Element square = E::sqr(z_inverse);
            x = E::to_words(E::mul(E::from_words(load(scratch, QX)), square));
            y = E::to_words(E::mul(E::from_words(load(scratch, QY)), E::mul(square, z_inverse)));
        }
        u8* const key = batch.outputs[0] + item * batch.output_strides[0];
        store_be256(key, x.w);
        store_be256(key + 32, y.w);
    }
}

// Stage: the last 20 bytes of the chosen hash of the key; zero where none is asked for or there is no key.
DEVICE void recovered_address(const Batch& batch, const Lane& lane, u32 item) {
    if (!lane.live) return;
    const Hash hash = (Hash)batch.parameters[ADDRESS_HASH];
    u32 digest[8] = {};
    if (hash != Hash::UNSPECIFIED && batch.codes[item] == VALID) {
        hash_message(hash, digest, {batch.outputs[0] + item * batch.output_strides[0], 64});
    }
    u8* const address = batch.outputs[1] + item * batch.output_strides[1];
    UNROLL for (u32 i = 0; i < 5; i++) store_be32(address + 4 * i, digest[3 + i]);
}
