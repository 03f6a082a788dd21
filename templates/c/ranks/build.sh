#!/bin/sh
# Compiles MPI as the libraries of this bundle take it, for the MPI that is here: sh build.sh; MPICC names its compiler.
set -eu
cd "$(dirname "$0")"
exec "${MPICC:-mpicc}" -std=gnu11 -O2 -Wall -Wextra -fPIC -shared torshc_mpi.c -o ../libtorshc_mpi.so
