"""Sums of products on devices of blocks of threads: MatMul, Conv, its gradients and ConvTranspose by one kernel.

The operator's own nest says what is multiplied. Output axes with which only the first factor moves are rows, those of
the second alone are columns, those of both are a batch of independent products; a product is computed tile by tile
through shared memory. A grouped convolution is a batch of groups, a transposed one a product for each phase of its
stride, and a product of a single row or column a reduction whose threads share a row.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from itertools import product as cartesian
from typing import Any, ClassVar

from ...base.budget import budget
from ...expr import (
    BF16,
    F16,
    F32,
    F64,
    DType,
    Expr,
    acc,
    as_expr,
    as_int,
    axis,
    call,
    ceil_div,
    const,
    load,
    product,
    select,
    substitute,
)
from ...expr.affine import contains, divisor_of, split_axis, strides_along
from ...expr.index import poly_of
from ...graph import Node, Value
from ...kernels.axes import join_axes
from ...kernels.base import Kernel, Store, Temporary
from ...kernels.heavy import epilogue_flops, finish, is_empty, join_bodies, row_major, traffic
from ...kernels.machine import Choice, Device, Machine
from ...kernels.nest import Accumulator, Buffers, MapKernel, RowKernel, Stage
from ...ops.core.base import Index, LoopNest
from ...ops.math.bits import RoundToTf32
from ...ops.quant.narrow import PairLayer, PairMatMul
from ...plan.group import Group
from ...plan.inline import Inliner
from ...plan.storage import Storage
from .base import GridTarget
from .contraction_choice import (
    EXACT,
    GROUP_EXACT,
    SEVERAL,
    UNKNOWN,
    Cut,
    Given,
    choose,
    choose_by_size,
    float_tiles,
    joins,
    mma_tiles,
)
from .contraction_factor import Term, add_operand, as_product, bring, make_factor, unguard
from .contraction_kernels import ContractionKernel, GroupMmaKernel, MmaKernel, Tf32Kernel
from .contraction_tiles import AnyTile, GroupTile, MmaTile, Tf32GroupTile, Tf32Tile
from .cuda.contraction_int4 import lower_int4
from .depthwise import by_channels
from .depthwise_weights import lower_depthwise_weights
from .grid import GridRow, to_grid, to_row
from .nests import lower_grid_generic

THIN = 8  # rows or columns below which tiles would be nearly empty
MANY = 32768  # results that keep a device busy with a thread for each
SHORT = 64  # terms of a sum that one thread may as well add up
SHARING = 16  # short sums, about, that share the slack of one kernel
PACKET_BYTES = 16  # of neighbours that a thread reads at once; f64 are read four at a time all the same
FEW_ROWS = 64  # half of those of most tiles
FEW_PIECES = 8  # of a sum, up to which a result's states are more bytes than they
COPIED = 1024  # rows from which on the other factor may as well be copied, to lie as it is read
GROUPED = {"conv": 1, "conv_transpose": 1, "conv_weights": 0}  # dimension of the results that groups share
PARTS = "parts"  # axis of the pieces of sums


@dataclass(frozen=True)
class Space:
    """Where a product runs.

    Attributes:
        index: logical index of an element of the anchor's output.
        inner: index of a term of its sum.
        axes: output axes in memory order.
        reduce: axes of the sum.
    """

    index: Index
    inner: Index
    axes: tuple[Expr, ...]
    reduce: tuple[Expr, ...]


@dataclass(frozen=True)
class Reading:
    """How a kernel wants the factors of a product to lie.

    Attributes:
        along: which lie along the sum, as constants then do; copies of those that do not are made. Without it,
            constants lie along the outer axes.
        rounded: whether both are tf32, as copies then are.
    """

    along: Sequence[bool] = ()
    rounded: bool = False


@dataclass(frozen=True)
class Problem:
    """A product with its axes told apart.

    Attributes:
        first, second: elements of the factors, made of loads of values; the first has the rows.
        result: the anchor's element, made of ``acc``.
        batch, m, n, k: axes.
        dtype: what products are summed in.
    """

    space: Space
    first: Expr
    second: Expr
    result: Expr
    batch: tuple[Expr, ...]
    m: tuple[Expr, ...]
    n: tuple[Expr, ...]
    k: tuple[Expr, ...]
    dtype: DType

    @property
    def sizes(self) -> tuple[Expr, Expr, Expr, Expr]:
        """Number of products, rows, columns, terms."""
        batch, m, n, k = (product([x.args[0] for x in axes]) for axes in (self.batch, self.m, self.n, self.k))
        return batch, m, n, k


@GridTarget.lowers("gemm", "conv", "conv_transpose", "conv_weights")
def lower_contraction(group: Group, storage: Mapping[Value, Storage], machine: Machine) -> list[Kernel]:
    """The kernels of a MatMul, Conv, ConvTranspose or the gradient of a Conv's weights, with its epilogue."""
    node = group.anchor
    if node is not None and isinstance(node.op, PairMatMul | PairLayer):
        kernels = lower_int4(group, node, storage, machine.device)
        return lower_grid_generic(group, storage, machine.device) if kernels is None else kernels
    if node is not None and node.op.family == "conv_weights":
        made = lower_depthwise_weights(group, storage, machine.device)
        if made is not None:
            return made
    kernels = contract(group, storage, machine)
    if kernels is None:
        return lower_grid_generic(group, storage, machine.device)
    return [_dealt(k, machine.device) for k in kernels]


def _dealt(k: Kernel, device: Device) -> Kernel:
    """A kernel of a product with its work distributed over blocks of threads."""
    if _joins_pieces(k) or not isinstance(k, RowKernel):
        return to_grid(k)
    return by_channels(k, device) or ProductRow.of(to_row(k))


def contract(group: Group, storage: Mapping[Value, Storage], machine: Machine) -> list[Kernel] | None:
    """The kernels of a product: tiles, and maps and rows that are not dealt out to threads yet.

    Returns:
        None when a plain nest serves it better.
    """
    node = group.anchor
    assert node is not None
    if any(is_empty(v) for v in group.outputs):
        return []
    nest = node.op.nest(node, 0)
    spaces = _spaces(node, nest) if nest is not None and nest.combine == "add" else []
    kernels: list[Kernel] = []
    for number, space in enumerate(spaces):
        assert nest is not None
        problem = _problem(group, node, nest, space, storage)
        made = None if problem is None else _lower(group, node, problem, storage, machine, number)
        if made is None:
            return None
        kernels += made
    return kernels or None


# ---- the space of a product ----------------------------------------------------------------------------------------


def _spaces(node: Node, nest: LoopNest) -> list[Space]:
    """The whole output; for a transposed convolution its phases: pixels that sum the same taps."""
    attributes = node.op.attributes()
    strides: Sequence[int] = attributes.get("strides", ())
    if node.op.family != "conv_transpose" or all(s == 1 for s in strides):
        return [_space(node, nest, (), (), (), ())]
    if any(as_int(e) is None for e in (*attributes["pads"], *nest.reduce)):
        return []
    if math.prod(strides) > budget().unrolled:
        return []
    phases = []
    for phase in cartesian(*(range(s) for s in strides)):
        taps = [
            _taps(at + (as_int(pad) or 0), as_int(size) or 0, s, d)
            for at, pad, size, s, d in zip(
                phase, attributes["pads"], nest.reduce[1:], strides, attributes["dilations"], strict=False
            )
        ]
        phases.append(_space(node, nest, strides, phase, [t[:2] for t in taps], [t[2] for t in taps]))
    return phases


def _taps(reach: int, size: int, stride: int, dilation: int) -> tuple[int, int, int]:
    """First tap, step and number of the taps k with (reach - k * dilation) a multiple of the stride."""
    found = [k for k in range(size) if (reach - k * dilation) % stride == 0]
    return (found[0], found[1] - found[0] if len(found) > 1 else 1, len(found)) if found else (0, 1, 0)


def _space(
    node: Node,
    nest: LoopNest,
    strides: Sequence[int],
    phase: Sequence[int],
    taps: Sequence[tuple[int, ...]],
    counts: Sequence[int],
) -> Space:
    out = node.output
    along = GROUPED.get(node.op.family)
    groups = as_expr(node.op.attributes().get("group", 1) if along is not None else 1)
    index: list[Expr] = [const(0)] * out.type.rank
    axes: list[Expr] = []

    def new(size: Expr) -> Expr:
        if as_int(size) == 1:
            return const(0)
        axes.append(axis(f"i{len(axes)}", size))
        return axes[-1]

    # Gradients of weights are computed in the order in which the data lies, and stored in their own.
    layout = node.operands[0].layout if node.op.family == "conv_weights" else out.layout
    for d in layout or range(out.type.rank):
        size = out.shape[d]
        if d == along and as_int(groups) != 1:
            each = size // groups
            outer = new(groups)
            index[d] = outer * each + new(each)
        elif d >= 2 and phase:
            s, r = strides[d - 2], phase[d - 2]
            past = size + (s - 1 - r)
            index[d] = new((past - past % s) // s) * s + r
        else:
            index[d] = new(size)
    extents = list(nest.reduce)
    for d, count in enumerate(counts):
        extents[1 + d] = const(count)
    reduce = [const(0) if as_int(e) == 1 else axis(f"r{k}", e) for k, e in enumerate(extents)]
    inner = [r if not (d and taps) else r * taps[d - 1][1] + taps[d - 1][0] for d, r in enumerate(reduce)]
    return Space(tuple(index), tuple(inner), tuple(axes), tuple(r for r in reduce if r.op == "axis"))


def _problem(
    group: Group, node: Node, nest: LoopNest, space: Space, storage: Mapping[Value, Storage]
) -> Problem | None:
    """The product over a space; None when it is not a sum of products of floats."""
    inliner = Inliner(group.folded)

    def read(operand: int, index: Index) -> Expr:
        value = node.inputs[operand]
        assert value is not None
        return inliner.at(value, index)

    if any(as_int(r.args[0]) == 0 for r in space.reduce):  # pixels between those that a long step reaches
        dtype = nest.body(space.index, space.inner, read).dtype
        none, total = const(0, dtype), nest.finish(acc("acc", dtype), space.index, read)
        return Problem(space, none, none, total, (), space.axes, (), space.reduce, dtype)
    body = as_product(nest.body(space.index, space.inner, read))
    if body.op != "mul" or len(body.args) != 2 or body.dtype not in (F32, F64):
        return None
    first, second = body.args
    total = acc("acc", body.dtype)
    result = nest.finish(total, space.index, read)
    both = [a for a in space.axes if contains(first, a) and contains(second, a)]
    m = [a for a in space.axes if a not in both and not contains(second, a)]
    n = [a for a in space.axes if a not in both and a not in m]
    k = _order(space, (first, second), storage)
    problem = Problem(space, first, second, result, tuple(both), tuple(m), tuple(n), k, body.dtype)
    return _turn(problem, _innermost(group, node, problem, storage))


def _order(space: Space, factors: Sequence[Expr], storage: Mapping[Value, Storage]) -> tuple[Expr, ...]:
    """Axes of the sum: those that guards depend on outermost, one that runs along the memory of a factor innermost."""
    probe = Buffers(storage)
    reads = [unguard(e) for e in factors]
    offsets = [x.args[0] for x in (probe.resolve(r) for r, _ in reads) if x.op == "load"]

    def rank(a: Expr) -> tuple[bool, bool]:
        tap = any(contains(g, a) for _, g in reads)
        steps = [parts[0] for o in offsets if (parts := split_axis(o, a)) is not None]
        return not tap, any(as_int(s) == 1 for s in steps[:1])

    return tuple(sorted(space.reduce, key=rank))


def _innermost(group: Group, node: Node, p: Problem, storage: Mapping[Value, Storage]) -> Expr | None:
    """The output axis along which the results lie in memory."""
    stores = finish(group, node, p.result, p.space.index, Buffers(storage))
    for a in (*p.n, *p.m):
        parts = split_axis(stores[0].offset, a) if stores else None
        if parts is not None and as_int(parts[0]) == 1:
            return a
    return None


def _turn(p: Problem, innermost: Expr | None) -> Problem:
    """The problem with rows and columns exchanged if its results lie along the rows."""
    if innermost is None or innermost in p.n:
        return p
    return replace(p, first=p.second, second=p.first, m=p.n, n=p.m)


def _with_more_rows(p: Problem) -> Problem:
    """Few rows by more columns turned, as tiles of groups of warps have at least as many rows as columns."""
    m, n = (as_int(s) for s in p.sizes[1:3])
    few = m is not None and n is not None and m <= FEW_ROWS < n
    return replace(p, first=p.second, second=p.first, m=p.n, n=p.m) if few else p


# ---- kernels --------------------------------------------------------------------------------------------------------


def _lower(
    group: Group, node: Node, p: Problem, storage: Mapping[Value, Storage], machine: Machine, number: int
) -> list[Kernel] | None:
    """The kernels of a product; None when a plain nest serves it better."""
    sizes = [as_int(s) for s in p.sizes]
    if sizes[3] == 0:
        return [_sums(group, node, p, None, 0, storage)]
    if node.op.family == "conv_weights" and min(sizes[1] or THIN, sizes[2] or THIN) < THIN:
        return None  # channels, which lie side by side, are independent products
    across = 1 in sizes[1:3] and all(_runs_along(e, p.k[-1], storage) for e in (p.first, p.second)) if p.k else False
    if across or not p.k or _suits_threads(sizes):
        return _lower_row(group, node, p, storage, number, across)
    return _lower_tiles(group, node, p, storage, machine, number)


def _suits_threads(sizes: Sequence[int | None]) -> bool:
    """Whether a thread for each result serves a product better than tiles, which would be nearly empty."""
    batch, m, n, k = (guess if s is None else s for s, guess in zip(sizes, UNKNOWN, strict=True))
    return min(m, n) < THIN and (k <= SHORT or batch * m * n >= MANY)


@dataclass(frozen=True)
class ProductRow(GridRow):
    """A product as reductions whose threads share a row, or with a thread for each result; see :class:`GridRow`."""

    kind: ClassVar[str] = "contraction"


def _lower_row(
    group: Group, node: Node, p: Problem, storage: Mapping[Value, Storage], number: int, across: bool
) -> list[Kernel] | None:
    """A reduction whose threads share a row, or with a point for each thread; constants lie as it reads them."""
    if not all(_is_load(e, storage) for e in (p.first, p.second)):
        return None
    outer = p.space.axes
    order = (*outer, *p.k) if across else (*p.k, *outer)
    buffers = Buffers(storage)
    terms, before = [], list[Kernel]()
    for k, element in enumerate((p.first, p.second)):
        term, made = bring(element, order, (), buffers, group, storage, f"factor{k}_{number}")
        terms.append(term)
        before += made
    body = call("mul", *(_element(t, p.dtype) for t in terms))
    total = substitute(p.result, {acc("acc", p.dtype): acc("x0", p.dtype)})
    stores = finish(group, node, total, p.space.index, buffers)
    axes, stores, (body,) = join_bodies(list(outer), stores, body)
    reduce, stores, (body,) = join_bodies(list(p.k) or [axis("r0", 1)], stores, body)
    axes = axes or [axis("i0", 1)]
    accumulator = Accumulator("0", "add", body, acc("a0", p.dtype))
    kernel = RowKernel(
        buffers=tuple(buffers.list),
        tasks=product([a.args[0] for a in axes]),
        flops=node.op.flops(node) + epilogue_flops(stores, node.output.type.size),
        nbytes=traffic(buffers.list, group.outputs),
        axes=tuple(axes),
        reduce=tuple(reduce),
        across=across,
        stages=(Stage((accumulator,)),),
        element=(),
        row=tuple(stores),
        kept=0,
        rows=1,
        chunk=1,
    )
    return [*before, kernel]


def _is_load(element: Expr, storage: Mapping[Value, Storage]) -> bool:
    return Buffers(storage).resolve(unguard(element)[0]).op == "load"


def _runs_along(element: Expr, k: Expr, storage: Mapping[Value, Storage]) -> bool:
    """Whether a factor lies along an axis of the sum, or can be made to."""
    read, _ = unguard(element)
    probe = Buffers(storage)
    placed = probe.resolve(read)
    if placed.op != "load":
        return False
    root = probe.list[0].operand
    parts = split_axis(placed.args[0], k)
    return parts is not None and (as_int(parts[0]) == 1 or (isinstance(root, Value) and root.const is not None))


def _is_rounded(element: Expr) -> bool:
    """Whether a factor's elements are tf32 in memory."""
    read, _ = unguard(element)
    node = read.data.producer if read.op == "load" and isinstance(read.data, Value) else None
    return node is not None and isinstance(node.op, RoundToTf32)


def _lies_apart(element: Expr, axes: Sequence[Expr], p: Problem, storage: Mapping[Value, Storage]) -> bool:
    """Whether threads that read a factor side by side find no two elements side by side, as in weights of a run."""
    placed = Buffers(storage).resolve(unguard(element)[0])
    if placed.op != "load":
        return False
    inner = [*axes[-1:], *p.k[-1:]]
    parts = strides_along(placed.args[0], inner)
    return parts is not None and all(as_int(s) != 1 for s in parts[0])


def _element(term: Term, dtype: DType) -> Expr:
    return select(term.guard, load(term.buffer, (term.offset,), dtype), const(0.0, dtype))


def _lower_tiles(
    group: Group,
    node: Node,
    p: Problem,
    storage: Mapping[Value, Storage],
    machine: Machine,
    number: int,
    rounded: bool = True,
    unserved: frozenset[Choice] = frozenset(),
) -> list[Kernel] | None:
    """The tiled kernels, and where sums are cut into pieces those that join them; of several, sizes choose one.

    Args:
        rounded: whether tiles of tf32 serve where the first factor is rounded, with a copy of the second.
        unserved: sizes of tiles that cannot be brought.
    """
    if node.op.family == "conv_weights" and machine.device.groups:
        p = _with_more_rows(p)
    buffers, terms, _ = _factors(group, p, storage, number)
    kinds = {buffers.list[t.buffer].dtype for t in terms}
    sizes = [as_int(s) for s in p.sizes]
    single = replace(machine, device=replace(machine.device, groups=False))
    runs = [_runs_along(e, p.k[-1], storage) for e in (p.first, p.second)]
    rounded = rounded and machine.tf32 and machine.device.groups and runs[0] and _is_rounded(p.first)
    rounded = rounded and (sizes[1] or 0) >= COPIED
    cuts = _choose(machine, kinds, p, sizes, unserved, across=not any(runs), rounded=rounded)
    reading = Reading()
    if rounded:
        reading = Reading((True, runs[1] and _is_rounded(p.second)), rounded=True)
    elif any(isinstance(c.tile, Tf32GroupTile) for c in cuts):
        if any(runs) and not (runs[0] and (runs[1] or (sizes[1] or 0) >= COPIED)):
            return _lower_tiles(group, node, p, storage, single, number)
        reading = Reading(runs if any(runs) else ())
    *_, kernels = _factors(group, p, storage, number, reading)
    size = p.sizes[sizes.index(None)] if len(cuts) > 1 else const(0)
    for c in cuts:
        made = _lower_tile(group, node, p, storage, machine, number, c, reading)
        if made is None:
            return None
        if any(isinstance(k, GroupMmaKernel) and not k.is_served for k in made):
            if rounded:
                return _lower_tiles(group, node, p, storage, machine, number, rounded=False)
            return _lower_tiles(group, node, p, storage, machine, number, False, unserved | {c.tile.sizes})
        kernels += [replace(k, when=c.holds(size)) for k in made]
    return kernels


def _lower_tile(
    group: Group,
    node: Node,
    p: Problem,
    storage: Mapping[Value, Storage],
    machine: Machine,
    number: int,
    cut: Cut,
    reading: Reading,
) -> list[Kernel] | None:
    """The kernel of a tile, and behind it that which joins pieces of sums where no clusters do."""
    tile, splits = cut.tile, cut.pieces
    buffers, terms, _ = _factors(group, p, storage, number, reading)
    part, to = axis(PARTS, splits), None
    apart = node.op.family == "conv_weights" and _scatters(group, node, p, storage)
    if not apart and isinstance(tile, GroupTile) and joins(machine.device, tile, splits):
        tile = replace(tile, cluster=splits)
        stores = finish(group, node, p.result, p.space.index, buffers)
    elif splits > 1 or apart:
        to = Temporary(f"sums_{number}_{splits}", group.id, product(p.sizes[:3]) * (splits * p.dtype.size))
        place = row_major([*([part] if splits > 1 else []), *p.batch, *p.m, *p.n])
        stores = [Store(add_operand(buffers, to, p.dtype, written=True), place, acc("acc", p.dtype))]
    else:
        stores = finish(group, node, p.result, p.space.index, buffers)
    kernel = _make_tiled(node, p, terms, stores, buffers, tile, part)
    if kernel is None:
        return None
    kernel = replace(kernel, nbytes=traffic(buffers.list, group.outputs if to is None else ()))
    return [kernel, *([] if to is None else [_sums(group, node, p, to, splits, storage)])]


def _joins_pieces(k: Kernel) -> bool:
    return isinstance(k, RowKernel) and k.reduce[0].data == PARTS


def _scatters(group: Group, node: Node, p: Problem, storage: Mapping[Value, Storage]) -> bool:
    """Whether a tile's results update states that lie in another order, whose bytes it would read piecemeal."""
    stores = finish(group, node, p.result, p.space.index, Buffers(storage))
    inner = _innermost(group, node, p, storage)
    return len(stores) > 1 and (not p.n or inner is not p.n[-1])


def _factors(
    group: Group, p: Problem, storage: Mapping[Value, Storage], number: int, reading: Reading = Reading()
) -> tuple[Buffers, list[Term], list[Kernel]]:
    """The arguments of a product, where its factors are in them, and kernels that copy these."""
    buffers, along = Buffers(storage), reading.along
    terms, before = [], list[Kernel]()
    for i, (element, axes) in enumerate(((p.first, p.m), (p.second, p.n))):
        inner = (*axes, *p.k) if along else (*p.k, *axes)
        order = (*(a for a in p.batch if contains(element, a)), *inner)
        others = as_int(p.sizes[2 if i == 0 else 1]) or 0
        name, copied = (
            f"factor{i}_{number}",
            not along[i] if along else others >= COPIED and _lies_apart(element, axes, p, storage),
        )
        rounded = reading.rounded and copied
        term, made = bring(element, order, (*axes, *p.k), buffers, group, storage, name, copied, rounded)
        terms.append(term)
        before += made
    return buffers, terms, before


def _choose(
    machine: Machine,
    kinds: Set[DType],
    p: Problem,
    sizes: Sequence[int | None],
    unserved: frozenset[Choice],
    across: bool,
    rounded: bool,
) -> Sequence[Cut]:
    """The tile of factors of some types, and the pieces of their sums: for each range of a size that a run knows."""
    terms, given = sizes[3], Given.of(machine)
    device = machine.device
    if device.tensor and (kinds == {F16} or kinds == {BF16}):
        tiles = mma_tiles(device)
    else:
        loose = device.groups and (machine.slack or 0) >= SHARING * GROUP_EXACT
        exact = device.tensor_f32 and terms is not None and terms >= (1 if loose else EXACT)
        tf32 = (1 if device.tensor and machine.tf32 else 3 if exact else 0) if kinds == {F32} else 0
        tiles = float_tiles(device, p.dtype, terms, tf32, across, rounded and kinds == {F32}, loose)
    tiles = tuple(t for t in tiles if t.sizes not in unserved)
    if unserved and not any(isinstance(t, GroupTile) for t in tiles):
        alone = replace(machine, device=replace(device, groups=False))
        return _choose(alone, kinds, p, sizes, frozenset(), across, rounded)
    unknown = [i for i, s in enumerate(sizes) if s is None]
    if device.tensor and machine.by_size and len(unknown) == 1 and terms is not None:
        return choose_by_size(device, tuple(sizes), tiles, given, divisor_of(p.sizes[unknown[0]]))
    likely = [_likely(s, guess) for s, guess in zip(p.sizes, UNKNOWN, strict=True)]
    return [Cut(*choose(device, sizes, tiles, given, likely))]


def _likely(size: Expr, guess: int) -> int:
    """What to assume of a size that only a run knows: several times what is known of it, and the guess at least."""
    return max(guess, SEVERAL * max((c for atoms, c in poly_of(size).items() if atoms), default=0))


def _make_tiled(
    node: Node, p: Problem, terms: Sequence[Term], stores: Sequence[Store], buffers: Buffers, tile: AnyTile, part: Expr
) -> ContractionKernel | None:
    a, b = terms
    parts = [[a.offset, a.guard], [b.offset, b.guard], [e for s in stores for e in (s.offset, s.value)]]
    batch, parts = _join("g", p.batch, parts)
    k, parts = _join("k", p.k, parts)
    a_axes, parts[:1] = _join("m", p.m, parts[:1])
    b_axes, parts[1:2] = _join("n", p.n, parts[1:2])
    m, parts[2:] = _join("m", p.m, parts[2:])  # results often run on where windows of a factor do not
    n, parts[2:] = _join("n", p.n, parts[2:])
    size = as_int(k[-1].args[0])
    walks_on = len(k) > 1 and size is not None and size % tile.k != 0 and size < 4 * tile.k
    kinds: dict[type[AnyTile], type[ContractionKernel]] = {MmaTile: MmaKernel, Tf32Tile: Tf32Kernel}
    kind = GroupMmaKernel if isinstance(tile, GroupTile) else kinds.get(type(tile), ContractionKernel)
    factors = [
        make_factor(Term(t.buffer, offset, guard, t.padded), axes, k, PACKET_BYTES // tile.element)
        for t, axes, (offset, guard) in ((a, a_axes, parts[0]), (b, b_axes, parts[1]))
    ]
    if None in factors:
        return None
    if isinstance(tile, Tf32GroupTile) and factors[1] is not None:
        tile = replace(tile, across=not factors[1].along_k)
    stored = parts[2]
    rows, columns = (product([x.args[0] for x in axes]) for axes in (m, n))
    tiles = product([x.args[0] for x in batch]) * ceil_div(rows, tile.m) * ceil_div(columns, tile.n)
    return kind(
        buffers=tuple(buffers.list),
        tasks=tiles * part.args[0],
        flops=node.op.flops(node) + epilogue_flops(stores, node.output.type.size),
        nbytes=const(0),
        stores=tuple(Store(s.buffer, stored[2 * i], stored[2 * i + 1]) for i, s in enumerate(stores)),
        batch=tuple(batch),
        m=tuple(m),
        n=tuple(n),
        taps=tuple(k[:-1]),
        depth=k[-1],
        flat=walks_on,
        a=factors[0],  # type: ignore[arg-type]  # no None
        b=factors[1],  # type: ignore[arg-type]
        dtype=p.dtype,
        tile=tile,
        part=part,
        threads=tile.threads,
    )


def _as_stored(axes: Sequence[Expr], stores: Sequence[Store]) -> list[Expr]:
    """Axes in the order in which results lie in memory, as they may update several states of their size."""
    parts = strides_along(stores[0].offset, axes) if stores else None
    steps = [] if parts is None else [as_int(s) for s in parts[0]]
    known = {a: s for a, s in zip(axes, steps, strict=False) if s is not None}
    return sorted(axes, key=lambda a: -known[a]) if len(known) == len(axes) else list(axes)


def _join(name: str, axes: Sequence[Expr], parts: Sequence[list[Expr]]) -> tuple[list[Expr], list[list[Expr]]]:
    """Axes by new names, neighbours joined where all expressions run on from one to the next, and these over them."""
    fresh = [axis(f"{name}{i}", x.args[0]) for i, x in enumerate(axes)]
    renamed = dict(zip(axes, fresh, strict=True))
    fresh, flat = join_axes(fresh, [substitute(e, renamed) for part in parts for e in part])
    rest = iter(flat)
    return fresh, [[next(rest) for _ in part] for part in parts]


def _sums(
    group: Group, node: Node, p: Problem, to: Temporary | None, splits: int, storage: Mapping[Value, Storage]
) -> Kernel:
    """What follows from the sums of the pieces, in their order; of none where sums have no terms.

    Of many pieces a loop adds them up: all at once would not fit into the registers of a thread, and the card keeps as
    much memory for each that may run as one kernel wants beside its registers.
    """
    buffers, dtype = Buffers(storage), p.dtype
    axes, part = [*p.batch, *p.m, *p.n], axis(PARTS, splits)
    size, total = product([a.args[0] for a in axes]), const(0.0, dtype)
    source = None if to is None else add_operand(buffers, to, dtype)
    if source is not None and splits <= FEW_PIECES:
        pieces = [load(source, (row_major(axes) + size * k,), dtype) for k in range(splits)]
        total = sum(pieces[1:], pieces[0])
    elif source is not None:
        total = acc("x0", dtype)
    stores = finish(group, node, substitute(p.result, {acc("acc", dtype): total}), p.space.index, buffers)
    order = _as_stored(p.space.axes, stores) if splits <= FEW_PIECES else axes
    rows = [load(source, (row_major(axes) + size * part,), dtype)] if source is not None and splits > FEW_PIECES else []
    axes, stores, rows = join_bodies(order, stores, *rows)
    points = product([a.args[0] for a in axes])
    common: dict[str, Any] = {
        "buffers": tuple(buffers.list),
        "tasks": points,
        "flops": epilogue_flops(stores, points) + points * splits,
        "nbytes": traffic(buffers.list, group.outputs),
        "axes": tuple(axes) or (axis("i0", 1),),
        "rows": 1,
        "chunk": 1,
    }
    if not rows:
        return MapKernel(**common, stores=tuple(stores))
    stage = Stage((Accumulator("0", "add", rows[0], acc("a0", dtype)),))
    return RowKernel(**common, reduce=(part,), across=False, stages=(stage,), element=(), row=tuple(stores), kept=0)
