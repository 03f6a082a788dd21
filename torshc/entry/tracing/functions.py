"""NumPy's functions that compute: reductions, choices and products."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from .array import Trace, Traced, implements, refusal
from .moves import axes_of, in_common, no_out, reshape, sliced
from .universal import like


def _reduce(op: str, t: Trace, x: Any, axis: Any, keepdims: bool) -> Any:
    x = t.lift(x)
    axes = axes_of(x, axis)
    if not axes:
        return x
    made = t.add(op, x, t.constant(np.array(axes, np.int64)), keepdims=int(keepdims))
    return Traced(t, made.name, own=True)


def _sum_dtype(x: Traced, dtype: Any) -> Any:
    """The type that NumPy sums in."""
    if dtype is not None:
        return np.dtype(dtype)
    if x.dtype.kind in "bi" and x.dtype.itemsize < 8:
        return np.dtype(np.int64)
    return np.dtype(np.uint64) if x.dtype.kind == "u" else x.dtype


def _total(
    op: str, t: Trace, x: Any, axis: Any = None, dtype: Any = None, out: None = None, keepdims: bool = False
) -> Any:
    no_out(out)
    x = t.lift(x)
    return _reduce(op, t, x.to(_sum_dtype(x, dtype)), axis, keepdims)


implements(np.sum, method="sum")(partial(_total, "ReduceSum"))
implements(np.prod, method="prod")(partial(_total, "ReduceProd"))


def _extreme(
    op: str,
    on_bool: Any,
    t: Trace,
    x: Any,
    axis: Any = None,
    out: None = None,
    keepdims: bool = False,
    dtype: None = None,
) -> Any:
    no_out(out)
    x = t.lift(x)
    if x.dtype == np.bool_:
        return _reduce(op, t, x.to(np.uint8), axis, keepdims).to(np.bool_)
    return _reduce(op, t, x, axis, keepdims)


implements(np.max, np.amax, method="max")(partial(_extreme, "ReduceMax", None))
implements(np.min, np.amin, method="min")(partial(_extreme, "ReduceMin", None))
implements(np.any, method="any")(lambda t, x, *a, **k: _extreme("ReduceMax", None, t, t.lift(x).to(np.bool_), *a, **k))
implements(np.all, method="all")(lambda t, x, *a, **k: _extreme("ReduceMin", None, t, t.lift(x).to(np.bool_), *a, **k))


def _count(t: Trace, x: Traced, axis: Any, dtype: np.dtype[Any]) -> Traced:
    """Elements along axes, as a number of a type."""
    total: Any = 1
    for a in axes_of(x, axis):
        total = total * x.extent(a)
    return t.lift(total).to(dtype)


@implements(np.mean, method="mean")
def _mean(t: Trace, x: Any, axis: Any = None, dtype: Any = None, out: None = None, keepdims: bool = False) -> Any:
    no_out(out)
    x = t.lift(x)
    wanted = np.dtype(dtype) if dtype is not None else x.dtype if x.dtype.kind == "f" else np.dtype(np.float64)
    inner = np.dtype(np.float32) if wanted == np.float16 else wanted
    return _reduce("ReduceMean", t, x.to(inner), axis, keepdims).to(wanted)


@implements(np.var, method="var")
def _var(
    t: Trace, x: Any, axis: Any = None, dtype: Any = None, out: None = None, ddof: int = 0, keepdims: bool = False
) -> Traced:
    x = t.lift(x)
    x = x.to(x.dtype if x.dtype.kind == "f" else np.float64)
    off = t.add("Sub", x, _mean(t, x, axis, dtype, out, True))
    squares = _reduce("ReduceSum", t, t.add("Mul", off, off), axis, keepdims)
    count = _count(t, x, axis, x.dtype)
    return t.add("Div", squares, t.add("Sub", count, like(t, x, ddof)) if ddof else count)


@implements(np.std, method="std")
def _std(t: Trace, x: Any, *args: Any, **more: Any) -> Traced:
    return t.add("Sqrt", _var(t, x, *args, **more))


def _place(op: str, t: Trace, x: Any, axis: Any = None, out: None = None, keepdims: bool = False) -> Traced:
    no_out(out)
    x = t.lift(x)
    x = x.to(np.uint8) if x.dtype == np.bool_ else x
    if axis is None:
        flat = t.add(op, reshape(t, x, -1), axis=0, keepdims=0)
        return reshape(t, flat, (1,) * x.ndim) if keepdims else flat
    return t.add(op, x, axis=axes_of(x, axis)[0], keepdims=int(keepdims))


implements(np.argmax, method="argmax")(partial(_place, "ArgMax"))
implements(np.argmin, method="argmin")(partial(_place, "ArgMin"))


@implements(np.count_nonzero)
def _count_nonzero(t: Trace, x: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    return _total("ReduceSum", t, t.lift(x).to(np.bool_), axis, keepdims=keepdims)


def _running(op: str, t: Trace, x: Any, axis: Any = None, dtype: Any = None, out: None = None) -> Traced:
    no_out(out)
    x = t.lift(x)
    x = x.to(_sum_dtype(x, dtype))
    if axis is None:
        x, axis = reshape(t, x, -1), 0
    return t.add(op, x, t.constant(np.int64(axes_of(x, axis)[0])))


implements(np.cumsum, method="cumsum")(partial(_running, "CumSum"))
implements(np.cumprod, method="cumprod")(partial(_running, "CumProd"))


# ---- choices and products ------------------------------------------------------------------------------------------


@implements(np.where)
def _where(t: Trace, condition: Any, x: Any = None, y: Any = None) -> Traced:
    if x is None or y is None:
        raise refusal("numpy.where of a condition alone: how many there are is known only at run time")
    weak = [v for v in (x, y) if type(v) in (int, float)]
    strong = [v.dtype if isinstance(v, Traced) else np.asarray(v).dtype for v in (x, y) if type(v) not in (int, float)]
    wanted = np.result_type(*strong, *weak)
    made = t.add("Where", t.lift(condition).to(np.bool_), t.lift(x, wanted), t.lift(y, wanted))
    return Traced(t, made.name, own=True)


@implements(np.clip, method="clip")
def _clip(t: Trace, x: Any, a_min: Any = None, a_max: Any = None, out: None = None, **more: Any) -> Any:
    no_out(out)
    for limit, function in ((more.get("min", a_min), np.maximum), (more.get("max", a_max), np.minimum)):
        x = x if limit is None else function(t.lift(x) if not isinstance(x, Traced) else x, limit)
    return x


@implements(np.round, np.around, method="round")
def _round(t: Trace, x: Any, decimals: int = 0, out: None = None) -> Any:
    no_out(out)
    x = t.lift(x)
    if x.dtype.kind != "f":
        return x
    factor = 10.0**decimals
    return t.add("Round", x) if decimals == 0 else np.rint(x * factor) / factor


@implements(np.nan_to_num)
def _nan_to_num(t: Trace, x: Any, copy: bool = True, nan: float = 0.0, posinf: Any = None, neginf: Any = None) -> Any:
    x = t.lift(x)
    if x.dtype.kind != "f":
        return x
    limits = np.finfo(x.dtype)
    x = np.where(np.isnan(x), t.constant(nan, x.dtype), x)
    x = np.where(x == np.inf, t.constant(limits.max if posinf is None else posinf, x.dtype), x)
    return np.where(x == -np.inf, t.constant(limits.min if neginf is None else neginf, x.dtype), x)


@implements(np.diff)
def _diff(t: Trace, x: Any, n: int = 1, axis: int = -1) -> Any:
    x = t.lift(x)
    place = axes_of(x, axis)[0]
    for _ in range(n):
        x = sliced(t, x, {place: slice(1, None)}) - sliced(t, x, {place: slice(None, -1)})
    return x


@implements(np.einsum)
def _einsum(t: Trace, subscripts: Any, *operands: Any, **more: Any) -> Traced:
    if not isinstance(subscripts, str) or (more.keys() - {"optimize"}):
        raise refusal("numpy.einsum without a text of subscripts, or with other options, cannot be traced")
    return t.add("Einsum", *in_common(t, operands), equation=subscripts)


@implements(np.dot, method="dot")
def _dot(t: Trace, a: Any, b: Any, out: None = None) -> Any:
    no_out(out)
    x, y = in_common(t, [a, b])
    if x.ndim == 0 or y.ndim == 0:
        return x * y
    return np.matmul(x, y) if y.ndim <= 2 else _tensordot(t, x, y, ([-1], [-2]))


@implements(np.tensordot)
def _tensordot(t: Trace, a: Any, b: Any, axes: Any = 2) -> Traced:
    x, y = in_common(t, [a, b])
    if isinstance(axes, int):
        axes = (range(x.ndim - axes, x.ndim), range(axes))
    left, right = axes_of(x, axes[0]), axes_of(y, axes[1])
    letters = iter("abcdefghijklmnopqrstuvwxyz")
    first = [next(letters) for _ in range(x.ndim)]
    second = [first[left[right.index(k)]] if k in right else next(letters) for k in range(y.ndim)]
    kept = [c for k, c in enumerate(first) if k not in left] + [c for k, c in enumerate(second) if k not in right]
    return t.add("Einsum", x, y, equation=f"{''.join(first)},{''.join(second)}->{''.join(kept)}")


implements(np.outer)(lambda t, a, b, out=None: reshape(t, a, (-1, 1)) * reshape(t, b, (1, -1)))
implements(np.inner)(lambda t, a, b: _tensordot(t, a, b, ([-1], [-1])))
implements(np.vdot)(lambda t, a, b: _dot(t, reshape(t, a, -1), reshape(t, b, -1)))


@implements(np.trace, method="trace")
def _trace(t: Trace, x: Any) -> Traced:
    return t.add("Einsum", t.lift(x), equation="ii->")
