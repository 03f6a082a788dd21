"""FlexAttention: attention whose scores and probabilities pass through graphs that the node brings.

probabilities(softmax(scores(q k' scale))) v
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from ..expr import F32, F64, DType, as_int, from_onnx, max_of
from ..graph import Builder, Value
from ..ops.core.functions import pow as power
from ..ops.core.tensor import Tensor, apply_op
from ..ops.tensor.generate import ShapeOf
from .model import Misfit, SourceGraph, SourceOp

Once = Callable[[SourceGraph, Sequence[Value]], list[Value | None]]


def attend(op: SourceOp, operands: Sequence[Value | None], once: Once, b: Builder) -> Sequence[Value | None]:
    """The output of a FlexAttention with q[B, H, L, D], k[B, G, S, D] and v[B, G, S, E]: [B, H, L, E].

    Each of the G heads of k and v serves H / G neighbouring heads of q.

    Args:
        once: imports a graph for operands, and gives its outputs.

    Raises:
        Misfit: when operands or graphs do not fit the node.
    """
    given = [None if x is None else Tensor(b, x) for x in operands]
    q, k, v = given
    if q is None or k is None or v is None or {x.rank for x in (q, k, v)} != {4}:
        raise Misfit("FlexAttention needs three operands of rank 4")
    root = _root(op, q)
    result, kind = v.dtype, _precision(op, q.dtype)
    k, v = _repeat_heads(k, q), _repeat_heads(v, q)
    if not isinstance(root, float) or root != 1.0:  # both by the root, so that no product of 16-bit floats overflows
        q, k = q * root, k * root
    scores = _apply_modifier(op, "score_mod", (q @ k.transpose(0, 1, 3, 2)).cast(kind), once)
    if scores is None:
        return ()
    weights = _apply_modifier(op, "prob_mod", scores.softmax(-1), once)
    return () if weights is None else [(weights @ v.cast(kind)).cast(result).value]


def _root(op: SourceOp, q: Tensor) -> float | Tensor:
    """The square root of the scale, whose default is 1 / sqrt(D); computed by a run where D is symbolic."""
    depth, given = q.size(3), op.attributes.get("scale")
    if given is None and depth is None:
        return power(apply_op(ShapeOf(3, 4), q).reshape().cast(F64), -0.25).cast(q.dtype)
    scale = float(given) if given is not None else 1 / math.sqrt(depth or 1)
    if scale < 0:
        raise Misfit(f"FlexAttention with scale {scale}")
    return math.sqrt(scale)


def _precision(op: SourceOp, dtype: DType) -> DType:
    """The type that the softmax is computed in."""
    code = op.attributes.get("softmax_precision")
    kind = from_onnx(int(code)) if code is not None else F64 if dtype is F64 else F32
    if kind is None or not kind.is_float:
        raise Misfit(f"FlexAttention with softmax_precision {code}")
    return kind


def _repeat_heads(x: Tensor, q: Tensor) -> Tensor:
    """Keys or values with as many heads as the queries have."""
    if x.shape[1] is q.shape[1]:
        return x
    batch, own, length, depth = x.shape
    heads, times = q.shape[1], q.shape[1] // max_of(own, 1)
    if as_int(heads) is not None and as_int(own) is not None and heads is not own * times:
        raise Misfit(f"FlexAttention of {heads!r} heads with {own!r}")
    wide = x.reshape(batch, own, 1, length, depth).expand(batch, own, times, length, depth)
    return wide.reshape(batch, heads, length, depth)


def _apply_modifier(op: SourceOp, name: str, x: Tensor, once: Once) -> Tensor | None:
    """A tensor after the graph of an attribute, if there is one; None when the graph could not be imported."""
    graph = op.attributes.get(name)
    if graph is None:
        return x
    if not isinstance(graph, SourceGraph) or len(graph.inputs) != 1 or len(graph.outputs) != 1:
        raise Misfit(f"{name} of FlexAttention must be a graph of one input and one output")
    (made,) = once(graph, [x.value])
    if made is None:
        return None
    if made.type != x.type:
        raise Misfit(f"{name} of FlexAttention makes {made.type!r} of {x.type!r}")
    return Tensor(x.builder, made)
