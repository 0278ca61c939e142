// AES (FIPS 197): 128-bit blocks, keys of 128, 192 and 256 bits.
#include "aes.cuh"
#include "aes_cpu.cuh"
#include "ghash.cuh"
#include "modes.cuh"
#include "modes_chain.cuh"

PLUGIN_INFO(0, 0, 0)

#ifndef DIRECT_THREADS
#define DIRECT_THREADS 1024
#endif

#if !TARGET_GPU && defined(__x86_64__)
#define AES_STAGE(name, mode) BULK_STAGE(name, InstructionGroup, Aes, mode, 1, 1)
#else
#define AES_STAGE(name, mode) BULK_STAGE(name, DirectGroup, Aes, mode, DIRECT_THREADS, 1)
#endif

AES_STAGE(aes_ecb_encrypt, ECB_ENCRYPT)
AES_STAGE(aes_ecb_decrypt, ECB_DECRYPT)
AES_STAGE(aes_ctr, CTR)
AES_STAGE(aes_cbc_decrypt, CBC_DECRYPT)

EACH_STAGE(aes_encrypt_each, Aes, Each<Aes, false>)
EACH_STAGE(aes_decrypt_each, Aes, Each<Aes, true>)
EACH_STAGE(aes_cbc_encrypt, Aes, Chain<Aes>)

EACH_STAGE(aes_gcm_encrypt_each, Aes, EachGcm<Aes, false>)
EACH_STAGE(aes_gcm_decrypt_each, Aes, EachGcm<Aes, true>)
EACH_STAGE(aes_gcm_tag, Aes, GcmTag<Aes>)

GHASH_STAGE(aes_ghash_output, Aes, GHASH_OUTPUT)
GHASH_STAGE(aes_ghash_input, Aes, GHASH_INPUT)
GHASH_STAGE(aes_ghash_fold, Aes, GHASH_FOLD)
