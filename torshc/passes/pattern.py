"""Patterns over graphs, written as text: the language of ``rules/rewrites`` and ``rules/fusion``.

Mul(x, Sigmoid(x))              operators and variables; a variable that appears twice is one value
Softmax[axis=$a](x)             attributes: a literal, or a capture that a condition or the replacement uses
Add(x, $c)                      $c is a constant
Mul($scale+, x)                 $scale+ gathers every constant that it meets
Mul(x, 1.0)                     a constant whose elements all are 1; ~0.7071 allows a relative error of 1e-6
Max|Min(x, y)                   one operator of several
p=Softmax(x)                    the name of an inner value
@scores                         a part that is defined beside the pattern, with alternatives
none                            an operand that is absent
Conv(x, ...)                    x among the operands, in the order in which they are written, and any others
pointwise(gemm(...), ...)       a lower-case word is a family of operators; any(...) is every operator, heavy(...) each
                                that has kernels of its own (products, attention...)
com.example::Foo(x)             an operator of another domain than ONNX's own
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from ..base.errors import did_you_mean
from ..ops import REGISTRY, Op
from .config import Item

Literal = int | float | bool | str | None | tuple[int | float, ...]


@dataclass(frozen=True)
class Variable:
    """Any value."""

    name: str


@dataclass(frozen=True)
class Constant:
    """A value whose contents are known; `many` gathers all that are met under one name."""

    name: str
    many: bool = False


@dataclass(frozen=True)
class Number:
    """A constant whose elements all are this number, up to a relative error."""

    value: float
    tolerance: float = 0.0


@dataclass(frozen=True)
class Absent:
    """An operand that is not there."""


@dataclass(frozen=True)
class Part:
    """A part with alternatives, defined beside the pattern."""

    name: str


@dataclass(frozen=True)
class Capture:
    """An attribute's value under a name."""

    name: str


@dataclass(frozen=True)
class Apply:
    """An operator applied to patterns.

    Attributes:
        ops: the operators that fit.
        families: the families of operators that fit; "any" is all of them, "heavy" those with kernels of their own.
        attributes: by field name, a literal or a capture.
        args: the operands.
        name: what the value is called, or empty.
        more: whether there may be other operands before, between and behind them.
    """

    ops: tuple[type[Op], ...]
    attributes: tuple[tuple[str, Literal | Capture], ...]
    args: tuple[Pattern, ...]
    name: str = ""
    families: tuple[str, ...] = ()
    more: bool = False

    def fits(self, op: Op) -> bool:
        """Whether it is one of the operators."""
        wide = "any" in self.families or (op.heavy and "heavy" in self.families)
        return wide or type(op) in self.ops or op.family in self.families


@dataclass(frozen=True)
class Named:
    """A part whose value gets a name."""

    name: str
    inside: Part


Pattern = Variable | Constant | Number | Absent | Part | Named | Apply

DEPTH = 40  # of operators inside each other, and of parts that lead to each other
FAMILIES = sorted({"any", "heavy", *(op.family for op in REGISTRY.values())} - {"", "boundary", "host"})
# What stands in graphs, by the name that a rule gives it. Where ONNX's form is read into one of ours, it is ours.
OPERATORS: Mapping[str, type[Op]] = {
    name if domain in ("", "torshc") else f"{domain}::{name}": op
    for (domain, name), op in REGISTRY.items()
    if op.infer is not Op.infer and op.family != "host"
}
_TOKEN = re.compile(
    r"\s*(?:(?P<number>~?-?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|~?-?inf)\b|"
    r"(?P<name>[$@]?[A-Za-z_]\w*\+?(?:[\w.]*::\w+)?)|"
    r"(?P<string>'[^']*')|(?P<mark>\.\.\.|[()\[\],=|]))"
)


class Parser:
    """Reads one pattern.

    Args:
        item: the text and where it stands, for messages.
    """

    def __init__(self, item: Item) -> None:
        self.item = item
        self.tokens = self._tokens(item.text())
        self.at = 0

    def _tokens(self, text: str) -> list[tuple[str, str]]:
        out: list[tuple[str, str]] = []
        at, text = 0, text.strip()
        while at < len(text):
            m = _TOKEN.match(text, at)
            if m is None:
                raise self.item.error(f"cannot read the pattern at {text[at : at + 20]!r}")
            kind = m.lastgroup or ""
            out.append((kind, m.group(kind)))
            at = m.end()
        return out

    def peek(self, offset: int = 0) -> str:
        """The token ahead, empty at the end."""
        return self.tokens[self.at + offset][1] if self.at + offset < len(self.tokens) else ""

    def take(self, wanted: str = "", called: str = "") -> tuple[str, str]:
        """Consume a token; `wanted` says which it must be, `called` what it is called in messages."""
        called = called or repr(wanted)
        if self.at >= len(self.tokens):
            raise self.item.error(f"the pattern ends too early{f': {called} is missing' if wanted else ''}")
        kind, word = self.tokens[self.at]
        if wanted and word != wanted:
            raise self.item.error(f"expected {called}, found {word!r}")
        self.at += 1
        return kind, word

    def whole(self) -> Pattern:
        """The pattern that the whole text is."""
        pattern = self.pattern(0)
        if self.at < len(self.tokens):
            raise self.item.error(f"unexpected text after the pattern: {self.peek()!r}")
        return pattern

    def pattern(self, depth: int) -> Pattern:
        if depth > DEPTH:
            raise self.item.error("the pattern is nested too deep")
        kind, word = self.take()
        if kind == "number":
            close = word.startswith("~")
            return Number(float(word.lstrip("~")), 1e-6 if close else 0.0)
        if kind != "name":
            raise self.item.error(f"expected an operand, found {word!r}")
        if word[0] == "$":
            return Constant(word[1:].rstrip("+"), word.endswith("+"))
        if word.endswith("+"):
            raise self.item.error(f"only a constant can be gathered: ${word}")
        if word[0] == "@":
            return Part(word[1:])
        if word == "none":
            return Absent()
        if self.peek() == "=":
            self.take("=")
            inside = self.pattern(depth + 1)
            if isinstance(inside, Apply):
                return replace(inside, name=word)
            if isinstance(inside, Part):
                return Named(word, inside)
            raise self.item.error(f"{word!r} is not the name of an operator")
        return self._apply(word, depth) if self.peek() in ("(", "[", "|") else Variable(word)

    def _apply(self, word: str, depth: int) -> Apply:
        names = [word]
        while self.peek() == "|":
            self.take("|")
            names.append(self.take()[1])
        families = tuple(n for n in names if n in FAMILIES)
        ops = tuple(self._operator(n) for n in names if n not in FAMILIES)
        if families and self.peek() == "[":
            raise self.item.error(f"the family {families[0]!r} has no attributes of its own", "name the operator")
        attributes = self._attributes(ops) if self.peek() == "[" else ()
        self.take("(")
        args: list[Pattern] = []
        more = False
        while self.peek() != ")":
            if args:
                self.take(",", f"a ',' or the ')' of {word}")
            if more := self.peek() == "...":
                self.take()
                break
            args.append(self.pattern(depth + 1))
        self.take(")")
        return Apply(ops, attributes, tuple(args), families=families, more=more)

    def _operator(self, name: str) -> type[Op]:
        if name in OPERATORS:
            return OPERATORS[name]
        domain, _, own = name.rpartition("::")
        if (domain, own) in REGISTRY:
            raise self.item.error(
                f"no graph has {name!r}: the import replaces it by what it is made of", "write the pattern of that"
            )
        elsewhere = [full for full in sorted(OPERATORS) if full.rpartition("::")[2] == own]
        meant = (
            f"; did you mean {elsewhere[0]!r}?" if elsewhere else did_you_mean(name, sorted({*OPERATORS, *FAMILIES}))
        )
        raise self.item.error(f"unknown operator {name!r}{meant}")

    def _attributes(self, ops: tuple[type[Op], ...]) -> tuple[tuple[str, Literal | Capture], ...]:
        self.take("[")
        out: list[tuple[str, Literal | Capture]] = []
        while self.peek() != "]":
            if out:
                self.take(",")
            key = self.take()[1]
            for op in ops:
                if key not in (known := sorted(op.__dataclass_fields__)):
                    raise self.item.error(f"{op.name} has no attribute {key!r}{did_you_mean(key, known)}")
            self.take("=")
            out.append((key, self.literal()))
        self.take("]")
        return tuple(out)

    def literal(self) -> Literal | Capture:
        """An attribute's value."""
        kind, word = self.take()
        if kind == "number":
            return float(word) if any(c in word for c in ".ein") else int(word)
        if kind == "string":
            return word[1:-1]
        if word == "(":
            out: list[int | float] = []
            while self.peek() != ")":
                if out:
                    self.take(",")
                value = self.literal()
                if isinstance(value, bool) or not isinstance(value, int | float):
                    raise self.item.error("a list of an attribute holds numbers only")
                out.append(value)
            self.take(")")
            return tuple(out)
        if word.startswith("$"):
            return Capture(word[1:])
        words: Mapping[str, bool | None] = {"true": True, "false": False, "none": None}
        if word not in words:
            raise self.item.error(f"an attribute cannot be {word!r}", "write a number, 'text', true, false or $name")
        return words[word]


def parse(item: Item) -> Pattern:
    """A pattern from text.

    Raises:
        ConfigError: with file and line, when the text is not a pattern or names an operator that does not exist.
    """
    return Parser(item).whole()


def names_in(pattern: Pattern) -> set[str]:
    """Every name that a match of the pattern binds."""
    if isinstance(pattern, Variable | Constant):
        return {pattern.name}
    if isinstance(pattern, Named):
        return {pattern.name}
    if not isinstance(pattern, Apply):
        return set()
    out = {v.name for _, v in pattern.attributes if isinstance(v, Capture)} | ({pattern.name} - {""})
    for a in pattern.args:
        out |= names_in(a)
    return out
