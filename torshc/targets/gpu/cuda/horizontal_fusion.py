"""Maps that one launch computes: each has blocks of its own."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import ClassVar

from ....expr import Expr, as_int, const, load, rebuild
from ....kernels.base import Buffer, Kernel, Store, buffers_read, expressions_in
from ..grid import THREADS, GridMap


@dataclass(frozen=True)
class Part:
    """A map among others.

    Attributes:
        axes: parallel axes.
        stores: what is stored at each of their points.
        packet: neighbours along the last axis that a thread computes together.
        end: number of the block that is the first behind its own.
    """

    axes: tuple[Expr, ...]
    stores: tuple[Store, ...]
    packet: int
    end: int


@dataclass(frozen=True)
class BesideKernel(Kernel):
    """Several maps, one after the other in the order of blocks.

    Attributes:
        parts: the maps.
        threads: threads of a block.
    """

    kind: ClassVar[str] = "nest"
    template: ClassVar[str] = "horizontal.j2"

    parts: tuple[Part, ...]
    threads: int = THREADS

    @property
    def reached(self) -> range:
        return range(len(self.buffers))

    @property
    def finishes(self) -> Sequence[tuple[Sequence[Store], Collection[int]]]:
        read = [buffers_read(*expressions_in(p.stores)) for p in self.parts]
        return [(p.stores, frozenset().union(*read[:k], *read[k + 1 :])) for k, p in enumerate(self.parts)]


def is_still(kernel: Kernel) -> bool:
    """Whether a kernel is a map of known size, with blocks as others have."""
    return type(kernel) is GridMap and as_int(kernel.tasks) is not None and kernel.threads == THREADS


def fuse_horizontally(kernels: Sequence[Kernel]) -> BesideKernel:
    """One kernel for several maps that do not need each other."""
    numbers: dict[Buffer, int] = {}
    parts: list[Part] = []
    for kernel in kernels:
        assert isinstance(kernel, GridMap)
        place = [numbers.setdefault(b, len(numbers)) for b in kernel.buffers]

        def moved(e: Expr, place: Sequence[int] = place) -> Expr:
            def leaf(x: Expr) -> Expr | None:
                if x.op != "load" or not isinstance(x.data, int):
                    return None
                return load(place[x.data], tuple(moved(a, place) for a in x.args), x.dtype)

            return rebuild(e, leaf)

        stores = tuple(Store(place[s.buffer], moved(s.offset), moved(s.value)) for s in kernel.stores)
        end = (parts[-1].end if parts else 0) + (as_int(kernel.tasks) or 0)
        parts.append(Part(kernel.axes, stores, kernel.packet, end))
    return BesideKernel(
        buffers=tuple(numbers),
        tasks=const(parts[-1].end),
        flops=sum((k.flops for k in kernels), const(0)),
        nbytes=sum((k.nbytes for k in kernels), const(0)),
        parts=tuple(parts),
    )
