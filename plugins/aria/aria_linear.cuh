// 32 functions of three inputs. Written by gen_cipher/linear.py.
#pragma once
#include "lut.cuh"

// The linear map on one bit of every byte.
DEVICE void aria_mix_bit(Word (&y)[16], const Word (&x)[16]) {
    const Word t0 = lut<0x3c>(x[3], x[6], x[0]);
    const Word t1 = lut<0x69>(t0, x[8], x[13]);
    const Word t2 = lut<0x3c>(x[9], x[14], x[0]);
    const Word t3 = lut<0x69>(t1, t2, x[4]);
    const Word t4 = lut<0x69>(x[2], x[9], x[12]);
    const Word t5 = lut<0x3c>(t4, x[7], x[0]);
    const Word t6 = lut<0x3c>(x[5], x[15], x[0]);
    const Word t7 = lut<0x69>(t5, t6, x[8]);
    const Word t8 = lut<0x69>(x[1], x[10], x[15]);
    const Word t9 = lut<0x3c>(t8, x[4], x[0]);
    const Word t10 = lut<0x3c>(x[6], x[12], x[0]);
    const Word t11 = lut<0x69>(t9, t10, x[11]);
    const Word t12 = lut<0x69>(x[5], x[11], x[14]);
    const Word t13 = lut<0x3c>(t12, x[0], x[0]);
    const Word t14 = lut<0x3c>(x[7], x[10], x[0]);
    const Word t15 = lut<0x69>(t13, t14, x[13]);
    const Word t16 = lut<0x3c>(x[2], x[8], x[0]);
    const Word t17 = lut<0x69>(t13, t16, x[15]);
    const Word t18 = lut<0x69>(t9, t2, x[3]);
    const Word t19 = lut<0x3c>(x[0], x[13], x[0]);
    const Word t20 = lut<0x69>(t5, t19, x[10]);
    const Word t21 = lut<0x3c>(x[1], x[11], x[0]);
    const Word t22 = lut<0x69>(t1, t21, x[12]);
    const Word t23 = lut<0x69>(t9, t19, x[7]);
    const Word t24 = lut<0x69>(t13, t10, x[1]);
    const Word t25 = lut<0x69>(t1, t6, x[2]);
    const Word t26 = lut<0x3c>(x[3], x[4], x[0]);
    const Word t27 = lut<0x69>(t5, t26, x[14]);
    const Word t28 = lut<0x69>(t5, t21, x[6]);
    const Word t29 = lut<0x69>(t1, t14, x[0]);
    const Word t30 = lut<0x69>(t13, t26, x[9]);
    const Word t31 = lut<0x69>(t9, t16, x[5]);
    y[0] = t3;
    y[1] = t7;
    y[2] = t11;
    y[3] = t15;
    y[4] = t17;
    y[5] = t18;
    y[6] = t20;
    y[7] = t22;
    y[8] = t23;
    y[9] = t24;
    y[10] = t25;
    y[11] = t27;
    y[12] = t28;
    y[13] = t29;
    y[14] = t30;
    y[15] = t31;
}
