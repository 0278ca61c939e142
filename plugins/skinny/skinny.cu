// SKINNY (Beierle et al., CRYPTO 2016), blocks of 64 and 128 bits, all six tweakey sizes.
#ifndef STRIDED  // the headers ask
#define STRIDED 1
#endif
#include "modes.cuh"
#include "modes_chain.cuh"
#include "skinny.cuh"
#include "skinny_sliced.cuh"
#include "modes_strided.cuh"

PLUGIN_INFO(0, 0, 0)

#ifndef SLICED
#define SLICED 1
#endif
#ifndef SLICED_THREADS
#define SLICED_THREADS 128
#endif
#ifndef SLICED_BLOCKS
#define SLICED_BLOCKS 3
#endif
#ifndef DIRECT_THREADS
#define DIRECT_THREADS 512
#endif

#if SLICED && STRIDED
#define SKINNY_STAGE(name, bits, mode) BULK_STAGE(name, StridedGroup, SlicedSkinny<bits / 16>, mode, SLICED_THREADS, SLICED_BLOCKS)
#elif SLICED
#define SKINNY_STAGE(name, bits, mode) BULK_STAGE(name, SlicedGroup, SlicedSkinny<bits / 16>, mode, SLICED_THREADS, SLICED_BLOCKS)
#else
#define SKINNY_STAGE(name, bits, mode) BULK_STAGE(name, DirectGroup, Skinny<bits / 16>, mode, DIRECT_THREADS, 1)
#endif

SKINNY_STAGE(skinny64_ecb_encrypt, 64, ECB_ENCRYPT)
SKINNY_STAGE(skinny64_ecb_decrypt, 64, ECB_DECRYPT)
SKINNY_STAGE(skinny64_ctr, 64, CTR)
SKINNY_STAGE(skinny64_cbc_decrypt, 64, CBC_DECRYPT)
SKINNY_STAGE(skinny128_ecb_encrypt, 128, ECB_ENCRYPT)
SKINNY_STAGE(skinny128_ecb_decrypt, 128, ECB_DECRYPT)
SKINNY_STAGE(skinny128_ctr, 128, CTR)
SKINNY_STAGE(skinny128_cbc_decrypt, 128, CBC_DECRYPT)

EACH_STAGE(skinny64_encrypt_each, Skinny<4>, Each<Skinny<4>, false>)
EACH_STAGE(skinny64_decrypt_each, Skinny<4>, Each<Skinny<4>, true>)

EACH_STAGE(skinny128_encrypt_each, Skinny<8>, Each<Skinny<8>, false>)
EACH_STAGE(skinny128_decrypt_each, Skinny<8>, Each<Skinny<8>, true>)
EACH_STAGE(skinny64_cbc_encrypt, Skinny<4>, Chain<Skinny<4>>)
EACH_STAGE(skinny128_cbc_encrypt, Skinny<8>, Chain<Skinny<8>>)
