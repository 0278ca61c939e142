// SKINNY in sliced form: ShiftRows is renaming, and each step of the S-box one three-input operation.
#pragma once
#include "lut.cuh"
#include "skinny.cuh"

template <u32 CELL>
struct SlicedSkinny {
    static constexpr u32 BITS = 16 * CELL, BLOCK = 2 * CELL;
    static constexpr u32 ROUND_QUADS = 2 * CELL;  // masks of the eight cells of rows 0 and 1
    static constexpr u32 MASKS = SKINNY_MAX_ROUNDS * 8 * CELL;
    using Keys = SkinnyKeys;

    DEVICE bool key_fits(u32 bytes) { return skinny_key_fits<CELL>(bytes); }

    template <bool DECRYPT>
    DEVICE void schedule(Keys& keys, const u8*, const u8* key, u32 bytes, u32) { skinny_schedule<CELL>(keys, key, bytes); }

    DEVICE u32 mask(const Keys& keys, u32 index) {
        const u32 round = index / (8 * CELL), cell = index / CELL % 8;
        if (round >= keys.rounds) return 0;
        return mask_of(keys.rows[round][cell / 4], cell % 4 * 8 + index % CELL);
    }

    // Where bit 0 of a cell is. The high nibble of a byte is the first cell.
    DEVICE constexpr u32 at(u32 cell) { return CELL == 8 ? 8 * cell : cell / 2 * 8 + (1 - cell % 2) * 4; }

    // x ^= ~(a | b)
    DEVICE void add_nor(Word& x, const Word& a, const Word& b) {
#if NAMED_LOGIC
        x = lut<0xe1>(x, a, b);
#else
        x ^= ~(a | b);
#endif
    }

    DEVICE void substitute(Word (&x)[CELL]) {
        FULL_UNROLL
        for (u32 step = 0; step < 4; step++) {
            if constexpr (CELL == 8) {
                add_nor(x[4], x[7], x[6]);
                add_nor(x[0], x[3], x[2]);
                const Word y[8] = {x[5], x[3], x[0], x[4], x[6], x[7], x[1], x[2]};
                if (step < 3) {
                    FULL_UNROLL
                    for (u32 i = 0; i < 8; i++) x[i] = y[i];
                } else {
                    x[1] = y[7], x[2] = y[6];
                }
            } else {
                add_nor(x[0], x[3], x[2]);
                const Word y[4] = {x[3], x[0], x[1], x[2]};
                if (step < 3) {
                    FULL_UNROLL
                    for (u32 i = 0; i < 4; i++) x[i] = y[i];
                }
            }
        }
    }

    DEVICE void restore(Word (&x)[CELL]) {
        FULL_UNROLL
        for (u32 undone = 0; undone < 4; undone++) {
            const u32 step = 3 - undone;
            if constexpr (CELL == 8) {
                const Word y[8] = {x[2], x[6], x[7], x[1], x[3], x[0], x[4], x[5]};
                const Word swapped = x[1];
                if (step < 3) {
                    FULL_UNROLL
                    for (u32 i = 0; i < 8; i++) x[i] = y[i];
                } else {
                    x[1] = x[2], x[2] = swapped;
                }
                add_nor(x[4], x[7], x[6]);
                add_nor(x[0], x[3], x[2]);
            } else {
                const Word y[4] = {x[1], x[2], x[3], x[0]};
                if (step < 3) {
                    FULL_UNROLL
                    for (u32 i = 0; i < 4; i++) x[i] = y[i];
                }
                add_nor(x[0], x[3], x[2]);
            }
        }
    }

    DEVICE void take(Word (&cell)[CELL], const Word (&s)[BITS], u32 from) {
        FULL_UNROLL
        for (u32 i = 0; i < CELL; i++) cell[i] = s[at(from) + i];
    }

    // Rows 0 and 1 get their masks; cell 8 has a constant in bit 1.
    template <class Key>
    DEVICE void add_key(Word (&cell)[CELL], u32 index, const Key& key) {
        if (index < 8) {
            FULL_UNROLL
            for (u32 i = 0; i < CELL / 4; i++) {
                const Quad quad = key[index * (CELL / 4) + i];
                FULL_UNROLL
                for (u32 j = 0; j < 4; j++) add_mask(cell[4 * i + j], quad.x[j], key);
            }
        }
        if (index == 8) cell[1] = ~cell[1];
    }

    template <class Masks>
    DEVICE void round(Word (&out)[BITS], const Word (&in)[BITS], Masks masks) {
        const auto key = opened<ROUND_QUADS>(masks);
        FULL_UNROLL
        for (u32 j = 0; j < 4; j++) {
            Word row[4][CELL];
            FULL_UNROLL
            for (u32 i = 0; i < 4; i++) {
                const u32 from = 4 * i + (j + 4 - i) % 4;
                take(row[i], in, from);
                substitute(row[i]);
                if (!NAMED_LOGIC) add_key(row[i], from, key);
            }
#if NAMED_LOGIC
            FULL_UNROLL
            for (u32 b = 0; b < CELL; b++) {
                const u32 first = j * CELL + b, second = (4 + (j + 3) % 4) * CELL + b;  // masks of cells of rows 0 and 1
                const Word k0 = all_lanes(key[first / 4].x[first % 4]), k1 = all_lanes(key[second / 4].x[second % 4]);
                const bool flipped = j == 2 && b == 1;  // the constant of cell 8
                const Word r2 = row[2][b];
#if MULTIPLIED > 1
                Word r0 = row[0][b];
                add_mask(r0, k0, key);
                const Word sum = flipped ? lut<XNOR2>(r0, r2, r2) : r0 ^ r2;
                out[at(j) + b] = flipped ? lut<XNOR3>(r0, row[3][b], r2) : lut<XOR3>(r0, row[3][b], r2);
                out[at(4 + j) + b] = r0;
#else
                const Word sum = flipped ? lut<XNOR3>(row[0][b], k0, r2) : lut<XOR3>(row[0][b], k0, r2);
                out[at(j) + b] = sum ^ row[3][b];
                out[at(4 + j) + b] = row[0][b] ^ k0;
#endif
                out[at(8 + j) + b] = flipped ? lut<XNOR3>(row[1][b], k1, r2) : lut<XOR3>(row[1][b], k1, r2);
                out[at(12 + j) + b] = sum;
            }
#else
            FULL_UNROLL
            for (u32 b = 0; b < CELL; b++) {
                const Word sum = row[0][b] ^ row[2][b];
                out[at(j) + b] = sum ^ row[3][b];
                out[at(4 + j) + b] = row[0][b];
                out[at(8 + j) + b] = row[1][b] ^ row[2][b];
                out[at(12 + j) + b] = sum;
            }
#endif
        }
    }

    template <class Masks>
    DEVICE void undo_round(Word (&out)[BITS], const Word (&in)[BITS], Masks masks) {
        const auto key = opened<ROUND_QUADS>(masks);
        FULL_UNROLL
        for (u32 j = 0; j < 4; j++) {
            Word row[4][CELL];
            FULL_UNROLL
            for (u32 b = 0; b < CELL; b++) {
                const Word y0 = in[at(j) + b], y1 = in[at(4 + j) + b], y2 = in[at(8 + j) + b], y3 = in[at(12 + j) + b];
                row[0][b] = y1;
                row[1][b] = y2 ^ y1 ^ y3;
                row[2][b] = y1 ^ y3;
                row[3][b] = y0 ^ y3;
            }
            FULL_UNROLL
            for (u32 i = 0; i < 4; i++) {
                const u32 to = 4 * i + (j + 4 - i) % 4;
                add_key(row[i], to, key);
                restore(row[i]);
                FULL_UNROLL
                for (u32 b = 0; b < CELL; b++) out[at(to) + b] = row[i][b];
            }
        }
    }

    // Every size has a multiple of four rounds. Rolled: unrolled in full the code leaves the instruction cache.
    template <class Masks>
    DEVICE void encrypt(Word (&s)[BITS], Masks masks, const Keys& keys) {
        Word t[BITS];
        NO_UNROLL
        for (u32 i = 0; i < keys.rounds; i += 4, masks += 4 * ROUND_QUADS) {
            round(t, s, masks);
            round(s, t, masks + ROUND_QUADS);
            round(t, s, masks + 2 * ROUND_QUADS);
            round(s, t, masks + 3 * ROUND_QUADS);
        }
    }

    template <class Masks>
    DEVICE void decrypt(Word (&s)[BITS], Masks masks, const Keys& keys) {
        Word t[BITS];
        masks += keys.rounds * ROUND_QUADS;
        NO_UNROLL
        for (u32 i = 0; i < keys.rounds; i += 4) {
            masks -= 4 * ROUND_QUADS;
            undo_round(t, s, masks + 3 * ROUND_QUADS);
            undo_round(s, t, masks + 2 * ROUND_QUADS);
            undo_round(t, s, masks + ROUND_QUADS);
            undo_round(s, t, masks);
        }
    }
};
