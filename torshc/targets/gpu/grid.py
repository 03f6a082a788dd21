"""Kernels of the generic nest for devices of blocks of threads: the same loops, dealt out to threads."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from ...expr import BOOL, Expr, as_int, axis, call, const
from ...graph import Value
from ...kernels.axes import product
from ...kernels.base import Kernel
from ...kernels.generic import lower_generic
from ...kernels.nest import KEEP_ALL, MapKernel, RowKernel, lower_nest
from ...plan.group import Group
from ...plan.storage import Storage

THREADS = 256  # threads of a block
PACKET = 4  # neighbours that a thread computes together: 16 bytes of f32
WARP = 32  # threads of a warp; a simdgroup has as many
SHARED = 32 * 1024  # bytes of shared memory that every device has
ROW_THREADS = (32, 64, 128, 256, 512)  # threads that may share a row
PER_THREAD = 16  # elements of a row a thread, about
REGISTERS = 64  # f32 of a row that a thread may keep


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
    """

    template: ClassVar[str] = "row.j2"

    threads: int = THREADS
    share: int = 1
    packet: int = 1
    steps: int = 0

    @property
    def scratch(self) -> Expr:
        return const(0)

    @property
    def shared(self) -> int:
        if self.share <= WARP:
            return 0
        sums = [a.term.dtype for stage in self.stages for a in stage.accumulators]
        return self.share // WARP * sum(4 if t is BOOL else t.register.size for t in sums)

    @property
    def whole(self) -> bool:
        """Whether every thread takes all its packets."""
        return as_int(product([r.args[0] for r in self.reduce])) == self.steps * self.share * self.packet


def lower_grid(group: Group, storage: Mapping[Value, Storage]) -> list[Kernel]:
    """The kernels of a group of nests on a device; what a row needs again stays in registers where it fits."""
    kernels = [to_grid(k) for k in lower_nest(group, storage, keep=KEEP_ALL)]
    if all(not isinstance(k, GridRow) or not k.kept or k.steps for k in kernels):
        return kernels
    return [to_grid(k) for k in lower_nest(group, storage, keep=None)]


def lower_grid_generic(group: Group, storage: Mapping[Value, Storage]) -> list[Kernel]:
    """A heavy operator as a plain nest on a device."""
    return [to_grid(k) for k in lower_generic(group, storage, keep=None)]


def to_grid(kernel: Kernel) -> Kernel:
    """A map or row kernel with its work dealt out to blocks of threads.

    A kernel without axes (one element, such as what a uniform operand holds everywhere) gets one of extent 1.
    """
    if isinstance(kernel, MapKernel) and not kernel.axes:
        kernel = dataclasses.replace(kernel, axes=(axis("i0", 1),))
    if isinstance(kernel, MapKernel):
        packet = _packet(kernel.axes[-1])
        points = product([a.args[0] for a in kernel.axes])
        return GridMap.of(kernel, tasks=_blocks(call("floordiv", points, packet), THREADS), packet=packet)
    if isinstance(kernel, RowKernel):
        share = _share(kernel) if kernel.across else 1
        threads = max(share, THREADS if share <= WARP else share)
        points = product([a.args[0] for a in kernel.axes])
        packet = _packet(kernel.reduce[-1]) if share > 1 else 1
        return GridRow.of(
            kernel,
            tasks=_blocks(points, threads // share),
            threads=threads,
            share=share,
            packet=packet,
            steps=_steps(kernel, share, packet),
        )
    return kernel


def _packet(lane: Expr) -> int:
    size = as_int(lane.args[0])
    return PACKET if size is not None and size % PACKET == 0 and size > 0 else 1


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


def _blocks(work: Expr, size: int) -> Expr:
    return call("floordiv", work + (size - 1), size)
