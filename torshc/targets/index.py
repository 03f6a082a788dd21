"""Index arithmetic and literals as text that C, CUDA and Metal share."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from ..errors import InternalError
from ..expr import BOOL, FUNCTIONS, I64, NARROW, SYMBOLS, DType, Expr, length, locals_of, on_host, walk
from ..kernels.base import Buffer

CTYPES = {
    "f64": "double", "f32": "float", "f16": "uint16_t", "bf16": "uint16_t", "i64": "int64_t", "i32": "int32_t",
    "i16": "int16_t", "i8": "int8_t", "u64": "uint64_t", "u32": "uint32_t", "u16": "uint16_t", "u8": "uint8_t",
    "bool": "uint8_t", **{t.name: "uint8_t" for t in NARROW},
}  # fmt: skip
STORED = ("as_", "bits_", "from_bits_")  # functions that are named after a type of storage
OPERATORS = {"add": "+", "sub": "-", "mul": "*", "div": "/"}
COMPARE = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}


def literal(value: object, dtype: DType) -> str:
    """A C literal of a scalar."""
    if dtype is BOOL:
        return "1" if value else "0"
    if dtype.is_float:
        number = float(value)  # type: ignore[arg-type]
        suffix = "" if dtype.name == "f64" else "f"
        if math.isnan(number):
            return f'__builtin_nan{suffix}("")'
        if math.isinf(number):
            return f"{'-' if number < 0 else ''}__builtin_inf{suffix}()"
        text = float.hex(number) if suffix == "" else repr(_as_f32(number))
        return text + suffix
    number = int(value)  # type: ignore[call-overload]
    if dtype.name == "i64" and number == -(2**63):
        return "INT64_MIN"
    return f"{number}{'ull' if dtype.name == 'u64' else 'u' if dtype.kind == 'u' else ''}"


def _as_f32(number: float) -> float:
    import numpy as np

    with np.errstate(over="ignore"):
        short = float(np.float32(number))
    if math.isinf(short):
        return short
    text = np.format_float_scientific(np.float32(number), unique=True)
    return float(text)


def _element(text: str, dtype: DType) -> str:
    """An integer in memory as a number; of those below 8 bits only their own bits count."""
    if dtype is BOOL:
        return f"({text} != 0)"
    if not dtype.is_narrow:
        return text
    if dtype.kind == "u":
        return f"({text} & {dtype.range[1]})"
    rest = 8 - dtype.bits
    return f"((int8_t)(uint8_t)({text} << {rest}) >> {rest})"


def _cast(text: str, source: DType, dtype: DType) -> str:
    if dtype is BOOL:
        return f"({text} != 0)"
    if source.is_float and dtype.is_int:
        return f"t_{dtype.name}_{source.name}({text})"
    whole = "" if source.is_float else "(int64_t)"  # not from 128 bits
    return f"({CTYPES[dtype.name]}){whole if dtype.is_float else ''}{text}"


LONG = 16  # nodes from which on a kernel is given a size instead of computing it at each use


def given_sizes(exprs: Iterable[Expr]) -> list[Expr]:
    """The largest parts of expressions that a kernel is given, extents of axes included."""
    found: dict[Expr, None] = {}
    seen: set[Expr] = set()
    pending = [*exprs][::-1]
    while pending:
        e = pending.pop()
        if e in seen:
            continue
        seen.add(e)
        if _is_given(e):
            found[e] = None
        else:
            pending += reversed(e.args)
    return list(found)


def _is_given(e: Expr) -> bool:
    """Whether a kernel is given a size: it depends on symbols alone and is long, or computed in other types too.

    None is a sum or a product: what is made of them, such as a number of rows, multiplies these out.
    """
    if not e.args or e.dtype is not I64 or e.op in ("add", "mul") or locals_of(e) or not on_host(e):
        return False
    return length(e) > LONG or any(x.op == "cast" and x.args[0].dtype is not BOOL for x in walk(e))


_FORMS = {
    *("const", "axis", "add", "mul", "sub", "neg", "abs", "sign", "and", "or", "xor", "not", "select", "cast"),
    *("floordiv", "mod", "div", "min", "max", *SYMBOLS, *COMPARE),
}


def is_index(e: Expr, loads: Collection[DType] = ()) -> bool:
    """Whether :func:`scalar` spells an expression in a kernel: integers of axes, sizes and constants, and conditions.

    Args:
        loads: types of the loads that may be in it.
    """
    pending, seen = [e], {e}
    while pending:
        x = pending.pop()
        if x.op == "load":
            if x.dtype not in loads:
                return False
        elif x.op not in _FORMS or not (x.dtype is I64 or x.dtype is BOOL):
            return False
        if x.op != "axis" and not _is_given(x):
            pending += [a for a in x.args if a not in seen]
            seen.update(x.args)
    return True


def scalar(e: Expr, axes: Mapping[Expr, str], dims: Mapping[Any, str], buffers: Sequence[Buffer] = ()) -> str:
    """An i64 expression, or a condition on such, as C; loads in it are single elements.

    Floats in it call functions that the host program has (``t_program.h``), which kernels are given the results of.

    Args:
        dims: names of symbols, by theirs, and of sizes that are given, by their expressions.
    """
    if e in dims:
        return dims[e]
    if e.op == "const":
        return f"({literal(e.data, e.dtype)})" if str(e.data).startswith("-") else literal(e.data, e.dtype)
    if e.op in SYMBOLS:
        return dims[str(e.data)]
    if e.op == "axis":
        return axes[e]
    inner = [scalar(a, axes, dims, buffers) for a in e.args]
    if e.op == "load":
        return _element(f"b{e.data}[{inner[0]}]", buffers[int(e.data)].dtype)  # type: ignore[call-overload]
    if e.op == "add" and not e.dtype.is_float:
        inner = [x[1:-1] if a.op == "mul" and a not in dims else x for a, x in zip(e.args, inner, strict=True)]
    if e.op in ("add", "mul") and not e.dtype.is_float:
        return "(" + f" {OPERATORS[e.op]} ".join(inner) + ")"
    if e.op in COMPARE:
        return f"({inner[0]} {COMPARE[e.op]} {inner[1]})"
    if e.op in ("and", "or"):
        return f"({inner[0]} {'&&' if e.op == 'and' else '||'} {inner[1]})"
    if e.op in ("sub", "xor", "neg") and not e.dtype.is_float:
        return f"({inner[0]} {'!=' if e.op == 'xor' else '-'} {inner[1]})" if inner[1:] else f"(-{inner[0]})"
    if e.op == "not":
        return f"!{inner[0]}"
    if e.op == "select":
        return f"({inner[0]} ? {inner[1]} : {inner[2]})"
    if e.op == "cast":
        return _cast(inner[0], e.args[0].dtype, e.dtype)
    if e.op in FUNCTIONS and FUNCTIONS[e.op].host and e.args[0].dtype.is_float:
        return f"t_{e.op}_{e.args[0].dtype.name}({', '.join(inner)})"
    if e.op in ("floordiv", "mod"):
        from ..expr import is_nonnegative

        whole = all(is_nonnegative(a) for a in e.args) and e.args[1].op == "const"
        if whole:
            return f"({inner[0]} {'/' if e.op == 'floordiv' else '%'} {inner[1]})"
        return f"t_i{'div' if e.op == 'floordiv' else 'mod'}({inner[0]}, {inner[1]})"
    if e.op in ("min", "max"):
        return f"t_i{e.op}({inner[0]}, {inner[1]})"
    if e.op == "div":
        return f"t_iquot({inner[0]}, {inner[1]})"
    if e.op == "abs":
        return f"t_imax({inner[0]}, -{inner[0]})"
    if e.op == "sign":
        return f"(({inner[0]} > 0) - ({inner[0]} < 0))"
    raise InternalError(f"no scalar form of {e.op}")
