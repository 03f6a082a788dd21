"""CUDA, and the kernels that only its cards have: tensor cores, clusters, packed halves."""
