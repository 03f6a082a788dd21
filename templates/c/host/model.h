/* The C interface of a compiled model, version 1.
 *
 * One header for every bundle: what is special about a model (its inputs, outputs, dimensions, names) is asked of the
 * library. Tensors have the layout of DLPack's DLTensor, so a `DLTensor *` may be passed as a `torshc_tensor *`.
 *
 * Every function is there twice. `torshc_run` is for programs that open libraries by dlopen(). Programs that are linked
 * with a bundle, and may be with several, call the model's own `NAME_run`, and so on, which NAME.h beside this file
 * declares: with two bundles in one program, torshc_run would be the first one's for both.
 *
 *     torshc_options options = {.size = sizeof options, .weights_path = "/models/digits.tsc/weights.bin"};
 *     torshc_model *model;
 *     if (torshc_open(&options, &model)) { puts(torshc_last_error()); return 1; }
 *     int64_t shape_in[] = {1, 1, 8, 8}, shape_out[] = {1, 10};
 *     torshc_tensor x = {pixels, {TORSHC_CPU, 0}, 4, {TORSHC_FLOAT, 32, 1}, shape_in, NULL, 0};
 *     torshc_tensor y = {scores, {TORSHC_CPU, 0}, 2, {TORSHC_FLOAT, 32, 1}, shape_out, NULL, 0};
 *     if (torshc_run(model, &x, 1, &y, 1, NULL, 0)) puts(torshc_last_error());
 *     torshc_close(model);
 *
 * Every function that returns `int` returns TORSHC_OK or another status below. All checks come before the first write:
 * a run that returns anything but TORSHC_OK has left the outputs as they were. But after TORSHC_E_LAUNCH and
 * TORSHC_E_DRIVER outputs on the device may hold anything; and after TORSHC_E_VALUE any outputs, where the index that is
 * out of range was itself computed.
 *
 * A library for a GPU takes tensors on the processor (TORSHC_CPU), which it copies to and fro, and tensors on its own
 * device (TORSHC_CUDA, TORSHC_METAL; `id` as in the options), which it reads and writes in place, in any mixture. Data
 * on the device that is not aligned to 16 bytes is copied on the device first.
 *
 * Threads: any number of models may be open, and any thread may call any of them; calls on one model take turns. For
 * calls at the same time each thread has a context (torshc_context_new), which shares the model's weights. The
 * floating-point state of the caller is neither used nor changed. Threads of a model block the program's signals, but
 * those that a fault raises in them.
 *
 * fork(): a child opens the model again. With a model of its parent, of one thread too, every call but torshc_close returns
 * TORSHC_E_FORKED, before it waits for anything; torshc_close does nothing there. A server that forks its workers has each
 * open the model; they share the memory of the weights file.
 *
 * Stack: a call needs at most TORSHC_STACK_BYTES of the thread that makes it, however large the model is; so does each of
 * the model's threads. A library for a GPU needs in addition what the card's driver does.
 */
#ifndef TORSHC_MODEL_H
#define TORSHC_MODEL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TORSHC_ABI_VERSION 1

/* Of a call, for programs that choose the stacks of their threads. */
#define TORSHC_STACK_BYTES 32768

#if defined(__GNUC__)
#define TORSHC_API __attribute__((visibility("default")))
#else
#define TORSHC_API
#endif

/* Status codes. Their numbers never change. */
enum {
    TORSHC_OK = 0,
    TORSHC_E_ARGUMENT = 1,     /* a null pointer, an index out of range, or unknown options */
    TORSHC_E_COUNT = 2,        /* too few or too many inputs or outputs */
    TORSHC_E_NULL = 3,         /* a tensor with elements has no data, or a tensor with dimensions no shape */
    TORSHC_E_DTYPE = 4,        /* another element type than the model's */
    TORSHC_E_RANK = 5,         /* another number of dimensions */
    TORSHC_E_SHAPE = 6,        /* a dimension that the model cannot take, or that contradicts another */
    TORSHC_E_STRIDES = 7,      /* not compact row-major */
    TORSHC_E_ALIGN = 8,        /* data not aligned to its element, or workspace not to 64 bytes */
    TORSHC_E_ALIAS = 9,        /* an output or the workspace overlaps another buffer of the call */
    TORSHC_E_DEVICE = 10,      /* a tensor on another device than the model's */
    TORSHC_E_WORKSPACE = 11,   /* the caller's workspace is too small */
    TORSHC_E_MEMORY = 12,      /* out of memory */
    TORSHC_E_SIZE = 13,        /* these shapes need more than 2^47 bytes somewhere */
    TORSHC_E_WEIGHTS = 14,     /* the weights file cannot be read, or is damaged */
    TORSHC_E_CPU = 15,         /* this processor lacks instructions that the library was compiled for */
    TORSHC_E_FORKED = 16,      /* the model was opened before fork(): open it again in the child */
    TORSHC_E_UNSUPPORTED = 17, /* compiled without profiling; not of this kind of model */
    TORSHC_E_DRIVER = 18,      /* no driver or no card, or one of their calls failed */
    TORSHC_E_ARCH = 19,        /* the library holds no code that this card can run */
    TORSHC_E_LAUNCH = 20,      /* a kernel failed; the message has its step, a number of the manifest's "steps" */
    TORSHC_E_VALUE = 21,       /* what an operand holds is not possible: a place out of range, text that is not UTF-8 */
    TORSHC_E_NAME = 22,        /* the model has no weight of this name */
    TORSHC_E_BUILD = 23,       /* the weights or state file is whole, but of another model or build: see torshc_open */
    TORSHC_E_STATE = 24,       /* a state file cannot be read or written, or is damaged */
    TORSHC_E_RANKS = 25        /* other processes that share the model do not answer, or are not those it was cut for */
};

/* Type codes, those of DLPack's DLDataTypeCode. Types of fewer than 8 bits (integers of 4 and 2, TORSHC_FLOAT4_E2M1FN)
 * have bits 4 or 2 and are not packed: each element takes a byte, in its lowest bits, as with DLPack's
 * DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED. The other bits are ignored in inputs and 0 in outputs. */
enum { TORSHC_INT = 0, TORSHC_UINT = 1, TORSHC_FLOAT = 2, TORSHC_BFLOAT = 4, TORSHC_BOOL = 6 };
enum {
    TORSHC_FLOAT8_E4M3FN = 10,
    TORSHC_FLOAT8_E4M3FNUZ = 11,
    TORSHC_FLOAT8_E5M2 = 12,
    TORSHC_FLOAT8_E5M2FNUZ = 13,
    TORSHC_FLOAT8_E8M0FNU = 14,
    TORSHC_FLOAT4_E2M1FN = 17
};

/* Devices, those of DLPack's DLDeviceType. */
enum { TORSHC_CPU = 1, TORSHC_CUDA = 2, TORSHC_METAL = 8 };

typedef struct torshc_device {
    int32_t type;
    int32_t id;
} torshc_device;

typedef struct torshc_dtype {
    uint8_t code;
    uint8_t bits;
    uint16_t lanes; /* always 1 */
} torshc_dtype;

/* Layout of DLTensor. `shape` and `strides` have `ndim` elements and count elements, not bytes; `strides` may be NULL
 * for compact row-major, the only order that is accepted. Tensors are read, never changed; only output data is
 * written. */
typedef struct torshc_tensor {
    void *data;
    torshc_device device;
    int32_t ndim;
    torshc_dtype dtype;
    int64_t *shape;
    int64_t *strides;
    uint64_t byte_offset;
} torshc_tensor;

/* Elements of string tensors: UTF-8, `bytes` of it, not ended by a zero. Type code TORSHC_STRING, 128 bits. */
typedef struct torshc_string {
    const char *text;
    int64_t bytes;
} torshc_string;

/* A sequence is a tensor of one dimension whose elements are tensors (torshc_tensor), with type code TORSHC_SEQUENCE; an
 * optional, with TORSHC_OPTIONAL, has one element or none; a map, with TORSHC_MAP, which only outputs hold, has two, its
 * keys and its values. Their bits are 0. */
enum { TORSHC_STRING = 100, TORSHC_SEQUENCE = 101, TORSHC_OPTIONAL = 102, TORSHC_MAP = 103 };

/* The processes that share a model which `torshc compile --shard` cut, and how they exchange messages: what a library of
 * MPI does, as a table, since such libraries have no binary interface in common. libtorshc_mpi.so of the bundle makes one
 * (torshc_mpi.h); a program may make its own. Functions begin an exchange and return 0, with a request in *request, which
 * `test` asks for until *done; it is gone then. Others are failures, of which `message` tells. They are called from the
 * thread that calls torshc_run, one at a time. Several of what all processes do together may be begun before the first is
 * done; all processes begin them in one order, and this one asks for them in that order. */
typedef struct torshc_ranks {
    uint32_t size;       /* sizeof(torshc_ranks): lets later versions add fields */
    int32_t rank, count; /* which process this is, from 0, and how many there are */
    int32_t broken;      /* the library sets it when a run fails: there can be no others, and the job has to end */
    double seconds;      /* after which an exchange fails that is not done; what others compute counts too */
    void *context;       /* for the functions */
    int (*isend)(void *context, const void *data, size_t bytes, int32_t to, int32_t tag, void **request);
    int (*irecv)(void *context, void *data, size_t bytes, int32_t from, int32_t tag, void **request);
    /* The sum over all processes, of floats and integers of 32 and 64 bits, on each of them; what each has of `bytes`
     * behind each other; a sum of which each process gets the part of `count` elements that is its own. */
    int (*iallreduce)(void *context, const void *from, void *to, size_t count, torshc_dtype type, void **request);
    int (*iallgather)(void *context, const void *from, void *to, size_t bytes, void **request);
    int (*ireduce_scatter)(void *context, const void *from, void *to, size_t count, torshc_dtype type, void **request);
    int (*test)(void *context, void **request, int *done);
    const char *(*message)(void *context);    /* of the last failure */
    void (*abort)(void *context, int status); /* ends all processes */
    /* A process that has ended, -1 where none is known to have. NULL where nobody can tell; `size` may also be that of the
     * fields before this line. */
    int32_t (*lost)(void *context);
} torshc_ranks;

/* A table for processes of one machine, without MPI: they meet at `path`, a file that the first one makes and that no job
 * before has used. NULL with torshc_last_error where it cannot be made. A second call for the same path returns the same
 * table, which lives as long as the process. It is there only in a library of a model that several processes share. */
TORSHC_API torshc_ranks *torshc_local_ranks(const char *path, int32_t rank, int32_t count);

typedef struct torshc_options {
    uint32_t size;            /* sizeof(torshc_options): lets later versions add fields */
    uint32_t flags;           /* 0 */
    int32_t threads;          /* of a run, the caller's included; 0: as many as the process may use. Fewer if refused */
    const char *weights_path; /* weights.bin, opened exactly as given; ignored by a library that embeds its weights */
    /* Libraries for GPUs only. `size` may also be that of the fields before this line, or before profile_path. */
    int32_t
        device; /* which card, from 0; -1 where several processes share the model: each process of a machine its own */
    void *stream; /* the caller's stream for all work (cudaStream_t; 1 and 2 are CUDA's default streams), or NULL */
    /* What runs see is written to files for `torshc compile --observed`, whose names begin so: a file for each model that
     * is open, its contexts included. NULL for what the environment variable TORSHC_PROFILE says, "" for none. A file that
     * cannot be written fails no run. */
    const char *profile_path;
    /* Only for a model that several processes share, of which this library is one rank's. `size` may also be that of the
     * fields before this line. It is read and written until the model is closed. */
    torshc_ranks *ranks;
    /* Only for such a model on cards, whose tensors go from card to card by NCCL. `size` may also be that of the fields
     * before this line. */
    const char *nccl_path; /* absolute path of libnccl.so.2, opened exactly as given */
    void *
        nccl_comm; /* the caller's communicator (ncclComm_t) over all ranks, made by that library; NULL for a new one */
} torshc_options;

typedef struct torshc_model torshc_model;

/* TORSHC_ABI_VERSION of the library. */
TORSHC_API int torshc_abi_version(void);

/* A constant text for a status code. */
TORSHC_API const char *torshc_status_text(int status);

/* The message of the last failed call of this thread; valid until this thread's next call. */
TORSHC_API const char *torshc_last_error(void);

/* Where the last failed call of this thread failed, by the numbers of manifest.json; -1 for what does not apply. */
typedef struct {
    int32_t step;        /* the launch */
    int32_t node;        /* the node that the host runs between launches */
    int32_t condition;   /* the condition on the shapes that does not hold */
    int64_t left, right; /* its two sides, which should be equal */
} torshc_fault;
TORSHC_API void torshc_last_fault(torshc_fault *fault);

/* Opens a model. `options` may be NULL for a library without a weights file. The weights file is mapped read-only; its
 * size and its 64-bit identity (in the last 64 bytes of the file) must be those that the library was built with. The
 * file must not change while the model is open. On failure *model is NULL.
 *
 * TORSHC_E_BUILD where the file is whole and has another identity: it is another model's, or the bundle was replaced after
 * this library was loaded and before the file was opened. In the second case a program that uses dlopen() closes the
 * library, opens the one that lies in the bundle now (dlclose(), then dlopen() of the same path, once no model of the old
 * one is open), and calls torshc_open again; one that is linked with the library has to be started again. */
TORSHC_API int torshc_open(const torshc_options *options, torshc_model **model);

/* Closes a model; NULL does nothing. No other call on it may be in progress. */
TORSHC_API void torshc_close(torshc_model *model);

/* A context of a model: for a thread of its own. It has the model's weights, in the same memory, and its own workspace,
 * threads and stream, so that runs in several contexts go on at the same time; on one they take turns. All functions of
 * a model take it. `options` says how many threads it has, and on a GPU which stream; NULL means as many threads as the
 * model has, and a stream of its own. The weights file is not read again. Model and contexts are closed in any order.
 * On failure *context is NULL. */
TORSHC_API int torshc_context_new(const torshc_model *model, const torshc_options *options, torshc_model **context);

/* The same as torshc_close. */
TORSHC_API void torshc_context_free(torshc_model *context);

/* Gives an open model other weights: those of another weights.bin for this library, which `torshc weights` makes from a
 * trained model without compiling. It checks the shapes of all weights and packs them as the library reads them; here the
 * file's size and identity are checked, as torshc_open does. They are the weights of the model's contexts too. Any thread
 * may call it while runs go on: these end with the weights that they began with, and runs that begin later have the new
 * ones. A context keeps the old ones in memory until its next run. On failure the model keeps the weights that it had. TORSHC_E_UNSUPPORTED for
 * a library with its weights inside, for one that has none or is for a GPU, and for a model with sizes or steps that are
 * known only at run time. */
TORSHC_API int torshc_set_weights(torshc_model *model, const char *weights_path);

/* A weight of the model by its name, and what it is to hold. */
typedef struct torshc_named_tensor {
    const char *name;
    const torshc_tensor *tensor;
} torshc_named_tensor;

/* Gives an open model other values of some weights, by the model's names, with nothing but this library: it was compiled
 * with --named-weights and has tables of how the weights lie in its memory. Type and shape have to be the model's.
 * Either all are taken or none: on failure the model keeps the weights that it had. The data is copied, and runs go on
 * as with torshc_set_weights; the weights in memory are as many again while both are in use. Weights may be inside the
 * library.
 *
 * TORSHC_E_NAME for what is no weight of the model. TORSHC_E_UNSUPPORTED for a library that was compiled without
 * --named-weights, and for a weight that is not in it as it is: one that was folded into others (batch normalisation,
 * quantisation) or whose values chose what was compiled. The message names it; `torshc weights` can exchange it. The
 * manifest lists all of them, in "named" of "weights". TORSHC_E_ARGUMENT for a name that is given twice. */
TORSHC_API int torshc_set_tensors(torshc_model *model, const torshc_named_tensor *tensors, size_t count);

/* What kind of device it runs on: TORSHC_CPU, TORSHC_CUDA or TORSHC_METAL. */
TORSHC_API int32_t torshc_device_type(void);

/* Which card an open model is on, from 0; 0 for a library for processors. */
TORSHC_API int32_t torshc_device_number(const torshc_model *model);

/* Which of its versions a library runs here ("x86-64-v3"), or what its only one was compiled for; "" where it can run
 * none. A library of several takes the best one, or the one that the environment variable TORSHC_ISA names when the
 * library is first asked anything; torshc_open refuses with TORSHC_E_CPU one that is not there or cannot run. */
TORSHC_API const char *torshc_isa(void);

/* A number made of the names, types and dimensions in the manifest.json that belongs to the library; torshc.load()
 * compares it, so that an edited manifest is not taken for this library's. */
TORSHC_API uint64_t torshc_interface_id(void);

/* How many inputs and outputs there are. */
TORSHC_API int32_t torshc_input_count(void);
TORSHC_API int32_t torshc_output_count(void);

/* Type, rank and dimensions of an input or output, -1 for a symbolic dimension. `dims` points into the library. */
TORSHC_API int torshc_input_info(int32_t index, torshc_dtype *dtype, int32_t *ndim, const int64_t **dims);
TORSHC_API int torshc_output_info(int32_t index, torshc_dtype *dtype, int32_t *ndim, const int64_t **dims);

/* The model's own name of an input or output, and of a symbolic dimension of it ("batch", "2*batch"), in UTF-8; NULL for
 * a number, and where there is no such tensor or dimension. They point into the library. */
TORSHC_API const char *torshc_input_name(int32_t index);
TORSHC_API const char *torshc_output_name(int32_t index);
TORSHC_API const char *torshc_input_dim_name(int32_t index, int32_t dim);
TORSHC_API const char *torshc_output_dim_name(int32_t index, int32_t dim);

/* The input whose buffer output `output` may be in a run, -1 for none: a cache, of which the run then writes the new rows
 * alone. Both tensors are of one size and begin at one address; whatever overlaps otherwise is TORSHC_E_ALIAS. */
TORSHC_API int32_t torshc_shared_input(int32_t output);

/* Dimensions of output `index` for inputs of these shapes; `dims` has room for its rank. The inputs' data may be NULL
 * here and in torshc_workspace_size: only device, type and shape are looked at; but for inputs that hold sizes (those
 * of "symbols" in the manifest whose kind is not "dim"). */
TORSHC_API int torshc_output_shape(const torshc_model *model, const torshc_tensor *inputs, int32_t count, int32_t index,
                                   int64_t *dims);

/* Bytes of workspace that a run with inputs of these shapes needs with this model's threads. */
TORSHC_API int torshc_workspace_size(const torshc_model *model, const torshc_tensor *inputs, int32_t count,
                                     size_t *bytes);

/* Runs the model. `workspace` is 64-byte aligned memory of `bytes` bytes (on the device in a library for one), or NULL
 * to use the model's own, which grows when a larger shape comes; a model without symbolic dimensions allocates it when
 * opened and never again. (Where a library for a device copies tensors, their copies have memory in addition, from the
 * first such run on.)
 *
 * Outputs are ready when it returns, with one exception: where the caller gave a stream and all tensors are on the
 * device, the work is put into the stream and torshc_run does not wait for it (unless compiled with profiling, or with
 * steps that run on the processor). A failure of that work shows in a later call. Without a stream of the caller's,
 * work is ordered after all that was put into CUDA's legacy default stream before. A run while the caller's stream is
 * being captured becomes part of the capture; it needs tensors on the device and a workspace that is large enough, so
 * run the same shapes once before. */
TORSHC_API int torshc_run(torshc_model *model, const torshc_tensor *inputs, int32_t input_count,
                          const torshc_tensor *outputs, int32_t output_count, void *workspace, size_t bytes);

/* ---- training ----
 *
 * Libraries that were compiled with --train have these functions, and no others do. The model's weights belong to the open
 * model and change with each step, as does what the optimiser keeps: its states. In such a library torshc_run,
 * torshc_context_new and torshc_set_weights return TORSHC_E_UNSUPPORTED. */

/* A step: computes the loss of the inputs, and updates the states. As torshc_run otherwise; a step that returns anything
 * but TORSHC_OK has left the states as they were. The same steps give the same bits, with any number of threads.
 *
 * With --serve-while-training there is a second library in the bundle's folder serve/, which runs the model and whose
 * functions have the prefix NAME_serve, so that a program may be linked with both. Between two steps the program reads
 * weights here (torshc_state_read) and gives them to that one (torshc_set_tensors), whose contexts on other threads run
 * with the old ones meanwhile. */
TORSHC_API int torshc_train(torshc_model *model, const torshc_tensor *inputs, int32_t input_count,
                            const torshc_tensor *outputs, int32_t output_count, void *workspace, size_t bytes);

/* The states: the number of steps ("torshc.step"), the seed of what they draw ("torshc.seed"), the trained weights and the
 * statistics that batches move by the model's names, what the optimiser keeps of each weight ("torshc.momentum/NAME"), and of a
 * scaled loss "torshc.loss_scale", "torshc.good_steps" and "torshc.skipped_steps".
 * Name and type of one, and a copy of what it holds, compact row-major. */
TORSHC_API int32_t torshc_state_count(void);
TORSHC_API const char *torshc_state_name(int32_t index);
TORSHC_API int torshc_state_info(int32_t index, torshc_dtype *dtype, int32_t *ndim, const int64_t **dims);
TORSHC_API int torshc_state_read(torshc_model *model, int32_t index, void *data, size_t bytes);

/* Writes all states to a file, and takes them from one. The file is safetensors. It is written beside its place, synced
 * with its folder, and renamed: whatever happens, `path` is the old file or the new one. A process that is killed may leave
 * PATH.*.partial behind. Training goes on from a file with the bits that it would have had without a stop. On failure the
 * model keeps its states: TORSHC_E_STATE where the file cannot be read or written, is truncated or damaged,
 * TORSHC_E_BUILD where it is of another model, of other trained weights or of another optimiser. Files have all of each
 * state. Where ranks that train have parts of states (optimizer_states: sharded), saving and reading these are exchanges,
 * which all ranks have to call in the same order. */
TORSHC_API int torshc_state_save(torshc_model *model, const char *path);
TORSHC_API int torshc_state_load(torshc_model *model, const char *path);

/* Runs a model whose output sizes are known only at run time (those of "dynamic" in the manifest): strings, sequences,
 * steps that depend on data. `outputs` are filled; what they point to belongs to the model and is valid until its next
 * run or torshc_close. torshc_run does for such a model too, where the caller knows the sizes; torshc_output_shape then
 * gives -1 for a dimension that it cannot know. TORSHC_E_UNSUPPORTED for other models.
 *
 * In a library for a device `outputs` lie in the processor's memory; torshc_run also copies to tensors on the device. The
 * host reads values between kernels, so these runs are done when they return, whatever the stream, and cannot be captured. */
TORSHC_API int torshc_run_sized(torshc_model *model, const torshc_tensor *inputs, int32_t input_count,
                                torshc_tensor *outputs, int32_t output_count);

/* Lets the caller keep an output of the last torshc_run_sized, of which no other run of the model may have begun: what it
 * points to stays as it is until the caller gives `*memory` to free() of the C library, be it after torshc_close. NULL
 * for an output that has to be copied instead: one that shares its memory with another, with an input or with a constant,
 * is empty, has strings or tensors as elements, or was kept before; and for all of a library for a device.
 * TORSHC_E_UNSUPPORTED for models that torshc_run_sized is not for. */
TORSHC_API int torshc_keep(torshc_model *model, int32_t output, void **memory);

/* Memory on the model's device, for callers that have no library of their own for it: 64-byte aligned, freed before the
 * model is closed. torshc_copy copies between it and the processor's memory, in any direction, after all work of the
 * model, and waits. In a library for processors this is ordinary memory. */
TORSHC_API int torshc_alloc(torshc_model *model, size_t bytes, void **data);
TORSHC_API int torshc_free(torshc_model *model, void *data);
TORSHC_API int torshc_copy(torshc_model *model, void *to, const void *from, size_t bytes);

/* Waits until all work of this model's runs is done, and says whether it succeeded. */
TORSHC_API int torshc_synchronize(torshc_model *model);

/* How many steps a run has (launches and copies, in the order of the manifest's "steps"). */
TORSHC_API int32_t torshc_step_count(void);

/* How many forms of the model the library has: the usual one is 0, and after it come the variants for some sizes
 * (--specialize) that the manifest has a form for, in its order, and the loose form, for sizes of 1 that broadcast, last. */
TORSHC_API int32_t torshc_form_count(void);

/* How many runs of this model or context took form `form`, of those that succeeded. */
TORSHC_API int torshc_form_runs(torshc_model *model, int32_t form, uint64_t *runs);

/* How many runs of this model or context had the sizes of form `form`, but other values of inputs than it takes for granted
 * (--specialize "mask=1"), so that they took another; of those that succeeded. Values in the processor's memory are looked
 * at by it, those in a card's by the card, where the run is recorded and the manifest says so ("on_device"); else they
 * count as others. Where a card counts, this and the function above wait for its work. */
TORSHC_API int torshc_form_misses(torshc_model *model, int32_t form, uint64_t *runs);

/* How often step `step` ran since the model was opened, and for how many nanoseconds in all. TORSHC_E_UNSUPPORTED
 * unless the library was compiled with profiling. */
TORSHC_API int torshc_profile(torshc_model *model, int32_t step, uint64_t *calls, uint64_t *nanoseconds);

#ifdef __cplusplus
}
#endif

#endif
