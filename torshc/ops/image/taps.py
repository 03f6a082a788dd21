"""Where an element of a resampled tensor comes from: coordinates, and weights of the elements around them."""

from __future__ import annotations

from dataclasses import dataclass

from ...expr import Expr, as_int, const, max_of, min_of, select
from ..core.axes import at_run
from ..core.scalar import Scalar, where


@dataclass(frozen=True)
class ResizeAxis:
    """How one dimension is resampled; all in integers, so that a coordinate is exact.

    Attributes:
        size: extent of the output.
        up, down: the scale is up / down.
    """

    size: Expr
    up: Expr
    down: Expr

    @property
    def plain(self) -> bool:
        """Whether the dimension is left as it is."""
        return self.up is self.down


def source_coordinate(transform: str, a: ResizeAxis, i: Expr, size: Expr) -> tuple[Expr, Expr]:
    """The coordinate in the input, as numerator and denominator, of output coordinate i."""
    if transform == "asymmetric":
        return i * a.down, a.up
    if transform == "tf_half_pixel_for_nn":
        return (i * 2 + 1) * a.down, a.up * 2
    if transform == "align_corners":
        under = size * a.up - a.down
        under = max_of(under, 1) if at_run(under) else under
        return (const(0), const(1)) if as_int(under) == 0 else (i * (size - 1) * a.down, under)
    middle = (i * 2 + 1) * a.down - a.up
    if transform == "half_pixel_symmetric":
        middle = middle + size * a.up - a.size * a.down
    if transform == "pytorch_half_pixel":
        middle = select(a.size > 1, middle, const(0))
    return middle, a.up * 2


def nearest(rounding: str, over: Expr, under: Expr) -> Expr:
    """The integer that stands for over / under."""
    if rounding == "floor":
        return over // under
    if rounding == "ceil":
        return (over + under - 1) // under
    if rounding == "round_prefer_floor":
        return (over * 2 + under - 1) // (under * 2)
    return (over * 2 + under) // (under * 2)


def clamp(place: Expr, size: Expr) -> Expr:
    """A place moved into 0..size-1."""
    return max_of(min_of(place, size - 1), 0)


def cubic_weights(t: Scalar, a: float) -> list[Scalar]:
    """Weights of the four taps around a point at t between the middle two; Keys' cubic convolution."""

    def near(d: Scalar) -> Scalar:
        return (d * (a + 2) - (a + 3)) * d * d + 1

    def far(d: Scalar) -> Scalar:
        return ((d * a - 5 * a) * d + 8 * a) * d - 4 * a

    rest = 1 - t
    return [far(t + 1), near(t), near(rest), far(rest + 1)]


def keys(d: Scalar, a: float) -> Scalar:
    """Keys' cubic kernel at a distance d >= 0."""
    near, far = cubic_weights(d, a)[1], cubic_weights(d - 1, a)[0]
    return where(d <= 1, near, where(d < 2, far, 0))
