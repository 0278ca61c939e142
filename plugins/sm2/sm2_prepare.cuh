// What SM2 does to an item before the curve: parsing, the digest e, scalars.
#pragma once
#include "curve_enrolled.cuh"
#include "scalar.cuh"
#include "sm3.cuh"

// Batch.parameters in the manifest's order.
enum Parameter : u32 { INPUT_KIND = 0, SIGNATURE_ENCODING = 1, KEY_ENCODING = 2, LOW_S = 3 };

typedef ItemScratch<VERIFY_PLANES> Planes;

// ZA = SM3(ENTL || ID || a || b || xG || yG || xA || yA), ENTL being the bits of ID in two bytes (GB/T 32918.2, 5.5).
DEVICE void identity_hash(u32 (&za)[8], const Batch& batch, const PublicKey& key) {
    u8 length[2], curve[128], point[64];
    const u32 bits = 8 * (u32)batch.constant_bytes;
    length[0] = (u8)(bits >> 8), length[1] = (u8)bits;
    Words a;
    subtract(a, Sm2Prime::p(), small_words(3));
    const Words b = Sm2Curve::b(), gx = Sm2Curve::gx(), gy = Sm2Curve::gy();
    store_be256(curve, a.w), store_be256(curve + 32, b.w);
    store_be256(curve + 64, gx.w), store_be256(curve + 96, gy.w);
    store_be256(point, key.x.w), store_be256(point + 32, key.y.w);
    const Bytes parts[4] = {{length, 2}, {batch.constant, (u32)batch.constant_bytes}, {curve, 128}, {point, 64}};
    sm3(za, parts);
}

// How an item's values are read: whole, as their columns have them. Another layout has a structure like this one.
struct Rows {
    DEVICE Code signature(Signature& signature, const Batch& batch, u32, Bytes bytes) {
        return parse_signature((SignatureEncoding)batch.parameters[SIGNATURE_ENCODING], bytes, signature);
    }
    DEVICE Code key(PublicKey& key, const Batch& batch, u32, Bytes bytes) {
        return parse_key(Algorithm::SM2, (KeyEncoding)batch.parameters[KEY_ENCODING], bytes, key);
    }
    DEVICE void digest(Words& e, const Batch&, u32, Bytes bytes) { load_be256(e.w, bytes.data); }
};

// e, an integer of 256 bits: given, or SM3(ZA || M).
template <class Layout>
DEVICE Code take_digest(Words& e, const Batch& batch, u32 item, Bytes input, const PublicKey& key) {
    const InputKind kind = (InputKind)batch.parameters[INPUT_KIND];
    if (kind != InputKind::MESSAGE && input.size != 32) return INPUT_LENGTH;
    if (kind == InputKind::DIGEST) {
        Layout::digest(e, batch, item, input);
        return UNDECIDED;
    }
    u32 za[8], digest[8];
    identity_hash(za, batch, key);
    const Bytes message[1] = {input};
    sm3(digest, za, message);
    e = digest_number(digest);
    return UNDECIDED;
}

template <class Layout>
DEVICE Code take_signature(const Batch& batch, u32 item, Bytes bytes, Signature& signature) {
    typedef Scalar<Sm2Order> S;
    const Code code = Layout::signature(signature, batch, item, bytes);
    if (code) return code;
    if (!S::in_range(signature.r) || !S::in_range(signature.s)) return OUT_OF_RANGE;
    if ((LowS)batch.parameters[LOW_S] == LowS::REQUIRE) {
        Words rest;  // n - s, which is below s just where s > n / 2, as n is odd
        subtract(rest, Sm2Order::modulus(), signature.s);
        if (less(rest, signature.s)) return HIGH_S;
    }
    return UNDECIDED;
}

typedef KeySlots<Sm2Curve> Slots;

// The slots stand behind the generator's table in the plugin's state.
DEVICE u32* key_slots(const Batch& batch) { return (u32*)(batch.state + Comb<Sm2Curve>::BYTES); }

// The key of an item, checked but for a root that is taken later; of an enrolled one also its slot.
template <bool ENROLLED, class Layout, bool LATER>
DEVICE Code take_key(
    const Batch& batch, u32 item, Bytes signature, PublicKey& key, u32& slot, AwaitedKey<Sm2Curve, LATER>& root) {
    const Bytes bytes = value(batch.inputs[2], item);
    Code code;
    if constexpr (ENROLLED) {
        SlotName name;
        code = take_slot(name, bytes, SlotName::BYTES);
        slot = name.slot;
        return code ? code : Slots::key(key_slots(batch), name, key);
    } else {
        const KeyEncoding encoding = (KeyEncoding)batch.parameters[KEY_ENCODING];
        code = Layout::key(key, batch, item, encoding == KeyEncoding::IN_SIGNATURE ? signature : bytes);
        if (code) return code;
        if constexpr (LATER) {
            // A message is hashed with the whole key.
            if ((InputKind)batch.parameters[INPUT_KIND] != InputKind::MESSAGE) return root.settle(root, key);
        }
        return settle_key<Sm2Curve>(key);
    }
}

// Stage: decides what is malformed or out of range, and t = 0; otherwise U1 = s, U2 = t, TARGET = r - e, and QX, QY =
// the key, or QX = its slot. Where it returns true QY is the parity of a root that is to be taken LATER.
template <bool ENROLLED, class Layout = Rows, bool LATER = false>
DEVICE bool prepare(const Batch& batch, const Lane& lane, u32 item) {
    typedef Scalar<Sm2Order> S;
    const Bytes bytes = value(batch.inputs[1], item);
    Signature signature;
    PublicKey key;
    u32 slot;
    Words e = small_words(0), t;
    Code code = take_signature<Layout>(batch, item, bytes, signature);
    AwaitedKey<Sm2Curve, LATER> root;
    if (!code) code = take_key<ENROLLED, Layout, LATER>(batch, item, bytes, key, slot, root);
    if (!code) code = take_digest<Layout>(e, batch, item, value(batch.inputs[0], item), key);
    if (!code) {
        t = add_mod(signature.r, signature.s, Sm2Order::modulus());
        if (is_zero(t)) code = INVALID;
    }
    if constexpr (LATER) {
        if (code) code = root.reject(root, key, code);
    }
    if (!lane.live) return false;
    batch.codes[item] = code;
    if (code) return false;
    const Planes scratch = item_scratch<VERIFY_PLANES>(batch, item);
    store(scratch, U1, signature.s);
    store(scratch, U2, t);
    store(scratch, TARGET, subtract_mod(signature.r, S::reduce(e), Sm2Order::modulus()));
    store(scratch, QX, ENROLLED ? small_words(slot) : key.x);
    if (!ENROLLED) store(scratch, QY, LATER && root.awaits ? small_words(key.odd) : key.y);
    return LATER && root.awaits;
}
