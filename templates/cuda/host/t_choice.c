/* Runs whose form the card chooses, by what inputs in its memory hold. The processor has looked at those in its own memory,
 * and has left the form that is right whatever the others hold (t_pass_guards). Forms before that one are tried by a kernel
 * at the head of the recorded run, so that nothing waits for what it finds. A run that is not recorded, as it comes for the
 * first time, takes the form that is left. */
#define _GNU_SOURCE
#include "t_choice.h"

#include <stdlib.h>

#include "t_gpu_model.h"

#define P (t_the_program())

struct t_choice {
    t_chain chain;
    const torshc_tensor *const *tensor;
    t_counts *counts; /* on the card */
    int counted;      /* a run was */
};

static int open_choice(torshc_model *m) {
    const size_t bytes = sizeof(t_counts) + 2 * (size_t)P->forms * sizeof(uint64_t);
    unsigned char *zeros = calloc(1, bytes), *there = NULL;
    int status = TORSHC_OK;
    m->choice = calloc(1, sizeof *m->choice);
    if (!zeros || !m->choice)
        status = t_fail(TORSHC_E_MEMORY, "no memory for counters");
    if (!status && t_choose_open(m->device) && !(status = t_device_alloc(m->device, bytes, "counters", &there)) &&
        !(status = t_device_copy(m->device, T_UP, there, zeros, bytes)))
        status = t_device_finish(m->device);
    if (m->choice)
        m->choice->counts = (t_counts *)(void *)there;
    free(zeros);
    return status;
}

static void close_choice(torshc_model *m) {
    if (m->choice)
        t_device_free(m->device, (unsigned char *)m->choice->counts);
    free(m->choice);
}

/* How many inputs of a form the card has to compare: 0 for one whose values the processor knows to be others. */
static int32_t count_unseen(const torshc_tensor *const *tensor, int32_t form) {
    int32_t count = 0;
    for (int32_t k = 0; k < P->guard_count; k++) {
        const t_guard *guard = &P->guard[k];
        const t_held held = guard->form == form ? t_guard_holds(guard, tensor[guard->input]) : T_HELD;
        if (held == T_MISSED)
            return 0;
        count += held == T_UNSEEN;
    }
    return count;
}

static size_t find(torshc_model *m, const torshc_tensor *const *tensor, size_t room) {
    t_choice *c = m->choice;
    t_chain *chain = &c->chain;
    int64_t *s = m->head.symbols;
    const int64_t last = s[P->form];
    size_t most = 0;
    c->tensor = tensor;
    chain->forms = chain->cases = chain->compared = 0;
    chain->missed = 0;
    if (!c->counts || !t_chooses(m->device) || (last && last == P->loose))
        return 0;
    for (int32_t form = 0; (form = P->variant(s, form)) && form != last; chain->forms++) {
        const int32_t unseen = count_unseen(tensor, form), k = chain->forms;
        if (k == T_CHAIN - 1) {
            chain->cases = 0;
            break;
        }
        s[P->form] = chain->form[k] = form;
        const size_t need = t_workspace_bytes(m, s);
        if (!unseen || chain->compared + unseen > T_COMPARED || chain->cases == T_CASES - 1 || need > room) {
            chain->missed |= 1u << k;
            continue;
        }
        most = need > most ? need : most;
        chain->compared += unseen;
        chain->place[chain->cases++] = k;
    }
    s[P->form] = last;
    if (!chain->cases)
        return 0;
    chain->place[chain->cases++] = chain->forms;
    chain->form[chain->forms++] = (int32_t)last;
    return most;
}

static int64_t cases(const torshc_model *m) {
    const t_chain *chain = &m->choice->chain;
    return chain->cases ? INT64_C(1) << 32 | chain->missed : 0;
}

/* Eight bytes of elements that are a number. */
static uint64_t repeat(int64_t value, int32_t bytes) {
    const uint64_t one = (uint64_t)value << (64 - 8 * bytes) >> (64 - 8 * bytes);
    uint64_t all = 0;
    for (int32_t at = 0; at < 8; at += bytes)
        all |= one << 8 * at;
    return all;
}

/* What the card compares for the forms that it tries. */
static void list_compared(t_choice *c, unsigned char *const *at) {
    t_chain *chain = &c->chain;
    chain->compared = 0;
    for (int32_t k = 0; k < chain->cases - 1; k++)
        for (int32_t i = 0; i < P->guard_count; i++) {
            const t_guard *guard = &P->guard[i];
            const torshc_tensor *x = c->tensor[guard->input];
            const int32_t each = x->dtype.bits / 8; /* 1, 2, 4 or 8 */
            if (guard->form == chain->form[chain->place[k]] && t_guard_holds(guard, x) == T_UNSEEN)
                chain->of[chain->compared++] = (t_compared){at[guard->input], (uint64_t)(t_elements(x) * each),
                                                            repeat(guard->value, each), chain->place[k]};
        }
}

static int run(torshc_model *m, const t_run *r) {
    t_choice *c = m->choice;
    t_chain *chain = &c->chain;
    int64_t *s = m->head.symbols;
    const int64_t last = s[P->form];
    int status = T_UNCHOSEN;
    if (chain->cases) {
        list_compared(c, r->in);
        status = t_choose_begin(m->device, chain, c->counts, P->forms);
    }
    if (status == T_UNCHOSEN) {
        chain->cases = 0;
        return P->run(r, s);
    }
    c->counted = 1;
    for (int32_t k = 0; k < chain->cases && !status && !m->status; k++) {
        if ((status = t_choose_case(m->device, k)))
            break;
        s[P->form] = chain->form[chain->place[k]];
        status = P->run(r, s);
    }
    s[P->form] = last;
    return status;
}

static int count(torshc_model *m, int32_t form, int missed, uint64_t *runs) {
    t_choice *c = m->choice;
    uint64_t there = 0;
    int status = TORSHC_OK;
    if (c->counted)
        status = t_device_transfer(m->device, &there, &c->counts->runs[form + (missed ? P->forms : 0)], sizeof there);
    *runs += there;
    return status;
}

const t_chooser t_card_chooser = {open_choice, close_choice, find, cases, run, count};
