"""Matrix products: MatMul, and whatever is one underneath (a 1x1 convolution)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from ...expr import BF16, F32, F64, I8, I32, U8, DType, Expr, acc, as_int, axis, ceil_div, const, load, product
from ...expr.affine import contains
from ...graph import Node, Value
from ...kernels.axes import make_axes
from ...kernels.base import Kernel, Packed, Store, Temporary
from ...kernels.generic import lower_generic
from ...kernels.heavy import (
    Source,
    Strided,
    add_buffer,
    copy_kernel,
    epilogue_flops,
    finish,
    is_empty,
    join_bodies,
    plain,
    read_through,
    row_major,
    strided_operand,
    temporary,
    traffic,
)
from ...kernels.machine import Machine
from ...kernels.nest import Buffers
from ...kernels.totals import add_totals
from ...ops.core.base import Index, broadcast_index
from ...ops.quant.narrow import BlockMatMul
from ...plan.group import Group
from ...plan.storage import Storage
from .base import CpuTarget
from .bf16 import AmxKernel, Bf16GemmKernel, DotKernel, choose_form
from .int8 import Int8AmxKernel
from .nibbles import NibblesKernel, with_digits
from .pack import HALF_COLUMNS, QUAD, WORD_COLUMNS, Panels, pack_at_run_time, pack_constant
from .tiles import (
    BLOCK_ROWS,
    FEW_ROWS,
    Blocks,
    ProductKernel,
    Tile,
    choose_blocks,
    choose_tile,
    come_from_far,
    has_seven_bits,
    partial_sums,
    split_k,
)

HALF_BITS = 16
FLOAT_BYTES = 64 * 1024  # of weights of bf16, as floats, that tiles read again
WIDE_ROWS = 192  # of a block, which makes all weights floats
WIDE_BYTES = 384 * 1024  # of such rows, which L2 holds for all columns
CHUNK_TERMS = 256  # of weights that are made floats at a time: they stay in the nearest cache
FAR_ROWS_BYTES = 1 << 22  # of the left operand's rows, which no cache of a core holds
PACK_ROWS = 3  # fewer rows than this do not repay the packing of the right operand


@dataclass(frozen=True)
class GemmKernel(ProductKernel):
    """A product of floats, of floats with weights of bf16 or scaled ones of 8 or 4 bits, or of bytes.

    Class attributes:
        many_tiles: of rows of a task, which repay that scaled weights are made floats before.

    Attributes:
        k_blocks: number of pieces that k is summed in.
        scale: of panels of i8, what blocks of rows are multiplied with, in panels [blocks]; None of others.
        block: rows of such a block.
        bits: of an element of panels that are made floats: 16 of bf16 (:func:`.pack.words_of_halves`), fewer of those
            that are scaled; two of 4 share a byte (:func:`.pack.nibbles`).
        exact: whether sums are cut as for any number of rows, where these are known.

    Where a is of bytes, words of the panels hold four i8 of one column (:func:`.pack.quads`), and sums are i32.
    """

    template: ClassVar[str] = "gemm.c.j2"
    many_tiles: ClassVar[int] = 4

    k_blocks: int
    scale: Strided | None = None
    block: int = 1
    bits: int = 8
    exact: bool = False

    @property
    def sums(self) -> DType:
        rows = self.buffers[self.a.buffer].dtype
        return {U8: I32, F64: F64}.get(rows, F32)

    @property
    def finishes(self) -> Sequence[tuple[Sequence[Store], Collection[int]]]:
        return [] if self.adds_up else [(self.stores, {self.a.buffer, self.b.buffer})]

    @property
    def depth(self) -> Expr:
        """Length of a panel's columns, in floats or words."""
        return self.k if self.sums is not I32 else ceil_div(self.k, QUAD)

    @property
    def halves(self) -> bool:
        """Whether weights are of bf16."""
        return self.scale is None and self.bits == HALF_BITS

    @property
    def wide(self) -> bool | None:
        """Whether tasks have tiles of rows enough to keep weights as floats; None where some do, or a run says."""
        tiles, blocks = as_int(self.tile.tiles(self.m.args[0])), as_int(self.blocks.m)
        if tiles is None or not blocks:
            return None
        many = 2 if self.halves else self.many_tiles  # the first tile makes floats of halves for the next
        least, most = tiles // blocks >= many, -(-tiles // blocks) >= many
        return least if least == most else None

    @property
    def chunk(self) -> int:
        """Terms whose weights tiles read as floats, scaled ones in whole blocks; 0 where tiles are too few for that.

        The sums are the same, in the same order, however the weights are read.
        """
        if self.wide is False or not (self.halves or self.scale):
            return 0
        if self.halves:
            pairs = -(-(as_int(self.k) or 1) // (2 * self.k_blocks))
            return 2 * -(-pairs // max(round(pairs * 2 * self.tile.columns * F32.size / FLOAT_BYTES), 1))
        return 0 if self.block > CHUNK_TERMS or self.block % 2 else CHUNK_TERMS // self.block * self.block

    @property
    def fetches(self) -> bool:
        """Whether tiles of floats or bytes ask memory for the panels that come next."""
        return self.scale is None and come_from_far(self.buffers[self.b.buffer])

    @property
    def seven_bits(self) -> bool:
        """Whether bytes are multiplied by weights of 7 bits."""
        return self.sums is I32 and has_seven_bits(self.buffers[self.b.buffer])

    @property
    def rows_ahead(self) -> bool:
        """Whether tiles of floats ask memory for the next one's rows, which follow theirs and no cache of a core holds.

        Loads of several rows in turn look like no stream to a processor.
        """
        images = self.batch if self.adds_up else ()
        rows, depth = as_int(product([a.args[0] for a in (*images, self.m)])), as_int(self.k)
        if self.sums is not F32 or self.scale is not None or self.k_blocks > 1 or rows is None or depth is None:
            return False
        if self.halves and (self.fetches or self.chunk < depth):
            return False
        return as_int(self.a.steps[0]) == depth and rows * depth * self.sums.size >= FAR_ROWS_BYTES

    @property
    def scratch(self) -> Expr:
        floats = const(self.chunk * self.tile.columns * F32.size)
        if self.k_blocks > 1:
            panels = self.tile.panels(self.n.args[0])
            return floats + partial_sums(self.tile, self.m.args[0], panels, self.blocks, self.sums)
        if not self.chunk:
            return const(0)
        return floats + partial_sums(self.tile, self.m.args[0], const(1), Blocks(self.blocks.m, const(1)))


@dataclass(frozen=True)
class Product:
    """A product to be lowered, over row axes, a column axis and k.

    Attributes:
        rows: batch and row axes of the output, outermost first; b may depend on some of them.
        n, k: column axis and axis of the sum.
        a: makes the element of the left operand.
        b: element of the right operand, the load of a value at logical indices.
        result: element of the anchor's output, made from ``acc``, at `index`.
        scale: of blocks of b's rows, [blocks, N] floats, when there is one.
        block: rows of such a block.
        bits: that an element of b which is made a float needs: 16 of bf16, of one that is scaled 4 or 8.
        pixels: of an image, where rows are the pixels of images one after the other; else None.
    """

    rows: Sequence[Expr]
    n: Expr
    k: Expr
    a: Source
    b: Expr
    result: Expr
    index: Index
    scale: Value | None = None
    block: int = 1
    bits: int = 8
    pixels: Expr | None = None

    @property
    def halves(self) -> bool:
        """Whether b is of bf16, and a where there are instructions for that."""
        return self.bits == HALF_BITS


@CpuTarget.lowers("gemm")
def lower_gemm(group: Group, storage: Mapping[Value, Storage], machine: Machine) -> list[Kernel]:
    """The kernels of a MatMul and its epilogue."""
    node = group.anchor
    assert node is not None
    if any(is_empty(v) for v in group.outputs):
        return []
    a, b = node.operands[:2]
    depth = a.shape[-1] if as_int(a.shape[-1]) is not None else b.shape[max(b.type.rank - 2, 0)]
    columns = b.shape[-1] if b.type.rank > 1 else const(1)
    floats = {a.dtype, b.dtype, node.output.dtype} in ({F32}, {F64})
    if (
        not (floats or is_bytes(node) or is_scaled(node) or is_halves(node))
        or as_int(columns) == 1
        or as_int(depth) == 0
    ):
        return lower_generic(group, storage)
    made = lower_product(group, node, _product(group, node, depth, columns), storage, machine)
    return lower_generic(group, storage) if made is None else made


def is_bytes(node: Node) -> bool:
    """Whether a node multiplies u8 by constant i8: what kernels do with bytes."""
    x, w = node.operands[:2]
    return x.dtype is U8 and w.dtype is I8 and w.const is not None and node.output.dtype is I32


def is_halves(node: Node) -> bool:
    """Whether a node multiplies by constant bf16 and keeps the sums in f32."""
    w = node.operands[1]
    return w.dtype is BF16 and w.const is not None and node.output.dtype is F32


def is_scaled(node: Node) -> bool:
    """Whether a node multiplies floats by constant i8 that are scaled in blocks."""
    return isinstance(node.op, BlockMatMul) and all(v.const is not None for v in node.operands[1:])


def _product(group: Group, node: Node, depth: Expr, columns: Expr) -> Product:
    a, b = node.operands[:2]
    rows = int(a.type.rank > 1)
    outer = node.output.shape[:-1]
    index, axes = make_axes(outer, None, "i")
    n = axis("n", columns)
    k = axis("k", depth)
    at_k = const(0) if as_int(depth) == 1 else k
    batch = index[: len(index) - rows]
    left = (*broadcast_index(batch, a.shape[:-2]), *index[len(index) - rows :], at_k)
    right = (*broadcast_index(batch, b.shape[:-2]), at_k, n)
    return Product(
        rows=axes,
        n=n,
        k=k,
        a=lambda buffers: buffers.resolve(read_through(group, a, left)),
        b=read_through(group, b, right),
        result=acc("acc", node.output.dtype),
        index=(*index, n),
        scale=node.operands[2] if is_scaled(node) else None,
        block=node.op.block if isinstance(node.op, BlockMatMul) else 1,
        bits=HALF_BITS if is_halves(node) else 4 if is_scaled(node) and _fits_in_nibbles(node) else 8,
    )


def _fits_in_nibbles(node: Node) -> bool:
    """Whether weights need 4 bits only, and no block ends within a byte of two."""
    w, op = node.operands[1].const, node.op
    assert w is not None and isinstance(op, BlockMatMul)
    return w.shape[0] % 2 == 0 and op.block % 2 == 0 and w.min(initial=0) >= -8 and w.max(initial=0) <= 7


def lower_product(
    group: Group, anchor: Node, p: Product, storage: Mapping[Value, Storage], machine: Machine
) -> list[Kernel] | None:
    """Kernels of a product, or None when an operand cannot be walked or packing b would not pay."""
    if p.b.op != "load":
        return None
    buffers = Buffers(storage)
    rows = product([a.args[0] for a in p.rows if not contains(p.b, a)])
    form = _form(p, as_int(rows), as_int(p.k.args[0]), machine)
    left, before = _read_left_operand(group, p, form, buffers, storage)
    tile = choose_tile(machine, rows, p.n.args[0], p.k.args[0], p.b.dtype)
    if form is not None:
        tile = form.choose_tile(machine.lanes, as_int(rows))
    elif p.halves:
        tile = _streaming_tile(machine.lanes, as_int(rows)) or tile
    if form is DotKernel:
        tile = DotKernel.narrow_tile(tile, as_int(rows), as_int(p.k.args[0] * p.n.args[0]))
    packed = _panels(group, p, rows, tile, form, storage)
    if packed is None:
        return None
    kind = packed.operand.dtype if isinstance(packed.operand, Packed) else None
    panels = add_buffer(buffers, packed.operand, dtype=kind or p.b.dtype)
    scale = _scale_panels(p, tile if form is None else Tile(1, 1, WORD_COLUMNS), buffers)
    stores = finish(group, anchor, p.result, p.index, buffers)
    joins, apart, columns = list[Kernel](), list[Expr](), p.n.args[0]
    if group.totals and p.pixels is not None and form is None:
        parts = choose_blocks(machine, tile, p.pixels, tile.panels(columns), const(0), const(1)).m
        totals, joins = add_totals(group, anchor, [(p.result, p.index)], parts, machine.lanes, buffers, storage)
        stores, apart = [*stores, *totals], [p.index[0]]  # so that no block of rows has pixels of two images
    axes, stores, (offset, start, *_) = join_bodies(list(p.rows), stores, left.args[0], packed.start, *apart)
    free = [a for a in axes if not contains(start, a)]
    m = free[-1] if free else axis("m", 1)
    batch = [a for a in axes if a is not m]
    walked = strided_operand(load(left.data, (offset,), left.dtype), [m, p.k])
    if walked is None:
        return None
    size, depth = m.args[0], p.k.args[0]
    if joins and size is not p.pixels:
        return lower_product(group, anchor, replace(p, pixels=None), storage, machine)
    count = product([a.args[0] for a in batch])
    work = size * columns * depth * count * 2
    k_blocks = split_k(machine, size, depth) if p.b.dtype.is_float and form is None else 1
    usual = _rows_of_block(depth // k_blocks) if p.halves else BLOCK_ROWS
    blocks = choose_blocks(machine, tile, size, tile.panels(columns), work, count, usual, along=not (joins or p.halves))
    if form is not None and issubclass(form, Bf16GemmKernel):
        blocks = form.choose_blocks(machine, tile, size, columns, depth, count, not form.reads_rows, form.block_bytes)
    elif form is not None:
        blocks = form.choose_blocks(machine, tile, size, columns, depth, count)
    made = ProductKernel(
        buffers=tuple(buffers.list),
        tasks=count * blocks.m * blocks.n,
        flops=anchor.op.flops(anchor) + epilogue_flops(stores, anchor.output.type.size),
        nbytes=traffic(buffers.list, group.outputs),
        stores=tuple(stores),
        batch=tuple(batch),
        m=m,
        n=p.n,
        k=depth,
        a=Strided(walked.buffer, walked.start, walked.steps[:1]),
        b=plain(panels, start),
        tile=tile,
        blocks=blocks,
    )
    before += [packed.kernel] if packed.kernel else []
    if form is NibblesKernel:
        assert scale is not None  # of weights of bits
        return [*before, *with_digits(made, scale, p.block, group.id)]
    kernel = (
        GemmKernel.of(made, k_blocks=k_blocks, scale=scale, block=p.block, bits=p.bits, exact=machine.exact_batches)
        if form is None
        else form.of(made)
    )
    return [*before, kernel.spread() if isinstance(kernel, AmxKernel) else kernel, *joins]


def _form(
    p: Product, rows: int | None, depth: int | None, machine: Machine
) -> type[Bf16GemmKernel] | type[Int8AmxKernel] | type[NibblesKernel] | None:
    """What multiplies narrow types; None where it is the kernel of floats, or its words of bytes."""
    few = None if machine.exact_batches else rows  # for which sums of floats have another order
    if p.halves:
        return choose_form(machine.extras, few)
    if p.scale is not None:
        return NibblesKernel if p.bits == 4 and NibblesKernel.suits(machine, few, depth, p.block) else None
    return Int8AmxKernel if p.b.dtype is I8 and p.scale is None and Int8AmxKernel.suits(machine, rows) else None


def _streaming_tile(lanes: int, rows: int | None) -> Tile | None:
    """The tile of few rows of a product with halves, which reads whole panels.

    One or two rows by vectors of 8 take two panels at a time: sums of one wait for each other, as they have one order.
    """
    if rows is None or rows > FEW_ROWS:
        return None
    panels = 4 if lanes == 16 else 2 if lanes == 8 and rows <= 2 else 1
    return Tile(3 if lanes == 4 else 2 if lanes == 1 else rows, panels * HALF_COLUMNS // lanes, lanes)


def _rows_of_block(depth: Expr) -> int:
    """Rows of a block that makes floats of weights: many, which L2 holds for all columns."""
    return min(max(WIDE_BYTES // (F32.size * (as_int(depth) or 1)), BLOCK_ROWS), WIDE_ROWS)


def _read_left_operand(
    group: Group, p: Product, form: type[ProductKernel] | None, buffers: Buffers, storage: Mapping[Value, Storage]
) -> tuple[Expr, list[Kernel]]:
    """The left operand's element, with k innermost: as it lies, or of a copy and the kernel that makes it."""
    tried = Buffers(storage)
    element = p.a(tried)
    walked = strided_operand(element, [p.k])
    if walked is not None and (as_int(walked.steps[0]) == 1 or as_int(p.k.args[0]) == 1):
        return p.a(buffers), []
    axes, dtype = [*(a for a in p.rows if contains(element, a)), p.k], BF16 if p.halves and form else element.dtype
    to = Temporary("rows", group.id, product([a.args[0] for a in axes]) * dtype.size)
    moved = temporary(add_buffer(buffers, to, dtype=dtype), row_major(axes), dtype)
    return moved, [copy_kernel(p.a, axes, storage, to, dtype)]


def _scale_panels(p: Product, tile: Tile, buffers: Buffers) -> Strided | None:
    """Scales of blocks in panels as those of b are."""
    if p.scale is None:
        return None
    blocks = axis("q", p.scale.shape[0])
    at = const(0) if as_int(blocks.args[0]) == 1 else blocks
    packed = pack_constant(load(p.scale, (at, p.n), F32), (), blocks, p.n, tile)
    assert packed is not None  # a constant at plain indices
    return plain(add_buffer(buffers, packed.operand), packed.start)


def _panels(
    group: Group, p: Product, rows: Expr, tile: Tile, form: type[ProductKernel] | None, storage: Mapping[Value, Storage]
) -> Panels | None:
    source, count = p.b.data, as_int(rows)
    assert isinstance(source, Value)
    if source.const is not None:
        if p.halves:
            return pack_constant(p.b, p.rows, p.k, p.n, Tile(1, 1, HALF_COLUMNS), "halves")
        if form is Int8AmxKernel:
            return pack_constant(p.b, p.rows, p.k, p.n, Tile(1, 1, WORD_COLUMNS), "steps")
        if form is NibblesKernel:
            return pack_constant(p.b, p.rows, p.k, p.n, Tile(1, 1, WORD_COLUMNS), "words of nibbles")
        words = "nibbles" if p.bits == 4 else "words" if p.b.dtype is I8 and p.scale is None else ""
        return pack_constant(p.b, p.rows, p.k, p.n, tile, words)
    if count is not None and count < PACK_ROWS:
        return None
    return pack_at_run_time(p.b, p.rows, p.k, p.n, tile, storage, group.id)
