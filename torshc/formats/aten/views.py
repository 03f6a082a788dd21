"""Operators that move elements and compute nothing."""

from __future__ import annotations

from typing import Any

from ...expr import Expr, as_int, const, max_of, min_of
from ...graph import Shape
from ...ops import Unsupported
from ...ops.core.tensor import Tensor, apply_named, apply_op
from ...ops.tensor.parts import Embed, Pad, Slice
from ...ops.tensor.view import Concat, Tile
from .call import Call, aten, expr


@aten("alias.default", "clone.default", "detach.default", "lift_fresh_copy.default")
def same(call: Call, x: Tensor, **_: Any) -> Tensor:
    return x


@aten("copy.default")
def copied(call: Call, x: Tensor, y: Tensor, *_: Any) -> Tensor:
    return y.cast(call.dtype).expand(*call.shape)


@aten("view.default", "_unsafe_view.default", "squeeze.dims", "unsqueeze.default")
def reshaped(call: Call, x: Tensor, *_: Any) -> Tensor:
    return x.reshape(*call.shape)


@aten("expand.default")
def expanded(call: Call, x: Tensor, *_: Any, **__: Any) -> Tensor:
    return x.expand(*call.shape)


@aten("permute.default")
def permuted(call: Call, x: Tensor, order: list[int]) -> Tensor:
    return x.transpose(*(k % x.rank for k in order)) if x.rank else x


def place_in(x: Shape, axis: int, start: Any) -> Expr:
    """A start or an end along an axis as PyTorch takes it: negative from the end, and never outside."""
    size = x[axis]
    if start is None:
        return const(0)
    if isinstance(start, int) and start >= (1 << 62):
        return size
    place = expr(start)
    if isinstance(start, int) and start < 0:
        return max_of(size + start, 0)
    known = as_int(place)
    return place if known == 0 or place is size else min_of(place, size)


@aten("slice.Tensor")
def sliced(call: Call, x: Tensor, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Tensor:
    axis = dim % x.rank
    starts = tuple(place_in(x.shape, k, start) if k == axis else const(0) for k in range(x.rank))
    steps = tuple(step if k == axis else 1 for k in range(x.rank))
    return apply_op(Slice(starts, call.shape, steps), x)


@aten("select.int")
def selected(call: Call, x: Tensor, dim: int, index: Any) -> Tensor:
    axis = dim % x.rank
    starts = tuple(_selected(x.shape, k, index) if k == axis else const(0) for k in range(x.rank))
    sizes = tuple(const(1) if k == axis else d for k, d in enumerate(x.shape))
    return x.slice(starts, sizes).reshape(*call.shape)


def _selected(x: Shape, axis: int, index: Any) -> Expr:
    return x[axis] + index if isinstance(index, int) and index < 0 else expr(index)


@aten("slice_backward.default")
def slice_gradient(call: Call, g: Tensor, sizes: Any, dim: int, start: Any, end: Any, step: int) -> Tensor:
    axis = dim % g.rank
    starts = tuple(place_in(call.shape, k, start) if k == axis else const(0) for k in range(g.rank))
    return apply_op(Embed(call.shape, starts, tuple(step if k == axis else 1 for k in range(g.rank))), g)


@aten("select_backward.default")
def select_gradient(call: Call, g: Tensor, sizes: Any, dim: int, index: Any) -> Tensor:
    rank = len(call.shape)
    axis = dim % rank
    starts = tuple(_selected(call.shape, k, index) if k == axis else const(0) for k in range(rank))
    wide = g.reshape(*(const(1) if k == axis else d for k, d in enumerate(call.shape)))
    return apply_op(Embed(call.shape, starts, (1,) * rank), wide)


@aten("slice_scatter.default")
def slice_replaced(
    call: Call, x: Tensor, y: Tensor, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Tensor:
    """Parts before, in place and behind; of steps that are longer than 1, by a mask."""
    axis = dim % x.rank
    place = place_in(x.shape, axis, start)
    y = y.cast(x.dtype)
    if step == 1:
        parts = [_piece(x, axis, const(0), place), y]
        behind = place + y.shape[axis]
        parts.append(_piece(x, axis, behind, x.shape[axis] - behind))
        kept = [p for p in parts if as_int(p.shape[axis]) != 0]
        return apply_op(Concat(axis), *kept).reshape(*x.shape) if kept else x
    starts = tuple(place if k == axis else const(0) for k in range(x.rank))
    embed = Embed(x.shape, starts, tuple(step if k == axis else 1 for k in range(x.rank)))
    covered = apply_op(embed, y.constant(1.0 if y.dtype.is_float else 1).expand(*y.shape))
    return apply_named("Where", ~apply_named("Equal", covered, 0), apply_op(embed, y), x)


def _piece(x: Tensor, axis: int, start: Expr, size: Expr) -> Tensor:
    starts = tuple(start if k == axis else const(0) for k in range(x.rank))
    return x.slice(starts, tuple(size if k == axis else d for k, d in enumerate(x.shape)))


@aten("split_with_sizes.default")
def split(call: Call, x: Tensor, sizes: Any, dim: int = 0) -> list[Tensor]:
    axis = dim % x.rank
    return x.split(axis, *(t.shape[axis] for t in call.types if t is not None))


@aten("cat.default")
def concatenated(call: Call, tensors: list[Tensor], dim: int = 0) -> Tensor:
    axis = dim % len(call.shape)
    there = [t.cast(call.dtype) for t in tensors if t.rank == len(call.shape)]  # beside vectors of no element
    return apply_op(Concat(axis), *there)


@aten("flip.default")
def flipped(call: Call, x: Tensor, dims: list[int]) -> Tensor:
    turned = {d % x.rank for d in dims}
    starts = tuple(d - 1 if k in turned else const(0) for k, d in enumerate(x.shape))
    return apply_op(Slice(starts, x.shape, tuple(-1 if k in turned else 1 for k in range(x.rank))), x)


@aten("repeat.default")
def repeated(call: Call, x: Tensor, repeats: list[Any]) -> Tensor:
    wide = x.reshape(*(const(1),) * (len(repeats) - x.rank), *x.shape)
    return apply_op(Tile(tuple(map(expr, repeats))), wide)


@aten("constant_pad_nd.default")
def padded(call: Call, x: Tensor, pads: list[Any], value: Any = 0) -> Tensor:
    """Pads are pairs, of the last dimension first; those below 0 cut off."""
    before, after = [const(0)] * x.rank, [const(0)] * x.rank
    for k in range(len(pads) // 2):
        before[x.rank - 1 - k], after[x.rank - 1 - k] = expr(pads[2 * k]), expr(pads[2 * k + 1])
    return apply_op(Pad(tuple(before), tuple(after)), x, call.constant(value))


@aten("diagonal.default")
def diagonal(call: Call, x: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """Of the two dimensions as one, every (columns + 1)th element."""
    a, b = dim1 % x.rank, dim2 % x.rank
    rest = [k for k in range(x.rank) if k not in (a, b)]
    rows, columns, count = x.shape[a], x.shape[b], call.shape[-1]
    flat = x.transpose(*rest, a, b).reshape(*(x.shape[k] for k in rest), rows * columns)
    start = const(offset) if offset >= 0 else columns * -offset
    step = as_int(columns)
    if step is None:
        raise Unsupported("a diagonal of a symbolic number of columns")
    starts = (*(const(0) for _ in rest), start)
    return apply_op(Slice(starts, (*flat.shape[:-1], count), (*(1 for _ in rest), step + 1)), flat)
