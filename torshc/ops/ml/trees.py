"""Tree ensembles of ai.onnx.ml: rows walk down all trees by tables of branches, and what their leaves say is summed.

Decided here where ONNX leaves it open: a target that no leaf reached names is 0, whatever the aggregation; where a node
says nothing of missing values, NaN goes to the side "false"; weights that a leaf has for one target several times are
added, but of an only target the first counts, as in ONNX Runtime, on which exporters of decision paths rely.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...base.budget import afford
from ...base.errors import ModelError
from ...expr import F32, F64, DType
from ...graph import Value
from ..core.axes import constraints_of, require
from ..core.base import Op, operator
from ..core.functions import arg_max, concat, gather
from ..core.source import SourceNode
from ..core.tensor import Tensor, apply_op, operand
from .forest import MOST, NEUTRAL, Branch, Trees, tables
from .labels import named
from .linear import DOMAIN, floats, transformed

_MODES = ("LEQ", "LT", "GTE", "GT", "EQ", "NEQ", "MEMBER")
_AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")
_TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")


@dataclass
class _Forest:
    """Trees being read.

    Attributes:
        branches: feature, mode, value, whether NaN goes to "true", and both sides.
        leaves: weights by target.
        roots: the root of each tree. A side or a root is a branch's number, or a leaf's as -1 - number.
    """

    what: str
    branches: list[Branch] = field(default_factory=list)
    leaves: list[dict[int, float]] = field(default_factory=list)
    roots: list[int] = field(default_factory=list)

    def emit(self, source: SourceNode, x: Tensor, targets: int, aggregate: str, dtype: DType) -> Tensor:
        """The operator over its tables."""
        features = [b[0] for b in self.branches]
        what = f"{self.what} of {x.type!r} that reads feature {max(features, default=0)}"
        if x.type.rank != 2 or any(not 0 <= f < MOST for f in features):
            raise ModelError(what)
        require(constraints_of(source), x.shape[1] > max(features, default=-1), what)
        if not self.roots or any(not 0 <= t < targets for leaf in self.leaves for t in leaf):
            raise ModelError(
                f"{self.what} with {len(self.roots)} trees and {targets} targets"
                "; trees are needed, whose leaves name targets below that number"
            )
        kind = F64 if x.dtype is F64 else F32
        compare, missing, nodes, roots = tables(self.what, self.branches, len(self.leaves), self.roots, kind)
        size = len(self.leaves) * targets * kind.size
        afford("folding", size, f"{self.what} whose {len(self.leaves)} leaves and {targets} targets take {size} bytes")
        weights = np.full((len(self.leaves), targets), NEUTRAL.get(aggregate, 0.0), kind.numpy)
        for k, leaf in enumerate(self.leaves):
            for target, weight in leaf.items():
                weights[k, target] = weight
        x, constants = x.cast(kind), (x.constant(t) for t in (nodes, roots, weights))
        return apply_op(Trees(aggregate, compare, missing), x, *constants).cast(dtype)


def _table(source: SourceNode, name: str, default: Any = ()) -> list[Any]:
    """An attribute as a list of plain numbers or strings."""
    given = source.attribute(name)
    given = default if given is None else given
    return given.reshape(-1).tolist() if isinstance(given, np.ndarray) else list(given)


@operator("TreeEnsemble", DOMAIN)
@dataclass(frozen=True)
class TreeEnsemble(Op):
    """Trees whose branches and leaves are in tables of their own."""

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        x = operand(source, 0)
        aggregate = int(source.attribute("aggregate_function", 1))
        transform, targets = int(source.attribute("post_transform", 0)), int(source.attribute("n_targets", 1))
        forest = _by_tables(source)
        source.attribute("nodes_hitrates")
        source.fields(cls)
        if not x.dtype.is_float:
            raise ModelError(f"TreeEnsemble of {x.type!r}, where floats are needed")
        out = forest.emit(source, x, targets, _AGGREGATES[aggregate], x.dtype)
        return [transformed(out, _TRANSFORMS[transform]).value]


def _by_tables(source: SourceNode) -> _Forest:
    names = ("featureids", "splits", "modes", "truenodeids", "falsenodeids", "trueleafs", "falseleafs")
    columns = [_table(source, f"nodes_{n}") for n in names]
    columns[2] = modes = [int(m) for m in columns[2]]
    columns.append(_table(source, "nodes_missing_value_tracks_true") or [0] * len(modes))
    if any(len(c) != len(modes) for c in columns):
        raise ModelError("the tables of TreeEnsemble do not fit each other")
    if any(side < 0 for side in (*columns[3], *columns[4])):
        raise ModelError("TreeEnsemble has no nodes below 0")
    members = _members(_table(source, "membership_values"), [_MODES[m] for m in modes])
    forest = _Forest("TreeEnsemble")
    more: list[Branch] = []
    for k, (feature, split, mode, true, false, true_leaf, false_leaf, lost) in enumerate(zip(*columns, strict=True)):
        yes, no = (-1 - s if leaf else s for s, leaf in ((true, true_leaf), (false, false_leaf)))
        # A set is a chain of branches, one for each member.
        values = members.get(k, (split,)) or (math.nan,)
        name, first = "EQ" if k in members else _MODES[mode], len(modes) + len(more)
        nexts = [*range(first, first + len(values) - 1), no]
        lost = bool(lost) or name == "NEQ"  # NaN differs from everything
        rows = [(feature, name, float(v), lost, yes, n) for v, n in zip(values, nexts, strict=True)]
        forest.branches.append(rows[0])
        more += rows[1:]
    forest.branches += more
    targets, weights = _table(source, "leaf_targetids"), _table(source, "leaf_weights")
    if len(targets) != len(weights):
        raise ModelError(f"TreeEnsemble with {len(targets)} leaf_targetids and {len(weights)} leaf_weights")
    forest.leaves = [{int(t): float(w)} for t, w in zip(targets, weights, strict=True)]
    for r in _table(source, "tree_roots"):
        # A tree of one leaf is written as a branch whose sides are both that leaf.
        ends = forest.branches[r][4:] if 0 <= r < len(modes) else (0, 1)
        forest.roots.append(ends[0] if ends[0] == ends[1] and ends[0] < 0 else r)
    return forest


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
        raise ModelError(
            f"TreeEnsemble with {len(places)} nodes of mode MEMBER and {len(sets)} sets"
            ", where each needs one set that NaN ends"
        )
    return dict(zip(places, sets, strict=True))


def _by_nodes(source: SourceNode, kind: str, only: bool = False) -> _Forest:
    """Trees in the form before TreeEnsemble: nodes by tree and number, weights by node.

    Args:
        kind: what the weights are of, "target" or "class".
        only: whether there is one target.
    """
    what = source.op_type
    names = ("treeids", "nodeids", "featureids", "modes", "truenodeids", "falsenodeids")
    columns = [_table(source, f"nodes_{n}") for n in names]
    columns.append(_either(source, "nodes_values"))
    columns.append(_table(source, "nodes_missing_value_tracks_true") or [0] * len(columns[0]))
    for name in ("nodes_hitrates", "nodes_hitrates_as_tensor"):
        source.attribute(name)
    given = [_table(source, f"{kind}_{n}") for n in ("treeids", "nodeids", "ids")]
    weights = _either(source, f"{kind}_weights")
    if any(len(c) != len(columns[0]) for c in columns) or any(len(c) != len(weights) for c in given):
        raise ModelError(f"the tables of {what} do not fit each other")
    leaves: dict[tuple[int, int], dict[int, float]] = {}
    for tree, number, target, weight in zip(*given, weights, strict=True):
        found = leaves.setdefault((tree, number), {})
        if not only or target not in found:
            found[target] = found.get(target, 0.0) + weight
    forest, place = _Forest(what), dict[tuple[int, int], int]()
    rows = list(zip(*columns, strict=True))
    counts = [0, 0]
    for tree, number, _, mode, *_rest in rows:
        is_leaf = mode == "LEAF"
        if (tree, number) in place:
            raise ModelError(f"{what} has two nodes {number} in tree {tree}")
        place[tree, number] = -1 - counts[1] if is_leaf else counts[0]
        counts[is_leaf] += 1
    for tree, number, feature, mode, true, false, value, lost in rows:
        if mode == "LEAF":
            forest.leaves.append(leaves.get((tree, number), {}))
            continue
        name = str(mode).removeprefix("BRANCH_")
        sides = [place.get((tree, s)) for s in (true, false)]
        if sides[0] is None or sides[1] is None:
            raise ModelError(f"{what} has no node {true} or {false} in tree {tree}")
        forest.branches.append((feature, name, value, bool(lost), sides[0], sides[1]))
    first: dict[int, int] = {}
    for tree, number in place:
        first.setdefault(tree, number)
    forest.roots = [place[node] for node in first.items()]
    return forest


def _either(source: SourceNode, name: str) -> list[Any]:
    """Numbers of an attribute, or of one that is a tensor."""
    plain, tensor = _table(source, name), _table(source, f"{name}_as_tensor")
    return plain or tensor


def _add_base(source: SourceNode, out: Tensor, targets: int) -> Tensor:
    base = _either(source, "base_values")
    if len(base) not in (0, 1, targets):
        raise ModelError(
            f"{source.op_type} with {len(base)} base values for {targets} targets"
            ", where each target needs one, or one stands for all"
        )
    return out + out.constant(np.asarray(base, out.dtype.numpy)) if base else out


@operator("TreeEnsembleRegressor", DOMAIN)
@dataclass(frozen=True)
class TreeEnsembleRegressor(Op):
    """Trees in the form before TreeEnsemble. The result is f32."""

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        x = floats(operand(source, 0))
        aggregate, transform = (
            str(source.attribute(n, d)) for n, d in (("aggregate_function", "SUM"), ("post_transform", "NONE"))
        )
        targets = int(source.attribute("n_targets", 1))
        forest = _by_nodes(source, "target", targets == 1)
        out = _add_base(source, forest.emit(source, x, targets, aggregate, F32), targets)
        source.fields(cls)
        return [transformed(out, transform).value]


@operator("TreeEnsembleClassifier", DOMAIN)
@dataclass(frozen=True)
class TreeEnsembleClassifier(Op):
    """The label of the largest score of each row, and the scores in f32.

    Where all weights are of one class of two, or there is one label only, their sum is s, the scores are 1 - s and s
    (with the transforms LOGISTIC and both of SOFTMAX: -s and s). Without a transform it is not a probability where a
    weight is below 0: the scores are -s and s, as in ONNX Runtime and the models that are exported for it.
    """

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        if source.attribute("classlabels_strings"):
            return named(cls, source, "classlabels_int64s")
        x = floats(operand(source, 0))
        labels, transform = _table(source, "classlabels_int64s"), str(source.attribute("post_transform", "NONE"))
        classes, count = dict.fromkeys(_table(source, "class_ids")), len(labels)
        signed = any(w < 0 for w in _either(source, "class_weights"))
        forest = _by_nodes(source, "class")
        if not labels or (count == 1 and labels[0] != 1):
            raise ModelError(f"TreeEnsembleClassifier of {x.type!r} with labels {labels}; a single label has to be 1")
        scores = _add_base(source, forest.emit(source, x, count, "SUM", F32), count)
        source.fields(cls)
        if count <= 2 and len(classes) == 1:
            one = gather(scores, x.constant(np.asarray(list(classes), np.int64)), axis=1)
            logit = transform not in ("NONE", "PROBIT") or (transform == "NONE" and signed)
            scores = concat(-one if logit else 1 - one, one, axis=1)
        labels = labels if count > 1 else [0, 1]
        scores = transformed(scores, transform)
        best = arg_max(scores, axis=1, keepdims=0)
        chosen = gather(x.constant(np.asarray(labels, np.int64)), best, axis=0)
        return [chosen.value, scores.value][: max(source.outputs, 1)]
