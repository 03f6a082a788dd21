"""Indices and lengths that are out of range at run time: a kernel of its own checks them, before the run continues.

The kernels that read or write there also clamp indices or drop them, so that no memory outside of a tensor is ever
touched; but what they compute then means nothing, and the caller must learn of it. Kernels for devices do only that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ...base.errors import ModelError
from ...expr import BOOL, I64, Expr, as_int, const, is_nonnegative, select
from ...graph import Node, Shape, TensorType, Value
from .axes import both, constraints_of, either, pick, require
from .base import Constraints, Index, Inputs, LoopNest, Op, Read, need, operator
from .scalar import Scalar, element
from .source import SourceNode

LOSS = "loss"  # what a demand is about that no loss is NaN or infinite; others are about an operator's indices
RATE = "learning_rate"  # that it is no number or a negative one
RATE_MOST = 1e30
EXCHANGE = "exchange"  # of a token that keeps exchanges between ranks alive, and is never true
_COUNT = (("start", 0), ("step", 1))
# Operators that give elements of operand 0, unchanged, or several operands' (None), and nothing else.
MOVERS = {
    "Concat": None, "Expand": 1, "Flatten": 1, "Gather": 1, "GatherElements": 1, "GatherND": 1, "Identity": 1,
    "Reshape": 1, "Slice": 1, "Split": 1, "Squeeze": 1, "Tile": 1, "Transpose": 1, "Unsqueeze": 1,
}  # fmt: skip


def refusal(what: str) -> str:
    """Why a run ends whose demand, of this word, is not met."""
    known = {
        LOSS: "the loss is no finite number",
        RATE: f"it is no number from 0 to {RATE_MOST:g}",
        EXCHANGE: "other ranks did not answer",
    }
    return known.get(what, "an index or a length is out of range")


@operator(domain="torshc")
@dataclass(frozen=True)
class OutOfRange(Op):
    """Whether any element x of the operand is outside of -size .. size - 1; of rank 0.

    Attributes:
        sizes: a size for each place of the last dimension, or one for all.
        negative: whether negative ones count from the end; else 0 is the least.
        use: what the elements are, for whoever draws some: an "index", a "position" or a "length".
    """

    family: ClassVar[str] = "nest"
    sizes: Shape = ()
    negative: bool = True
    use: str = "index"

    def infer(self, inputs: Inputs, constraints: Constraints) -> list[TensorType]:
        need(inputs[0], "input 0 of OutOfRange")
        return [TensorType(BOOL, ())]

    def nest(self, node: Node, output: int) -> LoopNest:
        def body(at: Index, inner: Index, read: Read) -> Scalar:
            index = read(0, inner).index()
            size = pick(inner[-1], self.sizes) if len(self.sizes) > 1 else self.sizes[0]
            bad = either(index < (-size if self.negative else 0), index >= size)
            return element(select(bad, const(1), const(0)) if node.operands[0].shape else bad)

        def finish(total: Scalar, at: Index, read: Read) -> Scalar:
            return total > 0  # the largest of no elements is the least number

        shape = node.operands[0].shape
        return LoopNest(body, shape, "max", finish) if shape else LoopNest(body)


def demand_in_range(
    source: SourceNode, indices: Value, *sizes: Expr, negative: bool = True, use: str = "index"
) -> None:
    """Refuse indices outside of -size .. size - 1: now when they are known, else at run time.

    Args:
        sizes: a size for each place of the last dimension, or one for all.
        negative: whether negative ones count from the end; else 0 is the least.
        use: as of :class:`OutOfRange`.

    Raises:
        ModelError: when one is known to be out of range.
    """
    if not indices.dtype.is_int:
        return  # the operator says so itself
    known = [as_int(s) for s in sizes]
    low, high = _least(sizes), _bounds(indices)
    if _found_in(indices, sizes) or all(
        _counts_below(v, s) for v, s in zip(_columns(indices, sizes), sizes, strict=True)
    ):
        return
    if high is not None and low is not None and (-low if negative else 0) <= high[0] and high[1] < low:
        return
    if indices.const is not None and None not in known:
        limit = np.asarray(known, np.int64)
        found = np.atleast_1d(indices.const)
        bad = (found < (-limit if negative else 0)) | (found >= limit)
        if bad.any():
            wrong = int(found[bad][0])
            if not negative:
                raise ModelError(f"{source.op_type} with {wrong}, which is not in 0 .. {sizes[0] - 1}")
            raise ModelError(
                f"{source.op_type} at index {wrong}, of a dimension of {' or '.join(map(str, sizes))}"
                ", which is out of range"
            )
        return
    if indices.data is not None:  # sizes, which are known before a run begins
        for k, size in enumerate(sizes):
            for index in _farthest(indices.data[k :: len(sizes)]):
                holds = both(index >= (-size if negative else 0), index < size)
                require(constraints_of(source), holds, f"{source.op_type} at index {index}, of a dimension of {size}")
        return
    source.builder.graph.demand(source.builder.one(OutOfRange(sizes, negative, use), indices), source.op_type)


def _farthest(indices: Sequence[Expr]) -> list[Expr]:
    """The indices that are in range only if all are: the least and the largest of the known ones, and the others."""
    known = sorted(k for k in map(as_int, indices) if k is not None)
    return [*dict.fromkeys([*map(const, (*known[:1], *known[-1:])), *(i for i in indices if as_int(i) is None)])]


def _found_in(indices: Value, sizes: Shape) -> bool:
    """Whether the rows are places that NonZero found in a tensor of these sizes."""
    transposed = indices.producer
    found = transposed.operands[0].producer if transposed is not None and transposed.op.name == "Transpose" else None
    return found is not None and found.op.name == "NonZero" and found.operands[0].shape == tuple(sizes)


def _columns(indices: Value, sizes: Shape) -> list[Value]:
    """For each size, what holds the indices that it bounds: a part of a concatenation along the last dimension."""
    node = indices.producer
    if len(sizes) > 1 and node is not None and node.op.name == "Concat" and len(node.operands) == len(sizes):
        axis = node.op.attributes()["axis"] % indices.type.rank
        if axis == indices.type.rank - 1 and all(as_int(v.shape[-1]) == 1 for v in node.operands):
            return [*node.operands]
    return [indices] * len(sizes)


def _counts_below(v: Value, size: Expr) -> bool:
    """Whether the elements are 0, 1, 2, ... up to less than a size, in any order and number."""
    node = v.producer
    while node is not None and MOVERS.get(node.op.name) == 1:
        node = node.operands[0].producer
    if node is None or node.op.name != "Range" or node.operands:
        return False
    found = node.op.attributes()
    whole = all(as_int(const(found[k], I64) if not isinstance(found[k], Expr) else found[k]) == n for k, n in _COUNT)
    return whole and (found["count"] is size or is_nonnegative(size - found["count"]))


def _least(sizes: Shape) -> int | None:
    known = [as_int(s) for s in sizes]
    return None if None in known else min(k for k in known if k is not None)


def _bounds(v: Value) -> tuple[int, int] | None:
    """The least and the largest element, as far as the nodes before it show; None when they do not."""
    found, pending = [], [v]
    seen: set[Value] = set()
    while pending:
        x = pending.pop()
        if x in seen:
            continue
        seen.add(x)
        moved = _values_moved(x)
        pending += moved
        own = None if moved else _own_bounds(x)
        if own is not None:
            found.append(own)
        elif not moved:
            return None
    return min(low for low, _ in found), max(high for _, high in found)


def _values_moved(v: Value) -> list[Value]:
    """The values whose elements these are, where a node only moves them."""
    node = v.producer
    if node is None or v.const is not None:
        return []
    if node.op.name == "Cast" and v.dtype is I64 and node.operands[0].dtype.is_int:
        return [node.operands[0]]
    return [*node.operands[: MOVERS[node.op.name]]] if node.op.name in MOVERS else []


def _own_bounds(v: Value) -> tuple[int, int] | None:
    """The bounds that a constant or a node tells by itself."""
    if v.const is not None:
        return (int(v.const.min()), int(v.const.max())) if v.const.size and v.dtype.is_int else None
    node = v.producer
    if node is None:
        return None
    if node.op.name in ("ArgMax", "ArgMin"):
        last = as_int(node.operands[0].shape[node.op.attributes()["axis"]])
        return None if last is None else (0, last - 1)
    return (0, 1) if node.op.name == "Cast" and v.dtype.is_int and node.operands[0].dtype is BOOL else None
