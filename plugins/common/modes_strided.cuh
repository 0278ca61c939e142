// Sliced ciphers on a GPU, another form of SlicedGroup (modes_gpu.cuh) for kernels of which few warps fit a
// multiprocessor.
//
// A warp's groups of 32 stripes lie a whole grid apart, so that all schedulers get the same number of them to one;
// where a batch is no multiple of 32 the last group begins earlier and does some stripes once more, to the same
// result. Data that is added behind the cipher is loaded a few stripes at a time, since a load is not moved before an
// earlier store. Round keys are masks in shared memory, added by multiplications where MULTIPLIED (lut.cuh) says so, or,
// with UNIFORM_MASKS, bits that the uniform datapath makes masks of beside the logic. With FETCH_AHEAD data is asked for
// before it is loaded.
#pragma once
#include "masks_gpu.cuh"
#include "modes.cuh"

#if TARGET_GPU

#ifndef FETCH_AHEAD
#define FETCH_AHEAD !UNIFORM_MASKS  // compilers give the uniform datapath up for it
#endif

// Counters in sliced form where stripe i begins 32 * i blocks behind `base`, the low word of the warp's first counter,
// and the low word does not overflow. Bit i of the words is for block `lane` of stripe i: base + lane + 32 * i.
template <u32 BITS>
DEVICE void slice_consecutive(u32 (&s)[BITS], const u32 (&first)[BITS / 32], u32 base, u32 lane) {
    constexpr u32 NUMBER[5] = {0xaaaaaaaa, 0xcccccccc, 0xf0f0f0f0, 0xff00ff00, 0xffff0000};  // the bits of i
    const u32 low = base + lane, turn = low >> 5 & 31;
    u32 carry = ~(~0u >> turn);  // the i with i + turn of 32 or more
    FULL_UNROLL
    for (u32 k = 0; k < BITS; k++) {  // bit k of the big-endian number
        const u32 index = BITS - 8 - k / 8 * 8 + k % 8;
        if (k < 5) {
            s[index] = mask_of(low, k);
        } else if (k < 10) {
            s[index] = __funnelshift_r(NUMBER[k - 5], NUMBER[k - 5], turn);
        } else if (k < 32) {
            const u32 bit = mask_of(low, k);
            s[index] = bit ^ carry;
            carry &= bit;
        } else {
            s[index] = mask_of(first[index / 32], index % 32);
        }
    }
}

template <class C, bool DECRYPT>
struct StridedGroup {
    static constexpr u32 WARP_ITEMS = 32, STRIPE = STRIPE_BLOCKS * C::BITS / 8;
    static constexpr u32 SHARED =
        16 * (quads(sizeof(typename C::Keys)) + (UNIFORM_MASKS ? quads(C::MASKS / 8) : C::MASKS / 4));
    static constexpr u32 AHEAD = C::BITS == 64 ? 8 : 4;  // stripes whose data is loaded together: as registers allow

    // A batch of less than 32 stripes does its last one again and again. Before the rounds a branch gives the other
    // batches constant distances; behind them it would cost the uniform datapath, which compilers give up easily.
    template <u32 COUNT, u32 WORDS>
    DEVICE void load(u32 (&blocks)[COUNT][WORDS], const u8* from, u32 first, u32 last) {
        if (COUNT == 32 && last == 31) {
            FULL_UNROLL
            for (u32 i = 0; i < COUNT; i++) load_block(blocks[i], from + i * STRIPE);
        } else {
            FULL_UNROLL
            for (u32 i = 0; i < COUNT; i++) load_block(blocks[i], from + (first + i < last ? first + i : last) * STRIPE);
        }
    }

    // Asks for so many bytes to be in the second-level cache when they are loaded.
    DEVICE void fetch(const u8* from, u32 bytes, u32 lane) {
#if FETCH_AHEAD && !defined(GPU_EMULATED)
        FULL_UNROLL
        for (u32 i = 0; i < STRIPE / 128; i++) {
            const u32 at = (32 * i + lane) * 128;
            if (at < bytes) asm volatile("prefetch.global.L2 [%0];" ::"l"(from + at));
        }
#endif
    }

    // One block of each of 32 stripes.
    template <u32 BITS>
    DEVICE void slice_blocks(u32 (&s)[BITS], const u32 (&blocks)[32][BITS / 32]) {
        FULL_UNROLL
        for (u32 j = 0; j < BITS / 32; j++) {
            FULL_UNROLL
            for (u32 i = 0; i < 32; i++) s[32 * j + i] = blocks[i][j];
            turn32(s + 32 * j);
        }
    }

    // `chain` holds the first counters of the stripes. Nearly always they follow one another.
    template <u32 BITS>
    DEVICE void slice_counters(u32 (&s)[BITS], const u8* chain, u32 last, u32 lane) {
        constexpr u32 WORDS = BITS / 32;
        u32 own[WORDS], first[WORDS];
        load_block(own, chain + (lane < last ? lane : last) * (BITS / 8));
        bool follows = last == 31;
        FULL_UNROLL
        for (u32 j = 0; j < WORDS; j++) {
            first[j] = same_in_warp(lane ? 0 : own[j]);
            if (j < WORDS - 1) follows = follows && own[j] == first[j];
        }
        const u32 base = swap_bytes(first[WORDS - 1]);
        follows = follows && swap_bytes(own[WORDS - 1]) == base + 32 * lane && base <= ~1023u;
        if (__ballot_sync(~0u, follows) == ~0u) {
            slice_consecutive<BITS>(s, first, base, lane);
        } else {
            u32 blocks[32][WORDS];
            FULL_UNROLL
            for (u32 i = 0; i < 32; i++) {
                load_block(blocks[i], chain + (i < last ? i : last) * (BITS / 8));
                add_counter(blocks[i], lane);
            }
            slice_blocks<BITS>(s, blocks);
        }
    }

    template <Mode MODE, u32 THREADS>
    DEVICE void run(const Batch& batch) {
        constexpr u32 BITS = C::BITS, WORDS = BITS / 32, BLOCK = BITS / 8;
        auto& keys = *(typename C::Keys*)shared_memory;
        Quad* const masks = shared_memory + quads(sizeof(typename C::Keys));
        const u32 lane = threadIdx.x % 32;
        const u32 last = batch.items < 32 ? batch.items - 1 : 31;  // of a group
        const u32 groups = (batch.items + 31) / 32, stride = gridDim.x * (THREADS / 32);
        // Warps stay together to the end, which the compiler must see; those without a group do the last one too.
        const auto begin_of = [&](u32 base) {
            const u32 group = base + threadIdx.x / 32 < groups ? base + threadIdx.x / 32 : groups - 1;
            return 32 * group + last < batch.items ? 32 * group : batch.items - 1 - last;
        };
        if (MODE != CTR)
            fetch(batch.inputs[0].data + (u64)begin_of(blockIdx.x * (THREADS / 32)) * STRIPE, (last + 1) * STRIPE, lane);
        if (threadIdx.x == 0)
            C::template schedule<DECRYPT>(keys, batch.state, batch.constant, (u32)batch.constant_bytes, batch.parameters[0]);
        __syncthreads();
        for (u32 i = threadIdx.x; i < C::MASKS; i += THREADS) {
            const u32 mask = C::mask(keys, i);
            if constexpr (UNIFORM_MASKS) {
                const u32 bits = __ballot_sync(~0u, mask & 1);
                if (i % 32 == 0) ((u32*)masks)[i / 32] = bits;
            } else {
                masks[i / 4].x[i % 4] = mask;
            }
        }
        __syncthreads();
#if !UNIFORM_MASKS && MULTIPLIED > 1
        const u32 two = same_in_warp(2);
#endif
        NO_UNROLL
        for (u32 base = blockIdx.x * (THREADS / 32); base < groups; base += stride) {
            const u32 begin = begin_of(base);
            const u8* const in = batch.inputs[0].data + (u64)begin * STRIPE + lane * BLOCK;
            const u8* const chain = batch.inputs[1].data + (u64)begin * BLOCK;
            u8* const out = batch.outputs[0] + (u64)begin * STRIPE + lane * BLOCK;
            u32 s[BITS];
            if constexpr (MODE == CTR) {
                slice_counters<BITS>(s, chain, last, lane);
            } else {
                u32 blocks[32][WORDS];
                load(blocks, in, 0, last);
                slice_blocks<BITS>(s, blocks);
            }
#if UNIFORM_MASKS
            const MaskBits round_keys = {(const u32*)masks};
#elif MULTIPLIED > 1
            const Multipliers round_keys = {masks, two};
#else
            const Quad* const round_keys = masks;
#endif
            if constexpr (DECRYPT)
                C::decrypt(s, round_keys, keys);
            else
                C::encrypt(s, round_keys, keys);
            if (MODE == CTR || base + stride < groups)
                fetch(batch.inputs[0].data + (u64)(MODE == CTR ? begin : begin_of(base + stride)) * STRIPE,
                      (last + 1) * STRIPE, lane);
            FULL_UNROLL
            for (u32 j = 0; j < WORDS; j++) turn32(s + 32 * j);
            FULL_UNROLL
            for (u32 first = 0; first < 32; first += AHEAD) {
                u32 others[AHEAD][WORDS];
                if constexpr (MODE == CTR) {
                    load(others, in, first, last);
                } else if constexpr (MODE == CBC_DECRYPT) {
                    // The first block of a stripe follows the chain's.
                    FULL_UNROLL
                    for (u32 i = 0; i < AHEAD; i++) {
                        const u32 stripe = first + i < last ? first + i : last;
                        load_block(others[i], lane ? in + stripe * STRIPE - BLOCK : chain + stripe * BLOCK);
                    }
                }
                FULL_UNROLL
                for (u32 i = 0; i < AHEAD; i++) {
                    u32 block[WORDS];
                    FULL_UNROLL
                    for (u32 j = 0; j < WORDS; j++) block[j] = s[32 * j + first + i];
                    if constexpr (MODE == CTR || MODE == CBC_DECRYPT) xor_block(block, others[i]);
                    if (first + i <= last) store_block(out + (first + i) * STRIPE, block);
                }
            }
            if (lane <= last) batch.codes[begin + lane] = VALID;
        }
        __syncthreads();
        wipe(shared_memory, SHARED, threadIdx.x, THREADS);
    }
};

#else

// The CPU has one form.
template <class C, bool DECRYPT>
using StridedGroup = SlicedGroup<C, DECRYPT>;

#endif
