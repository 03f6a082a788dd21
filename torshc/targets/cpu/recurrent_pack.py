"""Weights of recurrent networks in the order in which the kernel reads them.

The gates of a phase are interleaved: a panel holds some hidden units of the first gate, then the same units of the
second..., so that all that a unit needs is in one register tile. Units beyond the last are zero.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...expr import F32, Expr, as_int, axis, call, ceil_div, const, load, product, select
from ...graph import Value
from ...kernels.base import Buffer, Kernel, Packed, Store, Temporary
from ...kernels.heavy import Strided, add_buffer, plain
from ...kernels.nest import Buffers, MapKernel
from ...plan.storage import Storage
from .pack import PackKernel, panel_size, panels
from .tiles import Tile

Array = np.ndarray[Any, Any]
CHUNK = 16384


@dataclass(frozen=True)
class Columns:
    """The gates of a phase as columns: panels of `units` hidden units for each gate.

    Attributes:
        gates: ONNX's numbers of the gates, one after the other.
        units: hidden units of a panel, a multiple of the lanes.
        hidden: hidden units in all.
        start: columns of the phases before.
    """

    gates: tuple[int, ...]
    units: int
    hidden: int
    start: int

    @property
    def panels(self) -> int:
        return -(-self.hidden // self.units)

    @property
    def width(self) -> int:
        """Columns of a panel."""
        return len(self.gates) * self.units

    @property
    def count(self) -> int:
        return self.panels * self.width

    def rows(self) -> Array:
        """For each column the row of ONNX's weights, gate * hidden + unit, or -1."""
        panel, gate, unit = np.ogrid[: self.panels, : len(self.gates), : self.units]
        unit = panel * self.units + unit
        return np.where(unit < self.hidden, (self.gates[0] + gate) * self.hidden + unit, -1).reshape(-1)


@dataclass(frozen=True)
class Column:
    """A column over loop axes.

    Attributes:
        panel, gate, unit: its indices.
        place: its number.
        row: the row of ONNX's weights, as long as `hidden` is below the number of hidden units.
        hidden: the hidden unit.
    """

    panel: Expr
    gate: Expr
    unit: Expr
    place: Expr
    row: Expr
    hidden: Expr


def take(array: Array, rows: Array) -> Array:
    """[D, R, ...] as [D, C, ...]: the named rows, zeros where a row is -1."""
    known = (rows >= 0).reshape(1, -1, *[1] * (array.ndim - 2))
    out: Array = np.where(known, array[:, np.maximum(rows, 0)], array.dtype.type(0))
    return out


def _index(name: str, extent: Expr | int) -> Expr:
    return const(0) if as_int(extent) == 1 else axis(name, extent)


def _column(c: Columns) -> Column:
    panel, gate, unit = _index("p", c.panels), _index("g", len(c.gates)), _index("u", c.units)
    hidden = panel * c.units + unit
    place = (panel * len(c.gates) + gate) * c.units + unit
    return Column(panel, gate, unit, place, (gate + c.gates[0]) * c.hidden + hidden, hidden)


def _guard_unit(unit: Expr, hidden: int, value: Expr) -> Expr:
    return select(unit < const(hidden), value, const(0.0))


class Packer:
    """Puts weights in order: by NumPy when they are constants, else by kernels that run first.

    Args:
        directions: D.
        owner: number of the group, which temporaries belong to.
    """

    def __init__(self, directions: int, owner: int, storage: Mapping[Value, Storage]) -> None:
        self.directions, self.owner, self.storage = directions, owner, storage
        self.direction = _index("d", directions)
        self.kernels: list[Kernel] = []

    def input_weights(self, w: Value, phases: Sequence[Columns], tile: Tile) -> Packed | Temporary:
        """w[D, G * H, I] as the right operand [I, D * columns] of a product, in panels."""
        rows = np.concatenate([c.rows() for c in phases])
        size, count = w.shape[2], self.directions * len(rows)
        nbytes = panel_size(tile, size, const(count)) * 4

        def make(array: Array) -> Array:
            return panels(take(array, rows).reshape(count, -1).T, tile.columns)

        if w.const is not None:
            return _pack_weights(w, f"input weights {phases} {tile.columns}", make, nbytes)
        ordered = Temporary("input weights", self.owner, size * (4 * count))
        k = _index("k", size)
        for c in phases:
            at = _column(c)
            value = _guard_unit(at.hidden, c.hidden, load(w, (self.direction, at.row, k), F32))
            place = (self.direction * len(rows) + c.start + at.place) * size + k
            self._write((self.direction, at.panel, at.gate, at.unit, k), place, value, ordered)
        out = Temporary("panels of input weights", self.owner, nbytes)
        self.kernels.append(_transpose(ordered, out, size, count, tile))
        return out

    def state_weights(self, r: Value, c: Columns) -> Packed | Temporary:
        """r[D, G * H, H] as [D, panels, H, width]."""

        def make(array: Array) -> Array:
            wide = take(array, c.rows()).reshape(self.directions, c.panels, c.width, c.hidden)
            return np.ascontiguousarray(wide.transpose(0, 1, 3, 2))

        nbytes = const(4 * self.directions * c.count * c.hidden)
        if r.const is not None:
            return _pack_weights(r, f"state weights {c}", make, nbytes)
        out, at, k = Temporary(f"state weights {c.start}", self.owner, nbytes), _column(c), _index("k", c.hidden)
        value = _guard_unit(at.hidden, c.hidden, load(r, (self.direction, at.row, k), F32))
        panel = (self.direction * c.panels + at.panel) * c.hidden + k
        place = panel * c.width + at.gate * c.units + at.unit
        self._write((self.direction, at.panel, k, at.gate, at.unit), place, value, out)
        return out

    def biases(self, b: Value, phases: Sequence[Columns], alone: int | None) -> Packed | Temporary:
        """b[D, 2 * G * H] as [D * columns]: the sum of the two, of gate `alone` only the input's."""
        rows = np.concatenate([c.rows() for c in phases])
        hidden, half = phases[0].hidden, sum(len(c.gates) for c in phases) * phases[0].hidden

        def make(array: Array) -> Array:
            state = np.array(array[:, half:])
            if alone is not None:
                state[:, alone * hidden : (alone + 1) * hidden] = 0
            return take(array[:, :half] + state, rows).reshape(-1)

        nbytes = const(4 * self.directions * len(rows))
        if b.const is not None:
            return _pack_weights(b, f"biases {phases} {alone}", make, nbytes)
        out = Temporary("biases", self.owner, nbytes)
        for c in phases:
            at = _column(c)
            own, state = (load(b, (self.direction, at.row + k), F32) for k in (0, half))
            if alone is not None:
                state = select(call("eq", at.gate + c.gates[0], alone), const(0.0), state)
            value = _guard_unit(at.hidden, hidden, own + state)
            place = self.direction * len(rows) + c.start + at.place
            self._write((self.direction, at.panel, at.gate, at.unit), place, value, out)
        return out

    def units(self, source: Value, start: int, parts: int, hidden: int, wide: int) -> Packed | Temporary:
        """Columns [start, start + parts * H) of source[D, ...] as [D, parts, wide]."""

        def make(array: Array) -> Array:
            out = np.zeros((self.directions, parts, wide), array.dtype)
            out[..., :hidden] = array[:, start : start + parts * hidden].reshape(self.directions, parts, hidden)
            return out

        nbytes = const(4 * self.directions * parts * wide)
        if source.const is not None:
            return _pack_weights(source, f"units {start} {parts} {hidden} {wide}", make, nbytes)
        out, part, unit = Temporary(f"units {source.id}", self.owner, nbytes), _index("g", parts), _index("u", wide)
        value = _guard_unit(unit, hidden, load(source, (self.direction, part * hidden + unit + start), F32))
        self._write((self.direction, part, unit), (self.direction * parts + part) * wide + unit, value, out)
        return out

    def _write(self, index: Sequence[Expr], place: Expr, value: Expr, to: Temporary) -> None:
        """A kernel that stores `value` at `place` over the axes among the indices."""
        axes = [i for i in index if i.op == "axis"] or [axis("u", 1)]
        buffers = Buffers(self.storage)
        value = buffers.resolve(value)
        target = add_buffer(buffers, to, written=True)
        outer, inner = product([a.args[0] for a in axes[:-1]]), axes[-1].args[0]
        rows = max(1, CHUNK // max(as_int(inner) or CHUNK, 1))
        kernel = MapKernel(
            buffers=tuple(buffers.list),
            tasks=ceil_div(outer, rows) * (ceil_div(inner, CHUNK)),
            flops=const(0),
            nbytes=outer * inner * 8,
            axes=tuple(axes),
            stores=(Store(target, place, value),),
            rows=rows,
            chunk=CHUNK,
        )
        self.kernels.append(kernel)


def _pack_weights(source: Value, how: str, make: Callable[[Array], Array], nbytes: Expr) -> Packed:
    size = as_int(nbytes)
    assert size is not None
    return Packed(source, how, lambda array: [make(array)], size, source.dtype)


def _transpose(source: Temporary, to: Temporary, size: Expr, count: int, tile: Tile) -> PackKernel:
    """Rows [count, size] in panels of columns."""
    return PackKernel(
        buffers=(Buffer(source, F32, written=False), Buffer(to, F32, written=True)),
        tasks=tile.panels(const(count)),
        flops=const(0),
        nbytes=size * (8 * count),
        batch=(),
        k=size,
        n=const(count),
        source=Strided(0, const(0), (const(1), size)),
        target=plain(1, const(0)),
        tile=tile,
    )
