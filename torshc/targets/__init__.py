"""Targets: how kernels are lowered and spelled for each kind of machine."""

from __future__ import annotations

from .base import TARGETS, NoKernel, Rendered, Target, find_target, register
from .c import CTarget
from .cuda import CudaTarget
from .metal import MetalTarget

__all__ = [
    "TARGETS", "CTarget", "CudaTarget", "MetalTarget", "NoKernel", "Rendered", "Target", "find_target", "register",
]  # fmt: skip
