"""Convolutions of bf16 as products: of pixels with all that their taps read, or over copies of images."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ...expr import BF16, I32, Expr, as_int, axis, ceil_div, const, load, product
from ...graph import Node, Value
from ...kernels.base import Packed
from ...kernels.heavy import (
    Strided,
    accumulated,
    add_buffer,
    epilogue_flops,
    finish,
    join_stores,
    plain,
    strided_operand,
    traffic,
)
from ...kernels.machine import Machine
from ...kernels.nest import Buffers
from ...plan.group import Group
from ...plan.storage import Storage
from .bf16 import BLOCK_BYTES, STAY_BYTES, AmxKernel, Bf16GemmKernel, Window, choose_form, rows_a_step
from .conv_shape import ElementAt, Geometry, bias_of, source_strides
from .pack import HALF_COLUMNS, STEP, panels, words_of_halves
from .tiles import Blocks

Array = np.ndarray[Any, Any]
MOST_BYTES = 2 * BLOCK_BYTES  # that one row of output may need of an image, or several small images
MOST_IMAGES = 4  # of a block: all threads that share its columns copy all of them
SPREAD = 32  # halves between pixels, whose lines would else share few sets of the first cache
TILE_ROWS, LEAST_ROWS = 16, 12  # of a tile: the most, and the fewest that are tried
PIXEL = 4  # halves of a picture's pixel


@dataclass(frozen=True)
class ImageKernel(AmxKernel):
    """A convolution whose tiles read a copy of the image, with margins, in place of packed rows.

    Pixels lie in planes, one for each place within a stride. A tap reads the channels of a pixel, which fill steps of
    32; of a picture, whose channels are few, it reads neighbouring pixels, which are not apart by the stride then.

    Attributes:
        rows: output rows of a block at the most.
        images: of a block at the most; more than one where that reads weights seldomer, and all rows of each.
        picture: whether pixels have three channels or four, in :data:`PIXEL` halves.
    """

    kind: ClassVar[str] = "conv"
    template: ClassVar[str] = "conv_bf16_amx.c.j2"

    rows: int = 1
    images: int = 1
    picture: bool = False

    @property
    def size(self) -> Geometry:
        """Of the convolution."""
        assert self.window is not None
        return self.window.size

    @property
    def pooled(self) -> bool:
        """Whether of two neighbours, and the two below them, the largest is kept."""
        return self.size.windows != (1, 1)

    @property
    def wide(self) -> int:
        """Pixels of the result that a row of a plane has room for, those behind the edge among them."""
        size = self.size
        return (as_int(size.ow) or 0) + (size.kernel[1] - 1) * size.dilation[1] // size.stride[1]

    @property
    def unit(self) -> int:
        """Halves from where a pixel of the result reads to where the next one does."""
        if self.picture:
            return PIXEL * self.size.stride[1]
        return self.size.ic + (SPREAD if self.size.ic % (2 * SPREAD) == 0 else 0)

    @property
    def depth(self) -> int:
        """Halves that a tap reads."""
        return PIXEL * self.size.kernel[1] if self.picture else self.size.ic

    @property
    def steps(self) -> int:
        """Steps of a tap."""
        return -(-self.depth // STEP)

    @property
    def taps(self) -> tuple[tuple[int, int], ...]:
        """Rows and columns from the first pixel that a pixel of the result reads to where its taps read."""
        assert self.window is not None
        return tuple(dict.fromkeys((r, 0) for r, _ in self.window.taps)) if self.picture else self.window.taps

    @property
    def tile_rows(self) -> int:
        """Pixels of a tile, of which two are multiplied at a time."""
        return self._tiles[1]

    @property
    def pixel_tiles(self) -> int:
        """Pairs of tiles of pixels of an image's part in a block."""
        return self._tiles[0]

    @property
    def exact(self) -> bool:
        """Whether a row of output is whole tiles; else tiles run on over the pixels behind its edge."""
        return self._tiles[2]

    @property
    def _tiles(self) -> tuple[int, int, bool]:
        """Pairs of tiles of a block, the rows of a tile, and whether they fill rows of output.

        Fewest pairs, then fewest rows: a step of 14 rows takes 0.97 of one of 16. The two that
        are pooled lie one below the other.
        """
        width = as_int(self.size.ow) or 1
        found = []
        if self.pooled:
            rows = next(n for n in range(TILE_ROWS, LEAST_ROWS - 1, -2) if width % n == 0)
            return self.rows // 2 * (width // rows), rows, True
        for rows in range(TILE_ROWS, LEAST_ROWS - 1, -1):
            exact = width % rows == 0
            pixels = self.rows * width if exact else (self.rows - 1) * self.wide + width
            found.append((-(-pixels // (2 * rows)), rows, exact))
        return min(found)

    @property
    def rows_a_step(self) -> int:
        """Pixels of a whole pair of tiles that are finished after each step of the next one."""
        made = self.tile_rows // 2 if self.pooled else 2 * self.tile_rows
        return rows_a_step(made, self.steps * len(self.taps))

    @property
    def extra(self) -> int:
        """Rows of a plane beyond those of the result."""
        return (self.size.kernel[0] - 1) * self.size.dilation[0] // self.size.stride[0]

    @property
    def plane(self) -> int:
        """Halves of a plane: those that a block needs, and what its last tile reads beyond them."""
        return ((self.rows + self.extra) * self.wide + 2 * self.tile_rows) * self.unit + self.depth

    @property
    def planes(self) -> list[tuple[int, int]]:
        """Rows and columns, less than a stride, from which on a plane has pixels of the image."""
        (h, w) = self.size.stride
        return list(dict.fromkeys((r % h, s % w) for r, s in self.taps))

    @property
    def places(self) -> list[int]:
        """Where each tap reads for the first pixel of a block."""
        (h, w), planes = self.size.stride, self.planes
        return [
            planes.index((r % h, s % w)) * self.plane + (r // h * self.wide + s // w) * self.unit for r, s in self.taps
        ]

    @property
    def weight_bytes(self) -> int:
        """Bytes of the weights."""
        return self.depth * len(self.taps) * self.size.oc * self.packed

    @property
    def copy(self) -> int:
        """Halves of the copy of an image."""
        return len(self.planes) * self.plane

    @property
    def scratch(self) -> Expr:
        return const(self.images * self.copy * self.packed)


def lower_halves(
    group: Group, node: Node, size: Geometry, element: ElementAt, storage: Mapping[Value, Storage], machine: Machine
) -> Bf16GemmKernel:
    """A convolution of one group: over copies of images where channels fill steps of tiles, else of packed pixels."""

    def by(weights: Packed) -> Bf16GemmKernel:
        buffers = Buffers(storage)
        return _product(group, node, size, source_strides(element, size, buffers), weights, buffers, machine)

    if choose_form(machine.extras) is AmxKernel and size.ic % STEP == 0 and size.taps:
        made = by(_pack(node.operands[1], size, steps=size.ic // STEP))
        if (over := _over_images(ImageKernel.of(made))) is not None:
            return over
    assert size.windows == (1, 1)  # passes pool what has a kernel for it
    return by(_pack(node.operands[1], size))


def lower_picture(
    group: Group, node: Node, size: Geometry, storage: Mapping[Value, Storage], machine: Machine
) -> ImageKernel | None:
    """A convolution of three channels or four; None where tiles are missing, or do not take its rows in equal steps."""
    steps = max(1, -(-size.kernel[1] * PIXEL // STEP))
    fits = size.ic in (3, 4) and size.dilation[1] == 1 and size.planes is None and not size.flat and size.taps
    if choose_form(machine.extras) is not AmxKernel or not fits or size.kernel[1] * PIXEL // 2 % steps:
        return None
    buffers = Buffers(storage)
    axes = [*size.axes(inside=True), axis("c", size.ic)]
    n, h, w, c = axes
    x = strided_operand(buffers.resolve(load(node.operands[0], size.index(n, c, h, w), BF16)), axes)
    if x is None:
        return None
    weights = _pack(node.operands[1], size, PIXEL, steps, size.kernel[0])
    packed = _product(group, node, size, x, weights, buffers, machine)
    return _over_images(ImageKernel.of(packed, picture=True))


def _product(
    group: Group, node: Node, size: Geometry, x: Strided, weights: Packed, buffers: Buffers, machine: Machine
) -> Bf16GemmKernel:
    """A convolution as a product of pixels, each of which has all that its taps read in a row."""
    form = choose_form(machine.extras)
    assert form is not None  # else passes leave pixels f32
    matrix = add_buffer(buffers, weights, dtype=I32)
    axes = size.axes(inside=False)
    n, h, v = (const(0) if as_int(a.args[0]) == 1 else a for a in axes)
    columns = axis("c", size.oc)
    channel = columns if size.oc > 1 else const(0)
    stores = finish(group, node, accumulated(group, bias_of(node), channel), size.index(n, channel, h, v), buffers)
    pixels, stores = join_stores([a for a in axes if as_int(a.args[0]) != 1], stores)
    count, depth = product([a.args[0] for a in axes]), const(size.ic * size.taps)
    tile = form.choose_tile(machine.lanes, as_int(count))
    blocks = form.choose_blocks(machine, tile, count, const(size.oc), depth, const(1), packs=True)
    return form(
        buffers=tuple(buffers.list),
        tasks=blocks.m * blocks.n,
        flops=node.op.flops(node) + epilogue_flops(stores, node.output.type.size),
        nbytes=traffic(buffers.list, group.outputs),
        stores=tuple(stores),
        batch=(),
        m=axis("m", count),
        n=columns,
        k=depth,
        a=x,
        b=plain(matrix, const(0)),
        tile=tile,
        blocks=blocks,
        window=Window(size, tuple(pixels)),
    )


def _over_images(kernel: ImageKernel) -> ImageKernel | None:
    """The kernel with its blocks; None where sizes are a run's, or a row of an image is too long for a copy."""
    height = as_int(kernel.size.oh)
    if not height or not as_int(kernel.size.ow):
        return None
    first, more = (as_int(ImageKernel.of(kernel, rows=rows).scratch) or 0 for rows in (1, 2))
    if first > MOST_BYTES:
        return None
    blocks = -(-height // max(1, 1 + (BLOCK_BYTES - first) // (more - first)))
    blocks = min(blocks, height // kernel.size.windows[0])
    kernel = ImageKernel.of(kernel, rows=-(-height // kernel.size.windows[0] // blocks) * kernel.size.windows[0])
    if blocks == 1 and kernel.weight_bytes > STAY_BYTES:
        kernel = ImageKernel.of(kernel, images=_images_of_block(kernel))
    count = ceil_div(kernel.size.images, kernel.images) * blocks
    return kernel.cut(Blocks(const(blocks), const(1)), const(kernel.images * kernel.pixel_tiles), count)


def _images_of_block(kernel: ImageKernel) -> int:
    """As many whole images as a block has room for, in blocks of nearly as many: each block reads all weights."""
    room = min(max(MOST_BYTES // (kernel.copy * kernel.packed), 1), MOST_IMAGES)
    count = as_int(kernel.size.images)
    return room if count is None else -(-count // -(-count // room))


def _pack(w: Value, size: Geometry, channels: int = 0, steps: int = 1, rows: int = 0) -> Packed:
    """Weights as a matrix [step, tap, channel of a step][output channel] in panels of words of two rows.

    Args:
        channels: of a tap, where there are more than the convolution's, with zeros.
        steps: in which all taps read their channels, one after the other.
        rows: taps, where one is a whole row of the kernel.
    """
    channels, read = channels or size.ic, rows or size.taps
    depth = channels * size.taps // max(read * steps, 1)

    def make(array: Array) -> Iterator[Array]:
        taps = np.zeros((size.taps, channels, size.oc), array.dtype)
        taps[:, : size.ic] = array.reshape(size.oc, size.ic, -1).transpose(2, 1, 0)
        turned = taps.reshape(read, steps, depth, size.oc).swapaxes(0, 1)
        yield panels(words_of_halves(turned.reshape(-1, size.oc)), HALF_COLUMNS)

    words = -(-channels * size.taps // STEP) * (STEP // 2)
    how = f"halves of {read} taps of {channels} in {steps} steps"
    return Packed(w, how, make, -(-size.oc // HALF_COLUMNS) * HALF_COLUMNS * words * 4, I32)
