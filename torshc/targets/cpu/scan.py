"""Lowering of running sums and products: one pass over the axis, all other axes in parallel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from ...expr import Expr, ceil_div, const, load, max_of, min_of, product, substitute
from ...graph import Value
from ...kernels.base import Kernel
from ...kernels.heavy import HeavyKernel, epilogue_flops, is_empty, traffic
from ...kernels.machine import Machine
from ...kernels.nest import CHUNK, Accumulator
from ...kernels.scan import read_scan
from ...ops.tensor.index import Cumulative
from ...plan.group import Group
from ...plan.storage import Storage
from .base import CpuTarget

BESIDE = 256  # neighbours of the innermost axis that a task takes: 1 KiB of f32 a step, read at one go
AT_ONCE = 8  # tasks beside each other that a thread does in one pass: their sums stay in the first cache


@dataclass(frozen=True)
class ScanKernel(HeavyKernel):
    """A running sum or product; its stores make their values from ``y``.

    Attributes:
        axes: parallel axes, outermost first, without the lane axis.
        time: the axis that it runs along.
        lane: the axis of vectors: the innermost in memory, which may be `time`.
        total: what is accumulated.
        exclusive: whether an element is left out of its own sum.
        reverse: whether it runs from the end.
        rows: points of `axes` a task.
        chunk: elements of the lane axis a task, a multiple of 16, where that is not `time`.
        most: neighbouring tasks that are one piece of work, at most.
    """

    kind: ClassVar[str] = "scan"
    template: ClassVar[str] = "scan.c.j2"

    axes: tuple[Expr, ...]
    time: Expr
    lane: Expr
    total: Accumulator
    exclusive: bool
    reverse: bool
    rows: Expr
    chunk: int
    most: int

    @property
    def across(self) -> bool:
        """Whether vectors run along the axis itself."""
        return self.lane is self.time

    @property
    def serial(self) -> bool:
        """Whether one element follows the other: a product of floats in another order may overflow on the way."""
        return self.across and self.total.combine == "mul" and self.total.term.dtype.is_float

    @property
    def previous(self) -> Expr | None:
        """The sum so far, where it is the result before; None where results are other values, or of another type."""
        if self.across or self.exclusive or len(self.stores) != 1 or self.stores[0].value is not self.total.result:
            return None
        (store,), step = self.stores, 1 if self.reverse else -1
        if self.buffers[store.buffer].dtype is not self.total.term.dtype:
            return None
        return load(store.buffer, (substitute(store.offset, {self.time: self.time + step}),), self.total.term.dtype)

    @property
    def scratch(self) -> Expr:
        return const(
            0 if self.across or self.previous is not None else self.most * self.chunk * self.total.term.dtype.size
        )


@CpuTarget.lowers("scan")
def lower_scan(group: Group, storage: Mapping[Value, Storage], machine: Machine) -> list[Kernel]:
    """The kernel of a running sum or product with what follows it."""
    node = group.anchor
    assert node is not None and isinstance(node.op, Cumulative)
    if all(is_empty(v) for v in group.outputs):
        return []
    op, size = node.op, node.output.type.size
    scan = read_scan(group, storage)
    time, lane = scan.time, scan.after[-1] if scan.after else scan.time
    outer = (*scan.before, *scan.after[:-1])
    length, width = time.args[0], lane.args[0]
    work = max_of(length if lane is time else length * min_of(width, BESIDE), 1)
    rows = max_of(const(CHUNK) // work, 1)
    points = product([a.args[0] for a in outer])
    return [
        ScanKernel(
            buffers=tuple(scan.buffers.list),
            tasks=ceil_div(points, rows) * (1 if lane is time else ceil_div(width, BESIDE)),
            flops=size + epilogue_flops(scan.stores, size),
            nbytes=traffic(scan.buffers.list, group.outputs),
            stores=scan.stores,
            axes=outer,
            time=time,
            lane=lane,
            total=scan.total,
            exclusive=bool(op.exclusive),
            reverse=bool(op.reverse),
            rows=rows,
            chunk=BESIDE,
            most=AT_ONCE,
        )
    ]
