"""Devices of blocks of threads: CUDA and Metal."""
