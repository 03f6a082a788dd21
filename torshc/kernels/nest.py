"""Lowering of loop nests: pointwise groups to a map kernel, groups with reductions to a row kernel."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from ..base.errors import InternalError
from ..expr import Expr, acc, as_int, axis, ceil_div, const, cost, load, product, rebuild, walk
from ..expr.affine import contains, split_axis
from ..expr.dtype import BOOL
from ..graph import Node, Value
from ..ops.core.base import Index, LoopNest
from ..plan.group import Group
from ..plan.inline import Inliner, address, register_type
from ..plan.storage import Storage
from .axes import join_axes, make_axes
from .base import Buffer, Kernel, Store, buffers_read, expressions_in, text_fields

CHUNK = 16384  # elements a task: 64 KiB of f32, some microseconds of work
SHORT = 8  # a reduction axis below this is too short for vectors
LONG_ROW = 32  # elements from which on a pass over a row serves several vectors
BESIDE = 256  # columns of a task where rows are long: with fewer, a task takes as long
CHAIN = 64  # terms of f32 that a processor adds one after the other, where a sum has many more
SHORT_TERM = 12  # cost of a term up to which it is written several times
KEEP_COST = 8  # a value this expensive is kept in the row's scratch rather than computed again
KEEP_ALL = -1  # for rows in registers: whatever is needed again is kept, loads too, and along any axis


@dataclass(frozen=True)
class MapKernel(Kernel):
    """Stores of scalar expressions over parallel axes; vectors run along the last axis.

    Attributes:
        axes: loop axes, outermost first, at least one.
        stores: what is stored at each point.
        rows: rows (points of the outer axes) a task.
        chunk: elements of the last axis a task, a multiple of 16.
    """

    kind: ClassVar[str] = "nest"
    template: ClassVar[str] = "map.c.j2"

    axes: tuple[Expr, ...]
    stores: tuple[Store, ...]
    rows: int
    chunk: int

    @property
    def reached(self) -> range:
        return range(len(self.buffers))

    @property
    def finishes(self) -> Sequence[tuple[Sequence[Store], Collection[int]]]:
        rest = [getattr(self, name) for name in text_fields(self) if name != "stores"]
        return [(self.stores, buffers_read(*expressions_in(rest)))]


_LOGIC = {"add": "or", "mul": "and", "max": "or", "min": "and"}


@dataclass(frozen=True)
class Accumulator:
    """A reduction within a stage: `name` is the accumulated `term`, `result` what follows from it."""

    name: str
    combine: str
    term: Expr
    result: Expr

    @property
    def how(self) -> str:
        """The function that joins two partial accumulations: `combine`, or "or" and "and" for truth values."""
        return _LOGIC[self.combine] if self.term.dtype is BOOL else self.combine

    @property
    def start(self) -> int | float:
        """The number that an accumulation starts from: joined with any other it changes nothing."""
        dtype = self.term.dtype
        if dtype.is_float:
            return {"add": 0.0, "mul": 1.0, "max": -math.inf, "min": math.inf}[self.combine]
        low, high = (0, 1) if dtype is BOOL else dtype.range
        return {"add": 0, "mul": 1, "max": low, "min": high}[self.combine]


@dataclass(frozen=True)
class Keep:
    """A value stored to a row of scratch while a stage runs over it, for later stages."""

    slot: int
    value: Expr


@dataclass(frozen=True)
class Stage:
    """One pass over the reduction axes."""

    accumulators: tuple[Accumulator, ...]
    keeps: tuple[Keep, ...] = ()


@dataclass(frozen=True)
class RowKernel(Kernel):
    """Reductions over a row, one after the other, and what is computed from them.

    Attributes:
        axes: parallel axes, outermost first.
        reduce: reduction axes, outermost first.
        across: whether vectors run along the last reduction axis (else along the last parallel axis).
        stages: passes over the row.
        element: stores made in a last pass over the row.
        row: stores made once a row.
        kept: number of scratch rows of f32.
        rows: points of the outer axes a task.
        chunk: elements of the lane axis a task when vectors run along a parallel axis.
    """

    kind: ClassVar[str] = "row"
    template: ClassVar[str] = "row.c.j2"

    axes: tuple[Expr, ...]
    reduce: tuple[Expr, ...]
    across: bool
    stages: tuple[Stage, ...]
    element: tuple[Store, ...]
    row: tuple[Store, ...]
    kept: int
    rows: int
    chunk: int

    @property
    def reached(self) -> range:
        return range(len(self.buffers))

    @property
    def finishes(self) -> Sequence[tuple[Sequence[Store], Collection[int]]]:
        return [] if self.element else [(self.row, buffers_read(*expressions_in(self.stages)))]

    @property
    def several(self) -> bool:
        """Whether one pass over long rows accumulates several vectors of the parallel axis, as its terms are cheap."""
        if self.across or len(self.stages) > 1 or self.element or len(self.stages[0].accumulators) > 2:
            return False
        length = as_int(product([r.args[0] for r in self.reduce]))
        short = all(cost(a.term) <= SHORT_TERM for a in self.stages[0].accumulators)
        return short and (length is None or length >= LONG_ROW)

    def sums_of_sums(self, stage: Stage) -> bool:
        """Whether sums of f32 that vectors hold side by side are added from sums of `CHAIN` terms each.

        One chain of n terms would be off by some sqrt(n) roundings, as where gradients of a bias sum all pixels.
        """
        length = as_int(product([r.args[0] for r in self.reduce]))
        plain = all(a.how == "add" and a.term.dtype.compute == "f32" and a.start == 0 for a in stage.accumulators)
        return plain and not self.across and (length is None or length >= 2 * CHAIN)

    @property
    def row_size(self) -> Expr:
        """Elements in a row of scratch, rounded up so that whole vectors fit."""
        return (product([a.args[0] for a in self.reduce]) + 15) // 16 * 16

    @property
    def scratch(self) -> Expr:
        return self.row_size * 4 * self.kept


def lower_nest(group: Group, storage: Mapping[Value, Storage], keep: int | None = KEEP_COST) -> list[Kernel]:
    """The kernels of a group of nests: one, or for a node with outputs of several shapes (Split) one for each.

    `keep` says from which cost on rows keep a value in scratch rather than compute it again; None for never.
    """
    nodes = [*group.folded, *group.nodes]
    nests = {n: _nest(n) for n in nodes}
    reductions = [n for n in nodes if nests[n].reduce]
    pairs = [(o, group.alias.get(o, o)) for o in group.outputs]
    if reductions:
        return [_lower_row(nodes, reductions, nests, pairs, storage, keep)]
    shapes = dict.fromkeys((o.shape, o.layout) for o, _ in pairs)
    return [_lower_map(nodes, [p for p in pairs if (p[0].shape, p[0].layout) == s], storage) for s in shapes]


def _nest(node: Node) -> LoopNest:
    nest = node.op.nest(node, 0)
    if nest is None:
        raise InternalError(f"{node.describe()} has no loop nest and no kernel of its own")
    return nest


class Buffers:
    """The argument list of a kernel, filled as loads and stores are met."""

    def __init__(self, storage: Mapping[Value, Storage]) -> None:
        self.storage = storage
        self.reads: dict[Value, int] = {}
        self.writes: dict[Value, int] = {}
        self.list: list[Buffer] = []
        self._known: dict[Expr, Expr] = {}  # loads of values; those within indices of loads come before these
        self._seen: set[Expr] = set()

    def resolve(self, e: Expr) -> Expr:
        """Loads of values at logical indices become loads of numbered buffers at element offsets."""

        pending = [e]
        while pending:
            x = pending[-1]
            fresh = [] if x in self._seen or x.op == "axis" else [a for a in x.args if a not in self._seen]
            if fresh:
                pending += fresh
                continue
            pending.pop()
            if x not in self._seen and x.op == "load" and isinstance(x.data, Value):
                self._known[x] = self._read(x.data, tuple(rebuild(a, self._known.get) for a in x.args))
            self._seen.add(x)
        return rebuild(e, self._known.get)

    def _read(self, value: Value, index: Index) -> Expr:
        """A load of an element of a value, whose memory becomes one of the buffers."""
        root, offset = address(value, index, self.storage)
        if root not in self.reads:
            self.reads[root] = len(self.list)
            self.list.append(Buffer(root, root.dtype, written=False))
        return load(self.reads[root], (offset,), register_type(root.dtype))

    def store(self, value: Value, index: Index, what: Expr) -> Store:
        """A store to an output."""
        root, offset = address(value, index, self.storage)
        if root not in self.writes:
            self.writes[root] = len(self.list)
            self.list.append(Buffer(root, root.dtype, written=True))
        return Store(self.writes[root], offset, what)


def _traffic(buffers: Sequence[Buffer], values: Sequence[Value], bodies: Sequence[Expr], points: Expr) -> Expr:
    """Bytes that must be read and written at the least: each operand once, but of a table only what is looked up."""
    tables = {x.data for x in _looked_up(bodies)}
    total = const(0)
    for k, b in enumerate(buffers):
        if isinstance(b.operand, Value) and not b.written:
            total = total + (points * b.dtype.size if k in tables else b.operand.type.nbytes)
    for v in values:
        total = total + v.type.nbytes
    return total


def _lower_map(nodes: list[Node], pairs: list[tuple[Value, Value]], storage: Mapping[Value, Storage]) -> MapKernel:
    outputs = [o for o, _ in pairs]
    main = outputs[0]
    index, axes = make_axes(main.shape, main.layout, "i")
    inliner, buffers = Inliner(nodes), Buffers(storage)
    values = [buffers.resolve(inliner.at(inner, index)) for _, inner in pairs]
    stores = [buffers.store(o, index, v) for o, v in zip(outputs, values, strict=True)]
    axes, bodies = join_axes(axes, [x for s in stores for x in (s.offset, s.value)])
    axes = axes or [axis("i0", 1)]
    stores = [Store(s.buffer, bodies[2 * k], bodies[2 * k + 1]) for k, s in enumerate(stores)]
    chunk = _chunk([s.value for s in stores])
    rows = _rows(axes, chunk)
    size = product([a.args[0] for a in axes])
    return MapKernel(
        buffers=tuple(buffers.list),
        tasks=_tasks(axes, rows, chunk),
        flops=size * sum(_flops(s.value) for s in stores),
        nbytes=_traffic(buffers.list, outputs, [s.value for s in stores], size),
        axes=tuple(axes),
        stores=tuple(stores),
        rows=rows,
        chunk=chunk,
    )


def in_order(kernel: MapKernel, axes: Sequence[Expr]) -> MapKernel:
    """A map kernel with its loops in another order."""
    rows = _rows(axes, kernel.chunk)
    return replace(kernel, axes=tuple(axes), rows=rows, tasks=_tasks(axes, rows, kernel.chunk))


def _chunk(bodies: Sequence[Expr]) -> int:
    """Elements a task: fewer where each is made of several that are looked up, one after another."""
    return CHUNK // 4 if len(_looked_up(bodies)) >= 4 else CHUNK


def _looked_up(bodies: Sequence[Expr]) -> list[Expr]:
    """Loads whose place is loaded too."""
    return [x for x in walk(*bodies) if x.op == "load" and any(y is not x and y.op == "load" for y in walk(x.args[0]))]


def _rows(axes: Sequence[Expr], chunk: int) -> int:
    """Rows along the innermost axis that a task has."""
    inner = as_int(axes[-1].args[0])
    return max(1, chunk // max(inner, 1)) if inner is not None and inner < chunk else 1


def _flops(e: Expr) -> int:
    return sum(1 for x in walk(e) if x.dtype.is_float and x.op not in ("const", "load", "acc", "cast", "select"))


def _tasks(axes: Sequence[Expr], rows: int, chunk: int) -> Expr:
    return ceil_div(product([a.args[0] for a in axes[:-1]]), rows) * ceil_div(axes[-1].args[0], chunk)


class Rows:
    """The index space of a row kernel: the parallel axes and the reduction axes, and which value lies where."""

    def __init__(self, reductions: list[Node], nests: Mapping[Node, LoopNest], layout: tuple[int, ...] | None) -> None:
        first = reductions[0]
        out = first.outputs[0]
        self.reduced = getattr(first.op, "axes", ()) if first.op.family == "reduce" else ()
        self.windowed = first.op.family != "reduce"
        extents = nests[first].reduce
        self.reduce = [const(0) if as_int(e) == 1 else axis(f"r{k}", e) for k, e in enumerate(extents)]
        if self.windowed:
            self.full_shape = out.shape
            self.index, self.axes = make_axes(out.shape, layout, "i")
            self.full = self.index
            return
        self.full_shape = first.operands[0].shape
        row_shape = tuple(const(1) if d in self.reduced else s for d, s in enumerate(self.full_shape))
        self.index, self.axes = make_axes(row_shape, layout, "i")
        inner = iter(self.reduce)
        self.full = tuple(next(inner) if d in self.reduced else i for d, i in enumerate(self.index))

    def index_of(self, value: Value) -> tuple[Index, bool]:
        """Index of a value of the group, and whether it has an element for each element of the row."""
        if value.shape == self.full_shape:
            return self.full, not self.windowed and any(r.op == "axis" for r in self.reduce)
        if len(value.shape) == len(self.full_shape):
            return self.index, False
        return tuple(i for d, i in enumerate(self.index) if d not in self.reduced), False


def _lower_row(
    nodes: list[Node],
    reductions: list[Node],
    nests: Mapping[Node, LoopNest],
    pairs: list[tuple[Value, Value]],
    storage: Mapping[Value, Storage],
    keep: int | None,
) -> RowKernel:
    layout = _row_layout(nodes, reductions[0], pairs)
    rows = Rows(reductions, nests, layout)
    inliner, buffers = Inliner(nodes), Buffers(storage)
    levels: dict[Node, int] = {}
    stages: dict[int, list[Accumulator]] = {}
    for k, node in enumerate(reductions):
        level = 1 + max((levels[r] for r in reductions[:k] if _depends(node, r)), default=0)
        levels[node] = level
        stages.setdefault(level, []).append(accumulate(node, nests[node], k, rows, inliner, buffers))
    element: list[Store] = []
    row: list[Store] = []
    for outer, inner in pairs:
        index, each = rows.index_of(inner)
        value = buffers.resolve(inliner.at(inner, index))
        (element if each else row).append(buffers.store(outer, index, value))
    return finish_row(rows, [stages[k] for k in sorted(stages)], element, row, buffers, [o for o, _ in pairs], keep)


def _row_layout(nodes: list[Node], first: Node, pairs: list[tuple[Value, Value]]) -> tuple[int, ...] | None:
    """Memory order to walk in: that of an output over the whole row, else of the first operand."""
    source = first.operands[0]
    if first.op.family != "reduce":
        return first.outputs[0].layout
    for outer, _ in pairs:
        if outer.shape == source.shape:
            return outer.layout
    return source.layout


def _depends(node: Node, on: Node) -> bool:
    pending, seen = list(node.operands), set()
    while pending:
        v = pending.pop()
        if v in seen or v.producer is None:
            continue
        seen.add(v)
        if v.producer is on:
            return True
        pending.extend(v.producer.operands)
    return False


def accumulate(node: Node, nest: LoopNest, k: int, rows: Rows, inliner: Inliner, buffers: Buffers) -> Accumulator:
    """The accumulation of reduction number k; from now on the inliner knows its result."""

    def read(operand: int, index: Index) -> Expr:
        value = node.inputs[operand]
        assert value is not None
        return inliner.at(value, index)

    out = node.outputs[0]
    index, _ = rows.index_of(out)
    if out.shape == rows.full_shape and not rows.windowed:
        index = rows.index  # every reduced dimension has size 1
    term = buffers.resolve(nest.body(index, tuple(rows.reduce), read))
    total = acc(f"a{k}", term.dtype)
    result = buffers.resolve(nest.finish(total, index, read))
    inliner.known[out] = acc(f"x{k}", result.dtype)
    return Accumulator(f"{k}", nest.combine, term, result)


def finish_row(
    rows: Rows,
    levels: list[list[Accumulator]],
    element: list[Store],
    row: list[Store],
    buffers: Buffers,
    outputs: list[Value],
    keep: int | None = KEEP_COST,
) -> RowKernel:
    """The kernel of accumulations by level, stores made for each element of a row, and stores made once a row."""
    reduce = [r for r in rows.reduce if r.op == "axis"]
    flat: list[Expr] = []
    for accumulators in levels:
        for a in accumulators:
            flat += [a.term, a.result]
    for s in (*element, *row):
        flat += [s.offset, s.value]
    axes, flat = join_axes(rows.axes, flat)
    reduce, flat = join_axes(reduce, flat)
    parts = iter(flat)
    levels = [[Accumulator(a.name, a.combine, next(parts), next(parts)) for a in x] for x in levels]
    element = [Store(s.buffer, next(parts), next(parts)) for s in element]
    row = [Store(s.buffer, next(parts), next(parts)) for s in row]
    across = bool(reduce) and _runs_along(reduce[-1], axes, levels, element, rows.windowed)
    reduce, axes = reduce or [axis("r0", 1)], axes or [axis("i0", 1)]
    stages, element, kept = (
        _keep(levels, element, reduce, keep)
        if keep == KEEP_ALL or (across and keep is not None)
        else ([Stage(tuple(x)) for x in levels], element, 0)
    )
    extents = product([r.args[0] for r in reduce])
    length = as_int(extents if across else axes[-1].args[0] * extents)
    per_task = max(1, CHUNK // max(length, 1)) if length is not None else 1
    lanes_chunk = 16 * max(1, CHUNK // 16 // max(as_int(extents) or 64, 1))
    points = product([a.args[0] for a in axes])
    work = sum(_flops(a.term) + 1 for x in levels for a in x) + sum(_flops(s.value) for s in element)
    kernel = RowKernel(
        buffers=tuple(buffers.list),
        tasks=ceil_div(points, per_task) if across else _tasks(axes, per_task, lanes_chunk),
        flops=points * extents * work,
        nbytes=_traffic(buffers.list, outputs, flat, points * extents),
        axes=tuple(axes),
        reduce=tuple(reduce),
        across=across,
        stages=tuple(stages),
        element=tuple(element),
        row=tuple(row),
        kept=kept,
        rows=per_task,
        chunk=lanes_chunk,
    )
    if not kernel.several or lanes_chunk >= BESIDE:
        return kernel
    return replace(kernel, tasks=_tasks(axes, per_task, BESIDE), chunk=BESIDE)


def _runs_along(
    lane: Expr, axes: list[Expr], levels: list[list[Accumulator]], element: list[Store], windowed: bool
) -> bool:
    """Whether vectors run along the last reduction axis: most loads step by 1 along it, or there is no other axis.

    Where each element of a result has a window of its own, as in a product, all loads have to step by 1 along it, and
    none along the last parallel axis.
    """
    length = as_int(lane.args[0])
    if axes and length is not None and length < SHORT and not element:
        return False
    loads = [x for level in levels for accumulator in level for x in walk(accumulator.term) if x.op == "load"]

    def votes(a: Expr) -> int:
        steps = [split_axis(x.args[0], a) for x in loads]
        return sum(parts is not None and as_int(parts[0]) == 1 for parts in steps)

    if axes and windowed:
        return length is not None and length >= LONG_ROW and votes(lane) == len(loads) and not votes(axes[-1])
    return not axes or votes(lane) >= votes(axes[-1])


def _keep(
    levels: list[list[Accumulator]], element: list[Store], reduce: list[Expr], keep_cost: int
) -> tuple[list[Stage], list[Store], int]:
    """Find expensive values that a later pass needs again, and route them through scratch rows."""
    position = const(0)
    for r in reduce:
        position = position * r.args[0] + r
    stages: list[Stage] = []
    pending = [list(x) for x in levels]
    count = 0
    for k, accumulators in enumerate(pending):
        here = _find_computed([a.term for a in accumulators])
        later = [a.term for x in pending[k + 1 :] for a in x] + [s.value for s in element]
        found = [x for x in _find_shared(later, here, keep_cost) if any(contains(x, r) for r in reduce)]
        mapping = {x: load(f"row{count + n}", (position,), x.dtype) for n, x in enumerate(found)}
        stages.append(Stage(tuple(accumulators), tuple(Keep(count + n, x) for n, x in enumerate(found))))
        count += len(found)
        if mapping:
            for x in pending[k + 1 :]:
                x[:] = [Accumulator(a.name, a.combine, rebuild(a.term, mapping.get), a.result) for a in x]
            element = [Store(s.buffer, s.offset, rebuild(s.value, mapping.get)) for s in element]
    return stages, element, count


def _find_computed(roots: list[Expr]) -> set[Expr]:
    """What every point computes: no branch of a condition on the point, since it may read outside of memory."""
    pending, seen = list(roots), set[Expr]()
    while pending:
        x = pending.pop()
        if x not in seen:
            seen.add(x)
            by_place = x.op == "select" and not any(y.op in ("load", "acc") for y in walk(x.args[0]))
            pending.extend(x.args[:1] if by_place else x.args)
    return seen


def _find_shared(roots: list[Expr], here: set[Expr], keep_cost: int) -> list[Expr]:
    """Topmost f32 sub-expressions of the roots that are in `here` and are expensive enough."""
    out: dict[Expr, None] = {}
    pending, seen = list(roots), set()
    while pending:
        x = pending.pop()
        if x in seen:
            continue
        seen.add(x)
        kept = x.op not in ("const", "acc") and (x.op != "load" or (keep_cost == KEEP_ALL and isinstance(x.data, int)))
        if x in here and x.dtype.name == "f32" and kept and cost(x) >= keep_cost:
            out[x] = None
        elif x.op != "load":
            pending.extend(x.args)
    return list(out)
