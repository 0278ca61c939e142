// The parsers as an operation, so that tests can look at what they read: r, s, x, y as big-endian bytes.
// Parameters: signature encoding, key encoding, algorithm.
#include "abi.cuh"
#include "encodings.cuh"

PLUGIN_INFO(0, 0, 0)

DEVICE void probe_signature(const Batch& batch, const Lane&, u32 item) {
    Signature signature;
    const Code code = parse_signature((SignatureEncoding)batch.parameters[0], value(batch.inputs[0], item), signature);
    batch.codes[item] = code;
    if (code) return;
    u8* out = batch.outputs[0] + item * batch.output_strides[0];
    store_be256(out, signature.r.w);
    store_be256(out + 32, signature.s.w);
    out[64] = (u8)signature.recovery;
}
ITEM_STAGE(signature, probe_signature, 128, 1)

DEVICE void probe_key(const Batch& batch, const Lane&, u32 item) {
    PublicKey key;
    const Code code = parse_key((Algorithm)batch.parameters[2], (KeyEncoding)batch.parameters[1],
                                value(batch.inputs[0], item), key);
    batch.codes[item] = code;
    if (code) return;
    u8* out = batch.outputs[0] + item * batch.output_strides[0];
    store_be256(out, key.x.w);
    store_be256(out + 32, key.y.w);
    out[64] = (u8)(key.compressed << 1 | key.odd);
}
ITEM_STAGE(key, probe_key, 128, 1)
