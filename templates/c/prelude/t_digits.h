/* Rows of floats as whole numbers: a group of T_GROUP is `scale` times whole numbers of three digits to the base 128, of which
 * the first is 127 at the most.  Groups that are not finite, or so small that a scale would lose bits, stay floats.
 */
#ifndef T_DIGITS_H
#define T_DIGITS_H

#include "t_kernel.h"

struct t_digits {
    int8_t digit[3][T_GROUP]; /* of 2^14, 2^7 and 1 */
    float scale;
    int32_t excess; /* 8 times the sum of the whole numbers */
    int32_t plain;  /* whether they are not whole numbers */
};

/* Of the T_GROUP floats from x on. */
T_FN void t_digits_make(const float *x, struct t_digits *to) {
    const float most = 127 << 14;
    uint32_t top = 0; /* floats without their signs are in the order of their bits, NaN the largest */
    int32_t sum = 0;
    for (int i = 0; i < T_GROUP; i++) {
        uint32_t bits;
        __builtin_memcpy(&bits, x + i, 4);
        bits &= 0x7fffffff;
        top = bits > top ? bits : top;
    }
    float largest;
    __builtin_memcpy(&largest, &top, 4);
    to->plain = top && !(largest >= 0x1p-60f && largest < 0x1p127f);
    const float factor = top && !to->plain ? most / largest : 0.0f;
    to->scale = to->plain ? 0.0f : largest / most;
    if (to->plain) return;
    for (int i = 0; i < T_GROUP; i++) {
        const float whole = x[i] * factor + 0x1.8p23f; /* its last bits are those of the whole number */
        int32_t q;
        __builtin_memcpy(&q, &whole, 4);
        q -= 0x4b400000;
        sum += q;
        const int32_t low = ((q + 64) & 127) - 64, rest = (q - low) >> 7, middle = ((rest + 64) & 127) - 64;
        to->digit[0][i] = (int8_t)((rest - middle) >> 7);
        to->digit[1][i] = (int8_t)middle;
        to->digit[2][i] = (int8_t)low;
    }
    to->excess = 8 * sum;
}

#endif
