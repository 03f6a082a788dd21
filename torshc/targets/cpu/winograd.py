"""Convolutions by Winograd's F(m x m, 3x3): (m + 2)^2 products for m^2 outputs in place of 9 m^2.

A. Lavin, S. Gray: Fast Algorithms for Convolutional Neural Networks, 2015, arXiv:1509.09308. With transforms G, B and
A, a tile of outputs is A [(G w G') * (B x B')] A', summed over the input channels. They evaluate polynomials at 0, at
pairs of points p and -p, and at infinity (Toom and Cook).

Convolutions of 4 to 6 taps a side, of stride 1 or 2, are a sum of four such ones (:class:`Parts`), whose products are
added before they are transformed back: 9 products an output in place of the 25 of 5x5, where tiles have 4x4.

Transforms weigh terms, so rounding errors of the sums grow. Where inputs and weights are independent, the variance of
an output is that of 3 products a dimension, and each point i adds A_ki^2 |B_i|^2 |G_i|^2 of it to output k, with the
errors that the sums at i have made. Their mean over k, as part of these 3, is the gain of a dimension. So an output has
the rounding errors of gain^2 (C + 12) roundings behind each other, where a plain sum over C channels has 9 C. 12 is
measured: what transforms round themselves. Points that are near 1 in size have the least gain: 5/8 and 3/2 of F(4)
have 4.8, the usual 1 and 2 have 10.8 (B. Barabasz et al., Error Analysis and Improving the Accuracy of Winograd
Convolution for Deep Neural Networks, ACM Trans. Math. Softw. 46, 2020).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from itertools import groupby, product
from typing import Any, ClassVar

import numpy as np

from ...expr import F32, U8, Expr, acc, as_int, axis, ceil_div, const, load, max_of, min_of, select
from ...graph import Node, Value
from ...kernels.base import Kernel, Packed, Store, Temporary
from ...kernels.heavy import (
    HeavyKernel,
    Strided,
    accumulated,
    add_buffer,
    copies_kernel,
    epilogue_flops,
    finish,
    join_stores,
    row_major,
    strided_operand,
    temporary,
    traffic,
)
from ...kernels.machine import Machine
from ...kernels.nest import Buffers
from ...plan.group import Group
from ...plan.storage import Storage
from .conv_shape import ElementAt, Geometry, bias_of, source_strides
from .gemm import GemmKernel
from .tiles import Blocks, Tile, choose_tile, come_from_far

Array = np.ndarray[Any, Any]
Row = tuple[Fraction, ...]
TRANSFORMING = 12  # channels whose sums have as many rounding errors as transforms themselves
CACHE = 768 << 10  # bytes of transformed values that stay in L2
TILES_LOW, TILES_HIGH = 12, 96  # tiles a block: weights are read again for each
FEW_BLOCKS = 8  # fewer leave threads without work
MANY_TILES = 16 * TILES_HIGH  # for a number of images that only a run knows
IMAGES = (*range(1, 17), 24, 32, 48, 64, 96, 128, 192, 256, 512, 1024)  # numbers that choices are made for then
PANEL_BLOCK = 4  # panels that are multiplied before they are transformed back
LARGEST = 2.0**40  # of weights, so that what they make of inputs up to 2^50 has no overflow
PLAIN_CYCLES = 0.55  # of a fused multiply-add of vectors
TRANSFORM_CYCLES = 5.0  # of a vector of a transformed tile
PACK_CYCLES = 15.0  # of a vector of weights that a run brings
FILTERS = 4096  # that are transformed at once, so that their points stay in a cache
BYTES_A_CYCLE = 5.0  # of weights that no cache holds
# The same of a processor with products of bf16, but no tiles: a Zen 4, which was measured, or a Zen 5. From 7.2 on F(4)
# takes longer there where an image has 9 tiles only.
BYTES_A_CYCLE_OF_ZEN = 7.0


@dataclass(frozen=True)
class Form:
    """F(m x m, 3x3).

    Attributes:
        pairs: the points p, of each of which there is -p too.
    """

    pairs: Row

    @property
    def outputs(self) -> int:
        """m: rows and columns of a tile of outputs."""
        return 2 * len(self.pairs)

    @property
    def points(self) -> int:
        """Rows and columns of a transformed tile."""
        return self.outputs + 2

    @property
    def name(self) -> str:
        return f"F({self.outputs}x{self.outputs}, 3x3)"

    @property
    def finite(self) -> Row:
        """The points but infinity, in the order of rows."""
        return (Fraction(0), *(s * p for p in self.pairs for s in (1, -1)))

    @cached_property
    def weights(self) -> tuple[Row, ...]:
        """G: a row evaluates a polynomial of three coefficients at a point, over the distances to the others."""
        rows = []
        for p in self.finite:
            apart = math.prod((p - q for q in self.finite if q != p), start=Fraction(1))
            rows.append(tuple(p**k / apart for k in range(3)))
        return (*rows, (Fraction(0), Fraction(0), Fraction(1)))

    @cached_property
    def inputs(self) -> tuple[Row, ...]:
        """B: a row has the coefficients of the polynomial that is zero at all finite points but one."""
        rows = [_polynomial([q for q in self.finite if q != p]) for p in self.finite]
        return (*((*row, Fraction(0)) for row in rows), _polynomial(self.finite))

    @cached_property
    def results(self) -> tuple[Row, ...]:
        """A: output k is the k-th powers of the points, times the products there."""
        last = self.outputs - 1
        return tuple(
            (*(p**k if k else Fraction(1) for p in self.finite), Fraction(int(k == last))) for k in range(last + 1)
        )

    def even(self, p: Fraction) -> Row:
        """B's rows of p and -p are x (x + p) and x (x - p) times this, of which these are every second coefficient."""
        return _polynomial([q * q for q in self.pairs if q != p])

    def odd(self, p: Fraction) -> Row:
        """The coefficients between them, in the row of p; that of -p has them with the other sign."""
        return tuple(p * c for c in self.even(p))

    @property
    def vanishing(self) -> Row:
        """B's rows of 0 and infinity are this, and x times this: every second coefficient."""
        return _polynomial([q * q for q in self.pairs])

    @cached_property
    def gain(self) -> float:
        """What a dimension makes of the variance of the sums' rounding errors, where a plain sum has 3."""
        sizes = [
            sum(b * b for b in bs) * sum(g * g for g in gs) for bs, gs in zip(self.inputs, self.weights, strict=True)
        ]
        means = [sum(a * a for a in column) / self.outputs for column in zip(*self.results, strict=True)]
        return float(sum(m * s for m, s in zip(means, sizes, strict=True)) / 3)

    def roundings(self, channels: int) -> int:
        """Roundings behind each other that have as large an error."""
        return math.ceil(self.gain**2 * (channels + TRANSFORMING))

    def choose_tile(self, machine: Machine, size: Geometry) -> Tile:
        """The register tile: as for other products, but of 32 columns where there are no more."""
        tile = choose_tile(machine, self.tiles(size), const(size.oc), const(size.ic))
        narrow = machine.choice("tile") is None and tile.columns > size.oc
        return replace(tile, vectors=size.oc // tile.lanes) if narrow else tile

    def tiles(self, size: Geometry) -> Expr:
        """Tiles of all images."""
        return size.images * ceil_div(size.oh, self.outputs) * ceil_div(size.ow, self.outputs)


def _polynomial(roots: list[Fraction] | Row) -> Row:
    """The coefficients of the product of x - r, the constant one first."""
    found = [Fraction(1)]
    for r in roots:
        found = [high - r * low for high, low in zip([Fraction(0), *found], [*found, Fraction(0)], strict=True)]
    return tuple(found)


# F(2) and F(4). F(6) at 1/2, 1 and 2, a gain of 20.6, took as long as F(4) wherever it was measured.
FORMS = (Form((Fraction(1),)), Form((Fraction(5, 8), Fraction(3, 2))))


@dataclass(frozen=True)
class Parts:
    """A convolution as a sum of 3x3 ones of stride 1. In each dimension tap t is tap a of part b where t is
    a stride + b apart, as output r reads the input at r stride + t - pad = (r + a) stride + b apart - pad.

    Attributes:
        side: parts in each dimension.
        stride: rows of the input from a row of a part to the next, the convolution's stride.
        apart: rows of the input from a part to the next: of stride 1 a part is a block of taps, of stride 2 every
            second one.
    """

    side: int
    stride: int
    apart: int

    @classmethod
    def of(cls, size: Geometry) -> Parts | None:
        """The parts of a convolution; None where it has none."""
        taps, stride = size.kernel[0], size.stride[0]
        if size.kernel != (taps, taps) or size.stride != (stride, stride) or size.dilation != (1, 1):
            return None
        if size.planes is not None:
            return None
        if (taps, stride) == (3, 1):
            return cls(1, 1, 3)
        return cls(2, stride, 3 if stride == 1 else 1) if 4 <= taps <= 6 and stride <= 2 else None

    def terms(self, size: Geometry) -> int:
        """Channels of a group in all parts, which products sum over."""
        return self.side**2 * size.ic

    def cut(self, filters: Array) -> Array:
        """[oc, ic, rows, columns] as [oc, part * ic, 3, 3], zeros where a part has no tap."""
        oc, ic, *sides = filters.shape
        padded = np.pad(filters, [(0, 0), (0, 0), *((0, 3 * self.side - k) for k in sides)])
        at = self.stride * np.arange(3) + self.apart * np.arange(self.side)[:, None]  # [part, tap]
        found = padded[:, :, at[:, None, :, None], at[None, :, None, :]]  # [oc, ic, part, part, tap, tap]
        return found.transpose(0, 2, 3, 1, 4, 5).reshape(oc, self.side**2 * ic, 3, 3)


@dataclass(frozen=True)
class TilesKernel(HeavyKernel):
    """What kernels over tiles of outputs have in common.

    Attributes:
        size: sizes of the convolution; channels of a group are multiples of the lanes, and where there are several
            groups, those of the output are multiples of a panel's columns.
        parts: the 3x3 convolutions that it is the sum of.
        form: how many outputs a tile has.
        x: the input, stepping along images, rows and pixels.
        tile: register tile of the products, whose rows are output tiles.
    """

    size: Geometry
    parts: Parts
    form: Form
    x: Strided
    tile: Tile

    @property
    def terms(self) -> int:
        """Channels that a product sums over."""
        return self.parts.terms(self.size)

    @property
    def tiles(self) -> Expr:
        """Output tiles of all images."""
        return self.form.tiles(self.size)

    @property
    def beside(self) -> Expr:
        """Tiles whose transformed values lie beside each other."""
        return self.tiles

    @property
    def wide(self) -> int:
        """Channels of a tile's sums."""
        return self.size.groups * self.panels * self.tile.columns

    @property
    def panels(self) -> int:
        """Panels of a group."""
        return -(-self.size.oc // self.tile.columns)

    @property
    def steps(self) -> tuple[Expr, Expr]:
        """Elements from one point to the next, of transformed inputs and of sums; no power of two, so that the points
        of a tile lie in different sets of the caches."""
        return self.beside * (self.size.groups * self.terms) + 16, self.beside * self.wide + 16


@dataclass(frozen=True)
class InputsKernel(TilesKernel):
    """Inputs of all tiles, transformed. A task is a tile.

    Attributes:
        v: buffer of the transformed inputs, [point][tile][group][part][ic].
        odd: buffer of bytes that say whether a tile's outputs have to be plain sums.
    """

    kind: ClassVar[str] = "winograd_inputs"
    template: ClassVar[str] = "winograd_inputs.c.j2"

    v: int
    odd: int


@dataclass(frozen=True)
class ResultsKernel(TilesKernel):
    """What kernels that transform sums back have in common.

    Attributes:
        pixels: output axes of the epilogue, neighbours joined.
        channel: axis of the output channels.
        plain: the weights as they are, stepping along channels out and in, rows and columns, for plain sums.
        checks: whether results that are not finite are computed again as plain sums: of weights that a run brings
            nothing is known. Else plain sums are for tiles alone whose inputs are not finite.
    """

    pixels: tuple[Expr, ...]
    channel: Expr
    plain: Strided
    checks: bool

    @property
    def approximation(self) -> str:
        """What makes results differ from the plain sum by more than its own rounding."""
        return f"winograd {self.form.name}" if self.roundings > self.size.taps * self.size.ic else ""

    @property
    def roundings(self) -> int:
        """See :meth:`Form.roundings`."""
        return self.form.roundings(self.terms)


@dataclass(frozen=True)
class OutputsKernel(ResultsKernel):
    """Outputs of all tiles, from their sums. A task is a tile.

    Attributes:
        products: buffer of the sums, [point][tile][panel][columns].
        odd: as of :class:`InputsKernel`.
    """

    kind: ClassVar[str] = "winograd_outputs"
    template: ClassVar[str] = "winograd_outputs.c.j2"

    products: int
    odd: int


@dataclass(frozen=True)
class WinogradKernel(ResultsKernel):
    """All three steps. Tasks are strips of tiles; those that a thread gets together are cut into blocks, each of which
    goes through all steps, so that transformed values stay in L2.

    Attributes:
        w: buffer of the transformed weights, [point][group][panel][part][ic][columns].
        block: the most tiles that go through all steps together.
        strips: the fewest tiles that are a task are those of a strip.
        panel_block: panels that are multiplied before they are transformed back.
    """

    kind: ClassVar[str] = "winograd"
    template: ClassVar[str] = "winograd.c.j2"

    w: int
    block: int
    strips: Expr
    panel_block: int

    @property
    def fetches(self) -> bool:
        """Whether tiles ask memory for the panels that come next."""
        return come_from_far(self.buffers[self.w])

    @property
    def beside(self) -> Expr:
        return const(self.block)

    @property
    def wide(self) -> int:
        """Channels that are multiplied before they are transformed back."""
        return self.panel_block * self.tile.columns

    @property
    def scratch(self) -> Expr:
        return sum(self.steps, const(0)) * (4 * self.form.points**2) + -(-self.block // 64) * 64


@dataclass(frozen=True)
class Choice:
    """What computes a convolution of some numbers of images.

    Attributes:
        images: the most that it is for; None for any number.
        form: the form; None for plain sums.
        apart: whether the three steps are a kernel each: where blocks of tiles are few, as no cache holds the weights
            that each block reads again. Then each weight is read once, whatever the number of threads.
    """

    images: int | None
    form: Form | None
    apart: bool = False


def choose_forms(size: Geometry, w: Value, machine: Machine, rate: int = 1) -> list[Choice]:
    """What takes the least time among plain sums and the forms whose error is allowed, by the number of images, from
    few to many; nothing where it is plain sums for any number.

    Args:
        rate: how many times faster than products of f32 those of a plain sum are.
    """
    sizes = [as_int(e) for e in (size.oh, size.ow, size.ih, size.iw, *size.pad)]
    parts = Parts.of(size)
    if machine.slack is None or parts is None or None in sizes or not all(sizes[:2]):
        return []
    if size.ic % machine.lanes or size.oc % machine.lanes or not _is_moderate(w):
        return []
    if w.const is None and parts.side > 1:
        return []
    # Weights that a run brings are mostly trained: gradients are to be as near as by plain sums.
    plain, terms = size.taps * size.ic, parts.terms(size)
    least = plain if w.const is None else max(machine.slack, plain)
    allowed = [f for f in FORMS if f.roundings(terms) <= least]
    if size.groups > 1 and any(size.oc % f.choose_tile(machine, size).columns for f in allowed):
        return []

    def packing(points: int) -> float:
        vectors = terms * size.groups * size.oc // machine.lanes
        return 0.0 if w.const is not None else PACK_CYCLES * points * vectors

    def cycles(form: Form, some: Geometry) -> float:
        return packing(form.points**2) + _cycles(form, some, terms, machine)

    def choose(images: int) -> tuple[Form | None, bool]:
        some = replace(size, images=const(images))
        form = min(allowed, key=lambda f: cycles(f, some), default=None)
        if form is None or cycles(form, some) >= packing(size.taps) + _plain_cycles(some, machine) / rate:
            return None, False
        if _weights(form, size, terms) <= CACHE:
            return form, False
        blocks = as_int(ceil_div(form.tiles(some), _block(form, size, terms, form.choose_tile(machine, size))))
        return form, (blocks or 0) < FEW_BLOCKS

    count = as_int(size.images)
    runs = [(key, max(some)) for key, some in groupby(IMAGES if count is None else [count], key=choose)]
    choices = [*(Choice(most, *key) for key, most in runs[:-1]), Choice(None, *runs[-1][0])]
    return choices if any(c.form for c in choices) else []


def _is_moderate(w: Value) -> bool:
    return w.const is None or bool(np.all(np.abs(w.const) <= LARGEST))  # False of NaN


def _weights(form: Form, size: Geometry, terms: int) -> int:
    """Bytes of transformed weights."""
    return 4 * form.points**2 * terms * size.groups * size.oc


def _bytes_a_cycle(machine: Machine) -> float:
    # A Xeon that refuses tiles, or whose library uses none, has products of f16 too.
    zen = "avx512bf16" in machine.extras and not {"amx-tile", "avx512fp16"} & {*machine.extras}
    return BYTES_A_CYCLE_OF_ZEN if zen else BYTES_A_CYCLE


def _cycles(form: Form, size: Geometry, terms: int, machine: Machine) -> float:
    """Time of a core, for comparisons."""
    lanes, points, tiles = machine.lanes, form.points**2, as_int(form.tiles(size)) or 0
    vectors = size.groups * size.oc // lanes
    products = PLAIN_CYCLES * points * tiles * terms * vectors
    transforms = TRANSFORM_CYCLES * points * tiles * (size.groups * terms // lanes + vectors)
    return max(products, _weights(form, size, terms) / _bytes_a_cycle(machine)) + transforms


def _plain_cycles(size: Geometry, machine: Machine) -> float:
    pixels = math.prod(as_int(e) or 0 for e in (size.images, size.oh, size.ow))
    products = PLAIN_CYCLES * size.taps * pixels * size.ic * (size.groups * size.oc // machine.lanes)
    return max(products, 4 * size.taps * size.ic * size.groups * size.oc / _bytes_a_cycle(machine))


def lower_winograd(
    group: Group,
    node: Node,
    size: Geometry,
    choice: Choice,
    machine: Machine,
    element: ElementAt,
    storage: Mapping[Value, Storage],
) -> list[Kernel]:
    """The kernels of a convolution by the form that was chosen for it."""
    form, parts = choice.form, Parts.of(size)
    assert form is not None and parts is not None
    tile, terms = form.choose_tile(machine, size), parts.terms(size)
    weights, before = _pack(node.operands[1], size, parts, form, tile, storage, group.id)
    buffers, tiles = Buffers(storage), form.tiles(size)
    shared: dict[str, Any] = {
        "size": size, "parts": parts, "form": form, "x": source_strides(element, size, buffers), "tile": tile
    }  # fmt: skip
    if not choice.apart:
        w, block = add_buffer(buffers, weights), _block(form, size, terms, tile)
        strips = max_of(ceil_div(tiles, block), _strips(form, size, terms, tile))
        more = {"w": w, "block": block, "strips": strips, "panel_block": PANEL_BLOCK}
        return [*before, _with_results(WinogradKernel, group, node, buffers, strips, shared | more)]
    points, name = form.points**2, f"of_{form.outputs}"
    made = InputsKernel(buffers=(), tasks=tiles, flops=const(0), nbytes=const(0), stores=(), v=0, odd=0, **shared)
    v, sums = (
        Temporary(f"{n}_{name}", group.id, step * (4 * points))
        for n, step in zip(("inputs", "sums"), made.steps, strict=True)
    )
    odd = Temporary(f"odd_{name}", group.id, tiles)
    inputs = replace(made, v=add_buffer(buffers, v, written=True), odd=add_buffer(buffers, odd, written=True, dtype=U8))
    nbytes = v.nbytes + node.operands[0].type.nbytes
    inputs = replace(inputs, buffers=tuple(buffers.list), nbytes=nbytes)
    products = _products(made, weights, v, sums, storage, node.op.flops(node))
    buffers = Buffers(storage)
    shared["x"] = source_strides(element, size, buffers)
    more = {"products": add_buffer(buffers, sums), "odd": add_buffer(buffers, odd, dtype=U8)}
    outputs = _with_results(OutputsKernel, group, node, buffers, tiles, shared | more)
    return [*before, inputs, products, outputs]


def _with_results(
    kind: type[ResultsKernel],
    group: Group,
    node: Node,
    buffers: Buffers,
    tasks: Expr,
    fields: dict[str, Any],
) -> ResultsKernel:
    """A kernel with the epilogue of the group."""
    size, w = fields["size"], node.operands[1]
    plain = plain_weights(w, size, buffers)
    assert plain is not None
    channel = axis("c", size.groups * size.oc)
    named = [axis(n, e) for n, e in (("n", size.images), ("h", size.oh), ("w", size.ow))]
    n, h, v = (const(0) if as_int(a.args[0]) == 1 else a for a in named)
    stores = finish(group, node, accumulated(group, bias_of(node), channel), size.index(n, channel, h, v), buffers)
    pixels, stores = join_stores([a for a in (n, h, v) if a.op == "axis"], stores)
    whole = kind is WinogradKernel
    return kind(
        buffers=tuple(buffers.list),
        tasks=tasks,
        flops=(node.op.flops(node) if whole else const(0)) + epilogue_flops(stores, node.output.type.size),
        nbytes=traffic(buffers.list, group.outputs),
        stores=tuple(stores),
        pixels=tuple(pixels),
        channel=channel,
        plain=plain,
        checks=w.const is None,
        **fields,
    )


def plain_weights(w: Value, size: Geometry, buffers: Buffers) -> Strided | None:
    """Weights as they are, of floats: steps along channels out and in, rows and columns; None where they have none."""
    named = {"c": size.groups * size.oc, "k": size.ic, "t0": size.kernel[0], "t1": size.kernel[1]}
    axes = [axis(name, n) for name, n in named.items()]
    if w.const is None:
        return strided_operand(buffers.resolve(load(w, tuple(axes), w.dtype)), axes)
    floats = Packed(w, "f32", lambda array: [array.astype(F32.numpy)], 4 * math.prod(named.values()), F32)
    return strided_operand(temporary(add_buffer(buffers, floats), row_major(axes)), axes)


def _products(
    made: TilesKernel,
    weights: Packed | Temporary,
    v: Temporary,
    sums: Temporary,
    storage: Mapping[Value, Storage],
    flops: Expr,
) -> GemmKernel:
    """The products of all points, matrices of a batch. A task is a point's panel, by some of the tiles."""
    size, tile, points, (v_step, sum_step) = made.size, made.tile, made.form.points**2, made.steps
    buffers = Buffers(storage)
    a, b = add_buffer(buffers, v), add_buffer(buffers, weights)
    to = add_buffer(buffers, sums, written=True)
    point, m, n = axis("p", points), axis("m", made.tiles), axis("c", size.oc)
    group = axis("g", size.groups) if size.groups > 1 else const(0)
    blocks, terms = Blocks(ceil_div(made.tiles, TILES_HIGH), const(made.panels)), made.terms
    return GemmKernel(
        buffers=tuple(buffers.list),
        tasks=blocks.m * blocks.n * (points * size.groups),
        flops=flops,
        nbytes=v.nbytes + weights.nbytes + sums.nbytes,
        stores=(Store(to, point * sum_step + m * made.wide + group * size.oc + n, acc("acc", F32)),),
        batch=(point, group) if size.groups > 1 else (point,),
        m=m,
        n=n,
        k=const(terms),
        a=Strided(a, point * v_step + group * terms, (const(size.groups * terms),)),
        b=Strided(b, (point * size.groups + group) * (made.panels * terms * tile.columns), ()),
        tile=tile,
        blocks=blocks,
        k_blocks=1,
    )


def _block(form: Form, size: Geometry, terms: int, tile: Tile) -> int:
    """Tiles of the blocks with which the fewest bytes come from beyond L2, where one thread has all.

    Weights come once a block, the transformed input once for each group of panels that is multiplied at a time.
    """
    count, points, wide = as_int(form.tiles(size)) or MANY_TILES, form.points**2, PANEL_BLOCK * tile.columns
    weights = _weights(form, size, terms)

    def far(blocks: int) -> int:
        block = -(-count // blocks)
        held = 4 * points * block * (size.groups * terms + min(size.groups * size.oc, wide))
        inputs = 4 * points * count * terms * size.groups * -(-size.oc // wide) if held > CACHE else 0
        return weights * blocks * (weights > CACHE) + inputs

    least, most = -(-count // TILES_HIGH), max(1, count // TILES_LOW)
    return -(-count // min(range(least, max(least, most) + 1), key=lambda b: (far(b), -b)))


def _strips(form: Form, size: Geometry, terms: int, tile: Tile) -> Expr:
    """Strips of tiles that fill the rows of register tiles, where a core's cache holds the weights."""
    return form.tiles(size) // tile.rows if _weights(form, size, terms) <= CACHE else const(1)


def _pack(
    w: Value, size: Geometry, parts: Parts, form: Form, tile: Tile, storage: Mapping[Value, Storage], owner: int
) -> tuple[Packed | Temporary, list[Kernel]]:
    """Transformed weights; and of those that a run brings the kernel that makes them."""
    terms, panels = parts.terms(size), -(-size.oc // tile.columns)
    nbytes = form.points**2 * size.groups * panels * tile.columns * terms * 4
    if w.const is not None:
        points = ", ".join(map(str, form.pairs))
        how = f"{form.name} at {points}, {parts}, panels of {tile.columns}"
        return Packed(w, how, lambda array: [_transform(form, parts.cut(array), tile.columns)], nbytes, F32), []
    to = Temporary(f"weights_of_{form.outputs}", owner, const(nbytes))
    axes = [axis("g", size.groups), axis("p", panels), axis("k", terms), axis("c", tile.columns)]
    g, p, k, c = (const(0) if as_int(a.args[0]) == 1 else a for a in axes)
    column = p * tile.columns + c
    channel = g * size.oc + min_of(column, size.oc - 1)

    def transformed(buffers: Buffers) -> list[Expr]:
        taps = [[buffers.resolve(load(w, (channel, k, const(i), const(j)), F32)) for i in range(3)] for j in range(3)]
        rows = zip(*(_at_points(form, column) for column in taps), strict=True)
        points = [e for row in rows for e in _at_points(form, row)]
        return [e if size.oc % tile.columns == 0 else select(column < size.oc, e, const(0.0, F32)) for e in points]

    return to, [copies_kernel(transformed, axes, storage, to)]


def _at_points(form: Form, taps: Sequence[Expr]) -> list[Expr]:
    """Sums of three taps by each row of G, of which those of p and -p differ in the sign of the middle one alone."""
    (low, *_), *pairs, _ = form.weights
    found = [taps[0] * const(float(low), F32)]
    for row in pairs[::2]:
        first, middle, last = (t * const(float(f), F32) for t, f in zip(taps, row, strict=True))
        found += [first + last + middle, first + last - middle]
    return [*found, taps[2]]


def _transform(form: Form, filters: Array, columns: int) -> Array:
    """G w G' of filters [oc, terms, 3, 3], computed in f64: [point, point, panel, terms, columns], zero padded."""
    oc, terms, *_ = filters.shape
    count, points = -(-oc // columns), form.points
    packed = np.zeros((points, points, count, terms, columns), F32.numpy)
    some = max(1, FILTERS // columns)
    for panel, at in product(range(count), range(0, terms, some)):
        part = filters[panel * columns : (panel + 1) * columns, at : at + some]
        taps = np.ascontiguousarray(part.transpose(2, 3, 1, 0), np.float64)
        for j, rows in enumerate(_weighted(form.weights, _weighted(form.weights, taps).swapaxes(0, 1))):
            packed[:, j, panel, at : at + some, : part.shape[0]] = rows
    return packed


def _weighted(weights: Sequence[Row], parts: Array) -> Array:
    """Sums of parts [part, ...] by each row of weights: [row, ...]. No product of matrices, whose order of sums, and so
    the last bit of a result, depends on the processor."""
    sums = np.zeros((len(weights), *parts.shape[1:]))
    for row, total in zip(weights, sums, strict=True):
        for weight, part in zip(row, parts, strict=True):
            if weight:
                total += part * float(weight)
    return sums
