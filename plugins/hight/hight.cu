// HIGHT (Hong et al., CHES 2006): 64-bit blocks, 128-bit keys.
#include "hight.cuh"
#include "hight_sliced.cuh"
#include "modes.cuh"
#include "hight_packed.cuh"

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

#if PACKED
#define HIGHT_STAGE(name, mode) BULK_STAGE(name, PackedGroup, PackedHight, mode, DIRECT_THREADS, 1)
#elif SLICED
#define HIGHT_STAGE(name, mode) BULK_STAGE(name, SlicedGroup, SlicedHight, mode, SLICED_THREADS, SLICED_BLOCKS)
#else
#define HIGHT_STAGE(name, mode) BULK_STAGE(name, DirectGroup, Hight, mode, DIRECT_THREADS, 1)
#endif

HIGHT_STAGE(hight_ecb_encrypt, ECB_ENCRYPT)
HIGHT_STAGE(hight_ecb_decrypt, ECB_DECRYPT)
HIGHT_STAGE(hight_ctr, CTR)
HIGHT_STAGE(hight_cbc_decrypt, CBC_DECRYPT)

EACH_STAGE(hight_encrypt_each, Hight, Each<Hight, false>)
EACH_STAGE(hight_decrypt_each, Hight, Each<Hight, true>)
