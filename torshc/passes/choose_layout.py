"""Give the values of convolution chains a channels-last layout."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..base.options import CompileOptions
from ..expr import as_int, axis, const
from ..expr.affine import strides_along
from ..graph import Graph, Node, Rewriter, Value, relayout, rewire
from ..ops import REGISTRY
from ..ops.core.pointwise import Pointwise
from ..ops.image.resize import Resize
from ..ops.math.bits import RoundToTf32
from ..ops.math.pointwise import Cast
from ..ops.math.reduce import Reduce
from ..ops.nn.conv import FEW_CHANNELS
from ..ops.nn.norm import LRN
from ..ops.nn.pool import Pool
from ..ops.nn.taps import FoldedTaps
from ..ops.tensor.parts import Pad, Slice, Split
from ..ops.tensor.view import Concat, Reshape, Transpose, remap
from .manager import graph_pass

Layout = tuple[int, ...]
_CONVOLUTIONS = ("conv", "conv_transpose")
VECTOR = 16  # channels; fewer are resampled along rows instead


@graph_pass("choose_layout")
def choose_layout(graph: Graph, options: CompileOptions) -> bool:
    """Store what convolutions make, and what is computed from it place by place, with the channels innermost.

    Logical shapes stay. Inputs, outputs and constants of the graph stay row-major: a convolution that reads something
    row-major, and an output that is not, get a copy (Identity) between, and so does a Reshape that takes channels and
    places together, as GroupNormalization's: its elements would lie apart in no order. Other readers take any layout.
    What a Transpose makes of a tensor with the channels innermost needs no copy, for a convolution or a pool:
    channels-last it is that tensor's memory.

    Before::

        %2 = Conv(%0, @1:f32[8, 5, 1, 1]) : f32[1, 8, 4, 4]
        out %2

    After::

        %3 = Identity(%0) : f32[1, 5, 4, 4] in (0, 2, 3, 1)
        %2 = Conv(%3, @1:f32[8, 5, 1, 1]) : f32[1, 8, 4, 4] in (0, 2, 3, 1)
        %4 = Identity(%2) : f32[1, 8, 4, 4]
        out %4
    """
    if any(v.layout is not None for n in graph.nodes for v in n.outputs):
        return False  # chosen before
    rewriter = Rewriter(graph, "choose_layout")
    users, copies, planes = graph.users(), dict[Value, Value](), dict[Value, Value]()
    for node in graph.nodes:
        if isinstance(node.op, Cast | RoundToTf32):  # is stored in place of its operand
            users.setdefault(node.operands[0], []).extend(users.get(node.output, []))
    for node in rewriter:
        if node.op.family in _CONVOLUTIONS:
            _copy_operand(rewriter, node, copies)
        elif isinstance(node.op, Reshape) and node.operands[0].layout is not None and not _is_strided(node):
            x = node.operands[0]
            if x not in planes:
                planes[x] = _copy(rewriter, x, None)
            rewire(node, (planes[x], *node.inputs[1:]))
        rewriter.keep(node)
        for v in node.outputs:
            if matters(v) and (_is_last(node) or _is_best_so(node, users.get(v, []))):
                relayout(v, channels_last(v.type.rank))
    changed = bool(copies) or any(v.layout is not None for n in rewriter.nodes for v in n.outputs)
    for k, v in enumerate(graph.outputs):
        if v.layout is not None:
            rewriter.set_output(k, _copy(rewriter, v, None))
    rewriter.finish()
    return changed


def channels_last(rank: int) -> Layout:
    """Batch, spatial dimensions, channels, from outermost to innermost."""
    return (0, *range(2, rank), 1)


def matters(v: Value) -> bool:
    """Whether the order in memory differs: with one channel, or one place, all orders are the same."""
    if not 3 <= v.type.rank <= 5:
        return False
    return as_int(v.shape[1]) != 1 and any(as_int(d) != 1 for d in v.shape[2:])


def _is_convolution(node: Node) -> bool:
    return node.op.family in _CONVOLUTIONS and not _reads_planes(node)


def _slides(node: Node) -> bool:
    return _is_convolution(node) or isinstance(node.op, Pool)


def _keeps_memory(node: Node) -> bool:
    """Whether a result is its operand's memory when it is stored channels-last."""
    if not isinstance(node.op, Transpose) or node.operands[0].layout is not None:
        return False
    perm = node.op.perm
    return [perm[d] for d in channels_last(len(perm))] == list(range(len(perm)))


def _is_best_so(node: Node, readers: Sequence[Node]) -> bool:
    """Whether a result is best stored channels-last for its readers: it costs nothing, or what they read is no copy."""
    if isinstance(node.op, FoldedTaps):
        return True
    if isinstance(node.op, Pad) and any(as_int(side[1]) != 0 for side in (node.op.before, node.op.after)):
        return any(r.op.family in _CONVOLUTIONS for r in readers)  # see pad_channels
    if isinstance(node.op, Resize):
        return _first(node) and (as_int(node.output.shape[1]) or 0) >= VECTOR and any(map(_meets_channels, readers))
    return _keeps_memory(node) and any(map(_slides, readers))


def _meets_channels(node: Node) -> bool:
    """Whether a node reads what may be stored channels-last beside its operand, or slides over that."""
    beside = isinstance(node.op, Concat | Pointwise) and sum(v.const is None for v in node.operands) > 1
    return beside or _slides(node)


def _is_strided(reshape: Node) -> bool:
    """Whether the result is its operand's memory by strides, one for each dimension."""
    x, shape = reshape.operands[0], reshape.output.shape
    index = tuple(const(0) if as_int(d) == 1 else axis(f"d{k}", d) for k, d in enumerate(shape))
    offset = const(0)
    for i, s in zip(remap(index, shape, x.shape), x.strides, strict=True):
        offset = offset + i * s
    return strides_along(offset, [a for a in index if a.op == "axis"]) is not None


def _copy_operand(rewriter: Rewriter, node: Node, copies: dict[Value, Value]) -> None:
    x = node.operands[0]
    if x.layout is not None or not matters(x) or _reads_planes(node):
        return
    if x not in copies:
        copies[x] = _copy(rewriter, x, channels_last(x.type.rank))
    rewire(node, (copies[x], *node.inputs[1:]))


def _reads_planes(node: Node) -> bool:
    """Whether the convolution gathers its patches itself, from any layout: one of floats of a few channels does."""
    channels = as_int(node.operands[0].shape[1])
    plain = node.op.family == "conv" and getattr(node.op, "group", 1) == 1 and node.output.dtype.is_float
    return plain and channels is not None and channels <= FEW_CHANNELS


def _copy(rewriter: Rewriter, x: Value, layout: Layout | None) -> Value:
    out = rewriter.builder("relayout").one(REGISTRY["", "Identity"](), x)
    relayout(out, layout)
    return out


def _is_last(node: Node) -> bool:
    """Whether the results of a node are best stored channels-last."""
    if node.op.family in _CONVOLUTIONS:
        return True
    for kind, rule in _RULES:
        if isinstance(node.op, kind):
            return rule(node)
    return False


def _first(node: Node) -> bool:
    return node.operands[0].layout is not None


def _full_operand(node: Node) -> bool:
    """An operand of the result's shape is; operands that broadcast are small."""
    shape = node.output.shape
    return any(v.layout is not None and v.shape == shape for v in node.operands)


def _most(node: Node) -> bool:
    """Most operands are; the others are copied into their part."""
    return 2 * sum(v.layout is not None for v in node.operands) > len(node.operands)


def _keeps_layout(node: Node) -> bool:
    return _first(node) and bool(getattr(node.op, "keepdims", False))


_RULES: list[tuple[type | tuple[type, ...], Callable[[Node], bool]]] = [
    (Pointwise, _full_operand),
    (Concat, _most),
    (Reduce, _keeps_layout),
    ((Pool, LRN, Pad, Slice, Split), _first),
]
