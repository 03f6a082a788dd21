"""Reductions, scans, products of matrices and orders."""

from __future__ import annotations

from typing import Any

from ...expr import BOOL, F64, I64, const, max_of
from ...ops import Unsupported
from ...ops.core import functions as ops
from ...ops.core.tensor import Tensor, apply_all, apply_named, read_node
from ...ops.tensor.sort import TopK
from .call import Call, aten, axes_of, expr


@aten("sum.default", "sum.dim_IntList")
def total(call: Call, x: Tensor, dim: Any = None, keepdim: bool = False, **_: Any) -> Tensor:
    axes = axes_of(dim, x.rank)
    return x.cast(call.dtype).sum(axes, keepdim) if axes else x.cast(call.dtype)


@aten("mean.default", "mean.dim")
def mean(call: Call, x: Tensor, dim: Any = None, keepdim: bool = False, **_: Any) -> Tensor:
    axes = axes_of(dim, x.rank)
    return x.cast(call.dtype).mean(axes, keepdim) if axes else x.cast(call.dtype)


@aten("prod.default", "prod.dim_int")
def product(call: Call, x: Tensor, dim: Any = None, keepdim: bool = False, **_: Any) -> Tensor:
    axes = axes_of(dim, x.rank)
    x = x.cast(call.dtype)
    return apply_named("ReduceProd", x, axes=tuple(axes), keepdims=keepdim) if axes else x


@aten("amax.default", "max.default")
def greatest(call: Call, x: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    axes = axes_of(dim, x.rank)
    return x.max(axes, keepdim) if axes else x


@aten("amin.default", "min.default")
def smallest(call: Call, x: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    axes = axes_of(dim, x.rank)
    return x.min(axes, keepdim) if axes else x


@aten("any.default", "any.dim", "any.dims")
def any_of(call: Call, x: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    return greatest(call, x.cast(BOOL), dim, keepdim).cast(call.dtype)


@aten("argmax.default", "argmin.default")
def place_of_extreme(call: Call, x: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    name = "ArgMax" if call.node.target.__name__.startswith("argmax") else "ArgMin"
    flat = x.reshape(x.type.size) if dim is None or not x.rank else x
    found = read_node(name, flat, axis=0 if dim is None else dim, keepdims=int(keepdim and dim is not None))
    return found.reshape(*call.shape)


@aten("max.dim", "min.dim")
def extreme_with_place(call: Call, x: Tensor, dim: int, keepdim: bool = False) -> list[Tensor]:
    name = "Max" if call.node.target.__name__.startswith("max") else "Min"
    value = x.max(dim, keepdim) if name == "Max" else x.min(dim, keepdim)
    return [value, read_node(f"Arg{name}", x, axis=dim, keepdims=int(keepdim))]


@aten("var.correction")
def variance(call: Call, x: Tensor, dim: Any = None, correction: Any = None, keepdim: bool = False) -> Tensor:
    return _moments(call, x, dim, correction, keepdim)[0]


@aten("var_mean.correction")
def variance_and_mean(
    call: Call, x: Tensor, dim: Any = None, correction: Any = None, keepdim: bool = False
) -> list[Tensor]:
    return _moments(call, x, dim, correction, keepdim)


def _moments(call: Call, x: Tensor, dim: Any, correction: Any, keep: bool) -> list[Tensor]:
    """The sum of squares of what is centred, over max(count - correction, 0)."""
    axes = axes_of(dim, x.rank)
    mean = x.mean(axes)
    centred = x - mean
    count = const(1)
    for a in axes:
        count = count * x.shape[a]
    less = 1 if correction is None else correction
    if less != int(less):
        raise Unsupported(f"a variance with the correction {less}")
    divisor = call.constant(max_of(count - int(less), 0), x.dtype)
    squares = (centred * centred).sum(axes, keep)
    return [squares / divisor, mean if keep else mean.reshape(*squares.shape)]


@aten("cumsum.default")
def running_sum(call: Call, x: Tensor, dim: int, **_: Any) -> Tensor:
    return ops.cum_sum(x.cast(call.dtype), axis=dim % x.rank) if x.rank else x.cast(call.dtype)


@aten("cumprod.default")
def running_product(call: Call, x: Tensor, dim: int, **_: Any) -> Tensor:
    return ops.cum_prod(x.cast(call.dtype), axis=dim % x.rank) if x.rank else x.cast(call.dtype)


@aten("topk.default")
def highest(call: Call, x: Tensor, k: Any, dim: int = -1, largest: bool = True, sorted: bool = True) -> list[Tensor]:
    return apply_all(TopK(dim % x.rank, expr(k), int(largest)), x)


@aten("sort.default", "sort.stable")
def ordered(call: Call, x: Tensor, dim: int = -1, descending: bool = False, **_: Any) -> list[Tensor]:
    axis = dim % x.rank
    return apply_all(TopK(axis, x.shape[axis], int(descending)), x)


@aten("mm.default", "bmm.default")
def matrix_product(call: Call, x: Tensor, y: Tensor) -> Tensor:
    return x @ y


@aten("addmm.default")
def add_product(call: Call, b: Tensor, x: Tensor, y: Tensor, beta: Any = 1, alpha: Any = 1) -> Tensor:
    made = x @ y
    made = made if alpha == 1 else made * call.constant(alpha)
    if beta == 0:
        return made
    return made + (b if beta == 1 else b * call.constant(beta))


@aten("_softmax.default")
def softmax(call: Call, x: Tensor, dim: int, half_to_float: bool) -> Tensor:
    return x.cast(call.dtype).softmax(dim % x.rank) if x.rank else call.full(1.0)


@aten("_log_softmax.default")
def log_softmax(call: Call, x: Tensor, dim: int, half_to_float: bool) -> Tensor:
    return ops.log_softmax(x.cast(call.dtype), axis=dim % x.rank) if x.rank else call.full(0.0)


@aten("arange.start_step")
def counted(call: Call, first: Any, end: Any, step: Any = 1, **_: Any) -> Tensor:
    """Integers first + k step; of floats each is rounded once."""
    count = call.shape[0]
    numbers = call.constant(0, I64).range(0, count)
    if call.dtype.is_float:
        wide = numbers.cast(F64) * call.constant(step, F64) + call.constant(first, F64)
        return wide.cast(call.dtype)
    return (numbers * call.constant(step, I64) + call.constant(first, I64)).cast(call.dtype)


@aten("full.default", "full_like.default", "scalar_tensor.default")
def filled(call: Call, *args: Any, **_: Any) -> Tensor:
    return call.full(args[-1])


@aten("empty.memory_format", "empty_permuted.default", "empty_strided.default", "new_empty_strided.default")
def empty(call: Call, *_: Any, **__: Any) -> Tensor:
    return call.full(0)
