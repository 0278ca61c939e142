// What the hash functions share: a message is a sequence of byte ranges, read in place, block by block.
//
// Blocks are pulled into registers, so there is one copy of the compression in the code and no buffer in memory.
// `prefix` are big-endian words that stand before the ranges and are already in registers (SM2: ZA).
#pragma once
#include "bytes.cuh"

// A digest of eight big-endian words as its 32 bytes.
DEVICE void store_digest(u8* bytes, const u32 (&digest)[8]) {
    UNROLL for (u32 i = 0; i < 8; i++) store_be32(bytes + 4 * i, digest[i]);
}

template <u32 N>
DEVICE u64 total_size(const Bytes (&parts)[N]) {
    u64 size = 0;
    UNROLL for (u32 p = 0; p < N; p++) size += parts[p].size;
    return size;
}

// WORDS little-endian words of the concatenated parts from byte `at` on, which may lie before their beginning.
// Bytes outside the parts are zero, but for `suffix`, which stands right behind the last.
template <u32 WORDS, u32 N>
DEVICE void gather(u32 (&words)[WORDS], const Bytes (&parts)[N], long long at, u8 suffix) {
    const u8* whole = nullptr;
    long long begin = 0;
    UNROLL for (u32 p = 0; p < N; p++) {
        const long long end = begin + parts[p].size;
        if (at >= begin && at + 4 * WORDS <= end) whole = parts[p].data + (at - begin);
        begin = end;
    }
    if (whole) {
        load_le32s(words, whole);
        return;
    }
    const u32 size = 4 * WORDS;
    const long long past = begin - at;
    const u32 end_mark = past >= 0 && past < size ? (u32)past : size;
    UNROLL for (u32 i = 0; i < WORDS; i++) words[i] = end_mark / 4 == i ? (u32)suffix << 8 * (end_mark % 4) : 0;
    begin = 0;
    UNROLL for (u32 p = 0; p < N; p++) {
        // Part p covers the bytes [first, last) of this block.
        const long long end = begin + parts[p].size;
        const u32 first = begin <= at ? 0 : begin - at < size ? (u32)(begin - at) : size;
        const u32 last = end <= at ? 0 : end - at < size ? (u32)(end - at) : size;
        const u8* base = parts[p].data + (at - begin);
        if (first < last) {
            UNROLL for (u32 i = 0; i < WORDS; i++) {
                if (first <= 4 * i && 4 * i + 4 <= last) {
                    words[i] = load_le32(base + 4 * i);
                } else if (first < 4 * i + 4 && 4 * i < last) {
                    UNROLL for (u32 j = 0; j < 4; j++) {
                        if (first <= 4 * i + j && 4 * i + j < last) words[i] |= (u32)base[4 * i + j] << 8 * j;
                    }
                }
            }
        }
        begin = end;
    }
}

// The iteration of SM3 and SHA-256: 64-byte blocks, padded with a one bit, zeros and the 64-bit length in bits.
// `Function` names an overload of `hash_initial` and of `hash_compress`.
template <class Function, u32 PREFIX, u32 N>
DEVICE void merkle_damgard(u32 (&state)[8], const u32 (&prefix)[PREFIX], u32 prefix_words, const Bytes (&parts)[N]) {
    static_assert(PREFIX <= 16, "a prefix fits the first block");
    const u64 size = 4ull * prefix_words + total_size(parts);
    const u64 blocks = (size + 8) / 64 + 1;
    hash_initial(Function{}, state);
    NO_UNROLL
    for (u64 index = 0; index < blocks; index++) {
        u32 block[16];
        gather(block, parts, (long long)(64 * index) - 4 * prefix_words, 0x80);
        UNROLL for (u32 i = 0; i < 16; i++) block[i] = swap_bytes(block[i]);
        if (index == 0) {
            UNROLL for (u32 i = 0; i < PREFIX; i++) if (i < prefix_words) block[i] = prefix[i];
        }
        if (index + 1 == blocks) block[14] = (u32)(size >> 29), block[15] = (u32)(size << 3);
        hash_compress(Function{}, state, block);
    }
}
