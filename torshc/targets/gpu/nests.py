"""Lowering of loop nests to devices of blocks of threads; reductions of long rows are cut into pieces.

A device is busy with thousands of threads only. Where few rows are long, a piece of a row has a block of its own,
which leaves what it accumulated in memory; a second kernel joins the pieces of each row, in their order. So the result
does not depend on which block is done first, and no atomic addition is needed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

from ...expr import Expr, acc, as_int, axis, cost, load, product
from ...expr.affine import contains
from ...graph import Value
from ...kernels.arguments import Arguments
from ...kernels.base import Kernel, Store, Temporary
from ...kernels.generic import lower_generic
from ...kernels.heavy import row_major, traffic
from ...kernels.machine import Device
from ...kernels.nest import KEEP_ALL, Accumulator, MapKernel, RowKernel, Stage, lower_nest
from ...plan.group import Group
from ...plan.storage import Storage
from .grid import ROW_THREADS, USUAL, GridColumns, GridRow, ThreadMapping, to_grid

BLOCKS = 16  # pieces a multiprocessor, so that all are busy to the end
COLUMN_BLOCKS = 4  # of columns: more take as long on an H200, and leave more sums to be joined
SCARCE = 8  # blocks a multiprocessor below which pieces are worth a launch
LONG = 64  # elements of a row a thread, above which they are
STEPS = 16  # elements of a piece a thread, at the least
COSTLY = 4  # operations that are done once for each row, and not for each of its elements
LARGE = 2**18  # elements that are read again for a second reduction, above which that is


def lower_grid(
    group: Group, storage: Mapping[Value, Storage], device: Device, mapping: ThreadMapping = USUAL
) -> list[Kernel]:
    """The kernels of a group of nests on a device; what a row needs again stays in registers where it fits."""
    kernels = [to_grid(k, device, mapping) for k in lower_nest(group, storage, keep=KEEP_ALL)]
    if any(isinstance(k, GridRow | GridColumns) and k.kept and not k.steps for k in kernels):
        kernels = [to_grid(k, device, mapping) for k in lower_nest(group, storage, keep=None)]
    return [part for k in kernels for part in in_pieces(k, group.id, device, mapping)]


def lower_grid_generic(group: Group, storage: Mapping[Value, Storage], device: Device) -> list[Kernel]:
    """A heavy operator as a plain nest on a device."""
    kernels = [to_grid(k, device) for k in lower_generic(group, storage, keep=None)]
    return [part for k in kernels for part in in_pieces(k, group.id, device)]


def in_pieces(kernel: Kernel, owner: int, device: Device, mapping: ThreadMapping = USUAL) -> list[Kernel]:
    """A kernel, or the kernels that do its work piece by piece where it has few long rows.

    Args:
        owner: number of its group, which memory between kernels belongs to.
        mapping: what a tuning record says.
    """
    if not isinstance(kernel, GridRow | GridColumns) or kernel.kept:
        return [kernel]
    steps = kernel.unroll if isinstance(kernel, GridColumns) else STEPS  # columns: as many as are read at once
    count, length = count_pieces(kernel, device, mapping.pieces, steps)
    return [_in_even_turns(kernel)] if count == 1 else _Pieces(kernel, owner, device, mapping, count, length).run()


def _in_even_turns(kernel: GridRow | GridColumns) -> Kernel:
    """Columns that read as many elements at once as leaves few for the end, of which each is waited for alone."""
    size = as_int(product([r.args[0] for r in kernel.reduce]))
    if not isinstance(kernel, GridColumns) or kernel.steps or size is None:
        return kernel
    each = -(-size // kernel.turns)
    return dataclasses.replace(kernel, unroll=min(range(kernel.unroll, 0, -1), key=lambda n: each // n + each % n))


def count_pieces(kernel: GridRow | GridColumns, device: Device, given: int, steps: int = STEPS) -> tuple[int, int]:
    """Into how many pieces rows are cut, and elements of a piece; (1, 0) for rows that stay whole.

    Args:
        given: pieces that a tuning record says, or 0.
        steps: elements of a piece a thread, at the least.
    """
    size = as_int(product([r.args[0] for r in kernel.reduce]))
    points = as_int(product([a.args[0] for a in kernel.axes]))
    if size is None or points is None or (not given and len(kernel.stages) > 1 and size * points < LARGE):
        return 1, 0
    if isinstance(kernel, GridColumns):
        blocks, threads, packet, wanted = as_int(kernel.blocks) or 1, kernel.turns, 1, COLUMN_BLOCKS
    else:
        blocks, threads, packet, wanted = points, kernel.share, kernel.packet, BLOCKS
        if threads < kernel.threads:
            return 1, 0
    if not given and (blocks >= device.units * SCARCE or size <= threads * LONG):
        return 1, 0
    usual = min(-(-device.units * wanted // blocks), size // (threads * steps))
    count = min(given, max(size // packet, 1)) or usual
    length = -(-size // (count * packet)) * packet
    if isinstance(kernel, GridColumns) and not given:
        # What a block reads at once, some times: each element of a rest would be waited for alone. Up to 1.4 of that
        # is once, so that blocks do not get many more.
        once = kernel.turns * kernel.unroll
        length = max(1, -(-(length - 2 * once // 5) // once)) * once
    return -(-size // length), length


class _Pieces:
    """The kernels of reductions in pieces: for each stage its pieces and their sum, in the end what needs the sums."""

    def __init__(
        self, kernel: GridRow | GridColumns, owner: int, device: Device, mapping: ThreadMapping, count: int, length: int
    ) -> None:
        self.kernel, self.owner, self.device, self.mapping = kernel, owner, device, mapping
        self.piece, self.length = axis("piece", count), length
        self.points = product([a.args[0] for a in kernel.axes])
        self.known: dict[Expr, tuple[Temporary, Expr]] = {}  # what follows from a stage, by its name in later ones
        self.once, self.left = _once_a_row(kernel)

    def run(self) -> list[Kernel]:
        kernels: list[Kernel] = []
        for number, stage in enumerate(self.kernel.stages):
            last = number == len(self.kernel.stages) - 1
            kernels += [self._partial(number, stage), self._total(number, stage, last)]
        return [*kernels, self._elements()] if self.kernel.element else kernels

    def _partial(self, number: int, stage: Stage) -> Kernel:
        """What each piece accumulates."""
        args = Arguments(self.kernel, self.known)
        place = row_major([*self.kernel.axes, self.piece])
        accumulators, stores = [], []
        for a in stage.accumulators:
            kept = acc(f"a{a.name}", a.term.dtype)
            accumulators.append(Accumulator(a.name, a.combine, args.bring(a.term), kept))
            to = self._temporary(f"pieces {number} {a.name}", kept, self.points * self.piece.args[0])
            stores.append(Store(args.add(to, kept), place, acc(f"x{a.name}", kept.dtype)))
        return _cut(self.kernel, self.piece, self.length, Stage(tuple(accumulators)), stores, args)

    def _total(self, number: int, stage: Stage, last: bool) -> Kernel:
        """The pieces of each row joined, and what follows from them."""
        args = Arguments(self.kernel, self.known)
        each = axis("r0", self.piece.args[0])
        place = row_major([*self.kernel.axes, each])
        accumulators, stores = [], []
        for a in stage.accumulators:
            kept = acc(f"a{a.name}", a.term.dtype)
            source = args.add(
                self._temporary(f"pieces {number} {a.name}", kept, self.points * each.args[0]), kept, False
            )
            term = load(source, (place,), kept.dtype)
            accumulators.append(Accumulator(a.name, a.combine, term, args.bring(a.result)))
        stores += [args.store(s) for s in self.kernel.row if last]
        names = {acc(f"x{a.name}", a.result.dtype): a.name for a in stage.accumulators}
        known = [(f"row {name}", x, x) for x, name in names.items() if not last or x in self.left]
        known += [(f"row value {k}", e, args.bring(e)) for k, e in enumerate(self.once) if last]
        at = row_major(self.kernel.axes)
        for name, e, value in known:
            to = self._temporary(name, e, self.points)
            stores.append(Store(args.add(to, e), at, value))
            self.known[e] = to, at
        return to_grid(
            RowKernel(
                buffers=tuple(args.list),
                tasks=self.points,
                flops=self.points * each.args[0],
                nbytes=self.points * each.args[0] * sum(b.dtype.size for b in args.list if not b.written),
                axes=self.kernel.axes,
                reduce=(each,),
                across=True,
                stages=(Stage(tuple(accumulators)),),
                element=(),
                row=tuple(stores),
                kept=0,
                rows=1,
                chunk=1,
            ),
            self.device,
            ThreadMapping(share=_share_of_pieces(each)),
        )

    def _elements(self) -> Kernel:
        """What is computed for each element of the rows."""
        args = Arguments(self.kernel, self.known)
        stores = tuple(args.store(s) for s in self.kernel.element)
        *outer, lane = self.kernel.axes
        across = isinstance(self.kernel, GridRow)
        axes = (*outer, lane, *self.kernel.reduce) if across else (*outer, *self.kernel.reduce, lane)
        return to_grid(
            MapKernel(
                buffers=tuple(args.list),
                tasks=product([a.args[0] for a in axes]),
                flops=self.kernel.flops,
                nbytes=self.kernel.nbytes,
                axes=axes,
                stores=stores,
                rows=1,
                chunk=1,
            ),
            self.device,
            self.mapping,
        )

    def _temporary(self, name: str, what: Expr, count: Expr) -> Temporary:
        return Temporary(name, self.owner, count * what.dtype.size)


def _share_of_pieces(pieces: Expr) -> int:
    """Threads that share the pieces of a row: as many as read all of them at once, as none waits for another then."""
    size, packet = as_int(pieces.args[0]) or 0, USUAL.packet_of(pieces)
    return next((t for t in ROW_THREADS if t * packet >= size), ROW_THREADS[-1])


def _once_a_row(kernel: GridRow | GridColumns) -> tuple[list[Expr], set[Expr]]:
    """What elements of a row are computed of and depends on the row alone, where it takes some operations.

    Returns:
        Also all that is read beside.
    """
    found, left, pending = dict[Expr, None](), set[Expr](), [s.value for s in kernel.element]
    while pending:
        e = pending.pop()
        if e in left:
            continue
        if cost(e) >= COSTLY and not any(contains(e, r) for r in kernel.reduce):
            found[e] = None
        else:
            left.add(e)
            pending += e.args
    return list(found), left


def _cut(
    kernel: GridRow | GridColumns,
    piece: Expr,
    length: int,
    stage: Stage,
    stores: Iterable[Store],
    args: Arguments,
) -> Kernel:
    """One reduction of a kernel, for each piece of a row."""
    return dataclasses.replace(
        kernel,
        buffers=tuple(args.list),
        tasks=kernel.tasks * piece.args[0],
        nbytes=traffic(args.list, ()),
        stages=(stage,),
        element=(),
        row=tuple(stores),
        piece=piece,
        length=length,
    )
