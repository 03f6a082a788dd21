"""Formulas as functions of LLVM's: their error over many lanes and over one."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from tests.expr.test_formulas import LIMITS, ODD, ONE, ULP, off_by
from torshc.expr import F32, FUNCTIONS
from torshc.targets.cpu.llvm.functions import definitions
from torshc.targets.cpu.llvm.ir import Body, Function, Reg
from torshc.targets.cpu.llvm.math import apply
from torshc.targets.isa import resolve
from torshc.targets.native import Loaded, machine_of, object_of


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
