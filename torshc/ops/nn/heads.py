"""What operators of attention share: operands by head, and what is added to scores.

B is the batch, H heads, S positions of queries, T of keys, D a head's width.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce

import numpy as np

from ...base.errors import ModelError
from ...expr import I32, Expr, as_int
from ..core.functions import where
from ..core.tensor import Tensor


def split_heads(x: Tensor, count: int) -> Tensor:
    """x[B, S, H * D] as [B, H, S, D].

    Raises:
        ModelError: when it has no such shape.
    """
    width = x.size(-1) if x.rank == 3 else None
    if width is None or count < 1 or width % count:
        raise ModelError(
            f"attention of {x.type!r} in {count} heads; it needs 3 dimensions, of which heads divide the last"
        )
    return x.reshape(*x.shape[:2], count, width // count).transpose(0, 2, 1, 3)


def merge_heads(x: Tensor) -> Tensor:
    """x[B, H, S, D] as [B, S, H * D]."""
    batch, count, length, width = x.shape
    return x.transpose(0, 2, 1, 3).reshape(batch, length, count * width)


def add_present(values: Iterable[Tensor | None]) -> Tensor | None:
    """The sum of the tensors that are present; None where there is none."""
    present = [v for v in values if v is not None]
    return reduce(Tensor.__add__, present) if present else None


def count_positions(like: Tensor, count: Expr) -> Tensor:
    """0 .. count - 1 in i32."""
    return like.range(0, count, I32)


def hide_unseen(seen: Tensor, like: Tensor, hidden: float) -> Tensor:
    """0 where a position is seen, else `hidden`."""
    return where(seen, like.constant(0.0), like.constant(hidden))


def window_mask(q: Tensor, length: Expr, past: Expr, left: int, right: int) -> Tensor | None:
    """What hides keys from queries by their distance, [S, T]; None where it hides none.

    Args:
        q: queries [.., S, D], of which the first is at position `past` of the keys.
        length: T.
        left, right: positions before and behind its own that a query sees; all where negative.
    """
    count = q.shape[-2]
    if left < 0 and (right < 0 or (as_int(count) == 1 and length is past + 1)):
        return None
    row, column = q.range(past, count).reshape(count, 1), q.range(0, length)
    seen: list[Tensor] = []
    if right >= 0:
        seen.append(column <= (row + right if right else row))
    if left >= 0:
        seen.append(column >= (row - left if left else row))
    return hide_unseen(reduce(Tensor.__and__, seen), q, -np.inf)
