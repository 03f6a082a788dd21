"""Kernels as functions of LLVM's: what all have in common, and nests, rows and scans, which are little but expressions.

A kernel is ``void k(ptr buf, ptr dim, ptr scratch, i64 begin, i64 end)``, as in C. Full blocks of lanes are vectors;
what is left of a row is computed by the same instructions over one lane.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager

from ....expr import Expr, as_int, const
from ....kernels.base import Kernel, Store
from ....kernels.nest import CHAIN, Accumulator, MapKernel, RowKernel, Stage
from ...base import PLACEHOLDER, IndexPrinter
from ..scan import ScanKernel
from .block import Block, Names
from .functions import definitions
from .ir import Body, Function, Reg, constant, integer, register
from .math import join


class Writer(Body):
    """Writes a kernel.

    Args:
        kernel: the kernel.
        lanes: lanes of a vector.
    """

    def __init__(self, kernel: Kernel, lanes: int) -> None:
        super().__init__(Function(), lanes)
        self.kernel, self.printer = kernel, IndexPrinter(kernel)
        self.buffers = kernel.buffers
        self.axes: dict[Expr, Reg] = {}
        self.rows: dict[str, Reg] = {}
        self.begin, self.end, self.scratch = Reg("%begin", "i64"), Reg("%end", "i64"), Reg("%scratch", "ptr")

    def text_of(self) -> str:
        """The module, once its instructions are written."""
        dims = self.printer.dim_names
        head = []
        for k, d in enumerate(dims.used):
            head += [f"  %d{k} = getelementptr i64, ptr %dim, i64 {k}", f"  %{dims[d]} = load i64, ptr %d{k}, align 8"]
        for k in range(len(self.buffers)):
            head += [f"  %a{k} = getelementptr ptr, ptr %buf, i64 {k}", f"  %p{k} = load ptr, ptr %a{k}, align 8"]
        lines = [
            f"define void @{PLACEHOLDER}(ptr %buf, ptr %dim, ptr %scratch, i64 %begin, i64 %end) {{",
            "entry:",
            *self.function.slots,
            *head,
            *self.text,
            "  ret void",
            "}",
            *definitions(self.function),
        ]
        return "\n".join(lines) + "\n"

    # ---- expressions -----------------------------------------------------------------------------------------------

    def block(self, lane: Expr | None, lanes: int, accs: Mapping[str, Reg] | None = None) -> Block:
        """A block whose instructions are to be added by :meth:`take`."""
        names = Names(self.axes, self.printer.dim_names, self.buffers, accs or {}, self.rows)
        return Block(self.function, names, lane, lanes)

    def take(self, block: Block) -> None:
        self.text += block.frames[0].lines

    def size(self, e: Expr) -> Reg:
        """A size, or an index of axes alone."""
        block = self.block(None, 1)
        block.expect(e)
        found = block.index(e)
        self.take(block)
        return found

    def value(self, e: Expr, lane: Expr | None, lanes: int, accs: Mapping[str, Reg] | None = None) -> Reg:
        """An expression over one block of lanes."""
        block = self.block(lane, lanes, accs)
        block.expect(e)
        found = block.value(e)
        self.take(block)
        return found

    def stores(
        self, stores: Sequence[Store], lane: Expr | None, lanes: int, accs: Mapping[str, Reg] | None = None
    ) -> None:
        """Stores over one block of lanes."""
        block = self.block(lane, lanes, accs)
        block.expect(*(s.value for s in stores), places=[s.offset for s in stores])
        # All values come first: a result may lie where another store's operand lies.
        for s, value in [(s, block.value(s.value)) for s in stores]:
            block.save(s, value)
        self.take(block)

    # ---- loops -----------------------------------------------------------------------------------------------------

    def tasks(self) -> AbstractContextManager[Reg]:
        return self.loop(self.begin, self.end)

    def decode(self, axes: Sequence[Expr], point: Reg) -> None:
        """The axes of a point from its number, outermost first."""
        for k, a in reversed([*enumerate(axes)]):
            if k == 0:
                self.axes[a] = point
                return
            extent = self.size(a.args[0])
            self.axes[a] = self.binary("urem", point, extent)
            point = self.binary("udiv", point, extent)

    @contextmanager
    def nested(self, axes: Sequence[Expr]) -> Iterator[None]:
        """Loops over axes, outermost first."""
        if not axes:
            yield
            return
        with self.loop(0, self.size(axes[0].args[0])) as now:
            self.axes[axes[0]] = now
            with self.nested(axes[1:]):
                yield

    @contextmanager
    def rows_of(self, task: Reg, axes: Sequence[Expr], rows: int | Reg) -> Iterator[None]:
        """The points of a task that has so many of some axes."""
        first = self.mul(task, rows)
        with self.loop(first, self.least(self.add(first, rows), self.size(points_of(axes)))) as point:
            self.decode(axes, point)
            yield

    @contextmanager
    def range_of(
        self, task: Reg, outer: Sequence[Expr], lane: Expr, rows: int | Reg, chunk: int
    ) -> Iterator[tuple[Reg, Reg]]:
        """The points of a task: loops over its rows, and the ends of its piece of the lane axis."""
        size = self.size(lane.args[0])
        chunks = self.binary("udiv", self.add(size, chunk - 1), chunk)
        low = self.mul(self.binary("urem", task, chunks), chunk)
        high = self.least(self.add(low, chunk), size)
        if not outer:
            yield low, high
            return
        with self.rows_of(self.binary("udiv", task, chunks), outer, rows):
            yield low, high

    def along(self, lane: Expr, low: Reg | int, high: Reg, lanes: Sequence[int], body: Callable[[int], None]) -> None:
        """Blocks of the lane axis: as wide as may be, then what is left."""
        counter = self.slot("i64")
        self.set(counter, low if isinstance(low, Reg) else integer(low))
        for n in lanes:
            with self.loop_while(counter, n, self.add(high, -n)) as now:
                self.axes[lane] = now
                body(n)

    def widths(self, extent: Expr) -> list[int]:
        """Lanes of the blocks that an axis is cut into."""
        known = as_int(extent)
        lanes = self.width
        while known is not None and lanes > known:
            lanes //= 2
        return [lanes, 1] if lanes > 1 and (known is None or known % lanes) else [max(lanes, 1)]


def points_of(axes: Iterable[Expr]) -> Expr:
    """Number of points of some axes."""
    total = const(1)
    for a in axes:
        total = total * a.args[0]
    return total


def write_map(k: MapKernel, lanes: int) -> Writer:
    """Stores over parallel axes."""
    w = Writer(k, lanes)
    *outer, lane = k.axes
    with w.tasks() as task, w.range_of(task, outer, lane, k.rows, k.chunk) as (low, high):
        w.along(lane, low, high, w.widths(lane.args[0]), lambda n: w.stores(k.stores, lane, n))
    return w


class RowWriter(Writer):
    """Writes reductions over rows: lanes run across the row, or along the last parallel axis."""

    def __init__(self, kernel: RowKernel, lanes: int) -> None:
        super().__init__(kernel, lanes)
        self.k = kernel

    def run(self) -> RowWriter:
        k = self.k
        if k.kept:
            size = self.size(k.row_size)
            for n in range(k.kept):
                self.rows[f"row{n}"] = self.at(self.scratch, "float", self.mul(size, n))
        if k.across:
            with self.tasks() as task, self.rows_of(task, k.axes, k.rows):
                self.stages(None, 1)
            return self
        *outer, lane = k.axes
        with self.tasks() as task, self.range_of(task, outer, lane, k.rows, k.chunk) as (low, high):
            self.along(lane, low, high, self.widths(lane.args[0]), lambda n: self.stages(lane, n))
        return self

    def stages(self, lane: Expr | None, lanes: int) -> None:
        """All stages of the rows of one block, and what is stored; `lane` is the parallel axis of lanes, if any."""
        k, known = self.k, dict[str, Reg]()
        for stage in k.stages:
            for a, total in zip(stage.accumulators, self._sums(stage, lane, lanes, known), strict=True):
                known[f"a{a.name}"] = total
                known[f"x{a.name}"] = self.value(a.result, lane, lanes, known)
        if k.element:
            self._each(lane, lanes, lambda x, n: self.stores(k.element, x, n, known))
        if k.row:
            self.stores(k.row, lane, lanes, known)

    def _each(self, lane: Expr | None, lanes: int, body: Callable[[Expr | None, int], None]) -> None:
        """Over the elements of a row, in blocks of lanes of the row or of the parallel axis."""
        *outer, last = self.k.reduce
        if lane is not None or not self.k.across:
            with self.nested(self.k.reduce):
                body(lane, lanes)
            return
        with self.nested(outer):
            extent = last.args[0]
            self.along(last, 0, self.size(extent), self.widths(extent), lambda n: body(last, n))

    def _sums(self, stage: Stage, lane: Expr | None, lanes: int, known: Mapping[str, Reg]) -> list[Reg]:
        """What the accumulators of a stage come to."""
        if not self.k.across and self.k.sums_of_sums(stage):
            return self._sums_of_sums(stage, lane, lanes, known)
        if not self.k.across:
            slots = [self._start(a, lanes) for a in stage.accumulators]
            self._each(lane, lanes, lambda x, n: self._accumulate(stage, x, n, slots, known))
            return [self.get(s) for s in slots]
        widths = self.widths(self.k.reduce[-1].args[0])
        wide = [self._start(a, widths[0]) for a in stage.accumulators]
        rest = [self._start(a, 1) for a in stage.accumulators] if widths[0] > 1 else wide

        def body(x: Expr | None, n: int) -> None:
            self._accumulate(stage, x, n, rest if n == 1 else wide, known)

        self._each(None, 1, body)
        totals = []
        for a, vectors, left in zip(stage.accumulators, wide, rest, strict=True):

            def meet(p: Reg, q: Reg, a: Accumulator = a) -> Reg:
                return join(self, a.how, a.term.dtype, p, q)

            total = self.across(self.get(vectors), meet)
            totals.append(meet(total, self.get(left)) if widths[0] > 1 and len(widths) > 1 else total)
        return totals

    def _sums_of_sums(self, stage: Stage, lane: Expr | None, lanes: int, known: Mapping[str, Reg]) -> list[Reg]:
        """Sums of sums of at most `CHAIN` neighbours each."""
        *outer, last = self.k.reduce
        totals = [self._start(a, lanes) for a in stage.accumulators]
        with self.nested(outer):
            size = self.size(last.args[0])
            with self.loop(0, self.binary("udiv", self.add(size, CHAIN - 1), CHAIN)) as piece:
                parts, first = [self._start(a, lanes) for a in stage.accumulators], self.mul(piece, CHAIN)
                with self.loop(first, self.least(self.add(first, CHAIN), size)) as now:
                    self.axes[last] = now
                    self._accumulate(stage, lane, lanes, parts, known)
                for a, total, part in zip(stage.accumulators, totals, parts, strict=True):
                    self.set(total, join(self, a.how, a.term.dtype, self.get(total), self.get(part)))
        return [self.get(t) for t in totals]

    def _start(self, a: Accumulator, lanes: int) -> Reg:
        kind = register(a.term.dtype)
        slot = self.slot(kind, lanes)
        self.set(slot, constant(a.start, kind))
        return slot

    def _accumulate(
        self, stage: Stage, lane: Expr | None, lanes: int, slots: Sequence[Reg], known: Mapping[str, Reg]
    ) -> None:
        """One block of a row joined to what is accumulated; what later stages need is kept in scratch."""
        block = self.block(lane, lanes, known)
        terms, kept = [a.term for a in stage.accumulators], [keep.value for keep in stage.keeps]
        place = self._position()
        block.expect(*terms, *kept, places=[place] * len(kept))
        for keep in stage.keeps:
            x = block.splat(block.value(keep.value), lanes)
            block.store(block.at(self.rows[f"row{keep.slot}"], "float", block.index(place)), x)
        for a, slot in zip(stage.accumulators, slots, strict=True):
            term = block.splat(block.value(a.term), lanes)
            block.set(slot, join(block, a.how, a.term.dtype, block.get(slot), term))
        self.take(block)

    def _position(self) -> Expr:
        """Position in a row of scratch at the first lane."""
        position = const(0)
        for r in self.k.reduce:
            position = position * r.args[0] + r
        return position


def write_scan(k: ScanKernel, lanes: int) -> Writer:
    """A running sum or product: one element after the other, with lanes beside the axis where there are some."""
    w = Writer(k, lanes)
    total, length = k.total, w.size(k.time.args[0])
    kind = register(total.term.dtype)

    def run(lane: Expr | None, n: int) -> None:
        slot = w.slot(kind, n)
        w.set(slot, constant(total.start, kind))
        with w.loop(0, length) as step:
            w.axes[k.time] = w.binary("sub", w.add(length, -1), step) if k.reverse else step
            given = w.splat(w.value(total.term, lane, n), n)
            before = w.get(slot)
            after = join(w, total.how, total.term.dtype, before, given)
            w.set(slot, after)
            w.stores(k.stores, lane, n, {"y": before if k.exclusive else after})

    rows = w.size(k.rows)
    if k.across:
        with w.tasks() as task, w.rows_of(task, k.axes, rows):
            run(None, 1)
        return w
    with w.tasks() as task, w.range_of(task, k.axes, k.lane, rows, k.chunk) as (low, high):
        w.along(k.lane, low, high, w.widths(k.lane.args[0]), lambda n: run(k.lane, n))
    return w


def write_row(k: RowKernel, lanes: int) -> Writer:
    """Reductions over rows."""
    return RowWriter(k, lanes).run()


__all__ = ["RowWriter", "Writer", "points_of", "write_map", "write_row", "write_scan"]
