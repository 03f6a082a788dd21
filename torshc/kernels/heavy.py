"""What kernels of heavy operators have in common: operands as strided memory, epilogues, what they cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from ..expr import F32, DType, Expr, acc, as_int, ceil_div, const, cost, load, product, walk
from ..expr.affine import strides_along
from ..graph import Node, Value
from ..ops.core.base import Index
from ..plan.group import Group
from ..plan.inline import Inliner
from ..plan.storage import Storage
from .axes import join_axes
from .base import Buffer, Kernel, Operand, Store, Temporary, Total
from .epilogue import lower_epilogue
from .nest import Buffers, MapKernel

INLINE_COST = 12  # an epilogue of at most this cost is written out for every register of a tile
COPY_CHUNK = 16384

Source = Callable[[Buffers], Expr]
"""Makes an element of an operand, adding what it reads to an argument list."""


@dataclass(frozen=True)
class HeavyKernel(Kernel):
    """A kernel with an epilogue.

    Attributes:
        stores: what is made of a sum (``acc``) and stored, over the kernel's axes.
    """

    kind: ClassVar[str] = "heavy"

    stores: tuple[Store, ...]

    @property
    def reached(self) -> frozenset[int]:
        return frozenset(s.buffer for s in self.stores)

    @property
    def sums(self) -> DType:
        """What the kernel sums in."""
        return F32

    @property
    def adds_up(self) -> list[Total]:
        """What its tasks add up beside what they store."""
        return [s for s in self.stores if isinstance(s, Total)]

    @property
    def shared_finish(self) -> bool:
        """Whether the epilogue is one function for all tiles, because it is long."""
        return sum(cost(s.value) for s in self.stores if not isinstance(s, Total)) > INLINE_COST

    @property
    def finish_buffers(self) -> list[int]:
        """Buffers that the epilogue reads or writes."""
        used = {s.buffer for s in self.stores if not isinstance(s, Total)}
        for x in walk(*(e for s in self.stores for e in (s.value, s.offset))):
            if x.op == "load" and isinstance(x.data, int):
                used.add(x.data)
        return sorted(used)


@dataclass(frozen=True)
class Strided:
    """An operand as memory that is walked with strides.

    Attributes:
        buffer: its number in the argument list.
        start: element offset over the axes that are not listed.
        steps: strides along the listed axes.
    """

    buffer: int
    start: Expr
    steps: tuple[Expr, ...]


def read_through(group: Group, value: Value, index: Index) -> Expr:
    """The element of an operand at an index, read through the group's folded views."""
    return Inliner(group.folded).at(value, index)


def plain(buffer: int, start: Expr) -> Strided:
    """Memory that a kernel walks in a way of its own, such as panels."""
    return Strided(buffer, start, ())


def strided_operand(element: Expr, axes: Sequence[Expr]) -> Strided | None:
    """A resolved load as strides along some axes, None when it is something else or not affine in them."""
    if element.op != "load" or not isinstance(element.data, int):
        return None
    parts = strides_along(element.args[0], axes)
    return Strided(element.data, parts[1], parts[0]) if parts else None


def add_buffer(buffers: Buffers, operand: Operand, written: bool = False, dtype: DType = F32) -> int:
    """Append an operand that is not a value (packed weights, a temporary) to an argument list."""
    buffers.list.append(Buffer(operand, dtype, written))
    return len(buffers.list) - 1


def finish(group: Group, anchor: Node, result: Expr, index: Index, buffers: Buffers) -> list[Store]:
    """The stores behind a sum; `result` is the element of the anchor made from ``acc``."""
    return lower_epilogue(group, anchor, {anchor.output: (result, index)}, buffers)


def accumulated(group: Group, bias: Value | None, channel: Expr) -> Expr:
    """The sum, and a bias of channels added when there is one."""
    total = acc("acc", F32)
    return total if bias is None else total + read_through(group, bias, (channel,))


def epilogue_flops(stores: Sequence[Store], size: Expr) -> Expr:
    """Arithmetic of the epilogue over `size` elements."""
    floats = (x for s in stores for x in walk(s.value) if x.dtype.is_float)
    return size * sum(1 for x in floats if x.op not in ("const", "load", "acc", "cast", "select"))


def traffic(buffers: Sequence[Buffer], outputs: Sequence[Value]) -> Expr:
    """Bytes that must be read and written at the least: each operand once."""
    total = const(0)
    for b in buffers:
        if b.written:
            continue
        total = total + (b.operand.type.nbytes if isinstance(b.operand, Value) else b.operand.nbytes)
    for v in outputs:
        total = total + v.type.nbytes
    return total


def join_stores(axes: list[Expr], stores: Sequence[Store]) -> tuple[list[Expr], list[Store]]:
    """Join axes wherever all stores run on."""
    return join_bodies(axes, stores)[:2]


def join_bodies(axes: list[Expr], stores: Sequence[Store], *others: Expr) -> tuple[list[Expr], list[Store], list[Expr]]:
    """Join axes wherever all stores and some other expressions run on."""
    axes, flat = join_axes(axes, [*others, *(e for s in stores for e in (s.offset, s.value))])
    parts = iter(flat[len(others) :])
    stores = [replace(s, offset=next(parts), value=next(parts)) for s in stores]
    return axes, stores, flat[: len(others)]


def is_empty(value: Value) -> bool:
    """Whether a tensor surely has no element."""
    return any(as_int(d) == 0 for d in value.shape)


def is_finite(weights: Value) -> bool:
    """Whether a tensor surely holds no infinity and no NaN, so that 0 times any element is 0."""
    return weights.const is not None and bool(np.isfinite(weights.const).all())


def copy_kernel(
    source: Source, axes: Sequence[Expr], storage: Mapping[Value, Storage], to: Temporary, dtype: DType = F32
) -> MapKernel:
    """Write the element that `source` makes over the axes to a temporary of a type, row-major."""
    return copies_kernel(lambda buffers: [source(buffers)], axes, storage, to, dtype)


def copies_kernel(
    sources: Callable[[Buffers], Sequence[Expr]],
    axes: Sequence[Expr],
    storage: Mapping[Value, Storage],
    to: Temporary,
    dtype: DType = F32,
) -> MapKernel:
    """The same of several elements, [element][axes]."""
    buffers = Buffers(storage)
    elements = sources(buffers)
    place, size = row_major(axes), product([a.args[0] for a in axes])
    target = add_buffer(buffers, to, written=True, dtype=dtype)
    inner = as_int(axes[-1].args[0]) or COPY_CHUNK
    rows = max(1, COPY_CHUNK // inner)
    outer = product([a.args[0] for a in axes[:-1]])
    chunks = ceil_div(axes[-1].args[0], COPY_CHUNK)
    return MapKernel(
        buffers=tuple(buffers.list),
        tasks=ceil_div(outer, rows) * chunks,
        flops=const(0),
        nbytes=outer * axes[-1].args[0] * ((1 + len(elements)) * dtype.size),
        axes=tuple(axes),
        stores=tuple(Store(target, size * n + place, element) for n, element in enumerate(elements)),
        rows=rows,
        chunk=COPY_CHUNK,
    )


def row_major(axes: Sequence[Expr]) -> Expr:
    """Position in a tensor whose dimensions are the axes."""
    place = const(0)
    for a in axes:
        place = place * a.args[0] + a
    return place


def temporary(number: int, place: Expr, dtype: DType = F32) -> Expr:
    """The element of a temporary at an offset."""
    return load(number, (place,), dtype)
