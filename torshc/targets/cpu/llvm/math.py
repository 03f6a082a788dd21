"""Scalar functions of the table as LLVM's instructions, over one or many lanes.

Their meaning is that of the C prelude (``templates/c/prelude``). What is one instruction stands here; all else is a
formula (:mod:`.functions`), a function of the prelude (``templates/llvm/prelude``), or the C library's, lane by lane.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial, reduce

from ....expr import BOOL, DTYPES, F16, F32, DType
from ....expr.formulas_narrow import conversions_of
from .ir import Callee, Ops, Reg, bits, register
from .prelude import find

_OF_FLOATS = {
    "add": "fadd contract", "sub": "fsub contract", "mul": "fmul contract", "div": "fdiv contract", "fmod": "frem",
    "lt": "fcmp olt", "le": "fcmp ole", "gt": "fcmp ogt", "ge": "fcmp oge", "eq": "fcmp oeq", "ne": "fcmp une",
}  # fmt: skip
_OF_INTEGERS = {
    "add": "add", "sub": "sub", "mul": "mul", "bitand": "and", "bitor": "or", "bitxor": "xor",
    "eq": "icmp eq", "ne": "icmp ne",
}  # fmt: skip
_OF_BOOLS = {
    "and": "and", "or": "or", "xor": "xor", "min": "and", "max": "or", "mul": "and", "add": "or",
    "bitand": "and", "bitor": "or", "bitxor": "xor",
}  # fmt: skip
_INSTRUCTIONS = {
    "f": _OF_FLOATS,
    "i": _OF_INTEGERS | {how: f"icmp s{how}" for how in ("lt", "le", "gt", "ge")},
    "u": _OF_INTEGERS | {how: f"icmp u{how}" for how in ("lt", "le", "gt", "ge")},
    "b": _OF_INTEGERS | {how: f"icmp u{how}" for how in ("lt", "le", "gt", "ge")} | _OF_BOOLS,
}
_INTRINSICS = {
    "f": {"floor": "floor", "ceil": "ceil", "round": "roundeven", "trunc": "trunc", "sqrt": "sqrt", "abs": "fabs"},
    "i": {"max": "smax", "min": "smin"},
    "u": {"max": "umax", "min": "umin"},
    "b": {},
}


def apply(ops: Ops, op: str, dtype: DType, result: DType, xs: Sequence[Reg]) -> Reg:
    """A scalar function of registers.

    Args:
        dtype: type of the operands.
        result: type of the result.
    """
    if op == "cast":
        return cast(ops, xs[0], dtype, result)
    if steps := conversions_of(op):
        return reduce(partial(_convert, ops), steps, xs[0])
    if op in ("raw32", "raw64", "float32", "float64"):
        return ops.convert("bitcast", xs[0], register(result))
    if op in ("shl", "shr") and xs[1].number is not None and 0 <= xs[1].number < bits(xs[0].type):
        return ops.binary("shl" if op == "shl" else "ashr" if dtype.kind == "i" else "lshr", *xs)
    if len(xs) > 2:  # a sum or a product
        return reduce(lambda total, x: apply(ops, op, dtype, result, [total, x]), xs)
    kind, own = register(result), dtype.register
    if instruction := _INSTRUCTIONS[own.kind].get(op):
        a, b = ops.alike(*xs)
        return ops.made(f"{instruction} {a.typed}, {b}", kind, a.lanes)
    if intrinsic := _INTRINSICS[own.kind].get(op):
        return ops.intrinsic(intrinsic, xs)
    return _call_function(ops, op, own, ops.alike(*xs), kind)


def _call_function(ops: Ops, op: str, dtype: DType, xs: Sequence[Reg], kind: str) -> Reg:
    """A formula or a function of the prelude, else of the C library; `kind` is the type of its result."""
    if (name := find(op, dtype)) is not None:
        f = Callee(name, dtype, xs[0].lanes)
        ops.function.prelude[f] = None
        return ops.call(f.symbol, xs, kind)
    return ops.each_lane(op + ("f" if dtype is F32 else ""), xs)


def join(ops: Ops, how: str, dtype: DType, a: Reg, b: Reg) -> Reg:
    """Two partial accumulations as one."""
    return apply(ops, how, dtype, dtype, [a, b])


def order(ops: Ops, x: Reg, dtype: DType) -> Reg:
    """An i64 in whose order elements come."""
    own = dtype.register
    if find("order", own) is not None:
        x = _call_function(ops, "order", own, [x], f"i{bits(x.type)}")
    return ops.convert("sext" if own.kind in "fi" else "zext", x, "i64")


# ---- conversions ---------------------------------------------------------------------------------------------------


def cast(ops: Ops, x: Reg, source: DType, dtype: DType) -> Reg:
    """Between types of registers: floats to integers truncate and saturate, NaN is 0; to bool is != 0."""
    kind, signed = register(dtype), source.kind == "i"
    if dtype is BOOL and source is not BOOL:
        return ops.compare("fcmp une" if source.is_float else "icmp ne", x, 0)
    if source.is_float and dtype.is_int:
        return ops.intrinsic("fptosi.sat" if dtype.kind == "i" else "fptoui.sat", [x], kind)
    if source.is_float:
        return ops.convert("fpext" if bits(kind) > bits(x.type) else "fptrunc", x, kind)
    if dtype.is_float:
        return ops.convert("sitofp" if signed else "uitofp", x, kind)
    if bits(kind) < bits(x.type):
        return ops.convert("trunc", x, kind)
    return ops.convert("sext" if signed else "zext", x, kind)


def memory(dtype: DType) -> str:
    """Type of an element in memory."""
    if dtype is F16:
        return "half"
    return f"i{8 * dtype.size}" if dtype.is_storage or dtype is BOOL else register(dtype)


def decode(ops: Ops, x: Reg, dtype: DType) -> Reg:
    """An element as it lies in memory as a register."""
    if dtype is F16:
        return ops.convert("fpext", x, register(dtype))
    return _call_function(ops, "decode", dtype, [x], register(dtype)) if dtype.is_storage or dtype is BOOL else x


def encode(ops: Ops, x: Reg, dtype: DType) -> Reg:
    """A register as it lies in memory."""
    if dtype is F16:
        return ops.convert("fptrunc", x, memory(dtype))
    return _call_function(ops, "encode", dtype, [x], memory(dtype)) if dtype.is_storage or dtype is BOOL else x


def _convert(ops: Ops, x: Reg, step: str) -> Reg:
    how, _, stored = step.partition("_")
    if stored not in DTYPES:
        return _call_function(ops, step, F32, [x], register(F32))
    return (decode if how == "decode" else encode)(ops, x, DTYPES[stored])


__all__ = ["apply", "cast", "decode", "encode", "join", "memory", "order"]
