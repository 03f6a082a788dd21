"""Let convolutions by which a step learns from pictures sum over places of their kernels as over channels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from math import prod

from ..base.features import Feature, Features
from ..base.options import HALVES, CompileOptions
from ..expr import as_int, const
from ..graph import Graph, Node, Patch, Shape, Value
from ..ops.core.tensor import Tensor, apply_named, apply_op
from ..ops.nn.conv import Conv, ConvWeights
from ..ops.nn.taps import FoldedTaps
from .manager import graph_pass
from .walk import Site, walk

_LINE, _PACKET = 128, 16  # bytes of channels that a card copies at once, and that a thread does
_FEWEST = 2**16  # pixels of results, below which the pictures' copy costs more than it gains
_PASSES = 3  # times that the copy goes through memory: it is written, and read for the results and for the weights
_SLOW = 6  # times as long as the card itself threads take to bring what is multiplied


@graph_pass("fold_taps")
def fold_taps(graph: Graph, options: CompileOptions, *, features: Features) -> bool:
    """Pictures of few channels that convolutions learn from get neighbouring pixels as further channels.

    For targets with `CHANNEL_PACKETS`, whose cards bring whole lines of channels by themselves. For each pixel of a
    grid the channels of a box of pixels follow each other, and the kernel is smaller by as much: one of 7x7 in steps of
    2 over 3 channels is one of 4x1 over 64. Results are the same sums, with terms of zeros.

    Before::

        %2 = Conv[strides=(2, 2), pads=(3, 3, 3, 3)](%0:f32[8, 3, 224, 224], %1:f32[64, 3, 7, 7])
        %4 = ConvWeights[shape=(64, 3, 7, 7), ...](%0, %3)

    After::

        %5 = FoldedTaps[box=(2, 8), steps=(2, 2), starts=(-3, -3), sizes=(115, 112), channels=64](%0)
        %6 = ...(%1) : f32[64, 64, 4, 1]
        %2 = Conv(%5, %6)
        %7 = ConvWeights[shape=(64, 64, 4, 1), ...](%5, %3)
        %4 = ...(%7) : f32[64, 3, 7, 7]
    """
    if Feature.CHANNEL_PACKETS not in features:
        return False
    size = 2 if options.precision in HALVES else 4
    folds: dict[tuple[Value, Shape], Fold] = {}
    for node in graph.nodes:
        if isinstance(node.op, ConvWeights) and (fold := _best(node, size)) is not None:
            folds[node.operands[0], node.op.shape] = fold
    made: dict[Fold, Value] = {}
    return walk(graph, lambda site: _rule(site, folds, made), "fold_taps")


@dataclass(frozen=True)
class Side:
    """How a kernel and its windows go along a spatial dimension.

    Attributes:
        kernel, step, start, windows: taps, pixels between windows, the first one's begin, and how many there are.
        box: taps that become channels; a multiple of `step`, or 1.
    """

    kernel: int
    step: int
    start: int
    windows: int
    box: int = 1

    @property
    def grid(self) -> int:
        """Pixels between those that have channels of their own."""
        return self.step if self.box > 1 else 1

    @property
    def taps(self) -> int:
        """Taps that are left."""
        return -(-self.kernel // self.box)

    @property
    def apart(self) -> int:
        """Steps of the grid between them."""
        return self.box // self.grid

    @property
    def size(self) -> int:
        """Pixels of the grid."""
        return (self.windows - 1) * (self.step // self.grid) + (self.taps - 1) * self.apart + 1

    def boxes(self) -> Iterator[Side]:
        """With each number of taps as channels."""
        yield self
        for box in range(self.step, self.kernel + self.step, self.step):
            if box > 1:
                yield replace(self, box=box)


@dataclass(frozen=True)
class Fold:
    """The pictures, and how the two sides of a kernel over them are folded into so many channels."""

    pictures: Value
    sides: tuple[Side, ...]
    channels: int

    @property
    def cost(self) -> int:
        """Elements of each picture that are brought for results, and that memory moves for its copy."""
        rows, columns = self.sides
        brought = rows.taps * columns.taps * rows.windows * columns.windows
        return self.channels * (brought + _PASSES * rows.size * columns.size)


def _best(node: Node, size: int) -> Fold | None:
    """How a weights' gradient is best folded; None where packets of channels serve as well.

    Args:
        size: bytes of an element.
    """
    op, (x, g) = node.op, node.operands
    assert isinstance(op, ConvWeights)
    known = [as_int(d) for d in (*x.shape, *op.shape, *g.shape, *op.pads)]
    if op.group != 1 or x.type.rank != 4 or None in known or any(d != 1 for d in op.dilations):
        return None
    channels, packet, line = as_int(x.shape[1]) or 0, _PACKET // size, _LINE // size
    kernel, windows, pads = ([as_int(d) or 0 for d in s] for s in (op.shape[2:], g.shape[2:], op.pads))
    if not 1 < channels < packet or (as_int(x.shape[0]) or 0) * prod(windows) < _FEWEST:
        return None
    plain = [Side(k, s, -p, n) for k, s, p, n in zip(kernel, op.strides, pads, windows, strict=False)]
    folds = [
        Fold(x, sides, -(-channels * sides[0].box * sides[1].box // line) * line)
        for sides in product(*(side.boxes() for side in plain))
    ]
    best = min(folds, key=lambda f: f.cost)
    return best if best.cost < _SLOW * packet * prod(kernel + windows) else None


def _rule(site: Site, folds: Mapping[tuple[Value, Shape], Fold], made: dict[Fold, Value]) -> Patch | None:
    node, op, b = site.node, site.node.op, site.builder
    if not isinstance(op, Conv | ConvWeights):
        return None
    shape = node.operands[1].shape if isinstance(op, Conv) else op.shape
    fold = folds.get((node.operands[0], shape))
    if fold is None or not _slides_so(op, node, fold):
        return None
    x, other, *bias = (Tensor(b, v) for v in node.operands)
    if fold not in made:
        box, steps, starts, sizes = zip(*((s.box, s.grid, s.start, s.size) for s in fold.sides), strict=True)
        made[fold] = apply_op(FoldedTaps(box, steps, starts, sizes, fold.channels), x).value
    images, none = Tensor(b, made[fold]), (const(0),) * (2 * len(fold.sides))
    strides = tuple(s.step // s.grid for s in fold.sides)
    form = replace(op, strides=strides, pads=none, dilations=tuple(s.apart for s in fold.sides))
    if isinstance(form, Conv):
        return site.replace(apply_op(form, images, _folded(other, fold), *bias).value)
    taps = tuple(const(s.taps) for s in fold.sides)
    found = apply_op(replace(form, shape=(shape[0], const(fold.channels), *taps)), images, other)
    return site.replace(_unfolded(found, fold, Tensor(b, node.output)).value)


def _slides_so(op: Conv | ConvWeights, node: Node, fold: Fold) -> bool:
    """Whether a convolution has the windows of a fold."""
    result = node.output if isinstance(op, Conv) else node.operands[1]
    windows = [as_int(d) for d in result.shape[2:]]
    plain = [(s.step, -s.start, s.windows, 1) for s in fold.sides]
    return op.group == 1 and plain == [*zip(op.strides, map(as_int, op.pads), windows, op.dilations, strict=False)]


def _folded(w: Tensor, fold: Fold) -> Tensor:
    """The weights of the smaller kernel over more channels."""
    (rows, columns), none = fold.sides, const(0)
    wide = [none, none, *(const(s.taps * s.box - s.kernel) for s in fold.sides)]
    whole = apply_named("Pad", w, before=(none,) * 4, after=tuple(wide))
    parts = whole.reshape(*w.shape[:2], rows.taps, rows.box, columns.taps, columns.box).transpose(0, 1, 3, 5, 2, 4)
    count = w.shape[1] * (rows.box * columns.box)
    flat = parts.reshape(w.shape[0], count, rows.taps, columns.taps)
    return apply_named("Pad", flat, before=(none,) * 4, after=(none, fold.channels - count, none, none))


def _unfolded(w: Tensor, fold: Fold, like: Tensor) -> Tensor:
    """The inverse."""
    (rows, columns), none = fold.sides, (const(0),) * 4
    filters, channels = like.shape[:2]
    count = channels * (rows.box * columns.box)
    flat = w.slice(none, (filters, count, *w.shape[2:]))
    parts = flat.reshape(filters, channels, rows.box, columns.box, rows.taps, columns.taps).transpose(0, 1, 4, 2, 5, 3)
    whole = parts.reshape(filters, channels, rows.taps * rows.box, columns.taps * columns.box)
    return whole.slice(none, like.shape)
