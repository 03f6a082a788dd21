"""Attention as PyTorch has it on the processor: with the logarithms of the sums of its weights, for the gradient."""

from __future__ import annotations

import math

import numpy as np

from ...expr import as_int, const
from ...ops import Unsupported
from ...ops.core import functions as ops
from ...ops.core.tensor import Tensor, apply_op
from ...ops.nn.attention import Attention
from .call import Call, aten


@aten("_scaled_dot_product_flash_attention_for_cpu.default")
def attention(
    call: Call, q: Tensor, k: Tensor, v: Tensor, dropout_p: float = 0.0, is_causal: bool = False, *,
    attn_mask: Tensor | None = None, scale: float | None = None,
) -> list[Tensor]:  # fmt: skip
    """softmax(scale q k' + mask) v, and log(sum(exp(scale q k' + mask)))."""
    factor = _scale(q, dropout_p, scale)
    if not call.is_read(1):
        op = Attention(scale=factor, causal=is_causal)
        mask = None if attn_mask is None else attn_mask.cast(q.dtype)
        return [apply_op(op, q, k, v, mask), call.constant(0.0, q.dtype).expand(*q.shape[:-1])]
    scores = _scores(q, k, factor, is_causal, attn_mask)
    most = scores.max(-1)
    weights = ops.exp(scores - most)
    total = weights.sum(-1)
    return [(weights @ v) / total, (ops.log(total) + most).reshape(*q.shape[:-1])]


@aten("_scaled_dot_product_flash_attention_for_cpu_backward.default")
def attention_gradients(
    call: Call, g: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, sums: Tensor, dropout_p: float,
    is_causal: bool, *, attn_mask: Tensor | None = None, scale: float | None = None,
) -> list[Tensor]:  # fmt: skip
    """Weights w from the stored sums; of the scores w (g v' - sum(g out))."""
    factor = _scale(q, dropout_p, scale)
    weights = ops.exp(_scores(q, k, factor, is_causal, attn_mask) - sums.reshape(*q.shape[:-1], 1).cast(q.dtype))
    back = weights * (g @ _turned(v) - (g * out).sum(-1)) * factor
    return [back @ k, _turned(back) @ q, _turned(weights) @ g]


def _scale(q: Tensor, dropout: float, scale: float | None) -> float:
    depth = as_int(q.shape[-1])
    if dropout:
        raise Unsupported("attention with dropout inside")
    if scale is None and depth is None:
        raise Unsupported("attention of a symbolic depth")
    return float(scale) if scale is not None else 1 / math.sqrt(depth or 1)


def _turned(x: Tensor) -> Tensor:
    return x.transpose(*range(x.rank - 2), x.rank - 1, x.rank - 2)


def _scores(q: Tensor, k: Tensor, scale: float, causal: bool, mask: Tensor | None) -> Tensor:
    scores = (q @ _turned(k)) * scale
    if mask is not None:
        scores = scores + mask.cast(q.dtype)
    if not causal:
        return scores
    rows, columns = scores.shape[-2:]
    row, column = scores.range(const(0), rows), scores.range(const(0), columns)
    return ops.where(column <= row.reshape(rows, 1), scores, -np.inf)
