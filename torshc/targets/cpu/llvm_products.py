"""Products and convolutions as functions of LLVM's: register tiles over panels of weights.

The kernels are those of the C target, with the same panels; sums are in vectors, one for each row and vector of columns
of a tile, and what follows a sum is done from a small buffer, so that it is written once for tiles of every height.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...expr import Expr, as_int
from ...kernels.base import Kernel
from ...kernels.heavy import HeavyKernel, Strided
from .conv import ConvKernel
from .depthwise import DepthwiseKernel
from .gemm import GemmKernel
from .llvm_ir import Reg, constant, integer
from .llvm_kernels import Writer
from .pack import PackKernel
from .tiles import Tile

Terms = Callable[[Sequence[Reg], Sequence[Sequence[Reg]]], None]
"""Adds the products of some rows of a tile to variables, vectors of columns for each row."""


class TileWriter(Writer):
    """What products and convolutions share.

    Args:
        tile: the tile of their sums.
        even: rows in all, where tiles are of near-equal heights if these are known.
    """

    def __init__(self, kernel: Kernel, lanes: int, tile: Tile, even: Expr | None) -> None:
        super().__init__(kernel, lanes)
        self.tile, self.even = tile, even
        self.sums = Reg("%sums", "ptr")
        self.function.slots.append(f"  %sums = alloca [{tile.rows * tile.columns} x float], align 64")

    def place(self, s: Strided) -> Reg:
        """Where an operand begins, over the axes that are known."""
        return self.at(f"%p{s.buffer}", "float", self.size(s.start))

    def rows_of(self, count: Reg, tiles: Reg, tile: Reg) -> tuple[Reg, Reg, Sequence[int]]:
        """The first row of a tile, how many it has, and what that may be; `count` is rows in all."""
        size = self.even
        if size is not None and as_int(size):
            longer = self.binary("urem", count, tiles)
            few = self.binary("udiv", count, tiles)
            more = self.convert("zext", self.compare("icmp slt", tile, longer), "i64")
            return self.cut(count, tiles, tile), self.add(few, more), self.tile.row_cases(size)
        first = self.mul(tile, self.tile.rows)
        left = self.binary("sub", count, first)
        return first, self.least(left, integer(self.tile.rows)), (self.tile.rows,)

    def summed(self, rows: Reg, cases: Sequence[int], terms: Terms) -> None:
        """The sums of a tile into the buffer.

        Args:
            rows: rows of the tile.
            cases: what `rows` may be, or the most that it may be: then of a tile that is half full, the last row is
                computed several times, and the rows of a lower one are made one at a time.
        """
        if self.even is not None and as_int(self.even):
            for count in cases:
                with self.when(self.compare("icmp eq", rows, count)):
                    self._sums([integer(r) for r in range(count)], terms)
            return
        last, half = self.add(rows, -1), cases[0] // 2
        with self.when(self.compare("icmp sgt", rows, half)):
            self._sums([self.least(integer(r), last) for r in range(cases[0])], terms)
        with self.when(self.compare("icmp sle", rows, half)), self.loop(0, rows) as row:
            self._sums([row], terms)

    def _sums(self, rows: Sequence[Reg], terms: Terms) -> None:
        zero = constant(0.0, "float")
        slots = [[self.slot("float", self.width) for _ in range(self.tile.vectors)] for _ in rows]
        for slot in (s for row in slots for s in row):
            self.set(slot, zero)
        terms(rows, slots)
        for r, row in enumerate(slots):
            first = integer(r) if len(rows) > 1 else rows[0]
            for v, slot in enumerate(row):
                place = self.add(self.mul(first, self.tile.columns), v * self.width)
                self.store(self.at(self.sums, "float", place), self.get(slot))

    def multiply(self, rows: Sequence[Reg], panel: Reg, depth: Reg, slots: Sequence[Sequence[Reg]]) -> None:
        """Adds rows times a panel; both go on by one at each step of the sum."""
        with self.loop(0, depth) as k:
            at = self.at(panel, "float", self.mul(k, self.tile.columns))
            columns = [
                self.load(self.at(at, "float", integer(v * self.width)), "float", self.width)
                for v in range(self.tile.vectors)
            ]
            for row, sums in zip(rows, slots, strict=True):
                x = self.splat(self.load(self.at(row, "float", k), "float"), self.width)
                for b, slot in zip(columns, sums, strict=True):
                    self.set(slot, self.binary("fadd", self.get(slot), self.binary("fmul", x, b)))

    def finished(
        self, k: HeavyKernel, lane: Expr, rows: Reg, low: Reg, high: Reg, at_row: Callable[[Reg], None]
    ) -> None:
        """What follows the sums of a tile, for columns from low to high; `at_row` sets the axes of a row."""
        with self.loop(0, rows) as row:
            at_row(row)
            base = self.at(self.sums, "float", self.mul(row, self.tile.columns))

            def body(n: int) -> None:
                place = self.at(base, "float", self.binary("sub", self.axes[lane], low))
                self.stores(k.stores, lane, n, {"acc": self.load(place, "float", n)})

            self.along(lane, low, high, [self.width, 1], body)


def write_gemm(k: GemmKernel, lanes: int) -> Writer:
    """A product: rows of the left operand times panels of the right one."""
    w = TileWriter(k, lanes, k.tile, k.m.args[0])
    height, width, depth = k.m.args[0], k.n.args[0], w.size(k.k)
    rows_in_all, columns = w.size(height), w.size(width)
    tiles, panels = w.size(k.tile.tiles(height)), w.size(k.tile.panels(width))
    m_blocks, n_blocks, step = w.size(k.blocks.m), w.size(k.blocks.n), w.size(k.a.steps[0])
    with w.tasks() as task:
        block, rest = w.binary("urem", task, m_blocks), w.binary("udiv", task, m_blocks)
        across = w.binary("urem", rest, n_blocks)
        w.decode(k.batch, w.binary("udiv", rest, n_blocks))
        a, b = w.place(k.a), w.place(k.b)
        ends = [w.cut(tiles, m_blocks, w.add(block, n)) for n in (0, 1)]
        first, last = (w.cut(panels, n_blocks, w.add(across, n)) for n in (0, 1))
        with w.loop(first, last) as p:
            panel = w.at(b, "float", w.mul(w.mul(p, depth), k.tile.columns))
            low = w.mul(p, k.tile.columns)
            high = w.least(w.add(low, k.tile.columns), columns)
            with w.loop(*ends) as t:
                m, rows, cases = w.rows_of(rows_in_all, tiles, t)

                def terms(tile: Sequence[Reg], slots: Sequence[Sequence[Reg]], m: Reg = m, panel: Reg = panel) -> None:
                    places = [w.at(a, "float", w.mul(w.add(m, r), step)) for r in tile]
                    w.multiply(places, panel, depth, slots)

                def at_row(row: Reg, m: Reg = m) -> None:
                    w.axes[k.m] = w.add(m, row)

                w.summed(rows, cases, terms)
                w.finished(k, k.n, rows, low, high, at_row)
    return w


def write_pack(k: PackKernel, lanes: int) -> Writer:
    """Panels of a matrix that is known only at run time, zero padded."""
    w = Writer(k, lanes)
    panels, depth, width = w.size(k.tile.panels(k.n)), w.size(k.k), w.size(k.n)
    steps = [w.size(s) for s in k.source.steps]
    columns = k.tile.columns
    contiguous = as_int(k.source.steps[1]) == 1
    with w.tasks() as task:
        low = w.mul(w.binary("urem", task, panels), columns)
        w.decode(k.batch, w.binary("udiv", task, panels))
        source = w.at(f"%p{k.source.buffer}", "float", w.size(k.source.start))
        target = w.at(f"%p{k.target.buffer}", "float", w.size(k.target.start))
        target = w.at(target, "float", w.mul(low, depth))
        count = w.least(integer(columns), w.binary("sub", width, low))
        with w.loop(0, depth) as row:
            here = w.at(source, "float", w.add(w.mul(row, steps[0]), w.mul(low, steps[1])))
            to = w.at(target, "float", w.mul(row, columns))
            counter = w.slot("i64")
            w.set(counter, integer(0))
            for n in (lanes, 1) if contiguous else (1,):
                with w.loop_while(counter, n, w.add(count, -n)) as c:
                    x = w.load(w.at(here, "float", w.mul(c, steps[1])), "float", n)
                    w.store(w.at(to, "float", c), x)
            with w.loop(count, columns) as c:
                w.store(w.at(to, "float", c), constant(0.0, "float"))
    return w


class ConvWriter(TileWriter):
    """A convolution over a table of addresses, tap by pixel, of the pixels of a task."""

    def __init__(self, k: ConvKernel, lanes: int) -> None:
        super().__init__(k, lanes, k.tile, k.rows if k.out_step == (1, 1) else None)
        self.k = k

    def run(self) -> ConvWriter:
        k, size = self.k, self.k.size
        zero = self.scratch
        with self.loop(0, k.zeros) as n:
            self.store(self.at(zero, "float", n), constant(0.0, "float"))
        table = self.at(zero, "i8", integer(4 * k.zeros))
        apart = self.size(k.block_rows)
        m_blocks, n_blocks = self.size(k.blocks.m), self.size(k.blocks.n)
        names = ("row", "column", "rows", "columns", "taps", "weights")
        self.phase = {name: self.slot("i64") for name in names}
        with self.tasks() as task:
            across, rest = self.binary("urem", task, n_blocks), self.binary("udiv", task, n_blocks)
            block, phase = self.binary("urem", rest, m_blocks), self.binary("udiv", rest, m_blocks)
            for number in range(len(k.phases)):
                with self.when(self.compare("icmp eq", phase, number)):
                    self._enter(number)
            pixels = self.mul(self.size(size.images), self.mul(self._of("rows"), self._of("columns")))
            tiles = self.quotient(self.add(pixels, k.tile.rows - 1), k.tile.rows)
            low, high = (self.cut(tiles, m_blocks, self.add(block, n)) for n in (0, 1))
            first = self._first(pixels, tiles, low)
            for number in range(len(k.phases)):
                with self.when(self.compare("icmp eq", phase, number)):
                    self._fill(number, first, self._first(pixels, tiles, high), table, apart)
            panels = [self.cut(integer(k.panels), n_blocks, self.add(across, n)) for n in (0, 1)]
            with self.loop(*panels) as q:
                self._panel(q, (low, high), pixels, tiles, first, table, apart)
        return self

    def _of(self, name: str) -> Reg:
        return self.get(self.phase[name])

    def _first(self, pixels: Reg, tiles: Reg, tile: Reg) -> Reg:
        """The first pixel of a tile."""
        if self.even is not None and as_int(self.even):
            return self.cut(pixels, tiles, tile)
        return self.least(self.mul(tile, self.tile.rows), pixels)

    def _enter(self, number: int) -> None:
        """Sets what differs between phases."""
        k, f = self.k, self.k.phases[number]
        zero = integer(0)
        for name, size, start, step in (
            ("rows", k.size.oh, f.row, k.out_step[0]),
            ("columns", k.size.ow, f.column, k.out_step[1]),
        ):
            count = self.binary("sdiv", self.add(self.size(size), step - 1 - start), integer(step))
            self.set(self.phase[name], self.most(count, zero))
        known = {"row": f.row, "column": f.column, "taps": len(f.taps), "weights": k.weights_of(number)}
        for name, value in known.items():
            self.set(self.phase[name], integer(value))

    def _fill(self, number: int, first: Reg, last: Reg, table: Reg, apart: Reg) -> None:
        """Where each tap of each pixel reads: the image, or zeros in the margin."""
        k, x = self.k, self.place(self.k.x)
        steps = [self.size(s) for s in k.x.steps]
        ih, iw = self.size(k.size.ih), self.size(k.size.iw)
        pad = [self.size(p) for p in k.pad]
        with self.loop(first, last) as m:
            column = self.binary("urem", m, self._of("columns"))
            rest = self.binary("udiv", m, self._of("columns"))
            row, image = self.binary("urem", rest, self._of("rows")), self.binary("udiv", rest, self._of("rows"))
            h = self.binary("sub", self.mul(row, k.step[0]), pad[0])
            v = self.binary("sub", self.mul(column, k.step[1]), pad[1])
            start = self.at(x, "float", self.mul(image, steps[0]))
            to = self.at(table, "ptr", self.binary("sub", m, first))
            for t, (down, right) in enumerate(k.phases[number].taps):
                y, z = self.add(h, down), self.add(v, right)
                inside = self.binary("and", self.compare("icmp ult", y, ih), self.compare("icmp ult", z, iw))
                place = self.at(start, "float", self.add(self.mul(y, steps[1]), self.mul(z, steps[2])))
                self.store_address(self.at(to, "ptr", self.mul(apart, t)), self.select(inside, place, self.scratch))

    def store_address(self, place: Reg, address: Reg) -> None:
        self.put(f"  store ptr {address}, ptr {place}, align 8")

    def _panel(
        self, q: Reg, tiles: tuple[Reg, Reg], pixels: Reg, count: Reg, first: Reg, table: Reg, apart: Reg
    ) -> None:
        k, size = self.k, self.k.size
        each = k.panels // size.groups
        self.axes[k.group] = self.quotient(q, each) if each > 1 else q
        p = self.binary("urem", q, integer(each)) if each > 1 else integer(0)
        low = self.mul(p, k.tile.columns)
        high = self.least(self.add(low, k.tile.columns), integer(size.oc))
        stride = k.depth * k.tile.columns
        weights = self.at(f"%p{k.w}", "float", self._of("weights"))
        weights = self.at(weights, "float", self.mul(self.mul(q, self._of("taps")), stride))
        channel = self.mul(self.axes[k.group], size.ic)
        with self.loop(*tiles) as t:
            m, rows, cases = self.rows_of(pixels, count, t)
            here = self.at(table, "ptr", self.binary("sub", m, first))

            def terms(tile: Sequence[Reg], slots: Sequence[Sequence[Reg]]) -> None:
                with self.loop(0, self._of("taps")) as tap:
                    places = self.at(here, "ptr", self.mul(tap, apart))
                    panel = self.at(weights, "float", self.mul(tap, stride))
                    found = []
                    for r in tile:
                        address = self.made(f"load ptr, ptr {self.at(places, 'ptr', r)}, align 8", "ptr")
                        found.append(self.at(address, "float", channel))
                    self.multiply(found, panel, integer(size.ic), slots)

            self.summed(rows, cases, terms)
            self.finished(k, k.channel, rows, low, high, lambda row: self._pixel(self.add(m, row)))

    def _pixel(self, m: Reg) -> None:
        """The axes of an output pixel."""
        k = self.k
        if k.out_step == (1, 1):
            self.decode(k.pixels, m)
            return
        rest = self.binary("udiv", m, self._of("columns"))
        image = self.binary("udiv", rest, self._of("rows"))
        row, column = self.binary("urem", rest, self._of("rows")), self.binary("urem", m, self._of("columns"))
        places = [image, *(self.add(self.mul(x, s), self._of(n)) for x, s, n in (
            (row, k.out_step[0], "row"), (column, k.out_step[1], "column"),
        ))]  # fmt: skip
        self.axes |= zip(k.pixels, places, strict=True)


def write_conv(k: ConvKernel, lanes: int) -> Writer:
    """A convolution over channels-last images."""
    return ConvWriter(k, lanes).run()


def write_depthwise(k: DepthwiseKernel, lanes: int) -> Writer:
    """A convolution of each channel by itself: vectors of channels."""
    w = Writer(k, lanes)
    size, parts = k.size, k.c_blocks
    rows, columns, blocks = w.size(size.oh), w.size(size.ow), w.size(k.h_blocks)
    ih, iw, pad = w.size(size.ih), w.size(size.iw), [w.size(p) for p in size.pad]
    steps = [w.size(s) for s in k.x.steps]
    vectors = -(-size.groups // k.lanes)
    taps = [(r, c) for r in range(size.kernel[0]) for c in range(size.kernel[1])]

    def channels(n: int) -> None:
        at = w.axes[k.channel]
        place = w.add(w.mul(w.quotient(at, k.lanes), size.taps * k.lanes), w.binary("urem", at, integer(k.lanes)))
        weights = w.at(f"%p{k.w}", "float", place)
        total = w.slot("float", n)
        w.set(total, constant(0.0, "float"))
        for number, (r, c) in enumerate(taps):
            y, z = w.add(top, r * size.dilation[0]), w.add(left, c * size.dilation[1])
            inside = w.binary("and", w.compare("icmp ult", y, ih), w.compare("icmp ult", z, iw))
            with w.when(inside):
                offset = w.add(w.add(w.mul(y, steps[1]), w.mul(z, steps[2])), at)
                x = w.load(w.at(image, "float", offset), "float", n)
                b = w.load(w.at(weights, "float", integer(number * k.lanes)), "float", n)
                w.set(total, w.binary("fadd", w.get(total), w.binary("fmul", x, b)))
        w.stores(k.stores, k.channel, n, {"acc": w.get(total)})

    with w.tasks() as task:
        part, rest = w.binary("urem", task, integer(parts)), w.binary("udiv", task, integer(parts))
        block, number = w.binary("urem", rest, blocks), w.binary("udiv", rest, blocks)
        image = w.at(f"%p{k.x.buffer}", "float", w.add(w.size(k.x.start), w.mul(number, steps[0])))
        ends = [w.cut(rows, blocks, w.add(block, n)) for n in (0, 1)]
        low, high = (
            w.least(w.mul(w.cut(integer(vectors), integer(parts), w.add(part, n)), k.lanes), integer(size.groups))
            for n in (0, 1)
        )
        with w.loop(*ends) as row:
            top = w.binary("sub", w.mul(row, size.stride[0]), pad[0])
            with w.loop(0, columns) as column:
                left = w.binary("sub", w.mul(column, size.stride[1]), pad[1])
                w.decode(k.pixels, w.add(w.mul(w.add(w.mul(number, rows), row), columns), column))
                w.along(k.channel, low, high, [lanes, 1], channels)
    return w
