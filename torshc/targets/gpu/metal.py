"""The Metal target: what differs from other devices of blocks of threads."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod

from ...expr import F64, walk
from ...graph import Graph, Value
from ...kernels.base import Kernel
from ...kernels.machine import Device
from ...plan.group import Group
from ...plan.storage import Storage
from ..base import NoKernel, Rendered, register
from .base import HOST, GridPrinter, GridTarget, Words
from .xcrun import MetalToolchain

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
    toolchain = MetalToolchain()
    search = ("metal", "gpu", "c")
    preludes = ("metal", "gpu")
    host = replace(HOST, search=search, sources=(*HOST.sources, "t_device.mm"), launchers=False)
    words = Words(
        shared="threadgroup",
        barrier="threadgroup_barrier(mem_flags::mem_threadgroup);",
        pointer="device ",
    )

    @classmethod
    def capabilities(cls, archs: Sequence[str]) -> Device:
        return Device(units=16, shared=SHARED)  # cores from 8 (M1) to 80 (M2 Ultra)

    def lower(self, graph: Graph, group: Group, storage: Mapping[Value, Storage]) -> list[Kernel]:
        kernels = super().lower(graph, group, storage)
        for kernel in kernels:
            _check(kernel)
            if (shared := shared_bytes(self.render(kernel).source)) > SHARED:
                raise NoKernel(f"a kernel of {shared} bytes of threadgroup memory; Metal has {SHARED}")
        return kernels

    def _render(self, kernel: Kernel, printer: GridPrinter) -> Rendered:
        made = super()._render(kernel, printer)
        return replace(made, source=in_metal(made.source))


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


_BYTES = {"uint8_t": 1, "uint16_t": 2, "half": 2, "float": 4, "int": 4, "float4": 16}
_PACKET = re.compile(r"\btypedef t_packet<(\w+), (\d+)> (\w+);")
_SHARED = re.compile(r"^\s*threadgroup (\w+) ([^*();]*);", re.MULTILINE)
_VARIABLE = re.compile(r"\w+((?:\[\d+\])*)")


def shared_bytes(text: str) -> int:
    """Bytes of threadgroup memory that a kernel's text declares.

    >>> shared_bytes("    threadgroup float a[4][8], b;\\n    threadgroup float *p = a[0];")
    132
    """
    sizes = dict(_BYTES)
    for element, count, name in _PACKET.findall(text):
        sizes[name] = sizes.get(element, 8) * int(count)
    total = 0
    for kind, variables in _SHARED.findall(text):
        for dims in _VARIABLE.findall(variables):
            total += sizes.get(kind, 8) * prod(int(n) for n in re.findall(r"\d+", dims))
    return total
