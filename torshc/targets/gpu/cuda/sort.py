"""Sorts on CUDA: by digits of 8 bits from the lowest on, each of which keeps the order of the one before it.

Elements become unsigned numbers of the same order. Rows of one tile are sorted in shared memory by one kernel. For
longer ones there are three kernels a digit: how many elements of each tile have it, how many of these stand in tiles
before each, and each tile in order, stored where that belongs. So the number of launches depends on the type alone, a
row's length may be known only at run time, and no block waits for another.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

from ....expr import (
    BF16,
    F16,
    U32,
    U64,
    DType,
    Expr,
    acc,
    as_int,
    axis,
    ceil_div,
    const,
    load,
    product,
    substitute,
    walk,
)
from ....graph import Value
from ....kernels.arguments import Arguments
from ....kernels.base import Kernel, Store, Temporary
from ....kernels.heavy import HeavyKernel, row_major
from ....kernels.lower import idle_when_empty
from ....kernels.topk import Ranking
from ....ops.tensor.sort import TopK
from ....plan.group import Group
from ..grid import WARP

THREADS = 256  # of a block that has a tile of a long row
ITEMS, WIDE_ITEMS = 16, 8  # elements of a tile a thread, for keys of 32 bits and of 64: as shared memory allows
MANY = 1024  # elements of a row of one tile from which on a block has twice as many threads
PARTS = 32  # parts of a row's tiles that are added side by side
DIGITS = 256

Keys = tuple[Temporary, Temporary]  # keys of elements in the order so far, and their places in the row


@dataclass(frozen=True)
class SortKernel(HeavyKernel):
    """What kernels of a sort have in common: a block has a tile of a row.

    Attributes:
        axes: parallel axes, outermost first: the rows.
        place: the axis along which is sorted.
        element: the element at `place`, or its key.
        order: what makes keys of elements (``t_order_f32``), nothing where `element` is one.
        largest: whether the largest come first.
        word: type of a key.
        shifts: where the digits begin that are looked at, in bits.
        items: elements of a tile a thread.
        threads: threads of a block.
        tiles: tiles of a row.
        whole: whether a row has one tile.
        counts: buffer of how many elements have a digit, [rows, tiles, 256]: in a tile, or by now in those before it.
    """

    kind: ClassVar[str] = "sort"

    axes: tuple[Expr, ...]
    place: Expr
    element: Expr
    order: str
    largest: bool
    word: str
    shifts: tuple[int, ...]
    items: int
    threads: int
    tiles: Expr
    whole: bool
    counts: int

    @property
    def tile(self) -> int:
        """Elements of a tile."""
        return self.items * self.threads


@dataclass(frozen=True)
class SortCount(SortKernel):
    """How many elements of a tile have which digit."""

    template: ClassVar[str] = "sort_count.j2"

    @property
    def shared(self) -> int:
        return 4 * DIGITS


@dataclass(frozen=True)
class SortPass(SortKernel):
    """Elements in the order of digits; stores take ``key`` and ``place``, or the element as ``x``.

    Attributes:
        rank: the axis of the results.
        at: the place of the element at `place` in the unsorted row.
        ordered: what makes elements of keys, after ``t_ordered_``.
        dtype: type of ``x``.
        exact: the element at `place`, where stores take ``x`` and a key does not say all of it.
        cut: whether only the first are stored.
        totals: buffer of how many elements of a row have a digit, [rows, 256].
    """

    template: ClassVar[str] = "sort_pass.j2"

    rank: Expr
    at: Expr
    ordered: str
    dtype: DType
    exact: Expr | None
    cut: bool
    totals: int

    @property
    def shared(self) -> int:
        word = 8 if self.word == "uint64_t" else 4
        return self.tile * (word + 4) + 2 * DIGITS * self.threads // WARP + 8 * DIGITS + 64


@dataclass(frozen=True)
class SortStarts(Kernel):
    """Sums of counts over the tiles before each, and over all."""

    kind: ClassVar[str] = "sort"
    template: ClassVar[str] = "sort_starts.j2"

    tiles: Expr
    threads: int

    @property
    def shared(self) -> int:
        return 4 * self.threads


def is_one_tile(size: int) -> bool:
    """Whether a row of so many elements of 32 bits is sorted in shared memory."""
    return size <= THREADS * ITEMS


class Sort:
    """The kernels of a sort.

    Args:
        group: the group of a TopK.
        ranking: its rows, elements and stores.
    """

    def __init__(self, group: Group, ranking: Ranking) -> None:
        node = group.anchor
        assert node is not None and isinstance(node.op, TopK)
        self.group, self.ranking, self.largest = group, ranking, bool(node.op.largest)
        dtype, stored = ranking.key.dtype, node.operands[0].dtype
        half = stored in (F16, BF16)
        self.order, self.dtype = stored.name if half else dtype.name, U64 if dtype.size == 8 else U32
        self.shifts = tuple(range(0, 16 if half else 8 * dtype.size, 8))
        self.size, self.rows = ranking.place.args[0], product([a.args[0] for a in ranking.axes])
        self.threads, self.items = THREADS, ITEMS if self.dtype is U32 else WIDE_ITEMS
        self.tiles = ceil_div(self.size, self.threads * self.items)
        known = as_int(self.size)
        if known is not None and as_int(self.tiles) == 1:
            self.threads = 2 * THREADS if known > MANY else THREADS
            self.items = -(-known // self.threads)
        self.counts = Temporary("counts", group.id, self.rows * self.tiles * (4 * DIGITS))
        self.totals = Temporary("totals", group.id, self.rows * (4 * DIGITS))

    def kernels(self) -> list[Kernel]:
        """Those of all digits."""
        if as_int(self.tiles) == 1:
            return [idle_when_empty(self._pass(None, self.shifts))]
        made: list[Kernel] = []
        source: Keys | None = None
        for number, shift in enumerate(self.shifts):
            to = None if shift == self.shifts[-1] else self._keys(number % 2)
            made += [self._count(source, shift), self._starts(), self._pass(source, (shift,), to)]
            source = to
        return [idle_when_empty(k) for k in made]

    def _keys(self, number: int) -> Keys:
        sizes, owner = self.rows * self.size, self.group.id
        return (
            Temporary(f"keys {number}", owner, sizes * self.dtype.size),
            Temporary(f"places {number}", owner, sizes * U32.size),
        )

    def _count(self, source: Keys | None, shift: int) -> Kernel:
        args = self._arguments()
        fields = self._tiles(args, source, (shift,))
        fields["counts"] = args.add(self.counts, acc("count", U32))
        return SortCount(**fields | self._cost(args))

    def _starts(self) -> Kernel:
        args = self._arguments()
        for sums in (self.counts, self.totals):
            args.add(sums, acc("count", U32))
        known = as_int(self.tiles)
        parts = PARTS if known is None else min(PARTS, known)
        cost = self._cost(args) | {"tasks": self.rows * (DIGITS // WARP)}
        return SortStarts(**cost, tiles=self.tiles, threads=parts * WARP)

    def _pass(self, source: Keys | None, shifts: tuple[int, ...], to: Keys | None = None) -> Kernel:
        args, ranking = self._arguments(), self.ranking
        fields = self._tiles(args, source, shifts)
        at, exact, dtype = ranking.place, None, ranking.key.dtype
        if source is not None:
            at = load(args.add(source[1], acc("place", U32), False), (self._offset(ranking.place),), U32)
        if to is not None:
            rank, place = axis("rank", self.size), self._offset(axis("rank", self.size))
            named = zip(to, (acc("key", self.dtype), acc("place", U32)), strict=True)
            stores = [Store(args.add(memory, what), place, what) for memory, what in named]
        else:
            rank, known = ranking.rank, {ranking.key: acc("x", dtype)}
            stores = [args.store(replace(s, value=substitute(s.value, known))) for s in ranking.stores]
            taken = any(e.op == "acc" for e in walk(*(s.value for s in stores)))
            exact = args.bring(ranking.key) if taken and dtype.is_float else None
        numbers = [0 if fields["whole"] else args.add(t, acc("count", U32), False) for t in (self.counts, self.totals)]
        fields |= {"stores": tuple(stores), "counts": numbers[0], "totals": numbers[1]}
        cut = rank.args[0] is not self.size
        more = {"rank": rank, "at": at, "ordered": self.order, "dtype": dtype, "exact": exact, "cut": cut}
        return SortPass(**fields | self._cost(args) | more)

    def _tiles(self, args: Arguments, source: Keys | None, shifts: tuple[int, ...]) -> dict[str, Any]:
        """What kernels of tiles are told, with what they read as their first arguments."""
        element, place = self.ranking.key, self.ranking.place
        if source is None:
            element = args.bring(element)
        else:
            element = load(args.add(source[0], acc("key", self.dtype), False), (self._offset(place),), self.dtype)
        return {
            "stores": (),
            "axes": self.ranking.axes or (axis("i0", 1),),
            "place": place,
            "element": element,
            "order": "" if source else self.order,
            "largest": self.largest,
            "word": f"uint{8 * self.dtype.size}_t",
            "shifts": shifts,
            "items": self.items,
            "threads": self.threads,
            "tiles": self.tiles,
            "whole": as_int(self.tiles) == 1,
        }

    def _offset(self, along: Expr) -> Expr:
        return row_major([*self.ranking.axes, along])

    def _arguments(self) -> Arguments:
        zero = const(0)
        return Arguments(Kernel(tuple(self.ranking.buffers.list), zero, zero, zero))

    def _cost(self, args: Arguments) -> dict[str, Any]:
        sizes = (b.operand.type.nbytes if isinstance(b.operand, Value) else b.operand.nbytes for b in args.list)
        return {
            "buffers": tuple(args.list),
            "tasks": self.rows * self.tiles,
            "flops": self.rows * self.size,
            "nbytes": sum(sizes, const(0)),
        }
