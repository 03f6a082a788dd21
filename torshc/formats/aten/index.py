"""Gathers and scatters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...expr import BOOL, I64, Expr, const, product
from ...graph import Shape
from ...ops import Unsupported
from ...ops.core.tensor import Tensor, apply_named, apply_op, read_node
from ...ops.tensor.scatter import ScatterElements, ScatterND
from ...ops.tensor.view import Concat
from .call import Call, aten

_REDUCTIONS = {"sum": "add", "prod": "mul", "amax": "max", "amin": "min"}


@aten("embedding.default")
def embedded(call: Call, weight: Tensor, places: Tensor, *_: Any) -> Tensor:
    return read_node("Gather", weight, places, axis=0)


@aten("embedding_dense_backward.default")
def embedding_gradient(
    call: Call, g: Tensor, places: Tensor, rows: Any, padding: Any, scale_grad_by_freq: bool
) -> Tensor:
    """Rows added up where they were taken from, but those of the padding."""
    if scale_grad_by_freq:
        raise Unsupported("scale_grad_by_freq")
    width, count = g.shape[-1], product(places.shape)
    places, g = places.reshape(count, 1), g.reshape(count, width)
    if isinstance(padding, Expr) or padding >= 0:
        g = apply_named(
            "Where", apply_named("Equal", places, call.constant(padding, places.dtype)), call.constant(0), g
        )
    return apply_op(ScatterND("add"), call.full(0.0), places, g)


@aten("index_select.default")
def rows_of(call: Call, x: Tensor, dim: int, places: Tensor) -> Tensor:
    return read_node("Gather", x, places, axis=dim % x.rank)


@aten("gather.default")
def gathered(call: Call, x: Tensor, dim: int, places: Tensor, **_: Any) -> Tensor:
    return read_node("GatherElements", _box(x, places.shape, dim), places, axis=dim % x.rank)


def _box(x: Tensor, shape: Shape, dim: int) -> Tensor:
    """The front part of x that has this shape, but along one dimension all of it."""
    sizes = tuple(have if k == dim % x.rank else d for k, (have, d) in enumerate(zip(x.shape, shape, strict=True)))
    return x if sizes == x.shape else x.slice((const(0),) * x.rank, sizes)


def _scatter_elements(call: Call, x: Tensor, dim: int, places: Tensor, y: Any, reduction: str) -> Tensor:
    y = y.cast(x.dtype) if isinstance(y, Tensor) else call.constant(y, x.dtype).expand(*places.shape)
    if y.shape != places.shape:
        y = y.slice((const(0),) * y.rank, places.shape)
    return read_node(ScatterElements, x, places, y, axis=dim % x.rank, reduction=reduction)


@aten("scatter.src", "scatter.value")
def scattered(call: Call, x: Tensor, dim: int, places: Tensor, y: Any) -> Tensor:
    return _scatter_elements(call, x, dim, places, y, "none")


@aten("scatter_add.default")
def scattered_sums(call: Call, x: Tensor, dim: int, places: Tensor, y: Tensor) -> Tensor:
    return _scatter_elements(call, x, dim, places, y, "add")


@aten("scatter_reduce.two")
def scattered_reductions(
    call: Call, x: Tensor, dim: int, places: Tensor, y: Tensor, reduce: str, include_self: bool = True
) -> Tensor:
    if reduce not in _REDUCTIONS or not include_self:
        raise Unsupported(f"scatter_reduce by {reduce!r}" + ("" if include_self else " without the elements there"))
    return _scatter_elements(call, x, dim, places, y, _REDUCTIONS[reduce])


def _read_indices(x: Tensor, indices: Sequence[Tensor | None]) -> tuple[list[int], list[int], Tensor, Shape]:
    """Dimensions with indices and the others, the indices as a matrix of a row each, and what they broadcast to."""
    given = [(k, i) for k, i in enumerate(indices) if i is not None]
    if any(i.dtype is BOOL for _, i in given):
        raise Unsupported("an index of truth values, whose count is known only in a run")
    chosen = [k for k, _ in given]
    rest = [k for k in range(x.rank) if k not in chosen]
    shape = _broadcast([i.shape for _, i in given])
    columns = [i.cast(I64).expand(*shape).reshape(product(shape), 1) for _, i in given]
    return chosen, rest, columns[0] if len(columns) == 1 else apply_op(Concat(1), *columns), shape


def _broadcast(shapes: Sequence[Shape]) -> Shape:
    """What shapes broadcast to; PyTorch has checked that they do."""
    rank = max(map(len, shapes))
    wide = [(*(const(1),) * (rank - len(s)), *s) for s in shapes]
    return tuple(next((d for d in dims if d is not const(1)), const(1)) for dims in zip(*wide, strict=True))


def _in_front(chosen: Sequence[int], at: int, count: int, rank: int) -> list[int]:
    """Where the dimensions of the indices go: in place of the first, where those with indices follow each other.

    Returns:
        The order that brings them there from the front.
    """
    together = [*chosen] == [*range(chosen[0], chosen[-1] + 1)]
    before = at if together else 0
    return [*range(count, count + before), *range(count), *range(count + before, rank)]


@aten("index.Tensor")
def indexed(call: Call, x: Tensor, indices: list[Tensor | None]) -> Tensor:
    chosen, rest, table, shape = _read_indices(x, indices)
    front = x.transpose(*chosen, *rest)
    found = read_node("GatherND", front, table).reshape(*shape, *(x.shape[k] for k in rest))
    return found.transpose(*_in_front(chosen, chosen[0], len(shape), found.rank))


@aten("index_put.default")
def index_replaced(call: Call, x: Tensor, indices: list[Tensor | None], y: Tensor, accumulate: bool = False) -> Tensor:
    y = y.cast(x.dtype)
    if len([i for i in indices if i is not None]) == 1 and (mask := indices[0]) is not None and mask.dtype is BOOL:
        if y.rank or accumulate:
            raise Unsupported("an index of truth values, whose count is known only in a run")
        wide = mask.reshape(*mask.shape, *(const(1),) * (x.rank - mask.rank))
        return apply_named("Where", wide, y, x)
    chosen, rest, table, shape = _read_indices(x, indices)
    order = [*chosen, *rest]
    others = tuple(x.shape[k] for k in rest)
    turns = _in_front(chosen, chosen[0], len(shape), len(shape) + len(rest))
    whole = (*shape, *others)
    updates = y.expand(*(whole[k] for k in turns))
    updates = updates.transpose(*(turns.index(k) for k in range(len(turns)))).reshape(product(shape), *others)
    kind = "add" if accumulate else "none"
    made = read_node(ScatterND, x.transpose(*order), table, updates, reduction=kind)
    return made.transpose(*(order.index(k) for k in range(x.rank)))
