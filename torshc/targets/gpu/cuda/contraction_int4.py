"""Products of a few rows with weights of 4 bits, on tensor cores: bound by the bytes of the weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from ....expr import F32, Expr, acc, as_int, axis, const, load, product, substitute, walk
from ....expr.affine import split_axis
from ....expr.index import poly_of
from ....graph import Node, Value
from ....kernels.axes import make_axes
from ....kernels.base import Kernel, Store
from ....kernels.heavy import HeavyKernel, epilogue_flops, finish, join_bodies, read_through, traffic
from ....kernels.machine import Device
from ....kernels.nest import Buffers
from ....ops.core.base import REGISTRY
from ....ops.core.pointwise import Pointwise
from ....ops.quant.narrow import PairLayer, PairMatMul
from ....plan.group import Group
from ....plan.storage import Storage
from ..grid import WARP

MOST_ROWS = 32
COLUMNS = 16  # of a block
STEP = 128  # terms that a warp multiplies at a time: 32 of each of four lanes
SHARE = 32  # terms of a lane, with one scale
WARPS = (8, 24)  # of a block, which share the sums
THREADS, MORE_THREADS = 512, 1024  # of a multiprocessor that blocks take, with up to eight rows, and with more
AHEAD, MORE_AHEAD = 4, 2  # rounds whose weights a warp asks for at a time, likewise
STAGED = 32 << 10  # bytes of x in shared memory at the most


@dataclass(frozen=True)
class Int4Kernel(HeavyKernel):
    """x[m, k] times weights[n, k] of 4 bits, each with its block's scale.

    A block computes tiles of 16 columns, one after the other, whose terms its warps share. Eight numbers of a word
    become halves in four pairs, which tensor cores take as they are, so that x is read in the same order. What they sum
    up for rows of x that there are not is not read. Weights of the first tile are asked for before the kernel before
    this one ends.

    Attributes:
        m, n: axes of the epilogue.
        k: the axis of a sum.
        early: what results are computed from beside sums, over `m` and `n`: asked for before the sums are there.
        x: offset of a row of the first factor in its buffer, over `m`; 0 where it may lie in any way.
        element: element of the first factor, over `m` and `k`.
        factors: buffers of x, where its elements lie in one, of the weights and of their scales.
        scale: buffer of the norm's scale; none where rows are not normalised.
        epsilon: epsilon of the norm.
        gated: whether the first half of columns are gates of the second.
        depth: terms of a sum, a multiple of 32.
        scaled: terms that share a scale, a multiple of 32.
        rows, columns: of the product.
        warps: number of warps of a block.
        most: blocks at the most.
    """

    kind: ClassVar[str] = "contraction"
    template: ClassVar[str] = "contraction_int4.j2"

    m: tuple[Expr, ...]
    n: tuple[Expr, ...]
    k: Expr
    early: tuple[Expr, ...]
    x: Expr
    element: Expr
    factors: tuple[int, int, int]
    scale: int | None
    epsilon: float
    gated: bool
    depth: int
    scaled: int
    rows: int
    columns: int
    warps: int
    most: int

    @property
    def threads(self) -> int:
        return self.warps * WARP

    @property
    def steps(self) -> int:
        return -(-self.depth // STEP)

    @property
    def eights(self) -> int:
        """Tiles of eight rows."""
        return -(-self.rows // 8)

    @property
    def tiles(self) -> int:
        return -(-self.columns // COLUMNS)

    @property
    def width(self) -> int:
        """Columns of the result in a tile."""
        return COLUMNS // 2 if self.gated else COLUMNS

    @property
    def resident(self) -> int:
        """Blocks of a multiprocessor."""
        return resident(self.warps, self.rows)

    @property
    def ahead(self) -> int:
        """Rounds whose weights are asked for at a time."""
        return AHEAD if self.eights == 1 else MORE_AHEAD

    @property
    def packets(self) -> int:
        """Packets of eight terms that a thread brings of a row."""
        return -(-self.steps * STEP // 8 // self.threads)

    @property
    def staged(self) -> bool:
        """Whether x lies in shared memory."""
        return is_staged(self.rows, self.depth)

    @property
    def halves(self) -> int:
        """Places for sums: with two, one is written while the other is read."""
        return 2 if self.eights == 1 and self.tiles > self.most else 1

    @property
    def shared(self) -> int:
        sums = 4 * self.halves * self.warps * self.rows * COLUMNS
        return sums + self.staged * self.rows * self.steps * STEP * 2


def lower_int4(group: Group, node: Node, storage: Mapping[Value, Storage], device: Device) -> list[Kernel] | None:
    """The kernel of a :class:`PairMatMul` or a :class:`PairLayer`; None where a plain nest has to do."""
    op, x = node.op, node.operands[0]
    assert isinstance(op, PairMatMul | PairLayer)
    rows, (columns, depth) = as_int(product(node.output.shape[:-1])), (as_int(d) or 0 for d in _sizes(node))
    if any(v.const is None for v in node.operands[1:]):
        return None  # what is no constant has to be waited for
    if isinstance(op, PairMatMul) and (
        not device.tensor or not rows or rows > MOST_ROWS or depth % SHARE or op.block % SHARE
    ):
        return None
    assert rows
    index, axes = make_axes(node.output.shape, None, "i")
    last = [a for a in axes if a is index[-1]]
    first = [a for a in axes if a is not index[-1]]
    buffers, k = Buffers(storage), axis("k", x.shape[-1])
    element = buffers.resolve(read_through(group, x, (*index[:-1], k)))
    constants = [buffers.resolve(load(v, (const(0),) * v.type.rank, v.dtype)) for v in node.operands[1:]]
    offset = const(0)
    if not is_staged(rows, depth):
        found = _offset(element, k)
        if found is None:
            return None
        offset = found
    gate = REGISTRY["", op.gate]() if isinstance(op, PairLayer) and op.gate else None
    result = acc("acc", F32)
    if gate is not None:
        assert isinstance(gate, Pointwise)
        result = gate.expression(result) * acc("other", F32)
    stores = finish(group, node, result, index, buffers)
    warps = _warps(-(-depth // STEP), columns, device.units)
    m, placed, (offset, element) = join_bodies(first, stores, offset, element)
    early, placed = _apart(placed) if rows * COLUMNS <= warps * WARP else ([], placed)
    return [
        Int4Kernel(
            buffers=tuple(buffers.list),
            tasks=const(-(-columns // COLUMNS)),
            flops=op.flops(node) + epilogue_flops(stores, node.output.type.size),
            nbytes=traffic(buffers.list, group.outputs),
            stores=tuple(placed),
            m=tuple(m),
            n=tuple(last),
            k=k,
            early=tuple(early),
            x=offset,
            element=element,
            factors=(_buffer(element), _buffer(constants[0]), _buffer(constants[1])),
            scale=_buffer(constants[2]) if len(constants) > 2 else None,
            epsilon=op.epsilon if isinstance(op, PairLayer) else 0.0,
            gated=gate is not None,
            depth=depth,
            scaled=op.block,
            rows=rows,
            columns=columns,
            warps=warps,
            most=resident(warps, rows) * device.units,
        )
    ]


def _apart(stores: Sequence[Store]) -> tuple[list[Expr], list[Store]]:
    """What stores read wherever the sums are, and the stores of that under the names `early0`, `early1`."""
    values = [s.value for s in stores]
    loads = [e for e in dict.fromkeys(walk(*values)) if e.op == "load" and all(x.op != "acc" for x in walk(e))]
    inner = {x for e in loads for x in walk(*e.args)}
    early = [e for e in loads if e not in inner]
    mapping = {e: acc(f"early{i}", e.dtype) for i, e in enumerate(early)}
    return early, [replace(s, value=substitute(s.value, mapping)) for s in stores]


def is_staged(rows: int, depth: int) -> bool:
    """Whether all rows of the first factor fit in shared memory, and a tile of eight."""
    return rows <= 8 and rows * -(-depth // STEP) * STEP * 2 <= STAGED


def _sizes(node: Node) -> tuple[Expr, Expr]:
    """Columns and terms."""
    w = node.operands[1]
    return w.shape[0], w.shape[1] * 2


def _buffer(element: Expr) -> int:
    """The buffer that an element lies in, -1 where it is computed."""
    return element.data if element.op == "load" and isinstance(element.data, int) else -1


def _offset(element: Expr, k: Expr) -> Expr | None:
    """Where the elements of a row begin in memory, None where they are not packets side by side."""
    parts = split_axis(element.args[0], k) if element.op == "load" and isinstance(element.data, int) else None
    if parts is None or as_int(parts[0]) != 1 or any(c % 8 for c in poly_of(parts[1]).values()):
        return None
    return parts[1]


def resident(warps: int, rows: int) -> int:
    """Blocks of so many warps that a multiprocessor has at a time."""
    return max((THREADS if rows <= 8 else MORE_THREADS) // (warps * WARP), 1)


def _warps(steps: int, columns: int, units: int) -> int:
    """Few warps, a number that shares the steps evenly where there is one; enough to ask for all of an only tile.

    What few warps have no registers for stays free for the next kernel, which asks for its weights meanwhile.
    """
    even = [w for w in range(WARPS[0], WARPS[1] + 1) if steps % w == 0]
    many = -(-columns // COLUMNS) > units
    if not even:
        return min(WARPS[0] if many else WARPS[1], max(steps, 1))
    return even[0] if many else next((w for w in even if steps <= w * AHEAD), even[-1])
