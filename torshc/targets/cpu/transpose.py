"""Pointwise work that transposes: through squares of registers, a block of memory at a time that the caches hold."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from ...expr import BOOL, NARROW, Expr, as_int, ceil_div, product
from ...graph import Value
from ...kernels.base import Kernel
from ...kernels.machine import Machine
from ...kernels.moved import Crossing, Moved, crossings
from ...kernels.nest import MapKernel, in_order, lower_nest
from ...plan.group import Group
from ...plan.storage import Storage
from .append import by_new_rows
from .c import CTarget
from .logic import in_bytes
from .picked import by_rows
from .quantised import in_factors
from .reduce_in_parts import in_parts
from .tables import by_table

LINES, COLUMNS = 64, 256  # of a task, 16,384 elements in all


@dataclass(frozen=True)
class TileKernel(MapKernel):
    """A map kernel whose loads run along another axis than its stores; the fields are those of a crossing.

    Attributes:
        outer: the other axes.
        lane: the axis of the stores.
        inner: the axis of what is read.
        reads: the loads that are turned.
        lines, columns: extents of a task along `inner` and `lane`, multiples of 16.
    """

    template: ClassVar[str] = "transpose.c.j2"

    outer: tuple[Expr, ...]
    lane: Expr
    inner: Expr
    reads: tuple[Moved, ...]
    lines: int = LINES
    columns: int = COLUMNS

    @property
    def names(self) -> dict[str, str]:
        """Registers of the loads."""
        return {r.name: r.name for r in self.reads}

    def register(self, r: Moved) -> str:
        """Type of the lanes of a load's register."""
        return "i32" if r.load.dtype is BOOL else r.load.dtype.compute


@CTarget.lowers("nest")
def lower_loops(group: Group, storage: Mapping[Value, Storage], machine: Machine) -> list[Kernel]:
    """The kernels of a group without a heavy node."""
    lanes = machine.lanes
    kernels = [along_longer(by_rows(in_squares(k, lanes), lanes), lanes) for k in lower_nest(group, storage)]
    kernels = [by_table(k, lanes) for k in kernels]
    if machine.slack is not None:  # results may round otherwise than the model does
        kernels = [in_factors(k) for k in kernels]
    return [part for k in kernels for part in in_parts(by_new_rows(in_bytes(k)), group.id)]


def in_squares(kernel: Kernel, lanes: int) -> Kernel:
    """A map kernel through squares where it transposes axes that fill half of them; any other as it is.

    Where what is stored has too few neighbours for a vector, as colours of a picture, vectors are of what is read.
    """
    if not isinstance(kernel, MapKernel) or lanes == 1:
        return kernel
    found = list(crossings(kernel))
    best = next((c for c in found if _fills(kernel, c, lanes)), None)
    if best is None:
        thin = next((c for c in found if _is_thin(c.lane, c.inner, lanes)), None)
        return kernel if thin is None else in_order(kernel, [*thin.outer, thin.lane, thin.inner])
    fields = {f.name: getattr(best, f.name) for f in dataclasses.fields(best)}
    blocks = ceil_div(best.lane.args[0], COLUMNS) * ceil_div(best.inner.args[0], LINES)
    return TileKernel.of(kernel, **fields, tasks=product([a.args[0] for a in best.outer]) * blocks)


def along_longer(kernel: Kernel, lanes: int) -> Kernel:
    """A map kernel with vectors along its last axis but one where the last has too few points, as a grid's places."""
    if type(kernel) is not MapKernel or len(kernel.axes) == 1:
        return kernel
    *outer, inner, lane = kernel.axes
    return in_order(kernel, [*outer, lane, inner]) if _is_thin(lane, inner, lanes) else kernel


def _is_thin(lane_axis: Expr, inner_axis: Expr, lanes: int) -> bool:
    """Whether an axis has too few points for vectors, and another enough."""
    lane, inner = (as_int(a.args[0]) for a in (lane_axis, inner_axis))
    return lane is not None and lane < lanes // 2 and inner is not None and inner >= 2 * lanes


def _fills(kernel: MapKernel, crossing: Crossing, lanes: int) -> bool:
    """Whether squares are worth it, and can be loaded."""
    sizes = (as_int(a.args[0]) for a in (crossing.lane, crossing.inner))
    if any(size is not None and size < lanes // 2 for size in sizes):
        return False
    return not any(kernel.buffers[r.buffer].dtype in NARROW for r in crossing.reads)
