"""Attention of one position to a cache that grows by an entry, on devices of blocks of threads.

Blocks of a cluster share the keys of a head: each copies its part of the cache to the longer one while it reads it, and
they join their softmaxes through each other's shared memory. So a decoder's step waits for one launch between two
products, where turning by positions, copying, attention and the join of its parts were four.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from ....base.errors import InternalError
from ....expr import F32, I64, Expr, acc, as_int, axis, cast, const, load, product
from ....graph import Builder, Graph, Value
from ....kernels.axes import make_axes
from ....kernels.base import Kernel
from ....kernels.heavy import HeavyKernel, Strided, read_through, strided_operand, traffic
from ....kernels.machine import Machine
from ....kernels.nest import Buffers
from ....ops.core.base import Index
from ....ops.microsoft.cached import CachedAttention
from ....ops.nn.rotary import Rotated
from ....plan.group import Group
from ....plan.storage import Storage
from ..base import GridTarget
from ..grid import WARP
from .attention_mma import whole_packets

PACK = 8  # halves that are read at once
SIXTEEN = 16  # keys that a warp multiplies at once
WARPS = 16  # of a block, at most
CLUSTER = 8  # blocks that surely may form one
KEYS = 64  # of a block, at the least
# Caps the warps by the bytes of their values, so that all arrays stay below the 48 KiB that a block may declare. That
# holds for the queries and the width of a head that the pass join_cache lets through: at most 48,832 bytes.
STAGED = 36 << 10


@dataclass(frozen=True)
class CacheAttention(HeavyKernel):
    """Softmaxes of parts of the keys by the blocks of a cluster, which they then join.

    Attributes:
        batch: axes of sequences and heads of keys.
        row, key, column: axes over queries, positions of the longer cache, columns.
        query, new_key, new_value: elements at the axes.
        place: position of the new key.
        past: positions of the old caches.
        old, grown: caches of keys and of values, stepping along positions and columns.
        scale: factor on the scores.
        rows, width: queries, columns.
        cluster: blocks that share the keys of a head.
        warps: number of warps of a block, even, as products with values take 32 keys.
        once: whether a block has no more keys than its warps multiply at once.
    """

    kind: ClassVar[str] = "attention"
    template: ClassVar[str] = "attention_cache.j2"

    batch: tuple[Expr, ...]
    row: Expr
    key: Expr
    column: Expr
    query: Expr
    new_key: Expr
    new_value: Expr
    place: Expr
    past: Expr
    old: tuple[Strided, Strided]
    grown: tuple[Strided, Strided]
    scale: float
    rows: int
    width: int
    cluster: int
    warps: int
    once: bool

    @property
    def threads(self) -> int:
        return self.warps * WARP

    @property
    def shared(self) -> int:
        """Bytes of the arrays that ``attention_cache.j2`` declares under the heading "shared memory".

        Halves are queries, the new key and value, weights and values; floats are what warps and blocks join.
        """
        keys, part = SIXTEEN * self.warps, self.rows * self.width // self.cluster
        halves = self.rows * -(-self.width // 32) * 32 + 2 * self.width + keys * (8 + self.width + PACK)
        floats = 8 * self.warps + (0 if self.once else 8) + self.cluster * (part + 16)
        return 2 * halves + 4 * floats


@GridTarget.lowers("cache")
def lower_cache(group: Group, storage: Mapping[Value, Storage], machine: Machine) -> list[Kernel]:
    """The kernel of a :class:`CachedAttention`."""
    node = group.anchor
    assert node is not None and isinstance(node.op, CachedAttention)
    buffers = Buffers(storage)
    q, _, v = node.operands[:3]
    batch, axes = make_axes(q.shape[:2], None, "i")
    row, key, column = axis("row", q.shape[2]), axis("key", node.op.length), axis("col", q.shape[3])
    one = const(0)
    rows, width = as_int(q.shape[2]), as_int(q.shape[3])
    assert rows and width
    query, new_key = _rotate(group, (*batch, row, column), (*batch, one, column))
    read = [query, new_key, read_through(group, v, (*batch, one, column))]
    at = node.inputs[5]
    past = node.operands[3].shape[2]
    place = past if at is None else cast(load(at, batch[:1], at.dtype), I64)
    query, new_key, new_value, place = (buffers.resolve(e) for e in (*read, place))
    old = [
        _rows_in_memory(buffers.resolve(load(x, (*batch, key, column), x.dtype)), key, column)
        for x in node.operands[3:5]
    ]
    stores = [buffers.store(x, (*batch, key, column), acc("x", F32)) for x in node.outputs[1:]]
    grown = [_rows_in_memory(load(s.buffer, (s.offset,), F32), key, column) for s in stores]
    result = buffers.store(node.outputs[0], (*batch, row, column), acc("acc", F32))
    points = product([a.args[0] for a in axes])
    cluster = _cluster(points, node.op.length, machine)
    length = as_int(node.op.length)
    sixteens = -(-length // (cluster * SIXTEEN)) if length else WARPS
    most = min(WARPS, STAGED // (2 * SIXTEEN * (width + PACK))) // 2 * 2
    warps = min(-(-sixteens // 2) * 2, most)
    return [
        CacheAttention(
            buffers=tuple(buffers.list),
            tasks=points * cluster,
            flops=node.op.flops(node),
            nbytes=traffic(buffers.list, group.outputs),
            stores=(result,),
            batch=tuple(axes),
            row=row,
            key=key,
            column=column,
            query=query,
            new_key=new_key,
            new_value=new_value,
            place=place,
            past=past,
            old=(old[0], old[1]),
            grown=(grown[0], grown[1]),
            scale=node.op.scale,
            rows=rows,
            width=width,
            cluster=cluster,
            warps=warps,
            once=length is not None and sixteens <= warps,
        )
    ]


def _rotate(group: Group, queries: Index, new: Index) -> tuple[Expr, Expr]:
    """A query's element and the new key's, turned where angles are given."""
    node = group.anchor
    assert node is not None and isinstance(node.op, CachedAttention)
    q, k = node.operands[:2]
    plain = read_through(group, q, queries), read_through(group, k, new)
    angles = [v for v in node.inputs[6:8] if v is not None]
    if not angles:
        return plain
    turn = Builder(Graph()).one(Rotated(node.op.interleaved), k, *angles).producer
    assert turn is not None
    nest = turn.op.nest(turn, 0)
    assert nest is not None

    def body(x: Value, at: Index) -> Expr:
        """The element at an index, whose columns others stand for at the same place."""

        def read(n: int, where: Index) -> Expr:
            if n:
                return read_through(group, angles[n - 1], where)
            return read_through(group, x, (*at[:-1], where[-1]))

        return nest.body((at[0], at[1], const(0), at[-1]), (), read)

    return body(q, queries), body(k, new)


def _rows_in_memory(element: Expr, key: Expr, column: Expr) -> Strided:
    """A cache as rows in memory."""
    found = strided_operand(element, (key, column))
    if found is None or not whole_packets(found, PACK, PACK):
        raise InternalError("a cache whose rows are no packets")
    return found


def _cluster(points: Expr, length: Expr, machine: Machine) -> int:
    """Blocks that share the keys of a head: as many as the device has room for, and keys are enough for."""
    if not machine.device.clusters:
        return 1
    known, keys = as_int(points) or 1, as_int(length) or CLUSTER * KEYS
    fitting = (n for n in (CLUSTER, 4, 2) if known * n <= machine.device.units and keys >= n * KEYS)
    return next(fitting, 1)
