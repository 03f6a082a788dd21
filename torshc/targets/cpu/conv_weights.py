"""Gradients of the weights of convolutions, channels-last: sums over pixels for parts of a batch, then over all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from ...expr import F32, Expr, as_int, ceil_div, const
from ...graph import Node, Value
from ...kernels.base import Kernel, Temporary
from ...kernels.epilogue import lower_epilogue
from ...kernels.generic import lower_generic
from ...kernels.heavy import Strided, add_buffer, is_empty, temporary, traffic
from ...kernels.machine import Machine
from ...kernels.nest import Buffers, Rows, accumulate, finish_row
from ...ops.core.base import Index, LoopNest, Read
from ...ops.core.scalar import Scalar
from ...ops.nn.conv import ConvWeights, has_weights_kernel
from ...plan.group import Group
from ...plan.inline import Inliner
from ...plan.storage import Storage
from .base import CpuTarget
from .c import MOST_TURNED, CTarget
from .conv_shape import Geometry, channels_last, source_strides

PARTS_BYTES = 1 << 19  # of all parts' sums together: they are read once more
MOST_PARTS = 8  # of a kernel with several taps, whose rows are cut too
MOST_PARTS_OF_ONE_TAP = 16  # whose operands are read once a task: rows are cut only where there are fewer parts
BLOCK_FLOATS = 1 << 15  # of both operands that a task sums over before it takes the next pixels: half a second cache
FEW_PIXELS, MOST_PIXELS = 16, 512


@dataclass(frozen=True)
class _SumsKernel(Kernel):
    """Sums over the pixels of each part of a batch, to a temporary.

    Attributes:
        size: sizes of the convolution.
        x, g: the data and the gradient, stepping along images, rows and pixels.
        sums: buffer of the sums.
        lanes: elements of a vector.
        parts: how many there are, of as many images each; the last may be shorter, or empty.
    """

    size: Geometry
    x: Strided
    g: Strided
    sums: int
    lanes: int
    parts: int

    @property
    def images(self) -> Expr:
        """Images of a part."""
        return ceil_div(self.size.images, self.parts)


@dataclass(frozen=True)
class DepthwiseWeightsKernel(_SumsKernel):
    """Of depthwise convolutions; the sums are [part][KH][KW][channels], these up to a whole vector."""

    kind: ClassVar[str] = "depthwise_weights"
    template: ClassVar[str] = "depthwise_weights.c.j2"


@dataclass(frozen=True)
class ConvWeightsKernel(_SumsKernel):
    """Of dense ones: products of one operand's channels, the rows, by vectors of the other's, the columns.

    The sums are [part][KH][KW][rows][columns], rows up to a whole tile, and columns up to a whole vector.

    Attributes:
        turned: whether the rows are the data's channels, and not the gradient's.
        tile: rows and vectors of a register tile.
        blocks: of tiles of rows, a task each.
        pixels: how many are summed over in one go.
    """

    kind: ClassVar[str] = "conv_weights"
    template: ClassVar[str] = "conv_weights.c.j2"

    turned: bool
    tile: tuple[int, int]
    blocks: int
    pixels: int

    @property
    def rows(self) -> int:
        return self.size.ic if self.turned else self.size.oc

    @property
    def columns(self) -> int:
        return self.size.oc if self.turned else self.size.ic

    @property
    def row_tiles(self) -> int:
        return -(-self.rows // self.tile[0])

    @property
    def vectors(self) -> int:
        """Vectors of a row."""
        return -(-self.columns // self.lanes)


@CpuTarget.lowers("conv_weights")
def lower_as_loops(group: Group, storage: Mapping[Value, Storage], machine: Machine) -> list[Kernel]:
    """The kernel of targets without the templates: a plain loop nest."""
    return lower_generic(group, storage)


@CTarget.lowers("conv_weights")
def lower_conv_weights(group: Group, storage: Mapping[Value, Storage], machine: Machine) -> list[Kernel]:
    """The kernels that sum for parts and over all; before them copies of operands without innermost channels."""
    node = group.anchor
    assert node is not None and isinstance(node.op, ConvWeights)
    if any(is_empty(v) for v in group.outputs):
        return []
    if not has_weights_kernel(node) or any(is_empty(v) for v in node.operands):
        return lower_generic(group, storage)
    size, buffers, operands, before = _geometry(node, node.op), Buffers(storage), list[Strided](), list[Kernel]()
    shapes = {"data": size, "gradient": replace(size, ih=size.oh, iw=size.ow)}
    for value, (name, shape) in zip(node.operands, shapes.items(), strict=True):
        element, copies = channels_last(value, shape, group, storage, f"channels_last of {name}")
        operands.append(source_strides(element, shape, buffers))
        before += copies
    size, lanes = _flatten_image(size, *operands), machine.lanes
    channels = size.ic * size.groups
    turned = not size.depthwise and turns(channels, size.oc, lanes)
    rows, columns = (size.ic, size.oc) if turned else (size.oc, channels)
    tile = tile_of(rows, columns, lanes)
    tiles, wide = -(-rows // tile[0]), -(-columns // lanes) * lanes
    tap = tiles * tile[0] * wide
    most = MOST_PARTS if size.taps > 1 else MOST_PARTS_OF_ONE_TAP
    parts = max(1, min(most, PARTS_BYTES // (size.taps * tap * F32.size)))
    sums = Temporary("sums", group.id, const(parts * size.taps * tap * F32.size))
    common: dict[str, Any] = {
        "size": size, "x": operands[0], "g": operands[1], "sums": add_buffer(buffers, sums, written=True),
        "lanes": lanes, "parts": parts, "flops": node.op.flops(node), "nbytes": traffic(buffers.list, ()),
        "buffers": tuple(buffers.list),
    }  # fmt: skip
    if size.depthwise:
        made: _SumsKernel = DepthwiseWeightsKernel(tasks=const(parts), **common)
        steps = (1, 0)
    else:
        blocks = max(1, min(tiles, 2 * MOST_PARTS // parts))
        pixels = max(FEW_PIXELS, min(MOST_PIXELS, BLOCK_FLOATS // (rows // blocks + columns)))
        made = ConvWeightsKernel(
            tasks=const(parts * blocks), turned=turned, tile=tile, blocks=blocks, pixels=pixels, **common
        )
        steps = (1, wide) if turned else (wide, 1)
    return [*before, made, _total(group, sums, parts, (*steps, size.kernel[1] * tap, tap), storage)]


def tile_of(rows: int, columns: int, lanes: int) -> tuple[int, int]:
    """Rows and vectors of a register tile: as many sums as there are registers for, in the most vectors."""
    sums, vectors = (24, 3) if lanes == 16 else (12, 2)
    vectors = min(vectors, -(-columns // lanes))
    return -(-rows // -(-rows // (sums // vectors))), vectors


def turns(channels: int, filters: int, lanes: int) -> bool:
    """Whether the data's channels are the rows: of many, sums that lie so would be slow to add."""
    return channels <= MOST_TURNED and loads_of(channels, filters, lanes) < loads_of(filters, channels, lanes)


def loads_of(rows: int, columns: int, lanes: int) -> int:
    """What one pixel takes in sums and in loads, both of which processors do two of a cycle."""
    (tall, wide), vectors = tile_of(rows, columns, lanes), -(-columns // lanes)
    cuts = [wide] * (vectors // wide) + [vectors % wide] * (vectors % wide > 0)
    return -(-rows // tall) * sum(max(tall * n, tall + n) for n in cuts)


def _geometry(node: Node, op: ConvWeights) -> Geometry:
    x, g = node.operands
    oc, ic, *kernel = (as_int(d) or 0 for d in op.shape)
    return Geometry(
        images=x.shape[0],
        groups=op.group,
        ic=ic,
        oc=oc // op.group,
        ih=x.shape[2],
        iw=x.shape[3],
        oh=g.shape[2],
        ow=g.shape[3],
        kernel=(kernel[0], kernel[1]),
        stride=(op.strides[0], op.strides[1]),
        dilation=(op.dilations[0], op.dilations[1]),
        pad=(op.pads[0], op.pads[1]),
        flat=False,
    )


def _flatten_image(size: Geometry, x: Strided, g: Strided) -> Geometry:
    """An image as one row, where a single tap slides over all pixels, which follow each other."""
    single = size.kernel == (1, 1) and size.stride == (1, 1) and all(p is const(0) for p in size.pad)
    if not single or any(o.steps[1] is not w * o.steps[2] for o, w in ((x, size.iw), (g, size.ow))):
        return size
    pixels = size.oh * size.ow
    return replace(size, ih=const(1), iw=pixels, oh=const(1), ow=pixels)


def _total(
    group: Group, sums: Temporary, parts: int, steps: tuple[int, ...], storage: Mapping[Value, Storage]
) -> Kernel:
    """The sums of all parts, with what follows them; `steps` is how far the elements of a dimension lie apart."""
    node = group.anchor
    assert node is not None
    buffers, inliner = Buffers(storage), Inliner(group.folded)
    number = add_buffer(buffers, sums)
    part = as_int(sums.nbytes // (parts * F32.size)) or 0

    def body(at: Index, inner: Index, read: Read) -> Scalar:
        place = inner[0] * part
        for i, step in zip(at, steps, strict=True):
            place = place + i * step
        return Scalar(temporary(number, place))

    nest = LoopNest(body, (const(parts),), "add")
    rows = Rows([node], {node: nest}, node.output.layout)
    total = accumulate(node, nest, 0, rows, inliner, buffers)
    stores = lower_epilogue(group, node, {node.output: (inliner.known[node.output], rows.index)}, buffers)
    return finish_row(rows, [[total]], [], stores, buffers, group.outputs)
