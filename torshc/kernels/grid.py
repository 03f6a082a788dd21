"""Kernels of the generic nest for devices of blocks of threads: the same loops, dealt out to threads."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from ..expr import Expr, as_int, call
from ..graph import Value
from ..plan.group import Group
from ..plan.storage import Storage
from .base import Kernel
from .generic import lower_generic
from .nest import MapKernel, RowKernel, lower_nest, product

THREADS = 256  # threads of a block
PACKET = 4  # neighbours that a thread computes together: 16 bytes of f32
WARP = 32
ROW_THREADS = (32, 64, 128, 256, 512)  # threads that may share a row
PER_THREAD = 16  # elements of a row a thread, about


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
    """

    template: ClassVar[str] = "row.j2"

    threads: int = THREADS
    share: int = 1
    packet: int = 1


def lower_grid(group: Group, storage: Mapping[Value, Storage]) -> list[Kernel]:
    """The kernels of a group of nests on a device."""
    return [to_grid(k) for k in lower_nest(group, storage, keep=False)]


def lower_grid_generic(group: Group, storage: Mapping[Value, Storage]) -> list[Kernel]:
    """A heavy operator as a plain nest on a device."""
    return [to_grid(k) for k in lower_generic(group, storage, keep=False)]


def to_grid(kernel: Kernel) -> Kernel:
    """A map or row kernel with its work dealt out to blocks of threads."""
    fields = {f.name: getattr(kernel, f.name) for f in dataclasses.fields(kernel)}
    if isinstance(kernel, MapKernel):
        packet = _packet(kernel.axes[-1])
        points = product([a.args[0] for a in kernel.axes])
        fields["tasks"] = _blocks(call("floordiv", points, packet), THREADS)
        return GridMap(**fields, packet=packet)
    if isinstance(kernel, RowKernel):
        share = _share(kernel) if kernel.across else 1
        threads = max(share, THREADS if share <= WARP else share)
        points = product([a.args[0] for a in kernel.axes])
        fields["tasks"] = _blocks(points, threads // share)
        packet = _packet(kernel.reduce[-1]) if share > 1 else 1
        return GridRow(**fields, threads=threads, share=share, packet=packet)
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


def _blocks(work: Expr, size: int) -> Expr:
    return call("floordiv", work + (size - 1), size)


__all__ = ["PACKET", "THREADS", "GridMap", "GridRow", "lower_grid", "lower_grid_generic", "to_grid"]
