// Kuznyechik (GOST R 34.12-2015, RFC 7801): 128-bit blocks, 256-bit keys.
#ifndef STRIDED  // the headers ask
#define STRIDED 1
#endif
#include "kuznyechik.cuh"
#include "kuznyechik_sliced.cuh"
#include "ghash.cuh"
#include "modes.cuh"
#include "modes_chain.cuh"
#include "modes_strided.cuh"

PLUGIN_INFO(sizeof(KuznyechikState), 0, 0)

STATE_STAGE(kuznyechik_tables, kuznyechik_entry, 8192, 128)

#ifndef SLICED
#define SLICED 1
#endif
#ifndef SLICED_THREADS
#define SLICED_THREADS 128
#endif
#ifndef SLICED_BLOCKS
#define SLICED_BLOCKS 2
#endif
#ifndef DIRECT_THREADS
#define DIRECT_THREADS 512
#endif

#if SLICED && STRIDED
#define KUZNYECHIK_STAGE(name, mode) \
    BULK_STAGE(name, StridedGroup, SlicedKuznyechik, mode, SLICED_THREADS, SLICED_BLOCKS)
#elif SLICED
#define KUZNYECHIK_STAGE(name, mode) \
    BULK_STAGE(name, SlicedGroup, SlicedKuznyechik, mode, SLICED_THREADS, SLICED_BLOCKS)
#else
#define KUZNYECHIK_STAGE(name, mode) BULK_STAGE(name, DirectGroup, Kuznyechik, mode, DIRECT_THREADS, 1)
#endif

KUZNYECHIK_STAGE(kuznyechik_ecb_encrypt, ECB_ENCRYPT)
KUZNYECHIK_STAGE(kuznyechik_ecb_decrypt, ECB_DECRYPT)
KUZNYECHIK_STAGE(kuznyechik_ctr, CTR)
KUZNYECHIK_STAGE(kuznyechik_cbc_decrypt, CBC_DECRYPT)

EACH_STAGE(kuznyechik_encrypt_each, Kuznyechik, Each<Kuznyechik, false>)
EACH_STAGE(kuznyechik_decrypt_each, Kuznyechik, Each<Kuznyechik, true>)
EACH_STAGE(kuznyechik_cbc_encrypt, Kuznyechik, Chain<Kuznyechik>)

EACH_STAGE(kuznyechik_gcm_encrypt_each, Kuznyechik, EachGcm<Kuznyechik, false>)
EACH_STAGE(kuznyechik_gcm_decrypt_each, Kuznyechik, EachGcm<Kuznyechik, true>)
EACH_STAGE(kuznyechik_gcm_tag, Kuznyechik, GcmTag<Kuznyechik>)

GHASH_STAGE(kuznyechik_ghash_output, Kuznyechik, GHASH_OUTPUT)
GHASH_STAGE(kuznyechik_ghash_input, Kuznyechik, GHASH_INPUT)
GHASH_STAGE(kuznyechik_ghash_fold, Kuznyechik, GHASH_FOLD)
