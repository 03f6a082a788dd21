"""Attention of few queries, as of a decoder's step: keys and values are read once, as fast as memory has them.

Where batches and heads are few, parts of the keys are tasks of their own, each with a softmax of its keys, and a second
kernel weighs what they leave by their largest scores, in order. Parts have a number of keys that nothing changes, so
that results have the same bits with any number of threads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ...expr import F32, Expr, acc, as_int, ceil_div, const, max_of
from ...kernels.arguments import Arguments
from ...kernels.attention import AttentionBase
from ...kernels.base import Kernel, Temporary
from ...kernels.heavy import HeavyKernel
from ...kernels.machine import Machine

QUERIES = 8  # at most that wait for keys and values
KEYS = 32  # of a block: with as many values, of 64 columns, they are half of the nearest cache
PART = 256  # keys of a task, where several share the keys of a query
POINTS = 32  # of the batch, from which on every thread has some; and of a task that joins parts


@dataclass(frozen=True)
class AttentionFewKernel(AttentionBase):
    """Online softmax of all queries over blocks of keys.

    Attributes:
        queries: their number.
        keys: keys a block.
        part: keys a task, where several share the keys of a query.
        splits: tasks that do.
        parts: number of the buffer for what each of them leaves, None where they are one: for each query its largest
            score, the sum of weights, and the sums of columns, whole vectors.
        lanes: elements of a vector.
    """

    template: ClassVar[str] = "attention_few.c.j2"

    queries: int
    keys: int
    part: int
    splits: Expr
    parts: int | None
    lanes: int

    @property
    def wide(self) -> int:
        """Columns of the values, whole vectors."""
        return _whole(self.width, self.lanes)

    @property
    def left(self) -> int:
        """Floats that a task leaves."""
        return self.queries * (self.wide + 2)

    @property
    def scratch(self) -> Expr:
        of_query = _whole(self.depth, self.lanes) + self.keys + self.wide + self.lanes + 2
        return const(F32.size * self.queries * of_query)


@dataclass(frozen=True)
class AttentionFewJoin(HeavyKernel):
    """What tasks left of each query, as one result. A task is some points of the batch.

    Attributes:
        batch, row, key, column, width, safe, masked, guarded: as of :class:`AttentionBase`.
        queries, splits, parts, left: as of :class:`AttentionFewKernel`.
        points: number of points of the batch; `rows` of them are a task.
    """

    kind: ClassVar[str] = "attention"
    template: ClassVar[str] = "attention_few_join.c.j2"

    batch: tuple[Expr, ...]
    row: Expr
    key: Expr
    column: Expr
    width: int
    safe: bool
    masked: bool
    guarded: bool
    mask: None
    queries: int
    splits: Expr
    parts: int
    left: int
    points: Expr
    rows: int


def waits_for_keys(base: AttentionBase, machine: Machine) -> bool:
    """Whether queries are so few that keys and values, rows in memory, come no faster than they are worked on."""
    rows = as_int(base.row.args[0])
    whole = all(as_int(x.steps[1]) == 1 or n == 1 for x, n in ((base.k, base.depth), (base.v, base.width)))
    few = rows is not None and 0 < rows <= QUERIES
    return few and whole and min(base.depth, base.width) > 0 and not (base.causal or machine.exact_batches)


def attention_of_few(base: AttentionBase, owner: int, machine: Machine) -> list[Kernel]:
    """The kernel of so few queries, or the two kernels where tasks share the keys of each."""
    rows, known, count = as_int(base.row.args[0]) or 0, as_int(base.key.args[0]), as_int(base.points)
    sizes = {"queries": rows, "keys": KEYS, "part": PART, "lanes": machine.lanes}
    if (known is not None and known <= PART) or (count is not None and count >= POINTS):
        return [AttentionFewKernel.of(base, tasks=base.points, splits=const(1), parts=None, **sizes)]
    splits = max_of(ceil_div(base.key.args[0], PART), 1)
    whole = AttentionFewKernel.of(base, splits=splits, parts=None, **sizes)
    left = Temporary("parts", owner, base.points * splits * (whole.left * F32.size))
    return [_partial(whole, left), _join_parts(whole, left)]


def _partial(kernel: AttentionFewKernel, left: Temporary) -> Kernel:
    """The softmax of each task's keys."""
    args = Arguments(kernel)
    q, k, v = (args.walked(x) for x in (kernel.q, kernel.k, kernel.v))
    mask = None if kernel.mask is None else args.bring(kernel.mask)
    parts = args.add(left, acc("x", F32))
    fields = {"q": q, "k": k, "v": v, "mask": mask, "stores": (), "parts": parts}
    return AttentionFewKernel.of(kernel, buffers=tuple(args.list), tasks=kernel.points * kernel.splits, **fields)


def _join_parts(kernel: AttentionFewKernel, left: Temporary) -> Kernel:
    """The parts of each query as one, with what follows."""
    args = Arguments(kernel)
    parts = args.add(left, acc("x", F32), written=False)
    stores = tuple(args.store(s) for s in kernel.stores)
    elements = kernel.points * (kernel.queries * kernel.width)
    return AttentionFewJoin(
        buffers=tuple(args.list),
        tasks=ceil_div(kernel.points, POINTS),
        flops=elements * kernel.splits * 2,
        nbytes=left.nbytes + elements * sum(b.dtype.size for b in args.list if b.written),
        stores=stores,
        batch=kernel.batch,
        row=kernel.row,
        key=kernel.key,
        column=kernel.column,
        width=kernel.width,
        safe=kernel.safe,
        masked=kernel.masked,
        guarded=kernel.guarded,
        mask=None,
        queries=kernel.queries,
        splits=kernel.splits,
        parts=parts,
        left=kernel.left,
        points=kernel.points,
        rows=POINTS,
    )


def _whole(size: int, lanes: int) -> int:
    return -(-size // lanes) * lanes
