"""FlexAttention: attention whose scores and probabilities pass through graphs that the node brings.

probabilities(softmax(scores(q k' scale))) v
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from ..expr import F32, F64, DType, as_int, call, const, from_onnx
from ..graph import Builder, Value
from ..ops.core.compose import apply, as_type
from ..ops.math.linalg import MatMul
from ..ops.nn.norm import Softmax
from ..ops.tensor.generate import ShapeOf
from ..ops.tensor.view import Expand, Reshape, Transpose
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
    q, k, v = operands
    if q is None or k is None or v is None or {x.type.rank for x in (q, k, v)} != {4}:
        raise Misfit("FlexAttention needs three operands of rank 4")
    root = _root(op, q, b)
    result, kind = v.dtype, _precision(op, q.dtype)
    k, v = _repeated(b, k, q), _repeated(b, v, q)
    if root != 1.0:  # both by the root, so that no product of 16-bit floats overflows
        q, k = (apply(b, "Mul", x, root) for x in (q, k))
    scores = _modified(op, "score_mod", as_type(b, b.one(MatMul(), q, b.one(Transpose((0, 1, 3, 2)), k)), kind), once)
    if scores is None:
        return ()
    weights = _modified(op, "prob_mod", b.one(Softmax(-1), scores), once)
    return () if weights is None else [as_type(b, b.one(MatMul(), weights, as_type(b, v, kind)), result)]


def _root(op: SourceOp, q: Value, b: Builder) -> float | Value:
    """The square root of the scale, whose default is 1 / sqrt(D); computed by a run where D is symbolic."""
    depth, given = as_int(q.shape[3]), op.attributes.get("scale")
    if given is None and depth is None:
        size = b.one(Reshape(()), b.one(ShapeOf(3, 4), q))
        return as_type(b, apply(b, "Pow", as_type(b, size, F64), -0.25), q.dtype)
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


def _repeated(b: Builder, x: Value, q: Value) -> Value:
    """Keys or values with as many heads as the queries have."""
    if x.shape[1] is q.shape[1]:
        return x
    batch, own, length, depth = x.shape
    heads, times = q.shape[1], call("floordiv", q.shape[1], call("max", own, 1))
    if as_int(heads) is not None and as_int(own) is not None and heads is not own * times:
        raise Misfit(f"FlexAttention of {heads!r} heads with {own!r}")
    apart = b.one(Reshape((batch, own, const(1), length, depth)), x)
    wide = b.one(Expand((batch, own, times, length, depth)), apart)
    return b.one(Reshape((batch, heads, length, depth)), wide)


def _modified(op: SourceOp, name: str, x: Value, once: Once) -> Value | None:
    """A value after the graph of an attribute, if there is one; None when the graph could not be imported."""
    graph = op.attributes.get(name)
    if graph is None:
        return x
    if not isinstance(graph, SourceGraph) or len(graph.inputs) != 1 or len(graph.outputs) != 1:
        raise Misfit(f"{name} of FlexAttention must be a graph of one input and one output")
    (made,) = once(graph, [x])
    if made is not None and made.type != x.type:
        raise Misfit(f"{name} of FlexAttention makes {made.type!r} of {x.type!r}")
    return made
