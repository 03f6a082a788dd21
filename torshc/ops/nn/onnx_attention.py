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

from ...base.errors import ModelError
from ...expr import BF16, BOOL, F16, F32, Expr, as_int, const
from ...graph import Value
from ..core.base import Op, operator, same_dim
from ..core.functions import concat, identity
from ..core.source import SourceNode
from ..core.tensor import Tensor, apply_op
from ..tensor.parts import Pad
from .attention import Attention
from .heads import add_present, hide_unseen, merge_heads, split_heads, window_mask

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
        given = cls(**source.fields(cls))
        operands = [None if v is None else Tensor(source.builder, v) for v in source.inputs]
        q, k, v, mask, *old = (*operands, *(None,) * 6)[:6]
        assert q is not None and k is not None and v is not None
        flat = q.rank == 3
        if flat:
            q, k, v = (
                split_heads(q, given.q_num_heads),
                split_heads(k, given.kv_num_heads),
                split_heads(v, given.kv_num_heads),
            )
        if (old[0] is None) != (old[1] is None):
            raise ModelError("Attention with past keys or values, but not both")
        k, v = (x if past is None else concat(past, x, axis=2) for past, x in zip(old, (k, v), strict=True))
        length = k.shape[2]
        left, right = given.left_window_size, 0 if given.is_causal else given.right_window_size
        causal = left < 0 and right == 0 and old[0] is None
        terms = [_bias(source.opset, mask, q, length)]
        if not causal:
            past = const(0) if old[0] is None else old[0].shape[2]
            terms.append(window_mask(q, length, past, left, right))
        # A query that only the future is hidden from sees a key.
        hides = mask is not None or left >= 0
        op = Attention(given.scale or 1 / math.sqrt(q.size(-1) or 1), causal=causal, masked=hides)
        y = _attend_in_groups(op, q, k, v, add_present(terms))
        results = [merge_heads(y) if flat else y, identity(k), identity(v)]
        return [t.value for t in results[: source.outputs]]


def _bias(opset: int, mask: Tensor | None, q: Tensor, length: Expr) -> Tensor | None:
    """What the mask adds to the scores."""
    if mask is None:
        return None
    bias = hide_unseen(mask, q, -np.inf) if mask.dtype is BOOL else mask
    left = length - mask.shape[-1]
    if opset >= _PADS and as_int(left) != 0:
        none = (const(0),) * mask.rank
        bias = apply_op(Pad(none, (*none[1:], left)), bias, -np.inf)
    return bias


def _attend_in_groups(op: Attention, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
    """The result [B, H, S, E]; several heads may share those of k and v, which then are not repeated in memory."""
    count, groups = q.size(1), k.size(1)
    assert count and groups
    if count == groups:
        return apply_op(op, q, k, v, bias)
    if count % groups:
        raise ModelError(
            f"Attention of {count} heads that share {groups} heads of keys and values, which do not divide them"
        )
    same_dim(k.shape[1], v.shape[1], q.builder.graph.constraints, "the heads of Attention's keys and values")
    by_group = groups, count // groups
    batch, _, rows, width = q.shape
    outer = () if bias is None else (const(1),) * (4 - bias.rank) + bias.shape
    shared = bias is None or as_int(outer[1]) == 1
    if as_int(rows) == 1 and not op.causal:  # the heads of a group are rows, which read its keys once
        if bias is not None:
            bias = bias.reshape(*(outer if shared else (outer[0], *by_group, outer[3])))
        y = apply_op(op, q.reshape(batch, *by_group, width), k, v, bias)
    else:
        if bias is not None:
            bias = bias.reshape(outer[0], *((1, 1) if shared else by_group), *outer[2:])
        keys, values = (x.reshape(*x.shape[:2], 1, *x.shape[2:]) for x in (k, v))
        y = apply_op(op, q.reshape(batch, *by_group, rows, width), keys, values, bias)
    return y.reshape(y.shape[0], count, rows, y.shape[-1])
