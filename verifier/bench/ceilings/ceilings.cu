// Loops of one operation each: their rates are the ceilings that other figures are fractions of.
#include "field.cuh"

PLUGIN_INFO(0, 0, 0)

// Every item does OPERATIONS of them, or FIELD_OPERATIONS of a field's.
constexpr u32 CHAINS = 8, OPERATIONS = 8192, FIELD_OPERATIONS = 1024;

// 32 × 32-bit products added to 64-bit sums, as a product of 256-bit numbers adds them up: a row multiplies all words of
// one factor by a word of the other, the even ones into one chain of carries and the odd ones into another.
// Nothing but products is in the loop; that b[i] comes round again does not matter, as the compiler may not look inside.
#if TARGET_GPU
DEVICE void row(u32 (&sum)[8], u32 a0, u32 a2, u32 a4, u32 a6, u32 b) {
    asm volatile(
        "mad.lo.cc.u32 %0, %8, %12, %0;   madc.hi.cc.u32 %1, %8, %12, %1;\n\t"
        "madc.lo.cc.u32 %2, %9, %12, %2;  madc.hi.cc.u32 %3, %9, %12, %3;\n\t"
        "madc.lo.cc.u32 %4, %10, %12, %4; madc.hi.cc.u32 %5, %10, %12, %5;\n\t"
        "madc.lo.cc.u32 %6, %11, %12, %6; madc.hi.u32 %7, %11, %12, %7;"
        : "+r"(sum[0]), "+r"(sum[1]), "+r"(sum[2]), "+r"(sum[3]), "+r"(sum[4]), "+r"(sum[5]), "+r"(sum[6]), "+r"(sum[7])
        : "r"(a0), "r"(a2), "r"(a4), "r"(a6), "r"(b));
}
#else
// Two halves of a row at a time, as a CPU multiplies words of 64 bits.
DEVICE void row(u32 (&sum)[8], u32 a0, u32 a2, u32 a4, u32 a6, u32 b) {
    const u32 a[4] = {a0, a2, a4, a6};
    UNROLL for (u32 k = 0; k < 4; k++) {
        const u64 total = (u64)a[k] * b + (sum[2 * k] | (u64)sum[2 * k + 1] << 32);
        sum[2 * k] = (u32)total, sum[2 * k + 1] = (u32)(total >> 32);
    }
}
#endif

DEVICE void multiply_item(const Batch& batch, const Lane& lane, u32 item) {
    u32 a[8], b[8], even[8], odd[8];
    UNROLL for (u32 k = 0; k < 8; k++) {
        a[k] = item * 2654435761u + k, b[k] = a[k] ^ 0x9e3779b9u, even[k] = k, odd[k] = item;
    }
    NO_UNROLL for (u32 i = 0; i < OPERATIONS / 256; i++) {
        UNROLL for (u32 k = 0; k < 32; k++) {
            row(even, a[0], a[2], a[4], a[6], b[k % 8]);
            row(odd, a[1], a[3], a[5], a[7], b[k % 8]);
        }
    }
    u32 total = 0;
    UNROLL for (u32 k = 0; k < 8; k++) total ^= even[k] + odd[k];
    // The result is used, or the compiler would leave the work out.
    if (lane.live) batch.codes[item] = total == 0x12345678 ? INVALID : VALID;
}
ITEM_STAGE(wide_multiply_add, multiply_item, 256, 4)

// Three-input logic, which bit-sliced ciphers are made of.
DEVICE void logic(u32& a, u32 b, u32 c) {
#if TARGET_GPU
    asm volatile("lop3.b32 %0, %0, %1, %2, 0x78;" : "+r"(a) : "r"(b), "r"(c));  // a ^ (b & c)
#else
    a ^= b & c;
#endif
}

DEVICE void logic_item(const Batch& batch, const Lane& lane, u32 item) {
    u32 a[CHAINS];
    const u32 b = item * 2654435761u;
    UNROLL for (u32 k = 0; k < CHAINS; k++) a[k] = item + k;
    NO_UNROLL for (u32 i = 0; i < OPERATIONS / CHAINS / 16; i++) {
        UNROLL for (u32 j = 0; j < 16; j++) {
            UNROLL for (u32 k = 0; k < CHAINS; k++) logic(a[k], a[(k + 1) % CHAINS], b);
        }
    }
    u32 total = 0;
    UNROLL for (u32 k = 0; k < CHAINS; k++) total ^= a[k];
    if (lane.live) batch.codes[item] = total == 0x12345678 ? INVALID : VALID;
}
ITEM_STAGE(three_input_logic, logic_item, 256, 4)

// Products and squares of a field, in two independent chains a lane, and as many lanes as registers allow.
template <class F, bool SQUARE>
DEVICE void field_item(const Batch& batch, const Lane& lane, u32 item) {
    typedef typename F::Element Element;
    Words number = small_words(item | 3);
    number.w[5] = item * 2654435761u;
    Flags flags = {0, 0};
    const Element c = F::from_plain(number);
    Element a = F::mul(c, c, flags), b = F::mul(a, c, flags);
    NO_UNROLL for (u32 i = 0; i < FIELD_OPERATIONS / 2; i++) {
        a = SQUARE ? F::sqr(a, flags) : F::mul(a, c, flags);
        b = SQUARE ? F::sqr(b, flags) : F::mul(b, c, flags);
    }
    const bool zero = F::is_zero(F::sub(a, b, flags));
    if (lane.live) batch.codes[item] = zero || raised(flags) ? INVALID : VALID;
}
#define FIELD_STAGES(prefix, F)                                       \
    ITEM_STAGE(prefix##_products, (field_item<F, false>), 128, 8)     \
    ITEM_STAGE(prefix##_squares, (field_item<F, true>), 128, 8)

FIELD_STAGES(sm2, Sm2Field)
FIELD_STAGES(p256, P256Field)
FIELD_STAGES(secp256k1, Secp256k1Field)

// The cost of a launch itself.
DEVICE void nothing_item(const Batch& batch, const Lane& lane, u32 item) {
    if (lane.live) batch.codes[item] = VALID;
}
ITEM_STAGE(nothing, nothing_item, 256, 4)
