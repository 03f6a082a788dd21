"""Functions of an element of 8 bits, by a table of what they are of all 256 values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ...expr import I8, U8, Expr, as_int, axis, cast, cost, locals_of, product, rebuild, walk
from ...expr.affine import split_axis
from ...kernels.base import Kernel
from ...kernels.nest import MapKernel

VALUES = 256
POINTS = 8 * VALUES  # elements from which on making the table does not count


@dataclass(frozen=True)
class TableKernel(MapKernel):
    """A map kernel that looks up what it stores.

    Attributes:
        read: the load of the element that all stores are functions of.
        code: the axis of the element's values, by their bits.
        results: what each store is of the element of value `code`.
    """

    template: ClassVar[str] = "table.c.j2"

    read: Expr
    code: Expr
    results: tuple[Expr, ...]

    @property
    def in_runs(self) -> bool:
        """Whether tables of bytes are looked up for neighbours, which is done by vectors."""
        steps = [split_axis(x, self.axes[-1]) for x in (self.read.args[0], *(s.offset for s in self.stores))]
        sizes = {self.buffers[s.buffer].dtype.size for s in self.stores}
        return sizes == {1} and all(parts is not None and as_int(parts[0]) == 1 for parts in steps)


def by_table(kernel: Kernel, lanes: int) -> Kernel:
    """A map kernel by tables where all that it stores are functions of one element of 8 bits; any other as it is.

    Elements are looked up one by one: a function is worth it that costs a vector more than its lanes.
    """
    if type(kernel) is not MapKernel:
        return kernel
    values = [s.value for s in kernel.stores]
    points = as_int(product([a.args[0] for a in kernel.axes]))
    if (points is not None and points < POINTS) or any(cost(v) <= lanes for v in values):
        return kernel
    moving = [x for x in walk(*values) if x.op == "load" and _moves(x)]
    if len(moving) != 1 or moving[0].dtype not in (U8, I8):
        return kernel
    read, code = moving[0], axis("code", VALUES)
    results = tuple(rebuild(v, {read: cast(code, read.dtype)}.get) for v in values)
    if any(_moves(r, code) for r in results):
        return kernel
    return TableKernel.of(kernel, read=read, code=code, results=results)


def _moves(e: Expr, among: Expr | None = None) -> bool:
    """Whether an expression is of axes."""
    return any(x.op == "axis" and x is not among for x in locals_of(e))
