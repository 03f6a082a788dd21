"""Attention as one operator: what the fusion of its spelt-out form makes, and what newer opsets say outright."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ...base.errors import ModelError
from ...expr import Expr, const
from ...graph import Node, TensorType
from ..core.base import Constraints, Inputs, broadcast, broadcast_into, need, operator, same_dim
from ..core.composite import Formula
from ..core.functions import equal, is_nan, where
from ..core.tensor import Tensor
from ..math.linalg import product_type


@operator("Attention", "torshc")
@dataclass(frozen=True)
class Attention(Formula):
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
            raise ModelError(
                f"Attention of {q.type!r}, {k.type!r} and {v.type!r}"
                "; each needs 2 dimensions at least, and all have to be of one type"
            )
        same_dim(q.shape[-1], k.shape[-1], constraints, "the depth of Attention's queries and keys")
        same_dim(k.shape[-2], v.shape[-2], constraints, "the length of Attention's keys and values")
        batch = broadcast([q.shape[:-2], k.shape[:-2], v.shape[:-2]], constraints)
        mask = inputs[3] if len(inputs) > 3 else None
        if mask is not None:
            scores = (*batch, q.shape[-2], k.shape[-2])
            what = f"Attention with a mask {mask.type!r} for scores {list(scores)}"
            if not mask.dtype.is_float:
                raise ModelError(f"{what}, where floats are needed")
            broadcast_into(mask.shape, scores, constraints, what)
        return [TensorType(product_type(q.dtype, self.out), (*batch, q.shape[-2], v.shape[-1]))]

    def formula(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
        kind = product_type(q.dtype, self.out)
        q, k, v = q.cast(kind), k.cast(kind), v.cast(kind)
        mask = None if mask is None else mask.cast(kind)
        scores = q @ k.transpose(*range(k.rank - 2), k.rank - 1, k.rank - 2)
        if self.scale != 1.0:
            scores = scores * self.scale
        if mask is not None:
            scores = scores + mask
        if self.causal:
            rows, columns = scores.shape[-2:]
            row, column = scores.range(0, rows), scores.range(0, columns)
            scores = where(column <= row.reshape(rows, 1), scores, -np.inf)
        weights = scores.softmax(-1)
        if self.safe:
            weights = where(is_nan(weights), 0.0, weights)
        if self.masked:
            weights = where(equal(scores.max(-1), -np.inf), 0.0, weights)
        return weights @ v

    def flops(self, node: Node) -> Expr:
        q, k = node.operands[:2]
        batch = const(2)
        for d in node.output.shape[:-2]:
            batch = batch * d
        return batch * q.shape[-2] * k.shape[-2] * (q.shape[-1] + node.output.shape[-1])
