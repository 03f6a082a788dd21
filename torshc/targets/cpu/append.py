"""Caches with new rows: of a cache that lies where the result does, a kernel writes the new rows alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ...expr import Expr, as_int, const, max_of, min_of, rebuild, walk
from ...expr.affine import contains, split_axis
from ...graph import Value
from ...kernels.base import Kernel, Store
from ...kernels.nest import MapKernel

Rows = tuple[Expr, Expr]  # from the first on, up to the second


@dataclass(frozen=True)
class AppendKernel(MapKernel):
    """A map kernel whose result is an operand but for some rows, which are points of the last axis but one.

    Attributes:
        old: number of that operand's buffer. Where it is the result's, the kernel touches the other rows alone.
        rows: these.
    """

    template: ClassVar[str] = "append.c.j2"

    old: int
    rows_of: Rows

    @property
    def appends(self) -> tuple[int, int]:
        return self.stores[0].buffer, self.old


def by_new_rows(kernel: Kernel) -> Kernel:
    """A map kernel that knows which rows are new, where all others are an operand's own; any other as it is."""
    if type(kernel) is not MapKernel or len(kernel.stores) != 1 or len(kernel.axes) < 2:
        return kernel
    (store,), line = kernel.stores, kernel.axes[-2]
    if store.value.op != "select":
        return kernel
    rows = _rows_where(store.value.args[0], line)
    old = next((k for k in range(len(kernel.buffers)) if _is_kept(kernel, store, k)), None)
    if rows is None or old is None:
        return kernel
    return AppendKernel.of(kernel, old=old, rows_of=rows)


def _rows_where(condition: Expr, line: Expr) -> Rows | None:
    """Between which rows a condition holds, if it is made of comparisons of rows; None if not."""
    first, end = const(0), line.args[0]
    for part in _parts(condition):
        if part.op not in ("lt", "le", "gt", "ge"):
            return None
        low, high = part.args if part.op in ("lt", "le") else part.args[::-1]
        # As a number that is 0 or more where the comparison holds.
        margin = split_axis(high - low - (1 if part.op in ("lt", "gt") else 0), line)
        if margin is None or any(contains(e, line) for e in margin):
            return None
        step, rest = as_int(margin[0]), margin[1]
        if step == 1:
            first = max_of(first, -rest)
        elif step == -1:
            end = min_of(end, rest + 1)
        else:
            return None
    return first, end


def _parts(condition: Expr) -> list[Expr]:
    """What has to hold so that all of a condition does."""
    return [p for a in condition.args for p in _parts(a)] if condition.op == "and" else [condition]


def _is_kept(kernel: MapKernel, store: Store, old: int) -> bool:
    """Whether the elements of a buffer are the result's where no row is new, and are read nowhere else.

    A result that may be longer than the operand is looked at as if it were not: else they are not one buffer.
    """
    source, result = kernel.buffers[old], kernel.buffers[store.buffer]
    if not (isinstance(source.operand, Value) and isinstance(result.operand, Value)) or source.written:
        return False
    before, after = source.operand.type, result.operand.type
    if before.dtype is not after.dtype or len(before.shape) != len(after.shape) or source.start or result.start:
        return False
    equal = {b: a for a, b in zip(before.shape, after.shape, strict=True) if a is not b}
    if any(as_int(b) is not None for b in equal):
        return False
    condition, new, kept = (rebuild(e, equal.get) for e in store.value.args)
    place, line = rebuild(store.offset, equal.get), kernel.axes[-2]
    if kept.op == "select" and (rows := _rows_where(kept.args[0], line)) is not None:
        first, end, length = (rebuild(e, equal.get) for e in (*rows, line.args[0]))
        kept = kept.args[1] if (first, end) == (const(0), length) else kept
    loads = {x for x in walk(condition, new, kept) if x.op == "load" and x.data == old}
    return kept.op == "load" and loads == {kept} and kept.args[0] is place
