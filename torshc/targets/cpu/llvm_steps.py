"""Kernels that go step by step as functions of LLVM's: recurrent networks, and the first of a row in order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...expr import Expr
from .llvm_ir import Reg, constant, integer
from .llvm_kernels import Writer, points_of
from .llvm_products import TileWriter
from .recurrent import RecurrentKernel, RecurrentStep
from .topk import TopKKernel


class RecurrentWriter(TileWriter):
    """All steps of a direction for some rows of the batch; arrays of the state lie in scratch, [rows][units]."""

    def __init__(self, k: RecurrentKernel, lanes: int) -> None:
        super().__init__(k, lanes, k.tile, None)
        self.k = k
        self.units = [lanes, 1] if k.hidden % lanes else [lanes]
        self.function.slots.append(f"  %at = alloca [{k.rows} x i64], align 8")
        self.places = Reg("%at", "ptr")
        self.arrays = {name: self.slot("ptr") for name in k.states}

    def run(self) -> RecurrentWriter:
        k = self.k
        self.time, self.batch = self.size(k.time.args[0]), self.size(k.row.args[0])
        blocks = self.quotient(self.add(self.batch, k.rows - 1), k.rows)
        with self.tasks() as task:
            block = self.binary("urem", task, blocks)
            self.axes[k.direction] = self.binary("udiv", task, blocks)
            self.first = self.cut(self.batch, blocks, block)
            self.count = self.binary("sub", self.cut(self.batch, blocks, self.add(block, 1)), self.first)
            for n, slot in enumerate(self.arrays.values()):
                self.set(slot, self.at(self.scratch, "float", integer(n * k.rows * k.wide)))
            self._begin()
            with self.loop(0, self.time) as step:
                self._place_rows(step)
                for number, phase in enumerate(k.steps):
                    self._phase(phase, step, number + 1 == len(k.steps))
                now, then = (self.get(self.arrays[n]) for n in ("h", "next"))
                self.set(self.arrays["h"], then)
                self.set(self.arrays["next"], now)
            if k.last:
                with self.loop(0, self.count) as r:
                    self.axes[k.row] = self.add(self.first, r)
                    self.along(k.unit, 0, integer(k.hidden), self.units, lambda n: self._leave(r, n))
        return self

    def _state(self, name: str, row: Reg, unit: Reg) -> Reg:
        """The address of a unit of a row."""
        place = self.add(self.mul(row, self.k.wide), unit)
        return self.at(self.get(self.arrays[name]), "float", place)

    def _value(self, e: Expr, accs: Mapping[str, Reg], n: int) -> Reg:
        block = self.block(self.k.unit, n, accs)
        block.expect(e)
        made = block.splat(block.value(e), n)
        self.take(block)
        return made

    def _begin(self) -> None:
        """The state at the start."""
        k = self.k
        starts = dict(k.starts)

        def body(n: int) -> None:
            for name in k.states:
                value = self._value(starts[name], {}, n) if name in starts else constant(0.0, "float")
                self.store(self._state(name, self.row, self.axes[k.unit]), self.splat(value, n))

        with self.loop(0, self.count) as self.row:
            self.axes[k.row] = self.add(self.first, self.row)
            self.along(k.unit, 0, integer(k.hidden), self.units, body)

    def _place_rows(self, step: Reg) -> None:
        """Where each row is in time; -1 at its end."""
        k = self.k
        with self.loop(0, self.count) as r:
            self.axes[k.row] = self.add(self.first, r)
            length = self.time
            if k.lengths is not None:
                block = self.block(None, 1)
                block.expect(k.lengths)
                found = block.value(k.lengths)
                self.take(block)
                length = self.most(self.least(self.convert("sext", found, "i64"), self.time), integer(0))
            at = step
            if k.backward != "never":
                at = self.binary("sub", self.add(length, -1), step)
            if k.backward == "second":
                at = self.select(self.compare("icmp eq", self.axes[k.direction], 1), at, step)
            at = self.select(self.compare("icmp slt", step, length), at, integer(-1))
            self.store(self.at(self.places, "i64", r), at)

    def _phase(self, s: RecurrentStep, step: Reg, is_last: bool) -> None:
        k, height = self.k, self.tile.rows
        depth = integer(k.hidden)
        with self.loop(0, s.columns.panels) as p:
            number = self.add(self.mul(self.axes[k.direction], s.columns.panels), p)
            panel = self.at(f"%p{s.weights}", "float", self.mul(number, k.hidden * self.tile.columns))
            tiles = self.quotient(self.add(self.count, height - 1), height)
            with self.loop(0, tiles) as t:
                first, rows, cases = self.rows_of(self.count, tiles, t)

                def terms(tile: Sequence[Reg], slots: Sequence[Sequence[Reg]], first: Reg = first) -> None:
                    places = [self._state(s.phase.operand, self.add(first, r), integer(0)) for r in tile]
                    self.multiply(places, panel, depth, slots)

                self.summed(rows, cases, terms)
                with self.loop(0, rows) as r:
                    self._cells(s, p, r, self.add(first, r), step, is_last)

    def _cells(self, s: RecurrentStep, p: Reg, r: Reg, row: Reg, step: Reg, is_last: bool) -> None:
        """The cells of a row and the units of a panel."""
        k, units = self.k, s.columns.units
        low = self.mul(p, units)
        high = self.least(self.add(low, units), integer(k.hidden))
        at = self.load(self.at(self.places, "i64", row), "i64")
        n = self.axes[k.row] = self.add(self.first, row)
        if k.lengths is not None:
            with self.when(self.compare("icmp slt", at, 0)):
                if is_last:
                    self.axes[k.time] = step
                    self.along(k.unit, low, high, self.units, lambda w: self._rest(row, w))
        self.axes[k.time] = at
        order = self.mul(n, self.time) if k.batch_first else self.mul(at, self.batch)
        order = self.add(order, at if k.batch_first else n)
        place = self.mul(order, k.directions * k.columns)
        place = self.add(place, self.mul(self.axes[k.direction], k.columns))
        gates = self.at(f"%p{k.gates}", "float", self.add(place, s.columns.start))
        gates = self.at(gates, "float", self.mul(p, self.tile.columns))
        sums = self.at(self.sums, "float", self.mul(r, self.tile.columns))

        def body(w: int) -> None:
            unit = self.axes[k.unit]
            inner = self.binary("sub", unit, low)
            known: dict[str, Reg] = {}
            for number, g in enumerate(s.phase.gates):
                if s.reads(f"r{g}") or s.reads(f"x{g}"):
                    here = self.add(inner, number * units)
                    known[f"x{g}"] = self.load(self.at(gates, "float", here), "float", w)
                    known[f"r{g}"] = self.load(self.at(sums, "float", here), "float", w)
            for name in k.states:
                if s.reads(name):
                    known[name] = self.load(self._state(name, row, unit), "float", w)
            for result in s.phase.results:
                new = self._value(result.value, known, w)
                self.store(self._state(result.name, row, unit), new)
                known[f"new_{result.name}"] = new
            if is_last and k.each:
                self.stores(k.each, k.unit, w, {"y": known["new_next"]})

        with self.when(self.compare("icmp sge", at, 0)):
            self.along(k.unit, low, high, self.units, body)

    def _rest(self, row: Reg, n: int) -> None:
        """A row that is at its end: its state stays, and what is stored of it is 0."""
        k, unit = self.k, self.axes[self.k.unit]
        self.store(self._state("next", row, unit), self.load(self._state("h", row, unit), "float", n))
        if k.each:
            self.stores(k.each, k.unit, n, {"y": self.splat(constant(0.0, "float"), n)})

    def _leave(self, row: Reg, n: int) -> None:
        """What is stored of the last state."""
        unit = self.axes[self.k.unit]
        names = [name for name in self.k.states if name in ("h", "c")]
        last = {name: self.load(self._state(name, row, unit), "float", n) for name in names}
        self.stores(self.k.last, self.k.unit, n, last)


def write_recurrent(k: RecurrentKernel, lanes: int) -> Writer:
    """The steps of a recurrent network."""
    return RecurrentWriter(k, lanes).run()


def write_topk(k: TopKKernel, lanes: int) -> Writer:
    """The first of each row in order: each is the next behind the one before, found by looking at the whole row."""
    w = Writer(k, lanes)
    size, wanted, rows = w.size(k.place.args[0]), w.size(k.rank.args[0]), w.size(k.rows)
    count, none = w.size(points_of(k.axes)), integer(-1)
    kind = "i64"

    def key_at(place: Reg) -> Reg:
        """An integer in whose order elements come, larger ones first."""
        w.axes[k.place] = place
        block = w.block(None, 1)
        block.expect(k.key)
        x = block.value(k.key)
        w.take(block)
        return _key(w, x, k)

    with w.tasks() as task:
        first = w.mul(task, rows)
        with w.loop(first, w.least(w.add(first, rows), count)) as point:
            w.decode(k.axes, point)
            last_key, last_place = w.slot(kind), w.slot("i64")
            w.set(last_place, none)
            w.set(last_key, integer(0))
            with w.loop(0, wanted) as rank:
                best_key, best_place = w.slot(kind), w.slot("i64")
                w.set(best_place, none)
                w.set(best_key, integer(0))
                with w.loop(0, size) as place:
                    key = key_at(place)
                    before = w.get(last_place)
                    lower = w.compare("icmp slt", key, w.get(last_key))
                    equal = w.compare("icmp eq", key, w.get(last_key))
                    behind = w.binary("and", equal, w.compare("icmp sgt", place, before))
                    free = w.compare("icmp eq", before, none)
                    open_ = w.binary("or", free, w.binary("or", lower, behind))
                    better = w.compare("icmp sgt", key, w.get(best_key))
                    better = w.binary("or", better, w.compare("icmp eq", w.get(best_place), none))
                    take = w.binary("and", open_, better)
                    w.set(best_key, w.select(take, key, w.get(best_key)))
                    w.set(best_place, w.select(take, place, w.get(best_place)))
                w.set(last_key, w.get(best_key))
                w.set(last_place, w.get(best_place))
                w.axes[k.rank] = rank
                w.axes[k.place] = w.get(best_place)
                w.stores(k.stores, None, 1)
    return w


def _key(w: Writer, x: Reg, k: TopKKernel) -> Reg:
    dtype = k.key.dtype
    if x.type in ("float", "double"):
        wide = "i32" if x.type == "float" else "i64"
        zero = w.compare("fcmp oeq", x, 0.0)
        bits = w.convert("bitcast", w.select(zero, constant(0.0, x.type), x), wide)
        most = constant((1 << (31 if wide == "i32" else 63)) - 1, wide)
        turned = w.select(w.compare("icmp slt", bits, 0), w.binary("xor", bits, most), bits)
        key = w.convert("sext", w.select(w.compare("fcmp uno", x, x), most, turned), "i64")
    elif dtype.kind == "i":
        key = w.convert("sext", x, "i64")
    else:
        key = w.convert("zext", x, "i64")
        if dtype.size == 8:
            key = w.binary("xor", key, -(2**63))
    return key if k.largest else w.binary("xor", key, -1)


__all__ = ["write_recurrent", "write_topk"]
