// What a block cipher is to the modes of modes.cuh, and the pieces that all ciphers share.
//
// A block is its bytes in memory order, held as little-endian words. A cipher comes in up to two forms:
//
// Direct, a block at a time:
//     BLOCK                  bytes of a block, 16 or 8
//     Tables<DECRYPT>        what its lookups read; in shared memory on a GPU
//     Keys                   round keys
//     key_fits(bytes)        whether a key of that many bytes is one of its sizes
//     fill(tables, state, thread, threads)        a thread's share of the tables
//     schedule<DECRYPT>(keys, tables, state, lane, key, bytes, option)   round keys from the key, by one thread
//     encrypt(tables, keys, lane, block), decrypt        in place
//
// Sliced, 32 blocks a lane of a Word (bitslice.cuh), s[k] being bit k of every block:
//     BITS                   of a block
//     MASKS                  masks that its round keys become
//     Keys, key_fits(bytes)
//     schedule<DECRYPT>(keys, state, key, bytes, option)
//     mask(keys, index)      the index-th mask: zero or all ones
//     encrypt(s, masks, keys), decrypt            in place; masks are `const Quad*` or what behaves so (masks_gpu.cuh)
//
// `state` is the plugin's, built at load. `option` is a choice that belongs to the cipher (HIGHT: the byte order), 0 where it has none.
#pragma once
#include "bitslice.cuh"
#include "bytes.cuh"

constexpr u32 STRIPE_BLOCKS = 32;  // blocks of an item of the bulk operations

// For ciphers that look nothing up.
struct NoTables {
    u32 none;
};

DEVICE u32 byte_of(u32 word, u32 index) {
#if TARGET_GPU
    return __byte_perm(word, 0, 0x4440 | index);
#else
    return word >> (8 * index) & 0xff;
#endif
}

// Bytes picked from the eight of a (0 to 3) and b (4 to 7), one hexadecimal digit of `pick` each, lowest first.
DEVICE u32 pick_bytes(u32 a, u32 b, u32 pick) {
#if TARGET_GPU
    return __byte_perm(a, b, pick);
#else
    const u64 both = (u64)b << 32 | a;
    u32 picked = 0;
    FULL_UNROLL
    for (u32 i = 0; i < 4; i++) picked |= (u32)(both >> (8 * (pick >> (4 * i) & 7)) & 0xff) << (8 * i);
    return picked;
#endif
}

// Adds n to a block read as one big-endian number; the carry runs through the whole block.
template <u32 WORDS>
DEVICE void add_counter(u32 (&block)[WORDS], u32 n) {
    FULL_UNROLL
    for (u32 i = 1; i <= WORDS; i++) {
        const u32 word = swap_bytes(block[WORDS - i]) + n;
        block[WORDS - i] = swap_bytes(word);
        n = word < n;
    }
}

template <u32 WORDS>
DEVICE void load_block(u32 (&block)[WORDS], const u8* from) {
#if TARGET_GPU
    if constexpr (WORDS == 4) {
        const uint4 v = *(const uint4*)from;
        block[0] = v.x, block[1] = v.y, block[2] = v.z, block[3] = v.w;
    } else {
        const uint2 v = *(const uint2*)from;
        block[0] = v.x, block[1] = v.y;
    }
#else
    __builtin_memcpy(block, from, 4 * WORDS);
#endif
}

template <u32 WORDS>
DEVICE void store_block(u8* to, const u32 (&block)[WORDS]) {
#if TARGET_GPU
    if constexpr (WORDS == 4)
        *(uint4*)to = make_uint4(block[0], block[1], block[2], block[3]);
    else
        *(uint2*)to = make_uint2(block[0], block[1]);
#else
    __builtin_memcpy(to, block, 4 * WORDS);
#endif
}

template <u32 WORDS>
DEVICE void xor_block(u32 (&block)[WORDS], const u32 (&other)[WORDS]) {
    FULL_UNROLL
    for (u32 i = 0; i < WORDS; i++) block[i] ^= other[i];
}

// Overwrites secrets; volatile, so that no compiler leaves it out.
DEVICE void wipe(void* secret, u32 bytes, u32 thread = 0, u32 threads = 1) {
    volatile u32* const words = (volatile u32*)secret;
    for (u32 i = thread; i < bytes / 4; i += threads) words[i] = 0;
}

// In a branch that the whole warp takes or not: keeps it a branch. The compiler would compute both sides and select.
DEVICE void keep_branch() { asm volatile(""); }
