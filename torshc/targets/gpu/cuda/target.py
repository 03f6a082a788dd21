"""The CUDA target: what differs from other devices of blocks of threads."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ....base.features import Feature, Features
from ....base.options import PRECISIONS
from ....kernels.machine import Device
from ...base import environment, register
from ...tidy import tidy
from ..base import HOST, GridTarget, Words
from .nvcc import CudaToolchain

# Functions of CUDA's library, of f32 and of f64; t_cuda.h says how near they are.
_NAMES = (
    "exp", "expm1", "log", "log1p", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "sin", "cos", "tan", "asin",
    "acos", "atan", "erf", "pow",
)  # fmt: skip
_NEAR = ("near_sigmoid_f32", "near_normal_f16_f32", "near_normal_bf16_f32")  # of a half's accuracy
LIBRARY = frozenset({*_NEAR, *(f"{name}_{dtype}" for name in _NAMES for dtype in ("f32", "f64"))})
# Blocks of a recurrent network that run at the same time, one to a multiprocessor. Nearly all cards of an architecture
# have that many, and all of data centres, but not every part of one (MIG): there the launch fails, and says so.
TOGETHER, TOGETHER_LARGE = 16, 32
LARGE = frozenset({"sm_80", "sm_90", "sm_90a", "sm_100", "sm_100a", "sm_100f", "sm_103", "sm_103a", "sm_103f"})
# Tensor cores that multiply tf32 at 8 times the rate of f32's plain units. Those of other cards, on which PTX may run
# too, do so at that rate or twice it.
FAST_TF32 = frozenset({"sm_80", "sm_90", "sm_90a"})
# Their smallest have fewer: 14 (GeForce GTX 1650), and 8 (Jetson Orin Nano).
SMALL = frozenset({"75", "87"})


def blocks_together(archs: Sequence[str]) -> int:
    """Blocks of 512 threads that surely run at the same time on the cards of some architectures; 0 when too few do.

    >>> blocks_together(["sm_80", "compute_80"]), blocks_together(["sm_90a"]), blocks_together(["sm_90a", "sm_87"])
    (16, 32, 0)
    """
    if any(arch.partition("_")[2].rstrip("af") in SMALL for arch in archs):
        return 0
    return TOGETHER_LARGE if archs and LARGE.issuperset(archs) else TOGETHER


def has_tensor_cores(archs: Sequence[str]) -> bool:
    """Whether all have asynchronous copies and products of 16-bit floats for a warp: sm_80 and newer.

    >>> has_tensor_cores(["sm_80", "compute_90"]), has_tensor_cores(["sm_75", "sm_90a"]), has_tensor_cores([])
    (True, False, True)
    """
    return not any(re.fullmatch(r"(sm|compute)_[1-7]\d[af]?", arch) for arch in archs)


def has_group_products(archs: Sequence[str]) -> bool:
    """Whether all are Hopper's, whose groups of four warps multiply from shared memory; no other family has that.

    >>> has_group_products(["sm_90a"]), has_group_products(["sm_80", "sm_90a"]), has_group_products([])
    (True, False, False)
    """
    return bool(archs) and set(archs) <= {"sm_90a", "compute_90a"}


def has_clusters(archs: Sequence[str]) -> bool:
    """Whether blocks of all of CUDA's architectures may form clusters, which read each other's shared memory.

    >>> has_clusters(["sm_90", "compute_100"]), has_clusters(["sm_80", "sm_90a"]), has_clusters([])
    (True, False, False)
    """
    return bool(archs) and all(re.fullmatch(r"(sm|compute)_(9|1\d)\d[af]?", arch) for arch in archs)


@register
class CudaTarget(GridTarget):
    """CUDA C++ for NVIDIA's GPUs."""

    name = "cuda"
    title = "CUDA for NVIDIA GPUs"
    suffix = ".cu"
    device = 2
    toolchain = CudaToolchain()
    options = frozenset({"arch", "mcpu", "scheduler", "train", "tuning_records"})
    tunable = True
    horizontal_fusion = True
    shared_rows = True
    states = 2  # an update of more waits for memory, which the few warps of a product's kernel cannot keep busy
    precisions = frozenset(PRECISIONS)
    step_precisions = frozenset({"f32", "tf32", "bf16", "f16"})
    features = GridTarget.features | {
        Feature.CACHED_ATTENTION, Feature.CHANNEL_PACKETS, Feature.CONVOLUTION_WEIGHTS, Feature.FREE_ARITHMETIC,
        Feature.INT4_WEIGHTS, Feature.LONG_SUMS, Feature.RANKS, Feature.RANKS_ON_CARDS, Feature.TF32_ACTIVATIONS,
    }  # fmt: skip
    search = ("cuda", "gpu", "c")
    preludes = ("cuda", "gpu")
    host = replace(
        HOST,
        search=search,
        sources=(*HOST.sources, "t_device.cu", "t_copies.cu", "t_graphs.cu"),
        headers=(*HOST.headers, "t_card.h"),
        ranks=((*HOST.ranks[0], "t_nccl.c"), (*HOST.ranks[1], "t_nccl.h")),
        choice=(("t_choice.c", "t_choose.cu"), ("t_choice.h",)),
    )
    words = Words(
        shared="__shared__", barrier="__syncthreads();", near=True, packed=frozenset({"f16", "bf16"}), library=LIBRARY
    )

    @classmethod
    def openings(cls) -> tuple[str, ...]:
        made: Any = environment(cls.search).get_template("opening.j2").module
        return tuple(tidy(made.opening(index, group)) for index in ("int", "int64_t") for group in (False, True))

    @classmethod
    def features_on(cls, archs: Sequence[str], extras: Sequence[str] = ()) -> Features:
        of_groups = {Feature.CHANNEL_PACKETS, Feature.TF32_ACTIVATIONS}
        groups = cls.features if has_group_products(archs) else cls.features - of_groups
        return groups if has_clusters(archs) else groups - {Feature.CACHED_ATTENTION}

    @classmethod
    def capabilities(cls, archs: Sequence[str]) -> Device:
        return Device(
            units=132,
            shared=48 * 1024,
            tensor=has_tensor_cores(archs),
            tensor_f32=bool(archs) and FAST_TF32.issuperset(archs),
            groups=has_group_products(archs),
            clusters=has_clusters(archs),
            counters=True,
            together=blocks_together(archs),
        )
