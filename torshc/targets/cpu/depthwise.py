"""Depthwise convolutions, channels-last: vectors of channels, a few neighbouring pixels at a time."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ...expr import F32, I32, U8, DType, Expr, acc, as_int, axis, const, load, max_of, min_of, select
from ...graph import Node, Value
from ...kernels.base import Kernel, Packed, Temporary
from ...kernels.heavy import (
    HeavyKernel,
    Strided,
    accumulated,
    add_buffer,
    copy_kernel,
    epilogue_flops,
    finish,
    join_stores,
    traffic,
)
from ...kernels.machine import Machine
from ...kernels.nest import Buffers
from ...kernels.totals import add_totals
from ...plan.group import Group
from ...plan.storage import Storage
from .conv_shape import ElementAt, Geometry, bias_of, margin_of, source_strides
from .pack import QUAD, quads
from .tiles import TASK_FLOPS, clamp

Array = np.ndarray[Any, Any]
COLUMNS = 4  # neighbouring pixels of a tile
NARROW_COLUMNS = 8  # the same of halves, each of which fewer tiles make a float, where there are 32 registers
BLOCK_CHANNELS = 128
LINE = 64  # bytes that scratch is a multiple of
FAR_BYTES = 1 << 20  # of images that L2 does not hold when they are read


@dataclass(frozen=True)
class DepthwiseKernel(HeavyKernel):
    """Every channel by a kernel of its own.

    Attributes:
        pixels: output axes of the epilogue, neighbours joined.
        channel: axis of the channels.
        size: sizes of the convolution.
        x: the input, stepping along images, rows and pixels.
        w: buffer of the weights, [vector of channels][kernel row][kernel column][lanes].
        lanes: elements of a vector.
        columns: pixels of a tile.
        h_blocks, c_blocks: blocks of output rows of an image, and of channels.
        margin: whether taps in the margin add 0 times their weight, which is NaN where that is not finite.
    """

    kind: ClassVar[str] = "depthwise"
    template: ClassVar[str] = "depthwise.c.j2"

    pixels: tuple[Expr, ...]
    channel: Expr
    size: Geometry
    x: Strided
    w: int
    lanes: int
    columns: int
    h_blocks: Expr
    c_blocks: int
    margin: bool

    @property
    def far(self) -> bool:
        """Whether images come from farther away than L2: tiles then ask for rows that the next row of results reads."""
        pixels = [as_int(e) or 1 for e in (self.size.images, self.size.ih, self.size.iw)]
        return math.prod(pixels) * self.size.groups * self.buffers[self.x.buffer].dtype.size >= FAR_BYTES


@dataclass(frozen=True)
class ByteDepthwiseKernel(DepthwiseKernel):
    """A depthwise convolution of bytes, summed in i32; words of weights hold four kernel rows.

    Attributes:
        outside: what taps outside the image read; zeros when there is none.
    """

    template: ClassVar[str] = "depthwise_int8.c.j2"

    outside: Strided | None = None

    @property
    def sums(self) -> DType:
        return I32

    @property
    def scratch(self) -> Expr:
        """Bytes of a pixel outside the image."""
        return const(-(-self.size.groups // LINE) * LINE)


def lower_depthwise(
    group: Group, node: Node, size: Geometry, element: ElementAt, storage: Mapping[Value, Storage], machine: Machine
) -> list[Kernel]:
    """The kernel of a convolution with as many groups as channels, in and out; before it one that packs weights."""
    buffers, bytes_ = Buffers(storage), node.operands[0].dtype is U8
    x = source_strides(element, size, buffers)
    known = node.operands[1].const is not None
    packed, packing = (
        ((_pack_bytes if bytes_ else _pack)(node.operands[1], size, machine.lanes), [])
        if known
        else _pack_at_run_time(node.operands[1], size, machine.lanes, storage, group.id)
    )
    w = add_buffer(buffers, packed, dtype=I32 if bytes_ else F32)
    outside = margin_of(node, buffers) if bytes_ else None
    channel = axis("c", size.groups)
    named = [axis(n, e) for n, e in (("n", size.images), ("h", size.oh), ("w", size.ow))]
    n, h, v = (const(0) if as_int(a.args[0]) == 1 else a for a in named)
    summed = acc("acc", I32) if bytes_ else accumulated(group, bias_of(node), channel)
    index, joins = size.index(n, channel, h, v), list[Kernel]()
    stores = finish(group, node, summed, index, buffers)
    if not bytes_:
        totals, joins = add_totals(group, node, [(summed, index)], size.oh, machine.lanes, buffers, storage)
        stores += totals
    pixels, stores = join_stores([a for a in (n, h, v) if a.op == "axis"], stores)
    flops = node.op.flops(node)
    c_blocks = max(1, size.groups // machine.number("channels", BLOCK_CHANNELS))
    wanted = clamp(flops // (TASK_FLOPS // 16), 1, 8 * machine.threads)
    h_blocks = clamp(wanted // max_of(size.images * c_blocks, 1), 1, size.oh)
    widens = not bytes_ and buffers.list[x.buffer].dtype.size < 4 and size.stride[1] == 1 and machine.lanes == 16
    kernel = DepthwiseKernel(
        buffers=tuple(buffers.list),
        tasks=size.images * h_blocks * c_blocks,
        flops=flops + epilogue_flops(stores, node.output.type.size),
        nbytes=traffic(buffers.list, group.outputs),
        stores=tuple(stores),
        pixels=tuple(pixels),
        channel=channel,
        size=size,
        x=x,
        w=w,
        lanes=machine.lanes,
        columns=machine.number("columns", NARROW_COLUMNS if widens else COLUMNS),
        h_blocks=h_blocks,
        c_blocks=c_blocks,
        margin=not known and any(as_int(p) != 0 for p in node.op.attributes()["pads"]),
    )
    return [*packing, ByteDepthwiseKernel.of(kernel, outside=outside) if bytes_ else kernel, *joins]


def _pack(w: Value, size: Geometry, lanes: int) -> Packed:
    vectors = -(-size.groups // lanes)

    def make(array: Array) -> list[Array]:
        wide = np.zeros((vectors * lanes, size.taps), F32.numpy)
        wide[: size.groups] = array.reshape(size.groups, size.taps)
        return [wide.reshape(vectors, lanes, size.taps).transpose(0, 2, 1)]

    return Packed(w, f"taps by vectors of {lanes} channels", make, vectors * lanes * size.taps * 4, F32)


def _pack_bytes(w: Value, size: Geometry, lanes: int) -> Packed:
    vectors, (rows, columns) = -(-size.groups // lanes), size.kernel

    def make(array: Array) -> list[Array]:
        wide = np.zeros((rows, vectors * lanes * columns), np.int8)
        taps = wide.reshape(rows, columns, vectors * lanes)
        taps[:, :, : size.groups] = array.reshape(size.groups, rows, columns).transpose(1, 2, 0)
        return [quads(wide).reshape(-1, columns, vectors, lanes).transpose(2, 0, 1, 3)]

    words = vectors * -(-rows // QUAD) * columns * lanes
    return Packed(w, f"words of kernel rows by vectors of {lanes} channels", make, words * 4, I32)


def _pack_at_run_time(
    w: Value, size: Geometry, lanes: int, storage: Mapping[Value, Storage], owner: int
) -> tuple[Packed | Temporary, list[Kernel]]:
    """Pack weights that are no constant, by a kernel."""
    axes = [
        axis("v", -(-size.groups // lanes)),
        *(axis(f"t{k}", n) for k, n in enumerate(size.kernel)),
        axis("c", lanes),
    ]
    v, *taps, c = (const(0) if as_int(a.args[0]) == 1 else a for a in axes)
    channel = v * lanes + c
    index = (min_of(channel, size.groups - 1), const(0), *taps[-(w.type.rank - 2) :])
    to = Temporary("weights", owner, const(-(-size.groups // lanes) * lanes * size.taps * w.dtype.size))

    def source(buffers: Buffers) -> Expr:
        tap = buffers.resolve(load(w, index, w.dtype))
        return tap if size.groups % lanes == 0 else select(channel < size.groups, tap, const(0.0, w.dtype))

    return to, [copy_kernel(source, axes, storage, to, w.dtype)]
