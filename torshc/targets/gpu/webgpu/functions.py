"""The functions of WGSL's prelude as a table: their texts, and which others each calls."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from ....expr import DTYPES, F32, I64, U32, Expr, const
from ....expr.formulas import Language, formulas, operands_of
from ....expr.formulas_wide import high_of, words_of
from ....kernels.nest import Accumulator
from ...base import environment, indented
from ...statements import VALUE, Text
from ...tidy import tidy
from ..simt import Names
from .text import WgslStatements
from .words import TYPES, Needs, apply, constant, register_type

JOINS = "add", "mul", "min", "max"
JOINED = "f32", "i32", "u32", "i64", "u64"
LANGUAGE = Language(exact=False, wide=False, bytes=False)  # as compilers of shaders may reorder sums
_PLAIN = {"div": "/", "shl": "<<", "shr": ">>"}


@dataclass(frozen=True)
class Function:
    """A function or variable of a module.

    Attributes:
        text: its declaration.
        calls: names of what it uses of the table.
        subgroups: its declaration for devices with subgroups; None where that is the same.
    """

    text: str
    calls: tuple[str, ...] = ()
    subgroups: str | None = None


@lru_cache(maxsize=8)
def functions(threads: int) -> dict[str, Function]:
    """The prelude of kernels whose blocks have so many threads, by name."""
    return {**_plain(), **_joins(threads)}


def needed(names: Iterable[str], threads: int) -> Iterator[Function]:
    """Functions by their names, and all that these call, each once."""
    table, order = functions(threads), [*dict.fromkeys(names)]
    for name in order:  # grows on the way
        yield table[name]
        order += [n for n in table[name].calls if n not in order]


@lru_cache(maxsize=1)
def _plain() -> dict[str, Function]:
    """What is the same for all kernels."""
    module, found = _macros(), {}
    for name in (n for n in vars(module) if n.startswith("t_")):
        calls = Needs()
        found[name] = Function(tidy(getattr(module, name)(calls)), tuple(calls))
    return found | {f"t_{name}": _formula(f"t_{name}", e) for name, e in formulas(LANGUAGE).items()}


class FormulaStatements(WgslStatements):
    """Statements of a formula, which uses WGSL's operators where they are right, or near enough for a quotient."""

    def spell_value(self, e: Expr) -> Text:
        if (whole := high_of(e)) is not None:
            word = f"{(yield whole, VALUE)}.y"
            return word if e.dtype is U32 else f"bitcast<i32>({word})"
        if (words := words_of(e)) is not None:
            low = yield words[0], VALUE
            return f"vec2u({low}, {(yield words[1], VALUE)})"
        wide = register_type(e.dtype) == "vec2u"  # of which functions compute
        if e.op in _PLAIN and (e.op == "div" or e.dtype.is_int) and e.args[1].op != "const" and not wide:
            a = yield e.args[0], VALUE
            b = yield e.args[1], VALUE
            return f"{a} {_PLAIN[e.op]} {f'u32({b})' if e.op in ('shl', 'shr') else b}"
        if e.op == "cast" and e.args[0].dtype is F32 and not wide:
            return f"{register_type(e.dtype)}({(yield e.args[0], VALUE)})"
        return (yield from super().spell_value(e))


def _macros() -> Any:
    return environment(("webgpu",)).get_template("prelude.j2").module


def _formula(name: str, e: Expr) -> Function:
    """A function that is a formula."""
    calls = Needs()
    given = {x: register_type(dtype) for x, dtype in operands_of(e).items()}
    s = FormulaStatements(Names({}, {}, {x: x for x in given}, (), {}), calls, (), "v")
    s.expect(e)
    s.uses[e] = 1
    s.lines.append(f"return {s.emit(e)};")
    parameters = ", ".join(f"{x}: {kind}" for x, kind in given.items())
    text = _macros().formula(name, parameters, register_type(e.dtype), indented(s.lines, 4))
    return Function(tidy(text), tuple(calls))


def _joins(threads: int) -> dict[str, Function]:
    """What joins a value of each thread of a block, and the arrays that it goes through."""
    macros, found = _macros(), {}
    for t in JOINED:
        kind = TYPES[t]
        found[f"t_shared_{t}"] = Function(tidy(macros.shared_array(t, kind, threads)))
        for how in JOINS if t != "f32" else JOINS[:2]:
            found[f"t_all_{how}_{t}"] = _join(how, t, kind, threads)
    return found


def _join(how: str, t: str, kind: str, threads: int) -> Function:
    dtype, macros, calls = DTYPES[t], _macros(), Needs()

    def join(left: str, right: str) -> str:
        return apply(how, dtype, [left, right], calls)

    text = tidy(macros.join_block(how, t, kind, threads, calls, join))
    if kind == "vec2u":  # of which no subgroup knows a sum
        return Function(text, tuple(calls))
    start = constant(Accumulator("", how, const(0, dtype), const(0, I64)).start, dtype, calls)
    subgroups = tidy(macros.join_subgroups(how, t, kind, threads, calls, join, start))
    return Function(text, tuple(calls), subgroups)
