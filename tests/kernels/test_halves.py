"""Activations of which memory keeps a half, on CUDA and processors: every half that there is, against NumPy in f64."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from torshc.expr import BF16, F16, F32, DType, Expr, acc, call
from torshc.graph import Graph
from torshc.kernels.halves import for_halves
from torshc.kernels.machine import Machine
from torshc.passes.policy import Policy
from torshc.plan.finalise import finalise
from torshc.plan.place import make_plan
from torshc.targets.cpu.llvm.target import LlvmTarget
from torshc.targets.isa import resolve

from ..support.kernels import Maker
from ..support.run_grid import GridProgram, needs_emulator
from ..support.run_kernel import Program, native_lanes

# Bits below a half's own, and the least number: what is smaller counts as 0 where an intermediate value of f32 does.
BITS, LEAST = {F16: 10, BF16: 7}, {F16: 2.0**-24, BF16: 2.0**-133}
FLOOR = {F16: 0.0, BF16: 2.0**-119}  # of bf16 a number times what is 0 below 2^-126
FAR = 2.0**-60  # of bf16 on processors, below -9: no more than the share of what lies there, times such a number


def _share(x: Any) -> Any:
    return np.array([0.5 * math.erfc(-v * math.sqrt(0.5)) for v in x])


def _sigmoid(x: Any) -> Any:
    return np.where(x < 0, np.exp(np.minimum(x, 0)), 1.0) / (1.0 + np.exp(-abs(x)))


def _by_tanh(x: Any) -> Any:
    return x * _sigmoid(2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))


ACTIVATIONS: dict[str, tuple[Any, Any, str]] = {
    "gelu": (lambda m, x: m.add("Gelu", x), lambda x: x * _share(x), "t_near_normal_"),
    "tanh": (lambda m, x: m.add("Gelu", x, approximate="tanh"), _by_tanh, "t_near_sigmoid_"),
    "silu": (lambda m, x: m.add("Mul", m.add("Sigmoid", x), x), lambda x: x * _sigmoid(x), "t_near_sigmoid_"),
    "sigmoid": (lambda m, x: m.add("Sigmoid", x), _sigmoid, "t_near_sigmoid_"),
}


def _on_lanes(lanes: int) -> Callable[[Graph], Program]:
    return lambda graph: Program(graph, machine=Machine(lanes=lanes))


PROGRAMS = [pytest.param(GridProgram, marks=needs_emulator, id="cuda")]
PROGRAMS += [pytest.param(_on_lanes(n), id=f"{n} lanes") for n in (max(native_lanes(), resolve().lanes), 1)]


@pytest.mark.parametrize("dtype", [F16, BF16], ids=str)
@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("program", PROGRAMS)
def test_all_halves(name: str, dtype: DType, program: Callable[[Graph], Any]) -> None:
    """Rounded to a half all are within 9/16 of its last bit, of which 8 are the rounding's."""
    build, exact, function = ACTIVATIONS[name]
    x = np.arange(1 << 16, dtype=np.uint16).view(dtype.numpy)
    maker = Maker()
    made = program(maker.output(build(maker, maker.input(1 << 16, dtype=dtype))))
    assert function in made.launches[0].source
    (found,) = made.run(x)
    shares = name == "gelu" and dtype is BF16 and program is not GridProgram
    with np.errstate(invalid="ignore"):
        least = np.where((x < x.dtype.type(-9)) & shares, FAR, FLOOR[dtype])
    _require_near(found, exact, x, least)


def _require_near(found: Any, exact: Any, x: Any, least: Any) -> None:
    dtype = F16 if x.dtype == F16.numpy else BF16
    with np.errstate(all="ignore"):
        wide, got = x.astype(np.float64), found.astype(np.float64)
        wanted = exact(wide)
        rounded = wanted.astype(dtype.numpy).astype(np.float64)
    assert np.array_equal(np.isnan(got), np.isnan(wanted))
    size = np.maximum(abs(wanted), LEAST[dtype] * 2.0 ** BITS[dtype])
    bit = 2.0 ** (np.floor(np.log2(size)) - BITS[dtype])
    with np.errstate(invalid="ignore"):
        near = abs(got - wanted) <= np.maximum(bit * (9 / 16), least)
    assert (near | (got == rounded) | np.isnan(wanted)).all(), wide[~(near | (got == rounded) | np.isnan(wanted))]


def test_llvm_has_the_same_functions() -> None:
    maker = Maker()
    graph = maker.output(maker.add("Gelu", maker.input(64, dtype=BF16)))
    plan, target = make_plan(finalise(graph, Policy.of())), LlvmTarget(Machine(lanes=8))
    (text,) = [target.render(k).source for g in plan.groups for k in target.lower(graph, g, plan.storage)]
    assert "@t_near_normal_bf16_f32" in text and "@t_erf" not in text


def test_zeros_keep_their_sign() -> None:
    for dtype in (F16, BF16):
        maker = Maker()
        (found,) = Program(maker.output(maker.add("Gelu", maker.input(2, dtype=dtype)))).run(np.array([0.0, -0.0]))
        assert np.signbit(found.astype(np.float32)).tolist() == [False, True]


@pytest.mark.parametrize("program", PROGRAMS[:2])
def test_what_is_more_than_a_half_keeps_the_functions_of_f32(program: Callable[[Graph], Any]) -> None:
    """Results of f32, sums that may cancel, and a function whose value something else needs too."""
    maker = Maker()
    x, gelu = maker.input(64, dtype=F16), maker.add("Gelu", maker.input(64))
    sigmoid = maker.add("Sigmoid", x)
    made = program(maker.output(gelu, maker.add("Add", maker.add("Gelu", x), x), sigmoid, maker.add("Sub", sigmoid, x)))
    text = "".join(launch.source for launch in made.launches)
    assert "t_near_" not in text and "t_erf_f32(" in text and "t_sigmoid_f32(" in text


X = acc("x", F32)
SPELLED: dict[str, Expr] = {
    "half first": (X * 0.5) * (call("erf", call("div", X, math.sqrt(2.0))) + 1.0),
    "half last": (X * (call("erf", X * math.sqrt(0.5)) + 1.0)) * 0.5,
    "half of the sum": X * ((call("erf", X * math.sqrt(0.5)) + 1.0) * 0.5),
    "the sum turned": call("mul", 0.5, X) * call("add", 1.0, call("erf", call("mul", math.sqrt(0.5), X))),
}


@pytest.mark.parametrize("name", SPELLED)
def test_spelled_out(name: str) -> None:
    """Where no rule has made Gelu of it, at lower levels."""
    assert for_halves([SPELLED[name]], [F16]) == [X * call("near_normal_f16", X)]
    assert for_halves([SPELLED[name]], [F32]) == [SPELLED[name]]


def test_what_a_constant_of_a_half_leaves_is_a_factor() -> None:
    """The root of 2 as f16 is 1.4140625."""
    (found,) = for_halves([(X * 0.5) * (call("erf", call("div", X, 1.4140625)) + 1.0)], [F16])
    assert found == X * call("near_normal_f16", X * (math.sqrt(2.0) / 1.4140625))
