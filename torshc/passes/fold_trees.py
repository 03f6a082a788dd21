"""What is computed of a single tree's leaf alone becomes what the leaf says."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from ..base.errors import TorshcError
from ..base.options import CompileOptions
from ..expr import Expr, acc, as_int, axis, const, walk
from ..graph import Builder, Graph, Node, Patch, TensorType, Value
from ..ops import LoopNest
from ..ops.core.base import Index
from ..ops.ml.forest import Trees, tables_of, with_features
from ..ops.tensor.index import Gather
from ..ops.tensor.parts import Slice
from .interpret import CannotEvaluate, run_node
from .manager import graph_pass
from .walk import Site
from .walk import walk as walk_nodes

Array = np.ndarray[Any, Any]
_TERMS = 1 << 24  # elements that a step over all leaves may visit


@graph_pass("fold_trees")
def fold_trees(graph: Graph, options: CompileOptions) -> bool:
    """Compute what follows from a tree's leaf for all its leaves, and read features where chosen ones were copied from.

    Exporters of isolation forests look up a depth for each leaf of a tree, and correct it by a formula.

    Before::

        %1 = Gather[axis=1](%0, @columns)
        %2 = Trees(%1, @nodes, @roots, @weights)
        %3 = Log(%2)

    After::

        %3 = Trees(%0, @nodes, @roots, @weights)
    """
    direct = walk_nodes(graph, _read_directly, "fold_trees")
    found = _Tables(graph).found

    def rule(site: Site) -> Patch | None:
        if site.node not in found:
            return None
        tree, weights = found[site.node]
        x, nodes, roots, _ = tree.operands
        op = Trees("SUM", *tables_of(tree)[:2])
        return site.replace(site.builder.one(op, x, nodes, roots, graph.constant(weights)))

    return walk_nodes(graph, rule, "fold_trees") or direct


def _read_directly(site: Site) -> Patch | None:
    """Trees over columns that were chosen by constants, as trees over what they were chosen from."""
    op = site.node.op
    if not isinstance(op, Trees):
        return None
    x, _, roots, weights = site.node.operands
    if (found := _columns(x)) is None:
        return None
    data, chosen = found
    nodes = site.graph.constant(with_features(tables_of(site.node)[2], chosen))
    return site.replace(site.builder.one(op, data, nodes, roots, weights))


def _columns(x: Value) -> tuple[Value, Array] | None:
    """The matrix that columns were chosen from by constants, and which."""
    node = x.producer
    if node is None or not isinstance(node.op, Gather | Slice) or node.operands[0].type.rank != 2:
        return None
    data, op = node.operands[0], node.op
    if isinstance(op, Slice):
        first, size, step = (as_int(part[1]) for part in (op.starts, op.sizes, op.steps))
        if x.shape[0] is not data.shape[0] or op.steps[0] != 1 or first is None or size is None or step is None:
            return None
        return data, first + step * np.arange(size)
    columns = node.operands[1]
    if columns.const is None or columns.type.rank != 1 or op.axis not in (1, -1):
        return None
    chosen = columns.const
    if chosen.size and chosen.min() < 0:
        if (count := as_int(data.shape[1])) is None:
            return None
        chosen = np.where(chosen < 0, chosen + count, chosen)
    return data, chosen


class _Tables:
    """What values are for each leaf of the one tree that they depend on.

    Attributes:
        found: nodes whose result alone is read of what follows from a tree, with the tree and the result by leaf.
    """

    def __init__(self, graph: Graph) -> None:
        self.known: dict[Value, tuple[Node, Array]] = {}
        self.found: dict[Node, tuple[Node, Array]] = {}
        self._made: dict[Hashable, Node | None] = {}
        self._apart: dict[Hashable, bool] = {}
        single = [n for n in graph.nodes if isinstance(n.op, Trees) and as_int(n.operands[2].shape[0]) == 1]
        # All trees get as many rows, at least two, so that what follows from them is alike.
        self.rows = max([2, *(as_int(n.operands[3].shape[0]) or 0 for n in single)])
        if len(single) * self.rows > _TERMS:
            return
        for node in graph.nodes:
            self._follow(node)
        users, outputs = graph.users(), set(graph.outputs)
        ends: dict[Node, list[Value]] = {}
        for v, (tree, _) in self.known.items():
            if v in outputs or any(u.outputs[0] not in self.known for u in users.get(v, ())):
                ends.setdefault(tree, []).append(v)
        for tree, values in ends.items():
            value, weights = values[0], tree.operands[3].const
            same = len(values) == 1 and value.type == tree.output.type
            maker = value.producer
            if same and maker is not None and maker is not tree and weights is not None:
                self.found[maker] = (tree, self.known[value][1][: len(weights)])

    def _follow(self, node: Node) -> None:
        if isinstance(node.op, Trees):
            weights, roots = node.operands[3].const, node.operands[2].const
            if weights is not None and roots is not None and len(roots) == 1 and len(weights):
                self.known[node.output] = (node, np.resize(weights, (self.rows, weights.shape[1])))
            return
        trees = {self.known[v][0] for v in node.operands if v in self.known}
        plain = all(v in self.known or v.const is not None for v in node.operands)
        if len(trees) != 1 or not plain or len(node.outputs) != 1:
            return
        if (made := self._by_leaf(node)) is not None:
            self.known[node.output] = (trees.pop(), made)

    def _by_leaf(self, node: Node) -> Array | None:
        """The result of a node for each leaf, None where a row's is not made of that row alone."""
        arrays = [None if v is None else self.known[v][1] if v in self.known else v.const for v in node.inputs]
        shapes = tuple(None if a is None else a.shape for a in arrays)
        varied = tuple(v in self.known for v in node.inputs)
        types = tuple(None if v is None else v.dtype for v in node.inputs)
        key = (node.op, shapes, varied, types)
        if key not in self._made:
            self._made[key] = self._alike(node, shapes, varied)
        if (made := self._made[key]) is None:
            return None
        try:
            return run_node(made, arrays)[0]
        except CannotEvaluate:
            return None

    def _alike(self, node: Node, shapes: Sequence[tuple[int, ...] | None], varied: tuple[bool, ...]) -> Node | None:
        """The node with a row for each leaf, None where a row of its result is not made of that row alone."""
        b = Builder(Graph())
        inputs = [
            None if v is None or s is None else b.graph.new_value(TensorType(v.dtype, tuple(map(const, s))))
            for v, s in zip(node.inputs, shapes, strict=True)
        ]
        try:
            made = b.add(node.op, inputs)[0].producer
        except TorshcError:  # it fits this number of rows alone
            return None
        nest = None if made is None else made.op.nest(made, 0)
        if made is None or nest is None or not made.output.type.rank or _steps(made, nest) > _TERMS:
            return None
        # How long tables are makes no difference to where rows are read.
        key = (node.op, varied, tuple(None if s is None else tuple(min(d, 2) for d in s) for s in shapes))
        if key not in self._apart:
            self._apart[key] = _keeps_rows(made, nest, varied)
        return made if self._apart[key] else None


def _keeps_rows(node: Node, nest: LoopNest, varied: Sequence[bool]) -> bool:
    """Whether each row of a result is made of the same row of some operands, in the same way for all rows.

    Args:
        varied: which operands have rows; the others are constants.
    """
    at = tuple(axis(f"i{k}", d) for k, d in enumerate(node.output.shape))
    row, apart = at[0], True

    def read(k: int, index: Index) -> Expr:
        nonlocal apart
        value = node.inputs[k]
        assert value is not None
        rest = index[1:] if varied[k] else index
        apart = apart and (not varied[k] or index[0] is row) and not any(row in walk(e) for e in rest)
        return acc(f"x{k}", value.dtype.register)

    term = nest.body(at, tuple(axis(f"r{k}", e) for k, e in enumerate(nest.reduce)), read)
    result = nest.finish(acc("sum", term.dtype), at, read)
    return apart and row not in walk(term, result)


def _steps(node: Node, nest: LoopNest) -> int:
    """Elements that are visited."""
    return math.prod(as_int(e) or 0 for e in (*node.output.shape, *nest.reduce))
