// SHA-256, and SHA-256 twice, of every item, one thread an item.
#include "abi.cuh"
#include "sha256.cuh"

PLUGIN_INFO(0, 0, 0)

DEVICE void digest_once(const Batch& batch, const Lane& lane, u32 item) {
    const Bytes message[1] = {value(batch.inputs[0], item)};
    u32 digest[8];
    sha256(digest, message);
    if (!lane.live) return;
    store_digest(batch.outputs[0] + item * batch.output_strides[0], digest);
    batch.codes[item] = VALID;
}
ITEM_STAGE(sha256_digest, digest_once, 256, 4)

DEVICE void digest_twice(const Batch& batch, const Lane& lane, u32 item) {
    const Bytes message[1] = {value(batch.inputs[0], item)};
    u32 digest[8];
    sha256(digest, message);
    sha256_of_digest(digest);
    if (!lane.live) return;
    store_digest(batch.outputs[0] + item * batch.output_strides[0], digest);
    batch.codes[item] = VALID;
}
ITEM_STAGE(sha256d_digest, digest_twice, 256, 4)
