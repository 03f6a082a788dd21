"""NumPy's functions of shapes and places: what moves elements and computes nothing."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from .array import Trace, Traced, implements, refusal


def axes_of(x: Traced, axis: Any) -> list[int]:
    found = range(x.ndim) if axis is None else [axis] if isinstance(axis, int) else axis
    axes = [int(a) for a in found]
    if any(not -x.ndim <= a < x.ndim for a in axes):
        raise refusal(f"axis {axis} of an array of {x.ndim} dimensions")
    return [a % x.ndim for a in axes]


def no_out(out: Any) -> None:
    if out is not None:
        raise refusal("out= cannot be traced", "take what the function returns")


def _sizes(t: Trace, sizes: Sequence[Any]) -> Traced:
    """Sizes, numbers and arrays of rank 0, as an operand."""
    if all(not isinstance(s, Traced) for s in sizes):
        return t.constant(np.array([operator.index(s) for s in sizes], np.int64))
    zero = t.constant(np.array([0]))
    parts = [t.add("Unsqueeze", t.lift(s, np.dtype(np.int64)), zero) for s in sizes]
    return t.add("Concat", *parts, axis=0)


@implements(np.reshape)
def reshape(t: Trace, x: Any, shape: Any = None, order: str = "C", **more: Any) -> Traced:
    if order != "C" or more.get("copy"):
        raise refusal("reshape with another order= or with copy= cannot be traced")
    shape = more.get("newshape", shape)
    sizes = list(shape) if isinstance(shape, list | tuple) else [shape]
    return t.add("Reshape", t.lift(x), _sizes(t, sizes), allowzero=int(-1 not in [s for s in sizes if type(s) is int]))


implements(np.ravel, method="ravel")(lambda t, x, order="C": reshape(t, x, -1, order))


@implements(np.transpose, np.permute_dims)
def _transpose(t: Trace, x: Any, axes: Any = None) -> Traced:
    x = t.lift(x)
    return t.add("Transpose", x, perm=list(range(x.ndim))[::-1] if axes is None else axes_of(x, tuple(axes)))


@implements(np.swapaxes, method="swapaxes")
def _swapaxes(t: Trace, x: Any, a: int, b: int) -> Any:
    order = list(range(t.lift(x).ndim))
    order[a], order[b] = order[b], order[a]
    return _transpose(t, x, order)


@implements(np.moveaxis)
def _moveaxis(t: Trace, x: Any, source: Any, destination: Any) -> Any:
    x = t.lift(x)
    places = dict(zip(axes_of(x, destination), axes_of(x, source), strict=True))
    rest = iter(k for k in range(x.ndim) if k not in places.values())
    return _transpose(t, x, [places[k] if k in places else next(rest) for k in range(x.ndim)])


@implements(np.expand_dims)
def expand_dims(t: Trace, x: Any, axis: Any) -> Traced:
    axes = [axis] if isinstance(axis, int) else list(axis)
    return t.add("Unsqueeze", t.lift(x), t.constant(np.array(axes, np.int64)))


@implements(np.squeeze, method="squeeze")
def _squeeze(t: Trace, x: Any, axis: Any = None) -> Traced:
    x = t.lift(x)
    axes = [k for k, d in enumerate(x.dims) if d == 1] if axis is None else axes_of(x, axis)
    return t.add("Squeeze", x, t.constant(np.array(axes, np.int64))) if axes else x


@implements(np.broadcast_to)
def broadcast_to(t: Trace, x: Any, shape: Any, subok: bool = False) -> Traced:
    return t.add("Expand", t.lift(x), _sizes(t, shape if isinstance(shape, list | tuple) else [shape]))


def in_common(t: Trace, arrays: Sequence[Any], dtype: Any = None) -> list[Traced]:
    """Arrays in the type that NumPy joins them in."""
    kinds = [x.dtype if isinstance(x, Traced) else np.asarray(x).dtype for x in arrays]
    wanted = np.dtype(dtype) if dtype is not None else np.result_type(*kinds)
    return [t.lift(x, wanted) for x in arrays]


@implements(np.concatenate)
def concatenate(t: Trace, arrays: Any, axis: Any = 0, out: None = None, dtype: Any = None, casting: str = "") -> Traced:
    no_out(out)
    parts = in_common(t, list(arrays), dtype)
    if axis is None:
        parts, axis = [reshape(t, x, -1) for x in parts], 0
    return t.add("Concat", *parts, axis=axes_of(parts[0], axis)[0])


@implements(np.stack)
def _stack(t: Trace, arrays: Any, axis: int = 0, out: None = None, dtype: Any = None, casting: str = "") -> Any:
    parts = [expand_dims(t, x, axis) for x in in_common(t, list(arrays), dtype)]
    return concatenate(t, parts, axis, out)


def _at_least(rank: int, t: Trace, x: Any) -> Any:
    x = t.lift(x)
    return expand_dims(t, x, tuple(range(rank - x.ndim))) if x.ndim < rank else x


implements(np.vstack)(lambda t, xs, **k: concatenate(t, [_at_least(2, t, x) for x in xs], 0, **k))
implements(np.atleast_1d)(partial(_at_least, 1))
implements(np.atleast_2d)(partial(_at_least, 2))


@implements(np.hstack)
def _hstack(t: Trace, arrays: Any, **more: Any) -> Any:
    parts = [_at_least(1, t, x) for x in arrays]
    return concatenate(t, parts, 0 if parts[0].ndim == 1 else 1, **more)


@implements(np.split)
def _split(t: Trace, x: Any, sections: Any, axis: int = 0) -> list[Traced]:
    x = t.lift(x)
    place = axes_of(x, axis)[0]
    size = x.dims[place]
    if size is None:
        raise refusal("numpy.split along a dimension that is known only at run time")
    if isinstance(sections, int):
        if size % sections:
            raise refusal(f"numpy.split of {size} elements into {sections} equal parts")
        sections = range(size // sections, size, size // sections)
    ends = [0, *(min(max(int(s), 0), size) for s in sections), size]
    counts = t.constant(np.diff(ends).clip(0).astype(np.int64))
    return t.several("Split", len(ends) - 1, x, counts, axis=place)


@implements(np.flip)
def _flip(t: Trace, x: Any, axis: Any = None) -> Traced:
    x = t.lift(x)
    axes = axes_of(x, axis)
    return sliced(t, x, {a: slice(None, None, -1) for a in axes})


@implements(np.roll)
def _roll(t: Trace, x: Any, shift: int, axis: int | None = None) -> Any:
    x = t.lift(x)
    if axis is None:
        return reshape(t, _roll(t, reshape(t, x, -1), shift, 0), x.shape)
    size = x.dims[axis]
    if size is None:
        raise refusal("numpy.roll along a dimension that is known only at run time")
    cut = -shift % size if size else 0
    return concatenate(t, [sliced(t, x, {axis % x.ndim: s}) for s in (slice(cut, None), slice(0, cut))], axis)


@implements(np.tile)
def _tile(t: Trace, x: Any, reps: Any) -> Traced:
    counts = list(reps) if isinstance(reps, list | tuple) else [reps]
    x = _at_least(len(counts), t, x)
    return t.add("Tile", x, _sizes(t, [1] * (x.ndim - len(counts)) + counts))


@implements(np.repeat, method="repeat")
def _repeat(t: Trace, x: Any, repeats: int, axis: int | None = None) -> Any:
    x = t.lift(x)
    if axis is None:
        x, axis = reshape(t, x, -1), 0
    axis %= x.ndim
    wide = expand_dims(t, x, axis + 1)
    shape = [*x.shape[: axis + 1], repeats, *x.shape[axis + 1 :]]
    sizes = [s * repeats if k == axis else s for k, s in enumerate(x.shape)]
    return reshape(t, broadcast_to(t, wide, shape), sizes)


@implements(np.pad)
def _pad(t: Trace, x: Any, pad_width: Any, mode: str = "constant", constant_values: Any = 0) -> Traced:
    x = t.lift(x)
    if mode not in ("constant", "edge", "reflect", "wrap"):
        raise refusal(f"numpy.pad with mode {mode!r} cannot be traced")
    widths = np.broadcast_to(np.asarray(pad_width), (x.ndim, 2))
    pads = t.constant(widths.T.reshape(-1).astype(np.int64))
    return t.add("Pad", x, pads, *([t.lift(constant_values, x.dtype)] if mode == "constant" else []), mode=mode)


for _name, _upper in (("tril", 0), ("triu", 1)):

    def _triangle(t: Trace, x: Any, k: int = 0, upper: int = _upper) -> Traced:
        return t.add("Trilu", t.lift(x), t.constant(np.int64(k)), upper=upper)

    implements(getattr(np, _name))(_triangle)


def _fill_like(value: Any, t: Trace, x: Any, dtype: Any = None, **more: Any) -> Traced:
    x = t.lift(x)
    if more.get("shape") is not None:
        raise refusal("a function ending in _like with shape= cannot be traced")
    return Traced(t, broadcast_to(t, t.constant(value, np.dtype(dtype or x.dtype)), x.shape).name, own=True)


implements(np.zeros_like, np.empty_like)(partial(_fill_like, 0))
implements(np.ones_like)(partial(_fill_like, 1))
implements(np.full_like)(
    lambda t, x, value, dtype=None, **more: broadcast_to(t, t.lift(value, np.dtype(dtype or x.dtype)), x.shape)
)
implements(np.shape)(lambda t, x: x.shape)
implements(np.ndim)(lambda t, x: x.ndim)
implements(np.size)(lambda t, x, axis=None: x.size if axis is None else x.shape[axis])
implements(np.copy)(lambda t, x, **_: x.copy())
implements(np.result_type)(lambda t, *xs: np.result_type(*(x.dtype if isinstance(x, Traced) else x for x in xs)))


# ---- elements ----------------------------------------------------------------------------------------------------


@implements(np.take, method="take")
def _take(t: Trace, x: Any, indices: Any, axis: int | None = None, out: None = None, mode: str = "raise") -> Traced:
    no_out(out)
    x = t.lift(x)
    if axis is None:
        x, axis = reshape(t, x, -1), 0
    found = t.lift(indices)
    if found.dtype.kind not in "iu":
        raise refusal(f"indices of {found.dtype}")
    return t.add("Gather", x, found.to(np.int64), axis=axis)


@implements(np.take_along_axis)
def _take_along_axis(t: Trace, x: Any, indices: Any, axis: int = -1) -> Traced:
    return t.add("GatherElements", t.lift(x), t.lift(indices).to(np.int64), axis=axis)


def sliced(t: Trace, x: Traced, slices: dict[int, slice]) -> Traced:
    """Slices along axes."""
    if not slices:
        return x
    far = np.iinfo(np.int64)
    starts, ends, steps = [], [], []
    for s in slices.values():
        step = 1 if s.step is None else operator.index(s.step)
        starts.append(s.start if s.start is not None else 0 if step > 0 else far.max)
        ends.append(s.stop if s.stop is not None else far.max if step > 0 else far.min)
        steps.append(step)
    axes = t.constant(np.array([*slices], np.int64))
    return t.add("Slice", x, _sizes(t, starts), _sizes(t, ends), axes, _sizes(t, steps))


@implements("getitem")
def _getitem(t: Trace, x: Traced, key: Any) -> Any:
    """Indexing with numbers, slices, None, ... and one array of integers."""
    keys = list(key) if isinstance(key, tuple) else [key]
    plain = [k for k in keys if k is not None and k is not Ellipsis]
    if any(isinstance(k, bool | np.bool_) or _is_mask(k) for k in plain):
        raise refusal("indexing with a mask: how many there are is known only at run time", "use numpy.where")
    if sum(k is Ellipsis for k in keys) > 1 or len(plain) > x.ndim:
        raise refusal(f"{len(plain)} indices of an array of {x.ndim} dimensions")
    if Ellipsis not in [k if k is Ellipsis else 0 for k in keys]:
        keys.append(Ellipsis)
    place = next(n for n, k in enumerate(keys) if k is Ellipsis)
    keys[place : place + 1] = [slice(None)] * (x.ndim - len(plain))
    return _pick_elements(t, x, keys)


def _pick_elements(t: Trace, x: Traced, keys: Sequence[Any]) -> Traced:
    slices: dict[int, slice] = {}
    dropped: list[int] = []
    arrays: list[tuple[int, Any]] = []
    added: list[int] = []
    axis = out = 0
    for k in keys:
        if k is None:
            added.append(out)
            out += 1
            continue
        if isinstance(k, slice):
            if not (k.start is k.stop is k.step is None):  # bounds may be traced sizes, which compare by elements
                slices[axis] = k
            out += 1
        elif isinstance(k, Traced | np.ndarray | list):
            arrays.append((axis, k))
            out += np.ndim(k) if not isinstance(k, Traced) else k.ndim
        else:
            number = operator.index(k)
            slices[axis] = slice(number, number + 1 or None)
            _within(x, axis, number)
            dropped.append(axis)
        axis += 1
    if len(arrays) > 1 or (arrays and added):
        raise refusal("indexing with several arrays, or with an array and None, cannot be traced")
    made = sliced(t, x, slices)
    for place, indices in arrays:
        made = _take(t, made, indices, place)
        dropped = [d if d < place else d + t.lift(indices).ndim - 1 for d in dropped]
    made = _squeeze(t, made, tuple(dropped)) if dropped else made
    return expand_dims(t, made, tuple(added)) if added else made


def _within(x: Traced, axis: int, number: int) -> None:
    size = x.dims[axis]
    if size is not None and not -size <= number < size:
        raise refusal(f"index {number} is out of range for {size} elements")


def _is_mask(k: Any) -> bool:
    return isinstance(k, Traced | np.ndarray) and k.dtype == np.bool_
