"""What operators of attention share: operands by head, and what is added to scores.

B is the batch, H heads, S positions of queries, T of keys, D a head's width.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...errors import ModelError
from ...expr import I32, Expr, as_int, const
from ...graph import Builder, Value
from ..core.compose import apply
from ..tensor.view import Reshape, Transpose


def heads(b: Builder, x: Value, count: int) -> Value:
    """x[B, S, H * D] as [B, H, S, D].

    Raises:
        ModelError: when it has no such shape.
    """
    width = as_int(x.shape[-1]) if x.type.rank == 3 else None
    if width is None or count < 1 or width % count:
        raise ModelError(f"attention of {x.type!r} in {count} heads")
    split = b.one(Reshape((*x.shape[:2], const(count), const(width // count))), x)
    return b.one(Transpose((0, 2, 1, 3)), split)


def merged(b: Builder, x: Value) -> Value:
    """x[B, H, S, D] as [B, S, H * D]."""
    batch, count, length, width = x.shape
    return b.one(Reshape((batch, length, count * width)), b.one(Transpose((0, 2, 1, 3)), x))


def added(b: Builder, values: Sequence[Value | None]) -> Value | None:
    """The sum of those that are there."""
    total: Value | None = None
    for v in values:
        if v is not None:
            total = v if total is None else apply(b, "Add", total, v)
    return total


def places(b: Builder, count: Expr) -> Value:
    """0 .. count - 1 in i32."""
    return apply(b, "Range", start=const(0), step=const(1), count=count, dtype=I32)


def kept(b: Builder, seen: Value, like: Value, hidden: float) -> Value:
    """0 where a position is seen, else `hidden`."""
    return apply(b, "Where", seen, b.constant(0.0, like), b.constant(hidden, like))


def window(b: Builder, q: Value, length: Expr, past: Expr, left: int, right: int) -> Value | None:
    """What hides keys from queries by their distance, [S, T]; None where it hides none.

    Args:
        q: queries [.., S, D], of which the first is at position `past` of the keys.
        length: T.
        left, right: positions before and behind its own that a query sees; all where negative.
    """
    count = q.shape[-2]
    if left < 0 and (right < 0 or (as_int(count) == 1 and length is past + 1)):
        return None
    row = b.one(Reshape((count, const(1))), apply(b, "Range", start=past, step=const(1), count=count))
    column = apply(b, "Range", start=const(0), step=const(1), count=length)
    seen: list[Value] = []
    if right >= 0:
        seen.append(apply(b, "LessOrEqual", column, apply(b, "Add", row, right) if right else row))
    if left >= 0:
        seen.append(apply(b, "GreaterOrEqual", column, apply(b, "Sub", row, left) if left else row))
    return kept(b, seen[0] if len(seen) == 1 else apply(b, "And", *seen), q, -np.inf)
