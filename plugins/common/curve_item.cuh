// What the stages of a signature scheme hand each other about an item: planes of 256-bit integers in item scratch.
//
//   prepare   parses the item, settles what is malformed or out of range, and fills the planes of the others
//   verify    decides whether x(u1 G + u2 Q) mod n == target, or leaves RETRY (curve_verify.cuh)
//   finish    decides what was left, with complete formulas (curve_finish.cuh)
//
// Recovery has `multiply` in the place of `verify`: it gives the point itself.
//
// An item whose code is still UNDECIDED after `prepare` is to be verified; its planes must be filled. The planes of
// other items are read too (a warp computes for all its lanes) but may hold anything.
//
//   plane     verify (in)                     recover (in)                    point (out)
//   U1        u1 < n                          u1 < n
//   U2        u2 < n                          u2 < n
//   QX, QY    Q affine, < p, on the curve     the point R                     X, Y of u1 G + u2 Q,
//   TARGET    target < n                                                      Z: (X / Z^2, Y / Z^3)
//   VALUE     what invert_scalars inverts, in [1, n); anything else stays as it is
//   PREFIX    its workspace
//
// SM2: u1 = s, u2 = t = (r + s) mod n, target = (r - e) mod n. ECDSA: u1 = e / s, u2 = r / s, target = r.
//
// On a GPU words of neighbouring items are neighbours, so that a warp's accesses coalesce; on the CPU an item's words
// are.
#pragma once
#include "words.cuh"

enum Plane : u32 { U1 = 0, U2 = 1, QX = 2, QY = 3, TARGET = 4, VALUE = 5, PREFIX = 6 };

constexpr u32 VERIFY_PLANES = 5;   // a plugin that inverts nothing needs no more
constexpr u32 ALL_PLANES = 7;
constexpr u32 PLANE_BYTES = 32;    // of one item; PLUGIN_INFO's scratch_item_bytes = planes * PLANE_BYTES

template <u32 PLANES>
struct ItemScratch {
    u32* words;
    u64 stride;

    static constexpr u32 BYTES = PLANES * PLANE_BYTES;
};

template <u32 PLANES>
DEVICE ItemScratch<PLANES> item_scratch(const Batch& batch, u32 item) {
    u32* base = (u32*)batch.item_scratch;
#if TARGET_GPU
    return {base + item, batch.capacity};
#else
    return {base + (u64)item * (PLANES * 8), 1};
#endif
}

template <u32 PLANES>
DEVICE Words load(const ItemScratch<PLANES>& scratch, Plane plane) {
    Words r;
    UNROLL for (u32 i = 0; i < 8; i++) r.w[i] = scratch.words[(plane * 8 + i) * scratch.stride];
    return r;
}

template <u32 PLANES>
DEVICE void store(const ItemScratch<PLANES>& scratch, Plane plane, const Words& value) {
    UNROLL for (u32 i = 0; i < 8; i++) scratch.words[(plane * 8 + i) * scratch.stride] = value.w[i];
}
