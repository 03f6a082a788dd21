"""Derivatives of scalar expressions: a row for each scalar function that is no formula, and the chain rule.

Where a function has no derivative, the row takes what PyTorch takes: an extreme of equals is shared evenly, the sign of
0 is 0, and what is rounded is constant.
"""

from __future__ import annotations

from collections.abc import Mapping

from .expr import Expr, const, walk
from .formulas import ELEMENTARY
from .functions import FUNCTIONS, Slope, call, cast, eq, select
from .terms import over


def _split_at_tie(t: Expr, wins: Expr, ties: Expr) -> Expr:
    """All of a change where its operand is the extreme alone, half where both are."""
    return select(wins, t, select(ties, t * 0.5, const(0, t.dtype)))


def _same(t: Expr, *_: Expr) -> Expr:
    return t


SLOPES: dict[str, tuple[Slope | None, ...]] = {
    "add": (_same, _same),
    "sub": (_same, lambda t, y, a, b: call("neg", t)),
    "mul": (lambda t, y, a, b: t * b, lambda t, y, a, b: t * a),
    "div": (lambda t, y, a, b: over(t, b), lambda t, y, a, b: call("neg", t * over(y, b))),
    "fma": (lambda t, y, a, b, c: t * b, lambda t, y, a, b, c: t * a, _same),
    "min": (
        lambda t, y, a, b: _split_at_tie(t, a < b, eq(a, b)),
        lambda t, y, a, b: _split_at_tie(t, b < a, eq(a, b)),
    ),
    "max": (
        lambda t, y, a, b: _split_at_tie(t, a > b, eq(a, b)),
        lambda t, y, a, b: _split_at_tie(t, b > a, eq(a, b)),
    ),
    "fmod": (_same, lambda t, y, a, b: call("neg", t * call("trunc", over(a, b)))),
    "mod": (_same, lambda t, y, a, b: call("neg", t * call("floor", over(a, b)))),
    "floordiv": (None, None),
    "neg": (lambda t, y, a: call("neg", t),),
    "abs": (lambda t, y, a: t * call("sign", a),),
    "sign": (None,),
    "floor": (None,),
    "ceil": (None,),
    "round": (None,),
    "trunc": (None,),
    "sqrt": (lambda t, y, a: over(t, y * 2.0),),
    "as_f16": (_same,),  # as if storing did not round
    "as_bf16": (_same,),
    **{f.name: f.slopes for f in FUNCTIONS.values() if f"{f.name}_f32" in ELEMENTARY},
}


class NoDerivative(Exception):
    """A scalar function has no derivative here."""


def tangent(expr: Expr, seeds: Mapping[Expr, Expr]) -> Expr | None:
    """What a small change of some leaves changes an expression by, to the first order; None where that is 0.

    Of a choice only the chosen side counts, so that an infinite slope of the other one is not multiplied by 0.

    Args:
        seeds: leaves, which are floats, with their changes.

    Raises:
        NoDerivative: a function on the way has none.
    """
    found: dict[Expr, Expr | None] = {}
    for e in walk(expr):
        found[e] = seeds[e] if e in seeds else _through(e, found)
    return found[expr]


def _through(e: Expr, found: Mapping[Expr, Expr | None]) -> Expr | None:
    if not e.dtype.is_float or e.op in ("axis", "load"):
        return None
    changes = [found[a] for a in e.args]
    if all(t is None for t in changes):
        return None
    if e.op == "cast":
        assert changes[0] is not None
        return cast(changes[0], e.dtype)
    if e.op == "select":
        taken, other = (const(0, e.dtype) if t is None else t for t in changes[1:])
        return select(e.args[0], taken, other)
    if e.op not in SLOPES:
        raise NoDerivative(e.op)
    total: Expr | None = None
    for t, slope in zip(changes, SLOPES[e.op], strict=True):
        if t is not None and slope is not None:
            part = slope(t, e, *e.args)
            total = part if total is None else total + part
    return total


__all__ = ["SLOPES", "NoDerivative", "tangent"]
