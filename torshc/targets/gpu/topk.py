"""TopK on devices: a block for each row or piece of one, a sort, or counting how many come before each element.

Where few rows are long, a block finds the first of each piece of a row, and another those of all that were found.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from ...expr import U64, Expr, acc, as_int, axis, load, product
from ...graph import Builder, Graph, Node, Value
from ...kernels.arguments import Arguments
from ...kernels.base import Kernel, NoKernel, Operand, Store, Temporary
from ...kernels.heavy import HeavyKernel, is_empty, row_major, traffic
from ...kernels.lower import idle_when_empty
from ...kernels.machine import Device, Machine
from ...kernels.recurrent import apart, moved
from ...kernels.topk import Ranking, read_ranking
from ...ops.tensor.sort import TopK
from ...plan.group import Group
from ...plan.storage import Storage
from .base import GridTarget
from .cuda.sort import Sort, is_one_tile
from .grid import WHOLE
from .nests import lower_grid

PIECE, SHARE = 4096, 4  # elements of a piece at the least, and for each result of it
FOUND = 1 << 16  # items of all pieces of a row at the most
THREADS = 512  # of a block that searches a piece
FEW = 256  # elements of a row up to which it is searched, even if all of it is wanted
MOST = 2048  # results of a row that fit shared memory
SHORT = 4096  # elements of a row for which a small block is enough
WIDE = 128  # elements of a row up to which counting is faster than a sort
NEST = 4096  # the longest axis along which a device counts for each element


@dataclass(frozen=True)
class GridTopK(HeavyKernel):
    """The first of each row or piece in order; its stores read the element at `place`, and `place` itself, or ``item``.

    Attributes:
        axes: parallel axes, outermost first: the rows.
        place: the axis along which is searched.
        rank: the axis of the results.
        along: the axis that is walked: `place`, or that of the items.
        key: the element at `place`, of at most 32 bits; or an item of pieces, which is a key with its place below.
        items: whether it is an item.
        largest: whether the largest come first.
        most: results of a row at most, a power of 2.
        threads: threads of a block.
        piece: axis of the pieces that rows are cut into.
        length: elements of a piece, where there are several.
    """

    kind: ClassVar[str] = "topk"
    template: ClassVar[str] = "topk.j2"

    axes: tuple[Expr, ...]
    place: Expr
    rank: Expr
    along: Expr
    key: Expr
    items: bool
    largest: bool
    most: int
    threads: int
    piece: Expr = WHOLE
    length: int = 0

    @property
    def shared(self) -> int:
        return 8 * self.most + 4 * (2 * 256 + 3)


@GridTarget.lowers("topk")
def lower_grid_topk(group: Group, storage: Mapping[Value, Storage], machine: Machine) -> list[Kernel]:
    """The kernels of a TopK with what follows it; where results are many or wide, those that sort or count.

    Raises:
        NoKernel: when these would count along an axis that is symbolic or long.
    """
    node = group.anchor
    assert node is not None and isinstance(node.op, TopK)
    if all(is_empty(v) for v in group.outputs):
        return []
    length, wide = as_int(node.operands[0].shape[node.op.axis]), node.operands[0].dtype.register.size > 4
    most = as_int(node.op.k) or length
    if machine.device.counters and most is not None and not wide and not _mostly(most, length):
        whole = _by_digits(group, node, read_ranking(group, storage), most)
        return [idle_when_empty(k) for k in _in_pieces(whole, group, machine.device)]
    if machine.device.counters and not (wide and length is not None and length <= WIDE):
        return Sort(group, read_ranking(group, storage)).kernels()
    return by_counting(group, node, storage, lambda g: lower_grid(g, storage, machine.device))


def _mostly(most: int, length: int | None) -> bool:
    """Whether a sort gives so many results of a row in less time than a search."""
    return most > MOST or (length is not None and FEW < length <= 2 * most and is_one_tile(length))


def _by_digits(group: Group, node: Node, ranking: Ranking, most: int) -> GridTopK:
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
        along=ranking.place,
        key=ranking.key,
        items=False,
        largest=bool(node.op.largest),
        most=1 << (most - 1).bit_length(),
        threads=256 if size is not None and size <= SHORT else 1024,
    )


def _in_pieces(whole: GridTopK, group: Group, device: Device) -> list[Kernel]:
    """The kernel, or those that find the first of each piece and the first of these, where it has few long rows."""
    size, rows = as_int(whole.place.args[0]), as_int(whole.tasks)
    most = max(whole.most * SHARE, PIECE)
    if size is None or rows is None or rows >= device.units or size < 2 * most:
        return [whole]
    count = min(-(-device.units // rows), FOUND // whole.most)
    length = max(-(-size // count), most)
    piece = axis("piece", -(-size // length))
    found = axis("s", piece.args[0] * whole.rank.args[0])
    items, item = Temporary("items", group.id, found.args[0] * rows * U64.size), acc("item", U64)
    args = Arguments(whole)
    key, to = args.bring(whole.key), args.add(items, item)
    store = Store(to, row_major([*whole.axes, piece, whole.rank]), item)
    parts = replace(
        whole,
        buffers=tuple(args.list),
        tasks=whole.tasks * piece.args[0],
        key=key,
        stores=(store,),
        threads=THREADS,
        piece=piece,
        length=length,
    )
    args = Arguments(whole)
    source = args.add(items, item, written=False)
    stores = tuple(args.store(s) for s in whole.stores)
    first = load(source, (row_major([*whole.axes, found]),), U64)
    rest = replace(whole, buffers=tuple(args.list), stores=stores, along=found, key=first, items=True, threads=1024)
    return [parts, rest]


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
