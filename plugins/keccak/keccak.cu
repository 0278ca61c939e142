// Keccak-256 and SHA3-256 of every item, one thread an item.
#include "abi.cuh"
#include "keccak.cuh"

PLUGIN_INFO(0, 0, 0)

DEVICE void digest_keccak256(const Batch& batch, const Lane& lane, u32 item) {
    const Bytes message[1] = {value(batch.inputs[0], item)};
    u32 digest[8];
    keccak256(digest, message, KECCAK256_SUFFIX);
    if (!lane.live) return;
    store_digest(batch.outputs[0] + item * batch.output_strides[0], digest);
    batch.codes[item] = VALID;
}
ITEM_STAGE(keccak256_digest, digest_keccak256, 256, 2)

DEVICE void digest_sha3_256(const Batch& batch, const Lane& lane, u32 item) {
    const Bytes message[1] = {value(batch.inputs[0], item)};
    u32 digest[8];
    keccak256(digest, message, SHA3_256_SUFFIX);
    if (!lane.live) return;
    store_digest(batch.outputs[0] + item * batch.output_strides[0], digest);
    batch.codes[item] = VALID;
}
ITEM_STAGE(sha3_256_digest, digest_sha3_256, 256, 2)
