// SM3 of every item, one thread an item.
#include "abi.cuh"
#include "sm3.cuh"

PLUGIN_INFO(0, 0, 0)

DEVICE void digest_item(const Batch& batch, const Lane& lane, u32 item) {
    const Bytes message[1] = {value(batch.inputs[0], item)};
    u32 digest[8];
    sm3(digest, message);
    if (!lane.live) return;
    store_digest(batch.outputs[0] + item * batch.output_strides[0], digest);
    batch.codes[item] = VALID;
}
ITEM_STAGE(sm3_digest, digest_item, 256, 4)
