"""WGSL's words: types, literals, and operators over the texts of their operands."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce

from ....expr import BOOL, U32, DType, Expr
from ....expr.formulas_narrow import conversions_of
from ....kernels.base import NoKernel
from ...index import COMPARE, OPERATORS, is_call, spell

TYPES = {
    "f32": "f32", "i64": "vec2u", "u64": "vec2u", "i32": "i32", "i16": "i32", "i8": "i32", "u32": "u32", "u16": "u32",
    "u8": "u32", "bool": "bool",
}  # fmt: skip
WORDS = {"i32": "i32", "u32": "u32", "f32": "f32", "i64": "vec2u", "u64": "vec2u"}  # in memory; others lie in u32
RING = ("add", "sub", "mul", "neg")
_INFIX = {**OPERATORS, **COMPARE}
_BITS = {"bitand": "&", "bitor": "|", "bitxor": "^"}
_SHIFTS = {"shl": "<<", "shr": ">>"}
_LOGIC = {"and": "&&", "or": "||", "xor": "!=", "eq": "==", "ne": "!="}
_BUILT_IN = ("floor", "ceil", "round", "trunc", "abs", "sqrt", "fma")  # of f32, right in WGSL in every corner
_ROUNDED_DOWN = {"floordiv": "div", "mod": "fmod"}  # the same where nothing is negative
_CALLS = {"floordiv": "t_floordiv_i32", "mod": "t_mod_i32", "div": "t_div_i32"}


class Needs(dict[str, None]):
    """Functions of the prelude that a kernel calls, in order."""

    def __call__(self, name: str, *args: str) -> str:
        """The text of a call."""
        self[name] = None
        return f"{name}({', '.join(args)})"

    def array(self, name: str) -> str:
        """The name of a variable."""
        self[name] = None
        return name


def register_type(dtype: DType) -> str:
    """Type of a register.

    Raises:
        NoKernel: WGSL has none.
    """
    found = TYPES.get(dtype.compute)
    if found is None:
        raise NoKernel(f"WGSL has no {dtype.name}")
    return found


def constant(value: object, dtype: DType, needs: Needs) -> str:
    """A literal; NaN and infinities are functions, since no constant expression may give them."""
    if dtype is BOOL:
        return "true" if value else "false"
    if dtype.is_float:
        number = float(value)  # type: ignore[arg-type]
        if math.isnan(number):
            return needs("t_nan")
        if math.isinf(number) or abs(number) > 3.4028235e38:
            return f"{'-' if number < 0 else ''}{needs('t_inf')}"
        return f"{number!r}f"
    number = int(value)  # type: ignore[call-overload]
    if TYPES[dtype.compute] == "vec2u":
        return f"vec2u({number & 0xFFFFFFFF}u, {number >> 32 & 0xFFFFFFFF}u)"
    return f"{number}u" if TYPES[dtype.compute] == "u32" else f"i32({number})" if number < 0 else f"{number}"


def spell_index(e: Expr, inner: Sequence[str], needs: Needs) -> str:
    """An operator of index arithmetic, or of a condition on such, over the texts of its operands."""
    if e.op == "cast":
        return f"i32({inner[0]})" if e.args[0].dtype is BOOL else f"({inner[0]} != 0)"
    if e.op in ("add", "mul"):
        return spell(e, inner)
    if e.op in ("floordiv", "mod") and not is_call(e):
        return f"({inner[0]} {'/' if e.op == 'floordiv' else '%'} {inner[1]})"
    if e.op in ("neg", "not"):
        return f"({'-' if e.op == 'neg' else '!'}{inner[0]})"
    if e.op in ("and", "or", "xor"):
        return "(" + f" {_LOGIC[e.op]} ".join(inner) + ")"
    if e.op == "select":
        return f"select({inner[2]}, {inner[1]}, {inner[0]})"
    if e.op in _INFIX and e.op != "div":
        return f"({inner[0]} {_INFIX[e.op]} {inner[1]})"
    if e.op in _CALLS:
        return needs(_CALLS[e.op], *inner)
    return f"{e.op}({', '.join(inner)})"  # min, max, abs, sign


def operator(e: Expr, args: Sequence[str], needs: Needs) -> str:
    """A scalar function of registers."""
    dtype = e.args[0].dtype
    if e.op == "cast":
        return _cast(args[0], dtype, e.dtype, needs)
    return apply(e.op, dtype, args, needs)


def apply(op: str, dtype: DType, args: Sequence[str], needs: Needs) -> str:
    """A scalar function by its name and the type of its operands."""
    name, kind = dtype.compute, register_type(dtype)
    if op == "not":
        return f"!{args[0]}"
    if dtype is BOOL:
        return f" {_LOGIC[op]} ".join(args)
    if dtype.kind == "u":
        op = _ROUNDED_DOWN.get(op, op)
    if op == "ne" and dtype.is_float:
        return f"!({args[0]} == {args[1]})"  # NaN is not equal, also where != is an ordered comparison
    if kind == "vec2u":
        return _wide(op, dtype, args, needs)
    if op in COMPARE:
        return f"{args[0]} {COMPARE[op]} {args[1]}"
    if op in _BITS:
        return f" {_BITS[op]} ".join(args)
    if steps := conversions_of(op):
        return reduce(lambda x, step: needs(f"t_{step}", x), steps, args[0])
    if op in ("raw32", "float32"):
        return f"bitcast<{'u32' if op == 'raw32' else 'f32'}>({args[0]})"
    if dtype.is_float:
        return _float(op, args, needs)
    return wrap(_integer(op, kind, args, needs), name)


def _float(op: str, args: Sequence[str], needs: Needs) -> str:
    if op in OPERATORS and op != "div":
        return f" {OPERATORS[op]} ".join(args)
    if op == "neg":
        return f"-{args[0]}"
    if op in _BUILT_IN:
        return f"{op}({', '.join(args)})"
    return needs(f"t_{op}_f32", *args)


def _integer(op: str, kind: str, args: Sequence[str], needs: Needs) -> str:
    """Of 32 bits; narrower ones are wrapped behind it."""
    if op in ("add", "sub", "mul"):
        return f" {OPERATORS[op]} ".join(args)
    if op in ("min", "max") or (op in ("abs", "sign") and kind == "i32"):
        return f"{op}({', '.join(args)})"
    if op == "abs":
        return args[0]
    if op == "sign":
        return f"min({args[0]}, 1u)"
    if op == "neg":
        return f"-{args[0]}" if kind == "i32" else f"(0u - {args[0]})"
    if op == "bitnot":
        return f"~{args[0]}"
    if op in _SHIFTS and (by := args[1].removesuffix("u")).isdigit() and int(by) < 32:
        return f"{args[0]} {_SHIFTS[op]} {by}u"
    return needs(f"t_{op}_{kind}", *args)


def _wide(op: str, dtype: DType, args: Sequence[str], needs: Needs) -> str:
    """Of 64 bits; what does not ask for the sign is one function for both."""
    a = args[0]
    if op in _BITS:
        return f" {_BITS[op]} ".join(args)
    if op == "bitnot":
        return f"~{a}"
    if op in ("eq", "ne"):
        return f"{'all' if op == 'eq' else 'any'}({a} {COMPARE[op]} {args[1]})"
    if op in ("gt", "le"):  # by the operands the other way round
        text = needs(f"t_lt_{dtype.name}", *reversed(args))
        return text if op == "gt" else f"!{text}"
    if op == "ge":
        return "!" + needs(f"t_lt_{dtype.name}", *args)
    if op == "abs" and dtype.kind == "u":
        return a
    if op in (*RING, "shl"):
        text = a
        for b in args[1:]:
            text = needs(f"t_{op}_64", text, b)
        return text if len(args) > 1 else needs(f"t_{op}_64", a)
    return needs(f"t_{op}_{dtype.name}", *args)


def wrap(text: str, name: str) -> str:
    """The low bits of 32 as a narrow integer."""
    if name in ("i8", "i16"):
        return f"(({text}) << {24 if name == 'i8' else 16}u) >> {24 if name == 'i8' else 16}u"
    return f"({text}) & {255 if name == 'u8' else 65535}u" if name in ("u8", "u16") else text


def _cast(text: str, source: DType, dtype: DType, needs: Needs) -> str:
    """A conversion: floats to integers truncate and saturate, integers keep their low bits."""
    have, want = register_type(source), register_type(dtype)
    if want == "bool":
        if have == "vec2u":
            return f"any({text} != vec2u())"
        return text if have == "bool" else f"!({text} == {have}())"
    if have == "vec2u":
        if want == "f32":
            return needs(f"t_cast_{source.name}_f32", text)
        return text if want == "vec2u" else _cast(f"{text}.x", U32, dtype, needs)
    if have == "f32":
        return text if want == "f32" else needs(f"t_cast_f32_{dtype.compute}", text)
    if want == "f32":
        return f"f32({text})"
    if want == "vec2u":
        return needs("t_i64_i32", text) if have == "i32" else f"vec2u(u32({text}), 0u)"
    as_want = text if have == want else f"{want}({text})" if have == "bool" else f"bitcast<{want}>({text})"
    narrower = dtype.compute in ("i8", "u8", "i16", "u16") and source is not BOOL and source.compute != dtype.compute
    return wrap(as_want, dtype.compute) if narrower else as_want
