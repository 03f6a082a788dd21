"""The Metal target: what differs from other devices of blocks of threads."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping

from ..expr import F64, as_int, walk
from ..graph import Graph, Value
from ..kernels.base import Kernel
from ..plan.group import Group
from ..plan.storage import Storage
from .base import NoKernel, Rendered, register
from .gpu import GridPrinter, GridTarget, Words

BUFFERS = 30  # Metal has 31; one is for the sizes
SHARED = 32 << 10  # bytes of threadgroup memory

# What templates and printers call otherwise: `thread` is an address space unless nothing that it could qualify comes
# behind it, and there is no `long long`.
_SPELLED = (
    (re.compile(r"\bthread\b(?!\s+[A-Za-z_])"), "tid"),
    (re.compile(r"\b(\d+)ull\b"), r"\1ul"),
    (re.compile(r"\bINT64_MIN\b"), "T_I64_MIN"),
)


@register
class MetalTarget(GridTarget):
    """Metal Shading Language for Apple's GPUs."""

    name = "metal"
    title = "Metal for Apple GPUs"
    suffix = ".metal"
    device = 8
    toolchain = "xcrun"
    search = ("metal", "gpu", "c")
    headers = ("t_metal.h", "t_scalar.h", "t_scalar_math.h", "t_scalar_own.h", "t_warp.h", "t_packet.h")
    device_sources = ("t_device.mm",)
    launchers = False
    words = Words(
        shared="threadgroup",
        barrier="threadgroup_barrier(mem_flags::mem_threadgroup);",
        pointer="device ",
        local="thread ",
    )

    def lower(self, graph: Graph, group: Group, storage: Mapping[Value, Storage]) -> list[Kernel]:
        kernels = super().lower(graph, group, storage)
        for kernel in kernels:
            _check(kernel)
        return kernels

    def _render(self, kernel: Kernel, printer: GridPrinter) -> Rendered:
        made = super()._render(kernel, printer)
        return dataclasses.replace(made, source=in_metal(made.source))


def in_metal(text: str) -> str:
    """A kernel's text with what Metal spells otherwise.

    >>> in_metal("v[thread] = a + thread; thread float *p = q;")
    'v[tid] = a + tid; thread float *p = q;'
    """
    for pattern, word in _SPELLED:
        text = pattern.sub(word, text)
    return text


def _check(kernel: Kernel) -> None:
    """Raises NoKernel for what no Metal device has."""
    dtypes = {b.dtype for b in kernel.buffers} | {e.dtype for e in walk(*kernel.expressions())}
    if F64 in dtypes:
        raise NoKernel("Metal has no f64")
    if len(kernel.buffers) > BUFFERS:
        raise NoKernel(f"a kernel of {len(kernel.buffers)} buffers; Metal has {BUFFERS}")
    shared = as_int(getattr(kernel, "shared", 0))
    if shared is None or shared > SHARED:
        raise NoKernel(f"a kernel of {shared} bytes of threadgroup memory; Metal has {SHARED}")


__all__ = ["MetalTarget", "in_metal"]
