// The enums of proto/verifier/v1/verifier.proto that reach kernels as parameters. tests/plugins/test_schemes.py compares them.
#pragma once
#include "abi.cuh"

enum class Algorithm : u32 { UNSPECIFIED = 0, SM2 = 1, ECDSA_P256 = 2, ECDSA_SECP256K1 = 3 };

enum class InputKind : u32 { UNSPECIFIED = 0, MESSAGE = 1, DIGEST = 2, HASH_AS_MESSAGE = 3 };

enum class SignatureEncoding : u32 {
    UNSPECIFIED = 0,
    RAW_RS = 1,
    DER_STRICT = 2,
    DER_LAX = 3,
    RAW_RSV = 4,
    RAW_RS_KEY = 5,
};

enum class KeyEncoding : u32 {
    UNSPECIFIED = 0,
    RAW_XY = 1,
    SEC1_UNCOMPRESSED = 2,
    SEC1_COMPRESSED = 3,
    SPKI = 4,
    IN_SIGNATURE = 5,
    INDEX = 6,
};

enum class LowS : u32 { UNSPECIFIED = 0, ACCEPT_ANY = 1, REQUIRE = 2 };

enum class Hash : u32 { UNSPECIFIED = 0, SM3 = 1, SHA256 = 2, SHA256D = 3, KECCAK256 = 4, SHA3_256 = 5 };
