"""The LLVM target's prelude, ``templates/llvm/prelude``: functions that are printed for the types and lanes of kernels.

A function is called by its name there with ``$S`` for what it was printed for. In its text ``$X`` is the type of its
registers, ``$I`` integers of as many bits, ``$M`` their truth values, ``$i8`` registers of another type, and ``${1.0}``
or ``${1}`` a constant of ``$X`` or of ``$I`` in all lanes. Kernels bring along what they call; LLVM puts it in place.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache, lru_cache
from string import Template

from ....base.resources import find_template
from ....expr import DType
from ....expr.formulas import EXACT, PRINTED, find_formula
from .ir import Callee, bits, constant, filled, is_kind, register, vector

_FILE = "t_arith.ll"
_NAME = re.compile(r"@t_(\w+)\$S")


def find(op: str, dtype: DType) -> str | None:
    """The name of the function that computes an operation of a type, if there is one: for it alone, or for more.

    It is a formula (:mod:`.functions`) or in the prelude.
    """
    own = f"{op}_{dtype.name}"
    for name in (own, op):
        if name in PRINTED and find_formula(name, EXACT) is not None:
            return name
    families = ("floats",) if dtype.is_float else ("signed" if dtype.kind == "i" else "unsigned", "integers")
    names = (own, *(f"{op}_of_{family}" for family in families), op)
    return next((name for name in names if name in _functions()), None)


def called_by(f: Callee) -> list[Callee]:
    """The functions that one calls."""
    return [replace(f, name=name) for name in _functions()[f.name].calls]


class _Text(Template):
    """The text of a function, and the names of those that it calls."""

    braceidpattern = "[^}]+"

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.name, *calls = _NAME.findall(text)
        self.calls = tuple(dict.fromkeys(calls))


@cache
def _functions() -> dict[str, _Text]:
    """The functions by name; each is a paragraph of the file."""
    parts = find_template(["llvm"], _FILE).read_text().split("\n\n")
    return {f.name: f for f in map(_Text, (part for part in parts if _NAME.search(part)))}


class _Words(dict[str, str]):
    """What the words of a text stand for."""

    def __init__(self, f: Callee) -> None:
        self.kind, self.lanes = register(f.dtype), f.lanes
        self.integer = f"i{bits(self.kind)}"
        own = {"X": self.kind, "I": self.integer, "M": "i1"}
        super().__init__({word: vector(kind, f.lanes) for word, kind in own.items()})
        self["S"], self["bits"] = f.suffix, self[str(f.dtype.bits)]

    def __missing__(self, word: str) -> str:
        if is_kind(word):
            return vector(word, self.lanes)
        try:
            number = constant(int(word, 0), self.integer)
        except ValueError:
            number = constant(float(word), self.kind)
        return filled(number, self.lanes)


@lru_cache(maxsize=1024)
def text_of(f: Callee) -> str:
    """A function."""
    return _functions()[f.name].substitute(_Words(f))


__all__ = ["called_by", "find", "text_of"]
