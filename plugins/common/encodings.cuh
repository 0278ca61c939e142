// Parsers of one item's signature and key, from the wire encodings to 256-bit integers.
//
// A parser answers UNDECIDED when the value is well formed: nothing is decided yet and the item goes on. Any
// other Code is final. Ranges below the group order or the field prime are the curve's to check, except that an
// integer of more than 256 bits is OUT_OF_RANGE here, because it has no `Words`.
#pragma once
#include "scheme.cuh"
#include "words.cuh"

// A hash's eight big-endian words as an integer.
DEVICE Words digest_number(const u32 (&digest)[8]) {
    Words number;
    UNROLL for (u32 i = 0; i < 8; i++) number.w[i] = digest[7 - i];
    return number;
}

struct Signature {
    Words r, s;
    u32 recovery;  // RAW_RSV: 0 to 3
};

struct PublicKey {
    Words x, y;       // y is zero where compressed
    bool compressed;  // y is to be computed from x
    bool odd;         // its parity
};

// A place in a byte string, never past its end.
struct Cursor {
    const u8* data;
    u32 size;
    u32 at;
};

DEVICE u32 remaining(const Cursor& cursor) { return cursor.size - cursor.at; }

DEVICE bool take_byte(Cursor& cursor, u32& byte) {
    if (cursor.at >= cursor.size) return false;
    byte = cursor.data[cursor.at++];
    return true;
}

DEVICE bool take_tag(Cursor& cursor, u32 tag) {
    u32 byte;
    return take_byte(cursor, byte) && byte == tag;
}

// The magnitude in [begin, begin + size) of `data`, leading zeros allowed. False where it has more than 256 bits.
DEVICE bool load_magnitude(Words& number, const u8* data, u32 begin, u32 size) {
    while (size && data[begin] == 0) begin++, size--;
    load_be_short(number.w, data + begin, size > 32 ? 32 : size);
    return size <= 32;
}

// X.690: a definite length in its shortest form (8.1.3, 10.1) that fits what is left.
DEVICE bool der_length(Cursor& cursor, u32& length) {
    if (!take_byte(cursor, length)) return false;
    if (length >= 0x80) {
        const u32 bytes = length - 0x80;
        if (bytes < 1 || bytes > 4) return false;  // indefinite, or more than any column can hold
        length = 0;
        for (u32 i = 0; i < bytes; i++) {
            u32 byte;
            if (!take_byte(cursor, byte)) return false;
            length = length << 8 | byte;
        }
        if (length < 0x80 || (bytes > 1 && length >> 8 * (bytes - 1) == 0)) return false;
    }
    return length <= remaining(cursor);
}

// X.690 8.3: an INTEGER in its shortest form that is not negative.
DEVICE bool der_integer(Cursor& cursor, Words& number, bool& fits) {
    u32 size;
    if (!take_tag(cursor, 0x02) || !der_length(cursor, size) || size == 0) return false;
    const u8* value = cursor.data + cursor.at;
    if (value[0] & 0x80) return false;
    if (size > 1 && value[0] == 0 && !(value[1] & 0x80)) return false;
    fits = load_magnitude(number, cursor.data, cursor.at, size);
    cursor.at += size;
    return true;
}

DEVICE Code parse_der_strict(Bytes bytes, Signature& signature) {
    Cursor cursor = {bytes.data, bytes.size, 0};
    u32 length;
    bool r_fits, s_fits;
    if (!take_tag(cursor, 0x30) || !der_length(cursor, length) || length != remaining(cursor)) return SIGNATURE_DER;
    if (!der_integer(cursor, signature.r, r_fits) || !der_integer(cursor, signature.s, s_fits)) return SIGNATURE_DER;
    if (remaining(cursor)) return SIGNATURE_DER;
    return r_fits && s_fits ? UNDECIDED : OUT_OF_RANGE;
}

// An integer as OpenSSL took it before 2015: any length form, padding and sign bit.
DEVICE bool lax_integer(Cursor& cursor, Words& number, bool& fits) {
    u32 size;
    if (!take_tag(cursor, 0x02) || !take_byte(cursor, size)) return false;
    if (size >= 0x80) {
        u32 bytes = size - 0x80;
        if (bytes > remaining(cursor)) return false;
        while (bytes && cursor.data[cursor.at] == 0) cursor.at++, bytes--;
        if (bytes >= 4) return false;
        size = 0;
        for (; bytes; bytes--) size = size << 8 | cursor.data[cursor.at++];
    }
    if (size > remaining(cursor)) return false;
    fits = load_magnitude(number, cursor.data, cursor.at, size);
    cursor.at += size;
    return true;
}

// The rules that BIP 66 replaced, as Bitcoin still applies them to older blocks: the sequence's length is skipped
// unread, integers may be padded and are never negative, and what follows s is ignored.
DEVICE Code parse_der_lax(Bytes bytes, Signature& signature) {
    Cursor cursor = {bytes.data, bytes.size, 0};
    u32 length;
    bool r_fits, s_fits;
    if (!take_tag(cursor, 0x30) || !take_byte(cursor, length)) return SIGNATURE_DER;
    if (length >= 0x80) {
        if (length - 0x80 > remaining(cursor)) return SIGNATURE_DER;
        cursor.at += length - 0x80;
    }
    if (!lax_integer(cursor, signature.r, r_fits) || !lax_integer(cursor, signature.s, s_fits)) return SIGNATURE_DER;
    return r_fits && s_fits ? UNDECIDED : OUT_OF_RANGE;
}

DEVICE Code parse_signature(SignatureEncoding encoding, Bytes bytes, Signature& signature) {
    signature.recovery = 0;
    if (encoding == SignatureEncoding::DER_STRICT) return parse_der_strict(bytes, signature);
    if (encoding == SignatureEncoding::DER_LAX) return parse_der_lax(bytes, signature);
    const u32 size = encoding == SignatureEncoding::RAW_RSV ? 65 : encoding == SignatureEncoding::RAW_RS_KEY ? 128 : 64;
    if (bytes.size != size) return SIGNATURE_LENGTH;
    load_be256(signature.r.w, bytes.data);
    load_be256(signature.s.w, bytes.data + 32);
    if (encoding == SignatureEncoding::RAW_RSV) {
        const u32 v = bytes.data[64];
        signature.recovery = v >= 27 ? v - 27 : v;
        if (signature.recovery > 3) return RECOVERY_ID;
    }
    return UNDECIDED;
}

// SubjectPublicKeyInfo (RFC 5480) up to the point: lengths of the outer SEQUENCE and of the BIT STRING vary with
// the point's, everything else is fixed by the curve.
CONSTANT u8 SPKI_EC_PUBLIC_KEY[9] = {0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01};
CONSTANT u8 SPKI_SM2[10] = {0x06, 0x08, 0x2a, 0x81, 0x1c, 0xcf, 0x55, 0x01, 0x82, 0x2d};
CONSTANT u8 SPKI_P256[10] = {0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07};
CONSTANT u8 SPKI_SECP256K1[7] = {0x06, 0x05, 0x2b, 0x81, 0x04, 0x00, 0x0a};

DEVICE bool equal_bytes(const u8* left, const u8* right, u32 size) {
    u32 difference = 0;
    NO_UNROLL
    for (u32 i = 0; i < size; i++) difference |= left[i] ^ right[i];
    return difference == 0;
}

// The point inside a SubjectPublicKeyInfo of the algorithm's curve. False where it is anything else.
DEVICE bool spki_point(Algorithm algorithm, Bytes bytes, Bytes& point) {
    const u8* curve = algorithm == Algorithm::SM2          ? SPKI_SM2
                      : algorithm == Algorithm::ECDSA_P256 ? SPKI_P256
                                                           : SPKI_SECP256K1;
    const u32 curve_size = algorithm == Algorithm::ECDSA_SECP256K1 ? 7 : 10;
    const u32 header = 4 + 9 + curve_size + 3;  // two SEQUENCE heads, two identifiers, BIT STRING head
    const u8* data = bytes.data;
    if (bytes.size != header + 65 && bytes.size != header + 33) return false;
    const u32 point_size = bytes.size - header;
    if (data[0] != 0x30 || data[1] != bytes.size - 2 || data[2] != 0x30 || data[3] != 9 + curve_size) return false;
    if (!equal_bytes(data + 4, SPKI_EC_PUBLIC_KEY, 9) || !equal_bytes(data + 13, curve, curve_size)) return false;
    const u8* bits = data + 13 + curve_size;
    if (bits[0] != 0x03 || bits[1] != point_size + 1 || bits[2] != 0) return false;
    point = {bits + 3, point_size};
    return point_size == 65 ? point.data[0] == 4 : (point.data[0] & 0xfe) == 2;
}

// A key in a column of its own, or with IN_SIGNATURE behind r || s: `bytes` is then the signature.
DEVICE Code parse_key(Algorithm algorithm, KeyEncoding encoding, Bytes bytes, PublicKey& key) {
    Bytes point = bytes;
    u32 head = 1;  // bytes before x
    if (encoding == KeyEncoding::SPKI) {
        if (!spki_point(algorithm, bytes, point)) return KEY_SPKI;
    } else if (encoding == KeyEncoding::SEC1_COMPRESSED) {
        if (bytes.size != 33) return KEY_LENGTH;
        if ((bytes.data[0] & 0xfe) != 2) return KEY_PREFIX;
    } else if (encoding == KeyEncoding::SEC1_UNCOMPRESSED) {
        if (bytes.size != 65) return KEY_LENGTH;
        if (bytes.data[0] != 4) return KEY_PREFIX;
    } else {
        head = encoding == KeyEncoding::IN_SIGNATURE ? 64 : 0;
        if (bytes.size != head + 64) return KEY_LENGTH;
    }
    load_be256(key.x.w, point.data + head);
    key.compressed = point.size == 33;
    if (key.compressed) {
        key.y = small_words(0);
        key.odd = point.data[0] & 1;
    } else {
        load_be256(key.y.w, point.data + head + 32);
        key.odd = key.y.w[0] & 1;
    }
    return UNDECIDED;
}
