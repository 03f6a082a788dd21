"""Kernels of the generic nest for devices of blocks of threads: the same loops, distributed over threads."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import ClassVar

from ...expr import BOOL, Expr, as_int, axis, ceil_div, const, product, walk
from ...expr.affine import contains, divisor_of, split_axis
from ...expr.functions import substitute
from ...kernels.base import Kernel, Store, expressions_in
from ...kernels.machine import Device, Machine
from ...kernels.moved import Moved, certain_loads, crossings
from ...kernels.nest import MapKernel, RowKernel

THREADS = 256  # threads of a block
PACKET = 4  # neighbours that a thread computes together: 16 bytes of f32
WARP = 32  # threads of a warp; a simdgroup has as many
SHARED = 32 * 1024  # bytes of shared memory that every device has
ROW_THREADS = (32, 64, 128, 256, 512)  # threads that may share a row
PER_THREAD = 16  # elements of a row a thread, about
REGISTERS = 64  # f32 of a row that a thread may keep
TILE = 32  # extent of a tile of shared memory along both axes; twice that for elements of fewer than 4 bytes
TILED = 65536  # elements from which on a transpose goes through tiles
FEW = 32  # elements of a row that one thread may as well walk alone
SHORT = 9  # elements of a row that take fewer instructions than to find out where they lie: windows of 3 by 3
UNIT_THREADS = 2048  # threads that keep a multiprocessor busy
# Elements of a column that a thread reads before it adds up the first, and bytes that twice as many may be: an H200
# takes a tenth less time for sums of one f32 array by eight packets than by four, and as much for those of two.
UNROLL, AHEAD = 4, 128
TURNS, PACKET_TURNS = 8, 16  # threads that take turns at most, so that a warp reads 128 and 256 bytes of f32 in a row
# Bytes of a row that a block reads where its columns stay in registers, the best first: an H200 wants 128 for reading
# alone, and smaller blocks, that read while others write, where elements are stored too.
WIDTHS = (128, 64, 32)
KEPT = 64  # f32 of columns that a thread keeps
KEPT_THREADS = 512  # threads of such a block, at most, and of such a multiprocessor: they keep half of its registers
GUESS = 1024  # points or elements of a row, where they are known only at run time
WHOLE = axis("piece", 1)
DEVICE = Device()  # what any device has


@dataclass(frozen=True)
class ThreadMapping:
    """How a tuning record maps work to threads; 0 leaves it to the kernel, and so does what cannot be had.

    Attributes:
        threads: threads of a block.
        packet: neighbours that a thread computes together.
        share: threads that share a row.
        turns: threads that take turns along a row.
        lanes: threads side by side that keep columns in registers.
        steps: packets of a column that each of them keeps.
        pieces: pieces that a row is cut into.
        side: extent of a tile of a transpose.
    """

    threads: int = 0
    packet: int = 0
    share: int = 0
    turns: int = 0
    lanes: int = 0
    steps: int = 0
    pieces: int = 0
    side: int = 0

    @classmethod
    def of(cls, machine: Machine) -> ThreadMapping:
        """The choices that a machine comes with."""
        return cls(**{f.name: machine.number(f.name, 0) for f in dataclasses.fields(cls)})

    def packet_of(self, lane: Expr) -> int:
        """Neighbours a thread along an axis: 1 where its extent is not surely a multiple."""
        size = divisor_of(lane.args[0])
        sizes = (n for n in (self.packet, PACKET) if n > 0)
        return next((n for n in sizes if size and size % n == 0), 1)


USUAL = ThreadMapping()


@dataclass(frozen=True)
class GridMap(MapKernel):
    """A map kernel with a packet of elements of the last axis a thread.

    Attributes:
        threads: threads of a block.
        packet: elements a thread, 1 where the last axis is not surely a multiple.
    """

    template: ClassVar[str] = "map.j2"

    threads: int = THREADS
    packet: int = 1


@dataclass(frozen=True)
class GridRow(RowKernel):
    """A row kernel: threads share a row (`across`), or each has a point of the parallel axes for itself.

    Attributes:
        threads: threads of a block.
        share: threads that share a row; 1 when each has its own.
        packet: elements of the last reduction axis that a thread takes at a time.
        steps: packets of a row that a thread takes in all, where that is known and few; else 0.
        piece: axis of the pieces that rows are cut into, each with a block of its own.
        length: elements of a piece, where there are several.
    """

    template: ClassVar[str] = "row.j2"

    threads: int = THREADS
    share: int = 1
    packet: int = 1
    steps: int = 0
    piece: Expr = WHOLE
    length: int = 0

    @property
    def scratch(self) -> Expr:
        return const(0)

    @property
    def shared(self) -> int:
        if self.share <= WARP:
            return 0
        return self.share // WARP * register_bytes(self)

    @property
    def whole(self) -> bool:
        """Whether every thread takes all its packets."""
        return as_int(product([r.args[0] for r in self.reduce])) == self.steps * self.share * self.packet


@dataclass(frozen=True)
class GridColumns(RowKernel):
    """A row kernel with neighbouring threads at neighbouring points; several threads take turns along a row.

    Attributes:
        threads: threads of a block.
        lanes: threads side by side along the last parallel axis.
        turns: threads that take turns along a row.
        packet: points of a thread.
        steps: elements of each point that a thread keeps in registers, which are all that it takes; else 0.
        piece, length: as of :class:`GridRow`.
        unroll: elements that a thread reads before it adds up the first.
    """

    template: ClassVar[str] = "columns.j2"

    threads: int
    lanes: int
    turns: int
    packet: int
    steps: int = 0
    piece: Expr = WHOLE
    length: int = 0
    unroll: int = UNROLL

    @property
    def shared(self) -> int:
        return self.parts * self.lanes * self.packet * register_bytes(self) if self.parts > 1 else 0

    @property
    def parts(self) -> int:
        """Sums of a row that meet in shared memory: of each turn, or of those of a warp, which shuffles add."""
        return self.turns // max(1, WARP // self.lanes) if self.steps else self.turns

    @property
    def resident(self) -> int:
        """Blocks that a multiprocessor is to have registers for, 0 where that does not matter."""
        return max(1, KEPT_THREADS // self.threads) if self.steps else 0

    @property
    def even(self) -> bool:
        """Whether each thread takes as many elements."""
        return as_int(product([r.args[0] for r in self.reduce])) == self.turns * self.steps

    @property
    def scratch(self) -> Expr:
        return const(0)

    @property
    def blocks(self) -> Expr:
        """Blocks side by side along the points."""
        return ceil_div(self.packets, self.lanes)

    @property
    def packets(self) -> Expr:
        return product([a.args[0] for a in self.axes]) // self.packet

    @property
    def whole(self) -> bool:
        """Whether every thread has points and a turn."""
        return self.lanes * self.turns == self.threads and divisor_of(self.packets) % self.lanes == 0


@dataclass(frozen=True)
class GridTiles(MapKernel):
    """A map kernel that transposes: a tile is read along one axis into shared memory, and stored along another.

    Attributes:
        outer: the other axes.
        lane: the axis of the stores, the last.
        inner: the axis of what is read.
        reads: the loads that go through shared memory.
        side: extent of a tile along both.
        threads: threads of a block.
    """

    template: ClassVar[str] = "transpose.j2"

    outer: tuple[Expr, ...]
    lane: Expr
    inner: Expr
    reads: tuple[Moved, ...]
    side: int
    threads: int = THREADS

    @property
    def shared(self) -> int:
        return sum(self.side * self.pitch(r) * self.buffers[r.buffer].dtype.size for r in self.reads)

    def pitch(self, r: Moved) -> int:
        """Elements from a line of a tile to the next, so that those of a column lie in different banks."""
        return self.side + max(1, 4 // self.buffers[r.buffer].dtype.size)

    @property
    def names(self) -> dict[str, str]:
        """Registers of the loads."""
        return {r.name: r.name for r in self.reads}

    def count(self, a: Expr) -> Expr:
        """Tiles along an axis."""
        return ceil_div(a.args[0], self.side)


def to_grid(kernel: Kernel, device: Device = DEVICE, mapping: ThreadMapping = USUAL) -> Kernel:
    """A map or row kernel with its work distributed over blocks of threads.

    A kernel without axes (one element, such as what a uniform operand holds everywhere) gets one of extent 1.
    """
    kernel = with_axis(kernel)
    if isinstance(kernel, MapKernel):
        if (tiles := _tiles(kernel, mapping)) is not None:
            return tiles
        points, threads = product([a.args[0] for a in kernel.axes]), mapping.threads or THREADS
        few = not mapping.packet and (as_int(points) or GUESS * GUESS) <= device.units * threads
        packet = 1 if few else mapping.packet_of(kernel.axes[-1])
        tasks = ceil_div(points // packet, threads)
        return GridMap.of(kernel, tasks=tasks, threads=threads, packet=packet)
    if isinstance(kernel, RowKernel):
        return _columns(kernel, device, mapping) or to_row(kernel, mapping)
    return kernel


def with_axis(kernel: Kernel) -> Kernel:
    """The kernel with an axis, of extent 1 where it has none."""
    if isinstance(kernel, MapKernel) and not kernel.axes:
        return dataclasses.replace(kernel, axes=(axis("i0", 1),))
    return kernel


def _tiles(kernel: MapKernel, mapping: ThreadMapping) -> GridTiles | None:
    """A large map kernel that reads along another axis than it writes; None for any other."""
    sizes = [as_int(a.args[0]) for a in kernel.axes]
    if math.prod(GUESS if s is None else s for s in sizes) < TILED:
        return None
    for crossing in (*crossings(kernel), *crossings(_in_order_of_reads(kernel))):
        wide = any(kernel.buffers[r.buffer].dtype.size >= 4 for r in crossing.reads)
        if any((as_int(a.args[0]) or TILE) < TILE // 2 for a in (crossing.lane, crossing.inner)):
            continue
        found = {f.name: getattr(crossing, f.name) for f in dataclasses.fields(crossing)}
        for side in filter(None, (mapping.side, TILE if wide else 2 * TILE, TILE)):
            made = GridTiles.of(kernel, **found, side=side, threads=mapping.threads or THREADS)
            if made.shared <= SHARED:
                tasks = product([a.args[0] for a in made.outer]) * made.count(made.lane) * made.count(made.inner)
                return dataclasses.replace(made, tasks=tasks)
        return None
    return None


def _in_order_of_reads(kernel: MapKernel) -> MapKernel:
    """The kernel with one axis for those along which a load runs on in memory, where none of these is long alone.

    So the taps of weights [out][in][3][3] lie beside each other for the input channels: a row of 9 times as many.
    """
    *others, lane = kernel.axes
    extents = {a: as_int(a.args[0]) for a in others}
    for x in dict.fromkeys(x for s in kernel.stores for x in certain_loads(s.value)):
        parts = {a: split_axis(x.args[0], a) for a in others}
        strides = {a: as_int(part[0]) for a, part in parts.items() if part is not None}
        run, size = dict[Expr, int](), 1
        while (a := next((a for a, step in strides.items() if step == size and a not in run), None)) is not None:
            run[a] = size
            size *= extents[a] or 0
        if len(run) > 1 and size:
            joined = axis("run", size)
            places = {a: joined // step % a.args[0] for a, step in run.items()}
            stores = tuple(
                Store(s.buffer, substitute(s.offset, places), substitute(s.value, places)) for s in kernel.stores
            )
            axes = (*(a for a in others if a not in run), joined, lane)
            return dataclasses.replace(kernel, axes=axes, stores=stores)
    return kernel


def to_row(kernel: RowKernel, mapping: ThreadMapping = USUAL) -> GridRow:
    """A row kernel whose rows have threads of their own, one or several."""
    share = (mapping.share or _share(kernel)) if kernel.across else 1
    threads = (mapping.threads or THREADS) if share <= WARP else share
    points = product([a.args[0] for a in kernel.axes])
    packet = mapping.packet_of(kernel.reduce[-1]) if share > 1 else 1
    return GridRow.of(
        kernel,
        tasks=ceil_div(points, threads // share),
        threads=threads,
        share=share,
        packet=packet,
        steps=_steps(kernel, share, packet),
    )


def _columns(kernel: RowKernel, device: Device, mapping: ThreadMapping) -> GridColumns | None:
    """A row kernel whose neighbouring threads have neighbouring points; None for short rows, or rows along memory."""
    size = as_int(product([r.args[0] for r in kernel.reduce]))
    if kernel.across or (size is not None and size < FEW):
        return _short_columns(kernel, device, mapping)
    held = None if size is None else _kept_columns(kernel, size, mapping)
    if held is not None:
        return held
    size = GUESS if size is None else size
    packet = mapping.packet_of(kernel.axes[-1]) if _steps_along(kernel, kernel.axes[-1]) else 1
    each = THREADS * register_bytes(kernel)
    if packet * each > SHARED // 2:
        packet = 1
    if each > SHARED:
        return None
    points = as_int(product([a.args[0] for a in kernel.axes]))
    packets = GUESS if points is None else max(points // packet, 1)
    turns, most = mapping.turns or 1, TURNS if packet == 1 else PACKET_TURNS
    while not mapping.turns and turns < most and packets * turns < device.units * UNIT_THREADS and turns * 16 <= size:
        turns *= 2
    side = -(-packets * turns // THREADS)
    lanes = -(-packets // side)  # blocks side by side have about as many
    turns = min(THREADS // lanes, mapping.turns or max(1, size // 8))
    made = deal_columns(kernel, lanes, turns, packet)
    return dataclasses.replace(made, unroll=2 * UNROLL if _bytes_of_element(made) * 2 * UNROLL <= AHEAD else UNROLL)


def _bytes_of_element(kernel: GridColumns) -> int:
    """Bytes that a thread reads for an element of its columns."""
    moving = {x for x in _loads(kernel) if any(contains(x, r) for r in kernel.reduce)}
    return kernel.packet * sum(kernel.buffers[x.data].dtype.size for x in moving if isinstance(x.data, int))


def _short_columns(kernel: RowKernel, device: Device, mapping: ThreadMapping) -> GridColumns | None:
    """Short rows of many points, of which each thread takes neighbours: they share where and whether they are read."""
    points, lane = as_int(product([a.args[0] for a in kernel.axes])), kernel.axes[-1]
    packet, many = mapping.packet_of(lane), device.units * UNIT_THREADS
    size = as_int(product([r.args[0] for r in kernel.reduce]))
    if kernel.across or kernel.element or packet == 1 or not _steps_along(kernel, lane):
        return None
    if size is None or size > SHORT or points is None or points < many * packet:
        return None
    twice = 2 * packet  # they share where they lie, which takes most of the instructions
    if not mapping.packet and not kernel.kept and divisor_of(lane.args[0]) % twice == 0 and points >= many * twice:
        packet = twice
    return deal_columns(kernel, THREADS, 1, packet, size) if kernel.kept * size * packet <= KEPT else None


def _kept_columns(kernel: RowKernel, size: int, mapping: ThreadMapping) -> GridColumns | None:
    """Columns that stay in registers between their stages, so that memory is read once; None where they do not fit."""
    if not kernel.kept or mapping.turns or mapping.pieces:
        return None
    packet = mapping.packet_of(kernel.axes[-1]) if _steps_along(kernel, kernel.axes[-1]) else 1
    points = as_int(product([a.args[0] for a in kernel.axes]))
    packets = GUESS if points is None else max(points // packet, 1)
    most = KEPT // (packet * _live(kernel))
    element = min(kernel.buffers[x.data].dtype.size for x in _loads(kernel) if isinstance(x.data, int))
    for width in WIDTHS[1:] if kernel.element else WIDTHS:
        lanes = mapping.lanes or max(1, width // (element * packet))
        turns = -(-size // max(1, min(most, mapping.steps or most)))
        while not mapping.lanes and lanes * 2 * turns <= THREADS and lanes < packets:
            lanes *= 2
        joined = max(1, WARP // lanes)
        turns = -(-turns // joined) * joined
        steps = -(-size // turns)
        made = deal_columns(kernel, lanes, turns, packet, steps)
        if most and made.threads <= KEPT_THREADS and made.shared <= SHARED:
            return made
    return None


def deal_columns(kernel: RowKernel, lanes: int, turns: int, packet: int, steps: int = 0) -> GridColumns:
    threads = -(-lanes * turns // WARP) * WARP
    made = GridColumns.of(kernel, threads=threads, lanes=lanes, turns=turns, packet=packet, steps=steps)
    return dataclasses.replace(made, tasks=made.blocks)


def _live(kernel: RowKernel) -> int:
    """Rows of what is kept that a thread holds at a time: one ends with the stage that reads it last."""
    reads = [_rows_read(stage) for stage in kernel.stages] + [_rows_read(kernel.element)]
    written, most = set[str](), 1
    for k, stage in enumerate(kernel.stages):
        written |= {f"row{keep.slot}" for keep in stage.keeps}
        most = max(most, len(written & set[str]().union(*reads[k + 1 :])))
    return most


def _rows_read(part: object) -> set[str]:
    return {x.data for x in walk(*expressions_in(part)) if x.op == "load" and isinstance(x.data, str)}


def _steps_along(kernel: RowKernel, lane: Expr) -> bool:
    """Whether something that rows are computed from steps by one along an axis."""
    parts = [split_axis(x.args[0], lane) for x in _loads(kernel)]
    return any(p is not None and as_int(p[0]) == 1 for p in parts)


def _loads(kernel: RowKernel) -> list[Expr]:
    """Loads from memory that rows are computed from."""
    terms = [a.term for stage in kernel.stages for a in stage.accumulators]
    return [x for x in walk(*terms) if x.op == "load" and isinstance(x.data, int)]


def register_bytes(kernel: RowKernel) -> int:
    """Bytes of the accumulators of a row."""
    sums = [a.term.dtype for stage in kernel.stages for a in stage.accumulators]
    return sum(4 if t is BOOL else t.register.size for t in sums)


def _share(kernel: RowKernel) -> int:
    """Threads a row: about 16 elements each, at least a warp."""
    size = as_int(product([r.args[0] for r in kernel.reduce]))
    if size is None:
        return THREADS
    return next((t for t in ROW_THREADS if t * PER_THREAD >= size), ROW_THREADS[-1])


def _steps(kernel: RowKernel, share: int, packet: int) -> int:
    """Packets of a row that a thread takes, when its part of what is kept fits its registers; else 0."""
    size = as_int(product([r.args[0] for r in kernel.reduce]))
    if size is None or share == 1:
        return 0
    steps = -(-size // (share * packet))
    return steps if 0 < steps * packet * max(kernel.kept, 1) <= REGISTERS else 0
