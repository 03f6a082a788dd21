"""ONNX's Attention as one operator of ours, where its form is one that kernels take.

ONNX defines it by a function of some eighty nodes. Cases that are left to it: scores as a result, soft caps, lengths of
an outer cache, a softmax in fewer bits, heads whose number or width only a run knows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...errors import ModelError
from ...expr import BF16, BOOL, F16, F32, Expr, as_int, const
from ...graph import Builder, Value
from ..core.base import Op, operator, same_dim
from ..core.compose import apply
from ..core.source import SourceNode
from ..tensor.parts import Pad
from ..tensor.view import Concat, Reshape
from .attention import Attention
from .heads import added, heads, kept, merged, window

_PADS = 24  # the opset from which on a mask may be shorter than the keys


@operator("Attention")
@dataclass(frozen=True)
class OnnxAttention(Op):
    """Attention of q[B, H, S, D] to k[B, G, T, D] and v[B, G, T, E], or of [B, S, H * D] and so on.

    Further operands: a mask that broadcasts to the scores, true where a key is seen or added to them; k and v of the
    past. Further results: k and v with their past. A row that the mask hides as a whole is 0.
    """

    q_num_heads: int = 0
    kv_num_heads: int = 0
    is_causal: int = 0
    scale: float = 0.0
    softcap: float = 0.0
    softmax_precision: int = 0
    qk_matmul_output_mode: int = 0
    left_window_size: int = -1
    right_window_size: int = -1

    @classmethod
    def takes(cls, attributes: Mapping[str, Any], outputs: Sequence[str], operands: Sequence[Value | None]) -> bool:
        q, k, v, mask, *_, lengths = (operands[n] if n < len(operands) else None for n in range(7))
        if q is None or k is None or v is None or lengths is not None or any(outputs[3:]) or attributes.get("softcap"):
            return False
        if not q.dtype is k.dtype is v.dtype or q.dtype not in (F32, F16, BF16):
            return False
        if attributes.get("softmax_precision", 0) not in (0, F32.onnx, q.dtype.onnx):
            return False
        if mask is not None and (not (mask.dtype is BOOL or mask.dtype.is_float) or mask.type.rank not in (2, 3, 4)):
            return False
        if mask is not None and mask.type.rank > 2 and as_int(mask.shape[-3]) is None:
            return False
        if q.type.rank == 3:
            counts = [attributes.get("q_num_heads"), attributes.get("kv_num_heads")]
        else:
            counts = [as_int(x.shape[1]) if x.type.rank == 4 else None for x in (q, k)]
        known = all(counts) and all(as_int(x.shape[-1]) for x in (q, k, v))
        return known and q.type.rank == k.type.rank == v.type.rank

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        b, given = source.builder, cls(**source.fields(cls))
        q, k, v = (source.required(n) for n in range(3))
        flat = q.type.rank == 3
        if flat:
            q = heads(b, q, given.q_num_heads)
            k, v = (heads(b, x, given.kv_num_heads) for x in (k, v))
        old = source.input(4), source.input(5)
        if (old[0] is None) != (old[1] is None):
            raise ModelError("Attention with past keys or values, but not both")
        k, v = (x if past is None else b.one(Concat(2), past, x) for past, x in zip(old, (k, v), strict=True))
        present = k, v
        length = k.shape[2]
        left, right = given.left_window_size, 0 if given.is_causal else given.right_window_size
        causal = left < 0 and right == 0 and old[0] is None
        terms = [_bias(source, q, length)]
        if not causal:
            past = const(0) if old[0] is None else old[0].shape[2]
            terms.append(window(b, q, length, past, left, right))
        # A query that only the future is hidden from sees a key.
        hides = source.input(3) is not None or left >= 0
        op = Attention(given.scale or 1 / math.sqrt(as_int(q.shape[-1]) or 1), causal=causal, masked=hides)
        y = _grouped(b, op, q, k, v, added(b, terms))
        results = [merged(b, y) if flat else y, *(apply(b, "Identity", x) for x in present)]
        return results[: source.outputs]


def _bias(source: SourceNode, q: Value, length: Expr) -> Value | None:
    """What the mask adds to the scores."""
    b, mask = source.builder, source.input(3)
    if mask is None:
        return None
    bias = kept(b, mask, q, -np.inf) if mask.dtype is BOOL else mask
    left = length - mask.shape[-1]
    if source.opset >= _PADS and as_int(left) != 0:
        none = (const(0),) * mask.type.rank
        bias = b.one(Pad(none, (*none[1:], left)), bias, b.constant(-np.inf, bias))
    return bias


def _grouped(b: Builder, op: Attention, q: Value, k: Value, v: Value, bias: Value | None) -> Value:
    """The result [B, H, S, E]; several heads may share those of k and v, which then are not repeated in memory."""
    count, groups = as_int(q.shape[1]), as_int(k.shape[1])
    assert count and groups
    if count == groups:
        return b.one(op, q, k, v, *([bias] if bias is not None else []))
    if count % groups:
        raise ModelError(f"Attention of {count} heads that share {groups} heads of keys and values")
    same_dim(k.shape[1], v.shape[1], b.graph.constraints, "the heads of Attention's keys and values")
    by_group = (const(groups), const(count // groups))
    batch, _, rows, width = q.shape
    outer = () if bias is None else (const(1),) * (4 - bias.type.rank) + bias.shape
    shared = bias is None or as_int(outer[1]) == 1
    masks = []
    if as_int(rows) == 1 and not op.causal:  # the heads of a group are rows, which read its keys once
        if bias is not None:
            masks.append(b.one(Reshape(outer if shared else (outer[0], *by_group, outer[3])), bias))
        y = b.one(op, b.one(Reshape((batch, *by_group, width)), q), k, v, *masks)
    else:
        if bias is not None:
            split = (const(1),) * 2 if shared else by_group
            masks.append(b.one(Reshape((outer[0], *split, *outer[2:])), bias))
        keys, values = (b.one(Reshape((*x.shape[:2], const(1), *x.shape[2:])), x) for x in (k, v))
        y = b.one(op, b.one(Reshape((batch, *by_group, rows, width)), q), keys, values, *masks)
    return b.one(Reshape((y.shape[0], const(count), rows, y.shape[-1])), y)
