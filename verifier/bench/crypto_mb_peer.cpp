// crypto_mb's own verification through the functions of its headers, eight items a call: the rate that a plugin which is
// linked with it stands beside. Linked with libcrypto_mb.a.
typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;

constexpr u32 LANES = 8;

extern "C" {
u32 mbx_nistp256_ecdsa_verify_mb8(const u8* const r[8], const u8* const s[8], const u8* const digest[8],
                                  const u64* const x[8], const u64* const y[8], const u64* const z[8], u8* buffer);
u32 mbx_sm2_ecdsa_verify_mb8(const u8* const r[8], const u8* const s[8], const u8* const id[8], const int id_size[8],
                             const u8* const message[8], const int size[8], const u64* const x[8],
                             const u64* const y[8], const u64* const z[8], u8* buffer);

// The archive's objects have its interface for OpenSSL too, which nobody here calls.
#define UNUSED(name) \
    __attribute__((visibility("hidden"))) void name() { __builtin_trap(); }
UNUSED(BN_bin2bn)
UNUSED(BN_bn2lebinpad)
UNUSED(BN_is_word)
UNUSED(BN_num_bits)
UNUSED(ECDSA_SIG_get0)
}

// 32 bytes, big-endian, to words, least significant first.
static void load(u64 (&words)[4], const u8* bytes) {
    for (u32 i = 0; i < 4; i++) {
        __builtin_memcpy(&words[i], bytes + 24 - 8 * i, 8);
        words[i] = __builtin_bswap64(words[i]);
    }
}

// How many of `items`, one at least, are valid: inputs of 32 bytes, r || s, x || y. With `id` SM2 of messages. Lanes that
// are left over do the last item again.
extern "C" __attribute__((visibility("default"))) u32 verify_all(
    u32 items, const u8* inputs, const u8* signatures, const u8* keys, const u8* id, u32 id_size) {
    u32 valid = 0;
    for (u32 first = 0; first < items; first += LANES) {
        const u8 *r[LANES], *s[LANES], *input[LANES], *ids[LANES];
        u64 x[LANES][4], y[LANES][4];
        const u64 *xs[LANES], *ys[LANES];
        int sizes[LANES], id_sizes[LANES];
        for (u32 k = 0; k < LANES; k++) {
            const u64 item = first + k < items ? first + k : items - 1;
            r[k] = signatures + 64 * item, s[k] = r[k] + 32, input[k] = inputs + 32 * item;
            load(x[k], keys + 64 * item), load(y[k], keys + 64 * item + 32);
            xs[k] = x[k], ys[k] = y[k], ids[k] = id, sizes[k] = 32, id_sizes[k] = (int)id_size;
        }
        const u32 status = id ? mbx_sm2_ecdsa_verify_mb8(r, s, ids, id_sizes, input, sizes, xs, ys, 0, 0)
                              : mbx_nistp256_ecdsa_verify_mb8(r, s, input, xs, ys, 0, 0);
        for (u32 k = 0; k < LANES && first + k < items; k++) valid += (status >> 4 * k & 15) == 0;
    }
    return valid;
}
