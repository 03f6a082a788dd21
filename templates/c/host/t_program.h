/* What a generated host program (host.c) and the support code beside it know of each other, whatever the target.
 *
 * host.c holds what is special about one model, as tables and small functions of its symbolic dimensions s[0..]; the
 * support code holds the interface of model.h, the checks and the memory, equal for all models: t_model.c, t_open.c
 * and t_check.c for every target, t_host.c for processors, t_gpu_host.c over a device layer for others; for scripts
 * t_frame.c, and t_segment.c of the processors or of devices. Compiles as C and as C++.
 */
#ifndef T_PROGRAM_H
#define T_PROGRAM_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "model.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { T_ELEMENTS_MAX = 64, T_RANK_MAX = 64, T_ALIGN = 64, T_THREADS_MAX = 1024 };

/* No buffer is larger: the address space of today's processors. */
#define T_BYTES_MAX (INT64_C(1) << 47)

/* Sizes of symbolic models are first computed in 128 bits, so that an overflow is seen instead of happening. */
__extension__ typedef __int128 t_wide;

/* Integer functions of host expressions. Division rounds down and by zero gives 0, as when the model was compiled; it is
 * no part of its callers, of which models with many run-time sizes have thousands. */
#define T_APART __attribute__((noinline, unused)) static
static inline t_wide t_imin(t_wide a, t_wide b) { return a < b ? a : b; }
static inline t_wide t_imax(t_wide a, t_wide b) { return a > b ? a : b; }
static inline t_wide t_iabs(t_wide a) { return a < 0 ? -a : a; }
T_APART t_wide t_iquot(t_wide a, t_wide b) { return b ? a / b : 0; }
T_APART t_wide t_idiv(t_wide a, t_wide b) {
    const t_wide quotient = t_iquot(a, b);
    return quotient - (b && quotient * b != a && (a < 0) != (b < 0));
}
T_APART t_wide t_imod(t_wide a, t_wide b) { return a - b * t_idiv(a, b); }

/* Functions of floats in host expressions, named as those of kernels are. Each rounds its result; a compiler that saw two
 * of them in one place could contract them. NaN as an integer is 0, and what is too large is the largest. */
/* clang-format off */
#define T_FLOATS(F, T, S)                                                                                             \
    T_APART T t_add_##F(T a, T b) { return a + b; }                                                                   \
    T_APART T t_sub_##F(T a, T b) { return a - b; }                                                                   \
    T_APART T t_mul_##F(T a, T b) { return a * b; }                                                                   \
    T_APART T t_div_##F(T a, T b) { return a / b; }                                                                   \
    T_APART T t_fmod_##F(T a, T b) { return __builtin_fmod##S(a, b); }                                                \
    T_APART T t_min_##F(T a, T b) { return a != a || a < b ? a : b; }                                                 \
    T_APART T t_max_##F(T a, T b) { return a != a || a > b ? a : b; }                                                 \
    T_APART T t_neg_##F(T a) { return -a; }                                                                           \
    T_APART T t_abs_##F(T a) { return __builtin_fabs##S(a); }                                                         \
    T_APART T t_sign_##F(T a) { return a > 0 ? 1 : a < 0 ? -1 : a; }                                                  \
    T_APART T t_floor_##F(T a) { return __builtin_floor##S(a); }                                                      \
    T_APART T t_ceil_##F(T a) { return __builtin_ceil##S(a); }                                                        \
    T_APART T t_round_##F(T a) { return __builtin_rint##S(a); }                                                       \
    T_APART T t_trunc_##F(T a) { return __builtin_trunc##S(a); }                                                      \
    T_APART T t_sqrt_##F(T a) { return __builtin_sqrt##S(a); }                                                        \
    T_APART int t_isnan_##F(T a) { return a != a; }                                                                   \
    T_APART int t_isinf_##F(T a) { return __builtin_fabs##S(a) == __builtin_inf(); }                                  \
    T_APART int64_t t_i64_##F(T a)                                                                                    \
    {                                                                                                                 \
        return a != a ? 0 : a >= (T)0x1p63 ? INT64_MAX : a < (T)-0x1p63 ? INT64_MIN : (int64_t)a;                     \
    }                                                                                                                 \
    T_TO_INT(F, T, i32, INT32_MIN, INT32_MAX)                                                                         \
    T_TO_INT(F, T, i16, INT16_MIN, INT16_MAX)                                                                         \
    T_TO_INT(F, T, i8, INT8_MIN, INT8_MAX)                                                                            \
    T_TO_INT(F, T, u32, 0, UINT32_MAX)                                                                                \
    T_TO_INT(F, T, u16, 0, UINT16_MAX)                                                                                \
    T_TO_INT(F, T, u8, 0, UINT8_MAX)
#define T_TO_INT(F, T, I, LOW, HIGH)                                                                                  \
    T_APART int64_t t_##I##_##F(T a) { return (int64_t)t_imin(t_imax(t_i64_##F(a), LOW), HIGH); }
T_FLOATS(f32, float, f)
T_FLOATS(f64, double, )
/* clang-format on */

typedef struct t_port {
    torshc_dtype dtype;
    int32_t ndim;                 /* -1: any */
    const int64_t *dims;          /* -1: symbolic */
    const int32_t *places;        /* where a run has its dimensions, see t_dim; NULL where none is symbolic */
    const struct t_port *inner;   /* what a sequence or an optional holds, or NULL; a map's keys, whose is its values */
    const char *name;             /* the model's; NULL inside a script and inside others */
    const char *const *dim_names; /* NULL for numbers; NULL where `name` is */
} t_port;

/* Dimension d in a run: `s` holds the symbols, and behind them what t_program.sizes made of them. -1 where only the run
 * computes it. */
static inline int64_t t_dim(const t_port *port, int32_t d, const int64_t *s) {
    return port->places && port->places[d] >= 0 ? s[port->places[d]] : port->dims[d];
}

/* Whether elements are tensors of their own. */
static inline int t_is_nested(torshc_dtype dtype) { return dtype.code >= TORSHC_SEQUENCE; }

/* Symbol k is dimension `dim` of input `input`, its element there, which is refused or moved when out of range, or how
 * many of its elements are not 0. */
enum { T_DIM, T_ELEMENT, T_CLAMPED, T_COUNT };

typedef struct {
    int32_t input, dim;
    int64_t min, max;
    int32_t kind;
} t_symbol;

typedef struct {
    uint64_t calls, ns;
} t_counter;

/* A weight: in the file it may be f16, bf16 or f8, in memory it is f32 then. f8 is in blocks of 33 bytes: the exponent of
 * a power of two as f32 has it, and the e4m3fn of 32 weights divided by it, with 448 for infinity. */
enum { T_AS_IT_IS, T_F16, T_BF16, T_F8, T_F8_BLOCK = 32 };

typedef struct {
    int32_t type;
    uint64_t place, offset; /* in the file, in memory */
    uint64_t bytes;         /* in memory */
} t_stored;

/* Elements of a tensor that go to the weights in memory: `from` and `to` count elements, those of the outermost loop's
 * round `i` are `i` times its steps further. */
enum { T_LOOPS_MAX = 8 };

typedef struct {
    int64_t count, from, to;
} t_loop;

typedef struct {
    int64_t from, to;
    int32_t first, loops; /* the outermost, and how many there are */
} t_copy;

/* A weight of the model that may be given by its name, as type, dimensions and name say; `why` it may not, or NULL. */
typedef struct {
    t_port port;
    const char *why;
    int32_t first, copies;
} t_named;

/* A tensor that an open model keeps from run to run; `first` is where its first contents lie in the weights in memory, or
 * -1 for zeros. */
typedef struct {
    t_port port;
    uint64_t offset, bytes; /* in the memory of all states */
    int64_t first;
    int32_t trained; /* a weight of the model */
    int32_t parts;   /* how many ranks have a part of it of that many bytes; 1 where it is whole */
} t_state;

/* What a form takes for granted: all elements of an input are one number. */
typedef struct {
    int32_t form, input;
    int64_t value;
} t_guard;

/* What the steps of a run get; each kind of target has its own. */
typedef struct t_run t_run;

/* A script, for models whose sizes or steps are known only at run time: t_frame.h. */
typedef struct t_frame t_frame;

typedef struct {
    int32_t slot;
    torshc_dtype dtype;
    int32_t ndim;
    const int64_t *dims;
    int64_t offset; /* in the weights */
} t_constant;

typedef struct {
    int32_t slots, symbols, constants;
    int32_t ports, operands, states; /* the most that a segment, an operator and a loop have */
    const t_constant *constant;
    const int32_t *input, *output; /* slots */
    int (*steps)(t_frame *f, int64_t *s);
    t_frame *(*open)(const t_run *with, unsigned char *weights);
    void (*close)(t_frame *f);
    int (*run)(t_frame *f, const torshc_tensor *inputs, int32_t input_count, torshc_tensor *shown,
               const torshc_tensor *outputs, int32_t output_count);
    const int64_t *(*sizes)(const t_frame *f); /* of the last run, with the form that it took */
    void *(*keep)(t_frame *f, int32_t output);
} t_script;

/* Exchanges that a run on the processor has begun and will wait for, in the order in which all ranks began them. */
enum { T_BEGUN_MOST = 16 };
typedef struct t_begun {
    void *request[T_BEGUN_MOST];
    int32_t count;
    int32_t failed; /* one of them, with the table's message */
} t_begun;

/* How an open model on a card joins the others that share it: t_nccl.c. */
typedef struct {
    /* The card for this process, in place of -1. */
    int (*choose)(torshc_ranks *ranks, int32_t *ordinal);
    /* Makes the communicator, once the model's device is open. */
    int (*join)(torshc_model *m, const torshc_options *options);
    /* Ends it, once no work on the device uses it. */
    void (*leave)(torshc_model *m);
} t_cards;

/* How a card takes a form for a run by what inputs in its memory hold: t_choice.c. */
typedef struct t_choice t_choice;
typedef struct {
    /* Once the model's device is open; and when the model closes, before the device does. */
    int (*open)(torshc_model *m);
    void (*close)(torshc_model *m);
    /* Finds the forms that a run of the symbols in the head may take before the one that they have, for tensors where
     * they lie and within so much memory, and what memory these want at the most. */
    size_t (*find)(torshc_model *m, const torshc_tensor *const *tensor, size_t room);
    /* Which they are: 0 where the run takes the form that it has, and the processor counts it. */
    int64_t (*cases)(const torshc_model *m);
    /* Records the steps of these forms, behind what chooses one. */
    int (*run)(torshc_model *m, const t_run *r);
    /* Adds what the card counted. */
    int (*count)(torshc_model *m, int32_t form, int missed, uint64_t *runs);
} t_chooser;
extern const t_chooser t_card_chooser; /* CUDA's */

typedef struct {
    int32_t inputs, outputs, symbols, steps, device;
    int32_t places;       /* symbols, and sizes behind them, of the program or of its segment that has the most */
    int32_t fallbacks;    /* steps that run on the processor in a library for another device */
    int32_t form;         /* where a run says which form it takes, behind the symbols */
    int32_t forms;        /* how many there are; 0 where there is one: the fast one is 0, and its variants follow */
    int32_t rank, ranks;  /* which of how many processes it is for; 0 ranks for a model that is whole */
    int32_t loose;        /* the one in which sizes of 1 broadcast; 0 for none */
    int32_t recorded;     /* how many recordings of runs a card keeps; 0 for the usual number */
    const t_cards *cards; /* NULL for a model that is whole, and on processors */
    /* All parts of what ranks share, behind each other: an exchange; NULL for a model that is whole. */
    int (*gather)(torshc_ranks *ranks, const void *own, void *all, int64_t bytes);
    /* Waits for what a run that failed had begun, as it has no memory for it any more; NULL where no step exchanges. */
    void (*drop)(torshc_ranks *ranks, t_begun *begun);
    const t_port *input, *output;
    const t_symbol *symbol;
    const int32_t *shared;           /* of each output the input whose buffer it may be, or -1; NULL for none */
    uint64_t interface_id;           /* of the manifest's names, types and dimensions */
    const char *model;               /* SHA-256 of the model's file; "" or NULL where there was none */
    uint64_t weights_bytes;          /* in memory */
    uint64_t used_bytes;             /* the first of these: what kernels read; the others are where states begin */
    uint64_t file_bytes, weights_id; /* payload of the file, without the footer */
    int32_t stored_count;            /* 0 where the file is used as it is */
    const t_stored *stored;
    int32_t named_count; /* 0 for a library that takes no weights by name */
    const t_named *named;
    const t_copy *copies;
    const t_loop *loops;
    int32_t state_count; /* 0 for a library that does not train */
    const t_state *state;
    uint64_t state_bytes;
    const char *state_header;       /* what files of states begin with, behind its length */
    const unsigned char *embedded;  /* weights inside the library, or NULL */
    int (*fits)(const int64_t *s);  /* status: is every size of a run in 0 .. T_BYTES_MAX? */
    int (*holds)(const int64_t *s); /* status: are the sizes equal that have to be? */
    void (*sizes)(int64_t *s);      /* puts sizes of inputs and outputs behind the symbols; NULL where there are none */
    int64_t (*arena)(const int64_t *s);           /* bytes */
    int64_t (*scratch)(const int64_t *s);         /* bytes a thread */
    int (*run)(const t_run *r, const int64_t *s); /* status: does what kernels found allow to go on? */
    /* The first form behind `after` that is for sizes which form 0 takes, 0 for none; NULL without variants. */
    int32_t (*variant)(const int64_t *s, int32_t after);
    int32_t guard_count;
    const t_guard *guard;
    const t_chooser *chooser;       /* NULL where the processor alone looks at values */
    const t_script *script;         /* or NULL, when `run` is all */
    const t_script *const *scripts; /* of each form; NULL where there is one form */
} t_program;

/* The model as it was compiled for processors with some instructions. Versions have the same inputs and outputs, and
 * each its own steps. */
typedef struct {
    const char *isa;
    const t_program *program;
    const char *const *needs; /* what the processor must have, by LLVM's names; ends with NULL */
} t_version;

/* Those of the library, the best first. */
extern const t_version t_versions[];
extern const int32_t t_version_count;

/* Where a tensor's data lies. */
typedef struct {
    unsigned char *at;
    uint64_t bytes;
} t_span;

/* t_cpu.c: the program of the version that runs here; of the last one where none can. */
const t_program *t_the_program(void);

/* TORSHC_E_CPU where this processor can run no version, or not the one that TORSHC_ISA names. */
int t_check_processor(void);

/* t_check.c. All return a status and leave a message when it is not TORSHC_OK. */
int t_fail(int status, const char *format, ...) __attribute__((format(printf, 2, 3)));
int t_at_step(int32_t step, int status); /* notes the launch that failed */
int t_has_nan_f32(const void *at, int64_t count);
int t_has_nan_f64(const void *at, int64_t count);
int t_fail_in(int32_t node, int status); /* puts the number of the node before the message */
int t_demand(int32_t condition, const char *equation, t_wide left, t_wide right); /* are the two equal? */
int t_require(int32_t condition, const char *what, t_wide holds);
int t_sizes(const t_wide *size, size_t count); /* is each in 0 .. 2^47? */
int64_t t_integer(const void *data, int64_t i, torshc_dtype dtype);
int t_options(const torshc_options *given, torshc_options *options);
int t_bind(const torshc_tensor *inputs, int32_t count, int64_t *s);
/* Whether sizes that are bound fit a form, which the run then takes. */
int t_take_form(int form, const torshc_tensor *inputs, int32_t count, int64_t *s);
/* Whether a run of the form that sizes have taken has to look at values first. */
int t_is_guarded(const int64_t *s);
/* Whether an input is what a form takes for granted: nobody has looked at one in a device's memory. */
typedef enum { T_MISSED, T_HELD, T_UNSEEN } t_held;
t_held t_guard_holds(const t_guard *guard, const torshc_tensor *x);
/* Takes the next form until values of inputs are what it takes for granted. */
void t_pass_guards(const torshc_tensor *inputs, int64_t *s);
/* Whether an input, of integers or truths and checked, is one number throughout, and which; one in a device's memory is
 * not looked at, and one without elements has none. */
int t_is_throughout(const torshc_tensor *x, int64_t *value);
/* Elements of a tensor whose shape was checked. */
int64_t t_elements(const torshc_tensor *x);
/* How many elements of integers are not 0; as many as there are where the processor does not see them. */
int64_t t_count_nonzero(const torshc_tensor *x);
/* Whether a size of 1 is not what it was last found to have to be: the loose form says better what is wrong then. */
int t_is_one(void);
int t_check_outputs(const torshc_tensor *outputs, int32_t count, const int64_t *s);
extern const uint64_t t_nothing[8];
int t_locate(const torshc_tensor *x, const char *what, int32_t i, t_span *span);
int t_check_form(const torshc_tensor *x, const t_port *port, const char *what, int32_t i);
int t_check_elements(const torshc_tensor *x, const t_port *port, int32_t i);
int t_check_aliases(const t_span *spans, const t_span *work);

/* t_open.c. Weights: where they lie in this process; `mapped` is the size of the mapping, 0 for embedded ones. */
typedef struct {
    unsigned char *at;
    size_t mapped;
} t_weights_file;

int t_open_weights(t_weights_file *weights, const char *path);
int t_copy_weights(t_weights_file *weights, const t_weights_file *of); /* to be changed, then t_keep_weights() */
void t_keep_weights(const t_weights_file *weights);
void t_close_weights(t_weights_file *weights);
int t_usable_processors(void);

/* A run, and a function that computes sizes, uses the default floating-point state (round to nearest, denormals kept,
 * no traps) whatever the caller has set: t_fp_enter sets it and returns the caller's, which t_fp_leave puts back. */
uint64_t t_fp_enter(void);
void t_fp_leave(uint64_t was);

static inline size_t t_round_up(int64_t bytes) { return ((size_t)bytes + T_ALIGN - 1) / T_ALIGN * T_ALIGN; }

/* Nanoseconds of a clock that only goes forward. */
uint64_t t_now(void);

#ifdef __cplusplus
}
#endif

#endif
