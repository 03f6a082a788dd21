"""Ensembles of trees drawn at random, and what rows reach in them, in so many words."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from torshc.expr import F32, F64, DType
from torshc.graph import Builder, Value
from torshc.ops.ml.forest import NEUTRAL, Branch, tables

from .kernels import op

Array = np.ndarray[Any, Any]
COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "LEQ": operator.le, "LT": operator.lt, "GTE": operator.ge, "GT": operator.gt, "EQ": operator.eq,
    "NEQ": operator.ne,
}  # fmt: skip


@dataclass
class Ensemble:
    """Trees, and the weights[leaves, targets] of their leaves."""

    branches: list[Branch]
    roots: list[int]
    weights: Array

    def reached(self, row: Array) -> list[int]:
        """The leaf of each tree."""
        ends = []
        for end in self.roots:
            while end >= 0:
                feature, mode, value, lost, yes, no = self.branches[end]
                x = row[feature]
                end = yes if (lost if np.isnan(x) else COMPARE[mode](x, row.dtype.type(value))) else no
            ends.append(-1 - end)
        return ends

    def run(self, x: Array, aggregate: str = "SUM") -> Array:
        """The results of rows; sums go from the first tree to the last."""
        out = np.empty((len(x), self.weights.shape[1]), x.dtype)
        for k, row in enumerate(x):
            given = self.weights[self.reached(row)]
            if aggregate in NEUTRAL:
                total = given.min(axis=0) if aggregate == "MIN" else given.max(axis=0)
                out[k] = np.where(total == NEUTRAL[aggregate], 0, total)
                continue
            total = np.zeros(self.weights.shape[1], x.dtype)
            for leaf in given:
                total += leaf
            out[k] = total / x.dtype.type(len(self.roots)) if aggregate == "AVERAGE" else total
        return out

    def add(self, b: Builder, x: Value, aggregate: str = "SUM") -> Value:
        """The operator in a graph."""
        compare, missing, nodes, roots = tables("trees", self.branches, len(self.weights), self.roots, x.dtype)
        operands = [x, *(b.constant(t) for t in (nodes, roots, self.weights))]
        chosen = {"aggregate": aggregate, "compare": compare, "missing": missing}
        return b.one(op("Trees", "torshc", **chosen), *operands)


def grown(
    rng: np.random.Generator,
    trees: int,
    modes: Sequence[str] = ("LEQ",),
    *,
    features: int = 5,
    targets: int = 1,
    depth: int = 7,
    lost: bool = False,
    dtype: DType = F32,
) -> Ensemble:
    """Trees of uneven depth; a tree may be one leaf. Values are few, so that elements are equal to them."""
    branches: list[Branch] = []
    leaves = 0

    def grow(left: int) -> int:
        nonlocal leaves
        if left == 0 or rng.random() < 0.2:
            leaves += 1
            return -leaves
        place = len(branches)
        branches.append((0, "LEQ", 0.0, False, 0, 0))
        yes, no = grow(left - 1), grow(left - 1)
        feature, mode, value = int(rng.integers(features)), str(rng.choice(modes)), float(rng.integers(-2, 3)) / 3
        branches[place] = (feature, mode, value, lost and rng.random() < 0.5, yes, no)
        return place

    roots = [grow(depth) for _ in range(trees)]
    weights = rng.standard_normal((leaves, targets)).astype(np.float64 if dtype is F64 else np.float32)
    return Ensemble(branches, roots, weights)


def rows(rng: np.random.Generator, count: int, features: int = 5, dtype: DType = F32) -> Array:
    """Rows that hold the values of branches, and what is special."""
    x = (rng.integers(-3, 4, (count, features)) / 3).astype(np.float64 if dtype is F64 else np.float32)
    x[rng.random(x.shape) < 0.2] += 0.01
    for special in (np.nan, np.inf, -np.inf, -0.0):
        x[rng.random(x.shape) < 0.05] = special
    return x
