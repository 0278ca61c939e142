// SM4 (GB/T 32907-2016): 128-bit blocks, 128-bit keys.
#include "ghash.cuh"
#include "modes.cuh"
#include "modes_chain.cuh"
#include "sm4.cuh"
#include "sm4_sliced.cuh"

PLUGIN_INFO(0, 0, 0)

// On a GPU tables win, on the CPU bit slicing.
#ifndef SLICED
#define SLICED (!TARGET_GPU)
#endif
#ifndef SLICED_THREADS
#define SLICED_THREADS 128
#endif
#ifndef SLICED_BLOCKS
#define SLICED_BLOCKS 2
#endif
#ifndef DIRECT_THREADS
#define DIRECT_THREADS 1024
#endif

#if SLICED
#define SM4_STAGE(name, mode) BULK_STAGE(name, SlicedGroup, SlicedSm4, mode, SLICED_THREADS, SLICED_BLOCKS)
#else
#define SM4_STAGE(name, mode) BULK_STAGE(name, DirectGroup, Sm4, mode, DIRECT_THREADS, 1)
#endif

SM4_STAGE(sm4_ecb_encrypt, ECB_ENCRYPT)
SM4_STAGE(sm4_ecb_decrypt, ECB_DECRYPT)
SM4_STAGE(sm4_ctr, CTR)
SM4_STAGE(sm4_cbc_decrypt, CBC_DECRYPT)

EACH_STAGE(sm4_encrypt_each, Sm4, Each<Sm4, false>)
EACH_STAGE(sm4_decrypt_each, Sm4, Each<Sm4, true>)
EACH_STAGE(sm4_cbc_encrypt, Sm4, Chain<Sm4>)

EACH_STAGE(sm4_gcm_encrypt_each, Sm4, EachGcm<Sm4, false>)
EACH_STAGE(sm4_gcm_decrypt_each, Sm4, EachGcm<Sm4, true>)
EACH_STAGE(sm4_gcm_tag, Sm4, GcmTag<Sm4>)

GHASH_STAGE(sm4_ghash_output, Sm4, GHASH_OUTPUT)
GHASH_STAGE(sm4_ghash_input, Sm4, GHASH_INPUT)
GHASH_STAGE(sm4_ghash_fold, Sm4, GHASH_FOLD)
