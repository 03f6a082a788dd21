"""Running sums and products on devices of blocks, on the emulator, against NumPy: whole rows and pieces of rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from torshc.expr import DTYPES
from torshc.targets.gpu import scan

from ...support.kernels import Maker, Shape, random, sizes
from ...support.run_grid import GridProgram, needs_emulator, templates
from ..cpu.test_scan import DIMS, FORMS, RNG, agrees, expected

pytestmark = needs_emulator


def check(shape: Shape, axis: int, kernels: str, combine: str = "CumSum", dtype: str = "f32", **form: Any) -> None:
    m = Maker()
    kind = DTYPES[dtype]
    x = random(RNG, sizes(shape, DIMS), np.int64 if kind.is_int else np.float64).astype(kind.numpy)
    program = GridProgram(m.output(m.add(combine, m.input(*shape, dtype=kind), axis=axis, **form)), DIMS)
    assert " ".join(templates(program)) == kernels
    agrees(program.run(x)[0], expected(x, axis, combine, **form), kind)


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_axes_and_directions(form: dict[str, Any]) -> None:
    check((3, 21, 19), 1, "scan", **form)
    check((5, 1100), 1, "scan", **form)
    check((3, 21), 1, "scan", "CumProd", **form)
    check((200, 7), 0, "columns scan scan", **form)


@pytest.mark.parametrize("dtype", ["f64", "f16", "i64", "i8", "u32"])
def test_types(dtype: str) -> None:
    for combine in ("CumSum", "CumProd"):
        check((20, 50), 1, "scan", combine, dtype, exclusive=1)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_symbolic_extents(axis: int) -> None:
    check(("a", "n", "b"), axis, "scan", exclusive=1)


@pytest.mark.parametrize("form", [FORMS[0], FORMS[3]], ids=str)
def test_pieces(form: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Of rows along memory and beside others, with and without a rest; floats are multiplied in order."""
    monkeypatch.setattr(scan, "LONG", 60)
    check((3, 1001), 1, "row scan", **form)
    check((1001,), 0, "row scan", **form)
    check((2, 640), 1, "row scan", "CumProd", "i32", **form)
    check((2, 1001, 5), 1, "columns scan scan", **form)
    check((3, 1001), 1, "scan", "CumProd", **form)
    check((0, 1001), 1, "", **form)
    monkeypatch.setattr(scan, "LONG", 300)  # pieces of several warps
    check((2, 1301), 1, "row scan", **form)


@pytest.mark.parametrize("order", ["forward", "reverse", "random:1"])
def test_values_spread_from_where_they_stand(order: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("T_EMULATE_ORDER", order)
    x = np.ones((2, 1200), np.float32)
    x[0, 613], x[1, 505], x[1, 1120] = np.nan, np.inf, -np.inf
    m = Maker()
    program = GridProgram(m.output(m.add("Neg", m.add("CumSum", m.input(2, 1200), axis=1))))
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(program.run(x)[0], -np.cumsum(x, 1))
    x = np.array([[1e30, 1e30, 1e-30, 1e-30, 2.0, 0.5]], np.float32)
    m = Maker()
    with np.errstate(over="ignore"):
        program = GridProgram(m.output(m.add("CumProd", m.input(1, 6), axis=1)))
        np.testing.assert_array_equal(program.run(x)[0], np.cumprod(x, 1))
