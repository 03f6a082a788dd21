/* The interface of model.h, as far as it is the same for processors and devices: open, close, check, run. */
#define _GNU_SOURCE
#include "t_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define P (t_the_program())

static t_model *head_of(torshc_model *m) { return (t_model *)m; }

int t_check_alive(const torshc_model *m, const char *what) {
    const t_model *head = (const t_model *)m;
    if (!m)
        return t_fail(TORSHC_E_ARGUMENT, "%s: model is NULL", what);
    if (head->owner != getpid())
        return t_fail(TORSHC_E_FORKED, "the model was opened before fork(); open it again in this process");
    return TORSHC_OK;
}

/* ---- open and close ---- */

/* Zeros on cache lines of their own, of which processors fetch two at a time: runs in one context write to none that
 * another one reads. */
static void *allocate_apart(size_t bytes) {
    enum { LINES = 128 };
    bytes = (bytes + LINES - 1) / LINES * LINES;
    void *memory = aligned_alloc(LINES, bytes);
    return memory ? memset(memory, 0, bytes) : NULL;
}

/* Threads, where the processor has kernels to run or other work between those of a device. */
static void start_threads(t_model *head, int threads) {
    if (P->device == TORSHC_CPU || P->fallbacks || P->script) {
        const uint64_t was = t_fp_enter(); /* the threads inherit it */
        head->pool = t_pool_create(threads ? threads : t_usable_processors());
        t_fp_leave(was);
    }
    head->threads = t_pool_threads(head->pool);
}

static int allocate_arrays(t_model *head) {
    const size_t n = (size_t)P->inputs + (size_t)P->outputs, places = (size_t)P->places;
    const size_t each = sizeof *head->span + sizeof *head->tensor + sizeof *head->at;
    head->symbols = allocate_apart(2 * places * sizeof *head->symbols + n * each + 1);
    if (!head->symbols)
        return t_fail(TORSHC_E_MEMORY, "no memory for the arrays of a call");
    head->asked = head->symbols + places;
    head->span = (t_span *)(void *)(head->asked + places);
    head->tensor = (const torshc_tensor **)(void *)(head->span + n);
    head->at = (unsigned char **)(void *)(head->tensor + n);
    return TORSHC_OK;
}

static int share(t_model *head, const torshc_model *of, const torshc_options *options) {
    if (of) {
        head->shared = ((const t_model *)of)->shared;
        atomic_fetch_add(&head->shared->users, 1);
        return TORSHC_OK;
    }
    head->shared = allocate_apart(sizeof *head->shared);
    if (!head->shared)
        return t_fail(TORSHC_E_MEMORY, "no memory for the model");
    pthread_mutex_init(&head->shared->lock, NULL);
    pthread_mutex_init(&head->shared->exchanging, NULL);
    head->shared->users = 1;
    head->shared->ordinal = options->device;
    head->shared->ranks = P->ranks ? options->ranks : NULL;
    head->shared->observer = t_observe(options->profile_path);
    return t_first_weights(head->shared, options->weights_path);
}

/* The states as the weights have them, zeros where they do not. */
static int begin_states(torshc_model *m) {
    if (!P->state_count)
        return TORSHC_OK;
    unsigned char *first = allocate_apart((size_t)P->state_bytes);
    if (!first)
        return t_fail(TORSHC_E_MEMORY, "no memory for %llu bytes of states", (unsigned long long)P->state_bytes);
    for (int32_t i = 0; i < P->state_count; i++)
        if (P->state[i].first >= 0)
            memcpy(first + P->state[i].offset, head_of(m)->weights->file.at + P->state[i].first, P->state[i].bytes);
    return t_keep_states(m, first);
}

static int fill(torshc_model *m, const torshc_model *of, const torshc_options *options) {
    t_model *head = head_of(m);
    const t_run *with = NULL;
    int status = share(head, of, options);
    if (status || (status = allocate_arrays(head)))
        return status;
    t_take_weights(head);
    head->counters = calloc((size_t)P->steps + 1, sizeof *head->counters);
    head->ran = allocate_apart(2 * ((size_t)P->forms + 1) * sizeof *head->ran);
    head->missed = head->ran + P->forms + 1;
    if (!head->counters || !head->ran)
        return t_fail(TORSHC_E_MEMORY, "no memory for %d counters", (int)P->steps);
    start_threads(head, options->threads);
    if ((status = t_fill_model(m, of, options, &with)) || (status = begin_states(m)))
        return status;
    if (P->device != TORSHC_CPU && !P->fallbacks && !P->script)
        t_close_weights(&head->weights->file); /* they are on the device */
    if (!P->script)
        return TORSHC_OK;
    head->frame = P->script->open(with, head->weights->file.at);
    return head->frame ? TORSHC_OK : t_fail(TORSHC_E_MEMORY, "no memory for a frame");
}

static int make(const torshc_model *of, const torshc_options *options, torshc_model **model) {
    torshc_model *m = allocate_apart(t_model_bytes);
    if (!m)
        return t_fail(TORSHC_E_MEMORY, "no memory for the model");
    pthread_mutex_init(&head_of(m)->lock, NULL);
    pthread_mutex_init(&head_of(m)->asking, NULL);
    head_of(m)->owner = getpid();
    const int status = fill(m, of, options);
    if (status)
        torshc_close(m);
    else
        *model = m;
    return status;
}

/* Whether the processes are those that the model was cut for. */
static int check_ranks(const torshc_ranks *ranks) {
    if (!P->ranks)
        return TORSHC_OK;
    if (!ranks)
        return t_fail(TORSHC_E_RANKS, "this is rank %d of a model that %d processes share: set options.ranks",
                      (int)P->rank, (int)P->ranks);
    if (ranks->size != sizeof *ranks && ranks->size != offsetof(torshc_ranks, lost))
        return t_fail(TORSHC_E_ARGUMENT, "torshc_open: options.ranks of another version (size %u)", ranks->size);
    if (ranks->count != P->ranks)
        return t_fail(TORSHC_E_RANKS, "the model is cut for %d ranks; the world has %d", (int)P->ranks,
                      (int)ranks->count);
    if (ranks->rank != P->rank)
        return t_fail(TORSHC_E_RANKS, "this library is for rank %d, and this process is rank %d", (int)P->rank,
                      (int)ranks->rank);
    return TORSHC_OK;
}

int torshc_open(const torshc_options *given, torshc_model **model) {
    if (!model)
        return t_fail(TORSHC_E_ARGUMENT, "torshc_open: model is NULL");
    *model = NULL;
    torshc_options options;
    int status = t_options(given, &options);
    if (status)
        return status;
    if (P->device == TORSHC_CPU && (options.device || options.stream))
        return t_fail(TORSHC_E_ARGUMENT, "torshc_open: a library for processors has no device %d and no streams",
                      (int)options.device);
    if ((status = t_check_processor()) || (status = check_ranks(options.ranks)))
        return status;
    return make(NULL, &options, model);
}

int torshc_context_new(const torshc_model *model, const torshc_options *given, torshc_model **context) {
    const t_model *head = (const t_model *)model;
    torshc_options options;
    if (!context)
        return t_fail(TORSHC_E_ARGUMENT, "torshc_context_new: context is NULL");
    *context = NULL;
    int status = t_check_alive(model, "torshc_context_new");
    if (status || (status = t_options(given, &options)))
        return status;
    if (P->state_count)
        return t_fail(TORSHC_E_UNSUPPORTED, "torshc_context_new: the library trains, and only its models do; open "
                                            "another model, or one of the library for inference");
    if (P->ranks)
        return t_fail(TORSHC_E_UNSUPPORTED, "torshc_context_new: runs of a model of several processes take turns");
    if (!given) {
        options.threads = head->threads;
        options.device = head->shared->ordinal;
    }
    if (options.device != head->shared->ordinal || (P->device == TORSHC_CPU && options.stream))
        return t_fail(TORSHC_E_ARGUMENT, "torshc_context_new: the model is on device %d, a context on %d%s",
                      (int)head->shared->ordinal, (int)options.device,
                      P->device == TORSHC_CPU && options.stream ? " has a stream" : "");
    return make(model, &options, context);
}

void torshc_context_free(torshc_model *context) { torshc_close(context); }

void torshc_close(torshc_model *m) {
    t_model *head = head_of(m);
    if (!m || head->owner != getpid()) /* a run of the parent may have been at any point when it forked */
        return;
    if (head->frame)
        P->script->close(head->frame);
    t_pool_destroy(head->pool);
    const int last = head->shared && atomic_fetch_sub(&head->shared->users, 1) == 1;
    t_empty_model(m, last);
    t_drop_weights(head->weights);
    if (last) {
        t_drop_weights(head->shared->weights);
        t_end_observing(head->shared->observer);
        pthread_mutex_destroy(&head->shared->lock);
        pthread_mutex_destroy(&head->shared->exchanging);
        free(head->shared);
    }
    free(head->ran);
    free(head->counters);
    free(head->symbols);
    pthread_mutex_destroy(&head->asking);
    pthread_mutex_destroy(&head->lock);
    free(m);
}

/* ---- sizes ---- */

/* Binds the symbols of a question; the caller puts back the floating-point state, which may compute sizes, and the lock. */
static int ask(t_model *head, const torshc_tensor *inputs, int32_t count, uint64_t *was) {
    pthread_mutex_lock(&head->asking);
    *was = t_fp_enter();
    return t_bind(inputs, count, head->asked);
}

static void end_asking(t_model *head, uint64_t was) {
    t_fp_leave(was);
    pthread_mutex_unlock(&head->asking);
}

int torshc_output_shape(const torshc_model *m, const torshc_tensor *inputs, int32_t count, int32_t index,
                        int64_t *dims) {
    t_model *head = (t_model *)(uintptr_t)m;
    uint64_t was;
    int status = t_check_alive(m, "torshc_output_shape");
    if (status)
        return status;
    if (!dims || index < 0 || index >= P->outputs)
        return t_fail(TORSHC_E_ARGUMENT, "torshc_output_shape: dims is NULL, or output %d of %d", (int)index,
                      (int)P->outputs);
    status = ask(head, inputs, count, &was);
    for (int32_t d = 0; !status && d < P->output[index].ndim; d++)
        dims[d] = t_dim(&P->output[index], d, head->asked);
    end_asking(head, was);
    return status;
}

/* The most of a form and those that a run with these symbols may take for it, as values that a form takes for granted are
 * not known. */
static size_t most_of_forms(const torshc_model *m, int64_t *s) {
    size_t most = t_workspace_bytes(m, s);
    while (t_is_guarded(s)) {
        s[P->form] = P->variant(s, (int32_t)s[P->form]);
        const size_t bytes = t_workspace_bytes(m, s);
        most = bytes > most ? bytes : most;
    }
    return most;
}

/* The same with any number of zeros in inputs of which it matters: what needs memory grows with those that are none. */
static size_t most_workspace(const torshc_model *m, const torshc_tensor *inputs, int64_t *s) {
    size_t most = most_of_forms(m, s);
    int counts = 0;
    for (int32_t k = 0; k < P->symbols; k++)
        if (P->symbol[k].kind == T_COUNT) {
            s[k] = t_elements(&inputs[P->symbol[k].input]) - 1;
            counts |= s[k] >= 0;
        }
    if (counts && P->variant && (s[P->form] = P->variant(s, 0))) {
        const size_t bytes = most_of_forms(m, s);
        most = bytes > most ? bytes : most;
    }
    return most;
}

int torshc_workspace_size(const torshc_model *m, const torshc_tensor *inputs, int32_t count, size_t *bytes) {
    t_model *head = (t_model *)(uintptr_t)m;
    uint64_t was;
    int status = t_check_alive(m, "torshc_workspace_size");
    if (status)
        return status;
    if (!bytes)
        return t_fail(TORSHC_E_ARGUMENT, "torshc_workspace_size: bytes is NULL");
    status = ask(head, inputs, count, &was);
    if (!status)
        *bytes = most_workspace(m, inputs, head->asked);
    end_asking(head, was);
    return status;
}

/* ---- runs ---- */

/* When a run began; nobody asks without a profile. */
static uint64_t begin_run(const t_model *head) { return head->shared->observer ? t_now() : 0; }

/* Counts a run that succeeded, by its sizes; within its lock. The forms before its own were for its sizes, but not for
 * its values. */
static void count_run(t_model *head, const int64_t *s, uint64_t began, const torshc_tensor *inputs) {
    const int64_t form = P->forms ? s[P->form] : 0;
    head->ran[form] += !head->elsewhere;
    if (P->guard_count && !head->elsewhere && (!form || form != P->loose))
        for (int32_t k = P->variant(s, 0); k && k != form; k = P->variant(s, k))
            head->missed[k]++;
    if (head->shared->observer)
        t_note_run(head->shared->observer, s, began, inputs);
}

/* A script's results are its own; they are shown (`shown`), or copied to `outputs`. */
static int run_script(torshc_model *m, const torshc_tensor *inputs, int32_t count, torshc_tensor *shown,
                      const torshc_tensor *outputs, int32_t output_count) {
    t_model *head = head_of(m);
    pthread_mutex_lock(&head->lock);
    const uint64_t began = begin_run(head);
    const int status = t_end_script(m, P->script->run(head->frame, inputs, count, shown, outputs, output_count));
    if (!status)
        count_run(head, P->script->sizes(head->frame), began, inputs);
    pthread_mutex_unlock(&head->lock);
    return status;
}

int torshc_run_sized(torshc_model *m, const torshc_tensor *inputs, int32_t input_count, torshc_tensor *outputs,
                     int32_t output_count) {
    int status = t_check_alive(m, "torshc_run_sized");
    if (status)
        return status;
    if (!P->script)
        return t_fail(TORSHC_E_UNSUPPORTED,
                      "output shapes are known before a run here: use torshc_output_shape and torshc_run");
    const uint64_t was = t_fp_enter();
    status = run_script(m, inputs, input_count, outputs, NULL, output_count);
    t_fp_leave(was);
    return status;
}

int torshc_keep(torshc_model *m, int32_t output, void **memory) {
    const int status = t_check_alive(m, "torshc_keep");
    if (status)
        return status;
    if (!P->script)
        return t_fail(TORSHC_E_UNSUPPORTED, "torshc_keep: torshc_run wrote the outputs into the caller's memory");
    if (!memory || output < 0 || output >= P->outputs)
        return t_fail(TORSHC_E_ARGUMENT, "torshc_keep: memory is NULL, or output %d of %d", (int)output,
                      (int)P->outputs);
    t_model *head = head_of(m);
    pthread_mutex_lock(&head->lock);
    *memory = P->device == TORSHC_CPU ? P->script->keep(head->frame, output) : NULL;
    pthread_mutex_unlock(&head->lock);
    return TORSHC_OK;
}

static int check_workspace(const t_span *work, size_t need) {
    if ((uintptr_t)work->at % T_ALIGN)
        return t_fail(TORSHC_E_ALIGN, "the workspace is not aligned to %d bytes", T_ALIGN);
    if (work->at && work->bytes < need)
        return t_fail(TORSHC_E_WORKSPACE, "the workspace has %llu bytes; this run needs %zu",
                      (unsigned long long)work->bytes, need);
    return TORSHC_OK;
}

/* Checks the call and notes where its tensors lie. */
static int check_call(torshc_model *m, const torshc_tensor *inputs, int32_t input_count, const torshc_tensor *outputs,
                      int32_t output_count, const t_span *work) {
    t_model *head = head_of(m);
    int status;
    if ((status = t_bind(inputs, input_count, head->symbols)) ||
        (status = t_check_outputs(outputs, output_count, head->symbols)))
        return status;
    for (int32_t i = 0; i < P->inputs; i++)
        if ((status = t_locate_on(m, head->tensor[i] = &inputs[i], "input", i, &head->span[i])))
            return status;
    for (int32_t i = 0, k = P->inputs; i < P->outputs; i++, k++)
        if ((status = t_locate_on(m, head->tensor[k] = &outputs[i], "output", i, &head->span[k])))
            return status;
    if ((status = t_check_aliases(head->span, work)))
        return status;
    t_pass_guards(inputs, head->symbols);
    return check_workspace(work, t_workspace_bytes(m, head->symbols));
}

static int run_program(torshc_model *m, const torshc_tensor *inputs, int32_t input_count, const torshc_tensor *outputs,
                       int32_t output_count, t_span *work) {
    t_model *head = head_of(m);
    pthread_mutex_lock(&head->lock);
    const uint64_t began = begin_run(head);
    int status = check_call(m, inputs, input_count, outputs, output_count, work);
    if (!status && head->shared->ranks && head->shared->ranks->broken)
        status = t_fail(TORSHC_E_RANKS, "an earlier run failed, on this rank or by another: end all processes%s%s",
                        head->shared->failure[0] ? "; it said: " : "", head->shared->failure);
    if (!status) {
        t_take_weights(head);
        status = t_run_on(m, work);
        if (status && head->shared->ranks) {
            head->shared->ranks->broken = 1; /* others wait for what this run would have sent */
            snprintf(head->shared->failure, sizeof head->shared->failure, "%s", torshc_last_error());
        }
    }
    if (!status)
        count_run(head, head->symbols, began, inputs);
    pthread_mutex_unlock(&head->lock);
    return status;
}

int t_run_checked(torshc_model *m, const torshc_tensor *inputs, int32_t input_count, const torshc_tensor *outputs,
                  int32_t output_count, void *workspace, size_t bytes) {
    t_span work = {workspace, workspace ? bytes : 0};
    const uint64_t was = t_fp_enter(); /* before sizes are computed, which may be in floats */
    const int status = P->script ? run_script(m, inputs, input_count, NULL, outputs, output_count)
                                 : run_program(m, inputs, input_count, outputs, output_count, &work);
    t_fp_leave(was);
    return status;
}

int torshc_run(torshc_model *m, const torshc_tensor *inputs, int32_t input_count, const torshc_tensor *outputs,
               int32_t output_count, void *workspace, size_t bytes) {
    const int status = t_check_alive(m, "torshc_run");
    if (status)
        return status;
    if (P->state_count)
        return t_fail(TORSHC_E_UNSUPPORTED, "torshc_run: the library trains its model: call torshc_train");
    return t_run_checked(m, inputs, input_count, outputs, output_count, workspace, bytes);
}

/* ---- what ran ---- */

int32_t torshc_device_number(const torshc_model *m) { return m ? ((const t_model *)m)->shared->ordinal : 0; }

static int read_count(torshc_model *m, const char *what, int32_t form, int missed, uint64_t *runs) {
    int status = t_check_alive(m, what);
    if (status)
        return status;
    if (!runs || form < 0 || form >= torshc_form_count())
        return t_fail(TORSHC_E_ARGUMENT, "%s: NULL argument, or form %d of %d", what, (int)form,
                      (int)torshc_form_count());
    t_model *head = head_of(m);
    pthread_mutex_lock(&head->lock);
    *runs = (missed ? head->missed : head->ran)[form];
    if (P->chooser)
        status = P->chooser->count(m, form, missed, runs);
    pthread_mutex_unlock(&head->lock);
    return status;
}

int torshc_form_runs(torshc_model *m, int32_t form, uint64_t *runs) {
    return read_count(m, "torshc_form_runs", form, 0, runs);
}

int torshc_form_misses(torshc_model *m, int32_t form, uint64_t *runs) {
    return read_count(m, "torshc_form_misses", form, 1, runs);
}

int torshc_profile(torshc_model *m, int32_t step, uint64_t *calls, uint64_t *nanoseconds) {
    const int status = t_check_alive(m, "torshc_profile");
    if (status)
        return status;
    if (!calls || !nanoseconds || step < 0 || step >= P->steps)
        return t_fail(TORSHC_E_ARGUMENT, "torshc_profile: NULL argument, or step %d of %d", (int)step, (int)P->steps);
#ifdef TORSHC_PROFILE
    t_model *head = head_of(m);
    pthread_mutex_lock(&head->lock);
    *calls = head->counters[step].calls;
    *nanoseconds = head->counters[step].ns;
    pthread_mutex_unlock(&head->lock);
    return TORSHC_OK;
#else
    return t_fail(TORSHC_E_UNSUPPORTED, "compiled without profiling");
#endif
}
