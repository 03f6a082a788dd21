/* What libraries for processors do in their own way: memory, and runs in the caller's tensors. */
#define _GNU_SOURCE
#include "t_host.h"
#include "t_model.h"

#include <stdlib.h>
#include <sys/mman.h>

enum { T_HUGE = 2 << 20 };

#define P (t_the_program())

struct torshc_model {
    t_model head;
    unsigned char *own;
    size_t own_bytes;
    t_run with; /* of a script */
};

const size_t t_model_bytes = sizeof(torshc_model);

/* ---- memory ---- */

/* Huge pages for large memory: a convolution walks far more 4 KiB pages than a processor remembers. */
static unsigned char *allocate(size_t bytes) {
    void *memory = NULL;
    const size_t align = bytes >= 2 * T_HUGE ? T_HUGE : T_ALIGN;
    if (posix_memalign(&memory, align, bytes ? bytes : T_ALIGN))
        return NULL;
    if (align == T_HUGE)
        (void)madvise(memory, bytes, MADV_HUGEPAGE);
    return memory;
}

static int grow(torshc_model *m, size_t bytes) {
    if (m->own && bytes <= m->own_bytes)
        return TORSHC_OK;
    free(m->own);
    m->own_bytes = 0;
    m->own = allocate(bytes);
    if (!m->own)
        return t_fail(TORSHC_E_MEMORY, "no memory for a workspace of %zu bytes", bytes);
    m->own_bytes = bytes;
    return TORSHC_OK;
}

/* ---- open and close ---- */

int t_fill_model(torshc_model *m, const torshc_model *of, const torshc_options *options, const t_run **with) {
    (void)of, (void)options;
    if (!P->script)
        return P->symbols || P->forms ? TORSHC_OK : grow(m, t_workspace_bytes(m, NULL));
    const t_model *head = &m->head;
    m->with = (t_run){
        .weights = head->weights->file.at, .pool = head->pool, .counters = head->counters, .threads = head->threads};
    *with = &m->with;
    return TORSHC_OK;
}

void t_empty_model(torshc_model *m, int last) {
    (void)last;
    free(m->own);
    free(m->head.states);
}

/* ---- states ---- */

int t_keep_states(torshc_model *m, unsigned char *first) {
    m->head.states = first;
    return TORSHC_OK;
}

int t_read_states(torshc_model *m, uint64_t offset, void *to, size_t bytes) {
    memcpy(to, m->head.states + offset, bytes);
    return TORSHC_OK;
}

int t_write_states(torshc_model *m, uint64_t offset, const void *from, size_t bytes) {
    memcpy(m->head.states + offset, from, bytes);
    return TORSHC_OK;
}

/* ---- runs ---- */

size_t t_workspace_bytes(const torshc_model *m, const int64_t *s) {
    const size_t behind = P->symbols ? T_ALIGN : 0; /* an empty value may lie at the very end, see t_nothing */
    return t_round_up(P->arena(s)) + (size_t)m->head.threads * t_round_up(P->scratch(s)) + behind;
}

int t_locate_on(torshc_model *m, const torshc_tensor *x, const char *what, int32_t i, t_span *span) {
    (void)m;
    return t_locate(x, what, i, span);
}

int t_run_on(torshc_model *m, t_span *work) {
    const t_model *head = &m->head;
    const int64_t *s = head->symbols;
    unsigned char **at = head->at;
    if (!work->at) {
        const int status = grow(m, t_workspace_bytes(m, s));
        if (status)
            return status;
    }
    for (int32_t i = 0; i < P->inputs + P->outputs; i++)
        at[i] = head->span[i].bytes ? head->span[i].at : (unsigned char *)(uintptr_t)t_nothing;
    unsigned char *const base = work->at ? work->at : m->own;
    t_begun begun = {.count = 0};
    t_run run = {
        at,
        at + P->inputs,
        head->weights->file.at,
        head->states,
        base,
        base + t_round_up(P->arena(s)),
        t_round_up(P->scratch(s)),
        head->pool,
        head->counters,
        head->threads,
        head->shared->ranks,
        &begun,
        0,
    };
    const int status = P->run(&run, s);
    if (begun.count)
        P->drop(head->shared->ranks, &begun);
    if (status != TORSHC_E_VALUE || !P->state_count || head->shared->ranks)
        return status;
    /* A step of training that is refused has changed nothing: made once more, it says where that began. */
    run.looking = 1;
    return P->run(&run, s);
}

int t_end_script(torshc_model *m, int status) {
    (void)m;
    return status;
}

/* ---- memory for callers ---- */

int torshc_alloc(torshc_model *m, size_t bytes, void **data) {
    const int status = t_check_alive(m, "torshc_alloc");
    if (status)
        return status;
    if (!data)
        return t_fail(TORSHC_E_ARGUMENT, "torshc_alloc: data is NULL");
    *data = allocate(bytes);
    return *data ? TORSHC_OK : t_fail(TORSHC_E_MEMORY, "no memory for %zu bytes", bytes);
}

int torshc_free(torshc_model *m, void *data) {
    const int status = t_check_alive(m, "torshc_free");
    if (!status)
        free(data);
    return status;
}

int torshc_copy(torshc_model *m, void *to, const void *from, size_t bytes) {
    const int status = t_check_alive(m, "torshc_copy");
    if (status || !bytes)
        return status;
    if (!to || !from)
        return t_fail(TORSHC_E_ARGUMENT, "torshc_copy: NULL argument");
    memmove(to, from, bytes);
    return TORSHC_OK;
}

int torshc_synchronize(torshc_model *m) { return t_check_alive(m, "torshc_synchronize"); }
