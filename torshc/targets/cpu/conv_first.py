"""Convolutions of few input channels (images): rows are copied to padded planes, so that any strides will do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ...expr import F32, Expr, as_int, axis, ceil_div, const, load, max_of, min_of
from ...graph import Node, Value
from ...kernels.base import Kernel, Packed
from ...kernels.heavy import (
    HeavyKernel,
    Strided,
    accumulated,
    add_buffer,
    epilogue_flops,
    finish,
    join_stores,
    strided_operand,
    traffic,
)
from ...kernels.machine import Machine
from ...kernels.nest import Buffers
from ...plan.group import Group
from ...plan.storage import Storage
from .conv_shape import Geometry, bias_of
from .pack import panels
from .tiles import Tile, choose_tile, clamp

Array = np.ndarray[Any, Any]
BLOCK_ROWS = 4  # output rows a task at the least: the rows between tasks are copied twice


@dataclass(frozen=True)
class ConvFirstKernel(HeavyKernel):
    """Convolution over planes: a tap of a tile of neighbouring pixels is a constant offset from one pointer.

    Attributes:
        pixels: output axes of the epilogue, neighbours joined.
        channel: axis of the output channels.
        size: sizes of the convolution.
        x: the input, stepping along images, channels, rows and pixels.
        w: buffer of the weights, [panel][ic][kernel row][kernel column][columns].
        tile: its rows are pixels of an output row.
        h_blocks: blocks of output rows of an image.
    """

    kind: ClassVar[str] = "conv_first"
    template: ClassVar[str] = "conv_first.c.j2"

    pixels: tuple[Expr, ...]
    channel: Expr
    size: Geometry
    x: Strided
    w: int
    tile: Tile
    h_blocks: Expr

    @property
    def rows_in(self) -> Expr:
        """Input rows under the output rows of a task."""
        s = self.size
        rows = ceil_div(s.oh, self.h_blocks)
        return (rows - 1) * s.stride[0] + ((s.kernel[0] - 1) * s.dilation[0] + 1)

    @property
    def width(self) -> Expr:
        """Length of a padded row."""
        s = self.size
        return (s.ow - 1) * s.stride[1] + ((s.kernel[1] - 1) * s.dilation[1] + 1)

    @property
    def scratch(self) -> Expr:
        return self.rows_in * self.width * (4 * self.size.ic)


def lower_first(
    group: Group, node: Node, size: Geometry, storage: Mapping[Value, Storage], machine: Machine
) -> list[Kernel]:
    """The kernel of a convolution of one group of few channels."""
    buffers = Buffers(storage)
    axes = [axis(n, e) for n, e in (("n", size.images), ("c", const(size.ic)), ("h", size.ih), ("w", size.iw))]
    element = buffers.resolve(load(node.operands[0], size.index(*axes), F32))
    x = strided_operand(element, axes)
    assert x is not None  # a value's own memory has strides
    depth = const(size.ic * size.taps)
    tile = choose_tile(machine, size.ow, const(size.oc), depth)
    w = add_buffer(buffers, _pack(node.operands[1], size, tile))
    channels = axis("c", size.oc)
    channel = channels if size.oc > 1 else const(0)
    named = [axis(n, e) for n, e in (("n", size.images), ("h", size.oh), ("w", size.ow))]
    n, h, v = (const(0) if as_int(a.args[0]) == 1 else a for a in named)
    stores = finish(group, node, accumulated(group, bias_of(node), channel), size.index(n, channel, h, v), buffers)
    pixels, stores = join_stores([a for a in (n, h, v) if a.op == "axis"], stores)
    wanted = ceil_div(const(4 * machine.threads), max_of(size.images, 1))
    h_blocks = clamp(min_of(ceil_div(size.oh, machine.number("block", BLOCK_ROWS)), wanted), 1, size.oh)
    kernel = ConvFirstKernel(
        buffers=tuple(buffers.list),
        tasks=size.images * h_blocks,
        flops=node.op.flops(node) + epilogue_flops(stores, node.output.type.size),
        nbytes=traffic(buffers.list, group.outputs),
        stores=tuple(stores),
        pixels=tuple(pixels),
        channel=channels,
        size=size,
        x=x,
        w=w,
        tile=tile,
        h_blocks=h_blocks,
    )
    return [kernel]


def _pack(w: Value, size: Geometry, tile: Tile) -> Packed:
    def make(array: Array) -> list[Array]:
        taps = array.reshape(size.oc, size.ic * size.taps)
        return [panels(taps.T, tile.columns)]

    nbytes = -(-size.oc // tile.columns) * tile.columns * size.ic * size.taps * 4
    return Packed(w, f"taps by channel, panels of {tile.columns}", make, nbytes, w.dtype)
