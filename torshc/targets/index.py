"""Index arithmetic and literals as text that C, CUDA and Metal share."""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ..base.errors import InternalError
from ..expr import BOOL, FUNCTIONS, I64, NARROW, SYMBOLS, DType, Expr, as_int, is_nonnegative, length, on_host, walk
from ..expr.derived import Derived
from ..expr.expr import LOCAL
from ..kernels.base import Buffer

CTYPES = {
    "f64": "double", "f32": "float", "f16": "uint16_t", "bf16": "uint16_t", "i64": "int64_t", "i32": "int32_t",
    "i16": "int16_t", "i8": "int8_t", "u64": "uint64_t", "u32": "uint32_t", "u16": "uint16_t", "u8": "uint8_t",
    "bool": "uint8_t", **{t.name: "uint8_t" for t in NARROW},
}  # fmt: skip
OPERATORS = {"add": "+", "sub": "-", "mul": "*", "div": "/"}
COMPARE = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}


class Negative(str):
    """The text of a number or of a product with a minus in front.

    Attributes:
        positive: the text without the minus, and without brackets.
    """

    positive: str

    def __new__(cls, text: str, positive: str) -> Negative:
        made = super().__new__(cls, text)
        made.positive = positive
        return made


def literal(value: object, dtype: DType) -> str:
    """A C literal of a scalar, a :class:`Negative` where there is a positive number of its type."""
    if dtype is BOOL:
        return "1" if value else "0"
    if dtype.is_float:
        number = float(value)  # type: ignore[arg-type]
        if number < 0:
            positive = literal(-number, dtype)
            return Negative(f"-{positive}", positive)
        suffix = "" if dtype.name == "f64" else "f"
        if math.isnan(number):
            return f'__builtin_nan{suffix}("")'
        if math.isinf(number):
            return f"__builtin_inf{suffix}()"
        text = float.hex(number) if suffix == "" else repr(_as_f32(number))
        return text + suffix
    whole = int(value)  # type: ignore[call-overload]
    if not dtype.range[0] <= whole <= dtype.range[1]:
        raise InternalError(f"{whole} is no {dtype.name}")  # an element wraps, a size was refused
    if dtype.name == "i64" and whole == -(2**63):
        return "INT64_MIN"
    if dtype.name == "u64":
        return f"UINT64_C({whole})"
    text = f"{whole}{'u' if dtype.kind == 'u' else ''}"
    return Negative(text, f"{-whole}") if whole < 0 else text


def _as_f32(number: float) -> float:
    with np.errstate(over="ignore"):
        short = float(np.float32(number))
    if math.isinf(short):
        return short
    text = np.format_float_scientific(np.float32(number), unique=True)
    return float(text)


def with_instruction(name: str, head: str, text: str) -> str:
    """A function of x that is a formula, or the instruction that a macro of the header is where a machine has it.

    Args:
        name: its name without ``t_``; the macro is ``T_ENCODE_F16`` for ``encode_f16``.
        head: what its text begins with, up to the first brace.
    """
    macro = f"T_{name.upper()}"
    return f"#ifdef {macro}\n{head} {{ return {macro}(x); }}\n#else\n{text}\n#endif"


def element(text: str, dtype: DType) -> str:
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
    local: Derived[bool] = Derived(lambda e, args: e.op in LOCAL or any(args))
    found: dict[Expr, None] = {}
    seen: set[Expr] = set()
    pending = [*exprs][::-1]
    while pending:
        e = pending.pop()
        if e in seen:
            continue
        seen.add(e)
        if not local(e) and _is_given(e):
            found[e] = None
        else:
            pending += reversed(e.args)
    return list(found)


def _is_given(e: Expr) -> bool:
    """Whether a kernel is given what depends on symbols alone: it is a size and long, or computed in other types too.

    None is a sum or a product that what is made of it, such as a number of rows, multiplies out.
    """
    if not e.args or e.dtype is not I64 or not on_host(e):
        return False
    if e.op == "add" or (e.op == "mul" and all(a.op not in ("add", "mul") for a in e.args)):
        return False
    return length(e) > LONG or any(x.op == "cast" and x.args[0].dtype is not BOOL for x in walk(e))


_INFIX = {**COMPARE, "and": "&&", "or": "||", "sub": "-", "xor": "!="}
_CALLS = {"floordiv": "t_idiv", "mod": "t_imod", "min": "t_imin", "max": "t_imax", "div": "t_iquot"}
FORMS = frozenset(
    {"const", "axis", "add", "mul", "neg", "abs", "sign", "not", "select", "cast", *SYMBOLS, *_INFIX, *_CALLS}
)


def plain_index(dims: Container[Any], loads: Callable[[Expr], bool] | None = None) -> Derived[bool]:
    """Whether :func:`spell` writes an expression in a kernel: integers of axes, sizes and constants, and conditions.

    Args:
        dims: sizes that are given, by their expressions.
        loads: which loads may be in it; none unless told.
    """

    def rule(e: Expr, args: Sequence[bool]) -> bool:
        if e in dims:
            return True
        if e.op == "load":
            return loads is not None and loads(e) and all(args)
        return e.op in FORMS and (e.dtype is I64 or e.dtype is BOOL) and all(args)

    return Derived(rule)


def scalar(e: Expr, axes: Mapping[Expr, str], dims: Mapping[Any, str], buffers: Sequence[Buffer] = ()) -> str:
    """An i64 expression, or a condition on such, as C; loads in it are single elements.

    Floats in it call functions that the host program has (``t_program.h``), which kernels are given the results of.
    Parts that it shares are written each time: printers of statements name them.

    Args:
        dims: names of symbols, by theirs, and of sizes that are given, by their expressions.
    """
    texts: dict[Expr, str] = {}
    pending = [e]
    while pending:
        x = pending[-1]
        text = texts.get(x) or leaf(x, axes, dims)
        fresh = [] if text is not None else [a for a in x.args if a not in texts]
        if fresh:
            pending += fresh
            continue
        inner = [] if text is not None else [texts[a] for a in x.args]
        if text is None and x.op == "load":
            text = element(f"b{x.data}[{inner[0]}]", buffers[int(x.data)].dtype)  # type: ignore[call-overload]
        texts[x] = spell(x, inner) if text is None else text
        pending.pop()
    return texts[e]


def leaf(e: Expr, axes: Mapping[Expr, str], dims: Mapping[Any, str]) -> str | None:
    """The text of a number, a symbol, a size that is given or an axis; None of anything else."""
    if e in dims:
        return dims[e]
    if e.op == "const":
        text = literal(e.data, e.dtype)
        if isinstance(text, Negative):
            return Negative(f"({text})", text.positive)
        return f"({text})" if in_brackets(e) else text
    if e.op in SYMBOLS:
        return dims[str(e.data)]
    return axes[e] if e.op == "axis" else None


def spell(e: Expr, inner: Sequence[str]) -> str:
    """An operator of an index, or of a condition on such, over the texts of its operands."""
    if e.op == "cast":
        return _cast(inner[0], e.args[0].dtype, e.dtype)
    if e.op in FUNCTIONS and FUNCTIONS[e.op].host and e.args[0].dtype.is_float and e.op not in (*COMPARE, "select"):
        return f"t_{e.op}_{e.args[0].dtype.name}({', '.join(inner)})"
    if e.op == "add":
        return sum_text(e.args, inner)
    if e.op == "mul":
        return _product(e.args, inner)
    if e.op in ("floordiv", "mod") and not is_call(e):
        return f"({inner[0]} {'/' if e.op == 'floordiv' else '%'} {inner[1]})"
    if e.op == "neg":
        return f"(-{inner[0]})"
    if e.op in _INFIX:
        return f"({inner[0]} {_INFIX[e.op]} {inner[1]})"
    if e.op == "min" and (some := _find_count(e)) is not None:  # is there any?
        return f"({bare(e.args[some], inner[some])} > 0)"
    if e.op in _CALLS:
        return f"{_CALLS[e.op]}({inner[0]}, {inner[1]})"
    if e.op == "not":
        return f"!{inner[0]}"
    if e.op == "select":
        return f"({inner[0]} ? {inner[1]} : {inner[2]})"
    if e.op == "abs":
        return f"t_iabs({inner[0]})"
    if e.op == "sign":
        return f"(({inner[0]} > 0) - ({inner[0]} < 0))"
    raise InternalError(f"no scalar form of {e.op}")


def sum_text(args: Sequence[Expr], inner: Sequence[str]) -> str:
    """A sum over the texts of its operands; what is negative is subtracted, and stands behind one that is not."""
    terms = [*zip(args, inner, strict=True)]
    terms.insert(0, terms.pop(next((k for k, x in enumerate(inner) if not isinstance(x, Negative)), 0)))
    text = ""
    for a, x in terms:
        if text and isinstance(x, Negative):
            text += f" - {x.positive}"
        else:
            text += f"{' + ' if text else ''}{bare(a, x) if a.op == 'mul' else x}"
    return f"({text})"


def _product(args: Sequence[Expr], inner: Sequence[str]) -> str:
    """A product over the texts of its operands; the sign of a negative number stands first, and no 1 behind it."""
    first, *others = inner
    if not isinstance(first, Negative):
        return f"({' * '.join(inner)})"
    positive = " * ".join(others if as_int(args[0]) == -1 else [first.positive, *others])
    return Negative(f"(-{positive})", positive)


def arithmetic(op: str, args: Sequence[str]) -> str:
    """One of :data:`OPERATORS` of floats over texts; a negative number that is added is subtracted."""
    if op == "add" and len(args) == 2 and isinstance(args[1], Negative):
        return f"{args[0]} - {args[1].positive}"
    return f" {OPERATORS[op]} ".join(args)


def behind(pointer: str, place: str) -> str:
    """A pointer to a place behind another one."""
    return pointer if place == "0" else f"{pointer} + {place}"


def _find_count(e: Expr) -> int | None:
    """Which operand of a minimum is a number of things, where the other is 1."""
    a, b = e.args
    one = 0 if a.op == "const" and a.data == 1 else 1 if b.op == "const" and b.data == 1 else None
    return 1 - one if one is not None and is_nonnegative(e.args[1 - one]) else None


def in_brackets(e: Expr) -> bool:
    """Whether :func:`scalar` writes brackets around an expression that is no size that is given."""
    if e.op == "const":
        return str(e.data).startswith("-")
    if e.op == "cast":
        return e.dtype is BOOL
    return e.op in ("add", "mul", "neg", "select", "sign", *_INFIX) or (e.op in ("floordiv", "mod") and not is_call(e))


def is_call(e: Expr) -> bool:
    """Whether index arithmetic writes an operator as a call of a function."""
    if e.op in ("floordiv", "mod") and e.args[1].op == "const" and all(is_nonnegative(a) for a in e.args):
        return False  # rounds as C does
    return e.op in _CALLS or e.op == "abs"


def bare(e: Expr, text: str) -> str:
    """The text of a sum or a product without the brackets around it, where it is not a name."""
    return text[1:-1] if e.op in ("add", "mul") and e.dtype is I64 and text.startswith("(") else text
