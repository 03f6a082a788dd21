"""Printing of scalar expressions as statements of one thread, in words that C, CUDA and Metal share.

A block of statements computes one element, or, with a packet axis, the elements of a packet of neighbours along it:
loads and stores that step by one along the axis and stand at a multiple of the packet are then one wide access each.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Container, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

from ...expr import BOOL, I64, DType, Expr, const, walk
from ...expr.affine import aligned, contains, split_axis
from ...expr.formulas_narrow import conversions_of
from ...expr.scopes import Scope
from ...kernels.base import Buffer, Store
from ..index import COMPARE, CTYPES, FORMS, OPERATORS, arithmetic, bare, is_call, literal, plain_index, sum_text
from ..statements import INDEX, VALUE, Frame, StatementPrinter, Text

START, WIDE = "start", "wide"  # an index of a packet's first element; one that is any number, in 64 bits
INLINE = 72  # characters; a longer value has a name even when it is read once


@dataclass(frozen=True)
class Names:
    """What expressions refer to, as names in the generated text.

    Attributes:
        axes: text of each axis.
        dims: name of each symbolic dimension.
        accs: register of each accumulator or row statistic.
        buffers: arguments of the kernel; buffer k is ``b<k>``.
        wide: text of each axis where it is used as a value, in 64 bits.
        narrow: index arithmetic that is computed in 32 bits where others has 64.
    """

    axes: Mapping[Expr, str]
    dims: Mapping[Any, str]
    accs: Mapping[str, str]
    buffers: Sequence[Buffer]
    wide: Mapping[Expr, str]
    narrow: Container[Expr] = ()


def register_type(dtype: DType) -> str:
    """Type of a register; truth values are int."""
    return "int" if dtype is BOOL else CTYPES[dtype.compute]


@dataclass(frozen=True)
class Packet:
    """Neighbours that one thread computes together.

    Attributes:
        axis: the axis that they lie along.
        size: how many.
        element: name of the variable that counts them.
    """

    axis: Expr
    size: int
    element: str = "j"

    def steps(self, offset: Expr) -> bool:
        """Whether an offset steps by one along the packet, from a multiple of its size."""
        parts = split_axis(offset, self.axis)
        return (
            parts is not None
            and parts[0].op == "const"
            and parts[0].data == 1
            and not any(x.op in ("load", "acc") for x in walk(parts[1]))
            and aligned(offset, self.axis, self.size)
        )


class Statements(StatementPrinter):
    """Statements of one thread.

    Args:
        names: names of what the expressions hold.
        prefix: start of the names of temporaries.
        packet: what one thread computes together, or None for one element.
        library: functions that the language has, by their names without ``t_``.
        functions: collects the names of the functions that are called, without ``t_``.
        step: which of a thread's elements of a row that is kept in registers this is; "0" where there is no loop.
        early: loads that were made before, by the registers that hold them.
    """

    lazy = True  # whether a conditional computes one side alone

    def __init__(
        self,
        names: Names,
        prefix: str = "v",
        packet: Packet | None = None,
        library: Collection[str] = (),
        functions: dict[str, None] | None = None,
        step: str = "step",
        early: Mapping[Expr, str] = {},
    ) -> None:
        super().__init__(names.dims, prefix)
        self.names, self.packet, self.library, self.step = names, packet, library, step
        self.early = early
        self.arrays = "p" if prefix == "v" else f"{prefix}p"
        self.named: dict[Expr, str] = {}  # values whose registers have names that the caller gave
        self.functions = {} if functions is None else functions
        self.wide: dict[Expr, str] = {}  # loads of a whole packet, by the array that holds them
        self.filled = set[Expr]()  # selects between such a load and 0, which the array holds where nothing is loaded
        self._spelt = plain_index(names.dims, lambda load: True)

    def load_packets(self, *roots: Expr) -> None:
        """Read every operand that a packet reads as a whole, before the loop over its elements."""
        if self.packet is None:
            return
        for e, choices in self.find_loads(roots).items():
            certain = not choices or (len(choices) == 1 and self._is_whole(choices[0]))
            if e in self.early or not certain or not self.packet.steps(e.args[0]):
                continue
            assert isinstance(e.data, int)
            name, dtype = f"{self.arrays}{len(self.wide)}", self.names.buffers[e.data].dtype
            self.lines.append(f"{CTYPES[dtype.name]} {name}[{self.packet.size}]{' = {}' if choices else ''};")
            scope = self.sides(choices[0])[0] if choices and choices[0] is not None else self.top
            with self.inside(Frame(scope)) as frame:
                read = f"t_read{self.packet.size}({name}, b{e.data} + {self.index(e.args[0])});"
            if choices and choices[0] is not None:
                self.lines.extend([f"if ({self.index(choices[0].args[0])}) {{", *frame.lines, read, "}"])
                if choices[0].args[1] is e and _is_zero(choices[0].args[2]):
                    self.filled.add(choices[0])
            else:
                self.lines.extend([*frame.lines, read])
            self.wide[e] = name

    def store(self, s: Store, value: str) -> None:
        """Add the statement that stores a value."""
        dtype = self.names.buffers[s.buffer].dtype
        offset = self.emit(s.offset, self._place(s.offset))
        self.lines.append(f"b{s.buffer}[{bare(s.offset, offset)}] = {encode(value, dtype, self.functions)};")

    def index(self, e: Expr) -> str:
        """The index of a packet's first element, to be added to a pointer or within brackets."""
        return bare(e, self.emit(e, START))

    def kept(self, name: str) -> str:
        """This thread's element of a row that is kept in registers."""
        if self.packet is None or self.packet.size == 1:
            return f"{name}[{self.step}]"
        before = "" if self.step == "0" else f"{self.step} * {self.packet.size} + "
        return f"{name}[{before}{self.packet.element}]"

    # ---- how expressions are spelled -------------------------------------------------------------------------------

    def type_of(self, dtype: DType) -> str:
        return register_type(dtype)

    def conditional(self, test: str, x: str, y: str) -> str:
        """A choice between two texts."""
        return f"{test} ? {x} : {y}"

    def index_type(self, dtype: DType) -> str:
        return "auto"  # int where indices are

    def finish(self, e: Expr, text: str) -> str:
        if e in self.named:
            self.lines.append(f"const {register_type(e.dtype)} {self.named[e]} = {text};")
            return self.named[e]
        if e.op in ("const", "acc") or text.isidentifier():
            return text
        if self.uses.get(e, 2) == 1 and len(text) < INLINE:
            return f"({text})" if _needs_brackets(text) else text
        return self.declare(register_type(e.dtype), text)

    def axes(self, variant: str) -> Mapping[Expr, str]:
        axes = self.names.axes
        if variant == WIDE:
            axes = {a: t for a, t in self.names.wide.items() if a in axes}
        if variant != START and self.packet is not None and self.packet.axis in axes:
            axes = {**axes, self.packet.axis: f"({axes[self.packet.axis]} + {self.packet.element})"}
        return axes

    def in_index(self, e: Expr) -> bool:
        if e.dtype not in (I64, BOOL) or e.op not in FORMS:
            return False
        if e.op == "cast":
            return e.args[0].dtype.kind in "iub" or e.args[0].dtype is BOOL
        return e.op not in COMPARE or e.args[0].dtype is I64

    def spell_index(self, e: Expr, inner: Sequence[str], variant: str) -> str:
        if variant == WIDE and is_call(e):  # functions of indices are of the type that these have
            return f"t_{e.op}_i64({', '.join(inner)})"
        if e.op == "add" and variant != WIDE and (text := self._sum_in_parts(e, inner)):
            return text
        return super().spell_index(e, inner, variant)

    def _sum_in_parts(self, e: Expr, inner: Sequence[str]) -> str:
        """A sum of indices of 64 bits to which several of 32 are added together; "" where there are not several."""
        terms = [*zip(e.args, inner, strict=True)]
        narrow = [(a, x) for a, x in terms if a in self.names.narrow]
        wide = [(a, x) for a, x in terms if a not in self.names.narrow]
        if len(narrow) < 2 or not wide:
            return ""
        wide_text, narrow_text = (sum_text(*zip(*part, strict=True)) for part in (wide, narrow))
        return f"({wide_text[1:-1]} + {narrow_text})"

    def spell_load(self, e: Expr, variant: str) -> Text:
        return (yield e, VALUE)

    def spell_value(self, e: Expr) -> Text:
        if e.op == "const":
            return constant(e.data, e.dtype)
        if e.op == "acc":
            return self.names.accs[str(e.data)]
        if e.op == "load":
            return (yield from self._load(e))
        if e.dtype is I64 and self.is_index(e):
            # An index used as a value: its axes are widened, as it may be any number, not only a place in memory.
            return bare(e, (yield e, WIDE))
        if e.op == "select":
            return (yield from self._select(e))
        if e.dtype is BOOL and self.is_index(e):
            return (yield e, INDEX)
        args = []
        for a in e.args:
            args.append((yield a, VALUE))
        if steps := conversions_of(e.op):
            return _convert(args[0], steps, self.functions)
        name = f"{e.op}_{e.args[0].dtype.compute}"
        if name == "exp_low_f32" and "exp_f32" in self.library:
            name = "exp_f32"
        self.functions[name] = None
        return _operator(e, args, name)

    def under(self, e: Expr, variant: str, scope: Scope) -> Text:
        assert scope.condition is not None
        test = yield scope.condition, INDEX
        with self.inside(Frame(scope)) as frame:
            text = yield e, variant
        name = self.fresh()
        kind = register_type(e.dtype)
        self.lines.extend([f"{kind} {name} = 0;", f"if ({test}) {{", *frame.lines, f"{name} = {text};", "}"])
        return name

    def _place(self, offset: Expr) -> str:
        return INDEX if self._spelt(offset) else VALUE

    def _load(self, e: Expr) -> Text:
        if isinstance(e.data, str):
            return self.kept(e.data)
        number = int(e.data)  # type: ignore[call-overload]
        dtype = self.names.buffers[number].dtype
        if e in self.early:
            return decode(self.early[e], dtype, self.functions)
        if e in self.wide:
            return decode(f"{self.wide[e]}[{self.packet.element if self.packet else 0}]", dtype, self.functions)
        (offset,) = e.args
        place = yield offset, self._place(offset)
        return decode(f"b{number}[{bare(offset, place)}]", dtype, self.functions)

    def _select(self, e: Expr) -> Text:
        condition, a, b = e.args
        if e in self.filled:
            return (yield from self._load(a))
        test = yield condition, VALUE
        if not self.guards(e):
            x = yield a, VALUE
            y = yield b, VALUE
            return self.conditional(test, x, y)
        sides = []
        for side, scope in zip((a, b), self.sides(e), strict=True):
            with self.inside(Frame(scope)) as frame:
                sides.append((frame, (yield side, VALUE)))
        if self.lazy and not any(frame.lines for frame, _ in sides):
            return self.conditional(test, sides[0][1], sides[1][1])
        return self.choose(self.type_of(e.dtype), test, sides)

    def _is_whole(self, choice: Expr | None) -> bool:
        """Whether a select guards all elements of the packet or none; not of None."""
        return self.packet is not None and choice is not None and not contains(choice.args[0], self.packet.axis)

    def find_loads(self, roots: Sequence[Expr]) -> dict[Expr, list[Expr | None]]:
        """Loads from memory, and the selects that guard them: none where one is made whatever the place.

        A select between what guards an index and a constant; None stands for any other, and for several.
        """
        always = const(True)
        found, seen = dict[Expr, dict[Expr | None, None]](), set[tuple[Expr, Expr | None]]()
        pending: list[tuple[Expr, Expr | None]] = [(r, always) for r in roots]
        while pending:
            x, choice = pending.pop()
            if (x, choice) in seen:
                continue
            seen.add((x, choice))
            if x.op == "load" and isinstance(x.data, int):
                found.setdefault(x, {})[choice] = None
            if x.op in ("load", "axis"):
                continue
            inner, rest = choice, x.args
            if x.op == "select" and self.guards(x):
                inner, rest = x if choice is always and x.args[2].op == "const" else None, x.args[1:]
                pending.append((x.args[0], choice))
            pending.extend((a, inner) for a in rest)
        return {x: [] if always in choices else list(choices) for x, choices in found.items()}


def _operator(e: Expr, args: Sequence[str], name: str) -> str:
    """A scalar function of registers; `name` is what a call of it names."""
    if e.op == "cast":
        return f"t_cast_{e.args[0].dtype.compute}_{e.dtype.compute}({args[0]})"
    if e.op in OPERATORS and e.dtype.is_float:
        return arithmetic(e.op, args)
    if e.op == "neg" and e.dtype.is_float:
        return f"-{args[0]}"
    if e.op in COMPARE and e.args[0].dtype is not BOOL:
        return f"{args[0]} {COMPARE[e.op]} {args[1]}"
    if e.op in ("and", "or"):
        return f" {'&&' if e.op == 'and' else '||'} ".join(args)
    if e.op == "not":
        return f"!{args[0]}"
    if e.op in ("add", "mul") and len(args) > 2:
        text = args[0]
        for a in args[1:]:
            text = f"t_{e.op}_{e.dtype.compute}({text}, {a})"
        return text
    return f"t_{name.removeprefix('bit')}({', '.join(args)})"


def constant(value: object, dtype: DType) -> str:
    """A literal: infinities and NaN by their names in the prelude, f64 in decimals, as MSL has no hexadecimal ones."""
    if not dtype.is_float:
        return literal(value, dtype)
    number = float(value)  # type: ignore[arg-type]
    size = "F64" if dtype.name == "f64" else "F32"
    if math.isnan(number):
        return f"T_NAN_{size}"
    if math.isinf(number):
        return f"{'-' if number < 0 else ''}T_INF_{size}"
    return repr(number) if size == "F64" else literal(number, dtype)


def decode(text: str, dtype: DType, functions: dict[str, None]) -> str:
    """An element in memory as a register; `functions` gets what it calls."""
    if dtype.is_storage:
        return _convert(text, [f"decode_{dtype.name}"], functions)
    return f"({text} != 0)" if dtype is BOOL else text


def encode(text: str, dtype: DType, functions: dict[str, None]) -> str:
    """A register as an element in memory; `functions` gets what it calls."""
    if dtype.is_storage:
        return _convert(text, [f"encode_{dtype.name}"], functions)
    return f"({text}) != 0" if dtype is BOOL else text


def _is_zero(e: Expr) -> bool:
    """Whether an expression is the number whose bits in memory are all 0."""
    return e.op == "const" and e.data == 0 and math.copysign(1.0, e.data) > 0


def _convert(text: str, steps: Sequence[str], functions: dict[str, None]) -> str:
    functions |= dict.fromkeys(steps)
    return reduce(lambda inner, step: f"t_{step}({inner})", steps, text)


def _needs_brackets(text: str) -> bool:
    """Whether a text has an operator outside brackets, so that it needs some of its own inside another."""
    depth = 0
    for k, c in enumerate(text):
        depth += (c in "([") - (c in ")]")
        if depth == 0 and (c == " " or (k == 0 and c in "-!")):
            return True
    return False
