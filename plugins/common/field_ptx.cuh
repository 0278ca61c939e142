// What the generated field blocks rest on: PTX's arithmetic with a carry flag, in C, for their portable bodies.
#pragma once
#include "words.cuh"

#if INLINE_PTX

#define BLOCK DEVICE

// Zero, unknown to the compiler: a block has fewer than 2^20 threads.
DEVICE u32 opaque_zero() {
    u32 zero;
    asm("shr.u32 %0, %1, 20;" : "=r"(zero) : "r"(threadIdx.x));
    return zero;
}

#else

#define BLOCK DEVICE_CALL  // for tests: what counts is the compiler's time

DEVICE u32 opaque_zero() { return 0; }

// One method for an instruction, without its type: add.cc.u32 is add_cc. After a subtraction the flag holds the
// borrow; the blocks are right for its complement too (gen/generate.py checks both).
struct Ptx {
    u32 flag = 0;

    u32 keep(u64 value) {
        flag = (u32)(value >> 32) & 1;
        return (u32)value;
    }
    u32 add(u32 a, u32 b) const { return a + b; }
    u32 add_cc(u32 a, u32 b) { return keep((u64)a + b); }
    u32 addc(u32 a, u32 b) const { return a + b + flag; }
    u32 addc_cc(u32 a, u32 b) { return keep((u64)a + b + flag); }
    u32 sub(u32 a, u32 b) const { return a - b; }
    u32 sub_cc(u32 a, u32 b) { return keep((u64)a - b); }
    u32 subc(u32 a, u32 b) const { return a - b - flag; }
    u32 subc_cc(u32 a, u32 b) { return keep((u64)a - b - flag); }

    static u32 low(u32 a, u32 b) { return a * b; }
    static u32 high(u32 a, u32 b) { return (u32)((u64)a * b >> 32); }
    u64 mul_wide(u32 a, u32 b) const { return (u64)a * b; }
    u32 mul_lo(u32 a, u32 b) const { return low(a, b); }
    u32 mad_lo(u32 a, u32 b, u32 c) const { return low(a, b) + c; }
    u32 mad_lo_cc(u32 a, u32 b, u32 c) { return add_cc(low(a, b), c); }
    u32 madc_lo(u32 a, u32 b, u32 c) const { return addc(low(a, b), c); }
    u32 madc_lo_cc(u32 a, u32 b, u32 c) { return addc_cc(low(a, b), c); }
    u32 madc_hi(u32 a, u32 b, u32 c) const { return addc(high(a, b), c); }
    u32 madc_hi_cc(u32 a, u32 b, u32 c) { return addc_cc(high(a, b), c); }

    u32 and_(u32 a, u32 b) const { return a & b; }
    u32 or_(u32 a, u32 b) const { return a | b; }
    u32 xor_(u32 a, u32 b) const { return a ^ b; }
    u32 neg(u32 a) const { return 0 - a; }
    u32 shl(u32 a, u32 bits) const { return a << bits; }
    u32 shr(u32 a, u32 bits) const { return a >> bits; }
    u32 shf_l_wrap(u32 a, u32 b, u32 bits) const { return (u32)((((u64)b << 32 | a) << bits) >> 32); }
    u32 shf_r_wrap(u32 a, u32 b, u32 bits) const { return (u32)(((u64)b << 32 | a) >> bits); }
};

#endif
