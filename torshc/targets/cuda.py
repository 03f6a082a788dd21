"""The CUDA target: what differs from other devices of blocks of threads."""

from __future__ import annotations

from functools import partial

from ..kernels.contraction import lower_contraction
from ..kernels.contraction_tiles import Device
from .base import register
from .gpu import GridTarget, Words

PRODUCTS = partial(lower_contraction, device=Device(units=132, shared=48 * 1024, tensor=True))


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
    lowerings = GridTarget.lowerings | dict.fromkeys(("gemm", "conv", "conv_transpose"), PRODUCTS)
    words = Words(shared="__shared__", barrier="__syncthreads();")


__all__ = ["CudaTarget"]
