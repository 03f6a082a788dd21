"""Attention as ONNX Runtime's own domain has it, made of one operator of ours and what prepares its operands.

B is the batch, H heads, G groups of heads that share a key and a value, S positions of queries, T of keys, D a head's
width.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ...base.errors import ModelError
from ...expr import F16, F32, I64, Expr, as_int, cast, const, max_of
from ...graph import Node, TensorType
from ..core.axes import integer
from ..core.base import Constraints, Index, Inputs, LoopNest, Op, Read, need, operator, same_dim
from ..core.bounds import demand_in_range
from ..core.composite import composite
from ..core.functions import concat, tanh
from ..core.functions import max as larger
from ..core.reach import within
from ..core.scalar import Scalar, where
from ..core.source import SourceNode, Unsupported
from ..core.tensor import Tensor, apply_op
from ..nn.attention import Attention
from ..nn.heads import add_present, count_positions, hide_unseen, merge_heads, split_heads, window_mask
from ..nn.norm import RMSNormalization
from ..nn.rotary import angles, turn
from ..tensor.parts import Pad
from .base import DOMAIN
from .quantize import integers, scaled

FILTER = -10000.0  # what a masked score gets by default


def padding_mask(mask: Tensor | None, like: Tensor, length: Expr, hidden: float) -> Tensor | None:
    """What a mask of keys adds to the scores, [B, 1, S or 1, T].

    Args:
        mask: 0 where hidden, of [B, T] or [B, S, T]; or ends of sequences [B], or ends and then starts [2 * B].
        like: the queries, [B, H, S, D].
        length: T.
    """
    if mask is None:
        return None
    batch, constraints = like.shape[0], like.builder.graph.constraints
    if mask.rank in (2, 3):
        same_dim(mask.shape[-1], length, constraints, "the mask of keys")
        return hide_unseen(mask.reshape(mask.shape[0], *(1,) * (4 - mask.rank), *mask.shape[1:]) > 0, like, hidden)
    if mask.rank != 1 or _contradicts(mask.shape[0], batch):
        raise Unsupported(f"attention of {like.type!r} with a mask {mask.type!r}")
    ends, column = mask, count_positions(like, length).cast(mask.dtype)
    starts: Tensor | None = None
    if mask.shape[0] is batch * 2 and mask.shape[0] is not batch:
        ends, starts = mask.split(0, batch, batch)
    else:
        same_dim(mask.shape[0], batch, constraints, "ends of sequences")
    seen = column < ends.reshape(batch, 1, 1, 1)
    if starts is not None:
        seen = seen & (column >= starts.reshape(batch, 1, 1, 1))
    return hide_unseen(seen, like, hidden)


def _contradicts(count: Expr, batch: Expr) -> bool:
    """Whether there is surely neither one number for each sequence nor two."""
    have, wanted = as_int(count), as_int(batch)
    return have is not None and wanted is not None and have not in (wanted, 2 * wanted)


def attend(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, bias: Tensor | None, hidden: float, scale: float,
    causal: int = 0,
) -> Tensor:  # fmt: skip
    """The result [B, S, H * D] of q[B, H, S, D], k and v, whose first T - S positions are from the past.

    Args:
        mask: as of :func:`padding_mask`.
        bias: added to the scores.
        hidden: score where the mask hides a key.
        scale: factor on the scores; 0 for 1 / sqrt(D).
    """
    length, width = k.shape[2], q.size(-1)
    terms = [padding_mask(mask, q, length, hidden), bias]
    if causal and as_int(length - q.shape[2]) != 0:
        terms.append(window_mask(q, length, length - q.shape[2], -1, 0))
        causal = 0
    total = add_present(terms)
    if not width:
        raise ModelError(f"attention of heads {q.type!r}, whose size is symbolic or 0")
    return merge_heads(apply_op(Attention(scale or 1 / math.sqrt(width), causal=bool(causal)), q, k, v, total))


def split_projection(qkv: Tensor, sizes: Sequence[int], count: int) -> list[Tensor]:
    """Queries, keys and values by head, which stand side by side in qkv[B, S, ..]."""
    width = qkv.size(-1) if qkv.rank == 3 else None
    if width is None or len(sizes) not in (0, 3) or (sizes and sum(sizes) != width) or (not sizes and width % 3):
        raise ModelError(
            f"attention of queries, keys and values {qkv.type!r} of sizes {list(sizes)}"
            "; they have to be [B, S, the sum of the sizes], or three equal parts"
        )
    return [split_heads(x, count) for x in qkv.split(2, *(sizes or (width // 3,) * 3))]


def join_past(past: Tensor | None, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Keys and values behind those of past[2, B, H, P, D], and both as [2, B, H, T, D]."""
    if past is not None:
        if past.rank != 5:
            raise ModelError(f"attention with a past {past.type!r}, where [2, batch, heads, length, size] is needed")
        same_dim(past.shape[0], const(2), past.builder.graph.constraints, "keys and values of a past")
        before = [past.part(0, n, n + 1).reshape(*past.shape[1:]) for n in (0, 1)]
        k, v = (concat(old, new, axis=2) for old, new in zip(before, (k, v), strict=True))
    if k.size(-1) != v.size(-1):
        return k, v, k
    return k, v, concat(k.reshape(1, *k.shape), v.reshape(1, *v.shape), axis=0)


@composite("Attention", DOMAIN)
def self_attention(
    source: SourceNode, x: Tensor, weights: Tensor, bias: Tensor | None = None, mask: Tensor | None = None,
    past: Tensor | None = None, addend: Tensor | None = None, past_length: Tensor | None = None, *,
    num_heads: int = 0, scale: float = 0.0, mask_filter_value: float = FILTER, do_rotary: int = 0,
    past_present_share_buffer: int = 0, qkv_hidden_sizes: tuple[int, ...] = (), rotary_embedding_dim: int = 0,
    unidirectional: int = 0,
) -> list[Tensor]:  # fmt: skip
    """Attention of x[B, S, I] with itself, projected by weights [I, 3 * H * D] and a bias.

    The past is [2, B, H, P, D], and the addend one of the scores. Results: [B, S, H * D], and keys and values of past
    and present.
    """
    if do_rotary or past_present_share_buffer or past_length is not None:
        raise Unsupported("Attention with rotary positions or a past that shares its memory with the present")
    qkv = x @ weights
    q, k, v = split_projection(qkv if bias is None else qkv + bias, qkv_hidden_sizes, num_heads)
    k, v, present = join_past(past, k, v)
    if source.outputs > 1 and present is k:
        raise Unsupported("Attention whose keys and values differ in size, with a present")
    return [attend(q, k, v, mask, addend, mask_filter_value, scale, unidirectional), present]


@composite("QAttention", DOMAIN, floats=False)
def q_attention(
    x: Tensor, weights: Tensor, bias: Tensor, x_scale: Tensor, weight_scale: Tensor, mask: Tensor | None = None,
    x_zero: Tensor | None = None, weight_zero: Tensor | None = None, past: Tensor | None = None, *,
    num_heads: int = 0, scale: float = 0.0, mask_filter_value: float = FILTER, do_rotary: int = 0,
    past_present_share_buffer: int = 0, unidirectional: int = 0,
) -> list[Tensor]:  # fmt: skip
    """Attention of quantised x by quantised weights."""
    if do_rotary or past_present_share_buffer:
        raise Unsupported("QAttention with rotary positions or a past that shares its memory with the present")
    qkv = scaled(integers(x, x_zero, weights, weight_zero), x_scale, weight_scale, bias)
    q, k, v = split_projection(qkv, (), num_heads)
    k, v, present = join_past(past, k, v)
    return [attend(q, k, v, mask, None, mask_filter_value, scale, unidirectional), present]


def by_head(q: Tensor, k: Tensor | None, v: Tensor | None, bias: Tensor | None, count: int) -> list[Tensor]:
    """Queries, keys and values, which are projected already, by head; a bias of all three is added to them."""
    if q.rank == 5:
        given = _unpack_parts(q, 3)
    elif k is None:
        raise ModelError(f"attention of {q.type!r} without keys")
    elif k.rank == 5:
        given = [q, *_unpack_parts(k, 2)]
    elif v is None:
        raise ModelError(f"attention of {q.type!r} without values")
    else:
        given = [q, k, v]
    if any(x.rank not in (3, 4) for x in given):
        raise ModelError(
            f"attention of {' and '.join(repr(x.type) for x in given)}, each of which needs 3 or 4 dimensions"
        )
    if bias is not None:
        shifts = bias.split(0, *(x.shape[-1] * (x.shape[1] if x.rank == 4 else 1) for x in given))
        given = [x if x.rank == 4 else x + s for x, s in zip(given, shifts, strict=True)]
    return [x if x.rank == 4 else split_heads(x, count) for x in given]


def _unpack_parts(x: Tensor, count: int) -> list[Tensor]:
    """The parts of x[B, S, H, count, D] as [B, S, H * D]."""
    if x.size(3) != count:
        raise ModelError(f"attention of packed {x.type!r}, where dimension 3 holds {count} of queries, keys and values")
    return [x.part(3, n, n + 1).reshape(*x.shape[:2], x.shape[2] * x.shape[4]) for n in range(count)]


@composite("MultiHeadAttention", DOMAIN)
def multi_head_attention(
    source: SourceNode, q: Tensor, k: Tensor | None = None, v: Tensor | None = None, bias: Tensor | None = None,
    mask: Tensor | None = None, addend: Tensor | None = None, past_k: Tensor | None = None,
    past_v: Tensor | None = None, past_length: Tensor | None = None, indirection: Tensor | None = None, *,
    num_heads: int = 0, scale: float = 0.0, mask_filter_value: float = FILTER, unidirectional: int = 0,
) -> list[Tensor]:  # fmt: skip
    """Attention of queries to keys and values that are projected already.

    Operands: queries [B, S, H * D], keys and values in the same form or by head [B, H, T, D] (which take no bias), or
    packed [B, S, H, 3, D] and [B, S, H, 2, D]; perhaps the bias of all three, a mask, an addend of the scores, keys and
    values of the past [B, H, P, D]. Results: [B, S, H * D], keys and values of past and present.
    """
    if source.outputs > 3 or past_length is not None or indirection is not None:
        raise Unsupported("MultiHeadAttention with scores as a result, a shared past or indirections")
    q, k, v = by_head(q, k, v, bias, num_heads)
    if past_k is not None and past_v is not None:
        k, v = concat(past_k, k, axis=2), concat(past_v, v, axis=2)
    return [attend(q, k, v, mask, addend, mask_filter_value, scale, unidirectional), k, v]


# -- rotary positions -------------------------------------------------------------------------------------------------


@composite("RotaryEmbedding", DOMAIN)
def rotary_embedding(
    source: SourceNode, x: Tensor, at: Tensor, cos: Tensor, sin: Tensor, *, interleaved: int = 0,
    is_packed_batching: int = 0, num_heads: int = 0, rotary_embedding_dim: int = 0, scale: float = 1.0,
) -> Tensor:  # fmt: skip
    """x[B, S, H * D] or [B, H, S, D] rotated by the angles of positions [B, S], or from one position [1] on."""
    if is_packed_batching or scale != 1.0:
        raise Unsupported("RotaryEmbedding of packed batches or scaled")
    if x.rank not in (3, 4):
        raise ModelError(f"RotaryEmbedding of {x.type!r}, where 3 or 4 dimensions are needed")
    heads, length = 0, x.shape[-2]
    if x.rank == 3:
        half, width = cos.size(-1) if cos.rank else None, x.size(-1)
        heads = width // (2 * half) if not rotary_embedding_dim and half and width else num_heads
        if heads < 1:
            raise ModelError(f"RotaryEmbedding of {x.type!r} in {heads} heads")
    if at.rank < 2:
        at = at.range(0, length, at.dtype) + at.reshape(1, 1)
    return turn(source, x, *angles(source, cos, sin, at), interleaved, heads)


# -- groups of heads with a cache -------------------------------------------------------------------------------------


_NONE = const(0)


@operator("Appended", "torshc")
@dataclass(frozen=True)
class Appended(Op):
    """A cache [B, G, P, D] with new entries [B, G, S, D] written into it from places [B] on; zeros behind both.

    Attributes:
        length: length of the result.
    """

    family: ClassVar[str] = "nest"
    length: Expr = _NONE

    def infer(self, inputs: Inputs, constraints: Constraints) -> list[TensorType]:
        past, new, at = (need(v, f"input {k} of Appended") for k, v in enumerate(inputs))
        if past.type.rank != 4 or new.type.rank != 4 or past.dtype is not new.dtype or at.type.rank != 1:
            raise ModelError(
                f"a cache {past.type!r} with {new.type!r} at {at.type!r}"
                "; both need 4 dimensions and one type, and their places have to be a vector"
            )
        for k in (0, 1, 3):
            same_dim(past.shape[k], new.shape[k], constraints, f"a cache {past.type!r} with {new.type!r}")
        same_dim(new.shape[0], at.shape[0], constraints, "the batch of a cache")
        return [TensorType(new.dtype, (*new.shape[:2], self.length, new.shape[3]))]

    def nest(self, node: Node, output: int) -> LoopNest:
        old, new = (v.shape[2] for v in node.operands[:2])

        def body(at: Index, _: Index, read: Read) -> Scalar:
            place = at[2] - read(2, at[:1]).index()
            ahead = (place >= 0) & (place < new)
            past = within(read, 0, at, node.operands[0].shape, (2,))
            before = where(at[2] < old, past, 0)
            return where(ahead, within(read, 1, (*at[:2], place, at[3]), node.operands[1].shape, (2,)), before)

        return LoopNest(body)


@composite("GroupQueryAttention", DOMAIN)
def group_query_attention(
    source: SourceNode, q: Tensor, k: Tensor | None, v: Tensor | None, past_k: Tensor | None, past_v: Tensor | None,
    last: Tensor, longest: Tensor, cos: Tensor | None = None, sin: Tensor | None = None,
    positions: Tensor | None = None, bias: Tensor | None = None, sink: Tensor | None = None,
    k_scale: Tensor | None = None, v_scale: Tensor | None = None, q_norm: Tensor | None = None,
    k_norm: Tensor | None = None, *more: Tensor | None,
    causal: int = 1, do_rotary: int = 0, k_norm_epsilon: float = 0.0, k_quant_type: str = "NONE",
    kv_cache_bit_width: int = 0, kv_num_heads: int = 0, local_window_size: int = -1, num_heads: int = 0,
    q_norm_epsilon: float = 0.0, qk_norm_epsilon: float = 1e-6, qk_output: int = 0, rotary_interleaved: int = 0,
    scale: float = 0.0, sliding_window_cache: int = 0, smooth_softmax: int = -1, softcap: float = 0.0,
    v_quant_type: str = "NONE",
) -> list[Tensor]:  # fmt: skip
    """Attention of H heads of queries to G heads of keys and values, whose past is a cache.

    Operands: queries [B, S, H * D], keys and values [B, S, G * D] (or all in one), caches of keys and values
    [B, G, P, D], the last position of each sequence [B], the longest sequence, tables of cosines and sines, positions
    [B, S], an addend of the scores, a logit of each head that takes part in the softmax and has no value, and behind
    two scales of quantised caches factors [D] of queries and keys that are divided by their root mean squares, ahead of
    rotary positions. Results: [B, S, H * D] and the caches, of max(P, longest) positions.
    """
    caches = k_quant_type != "NONE" or v_quant_type != "NONE" or sliding_window_cache
    if caches or source.outputs > 3 or any(v is not None for v in (k_scale, v_scale, *more)):
        raise Unsupported("GroupQueryAttention with caches quantised or of a window, scores as a result, or lengths")
    if (q_norm is None) != (k_norm is None):
        raise ModelError("GroupQueryAttention that normalises queries but no keys, or the other way round")
    if (past_k is None) != (past_v is None) or (k is None) != (v is None):
        raise ModelError("GroupQueryAttention with keys but no values, or the other way round")
    if num_heads < 1 or kv_num_heads < 1 or num_heads % kv_num_heads:
        raise ModelError(
            f"GroupQueryAttention of {num_heads} heads in {kv_num_heads} groups, which have to be of equal size"
        )
    for n, x, rank in ((3, past_k, 4), (4, past_v, 4), (9, positions, 2), (10, bias, 4)):
        if x is not None and x.rank != rank:
            raise ModelError(f"GroupQueryAttention whose input {n} is {x.type!r}, and rank {rank} is needed")
    if q.dtype not in (F32, F16):
        raise Unsupported(f"GroupQueryAttention of {q.dtype!r}")
    q, k, v = _by_group(q, k, v, num_heads, kv_num_heads)
    batch, _, length, _ = q.shape
    total = cast(integer(source, 6, "the length of GroupQueryAttention"), I64)
    begin = larger(last.cast(I64) + 1 - q.range(length, 1), 0).reshape(batch)
    row = begin.reshape(batch, 1) + count_positions(q, length).cast(I64)  # [B, S]
    if q_norm is not None and k_norm is not None:
        q = apply_op(RMSNormalization(-1, q_norm_epsilon or qk_norm_epsilon), q, q_norm)
        k = apply_op(RMSNormalization(-1, k_norm_epsilon or qk_norm_epsilon), k, k_norm)
    if do_rotary:
        if cos is None or sin is None:
            raise ModelError("GroupQueryAttention with rotary positions needs inputs 7 and 8, cosines and sines")
        at = row if positions is None else positions
        turns = angles(source, cos, sin, at)
        q, k = (turn(source, x, *turns, rotary_interleaved) for x in (q, k))
    if past_k is not None and past_v is not None:
        have = past_k.shape[2]
        append = Appended(have if have is total else max_of(have, total))
        k, v = apply_op(append, past_k, k, begin), apply_op(append, past_v, v, begin)
    demand_in_range(source, last.value, k.shape[2], negative=False)

    seen = _mask_unseen(q, k.shape[2], row, causal, local_window_size)
    if bias is not None:
        same_dim(bias.shape[3], total, bias.builder.graph.constraints, "the addend of GroupQueryAttention")
        left, none = k.shape[2] - bias.shape[3], (const(0),) * 4  # caches may have room behind the sequences
        if as_int(left) != 0:
            bias = apply_op(Pad(none, (*none[1:], left)), bias, -math.inf)
        by_group = (1, 1) if bias.size(1) == 1 else (kv_num_heads, num_heads // kv_num_heads)
        bias = bias.reshape(bias.shape[0], *by_group, *bias.shape[2:])
    mask, scale = add_present((seen, bias)), scale or 1 / math.sqrt(q.size(-1) or 1)
    grouped = q.reshape(batch, kv_num_heads, num_heads // kv_num_heads, *q.shape[2:])
    keys, values = (x.reshape(x.shape[0], kv_num_heads, 1, *x.shape[2:]) for x in (k, v))
    if softcap or sink is not None or smooth_softmax > 0:
        scores = (grouped @ keys.transpose(0, 1, 2, 4, 3)) * scale
        y = _weights(scores, mask, sink, softcap, smooth_softmax > 0) @ values
    else:
        y = apply_op(Attention(scale), grouped, keys, values, mask)
    return [merge_heads(y.reshape(*q.shape)), k, v]


def _by_group(q: Tensor, k: Tensor | None, v: Tensor | None, count: int, groups: int) -> list[Tensor]:
    """Queries, keys and values by head; all three are in q where there are no others."""
    counts = count, groups, groups
    if k is None or v is None:
        width = q.size(-1) if q.rank == 3 else None
        if width is None or width % sum(counts):
            raise ModelError(
                f"GroupQueryAttention of packed {q.type!r} in {counts} heads"
                ", whose last dimension these heads have to divide"
            )
        q, k, v = q.split(2, *(width // sum(counts) * n for n in counts))
    return [split_heads(x, n) for x, n in zip((q, k, v), counts, strict=True)]


def _mask_unseen(q: Tensor, length: Expr, row: Tensor, causal: int, back: int) -> Tensor | None:
    """-inf where a position is later than the query's, or further back than the window: [B, 1, 1, S, T]."""
    row = row.reshape(row.shape[0], 1, 1, row.shape[1], 1)
    column = count_positions(q, length).cast(I64)
    if not causal:  # up to the last of the sequence
        row = row.max(3)
    seen = column <= row
    if back > 0:
        seen = seen & (column > row - back)
    return hide_unseen(seen, q, -np.inf)


def _weights(scores: Tensor, mask: Tensor | None, sink: Tensor | None, softcap: float, smooth: bool) -> Tensor:
    """The softmax of scores [B, G, H / G, S, T] that are bounded, or in which a logit of each head takes part."""
    if softcap:
        scores = tanh(scores / softcap) * softcap
    scores = scores if mask is None else scores + mask
    if sink is None and not smooth:
        return scores.softmax(-1)
    logit = scores.constant(0.0) if sink is None else sink.reshape(*scores.shape[1:3], 1, 1)
    wide = concat(scores, logit.expand(*scores.shape[:-1], 1), axis=4).softmax(-1)
    return wide.split(4, scores.shape[-1], 1)[0]
