"""What the tasks of a convolution add up over the pixels that they store, and the kernel that makes sums of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..expr import F32, Expr, acc, axis, ceil_div, const, load
from ..graph import Node, Value
from ..ops.core.base import Index
from ..plan.group import Group
from ..plan.inline import Inliner
from ..plan.storage import Storage
from .base import Kernel, Temporary, Total
from .heavy import add_buffer
from .nest import BESIDE, Accumulator, Buffers, RowKernel, Stage


def add_totals(
    group: Group,
    anchor: Node,
    made: Sequence[tuple[Expr, Index]],
    parts: Expr,
    lanes: int,
    buffers: Buffers,
    storage: Mapping[Value, Storage],
) -> tuple[list[Total], list[Kernel]]:
    """The totals of a group, for the kernel of its anchor, and the kernel that adds them up behind it.

    Args:
        made: the elements of the anchor's result that a point of the kernel makes, with their indices.
        parts: how many parts of an image have totals of their own, whatever the number of threads. The kernel leaves
            them in memory as [image][part][total][channels, rounded up to whole vectors].
        buffers: the argument list of the anchor's kernel to add to.
    """
    sums = [n for n in group.totals if n.op.family == "reduce"]
    if not sums:
        return [], []
    images, channels = anchor.output.shape[:2]
    width = ceil_div(channels, lanes) * lanes
    left = Temporary("totals", group.id, images * parts * width * (len(sums) * F32.size))
    to = add_buffer(buffers, left, written=True)
    terms = list[Expr]()
    for result, index in made:
        inliner = Inliner([*group.folded, *group.nodes], {anchor.output: result})
        more = [buffers.resolve(inliner.at(n.operands[0], index)) for n in sums]
        terms = [a + b for a, b in zip(terms, more, strict=True)] if terms else more
    behind = Buffers(storage)
    source, image, channel, part = add_buffer(behind, left), axis("i0", images), axis("i1", channels), axis("r0", parts)
    accumulators, stores = list[Accumulator](), []
    for k, n in enumerate(sums):
        found = load(source, (((image * parts + part) * len(sums) + k) * width + channel,), F32)
        accumulators.append(Accumulator(f"{k}", "add", found, acc(f"a{k}", F32)))
        place = (image, channel, const(0), const(0))[: n.output.type.rank]
        stores.append(behind.store(n.output, place, acc(f"x{k}", F32)))
    join = RowKernel(
        buffers=tuple(behind.list),
        tasks=images * ceil_div(channels, BESIDE),
        flops=images * parts * channels * len(sums),
        nbytes=left.nbytes + images * channels * (len(sums) * F32.size),
        axes=(image, channel),
        reduce=(part,),
        across=False,
        stages=(Stage(tuple(accumulators)),),
        element=(),
        row=tuple(stores),
        kept=0,
        rows=1,
        chunk=BESIDE,
    )
    return [Total(to, const(k), term) for k, term in enumerate(terms)], [join]
