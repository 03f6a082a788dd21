"""A factor that is windows of images, as a card that copies rows of pixels by itself is told of it (Hopper)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from ....expr import Expr, as_int, const
from ....expr.affine import strides_along
from ..contraction_factor import Factor, as_bool

MOST_STEP = 8  # pixels from one window to the next, at most
MOST_TAP = {1: (1 << 16) - 1, 2: 255, 3: 31}  # pixels from a window's first tap to its last, at most
CORNERS = {1: 1 << 15, 2: 128, 3: 16}  # ends of what windows cover are so many pixels off the image, at most


@dataclass(frozen=True)
class Side:
    """A side of the images, and how windows move along it.

    Attributes:
        size: pixels.
        pitch: elements from pixel to pixel.
        axis: number of a window.
        step: pixels from window to window.
        tap: pixels from a window's first tap to the one that is read.
        reach: and to the last.
        first, last: where the first and the last window begin, in pixels from the first and the last pixel.
    """

    size: int
    pitch: int
    axis: Expr
    step: int
    tap: Expr
    reach: int
    first: int
    last: int

    def is_served(self, sides: int, packet: int) -> bool:
        """Whether the card copies windows along such a side."""
        near = all(-CORNERS.get(sides, 0) <= corner < CORNERS.get(sides, 0) for corner in (self.first, self.last))
        fits = self.size > 0 and self.step <= MOST_STEP and self.reach <= MOST_TAP.get(sides, 0)
        return near and fits and self.pitch > 0 and self.pitch % packet == 0


@dataclass(frozen=True)
class Images:
    """Images whose channels lie innermost.

    Attributes:
        start: offset of the first.
        depth: channels.
        sides: outermost first.
        count, each: images, and elements from one to the next.
        which: number of the image of a window.
    """

    pixels: ClassVar[bool] = True

    start: int
    depth: Expr
    sides: tuple[Side, ...]
    count: Expr
    each: int
    which: Expr


def as_images(f: Factor, batch: Sequence[Expr], k: Sequence[Expr], packet: int) -> Images | None:
    """A factor as windows of images; None when it is something else, or pixels do not begin at packets.

    Args:
        k: axes of the sum: of taps, and innermost that of the channels.
        packet: elements in 16 bytes.

    >>> from torshc.expr import axis, call
    >>> n, y, x, ky, kx, c = map(axis, "n y x ky kx c".split(), (2, 6, 4, 3, 3, 64))
    >>> at = x * 2 + kx - 1
    >>> inside = call("and", call("le", const(0), at), call("lt", at, const(7)))
    >>> row, step = n * 3584 + y * 448 + x * 128, ky * 448 + kx * 64 + c
    >>> f = Factor(0, const(-64), row, step, inside, (n, y, x), along_k=True, packet=8)
    >>> for side in as_images(f, [], [ky, kx, c], 8).sides:
    ...     print(side.size, side.pitch, side.step, side.tap, side.first, side.last)
    8 448 1 ky 0 -2
    7 64 2 kx -1 -1
    """
    taps, starts = k[:-1], strides_along(f.start, batch)
    rows, terms = _constants(f.row, f.axes), _constants(f.step, k)
    bounds = _bounds(f.guard, f.axes, taps)
    if starts is None or rows is None or terms is None or bounds is None or f.packet != packet or not f.along_k:
        return None
    start, moved = as_int(starts[1]), any(as_int(s) != 0 for s in starts[0])
    free = [a for a in f.axes if a not in bounds]
    loose = [t for t in taps if all(b.tap is not t for b in bounds.values())]
    single = len(free) <= len(loose) or free[0] is not f.axes[0]  # there is only one image, or its number is joined
    spare = free if single else free[1:]
    if start is None or moved or terms[k[-1]] != 1 or len(loose) > len(spare):
        return None
    for i, a in enumerate(reversed(spare)):
        tap = loose[-1 - i] if i < len(loose) else None
        pitch = math.gcd(rows[a], terms[tap]) if tap is not None else rows[a]
        bounds[a] = _Bound(
            tap, rows[a] // pitch if pitch else 0, terms[tap] // pitch if tap is not None and pitch else 0
        )
    sides = [_side(a, bounds[a], rows, terms) for a in f.axes if a in bounds]
    found = [s for s in sides if s is not None and s.is_served(len(sides), packet)]
    if len(found) < len(sides) or len(sides) not in CORNERS:
        return None
    start -= sum(s.first * s.pitch for s in found)
    each = found[0].pitch * found[0].size if single else rows[f.axes[0]]
    extent = as_int(k[-1].args[0])
    for pitch, size in [*((s.pitch, s.size) for s in reversed(found)), (each, 1)]:
        if extent is None or extent > pitch:
            return None  # pixels overlap
        extent += (size - 1) * pitch
    if start < 0 or (start | each) % packet:
        return None
    count, which = (const(1), const(0)) if single else (f.axes[0].args[0], f.axes[0])
    return Images(start, k[-1].args[0], tuple(found), count, each, which)


@dataclass(frozen=True)
class _Bound:
    """Pixel step * window + each * tap + first, which is read where it lies on a side: of a size if that is known."""

    tap: Expr | None
    step: int
    each: int
    first: int = 0
    size: int | None = None


def _constants(e: Expr, axes: Sequence[Expr]) -> dict[Expr, int] | None:
    """Strides along axes, if all are known and nothing is left."""
    parts = strides_along(e, axes)
    steps = [] if parts is None else [as_int(s) for s in parts[0]]
    known = [s for s in steps if s is not None]
    if parts is None or as_int(parts[1]) != 0 or len(known) < len(steps):
        return None
    return dict(zip(axes, known, strict=True))


def _bounds(guard: Expr, axes: Sequence[Expr], taps: Sequence[Expr]) -> dict[Expr, _Bound] | None:
    """What a condition says of each axis of windows: 0 <= pixel and pixel < size; None if it says anything else."""
    pending, found = [guard], dict[Expr, _Bound]()
    while pending:
        e = pending.pop()
        if e.op == "and":
            pending += e.args
            continue
        if as_bool(e) is True:
            continue
        if e.op not in ("le", "lt") or (e.op == "le" and as_int(e.args[0]) != 0):
            return None
        at, size = (e.args[1], None) if e.op == "le" else (e.args[0], as_int(e.args[1]))
        parts = strides_along(at, (*axes, *taps))
        steps = [] if parts is None else [(a, as_int(s)) for a, s in zip((*axes, *taps), parts[0], strict=True)]
        moving = [(a, s) for a, s in steps if s != 0]
        first = None if parts is None else as_int(parts[1])
        if not moving or moving[0][0] not in axes or [a in axes for a, _ in moving[1:]] not in ([], [False]):
            return None
        (a, step), (tap, each) = moving[0], moving[1] if len(moving) > 1 else (None, 0)
        if first is None or step is None or each is None or (e.op == "lt" and size is None):
            return None
        bound, known = _Bound(tap, step, each, first, size), found.get(a)
        if known is not None:
            if replace(known, size=None) != replace(bound, size=None) or None not in (known.size, bound.size):
                return None
            bound = replace(bound, size=bound.size if known.size is None else known.size)
        found[a] = bound
    return found


def _side(a: Expr, bound: _Bound, rows: Mapping[Expr, int], terms: Mapping[Expr, int]) -> Side | None:
    """The side of the images that an axis of windows moves along."""
    windows, tap = as_int(a.args[0]), bound.tap
    count = 1 if tap is None else as_int(tap.args[0])
    if windows is None or count is None or bound.step <= 0 or bound.each < 0 or rows[a] % bound.step:
        return None
    pitch, end = rows[a] // bound.step, bound.first + bound.step * (windows - 1)
    if tap is not None and terms[tap] != bound.each * pitch:
        return None
    size = end + bound.each * (count - 1) + 1 if bound.size is None else bound.size
    at = const(0) if tap is None else tap * bound.each
    return Side(size, pitch, a, bound.step, at, bound.each * (count - 1), bound.first, end - (size - 1))
