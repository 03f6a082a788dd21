"""Ensembles of trees as tables, whatever operator they were read from: the operator over them, and as loop nests."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ...base.errors import ModelError
from ...expr import F64, I32, DType, Expr, as_int
from ...graph import Builder, Node, TensorType, Value
from ..core.base import Constraints, Index, Inputs, LoopNest, Op, Read, need, operator
from ..core.scalar import Scalar, equal, function_named, isnan, ne, where

Array = np.ndarray[Any, Any]
Branch = tuple[int, str, float, bool, int, int]
"""Feature, mode ("LEQ", "LT", "GTE", "GT", "EQ", "NEQ"), value, whether NaN goes to "true", the sides "true" and
"false": a branch's number, or a leaf's as -1 - number."""

DEEPEST = 64  # branches on a way to a leaf that a loop nest is written out for
LANES = 16  # f32 of the widest vectors
LESS, EQUAL, MISSING = 28, 29, 30  # bits of a branch, for what goes to "true"
MOST = 1 << LESS  # features and leaves
COMBINE = {"SUM": "add", "AVERAGE": "add", "MIN": "min", "MAX": "max"}
NEUTRAL = {"MIN": math.inf, "MAX": -math.inf}
_FLAGS = {"LT": 1 << LESS, "EQ": 1 << EQUAL, "LEQ": 1 << LESS | 1 << EQUAL}
_NAMES = {"LT": "lt", "EQ": "eq", "LEQ": "le"}
_SWAPPED = {"GTE": "LT", "GT": "LEQ", "NEQ": "EQ"}


def tables(
    what: str, branches: Sequence[Branch], leaves: int, roots: Sequence[int], kind: DType
) -> tuple[str, bool, Array, Array]:
    """What the operator `Trees` reads of some trees; both sides of a branch lie side by side.

    Returns:
        `compare` and `missing`, the nodes, and the root and the depth of each tree, as `Trees` describes them.

    Raises:
        ModelError: a branch or a leaf does not exist, or branches lead to each other.
    """
    depth = _depths(what, branches, leaves, roots)
    plain = [_swap_branch(b) for b in branches]
    modes = {b[1] for b in plain}
    missing = any(b[3] for b in plain)
    compare = _NAMES[modes.pop()] if len(modes) == 1 else "any" if modes else "le"
    order = _pairs(plain, roots)
    first = {b: len(roots) + 2 * k for k, b in enumerate(order)}
    ends = [*roots, *(side for b in order for side in (plain[b][5], plain[b][4]))]
    wide = kind is F64
    nodes = np.zeros((len(ends), 6 if wide else 4), np.int32)
    values = np.full(len(ends), math.nan, kind.numpy)
    place = 2 if wide else 1
    for k, end in enumerate(ends):
        if end < 0:
            nodes[k, place:] = [0, k, -1 - end, *[0] * wide]
            continue
        feature, mode, value, lost, _, _ = plain[end]
        bits = (_FLAGS[mode] if compare == "any" else 0) | (1 << MISSING if lost else 0)
        nodes[k, place : place + 3] = [feature, first[end], bits]
        with np.errstate(over="ignore"):
            values[k] = value
    nodes[:, :place] = values.view(np.int32).reshape(len(ends), place)
    return compare, missing, nodes, np.asarray([(k, depth.get(r, 0)) for k, r in enumerate(roots)], np.int32)


def _swap_branch(b: Branch) -> Branch:
    """A branch with one of the modes "LT", "LEQ" and "EQ"."""
    feature, mode, value, lost, yes, no = b
    return (feature, _SWAPPED[mode], value, not lost, no, yes) if mode in _SWAPPED else b


def _pairs(branches: Sequence[Branch], roots: Sequence[int]) -> list[int]:
    """The branches that are reached, each tree's in the order of a walk that looks at "false" first."""
    order: dict[int, None] = {}
    for root in roots:
        pending = [root]
        while pending:
            b = pending.pop()
            if b >= 0 and b not in order:
                order[b] = None
                pending += branches[b][4:]
    return list(order)


def _depths(what: str, branches: Sequence[Branch], leaves: int, roots: Sequence[int]) -> dict[int, int]:
    """Most branches on a way from each branch to a leaf.

    Raises:
        ModelError: a branch or a leaf does not exist, or branches lead to each other.
    """
    depth: dict[int, int] = {}
    above: set[int] = set()
    for root in roots:
        pending = [root]
        while pending:
            b = pending[-1]
            if not -leaves <= b < len(branches):
                raise ModelError(f"{what} has no {f'node {b}' if b >= 0 else f'leaf {-1 - b}'}")
            sides = branches[b][4:] if b >= 0 and b not in depth else ()
            fresh = [s for s in sides if s not in depth and not -leaves <= s < 0]
            if above.intersection(fresh):
                raise ModelError(f"{what} with nodes that lead to each other")
            if fresh:
                above.add(b)
                pending += fresh
                continue
            pending.pop()
            above.discard(b)
            if sides:
                depth[b] = 1 + max(depth.get(s, 0) for s in sides)
    return depth


@operator("Trees", "torshc")
@dataclass(frozen=True)
class Trees(Op):
    """[N, targets]: what the leaves say that the rows of x[N, C] reach in T trees, aggregated by target.

    Operands: x in f32 or f64; the nodes as i32[nodes, 4 or 6]: the value (in two parts for f64), the feature, the place
    of the node of "false", behind which lies that of "true", and bits of a branch or the number of a leaf; the root
    and the depth of each tree, i32[T, 2]; weights[leaves, targets]. A leaf is a node whose value is NaN and whose next
    is itself. All places are checked when the tables are made.

    Attributes:
        aggregate: "SUM", "AVERAGE" (over all trees), "MIN" or "MAX".
        compare: "le", "lt" or "eq", or "any" where each branch has bits for what goes to "true": less, equal.
        missing: whether each branch has a bit for NaN; otherwise NaN goes to "false".
    """

    family: ClassVar[str] = "trees"
    aggregate: str = "SUM"
    compare: str = "le"
    missing: bool = False

    def infer(self, inputs: Inputs, constraints: Constraints) -> list[TensorType]:
        x, weights = need(inputs[0], "the features of trees"), need(inputs[3], "the weights of trees")
        return [TensorType(weights.dtype, (x.shape[0], weights.shape[1]))]

    def flops(self, node: Node) -> Expr:
        """A comparison for each branch on the longest ways, and the sums."""
        roots = node.operands[2].const
        assert roots is not None
        return node.operands[0].shape[0] * (int(roots[:, 1].sum()) + len(roots) * node.output.shape[1])

    def decompose(self, b: Builder, inputs: Inputs) -> list[Value] | None:
        x, nodes, roots, weights = (need(v, "an operand of trees") for v in inputs)
        if nodes.const is None or roots.const is None:
            return None
        many, depth = len(roots.const) >= LANES, int(roots.const[:, 1].max())
        place = nodes.const.shape[1] - 3 - (x.dtype is F64)
        values = np.ascontiguousarray(nodes.const[:, :place]).view(x.dtype.numpy).reshape(-1)
        columns = [values, *(nodes.const[:, k] for k in range(place, place + 3)), roots.const[:, 0]]
        operands = [x, *(b.constant(np.ascontiguousarray(c)) for c in columns)]
        reached = b.one(Walk(depth, self.compare, self.missing, many), *operands)
        return [b.one(LeafSums(self.aggregate, many), reached, weights)]


def finished(total: Scalar, aggregate: str, trees: int) -> Scalar:
    """The result of trees from what was accumulated."""
    neutral = NEUTRAL.get(aggregate)
    if neutral is not None:
        return where(equal(total, neutral), 0, total)
    return total / trees if aggregate == "AVERAGE" else total


@operator("Walk", "torshc")
@dataclass(frozen=True)
class Walk(Op):
    """The number of the leaf that each row of x[N, C] reaches in each tree, [T, N], or [N, T] for many trees.

    Operands: x; the value, the feature, the next place and the bits of each node, as in `Trees`; the roots.

    It is apart from what the leaves say, so that a walk serves all targets, and vectors run along what is last.

    Attributes:
        depth: most branches on a way to a leaf.
        compare, missing: as in `Trees`.
        many: whether there are enough trees for a vector, so that a single row is fast, too.
    """

    family: ClassVar[str] = "nest"
    depth: int = 0
    compare: str = "le"
    missing: bool = False
    many: bool = False

    def infer(self, inputs: Inputs, constraints: Constraints) -> list[TensorType]:
        x, roots = need(inputs[0], "the features of trees"), need(inputs[5], "the roots of trees")
        shape = (x.shape[0], roots.shape[0]) if self.many else (roots.shape[0], x.shape[0])
        return [TensorType(I32, shape)]

    def nest(self, node: Node, output: int) -> LoopNest:
        def body(at: Index, inner: Index, read: Read) -> Scalar:
            row, tree = at if self.many else at[::-1]
            place = read(5, (tree,)).index()
            for _ in range(self.depth):
                place = read(3, (place,)).index() + self._holds(row, place, read).index()
            return read(4, (place,))

        return LoopNest(body)

    def _holds(self, row: Expr, place: Expr, read: Read) -> Scalar:
        """Whether the path continues at the side "true" of a node."""
        x, value = read(0, (row, read(2, (place,)).index())), read(1, (place,))

        def has(bit: int) -> Scalar:
            return ne(read(4, (place,)) & (1 << bit), 0)

        if self.compare == "any":
            holds = (x < value) & has(LESS) | equal(x, value) & has(EQUAL)
        else:
            holds = function_named(self.compare)(x, value)
        return holds | isnan(x) & has(MISSING) if self.missing else holds


@operator("LeafSums", "torshc")
@dataclass(frozen=True)
class LeafSums(Op):
    """[N, targets]: the weights[leaves, targets] of the leaves that rows reach, aggregated by target.

    Attributes:
        aggregate: as in `Trees`.
        many: as in `Walk`, which makes the leaves.
    """

    family: ClassVar[str] = "nest"
    aggregate: str = "SUM"
    many: bool = False

    def infer(self, inputs: Inputs, constraints: Constraints) -> list[TensorType]:
        leaves, weights = need(inputs[0], "the leaves of trees"), need(inputs[1], "the weights of trees")
        return [TensorType(weights.dtype, (leaves.shape[0 if self.many else 1], weights.shape[1]))]

    def nest(self, node: Node, output: int) -> LoopNest:
        trees = node.operands[0].shape[1 if self.many else 0]

        def body(at: Index, tree: Index, read: Read) -> Scalar:
            return read(1, (read(0, (at[0], *tree) if self.many else (*tree, at[0])).index(), at[1]))

        def finish(total: Scalar, at: Index, read: Read) -> Scalar:
            return finished(total, self.aggregate, as_int(trees) or 1)

        return LoopNest(body, (trees,), COMBINE[self.aggregate], finish)


Tables = tuple[str, bool, Array, Array]
"""`compare`, `missing`, nodes and roots of a `Trees`."""


def tables_of(node: Node) -> Tables:
    """The tables of a node."""
    op, nodes, roots = node.op, node.operands[1].const, node.operands[2].const
    assert isinstance(op, Trees) and nodes is not None and roots is not None
    return op.compare, op.missing, nodes, roots


def joined(parts: Sequence[tuple[Tables, int]]) -> Tables:
    """The tables of several ensembles, each with its number of leaves, over the same features: all trees in order."""
    compares = dict.fromkeys(t[0] for t, _ in parts)
    compare = next(iter(compares)) if len(compares) == 1 else "any"
    nodes, roots = [], []
    places = leaves = 0
    for (own, _, rows, starts), count in parts:
        _, nexts, what = _columns(rows)
        leaf = rows[:, nexts] == np.arange(len(rows))
        moved = rows.copy()
        if own != compare:
            moved[~leaf, what] |= _FLAGS[next(m for m, name in _NAMES.items() if name == own)]
        moved[:, nexts] += places
        moved[leaf, what] += leaves
        nodes.append(moved)
        roots.append(starts + np.asarray([places, 0], np.int32))
        places, leaves = places + len(rows), leaves + count
    return compare, any(t[1] for t, _ in parts), np.concatenate(nodes), np.concatenate(roots)


def with_features(nodes: Array, features: Array) -> Array:
    """Nodes that read the features at some places: their feature k is `features[k]`."""
    place, nexts, _ = _columns(nodes)
    made = nodes.copy()
    branch = nodes[:, nexts] != np.arange(len(nodes))
    made[branch, place] = features[nodes[branch, place]]
    return made


def _columns(nodes: Array) -> tuple[int, int, int]:
    """Where the feature, the next place and the bits of nodes stand."""
    place = 2 if nodes.shape[1] == 6 else 1
    return place, place + 1, place + 2
