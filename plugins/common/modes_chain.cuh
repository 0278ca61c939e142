// CBC encryption of long messages: an item is a part of a message, by one thread; the next part waits for its last block.
//
// Inputs: data, whole blocks and at most CHAIN_BYTES bytes; key; iv, the block of ciphertext before the part. Output 0 has
// CHAIN_BYTES bytes an item: the part, then zeros. Parameter 0 is the cipher's option.
#pragma once
#include "modes_each.cuh"

constexpr u32 CHAIN_BYTES = 8192;

template <class C>
struct Chain {
    using Tables = typename C::template Tables<false>;

    DEVICE Code run(const Batch& batch, const Tables& tables, u32 lane, u32 item) {
        constexpr u32 BLOCK = C::BLOCK, WORDS = BLOCK / 4;
        const Bytes data = value(batch.inputs[0], item), key = value(batch.inputs[1], item);
        const Bytes iv = value(batch.inputs[2], item);
        u8* const out = batch.outputs[0] + (u64)item * batch.output_strides[0];
        if (!C::key_fits(key.size)) return KEY_LENGTH;
        if (data.size > CHAIN_BYTES || data.size % BLOCK != 0 || iv.size != BLOCK) return INPUT_LENGTH;
        typename C::Keys keys;
        C::template schedule<false>(keys, tables, batch.state, lane, key.data, key.size, batch.parameters[0]);
        u32 chain[WORDS], block[WORDS];
        load_bytes(chain, iv.data, BLOCK);
        NO_UNROLL
        for (u32 at = 0; at < data.size; at += BLOCK) {
            load_bytes(block, data.data + at, BLOCK);
            xor_block(chain, block);
            C::encrypt(tables, keys, lane, chain);
            store_bytes(out + at, chain, BLOCK);
        }
        NO_UNROLL
        for (u32 i = data.size; i < CHAIN_BYTES; i++) out[i] = 0;
        wipe(&keys, sizeof keys);
        return VALID;
    }
};
