// ECDSA with enrolled keys: the stages of `verify`, with a slot and its generation in the place of the key.
#pragma once
#include "curve_enrolled.cuh"
#include "ecdsa_prepare.cuh"

// The slots stand behind the generators' tables: those for P-256, then those for secp256k1.
template <class C>
DEVICE u32* key_slots(u8* state) {
    constexpr u64 tables = Comb<P256Curve>::BYTES + Comb<Secp256k1Curve>::BYTES;
    return (u32*)(state + tables + (ALGORITHM_OF<C> == Algorithm::ECDSA_P256 ? 0 : KeySlots<P256Curve>::BYTES));
}

template <class C>
DEVICE void empty_slot(u8* state, u32 index) {
    KeySlots<C>::empty(key_slots<C>(state), index);
}

template <class C>
DEVICE void tabulate(const Batch& batch, const Lane& lane, u32 item) {
    enroll_item<C, true>(batch, lane, item, ALGORITHM_OF<C>, key_slots<C>(batch.state));
}

template <class C>
DEVICE void enroll(const Batch& batch, const Lane& lane, u32 item) {
    enroll_item<C, false>(batch, lane, item, ALGORITHM_OF<C>, key_slots<C>(batch.state));
}

// Stage: as prepare_verify, but QX = the slot, and the key was checked when it was enrolled.
template <class C>
DEVICE void prepare_enrolled(const Batch& batch, const Lane& lane, u32 item) {
    const Planes scratch = item_scratch<ALL_PLANES>(batch, item);
    Signature signature;
    PublicKey key;
    SlotName name;
    Code code = take_signature<C>(batch, item, signature);
    if (!code) code = take_slot(name, value(batch.inputs[2], item), SlotName::BYTES);
    if (!code) code = KeySlots<C>::key(key_slots<C>(batch.state), name, key);
    if (!code && !input_fits(batch, item)) code = INPUT_LENGTH;
    if (!lane.live) return;
    batch.codes[item] = code;
    if (code) {
        store(scratch, VALUE, small_words(0));  // takes no part in its group's inversion
        return;
    }
    store(scratch, VALUE, signature.s);
    store(scratch, U1, Scalar<typename C::Order>::reduce(load(scratch, U1)));
    store(scratch, TARGET, signature.r);
    store(scratch, QX, small_words(name.slot));
}
