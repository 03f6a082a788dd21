"""The C target: how kernels are spelled for clang and gcc with vector extensions."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ...base.features import Feature, Features
from ...expr import (
    BOOL,
    DTYPES,
    F32,
    I32,
    I64,
    DType,
    Expr,
    acc,
    as_int,
    call,
    const,
    cost,
    locals_of,
    product,
    rebuild,
    substitute,
    walk,
)
from ...expr.affine import contains, split_axis
from ...expr.derived import Derived
from ...expr.formulas import ELEMENTARY
from ...graph import Value
from ...kernels.base import Buffer, Kernel, Store, Total
from ...kernels.moved import Moved
from ...kernels.nest import CHAIN, SHORT_TERM, Accumulator, MapKernel, RowKernel
from ..base import IndexPrinter, Rendered, indented, register, render_kernel
from ..index import CTYPES, bare, behind, literal
from ..statements import INDEX, VALUE
from .base import CpuTarget
from .bf16 import missing_features
from .vector import Block, Names, WholeByte, vector_type, whole_byte
from .vector_functions import functions_of, memory_of, texts_of, types_of

LINE = 64  # bytes that memory brings at once
PAGE = 4096  # bytes
WAY = 1 << 16  # bytes of a core's second cache that share none of its sets, of which each holds eight lines or more
PAST_CACHES = 1 << 24  # bytes of a result that no cache holds until it is read
FAR_BYTES = 1 << 22  # of an operand that no cache of a core holds
NEAR_ROW = 16384  # elements up to which a row and the next are in a near cache together

FEW_TYPES = frozenset({BOOL, F32, I32, I64})
ROW_BESIDE = 256  # elements up to which sixteen rows stay in the nearest cache
PASS_BYTES, ROWS_OF_PASS = 4096, 4  # of sums that lie side by side in the nearest cache; rows that are added at a time
MOST_TURNED = 64  # elements of a row that is turned: those of a vector of rows are 4 kB

_HORIZONTAL = {"add": "hsum", "mul": "hprod", "max": "hmax", "min": "hmin", "or": "hany", "and": "hall"}


@dataclass(frozen=True)
class RowsBeside:
    """The last pass over rows of which several are reduced before.

    Attributes:
        results: names of what a row is reduced to, as far as it is needed.
        operands: those of them that functions take.
        functions: what is computed from these for several rows at a time, by name.
        elements: the stores, in which these names stand for the functions.
    """

    results: tuple[str, ...]
    operands: tuple[str, ...]
    functions: Mapping[str, Expr]
    elements: tuple[Store, ...]


@dataclass(frozen=True)
class Pass:
    """A pass over rows whose sums lie side by side.

    Attributes:
        vectors: what it serves, or the most.
        rows: how many are added at a time, and then of those that are left.
        registers: whether as many sums are in registers.
    """

    vectors: int
    rows: tuple[int, ...] = (1,)
    registers: bool = False


class Printer(IndexPrinter):
    """What a template of C asks for the text of a kernel's expressions.

    Args:
        kernel: the kernel that is rendered.
        lanes: lanes of a vector.
    """

    chain = CHAIN

    def __init__(self, kernel: Kernel, lanes: int) -> None:
        super().__init__(kernel)
        self.lanes = lanes
        self.streams: set[int] = set()  # buffers of results that are stored past the caches
        self._named: dict[tuple[Expr, str], str] = {}  # what has names ahead of loops

    @property
    def called_functions(self) -> str:
        """The functions that the kernel calls and that are formulas, and what reads and writes its types of storage."""
        exprs = self.kernel.expressions()
        loaded = {e.data for e in walk(*exprs) if e.op == "load"}
        stored = [(k, b) for k, b in enumerate(self.kernel.buffers) if b.dtype.is_storage]
        read = dict.fromkeys(b.dtype for k, b in stored if k in loaded or not b.written)
        written = dict.fromkeys(b.dtype for _, b in stored if b.written)
        return texts_of(functions_of(exprs, self.low), self.lanes, read, written)

    @property
    def has_few_types(self) -> bool:
        """Whether f32, i32, i64 and truth values are all that the kernel computes with.

        Compilers then read a shorter prelude (`T_FEW_TYPES` of t_vec.h).
        """
        exprs = self.kernel.expressions()
        nodes = set(walk(*exprs))
        types = {b.dtype for b in self.kernel.buffers} | {e.dtype for e in nodes}
        remainders = any(e.dtype is F32 and e.op in ("mod", "fmod", "floordiv") for e in nodes)  # which use f64
        return (
            types <= FEW_TYPES and not remainders and types_of(functions_of(exprs, self.low), self.lanes) <= FEW_TYPES
        )

    def memory(self, dtype: DType) -> str:
        """The name of the type that elements are in memory."""
        return memory_of(dtype)

    def decoded(self, text: str, dtype: DType) -> str:
        """Elements in registers as they are in memory, as numbers."""
        return f"t_decode_{dtype.name}({text})" if dtype.is_storage or dtype is BOOL else text

    @cached_property
    def low(self) -> frozenset[Expr]:
        """Values less their largest, as in softmax."""
        stages = self.kernel.stages if isinstance(self.kernel, RowKernel) else ()
        maxima = [a for s in stages for a in s.accumulators if a.combine == "max" and a.result.op == "acc"]
        return frozenset(
            call("sub", a.term, acc(f"x{a.name}", a.result.dtype)) for a in maxima if a.term.dtype.is_float
        )

    def sizes_in(self, place: str) -> None:
        """Write sizes as members of what ``place`` points to, as helper functions do."""
        self.dim_names.place = f"{place}->"

    def pointer(self, k: int, arguments: str = "buf") -> str:
        """Declaration of argument k."""
        b = self.kernel.buffers[k]
        return f"{'' if b.written else 'const '}{CTYPES[b.dtype.name]} *b{k} = {arguments}[{k}];"

    def pointers(self) -> list[str]:
        return [self.pointer(k) for k in range(len(self.kernel.buffers))]

    def type(self, dtype: DType) -> str:
        return vector_type(dtype)

    def block(
        self,
        stores: Iterable[Store],
        lane: Expr | None,
        count: str | None = None,
        accs: Mapping[str, str] | None = None,
        indent: int = 8,
        lanes: int | None = None,
    ) -> str:
        """Statements of stores over one block of lanes (a partial one with `count` valid lanes)."""
        block = self._block(lane, count, accs, lanes)
        stores = [self._drop_rounding(s) for s in stores]
        block.expect(*(s.value for s in stores), places=[s.offset for s in stores])
        # All values come first: a result may lie where another store's operand lies.
        values = [block.hold(s.value) if len(stores) > 1 else block.emit(s.value) for s in stores]
        for s, value in zip(stores, values, strict=True):
            block.store(s, value, past_caches=s.buffer in self.streams)
        return indented(block.lines, indent)

    def joined_bytes(self, stores: Sequence[Store], lane: Expr) -> WholeByte | None:
        """The bytes that a map stores where those of four vectors are better packed together, as of AVX2."""
        s = stores[0]
        if (
            len(stores) > 1
            or isinstance(s, Total)
            or self.lanes != 8
            or not self.at_least(lane.args[0], 4 * self.lanes)
        ):
            return None
        return whole_byte(s.value) if self._block(lane, None, None).moves(s.offset) else None

    def stream_results(self) -> None:
        """Store results that no cache holds past the caches; the template then ends with ``T_STREAMED``.

        A map's result that may take the place of what it reads is stored where its lines are in the caches already.
        """
        replaced = {_bytes(b) for b in self.kernel.buffers if b.last and isinstance(self.kernel, MapKernel)}
        written = [(k, _bytes(b)) for k, b in enumerate(self.kernel.buffers) if b.written]
        self.streams = {k for k, size in written if size >= PAST_CACHES and size not in replaced}

    def far_loads(self, stores: Sequence[Store], lane: Expr, along: Expr) -> list[Expr]:
        """What stores read from far away, at places that move with the lanes and along an axis."""
        block, found = self._block(lane, None, None), list[Expr]()
        for e in walk(*(s.value for s in stores)):
            moves = e.op == "load" and contains(e.args[0], along) and block.moves(e.args[0])
            if moves and isinstance(e.data, int) and _bytes(self.kernel.buffers[e.data]) >= FAR_BYTES:
                found.append(e)
        return found

    def fetch(self, loads: Sequence[Expr], lane: Expr, indent: int) -> str:
        """Statements of a helper function that ask for what loads read, before it is needed."""
        block = self._block(lane, None, None)
        for e in loads:
            assert isinstance(e.data, int)
            kind = CTYPES[self.kernel.buffers[e.data].dtype.name]
            block.lines.append(f"T_FETCH((const {kind} *)c->buf[{e.data}], {block.index(e.args[0])});")
        return indented(block.lines, indent)

    def fetch_results(self, stores: Sequence[Store], lane: Expr, indent: int) -> str:
        """Statements that ask for the lines that stores of whole lines write, before their values are known."""
        block = self._block(lane, None, None)
        for s in stores:
            if self.lanes * self.kernel.buffers[s.buffer].dtype.size >= LINE:
                block.lines.append(f"T_FETCH_OUT(b{s.buffer}, {block.index(s.offset)});")
        return indented(block.lines, indent)

    def fetch_row(self, stores: Sequence[Store], lane: Expr, row: Expr, columns: int, indent: int) -> str:
        """Statements of a helper function that ask for the lines of some columns of a row before stores need them.

        These are lines of floats that are written, and of far operands that are read: to ask for narrower results,
        or for operands that caches hold, took longer than it saved.
        """
        block = self._block(lane, None, None)

        def ask(how: str, buffer: int, offset: Expr) -> None:
            dtype, place = self.kernel.buffers[buffer].dtype, block.index(offset)
            for at in range(0, columns, LINE // dtype.size):
                name = f"({'const ' if how == 'T_FETCH' else ''}{CTYPES[dtype.name]} *)c->buf[{buffer}]"
                block.lines.append(f"{how}({name}, {place}{f' + {at}' if at else ''});")

        for s in stores:
            if self.lanes * self.kernel.buffers[s.buffer].dtype.size >= LINE:
                ask("T_FETCH_OUT", s.buffer, s.offset)
        for e in self.far_loads(stores, lane, row):
            assert isinstance(e.data, int)
            ask("T_FETCH", e.data, e.args[0])
        return indented(block.lines, indent)

    def fetch_moved(self, reads: Sequence[Moved], lane: Expr, inner: Expr, columns: int, indent: int) -> str:
        """Statements that ask for lines of elements of four bytes that squares read next, two lines ahead.

        A processor looks ahead within few pages. Lines of others are asked for where the caches hold them till
        they are read: at strides of powers of two they share sets of these.
        """
        block, width = self._block(inner, None, None), as_int(lane.args[0])
        for r in reads:
            at, buffer = r.load.args[0], self.kernel.buffers[r.buffer]
            stride = _step(at, lane) * buffer.dtype.size
            held = 8 * (WAY // math.gcd(stride, WAY))
            is_held = width is not None and 3 * min(width, columns) <= held
            if stride >= PAGE and is_held and buffer.dtype.size == 4 and _bytes(buffer) >= FAR_BYTES:
                block.lines.append(f"T_FETCH(b{r.buffer}, {block.index(at)});")
        return indented(block.lines, indent)

    def ahead_of(self, stores: Sequence[Store], inner: Sequence[Expr]) -> str:
        """Statements that divide places by sizes and do not move along some axes, to stand ahead of these loops.

        Compilers leave divisions of integers in loops, as they would trap where a loop is not entered.
        """
        block = self._block(None, None, None, prefix=f"u{len(self._named)}_")
        divides = Derived(_divides)
        found: dict[Expr, str] = {}
        pending, seen = [e for s in stores for e in (s.value, s.offset)], set[Expr]()
        while pending:
            x = pending.pop()
            if x in seen or not divides(x):
                continue
            seen.add(x)
            is_place = x.dtype is I64 and block.is_index(x)
            if (is_place or x.dtype.is_float) and _is_still(x, inner):
                found[x] = INDEX if is_place else VALUE
            else:
                pending.extend(x.args if x.op != "axis" else ())
        block.expect(*found, *found)  # each is to have a name
        for x, variant in found.items():
            kind = "int64_t" if variant == INDEX else vector_type(x.dtype)
            text = block.emit(x, variant)
            self._named[x, variant] = text if text.isidentifier() else block.declare(kind, bare(x, text))
        return "".join(f"{line}\n" for line in block.lines)

    def accumulate(
        self, stage: Any, lane: Expr | None, count: str | None, accs: Mapping[str, str], indent: int, suffix: str = ""
    ) -> str:
        """Statements that add one block to the accumulators of a stage, and keep what later stages need."""
        block = self._block(lane, count, accs)
        block.expect(*(a.term for a in stage.accumulators), *(k.value for k in stage.keeps))
        for keep in stage.keeps:
            position = self.row_position()
            value = block.emit(keep.value)
            extra = f", {count}" if count else ""
            to = behind(f"row{keep.slot}", position)
            block.lines.append(f"t_store{'n' if count else ''}_f32({to}, {value}{extra});")
        for a in stage.accumulators:
            term = block.emit(a.term)
            name = f"a{a.name}{suffix}"
            # Along parallel axes the lanes left over are not stored; to mask them would round unlike other blocks.
            if count and lane is not None and self.kernel.across:  # type: ignore[attr-defined]
                term = f"t_select_{a.term.dtype.compute}(t_first_bool({count}), {term}, {self.identity(a)})"
            block.lines.append(f"{name} = {self.join(a, name, term)};")
        return indented(block.lines, indent)

    def ahead(self, stage: Any, lane: Expr, part: int, indent: int) -> str:
        """Statements that ask for lines of memory before they are used, in the last stage, which computes meanwhile.

        They are those that the row's last pass stores to, and those that the next row's first stage reads. A row's only
        stage waits for memory itself, and would wait longer.

        Args:
            part: number of the block among those that are written out; of several on one line, one asks.
        """
        k = self.kernel
        assert isinstance(k, RowKernel)
        length = as_int(product([r.args[0] for r in k.reduce]))
        if stage is k.stages[0] or stage is not k.stages[-1] or length is None or length > NEAR_ROW:
            return ""
        row = k.axes[-1]
        wanted = {(s.buffer, s.offset): "T_FETCH_OUT" for s in k.element}
        for e in walk(*(a.term for a in k.stages[0].accumulators)):
            if e.op == "load" and isinstance(e.data, int) and contains(e.args[0], row):
                wanted[e.data, substitute(e.args[0], {row: row + 1})] = "T_FETCH"
        block = self._block(lane, None, None)
        for (buffer, offset), word in wanted.items():
            if block.moves(offset) and part * self.lanes * k.buffers[buffer].dtype.size % LINE == 0:
                block.lines.append(f"{word}(b{buffer}, {block.index(offset)});")
        return indented(block.lines, indent)

    @cached_property
    def beside_each_other(self) -> Pass | None:
        """What a pass over long rows serves, whose sums lie side by side; None where it serves a vector.

        What lies far apart in memory comes slowly, so that a pass reads as much of each row as it can: all of it where
        sums take up to half of the registers, else as much as has sums in a part of the nearest cache.
        """
        k = self.kernel
        assert isinstance(k, RowKernel)
        lane, row = k.axes[-1], k.reduce[-1]
        if not k.several or not self.at_least(lane.args[0], 2 * self.lanes):
            return None
        (stage,) = k.stages
        size = sum(I32.size if a.term.dtype is BOOL else DTYPES[a.term.dtype.compute].size for a in stage.accumulators)
        width = as_int(lane.args[0])
        most = max(4, (16 if self.lanes == 16 else 8) * 4 // size)
        if width is not None and width // self.lanes <= most and width <= k.chunk:
            return Pass(width // self.lanes, registers=True)
        extent = as_int(row.args[0])
        ends_within = extent is None or extent % ROWS_OF_PASS > 0
        rows = (ROWS_OF_PASS, 1) if ends_within else (ROWS_OF_PASS,)
        if ends_within and len(k.reduce) > 1 and k.sums_of_sums(stage):
            rows = (1,)  # others would miss the end of a chain
        return Pass(max(2, PASS_BYTES // (size * self.lanes)), rows)

    def overlaps(self, lane: Expr) -> bool:
        """Whether the last block along a parallel axis starts early enough to be a whole one.

        It then computes some points twice. So one task has all of a row: others would store to the same places. Nor may
        stores take the place of what is read there.
        """
        k = self.kernel
        size = as_int(lane.args[0])
        return (
            isinstance(k, RowKernel) and not k.across and lane is k.axes[-1]
            and not any(e.op == "load" and e.args[0] is s.offset for s in k.row for e in walk(s.value))
            and size is not None and self.lanes < size <= k.chunk and size % self.lanes > 0
            and not (k.several and size >= 4 * self.lanes) and not self.turned
        )  # fmt: skip

    @cached_property
    def beside(self) -> RowsBeside | None:
        """How rows are computed several at a time; None where each is by itself.

        A function such as log of a row's sum takes as long as of a whole vector of sums, which counts in short rows.
        """
        k = self.kernel
        assert isinstance(k, RowKernel)
        length = as_int(product([r.args[0] for r in k.reduce]))
        if self.lanes == 1 or not k.across or k.kept or k.row or length is None or length > ROW_BESIDE:
            return None
        functions, pending = dict[Expr, Expr](), [s.value for s in k.element]
        while pending:
            x = pending.pop()
            parts = locals_of(x)
            calls = not ELEMENTARY.isdisjoint(functions_of([x]))
            if parts and all(a.op == "acc" and a.dtype is F32 for a in parts) and calls:
                functions.setdefault(x, acc(f"f{len(functions)}", F32))
            else:
                pending.extend(x.args if x.op != "load" else ())
        elements = [Store(s.buffer, s.offset, rebuild(s.value, functions.get)) for s in k.element]
        operands = {a for x in functions for a in locals_of(x)}
        results = operands | {a for s in elements for a in locals_of(s.value) if a.op == "acc"} - {*functions.values()}
        if not functions or any(x.dtype is not F32 for x in (*functions, *results)):
            return None
        return RowsBeside(
            tuple(sorted(str(a.data) for a in results)),
            tuple(sorted(str(a.data) for a in operands)),
            {str(f.data): x for x, f in functions.items()},
            tuple(elements),
        )

    @property
    def together(self) -> bool:
        """Whether neighbouring rows, as many as a vector has lanes, are reduced at once, to sums or extremes.

        Joining the lanes of a sum takes as long as the sum of a short row; those of several are joined with fewer
        shuffles, and what the rows share is read once.
        """
        k = self.kernel
        assert isinstance(k, RowKernel)
        lengths = [as_int(product([r.args[0] for r in k.reduce])), as_int(k.axes[-1].args[0])]
        if self.lanes == 1 or not k.across or k.element or len(k.stages) > 1 or len(k.stages[0].accumulators) > 1:
            return False
        (total,) = k.stages[0].accumulators
        if total.how not in ("add", "max", "min") or total.term.dtype is not F32 or cost(total.term) > SHORT_TERM:
            return False
        length, beside = lengths
        return length is not None and length <= ROW_BESIDE and (beside is None or beside >= self.lanes)

    @property
    def met_again(self) -> bool:
        """Whether rows that are reduced together hold what each of the outer points reads again, as of distances of all
        rows from all: points then follow each other while the rows are in the nearest cache."""
        k = self.kernel
        assert isinstance(k, RowKernel)
        *outer, beside = k.axes
        places = [e.args[0] for e in walk(*(a.term for s in k.stages for a in s.accumulators)) if e.op == "load"]
        return any(contains(at, beside) and not any(contains(at, a) for a in outer) for at in places) and bool(outer)

    @cached_property
    def turned(self) -> bool:
        """Whether vectors run over neighbouring rows while these are reduced, and along each row after that.

        What such rows read lies side by side from row to row and far apart along them: the sums of a convolution's
        weight gradients are [part][taps][channels], and the weights [channels][taps].
        """
        k = self.kernel
        assert isinstance(k, RowKernel)
        if self.lanes == 1 or k.across or k.element or len(k.stages) > 1 or len(k.axes) < 2:
            return False
        (stage,), (*_, beside, lane) = k.stages, k.axes
        width, terms = as_int(lane.args[0]), [a.term for a in stage.accumulators]
        if width is None or width > min(k.chunk, MOST_TURNED) or k.sums_of_sums(stage):
            return False
        if any(t.dtype is not F32 or cost(t) > SHORT_TERM for t in terms):
            return False
        places = [e.args[0] for e in walk(*terms) if e.op == "load"]
        return bool(places) and all(_step(p, beside) == 1 and _step(p, lane) >= self.lanes for p in places)

    def row_position(self) -> str:
        """Position in a scratch row at the first lane of the block."""
        position = const(0)
        for r in self.kernel.reduce:  # type: ignore[attr-defined]
            position = position * r.args[0] + r
        return self.scalar(position)

    def identity(self, a: Accumulator) -> str:
        """The vector that an accumulation starts from."""
        return f"t_splat_{a.term.dtype.compute}({literal(a.start, a.term.dtype)})"

    def join_lanes(self, a: Accumulator) -> str:
        """All lanes of an accumulator joined, in every lane."""
        compute = a.term.dtype.compute
        return f"t_splat_{compute}(t_{_HORIZONTAL[a.how]}_{compute}(a{a.name}))"

    def value(
        self, e: Expr, accs: Mapping[str, str], lane: Expr | None, name: str, indent: int, count: str | None = None
    ) -> str:
        """Statements that define vector `name` as an expression."""
        block = self._block(lane, count, accs, prefix=f"{name}_")
        block.expect(e)
        text = block.emit(e)
        block.lines.append(f"const {vector_type(e.dtype)} {name} = {text};")
        return indented(block.lines, indent)

    def _drop_rounding(self, s: Store) -> Store:
        """A store without the rounding to its element type that comes before, since storing rounds."""
        rounds = s.value.op == f"as_{self.kernel.buffers[s.buffer].dtype.name}"
        return Store(s.buffer, s.offset, s.value.args[0]) if rounds else s

    def _block(
        self,
        lane: Expr | None,
        count: str | None,
        accs: Mapping[str, str] | None,
        lanes: int | None = None,
        prefix: str = "v",
    ) -> Block:
        names = Names(self._axes, self.dim_names, self.kernel.buffers, accs or {}, self.low)
        aligned = lane is None or not self.overlaps(lane)
        block = Block(names, lane, lanes or self.lanes, count, prefix, aligned)
        block.frames[0].known |= self._named
        return block


def _bytes(buffer: Buffer) -> int:
    """Bytes of a value that is an argument; 0 of what only a run knows, and of what is no value."""
    return as_int(buffer.operand.type.nbytes) or 0 if isinstance(buffer.operand, Value) else 0


def _step(place: Expr, along: Expr) -> int:
    """How far a place moves with an axis; one that only a run knows is far, and one that is not steady is none."""
    parts = split_axis(place, along)
    if parts is None:
        return 0
    known = as_int(parts[0])
    return LINE if known is None else known


def _divides(e: Expr, args: Sequence[bool]) -> bool:
    """Whether an expression holds a division of places by a size that only a run knows."""
    return any(args) or (e.op in ("floordiv", "mod") and e.dtype is I64 and as_int(e.args[1]) is None)


def _is_still(e: Expr, inner: Sequence[Expr]) -> bool:
    """Whether an expression is of axes alone, and of none of these."""
    parts = locals_of(e)
    return all(a.op == "axis" for a in parts) and parts.isdisjoint(inner)


@register
class CTarget(CpuTarget):
    """C with the vector extensions of clang and gcc, one template for every width."""

    name = "c"
    title = "C for this processor"
    features = frozenset({
        Feature.ATTENTION, Feature.BF16_CONVOLUTIONS, Feature.BF16_PRODUCTS, Feature.BF16_TILES,
        Feature.BF16_WEIGHTS, Feature.BYTE_PRODUCTS, Feature.CONVOLUTION_WEIGHTS, Feature.NARROW_WEIGHTS, Feature.RANKS,
        Feature.TOTALS,
    })  # fmt: skip
    options = CpuTarget.options | {"isa", "named_weights", "scheduler", "train", "weights_dtype", "tuning_records"}
    tunable = True
    shared_rows = True

    @classmethod
    def features_on(cls, archs: Sequence[str], extras: Sequence[str] = ()) -> Features:
        return cls.features - missing_features(extras)

    def render(self, kernel: Kernel) -> Rendered:
        lanes = self.machine.lanes
        return render_kernel(("c",), kernel.template, Printer(kernel, lanes), str(lanes), self.machine.version, L=lanes)
