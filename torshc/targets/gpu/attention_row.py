"""Attention of few queries on devices of blocks of threads: a query has a block, or several where blocks are few.

Queries that share keys, as those of the heads of a group do, share a block too, so that keys are read once; of halves
on tensor cores, where one key takes part in as many products as there are queries. Memory feeds a query alone as fast
without.

Decoding has one query for each head and sequence: fewer blocks than a card has multiprocessors, each of which reads
a small part of the memory's bandwidth. So several blocks share a query's keys, each with a softmax of its own keys, and
a second kernel weighs these parts by their largest scores, in order, so that a result is the same in every run. From
sm_90 on up to eight blocks, a cluster, do so themselves where that fits the device.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from ...base.errors import UnsupportedError
from ...expr import BF16, F16, F32, Expr, acc, as_int
from ...kernels.arguments import Arguments
from ...kernels.attention import AttentionBase
from ...kernels.base import Kernel, Temporary
from ...kernels.heavy import HeavyKernel, Strided
from ...kernels.machine import Machine
from ...plan.group import Group
from .cuda.attention_mma import PACK, suits_tensor_cores, whole_packets
from .grid import SHARED, WARP

WORDS = 8  # halves that are read at once

ROW_THREADS = (256, 128, 32)  # threads of a block, as many as memory for their sums allows
# Blocks a multiprocessor from which on memory is busy, and up to which several share a query's keys.
ENOUGH, FULL = 1.5, 4
AHEAD = 4  # keys that a group of threads reads at once
HEIGHT = 4  # queries that share a block, at most
MMA_PART = 8  # threads that share a value on tensor cores
MMA_THREADS = 128  # of a block whose queries share keys, on tensor cores
MMA_AHEAD = 2  # sixteens of keys that a warp reads at once for tensor cores
SPLITS = 32  # blocks of a query, at the most: their parts are read again by each column
CLUSTERS = (8, 4, 2)  # blocks that may form a cluster
CLUSTER_KEYS = 128  # of each of them, at the least
MANY_KEYS = 512  # of each of them, from which on it has twice as many threads
SHARE = 0.4  # of the multiprocessors: clusters that have fewer blocks leave long caches to more than they may have
FEW_KEYS = 256  # keys of a block, at the least: a second kernel takes as long as some hundreds


@dataclass(frozen=True)
class GridAttentionRow(AttentionBase):
    """Online softmax of one query a block, or of all that share keys; groups of threads have keys of their own.

    Attributes:
        threads: threads of a block.
        part: threads of a group, which share a key.
        ahead: keys that a group reads at once.
        pack: neighbours that a thread reads at once.
        height: queries of a block, 1 or all.
        splits: blocks that share the keys of a query.
        parts: number of the buffer for what each of them leaves, where they are several: for each query and each of its
            blocks the sums of columns, the largest score, the sum of weights.
        cluster: blocks that join what they have by reading each other's shared memory; 1 or all `splits`.
    """

    template: ClassVar[str] = "attention_row.j2"

    threads: int
    part: int
    ahead: int
    pack: int
    height: int = 1
    splits: int = 1
    parts: int = -1
    cluster: int = 1

    @property
    def shared(self) -> int:
        warps = self.threads // WARP
        return 4 * self.height * warps * (self.columns * self.part * self.pack + 2)

    @property
    def deep(self) -> int:
        """Packets of the query a thread."""
        return max(1, -(-self.depth // (self.pack * self.part)))

    @property
    def columns(self) -> int:
        """Packets of columns of the values a thread."""
        return -(-self.width // (self.pack * self.part))

    def packed(self, operand: Strided, columns: int) -> bool:
        """Whether rows of an operand are whole packets."""
        return whole_packets(operand, columns)


@dataclass(frozen=True)
class MmaAttentionRow(GridAttentionRow):
    """The same of queries that share keys, all f16 or all bf16, on tensor cores: a warp has sixteen keys at a time.

    Four threads read a key, and `part` threads a value. Scores and sums are f32, and weights as good as f32.
    """

    template: ClassVar[str] = "attention_row_mma.j2"

    READERS: ClassVar[int] = 4

    @property
    def operand(self) -> str:
        """Element type of the operands."""
        return self.buffers[self.q.buffer].dtype.name

    @property
    def deep(self) -> int:
        return self.depth // (self.pack * self.READERS)


@dataclass(frozen=True)
class AttentionJoin(HeavyKernel):
    """What the blocks of each query left, as one result.

    Attributes:
        batch, row, key, column, width, safe, masked, guarded: as of :class:`AttentionBase`.
        splits, parts: as of :class:`GridAttentionRow`.
        threads: threads of a block.
    """

    kind: ClassVar[str] = "attention"
    template: ClassVar[str] = "attention_join.j2"

    batch: tuple[Expr, ...]
    row: Expr
    key: Expr
    column: Expr
    width: int
    safe: bool
    masked: bool
    guarded: bool
    splits: int
    parts: int
    threads: int


def attention_by_rows(group: Group, base: AttentionBase, machine: Machine) -> list[Kernel]:
    """The kernel of attention with a query a block, or the two kernels with several blocks a query.

    Raises:
        UnsupportedError: a row of sums does not fit in shared memory.
    """
    wide = max(base.depth, base.width, 1)
    pack = WORDS if _in_words(base) else PACK
    narrow = wide <= pack * WARP
    height = _height(base) if narrow else 1
    part = next((p for p in (1, 2, 4, 8, 16) if p * pack >= wide), WARP)
    columns = -(-base.width // (pack * part)) * pack * part
    tensor = height > 1 and machine.device.tensor and _suits_tensor_cores(base)
    wanted = (machine.number("threads", MMA_THREADS if tensor else ROW_THREADS[0]), *ROW_THREADS)
    fitting = ((h, t) for h in (height, 1) for t in wanted if h * (t // WARP) * (columns + 2) * 4 <= SHARED)
    height, threads = next(fitting, (1, None))
    if threads is None:
        assert group.anchor is not None
        raise UnsupportedError(
            [f"{group.anchor.describe()}: attention of {base.width} columns"], "split it into more heads"
        )
    blocks = base.points * (base.row.args[0] // height)
    sizes = {"tasks": blocks, "threads": threads, "pack": pack, "height": height}
    if tensor:
        ahead = min(machine.number("ahead", MMA_AHEAD), MMA_AHEAD)
        whole: GridAttentionRow = MmaAttentionRow.of(base, **sizes, part=MMA_PART, ahead=ahead)
    else:
        whole = GridAttentionRow.of(base, **sizes, part=part, ahead=machine.number("ahead", AHEAD if narrow else 1))
    cluster = _cluster(blocks, base.key.args[0], machine) if tensor else 1
    if cluster > 1 and height * base.width % cluster == 0:
        keys = as_int(base.key.args[0]) or 0
        if keys >= MANY_KEYS * cluster and not machine.number("threads", 0):
            threads = 2 * MMA_THREADS
        return [type(whole).of(whole, tasks=blocks * cluster, threads=threads, splits=cluster, cluster=cluster)]
    splits = _splits(blocks, base.key.args[0], machine)
    if splits == 1:
        return [whole]
    return [_partial(whole, group.id, splits), _join_parts(whole, group.id, splits)]


def _suits_tensor_cores(base: AttentionBase) -> bool:
    """Whether all threads of a warp have whole packets of keys and of values."""
    whole = base.depth % (WORDS * MmaAttentionRow.READERS) == 0 and base.width % (WORDS * MMA_PART) == 0
    return whole and suits_tensor_cores(base)


def _in_words(base: AttentionBase) -> bool:
    """Whether keys and values are halves that may be read 16 bytes at a time."""
    operands = ((base.k, base.depth), (base.v, base.width))
    return all(base.buffers[x.buffer].dtype in (F16, BF16) and whole_packets(x, n, WORDS) for x, n in operands)


def _height(base: AttentionBase) -> int:
    """Queries that share a block: all of a few that see the same keys, else 1."""
    rows = as_int(base.row.args[0])
    return rows if rows is not None and rows <= HEIGHT and not base.causal else 1


def _cluster(queries: Expr, keys: Expr, machine: Machine) -> int:
    """Blocks that share the keys of a query and join what they have, which takes less time than another kernel; or 1.

    Only where eight of each query have a multiprocessor of their own: more are busy for longer than a second kernel
    takes, and fill the device better if they need not run together.
    """
    blocks, known, units = as_int(queries), as_int(keys), machine.device.units
    if not machine.device.clusters or not blocks:
        return 1
    if given := machine.number("splits", 0):
        return given if given in CLUSTERS else 1
    if known is not None and known > SPLITS * FEW_KEYS and blocks * CLUSTERS[0] < units * SHARE:
        return 1
    if blocks * CLUSTERS[0] > units:
        return 1
    return next((n for n in CLUSTERS if known is None or known >= n * CLUSTER_KEYS), 1)


def _splits(queries: Expr, keys: Expr, machine: Machine) -> int:
    """Blocks for each query. Keys of a cache, whose number only a run knows, are taken to be many.

    As many as make all multiprocessors end at about the same time, of blocks enough that memory is busy.
    """
    units, blocks, known = machine.device.units, as_int(queries), as_int(keys)
    if given := machine.number("splits", 0):
        return given if known is None else max(1, min(given, known))
    if not blocks:
        return 1
    most = min(SPLITS, units * FULL // blocks, SPLITS if known is None else known // FEW_KEYS)
    least = math.ceil(units * ENOUGH / blocks)
    return (
        min(range(min(least, most), most + 1), key=lambda n: (-(-blocks * n // units) / max(n, 1), n), default=1) or 1
    )


def _left(kernel: GridAttentionRow, owner: int, splits: int) -> Temporary:
    return Temporary("parts", owner, kernel.tasks * (kernel.height * splits * (kernel.width + 2) * F32.size))


def _partial(kernel: GridAttentionRow, owner: int, splits: int) -> Kernel:
    """The softmax of each block's keys."""
    args = Arguments(kernel)
    q, k, v = (args.walked(x) for x in (kernel.q, kernel.k, kernel.v))
    mask = None if kernel.mask is None else args.bring(kernel.mask)
    parts = args.add(_left(kernel, owner, splits), acc("x", F32))
    fields = {"q": q, "k": k, "v": v, "mask": mask, "stores": (), "splits": splits, "parts": parts}
    return type(kernel).of(kernel, buffers=tuple(args.list), tasks=kernel.tasks * splits, **fields)


def _join_parts(kernel: GridAttentionRow, owner: int, splits: int) -> Kernel:
    """The parts of each query as one, with what follows."""
    args = Arguments(kernel)
    left = _left(kernel, owner, splits)
    parts = args.add(left, acc("x", F32), written=False)
    stores = tuple(args.store(s) for s in kernel.stores)
    queries = kernel.tasks * kernel.height
    return AttentionJoin(
        buffers=tuple(args.list),
        tasks=queries,
        flops=queries * (2 * splits * kernel.width),
        nbytes=left.nbytes + queries * kernel.width * sum(b.dtype.size for b in args.list if b.written),
        stores=stores,
        batch=kernel.batch,
        row=kernel.row,
        key=kernel.key,
        column=kernel.column,
        width=kernel.width,
        safe=kernel.safe,
        masked=kernel.masked,
        guarded=kernel.guarded,
        splits=splits,
        parts=parts,
        threads=min(256, -(-max(kernel.width, 1) // WARP) * WARP),
    )
