/* Floats as decimal text and back, exactly, whatever the locale: in integers of many digits.
 *
 * Text from a float is the shortest that reads back as the same float, and of those the nearest (G. Steele and J. White,
 * "How to print floating-point numbers accurately", 1990, in the form with integers only). A float from text is the
 * nearest, ties to even.
 */
#ifndef T_DECIMAL_H
#define T_DECIMAL_H

#include <math.h>

#include "t_program.h"

enum { T_LIMBS = 192 };

/* A type of floats: bits of the significand, exponent of its last bit in the smallest, and of what is no longer finite. */
typedef struct {
    int bits, least, most;
} t_float_kind;

static const t_float_kind T_KIND_F64 = {53, -1074, 1024}, T_KIND_F32 = {24, -149, 128}, T_KIND_F16 = {11, -24, 16},
                          T_KIND_BF16 = {8, -133, 128};

/* A number below 2^(32 T_LIMBS); limbs from `size` on are not set. */
typedef struct {
    int size;
    uint32_t limb[T_LIMBS];
} t_big;

static inline void t_big_set(t_big *a, uint64_t v) {
    a->limb[0] = (uint32_t)v;
    a->limb[1] = (uint32_t)(v >> 32);
    a->size = v >> 32 ? 2 : v ? 1 : 0;
}

/* a * m + c */
static inline void t_big_mul(t_big *a, uint32_t m, uint32_t c) {
    uint64_t carry = c;
    for (int i = 0; i < a->size; i++) {
        carry += (uint64_t)a->limb[i] * m;
        a->limb[i] = (uint32_t)carry;
        carry >>= 32;
    }
    if (carry && a->size < T_LIMBS)
        a->limb[a->size++] = (uint32_t)carry;
}

static inline void t_big_pow10(t_big *a, int power) {
    for (; power >= 9; power -= 9)
        t_big_mul(a, 1000000000u, 0);
    for (; power > 0; power--)
        t_big_mul(a, 10, 0);
}

static inline void t_big_shift(t_big *a, int by) {
    const int limbs = by / 32;
    if (a->size && limbs && a->size + limbs <= T_LIMBS) {
        memmove(a->limb + limbs, a->limb, (size_t)a->size * sizeof *a->limb);
        memset(a->limb, 0, (size_t)limbs * sizeof *a->limb);
        a->size += limbs;
    }
    if (by % 32)
        t_big_mul(a, 1u << by % 32, 0);
}

static inline int t_big_compare(const t_big *a, const t_big *b) {
    if (a->size != b->size)
        return a->size < b->size ? -1 : 1;
    for (int i = a->size - 1; i >= 0; i--)
        if (a->limb[i] != b->limb[i])
            return a->limb[i] < b->limb[i] ? -1 : 1;
    return 0;
}

/* a + b against c */
static inline int t_big_compare_sum(const t_big *a, const t_big *b, const t_big *c) {
    t_big sum;
    uint64_t carry = 0;
    const int size = a->size > b->size ? a->size : b->size;
    for (int i = 0; i < size; i++) {
        carry += (uint64_t)(i < a->size ? a->limb[i] : 0) + (i < b->size ? b->limb[i] : 0);
        sum.limb[i] = (uint32_t)carry;
        carry >>= 32;
    }
    sum.size = size;
    if (carry && size < T_LIMBS)
        sum.limb[sum.size++] = (uint32_t)carry;
    return t_big_compare(&sum, c);
}

/* a - b, which is not below 0 */
static inline void t_big_subtract(t_big *a, const t_big *b) {
    uint64_t borrow = 0;
    for (int i = 0; i < a->size; i++) {
        const uint64_t take = borrow + (i < b->size ? b->limb[i] : 0);
        borrow = a->limb[i] < take;
        a->limb[i] = (uint32_t)(a->limb[i] - take);
    }
    while (a->size && !a->limb[a->size - 1])
        a->size--;
}

static inline int t_big_bits(const t_big *a) {
    int bits = 0;
    for (uint32_t top = a->size ? a->limb[a->size - 1] : 0; top; top >>= 1)
        bits++;
    return a->size ? bits + 32 * (a->size - 1) : 0;
}

/* x 2^e, where no bit is lost */
static inline double t_scaled(double x, int e) {
    for (; e >= 30; e -= 30)
        x *= 0x1p30;
    for (; e <= -30; e += 30)
        x *= 0x1p-30;
    return e < 0 ? x / (double)(1 << -e) : x * (double)(1 << e);
}

/* The float next to top / bottom; both change. */
static inline double t_nearest(t_big *top, t_big *bottom, t_float_kind kind) {
    const int start = t_big_bits(top) - t_big_bits(bottom) - kind.bits;
    int e = start < kind.least ? kind.least : start, order;
    uint64_t q;
    if (!top->size)
        return 0;
    if (e < 0)
        t_big_shift(top, -e);
    else
        t_big_shift(bottom, e);
    t_big_shift(bottom, kind.bits + 1);
    for (;;) { /* once more where the quotient has a bit too many */
        t_big rest = *top;
        q = 0;
        for (int k = 0; k < kind.bits + 2; k++) {
            q <<= 1;
            if (t_big_compare(&rest, bottom) >= 0) {
                t_big_subtract(&rest, bottom);
                q |= 1;
            }
            t_big_shift(&rest, 1);
        }
        order = t_big_compare(&rest, bottom);
        if (q < UINT64_C(1) << kind.bits)
            break;
        t_big_shift(bottom, 1);
        e++;
    }
    q += order > 0 || (order == 0 && (q & 1));
    if (q >> (kind.bits - 1) && e + kind.bits + (int)(q >> kind.bits) > kind.most)
        return (double)INFINITY;
    return t_scaled((double)q, e);
}

/* The digits of x > 0 without the point, which comes before digit *point when counted from 1 there; their number. */
static inline int t_shortest(double x, t_float_kind kind, char *digit, int *point) {
    t_big r, s, up, down;
    uint64_t m;
    int e = 0, count = 0, digits, low, high, near_two;
    for (; x >= 0x1p53; x *= 0.5)
        e++;
    for (; x < 0x1p52 && e > -1074; x *= 2)
        e--;
    m = (uint64_t)x;
    for (; m >> kind.bits || e < kind.least; m >>= 1)
        e++;
    near_two = m == UINT64_C(1) << (kind.bits - 1) && e > kind.least; /* the float below is nearer than that above */
    t_big_set(&r, m);
    t_big_set(&s, 1);
    t_big_set(&down, 1);
    t_big_shift(&r, 1 + near_two + (e > 0 ? e : 0));
    t_big_shift(&s, 1 + near_two + (e < 0 ? -e : 0));
    t_big_shift(&down, e > 0 ? e : 0);
    up = down;
    t_big_shift(&up, near_two);
    const int even = !(m & 1);
    for (*point = 0; t_big_compare_sum(&r, &up, &s) >= !even; ++*point)
        t_big_mul(&s, 10, 0);
    for (;; --*point) {
        t_big more = r, wide = up;
        t_big_mul(&more, 10, 0);
        t_big_mul(&wide, 10, 0);
        if (t_big_compare_sum(&more, &wide, &s) >= !even)
            break;
        t_big_mul(&down, 10, 0);
        r = more;
        up = wide;
    }
    do {
        t_big_mul(&r, 10, 0);
        t_big_mul(&up, 10, 0);
        t_big_mul(&down, 10, 0);
        for (digits = 0; t_big_compare(&r, &s) >= 0; digits++)
            t_big_subtract(&r, &s);
        low = t_big_compare(&r, &down) < even;
        high = t_big_compare_sum(&r, &up, &s) >= !even;
        if (low || high) {
            const int half = t_big_compare_sum(&r, &r, &s);
            digits += high && (!low || half > 0 || (half == 0 && (digits & 1)));
        }
        digit[count++] = (char)('0' + digits);
    } while (!low && !high);
    return count;
}

#endif
