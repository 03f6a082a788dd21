"""Register blocks: a thread computes sums for several neighbouring points, which share what they read.

c[i, j] += a[i, k] * b[k, j]      becomes, for 2 by 2 points of a thread, four sums of two loads of a and two of b
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from itertools import product as points_of

from ....expr import Expr, acc, as_int, axis, rebuild, walk
from ....expr.affine import contains
from ....kernels.base import Store
from ....kernels.nest import Accumulator, RowKernel, Stage

SIDES = (4, 3, 2)  # points of a thread along an axis; those that divide it
LEAST = 512  # threads below which there are too few to make them fewer


def in_blocks(kernel: RowKernel) -> RowKernel:
    """A row kernel of one sum with blocks of points as rows; itself where that saves no loads."""
    if len(kernel.stages) != 1 or len(kernel.stages[0].accumulators) != 1 or kernel.element or kernel.kept:
        return kernel
    (total,) = kernel.stages[0].accumulators
    left = math.prod(as_int(a.args[0]) or 1 for a in kernel.axes)
    sides: dict[Expr, int] = {}
    spared: set[Expr] = set()  # loads that points along the axes of the block have in common
    for a in reversed(kernel.axes):
        common = {x for x in walk(total.term) if x.op == "load" and not contains(x, a)} - spared
        side = next((s for s in SIDES if (as_int(a.args[0]) or 1) % s == 0), 1)
        if common and side > 1 and left // side >= LEAST and len(sides) < 2:
            sides[a] = side
            spared |= common
            left //= side
    return _make_blocked(kernel, total, sides) if sides else kernel


def _make_blocked(kernel: RowKernel, total: Accumulator, sides: Mapping[Expr, int]) -> RowKernel:
    outer = {a: axis(str(a.data), (as_int(a.args[0]) or 1) // side) for a, side in sides.items()}
    accumulators: list[Accumulator] = []
    stores: list[Store] = []
    for number, places in enumerate(points_of(*(range(s) for s in sides.values()))):
        here: dict[Expr, Expr] = {
            a: outer[a] * side + place for (a, side), place in zip(sides.items(), places, strict=True)
        }
        for letter in "ax":
            for dtype in (total.term.dtype, total.result.dtype):
                here[acc(f"{letter}{total.name}", dtype)] = acc(f"{letter}{number}", dtype)
        term, result = rebuild(total.term, here.get), rebuild(total.result, here.get)
        accumulators.append(Accumulator(str(number), total.combine, term, result))
        stores += [Store(s.buffer, rebuild(s.offset, here.get), rebuild(s.value, here.get)) for s in kernel.row]
    axes = tuple(outer.get(a, a) for a in kernel.axes)
    return replace(kernel, axes=axes, stages=(Stage(tuple(accumulators)),), row=tuple(stores))
