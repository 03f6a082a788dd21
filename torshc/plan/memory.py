"""The arena: places for intermediate values, so that those that never live at once share memory."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from ..expr import Expr, as_int, ceil_div, const

ALIGN = 256  # what devices want of addresses, WebGPU the most


@dataclass(frozen=True)
class Item:
    """Something that needs memory.

    Attributes:
        key: what it is.
        nbytes: its size.
        first, last: the launches that write it first and read it last.
    """

    key: Hashable
    nbytes: Expr
    first: int
    last: int


def _align(nbytes: Expr) -> Expr:
    return ceil_div(nbytes, ALIGN) * ALIGN


def place(items: Sequence[Item]) -> tuple[dict[Hashable, Expr], Expr]:
    """Byte offsets, and the size of the arena.

    Items of known size are placed largest first at the lowest offset that is free while they live. Items of symbolic
    size follow: each takes over a slot of the same size whose owner is dead, or opens a new one.
    """
    known = [i for i in items if as_int(i.nbytes) is not None]
    offsets, total = _place_known(known)
    symbolic, size = _place_symbolic([i for i in items if as_int(i.nbytes) is None], const(total))
    return {**offsets, **symbolic}, size


def _place_known(items: Sequence[Item]) -> tuple[dict[Hashable, Expr], int]:
    placed: list[tuple[int, int, Item]] = []
    total = 0
    for item in sorted(items, key=lambda i: (-(as_int(i.nbytes) or 0), i.first)):
        size = -(-(as_int(item.nbytes) or 0) // ALIGN) * ALIGN
        at = 0
        for low, high, other in sorted((p for p in placed), key=lambda p: p[0]):
            if other.last < item.first or item.last < other.first:
                continue
            if at + size <= low:
                break
            at = max(at, high)
        placed.append((at, at + size, item))
        total = max(total, at + size)
    return {item.key: const(low) for low, _, item in placed}, total


def _place_symbolic(items: Sequence[Item], start: Expr) -> tuple[dict[Hashable, Expr], Expr]:
    slots: list[tuple[Expr, Expr, int]] = []  # offset, size, last launch of the owner
    offsets: dict[Hashable, Expr] = {}
    end = start
    for item in sorted(items, key=lambda i: i.first):
        size = _align(item.nbytes)
        for k, (offset, slot, last) in enumerate(slots):
            if slot is size and last < item.first:
                slots[k] = (offset, slot, item.last)
                offsets[item.key] = offset
                break
        else:
            slots.append((end, size, item.last))
            offsets[item.key] = end
            end = end + size
    return offsets, end
