"""Places of a kernel as channels, so that a convolution of few channels sums over many."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ...expr import Expr, const, product
from ...graph import Node, TensorType
from ..core.base import Constraints, Index, Inputs, LoopNest, Op, Read, need, operator
from ..core.scalar import Scalar, where
from .conv import Ints, inside


@operator("FoldedTaps", "torshc")
@dataclass(frozen=True)
class FoldedTaps(Op):
    """Of images x[N, C, spatial], for each pixel of a grid, the pixels of a box that begins there, as channels.

    Channel (c, t0, t1, ...) in row-major order is x[n, c, i0 * steps[0] + starts[0] + t0, ...], or 0 beyond the image;
    channels from there on are 0.

    Attributes:
        box: pixels in each spatial dimension.
        steps: pixels from one of the grid to the next.
        starts: where the first box begins.
        sizes: sizes of the grid.
        channels: channels of the result, at least C times the pixels of a box.
    """

    family: ClassVar[str] = "nest"
    box: Ints = ()
    steps: Ints = ()
    starts: Ints = ()
    sizes: Ints = ()
    channels: int = 1

    def infer(self, inputs: Inputs, constraints: Constraints) -> list[TensorType]:
        x = need(inputs[0], "input 0 of FoldedTaps")
        return [TensorType(x.dtype, (x.shape[0], const(self.channels), *map(const, self.sizes)))]

    def nest(self, node: Node, output: int) -> LoopNest:
        x = node.operands[0].shape
        count = x[1] * product(map(const, self.box))

        def body(at: Index, _: Index, read: Read) -> Scalar:
            rest, index, ok = at[1], list[Expr](), at[1] < count
            sides = zip(at[2:], self.box, self.steps, self.starts, x[2:], strict=True)
            for i, size, step, start, extent in reversed([*sides]):
                place = i * step + start + rest % size
                rest, ok = rest // size, ok & inside(place, extent)
                index.insert(0, place)
            return where(ok, read(0, (at[0], rest, *index)), 0)

        return LoopNest(body)
