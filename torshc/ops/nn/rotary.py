"""Rotary positions: pairs of a head's elements turned by the angle of a position.

B is the batch, H heads, S positions, D a head's width, of which the first R elements are turned.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from ...base.errors import ModelError
from ...expr import as_int, const, eq, max_of, min_of, select
from ...graph import Node, TensorType, Value
from ..core.axes import constraints_of
from ..core.base import Constraints, Index, Inputs, LoopNest, Op, Read, need, operator, same_dim
from ..core.bounds import demand_in_range
from ..core.composite import Formula
from ..core.functions import concat, gather
from ..core.scalar import Scalar, where
from ..core.source import SourceNode
from ..core.tensor import Tensor, apply_op


@operator("Rotated", "torshc")
@dataclass(frozen=True)
class Rotated(Formula):
    """x[B, H, S, D] whose pairs are turned by angles of which cosines and sines are given, [B or 1, S, R / 2].

    Attributes:
        interleaved: whether pairs stand next to each other, not half of R apart.
    """

    family: ClassVar[str] = "nest"
    interleaved: int = 0

    def infer(self, inputs: Inputs, constraints: Constraints) -> list[TensorType]:
        x, cos, sin = (need(v, f"input {k} of Rotated") for k, v in enumerate(inputs))
        if x.type.rank != 4 or cos.type.rank != 3 or cos.shape != sin.shape or not x.dtype is cos.dtype is sin.dtype:
            raise ModelError(
                f"rotary positions of {x.type!r} by {cos.type!r} and {sin.type!r}"
                "; 4 dimensions are needed, cosines and sines of one shape with 3, and one type"
            )
        half, width = as_int(cos.shape[2]), as_int(x.shape[3])
        if half is None or width is None or half < 1 or 2 * half > width:
            raise ModelError(
                f"rotary positions of {x.type!r} by {cos.type!r}; they need a column for two elements of a head at most"
            )
        if as_int(cos.shape[0]) != 1:
            same_dim(cos.shape[0], x.shape[0], constraints, "the batch of rotary positions")
        same_dim(cos.shape[1], x.shape[2], constraints, "the length of rotary positions")
        return [x.type]

    def nest(self, node: Node, output: int) -> LoopNest:
        x, cos, _ = node.operands
        half, width = as_int(cos.shape[2]) or 0, as_int(x.shape[3]) or 0
        one = as_int(cos.shape[0]) == 1

        def body(at: Index, _: Index, read: Read) -> Scalar:
            k = at[3]
            pair = k // 2 if self.interleaved else k % half
            pair = min_of(pair, half - 1) if 2 * half < width else pair
            first = eq(k % 2, 0) if self.interleaved else k < half
            step = 1 if self.interleaved else half
            # What is read beyond the pairs is not used, and is there.
            other = min_of(max_of(select(first, k + step, k - step), 0), width - 1)
            angle = (const(0) if one else at[0], at[2], pair)
            whole = read(0, at)
            near, far = whole * read(1, angle), read(0, (*at[:3], other)) * read(2, angle)
            turned = where(first, near - far, near + far)
            return turned if 2 * half == width else where(k < 2 * half, turned, whole)

        return LoopNest(body)

    def formula(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """In parts, which is faster where a kernel's inner loop is a vector: neither reads what is a step away."""
        half, width = cos.size(2) or 0, x.size(3) or 0
        turned = x.part(3, 0, 2 * half)
        if self.interleaved:
            pairs = turned.reshape(*x.shape[:3], half, 2)
            left, right = (pairs.part(4, n, n + 1).reshape(*x.shape[:3], half) for n in (0, 1))
        else:
            left, right = turned.part(3, 0, half), turned.part(3, half, 2 * half)
        c, s = (v.reshape(v.shape[0], 1, *v.shape[1:]) for v in (cos, sin))
        out = [left * c - right * s, left * s + right * c]
        if self.interleaved:
            out = [concat(*(y.reshape(*y.shape, 1) for y in out), axis=4).reshape(*x.shape[:3], 2 * half)]
        rest = [x.part(3, 2 * half, width)] if 2 * half < width else []
        return concat(*out, *rest, axis=3) if len(out) + len(rest) > 1 else out[0]


@operator("RotaryEmbedding")
@dataclass(frozen=True)
class RotaryEmbedding(Op):
    """x[B, H, S, D] or [B, S, H * D] turned by the angles of positions [B, S], or by angles [B, S, R / 2] themselves.

    Other forms are left to ONNX's definition.
    """

    interleaved: int = 0
    num_heads: int = 0
    rotary_embedding_dim: int = 0

    @classmethod
    def takes(cls, attributes: Mapping[str, Any], outputs: Sequence[str], operands: Sequence[Value | None]) -> bool:
        x, cos, sin, at = (operands[n] if n < len(operands) else None for n in range(4))
        if x is None or cos is None or sin is None or not x.dtype is cos.dtype is sin.dtype:
            return False
        if x.type.rank not in (3, 4) or cos.type.rank != (3 if at is None else 2) or cos.type.rank != sin.type.rank:
            return False
        count, half, last = attributes.get("num_heads", 0), as_int(cos.shape[-1]), as_int(x.shape[-1])
        if not half or not last or cos.shape[-1] is not sin.shape[-1] or (at is not None and at.type.rank != 2):
            return False
        if x.type.rank == 3 and (not count or last % count):
            return False
        width = last if x.type.rank == 4 else last // count
        return 2 * half == (attributes.get("rotary_embedding_dim", 0) or width) and 2 * half <= width

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        given = cls(**source.fields(cls))
        x, cos, sin = (Tensor(source.builder, source.required(k)) for k in range(3))
        if (at := source.input(3)) is not None:
            cos, sin = angles(source, cos, sin, Tensor(source.builder, at))
        return [turn(source, x, cos, sin, given.interleaved, given.num_heads if x.rank == 3 else 0).value]


def angles(source: SourceNode, cos: Tensor, sin: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
    """Rows of tables of cosines and sines [positions, R / 2] at positions [B or 1, S]."""
    if cos.rank != 2:
        raise ModelError(f"rotary positions by {cos.type!r}, which is no matrix")
    demand_in_range(source, positions.value, cos.shape[0], use="position")
    return gather(cos, positions), gather(sin, positions)


def turn(source: SourceNode, x: Tensor, cos: Tensor, sin: Tensor, interleaved: int, heads: int = 0) -> Tensor:
    """x[B, H, S, D], or x[B, S, H * D] of so many heads, turned by angles [B or 1, S, R / 2]."""
    if not heads:
        return apply_op(Rotated(interleaved), x, cos, sin)
    batch, length, width = x.shape[0], x.shape[1], x.size(-1)
    if not width or width % heads:
        raise ModelError(f"rotary positions of {x.type!r} in {heads} heads")
    # Each position is a batch of its own, so that no heads change places.
    rows = batch * length
    if as_int(cos.shape[0]) == 1 and as_int(batch) != 1:
        cos, sin = (v.expand(batch, *v.shape[1:]) for v in (cos, sin))
    same_dim(cos.shape[0], batch, constraints_of(source), "the batch of rotary positions")
    same_dim(cos.shape[1], length, constraints_of(source), "the length of rotary positions")
    cos, sin = (v.reshape(rows, 1, v.shape[2]) for v in (cos, sin))
    y = apply_op(Rotated(interleaved), x.reshape(rows, heads, 1, width // heads), cos, sin)
    return y.reshape(*x.shape)
