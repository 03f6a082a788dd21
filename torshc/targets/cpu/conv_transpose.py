"""Transposed convolutions: for each phase of the stride an ordinary convolution over the taps that reach it."""

from __future__ import annotations

from collections.abc import Mapping

from ...base.budget import budget
from ...expr import F32, as_int
from ...graph import Value
from ...kernels.base import Kernel
from ...kernels.generic import lower_generic
from ...kernels.heavy import is_empty, is_finite
from ...kernels.machine import Machine
from ...plan.group import Group
from ...plan.storage import Storage
from .base import CpuTarget
from .conv import Phase, lower_direct, padding
from .conv_shape import Geometry, channels_last, geometry, transposed_taps
from .gemm import is_bytes


@CpuTarget.lowers("conv_transpose")
def lower_conv_transpose(group: Group, storage: Mapping[Value, Storage], machine: Machine) -> list[Kernel]:
    """The kernels of a ConvTranspose and its epilogue."""
    node = group.anchor
    assert node is not None
    if any(is_empty(v) for v in group.outputs):
        return []
    x, w = node.operands[:2]
    shape = w.type.static_shape
    size = geometry(node, shape[1], shape[0] // node.op.attributes()["group"]) if shape else None
    plain = size is not None and all(as_int(e) is not None for e in padding(node))
    multiplies = x.dtype is F32 or is_bytes(node)
    if size is None or not plain or not multiplies or w.const is None or w.const.size == 0 or is_empty(x):
        return lower_generic(group, storage)
    # The kernel multiplies weights with zeros where a tap reaches no element.
    if size.stride[0] * size.stride[1] > budget().unrolled or not is_finite(w):
        return lower_generic(group, storage)
    element, before = channels_last(x, size, group, storage)
    return [*before, *lower_direct(group, node, size, element, phases(size), storage, machine, transposed=True)]


def phases(size: Geometry) -> tuple[Phase, ...]:
    """Output pixels by (row % stride, column % stride).

    Output pixel o gets x[i] * w[k] wherever o + pad = i * stride + k * dilation; so a phase sums the taps k for which
    o + pad - k * dilation is a multiple of the stride, and reads from that multiple on.
    """
    out: list[Phase] = []
    pad = [as_int(e) or 0 for e in size.pad]
    for row in range(size.stride[0]):
        for column in range(size.stride[1]):
            positions = transposed_taps(size, row, column)
            reads = tuple(
                (
                    (row + pad[0] - r * size.dilation[0]) // size.stride[0],
                    (column + pad[1] - c * size.dilation[1]) // size.stride[1],
                )
                for r, c in positions
            )
            out.append(Phase(row, column, reads, tuple(positions)))
    return tuple(out)
