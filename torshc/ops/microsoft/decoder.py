"""Attention of a decoder's step, as ONNX Runtime's generation tools write it."""

from __future__ import annotations

from ...base.errors import ModelError
from ...expr import I64, Expr, cast, const
from ..core.axes import both, constraints_of, integer, require
from ..core.composite import composite
from ..core.functions import concat
from ..core.source import SourceNode, Unsupported
from ..core.tensor import Tensor, apply_op
from .attention import FILTER, Appended, attend, by_head, split_projection
from .base import DOMAIN


@composite("DecoderMaskedMultiHeadAttention", DOMAIN)
def decoder_masked_multi_head_attention(
    source: SourceNode, query: Tensor, key: Tensor | None = None, value: Tensor | None = None,
    mask: Tensor | None = None, addend: Tensor | None = None, past_k: Tensor | None = None,
    past_v: Tensor | None = None, past_length: Tensor | None = None, beam_width: Tensor | None = None,
    indirection: Tensor | None = None, bias: Tensor | None = None, *, num_heads: int = 0, scale: float = 0.0,
    mask_filter_value: float = FILTER, output_qk: int = 0, past_present_share_buffer: int = 0,
) -> list[Tensor]:  # fmt: skip
    """Attention of one query of each sequence, [B, 1, H * D], to a past and itself, or to keys of an encoder.

    Operands: the query (or query, key and value side by side), key and value in the same form (or those of the
    encoder, [B, H, T, D]), perhaps a mask [B, T], an addend of the scores, keys and values of the past [B, H, P, D],
    how many of these there are where the present is written among them, the width of beams and where each comes from,
    and the bias of all three. Results: [B, 1, H * D], keys and values of past and present.
    """
    if source.outputs > 3 or output_qk or indirection is not None:
        raise Unsupported("DecoderMaskedMultiHeadAttention with scores as a result, or with beams")
    if (past_k is None) != (past_v is None):
        raise ModelError("DecoderMaskedMultiHeadAttention with past keys but no past values, or the other way round")
    if key is None:
        q, k, v = split_projection(query if bias is None else query + bias, (), num_heads)
    else:
        q, k, v = by_head(query, key, value, bias, num_heads)
    if q.rank != 4 or q.shape[2] is not const(1):
        raise ModelError(f"DecoderMaskedMultiHeadAttention of queries {query.type!r}, where one position is needed")
    made = seen = k, v
    if past_k is not None and past_v is not None and (key is None or key.rank == 3):
        if past_present_share_buffer:
            count = _length(source, past_k, past_v)
            at = q.range(count, 1).expand(q.shape[0])
            made = _written(past_k, k, at), _written(past_v, v, at)
            seen = _start(made[0], count + 1), _start(made[1], count + 1)
        else:
            made = seen = concat(past_k, k, axis=2), concat(past_v, v, axis=2)
    return [attend(q, *seen, mask, addend, mask_filter_value, scale), *made]


def _length(source: SourceNode, *buffers: Tensor) -> Expr:
    """How many entries of the buffers of the past count."""
    count = cast(integer(source, 7, f"the length of the past of {source.op_type}"), I64)
    for x in buffers:
        inside = both(count >= 0, count < x.shape[2])
        require(constraints_of(source), inside, f"a past of {count!r} entries in a buffer {x.type!r}")
    return count


def _written(buffer: Tensor, new: Tensor, at: Tensor) -> Tensor:
    return apply_op(Appended(buffer.shape[2]), buffer, new, at)


def _start(x: Tensor, count: Expr) -> Tensor:
    return x.slice((const(0),) * 4, (*x.shape[:2], count, x.shape[3]))
