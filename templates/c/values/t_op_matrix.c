/* Operators of the host that eliminate the rows of a matrix. */
#include "t_value.h"

#include <math.h>

enum { BLOCK = 8 }; /* columns that are computed together; rows are whole blocks */
typedef double t_columns __attribute__((vector_size(8 * BLOCK), aligned(8)));

static int64_t blocks(int64_t columns) { return (columns + BLOCK - 1) / BLOCK * BLOCK; }

/* Subtracts multiples of row k of a[n, width], `times` for each, from the rows behind it, from column k + 1 on. What is left of
 * that is no longer read. */
static void subtract_row(double *a, int64_t n, int64_t width, int64_t k, const double *times) {
    for (int64_t j = (k + 1) / BLOCK * BLOCK; j < width; j += BLOCK) {
        const t_columns row = *(t_columns *)(a + k * width + j);
        for (int64_t i = k + 1; i < n; i++)
            *(t_columns *)(a + i * width + j) -= times[i] * row;
    }
}

/* Makes the first n columns of a[n, width] upper triangular by subtracting rows, the largest pivot of each column
 * first. Gives 0 where a column has no pivot, else 1; the determinant of the columns in any case. */
static int eliminate(double *a, int64_t n, int64_t width, double *times, double *determinant) {
    *determinant = 1;
    for (int64_t k = 0; k < n; k++) {
        int64_t top = k;
        for (int64_t i = k; i < n && !isnan(a[top * width + k]); i++)
            if (!(fabs(a[i * width + k]) <= fabs(a[top * width + k])))
                top = i;
        for (int64_t j = 0; top != k && j < width; j++) {
            const double other = a[top * width + j];
            a[top * width + j] = a[k * width + j];
            a[k * width + j] = other;
        }
        const double pivot = a[k * width + k];
        *determinant *= top == k ? pivot : -pivot;
        if (pivot == 0)
            return 0;
        for (int64_t i = k + 1; i < n; i++)
            times[i] = a[i * width + k] / pivot;
        subtract_row(a, n, width, k, times);
    }
    return 1;
}

/* Widens the elements of x, floats of 32 or 64 bits, from `at` on, as a row of n. */
static void widen_row(const t_value *x, int64_t at, int64_t n, double *row) {
    if (x->dtype.bits == 64) {
        memcpy(row, (const double *)x->data + at, (size_t)n * sizeof *row);
        return;
    }
    const float *from = (const float *)x->data + at;
    for (int64_t j = 0; j < n; j++)
        row[j] = (double)from[j];
}

/* Rounds a row of n to the elements of x from `at` on. */
static void round_row(const t_value *x, int64_t at, int64_t n, const double *row) {
    if (x->dtype.bits == 64) {
        memcpy((double *)x->data + at, row, (size_t)n * sizeof *row);
        return;
    }
    float *to = (float *)x->data + at;
    for (int64_t j = 0; j < n; j++)
        to[j] = (float)row[j];
}

/* Finds the number of matrices in x[..., n, n]; a status. */
static int count(const t_value *x, int64_t *many) {
    const int64_t rows = x->shape[x->ndim - 2], columns = x->shape[x->ndim - 1];
    *many = 1;
    for (int32_t d = 0; d < x->ndim - 2; d++)
        *many *= x->shape[d];
    if (rows == columns)
        return TORSHC_OK;
    return t_fail(TORSHC_E_SHAPE, "a matrix of %lld rows and %lld columns", (long long)rows, (long long)columns);
}

/* x[..., n, n] of f32 or f64 -> the determinants [...]. */
int t_op_determinant(t_frame *f, const t_value *const *in, t_value *const *out, const int64_t *integers) {
    const t_value *x = in[0];
    const int64_t n = x->shape[x->ndim - 1];
    int64_t many;
    int status;
    double *a, determinant;
    (void)integers;
    if ((status = count(x, &many)))
        return status;
    if ((status = t_make(f, out[0], x->dtype, x->ndim - 2, x->shape)))
        return status;
    const int64_t width = blocks(n);
    if (!(a = t_scratch(f, n * (width + 1) * (int64_t)sizeof *a)))
        return TORSHC_E_MEMORY;
    for (int64_t m = 0; m < many; m++) {
        for (int64_t i = 0; i < n; i++) {
            widen_row(x, (m * n + i) * n, n, a + i * width);
            for (int64_t j = n; j < width; j++)
                a[i * width + j] = 0;
        }
        eliminate(a, n, width, a + n * width, &determinant);
        round_row(out[0], m, 1, &determinant);
    }
    t_scratch_free(a);
    return TORSHC_OK;
}

/* From [u | b] with u[n, n] upper triangular, and b from column `half` on, to [. | inverse of u times b]. */
static void substitute(double *a, int64_t n, int64_t half) {
    const int64_t width = 2 * half;
    for (int64_t i = n; i-- > 0;)
        for (int64_t j = half; j < width; j += BLOCK) {
            t_columns row = *(t_columns *)(a + i * width + j);
            for (int64_t k = i + 1; k < n; k++)
                row -= a[i * width + k] * *(t_columns *)(a + k * width + j);
            *(t_columns *)(a + i * width + j) = row / a[i * width + i];
        }
}

/* Inverts matrices [begin, end) of buf[0] into buf[1], both values of n by n. The scratch is a matrix with the unit matrix beside
 * it, a column, and the first matrix that has no inverse, if one is. */
static void invert(void *const *buf, const int64_t *n_, void *scratch, int64_t begin, int64_t end) {
    const t_value *x = buf[0], *y = buf[1];
    const int64_t n = *n_, half = blocks(n), width = 2 * half;
    double *a = scratch, determinant, *failed = a + n * (width + 1);
    for (int64_t m = begin; m < end; m++) {
        memset(a, 0, (size_t)(n * width) * sizeof *a);
        for (int64_t i = 0; i < n; i++) {
            widen_row(x, (m * n + i) * n, n, a + i * width);
            a[i * width + half + i] = 1;
        }
        if (!eliminate(a, n, width, a + n * width, &determinant)) {
            *failed = fmin(*failed, (double)m);
            return;
        }
        substitute(a, n, half);
        for (int64_t i = 0; i < n; i++)
            round_row(y, (m * n + i) * n, n, a + i * width + half);
    }
}

/* x[..., n, n] of f32 or f64 -> the inverses. */
int t_op_inverse(t_frame *f, const t_value *const *in, t_value *const *out, const int64_t *integers) {
    enum { WORTH = 20000 }; /* products that take as long as waking a thread */
    const t_value *x = in[0];
    const int64_t n = x->shape[x->ndim - 1], each = n * (2 * blocks(n) + 1) + 16; /* a cache line of its own behind */
    int64_t many;
    int status;
    double *a, failed = INFINITY;
    (void)integers;
    if ((status = count(x, &many)))
        return status;
    if ((status = t_make(f, out[0], x->dtype, x->ndim, x->shape)))
        return status;
    t_pool *pool = many * n * n * n > WORTH ? t_threads(f) : NULL;
    const int threads = t_pool_threads(pool);
    if (!(a = t_scratch(f, threads * each * (int64_t)sizeof *a)))
        return TORSHC_E_MEMORY;
    double *const last = a + n * (2 * blocks(n) + 1);
    for (int t = 0; t < threads; t++)
        last[t * each] = INFINITY;
    t_pool_run(pool, invert, (void *[]){(void *)x, out[0]}, &n, (unsigned char *)a, (size_t)each * sizeof *a, many);
    for (int t = 0; t < threads; t++)
        failed = fmin(failed, last[t * each]);
    t_scratch_free(a);
    return failed < INFINITY ? t_fail(TORSHC_E_VALUE, "matrix %lld has no inverse", (long long)failed) : TORSHC_OK;
}
