/* What kernels by Arm's matrix instructions share.  An operand of such an instruction is two rows of 8 bytes, and its result
 * the 2 x 2 sums of the rows of one by the rows of the other: a square.
 */
#ifndef T_ARM_H
#define T_ARM_H

#include "t_transpose.h"

/* As text: arm_neon.h takes a compiler longer than a kernel. */
#define T_ARM_(instruction, acc, x, y) __asm__(instruction : "+w"(acc) : "w"(x), "w"(y))

typedef uint64_t t_two_rows __attribute__((vector_size(16)));

T_FN t_two_rows t_rows_of_8(const void *first, const void *second) {
    uint64_t x, y;
    __builtin_memcpy(&x, first, sizeof x);
    __builtin_memcpy(&y, second, sizeof y);
    return (t_two_rows){x, y};
}

/* Row r of two squares side by side. */
#define T_SQUARES_ROW_(r, left, right) \
    (t_two_rows) { ((t_two_rows)(left))[r], ((t_two_rows)(right))[r] }

#endif
