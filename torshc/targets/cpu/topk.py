"""Lowering of TopK: the first of a row in order, without counting how many come before each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from ...expr import Expr, ceil_div, const, max_of, product, select
from ...graph import Value
from ...kernels.base import Kernel
from ...kernels.heavy import HeavyKernel, is_empty, traffic
from ...kernels.machine import Machine
from ...kernels.nest import CHUNK
from ...kernels.topk import read_ranking
from ...ops.tensor.sort import TopK
from ...plan.group import Group
from ...plan.storage import Storage
from .base import CpuTarget

FEW = 64  # up to this k a heap is used, whatever the row's length
SHARE = 64  # or up to this share of the row; above that, the whole row is sorted


@dataclass(frozen=True)
class TopKKernel(HeavyKernel):
    """The first of each row in order; its stores read the element at `place`, and `place` itself.

    Attributes:
        axes: parallel axes, outermost first: the rows.
        place: the axis along which is searched.
        rank: the axis of the results.
        key: the element at `place`.
        largest: whether the largest come first.
        rows: rows a task.
    """

    kind: ClassVar[str] = "topk"
    template: ClassVar[str] = "topk.c.j2"

    axes: tuple[Expr, ...]
    place: Expr
    rank: Expr
    key: Expr
    largest: bool
    rows: Expr

    @property
    def wide(self) -> bool:
        """Whether keys have 64 bits."""
        return self.key.dtype.size == 8

    @property
    def few(self) -> Expr:
        """Whether k is small enough for a heap."""
        count, size = self.rank.args[0], self.place.args[0]
        return (count <= FEW) | (count * SHARE <= size)

    @property
    def few_known(self) -> bool | None:
        """Whether few are taken; None where it is known only at run time."""
        return bool(self.few.data) if self.few.op == "const" else None

    @property
    def scratch(self) -> Expr:
        return select(self.few, self.rank.args[0], self.place.args[0] * 2) * (16 if self.wide else 8)


@CpuTarget.lowers("topk")
def lower_topk(group: Group, storage: Mapping[Value, Storage], machine: Machine) -> list[Kernel]:
    """The kernel of a TopK with what follows it."""
    node = group.anchor
    assert node is not None and isinstance(node.op, TopK)
    if all(is_empty(v) for v in group.outputs):
        return []
    x, ranking = node.operands[0], read_ranking(group, storage)
    each = max_of(const(CHUNK) // max_of(ranking.place.args[0], 1), 1)
    return [
        TopKKernel(
            buffers=tuple(ranking.buffers.list),
            tasks=ceil_div(product([a.args[0] for a in ranking.axes]), each),
            flops=x.type.size,
            nbytes=traffic(ranking.buffers.list, group.outputs),
            stores=ranking.stores,
            axes=ranking.axes,
            place=ranking.place,
            rank=ranking.rank,
            key=ranking.key,
            largest=bool(node.op.largest),
            rows=each,
        )
    ]
