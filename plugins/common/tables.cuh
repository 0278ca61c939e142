// Four tables of 256 words, one for each byte of a word. On a GPU they lie in shared memory 32 times, a copy a bank,
// so that the lanes of a warp never wait for one another: 128 KB.
#pragma once
#include "cipher.cuh"

struct TableSource {
    u32 word[4][256];
};

#if TARGET_GPU

struct FourTables {
    u32 word[2][256][2][32];  // tables 0 and 1, then 2 and 3: byte and lane are the address with one instruction
};

DEVICE void fill_tables(FourTables& tables, const TableSource& source, u32 thread, u32 threads) {
    u32* const to = (u32*)&tables;
    for (u32 i = thread; i < sizeof(FourTables) / 4; i += threads)
        to[i] = source.word[i / 16384 * 2 + i / 32 % 2][i / 64 % 256];
}

// The entry of table TABLE for byte BYTE of x.
template <u32 TABLE, u32 BYTE>
DEVICE u32 look_up(const FourTables& tables, u32 x, u32 lane) {
    const u32 offset = __byte_perm(x, lane * 4, 0x5504 | BYTE << 4);
    return *(const u32*)((const u8*)&tables + TABLE / 2 * 65536 + TABLE % 2 * 128 + offset);
}

#else

using FourTables = TableSource;

DEVICE void fill_tables(FourTables& tables, const TableSource& source, u32, u32) { tables = source; }

#endif

template <u32 TABLE, u32 BYTE>
DEVICE u32 look_up(const TableSource& tables, u32 x, u32) {
    return tables.word[TABLE][byte_of(x, BYTE)];
}
