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

from ...expr import BOOL, DType

TYPES = {
    "f64": "double", "f32": "float", "f16": "half", "i64": "i64", "i32": "i32", "i16": "i16", "i8": "i8",
    "u64": "i64", "u32": "i32", "u16": "i16", "u8": "i8", "bool": "i1",
}  # fmt: skip
_BITS = {"double": 64, "float": 32, "half": 16, "i64": 64, "i32": 32, "i16": 16, "i8": 8, "i1": 1, "ptr": 64}
_CODES = {"double": "f64", "float": "f32", "half": "f16"}


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


def integer(value: int) -> Reg:
    """A number of index arithmetic."""
    return constant(value, "i64")


@dataclass
class Function:
    """What the blocks of one function share.

    Attributes:
        slots: variables on the stack, at its start; LLVM makes registers of them.
        declarations: the functions that it calls.
    """

    slots: list[str] = field(default_factory=list)
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
            return Reg(f"<{', '.join([f'{x.type} {x}'] * lanes)}>", x.type, lanes)
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
        """One of two registers, lane by lane where the condition is wide."""
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

    def intrinsic(self, name: str, xs: Sequence[Reg], more: str = "", result: str = "") -> Reg:
        """A call of LLVM's own function of some registers of one type."""
        xs = self.alike(*xs)
        code = _CODES.get(xs[0].type, xs[0].type)
        kind = result or xs[0].type
        suffix = f"v{xs[0].lanes}{code}" if xs[0].lanes > 1 else code
        if result:
            own = _CODES.get(result, result)
            suffix = f"{f'v{xs[0].lanes}{own}' if xs[0].lanes > 1 else own}.{suffix}"
        return self.call(f"llvm.{name}.{suffix}", [x.typed for x in xs] + ([more] if more else []), kind, xs[0].lanes)

    def call(self, name: str, typed: Sequence[str], kind: str, lanes: int = 1) -> Reg:
        """A call of a function, which is declared."""
        full = vector(kind, lanes)
        types = ", ".join(t[: t.index(">") + 1] if t.startswith("<") else t.split(" ", 1)[0] for t in typed)
        self.function.declarations[f"declare {full} @{name}({types})"] = None
        return self.made(f"call {full} @{name}({', '.join(typed)})", kind, lanes)

    def each_lane(self, name: str, xs: Sequence[Reg]) -> Reg:
        """A function of numbers, lane by lane."""
        xs = self.alike(*xs)
        kind, lanes = xs[0].type, xs[0].lanes
        if lanes == 1:
            return self.call(name, [x.typed for x in xs], kind)
        out = Reg("poison", kind, lanes)
        for k in range(lanes):
            parts = [self.made(f"extractelement {x.typed}, i64 {k}", kind) for x in xs]
            one = self.call(name, [x.typed for x in parts], kind)
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
        return self.made(f"load {full}, ptr {place}, align {max(1, _BITS[kind] // 8)}", kind, lanes)

    def store(self, place: Reg, x: Reg) -> None:
        self.put(f"  store {x.typed}, ptr {place}, align {max(1, _BITS[x.type] // 8)}")

    def slot(self, kind: str, lanes: int = 1) -> Reg:
        """A variable."""
        name = f"%x{self.function.fresh()}"
        self.function.slots.append(f"  {name} = alloca {vector(kind, lanes)}")
        return Reg(name, kind, lanes)

    def get(self, slot: Reg) -> Reg:
        """What a variable holds."""
        return self.made(f"load {slot.full}, ptr {slot}", slot.type, slot.lanes)

    def set(self, slot: Reg, x: Reg) -> None:
        self.put(f"  store {self.splat(x, slot.lanes).typed}, ptr {slot}")

    # ---- control flow ----------------------------------------------------------------------------------------------

    def label(self) -> str:
        return f"b{self.function.fresh()}"

    @contextmanager
    def loop_while(self, counter: Reg, step: Reg | int, most: Reg) -> Iterator[Reg]:
        """As long as counter <= most; the counter, a variable, moves by a step at the end of each round."""
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
    def loop(self, low: Reg | int, high: Reg | int, step: Reg | int = 1) -> Iterator[Reg]:
        """From low to below high."""
        counter = self.slot("i64")
        self.set(counter, low if isinstance(low, Reg) else integer(low))
        with self.loop_while(counter, step, self.add(high if isinstance(high, Reg) else integer(high), -1)) as now:
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
        return self.select(self.compare("icmp slt", a, b), a, b)

    def most(self, a: Reg, b: Reg) -> Reg:
        """The larger of two signed integers."""
        return self.select(self.compare("icmp sgt", a, b), a, b)

    def quotient(self, a: Reg, b: Reg | int) -> Reg:
        """Of numbers that are not negative."""
        return a if b == 1 else self.binary("udiv", a, b)

    # ---- lanes -----------------------------------------------------------------------------------------------------

    def lanes_from(self, start: Reg, step: int) -> Reg:
        """start, start + step, ..."""
        steps = Reg(f"<{', '.join(f'i64 {k * step}' for k in range(self.width))}>", "i64", self.width)
        return self.binary("add", self.splat(start, self.width), steps)

    def across(self, x: Reg, join: Callable[[Reg, Reg], Reg]) -> Reg:
        """All lanes joined to one number."""
        lanes = x.lanes
        while x.lanes > 1:
            half = x.lanes // 2
            low, high = (", ".join(f"i32 {k}" for k in range(s, s + half)) for s in (0, half))
            parts = [
                self.made(f"shufflevector {x.typed}, {x.full} poison, <{half} x i32> <{ks}>", x.type, half)
                for ks in (low, high)
            ]
            if half == 1:
                parts = [
                    self.made(f"extractelement {p}, i64 0", x.type) for p in (f"<1 x {x.type}> {q}" for q in parts)
                ]
            x = join(parts[0], parts[1])
        assert lanes
        return x

    def any(self, mask: Reg) -> Reg:
        """Whether a lane of a mask is set."""
        return self.across(mask, lambda a, b: self.binary("or", a, b))


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


__all__ = ["Body", "Function", "Ops", "Reg", "bits", "constant", "integer", "register", "vector"]
