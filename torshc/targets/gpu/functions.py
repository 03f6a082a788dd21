"""Functions of a device's kernels that are formulas (:mod:`torshc.expr.formulas`), as C++ of one thread.

A language names those that its library has in f32 and that are within 4 ULP there; a kernel holds the others that it
calls.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from functools import lru_cache

from ...expr import FUNCTIONS, U32, U64, Expr
from ...expr.formulas import PRINTED, Language, arguments_of, find_formula, operands_of
from ..base import indented
from ..index import CTYPES, OPERATORS, with_instruction
from ..statements import VALUE, Text
from .simt import Names, Statements

HALVES = ("decode_f16", "encode_f16", "decode_bf16", "encode_bf16")  # which headers call
INSTRUCTIONS = ("decode_f16", "encode_f16", "encode_bf16")  # which devices may have: headers of their languages
_BITS = {"bitand": "&", "bitor": "|", "bitxor": "^", "shl": "<<", "shr": ">>"}


def function_texts(called: Iterable[str], library: Collection[str], language: Language) -> list[str]:
    """The functions of some calls, by their names without ``t_``, each behind those that it calls."""
    found: dict[str, str] = {}
    for name in called:
        for other, text in _with_callees(name, frozenset(library), language):
            found.setdefault(other, text)
    return list(found.values())


def halves_header(library: Collection[str], language: Language) -> str:
    """The header with conversions of f16 and bf16."""
    texts = [_written(name, frozenset(library), language)[0] for name in HALVES]
    return "\n\n".join(["/* Conversions of f16 and bf16. */", *texts]) + "\n"


@lru_cache
def _with_callees(name: str, library: frozenset[str], language: Language) -> tuple[tuple[str, str], ...]:
    if name in library or name in HALVES or name not in PRINTED:
        return ()
    text, called = _written(name, library, language)
    return (*_callees(called, library, language), (name, text))


def _written(name: str, library: frozenset[str], language: Language) -> tuple[str, Iterable[str]]:
    """The text of a function, and what it calls."""
    formula = find_formula(name, language)
    if formula is None:
        op, _, dtype = name.rpartition("_")
        arguments, kind = arguments_of(FUNCTIONS[op]), CTYPES[dtype]
        head = f"T_FN {kind} t_{name}({', '.join(f'{kind} {x}' for x in arguments)})"
        return f"{head} {{ return T_LIB_f64({op})({', '.join(arguments)}); }}", ()
    operands = operands_of(formula)
    head = (
        f"T_FN {CTYPES[formula.dtype.name]} t_{name}({', '.join(f'{CTYPES[t.name]} {x}' for x, t in operands.items())})"
    )
    s = FormulaStatements(formula, operands, library)
    s.expect(formula)
    result = s.emit(formula)
    text = f"{head} {{\n{indented([*s.lines, f'return {result};'], 4)}\n}}"
    return with_instruction(name, head, text) if name in INSTRUCTIONS else text, s.functions


def _callees(called: Iterable[str], library: frozenset[str], language: Language) -> Iterator[tuple[str, str]]:
    for name in called:
        yield from _with_callees(name, library, language)


class FormulaStatements(Statements):
    """Statements of a formula, with operators on bits."""

    def __init__(self, formula: Expr, arguments: Iterable[str], library: Collection[str]) -> None:
        super().__init__(Names({}, {}, {x: x for x in arguments}, (), {}), library=library)
        self.formula = formula

    def finish(self, e: Expr, text: str) -> str:
        return text if e is self.formula else super().finish(e, text)

    def spell_value(self, e: Expr) -> Text:
        if e.op == "const" and e.dtype in (U32, U64) and int(e.data) > 255:  # type: ignore[call-overload]
            return f"{e.data:#x}u"
        if e.op in _BITS or (e.op in OPERATORS and e.dtype is U32):
            a = yield e.args[0], VALUE
            b = yield e.args[1], VALUE
            return f"{a} {_BITS.get(e.op) or OPERATORS[e.op]} {b}"
        return (yield from super().spell_value(e))


__all__ = ["function_texts"]
