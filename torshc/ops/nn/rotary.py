"""Rotary positions: pairs of a head's elements turned by the angle of a position.

B is the batch, H heads, S positions, D a head's width, of which the first R elements are turned.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from ...errors import ModelError
from ...expr import Expr, as_int, call, const, select
from ...graph import Builder, Node, TensorType, Value
from ..core.base import Constraints, Index, Inputs, Nest, Op, Read, need, operator, same_dim
from ..core.bounds import demand_in_range
from ..core.compose import apply
from ..core.source import SourceNode
from ..tensor.parts import Slice
from ..tensor.view import Concat, Reshape
from .heads import heads, merged


@operator("Rotated", "torshc")
@dataclass(frozen=True)
class Rotated(Op):
    """x[B, H, S, D] whose pairs are turned by angles of which cosines and sines are given, [B or 1, S, R / 2].

    Attributes:
        interleaved: whether pairs stand next to each other, not half of R apart.
    """

    family: ClassVar[str] = "nest"
    interleaved: int = 0

    def infer(self, inputs: Inputs, constraints: Constraints) -> list[TensorType]:
        x, cos, sin = (need(v, f"input {k} of Rotated") for k, v in enumerate(inputs))
        if x.type.rank != 4 or cos.type.rank != 3 or cos.shape != sin.shape or not x.dtype is cos.dtype is sin.dtype:
            raise ModelError(f"rotary positions of {x.type!r} by {cos.type!r} and {sin.type!r}")
        half, width = as_int(cos.shape[2]), as_int(x.shape[3])
        if half is None or width is None or half < 1 or 2 * half > width:
            raise ModelError(f"rotary positions of {x.type!r} by {cos.type!r}")
        if as_int(cos.shape[0]) != 1:
            same_dim(cos.shape[0], x.shape[0], constraints, "the batch of rotary positions")
        same_dim(cos.shape[1], x.shape[2], constraints, "the length of rotary positions")
        return [x.type]

    def nest(self, node: Node, output: int) -> Nest:
        x, cos, _ = node.operands
        half, width = as_int(cos.shape[2]) or 0, as_int(x.shape[3]) or 0
        one = as_int(cos.shape[0]) == 1

        def body(at: Index, _: Index, read: Read) -> Expr:
            k = at[3]
            pair = call("floordiv", k, 2) if self.interleaved else call("mod", k, half)
            pair = call("min", pair, half - 1) if 2 * half < width else pair
            first = call("eq", call("mod", k, 2), 0) if self.interleaved else call("lt", k, half)
            step = 1 if self.interleaved else half
            # What is read beyond the pairs is not used, and is there.
            other = call("min", call("max", select(first, k + step, k - step), 0), width - 1)
            angle = (const(0) if one else at[0], at[2], pair)
            whole = read(0, at)
            near, far = call("mul", whole, read(1, angle)), call("mul", read(0, (*at[:3], other)), read(2, angle))
            turned = select(first, call("sub", near, far), call("add", near, far))
            return turned if 2 * half == width else select(call("lt", k, 2 * half), turned, whole)

        return Nest(body)

    def decompose(self, b: Builder, inputs: Inputs) -> list[Value]:
        """In parts, which is faster where a kernel's inner loop is a vector: neither reads what is a step away."""
        x, cos, sin = (v for v in inputs if v is not None)
        half, width = as_int(cos.shape[2]) or 0, as_int(x.shape[3]) or 0
        turned = _part(b, x, 3, 0, 2 * half)
        if self.interleaved:
            pairs = b.one(Reshape((*x.shape[:3], const(half), const(2))), turned)
            left, right = (b.one(Reshape((*x.shape[:3], const(half))), _part(b, pairs, 4, n, n + 1)) for n in (0, 1))
        else:
            left, right = _part(b, turned, 3, 0, half), _part(b, turned, 3, half, 2 * half)
        c, s = (b.one(Reshape((v.shape[0], const(1), *v.shape[1:])), v) for v in (cos, sin))
        out = [
            apply(b, "Sub", apply(b, "Mul", left, c), apply(b, "Mul", right, s)),
            apply(b, "Add", apply(b, "Mul", left, s), apply(b, "Mul", right, c)),
        ]
        if self.interleaved:
            columns = [b.one(Reshape((*y.shape, const(1))), y) for y in out]
            out = [b.one(Reshape((*x.shape[:3], const(2 * half))), b.one(Concat(4), *columns))]
        rest = [_part(b, x, 3, 2 * half, width)] if 2 * half < width else []
        return [b.one(Concat(3), *out, *rest) if len(out) + len(rest) > 1 else out[0]]


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
        b, given = source.builder, cls(**source.fields(cls))
        x, cos, sin, at = source.required(0), source.required(1), source.required(2), source.input(3)
        flat = x.type.rank == 3
        x = heads(b, x, given.num_heads) if flat else x
        if at is None:
            y = b.one(Rotated(given.interleaved), x, cos, sin)
        else:
            y = rotated(source, x, cos, sin, at, bool(given.interleaved))
        return [merged(b, y) if flat else y]


def rotated(source: SourceNode, x: Value, cos: Value, sin: Value, positions: Value, interleaved: bool) -> Value:
    """x[B, H, S, D] turned by angles.

    Args:
        cos, sin: [positions, R / 2].
        positions: [B or 1, S].
        interleaved: as of :class:`Rotated`.
    """
    b = source.builder
    if cos.type.rank != 2:
        raise ModelError(f"rotary positions of {x.type!r} by {cos.type!r}")
    demand_in_range(source, positions, cos.shape[0], use="position")
    c, s = (apply(b, "Gather", table, positions) for table in (cos, sin))
    return b.one(Rotated(int(interleaved)), x, c, s)


def _part(b: Builder, x: Value, axis: int, start: int, stop: int) -> Value:
    """x[..., start:stop, ...] along an axis."""
    starts = tuple(const(start if k == axis else 0) for k in range(x.type.rank))
    sizes = tuple(const(stop - start) if k == axis else d for k, d in enumerate(x.shape))
    return b.one(Slice(starts, sizes, (1,) * x.type.rank), x)
