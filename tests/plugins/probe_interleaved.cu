// What prepare reads of interleaved columns, as an operation: e, r, s, x, y as big-endian bytes.
#include "sm2_interleaved.cuh"

PLUGIN_INFO(0, Planes::BYTES, 0)

DEVICE void probe(const Batch& batch, const Lane& lane, u32 item) {
    if (INTERLEAVED == 1) transpose_columns(batch, lane, item);
    Signature signature;
    PublicKey key;
    Words e;
    const Bytes bytes = value(batch.inputs[1], item);
    const bool in_signature = (KeyEncoding)batch.parameters[KEY_ENCODING] == KeyEncoding::IN_SIGNATURE;
    Code code = Interleaved::signature(signature, batch, item, bytes);
    if (!code) code = Interleaved::key(key, batch, item, in_signature ? bytes : value(batch.inputs[2], item));
    Interleaved::digest(e, batch, item, value(batch.inputs[0], item));
    if (!lane.live) return;
    batch.codes[item] = code ? code : VALID;
    u8* const out = batch.outputs[0] + item * batch.output_strides[0];
    store_be256(out, e.w);
    store_be256(out + 32, signature.r.w), store_be256(out + 64, signature.s.w);
    store_be256(out + 96, key.x.w), store_be256(out + 128, key.y.w);
}
ITEM_STAGE(read, probe, PREPARE_THREADS, 1)
