"""3x3 convolutions by Winograd's F(4x4, 3x3): 36 products for 16 outputs in place of 144.

A. Lavin, S. Gray: Fast Algorithms for Convolutional Neural Networks, 2015, arXiv:1509.09308. With the transforms G, B
and A below, a tile of outputs is A' [(G w G') * (B' x B)] A, summed over the input channels. The transforms weigh terms
by up to 8, so that rounding errors are some ten times those of the plain sum: about 1e-5 of the largest output.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ...expr import Expr, as_int, axis, const
from ...graph import Node, Value
from ...kernels.base import Packed
from ...kernels.heavy import HeavyKernel, Strided, accumulated, add_buffer, epilogue_flops, finish, join_stores, traffic
from ...kernels.machine import Machine
from ...kernels.nest import Buffers
from ...plan.group import Group
from ...plan.storage import Storage
from .conv_shape import ElementAt, Geometry, bias_of, source_strides
from .pack import panels
from .tiles import Tile, choose_tile

Array = np.ndarray[Any, Any]
SMALLEST = 14  # output rows and columns from which on it is faster
POINTS = 36  # elements of a transformed tile
CACHE = 768 << 10  # bytes of transformed input that stay in L2
TILES_LOW, TILES_HIGH = 12, 48  # tiles a task: weights are read again for each task
PANEL_BLOCK = 4  # panels that are multiplied before they are transformed back
TRANSFORM = np.array(
    [
        [1 / 4, 0, 0],
        [-1 / 6, -1 / 6, -1 / 6],
        [-1 / 6, 1 / 6, -1 / 6],
        [1 / 24, 1 / 12, 1 / 6],
        [1 / 24, -1 / 12, 1 / 6],
        [0, 0, 1],
    ]
)  # G


@dataclass(frozen=True)
class WinogradKernel(HeavyKernel):
    """A task takes a block of 4x4 output tiles through all steps, so that transformed values stay in L2.

    Attributes:
        pixels: output axes of the epilogue, neighbours joined.
        channel: axis of the output channels.
        size: sizes of the convolution; channels are multiples of the lanes.
        x: the input, stepping along images, rows and pixels.
        w: buffer of the transformed weights, [36][panel][ic][columns].
        tile: its rows are output tiles.
        t_blocks, n_blocks: blocks of output tiles and of channels.
        panel_block: panels that are multiplied before they are transformed back.
        approximation: what makes results differ from the plain sum by more than its own rounding.
    """

    kind: ClassVar[str] = "winograd"
    template: ClassVar[str] = "winograd.c.j2"

    pixels: tuple[Expr, ...]
    channel: Expr
    size: Geometry
    x: Strided
    w: int
    tile: Tile
    t_blocks: int
    n_blocks: int
    panel_block: int
    approximation: str = "winograd F(4,3)"

    @property
    def tiles(self) -> int:
        """Output tiles of all images."""
        return tiles_of(self.size)

    @property
    def block(self) -> int:
        """The most tiles of a task."""
        return -(-self.tiles // self.t_blocks)

    @property
    def scratch(self) -> Expr:
        return const(4 * POINTS * self.block * (self.size.ic + self.panel_block * self.tile.columns))


def suits(size: Geometry, lanes: int) -> bool:
    """Whether a convolution has the form that this kernel computes, and is large enough for it to pay."""
    static = [as_int(e) for e in (size.images, size.oh, size.ow, size.ih, size.iw, *size.pad)]
    plain = size.kernel == (3, 3) and size.stride == (1, 1) and size.dilation == (1, 1) and size.groups == 1
    if not plain or size.ic % lanes or size.oc % lanes or None in static:
        return False
    return min(as_int(size.oh) or 0, as_int(size.ow) or 0) >= SMALLEST


def tiles_of(size: Geometry) -> int:
    images, rows, columns = (as_int(e) or 0 for e in (size.images, size.oh, size.ow))
    return images * -(-rows // 4) * -(-columns // 4)


def lower_winograd(
    group: Group, node: Node, size: Geometry, element: ElementAt, storage: Mapping[Value, Storage], machine: Machine
) -> WinogradKernel:
    """The kernel of a convolution that :func:`suits`."""
    buffers = Buffers(storage)
    x = source_strides(element, size, buffers)
    count = tiles_of(size)
    block = min(max(CACHE // (4 * POINTS * size.ic), TILES_LOW), TILES_HIGH)
    tile = choose_tile(machine, const(min(block, count)), const(size.oc), const(size.ic))
    w = add_buffer(buffers, _pack(node.operands[1], size, tile))
    channel = axis("c", size.oc)
    named = [axis(n, e) for n, e in (("n", size.images), ("h", size.oh), ("w", size.ow))]
    n, h, v = (const(0) if as_int(a.args[0]) == 1 else a for a in named)
    stores = finish(group, node, accumulated(group, bias_of(node), channel), size.index(n, channel, h, v), buffers)
    pixels, stores = join_stores([a for a in (n, h, v) if a.op == "axis"], stores)
    t_blocks = max(1, round(count / block))
    groups = -(-size.oc // (PANEL_BLOCK * tile.columns))
    n_blocks = min(max(1, -(-2 * machine.threads // t_blocks)), groups)
    return WinogradKernel(
        buffers=tuple(buffers.list),
        tasks=const(t_blocks * n_blocks),
        flops=node.op.flops(node) + epilogue_flops(stores, node.output.type.size),
        nbytes=traffic(buffers.list, group.outputs),
        stores=tuple(stores),
        pixels=tuple(pixels),
        channel=channel,
        size=size,
        x=x,
        w=w,
        tile=tile,
        t_blocks=t_blocks,
        n_blocks=n_blocks,
        panel_block=PANEL_BLOCK,
    )


def _pack(w: Value, size: Geometry, tile: Tile) -> Packed:
    def make(array: Array) -> list[Array]:
        transformed = np.einsum("ia,ocab,jb->ijco", TRANSFORM, array.astype(np.float64), TRANSFORM)
        return [panels(transformed.reshape(POINTS, size.ic, size.oc).astype(array.dtype), tile.columns)]

    nbytes = POINTS * -(-size.oc // tile.columns) * tile.columns * size.ic * 4
    return Packed(w, f"F(4x4, 3x3), panels of {tile.columns}", make, nbytes, w.dtype)
