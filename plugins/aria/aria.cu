// ARIA (RFC 5794): 128-bit blocks, keys of 128, 192 and 256 bits.
#include "aria.cuh"
#include "aria_sliced.cuh"
#include "ghash.cuh"
#include "modes.cuh"
#include "modes_chain.cuh"

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
#define ARIA_STAGE(name, mode) BULK_STAGE(name, SlicedGroup, SlicedAria, mode, SLICED_THREADS, SLICED_BLOCKS)
#else
#define ARIA_STAGE(name, mode) BULK_STAGE(name, DirectGroup, Aria, mode, DIRECT_THREADS, 1)
#endif

ARIA_STAGE(aria_ecb_encrypt, ECB_ENCRYPT)
ARIA_STAGE(aria_ecb_decrypt, ECB_DECRYPT)
ARIA_STAGE(aria_ctr, CTR)
ARIA_STAGE(aria_cbc_decrypt, CBC_DECRYPT)

EACH_STAGE(aria_encrypt_each, Aria, Each<Aria, false>)
EACH_STAGE(aria_decrypt_each, Aria, Each<Aria, true>)
EACH_STAGE(aria_cbc_encrypt, Aria, Chain<Aria>)

EACH_STAGE(aria_gcm_encrypt_each, Aria, EachGcm<Aria, false>)
EACH_STAGE(aria_gcm_decrypt_each, Aria, EachGcm<Aria, true>)
EACH_STAGE(aria_gcm_tag, Aria, GcmTag<Aria>)

GHASH_STAGE(aria_ghash_output, Aria, GHASH_OUTPUT)
GHASH_STAGE(aria_ghash_input, Aria, GHASH_INPUT)
GHASH_STAGE(aria_ghash_fold, Aria, GHASH_FOLD)
