"""The two factors of a contraction: how each lies in memory, and how threads read it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ...expr import BF16, F16, F32, DType, Expr, as_int, const, product, select, walk
from ...expr.affine import aligned, contains, divisor_of, rises, strides_along
from ...graph import Value
from ...kernels.base import AT_ONCE, Buffer, Kernel, Operand, Packed, Store, Temporary, view_elements
from ...kernels.heavy import is_finite, row_major
from ...kernels.nest import Buffers, MapKernel
from ...ops.core.scalar import Scalar
from ...ops.math.bits import RoundToTf32
from ...plan.group import Group
from ...plan.storage import Storage

Array = np.ndarray[Any, Any]
PACKET = 4  # elements that a thread reads at once
WIDE = 8  # those of 16 bits that go to shared memory at once


@dataclass(frozen=True)
class Term:
    """An element of a factor over the axes of a product.

    Attributes:
        buffer: what it is read from.
        offset: where.
        guard: whether it is read, or else zero.
        padded: an axis whose end is followed by padding up to a packet, or None.
    """

    buffer: int
    offset: Expr
    guard: Expr
    padded: Expr | None = None


@dataclass(frozen=True)
class Factor:
    """A factor as a kernel reads it, tile by tile.

    Attributes:
        buffer: its number in the argument list.
        start: offset over the axes of the batch.
        row: offset along its own outer axes.
        step: offset along the axes of the sum.
        guard: whether an element is read, or else zero.
        axes: its outer axes.
        along_k: whether neighbouring threads read neighbours along the sum (else along the outer axes).
        packet: elements that a thread reads at once.
    """

    buffer: int
    start: Expr
    row: Expr
    step: Expr
    guard: Expr
    axes: tuple[Expr, ...]
    along_k: bool
    packet: int

    @property
    def guarded(self) -> bool:
        return as_bool(self.guard) is not True

    @property
    def guard_axes(self) -> list[Expr]:
        """Outer axes on which the guard depends."""
        return [a for a in self.axes if contains(self.guard, a)]


@dataclass(frozen=True)
class Matrices:
    """A factor as a card that copies whole tiles by itself is told of it: matrices of rows without gaps.

    Attributes:
        start: offset of the first.
        inner, outer: elements of a row, and rows.
        pitch: elements from row to row.
        count, each: matrices, and elements from one to the next.
        which: number of the matrix that a block reads.
    """

    pixels: ClassVar[bool] = False

    start: int
    inner: Expr
    outer: Expr
    pitch: Expr
    count: Expr
    each: Expr
    which: Expr


def as_matrices(f: Factor, batch: Sequence[Expr], k: Sequence[Expr], tile: int, packet: int) -> Matrices | None:
    """A factor as matrices; None when something else decides what is read, or rows do not begin at packets.

    Args:
        k: axes of the sum, as one running number, of which a step takes `tile`.
        packet: elements in 16 bytes.

    >>> from ...expr import axis
    >>> batch, m, tap, depth = axis("g0", 2), axis("m0", 40), axis("k0", 9), axis("k1", 64)
    >>> f = Factor(0, batch * 23040, m * 576, tap * 64 + depth, const(True), (m,), along_k=True, packet=WIDE)
    >>> found = as_matrices(f, [batch], [tap, depth], 64, WIDE)
    >>> [str(e) for e in (found.inner, found.outer, found.pitch, found.count, found.each, found.which)]
    ['576', '40', '576', '2', '23040', 'g0']
    """
    starts = strides_along(f.start, batch)
    if f.guarded or f.packet != packet or starts is None or len(f.axes) != 1:
        return None
    (row,) = f.axes
    lines, terms = strides_along(f.row, [row]), strides_along(f.step, k)
    moving = [(a, s) for a, s in zip(batch, starts[0], strict=True) if as_int(s) != 0]
    start = as_int(starts[1])
    if lines is None or terms is None or len(moving) > 1 or start is None:
        return None
    steps = [as_int(s) for s in terms[0]]
    sizes = [as_int(a.args[0]) for a in k]
    for outer_step, step, size in zip(steps, steps[1:], sizes[1:], strict=False):
        if size is None or step is None or outer_step != step * size:
            return None
    if len(k) > 1 and (sizes[-1] or 1) % tile:
        return None  # steps end with the innermost axis, in the middle of a tile
    length = product([a.args[0] for a in k])
    pitch = lines[0][0] if f.along_k else terms[0][-1]
    inner, outer = (length, row.args[0]) if f.along_k else (row.args[0], length)
    each = moving[0][1] if moving else pitch * outer
    if start < 0 or start % packet or not all(rises(e, packet) for e in (pitch, each)):
        return None
    which = moving[0][0] if moving else const(0)
    return Matrices(start, inner, outer, pitch, which.args[0] if moving else const(1), each, which)


def as_bool(e: Expr) -> bool | None:
    """The value of a constant condition, else None."""
    return e.data if e.op == "const" and isinstance(e.data, bool) else None


def unguard(e: Expr) -> tuple[Expr, Expr]:
    """A factor's element as (what is read, the condition under which it is read and not zero)."""
    guard = const(True)
    while e.op == "select" and e.args[2].op == "const" and e.args[2].data == 0.0:
        guard, e = guard & e.args[0], e.args[1]
    return e, guard


def add_operand(buffers: Buffers, operand: Operand, dtype: DType, written: bool = False) -> int:
    """Append an operand that is not a value to an argument list."""
    buffers.list.append(Buffer(operand, dtype, written))
    return len(buffers.list) - 1


def bring(
    element: Expr,
    order: Sequence[Expr],
    affine: Sequence[Expr],
    buffers: Buffers,
    group: Group,
    storage: Mapping[Value, Storage],
    name: str,
    copied: bool = False,
    rounded: bool = False,
) -> tuple[Term, list[Kernel]]:
    """A factor as memory with strides: where it lies, a packed constant, or a copy with the kernel that makes it.

    Args:
        element: the factor's element, made of loads of values.
        order: axes of a packed constant or a copy, from outermost to innermost; those that do not move it are left out.
        affine: axes along which it has to have strides.
        copied: whether what is no constant is a copy, so that it lies in this order too.
        rounded: whether it is a copy of tf32, of a constant too.
    """
    read, guard = unguard(element)
    probe = Buffers(storage)
    placed = probe.resolve(read)
    moving = [a for a in order if contains(element, a)]
    if placed.op == "load" and not _has_load(guard) and strides_along(placed.args[0], affine) is not None:
        root = probe.list[0].operand
        if isinstance(root, Value) and root.const is not None and not rounded:
            packed = pack(root, placed.args[0], moving)
            if packed is not None:
                operand, offset = packed
                return Term(add_operand(buffers, operand, root.dtype), offset, guard, moving[-1]), []
        if not copied:
            placed = buffers.resolve(read)
            assert isinstance(placed.data, int)
            return Term(placed.data, placed.args[0], guard), []
    if rounded:
        element = RoundToTf32().body(Scalar(element)).expr
    to, kernel = _copy(element, moving, group, storage, name)
    return Term(add_operand(buffers, to, kernel.buffers[-1].dtype), row_major(moving), const(True)), [kernel]


def _has_load(e: Expr) -> bool:
    return any(x.op == "load" for x in walk(e))


def pack(source: Value, offset: Expr, order: Sequence[Expr]) -> tuple[Packed, Expr] | None:
    """A constant with its axes in another order and its rows padded to whole packets, and where an element is in it.

    Returns:
        None when its strides or extents are not known.
    """
    parts = strides_along(offset, order)
    if parts is None or source.const is None or not order:
        return None
    strides, start = [as_int(s) for s in parts[0]], as_int(parts[1])
    shape = [as_int(a.args[0]) for a in order]
    known, steps = [e for e in shape if e is not None], [s for s in strides if s is not None]
    if start is None or len(known) < len(order) or len(steps) < len(order) or 0 in known:
        return None
    packet = WIDE if source.dtype.size == 2 else PACKET
    width = -(-known[-1] // packet) * packet
    rows = math.prod(known[:-1])
    at_once = max(1, AT_ONCE // width)

    def make(array: Array) -> Iterator[Array]:
        if source.dtype.is_storage:
            array = array.view(f"u{source.dtype.size}")
        view = view_elements(array, start, known, steps)
        if width == known[-1] and view.size <= AT_ONCE:
            yield view
            return
        matrices = view.reshape(1, -1) if view.ndim == 1 else view
        for which in np.ndindex(*matrices.shape[:-2]):
            for row in range(0, matrices.shape[-2], at_once):
                part = matrices[which][row : row + at_once]
                yield np.pad(part, ((0, 0), (0, width - known[-1])))

    how = f"rows of {width}: {start} {known} {steps}"
    place = row_major(order[:-1]) * width + order[-1]
    return Packed(source, how, make, rows * width * source.dtype.size, source.dtype), place


def _copy(
    element: Expr, axes: Sequence[Expr], group: Group, storage: Mapping[Value, Storage], name: str
) -> tuple[Temporary, Kernel]:
    """A copy of a factor, row-major over its axes."""
    buffers = Buffers(storage)
    value = buffers.resolve(element)
    narrow = {b.dtype for b in buffers.list}
    dtype = narrow.pop() if len(narrow) == 1 and value.dtype is F32 and narrow <= {F16, BF16} else value.dtype
    size = product([a.args[0] for a in axes])
    to = Temporary(name, group.id, size * dtype.size)
    store = Store(add_operand(buffers, to, dtype, written=True), row_major(axes), value)
    kernel = MapKernel(
        buffers=tuple(buffers.list),
        tasks=size,
        flops=const(0),
        nbytes=size * (2 * dtype.size),
        axes=tuple(axes),
        stores=(store,),
        rows=1,
        chunk=1,
    )
    return to, kernel


def make_factor(term: Term, outer: Sequence[Expr], k: Sequence[Expr], packet: int) -> Factor | None:
    """A factor over its outer axes and those of the sum, read in packets of this size where they are whole.

    Returns:
        None when it has no strides along them.
    """
    parts = strides_along(term.offset, [*outer, *k])
    if parts is None:
        return None
    strides, start = parts
    row, step = const(0), const(0)
    for a, s in zip(outer, strides, strict=False):
        row = row + a * s
    for a, s in zip(k, strides[len(outer) :], strict=True):
        step = step + a * s
    along_k, packet = _reading(term, outer, k, packet)
    return Factor(term.buffer, start, row, step, term.guard, tuple(outer), along_k, packet)


def _reading(term: Term, outer: Sequence[Expr], k: Sequence[Expr], packet: int) -> tuple[bool, int]:
    """Whether neighbouring threads read along the sum, and how many elements each reads at once."""
    ways = [(outer[-1], False)] if outer else []
    ways += [(k[-1], True)] if k else []
    units = [(a, along) for a, along in ways if _stride(term.offset, a) == 1]
    for a, along in units:
        if _whole(term, a, packet, alone=len(outer) == 1 and not along) and not contains(term.guard, a):
            return along, packet
    if units:
        return units[0][1], 1
    return not outer, 1


def _stride(offset: Expr, a: Expr) -> int | None:
    parts = strides_along(offset, [a])
    return as_int(parts[0][0]) if parts else None


def _whole(term: Term, a: Expr, packet: int, alone: bool) -> bool:
    """Whether packets along an axis from multiples of their size on are aligned, and whole or not there at all."""
    size = divisor_of(a.args[0])
    fits = (size > 0 and size % packet == 0) or (alone and term.padded is not None)
    return fits and aligned(term.offset, a, packet)


def as_product(body: Expr) -> Expr:
    """The product of a ConvTranspose with its condition at the first factor, if 0 times the second is surely 0."""
    if body.op != "select" or body.args[1].op != "mul" or body.args[2] is not const(0, body.dtype):
        return body
    first, second = body.args[1].args
    return select(body.args[0], first, body.args[2]) * second if _finite(second) else body


def _finite(e: Expr) -> bool:
    """Whether an element is a finite number wherever it is read."""
    while e.op == "cast" and e.args[0].dtype.is_float:  # to what products are computed in, which is no narrower
        e = e.args[0]
    known = e.op == "const" and isinstance(e.data, float) and math.isfinite(e.data)
    return known or (e.op == "load" and isinstance(e.data, Value) and is_finite(e.data))
