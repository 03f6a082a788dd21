"""Regular expressions in RE2's syntax, compiled to the programs that ``templates/c/values/t_op_regex.c`` runs.

    a(b|c)* -> SET a; SPLIT to the loop or behind it; SET b | SET c; back

A program is its number of instructions, three integers for each, then the ranges of code points that the sets speak
of. Whether a match is greedy says nothing about whether there is one, so ``*?`` is ``*``. As in RE2, digits, words,
spaces and their edges are ASCII, ``.`` takes no line feed and ``$`` stands at the very end, unless a flag says so.

Scripts as classes (``\\p{Greek}``) are not known; categories (``\\p{Lu}``) are.
"""

from __future__ import annotations

import functools
import re
import sys
import unicodedata
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...base.errors import ModelError
from ..core.source import Unsupported

Ranges = tuple[tuple[int, int], ...]

TEXT_MAX = 1 << 12  # code points of a pattern: the worst, of many classes without case, takes a second or two
PROGRAM_MAX = 1 << 16  # instructions
REPEAT_MAX = 1000  # RE2's own limit
DEPTH_MAX = 100  # groups in groups
_SHOWN = 100  # code points of a pattern in messages

_SET, _SPLIT, _ASSERT = 1, 2, 3
_AT_START, _AT_END, _LINE_START, _LINE_END, _WORD_EDGE = 1, 2, 4, 8, 16
_NOT = 8  # bits that an assertion's fact is shifted by where it must not hold
_LAST = sys.maxunicode


# ---- what a pattern is made of ----


@dataclass(frozen=True)
class Set:
    """Matches one code point of a set."""

    ranges: Ranges


@dataclass(frozen=True)
class Assert:
    """Nothing, where some facts hold."""

    facts: int


@dataclass(frozen=True)
class Sequential:
    """Matches parts one after the other."""

    parts: tuple[Piece, ...]


@dataclass(frozen=True)
class Either:
    """Matches one of several parts."""

    parts: tuple[Piece, ...]


@dataclass(frozen=True)
class Repeat:
    """A part `low` to `high` times; None: without end."""

    part: Piece
    low: int
    high: int | None


Piece = Set | Assert | Sequential | Either | Repeat


# ---- sets of code points ----


def _unite_ranges(ranges: Sequence[tuple[int, int]]) -> Ranges:
    """Ranges of the same code points in ascending order, none twice."""
    out: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if out and low <= out[-1][1] + 1:
            out[-1] = (out[-1][0], max(out[-1][1], high))
        else:
            out.append((low, high))
    return tuple(out)


def _others(ranges: Sequence[tuple[int, int]]) -> Ranges:
    """All other code points."""
    out, start = [], 0
    for low, high in _unite_ranges(ranges):
        if low > start:
            out.append((start, low - 1))
        start = high + 1
    return (*out, (start, _LAST)) if start <= _LAST else tuple(out)


def _of(text: str) -> Ranges:
    """Ranges as text: pairs of their ends."""
    return _unite_ranges([(ord(a), ord(b)) for a, b in zip(text[::2], text[1::2], strict=True)])


_PERL = {"d": _of("09"), "s": _of("\t\n\f\r  "), "w": _of("09AZ__az")}
_POSIX = {
    "alnum": _of("09AZaz"), "alpha": _of("AZaz"), "ascii": _of("\0\x7f"), "blank": _of("\t\t  "),
    "cntrl": _of("\0\x1f\x7f\x7f"), "digit": _of("09"), "graph": _of("!~"), "lower": _of("az"), "print": _of(" ~"),
    "punct": _of("!/:@[`{~"), "space": _of("\t\r  "), "upper": _of("AZ"), "word": _of("09AZ__az"),
    "xdigit": _of("09AFaf"),
}  # fmt: skip
_ESCAPES = {"a": 7, "f": 12, "t": 9, "n": 10, "r": 13, "v": 11}


@functools.cache
def _category(name: str) -> Ranges:
    """The code points of a Unicode category, or of all whose names start so."""
    return _unite_ranges([(c, c) for c in range(_LAST + 1) if unicodedata.category(chr(c)).startswith(name)])


@functools.cache
def _orbits() -> dict[int, tuple[int, ...]]:
    """For each code point that has others which differ from it in case only: all of these, itself among them."""
    groups: dict[str, set[int]] = {}
    for c in range(_LAST + 1):
        key = chr(c).upper().lower()
        if len(key) == 1:
            groups.setdefault(key, {ord(key)}).add(c)
    return {c: tuple(g) for g in groups.values() if len(g) > 1 for c in sorted(g)}


@functools.lru_cache(maxsize=1 << 10)
def _fold_case(ranges: Ranges) -> Ranges:
    """With all that differs in case only."""
    orbits = _orbits()
    if sum(high - low + 1 for low, high in ranges) < len(orbits):
        found = [c for low, high in ranges for c in range(low, high + 1) if c in orbits]
    else:
        ends = [end for low, high in _unite_ranges(ranges) for end in (low, high + 1)]
        found = [c for c in orbits if bisect_right(ends, c) % 2]  # between the ends of a range
    return _unite_ranges([*ranges, *((c, c) for at in found for c in orbits[at])])


# ---- from text to pieces ----


@dataclass(frozen=True)
class _Flags:
    ignore_case: bool = False
    many_lines: bool = False
    dot_all: bool = False

    def set(self, letters: str, on: bool) -> _Flags:
        """With some of RE2's flags on or off; U is about greed only."""
        names = {"i": "ignore_case", "m": "many_lines", "s": "dot_all"}
        changes: dict[str, Any] = {names[k]: on for k in letters if k in names}
        return replace(self, **changes)


def _shorten(text: str) -> str:
    """A pattern, or the beginning of a long one."""
    return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}...")


class _Parser:
    def __init__(self, pattern: str) -> None:
        self.text = pattern
        self.at = 0
        self.flags = _Flags()
        self.depth = 0

    def wrong(self, why: str) -> ModelError:
        return ModelError(f"pattern {_shorten(self.text)}, at {self.at}: {why}", "patterns are in the syntax of RE2")

    def take(self, expression: str) -> re.Match[str] | None:
        """The next characters of the pattern, if they have this form."""
        found = re.compile(expression).match(self.text, self.at)
        if found is not None:
            self.at = found.end()
        return found

    def either(self) -> Piece:
        """Alternatives up to a closing parenthesis or the end."""
        flags, parts = self.flags, [self.sequence()]
        while self.take(r"\|"):
            parts.append(self.sequence())
        self.flags = flags
        return parts[0] if len(parts) == 1 else Either(tuple(parts))

    def sequence(self) -> Piece:
        parts: list[Piece] = []
        while self.at < len(self.text) and self.text[self.at] not in "|)":
            if atoms := self.atoms():
                parts += [*atoms[:-1], self.repeated(atoms[-1])]
        return Sequential(tuple(parts))

    def repeated(self, piece: Piece) -> Piece:
        found = self.take(r"([*+?]|\{(\d{1,9})(,(\d{0,9}))?\})\??")
        if found is None:
            return piece
        low, high = {"*": (0, None), "+": (1, None), "?": (0, 1)}.get(found[1], (int(found[2] or 0), None))
        if found[2]:
            high = low if found[3] is None else int(found[4]) if found[4] else None
        if max(low, high or 0) > REPEAT_MAX or (high is not None and high < low):
            raise self.wrong(f"repeated {found[0]}; at most {REPEAT_MAX} times")
        if self.take(r"[*+?]|\{\d+(,\d*)?\}"):
            raise self.wrong("a repetition of a repetition")
        return Repeat(piece, low, high)

    def atoms(self) -> list[Piece]:
        """The next piece; a list of one but for flags, which are none, and quoted text."""
        c = self.text[self.at]
        if c == "(":
            return self.group()
        if c == "[":
            return [self.one(self.bracket())]
        if c == "\\":
            return self.escaped()
        if c in "*+?":
            raise self.wrong(f"nothing to repeat before {c}")
        self.at += 1
        if c == ".":
            return [Set(_others(() if self.flags.dot_all else _of("\n\n")))]
        if c == "^":
            return [Assert(_LINE_START if self.flags.many_lines else _AT_START)]
        if c == "$":
            return [Assert(_LINE_END if self.flags.many_lines else _AT_END)]
        return [self.one(((ord(c), ord(c)),))]

    def one(self, ranges: Ranges) -> Set:
        return Set(_fold_case(ranges) if self.flags.ignore_case else ranges)

    def group(self) -> list[Piece]:
        for text, name in _FOREIGN.items():
            if self.text.startswith(text, self.at):
                raise Unsupported(f"pattern {_shorten(self.text)}: {name}, which RE2 does not have")
        outer = self.flags
        if found := self.take(r"\(\?([imsU]*)(?:-([imsU]+))?([:)])"):
            self.flags = outer.set(found[1], True).set(found[2] or "", False)
            if found[3] == ")":
                return []
        elif not self.take(r"\(\?P?<\w+>") and (self.text.startswith("(?", self.at) or not self.take(r"\(")):
            raise self.wrong("an unknown kind of group")
        self.depth += 1
        if self.depth > DEPTH_MAX:
            raise Unsupported(f"a pattern with groups nested more than {DEPTH_MAX} deep")
        inside = self.either()
        if not self.take(r"\)"):
            raise self.wrong("a parenthesis is not closed")
        self.flags = outer
        self.depth -= 1
        return [inside]

    def escaped(self) -> list[Piece]:
        if found := self.take(r"(?s:\\Q(.*?)(?:\\E|\Z))"):
            return [self.one(((ord(c), ord(c)),)) for c in found[1]]
        if found := self.take(r"\\([AzbB])"):
            facts = {"A": _AT_START, "z": _AT_END, "b": _WORD_EDGE, "B": _WORD_EDGE << _NOT}
            return [Assert(facts[found[1]])]
        if found := self.take(r"\\(?:[1-9]|k[<{'])"):
            raise Unsupported(f"pattern {_shorten(self.text)}: a backreference, which RE2 does not have")
        if self.take(r"\\C"):
            raise Unsupported(f"pattern {_shorten(self.text)}: \\C, single bytes of a text")
        return [self.one(self.code_class() or self.code())]

    def code_class(self) -> Ranges | None:
        """\\d, \\W, \\pL, \\p{^Lu} and similar."""
        if found := self.take(r"\\([dswDSW])"):
            ranges = _PERL[found[1].lower()]
            return ranges if found[1].islower() else _others(ranges)
        if found := self.take(r"\\([pP])(?:\{(\^?)(\w+)\}|(\w))"):
            name = found[3] or found[4]
            ranges = ((0, _LAST),) if name == "Any" else _category(name) if len(name) <= 2 else ()
            if not ranges:
                raise Unsupported(f"pattern {_shorten(self.text)}: the character class {name!r}")
            return _others(ranges) if (found[1] == "P") != (found[2] == "^") else ranges
        return None

    def code(self) -> Ranges:
        """One escaped code point, as a range."""
        if found := self.take(r"\\(?:x([0-9A-Fa-f]{2})|x\{([0-9A-Fa-f]{1,8})\})"):
            value = int(found[1] or found[2], 16)
        elif found := self.take(r"\\(0[0-7]{0,2}|[1-7][0-7]{2})"):
            value = int(found[1], 8)
        elif found := self.take(r"\\([aftnrv])"):
            value = _ESCAPES[found[1]]
        elif found := self.take(r"\\([^\w]|_)"):
            value = ord(found[1])
        else:
            raise self.wrong("an unknown escape")
        if value > _LAST:
            raise self.wrong("no code point")
        return ((value, value),)

    def bracket(self) -> Ranges:
        """A class in brackets."""
        self.at += 1
        negated, first = bool(self.take(r"\^")), True
        ranges: list[tuple[int, int]] = []
        while first or not self.take(r"\]"):
            first = False
            if self.at >= len(self.text):
                raise self.wrong("a bracket is not closed")
            if found := self.take(r"\[:(\^?)(\w+):\]"):
                if found[2] not in _POSIX:
                    raise self.wrong(f"no class of characters {found[2]!r}")
                ranges += _others(_POSIX[found[2]]) if found[1] else _POSIX[found[2]]
                continue
            low = self.code_class() or self.end_of_range()
            if len(low) != 1 or low[0][0] != low[0][1] or not self.take(r"-(?!\])"):
                ranges += low
                continue
            high = self.end_of_range()
            if high[0][1] < low[0][0]:
                raise self.wrong("a range from high to low")
            ranges.append((low[0][0], high[0][1]))
        found_ranges = _fold_case(_unite_ranges(ranges)) if self.flags.ignore_case else _unite_ranges(ranges)
        return _others(found_ranges) if negated else found_ranges

    def end_of_range(self) -> Ranges:
        if self.text.startswith("\\", self.at):
            return self.code()
        if self.at >= len(self.text):
            raise self.wrong("a bracket is not closed")
        c = ord(self.text[self.at])
        self.at += 1
        return ((c, c),)


_FOREIGN = {
    "(?=": "a look ahead", "(?!": "a look ahead", "(?<=": "a look behind", "(?<!": "a look behind",
    "(?>": "an atomic group", "(?(": "a condition", "(?#": "a comment", "(?P=": "a backreference",
}  # fmt: skip


# ---- from pieces to a program ----


def _size(piece: Piece) -> int:
    """How many instructions a piece needs at most."""
    match piece:
        case Sequential(parts):
            return sum(map(_size, parts))
        case Either(parts):
            return sum(2 + _size(p) for p in parts)
        case Repeat(part, low, high):
            return (_size(part) + 2) * max(low + 1, high or 0)
        case _:
            return 1


class _Writer:
    def __init__(self) -> None:
        self.code: list[list[int]] = []
        self.sets: dict[Ranges, int] = {}  # and where their ranges start
        self.ends = 0  # of ranges so far

    def add(self, *instruction: int) -> list[int]:
        self.code.append(list(instruction))
        return self.code[-1]

    def write(self, piece: Piece) -> None:
        match piece:
            case Set(ranges):
                if ranges not in self.sets:
                    self.sets[ranges] = self.ends
                    self.ends += 2 * len(ranges)
                self.add(_SET, self.sets[ranges], len(ranges))
            case Assert(facts):
                self.add(_ASSERT, facts, len(self.code) + 1)
            case Sequential(parts):
                for p in parts:
                    self.write(p)
            case Either(parts):
                self.either(parts)
            case Repeat(part, low, high):
                self.repeat(part, low, high)

    def either(self, parts: Sequence[Piece]) -> None:
        ends = []
        for p in parts[:-1]:
            fork = self.add(_SPLIT, len(self.code) + 1, 0)
            self.write(p)
            ends.append(self.add(_SPLIT, 0, 0))
            fork[2] = len(self.code)
        self.write(parts[-1])
        for jump in ends:
            jump[1:] = [len(self.code)] * 2

    def repeat(self, part: Piece, low: int, high: int | None) -> None:
        for _ in range(low):
            self.write(part)
        if high is None:
            top = len(self.code)
            fork = self.add(_SPLIT, top + 1, 0)
            self.write(part)
            self.add(_SPLIT, top, top)
            fork[2] = len(self.code)
            return
        forks = []
        for _ in range(high - low):
            forks.append(self.add(_SPLIT, len(self.code) + 1, 0))
            self.write(part)
        for fork in forks:
            fork[2] = len(self.code)


def compile_pattern(pattern: str) -> np.ndarray[Any, Any]:
    """The program of a pattern: i64.

    Raises:
        ModelError: for a pattern that is none.
        Unsupported: for what RE2 does not have, scripts as classes, and patterns that grow too long.
    """
    return _program(_parse(pattern))


def compile_between(separators: Sequence[str]) -> np.ndarray[Any, Any]:
    """The program of what stands between separators, patterns of one code point, or of one or more of a set.

    Raises:
        ModelError, Unsupported: as above, and for longer separators.
    """
    ranges: list[tuple[int, int]] = []
    for pattern in separators:
        match _parse(pattern):
            case Sequential((Set(found) | Repeat(Set(found), 1, None),)):
                ranges += found
            case _:
                raise Unsupported(f"a separator {pattern!r}, which is more than one code point")
    return _program(Repeat(Set(_others(ranges)), 1, None))


def _parse(pattern: str) -> Piece:
    if len(pattern) > TEXT_MAX:
        raise Unsupported(f"a pattern of {len(pattern)} characters; at most {TEXT_MAX} are possible")
    parser = _Parser(pattern)
    piece = parser.either()
    if parser.at < len(pattern):
        raise parser.wrong("a closing parenthesis without an opening one")
    return piece


def _program(piece: Piece) -> np.ndarray[Any, Any]:
    if _size(piece) > PROGRAM_MAX:
        raise Unsupported(f"a pattern of more than {PROGRAM_MAX} steps")
    w = _Writer()
    w.write(piece)
    w.add(0, 0, 0)
    base = 1 + 3 * len(w.code)
    for instruction in w.code:
        if instruction[0] == _SET:
            instruction[1] += base
    ends = [end for ranges in w.sets for r in ranges for end in r]
    return np.array([len(w.code), *(n for i in w.code for n in i), *ends], np.int64)
