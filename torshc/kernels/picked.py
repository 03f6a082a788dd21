"""Pointwise work whose rows are made of elements picked from other rows, as where an image is resampled.

Which elements of a row are picked, and what weighs them, is the same for all rows: tables hold it. What is made of a
row so is often wanted again for the rows that follow: it is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..expr import NARROW, Expr, acc, as_int, axis, cost, load, locals_of, rebuild, substitute, walk
from ..expr.affine import contains
from ..expr.index import from_poly, poly_of
from ..expr.lanes import LaneSteps
from .base import Store
from .moved import certain_loads
from .nest import MapKernel

MOST_ROWS = 16  # that are kept for a row of the result
_ANYWHERE = 1 << 48  # extent of what stands for a place in a buffer
_CHEAP = 4  # cost up to which a float is computed rather than looked up


@dataclass(frozen=True)
class Pick:
    """Elements of a row of a buffer, those that a table names.

    Attributes:
        name: the register.
        row: the load of the element that the table counts from.
        table: number of the table.
    """

    name: str
    row: Expr
    table: int


@dataclass(frozen=True)
class Kept:
    """Rows that are made of picked elements, and kept as long as they are wanted.

    Attributes:
        starts: axes that stand for the places in buffers where a row's operands begin.
        picks: what a row is made of.
        value: an element of a row.
        wanted: what `starts` are, for each of the rows that a row of the result is made of.
        names: their registers.
    """

    starts: tuple[Expr, ...]
    picks: tuple[Pick, ...]
    value: Expr
    wanted: tuple[tuple[Expr, ...], ...]
    names: tuple[str, ...]


@dataclass(frozen=True)
class Picked:
    """A map kernel by rows.

    Attributes:
        axes: loop axes, outermost first; rows run along the last.
        tables: offsets of picked elements from where their row begins, along the last axis.
        weights: floats that depend on the last axis alone; register k is ``w<k>``.
        scales: floats that a row has one of; register k is ``f<k>``.
        kept: rows that are kept.
        picks: what is picked for a row of the result itself.
        stores: the stores, with registers for weights, rows and picks.
    """

    axes: tuple[Expr, ...]
    tables: tuple[Expr, ...]
    weights: tuple[Expr, ...]
    scales: tuple[Expr, ...]
    kept: tuple[Kept, ...]
    picks: tuple[Pick, ...]
    stores: tuple[Store, ...]


def picked(kernel: MapKernel, lanes: int) -> Picked | None:
    """A kernel by rows, None where it picks no elements along its last axis.

    A last axis that does not fill a vector is joined to those before it.
    """
    axes, stores = list(kernel.axes), list(kernel.stores)
    offsets = [x.args[0] for x in walk(*(s.value for s in stores)) if x.op == "load"]
    if not any(map(_divides, offsets)) or any(map(_wraps, offsets)):
        return None
    narrow = frozenset(k for k, b in enumerate(kernel.buffers) if b.dtype in NARROW)
    while len(axes) > 1:
        size = as_int(axes[-1].args[0])
        if size is None or size >= lanes:
            return _Picker(axes, stores, lanes, narrow).run()
        outer, inner = axes[-2:]
        joined = axis(str(inner.data), outer.args[0] * inner.args[0])
        parts = {outer: joined // inner.args[0], inner: joined % inner.args[0]}
        axes = [*axes[:-2], joined]
        stores = [Store(s.buffer, substitute(s.offset, parts), substitute(s.value, parts)) for s in stores]
    return None


def _divides(offset: Expr) -> bool:
    """Whether an offset goes along an axis by quotients."""
    return any(x.op == "floordiv" and any(a.op == "axis" for a in locals_of(x)) for x in walk(offset))


def _wraps(offset: Expr) -> bool:
    """Whether an offset goes along an axis by remainders: elements then lie apart, and rows do not recur."""
    return any(x.op == "mod" and any(a.op == "axis" for a in locals_of(x)) for x in walk(offset))


class _Picker:
    """Takes the stores of a kernel apart.

    Args:
        axes: loop axes, outermost first, two at the least.
        lanes: lanes of a vector along the last one.
        narrow: buffers that nothing is picked from.
    """

    def __init__(self, axes: Sequence[Expr], stores: Sequence[Store], lanes: int, narrow: frozenset[int]) -> None:
        self.axes, self.stores = tuple(axes), tuple(stores)
        self.row, self.lane = axes[-2:]
        self.outer = frozenset(axes[:-1])
        self.steps = LaneSteps(self.lane, lanes)
        self.tables: dict[Expr, int] = {}
        self.weights: dict[Expr, int] = {}
        self.scales: dict[Expr, int] = {}
        self.certain = {x: None for s in stores for x in certain_loads(s.value)}
        # Of each load that picks, where its row begins and the offset from there.
        self.parts = {x: p for x in self.certain if x.data not in narrow and (p := self._split(x.args[0])) is not None}

    def run(self) -> Picked | None:
        """The rows; None where nothing is picked, or results do not lie side by side."""
        if not self.parts or any(self.steps.of(s.offset) != 1 for s in self.stores):
            return None
        kept, registers = self._choose_kept_rows()
        picks: dict[Expr, Pick] = {}
        values = [self._in_registers(rebuild(s.value, registers.get), picks) for s in self.stores]
        stores = tuple(Store(s.buffer, s.offset, v) for s, v in zip(self.stores, values, strict=True))
        floats = tuple(self.weights), tuple(self.scales)
        return Picked(self.axes, tuple(self.tables), *floats, kept, tuple(picks.values()), stores)

    def _split(self, offset: Expr) -> tuple[Expr, Expr] | None:
        """Where a row begins and offsets along it that follow no step; None where an offset is no sum of these."""
        if self.steps.of(offset) is not None:
            return None
        start = {atoms: c for atoms, c in poly_of(offset).items() if not any(contains(a, self.lane) for a in atoms)}
        along = {atoms: c for atoms, c in poly_of(offset).items() if atoms not in start}
        table = from_poly(along)
        fits = locals_of(table) == {self.lane} and (_divides(table) or _wraps(table))
        return (from_poly(start), table) if fits else None

    def _choose_kept_rows(self) -> tuple[tuple[Kept, ...], dict[Expr, Expr]]:
        """Rows worth keeping, and the registers that stand for them in the stores."""
        found: dict[Expr, dict[tuple[Expr, ...], list[Expr]]] = {}
        for e in self._same_in_rows():
            starts = tuple(dict.fromkeys(self.parts[x][0] for x in walk(e) if x in self.parts))
            value = rebuild(e, self._from(starts).get)
            found.setdefault(value, {}).setdefault(starts, []).append(e)
        kept, registers = list[Kept](), dict[Expr, Expr]()
        for value, wanted in found.items():
            if len(wanted) > MOST_ROWS:
                continue
            names = [f"r{len(kept)}_{n}" for n in range(len(wanted))]
            for name, members in zip(names, wanted.values(), strict=True):
                registers |= dict.fromkeys(members, acc(name, value.dtype))
            picks: dict[Expr, Pick] = {}
            body = self._in_registers(value, picks)
            starts = tuple(_start(k) for k in range(len(next(iter(wanted)))))
            kept.append(Kept(starts, tuple(picks.values()), body, tuple(wanted), tuple(names)))
        return tuple(kept), registers

    def _from(self, starts: Sequence[Expr]) -> dict[Expr, Expr]:
        """Loads that pick, from rows that begin at places given by numbers."""
        known, parts = {}, {}
        for x, (start, table) in self.parts.items():
            if start in starts:
                place = _start(starts.index(start))
                known[x] = load(x.data, (place + table,), x.dtype)
                parts[known[x]] = place, table
        self.parts |= parts
        return known

    def _same_in_rows(self) -> list[Expr]:
        """The largest parts that pick, and depend on the row by where rows that are picked from begin alone."""
        same: dict[Expr, bool] = {}
        picks: dict[Expr, bool] = {}
        values = [s.value for s in self.stores]
        for x in walk(*values):
            if x in self.parts:
                same[x], picks[x] = self._recurs(self.parts[x][0]), True
            elif x.op == "axis":
                same[x], picks[x] = x not in self.outer, False
            else:
                same[x] = all(same[a] for a in x.args) and (x.op != "load" or x in self.certain)
                picks[x] = any(picks[a] for a in x.args)
        found: dict[Expr, None] = {}
        pending, seen = values[::-1], set[Expr]()
        while pending:
            x = pending.pop()
            if x in seen or not picks[x]:
                continue
            seen.add(x)
            if same[x] and x not in self.parts:  # what is only picked is as soon picked again
                found[x] = None
            elif x not in self.parts:
                pending.extend(reversed(x.args))
        return list(found)

    def _recurs(self, start: Expr) -> bool:
        """Whether rows that follow each other begin at the same place now and then."""
        return not any(a is self.row for atoms in poly_of(start) for a in atoms)

    def _in_registers(self, e: Expr, picks: dict[Expr, Pick]) -> Expr:
        """An expression with registers for what it picks, which is added to some picks, and for weights and scales."""
        known: dict[Expr, Expr] = {}
        pending, seen = [e], set[Expr]()
        while pending:
            x = pending.pop()
            if x in seen:
                continue
            seen.add(x)
            if x in self.parts:
                start, table = self.parts[x]
                number = self.tables.setdefault(table, len(self.tables))
                pick = picks.setdefault(x, Pick(f"g{len(picks)}", load(x.data, (start,), x.dtype), number))
                known[x] = acc(pick.name, x.dtype)
            elif x.dtype.is_float and locals_of(x) == {self.lane} and cost(x) > _CHEAP:
                known[x] = acc(f"w{self.weights.setdefault(x, len(self.weights))}", x.dtype)
            elif x.dtype.is_float and locals_of(x) <= self.outer and cost(x) > _CHEAP:
                known[x] = acc(f"f{self.scales.setdefault(x, len(self.scales))}", x.dtype)
            elif x.op not in ("load", "axis"):
                pending.extend(reversed(x.args))
        return rebuild(e, known.get)


def _start(number: int) -> Expr:
    """Stands for the place in a buffer where a row begins."""
    return axis(f"from{number}", _ANYWHERE)
