"""Constant offsets as part of the arguments, so that kernels that differ in nothing else are one.

    b0[i0 + 96] = ...      becomes      b0[i0] = ..., where the argument begins 96 elements further on

The parts of a concatenation are such kernels, or those that read the parts of a split, or the steps of a recurrence.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from ..expr import Expr, as_int, load, rebuild, walk
from ..expr.index import poly_of
from ..graph import Value
from .base import Buffer, Kernel, Store, expressions_in, text_fields
from .heavy import Strided


def with_starts(kernel: Kernel, step: int) -> Kernel:
    """The kernel with the constant parts of its offsets as the starts of its buffers.

    Args:
        step: bytes; starts are multiples of it, as the kernel may rely on what is aligned.
    """
    reached = kernel.reached
    least = {k: min(map(_constant, offsets)) for k, offsets in _offsets(kernel).items() if k in reached}
    starts = {k: s for k, c in least.items() if (s := _start(kernel.buffers[k], c, step)) > 0}
    if not starts:
        return kernel
    known: dict[Expr, Expr] = {}  # those within indices of loads come before these
    for x in walk(*kernel.expressions()):
        if x.op == "load" and x.data in starts:
            known[x] = load(x.data, (rebuild(x.args[0], known.get) - starts[x.data],), x.dtype)
    changed = {name: _move_to_starts(getattr(kernel, name), starts, known) for name in text_fields(kernel)}
    buffers = tuple(dataclasses.replace(b, start=starts.get(k, 0)) for k, b in enumerate(kernel.buffers))
    return dataclasses.replace(kernel, buffers=buffers, **changed)


def _offsets(kernel: Kernel) -> dict[int, list[Expr]]:
    """At what offsets loads, stores and walks reach the buffers."""
    found: dict[int, list[Expr]] = {}
    for place in _places([getattr(kernel, name) for name in text_fields(kernel)]):
        found.setdefault(place.buffer, []).append(place.offset if isinstance(place, Store) else place.start)
    for x in walk(*kernel.expressions()):
        if x.op == "load" and isinstance(x.data, int):
            found.setdefault(x.data, []).append(x.args[0])
    return found


def _places(item: object) -> Iterator[Store | Strided]:
    if isinstance(item, Store | Strided):
        yield item
    elif isinstance(item, list | tuple):
        for x in item:
            yield from _places(x)


def _constant(offset: Expr) -> int:
    return poly_of(offset).get((), 0)


def _start(buffer: Buffer, least: int, step: int) -> int:
    """The start of a buffer, in elements: of a constant part of all offsets, as much as is a multiple of `step`."""
    size = as_int(buffer.operand.type.size) if isinstance(buffer.operand, Value) else None
    if size is not None and least >= size:
        return 0  # what is never reached
    return least * buffer.dtype.size // step * step // buffer.dtype.size


def _move_to_starts(item: Any, starts: Mapping[int, int], known: Mapping[Expr, Expr]) -> Any:
    """A statement or expression whose loads, stores and walks count from the starts."""
    if isinstance(item, Expr):
        return rebuild(item, known.get)
    if isinstance(item, Store):
        offset = rebuild(item.offset, known.get) - starts.get(item.buffer, 0)
        return Store(item.buffer, offset, rebuild(item.value, known.get))
    if isinstance(item, Strided):
        return dataclasses.replace(item, start=rebuild(item.start, known.get) - starts.get(item.buffer, 0))
    if isinstance(item, list | tuple):
        return type(item)(_move_to_starts(x, starts, known) for x in item)
    if dataclasses.is_dataclass(item) and not isinstance(item, type) and expressions_in(item):
        names = (f.name for f in dataclasses.fields(item))
        return dataclasses.replace(item, **{n: _move_to_starts(getattr(item, n), starts, known) for n in names})
    return item
