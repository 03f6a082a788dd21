"""What printers of statements share: values and indices have names where they are shared, and nothing recurses.

A printer writes an expression as generators that ask for the texts of its operands; one loop runs them, so that a
deep expression does not make deep calls. What several users share is computed once, in the innermost scope around
them all (:mod:`torshc.expr.scopes`), so that the text grows with the distinct parts of an expression, not its paths.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from ..expr import BOOL, DType, Expr, length, walk
from ..expr.derived import Derived
from ..expr.scopes import Scope, Sides, place, sides_of
from .index import bare, leaf, plain_index, spell

VALUE, INDEX = "value", "index"  # an expression as a register, or as a number in index arithmetic
SHORT = 8  # nodes of index arithmetic that are written again for each user

Text = Generator[tuple[Expr, str], str, str]


@dataclass(eq=False)
class Frame:
    """Statements of a scope, and what they have computed.

    Attributes:
        mask: the lanes for which they are made, where not all.
    """

    scope: Scope
    lines: list[str] = field(default_factory=list)
    known: dict[tuple[Expr, str], str] = field(default_factory=dict)
    mask: str = ""


class StatementPrinter(ABC):
    """Statements that compute expressions.

    Args:
        dims: names of symbols and of sizes that are given.
        prefix: start of the names of temporaries.
    """

    def __init__(self, dims: Mapping[Any, str], prefix: str) -> None:
        self.dims, self.prefix = dims, prefix
        self.top = Scope()
        self.frames = [Frame(self.top)]
        self.uses: dict[Expr, int] = {}
        self.is_index: Derived[bool] = plain_index(dims)
        self.reads: Derived[bool] = Derived(lambda e, args: e.op == "load" or any(args))
        self._homes: dict[Expr, Scope] = {}
        self._sides: dict[Expr, Sides] = {}
        self._next = 0

    # ---- what a printer of registers says --------------------------------------------------------------------------

    @abstractmethod
    def spell_value(self, e: Expr) -> Text:
        """The text of an expression as a register."""

    @abstractmethod
    def spell_load(self, e: Expr, variant: str) -> Text:
        """The text of a load in index arithmetic."""

    @abstractmethod
    def finish(self, e: Expr, text: str) -> str:
        """A register's text as it is read: itself, in brackets, or a name that is declared for it."""

    @abstractmethod
    def under(self, e: Expr, variant: str, scope: Scope) -> Text:
        """A shared part that is computed only in a scope of its own; what it is elsewhere does not matter."""

    @abstractmethod
    def axes(self, variant: str) -> Mapping[Expr, str]:
        """Texts of axes in index arithmetic."""

    @abstractmethod
    def type_of(self, dtype: DType) -> str:
        """Type of a register."""

    def in_index(self, e: Expr) -> bool:
        """Whether index arithmetic can spell an operator, not counting its operands."""
        return True

    def spell_index(self, e: Expr, inner: Sequence[str], variant: str) -> str:
        """An operator of index arithmetic over the texts of its operands."""
        return spell(e, inner)

    def weight(self, e: Expr) -> int:
        """How often an operator's text repeats its operands."""
        return 1

    # ---- for those who place statements ----------------------------------------------------------------------------

    @property
    def lines(self) -> list[str]:
        """The statements of the innermost scope that is open."""
        return self.frames[-1].lines

    def expect(self, *roots: Expr, places: Sequence[Expr] = ()) -> None:
        """Announce what will be emitted, so that what has one reader is written where it is read.

        Args:
            places: offsets at which values are stored.
        """
        for e in (*(roots if len(roots) > 1 else ()), *places):
            self.uses[e] = self.uses.get(e, 0) + 1
        for e in walk(*roots, *places):
            for a in e.args if e.op != "axis" else ():
                self.uses[a] = self.uses.get(a, 0) + self.weight(e)
        self._homes, self._sides = place((*roots, *places), self.top, self.guards, self.reads)

    def emit(self, e: Expr, variant: str = VALUE) -> str:
        """Add the statements that compute an expression; returns its text."""
        pending = [self._emit(e, variant)]
        text: str | None = None
        while pending:
            try:
                asked = next(pending[-1]) if text is None else pending[-1].send(text)
            except StopIteration as done:
                pending.pop()
                text = done.value
            else:
                pending.append(self._emit(*asked))
                text = None
        assert text is not None
        return text

    def hold(self, e: Expr) -> str:
        """Like :meth:`emit`, but whatever is loaded for it is loaded now."""
        text = self.emit(e)
        if e.op not in ("const", "acc") and not text.isidentifier():
            text = self.frames[-1].known[e, VALUE] = self.declare(self.type_of(e.dtype), text)
        return text

    @contextmanager
    def apart(self) -> Iterator[list[str]]:
        """Statements that stand together elsewhere, such as in a loop: what they name is known in them alone."""
        with self.inside(Frame(self.top)) as frame:
            yield frame.lines

    # ---- for printers ----------------------------------------------------------------------------------------------

    def guards(self, choice: Expr) -> bool:
        """Whether a select keeps loads from being made: its condition is one of places, not of data."""
        return self.is_index(choice.args[0]) and any(self.reads(a) for a in choice.args[1:])

    def sides(self, choice: Expr) -> Sides:
        """The scopes of a select that guards."""
        return self._sides.get(choice) or sides_of(choice, self.frames[-1].scope)

    @contextmanager
    def inside(self, frame: Frame) -> Iterator[Frame]:
        """Statements go to a frame of their own."""
        outer, self.frames = self.frames, [*self.frames, frame]
        try:
            yield frame
        finally:
            self.frames = outer

    def fresh(self) -> str:
        """A new name."""
        self._next += 1
        return f"{self.prefix}{self._next - 1}"

    def declare(self, kind: str, text: str) -> str:
        """A new name for a text."""
        name = self.fresh()
        self.lines.append(f"const {kind} {name} = {text};")
        return name

    def variable(self, kind: str, name: str) -> str:
        """The statement that says that there is a variable."""
        return f"{kind} {name};"

    def choose(self, kind: str, test: str, sides: Sequence[tuple[Frame, str]]) -> str:
        """A value that is computed on one side of a condition or on the other."""
        name = self.fresh()
        (yes, x), (no, y) = sides
        self.lines.extend([self.variable(kind, name), f"if ({test}) {{"])
        self.lines.extend([*yes.lines, f"{name} = {x};", "} else {", *no.lines, f"{name} = {y};", "}"])
        return name

    # ---- the walk --------------------------------------------------------------------------------------------------

    def _emit(self, e: Expr, variant: str) -> Text:
        for frame in reversed(self.frames):
            if (e, variant) in frame.known:
                return frame.known[e, variant]
        home, outer = self._homes.get(e), self.frames
        if home is None or home is outer[-1].scope:
            return (yield from self._here(e, variant))
        own = any(f.scope is home for f in outer)
        target = home if own else home.parent
        if not any(f.scope is target for f in outer):
            return (yield from self._here(e, variant))  # in the condition of a scope that serves several further in
        while self.frames[-1].scope is not target:
            self.frames = self.frames[:-1]
        text = yield from (self._here(e, variant) if own else self.under(e, variant, home))
        self.frames[-1].known[e, variant] = text
        self.frames = outer
        return text

    def _here(self, e: Expr, variant: str) -> Text:
        if variant == VALUE:
            text = self.finish(e, (yield from self.spell_value(e)))
        else:
            text = yield from self._index(e, variant)
        self.frames[-1].known[e, variant] = text
        return text

    def _index(self, e: Expr, variant: str) -> Text:
        found = leaf(e, self.axes(variant), self.dims)
        if found is not None:
            return found
        if e.op == "load":
            return (yield from self.spell_load(e, variant))
        if not self.in_index(e):
            return (yield e, VALUE)
        if e.op == "select" and self.guards(e):
            text = yield from self._index_choice(e, variant)
        else:
            inner = []
            for a in e.args:
                inner.append((yield a, variant))
            text = self.spell_index(e, inner, variant)
        if self.uses.get(e, 0) > 1 and length(e) > SHORT and not text.isidentifier():
            return self.declare(self.index_type(e.dtype), bare(e, text))
        return text

    def index_type(self, dtype: DType) -> str:
        """Type of a part of index arithmetic that has a name."""
        return "int" if dtype is BOOL else "int64_t"

    def _index_choice(self, e: Expr, variant: str) -> Text:
        test = yield e.args[0], variant
        sides = []
        for a, scope in zip(e.args[1:], self.sides(e), strict=True):
            with self.inside(Frame(scope)) as frame:
                sides.append((frame, (yield a, variant)))
        if not any(frame.lines for frame, _ in sides):
            return f"({test} ? {sides[0][1]} : {sides[1][1]})"
        kind = "int" if e.dtype is BOOL else "int64_t"
        return self.choose(kind, test[1:-1] if test.startswith("(") else test, sides)


__all__ = ["INDEX", "VALUE", "Frame", "StatementPrinter", "Text"]
