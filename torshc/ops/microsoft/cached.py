"""A decoder's attention to a cache that grows by an entry, as one operator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ...base.errors import ModelError
from ...expr import Expr, const
from ...graph import Node, TensorType
from ..core.base import Constraints, Inputs, need, operator, same_dim
from ..core.composite import Formula
from ..core.tensor import Tensor, apply_op
from ..nn.attention import Attention
from ..nn.rotary import Rotated
from .attention import Appended

_NONE = const(0)


@operator("CachedAttention", "torshc")
@dataclass(frozen=True)
class CachedAttention(Formula):
    """softmax(scale * q k') v of q[B, G, N, D], with keys and values from caches in which there is a new one.

    B is the batch, G heads of keys, N queries of each, D their width.

    Operands: q, a new key and its value [B, G, 1, D], caches of keys and of values [B, G, P, D], its place [B] or
    none for that behind the cache; cosines and sines [B or 1, 1, R / 2] of the angles by which queries and the new
    key are turned, or none. Results: the averages, and both caches with the new one, [B, G, length, D].

    Attributes:
        scale: factor on the scores.
        interleaved: as of :class:`Rotated`.
        length: length of the caches that it gives; what neither is old nor new is 0.
    """

    family: ClassVar[str] = "cache"
    epilogue: ClassVar[bool] = False  # blocks of a cluster join its results, each a part
    scale: float = 1.0
    interleaved: int = 0
    length: Expr = _NONE

    def infer(self, inputs: Inputs, constraints: Constraints) -> list[TensorType]:
        q, k, v, keys, values = (need(inputs[n], f"input {n} of CachedAttention") for n in range(5))
        if any(x.type.rank != 4 or x.dtype is not q.dtype for x in (q, k, v, keys, values)):
            raise ModelError(
                f"attention of {q.type!r} to caches {keys.type!r} and {values.type!r}"
                ", which need 4 dimensions and one type"
            )
        for x, cache in ((k, keys), (v, values)):
            for d in (0, 1, 3):
                same_dim(x.shape[d], cache.shape[d], constraints, f"a cache {cache.type!r} with {x.type!r}")
                same_dim(x.shape[d], q.shape[d], constraints, f"attention of {q.type!r} to {x.type!r}")
        same_dim(keys.shape[2], values.shape[2], constraints, "the lengths of caches")
        present = TensorType(q.dtype, (*keys.shape[:2], self.length, keys.shape[3]))
        return [q.type, present, present]

    def formula(
        self, q: Tensor, k: Tensor, v: Tensor, keys: Tensor, values: Tensor, at: Tensor | None = None, *angles: Tensor
    ) -> list[Tensor]:
        at = q.range(keys.shape[2], 1).expand(q.shape[0]) if at is None else at
        if angles:
            heads = q.reshape(q.shape[0], q.shape[1] * q.shape[2], 1, q.shape[3])
            q = apply_op(Rotated(self.interleaved), heads, *angles).reshape(*q.shape)
            k = apply_op(Rotated(self.interleaved), k, *angles)
        present = [apply_op(Appended(self.length), old, new, at) for old, new in ((keys, k), (values, v))]
        return [apply_op(Attention(self.scale), q, *present), *present]

    def flops(self, node: Node) -> Expr:
        return node.operands[0].type.size * self.length * 4
