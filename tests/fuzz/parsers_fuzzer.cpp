// libFuzzer harness of the parsers: the first byte picks the parser, the rest is the value, in a block of its own.
//
//   clang++ -std=c++17 -O1 -g -fsanitize=fuzzer,address,undefined -I plugins/common tests/fuzz/parsers_fuzzer.cpp -o parsers_fuzzer
//   ./parsers_fuzzer -max_len=400 -max_total_time=600
//
// Besides the sanitizers' findings, three properties are checked: a parser answers with a code that it may give, what
// strict DER takes lax DER takes with the same integers, and what is taken reads back as the bytes that were given.
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "encodings.cuh"

static void require(bool condition) {
    if (!condition) abort();
}

static bool same(const Words& left, const Words& right) { return memcmp(left.w, right.w, 32) == 0; }

static void check_signature(SignatureEncoding encoding, Bytes bytes) {
    Signature signature;
    const Code code = parse_signature(encoding, bytes, signature);
    const bool der = encoding == SignatureEncoding::DER_STRICT || encoding == SignatureEncoding::DER_LAX;
    require(code == UNDECIDED || (der ? code == SIGNATURE_DER || code == OUT_OF_RANGE
                                      : code == SIGNATURE_LENGTH || code == RECOVERY_ID));
    if (code != UNDECIDED) return;
    require(signature.recovery < 4);
    if (encoding == SignatureEncoding::DER_STRICT) {
        Signature lax;
        require(parse_signature(SignatureEncoding::DER_LAX, bytes, lax) == UNDECIDED);
        require(same(lax.r, signature.r) && same(lax.s, signature.s));
        require(bytes.size >= 8 && bytes.size <= 72);
    }
    if (!der) {
        u8 back[64];
        store_be256(back, signature.r.w), store_be256(back + 32, signature.s.w);
        require(memcmp(back, bytes.data, 64) == 0);
    }
}

static void check_key(Algorithm algorithm, KeyEncoding encoding, Bytes bytes) {
    PublicKey key;
    const Code code = parse_key(algorithm, encoding, bytes, key);
    require(code == UNDECIDED || code == KEY_LENGTH || code == KEY_PREFIX || code == KEY_SPKI);
    if (code != UNDECIDED) return;
    u8 back[64];
    store_be256(back, key.x.w), store_be256(back + 32, key.y.w);
    const u32 size = key.compressed ? 32 : 64;  // the point ends the value in every encoding
    require(bytes.size >= size && memcmp(back, bytes.data + bytes.size - size, size) == 0);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    if (size == 0) return 0;
    u8* block = (u8*)malloc(size - 1);
    if (size > 1) memcpy(block, data + 1, size - 1);
    const Bytes bytes = {block, (u32)(size - 1)};
    const u32 choice = data[0] % 20;
    if (choice < 5) check_signature((SignatureEncoding)(1 + choice), bytes);
    else check_key((Algorithm)(1 + (choice - 5) / 5), (KeyEncoding)(1 + (choice - 5) % 5), bytes);
    free(block);
    return 0;
}

// Seeds from the command line of a build without libFuzzer: every argument is a file with one input.
#ifdef STANDALONE
#include <cstdio>
int main(int count, char** names) {
    for (int i = 1; i < count; i++) {
        FILE* file = fopen(names[i], "rb");
        require(file != nullptr);
        static uint8_t data[1 << 16];
        const size_t size = fread(data, 1, sizeof data, file);
        fclose(file);
        LLVMFuzzerTestOneInput(data, size);
    }
    printf("%d inputs\n", count - 1);
    return 0;
}
#endif
