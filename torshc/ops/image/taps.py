"""Where an element of a resampled tensor comes from: coordinates, and weights of the elements around them."""

from __future__ import annotations

from dataclasses import dataclass

from ...expr import Expr, as_int, call, const, select
from ..core.axes import at_run


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
        under = call("max", under, 1) if at_run(under) else under
        return (const(0), const(1)) if as_int(under) == 0 else (i * (size - 1) * a.down, under)
    middle = (i * 2 + 1) * a.down - a.up
    if transform == "half_pixel_symmetric":
        middle = middle + size * a.up - a.size * a.down
    if transform == "pytorch_half_pixel":
        middle = select(call("gt", a.size, 1), middle, const(0))
    return middle, a.up * 2


def nearest(rounding: str, over: Expr, under: Expr) -> Expr:
    """The integer that stands for over / under."""
    if rounding == "floor":
        return call("floordiv", over, under)
    if rounding == "ceil":
        return call("floordiv", over + under - 1, under)
    if rounding == "round_prefer_floor":
        return call("floordiv", over * 2 + under - 1, under * 2)
    return call("floordiv", over * 2 + under, under * 2)


def clamp(place: Expr, size: Expr) -> Expr:
    """A place moved into 0..size-1."""
    return call("max", call("min", place, size - 1), 0)


def cubic_weights(t: Expr, a: float) -> list[Expr]:
    """Weights of the four taps around a point at t between the middle two; Keys' cubic convolution."""

    def near(d: Expr) -> Expr:
        return call("add", call("mul", call("mul", call("sub", call("mul", d, a + 2), a + 3), d), d), 1.0)

    def far(d: Expr) -> Expr:
        inner = call("add", call("mul", call("sub", call("mul", d, a), 5 * a), d), 8 * a)
        return call("sub", call("mul", inner, d), 4 * a)

    rest = call("sub", 1.0, t)
    return [far(call("add", t, 1.0)), near(t), near(rest), far(call("add", rest, 1.0))]


def keys(d: Expr, a: float) -> Expr:
    """Keys' cubic kernel at a distance d >= 0."""
    near, far = cubic_weights(d, a)[1], cubic_weights(call("sub", d, 1.0), a)[0]
    return select(call("le", d, 1.0), near, select(call("lt", d, 2.0), far, const(0.0, d.dtype)))
