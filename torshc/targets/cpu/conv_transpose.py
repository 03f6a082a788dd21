"""Transposed convolutions: for each phase of the stride an ordinary convolution over the taps that reach it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from ...base.budget import budget
from ...expr import F32, Expr, as_int, axis, call, ceil_div, const, load, product, select
from ...graph import Node, Value
from ...kernels.base import Kernel, Store, Temporary, Total
from ...kernels.generic import lower_generic
from ...kernels.heavy import (
    add_buffer,
    copy_kernel,
    epilogue_flops,
    finish,
    is_empty,
    is_finite,
    read_through,
    temporary,
    traffic,
)
from ...kernels.machine import Machine
from ...kernels.nest import CHUNK, Buffers, MapKernel, in_order
from ...kernels.totals import add_totals
from ...ops.core.base import Index
from ...ops.nn.conv import ConvTranspose
from ...plan.group import Group
from ...plan.storage import Storage
from .base import CpuTarget
from .conv import Phase, lower_direct, padding
from .conv_shape import Geometry, channels_last, geometry, transposed_taps
from .gemm import is_bytes

MOST_TAPS = 25  # of a kernel that is written out


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
    multiplies = x.dtype is F32 or (is_bytes(node) and w.const is not None)
    if size is not None and plain and _spreads_channels(node, size):
        return _spread_channels(group, node, size, storage, machine)
    if size is None or not plain or not multiplies or is_empty(w) or is_empty(x):
        return lower_generic(group, storage)
    if math.prod(size.stride) > budget().unrolled:
        return lower_generic(group, storage)
    # A panel would be wide for a single channel, and packing looks for a tap's place in a list of all.
    if w.const is None and (size.depthwise or size.taps > budget().unrolled):
        return lower_generic(group, storage)
    element, before = channels_last(x, size, group, storage)
    margins = _multiplies_margins(node) or is_finite(w)
    direct = lower_direct(group, node, size, element, phases(size), storage, machine, transposed=True, margins=margins)
    return [*before, *direct]


def _multiplies_margins(node: Node) -> bool:
    assert isinstance(node.op, ConvTranspose)
    return node.op.margins


def _spreads_channels(node: Node, size: Geometry) -> bool:
    """Whether every channel has a kernel of its own, brought by the run, whose taps are few enough to be written out.

    So are gradients of the data of depthwise convolutions of longer steps.
    """
    x, w = node.operands[:2]
    return (
        size.depthwise
        and w.const is None
        and len(node.operands) == 2
        and (x.dtype, w.dtype) == (F32, F32)
        and size.stride[0] * size.stride[1] > 1
        and size.taps <= MOST_TAPS
    )


def _spread_channels(
    group: Group, node: Node, size: Geometry, storage: Mapping[Value, Storage], machine: Machine
) -> list[Kernel]:
    """Maps with neighbouring channels in a vector, behind a copy of the weights.

    Phases of as many pixels share one, which stores a pixel of each: what several read is read once, and pixels are
    stored as they lie beside each other.
    """
    w = node.operands[1]
    packed = Temporary("weights", group.id, const(size.groups * size.taps * F32.size))
    taps = [axis(f"t{k}", n) for k, n in enumerate(size.kernel)]
    channel = axis("c", size.groups)

    def tap(buffers: Buffers) -> Expr:
        places = [t if n > 1 else const(0) for t, n in zip(taps, size.kernel, strict=True)]
        return buffers.resolve(read_through(group, w, (channel, const(0), *places[-(w.type.rank - 2) :])))

    sharing: dict[tuple[Expr, Expr], list[Phase]] = {}
    for phase in phases(size):
        rows, columns = (
            (out + (step - 1 - first)) // step
            for out, step, first in zip((size.oh, size.ow), size.stride, (phase.row, phase.column), strict=True)
        )
        sharing.setdefault((rows, columns), []).append(phase)
    kernels: list[Kernel] = [copy_kernel(tap, [*taps, channel], storage, packed)]
    for (rows, columns), together in sharing.items():
        buffers = Buffers(storage)
        weights = add_buffer(buffers, packed)
        axes = [axis("n", size.images), axis("h", rows), axis("v", columns), channel]
        n, h, v, c = (const(0) if as_int(a.args[0]) == 1 else a for a in axes)
        stores, found, joins = list[Store](), list[tuple[Expr, Index]](), list[Kernel]()
        for phase in together:
            total = _spread_phase(group, node, size, phase, (n, h, v, c), weights, buffers)
            index = size.index(n, c, h * size.stride[0] + phase.row, v * size.stride[1] + phase.column)
            stores += finish(group, node, total, index, buffers)
            found.append((total, index))
        if len(sharing) == 1:
            totals, joins = add_totals(group, node, found, rows, machine.lanes, buffers, storage)
            stores += [_along_row(t, len(totals), n * rows + h, v, c, size.groups, machine.lanes) for t in totals]
        points = product([a.args[0] for a in axes])
        made = MapKernel(
            buffers=tuple(buffers.list),
            tasks=const(0),
            flops=points * (2 * sum(len(phase.taps) for phase in together)) + epilogue_flops(stores, points),
            nbytes=traffic(buffers.list, group.outputs) * len(together) // (size.stride[0] * size.stride[1]),
            axes=tuple(axes),
            stores=tuple(stores),
            rows=1,
            chunk=CHUNK,
        )
        made = in_order(made, axes)
        if joins:  # whole rows are a task
            width = as_int(columns) or 1
            made = replace(made, rows=width * max(made.rows // width, 1))
            chunks = -(-size.groups // made.chunk)
            made = replace(made, tasks=ceil_div(size.images * rows * width, made.rows) * chunks)
        kernels += [made, *joins]
    return kernels


def _along_row(total: Total, count: int, row: Expr, v: Expr, c: Expr, channels: int, lanes: int) -> Store:
    """A total of each row as a sum in memory, which its first pixel begins."""
    place = (row * count + total.offset) * (-(-channels // lanes) * lanes) + c
    before = select(call("eq", v, 0), const(0.0, F32), load(total.buffer, (place,), F32))
    return Store(total.buffer, place, before + total.value)


def _spread_phase(
    group: Group,
    node: Node,
    size: Geometry,
    phase: Phase,
    point: tuple[Expr, Expr, Expr, Expr],
    weights: int,
    buffers: Buffers,
) -> Expr:
    """The sum of a phase's taps at an image, row, column and channel."""
    n, h, v, c = point
    total = zero = const(0.0, F32)
    for (down, right), (i, j) in zip(phase.taps, phase.kernel, strict=True):
        at, inside = (h + down, v + right), const(True)
        for place, extent in zip(at, (size.ih, size.iw), strict=True):
            inside = inside & call("le", 0, place) & call("lt", place, extent)
        element = buffers.resolve(read_through(group, node.operands[0], size.index(n, c, *at)))
        factor = temporary(weights, c + (i * size.kernel[1] + j) * size.groups)
        if _multiplies_margins(node):
            total = total + select(inside, element, zero) * factor
        else:
            total = total + select(inside, element * factor, zero)
    return total


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
