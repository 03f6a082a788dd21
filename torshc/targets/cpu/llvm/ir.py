"""LLVM's instructions: registers with their types, and the arithmetic of all element types over one or many lanes.

A register is the name of an SSA value, or a constant. It is uniform (one number) or wide (a vector of lanes); an
operation over both kinds widens the uniform ones, so that what is one for all lanes is computed once.
"""

from __future__ import annotations

import math
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Self

import numpy as np

from ....expr import BOOL, DType

TYPES = {
    "f64": "double", "f32": "float", "f16": "half", "i64": "i64", "i32": "i32", "i16": "i16", "i8": "i8",
    "u64": "i64", "u32": "i32", "u16": "i16", "u8": "i8", "bool": "i1",
}  # fmt: skip
_BITS = {"double": 64, "float": 32, "half": 16, "i64": 64, "i32": 32, "i16": 16, "i8": 8, "i1": 1, "ptr": 64}


class Reg(str):
    """A register or a constant as text.

    Attributes:
        type: type of a lane.
        lanes: lanes; 1 for a uniform one.
        number: the value of a constant, else None.
    """

    __slots__ = ("lanes", "number", "type")

    type: str
    lanes: int
    number: int | float | None

    def __new__(cls, text: str, kind: str, lanes: int = 1, number: int | float | None = None) -> Self:
        made = super().__new__(cls, text)
        made.type, made.lanes, made.number = kind, lanes, number
        return made

    @property
    def full(self) -> str:
        """Its type."""
        return vector(self.type, self.lanes)

    @property
    def typed(self) -> str:
        """Its type and its name."""
        return f"{self.full} {self}"


def vector(kind: str, lanes: int) -> str:
    """The type of some lanes."""
    return kind if lanes == 1 else f"<{lanes} x {kind}>"


def bits(kind: str) -> int:
    """Bits of a type."""
    return _BITS[kind]


def is_kind(name: str) -> bool:
    """Whether a word is a type of a lane."""
    return name in _BITS


def bytes_of(kind: str) -> int:
    """Bytes of an element in memory."""
    return max(1, _BITS[kind] // 8)


def constant(value: int | float | bool, kind: str) -> Reg:
    """A number."""
    if kind in ("float", "double", "half"):
        number = float(value)
        if kind != "double" and math.isfinite(number):
            with np.errstate(over="ignore"):
                number = float(np.float32(number))
        pattern = struct.unpack("<Q", struct.pack("<d", number))[0]
        return Reg(f"0x{0x7FF8000000000000 if math.isnan(number) else pattern:016X}", kind, 1, number)
    if kind == "i1":
        return Reg("true" if value else "false", kind, 1, int(bool(value)))
    size = _BITS[kind]
    wrapped = (int(value) + (1 << (size - 1))) % (1 << size) - (1 << (size - 1))
    return Reg(str(wrapped), kind, 1, wrapped)


def filled(x: Reg, lanes: int) -> Reg:
    """A constant in all lanes."""
    return Reg(f"splat ({x.typed})", x.type, lanes) if lanes > 1 else x


def integer(value: int) -> Reg:
    """A number of index arithmetic."""
    return constant(value, "i64")


@dataclass(frozen=True)
class Callee:
    """A formula (:mod:`.functions`) or a function of the prelude (:mod:`.prelude`), as it is called.

    Attributes:
        name: its name after ``t_``.
        dtype: type that it computes with.
        lanes: lanes of its registers.
    """

    name: str
    dtype: DType
    lanes: int

    @property
    def suffix(self) -> str:
        return f"_{self.dtype.name}x{self.lanes}"

    @property
    def symbol(self) -> str:
        return f"@t_{self.name}{self.suffix}"


@dataclass
class Function:
    """A function under construction: what its blocks share.

    Attributes:
        slots: variables on the stack, at its start; LLVM makes registers of them.
        prelude: the formulas and functions of the prelude that it calls.
        declarations: those of the C library that it calls.
    """

    slots: list[str] = field(default_factory=list)
    prelude: dict[Callee, None] = field(default_factory=dict)
    declarations: dict[str, None] = field(default_factory=dict)
    numbers: int = 0

    def fresh(self) -> int:
        self.numbers += 1
        return self.numbers


class Ops(ABC):
    """Writes instructions.

    Args:
        function: the function that they belong to.
        lanes: lanes of a wide register.
    """

    def __init__(self, function: Function, lanes: int) -> None:
        self.function, self.width = function, lanes

    @abstractmethod
    def put(self, line: str) -> None:
        """Add a line."""

    # ---- instructions ----------------------------------------------------------------------------------------------

    def made(self, text: str, kind: str, lanes: int = 1) -> Reg:
        """A new register for an instruction."""
        name = f"%v{self.function.fresh()}"
        self.put(f"  {name} = {text}")
        return Reg(name, kind, lanes)

    def splat(self, x: Reg, lanes: int) -> Reg:
        """A uniform register in all lanes."""
        if x.lanes == lanes or lanes == 1:
            return x
        if x.number is not None:
            return filled(x, lanes)
        one = self.made(f"insertelement {vector(x.type, lanes)} poison, {x.typed}, i64 0", x.type, lanes)
        zeros = f"<{lanes} x i32> zeroinitializer"
        return self.made(f"shufflevector {one.typed}, {one.full} poison, {zeros}", x.type, lanes)

    def alike(self, *xs: Reg) -> list[Reg]:
        """Registers with the lanes of the widest."""
        lanes = max(x.lanes for x in xs)
        return [self.splat(x, lanes) for x in xs]

    def binary(self, op: str, a: Reg, b: Reg | int | float) -> Reg:
        """An instruction of two operands; floats may be fused to multiply-add."""
        a, b = self.alike(a, b if isinstance(b, Reg) else constant(b, a.type))
        flags = " contract" if op in ("fadd", "fsub", "fmul", "fdiv") else ""
        return self.made(f"{op}{flags} {a.typed}, {b}", a.type, a.lanes)

    def compare(self, op: str, a: Reg, b: Reg | int | float) -> Reg:
        """A comparison, "icmp slt" or "fcmp olt"."""
        a, b = self.alike(a, b if isinstance(b, Reg) else constant(b, a.type))
        return self.made(f"{op} {a.typed}, {b}", "i1", a.lanes)

    def select(self, condition: Reg, a: Reg, b: Reg) -> Reg:
        """Choose one of two registers, lane by lane where the condition is wide."""
        if condition.lanes > 1:
            condition, a, b = self.alike(condition, a, b)
        else:
            a, b = self.alike(a, b)
        return self.made(f"select {condition.typed}, {a.typed}, {b.typed}", a.type, a.lanes)

    def convert(self, op: str, x: Reg, kind: str) -> Reg:
        """A conversion by one instruction."""
        if x.type == kind:
            return x
        return self.made(f"{op} {x.typed} to {vector(kind, x.lanes)}", kind, x.lanes)

    def intrinsic(self, name: str, xs: Sequence[Reg], kind: str = "") -> Reg:
        """A call of LLVM's own function of some registers; its result has their type unless another is given."""
        return self.call(f"@llvm.{name}", self.alike(*xs), kind or xs[0].type)

    def call(self, symbol: str, xs: Sequence[Reg], kind: str) -> Reg:
        """A call of a function of registers with the same lanes."""
        lanes = xs[0].lanes
        return self.made(f"call {vector(kind, lanes)} {symbol}({', '.join(x.typed for x in xs)})", kind, lanes)

    def each_lane(self, name: str, xs: Sequence[Reg]) -> Reg:
        """A function of the C library, lane by lane."""
        kind, lanes = xs[0].type, xs[0].lanes
        self.function.declarations[f"declare {kind} @{name}({', '.join([kind] * len(xs))})"] = None
        if lanes == 1:
            return self.call(f"@{name}", xs, kind)
        out = Reg("poison", kind, lanes)
        for k in range(lanes):
            one = self.call(f"@{name}", [self.lane_of(x, k) for x in xs], kind)
            out = self.made(f"insertelement {out.typed}, {one.typed}, i64 {k}", kind, lanes)
        return out

    # ---- memory ----------------------------------------------------------------------------------------------------

    def at(self, base: str, kind: str, index: Reg) -> Reg:
        """The address of an element, or one for each lane."""
        if index.number == 0:
            return Reg(base, "ptr")
        return self.made(f"getelementptr {kind}, ptr {base}, {index.typed}", "ptr", index.lanes)

    def load(self, place: Reg, kind: str, lanes: int = 1) -> Reg:
        """Some elements that lie beside each other; an address needs the alignment of an element only."""
        full = vector(kind, lanes)
        return self.made(f"load {full}, ptr {place}, align {bytes_of(kind)}", kind, lanes)

    def store(self, place: Reg, x: Reg) -> None:
        self.put(f"  store {x.typed}, ptr {place}, align {bytes_of(x.type)}")

    def slot(self, kind: str, lanes: int = 1) -> Reg:
        """A variable."""
        name = f"%x{self.function.fresh()}"
        self.function.slots.append(f"  {name} = alloca {vector(kind, lanes)}")
        return Reg(name, kind, lanes)

    def get(self, slot: Reg) -> Reg:
        """Load a variable."""
        return self.made(f"load {slot.full}, ptr {slot}", slot.type, slot.lanes)

    def set(self, slot: Reg, x: Reg) -> None:
        self.put(f"  store {self.splat(x, slot.lanes).typed}, ptr {slot}")

    # ---- control flow ----------------------------------------------------------------------------------------------

    def label(self) -> str:
        return f"b{self.function.fresh()}"

    @contextmanager
    def loop_while(self, counter: Reg, step: int, most: Reg) -> Iterator[Reg]:
        """A loop while counter <= most; the counter, a variable, moves by a step at the end of each round."""
        test, body, end = self.label(), self.label(), self.label()
        self.put(f"  br label %{test}")
        self.put(f"{test}:")
        now = self.get(counter)
        self.put(f"  br i1 {self.compare('icmp sle', now, most)}, label %{body}, label %{end}")
        self.put(f"{body}:")
        yield now
        self.set(counter, self.binary("add", self.get(counter), step))
        self.put(f"  br label %{test}")
        self.put(f"{end}:")

    @contextmanager
    def loop(self, low: Reg | int, high: Reg) -> Iterator[Reg]:
        """From low to below high."""
        counter = self.slot("i64")
        self.set(counter, low if isinstance(low, Reg) else integer(low))
        with self.loop_while(counter, 1, self.add(high, -1)) as now:
            yield now

    # ---- index arithmetic ------------------------------------------------------------------------------------------

    def add(self, a: Reg, b: Reg | int) -> Reg:
        b = b if isinstance(b, Reg) else constant(b, a.type)
        if a.lanes == b.lanes == 1 and a.number is not None and b.number is not None:
            return constant(int(a.number) + int(b.number), a.type)
        return a if b.number == 0 else b if a.number == 0 else self.binary("add", a, b)

    def mul(self, a: Reg, b: Reg | int) -> Reg:
        b = b if isinstance(b, Reg) else constant(b, a.type)
        if a.lanes == b.lanes == 1 and a.number is not None and b.number is not None:
            return constant(int(a.number) * int(b.number), a.type)
        return a if b.number == 1 else b if a.number == 1 else self.binary("mul", a, b)

    def least(self, a: Reg, b: Reg) -> Reg:
        """The smaller of two signed integers."""
        return self.intrinsic("smin", [a, b])

    # ---- lanes -----------------------------------------------------------------------------------------------------

    def lanes_from(self, start: Reg, step: int) -> Reg:
        """start, start + step, ..."""
        steps = Reg(f"<{', '.join(f'i64 {k * step}' for k in range(self.width))}>", "i64", self.width)
        return self.binary("add", self.splat(start, self.width), steps)

    def across(self, x: Reg, join: Callable[[Reg, Reg], Reg]) -> Reg:
        """All lanes joined to one number, half with half."""
        while x.lanes > 2:
            half = x.lanes // 2
            low, high = (", ".join(f"i32 {k}" for k in range(s, s + half)) for s in (0, half))
            shuffle = f"shufflevector {x.typed}, {x.full} poison, <{half} x i32>"
            x = join(*(self.made(f"{shuffle} <{places}>", x.type, half) for places in (low, high)))
        return x if x.lanes == 1 else join(*(self.lane_of(x, k) for k in (0, 1)))

    def lane_of(self, x: Reg, k: int) -> Reg:
        """One lane of a vector."""
        return self.made(f"extractelement {x.typed}, i64 {k}", x.type)

    def any(self, mask: Reg) -> Reg:
        """Whether a lane of a mask is set."""
        return self.made(f"call i1 @llvm.vector.reduce.or({mask.typed})", "i1")


class Body(Ops):
    """The instructions of a function, in order."""

    def __init__(self, function: Function, lanes: int) -> None:
        super().__init__(function, lanes)
        self.text: list[str] = []

    def put(self, line: str) -> None:
        self.text.append(line)


def register(dtype: DType) -> str:
    """Type of a lane that holds elements of a dtype."""
    return TYPES["bool" if dtype is BOOL else dtype.compute]


__all__ = [
    "Body",
    "Callee",
    "Function",
    "Ops",
    "Reg",
    "bits",
    "bytes_of",
    "constant",
    "filled",
    "integer",
    "is_kind",
    "register",
    "vector",
]
