"""TopK on devices: a block for each row, or by counting how many come before each element."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from ...expr import Expr, as_int, axis
from ...graph import Builder, Graph, Node, Value
from ...kernels.axes import product
from ...kernels.base import Kernel, NoKernel, Operand, Temporary
from ...kernels.heavy import HeavyKernel, is_empty, traffic
from ...kernels.machine import Machine
from ...kernels.recurrent import apart, moved
from ...kernels.topk import Ranking, read_ranking
from ...ops.tensor.sort import TopK
from ...plan.group import Group
from ...plan.storage import Storage
from .base import GridTarget
from .nests import lower_grid

MOST = 2048  # results of a row that fit shared memory
SHORT = 4096  # elements of a row for which a small block is enough
NEST = 4096  # the longest axis along which a device counts for each element


@dataclass(frozen=True)
class GridTopK(HeavyKernel):
    """The first of each row in order; its stores read the element at `place`, and `place` itself.

    Attributes:
        axes: parallel axes, outermost first: the rows.
        place: the axis along which is searched.
        rank: the axis of the results.
        key: the element at `place`, of at most 32 bits.
        largest: whether the largest come first.
        most: results of a row at most, a power of 2.
        threads: threads of a block.
    """

    kind: ClassVar[str] = "topk"
    template: ClassVar[str] = "topk.j2"

    axes: tuple[Expr, ...]
    place: Expr
    rank: Expr
    key: Expr
    largest: bool
    most: int
    threads: int

    @property
    def shared(self) -> int:
        return 8 * self.most + 4 * (2 * 256 + 3)


@GridTarget.lowers("topk")
def lower_grid_topk(group: Group, storage: Mapping[Value, Storage], machine: Machine) -> list[Kernel]:
    """The kernel of a TopK with what follows it; where results are many or wide, those that count.

    Raises:
        NoKernel: when these would count along an axis that is symbolic or long.
    """
    node = group.anchor
    assert node is not None and isinstance(node.op, TopK)
    if all(is_empty(v) for v in group.outputs):
        return []
    x, length = node.operands[0], node.operands[0].shape[node.op.axis]
    most = as_int(node.op.k) or as_int(length)
    if machine.device.counters and most is not None and most <= MOST and x.dtype.register.size <= 4:
        return [_by_digits(group, node, read_ranking(group, storage), most)]
    return by_counting(group, node, storage, lambda g: lower_grid(g, storage, machine.device))


def _by_digits(group: Group, node: Node, ranking: Ranking, most: int) -> Kernel:
    assert isinstance(node.op, TopK)
    size = as_int(ranking.place.args[0])
    return GridTopK(
        buffers=tuple(ranking.buffers.list),
        tasks=product([a.args[0] for a in ranking.axes]),
        flops=node.operands[0].type.size,
        nbytes=traffic(ranking.buffers.list, group.outputs),
        stores=ranking.stores,
        axes=ranking.axes or (axis("i0", 1),),
        place=ranking.place,
        rank=ranking.rank,
        key=ranking.key,
        largest=bool(node.op.largest),
        most=1 << (most - 1).bit_length(),
        threads=256 if size is not None and size <= SHORT else 1024,
    )


def by_counting(
    group: Group, node: Node, storage: Mapping[Value, Storage], lower: Callable[[Group], list[Kernel]]
) -> list[Kernel]:
    """The kernels that count for each element how many come before it; `lower` makes those of a group of nests.

    Raises:
        NoKernel: along an axis that is symbolic or long.
    """
    op = node.op
    assert isinstance(op, TopK)
    x, length = node.operands[0], node.operands[0].shape[op.axis]
    if (as_int(length) or 0) > NEST or as_int(length) is None:
        raise NoKernel(f"{node.op.name} along {length!r} elements; devices support up to {NEST}")
    b = Builder(Graph())
    values, places = op.ranked(b, x)
    kernels: list[Kernel] = []
    for part in b.nodes:
        kernels += lower(Group(group.id, "nest", [part], outputs=list(part.outputs)))
    homes: dict[object, Operand] = {values: node.outputs[0], places: node.outputs[1]}
    for k, v in enumerate(n.output for n in b.nodes):
        homes.setdefault(v, Temporary(f"part {k}", group.id, v.type.nbytes))
    return apart(group, node, lambda _: moved(kernels, homes), lower)
