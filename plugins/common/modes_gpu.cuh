// Bulk modes on a GPU.
#pragma once
#include "modes.cuh"

extern __shared__ Quad shared_memory[];

DEVICE constexpr u32 quads(u64 bytes) { return (u32)((bytes + 15) / 16); }

// Columns come in buffers that start at a multiple of 16 bytes; where one does not, nothing is decided.
DEVICE bool is_aligned(const Batch& batch, bool chained) {
    const u64 addresses = (u64)batch.inputs[0].data | (u64)batch.outputs[0] | (chained ? (u64)batch.inputs[1].data : 0);
    return (addresses & 15) == 0;
}

// Every item gets the same code.
DEVICE void give_up(const Batch& batch, Code code, u32 threads) {
    for (u64 i = (u64)blockIdx.x * threads + threadIdx.x; i < batch.items; i += (u64)gridDim.x * threads)
        batch.codes[i] = code;
}

// A block at a time: a warp takes a stripe, a lane one of its blocks.
template <class C, bool DECRYPT>
struct DirectGroup {
    using Tables = typename C::template Tables<DECRYPT>;
    static constexpr u32 WARP_ITEMS = 1;
    static constexpr u32 SHARED = 16 * (quads(sizeof(Tables)) + quads(sizeof(typename C::Keys)));

    template <Mode MODE, u32 THREADS>
    DEVICE void run(const Batch& batch) {
        constexpr u32 BLOCK = C::BLOCK, WORDS = BLOCK / 4;
        auto& tables = *(Tables*)shared_memory;
        auto& keys = *(typename C::Keys*)(shared_memory + quads(sizeof(Tables)));
        C::fill(tables, batch.state, threadIdx.x, THREADS);
        __syncthreads();
        if (threadIdx.x == 0)
            C::template schedule<DECRYPT>(keys, tables, batch.state, 0, batch.constant, (u32)batch.constant_bytes,
                                          batch.parameters[0]);
        __syncthreads();
        const u32 lane = threadIdx.x % 32;
        const u32 last = (u32)((u64)(blockIdx.x + 1) * batch.items / gridDim.x);
        NO_UNROLL
        for (u32 item = (u32)((u64)blockIdx.x * batch.items / gridDim.x) + threadIdx.x / 32; item < last;
             item += THREADS / 32) {
            const u64 place = ((u64)item * STRIPE_BLOCKS + lane) * BLOCK;
            u32 data[WORDS], block[WORDS];
            load_block(data, batch.inputs[0].data + place);
            if constexpr (MODE == CTR) {
                load_block(block, batch.inputs[1].data + (u64)item * BLOCK);
                add_counter(block, lane);
                C::encrypt(tables, keys, lane, block);
                xor_block(block, data);
            } else if constexpr (MODE == CBC_DECRYPT) {
                C::decrypt(tables, keys, lane, data);
                const u8* const before = lane ? batch.inputs[0].data + place - BLOCK
                                              : batch.inputs[1].data + (u64)item * BLOCK;
                load_block(block, before);
                xor_block(block, data);
            } else {
                FULL_UNROLL
                for (u32 i = 0; i < WORDS; i++) block[i] = data[i];
                if constexpr (MODE == ECB_ENCRYPT)
                    C::encrypt(tables, keys, lane, block);
                else
                    C::decrypt(tables, keys, lane, block);
            }
            store_block(batch.outputs[0] + place, block);
            if (lane == 0) batch.codes[item] = VALID;
        }
        __syncthreads();
        wipe(&keys, sizeof keys, threadIdx.x, THREADS);
    }
};

// Counters in sliced form. `first` is the first counter of stripe number `lane` of the warp's 32; bit i of the words
// becomes the counter of block `lane` of stripe i. A vote turns one bit of 32 stripes into a word.
template <u32 BITS>
DEVICE void slice_counters(u32 (&s)[BITS], const u32 (&first)[BITS / 32], u32 lane) {
    u32 carry = 0;
    FULL_UNROLL
    for (u32 k = 0; k < BITS; k++) {  // bit k of the big-endian number
        const u32 index = BITS - 8 - k / 8 * 8 + k % 8;
        const u32 bit = __ballot_sync(~0u, first[index / 32] >> index % 32 & 1);
        const u32 addend = k < 5 ? mask_of(lane, k) : 0;
        s[index] = bit ^ addend ^ carry;
        carry = (bit & addend) | (carry & (bit ^ addend));
    }
}

// 32 blocks a thread: a warp takes 32 stripes, and bit i of a lane's words is block `lane` of stripe i, so that every
// load and store is of consecutive blocks.
template <class C, bool DECRYPT>
struct SlicedGroup {
    static constexpr u32 WARP_ITEMS = 32;
    static constexpr u32 SHARED = 16 * (quads(sizeof(typename C::Keys)) + C::MASKS / 4);

    template <Mode MODE, u32 THREADS>
    DEVICE void run(const Batch& batch) {
        constexpr u32 BITS = C::BITS, WORDS = BITS / 32, BLOCK = BITS / 8;
        auto& keys = *(typename C::Keys*)shared_memory;
        Quad* const masks = shared_memory + quads(sizeof(typename C::Keys));
        if (threadIdx.x == 0)
            C::template schedule<DECRYPT>(keys, batch.state, batch.constant, (u32)batch.constant_bytes, batch.parameters[0]);
        __syncthreads();
        for (u32 i = threadIdx.x; i < C::MASKS; i += THREADS) masks[i / 4].x[i % 4] = C::mask(keys, i);
        __syncthreads();
        for_each_item<THREADS>(batch.items, [&](u32 item, const Lane& self) {
            const u32 lane = threadIdx.x % 32, first = item & ~31u;
            const u32 count = batch.items - first < 32 ? batch.items - first : 32;
            const u8* const in = batch.inputs[0].data + ((u64)first * STRIPE_BLOCKS + lane) * BLOCK;
            const u8* const chain = batch.inputs[1].data + (u64)first * BLOCK;
            u8* const out = batch.outputs[0] + ((u64)first * STRIPE_BLOCKS + lane) * BLOCK;
            u32 s[BITS];
            if constexpr (MODE == CTR) {
                u32 counter[WORDS];
                load_block(counter, chain + (lane < count ? lane : 0) * BLOCK);
                slice_counters<BITS>(s, counter, lane);
            } else {
                const auto load = [&](u32 i, u32 stripe) {
                    u32 block[WORDS];
                    load_block(block, in + stripe * STRIPE_BLOCKS * BLOCK);
                    FULL_UNROLL
                    for (u32 j = 0; j < WORDS; j++) s[32 * j + i] = block[j];
                };
                if (count == 32) {
                    FULL_UNROLL
                    for (u32 i = 0; i < 32; i++) load(i, i);
                } else {
                    FULL_UNROLL
                    for (u32 i = 0; i < 32; i++) load(i, i < count ? i : count - 1);
                }
                FULL_UNROLL
                for (u32 j = 0; j < WORDS; j++) transpose32(s + 32 * j);
            }
            if constexpr (DECRYPT)
                C::decrypt(s, masks, keys);
            else
                C::encrypt(s, masks, keys);
            FULL_UNROLL
            for (u32 j = 0; j < WORDS; j++) transpose32(s + 32 * j);
            const auto store = [&](u32 i) {
                u32 block[WORDS];
                FULL_UNROLL
                for (u32 j = 0; j < WORDS; j++) block[j] = s[32 * j + i];
                if constexpr (MODE == CTR || MODE == CBC_DECRYPT) {
                    u32 other[WORDS];
                    const u8* const own = in + i * STRIPE_BLOCKS * BLOCK;
                    load_block(other, MODE == CTR ? own : lane ? own - BLOCK : chain + i * BLOCK);
                    xor_block(block, other);
                }
                store_block(out + i * STRIPE_BLOCKS * BLOCK, block);
            };
            if (count == 32) {
                FULL_UNROLL
                for (u32 i = 0; i < 32; i++) store(i);
            } else {
                FULL_UNROLL
                for (u32 i = 0; i < 32; i++)
                    if (i < count) store(i);
            }
            if (self.live) batch.codes[item] = VALID;
        });
        __syncthreads();
        wipe(shared_memory, SHARED, threadIdx.x, THREADS);
    }
};

template <class G, class C, Mode MODE, u32 THREADS>
DEVICE void bulk(const Batch& batch, u32 block_bytes) {
    constexpr bool CHAINED = MODE == CTR || MODE == CBC_DECRYPT;
    const Code problem = bulk_problem<C>(batch, block_bytes, CHAINED);
    if (problem != VALID)
        give_up(batch, problem, THREADS);
    else if (is_aligned(batch, CHAINED))
        G::template run<MODE, THREADS>(batch);
}

#define BULK_STAGE(name, Group, Cipher, mode, threads, blocks)                                               \
    extern "C" __constant__ const u32 name##_shared = Group<Cipher, decrypts(mode)>::SHARED;                 \
    extern "C" __constant__ const u32 name##_threads = threads;                                              \
    extern "C" __constant__ const u32 name##_warp_items = Group<Cipher, decrypts(mode)>::WARP_ITEMS;         \
    extern "C" __global__ void __launch_bounds__(threads, blocks) name(const Batch batch) {                  \
        bulk<Group<Cipher, decrypts(mode)>, Cipher, mode, threads>(batch, Cipher::BLOCK);                    \
    }
