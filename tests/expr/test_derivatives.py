"""Derivatives of scalar functions against central differences, and what they are where a slope jumps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from torshc.expr import (
    F32,
    F64,
    FUNCTIONS,
    SLOPES,
    Expr,
    NoDerivative,
    acc,
    call,
    cast,
    const,
    select,
    substitute,
    tangent,
)

STEP = 1e-6
ABOVE_ONE, WITHIN_ONE, ABOVE = (1.2, 3.0), (-0.8, 0.9), (0.3, 2.4)
RANGES = {
    "acosh": ABOVE_ONE, "asin": WITHIN_ONE, "acos": WITHIN_ONE, "atanh": WITHIN_ONE, "sqrt": ABOVE, "log": ABOVE,
    "log1p": ABOVE, "pow": ABOVE, "mod": ABOVE, "fmod": ABOVE, "floordiv": ABOVE, "div": ABOVE,
}  # fmt: skip
OF_ROUNDED = ("as_", "from_bits_")  # of storage
FLOATS = [f for f in FUNCTIONS.values() if f.result == "same" and not f.name.startswith(OF_ROUNDED)]
# Of bits, and of formulas as they are printed: no function that is differentiated.
INNER = ("bitand", "bitor", "bitxor", "bitnot", "shl", "shr", "scale")


def value(e: Expr, at: dict[Expr, float]) -> float:
    found = substitute(e, {x: const(v, x.dtype) for x, v in at.items()})
    assert found.op == "const"
    return float(found.data)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", [f.name for f in FLOATS if f.name not in INNER])
def test_rows_are_what_differences_show(name: str) -> None:
    rng = np.random.default_rng(5)
    low, high = RANGES.get(name, (-1.6, 1.7))
    xs = [acc(f"x{k}", F64) for k in range(len(SLOPES[name]))]
    y = call(name, *xs)
    for at in rng.uniform(low, high, (5, len(xs))):
        for k, x in enumerate(xs):
            change = tangent(y, {x: const(1.0, F64)})
            sides = []
            for sign in (1, -1):
                moved = at.copy()
                moved[k] += sign * STEP
                sides.append(value(y, dict(zip(xs, moved.tolist(), strict=True))))
            got = 0.0 if change is None else value(change, dict(zip(xs, at.tolist(), strict=True)))
            assert got == pytest.approx((sides[0] - sides[1]) / (2 * STEP), rel=1e-6, abs=1e-8)


def test_every_function_of_floats_has_a_row() -> None:
    rows = {f.name for f in FLOATS if f.name not in INNER}
    assert rows <= {*SLOPES} <= {*FUNCTIONS}


X = acc("x", F64)
ZERO, ONE = const(0.0, F64), const(1.0, F64)


@pytest.mark.parametrize(
    ("y", "at", "wanted"),
    [
        (call("max", X, ZERO), 0.0, 0.5),
        (call("min", X, ZERO), 0.0, 0.5),
        (call("max", X, call("neg", X)), 0.0, 0.0),
        (call("abs", X), 0.0, 0.0),
        (call("pow", X, ZERO), 0.0, 0.0),
        (call("pow", X, ONE), 0.0, 1.0),
        (call("pow", ZERO, X), 2.0, 0.0),
        (select(call("gt", X, 0.0), call("sqrt", X), ZERO), 0.0, 0.0),
        (cast(call("mul", cast(X, F32), 3.0), F64), 2.0, 3.0),
    ],
)
def test_where_slopes_jump(y: Expr, at: float, wanted: float) -> None:
    """As PyTorch has it; what is not chosen is not multiplied by 0, which would be NaN."""
    change = tangent(y, {X: ONE})
    assert change is not None and value(change, {X: at}) == wanted


def test_what_has_none_is_said() -> None:
    with pytest.raises(NoDerivative, match="as_f8e5m2"):
        tangent(call("as_f8e5m2", acc("x", F32)), {acc("x", F32): const(1.0)})
    flat: Any = tangent(call("floor", X), {X: ONE})
    assert flat is None
