"""Lowering of scatters: the data is copied, and the updates are written one after the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from ...expr import BF16, F16, Expr, as_int, ceil_div, const, max_of, min_of, product, walk
from ...expr.affine import strides_along
from ...graph import Value
from ...kernels.base import Kernel
from ...kernels.generic import lower_generic
from ...kernels.heavy import HeavyKernel, is_empty, traffic
from ...kernels.machine import Machine
from ...kernels.nest import CHUNK
from ...kernels.scatter import Place, lower_copy, read_updates, scatter_of
from ...ops.core.base import searchable
from ...plan.group import Group
from ...plan.storage import Storage
from .base import CpuTarget

BESIDE = 1024  # neighbours of the innermost axis that a task takes


@dataclass(frozen=True)
class ScatterKernel(HeavyKernel):
    """Updates written one after the other; its store makes a new element of an old one.

    Attributes:
        axes: parallel axes, outermost first, without `lane`.
        step: the axis along which updates follow each other.
        lane: the innermost parallel axis, None where there is none.
        along: whether all places are the same along `lane`.
        places: dimensions of the result that indices choose.
        rows: points of `axes` a task.
        chunk: elements of the lane axis a task.
    """

    kind: ClassVar[str] = "scatter"
    template: ClassVar[str] = "scatter.c.j2"

    axes: tuple[Expr, ...]
    step: Expr
    lane: Expr | None
    along: bool
    places: tuple[Place, ...]
    rows: Expr
    chunk: int


@CpuTarget.lowers("scatter")
def lower_scatter(group: Group, storage: Mapping[Value, Storage], machine: Machine) -> list[Kernel]:
    """The kernels of a scatter."""
    node, op = scatter_of(group)
    if is_empty(node.output):
        return []
    halves = op.reduction != "none" and node.output.dtype in (F16, BF16)
    if halves and searchable(op.extents(node)[0], node.output.type.size):
        return lower_generic(group, storage)  # whose sums are of f32, and rounded once
    u = read_updates(group, storage)
    axes, lane = u.axes, u.lane
    if lane is not None and not u.along and _is_nearer(u.step, lane, u.places):
        axes, lane = (*axes, lane), None
    width = lane.args[0] if lane is not None else const(1)
    work = max_of(u.step.args[0] * min_of(width, BESIDE), 1)
    rows = max_of(const(CHUNK) // work, 1)
    kernel = ScatterKernel(
        buffers=tuple(u.buffers.list),
        tasks=ceil_div(product([a.args[0] for a in axes]), rows) * ceil_div(width, BESIDE),
        flops=op.flops(node),
        nbytes=traffic(u.buffers.list, node.operands[2:]),
        stores=(u.store,),
        axes=axes,
        step=u.step,
        lane=lane,
        along=u.along,
        places=u.places,
        rows=rows,
        chunk=BESIDE,
    )
    return [*lower_copy(group, storage), kernel]


def _is_nearer(step: Expr, lane: Expr, places: Sequence[Place]) -> bool:
    """Whether indices that follow each other lie nearer in memory than those side by side."""
    for e in walk(*(p.index for p in places)):
        strides = strides_along(e.args[0], (step, lane)) if e.op == "load" else None
        if strides is not None:
            along, beside = (as_int(s) for s in strides[0])
            return along is not None and (beside is None or abs(along) < abs(beside))
    return False
