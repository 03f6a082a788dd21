"""Functions of vectors in C that are formulas (:mod:`torshc.expr.formulas`): a kernel holds those that it calls."""

from __future__ import annotations

import math
from collections.abc import Collection, Container, Iterable, Sequence
from functools import lru_cache

from ...expr import BOOL, DTYPES, F32, F64, FUNCTIONS, U8, U32, U64, DType, Expr, acc, call, walk
from ...expr.formulas import ELEMENTARY, EXACT, Language, arguments_of, find_formula, operands_of
from ...expr.formulas_narrow import CONVERSIONS, conversions_of, memory_type
from ..base import indented
from ..index import COMPARE, CTYPES, OPERATORS, arithmetic, literal, with_instruction
from ..statements import VALUE, Text
from .vector import INLINE, Block, Names, function_name, vector_type

INSTRUCTIONS = ("decode_f16", "encode_f16", "encode_bf16")  # which processors may have: t_vec.h
_BITS = {"bitand": "&", "bitor": "|", "bitxor": "^", "shl": "<<", "shr": ">>", "and": "&", "or": "|", "xor": "^"}
WIDEST = Language(scales=True)  # vectors of 16 lanes, which are AVX-512's
_UNARY = {"neg": "-", "not": "~", "bitnot": "~"}


def functions_of(exprs: Iterable[Expr], low: Container[Expr] = ()) -> list[str]:
    """The functions that expressions call and that are formulas, by their names after ``t_``; callees come first.

    Args:
        low: as in :class:`Names`.
    """
    found: dict[str, None] = {}
    for e in walk(*exprs):
        name = f"{function_name(e, low)}_{e.args[0].dtype.compute}" if e.args else ""
        if name in ELEMENTARY and name not in found:
            formula = find_formula(name, EXACT)
            found |= dict.fromkeys([*functions_of([] if formula is None else [formula]), name])
        found |= dict.fromkeys(conversions_of(e.op))
    return list(found)


def texts_of(names: Iterable[str], lanes: int, read: Collection[DType] = (), written: Collection[DType] = ()) -> str:
    """Functions, and what reads and writes elements of types of storage in memory."""
    access = [f"decode_{t.name}" for t in read] + [f"encode_{t.name}" for t in written]
    reads = [f"T_DEF_READS({t.name}, {t.compute}, {memory_of(t)}, {CTYPES[t.name]})" for t in read]
    stores = [f"T_DEF_STORES({t.name}, {t.compute}, {memory_of(t)})" for t in written]
    called = list(dict.fromkeys([*access, *names]))
    header = "#include <math.h>" if any(_calls_library(name, lanes) for name in called) else ""
    functions = [function_text(name, lanes) for name in called]
    return "\n\n".join(filter(None, [header, *functions, "\n".join(reads + stores)]))


def _calls_library(name: str, lanes: int) -> bool:
    """Whether a function is the C library's, or leaves numbers far from 0 to that."""
    return _has_reach(name) or find_formula(name, _language(lanes)) is None


def _has_reach(name: str) -> bool:
    """Whether a formula is right up to some number alone."""
    op, _, dtype = name.rpartition("_")
    return name in ELEMENTARY and dtype == "f32" and FUNCTIONS[op].reach < math.inf


# Operators of u32 that are written as such; others call functions of u32, which a short prelude lacks.
_WRITTEN = frozenset({"const", "cast", "raw32", "bitand", "bitor", "bitxor", "shl", "shr", "add", "sub", "select"})


def types_of(names: Iterable[str], lanes: int) -> frozenset[DType]:
    """The types whose functions some functions call in vectors of some lanes; that take numbers apart as u32 do not."""
    formulas = [find_formula(name, _language(lanes)) for name in names]
    nodes = (e for formula in formulas if formula is not None for e in walk(formula))
    return frozenset(e.dtype for e in nodes if e.dtype is not U32 or e.op not in _WRITTEN)


def _language(lanes: int) -> Language:
    return WIDEST if lanes == 16 else EXACT


def memory_of(dtype: DType) -> str:
    """The name of the type that elements are in memory."""
    return (memory_type(dtype, EXACT) if dtype.is_storage else U8 if dtype is BOOL else dtype).name


@lru_cache
def function_text(name: str, lanes: int) -> str:
    """A function of vectors of some lanes: a formula, or the C library's, lane by lane."""
    op, _, dtype = name.rpartition("_")
    formula = find_formula(name, _language(lanes))
    if formula is None:
        return f"T_LANEWISE{len(arguments_of(FUNCTIONS[op]))}(t_{name}, {dtype}, {op})"
    operands = operands_of(formula)
    block = FormulaBlock(formula, operands)
    if _has_reach(name):
        far = f"t_is_beyond_(x, {literal(FUNCTIONS[op].reach, F32)})"
        block.lines.append(f"if (__builtin_expect({far}, 0)) return t_by_lanes_(x, {op}f);")
    block.expect(formula)
    result = block.emit(formula)
    body = indented([*block.lines, f"return {result};"], 4)
    parameters = ", ".join(f"{vector_type(kind)} {x}" for x, kind in operands.items())
    head = f"T_FN {vector_type(formula.dtype)} t_{name}({parameters})"
    text = f"{head} {{\n{body}\n}}"
    return with_instruction(name, head, text) if name in INSTRUCTIONS else text


def library(lanes: int) -> str:
    """All of them, for vectors of some lanes and all types of storage."""
    calls = [
        call(f.name, *(acc(x, dtype) for x in arguments_of(f)))
        for f in FUNCTIONS.values()
        if f.formula
        for dtype in (F32, F64)
        if f"{f.name}_{dtype}" in ELEMENTARY
    ]
    stored = [t for t in DTYPES.values() if t.is_storage]
    return texts_of([*functions_of(calls), *CONVERSIONS], lanes, stored, stored)


class FormulaBlock(Block):
    """Statements of a formula, in which numbers stand as they are and masks are those of comparisons."""

    def __init__(self, formula: Expr, arguments: Iterable[str]) -> None:
        super().__init__(Names({}, {}, (), {x: x for x in arguments}), None, 1)
        self.formula = formula

    def finish(self, e: Expr, text: str) -> str:
        if e.op in ("const", "acc") or text.isidentifier() or e is self.formula:
            return text
        if self.uses.get(e, 2) == 1 and len(text) < INLINE:
            return _operand(text)
        return self.declare(vector_type(e.dtype), _without_brackets(text))

    def spell_value(self, e: Expr) -> Text:
        if e.op == "acc":
            return self.names.accs[str(e.data)]
        if e.op == "const":
            return f"t_splat_{e.dtype.compute}({_number(e) if e.dtype is U32 else literal(e.data, e.dtype)})"
        if e.op == "select" and e.dtype is F64 and e.args[0].op in COMPARE and e.args[0].args[0].dtype is F64:
            return (yield from self._wide_choice(e))
        infix = _infix(e)
        args = [""] * len(e.args)
        for k in (
            reversed(range(len(args))) if e.op == "select" else range(len(args))
        ):  # values before what replaces them
            a = e.args[k]
            if infix and a.op == "const":
                args[k] = _number(a)
            else:
                text = yield a, VALUE
                args[k] = text if infix and not _binds(a.op, e.op, k) else _without_brackets(text)
        if infix:
            if e.op in OPERATORS and e.dtype.is_float:
                return arithmetic(e.op, args)
            text = f" {infix} ".join(args)
            return f"(i32v)({text})" if e.op in COMPARE else text
        return _spell(e, args)

    def _wide_choice(self, e: Expr) -> Text:
        """A choice between doubles by a comparison of doubles, whose mask is as wide as they are."""
        test, *sides = e.args
        texts = []
        for k, a in enumerate((*test.args, *sides)):
            texts.append(_number(a) if k == 1 and a.op == "const" else (yield a, VALUE))
        return f"t_blend_f64_((i64v)({texts[0]} {COMPARE[test.op]} {texts[1]}), {texts[2]}, {texts[3]})"


def _binds(inner: str, outer: str, place: int) -> bool:
    """Whether an operator as an operand of another needs no brackets."""
    if outer in ("add", "sub"):
        return inner in ("mul", "div") or (place == 0 and inner in ("add", "sub"))
    return outer in ("mul", "div") and place == 0 and inner in ("mul", "div")


def _number(e: Expr) -> str:
    """A constant as one number; bits in hexadecimal digits."""
    if e.dtype is U32 and isinstance(e.data, int) and e.data > 255:
        return f"{e.data:#x}u"
    return literal(e.data, U32 if e.dtype is U64 and e.data < 2**32 else e.dtype)  # type: ignore[operator]


def _infix(e: Expr) -> str | None:
    """The operator of C that a function is."""
    dtype = e.args[0].dtype
    if e.op in COMPARE:
        return COMPARE[e.op] if dtype.size == 4 else None
    return _BITS.get(e.op) or OPERATORS.get(e.op)


def _spell(e: Expr, args: Sequence[str]) -> str:
    dtype, kind = e.args[-1].dtype, vector_type(e.dtype)
    if e.op == "select" and dtype is U32 and e.args[2].op == "const" and e.args[2].data == 0:
        return f"(u32v){_operand(args[0])} & {_number(e.args[1]) if e.args[1].op == 'const' else _operand(args[1])}"
    if e.op == "select":
        how = f"blend_{dtype.name}_" if dtype.size == 4 else f"select_{dtype.name}"
        return f"t_{how}({', '.join(args)})"
    if e.op in _UNARY:
        return f"{_UNARY[e.op]}{_operand(args[0])}"
    same_bits = e.op == "cast" and dtype.is_int and e.dtype.is_int and dtype.size == e.dtype.size
    if e.op in ("raw32", "raw64", "float32", "float64") or same_bits:
        return f"({kind}){_operand(args[0])}"
    if e.op == "cast":
        return f"T_CONV({args[0]}, {e.dtype.name})"
    return f"t_{e.op}_{dtype.name}({', '.join(args)})"


def _operand(text: str) -> str:
    return text if _is_one(text) else f"({text})"


def _is_one(text: str) -> bool:
    """Whether a text stands as an operand without brackets."""
    depth = 0
    for c in text:
        depth += (c == "(") - (c == ")")
        if c == " " and not depth:
            return False
    return not text.startswith("-")


def _without_brackets(text: str) -> str:
    """A text without the brackets around the whole of it."""
    depth = 0
    for k, c in enumerate(text):
        depth += (c == "(") - (c == ")")
        if not depth:
            return text[1:-1] if k and k == len(text) - 1 and text.startswith("(") else text
    return text
