// Crypto++'s ciphers as C functions, for cipher_peers.py. Built where libcrypto++-dev and a compiler are installed.
#include <cryptopp/aes.h>
#include <cryptopp/aria.h>
#include <cryptopp/hight.h>
#include <cryptopp/modes.h>
#include <cryptopp/sm4.h>

namespace {

enum Mode { ECB, CTR, CBC };

template <class Encryption, bool HAS_IV>
void run(const unsigned char* key, size_t key_bytes, const unsigned char* iv, const unsigned char* in,
         unsigned char* out, size_t bytes) {
    Encryption cipher;
    if constexpr (HAS_IV)
        cipher.SetKeyWithIV(key, key_bytes, iv);
    else
        cipher.SetKey(key, key_bytes);
    cipher.ProcessData(out, in, bytes);
}

template <class Cipher>
void encrypt(int mode, const unsigned char* key, size_t key_bytes, const unsigned char* iv, const unsigned char* in,
             unsigned char* out, size_t bytes) {
    using namespace CryptoPP;
    if (mode == ECB) run<typename ECB_Mode<Cipher>::Encryption, false>(key, key_bytes, iv, in, out, bytes);
    if (mode == CTR) run<typename CTR_Mode<Cipher>::Encryption, true>(key, key_bytes, iv, in, out, bytes);
    if (mode == CBC) run<typename CBC_Mode<Cipher>::Encryption, true>(key, key_bytes, iv, in, out, bytes);
}

}  // namespace

#define EXPORT(name, Cipher)                                                                                    \
    extern "C" void name(int mode, const unsigned char* key, size_t key_bytes, const unsigned char* iv,         \
                         const unsigned char* in, unsigned char* out, size_t bytes) {                           \
        encrypt<CryptoPP::Cipher>(mode, key, key_bytes, iv, in, out, bytes);                                    \
    }

EXPORT(aes, AES)
EXPORT(aria, ARIA)
EXPORT(hight, HIGHT)
EXPORT(sm4, SM4)
