// For bench/front_end.py and bench/daemon_latency.py alone: every item is valid, every key has a table, and no byte of
// any column is read.
#include "abi.cuh"

PLUGIN_INFO(0, 0, 0)

DEVICE void accept_item(const Batch& batch, const Lane& lane, u32 item) {
    if (lane.live) batch.codes[item] = VALID;
}
ITEM_STAGE(null_verify, accept_item, 256, 1)
