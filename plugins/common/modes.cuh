// Modes of operation, written once over the interface of cipher.cuh.
//
// Bulk operations: an item is a stripe of 32 blocks, and all items share the key in `constant`. Inputs are the
// stripes, and for CTR and CBC a second column of one block an item: the counter of the stripe's first block, or the
// ciphertext block before it. So a stripe knows nothing of its neighbours: a batch may hold ranges of several messages
// in any order. Output 0 is the stripes. A message that ends within a stripe is padded by the caller with anything.
#pragma once
#include "cipher.cuh"

enum Mode { ECB_ENCRYPT, ECB_DECRYPT, CTR, CBC_DECRYPT };

DEVICE constexpr bool decrypts(Mode mode) { return mode == ECB_DECRYPT || mode == CBC_DECRYPT; }

// Why no item of this batch can be done, or VALID.
template <class C>
DEVICE Code bulk_problem(const Batch& batch, u32 block_bytes, bool chained) {
    if (batch.constant_bytes > 64 || !C::key_fits((u32)batch.constant_bytes)) return KEY_LENGTH;
    if (batch.inputs[0].offsets || batch.inputs[0].stride != STRIPE_BLOCKS * block_bytes) return INPUT_LENGTH;
    if (chained && (batch.inputs[1].offsets || batch.inputs[1].stride != block_bytes)) return INPUT_LENGTH;
    return VALID;
}

#if TARGET_GPU
#include "modes_gpu.cuh"
#else
#include "modes_cpu.cuh"
#endif
#include "modes_each.cuh"
