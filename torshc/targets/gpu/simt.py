"""Printing of scalar expressions as statements of one thread, in words that C, CUDA and Metal share.

A block of statements computes one element, or, with a packet axis, the elements of a packet of neighbours along it:
loads and stores that step by one along the axis and stand at a multiple of the packet are then one wide access each.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ...expr import BOOL, DTYPES, I64, DType, Expr, walk
from ...expr.affine import aligned, split_axis
from ...kernels.base import Buffer, Store
from ..index import COMPARE, CTYPES, OPERATORS, STORED, is_index, literal, scalar

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
    """

    axes: Mapping[Expr, str]
    dims: Mapping[Any, str]
    accs: Mapping[str, str]
    buffers: Sequence[Buffer]
    wide: Mapping[Expr, str]


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
            and not any(x.op in ("load", "acc", "floordiv", "mod") for x in walk(parts[1]))
            and aligned(offset, self.axis, self.size)
        )


class Statements:
    """Statements of one thread.

    Args:
        names: names of what the expressions hold.
        prefix: start of the names of temporaries.
        packet: what one thread computes together, or None for one element.
    """

    def __init__(self, names: Names, prefix: str = "v", packet: Packet | None = None) -> None:
        self.names, self.prefix, self.packet = names, prefix, packet
        self.lines: list[str] = []
        self.wide: dict[Expr, str] = {}  # loads of a whole packet, by the array that holds them
        self._memo: list[dict[Expr, str]] = [{}]
        self._uses: dict[Expr, int] = {}
        self._next = 0

    def expect(self, *roots: Expr) -> None:
        """Announce what will be emitted, so that values with one reader are written where they are read."""
        for e in roots:
            self._uses[e] = self._uses.get(e, 0) + (len(roots) > 1)
        for e in walk(*roots):
            for a in e.args if e.op != "axis" else ():
                self._uses[a] = self._uses.get(a, 0) + 1

    def load_packets(self, *roots: Expr) -> None:
        """Read every operand that a packet reads as a whole, before the loop over its elements."""
        if self.packet is None:
            return
        found = (x for x in _unguarded(roots) if x.op == "load" and isinstance(x.data, int))
        for e in dict.fromkeys(x for x in found if self.packet.steps(x.args[0])):
            assert isinstance(e.data, int)
            dtype = self.names.buffers[e.data].dtype
            name = f"p{len(self.wide)}"
            self.lines.append(f"{CTYPES[dtype.name]} {name}[{self.packet.size}];")
            self.lines.append(f"t_read{self.packet.size}({name}, b{e.data} + {self.index(e.args[0])});")
            self.wide[e] = name

    def store(self, s: Store, value: str) -> None:
        """Add the statement that stores a value."""
        dtype = self.names.buffers[s.buffer].dtype
        self.lines.append(f"b{s.buffer}[{self._element(s.offset)}] = {encode(value, dtype)};")

    def emit(self, e: Expr) -> str:
        """Add the statements that compute an expression; returns its text."""
        for scope in reversed(self._memo):
            if e in scope:
                return scope[e]
        text = self._text(e)
        if e.op not in ("const", "acc") and not text.isidentifier():
            once = self._uses.get(e, 2) == 1 and len(text) < INLINE
            text = (f"({text})" if _loose(text) else text) if once else self._declare(e.dtype, text)
        self._memo[-1][e] = text
        return text

    def hold(self, e: Expr) -> str:
        """Like :meth:`emit`, but whatever is loaded for it is loaded now."""
        text = self.emit(e)
        if e.op not in ("const", "acc") and not text.isidentifier():
            text = self._memo[-1][e] = self._declare(e.dtype, text)
        return text

    def index(self, e: Expr) -> str:
        """An index as text, to be added to a pointer or within brackets."""
        text = scalar(e, self.names.axes, self.names.dims, self.names.buffers)
        return text[1:-1] if e.op in ("add", "mul") and e.dtype is I64 else text

    def _element(self, offset: Expr) -> str:
        """An index, or a condition on such, at this packet's element j or at the one element."""
        if not is_index(offset, DTYPES.values()):
            return self.emit(offset)
        if self.packet is None:
            return self.index(offset)
        axes = dict(self.names.axes)
        axes[self.packet.axis] = f"({axes[self.packet.axis]} + {self.packet.element})"
        text = scalar(offset, axes, self.names.dims, self.names.buffers)
        return text[1:-1] if offset.op in ("add", "mul") else text

    def _declare(self, dtype: DType, text: str) -> str:
        name = f"{self.prefix}{self._next}"
        self._next += 1
        self.lines.append(f"const {register_type(dtype)} {name} = {text};")
        return name

    def _text(self, e: Expr) -> str:
        if e.op == "const":
            return constant(e.data, e.dtype)
        if e.op == "acc":
            return self.names.accs[str(e.data)]
        if e.op == "load":
            return self._load(e)
        if e.dtype is I64 and is_index(e):
            return self._position(e)
        if e.op == "select":
            return self._select(e)
        if e.dtype is BOOL and is_index(e):
            return self._element(e)
        args = [self.emit(a) for a in e.args]
        if e.op == "cast":
            return f"t_cast_{e.args[0].dtype.compute}_{e.dtype.compute}({args[0]})"
        if e.op in OPERATORS and e.dtype.is_float:
            return f" {OPERATORS[e.op]} ".join(args)
        if e.op == "neg" and e.dtype.is_float:
            return f"-{args[0]}"
        if e.op in COMPARE and e.args[0].dtype is not BOOL:
            return f"{args[0]} {COMPARE[e.op]} {args[1]}"
        if e.op in ("and", "or"):
            return f" {'&&' if e.op == 'and' else '||'} ".join(args)
        if e.op == "not":
            return f"!{args[0]}"
        if e.op.startswith(STORED):
            return f"t_{e.op}({args[0]})"
        if e.op in ("add", "mul") and len(args) > 2:
            text = args[0]
            for a in args[1:]:
                text = f"t_{e.op}_{e.dtype.compute}({text}, {a})"
            return text
        return f"t_{e.op.removeprefix('bit')}_{e.args[0].dtype.compute}({', '.join(args)})"

    def _position(self, e: Expr) -> str:
        """An index used as a value: its axes are widened, as it may be any number, not only a place in memory."""
        axes = {a: t for a, t in self.names.wide.items() if a in self.names.axes}
        if self.packet is not None and self.packet.axis in axes:
            axes[self.packet.axis] = f"({axes[self.packet.axis]} + {self.packet.element})"
        text = scalar(e, axes, self.names.dims, self.names.buffers)
        return text[1:-1] if e.op in ("add", "mul") else text

    def kept(self, name: str) -> str:
        """The element of a row that is kept in registers, in a loop over ``step``."""
        size = self.packet.size if self.packet else 1
        return f"{name}[{f'step * {size} + ' + self.packet.element if self.packet and size > 1 else 'step'}]"

    def _load(self, e: Expr) -> str:
        if isinstance(e.data, str):
            return self.kept(e.data)
        if e in self.wide:
            number = int(e.data)  # type: ignore[call-overload]
            return decode(
                f"{self.wide[e]}[{self.packet.element if self.packet else 0}]", self.names.buffers[number].dtype
            )
        number = int(e.data)  # type: ignore[call-overload]
        return decode(f"b{number}[{self._element(e.args[0])}]", self.names.buffers[number].dtype)

    def _select(self, e: Expr) -> str:
        condition, a, b = e.args
        test = self.emit(condition)
        guards = any(x.op == "load" and x not in self.wide for x in walk(a, b)) and is_index(condition)
        if not guards:
            return f"{test} ? {self.emit(a)} : {self.emit(b)}"
        sides = []
        for side in (a, b):
            with self._apart() as lines:
                sides.append((self.emit(side), lines))
        (x, first), (y, second) = sides
        if not first and not second:
            return f"{test} ? {x} : {y}"
        name = f"{self.prefix}{self._next}"
        self._next += 1
        self.lines += [f"{register_type(e.dtype)} {name};", f"if ({test}) {{", *first, f"{name} = {x};", "} else {"]
        self.lines += [*second, f"{name} = {y};", "}"]
        return name

    @contextmanager
    def _apart(self) -> Iterator[list[str]]:
        """Statements that are kept apart, with what is computed in them known in them alone."""
        outer, self.lines = self.lines, []
        self._memo.append({})
        try:
            yield self.lines
        finally:
            self._memo.pop()
            self.lines = outer


def constant(value: object, dtype: DType) -> str:
    """A literal: what is no number by its name in the prelude, f64 in decimals, as MSL has no hexadecimal ones."""
    if not dtype.is_float:
        return literal(value, dtype)
    number = float(value)  # type: ignore[arg-type]
    size = "F64" if dtype.name == "f64" else "F32"
    if math.isnan(number):
        return f"T_NAN_{size}"
    if math.isinf(number):
        return f"{'-' if number < 0 else ''}T_INF_{size}"
    return repr(number) if size == "F64" else literal(number, dtype)


def decode(text: str, dtype: DType) -> str:
    """An element in memory as a register."""
    if dtype.is_storage:
        return f"t_decode_{dtype.name}({text})"
    return f"({text} != 0)" if dtype is BOOL else text


def encode(text: str, dtype: DType) -> str:
    """A register as an element in memory."""
    if dtype.is_storage:
        return f"t_encode_{dtype.name}({text})"
    return f"({text}) != 0" if dtype is BOOL else text


def _loose(text: str) -> bool:
    """Whether a text has an operator outside brackets, so that it needs some of its own inside another."""
    depth = 0
    for k, c in enumerate(text):
        depth += (c in "([") - (c in ")]")
        if depth == 0 and (c == " " or (k == 0 and c in "-!")):
            return True
    return False


def _unguarded(roots: Sequence[Expr]) -> Iterator[Expr]:
    """Sub-expressions that are evaluated whatever the data: none below a select that guards an index."""
    pending, seen = list(roots), set[Expr]()
    while pending:
        x = pending.pop()
        if x in seen:
            continue
        seen.add(x)
        yield x
        if x.op == "select" and is_index(x.args[0]):
            continue
        pending.extend(x.args if x.op not in ("load", "axis") else ())
