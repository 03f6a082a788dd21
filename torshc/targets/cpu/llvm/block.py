"""Printing of scalar expressions as LLVM's instructions over the lanes of one block.

As in C (:mod:`.vector`): an index that does not move along the lanes is computed once, a load that moves by one is a
vector load, by nothing a number for all lanes, by anything else a gather; conditions on indices are branches when they
are one for all lanes, and masks when they are not, so that no guarded load is made outside its tensor.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ....expr import BOOL, I32, I64, SYMBOLS, DType, Expr, is_nonnegative
from ....expr.lanes import LaneSteps
from ....expr.scopes import Scope
from ....kernels.base import Buffer, Store
from ...index import plain_index
from ...statements import INDEX, VALUE, Frame, StatementPrinter, Text
from .ir import Function, Ops, Reg, bytes_of, constant, integer, register, vector
from .math import apply, decode, encode, memory


@dataclass(frozen=True)
class Names:
    """What expressions refer to.

    Attributes:
        axes: the register of each axis; the lane axis's is the first element of the block.
        dims: names of the symbols and sizes that a kernel is given.
        accs: the register of each accumulator or row statistic.
        rows: addresses of rows of scratch, by the key of their loads.
    """

    axes: Mapping[Expr, Reg]
    dims: Mapping[Any, str]
    buffers: Sequence[Buffer]
    accs: Mapping[str, Reg]
    rows: Mapping[str, Reg]


class Block(StatementPrinter, Ops):
    """Instructions of one block of lanes.

    Args:
        function: the function that they belong to.
        lane: the axis that the lanes run along, or None when all compute the same.
        lanes: lanes of the block.
    """

    def __init__(self, function: Function, names: Names, lane: Expr | None, lanes: int) -> None:
        StatementPrinter.__init__(self, names.dims, "")
        Ops.__init__(self, function, lanes)
        self.names = names
        self.lane = lane if lanes > 1 else None
        self._steps = None if self.lane is None else LaneSteps(self.lane, lanes)
        self._tabled = plain_index(names.dims, lambda x: x.dtype in (I64, I32) and self._step(x.args[0]) == 0)
        self._masks: dict[str, Reg] = {}

    def put(self, line: str) -> None:
        self.lines.append(line)

    def value(self, e: Expr) -> Reg:
        """An expression in the lanes of the block."""
        return _reg(self.emit(e))

    def index(self, e: Expr) -> Reg:
        """An index at the first lane."""
        return _reg(self.emit(e, INDEX))

    def save(self, s: Store, value: Reg) -> None:
        """Store a value."""
        dtype = self.names.buffers[s.buffer].dtype
        kind, base = memory(dtype), f"%p{s.buffer}"
        x = encode(self, value, dtype)
        step = self._step(s.offset) if self.lane is not None else 0
        if step not in (0, 1):
            places = self.at(base, kind, self.splat(self.value(s.offset), self.width))
            self._scatter(places, self.splat(x, self.width))
            return
        place = self.at(base, kind, self.index(s.offset))
        if self.lane is not None and step == 1:
            x = self.splat(x, self.width)
        elif x.lanes > 1:
            x = self.lane_of(x, 0)
        self.store(place, x)

    def hold(self, e: Expr) -> str:
        return self.emit(e)

    # ---- how expressions are spelled -------------------------------------------------------------------------------

    def type_of(self, dtype: DType) -> str:
        return register(dtype)

    def finish(self, e: Expr, text: str) -> str:
        return text

    def axes(self, variant: str) -> Mapping[Expr, str]:
        return self.names.axes

    def spell_load(self, e: Expr, variant: str) -> Text:
        offset = _reg((yield e.args[0], INDEX))
        return self._element(e, offset)

    def spell_value(self, e: Expr) -> Text:
        if (leaf := self._leaf(e)) is not None:
            return leaf
        if e.op == "load":
            return (yield from self._load(e))
        if e.dtype is I64 and (step := self._index_step(e)) is not None:
            start = _reg((yield e, INDEX))
            return start if step == 0 else self.lanes_from(start, step)
        if e.op == "axis":
            return self.names.axes[e]
        if e.op == "select":
            return (yield from self._select(e))
        if e.dtype is BOOL and self._is_uniform(e):
            return (yield e, INDEX)
        args = []
        for a in e.args:
            args.append(_reg((yield a, VALUE)))
        return self._apply(e, args)

    def _index(self, e: Expr, variant: str) -> Text:
        if (leaf := self._leaf(e)) is not None:
            return leaf
        if e.op == "axis":
            return self.names.axes[e]
        if e.op == "load":
            return (yield from self.spell_load(e, variant))
        if e.op == "select" and self.guards(e):
            return (yield from self._branch(e, variant))
        args = []
        for a in e.args:
            args.append(_reg((yield a, variant)))
        return self._apply(e, args)

    def under(self, e: Expr, variant: str, scope: Scope) -> Text:
        assert scope.condition is not None
        alone = self.lane is None
        if variant == INDEX or alone or self._is_uniform(scope.condition):
            test = _reg((yield scope.condition, VALUE if alone and variant == VALUE else INDEX))
            with self.inside(Frame(scope, mask=self._mask)) as frame:
                text = _reg((yield e, variant))
            return self._join_branches(test, [(frame, text), (Frame(scope), _zero(text.type))])
        mask = _reg((yield scope.condition, VALUE))
        with self.inside(Frame(scope, mask=self._narrow_mask(mask))) as frame:
            text = _reg((yield e, variant))
        self.lines.extend(frame.lines)
        return text

    @property
    def _mask(self) -> str:
        """The name of the mask of the lanes that are computed, "" for all."""
        return self.frames[-1].mask

    def _leaf(self, e: Expr) -> Reg | None:
        if e in self.dims:
            return Reg(f"%{self.dims[e]}", "i64")
        if e.op == "const":
            return constant(e.data, register(e.dtype))  # type: ignore[arg-type]
        if e.op in SYMBOLS:
            return Reg(f"%{self.dims[str(e.data)]}", "i64")
        return self.names.accs[str(e.data)] if e.op == "acc" else None

    def _apply(self, e: Expr, args: Sequence[Reg]) -> Reg:
        if e.op == "select":
            return self.select(*args)
        if e.op in ("floordiv", "mod") and e.dtype is I64 and args[1].number and all(map(is_nonnegative, e.args)):
            return self.binary("udiv" if e.op == "floordiv" else "urem", *args)
        if e.dtype is I64 and e.op in ("add", "mul"):
            total = args[0]
            for x in args[1:]:
                total = self.add(total, x) if e.op == "add" else self.mul(total, x)
            return total
        return apply(self, e.op, e.args[0].dtype, e.dtype, args)

    def _step(self, e: Expr) -> int | None:
        return 0 if self._steps is None else self._steps.of(e)

    def _index_step(self, e: Expr) -> int | None:
        """Step of an index along the lanes, None when it has none or depends on data in a vector."""
        fits = self.is_index(e) if self._mask else self._tabled(e)
        return self._step(e) if fits else None

    def _is_uniform(self, e: Expr) -> bool:
        return self.is_index(e) and self._step(e) == 0

    # ---- loads -----------------------------------------------------------------------------------------------------

    def _element(self, e: Expr, offset: Reg, lanes: int = 1) -> Reg:
        """Elements of a buffer, or of a row of scratch, that lie beside each other."""
        if isinstance(e.data, str):
            return self.load(self.at(self.names.rows[e.data], "float", offset), "float", lanes)
        dtype = self.names.buffers[int(e.data)].dtype  # type: ignore[call-overload]
        kind = memory(dtype)
        return decode(self, self.load(self.at(f"%p{e.data}", kind, offset), kind, lanes), dtype)

    def _load(self, e: Expr) -> Text:
        (offset,) = e.args
        if self.lane is None:
            return self._element(e, _reg((yield offset, VALUE)))
        if isinstance(e.data, str):
            return self._element(e, _reg((yield offset, INDEX)), self.width)
        step, mask = self._index_step(offset), self._mask
        if step == 0:
            if not mask:
                return self._element(e, _reg((yield offset, INDEX)))
            place = _reg((yield offset, INDEX))
            with self.inside(Frame(self.frames[-1].scope)) as frame:
                found = self._element(e, place)
            return self._join_branches(
                self.any(self._masks[mask]), [(frame, found), (Frame(self.top), _zero(found.type))]
            )
        dtype = self.names.buffers[int(e.data)].dtype  # type: ignore[call-overload]
        kind = memory(dtype)
        if step == 1:
            place = self.at(f"%p{e.data}", kind, _reg((yield offset, INDEX)))
            if not mask:
                return decode(self, self.load(place, kind, self.width), dtype)
            return decode(self, self._load_masked("load", place, kind, self._masks[mask]), dtype)
        places = self.at(f"%p{e.data}", kind, self.splat(_reg((yield offset, VALUE)), self.width))
        every = self.splat(constant(True, "i1"), self.width)
        return decode(self, self._load_masked("gather", places, kind, self._masks[mask] if mask else every), dtype)

    def _load_masked(self, how: str, place: Reg, kind: str, mask: Reg) -> Reg:
        """Loads of the lanes whose mask is set; the others are 0 and their memory is not touched."""
        full = vector(kind, self.width)
        more = f"i32 {bytes_of(kind)}, {mask.typed}, {full} zeroinitializer"
        return self.made(f"call {full} @llvm.masked.{how}({place.typed}, {more})", kind, self.width)

    def _scatter(self, places: Reg, x: Reg) -> None:
        every = self.splat(constant(True, "i1"), self.width)
        more = f"{places.typed}, i32 {bytes_of(x.type)}, {every.typed}"
        self.put(f"  call void @llvm.masked.scatter({x.typed}, {more})")

    # ---- choices ---------------------------------------------------------------------------------------------------

    def _select(self, e: Expr) -> Text:
        condition, a, b = e.args
        if self.guards(e) and (self.lane is None or self._is_uniform(condition)):
            return (yield from self._branch(e, VALUE))
        mask = _reg((yield condition, VALUE))
        if not self.guards(e):
            x = _reg((yield a, VALUE))
            y = _reg((yield b, VALUE))
            return self.select(mask, x, y)
        mask = self.splat(mask, self.width)
        values = []
        for guard, side, scope in zip((mask, self.binary("xor", mask, 1)), (a, b), self.sides(e), strict=True):
            inner = self._narrow_mask(guard) if self.reads(side) else self._mask
            with self.inside(Frame(scope, mask=inner)) as frame:
                values.append(_reg((yield side, VALUE)))
            self.lines.extend(frame.lines)
        return self.select(mask, *values)

    def _narrow_mask(self, guard: Reg) -> str:
        """The name of a mask of the lanes that are computed here and pass a guard."""
        guard = self.splat(guard, self.width)
        mask = self.binary("and", self._masks[self._mask], guard) if self._mask else guard
        self._masks[str(mask)] = mask
        return str(mask)

    def _branch(self, e: Expr, variant: str) -> Text:
        """A condition that is one for the whole block: only one side's loads are made."""
        condition, a, b = e.args
        test = _reg((yield condition, INDEX if self.lane is not None or variant == INDEX else VALUE))
        sides = []
        for side, scope in zip((a, b), self.sides(e), strict=True):
            with self.inside(Frame(scope, mask=self._mask)) as frame:
                sides.append((frame, _reg((yield side, variant))))
        if not any(frame.lines for frame, _ in sides):
            return self.select(test, *(x for _, x in sides))
        return self._join_branches(test, sides)

    def _join_branches(self, test: Reg, sides: Sequence[tuple[Frame, Reg]]) -> Reg:
        """A value that is computed on one side of a condition or on the other."""
        lanes = max(x.lanes for _, x in sides)
        slot = self.slot(sides[0][1].type, lanes)
        labels, end = [self.label(), self.label()], self.label()
        self.put(f"  br i1 {test}, label %{labels[0]}, label %{labels[1]}")
        for label, (frame, x) in zip(labels, sides, strict=True):
            self.put(f"{label}:")
            with self._continue_in(frame):
                self.set(slot, x)
            self.lines.extend(frame.lines)
            self.put(f"  br label %{end}")
        self.put(f"{end}:")
        return self.get(slot)

    @contextmanager
    def _continue_in(self, frame: Frame) -> Iterator[None]:
        with self.inside(frame):
            yield


def _reg(text: str) -> Reg:
    assert isinstance(text, Reg)
    return text


def _zero(kind: str) -> Reg:
    return constant(0, kind)


__all__ = ["Block", "Names", "integer"]
