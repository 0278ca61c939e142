// HIGHT (Hong et al., CHES 2006): 64-bit blocks, 128-bit keys.
#ifndef STRIDED  // the headers ask
#define STRIDED 1
#endif
#include "hight.cuh"
#include "hight_sliced.cuh"
#include "modes.cuh"
#include "modes_chain.cuh"
#include "hight_packed.cuh"
#include "hight_rows.cuh"
#include "modes_strided.cuh"

PLUGIN_INFO(0, 0, 0)

#ifndef SLICED
#define SLICED 1
#endif
#ifndef PACKED
#define PACKED 0
#endif
#ifndef SLICED_THREADS
#define SLICED_THREADS 128
#endif
#ifndef SLICED_BLOCKS
#define SLICED_BLOCKS 4
#endif
#ifndef DIRECT_THREADS
#define DIRECT_THREADS 256
#endif

#ifndef IN_A_ROW
#define IN_A_ROW 0
#endif

#if PACKED
#define HIGHT_STAGE(name, mode) BULK_STAGE(name, PackedGroup, PackedHight, mode, DIRECT_THREADS, 1)
#elif SLICED && STRIDED
#define HIGHT_STAGE(name, mode) BULK_STAGE(name, StridedGroup, SlicedHight, mode, SLICED_THREADS, SLICED_BLOCKS)
#elif SLICED
#define HIGHT_STAGE(name, mode) BULK_STAGE(name, SlicedGroup, SlicedHight, mode, SLICED_THREADS, SLICED_BLOCKS)
#elif IN_A_ROW
#define HIGHT_STAGE(name, mode) BULK_STAGE(name, RowGroup, Hight, mode, DIRECT_THREADS, 1)
#else
#define HIGHT_STAGE(name, mode) BULK_STAGE(name, DirectGroup, Hight, mode, DIRECT_THREADS, 1)
#endif

HIGHT_STAGE(hight_ecb_encrypt, ECB_ENCRYPT)
HIGHT_STAGE(hight_ecb_decrypt, ECB_DECRYPT)
HIGHT_STAGE(hight_ctr, CTR)
HIGHT_STAGE(hight_cbc_decrypt, CBC_DECRYPT)

EACH_STAGE(hight_encrypt_each, Hight, Each<Hight, false>)
EACH_STAGE(hight_decrypt_each, Hight, Each<Hight, true>)
EACH_STAGE(hight_cbc_encrypt, Hight, Chain<Hight>)
