/* MPI as the table of functions that a model's library takes: libtorshc_mpi.so, compiled for the MPI that is here. */
#include "torshc_mpi.h"

#include <mpi.h>
#include <stdlib.h>
#include <string.h>

#include "model.h"

static MPI_Comm comm = MPI_COMM_NULL;
static char error_text[MPI_MAX_ERROR_STRING];
static torshc_ranks table;

static int check(int code) {
    int length = 0;
    if (code != MPI_SUCCESS)
        MPI_Error_string(code, error_text, &length);
    return code != MPI_SUCCESS;
}

static MPI_Request *new_request(void **request) {
    MPI_Request *made = malloc(sizeof *made);
    strcpy(error_text, made ? "" : "no memory for a request");
    return *request = made;
}

static MPI_Datatype type_of(torshc_dtype t) {
    return t.code == TORSHC_FLOAT ? (t.bits == 64 ? MPI_DOUBLE : MPI_FLOAT) : t.bits == 64 ? MPI_INT64_T : MPI_INT32_T;
}

static int send_to(void *c, const void *data, size_t bytes, int32_t to, int32_t tag, void **request) {
    MPI_Request *r = new_request(request);
    return (void)c, !r || check(MPI_Isend(data, (int)bytes, MPI_BYTE, to, tag, comm, r));
}

static int receive(void *c, void *data, size_t bytes, int32_t from, int32_t tag, void **request) {
    MPI_Request *r = new_request(request);
    return (void)c, !r || check(MPI_Irecv(data, (int)bytes, MPI_BYTE, from, tag, comm, r));
}

static int all_reduce(void *c, const void *from, void *to, size_t count, torshc_dtype type, void **request) {
    MPI_Request *r = new_request(request);
    return (void)c, !r || check(MPI_Iallreduce(from, to, (int)count, type_of(type), MPI_SUM, comm, r));
}

static int all_gather(void *c, const void *from, void *to, size_t bytes, void **request) {
    MPI_Request *r = new_request(request);
    return (void)c, !r || check(MPI_Iallgather(from, (int)bytes, MPI_BYTE, to, (int)bytes, MPI_BYTE, comm, r));
}

static int reduce_scatter(void *c, const void *from, void *to, size_t count, torshc_dtype type, void **request) {
    MPI_Request *r = new_request(request);
    return (void)c, !r || check(MPI_Ireduce_scatter_block(from, to, (int)count, type_of(type), MPI_SUM, comm, r));
}

static int test(void *c, void **request, int *done) {
    (void)c;
    if (check(MPI_Test(*request, done, MPI_STATUS_IGNORE)))
        return 1;
    if (*done) {
        free(*request);
        *request = NULL;
    }
    return 0;
}

static const char *message(void *c) { return (void)c, error_text; }

static void end_all(void *c, int status) { (void)c, MPI_Abort(MPI_COMM_WORLD, status); }

static void finish(void) {
    if (table.broken)
        MPI_Abort(MPI_COMM_WORLD, 1);
    MPI_Finalize();
}

torshc_ranks *torshc_mpi_ranks(void) {
    const char *seconds = getenv("TORSHC_RANKS_SECONDS");
    int started = 0, level, rank, count;
    if (comm != MPI_COMM_NULL)
        return &table;
    if (MPI_Initialized(&started) || (!started && MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level)))
        return NULL;
    if (!started)
        atexit(finish);
    if (MPI_Comm_dup(MPI_COMM_WORLD, &comm) || MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN) ||
        MPI_Comm_rank(comm, &rank) || MPI_Comm_size(comm, &count))
        return NULL;
    table = (torshc_ranks){.size = sizeof table,
                           .rank = rank,
                           .count = count,
                           .seconds = seconds && atof(seconds) > 0 ? atof(seconds) : 30.0,
                           .isend = send_to,
                           .irecv = receive,
                           .iallreduce = all_reduce,
                           .iallgather = all_gather,
                           .ireduce_scatter = reduce_scatter,
                           .test = test,
                           .message = message,
                           .abort = end_all};
    return &table;
}
