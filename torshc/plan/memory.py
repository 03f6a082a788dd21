"""The arena: places for intermediate values, so that those that never live at once share memory."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import reduce

from ..expr import Expr, as_int, ceil_div, const, dim, dims_of, max_of, substitute

ALIGN = 256  # what devices want of addresses, WebGPU the most
TYPICAL = (2, 64)  # sizes that only a run knows, to compare what grows with them


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
    size follow, those first that are typically largest: each goes where others are that do not live at the same time,
    in a slot of the size of the largest, or opens a new one.
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


@dataclass
class _Slot:
    """Memory of items that never live at once.

    Attributes:
        typical: bytes of the largest at each of the typical sizes.
        items: what lies there.
    """

    typical: tuple[int, ...]
    items: list[Item]

    def is_free(self, item: Item) -> bool:
        return all(i.last < item.first or item.last < i.first for i in self.items)

    def extended(self, typical: Sequence[int]) -> tuple[int, ...]:
        return tuple(map(max, self.typical, typical))


def _place_symbolic(items: Sequence[Item], start: Expr) -> tuple[dict[Hashable, Expr], Expr]:
    slots: list[_Slot] = []
    typical = {i.key: tuple(_bytes_at(i.nbytes, n) for n in TYPICAL) for i in items}
    for item in sorted(items, key=lambda i: (-sum(typical[i.key]), i.first)):
        wanted = typical[item.key]
        free = [s for s in slots if s.is_free(item)]
        if not free:
            slots.append(_Slot(wanted, [item]))
            continue
        slot = min(free, key=lambda s: (sum(s.extended(wanted)) - sum(s.typical), sum(s.typical)))
        slot.typical = slot.extended(wanted)
        slot.items.append(item)
    offsets: dict[Hashable, Expr] = {}
    end = start
    for slot in slots:
        offsets |= {i.key: end for i in slot.items}
        end = end + _align(reduce(max_of, dict.fromkeys(i.nbytes for i in slot.items)))
    return offsets, end


def _bytes_at(nbytes: Expr, size: int) -> int:
    """Bytes where all that only a run knows is one size, as far as that tells them."""
    return as_int(substitute(nbytes, {dim(d): const(size) for d in dims_of(nbytes)})) or 0
