"""Printing of scalar expressions as statements over vectors of lanes, in C with clang's and gcc's vector extensions.

A block of statements runs along one axis, the lane axis. An index that does not move with it is printed once as a
scalar; a load that moves by one is a vector load, by a few elements one with shuffles, by nothing a splat, by anything
else a gather. Conditions on indices become ``if`` when they are one for the whole block, and masks where they are not,
so that no guarded load is ever made outside its tensor; what only blocks at a margin need a mask for has both.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

from ...expr import BOOL, F32, F64, I8, I32, I64, U8, DType, Expr, as_int, axis, call, const, rebuild, substitute, walk
from ...expr.bounds import exact, fits, range_of
from ...expr.derived import Derived
from ...expr.formulas_narrow import conversions_of
from ...expr.index import from_poly, poly_of
from ...expr.lanes import LaneSteps
from ...expr.scopes import Scope
from ...kernels.base import Buffer, Store, Total
from ..index import OPERATORS, bare, behind, element, literal, plain_index
from ..statements import INDEX, VALUE, Frame, StatementPrinter, Text

INLINE = 60  # characters; a longer value has a name even when it is read once
SPLIT = 3  # choices within a choice whose code is written for whole blocks apart; it grows with their square
STEPS = (-1, 2, 3, 4)  # steps of loads that are vector loads and shuffles
# What an index may be a choice of: a condition, what it is where that holds, and where it does not.
_CHOICES: dict[str, Callable[[Expr], tuple[Expr, Expr, Expr]]] = {
    "select": lambda e: (e.args[0], e.args[1], e.args[2]),
    "min": lambda e: (call("le", *e.args), e.args[0], e.args[1]),
    "max": lambda e: (call("ge", *e.args), e.args[0], e.args[1]),
}
_SHORT = "short"  # an integer of 64 bits that fits 32, in lanes of 32
_COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")
_CONDITIONS = ("lt", "le", "gt", "ge", "eq", "ne", "and", "or", "not")


@dataclass(frozen=True)
class Names:
    """What expressions refer to, as C names.

    Attributes:
        axes: C expression of each axis; the lane axis's is the first element of the block.
        dims: C name of each symbolic dimension.
        accs: name of the register that holds each accumulator or row statistic (a vector).
        buffers: arguments of the kernel; buffer k is ``b<k>`` in C.
        rows: names of scratch rows, by the key of their loads.
        low: values that are 0 or less, or NaN.
    """

    axes: Mapping[Expr, str]
    dims: Mapping[Any, str]
    buffers: Sequence[Buffer]
    accs: Mapping[str, str]
    low: Container[Expr] = ()


def vector_type(dtype: DType) -> str:
    """C type of a register of a dtype; masks are i32 lanes."""
    return "i32v" if dtype is BOOL else f"{dtype.compute}v"


def _rounded(e: Expr) -> tuple[Expr, int] | None:
    """What is rounded, and what is added to that, of a byte that is a whole number, as of a quantised tensor."""
    if e.op != "cast" or e.dtype not in (U8, I8) or e.args[0].dtype is not F32:
        return None
    found = _added_to_round(e.args[0])
    return found if found is not None and (e.dtype is U8 or found[1] == 0) else None


def _added_to_round(number: Expr) -> tuple[Expr, int] | None:
    """What is rounded in a number, and the whole number that is added to that."""
    zero = 0
    if number.op == "add" and number.args[1].op == "const":
        value = number.args[1].data
        if not (isinstance(value, int | float) and abs(value) < 256 and value == int(value)):
            return None
        number, zero = number.args[0], int(value)
    return (number.args[0], zero) if number.op == "round" else None


def _limited(e: Expr) -> tuple[Expr, int] | None:
    """The same of an i8, to which what is below its least number, and NaN, have been made that number before."""
    if e.op != "cast" or e.dtype is not I8 or e.args[0].dtype is not F32 or e.args[0].op != "select":
        return None
    test, number, low = e.args[0].args
    is_limit = test.op == "gt" and test.args == (number, low) and low.op == "const" and low.data == -128
    return _added_to_round(number) if is_limit else None


@dataclass(frozen=True)
class WholeByte:
    """A byte that is a whole number, as of a quantised tensor.

    Attributes:
        function: of the prelude, which makes it, without ``t_``.
        number: what is rounded.
        zero: what is added to that, where the function takes it.
    """

    function: str
    number: Expr
    zero: int | None = None

    @property
    def more(self) -> str:
        """What the function takes behind the number."""
        return "" if self.zero is None else f", {self.zero}"


def whole_byte(e: Expr) -> WholeByte | None:
    """How a byte is made of what is rounded, or None where it is no such byte."""
    if (whole := _rounded(e)) is not None:
        return WholeByte(f"whole_f32_{e.dtype.name}", whole[0], whole[1] if e.dtype is U8 else None)
    if (limited := _limited(e)) is not None:
        return WholeByte("limited_f32_i8", limited[0], limited[1])
    return None


def _level(e: Expr) -> tuple[Expr, Expr, int] | None:
    """A quantised tensor's number as a float: its byte, what is rounded to that, and the zero that is taken off."""
    if e.op != "cast" or e.dtype is not F32:
        return None
    number, zero = e.args[0], 0
    if number.op == "sub" and number.dtype is I32 and (taken := as_int(number.args[1])) is not None:
        number, zero = number.args[0], taken
    byte = number.args[0] if number.op == "cast" and number.dtype is I32 else number
    found = _rounded(byte) if byte.dtype is U8 else None
    return None if found is None or found[1] != zero else (byte, *found)


class Block(StatementPrinter):
    """Statements of one block of lanes.

    Args:
        names: C names of what the expressions hold.
        lane: the axis that the lanes run along, or None when all lanes compute the same.
        lanes: lanes of a vector.
        count: C name of the number of valid lanes in a partial block, or None in a full one.
        prefix: start of the names of temporaries.
        aligned: whether blocks start at multiples of the lanes.
    """

    def __init__(
        self,
        names: Names,
        lane: Expr | None,
        lanes: int,
        count: str | None = None,
        prefix: str = "v",
        aligned: bool = True,
    ) -> None:
        super().__init__(names.dims, prefix)
        self.names, self.lane, self.lanes, self.count = names, lane, lanes, count
        self._steps = None if lane is None else LaneSteps(lane, lanes if aligned else 0)
        # Lanes behind the first one that counts.
        self._behind = const(lanes - 1) if count is None else axis("behind", lanes)
        self._axes = {**names.axes, self._behind: f"({count} - 1)"}
        self._is_short: Derived[bool] = Derived(self._narrows)
        # Index arithmetic, with integers that are loaded where these are one for all lanes.
        self._tabled = plain_index(names.dims, lambda x: x.dtype in (I64, I32) and self._step(x.args[0]) == 0)

    def store(self, s: Store, value: str, past_caches: bool = False) -> None:
        """Add the statements that store a vector, or add it to a total."""
        if isinstance(s, Total):
            total = f"total[{self.index(s.offset)}]"
            self.lines.append(f"{total} = {total} + {value};")
            return
        dtype = self.names.buffers[s.buffer].dtype
        step = self._step(s.offset)
        if step == 2 and not self._counted and dtype in (F32, I32):
            self.lines.append(self._call("store2", dtype, behind(f"b{s.buffer}", self.index(s.offset)), value) + ";")
            return
        if step is None or step not in (0, 1):
            where = self.emit(s.offset)
            self.lines.append(
                self._call(f"scatter{self._n}", dtype, f"b{s.buffer}", where, value, *self._counted) + ";"
            )
            return
        place = behind(f"b{s.buffer}", self.index(s.offset))
        if step == 0 and self.lane is not None:
            # Every lane would write the same place: the first one does.
            self.lines.append(self._call("storen", dtype, place, value, "1") + ";")
            return
        count = self._counted if self.lane is not None else ["1"]
        if past_caches and not count and dtype is F32:
            self.lines.append(self._call("stream", dtype, place, value) + ";")
            return
        self.lines.append(self._call("storen" if count else "store", dtype, place, value, *count) + ";")

    def index(self, e: Expr) -> str:
        """An index at the first lane of the block, as a scalar; to be added to a pointer, or within brackets."""
        return bare(e, self.emit(e, INDEX))

    def moves(self, offset: Expr) -> bool:
        """Whether an access there is one of neighbouring elements, and needs nothing that is read."""
        return self._step(offset) == 1 and not self.reads(offset)

    # ---- how expressions are spelled -------------------------------------------------------------------------------

    def type_of(self, dtype: DType) -> str:
        return vector_type(dtype)

    def spell_index(self, e: Expr, inner: Sequence[str], variant: str) -> str:
        # A number that is read may be any, and a shared part is computed though a select guards it: sums of it wrap,
        # unless what bounds it (such as an index that is moved into a dimension) shows that they cannot.
        if e.op in ("add", "mul") and e.dtype is I64 and self.reads(e) and not exact(e):
            operands = f" {OPERATORS[e.op]} ".join(f"(uint64_t){x}" for x in inner)
            return f"((int64_t)({operands}))"  # callers may take the outer brackets
        return super().spell_index(e, inner, variant)

    def weight(self, e: Expr) -> int:
        return 2 if e.op == "select" and not self.is_index(e) else 1

    def finish(self, e: Expr, text: str) -> str:
        if e.op in ("const", "acc") or text.isidentifier():
            return text
        if self.uses.get(e, 2) == 1 and len(text) < INLINE:
            return f"({text})" if e.op in OPERATORS else text
        return self.declare(vector_type(e.dtype), text)

    def axes(self, variant: str) -> Mapping[Expr, str]:
        return self._axes

    def _here(self, e: Expr, variant: str) -> Text:
        if variant != _SHORT:
            return (yield from super()._here(e, variant))
        text = yield from self._spell_short(e)
        if e.op != "const" and not text.isidentifier() and (self.uses.get(e, 2) > 1 or len(text) >= INLINE):
            text = self.declare("i32v", text)
        self.frames[-1].known[e, variant] = text
        return text

    def _spell_short(self, e: Expr) -> Text:
        """The text of an integer of 64 bits in lanes of 32."""
        if e.op == "const":
            return f"t_splat_i32({literal(e.data, I32)})"
        if self.is_index(e) and (step := self._step(e)) is not None:
            start = f"t_splat_i32((int32_t)({bare(e, (yield e, INDEX))}))"
            lanes = "t_lanes_i32()" if abs(step) == 1 else f"{abs(step)} * t_lanes_i32()"
            return start if step == 0 else f"({start} {'+' if step > 0 else '-'} {lanes})"
        if e.op == "cast":
            return (yield e.args[0], VALUE)
        if not all(map(self._is_short, e.args)):
            return f"t_cast_i64_i32({(yield e, VALUE)})"
        text = yield e.args[0], _SHORT
        for a in e.args[1:]:
            text = f"t_{e.op}_i32({text}, {yield a, _SHORT})"
        return text if len(e.args) > 1 else f"t_{e.op}_i32({text})"

    def _narrows(self, e: Expr, args: Sequence[bool]) -> bool:
        """Whether lanes of 32 bits hold an integer of 64 and all that it is computed of in such lanes."""
        if e.dtype is not I64 or not fits(e, I32):
            return False
        if self.is_index(e) and self._step(e) is not None:
            return True
        if e.op == "cast":
            return e.args[0].dtype is I32
        if e.op in ("min", "max"):
            return True  # which also move any integer into a range
        return e.op in ("add", "sub", "mul") and all(args)

    def spell_load(self, e: Expr, variant: str) -> Text:
        (offset,) = e.args
        number = int(e.data)  # type: ignore[call-overload]
        text = element(f"b{number}[{bare(offset, (yield offset, variant))}]", self.names.buffers[number].dtype)
        return self.declare("int64_t", text) if self.uses.get(e, 0) > 1 else text

    def spell_value(self, e: Expr) -> Text:
        compute = e.dtype.compute
        if e.op == "const":
            return f"t_splat_{compute}({literal(e.data, e.dtype)})"
        if e.op == "acc":
            return self.names.accs[str(e.data)]
        if e.op == "load":
            return (yield from self._load(e))
        if e.dtype is I64 and (step := self._index_step(e)) is not None:
            start = f"t_splat_i64({bare(e, (yield e, INDEX))})"
            lanes = "t_lanes_i64()" if abs(step) == 1 else f"{abs(step)} * t_lanes_i64()"
            text = start if step == 0 else f"{start} {'+' if step > 0 else '-'} {lanes}"
            return f"({text})" if step and e.op not in OPERATORS else text
        if e.op == "axis":
            return f"t_splat_i64({self.names.axes[e]})"
        if e.op == "select":
            return (yield from self._select(e))
        if e.dtype is BOOL and e.op in _CONDITIONS and self._is_uniform(e):
            return f"t_splat_bool({yield e, INDEX})"
        if (margin := self._margin(e)) is not None and (step := self._step(margin)):
            return f"t_steps_bool({bare(margin, (yield margin, INDEX))}, {step})"
        if (level := _level(e)) is not None and self.uses.get(level[0], 0) <= 1:
            return f"t_level_f32({(yield level[1], VALUE)}, {level[2]})"
        if (e.op in _COMPARISONS or (e.op == "cast" and e.dtype in (F32, F64))) and all(map(self._is_short, e.args)):
            args = []
            for a in e.args:
                args.append((yield a, _SHORT))
            return f"t_{e.op}_i32({', '.join(args)})" if e.dtype is BOOL else f"t_cast_i32_{compute}({args[0]})"
        if (whole := whole_byte(e)) is not None:
            return f"t_{whole.function}({(yield whole.number, VALUE)}{whole.more})"
        args = []
        for a in e.args:
            args.append((yield a, VALUE))
        if e.op == "cast" and e.dtype in (F32, F64) and e.args[0].dtype is I64 and fits(e.args[0], I32):
            return f"t_cast_i32_{compute}(t_cast_i64_i32({args[0]}))"  # few processors convert 64 bits at once
        return _operator(e, args, function_name(e, self.names.low))

    def under(self, e: Expr, variant: str, scope: Scope) -> Text:
        assert scope.condition is not None
        kind = {VALUE: vector_type(e.dtype), _SHORT: "i32v"}.get(variant) or self.index_type(e.dtype)
        if self._is_uniform(scope.condition):
            test = yield scope.condition, INDEX
            with self.inside(Frame(scope, mask=self._mask)) as frame:
                text = yield e, variant
            name = self.fresh()
            zero = "0" if variant == INDEX else "{0}"
            self.lines.extend([f"{kind} {name} = {zero};", f"if {_bracket(test)} {{", *frame.lines])
            self.lines.extend([f"{name} = {text};", "}"])
            return name
        mask = yield scope.condition, VALUE
        with self.inside(Frame(scope, mask=self._narrow_mask(mask))) as frame:
            text = yield e, variant
        self.lines.extend(frame.lines)
        return text if text.isidentifier() else self.declare(kind, text)

    @property
    def _n(self) -> str:
        return "n" if self.count else ""

    @property
    def _counted(self) -> list[str]:
        return [self.count] if self.count else []

    @property
    def _mask(self) -> str:
        """The lanes that are computed, "" for all (of those that count)."""
        return self.frames[-1].mask

    def _margin(self, e: Expr) -> Expr | None:
        """A comparison of places as a number that is 0 or more where it holds, and steps along the lanes."""
        if e.op not in ("lt", "le", "gt", "ge") or e.args[0].dtype is not I64 or not self.is_index(e):
            return None
        low, high = e.args if e.op in ("lt", "le") else e.args[::-1]
        if any(abs(x) > 2**62 for side in (low, high) for x in range_of(side)):
            return None  # a difference of elements might wrap
        margin = high - low - (1 if e.op in ("lt", "gt") else 0)
        step = self._step(margin)
        return margin if step is not None and abs(step) < 2**16 else None

    def _call(self, function: str, dtype: DType, *args: str) -> str:
        return f"t_{function}_{dtype.name}({', '.join(args)})"

    def _step(self, e: Expr) -> int | None:
        return 0 if self._steps is None else self._steps.of(e)

    def _index_step(self, e: Expr) -> int | None:
        """Step of an index along the lanes, None when it has none or depends on data in a vector."""
        # A row that a table of indices names is one for all lanes; behind a mask, the index may not be looked at.
        fits = self.is_index(e) if self._mask else self._tabled(e)
        return self._step(e) if fits else None

    def _is_halved(self, e: Expr) -> bool:
        return self._steps is not None and self._tabled(e) and self._steps.halved(e)

    def _is_uniform(self, e: Expr) -> bool:
        return self.is_index(e) and self._step(e) == 0

    def _load(self, e: Expr) -> Text:
        (offset,) = e.args
        if isinstance(e.data, str):  # a row of scratch
            place = bare(offset, (yield offset, INDEX))
            return f"t_load{self._n}_f32({', '.join([behind(str(e.data), place), *self._counted])})"
        number = int(e.data)  # type: ignore[call-overload]
        dtype = self.names.buffers[number].dtype
        step = self._index_step(offset)
        mask = self._mask
        if step == 0 and (_plain(dtype) or not mask):
            at = f"b{number}[{bare(offset, (yield offset, INDEX))}]"
            if mask:
                return f"t_splat_{dtype.name}(t_hany_bool({mask}) ? {at} : 0)"
            return f"t_splat_{dtype.name}({at})" if _plain(dtype) else f"t_splat_{dtype.name}(&{at})"
        if step == 1:
            place = behind(f"b{number}", bare(offset, (yield offset, INDEX)))
            return (
                self._call("loadm", dtype, place, mask)
                if mask
                else self._call(f"load{self._n}", dtype, place, *self._counted)
            )
        if step in STEPS and not mask and not self.count:
            kind = "loadr" if step == -1 else f"load{step}"
            return self._call(kind, dtype, behind(f"b{number}", bare(offset, (yield offset, INDEX))))
        if step and mask:
            place = behind(f"b{number}", bare(offset, (yield offset, INDEX)))
            return self._call("stepm", dtype, place, str(step), mask)
        if not mask and self._is_halved(offset):
            place = behind(f"b{number}", bare(offset, (yield offset, INDEX)))
            return self._call(f"loadh{self._n}", dtype, place, *self._counted)
        if not mask and (found := self._straight(offset)):
            return (yield from self._mostly(e, *found))
        start, steps = self._parts(offset)
        if not mask and self._is_short(steps):
            place = behind(f"b{number}", bare(start, (yield start, INDEX)))
            return self._call(f"gather{self._n}32", dtype, place, (yield steps, _SHORT), *self._counted)
        where = yield offset, VALUE
        if mask:
            return self._call("gatherm", dtype, f"b{number}", where, mask)
        return self._call(f"gather{self._n}", dtype, f"b{number}", where, *self._counted)

    def _parts(self, offset: Expr) -> tuple[Expr, Expr]:
        """A place as what is one for all lanes, and the rest."""
        terms = poly_of(offset)
        same = {atoms: c for atoms, c in terms.items() if all(self._is_uniform(a) for a in atoms)}
        return from_poly(same), from_poly({atoms: c for atoms, c in terms.items() if atoms not in same})

    def _straight(self, offset: Expr) -> tuple[Expr, Expr] | None:
        """A condition under which a place with choices steps by one, and the place then; None if there is none.

        Where a tensor is reflected or repeated at its margins, all other blocks are of neighbouring elements.
        """
        if not self.is_index(offset) or self.reads(offset):
            return None
        test, plain = const(True), dict[Expr, Expr]()
        for x in walk(offset):
            if x.op not in _CHOICES or self._step(x) is not None:
                continue
            settled = rebuild(x, plain.get)
            condition, *sides = _CHOICES[x.op](settled) if settled.op == x.op else (const(True), settled, settled)
            taken = next((n for n, side in enumerate(sides) if self._step(side) == 1), None)
            ends = self._ends(condition)
            if taken is None or ends is None:
                return None
            test, plain[x] = call("and", test, ends[taken]), sides[taken]
        place = rebuild(offset, plain.get)
        return (test, place) if plain and self._step(place) == 1 else None

    def _mostly(self, e: Expr, test: Expr, place: Expr) -> Text:
        """A load of neighbouring elements where a condition holds, else a gather."""
        number = int(e.data)  # type: ignore[call-overload]
        dtype, scope = self.names.buffers[number].dtype, self.frames[-1].scope
        head = yield test, INDEX
        with self.inside(Frame(scope)) as near:
            at = bare(place, (yield place, INDEX))
        with self.inside(Frame(scope)) as far:
            where = yield e.args[0], VALUE
        name, counted = self.fresh(), self._counted
        self.lines.append(f"{vector_type(e.dtype)} {name};")
        self.lines.extend([f"if {_bracket(head)} {{", *near.lines])
        self.lines.append(f"{name} = {self._call(f'load{self._n}', dtype, behind(f'b{number}', at), *counted)};")
        self.lines.extend(["} else {", *far.lines])
        self.lines.append(f"{name} = {self._call(f'gather{self._n}', dtype, f'b{number}', where, *counted)};")
        self.lines.append("}")
        return name

    def _select(self, e: Expr) -> Text:
        condition = e.args[0]
        if self.guards(e) and self._is_uniform(condition):
            return (yield from self._branch(e))
        if self.guards(e) and not self._mask and (ends := self._ends(condition)) and self._is_brief(e):
            return (yield from self._split(e, *ends))
        return (yield from self._select_lanes(e))

    def _select_lanes(self, e: Expr) -> Text:
        """A choice that each lane makes."""
        condition, a, b = e.args
        mask = yield condition, VALUE
        if not self.guards(e):
            x = yield a, VALUE
            y = yield b, VALUE
            return f"t_select_{_register(e.dtype)}({mask}, {x}, {y})"
        if self.count:
            mask = self.declare("i32v", f"{mask} & t_first_bool({self.count})")
        other = f"~{mask} & t_first_bool({self.count})" if self.count and not self._mask else f"~{mask}"
        values = []
        for guard, side, scope in zip((mask, other), (a, b), self.sides(e), strict=True):
            inner = self._narrow_mask(guard) if self.reads(side) else self._mask
            with self.inside(Frame(scope, mask=inner)) as frame:
                values.append((yield side, VALUE))
            self.lines.extend(frame.lines)
        return f"t_select_{_register(e.dtype)}({mask}, {values[0]}, {values[1]})"

    def _narrow_mask(self, guard: str) -> str:
        """A mask of the lanes that are computed here and pass a guard."""
        text = f"{self._mask} & {guard}" if self._mask else guard
        return text if text.isidentifier() else self.declare("i32v", text)

    def _is_brief(self, e: Expr) -> bool:
        """Whether few choices that guard lie within one, so that each may be written more than once."""
        return sum(x.op == "select" and self.guards(x) for x in walk(e)) <= SPLIT

    def _ends(self, condition: Expr) -> tuple[Expr, Expr] | None:
        """Whether a condition holds in all lanes and whether in none, as conditions at the first lane; None if unknown.

        A comparison whose sides step along the lanes is decided at the first lane and at the last.
        """
        if condition.op == "and":
            parts = [self._ends(a) for a in condition.args]
            every, none = const(True), const(False)
            for part in parts:
                if part is None:
                    return None
                every, none = call("and", every, part[0]), call("or", none, part[1])
            return every, none
        if self._is_uniform(condition):
            return condition, call("not", condition)
        margin = self._margin(condition)
        if margin is None or self.lane is None:
            return None
        last = substitute(margin, {self.lane: self.lane + self._behind})
        least, most = (margin, last) if (self._step(margin) or 0) > 0 else (last, margin)
        return call("ge", least, 0), call("lt", most, 0)

    def _split(self, e: Expr, every: Expr, none: Expr) -> Text:
        """A choice that most blocks make as a whole: these compute one side without a mask."""
        tests = (yield every, INDEX), (yield none, INDEX)
        parts = []
        for side, scope in zip(e.args[1:], self.sides(e), strict=True):
            with self.inside(Frame(scope)) as frame:
                parts.append((frame, (yield side, VALUE)))
        with self.inside(Frame(self.frames[-1].scope)) as frame:
            parts.append((frame, (yield from self._select_lanes(e))))
        name = self.fresh()
        heads = f"if {_bracket(tests[0])} {{", f"}} else if {_bracket(tests[1])} {{", "} else {"
        self.lines.append(f"{vector_type(e.dtype)} {name};")
        for head, (frame, text) in zip(heads, parts, strict=True):
            self.lines.extend([head, *frame.lines, f"{name} = {text};"])
        self.lines.append("}")
        return name

    def _branch(self, e: Expr) -> Text:
        """A condition that is one for the whole block: an if, so that only one side's loads are made."""
        condition, a, b = e.args
        test = yield condition, INDEX
        sides = []
        for side, scope in zip((a, b), self.sides(e), strict=True):
            with self.inside(Frame(scope, mask=self._mask)) as frame:
                sides.append((frame, (yield side, VALUE)))
        return self.choose(vector_type(e.dtype), test[1:-1] if test.startswith("(") else test, sides)


def function_name(e: Expr, low: Container[Expr]) -> str:
    """The name of the function that computes a value, without its type; see :class:`Names`."""
    return "exp_low" if e.op == "exp" and e.dtype.compute == "f32" and e.args[0] in low else e.op


def _operator(e: Expr, args: Sequence[str], name: str) -> str:
    """A scalar function of vectors."""
    compute = e.dtype.compute
    if steps := conversions_of(e.op):
        return reduce(lambda text, step: f"t_{step}({text})", steps, args[0])
    if e.op == "cast":
        return f"t_cast_{e.args[0].dtype.compute}_{compute}({args[0]})"
    if e.op in OPERATORS and e.dtype.is_float:
        return f" {OPERATORS[e.op]} ".join(args)
    if e.op in ("floordiv", "mod") and (bits := _power_of_two(e.args[1])) is not None:
        return f"({args[0]} >> {bits})" if e.op == "floordiv" else f"({args[0]} & {2**bits - 1})"
    if e.op in ("add", "mul") and len(args) > 2:
        text = args[0]
        for a in args[1:]:
            text = f"t_{e.op}_{compute}({text}, {a})"
        return text
    return f"t_{name.removeprefix('bit')}_{e.args[0].dtype.compute}({', '.join(args)})"


def _power_of_two(e: Expr) -> int | None:
    """The logarithm of a divisor; compilers do not see it in a vector of 64-bit lanes, and divide lane by lane."""
    if e.op != "const" or e.dtype.is_float or not isinstance(e.data, int) or e.data < 1:
        return None
    return e.data.bit_length() - 1 if e.data.bit_count() == 1 else None


def _bracket(text: str) -> str:
    return text if text.startswith("(") else f"({text})"


def _plain(dtype: DType) -> bool:
    """Whether one element in memory can be splatted as it is."""
    return not dtype.is_storage


def _register(dtype: DType) -> str:
    return "bool" if dtype is BOOL else dtype.compute
