"""Scalar functions as LLVM's instructions against their NumPy forms, over one lane and over many."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from torshc.expr import BF16, BOOL, F16, F32, F64, I4, I8, I32, I64, U2, U8, U64, DType
from torshc.expr.functions import FUNCTIONS
from torshc.targets.cpu.llvm.functions import definitions
from torshc.targets.cpu.llvm.ir import Body, Function, Ops, Reg
from torshc.targets.cpu.llvm.math import apply, cast, decode, encode, memory
from torshc.targets.isa import resolve
from torshc.targets.native import Loaded, machine_of, object_of

Array = np.ndarray[Any, Any]
How = Callable[[Ops, list[Reg]], Reg]
LANES = (1, 8)
COMPARED = ["lt", "le", "gt", "ge", "eq", "ne"]
OF_TWO = ["add", "sub", "mul", "div", "min", "max", "fmod", "mod", "floordiv", *COMPARED]
EXACT = [*OF_TWO, "neg", "abs", "sign"]
ROUNDED = ["floor", "ceil", "round", "trunc", "sqrt", "isnan", "isinf"]
SMOOTH = [
    "exp", "log", "log1p", "expm1", "tanh", "erf", "sigmoid", "sin", "cos", "tan", "asin", "acos", "atan", "sinh",
    "cosh", "asinh", "acosh", "atanh", "pow",
]  # fmt: skip
BITS = ["bitand", "bitor", "bitxor", "shl", "shr", "pow"]


def numbers(dtype: DType) -> Array:
    """Numbers at the ends, beside 0 and between."""
    if dtype is BOOL:
        return np.array([False, True])
    if dtype.is_float:
        above = [0.0, 0.3, 0.75, 1.0, 2.5, 3.0, 7.75, 20.5, 88.5, 1e-20, 1e-9, 1e-40, 1e10, 3e38, np.inf]
        with np.errstate(over="ignore"):
            return np.array([*above, *(-x for x in above), np.nan], dtype.numpy)
    low, high = dtype.range
    return np.array([0, 1, 2, 3, 7, 8, 31, high - 1, high, *((-1, -2, -7, low, low + 1) if low else ())], dtype.numpy)


def operands(dtype: DType, count: int) -> list[Array]:
    """All of the numbers with each other, as many as are a multiple of the lanes."""
    rows = zip(*itertools.product(numbers(dtype), repeat=count), strict=True)
    return [np.resize(np.array(x, dtype.numpy), -(-len(x) // max(LANES)) * max(LANES)) for x in rows]


def computed(source: DType, target: DType, count: int, how: How) -> Array:
    """A function of operands of one type; the same over one lane as over many."""
    texts, all_lanes = list[str](), Function()
    for lanes in LANES:
        body = Body(Function(), lanes)
        xs = [decode(body, body.load(Reg(f"%x{k}", "ptr"), memory(source), lanes), source) for k in range(count)]
        body.store(Reg("%y", "ptr"), encode(body, how(body, xs), target))
        texts += [f"define void @f{lanes}(ptr %x0, ptr %x1, ptr %y) {{", *body.text, "  ret void", "}"]
        all_lanes.prelude |= body.function.prelude
        all_lanes.declarations |= body.function.declarations
    machine = machine_of(resolve())
    text = "\n".join([*texts, *definitions(all_lanes)])
    loaded = Loaded([object_of(text, machine)], [f"f{lanes}" for lanes in LANES], machine)
    one, many = (run(loaded.addresses[f"f{lanes}"], operands(source, count), target, lanes) for lanes in LANES)
    np.testing.assert_array_equal(one.astype(target.register.numpy), many.astype(target.register.numpy))
    return one


def run(address: int, xs: Sequence[Array], target: DType, lanes: int) -> Array:
    out = np.zeros(len(xs[0]), target.numpy)
    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)(address)
    for at in range(0, len(out), lanes):
        call(*(x.ctypes.data + at * x.itemsize for x in (xs[0], xs[-1], out)))
    return out


CASES = [
    *((d, op) for d in (F32, F64) for op in (*EXACT, *ROUNDED, *SMOOTH)),
    *((d, op) for d in (I8, U8, I32, I64, U64) for op in (*EXACT, *BITS, "bitnot")),
    *((BOOL, op) for op in ("and", "or", "xor", "not", "min", "max", *COMPARED)),
]


@pytest.mark.parametrize(("dtype", "op"), CASES, ids=[f"{op}-{d}" for d, op in CASES])
def test_functions_are_those_of_numpy(dtype: DType, op: str) -> None:
    count = 2 if op in (*OF_TWO, *BITS, "and", "or", "xor") else 1
    target = BOOL if FUNCTIONS[op].result == "bool" else dtype
    got = computed(dtype, target, count, lambda ops, xs: apply(ops, op, dtype, target, xs))
    xs = operands(dtype, count)
    with np.errstate(all="ignore"):
        if op in SMOOTH and dtype.is_float:
            near(got, FUNCTIONS[op].numpy(*(x.astype(np.float64) for x in xs)))
            return
        want = FUNCTIONS[op].numpy(*xs)
    np.testing.assert_array_equal(got, want)
    if dtype.is_float and target is dtype:
        known = ~np.isnan(want)
        np.testing.assert_array_equal(np.signbit(got)[known], np.signbit(want)[known])


def near(got: Array, want: Array) -> None:
    """Within the 4 ULP that expr/formulas.py states; in f64 the reference may be as far off as the result."""
    with np.errstate(all="ignore"):
        want = want.astype(got.dtype)
        far = np.abs(got - want) / np.spacing(np.abs(want))
    assert ((got == want) | (np.isnan(got) & np.isnan(want)) | (far <= (4 if got.dtype == np.float32 else 8))).all()


@pytest.mark.parametrize("target", [F64, F32, F16, BF16, I64, I32, I8, U8, U64, BOOL, I4, U2], ids=str)
@pytest.mark.parametrize("source", [F64, F32, F16, BF16, I64, I8, U8, BOOL, I4, U2], ids=str)
def test_casts_and_elements_in_memory(source: DType, target: DType) -> None:
    """Floats saturate and NaN is 0, integers wrap; types of 4 and 2 bits keep their own bits."""
    got = computed(source, target, 1, lambda ops, xs: cast(ops, xs[0], source.register, target.register))
    (x,) = operands(source, 1)
    held = x.astype(source.register.numpy)  # NumPy casts types of storage to few others
    with np.errstate(all="ignore"):
        if source.is_float and target.is_int:
            low, high = target.register.range
            whole = np.nan_to_num(np.trunc(held.astype(np.float64)), nan=0.0)
            clipped = [min(max(int(v), low), high) if np.isfinite(v) else (high if v > 0 else low) for v in whole]
            held = np.array(clipped, target.register.numpy)
        want = held.astype(target.register.numpy)
        if target.is_int and target.is_storage:
            width = 8 - target.bits
            want = np.right_shift(np.left_shift(want, width), width)
        want = want.astype(target.numpy).astype(want.dtype)
    np.testing.assert_array_equal(got.astype(want.dtype), want)
