"""Pointwise work that transposes: what is read along another axis of memory than it is stored."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..expr import Expr, acc, as_int, rebuild, walk
from ..expr.affine import split_axis
from .base import Store
from .nest import MapKernel


@dataclass(frozen=True)
class Moved:
    """A load along whose memory another axis runs than along the stores.

    Attributes:
        name: the register that stands for it in the stores.
        load: the load.
    """

    name: str
    load: Expr

    @property
    def buffer(self) -> int:
        assert isinstance(self.load.data, int)
        return self.load.data


@dataclass(frozen=True)
class Crossing:
    """Two axes of a map kernel, one of the stores and one of some loads.

    Attributes:
        outer: the other axes.
        lane: the axis of the stores, the last.
        inner: the axis of what is read.
        reads: the loads that go along it.
        stores: the stores, with registers for the loads.
    """

    outer: tuple[Expr, ...]
    lane: Expr
    inner: Expr
    reads: tuple[Moved, ...]
    stores: tuple[Store, ...]


def crossings(kernel: MapKernel) -> Iterator[Crossing]:
    """The axes along which a kernel reads while it stores along the last one, with what it reads."""
    *others, lane = kernel.axes
    if _stride(kernel.stores[0].offset, lane) != 1:
        return
    loads = dict.fromkeys(x for s in kernel.stores for x in certain_loads(s.value))
    for inner in others:
        found = [x for x in loads if _stride(x.args[0], inner) == 1 and _strides(x.args[0], lane)]
        if found:
            known = {x: acc(f"t{k}", x.dtype) for k, x in enumerate(found)}
            yield Crossing(
                tuple(a for a in others if a is not inner),
                lane,
                inner,
                tuple(Moved(f"t{k}", x) for k, x in enumerate(found)),
                tuple(Store(s.buffer, s.offset, rebuild(s.value, known.get)) for s in kernel.stores),
            )


def _stride(offset: Expr, a: Expr) -> int | None:
    """Step of an offset along an axis, 0 where it does not move it; None where that is no number."""
    parts = split_axis(offset, a)
    return None if parts is None else as_int(parts[0])


def _strides(offset: Expr, a: Expr) -> bool:
    """Whether an offset moves along an axis by more than one element, as far as is known."""
    parts = split_axis(offset, a)
    return parts is not None and as_int(parts[0]) not in (0, 1)


def certain_loads(value: Expr) -> Iterator[Expr]:
    """Loads that are made whatever a condition says, at places that no load decides."""
    pending, seen = [value], set[Expr]()
    while pending:
        x = pending.pop()
        if x in seen:
            continue
        seen.add(x)
        if x.op == "load":
            if isinstance(x.data, int) and not any(y.op in ("load", "acc") for y in walk(*x.args)):
                yield x
            continue
        pending.extend(x.args[:1] if x.op == "select" else x.args)
