"""Tensor parallelism: every rank computes all nodes, with its part of some weights.

Where weights are split, what follows is split as rules say (`layout.py`). What no rule splits is whole on every rank.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ..base.errors import ConfigError, UnsupportedError
from ..expr import BF16, F16, F32, DType, as_int
from ..graph import Graph, Node, Value
from ..ops import Tensor
from ..ops.core.tensor import apply_op
from ..ops.math.linalg import Gemm, MatMul
from ..ops.ranks.collectives import SUMMED, AllGather, AllReduce, ReduceScatter
from ..ops.tensor.view import Concat
from ..passes.config import Problems
from .config import ScatterRule, SplitRule, TensorParallel
from .cut import Cut, RankGraph, Transfer, demands_of, name_of, names_of
from .layout import Axis, Layout, Way, way_of


@dataclass
class Layouts:
    """How a model's tensors are split.

    Attributes:
        ranks: how many there are.
        weights: layouts of constants.
        uses: how one node reads its operands.
        gives: how a node lays out its results by itself.
        scattered: how sums over ranks are laid out.
        where: what says so, where that is the model itself: what no rule can follow is refused then.
    """

    ranks: int
    weights: dict[Value, Axis] = field(default_factory=dict)
    uses: dict[Node, dict[Value, Layout]] = field(default_factory=dict)
    gives: dict[Value, Layout] = field(default_factory=dict)
    scattered: dict[Node, Axis] = field(default_factory=dict)
    where: str = ""


def layouts_of(graph: Graph, plan: TensorParallel) -> Layouts:
    """The layouts that rules come to.

    Raises:
        ConfigError: a name that the model does not have, or an axis that cannot be split.
    """
    weights, uses = _read_layouts(graph, plan)
    return Layouts(plan.ranks, weights, uses, scattered=_scattered(graph, plan))


def split_tensors(graph: Graph, layouts: Layouts, adds_halves: bool = False) -> Cut:
    """The graphs of ranks that share the weights of a model. All take all its inputs and give all its outputs.

    Args:
        adds_halves: whether what adds up tensors of ranks adds two halves as an f32 would, and rounds once.

    Raises:
        UnsupportedError: a sum over ranks of a type that has none, or nodes that the model has split and no rule can.
    """
    splitter = _Splitter(graph, layouts, adds_halves and layouts.ranks <= 2)
    for node in graph.nodes:
        splitter.compute(node, layouts.uses.get(node, {}))
    if layouts.where and splitter.whole:
        raise UnsupportedError(
            [f"{n.describe()}: the model splits what it reads, and ranks compute it whole" for n in splitter.whole],
            "leave out the annotations of these nodes",
        )
    return splitter.finish()


class _Splitter:
    """The graphs of all ranks in the making.

    Attributes:
        layout: the layout of values of the model; a value without one is whole.
        scattered: how sums are split that are not to be whole on every rank.
        gives: how results are to be split.
        whole: nodes of which an operand is to be split, and which no rule can compute so.
        halves: whether halves are added up as they are.
    """

    def __init__(self, graph: Graph, layouts: Layouts, halves: bool) -> None:
        self.graph, self.count, self.halves = graph, layouts.ranks, halves
        self.scattered, self.gives = layouts.scattered, layouts.gives
        self.ranks = [RankGraph(graph, r, self.count) for r in range(self.count)]
        self.layout: dict[Value, Axis] = dict(layouts.weights)
        self.whole: list[Node] = []
        self.transfers: list[Transfer] = []
        self._made: dict[tuple[Value, Layout], list[Value]] = {}  # in layouts that they do not have of themselves

    def compute(self, node: Node, uses: Mapping[Value, Layout]) -> None:
        """Make a node on every rank.

        Args:
            uses: layouts of operands as this node alone reads them.
        """
        known: dict[Value, Layout] = {**self.layout, **uses}
        layouts = [None if v is None else known.get(v) for v in node.inputs]
        way = way_of(node, layouts, self.count) if any(layouts) else None
        if way is None and any(uses.values()):
            self.whole.append(node)
        way = way or Way((None,) * len(node.inputs), node.op, (None,) * len(node.outputs))
        wanted = zip(node.inputs, (*way.wants, *[None] * len(node.inputs)), strict=False)
        operands = [[None] * self.count if v is None or way.drops(v) else self._in(v, want) for v, want in wanted]
        for k, rank in enumerate(self.ranks):
            _make(rank, node, way, [each[k] for each in operands])
        self.layout |= {v: x for v, x in zip(node.outputs, way.gives, strict=True) if x is not None}
        if way.summed:
            self._sum(node)
        if way.added is not None:
            term, factor = way.added
            for rank, x in zip(self.ranks, self._in(term, self._beside(node, term)), strict=True):
                total = Tensor(rank.builder, rank.there[node.output]) + Tensor(rank.builder, x) * factor
                rank.there[node.output] = total.value
        for v in node.outputs:
            if v in self.gives and self.gives[v] != self.layout.get(v):
                self._turn(v, self.gives[v])

    def finish(self) -> Cut:
        """The graphs, with whole outputs."""
        demands = demands_of(self.graph)
        results = [self._in(v, None) for v in self.graph.results]
        faults = {v: self._in(v, None) for v in demands}
        done = [
            rank.finish([each[k] for each in results], {faults[v][k]: what for v, what in demands.items()})
            for k, rank in enumerate(self.ranks)
        ]
        return Cut(tuple(done), tuple(self.transfers))

    def _in(self, v: Value, want: Layout) -> list[Value]:
        """What stands for a value on each rank, in a layout."""
        have = self.layout.get(v)
        if (v, want) in self._made:
            return self._made[v, want]
        if v.const is not None:
            found = [rank.get(v) if want is None else _own_constant(rank, v, want) for rank in self.ranks]
        elif have == want:
            return [rank.get(v) for rank in self.ranks]
        elif want is None:
            assert have is not None
            found = self._gather(v, have)
        else:
            found = [_own_part(rank, x, want) for rank, x in zip(self.ranks, self._in(v, None), strict=True)]
        self._made[v, want] = found
        return found

    def _turn(self, v: Value, want: Layout) -> None:
        """From here on a value is in another layout; what it was is still there for those that need it so."""
        have, before = self.layout.get(v), [rank.get(v) for rank in self.ranks]
        turned = self._in(v, want)
        self._made[v, have] = before
        for rank, own in zip(self.ranks, turned, strict=True):
            rank.there[v] = own
        if want is None:
            del self.layout[v]
        else:
            self.layout[v] = want

    def _gather(self, v: Value, have: Axis) -> list[Value]:
        found = []
        for rank in self.ranks:
            own = rank.get(v)
            (parts,) = rank.exchange(AllGather(self.count), own, name=name_of(v))
            found.append(_join_parts(rank, parts, have))
        self.transfers.append(Transfer(-1, -1, "AllGather", name_of(v), self.ranks[0].get(v).type))
        return found

    def _beside(self, node: Node, term: Value) -> Layout:
        """The layout of what is added to a sum."""
        split = self.scattered.get(node)
        own = -1 if split is None else split.axis - (node.output.type.rank - term.type.rank)
        narrow = split is None or own < 0 or as_int(term.shape[own]) == 1
        return None if split is None or narrow else split.at(own)

    def _sum(self, node: Node) -> None:
        v = node.output
        split = self.scattered.get(node)
        for rank in self.ranks:
            own = Tensor(rank.builder, rank.get(v)).cast(_summed_as(node, v.dtype, self.halves))
            if split is None:
                (total,) = rank.exchange(AllReduce(), own.value, name=node.name)
            else:
                parts = _in_parts(own, split, self.count)
                (total,) = rank.exchange(ReduceScatter(self.count), parts.value, name=node.name)
            rank.there[v] = Tensor(rank.builder, total).cast(v.dtype).value
            rank.there[v].name = v.name
        if split is not None:
            self.layout[v] = split
        kind = "AllReduce" if split is None else "ReduceScatter"
        self.transfers.append(Transfer(-1, -1, kind, name_of(v), v.type))


def _summed_as(node: Node, dtype: DType, halves: bool) -> DType:
    """The type in which ranks add up their parts.

    Raises:
        UnsupportedError: there is none.
    """
    if dtype in (F16, BF16):
        return dtype if halves else F32
    if dtype not in SUMMED:
        raise UnsupportedError(
            [f"{node.describe()} is split over its sum, and ranks do not add up {dtype!r}"],
            "leave its weight whole in the file that --shard names",
        )
    return dtype


def _own_constant(rank: RankGraph, v: Value, want: Axis) -> Value:
    """A rank's part of a weight."""
    assert v.const is not None
    pieces, at = [], 0
    for size in want.sections:
        each = size // rank.graph.ranks
        pieces.append(
            np.take(v.const, np.arange(at + rank.graph.rank * each, at + (rank.graph.rank + 1) * each), want.axis)
        )
        at += size
    array = np.ascontiguousarray(np.concatenate(pieces, want.axis))
    array.flags.writeable = False
    return rank.graph.constant_like(v, array)


def _own_part(rank: RankGraph, x: Value, want: Axis) -> Value:
    """A rank's part of what every rank has."""
    pieces, at = [], 0
    for size in want.sections:
        each = size // rank.graph.ranks
        start = at + rank.graph.rank * each
        pieces.append(Tensor(rank.builder, x).part(want.axis, start, start + each))
        at += size
    return _concatenated(pieces, want.axis)


def _in_parts(x: Tensor, split: Axis, ranks: int) -> Tensor:
    """The part of each rank along a new first dimension."""
    at = split.axis
    cut = x.reshape(*x.shape[:at], ranks, split.size // ranks, *x.shape[at + 1 :])
    return cut.transpose(at, *range(at), *range(at + 1, cut.rank))


def _join_parts(rank: RankGraph, parts: Value, have: Axis) -> Value:
    """A whole tensor from the parts of all ranks, which lie behind each other along dimension 0."""
    each = [size // rank.graph.ranks for size in have.sections]
    joined = []
    for piece, size in zip(Tensor(rank.builder, parts).split(have.axis + 1, *each), have.sections, strict=True):
        turned = piece.transpose(*range(1, have.axis + 1), 0, *range(have.axis + 1, piece.rank))
        joined.append(turned.reshape(*turned.shape[: have.axis], size, *turned.shape[have.axis + 2 :]))
    return _concatenated(joined, have.axis)


def _concatenated(pieces: list[Tensor], axis: int) -> Value:
    return pieces[0].value if len(pieces) == 1 else apply_op(Concat(axis), *pieces).value


def _make(rank: RankGraph, node: Node, way: Way, operands: Sequence[Value | None]) -> None:
    """Make a node on a rank."""
    if way.make is not None:
        made = [way.make(rank.graph.rank, [Tensor(rank.builder, v) for v in operands if v is not None]).value]
    else:
        made = rank.builder.add(way.op, operands, node.name)
    for v, own in zip(node.outputs, made, strict=True):
        own.name = v.name
        rank.there[v] = own


# ---- what the file says ----


def _read_layouts(graph: Graph, plan: TensorParallel) -> tuple[dict[Value, Axis], dict[Node, dict[Value, Layout]]]:
    """The layouts of the weights that rules name, and those of weights as products read them that rules name.

    Raises:
        ConfigError: with all that is wrong with the rules.
    """
    weights = {v.name: v for n in graph.nodes for v in n.operands if v.const is not None and v.name}
    products = {name: n for n in graph.nodes if _large(n) for name in names_of(n)}
    read = {name: _large(n)[0] for name, n in products.items()}
    problems, found = Problems(), dict[str, Axis]()
    for rule in plan.rules:
        with problems.gather():
            for name in sorted(rule.names.among({**read, **weights})):
                if name not in found:
                    found[name] = _axis_of(rule, name, weights.get(name) or read[name], plan.ranks)
    problems.settle()
    uses: dict[Node, dict[Value, Layout]] = {}
    for name in found.keys() - weights.keys():
        uses.setdefault(products[name], {})[read[name]] = found[name]
    return {weights[name]: axis for name, axis in found.items() if name in weights}, uses


def _scattered(graph: Graph, plan: TensorParallel) -> dict[Node, Axis]:
    """How the results are split of products that scatter rules name.

    Raises:
        ConfigError: with all that is wrong with the rules.
    """
    products = {name: n for n in graph.nodes if isinstance(n.op, MatMul | Gemm) for name in names_of(n)}
    problems, found = Problems(), dict[Node, Axis]()
    for rule in plan.scatter:
        with problems.gather():
            for name in sorted(rule.names.among(products)):
                found.setdefault(products[name], _part_of(rule, name, products[name].output, plan.ranks))
    problems.settle()
    return found


def _part_of(rule: ScatterRule, name: str, v: Value, ranks: int) -> Axis:
    if not -v.type.rank <= rule.axis < v.type.rank:
        raise ConfigError(
            f"{rule.where}: the result of {name!r} has {v.type.rank} dimensions and no axis {rule.axis}", "name another"
        )
    axis = rule.axis % v.type.rank
    size = as_int(v.shape[axis])
    if size is None or size % ranks:
        what = f"axis {axis} of the result of {name!r} is {v.shape[axis]!r} long, which {ranks} ranks cannot share"
        raise ConfigError(f"{rule.where}: {what}", "scatter another axis, or pin the size with --shapes")
    return Axis(axis, (size,))


def _large(node: Node) -> list[Value]:
    """The weight that a node reads, where it is one, and a matrix at the least."""
    found = [v for v in node.operands if v.const is not None and v.type.rank > 1]
    return found if len(found) == 1 else []


def _axis_of(rule: SplitRule, name: str, v: Value, ranks: int) -> Axis:
    shape = v.type.static_shape or ()
    if not -len(shape) <= rule.axis < len(shape):
        raise ConfigError(f"{rule.where}: {name!r} has {len(shape)} dimensions and no axis {rule.axis}", "name another")
    axis = rule.axis % len(shape)
    sections = rule.sections(shape[axis])
    if sum(sections) != shape[axis] or any(s % ranks for s in sections):
        parts = f" as {' + '.join(map(str, sections))}" if len(sections) > 1 else ""
        what = f"axis {axis} of {name!r} is {shape[axis]} long, which {ranks} ranks cannot share{parts}"
        remedy = "split another axis, leave it whole, or take a number of ranks that divides it"
        raise ConfigError(f"{rule.where}: {what}", remedy)
    return Axis(axis, sections)
