"""Kernels as WGSL: the statements of one thread, and the printer that templates ask for them.

WGSL has i32, u32, f32 and bool. Elements lie in memory as on other targets: those of fewer than 32 bits are packed in
words, those of 64-bit integers are two words, low first, and functions of the prelude compute with them. Index
arithmetic is i32; what bounds do not keep within it is computed in two words.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ....expr import BOOL, F32, I32, I64, SYMBOLS, U32, DType, Expr, as_int
from ....expr.bounds import fits
from ....expr.derived import Derived
from ....kernels.base import Kernel, Store
from ....kernels.heavy import Strided
from ....kernels.nest import Accumulator
from ...base import indented
from ...index import FORMS, leaf
from ...statements import INDEX, VALUE, Frame, Text
from ..base import GridPrinter, Words
from ..simt import Names, Statements
from .words import RING, WORDS, Needs, apply, constant, operator, register_type, spell_index, wrap


def _array(sizes: Sequence[int], element: str) -> str:
    """The type of an array."""
    return f"array<{_array(sizes[1:], element)}, {sizes[0]}>" if sizes else element


class WgslStatements(Statements):
    """Statements of one thread in WGSL.

    Args:
        names: names of what the expressions hold.
        needs: gets the functions of the prelude that they call.
        shared: for each buffer, the one whose binding it is.
    """

    lazy = False

    def __init__(self, names: Names, needs: Needs, shared: Sequence[int], prefix: str = "v") -> None:
        super().__init__(names, prefix, None)
        self.needs, self.shared = needs, shared
        self._small: Derived[bool] = Derived(
            lambda e, args: (e.dtype is not I64 or fits(e, I32)) and e.op != "load" and all(args)
        )
        self._of_shapes: Derived[bool] = Derived(
            lambda e, args: e.op not in ("load", "acc") and (e.op == "dim" or e.op not in SYMBOLS) and all(args)
        )
        self.trusted = False  # whether a place in memory is spelled: what shapes alone decide of it fits 32 bits
        self.inline = False  # whether a text is asked for that needs no statements

    # ---- words --------------------------------------------------------------------------------------------------

    def type_of(self, dtype: DType) -> str:
        return register_type(dtype)

    def index_type(self, dtype: DType) -> str:
        return "bool" if dtype is BOOL else "i32"

    def declare(self, kind: str, text: str) -> str:
        name = self.fresh()
        self.lines.append(f"let {name} = {text};")
        return name

    def finish(self, e: Expr, text: str) -> str:
        return f"({text})" if self.inline else super().finish(e, text)

    def variable(self, kind: str, name: str) -> str:
        return f"var {name}: {kind};"

    def conditional(self, test: str, x: str, y: str) -> str:
        return f"select({y}, {x}, {test})"

    # ---- indices ------------------------------------------------------------------------------------------------

    def spell_index(self, e: Expr, inner: Sequence[str], variant: str) -> str:
        return spell_index(e, inner, self.needs)

    def in_index(self, e: Expr) -> bool:
        if e.dtype not in (I64, BOOL) or e.op not in FORMS or any(a.dtype not in (I64, BOOL) for a in e.args):
            return False
        if e.op in RING or (e.op == "select" and e.dtype is I64):
            return True  # right in the low 32 bits, whatever the others are
        return all(self._is_small(a) for a in e.args)

    def _is_small(self, e: Expr) -> bool:
        """Whether 32 bits hold an operand and what it is computed from."""
        return e.dtype is not I64 or self._small(e) or (self.trusted and self._of_shapes(e))

    def _index(self, e: Expr, variant: str) -> Text:
        if e.op == "const":
            number = e.data if e.dtype is BOOL else (int(e.data) + 2**31) % 2**32 - 2**31  # type: ignore[call-overload]
            return constant(number, BOOL if e.dtype is BOOL else I32, self.needs)
        known = leaf(e, self.axes(variant), self.dims)
        if known is None and (e.op == "load" or not self.in_index(e)):
            text = yield e, VALUE
            return text if e.dtype is BOOL else f"bitcast<i32>({text}.x)"
        return (yield from super()._index(e, variant))

    def _index_choice(self, e: Expr, variant: str) -> Text:
        test = yield e.args[0], variant
        sides = []
        for a, scope in zip(e.args[1:], self.sides(e), strict=True):
            with self.inside(Frame(scope)) as frame:
                sides.append((frame, (yield a, variant)))
        return self.choose(self.index_type(e.dtype), test, sides)

    def offset(self, e: Expr) -> str:
        """An offset into memory as i32."""
        was, self.trusted = self.trusted, True
        text = self.emit(e, INDEX)
        self.trusted = was
        return text

    # ---- values -------------------------------------------------------------------------------------------------

    def spell_value(self, e: Expr) -> Text:
        if e in self.dims or e.op in SYMBOLS or e.op == "axis":
            text = leaf(e, self.names.axes, self.dims)
            assert text is not None
            return self.needs("t_i64_i32", text)
        if e.op == "const":
            return constant(e.data, e.dtype, self.needs)
        if e.op == "acc":
            return self.names.accs[str(e.data)]
        if e.op == "load":
            return (yield from self._load(e))
        if e.op == "select":
            return (yield from self._select(e))
        if self.is_index(e) and self.in_index(e) and self._small(e):
            text = yield e, INDEX
            return text if e.dtype is BOOL else self.needs("t_i64_i32", text)
        args = []
        for a in e.args:
            args.append((yield a, VALUE))
        return operator(e, args, self.needs)

    def under(self, e: Expr, variant: str, scope: Any) -> Text:
        test = yield scope.condition, INDEX
        with self.inside(Frame(scope)) as frame:
            text = yield e, variant
        name, kind = self.fresh(), self.type_of(e.dtype) if variant == VALUE else self.index_type(e.dtype)
        self.lines.extend([self.variable(kind, name), f"if ({test}) {{", *frame.lines, f"{name} = {text};", "}"])
        return name

    # ---- memory -------------------------------------------------------------------------------------------------

    def _load(self, e: Expr) -> Text:
        number = int(e.data)  # type: ignore[call-overload]
        was, self.trusted = self.trusted, True
        place = yield e.args[0], INDEX
        self.trusted = was
        if self.names.buffers[number].dtype.name not in WORDS and not place.isidentifier():
            place = self.declare("i32", place)
        return self.element(number, place)

    def element(self, number: int, place: str) -> str:
        """An element of a buffer as a register."""
        buffer = self.names.buffers[number]
        if buffer.dtype.name in WORDS:
            return self._word(number, place)
        each = 4 // buffer.dtype.size
        word = self._word(number, f"{place} / {each}")
        if any(b.written and self.shared[k] == self.shared[number] for k, b in enumerate(self.names.buffers)):
            word = f"atomicLoad(&{word})"
        return self._unpack(word, place, buffer.dtype)

    def _word(self, number: int, place: str) -> str:
        """What lies in memory, of an operand in parts by a function."""
        name = f"b{self.shared[number]}"
        return f"{name}_at({place})" if self.names.buffers[number].length else f"{name}[{place}]"

    def _unpack(self, word: str, place: str, dtype: DType) -> str:
        """An element in a word of memory as a register."""
        bits = self.needs(f"t_get_{8 * dtype.size}", word, place)
        if dtype is BOOL:
            return f"({bits} != 0u)"
        return bits if dtype.name in ("u8", "u16") else self.needs(f"t_decode_{dtype.name}", bits)

    def store(self, s: Store, value: str) -> None:
        dtype = self.names.buffers[s.buffer].dtype
        place, name = self.offset(s.offset), f"b{self.shared[s.buffer]}"
        if dtype.name in WORDS:
            self.lines.append(f"{name}[{place}] = {value};")
            return
        if not place.isidentifier():
            place = self.declare("i32", place)
        if dtype.is_storage:
            bits = self.needs(f"t_encode_{dtype.name}", value)
        else:
            bits = f"u32({value})" if dtype is BOOL else f"bitcast<u32>({value})" if dtype.kind == "i" else value
        size = 8 * dtype.size
        bits = self.declare("u32", f"({bits}) & {2**size - 1}u")
        shift = self.declare("u32", f"(u32({place}) % {4 // dtype.size}u) * {size}u")
        # Elements of one word have writers of their own, each of which changes its bits alone.
        self.lines.append(f"atomicAnd(&{name}[{place} / {4 // dtype.size}], ~({2**size - 1}u << {shift}));")
        self.lines.append(f"atomicOr(&{name}[{place} / {4 // dtype.size}], {bits} << {shift});")


class WgslPrinter(GridPrinter):
    """What templates ask for the text of a kernel in WGSL."""

    let, var = "let", "var"

    def __init__(self, kernel: Kernel, words: Words) -> None:
        super().__init__(kernel, words)
        self.needs = Needs()
        self.arrays: dict[str, str] = {}  # those that the block shares, and their types
        first: dict[tuple[object, int], int] = {}
        self.shared = [first.setdefault((b.operand, b.start), k) for k, b in enumerate(kernel.buffers)]

    @property
    def bindings(self) -> list[tuple[int, str, str]]:
        """Number, access and element type of each binding; what is only ever read is so in every dispatch."""
        found = []
        for k, b in enumerate(self.kernel.buffers):
            if self.shared[k] != k:
                continue
            kind = WORDS.get(b.dtype.name, "u32")
            together = [x for j, x in enumerate(self.kernel.buffers) if self.shared[j] == k]
            if kind == "u32" and b.dtype.name != "u32" and any(x.written for x in together):
                kind = "atomic<u32>"
            found.append((k, "read" if b.constant else "read_write", kind))
        return found

    @property
    def cut(self) -> list[tuple[int, str, int, list[int]]]:
        """Of each operand that is bound in parts: its first binding, type and words of a binding, and the others."""
        buffers = self.kernel.buffers
        return [
            (k, kind, b.length * b.dtype.size // (8 if kind == "vec2u" else 4), parts)
            for k, _, kind in self.bindings
            if (b := buffers[k]).length
            and not b.start
            and (parts := [n for n, x in enumerate(buffers) if x.operand is b.operand and x.start])
        ]

    @property
    def has_parameters(self) -> bool:
        """Whether the kernel is given its number of blocks, and sizes."""
        return bool(self.sizes) or as_int(self.kernel.tasks) is None

    @property
    def blocks(self) -> str:
        """Its number of blocks, where a dispatch may have more; else nothing."""
        known = as_int(self.kernel.tasks)
        return "params[0].x" if known is None else str(known) if known > 65535 else ""

    def type(self, dtype: DType) -> str:
        return register_type(dtype)

    def scalar(self, e: Expr | int) -> str:
        """An index or size as text."""
        if isinstance(e, int):
            return str(e)
        s = self._wgsl(None, "z")
        s.trusted = s.inline = True
        return s.emit(e, INDEX)

    def factor(self, axis: Expr) -> str:
        return self.scalar(axis.args[0])

    def condition(self, e: Expr) -> str:
        return self.scalar(e)

    def join(self, a: Accumulator, left: str, right: str) -> str:
        return apply(a.how, a.term.dtype, [left, right], self.needs)

    def identity(self, a: Accumulator) -> str:
        return constant(a.start, a.term.dtype, self.needs)

    def read_early(
        self, stores: Iterable[Store], stages: Iterable[Any], packet: Expr | None = None, size: int = 1
    ) -> str:
        return ""

    def _large(self) -> bool:
        return False  # WGSL counts in 32 bits alone

    def let_to(self, bound: Expr | int) -> str:
        return self.let

    def let_axis(self, axis: Expr) -> str:
        return self.let

    def var_to(self, bound: Expr | int) -> str:
        return self.var

    def var_axis(self, axis: Expr) -> str:
        return self.var

    def lets_to(self, values: Sequence[tuple[str, str, Expr | int]]) -> str:
        return self.lets(**{name: text for name, text, _ in values})

    def lets(self, **values: str) -> str:
        return "\n".join(f"let {name} = {text};" for name, text in values.items())

    ints = lets

    def narrow(self, text: str) -> str:
        return text

    def floats(self, *names: str) -> str:
        return "\n".join(f"var {name} = 0.0f;" for name in names)

    def array(self, name: str, *sizes: int, dtype: DType = F32) -> str:
        return (
            f"var {name} = {_array(sizes, register_type(dtype))}();"  # said, as naga in a loop sets it but once if not
        )

    def shares(self, name: str, *sizes: int) -> str:
        self.arrays[name] = _array(sizes, "f32")  # declared at the end, with the others of the module
        return ""

    def choose(self, test: str, a: str, b: str) -> str:
        return f"select({b}, {a}, {test})"

    def least(self, a: str, b: str) -> str:
        return f"min({a}, {b})"

    def most(self, a: str, b: str) -> str:
        return f"max({a}, {b})"

    def varies(self, dtype: DType) -> str:
        return self.var

    def stays(self, dtype: DType) -> str:
        return self.let

    def join_threads(self, how: str, dtype: DType, text: str) -> str:
        """A value of each thread of the block, which all are at this place, joined in all of them."""
        kind = dtype.compute if dtype.compute in WORDS else register_type(dtype)
        if kind == "bool":
            return f"({self.join_threads({'or': 'max', 'and': 'min'}[how], U32, f'u32({text})')} != 0u)"
        if kind == "f32" and how in ("min", "max"):  # by keys, which have a place for NaN
            return self.needs("t_ordered_f32", self.join_threads(how, U32, self.needs(f"t_order_{how}_f32", text)))
        return wrap(self.needs(f"t_all_{how}_{kind}", text, "tid"), dtype.compute)

    def call(self, name: str, *args: str) -> str:
        """A call of a function of the prelude."""
        return self.needs(name, *args)

    def number(self, e: Expr) -> str:
        """A constant."""
        return constant(e.data, e.dtype, self.needs)

    def element(self, operand: Strided, row: str, column: str) -> str:
        """An element of an operand as a register."""
        along, across = operand.steps
        place = self.plus(operand.start, self.times(row, along), self.times(column, across))
        return self.read(operand.buffer, f"({place})")

    def read(self, buffer: int, place: str) -> str:
        """An element of a buffer as a register, by its place."""
        return self._wgsl(None, "e").element(buffer, place)

    def block(
        self,
        stores: Iterable[Store],
        accs: Mapping[str, str] | None = None,
        packet: Expr | None = None,
        size: int = 1,
        indent: int = 4,
        prefix: str = "v",
        guard: str = "",
    ) -> str:
        s, stores = self._wgsl(accs, prefix), list(stores)
        s.expect(*(x.value for x in stores), places=[x.offset for x in stores])
        values = [s.hold(x.value) if len(stores) > 1 else s.emit(x.value) for x in stores]
        for x, value in zip(stores, values, strict=True):
            s.store(x, value)
            if guard:
                s.lines[-1] = f"if ({guard}) {{ {s.lines[-1]} }}"
        return indented(s.lines, indent)

    def accumulate(
        self,
        stage: Any,
        accs: Mapping[str, str],
        packet: Expr | None = None,
        size: int = 1,
        indent: int = 8,
        each: str = "",
    ) -> str:
        s = self._wgsl(accs, "v")
        s.expect(*(a.term for a in stage.accumulators))
        for a in stage.accumulators:
            term, total = s.emit(a.term), f"a{a.name}{each}"
            s.lines.append(f"{total} = {self.join(a, total, term)};")
        return indented(s.lines, indent)

    def value(self, e: Expr, accs: Mapping[str, str], name: str, indent: int = 4) -> str:
        s = self._wgsl(accs, f"{name}_")
        s.expect(e)
        text = s.emit(e)
        return indented([*s.lines, f"let {name} = {text};"], indent)

    def _wgsl(self, accs: Mapping[str, str] | None, prefix: str) -> WgslStatements:
        names = Names(self._axes, self.dim_names, accs or {}, self.kernel.buffers, {})
        return WgslStatements(names, self.needs, self.shared, prefix)


__all__ = ["WgslPrinter", "WgslStatements"]
