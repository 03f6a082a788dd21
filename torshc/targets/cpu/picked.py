"""Pointwise work that picks elements of rows: by tables of what is picked, with rows that recur kept."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import ClassVar

from ...expr import BOOL, DTYPES, DType, Expr, as_int, ceil_div, const, max_of, min_of, product, walk
from ...kernels.base import Kernel
from ...kernels.nest import MapKernel
from ...kernels.picked import Kept, Pick, Picked, picked

COLUMNS = 2048  # elements of a row that are made at a time, so that tables and rows stay in the first caches
PICKS = 32  # of an element; compilers take minutes for the 256 of cubic resizing in four dimensions
TASK = 32768  # elements of the result a task: enough that tables made for each do not count


@dataclass(frozen=True)
class PickKernel(MapKernel):
    """A map kernel by rows; see :class:`torshc.kernels.picked.Picked`.

    Attributes:
        lines: rows a task.
    """

    template: ClassVar[str] = "picks.c.j2"

    tables: tuple[Expr, ...]
    weights: tuple[Expr, ...]
    scales: tuple[Expr, ...]
    kept: tuple[Kept, ...]
    picks: tuple[Pick, ...]
    lines: Expr

    @property
    def columns(self) -> Expr:
        """Elements of a row that are made at a time, and room for whole vectors of them."""
        return min_of(ceil_div(self.axes[-1].args[0], 16) * 16, COLUMNS)

    @property
    def is_whole(self) -> bool:
        """Whether a row is surely made at once."""
        width = as_int(self.axes[-1].args[0])
        return width is not None and width <= COLUMNS

    @property
    def scratch(self) -> Expr:
        each = 20 * len(self.tables) + sum(w.dtype.size for w in self.weights)
        each += sum(len(k.wanted) * self.lane_type(k).size for k in self.kept)
        return self.columns * each

    @property
    def picks_words(self) -> bool:
        """Whether all that is picked takes 4 bytes, of which half a vector may be loaded."""
        picks = [*self.picks, *(g for k in self.kept for g in k.picks)]
        return all(self.buffers[int(g.row.data)].dtype.size == 4 for g in picks)  # type: ignore[call-overload]

    @property
    def only_picks(self) -> bool:
        """Whether results are what is picked and nothing else: then loads of the tables count."""
        return all(s.value.op == "acc" for s in self.stores) and not self.kept

    def lane_type(self, kept: Kept) -> DType:
        """The type of the lanes of a row that is kept."""
        return DTYPES["i32" if kept.value.dtype is BOOL else kept.value.dtype.compute]

    def registers(self, values: Iterable[Expr]) -> dict[str, str]:
        """Names of the registers that values are made of."""
        return {str(x.data): str(x.data) for x in walk(*values) if x.op == "acc"}

    def weights_of(self, values: Iterable[Expr]) -> list[tuple[int, Expr]]:
        """The weights among these, with their numbers."""
        names = self.registers(values)
        return [(n, w) for n, w in enumerate(self.weights) if f"w{n}" in names]


def by_rows(kernel: Kernel, lanes: int) -> Kernel:
    """A map kernel by rows where it picks elements of rows; any other as it is."""
    found = picked(kernel, lanes) if type(kernel) is MapKernel else None
    if found is None or len(found.picks) > PICKS:
        return kernel
    *outer, lane = found.axes
    parts = {f.name: getattr(found, f.name) for f in fields(Picked)}
    width = max_of(min_of(lane.args[0], COLUMNS), 1)
    lines = max_of(const(TASK) // width, 1)
    tasks = ceil_div(product([a.args[0] for a in outer]), lines) * ceil_div(lane.args[0], COLUMNS)
    return PickKernel.of(kernel, **parts, lines=lines, tasks=tasks, chunk=COLUMNS)
