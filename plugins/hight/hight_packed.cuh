// HIGHT byte-sliced: byte k of four blocks in one 32-bit word, which is the method of the published GPU and CPU
// implementations. Additions stop carries at the bytes' borders.
#pragma once
#include "hight.cuh"

struct PackedHight {
    static constexpr u32 BLOCK = 8;
    using Keys = HightKeys;

    DEVICE bool key_fits(u32 bytes) { return hight_key_fits(bytes); }

    template <bool DECRYPT>
    DEVICE void schedule(Keys& keys, const u8*, const u8* key, u32, u32 option) {
        hight_schedule(keys, key, option);
    }

    DEVICE u32 spread(u32 word, u32 byte) { return byte_of(word, byte) * 0x01010101; }

    // b is a Word, or a u32 that stands for all of its lanes.
    template <class B>
    DEVICE Word sum(Word a, B b) {
        return ((a & 0x7f7f7f7fu) + (b & 0x7f7f7f7fu)) ^ ((a ^ b) & 0x80808080u);
    }

    template <class B>
    DEVICE Word difference(Word a, B b) {
        return ((a | 0x80808080u) - (b & 0x7f7f7f7fu)) ^ (~(a ^ b) & 0x80808080u);
    }

    template <u32 BITS>
    DEVICE Word turn(Word x) {
        constexpr u32 HIGH = (0xff << BITS & 0xff) * 0x01010101u;
        return (x << BITS & HIGH) | (x >> (8 - BITS) & ~HIGH);
    }

    DEVICE Word f0(Word x) { return turn<1>(x) ^ turn<2>(x) ^ turn<7>(x); }
    DEVICE Word f1(Word x) { return turn<3>(x) ^ turn<4>(x) ^ turn<6>(x); }

    // Words of four blocks to bytes of four blocks, and back.
    DEVICE void transpose_bytes(Word* x) {
        exchange<16>(x[0], x[2], 0xffffu);
        exchange<16>(x[1], x[3], 0xffffu);
        exchange<8>(x[0], x[1], 0x00ff00ffu);
        exchange<8>(x[2], x[3], 0x00ff00ffu);
    }

    DEVICE void reverse(Word (&x)[8]) {
        keep_branch();
        FULL_UNROLL
        for (u32 i = 0; i < 4; i++) {
            const Word t = x[i];
            x[i] = x[7 - i], x[7 - i] = t;
        }
    }

    // x[0] to x[3] the first words of four blocks, x[4] to x[7] their second ones; in place.
    template <bool DECRYPT>
    DEVICE void run(Word (&x)[8], const Keys& keys) {
        transpose_bytes(x);
        transpose_bytes(x + 4);
        if (keys.reversed) reverse(x);
        if constexpr (DECRYPT)
            decrypt(x, keys);
        else
            encrypt(x, keys);
        if (keys.reversed) reverse(x);
        transpose_bytes(x);
        transpose_bytes(x + 4);
    }

    DEVICE void encrypt(Word (&x)[8], const Keys& keys) {
        u32 w = keys.whitening[0];
        x[0] = sum(x[0], spread(w, 0)), x[2] ^= spread(w, 1);
        x[4] = sum(x[4], spread(w, 2)), x[6] ^= spread(w, 3);
        NO_UNROLL
        for (u32 first = 0; first < 32; first += 8) {
            FULL_UNROLL
            for (u32 r = 0; r < 8; r++) {
                const u32 k = keys.sub[first + r];
                const auto at = [&](u32 i) -> Word& { return x[(i + 8 - r) % 8]; };
                at(7) ^= sum(f0(at(6)), spread(k, 3));
                at(1) = sum(at(1), f1(at(0)) ^ spread(k, 0));
                at(3) ^= sum(f0(at(2)), spread(k, 1));
                at(5) = sum(at(5), f1(at(4)) ^ spread(k, 2));
            }
        }
        w = keys.whitening[1];
        const Word y[8] = {sum(x[1], spread(w, 0)), x[2], x[3] ^ spread(w, 1), x[4],
                           sum(x[5], spread(w, 2)), x[6], x[7] ^ spread(w, 3), x[0]};
        FULL_UNROLL
        for (u32 i = 0; i < 8; i++) x[i] = y[i];
    }

    DEVICE void decrypt(Word (&y)[8], const Keys& keys) {
        u32 w = keys.whitening[1];
        Word x[8] = {y[7], difference(y[0], spread(w, 0)), y[1], y[2] ^ spread(w, 1),
                     y[3], difference(y[4], spread(w, 2)), y[5], y[6] ^ spread(w, 3)};
        NO_UNROLL
        for (u32 first = 32; first > 0; first -= 8) {
            FULL_UNROLL
            for (u32 undone = 0; undone < 8; undone++) {
                const u32 r = 7 - undone, k = keys.sub[first - 1 - undone];
                const auto at = [&](u32 i) -> Word& { return x[(i + 8 - r) % 8]; };
                at(7) ^= sum(f0(at(6)), spread(k, 3));
                at(1) = difference(at(1), f1(at(0)) ^ spread(k, 0));
                at(3) ^= sum(f0(at(2)), spread(k, 1));
                at(5) = difference(at(5), f1(at(4)) ^ spread(k, 2));
            }
        }
        w = keys.whitening[0];
        y[0] = difference(x[0], spread(w, 0)), y[2] = x[2] ^ spread(w, 1);
        y[4] = difference(x[4], spread(w, 2)), y[6] = x[6] ^ spread(w, 3);
        y[1] = x[1], y[3] = x[3], y[5] = x[5], y[7] = x[7];
    }
};

// The runners of modes_gpu.cuh and modes_cpu.cuh for it.
#if TARGET_GPU

#ifndef COALESCED
#define COALESCED 1
#endif

// A warp takes four stripes. A lane's four blocks are one of each stripe, or, not coalesced, four in a row.
template <class C, bool DECRYPT>
struct PackedGroup {
    static constexpr u32 WARP_ITEMS = 4;
    static constexpr u32 SHARED = 16 * quads(sizeof(typename C::Keys));

    template <Mode MODE, u32 THREADS>
    DEVICE void run(const Batch& batch) {
        auto& keys = *(typename C::Keys*)shared_memory;
        if (threadIdx.x == 0)
            C::template schedule<DECRYPT>(keys, batch.state, batch.constant, (u32)batch.constant_bytes,
                                          batch.parameters[0]);
        __syncthreads();
        const u32 lane = threadIdx.x % 32, units = (batch.items + 3) / 4;
        const u32 last = (u32)((u64)(blockIdx.x + 1) * units / gridDim.x);
        NO_UNROLL
        for (u32 unit = (u32)((u64)blockIdx.x * units / gridDim.x) + threadIdx.x / 32; unit < last;
             unit += THREADS / 32) {
            const u64 end = (u64)batch.items * STRIPE_BLOCKS;
            u64 index[4];
            u32 x[8];
            FULL_UNROLL
            for (u32 i = 0; i < 4; i++) {
                index[i] = (u64)unit * 128 + (COALESCED ? 32 * i + lane : 4 * lane + i);
                u32 block[2] = {};
                if (index[i] < end) {
                    if constexpr (MODE == CTR) {
                        load_block(block, batch.inputs[1].data + index[i] / 32 * C::BLOCK);
                        add_counter(block, (u32)index[i] % 32);
                    } else {
                        load_block(block, batch.inputs[0].data + index[i] * C::BLOCK);
                    }
                }
                x[i] = block[0], x[4 + i] = block[1];
            }
            C::template run<DECRYPT>(x, keys);
            FULL_UNROLL
            for (u32 i = 0; i < 4; i++) {
                if (index[i] >= end) continue;
                u32 block[2] = {x[i], x[4 + i]};
                if constexpr (MODE == CTR || MODE == CBC_DECRYPT) {
                    u32 other[2];
                    const u8* const own = batch.inputs[0].data + index[i] * C::BLOCK;
                    load_block(other, MODE == CTR            ? own
                                      : (u32)index[i] % 32 ? own - C::BLOCK
                                                           : batch.inputs[1].data + index[i] / 32 * C::BLOCK);
                    xor_block(block, other);
                }
                store_block(batch.outputs[0] + index[i] * C::BLOCK, block);
            }
            if (lane < 4 && 4 * unit + lane < batch.items) batch.codes[4 * unit + lane] = VALID;
        }
        __syncthreads();
        wipe(&keys, sizeof keys, threadIdx.x, THREADS);
    }
};

#else

template <class C, bool DECRYPT>
struct PackedGroup {
    static constexpr u32 GROUP = 4, BLOCK = C::BLOCK;
    static constexpr bool HAS_CTR = false;
    typename C::Keys keys;

    void open(const Batch& batch) {
        C::template schedule<DECRYPT>(keys, batch.state, batch.constant, (u32)batch.constant_bytes,
                                      batch.parameters[0]);
    }

    // 4 * LANES blocks at a time: eight vectors.
    void run(u8* blocks) {
        for (u32 at = 0; at < GROUP * STRIPE_BLOCKS * BLOCK; at += 8 * sizeof(Word)) {
            Word v[8], x[8];
            FULL_UNROLL
            for (u32 i = 0; i < 8; i++) v[i] = load_word(blocks + at + i * sizeof(Word));
            transpose4(v[0], v[1], v[2], v[3]);
            transpose4(v[4], v[5], v[6], v[7]);
            FULL_UNROLL
            for (u32 i = 0; i < 4; i++) x[i] = v[2 * i], x[4 + i] = v[2 * i + 1];
            C::template run<DECRYPT>(x, keys);
            FULL_UNROLL
            for (u32 i = 0; i < 4; i++) v[2 * i] = x[i], v[2 * i + 1] = x[4 + i];
            transpose4(v[0], v[1], v[2], v[3]);
            transpose4(v[4], v[5], v[6], v[7]);
            FULL_UNROLL
            for (u32 i = 0; i < 8; i++) store_word(blocks + at + i * sizeof(Word), v[i]);
        }
    }
};

#endif
