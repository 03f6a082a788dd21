"""Running sums and products on devices: a block for a row along memory, a thread for each point beside others.

Few long rows are cut into pieces: their sums come first, then all pieces side by side, whose blocks add up the sums of
those before. Where each thread has a point for itself, a kernel between the two does that once for all. Products of
floats stay whole, and in order: a piece may overflow where the row does not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from ...expr import Expr, acc, as_int, axis, ceil_div, const, load, product, select, substitute
from ...graph import Value
from ...kernels.base import Buffer, Kernel, Store, Temporary
from ...kernels.heavy import HeavyKernel, epilogue_flops, is_empty, row_major, traffic
from ...kernels.machine import Device, Machine
from ...kernels.nest import Accumulator, RowKernel, Stage
from ...kernels.scan import Scan, read_scan
from ...ops.tensor.index import Cumulative
from ...plan.group import Group
from ...plan.storage import Storage
from .base import GridTarget
from .grid import THREADS, WARP, WHOLE, to_grid

ITEMS = 4  # elements of a row that a thread reads before it adds
STEPS = 8  # those of a thread that has a point for itself
BLOCKS, SCARCE = 8, 4  # pieces a multiprocessor, and blocks below which rows are cut
BUSY = 1024  # threads a multiprocessor, where each has a point for itself
LONG, TALL = 4096, 64  # elements of a piece at the least: along memory, and of a thread


@dataclass(frozen=True)
class GridScan(HeavyKernel):
    """A running sum or product; its stores make their values from ``y``.

    Attributes:
        axes: parallel axes, outermost first.
        time: the axis that it runs along.
        total: what is accumulated.
        exclusive: whether an element is left out of its own sum.
        reverse: whether it runs from the end.
        across: whether the threads of a block share a row, or each has a point for itself.
        threads: threads of a block.
        piece: axis of the pieces that rows are cut into.
        length: elements of a piece, where there are several.
        start: what stands before a piece, or a part of it, or None.
        earlier: axis of the pieces before one, along which a block adds up `start`, or None.
    """

    kind: ClassVar[str] = "scan"
    template: ClassVar[str] = "scan.j2"

    axes: tuple[Expr, ...]
    time: Expr
    total: Accumulator
    exclusive: bool
    reverse: bool
    across: bool
    threads: int
    piece: Expr = WHOLE
    length: int = 0
    start: Expr | None = None
    earlier: Expr | None = None

    @property
    def items(self) -> int:
        return ITEMS if self.across else STEPS

    @property
    def shared(self) -> int:
        return 2 * self.threads // WARP * self.total.term.dtype.size if self.across and self.threads > WARP else 0

    @property
    def columns(self) -> Expr:
        """Blocks side by side along the points."""
        points = product([a.args[0] for a in self.axes])
        return points if self.across else ceil_div(points, self.threads)


def grid_scan(group: Group, scan: Scan, across: bool, threads: int) -> GridScan:
    """The kernel of a running sum or product, whose tasks are to be set."""
    node = group.anchor
    assert node is not None and isinstance(node.op, Cumulative)
    size = node.output.type.size
    return GridScan(
        buffers=tuple(scan.buffers.list),
        tasks=const(0),
        flops=size + epilogue_flops(scan.stores, size),
        nbytes=traffic(scan.buffers.list, group.outputs),
        stores=scan.stores,
        axes=(*scan.before, *scan.after) or (axis("i0", 1),),
        time=scan.time,
        total=scan.total,
        exclusive=bool(node.op.exclusive),
        reverse=bool(node.op.reverse),
        across=across,
        threads=threads,
    )


@GridTarget.lowers("scan")
def lower_grid_scan(group: Group, storage: Mapping[Value, Storage], machine: Machine) -> list[Kernel]:
    """The kernels of a running sum or product with what follows it."""
    if all(is_empty(v) for v in group.outputs):
        return []
    scan = read_scan(group, storage)
    serial = scan.total.combine == "mul" and scan.total.term.dtype.is_float
    whole = _set_threads(grid_scan(group, scan, not scan.after and not serial, THREADS))
    count = 1 if serial else _pieces(whole, machine.device)
    return [whole] if count == 1 else _in_pieces(whole, scan, group, machine.device, count)


def _set_threads(kernel: GridScan) -> GridScan:
    """The kernel with as many threads as its rows need, and its tasks."""
    size = kernel.length or as_int(kernel.time.args[0])
    if kernel.across and size is not None:
        threads = next((t for t in (32, 64, 128) if t * ITEMS >= size), THREADS)
        kernel = replace(kernel, threads=threads)
    return replace(kernel, tasks=kernel.columns * kernel.piece.args[0])


def _pieces(kernel: GridScan, device: Device) -> int:
    size, points = as_int(kernel.time.args[0]), as_int(product([a.args[0] for a in kernel.axes]))
    if size is None or points is None:
        return 1
    wanted, enough, least = (BLOCKS, SCARCE, LONG) if kernel.across else (BUSY, BUSY, TALL)
    if points >= device.units * enough or size < 2 * least:
        return 1
    return min(-(-device.units * wanted // points), size // least)


def _in_pieces(whole: GridScan, scan: Scan, group: Group, device: Device, count: int) -> list[Kernel]:
    """The sums of the pieces, what stands before each where a block does not add that up, and the running sums."""
    size, dtype = as_int(whole.time.args[0]) or 0, whole.total.term.dtype
    length = -(-size // count)
    piece, within = axis("piece", -(-size // length)), axis("r0", length)
    points = product([a.args[0] for a in whole.axes]) * piece.args[0]
    place = row_major([*whole.axes, piece])
    sums, starts = (Temporary(name, group.id, points * dtype.size) for name in ("sums", "starts"))

    at = piece * length + within
    here = substitute(whole.total.term, {whole.time: at})
    neutral = const(whole.total.start, dtype)
    term = here if size % length == 0 else select(at < size, here, neutral)
    total = RowKernel(
        buffers=(whole.buffers[0], Buffer(sums, dtype, written=True)),  # what is summed is read first
        tasks=points,
        flops=points * length,
        nbytes=points * length * dtype.size,
        axes=(*whole.axes[: len(whole.axes) - len(scan.after)], piece, *scan.after),
        reduce=(within,),
        across=whole.across,
        stages=(Stage((Accumulator("0", whole.total.combine, term, acc("a0", dtype)),)),),
        element=(),
        row=(Store(1, place, acc("x0", dtype)),),
        kept=0,
        rows=1,
        chunk=1,
    )
    first, kernel = to_grid(total, device), replace(whole, piece=piece, length=length)
    if whole.across:
        earlier = axis("q0", piece.args[0])
        of_earlier = row_major([*whole.axes, earlier])
        return [first, _set_threads(_make_starts(kernel, sums, of_earlier, earlier))]
    before = replace(
        whole,
        buffers=(Buffer(sums, dtype, written=False), Buffer(starts, dtype, written=True)),
        stores=(Store(1, place, acc("y", dtype)),),
        flops=points,
        nbytes=points * (2 * dtype.size),
        time=piece,
        total=replace(whole.total, term=load(0, (place,), dtype)),
        exclusive=True,
        across=True,
    )
    return [first, _set_threads(before), _set_threads(_make_starts(kernel, starts, place, None))]


def _make_starts(kernel: GridScan, starts: Temporary, place: Expr, earlier: Expr | None) -> GridScan:
    """The kernel that begins with what lies at a place of a buffer."""
    dtype = kernel.total.term.dtype
    return replace(
        kernel,
        buffers=(*kernel.buffers, Buffer(starts, dtype, written=False)),
        start=load(len(kernel.buffers), (place,), dtype),
        earlier=earlier,
    )
