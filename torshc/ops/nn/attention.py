"""Attention as one operator: what the fusion of its spelt-out form makes, and what newer opsets say outright."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ...errors import ModelError
from ...expr import Expr, const
from ...graph import Builder, Node, TensorType, Value
from ..core.base import Constraints, Inputs, Op, broadcast, broadcast_into, need, operator, same_dim
from ..core.compose import apply
from ..math.linalg import MatMul, product_type
from ..tensor.view import Reshape, Transpose
from .norm import Softmax


@operator("Attention", "torshc")
@dataclass(frozen=True)
class Attention(Op):
    """softmax(scale * q k' + mask) v, of q[..., S, D], k[..., T, D], v[..., T, E] and mask[..., S, T] (or none).

    The leading dimensions of q, k and v broadcast by NumPy's rule, and the mask broadcasts to the scores.

    Attributes:
        scale: factor on the scores.
        safe: weights that are NaN, such as those of a row whose scores are all -inf, are 0.
        masked: a row whose scores are all -inf (fully masked) gives 0; other NaN stay.
        causal: position s attends to positions 0..s only.
        out: element type of the result where it is not that of q, k and v; the mask may be of any float type.
    """

    family: ClassVar[str] = "attention"
    scale: float = 1.0
    safe: bool = False
    masked: bool = False
    causal: bool = False
    out: str = ""

    def infer(self, inputs: Inputs, constraints: Constraints) -> list[TensorType]:
        q, k, v = (need(inputs[i], f"input {i} of Attention") for i in range(3))
        if min(q.type.rank, k.type.rank, v.type.rank) < 2 or not q.dtype is k.dtype is v.dtype:
            raise ModelError(f"Attention of {q.type!r}, {k.type!r} and {v.type!r}")
        same_dim(q.shape[-1], k.shape[-1], constraints, "the depth of Attention's queries and keys")
        same_dim(k.shape[-2], v.shape[-2], constraints, "the length of Attention's keys and values")
        batch = broadcast([q.shape[:-2], k.shape[:-2], v.shape[:-2]], constraints)
        mask = inputs[3] if len(inputs) > 3 else None
        if mask is not None:
            scores = (*batch, q.shape[-2], k.shape[-2])
            what = f"Attention with a mask {mask.type!r} for scores {list(scores)}"
            if not mask.dtype.is_float:
                raise ModelError(what)
            broadcast_into(mask.shape, scores, constraints, what)
        return [TensorType(product_type(q.dtype, self.out), (*batch, q.shape[-2], v.shape[-1]))]

    def decompose(self, b: Builder, inputs: Inputs) -> list[Value]:
        q, k, v = (need(inputs[i], f"input {i} of Attention") for i in range(3))
        mask = inputs[3] if len(inputs) > 3 else None
        if self.out:
            q, k, v = (apply(b, "Cast", x, to=product_type(q.dtype, self.out)) for x in (q, k, v))
        if mask is not None and mask.dtype is not q.dtype:
            mask = apply(b, "Cast", mask, to=q.dtype)
        rank = k.type.rank
        keys = b.one(Transpose((*range(rank - 2), rank - 1, rank - 2)), k)
        scores = b.one(MatMul(), q, keys)
        if self.scale != 1.0:
            scores = apply(b, "Mul", scores, self.scale)
        if mask is not None:
            scores = apply(b, "Add", scores, mask)
        if self.causal:
            scores = self._hide_future(b, scores)
        weights = b.one(Softmax(-1), scores)
        if self.safe:
            weights = apply(b, "Where", apply(b, "IsNaN", weights), b.constant(0.0, weights), weights)
        if self.masked:
            largest = apply(b, "ReduceMax", scores, axes=(scores.type.rank - 1,), keepdims=1)
            hidden = apply(b, "Equal", largest, b.constant(-np.inf, scores))
            weights = apply(b, "Where", hidden, b.constant(0.0, weights), weights)
        return [b.one(MatMul(), weights, v)]

    def _hide_future(self, b: Builder, scores: Value) -> Value:
        rows, columns = scores.shape[-2:]
        row = apply(b, "Range", start=const(0), step=const(1), count=rows)
        column = apply(b, "Range", start=const(0), step=const(1), count=columns)
        seen = apply(b, "LessOrEqual", column, b.one(Reshape((rows, const(1))), row))
        return apply(b, "Where", seen, scores, b.constant(-np.inf, scores))

    def flops(self, node: Node) -> Expr:
        q, k = node.operands[:2]
        batch = const(2)
        for d in node.output.shape[:-2]:
            batch = batch * d
        return batch * q.shape[-2] * k.shape[-2] * (q.shape[-1] + node.output.shape[-1])
