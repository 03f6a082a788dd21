"""Which weights to split, by the cost model: products are tried in order, and split where that makes a run shorter."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from ..expr import as_int
from ..graph import Graph, Node, Value
from ..ops.math.linalg import Gemm, MatMul
from ..ops.tensor.parts import Split
from .config import Choice, SplitRule, TensorParallel
from .cost import Machine, compute_seconds, exchange_seconds
from .cut import demands_of, names_of
from .layout import Axis, Layout, Way, way_of

USUAL = 128  # what a symbolic size counts as
WHERE = "--shard auto"


def choose_splits(graph: Graph, ranks: int, machine: Machine) -> TensorParallel | None:
    """The rules by which a run is predicted to be shortest, found one product after the other; None for none."""
    uses: dict[Node, dict[Value, Axis]] = {}
    best = _seconds(graph, uses, ranks, machine)
    splits = {tuple(as_int(s) for s in n.op.sizes) for n in graph.nodes if isinstance(n.op, Split)}
    for node, weight, axis in _products(graph):
        size = as_int(weight.shape[axis]) or 0
        alike = [s for s in splits if sum(k or 0 for k in s) == size]
        for sections in [(size,), *alike]:
            known = tuple(k or 0 for k in sections)
            if not size or any(not k or k % ranks for k in known):
                continue
            tried = {**uses, node: {weight: Axis(axis, known)}}
            seconds = _seconds(graph, tried, ranks, machine)
            if seconds < best:
                uses, best = tried, seconds
    rules = [
        SplitRule(Choice(names_of(node)[0], WHERE), axis.axis, axis.sections, WHERE)
        for node, of in uses.items()
        for axis in of.values()
    ]
    return TensorParallel(ranks, tuple(rules), WHERE) if rules else None


def _products(graph: Graph) -> Iterator[tuple[Node, Value, int]]:
    """Products by a weight, with the axis of that which is that of the result's columns."""
    for node in graph.nodes:
        if not names_of(node) or len(node.operands) < 2:
            continue
        weight = node.operands[1]
        if weight.const is None or weight.type.rank < 2 or node.operands[0].const is not None:
            continue
        if isinstance(node.op, MatMul):
            yield node, weight, weight.type.rank - 1
        elif isinstance(node.op, Gemm):
            yield node, weight, 1 - node.op.trans_b


def _seconds(graph: Graph, uses: Mapping[Node, Mapping[Value, Axis]], ranks: int, machine: Machine) -> float:
    """What a run is predicted to take with these layouts of weights."""
    layout: dict[Value, Axis] = {}
    whole: set[Value] = set()
    total = 0.0

    def take(v: Value, want: Layout) -> float:
        have = layout.get(v)
        if have is None or have == want or v in whole:
            return 0.0
        whole.add(v)
        return exchange_seconds(machine, "AllGather", _nbytes(v) / ranks, ranks)

    for node in graph.nodes:
        own = uses.get(node, {})
        layouts = [None if v is None else own.get(v, layout.get(v)) for v in node.inputs]
        found = way_of(node, layouts, ranks) if any(layouts) else None
        way = found or Way((None,) * len(node.inputs), node.op, (None,) * len(node.outputs))
        shared = 1 / ranks if any(way.wants) else 1.0
        for v, want in zip(node.inputs, way.wants, strict=False):
            total += 0.0 if v is None else take(v, want)
        nbytes = sum(map(_nbytes, (*node.operands, *node.outputs)))
        operations = 2.0 * _size(node.output) * _depth(node)
        total += shared * compute_seconds(machine, operations, nbytes, node.output.dtype.size == 2)
        layout |= {v: x for v, x in zip(node.outputs, way.gives, strict=True) if x is not None}
        if way.summed:
            total += exchange_seconds(machine, "AllReduce", _nbytes(node.output), ranks)
    return total + sum(take(v, None) for v in (*graph.results, *demands_of(graph)))


def _depth(node: Node) -> int:
    """Terms of a sum for each element of a product."""
    x = node.operands[0] if node.operands else None
    if x is None or not x.type.rank or not isinstance(node.op, MatMul | Gemm):
        return 1
    axis = 0 if isinstance(node.op, Gemm) and node.op.trans_a else -1
    return as_int(x.shape[axis]) or USUAL


def _size(v: Value) -> int:
    return math.prod(USUAL if (n := as_int(d)) is None else n for d in v.shape)


def _nbytes(v: Value) -> int:
    return _size(v) * v.dtype.size
