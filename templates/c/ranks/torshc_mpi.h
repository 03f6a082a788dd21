/* MPI as the table of functions that a model's library takes (torshc_ranks of model.h). */
#ifndef TORSHC_MPI_H
#define TORSHC_MPI_H

#ifdef __cplusplus
extern "C" {
#endif

struct torshc_ranks;

/* The table for all processes of the job; NULL where MPI cannot be started. It starts MPI unless the program has, and then
 * ends it with the program; where a run has failed, it ends the other processes too. An exchange may take
 * TORSHC_RANKS_SECONDS of the environment, or 30 s. */
struct torshc_ranks *torshc_mpi_ranks(void);

#ifdef __cplusplus
}
#endif

#endif
