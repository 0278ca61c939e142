// Columns whose words are interleaved, to be compared with reading them as they come.
//
// Columns of one width in whole words are: digests, r || s, r || s || x || y, and x || y. Others (DER, SEC1, SPKI,
// messages, columns with offsets) are read as they come. INTERLEAVED says who interleaves:
//
//   1   the kernel: before it prepares an item, a warp transposes the columns of its 32 items through shared memory
//       into the planes of item scratch, word w of item i at w * capacity + i. `prepare` fills the same planes
//       later, so that this takes no memory. On the CPU an item's words stay together, as its planes do.
//   2   the sender: in every 32 items, word w of item i stands at 32 * w + i. No column of the ABI is like that, and
//       only whole groups of 32 items can be; bench/column_layouts.py makes them.
//
// Words keep their byte order.
#pragma once
#include "sm2_prepare.cuh"

constexpr u32 PREPARE_THREADS = 128;

// Whether a column can be interleaved: `bytes` an item, and words at addresses of words.
DEVICE bool has_words(const Column& column, u32 bytes) {
    return !column.offsets && column.stride == bytes && ((u64)column.data & 3) == 0;
}

#if TARGET_GPU

// Room for 32 items of up to 32 words, and a word more each so that a warp's reads meet every bank once.
DEVICE u32* warp_tile() {
    constexpr u32 WORDS = 32 * 33;
    static __shared__ u32 tiles[PREPARE_THREADS / 32 * WORDS];
    return tiles + threadIdx.x / 32 * WORDS;
}

// A warp's 32 items, WORDS of each, into the planes from `to` on; every lane of the warp calls it with its item.
template <u32 WORDS>
DEVICE void transpose(const Batch& batch, const Column& column, Plane to, const Lane& lane, u32 item) {
    u32* const tile = warp_tile();
    const u32 self = threadIdx.x % 32, first = item & ~31u;
    const u32 there = batch.items - first < 32 ? (batch.items - first) * WORDS : 32 * WORDS;
    const u32* const from = (const u32*)(column.data + first * column.stride);
    UNROLL for (u32 k = 0; k < WORDS; k++) {
        const u32 word = 32 * k + self;
        if (word < there) tile[word + word / WORDS] = from[word];
    }
    __syncwarp();
    u32* const words = item_scratch<VERIFY_PLANES>(batch, item).words;
    UNROLL for (u32 w = 0; w < WORDS; w++) {
        if (lane.live) words[(u64)(to * 8 + w) * batch.capacity] = tile[self * (WORDS + 1) + w];
    }
    __syncwarp();
}

#else

template <u32 WORDS>
DEVICE void transpose(const Batch& batch, const Column& column, Plane to, const Lane&, u32 item) {
    u32* const words = item_scratch<VERIFY_PLANES>(batch, item).words;
    const u8* const from = column.data + item * column.stride;
    for (u32 w = 0; w < WORDS; w++) words[to * 8 + w] = load_le32(from + 4 * w);
}

#endif

// Bytes of an item in the interleaved column of an input, as its encoding has them; 0: it is read as it comes.
DEVICE u32 interleaved_input(const Batch& batch) {
    return (InputKind)batch.parameters[INPUT_KIND] == InputKind::DIGEST && has_words(batch.inputs[0], 32) ? 32 : 0;
}
DEVICE u32 interleaved_signature(const Batch& batch) {
    const SignatureEncoding encoding = (SignatureEncoding)batch.parameters[SIGNATURE_ENCODING];
    if (encoding == SignatureEncoding::RAW_RS && has_words(batch.inputs[1], 64)) return 64;
    return encoding == SignatureEncoding::RAW_RS_KEY && has_words(batch.inputs[1], 128) ? 128 : 0;
}
DEVICE u32 interleaved_key(const Batch& batch) {
    return (KeyEncoding)batch.parameters[KEY_ENCODING] == KeyEncoding::RAW_XY && has_words(batch.inputs[2], 64) ? 64 : 0;
}

// Into the planes where Interleaved finds them.
DEVICE void transpose_columns(const Batch& batch, const Lane& lane, u32 item) {
    const u32 signature = interleaved_signature(batch);
    if (signature == 64) transpose<16>(batch, batch.inputs[1], U1, lane, item);
    if (signature == 128) transpose<32>(batch, batch.inputs[1], U1, lane, item);  // x and y to QX and QY
    if (interleaved_key(batch)) transpose<16>(batch, batch.inputs[2], QX, lane, item);
    if (interleaved_input(batch)) transpose<8>(batch, batch.inputs[0], TARGET, lane, item);
}

// In the place of Rows.
struct Interleaved {
    // The big-endian integer in words [first, first + 8) of an item of a column, which were brought to `plane`.
    DEVICE Words number(const Batch& batch, const Column& column, u32 first, Plane plane, u32 item) {
        Words number;
#if INTERLEAVED == 2
        const u32* const words = (const u32*)(column.data + (item & ~31u) * column.stride) + 32 * first + item % 32;
        UNROLL for (u32 i = 0; i < 8; i++) number.w[i] = swap_bytes(words[32 * (7 - i)]);
#else
        const Words words = load(item_scratch<VERIFY_PLANES>(batch, item), plane);
        UNROLL for (u32 i = 0; i < 8; i++) number.w[i] = swap_bytes(words.w[7 - i]);
#endif
        return number;
    }

    DEVICE Code signature(Signature& signature, const Batch& batch, u32 item, Bytes bytes) {
        if (!interleaved_signature(batch)) return Rows::signature(signature, batch, item, bytes);
        signature.recovery = 0;
        signature.r = number(batch, batch.inputs[1], 0, U1, item);
        signature.s = number(batch, batch.inputs[1], 8, U2, item);
        return UNDECIDED;
    }

    DEVICE Code key(PublicKey& key, const Batch& batch, u32 item, Bytes bytes) {
        const bool in_signature = (KeyEncoding)batch.parameters[KEY_ENCODING] == KeyEncoding::IN_SIGNATURE;
        if (in_signature ? interleaved_signature(batch) != 128 : !interleaved_key(batch))
            return Rows::key(key, batch, item, bytes);
        const Column& column = batch.inputs[in_signature ? 1 : 2];
        const u32 first = in_signature ? 16 : 0;
        key.x = number(batch, column, first, QX, item);
        key.y = number(batch, column, first + 8, QY, item);
        key.compressed = false;
        key.odd = key.y.w[0] & 1;
        return UNDECIDED;
    }

    DEVICE void digest(Words& e, const Batch& batch, u32 item, Bytes bytes) {
        if (interleaved_input(batch)) e = number(batch, batch.inputs[0], 0, TARGET, item);
        else Rows::digest(e, batch, item, bytes);
    }
};

template <bool LATER>
DEVICE bool prepare_item(const Batch& batch, const Lane& lane, u32 item) {
    if (INTERLEAVED == 1) transpose_columns(batch, lane, item);
    return prepare<false, Interleaved, LATER>(batch, lane, item);
}
