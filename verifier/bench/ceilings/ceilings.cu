// Loops of one instruction each: their rates are the ceilings that other figures are fractions of.
#include "abi.cuh"

PLUGIN_INFO(0, 0, 0)

// Every item does OPERATIONS of them in CHAINS independent chains, so that latency is hidden.
constexpr u32 CHAINS = 8, OPERATIONS = 8192;

// A 32 × 32-bit product added to a 64-bit sum: what a field multiplication is made of.
DEVICE void multiply_item(const Batch& batch, const Lane& lane, u32 item) {
    u64 sums[CHAINS];
    u32 factor = item * 2654435761u | 1;
    UNROLL for (u32 k = 0; k < CHAINS; k++) sums[k] = item + k;
    NO_UNROLL for (u32 i = 0; i < OPERATIONS / CHAINS / 16; i++) {
        UNROLL for (u32 j = 0; j < 16; j++) {
            // A factor that changes, and not in equal steps, or the compiler would multiply once and add.
            factor = (factor << 1 | factor >> 31) ^ item;
            UNROLL for (u32 k = 0; k < CHAINS; k++) sums[k] += (u64)factor * (item + k);
        }
    }
    u64 total = 0;
    UNROLL for (u32 k = 0; k < CHAINS; k++) total ^= sums[k];
    // The result is used, or the compiler would leave the work out.
    if (lane.live) batch.codes[item] = total == 0x123456789abcdef ? INVALID : VALID;
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

// The cost of a launch itself.
DEVICE void nothing_item(const Batch& batch, const Lane& lane, u32 item) {
    if (lane.live) batch.codes[item] = VALID;
}
ITEM_STAGE(nothing, nothing_item, 256, 4)
