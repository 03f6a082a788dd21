/* Operators of the host for ai.onnx.ml. */
#include "t_value.h"

/* The probabilities p of k classes that agree best with those of pairs, r[i, j] that it is i out of i and j: the least
 * sum of (r[j, i] p[i] - r[i, j] p[j])^2. T.-F. Wu, C.-J. Lin, R. C. Weng, "Probability estimates for multi-class
 * classification by pairwise coupling" (2004), algorithm 2, ended as ONNX's reference ends it. `q` is that sum's
 * matrix, [k, k], `qp` has room for q p. */
static void couple(int64_t k, const float *q, float *qp, float *p) {
    const float close = 0.005F / (float)k;
    for (int64_t i = 0; i < k; i++)
        p[i] = 1.0F / (float)k;
    for (int64_t round = 0; round < (k > 100 ? k : 100); round++) {
        float value = 0, error = 0;
        for (int64_t i = 0; i < k; i++) {
            qp[i] = 0;
            for (int64_t j = 0; j < k; j++)
                qp[i] += q[i * k + j] * p[j];
            value += p[i] * qp[i];
        }
        for (int64_t i = 0; i < k; i++) {
            const float away = qp[i] < value ? value - qp[i] : qp[i] - value;
            error = away > error ? away : error;
        }
        if (error < close)
            return;
        for (int64_t i = 0; i < k; i++) {
            const float by = (value - qp[i]) / q[i * k + i], whole = 1 + by;
            value = (value + by * (by * q[i * k + i] + 2 * qp[i])) / whole / whole;
            p[i] += by;
            for (int64_t j = 0; j < k; j++) {
                qp[j] = (qp[j] + by * q[i * k + j]) / whole;
                p[j] /= whole;
            }
        }
    }
}

/* f32 r[N, k (k - 1) / 2], for each pair of classes i < j the probability of i, {k} -> f32[N, k], those of the classes. */
int t_op_couple(t_frame *f, const t_value *const *in, t_value *const *out, const int64_t *n) {
    const int64_t rows = in[0]->shape[0], pairs = in[0]->shape[1], k = n[0];
    float *q;
    int status;
    if (pairs != k * (k - 1) / 2)
        return t_fail(TORSHC_E_SHAPE, "%lld pairs of %lld classes", (long long)pairs, (long long)k);
    if ((status = t_make(f, out[0], in[0]->dtype, 2, (const int64_t[]){rows, k})))
        return status;
    if (!(q = t_scratch(f, (k + 1) * k * (int64_t)sizeof *q)))
        return TORSHC_E_MEMORY;
    for (int64_t row = 0; row < rows; row++) {
        const float *r = (const float *)in[0]->data + row * pairs;
        for (int64_t i = 0; i < k; i++)
            q[i * k + i] = 0;
        for (int64_t i = 0; i < k; i++)
            for (int64_t j = i + 1; j < k; j++, r++) {
                const float first = *r, second = 1 - *r;
                q[i * k + i] += second * second;
                q[j * k + j] += first * first;
                q[i * k + j] = q[j * k + i] = -first * second;
            }
        couple(k, q, q + k * k, (float *)out[0]->data + row * k);
    }
    t_scratch_free(q);
    return TORSHC_OK;
}

/* f32 x[N, K], keys[K] -> a sequence of N maps from the keys to a row's numbers, which stay where they are. */
int t_op_zip_map(t_frame *f, const t_value *const *in, t_value *const *out, const int64_t *n) {
    static const torshc_dtype sequence = {TORSHC_SEQUENCE, 0, 1}, map = {TORSHC_MAP, 0, 1};
    const int64_t rows = in[0]->shape[0], keys = in[0]->shape[1];
    int status;
    (void)n;
    if (t_count(in[1]) != keys)
        return t_fail(TORSHC_E_SHAPE, "ZipMap of %lld columns with %lld keys", (long long)keys,
                      (long long)t_count(in[1]));
    status = t_make(f, out[0], sequence, 1, &rows);
    for (int64_t i = 0; !status && i < rows; i++) {
        t_value *each = t_values(out[0]) + i, *row;
        if ((status = t_make(f, each, map, 1, (const int64_t[]){2})) || (status = t_share(f, t_values(each), in[1])) ||
            (status = t_share(f, t_values(each) + 1, in[0])))
            return status;
        row = t_values(each) + 1;
        row->ndim = 1;
        row->shape[0] = keys;
        row->data = (float *)in[0]->data + i * keys;
    }
    return status;
}
