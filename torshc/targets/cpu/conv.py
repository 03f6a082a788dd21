"""Convolutions: the choice of kernel, and the general one over channels-last images."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from ...expr import BF16, F32, I8, I32, U8, DType, Expr, acc, as_int, axis, ceil_div, const, eq, load, min_of, select
from ...expr.affine import can_join
from ...graph import Node, Value
from ...kernels.base import Kernel, Packed, Temporary
from ...kernels.generic import lower_generic
from ...kernels.heavy import (
    HeavyKernel,
    Strided,
    accumulated,
    add_buffer,
    copy_kernel,
    epilogue_flops,
    finish,
    is_empty,
    is_finite,
    join_stores,
    plain,
    strided_operand,
    temporary,
    traffic,
)
from ...kernels.lower import first_of
from ...kernels.machine import Machine
from ...kernels.nest import Buffers
from ...ops.nn.conv import FEW_CHANNELS
from ...plan.group import Group
from ...plan.storage import Storage
from .base import CpuTarget
from .bf16 import PAIRS, DotKernel, Window, choose_form
from .conv_bf16 import lower_halves, lower_picture
from .conv_first import lower_first
from .conv_shape import ElementAt, Geometry, bias_of, channels_last, geometry, margin_of, source_strides
from .depthwise import lower_depthwise
from .gemm import HALF_BITS, Product, is_bytes, is_halves, lower_product
from .int8 import Int8AmxKernel, halo_blocks, has_halo, row_steps
from .pack import BYTE_STEP, QUAD, WORD_COLUMNS, panels, quads
from .tiles import BLOCK_K, Blocks, Tile, choose_blocks, choose_tile, come_from_far, has_seven_bits, partial_sums
from .winograd import Choice, choose_forms, lower_winograd, plain_weights

Array = np.ndarray[Any, Any]
ZERO_ALIGN = 64


@dataclass(frozen=True)
class Phase:
    """Output pixels that sum the same taps: all of them, or for a transposed convolution every stride-th.

    Attributes:
        row, column: the first output pixel.
        taps: where each tap reads, in input (planes,) rows and columns from that of the pixel.
        kernel: (plane,) row and column of each tap in the kernel.
    """

    row: int
    column: int
    taps: tuple[tuple[int, ...], ...]
    kernel: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class ConvKernel(HeavyKernel):
    """Channels-last convolution over a table of pointers (tap by pixel) into the image.

    Attributes:
        pixels: output axes of the epilogue: neighbours joined, or (image, row, column) where there are phases.
        group, channel: axes of the groups and of the output channels of one.
        size: sizes of the convolution.
        step: input rows and columns from one output pixel of a phase to the next.
        out_step: output rows and columns from one pixel of a phase to the next.
        pad: margin before the first input row and column.
        phases: see :class:`Phase`.
        x: the input, stepping along images, planes of volumes, rows and pixels.
        w: buffer of the weights, [group][panel][tap][depth][columns], the taps of a phase behind each other.
        margin: of bytes, what taps in the margin read; zeros when there is none.
        tile, blocks: how pixels (the rows) and channels are cut.
        tap_block, channel_block: taps and channels that are summed in one go.
        skips: whether a tile leaves out a tap that lies in the margin for all of its pixels; not where a weight may be
            infinite or NaN, as it makes NaN of a zero in the margin.
        cuts: whether tiles end where a tap goes into the margin or out of it, so that no tap there is ever multiplied.
    """

    kind: ClassVar[str] = "conv"
    template: ClassVar[str] = "conv.c.j2"

    pixels: tuple[Expr, ...]
    group: Expr
    channel: Expr
    size: Geometry
    step: tuple[int, int]
    out_step: tuple[int, int]
    pad: tuple[Expr, Expr]
    phases: tuple[Phase, ...]
    x: Strided
    w: int
    margin: Strided | None
    tile: Tile
    blocks: Blocks
    tap_block: int
    channel_block: int
    skips: bool
    cuts: bool = False

    @property
    def sums(self) -> DType:
        return I32 if self.buffers[self.x.buffer].dtype is U8 else F32

    @property
    def depth(self) -> int:
        """Channels of a group as the weights have them: floats, or words of four."""
        return self.size.ic if self.sums is F32 else -(-self.size.ic // QUAD)

    @property
    def fetches(self) -> bool:
        """Whether tiles ask memory for the panels that come next."""
        return come_from_far(self.buffers[self.w])

    @property
    def seven_bits(self) -> bool:
        """Whether bytes are multiplied by weights of 7 bits."""
        return self.sums is I32 and has_seven_bits(self.buffers[self.w])

    def weights_of(self, phase: int) -> int:
        """Offset of a phase's weights in a panel."""
        return sum(len(f.taps) for f in self.phases[:phase]) * self.depth * self.tile.columns

    @property
    def panels(self) -> int:
        """Panels of all groups."""
        return self.size.groups * -(-self.size.oc // self.tile.columns)

    @property
    def taps(self) -> int:
        """The most taps of a phase."""
        return max(len(x.taps) for x in self.phases)

    @property
    def rows(self) -> Expr:
        """The most pixels of a phase."""
        (h, w) = self.out_step
        return self.size.stack * ceil_div(self.size.oh, h) * ceil_div(self.size.ow, w)

    @property
    def block_rows(self) -> Expr:
        """The most pixels of a task."""
        return ceil_div(self.tile.tiles(self.rows), self.blocks.m) * self.tile.rows

    @property
    def zeros(self) -> int:
        """Elements that taps in the margin read."""
        return -(-self.size.groups * self.size.ic // ZERO_ALIGN) * ZERO_ALIGN

    @property
    def table_bytes(self) -> Expr:
        return ceil_div(self.block_rows * (8 * max(self.taps, 1)), 64) * 64

    @property
    def blocked(self) -> bool:
        return self.tap_block < self.taps or self.channel_block < self.size.ic

    @property
    def scratch(self) -> Expr:
        size = self.table_bytes + self.buffers[self.x.buffer].dtype.size * self.zeros
        if not self.blocked:
            return size
        return size + partial_sums(self.tile, self.rows, const(self.panels), self.blocks)


@CpuTarget.lowers("conv")
def lower_conv(group: Group, storage: Mapping[Value, Storage], machine: Machine) -> list[Kernel]:
    """The kernels of a Conv and its epilogue."""
    return convolution(group, storage, machine)


def convolution(group: Group, storage: Mapping[Value, Storage], machine: Machine, first: bool = True) -> list[Kernel]:
    """The kernels of a Conv and its epilogue; `first`: those of few channels have a kernel of their own."""
    node = group.anchor
    assert node is not None
    if any(is_empty(v) for v in group.outputs):
        return []
    x, w = node.operands[:2]
    shape = w.type.static_shape
    size = geometry(node, shape[0] // node.op.attributes()["group"], shape[1], volumes=True) if shape else None
    floats, known = x.dtype is F32, w.const is not None
    if size is None or size.ic == 0 or is_empty(x):
        return lower_generic(group, storage)
    single = size.taps == 1 and size.planes is None and size.stride == (1, 1)
    single = single and all(as_int(e) == 0 for e in padding(node))
    halves = is_halves(node) and not floats and (size.groups == 1 or size.depthwise) and size.planes is None
    if not (floats or halves or is_bytes(node)):
        return lower_generic(group, storage)
    planar = floats and known and size.planes is None
    if first and planar and size.groups == 1 and size.ic <= FEW_CHANNELS:
        return lower_first(group, node, size, storage, machine)
    if halves and (of_few := lower_picture(group, node, size, storage, machine)) is not None:
        return [of_few]
    if is_bytes(node) and _wastes_words(size) and not _on_tiles(size, machine):
        return _lower_rows(group, node, size, storage, machine)
    element, before = channels_last(x, size, group, storage)
    if floats and not known and size.depthwise and not (first and size.planes is None):
        return lower_generic(group, storage)
    alone = is_bytes(node) or ((floats or halves) and not (known and _multiplies_padding(node)))
    if alone and size.planes is None and size.depthwise:
        return [*before, *lower_depthwise(group, node, size, element, storage, machine)]
    pairs = halves and choose_form(machine.extras) is DotKernel
    choices = choose_forms(size, w, machine, PAIRS if pairs else 1) if floats or (pairs and known) else []
    readable = not choices or plain_weights(w, size, Buffers(storage)) is not None
    if choices and readable and not (pairs and any(c.form is None for c in choices)):
        if pairs:
            element, before = channels_last(x, size, group, storage, dtype=F32)
        made_by = []
        for choice in choices:
            holds = const(True) if choice.images is None else size.images <= choice.images
            made_by.append((holds, _by_choice(group, node, size, choice, element, storage, machine)))
        return [*before, *first_of(made_by, machine.by_size)]
    made = _as_product(group, node, size, element, storage, machine) if single else None
    if made is not None:
        return [*before, *made]
    if halves:
        return [*before, lower_halves(group, node, size, element, storage, machine)]
    if is_bytes(node) and _on_tiles(size, machine):
        return [*before, _lower_bytes(group, node, size, element, storage, machine)]
    return [*before, *lower_direct(group, node, size, element, plain_phases(size), storage, machine)]


def _by_choice(
    group: Group,
    node: Node,
    size: Geometry,
    choice: Choice,
    element: ElementAt,
    storage: Mapping[Value, Storage],
    machine: Machine,
) -> list[Kernel]:
    """A 3x3 convolution by one of Winograd's forms, or by plain sums."""
    if choice.form is None:
        return lower_direct(group, node, size, element, plain_phases(size), storage, machine)
    return lower_winograd(group, node, size, choice, machine, element, storage)


def _as_product(
    group: Group, node: Node, size: Geometry, element: ElementAt, storage: Mapping[Value, Storage], machine: Machine
) -> list[Kernel] | None:
    """A 1x1 convolution as a product over pixels, None when rows do not follow each other in memory."""
    w = node.operands[1]
    named = (("g", const(size.groups)), ("n", size.images), ("h", size.oh), ("w", size.ow))
    axes = [axis(name, e) for name, e in named]
    g, n, h, v = (const(0) if as_int(a.args[0]) == 1 else a for a in axes)
    k, columns = axis("k", size.ic), axis("c", size.oc)
    at_k = k if size.ic > 1 else const(0)
    channel = g * size.oc + (columns if size.oc > 1 else const(0))
    zeros = (const(0),) * (w.type.rank - 2)

    def source(buffers: Buffers) -> Expr:
        return element(buffers, n, g * size.ic + at_k, h, v)

    joined = h.op != "axis" or v.op != "axis" or can_join(h, v, source(Buffers(storage)).args)
    if not (joined or is_halves(node)):
        return None
    wanted = Product(
        rows=[a for a in (g, n, h, v) if a.op == "axis"],
        n=columns,
        k=k,
        a=source,
        b=load(w, (channel, at_k, *zeros), w.dtype),
        result=summed(group, node, channel),
        index=size.index(n, channel, h, v),
        bits=HALF_BITS if is_halves(node) else 8,
        pixels=size.oh * size.ow if size.groups == 1 else None,
    )
    return lower_product(group, node, wanted, storage, machine)


def _on_tiles(size: Geometry, machine: Machine) -> bool:
    """Whether a convolution of bytes is a product by tiles."""
    count = as_int(size.stack * size.oh * size.ow)
    return size.groups == 1 and size.planes is None and Int8AmxKernel.suits(machine, count)


def _wastes_words(size: Geometry) -> bool:
    """Whether taps of few channels, each of which begins a word of four bytes, are to be rows of the kernel."""
    plain = size.groups == 1 and size.planes is None and size.dilation[1] == 1
    return plain and size.kernel[1] > 1 and size.ic <= FEW_CHANNELS and size.ic % QUAD != 0


def _lower_rows(
    group: Group, node: Node, size: Geometry, storage: Mapping[Value, Storage], machine: Machine
) -> list[Kernel]:
    """A convolution of bytes of few channels whose taps are rows of the kernel: what one reads follows in memory.

    The image is copied to rows with their margins. Bytes up to the last whole word of a row have weights 0.
    """
    x, ic, left = node.operands[0], size.ic, size.pad[1]
    wide = (size.ow - 1) * size.stride[1] + size.kernel[1]
    to = Temporary("padded", group.id, size.images * size.ih * wide * ic + QUAD)
    read = [*size.axes(inside=True), axis("c", ic)]
    lies = strided_operand(Buffers(storage).resolve(load(x, size.index(read[0], read[3], *read[1:3]), U8)), read)
    joined = lies is not None and as_int(lies.steps[2]) == ic and as_int(lies.steps[3]) == 1
    axes = [axis("n", size.images), axis("h", size.ih)]
    axes += [axis("w", wide * ic)] if joined else [axis("w", wide), axis("c", ic)]
    n, h, w, *c = (const(0) if as_int(a.args[0]) == 1 else a for a in axes)

    def source(buffers: Buffers) -> Expr:
        edge, first = bias_of(node), left * ic if joined else left
        outside = const(0, U8) if edge is None else buffers.resolve(load(edge, (), U8))
        inside = (w >= first) & (w < first + (size.iw * ic if joined else size.iw))
        if not joined:
            return select(inside, buffers.resolve(load(x, size.index(n, c[0], h, w - left), U8)), outside)
        row = buffers.resolve(load(x, size.index(n, const(0), h, const(0)), U8))
        return select(inside, load(row.data, (row.args[0] + w - first,), U8), outside)

    def element(buffers: Buffers, n: Expr, c: Expr, h: Expr, w: Expr) -> Expr:
        return temporary(add_buffer(buffers, to, dtype=U8), ((n * size.ih + h) * wide + w) * ic + c, U8)

    depth = -(-size.kernel[1] * ic // QUAD) * QUAD
    rows = replace(size, ic=depth, iw=wide, kernel=(size.kernel[0], 1), pad=(size.pad[0], const(0)))
    direct = lower_direct(group, node, rows, element, plain_phases(rows), storage, machine)
    return [copy_kernel(source, axes, storage, to, U8), *direct]


def _lower_bytes(
    group: Group, node: Node, size: Geometry, element: ElementAt, storage: Mapping[Value, Storage], machine: Machine
) -> Kernel:
    """A convolution of bytes as a product of pixels, each of which has all that its taps read in a row, by tiles."""
    buffers = Buffers(storage)
    x = source_strides(element, size, buffers)
    panels = add_buffer(buffers, _pack_taps(node.operands[1], size), dtype=I32)
    margin = margin_of(node, buffers)
    axes = size.axes(inside=False)
    n, h, v = (const(0) if as_int(a.args[0]) == 1 else a for a in axes)
    columns = axis("c", size.oc)
    channel = columns if size.oc > 1 else const(0)
    stores = finish(group, node, summed(group, node, channel), size.index(n, channel, h, v), buffers)
    pixels, stores = join_stores([a for a in axes if as_int(a.args[0]) != 1], stores)
    count, depth = size.stack * size.oh * size.ow, const(size.ic * size.taps)
    tile, halo = Int8AmxKernel.choose_tile(machine.lanes, as_int(count)), has_halo(size)
    blocks = Int8AmxKernel.choose_blocks(machine, tile, count, const(size.oc), depth, const(1))
    if halo:
        blocks = replace(blocks, m=size.stack * halo_blocks(size))
    return Int8AmxKernel(
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
        b=plain(panels, const(0)),
        tile=tile,
        blocks=blocks,
        window=Window(size, tuple(pixels)),
        margin=margin,
        halo=halo,
    )


def _pack_taps(w: Value, size: Geometry) -> Packed:
    """Weights of bytes as a matrix [tap, channel][output channel] in panels of words of four of a column."""
    if has_halo(size):  # each row of the kernel in whole steps
        what, rows, depth = "bytes of rows", size.kernel[0], row_steps(size) * BYTE_STEP
    else:
        what, rows, depth = "bytes", 1, -(-size.ic * size.taps // BYTE_STEP) * BYTE_STEP

    def make(array: Array) -> Iterator[Array]:
        taps = array.reshape(size.oc, size.ic, -1).transpose(2, 1, 0).reshape(rows, -1, size.oc)
        long = np.zeros((rows, depth, size.oc), array.dtype)
        long[:, : taps.shape[1]] = taps
        yield panels(quads(long.reshape(-1, size.oc), step=BYTE_STEP), WORD_COLUMNS)

    words = rows * depth // QUAD
    return Packed(w, f"{what} of taps", make, -(-size.oc // WORD_COLUMNS) * WORD_COLUMNS * words * 4, I32)


def summed(group: Group, node: Node, channel: Expr) -> Expr:
    """The sum, with the bias that a convolution of floats may have."""
    return acc("acc", I32) if is_bytes(node) else accumulated(group, bias_of(node), channel)


def padding(node: Node) -> tuple[Expr, ...]:
    """Every margin of a convolution."""
    return tuple(node.op.attributes()["pads"])


def plain_phases(size: Geometry) -> tuple[Phase, ...]:
    """The one phase of an ordinary convolution."""
    apart = size.dilation if size.planes is None else (size.planes.dilation, *size.dilation)
    kernel = tuple(np.ndindex(*size.extents))
    return (Phase(0, 0, tuple(tuple(k * d for k, d in zip(tap, apart, strict=True)) for tap in kernel), kernel),)


def _row_tile(tile: Tile, size: Geometry) -> Tile:
    """A tile none of which goes over the end of an output row, so that whole taps lie in the margin; as measured.

    It is worth a quarter of the rows, or more where a tile is a whole row, as long as eight sums hide the latency.
    """
    width, vectors = as_int(size.ow) or 0, min(tile.vectors, -(-size.oc // tile.lanes))
    for rows in range(min(tile.rows, width), 0, -1):
        if width % rows == 0 and rows * vectors >= 8 and (rows == width or rows * 4 >= tile.rows * 3):
            return replace(tile, rows=rows)
    return tile


def lower_direct(
    group: Group,
    node: Node,
    size: Geometry,
    element: ElementAt,
    phases: tuple[Phase, ...],
    storage: Mapping[Value, Storage],
    machine: Machine,
    transposed: bool = False,
    margins: bool = True,
) -> list[Kernel]:
    """The general kernel, and before it one that packs weights which are known only in a run.

    Args:
        transposed: whether weights are [channels in][of a group out][kernel].
        margins: whether taps in the margin may multiply zeros, whatever the weights are.
    """
    buffers = Buffers(storage)
    x = source_strides(element, size, buffers)
    channels, groups = axis("c", size.oc), axis("g", size.groups)
    at_group = const(0) if size.groups == 1 else groups
    at_channel = channels if size.oc > 1 else const(0)
    out_step = size.stride if transposed else (1, 1)
    rows = size.stack * ceil_div(size.oh, out_step[0]) * ceil_div(size.ow, out_step[1])
    bytes_, skips = is_bytes(node), not margins or (not transposed and _skips_padding(node))
    taps = max(len(f.taps) for f in phases)
    tile = choose_tile(machine, rows, const(size.oc), const(size.ic * taps))
    if skips and machine.lanes == 16 and machine.choice("tile") is None:
        tile = _row_tile(tile, size)
    packed: Packed | Temporary
    packing: list[Kernel] = []
    if node.operands[1].const is not None:
        packed = pack_weights(node.operands[1], size, phases, tile, transposed)
    else:
        packed, kernel = _pack_at_run_time(node.operands[1], size, phases, tile, storage, group.id, transposed)
        packing = [kernel]
    w = add_buffer(buffers, packed, dtype=I32 if bytes_ else F32)
    edge = margin_of(node, buffers) if bytes_ else None
    axes = size.axes(inside=False)
    n, *spatial = (const(0) if as_int(a.args[0]) == 1 else a for a in axes)
    channel = at_group * size.oc + at_channel
    stores = finish(group, node, summed(group, node, channel), size.index(n, channel, *spatial), buffers)
    if out_step == (1, 1):
        axes = [a for a in axes if as_int(a.args[0]) != 1]
        axes, stores = join_stores(axes, stores)
    flops = node.op.flops(node)
    count = size.groups * -(-size.oc // tile.columns)
    blocks = choose_blocks(machine, tile, rows, const(count), flops, const(len(phases)))
    tap_block, channel_block = (taps, size.ic) if bytes_ else _cut_k(size.ic, taps, machine.number("depth", BLOCK_K))
    made = ConvKernel(
        buffers=tuple(buffers.list),
        tasks=blocks.m * blocks.n * len(phases),
        flops=flops + epilogue_flops(stores, node.output.type.size),
        nbytes=traffic(buffers.list, group.outputs),
        stores=tuple(stores),
        pixels=tuple(axes),
        group=groups,
        channel=channels,
        size=size,
        step=(1, 1) if transposed else size.stride,
        out_step=out_step,
        pad=(const(0), const(0)) if transposed else size.pad,
        phases=phases,
        x=x,
        w=w,
        margin=edge,
        tile=tile,
        blocks=blocks,
        tap_block=tap_block,
        channel_block=channel_block,
        skips=skips,
        cuts=not margins,
    )
    return [*packing, made]


def _skips_padding(node: Node) -> bool:
    """Whether taps in the padding are left out, which add zeros as long as all weights are finite."""
    return _is_padded(node) and not is_bytes(node) and is_finite(node.operands[1])


def _multiplies_padding(node: Node) -> bool:
    """Whether taps in the padding may add something: NaN, where an infinite weight meets a zero."""
    return _is_padded(node) and not is_finite(node.operands[1])


def _is_padded(node: Node) -> bool:
    return any(as_int(p) != 0 for p in padding(node))


def _cut_k(ic: int, taps: int, block: int) -> tuple[int, int]:
    """Taps and channels that are summed in one go: near-equal parts of about `block` products."""
    parts = 1 if ic <= block * 3 // 2 else -(-ic // block)
    channels = -(-ic // parts)
    at_once = max(1, block // channels)
    return (-(-taps // -(-taps // at_once)) if taps else 1), channels


def pack_weights(w: Value, size: Geometry, phases: Sequence[Phase], tile: Tile, transposed: bool) -> Packed:
    """Weights as [group][panel][tap][depth][columns], taps by phases; bytes in words of four channels."""
    taps = [tap for f in phases for tap in f.kernel]
    kind = {I8: I32, BF16: F32}.get(w.dtype, w.dtype)

    def make(array: Array) -> Iterator[Array]:
        floats = array.astype(F32.numpy) if w.dtype is BF16 else array
        if not transposed and array.shape[1] != size.ic:  # whose channels are those of a row of the kernel
            floats = _channels_of_rows(floats, size)
        kernel = floats.reshape(array.shape[0], -1, *size.extents)
        return iter([_pack_each_tap(kernel, size, taps, tile, transposed)])

    columns = -(-size.oc // tile.columns) * tile.columns
    depth = -(-size.ic // QUAD) if w.dtype is I8 else size.ic
    count = len(taps) * size.groups * depth * columns
    how = f"taps {taps} of {size.groups} groups, panels of {tile.columns}{', transposed' if transposed else ''}"
    return Packed(w, how, make, count * 4, kind)


def _channels_of_rows(array: Array, size: Geometry) -> Array:
    """Weights [O, I, rows, columns] as [O, columns * I and zeros, rows]."""
    rows = (
        array.reshape(size.oc, array.shape[1], size.kernel[0], -1)
        .transpose(0, 3, 1, 2)
        .reshape(size.oc, -1, size.kernel[0])
    )
    return np.pad(rows, ((0, 0), (0, size.ic - rows.shape[1]), (0, 0)))


def _pack_at_run_time(
    w: Value,
    size: Geometry,
    phases: Sequence[Phase],
    tile: Tile,
    storage: Mapping[Value, Storage],
    owner: int,
    transposed: bool,
) -> tuple[Temporary, Kernel]:
    """The same of weights that are no constant, by a kernel."""
    extents = {"g": size.groups, "p": -(-size.oc // tile.columns)}
    places = {f"t{k}": n for k, n in enumerate(size.extents)} if len(phases) == 1 else {"t": size.taps}
    extents |= places | {"k": size.ic, "c": tile.columns}
    axes = [axis(name, n) for name, n in extents.items()]
    g, p, *taps, k, c = (const(0) if as_int(a.args[0]) == 1 else a for a in axes)
    if len(phases) > 1:
        taps = _places_of(taps[0], [tap for f in phases for tap in f.kernel])
    column = p * tile.columns + c
    inside = min_of(column, size.oc - 1)
    channels = (g * size.ic + k, inside) if transposed else (g * size.oc + inside, k)
    index = (*channels, *taps[-(w.type.rank - 2) :])
    to = Temporary("weights", owner, const(math.prod(extents.values()) * w.dtype.size))

    def source(buffers: Buffers) -> Expr:
        element = buffers.resolve(load(w, index, w.dtype))
        return element if size.oc % tile.columns == 0 else select(column < size.oc, element, const(0.0, w.dtype))

    return to, copy_kernel(source, axes, storage, to, w.dtype)


def _places_of(number: Expr, taps: Sequence[tuple[int, ...]]) -> list[Expr]:
    """Place in the kernel of the tap of a number in a list, by a comparison with each."""
    places = [const(k) for k in taps[-1]]
    for n, tap in reversed(list(enumerate(taps[:-1]))):
        places = [select(eq(number, n), const(k), p) for k, p in zip(tap, places, strict=True)]
    return places


def _pack_each_tap(
    kernel: Array, size: Geometry, taps: Sequence[tuple[int, ...]], tile: Tile, transposed: bool
) -> Array:
    places = np.moveaxis(kernel, (0, 1), (-2, -1))
    chosen = np.stack([places[tap] for tap in taps])  # [tap][O][I of a group], or [tap][I][O of a group]
    if transposed:
        grouped = chosen.reshape(len(taps), size.groups, size.ic, size.oc).transpose(1, 0, 2, 3)
    else:
        grouped = chosen.reshape(len(taps), size.groups, size.oc, size.ic).transpose(1, 0, 3, 2)
    if kernel.dtype == np.int8:
        grouped = quads(grouped)
    return panels(grouped.reshape(size.groups, -1, size.oc), tile.columns).reshape(-1)
