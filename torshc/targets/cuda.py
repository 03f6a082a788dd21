"""The CUDA target: what differs from other devices of blocks of threads."""

from __future__ import annotations

from .base import register
from .gpu import GridTarget, Words


@register
class CudaTarget(GridTarget):
    """CUDA C++ for NVIDIA's GPUs."""

    name = "cuda"
    title = "CUDA for NVIDIA GPUs"
    suffix = ".cu"
    device = 2
    toolchain = "nvcc"
    search = ("cuda", "gpu", "c")
    headers = ("t_cuda.h", "t_scalar.h", "t_scalar_math.h", "t_scalar_own.h", "t_warp.h", "t_packet.h")
    device_sources = ("t_device.cu",)
    words = Words(shared="__shared__", barrier="__syncthreads();")


__all__ = ["CudaTarget"]
