"""Depthwise convolutions of many pixels, and the gradients of their data, on devices of blocks of threads.

Threads side by side have channels side by side, a packet each, and take turns along the pixels: the weights of all taps
stay in registers, and what depends on channels alone is read once. Weights that do not have channels side by side come
through shared memory.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import product as cartesian
from typing import ClassVar

from ...expr import Expr, acc, as_int, axis, ceil_div, const, product, substitute, walk
from ...expr.affine import contains, split_axis
from ...kernels.base import Store, buffers_read, expressions_in
from ...kernels.heavy import join_bodies
from ...kernels.machine import Device
from ...kernels.nest import RowKernel, Stage
from .grid import PACKET, THREADS, UNIT_THREADS, WARP

MOST_TAPS = 9  # whose weights a thread has registers for, of a packet of channels
LANES = 64  # threads side by side along the channels, at most
STEPS = 8  # pixels of a thread, at the least, for the weights that it reads
RUN = 4  # neighbouring pixels that a thread computes together
BLOCKS = 8  # a multiprocessor, so that all are busy to the end


@dataclass(frozen=True)
class GridChannels(RowKernel):
    """A depthwise convolution: `axes` is that of the channels, `reduce` are those of the pixels.

    Attributes:
        weight: an element of the weights, which comes through shared memory; None where `fixed` has them.
        taps: axes of the taps.
        fixed: what depends on the channel alone, by the names of the registers that hold it.
        threads: threads of a block.
        lanes: threads side by side along the channels.
        turns: threads that take turns along the pixels.
        packet: channels of a thread.
        piece: axis of the pieces of the pixels, each with blocks of its own.
        length: pixels of a piece.
    """

    kind: ClassVar[str] = "contraction"
    template: ClassVar[str] = "channels.j2"

    weight: Expr | None
    taps: tuple[Expr, ...]
    fixed: tuple[tuple[str, Expr], ...]
    threads: int
    lanes: int
    turns: int
    packet: int
    piece: Expr
    length: int

    @property
    def scratch(self) -> Expr:
        return const(0)

    @property
    def count(self) -> int:
        """Taps."""
        return as_int(product([r.args[0] for r in self.taps])) or 0

    @property
    def pitch(self) -> int:
        """Floats from a tap's weights to the next one's, so that those of a channel lie in different banks."""
        return self.lanes * self.packet + 4

    @property
    def shared(self) -> int:
        return 0 if self.weight is None else 4 * self.count * self.pitch

    @property
    def blocks(self) -> Expr:
        """Blocks side by side along the channels."""
        return ceil_div(self.packets, self.lanes)

    @property
    def packets(self) -> Expr:
        return self.axes[0].args[0] // self.packet

    @property
    def finishes(self) -> Sequence[tuple[Sequence[Store], Collection[int]]]:
        return [(self.element, buffers_read(*expressions_in((self.stages, self.weight, self.fixed))))]


def by_channels(kernel: RowKernel, device: Device) -> GridChannels | None:
    """A depthwise convolution that is a sum of a few taps for each result; None for any other, and for few pixels."""
    *outer, channel = kernel.axes
    taps, channels = as_int(product([r.args[0] for r in kernel.reduce])), as_int(channel.args[0])
    pixels = as_int(product([a.args[0] for a in outer]))
    if kernel.across or not outer or not taps or taps > MOST_TAPS or not channels or not pixels or channels % PACKET:
        return None
    packets = channels // PACKET
    if pixels * packets < device.units * UNIT_THREADS:
        return None
    (accumulator,) = kernel.stages[0].accumulators
    weights = _of_channels(accumulator.term, outer, channel)
    if len(weights) != 1:
        return None
    held = {w: acc(f"w{k}", w.dtype) for k, w in enumerate(_of_channels([s.value for s in kernel.row], outer, channel))}
    places = list(cartesian(*(range(as_int(r.args[0]) or 0) for r in kernel.reduce)))
    terms, brought = [], list[tuple[str, Expr]]()
    for k, place in enumerate(places):
        at = dict(zip(kernel.reduce, map(const, place), strict=True))
        terms.append(substitute(substitute(accumulator.term, {weights[0]: acc(f"tap{k}", weights[0].dtype)}), at))
        brought.append((f"tap{k}", substitute(weights[0], at)))
    if not all(_lies_along(t, channel) for t in terms):
        return None
    stores = [Store(s.buffer, s.offset, substitute(s.value, held)) for s in kernel.row]
    outer, sums, stores = _in_runs(outer, reduce(operator.add, terms), stores)
    pixel, stores, sums = join_bodies(outer, stores, *sums)
    points = pixels // len(sums)
    lanes = -(-packets // -(-packets // LANES))
    turns = THREADS // lanes
    steps = max(1, STEPS // len(sums), points * packets // (device.units * BLOCKS * THREADS))
    count = -(-points // (steps * turns))
    aside = not _lies_along(weights[0], channel)
    made = GridChannels.of(
        kernel,
        axes=(channel,),
        reduce=tuple(pixel),
        stages=(
            Stage(
                tuple(
                    replace(accumulator, name=f"{k}", term=t, result=acc(f"a{k}", t.dtype)) for k, t in enumerate(sums)
                )
            ),
        ),
        element=tuple(stores),
        row=(),
        weight=weights[0] if aside else None,
        taps=kernel.reduce,
        fixed=(*(() if aside else brought), *((str(name.data), w) for w, name in held.items())),
        threads=-(-lanes * turns // WARP) * WARP,
        lanes=lanes,
        turns=turns,
        packet=PACKET,
        piece=axis("piece", count),
        length=steps * turns,
    )
    return replace(made, tasks=made.blocks * count)


def take_runs(last: Expr, terms: Sequence[Expr]) -> tuple[Expr, list[Expr]]:
    """Sums over runs of neighbours along the last axis of the pixels, and the axis of the runs.

    What several of them read, and where it lies, is found once.
    """
    run, places = _split(last)
    if len(places) == 1:
        return last, [*terms]
    return run, [reduce(operator.add, (substitute(t, {last: x}) for x in places)) for t in terms]


def _split(last: Expr) -> tuple[Expr, list[Expr]]:
    """The axis of runs of neighbours that a thread computes together, and where each of them is along the given one."""
    length = as_int(last.args[0]) or 1
    count = next(n for n in (RUN, RUN // 2, 1) if length % n == 0)
    run = axis("run", length // count)
    return run, [run * count + k for k in range(count)]


def _in_runs(outer: list[Expr], total: Expr, stores: Sequence[Store]) -> tuple[list[Expr], list[Expr], list[Store]]:
    """The axes with one of runs, and sums and stores of each pixel of a run."""
    *before, last = outer
    run, places = _split(last)
    sums, found = [], list[Store]()
    for k, x in enumerate(places):
        sums.append(substitute(total, {last: x}))
        own = {acc("x0", total.dtype): acc(f"x{k}", total.dtype), last: x}
        found += [Store(s.buffer, substitute(s.offset, own), substitute(s.value, own)) for s in stores]
    return [*before, run], sums, found


def _of_channels(part: Expr | Sequence[Expr], outer: Sequence[Expr], channel: Expr) -> list[Expr]:
    """Loads of what depends on the channel, whatever the pixel."""
    loads = (x for x in walk(*([part] if isinstance(part, Expr) else part)) if x.op == "load" and contains(x, channel))
    return [x for x in loads if not any(contains(x, a) for a in outer)]


def _lies_along(term: Expr, channel: Expr) -> bool:
    """Whether what a term loads has its channels side by side."""
    parts = [split_axis(x.args[0], channel) for x in walk(term) if x.op == "load"]
    return len(parts) == 1 and parts[0] is not None and as_int(parts[0][0]) == 1
