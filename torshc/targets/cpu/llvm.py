"""The LLVM target: kernels as LLVM's intermediate representation, compiled in the process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...expr import NARROW, walk
from ...graph import Value
from ...kernels.base import Kernel
from ...kernels.generic import lower_generic
from ...kernels.machine import Machine
from ...plan.group import Group
from ...plan.storage import Storage
from ..base import NoKernel, Rendered, named, register
from .base import CpuTarget
from .llvm_kernels import Writer, write_map, write_row
from .llvm_math import supports
from .llvm_tools import LlvmToolchain

_WRITERS: dict[str, Callable[[Any, int], Writer]] = {"nest": write_map, "row": write_row}


@register
class LlvmTarget(CpuTarget):
    """LLVM's own text for kernels, at the width of the processor's vectors; no C compiler in the process."""

    name = "llvm"
    title = "LLVM for this processor, in the process"
    suffix = ".ll"
    toolchain = LlvmToolchain()
    in_process = True

    def lower(self, graph: Any, group: Group, storage: Mapping[Value, Storage]) -> list[Kernel]:
        kernels = super().lower(graph, group, storage)
        for kernel in kernels:
            if reason := _refused(kernel):
                raise NoKernel(f"the LLVM target has no {reason}")
        return kernels

    def render(self, kernel: Kernel) -> Rendered:
        lanes = self.machine.lanes
        writer = _WRITERS[kernel.kind](kernel, lanes)
        return named(writer.text_of(), writer.printer, f"llvm {lanes}")


@LlvmTarget.lowers("gemm", "conv", "conv_transpose")
def lower_heavy(group: Group, storage: Mapping[Value, Storage], machine: Machine) -> list[Kernel]:
    """Products and convolutions."""
    return lower_generic(group, storage)


def _refused(kernel: Kernel) -> str:
    """What of a kernel cannot be written, or ""."""
    if kernel.kind not in _WRITERS:
        return f"kernel of the kind {kernel.kind}"
    for b in kernel.buffers:
        if b.dtype in NARROW:
            return f"kernel of {b.dtype.name}"
    for e in walk(*kernel.expressions()):
        if e.dtype in NARROW or (e.args and not supports(e.op, e.args[0].dtype)):
            return f"function {e.op} of {e.dtype.name}"
    return ""
