"""Scales and regions of Resize that are known only at run time, as integers, so that coordinates stay exact.

Floats become fixed-point numbers in a small tensor, from which a run takes them: a scale s is up / down, exactly
from 2^-7 to 2^16, and with 30 binary places below; a corner of a region has 24 binary places. All products of them
with sizes stay within 64 bits.
"""

from __future__ import annotations

import numpy as np

from ...base.errors import ModelError
from ...expr import F64, I64, Expr, cast, const, eq, max_of, select
from ...graph import Shape
from ..core.axes import both, constraints_of, require
from ..core.functions import concat, where
from ..core.functions import round as rounded
from ..core.source import SourceNode
from ..core.tensor import Tensor

# (from, places): scales from here on have this number of binary places; a scale is then below 2^31.
_PLACES = ((256.0, 15), (1.0, 23))
_FINEST = 30
_CORNER = 24
_FAR = 16  # corners of regions are within -16 .. 16


def fractions(source: SourceNode, scales: Tensor) -> list[tuple[Expr, Expr]]:
    """(up, down) of each scale. A scale that is not a number above 0, or above 2^16, is an error of the run."""
    exact = scales.cast(F64)
    down = exact.constant(2.0**_FINEST)
    for start, places in reversed(_PLACES):
        down = where(exact >= start, exact.constant(2.0**places), down)
    up = rounded(exact * down)
    found = concat(up.cast(I64), down.cast(I64), axis=0).elements()
    if found is None:
        raise ModelError(f"the scales of {source.op_type} are {scales.type!r}")
    count = len(found) // 2
    parts = [cast(e, I64) for e in found]
    for up_part in parts[:count]:
        require(constraints_of(source), up_part >= 1, f"{source.op_type} with a scale of 0 or below")
    return list(zip(parts[:count], parts[count:], strict=True))


def common_ratio(policy: str, sizes: Shape, have: Shape) -> tuple[Expr, Expr]:
    """The smallest (policy "not_larger") or largest of sizes / have, as numerator and denominator."""
    up, down = sizes[0], have[0]
    for size, d in zip(sizes[1:], have[1:], strict=True):
        is_better = size * down < up * d if policy == "not_larger" else size * down > up * d
        up, down = select(is_better, size, up), select(is_better, d, down)
    return up, down


def corners(source: SourceNode, roi: Tensor) -> Shape:
    """The numbers of a region of Resize, times 2^24."""
    if roi.const is not None:
        numbers = roi.const.reshape(-1).astype(np.float64)
        if not np.isfinite(numbers).all():
            raise ModelError(f"Resize of a region {numbers}, which is not finite")
        found: Shape | None = tuple(const(round(float(v) * 2**_CORNER)) for v in numbers)
    else:
        found = rounded(roi.cast(F64) * 2.0**_CORNER).cast(I64).elements()
    if found is None:
        raise ModelError(f"the region of Resize is {roi.type!r}")
    out = tuple(cast(e, I64) for e in found)
    for e in out:
        near = both(e >= -_FAR << _CORNER, e <= _FAR << _CORNER)
        require(constraints_of(source), near, f"Resize of a region further out than {_FAR} sizes")
    return out


def crop_of(source: SourceNode, first: Expr, last: Expr, size: Expr, out: Expr) -> tuple[Expr, Expr, Expr]:
    """The coordinate (i * over + start) / under of element i of `out`, in a region of a dimension.

    Args:
        first, last: where the region begins and ends, times 2^24.
    """
    span = max_of(out - 1, 1)
    require(constraints_of(source), size * span <= 1 << 31, f"Resize of {size!r} elements to {out!r}")
    is_single = eq(out, 1)
    start = select(is_single, (first + last) * (size - 1), first * 2 * (size - 1) * span)
    over = select(is_single, const(0), (last - first) * 2 * (size - 1))
    return over, start, span * (2 << _CORNER)
