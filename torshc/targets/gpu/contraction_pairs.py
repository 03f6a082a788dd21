"""Products of a few rows with weights of 4 bits, on tensor cores: bound by the bytes of the weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from ...expr import F32, Expr, acc, as_int, axis, const, load
from ...expr.affine import split_axis
from ...expr.index import poly_of
from ...graph import Node, Value
from ...kernels.axes import join_axes, make_axes, product
from ...kernels.base import Kernel, Store
from ...kernels.heavy import HeavyKernel, epilogue_flops, finish, read_through, traffic
from ...kernels.machine import Device
from ...kernels.nest import Buffers
from ...ops.quant.narrow import PairMatMul
from ...plan.group import Group
from ...plan.storage import Storage
from .grid import WARP

MOST_ROWS = 32
COLUMNS = 16  # of a block
STEP = 128  # terms that a warp multiplies at a time: 32 of each of four lanes
SHARE = 32  # terms of a lane, with one scale
WARPS = (8, 16)  # of a block, which share the sums
FULL = 2  # blocks for each multiprocessor from which on small ones fill the device


@dataclass(frozen=True)
class PairKernel(HeavyKernel):
    """x[m, k] times weights[n, k] of 4 bits, each with its block's scale.

    A block has 16 columns, whose terms its warps share. Eight numbers of a word become halves in four pairs, which
    tensor cores take as they are, so that x is read in the same order; unread columns of its tile are 0.

    Attributes:
        m, n: axes of the epilogue.
        x: offset of a row of the first factor in its buffer, over `m`.
        factors: buffers of x, of the weights and of their scales.
        depth: terms of a sum, a multiple of 32.
        scaled: terms that share a scale, a multiple of 32.
        rows, columns: of the result.
        warps: of a block.
    """

    kind: ClassVar[str] = "contraction"
    template: ClassVar[str] = "contraction_pairs.j2"

    m: tuple[Expr, ...]
    n: tuple[Expr, ...]
    x: Expr
    factors: tuple[int, int, int]
    depth: int
    scaled: int
    rows: int
    columns: int
    warps: int

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
    def shared(self) -> int:
        return 4 * self.warps * self.eights * 8 * COLUMNS


def lower_pairs(group: Group, node: Node, storage: Mapping[Value, Storage], device: Device) -> list[Kernel] | None:
    """The kernel of a :class:`PairMatMul`; None where a plain nest has to do."""
    op, x = node.op, node.operands[0]
    assert isinstance(op, PairMatMul)
    rows, (columns, depth) = as_int(product(node.output.shape[:-1])), (as_int(d) or 0 for d in _sizes(node))
    if not device.tensor or not rows or rows > MOST_ROWS or depth % SHARE or op.block % SHARE:
        return None
    index, axes = make_axes(node.output.shape, None, "i")
    last = [a for a in axes if a is index[-1]]
    first = [a for a in axes if a is not index[-1]]
    buffers = Buffers(storage)
    elements = [buffers.resolve(read_through(group, x, (*index[:-1], const(0))))]
    elements += [buffers.resolve(load(v, (const(0), const(0)), v.dtype)) for v in node.operands[1:]]
    along = _step(group, x, index[:-1], storage)
    if any(e.op != "load" or not isinstance(e.data, int) for e in elements) or along != 1:
        return None
    offset = elements[0].args[0]
    if any(c % 8 for c in poly_of(offset).values()):
        return None
    stores = finish(group, node, acc("acc", F32), index, buffers)
    flat = [offset, *(e for s in stores for e in (s.offset, s.value))]
    m, flat = join_axes(first, flat)
    return [
        PairKernel(
            buffers=tuple(buffers.list),
            tasks=const(-(-columns // COLUMNS)),
            flops=op.flops(node) + epilogue_flops(stores, node.output.type.size),
            nbytes=traffic(buffers.list, group.outputs),
            stores=tuple(Store(s.buffer, flat[1 + 2 * i], flat[2 + 2 * i]) for i, s in enumerate(stores)),
            m=tuple(m),
            n=tuple(last),
            x=flat[0],
            factors=tuple(e.data for e in elements),  # type: ignore[arg-type]  # three numbers
            depth=depth,
            scaled=op.block,
            rows=rows,
            columns=columns,
            warps=_warps(-(-depth // STEP), columns, device.units),
        )
    ]


def _sizes(node: Node) -> tuple[Expr, Expr]:
    """Columns and terms."""
    w = node.operands[1]
    return w.shape[0], w.shape[1] * 2


def _step(group: Group, x: Value, index: tuple[Expr, ...], storage: Mapping[Value, Storage]) -> int | None:
    """Elements from one term to the next in memory, None where that differs."""
    k = axis("k", x.shape[-1])
    element = Buffers(storage).resolve(read_through(group, x, (*index, k)))
    parts = split_axis(element.args[0], k) if element.op == "load" else None
    return None if parts is None else as_int(parts[0])


def _warps(steps: int, columns: int, units: int) -> int:
    """Few warps for many blocks, a number that shares the steps evenly where there is one."""
    even = [w for w in range(WARPS[0], WARPS[1] + 1) if steps % w == 0]
    many = -(-columns // COLUMNS) >= FULL * units
    if not even:
        return min(WARPS[0] if many else WARPS[1], max(steps, 1))
    return even[0] if many else even[-1]
