"""The LLVM target: kernels as LLVM's intermediate representation, compiled in the process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from ....expr import F32
from ....graph import Value
from ....kernels.base import Kernel
from ....kernels.generic import lower_generic
from ....kernels.machine import Machine
from ....kernels.nest import lower_nest
from ....kernels.scatter import require_searchable
from ....kernels.trees import lower_by_nests
from ....plan.group import Group
from ....plan.storage import Storage
from ...base import NoKernel, Rendered, named, register
from ..base import CpuTarget
from ..conv import ConvKernel, convolution
from ..conv_transpose import lower_conv_transpose
from ..gemm import GemmKernel, is_bytes, is_halves, lower_gemm
from ..recurrent import lower_recurrent
from .kernels import Writer, write_map, write_row, write_scan
from .printer import Printer
from .tools import LlvmToolchain

_WRITERS: dict[str, Callable[[Any, int], Writer]] = {"nest": write_map, "row": write_row, "scan": write_scan}
_TEMPLATES = ("gemm", "pack", "conv", "depthwise", "recurrent", "topk")
_KINDS = (*_WRITERS, *_TEMPLATES)


@register
class LlvmTarget(CpuTarget):
    """LLVM's own text for kernels, at the width of the processor's vectors; no C compiler in the process."""

    name = "llvm"
    title = "LLVM for this processor, in the process"
    suffix = ".ll"
    toolchain = LlvmToolchain()
    in_process = True
    options = CpuTarget.options | {"train"}

    def lower(self, graph: Any, group: Group, storage: Mapping[Value, Storage]) -> list[Kernel]:
        kernels = super().lower(graph, group, storage)
        for kernel in kernels:
            if reason := _find_refusal(kernel):
                raise NoKernel(f"the LLVM target has no {reason}")
        return kernels

    def render(self, kernel: Kernel) -> Rendered:
        lanes = self.machine.lanes
        write = _WRITERS.get(kernel.kind)
        writer = write(kernel, lanes) if write is not None else Printer(kernel, lanes).render()
        return named(writer.text_of(), writer.printer, f"llvm {lanes}")


@LlvmTarget.lowers("gemm")
def lower_product(group: Group, storage: Mapping[Value, Storage], machine: Machine) -> list[Kernel]:
    """The kernels of a MatMul: of floats in panels, of other types as a plain loop nest."""
    node = group.anchor
    assert node is not None
    if {v.dtype for v in (*node.operands[:2], node.output)} != {F32}:
        return lower_generic(group, storage)
    return [_whole(k) for k in lower_gemm(group, storage, machine)]


@LlvmTarget.lowers("conv")
def lower_convolution(group: Group, storage: Mapping[Value, Storage], machine: Machine) -> list[Kernel]:
    """The kernels of a Conv, as of the C target without its special cases."""
    node = group.anchor
    assert node is not None
    found = convolution(group, storage, replace(machine, slack=None), first=False)
    volumes = any(isinstance(k, ConvKernel) and k.size.planes is not None for k in found)
    if is_bytes(node) or is_halves(node) or volumes or any(k.kind not in _KINDS for k in found):
        return lower_generic(group, storage)
    return [_whole(k) for k in found]


@LlvmTarget.lowers("conv_transpose")
def lower_transposed(group: Group, storage: Mapping[Value, Storage], machine: Machine) -> list[Kernel]:
    """The kernels of a ConvTranspose; a plain loop nest where weights in the margin must not be multiplied."""
    found = lower_conv_transpose(group, storage, machine)
    if any(isinstance(k, ConvKernel) and k.cuts for k in found):
        return lower_generic(group, storage)
    return [_whole(k) for k in found]


@LlvmTarget.lowers("recurrent")
def lower_network(group: Group, storage: Mapping[Value, Storage], machine: Machine) -> list[Kernel]:
    """The kernels of an LSTM, a GRU or an RNN."""
    return [_whole(k) for k in lower_recurrent(group, storage, machine)]


@LlvmTarget.lowers("scatter")
def lower_scatter(group: Group, storage: Mapping[Value, Storage], machine: Machine) -> list[Kernel]:
    """The kernel of a scatter, in which each element looks for its updates.

    Raises:
        NoKernel: where that would take too long.
    """
    require_searchable(group)
    return lower_generic(group, storage)


@LlvmTarget.lowers("trees")
def lower_trees(group: Group, storage: Mapping[Value, Storage], machine: Machine) -> list[Kernel]:
    """The kernels of an ensemble of trees, as plain loops."""
    return lower_by_nests(group, lambda g: lower_nest(g, storage))


def _whole(k: Kernel) -> Kernel:
    """A kernel whose sums are made in one go."""
    if isinstance(k, GemmKernel):
        return replace(k, k_blocks=1)
    return replace(k, tap_block=k.taps, channel_block=k.size.ic) if isinstance(k, ConvKernel) else k


def _find_refusal(kernel: Kernel) -> str:
    """What of a kernel cannot be written, or ""."""
    if kernel.kind not in _KINDS:
        return f"kernel of the kind {kernel.kind}"
    return ""
