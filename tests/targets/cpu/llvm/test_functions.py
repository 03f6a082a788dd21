"""Formulas as functions of LLVM's: their error over many lanes and over one; conversions of types of storage."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from onnx.numpy_helper import to_float8e8m0

from tests.expr.test_formulas import LIMITS, ODD, ONE, ULP, off_by
from tests.support.narrow import assert_same, codes, numbers
from torshc.expr import DTYPES, F32, FUNCTIONS
from torshc.targets.cpu.llvm.functions import definitions
from torshc.targets.cpu.llvm.ir import Body, Function, Reg, register
from torshc.targets.cpu.llvm.math import apply, decode, encode, memory
from torshc.targets.isa import resolve
from torshc.targets.native import Loaded, machine_of, object_of

Array = npt.NDArray[Any]


@pytest.mark.parametrize("lanes", [1, 8])
def test_functions_of_a_number(lanes: int) -> None:
    """Those of sin, cos and tan that formulas do not reach are the C library's."""
    texts, functions = list[str](), Function()
    for name in ONE:
        body = Body(functions, lanes)
        x = body.load(Reg("%x", "ptr"), "float", lanes)
        body.store(Reg("%y", "ptr"), apply(body, name, F32, F32, [x]))
        texts += [f"define void @{name}(ptr %x, ptr %y) {{", *body.text, "  ret void", "}"]
    machine = machine_of(resolve())
    loaded = Loaded([object_of("\n".join([*texts, *definitions(functions)]), machine)], ONE, machine)
    rng = np.random.default_rng(0)
    bad = {}
    for name in ONE:
        limit = 1e9 if name in ("sin", "cos", "tan") else LIMITS.get(name, 20)
        drawn = [rng.uniform(-limit, limit, 2000), rng.normal(size=2000) * np.exp2(rng.integers(-30, 4, 2000))]
        x = np.concatenate([ODD, *drawn]).astype(np.float32)
        x, y = -np.abs(x) if name == "exp_low" else x, np.zeros_like(x)
        call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(loaded.addresses[name])
        assert len(x) % lanes == 0
        for at in range(0, len(x), lanes):
            call(x.ctypes.data + 4 * at, y.ctypes.data + 4 * at)
        with np.errstate(all="ignore"):
            error = off_by(y, np.asarray(FUNCTIONS[name].numpy(x.astype(np.float64)))).max()
        if not error <= ULP:
            bad[name] = error
    assert not bad


@pytest.mark.parametrize("lanes", [1, 8])
def test_elements_of_types_of_storage(lanes: int) -> None:
    """Every element is read as ml_dtypes has it, and every float at which one rounds becomes the same element."""
    stored = [t for t in DTYPES.values() if t.is_storage]
    texts, functions = list[str](), Function()
    for t in stored:
        for name in (f"decode_{t}", f"encode_{t}"):
            body = Body(functions, lanes)
            to_memory = name.startswith("encode")
            x = body.load(Reg("%x", "ptr"), register(t) if to_memory else memory(t), lanes)
            body.store(Reg("%y", "ptr"), encode(body, x, t) if to_memory else decode(body, x, t))
            texts += [f"define void @{name}(ptr %x, ptr %y) {{", *body.text, "  ret void", "}"]
    machine = machine_of(resolve())
    names = [f"{how}_{t}" for t in stored for how in ("decode", "encode")]
    loaded = Loaded([object_of("\n".join([*texts, *definitions(functions)]), machine)], names, machine)

    def run(name: str, x: Array, y: Array) -> Array:
        call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(loaded.addresses[name])
        for at in range(0, len(x) // lanes * lanes, lanes):
            call(x.ctypes.data + at * x.itemsize, y.ctypes.data + at * y.itemsize)
        return y[: len(x) // lanes * lanes]

    for t in stored:
        every = codes(t)
        clean = (every & np.array(2**t.bits - 1).astype(every.dtype)).view(t.numpy)
        assert_same(run(f"decode_{t}", every, np.zeros(len(every), t.register.numpy)), clean)
        x = numbers(t)[:: 7 // lanes + 1] if t.is_float else np.arange(256).astype(t.register.numpy)
        x = x[: len(x) // lanes * lanes].copy()
        with np.errstate(all="ignore"):
            wanted = to_float8e8m0(x, False, "down") if t.name == "f8e8m0" else x.astype(t.numpy)
        assert_same(run(f"encode_{t}", x, np.zeros(len(x), every.dtype)).view(t.numpy), wanted)
