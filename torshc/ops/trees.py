"""Tree ensembles of ai.onnx.ml as nested selects: for ensembles whose nodes together are few.

Decided here where ONNX leaves it open: a target that no leaf reached names is 0, whatever the aggregation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ..errors import ModelError
from ..expr import F32, DType, Expr, as_int, call, const, select
from ..graph import Node, TensorType, Value
from .base import Constraints, Index, Inputs, Nest, Op, Read, need, operator
from .ml import DOMAIN, floats, post_transform
from .pointwise import compute
from .source import SourceNode, Unsupported

MOST = 1024  # nodes and leaves of all trees together
DEEPEST = 48
_COMBINE = {"SUM": "add", "AVERAGE": "add", "MIN": "min", "MAX": "max"}
_NEUTRAL = {"MIN": math.inf, "MAX": -math.inf}
_COMPARE = {"LEQ": "le", "LT": "lt", "GTE": "ge", "GT": "gt", "EQ": "eq", "NEQ": "ne"}
_MODES = (*_COMPARE, "MEMBER")
_AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")
_TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")


@dataclass(frozen=True)
class Leaf:
    """Weights by target."""

    weights: tuple[tuple[int, float], ...]


@dataclass(frozen=True)
class Branch:
    """A choice: `yes` where the feature compares so with the value, or is among the values ("MEMBER")."""

    feature: int
    mode: str
    values: tuple[float, ...]
    missing_is_yes: bool
    yes: Tree
    no: Tree


Tree = Leaf | Branch


@operator("Trees", "torshc")
@dataclass(frozen=True)
class Trees(Op):
    """[N, targets] from x[N, C]: the weights of the leaves that each row reaches, aggregated by target.

    Attributes:
        base: what is added to each target; empty for nothing.
        aggregate: "SUM", "AVERAGE" (over all trees), "MIN" or "MAX".
    """

    family: ClassVar[str] = "nest"
    trees: tuple[Tree, ...] = ()
    targets: int = 1
    aggregate: str = "SUM"
    base: tuple[float, ...] = ()
    dtype: DType = F32

    def infer(self, inputs: Inputs, constraints: Constraints) -> list[TensorType]:
        return [TensorType(self.dtype, (need(inputs[0], "the features of trees").shape[0], const(self.targets)))]

    def nest(self, node: Node, output: int) -> Nest:
        def body(at: Index, _: Index, read: Read) -> Expr:
            result = self._target(self.targets - 1, at[0], read)
            for target in range(self.targets - 2, -1, -1):
                result = select(call("eq", at[1], target), self._target(target, at[0], read), result)
            return result

        return Nest(body)

    def _target(self, target: int, row: Expr, read: Read) -> Expr:
        """The result of one target."""
        total = neutral = const(_NEUTRAL.get(self.aggregate, 0.0), compute(self.dtype))
        for tree in self.trees:
            if _names(tree, target):
                total = call(_COMBINE[self.aggregate], total, self._walk(tree, target, row, read))
        if self.aggregate in _NEUTRAL:
            total = select(call("eq", total, neutral), const(0.0, total.dtype), total)
        if self.aggregate == "AVERAGE":
            total = call("div", total, float(len(self.trees)))
        return call("add", total, self.base[target]) if self.base else total

    def _walk(self, tree: Tree, target: int, row: Expr, read: Read) -> Expr:
        if isinstance(tree, Leaf):
            found = [w for t, w in tree.weights if t == target]
            return const(found[0] if found else _NEUTRAL.get(self.aggregate, 0.0), compute(self.dtype))
        x = read(0, (row, const(tree.feature)))
        holds = const(False)
        if tree.mode == "MEMBER":
            for value in tree.values:
                holds = call("or", holds, call("eq", x, value))
        else:
            holds = call(_COMPARE[tree.mode], x, tree.values[0])
        if tree.missing_is_yes:
            holds = call("or", holds, call("isnan", x))
        yes, no = (self._walk(t, target, row, read) for t in (tree.yes, tree.no))
        return select(holds, yes, no)


def _names(tree: Tree, target: int) -> bool:
    if isinstance(tree, Leaf):
        return any(t == target for t, _ in tree.weights)
    return _names(tree.yes, target) or _names(tree.no, target)


class _Grower:
    """Builds trees from tables, and refuses what is too large or runs in a circle."""

    def __init__(self, what: str) -> None:
        self.what, self.count = what, 0

    def step(self, depth: int) -> None:
        self.count += 1
        if self.count > MOST or depth > DEEPEST:
            raise Unsupported(f"{self.what} of more than {MOST} nodes, or deeper than {DEEPEST}")


def _emit(source: SourceNode, x: Value, op: Trees, transform: str) -> list[Value]:
    used = [b.feature for t in op.trees for b in _branches(t)]
    width = as_int(x.shape[1]) if x.type.rank == 2 else None
    if width is None or any(not 0 <= f < width for f in used):
        raise ModelError(f"{source.op_type} of {x.type!r} that reads feature {max(used, default=0)}")
    if op.base and len(op.base) != op.targets:
        raise ModelError(f"{source.op_type} with {len(op.base)} base values for {op.targets} targets")
    return [post_transform(source.builder, source.emit(op, [x])[0], transform)]


def _branches(tree: Tree) -> Sequence[Branch]:
    return () if isinstance(tree, Leaf) else (tree, *_branches(tree.yes), *_branches(tree.no))


def _table(source: SourceNode, name: str, default: Any = ()) -> list[Any]:
    """An attribute as a list of plain numbers or strings."""
    given = source.attribute(name)
    given = default if given is None else given
    return given.reshape(-1).tolist() if isinstance(given, np.ndarray) else list(given)


@operator("TreeEnsemble", DOMAIN)
@dataclass(frozen=True)
class TreeEnsemble(Op):
    """Trees whose branches and leaves stand in tables of their own."""

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        x = source.required(0)
        aggregate, transform = (
            int(source.attribute("aggregate_function", 1)),
            int(source.attribute("post_transform", 0)),
        )
        targets, roots = int(source.attribute("n_targets", 1)), _table(source, "tree_roots")
        grow = _reader(source)
        source.attribute("nodes_hitrates")
        source.fields(cls)
        if not x.dtype.is_float or not 0 <= aggregate < 4 or not 0 <= transform < 5 or not roots or targets < 1:
            raise ModelError(f"TreeEnsemble of {x.type!r} with {len(roots)} trees and {targets} targets")
        op = Trees(tuple(grow(int(r)) for r in roots), targets, _AGGREGATES[aggregate], (), x.dtype)
        return _emit(source, x, op, _TRANSFORMS[transform])


def _reader(source: SourceNode) -> Callable[[int], Tree]:
    """What builds the tree of a root from the tables of TreeEnsemble."""
    names = ("featureids", "splits", "modes", "truenodeids", "falsenodeids", "trueleafs", "falseleafs")
    feature, split, mode, true, false, true_leaf, false_leaf = (_table(source, f"nodes_{n}") for n in names)
    missing = _table(source, "nodes_missing_value_tracks_true") or [0] * len(mode)
    leaf_targets, leaf_weights = _table(source, "leaf_targetids"), _table(source, "leaf_weights")
    tables = (feature, split, true, false, true_leaf, false_leaf, missing)
    if any(len(t) != len(mode) for t in tables) or any(not 0 <= m < len(_MODES) for m in mode):
        raise ModelError("the tables of TreeEnsemble do not fit each other")
    members = _members(_table(source, "membership_values"), [_MODES[m] for m in mode])
    grower = _Grower("TreeEnsemble")

    def leaf(k: int) -> Leaf:
        grower.step(0)
        if not 0 <= k < min(len(leaf_targets), len(leaf_weights)):
            raise ModelError(f"TreeEnsemble has no leaf {k}")
        return Leaf(((int(leaf_targets[k]), float(leaf_weights[k])),))

    def build(k: int, depth: int = 0) -> Tree:
        grower.step(depth)
        if not 0 <= k < len(mode):
            raise ModelError(f"TreeEnsemble has no node {k}")
        yes = leaf(int(true[k])) if true_leaf[k] else build(int(true[k]), depth + 1)
        no = leaf(int(false[k])) if false_leaf[k] else build(int(false[k]), depth + 1)
        values = members[k] if k in members else (float(split[k]),)
        return Branch(int(feature[k]), _MODES[mode[k]], values, bool(missing[k]), yes, no)

    def root(k: int) -> Tree:
        """A tree of one leaf is written as a branch whose sides are both that leaf."""
        if 0 <= k < len(mode) and true_leaf[k] and false_leaf[k] and true[k] == false[k]:
            return leaf(int(true[k]))
        return build(k)

    return root


def _members(values: list[float], modes: list[str]) -> dict[int, tuple[float, ...]]:
    """The sets of the nodes of mode MEMBER, in their order; each ends with a NaN."""
    sets: list[tuple[float, ...]] = []
    current: list[float] = []
    for v in values:
        if math.isnan(v):
            sets.append(tuple(current))
            current = []
        else:
            current.append(v)
    places = [k for k, m in enumerate(modes) if m == "MEMBER"]
    if len(sets) != len(places) or current:
        raise ModelError(f"TreeEnsemble with {len(places)} nodes of mode MEMBER and {len(sets)} sets")
    return dict(zip(places, sets, strict=True))


@operator("TreeEnsembleRegressor", DOMAIN)
@dataclass(frozen=True)
class TreeEnsembleRegressor(Op):
    """Trees in the form before TreeEnsemble: nodes by tree and number, weights by node. The result is f32."""

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        x = floats(source, source.required(0))
        aggregate = str(source.attribute("aggregate_function", "SUM"))
        transform, targets = str(source.attribute("post_transform", "NONE")), int(source.attribute("n_targets", 1))
        base = _table(source, "base_values") or _table(source, "base_values_as_tensor")
        trees = _trees_by_node(source)
        source.fields(cls)
        if aggregate not in _AGGREGATES or transform not in _TRANSFORMS or targets < 1 or not trees:
            raise ModelError(f"TreeEnsembleRegressor of {x.type!r} with {aggregate!r} and {transform!r}")
        op = Trees(trees, targets, aggregate, tuple(float(v) for v in base), F32)
        return _emit(source, x, op, transform)


def _trees_by_node(source: SourceNode) -> tuple[Tree, ...]:
    names = ("treeids", "nodeids", "featureids", "modes", "truenodeids", "falsenodeids")
    columns = [_table(source, f"nodes_{n}") for n in names]
    values = _table(source, "nodes_values") or _table(source, "nodes_values_as_tensor")
    missing = _table(source, "nodes_missing_value_tracks_true") or [0] * len(values)
    for name in ("nodes_hitrates", "nodes_hitrates_as_tensor"):
        source.attribute(name)
    if any(len(c) != len(values) for c in (*columns, missing)):
        raise ModelError("the tables of TreeEnsembleRegressor do not fit each other")
    nodes = {(row[0], row[1]): row[2:] for row in zip(*columns, values, missing, strict=True)}
    given = [_table(source, f"target_{n}") for n in ("treeids", "nodeids", "ids")]
    weights = _table(source, "target_weights") or _table(source, "target_weights_as_tensor")
    leaves: dict[tuple[int, int], dict[int, float]] = {}
    for tree, number, target, weight in zip(*given, weights, strict=False):
        found = leaves.setdefault((tree, number), {})
        found[target] = found.get(target, 0.0) + weight
    grower = _Grower("TreeEnsembleRegressor")

    def build(tree: int, number: int, depth: int) -> Tree:
        grower.step(depth)
        if (tree, number) not in nodes:
            raise ModelError(f"TreeEnsembleRegressor has no node {number} in tree {tree}")
        feature, kind, yes, no, value, lost = nodes[tree, number]
        if kind == "LEAF":
            return Leaf(tuple(sorted(leaves.get((tree, number), {}).items())))
        mode = str(kind).removeprefix("BRANCH_")
        if mode not in _COMPARE:
            raise ModelError(f"TreeEnsembleRegressor has no mode {kind!r}")
        sides = (build(tree, yes, depth + 1), build(tree, no, depth + 1))
        return Branch(int(feature), mode, (float(value),), bool(lost), *sides)

    order = dict.fromkeys(columns[0])
    roots = {t: next(n for (tree, n) in nodes if tree == t) for t in order}
    return tuple(build(t, roots[t], 0) for t in order)
