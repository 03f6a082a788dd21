"""The Metal target: what differs from other devices of blocks of threads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ...expr import F64, walk
from ...expr.formulas import Language
from ...graph import Graph, Value
from ...kernels.base import Kernel
from ...kernels.machine import Device
from ...plan.group import Group
from ...plan.storage import Storage
from ..base import NoKernel, register
from .base import HOST, GridTarget, Words
from .xcrun import MetalToolchain

SHARED = 32 << 10  # bytes of threadgroup memory
# Functions of metal::precise that are within 4 ULP, as t_metal.h says, and tan, which is within 6.
PRECISE = ("exp", "log", "sinh", "cosh", "asinh", "acosh", "sin", "cos", "tan", "asin", "acos")


@register
class MetalTarget(GridTarget):
    """Metal Shading Language for Apple's GPUs."""

    name = "metal"
    title = "Metal for Apple GPUs"
    suffix = ".metal"
    device = 8
    toolchain = MetalToolchain()
    search = ("metal", "gpu", "c")
    preludes = ("metal", "gpu")
    host = replace(HOST, search=search, sources=(*HOST.sources, "t_device.mm"), launchers=False)
    words = Words(
        shared="threadgroup",
        barrier="threadgroup_barrier(mem_flags::mem_threadgroup);",
        pointer="device ",
        library=frozenset({f"{name}_f32" for name in PRECISE}),
        language=Language(wide=False, fused=True),
    )
    max_buffers = 30  # Metal has 31; one is for the sizes

    @classmethod
    def capabilities(cls, archs: Sequence[str]) -> Device:
        return Device(units=16, shared=SHARED)  # cores from 8 (M1) to 80 (M2 Ultra)

    def lower(self, graph: Graph, group: Group, storage: Mapping[Value, Storage]) -> list[Kernel]:
        kernels = super().lower(graph, group, storage)
        for kernel in kernels:
            _check(kernel)
            if kernel.shared > SHARED:
                raise NoKernel(f"a kernel of {kernel.shared} bytes of threadgroup memory; Metal allows {SHARED}")
        return kernels


def _check(kernel: Kernel) -> None:
    """Raises NoKernel for what no Metal device has."""
    dtypes = {b.dtype for b in kernel.buffers} | {e.dtype for e in walk(*kernel.expressions())}
    if F64 in dtypes:
        raise NoKernel("Metal has no f64")
    if len(kernel.buffers) > MetalTarget.max_buffers:
        raise NoKernel(f"a kernel of {len(kernel.buffers)} buffers; Metal allows {MetalTarget.max_buffers}")
