"""Sizes as JavaScript: integers are BigInt, which neither wraps nor rounds; floats are numbers, rounded to their type.

Division rounds down and by zero gives 0, as when the model was compiled; the functions are in ``t_sizes.js``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ..base.errors import InternalError
from ..expr import BOOL, SYMBOLS, DType, Expr, walk_new

_INFIX = {
    "add": "+", "sub": "-", "mul": "*", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "===", "ne": "!==",
    "and": "&&", "or": "||", "xor": "!==",
}  # fmt: skip
_INTEGERS = {
    "floordiv": "floorDiv", "mod": "floorMod", "div": "quotient", "min": "least", "max": "most", "abs": "magnitude",
    "sign": "sign",
}  # fmt: skip
_FLOATS = {
    "min": "Math.min", "max": "Math.max", "abs": "Math.abs", "sign": "Math.sign", "floor": "Math.floor",
    "ceil": "Math.ceil", "trunc": "Math.trunc", "sqrt": "Math.sqrt", "round": "roundEven", "isnan": "Number.isNaN",
    "isinf": "isInfinite",
}  # fmt: skip
_FLOAT_INFIX = {**_INFIX, "div": "/", "fmod": "%"}


def javascript(e: Expr, names: Mapping[Any, str]) -> str:
    """An expression of symbols as JavaScript.

    Args:
        names: JavaScript's names of symbols, by symbol, and of parts that have one, by expression.

    Raises:
        InternalError: it holds what no size does.
    """
    texts: dict[Expr, str] = {x: name for x, name in names.items() if isinstance(x, Expr)}
    for x in walk_new(e, texts):
        texts[x] = str(names[str(x.data)]) if x.op in SYMBOLS else _spell(x, [texts[a] for a in x.args])
    return texts[e]


def _spell(e: Expr, inner: Sequence[str]) -> str:
    if e.op == "const":
        return _literal(e.data, e.dtype)
    if e.op == "cast":
        return _cast(inner[0], e.args[0].dtype, e.dtype)
    if e.op == "select":
        return f"({inner[0]} ? {inner[1]} : {inner[2]})"
    if e.op == "not":
        return f"!{inner[0]}"
    if e.op == "neg":
        return f"(-{inner[0]})"
    floats = e.args[0].dtype.is_float
    infix, calls = (_FLOAT_INFIX, _FLOATS) if floats else (_INFIX, _INTEGERS)
    if e.op in infix:
        text = "(" + f" {infix[e.op]} ".join(inner) + ")"
    elif e.op in calls:
        text = f"{calls[e.op]}({', '.join(inner)})"
    else:
        raise InternalError(f"no JavaScript for {e.op} in a size")
    return f"Math.fround{text if text.startswith('(') else f'({text})'}" if e.dtype.name == "f32" else text


def _literal(value: object, dtype: DType) -> str:
    if dtype is BOOL:
        return "true" if value else "false"
    if not dtype.is_float:
        number = int(value)  # type: ignore[call-overload]
        return f"({number}n)" if number < 0 else f"{number}n"
    real = float(value)  # type: ignore[arg-type]
    if not math.isfinite(real):
        return "NaN" if math.isnan(real) else f"({'-' if real < 0 else ''}Infinity)"
    return f"({real!r})"


def _cast(text: str, source: DType, dtype: DType) -> str:
    if dtype is source:
        return text
    if dtype is BOOL:
        return f"({text} !== {'0' if source.is_float else '0n'})"
    if dtype.is_float:
        number = text if source.is_float else f"Number({text})"
        return f"Math.fround({number})" if dtype.name == "f32" else number
    low, high = dtype.range
    if source.is_float:
        return f"wholeOf({text}, {low}n, {high}n)"
    if source is BOOL:
        return f"BigInt({text})"
    return f"BigInt.as{'Uint' if low == 0 else 'Int'}N({dtype.bits}, {text})" if dtype.bits < 64 else text
