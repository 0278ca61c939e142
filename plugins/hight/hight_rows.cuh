// A block at a time, a thread's blocks in a row: the published reference implementation whose loads are not coalesced.
// The other form, neighbouring threads on neighbouring blocks, is DirectGroup of modes_gpu.cuh.
#pragma once
#include "modes.cuh"

#if TARGET_GPU

// A thread takes a stripe.
template <class C, bool DECRYPT>
struct RowGroup {
    using Tables = typename C::template Tables<DECRYPT>;
    static constexpr u32 WARP_ITEMS = 32;
    static constexpr u32 SHARED = 16 * quads(sizeof(typename C::Keys));

    template <Mode MODE, u32 THREADS>
    DEVICE void run(const Batch& batch) {
        constexpr u32 BLOCK = C::BLOCK, WORDS = BLOCK / 4;
        auto& keys = *(typename C::Keys*)shared_memory;
        const Tables tables = {};
        if (threadIdx.x == 0)
            C::template schedule<DECRYPT>(keys, tables, batch.state, 0, batch.constant, (u32)batch.constant_bytes,
                                          batch.parameters[0]);
        __syncthreads();
        for_each_item<THREADS>(batch.items, [&](u32 item, const Lane& self) {
            if (!self.live) return;
            const u8* const in = batch.inputs[0].data + (u64)item * STRIPE_BLOCKS * BLOCK;
            u8* const out = batch.outputs[0] + (u64)item * STRIPE_BLOCKS * BLOCK;
            u32 chain[WORDS];
            if constexpr (MODE == CTR || MODE == CBC_DECRYPT)
                load_block(chain, batch.inputs[1].data + (u64)item * BLOCK);
            NO_UNROLL
            for (u32 i = 0; i < STRIPE_BLOCKS; i++) {
                u32 data[WORDS], block[WORDS];
                load_block(data, in + i * BLOCK);
                FULL_UNROLL
                for (u32 j = 0; j < WORDS; j++) block[j] = MODE == CTR ? chain[j] : data[j];
                if constexpr (DECRYPT)
                    C::decrypt(tables, keys, 0, block);
                else
                    C::encrypt(tables, keys, 0, block);
                if constexpr (MODE == CTR) {
                    xor_block(block, data);
                    add_counter(chain, 1);
                } else if constexpr (MODE == CBC_DECRYPT) {
                    xor_block(block, chain);
                    FULL_UNROLL
                    for (u32 j = 0; j < WORDS; j++) chain[j] = data[j];
                }
                store_block(out + i * BLOCK, block);
            }
            batch.codes[item] = VALID;
        });
        __syncthreads();
        wipe(&keys, sizeof keys, threadIdx.x, THREADS);
    }
};

#else

template <class C, bool DECRYPT>
using RowGroup = DirectGroup<C, DECRYPT>;

#endif
