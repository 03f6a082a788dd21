"""Scalar functions that are formulas (:mod:`torshc.expr.formulas`) as functions of LLVM, over the lanes of a kernel."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache

from ....expr import F32, FUNCTIONS
from ....expr.formulas import ELEMENTARY, EXACT, PRINTED, find_formula, operands_of
from . import prelude
from .block import Block, Names
from .ir import Callee, Function, Ops, Reg, constant, register, vector


def definitions(function: Function) -> Iterator[str]:
    """The texts of all functions that one calls, directly or not; then the declarations that they need."""
    found, declared = [*function.prelude], dict(function.declarations)
    for f in found:  # the loop appends to it
        if f.name in PRINTED:
            text, called = _define(f)
            more = [*called.prelude]
            declared |= called.declarations
        else:
            text, more = prelude.text_of(f), prelude.called_by(f)
        yield text
        found += [g for g in more if g not in found]
    yield from declared


@lru_cache(maxsize=256)
def _define(f: Callee) -> tuple[str, Function]:
    """The definition of a formula as a function; and that function, which knows what it calls."""
    formula = find_formula(f.name, EXACT)
    assert formula is not None
    accs = {x: Reg(f"%{x}", register(dtype), f.lanes) for x, dtype in operands_of(formula).items()}
    block = Block(Function(), Names({}, {}, (), accs, {}), None, f.lanes)
    op, _, _ = f.name.rpartition("_")
    if f.name in ELEMENTARY and FUNCTIONS[op].reach < math.inf and f.dtype is F32:
        _return_beyond(block, accs["x"], FUNCTIONS[op].reach, f"{op}f")
    block.expect(formula)
    result = block.splat(block.value(formula), f.lanes)
    parameters = ", ".join(x.typed for x in accs.values())
    head = f"define internal {vector(register(formula.dtype), f.lanes)} {f.symbol}({parameters}) alwaysinline {{"
    return "\n".join([head, *block.lines, f"  ret {result.typed}", "}"]), block.function


def _return_beyond(ops: Ops, x: Reg, reach: float, name: str) -> None:
    """Instructions that return the C library's results where a finite lane is further than `reach` from 0."""
    a = ops.intrinsic("fabs", [x])
    far = ops.compare("fcmp ogt", a, reach)
    beyond = ops.binary("and", far, ops.compare("fcmp olt", a, constant(float("inf"), register(F32))))
    ops.put(f"  br i1 {beyond if x.lanes == 1 else ops.any(beyond)}, label %far, label %near")
    ops.put("far:")
    ops.put(f"  ret {ops.each_lane(name, [x]).typed}")
    ops.put("near:")
