"""Attention of a decoder's step, as ONNX Runtime's generation tools write it."""

from __future__ import annotations

from dataclasses import dataclass

from ...errors import ModelError
from ...expr import I64, call, cast, const
from ...graph import Value
from ..core.axes import both, constraints_of, integer, require
from ..core.base import operator
from ..core.compose import apply
from ..core.source import SourceNode, Unsupported
from ..tensor.parts import Slice
from ..tensor.view import Concat
from .attention import Appended, ProjectedHeads, projected
from .base import DOMAIN


@operator("DecoderMaskedMultiHeadAttention", DOMAIN)
@dataclass(frozen=True)
class DecoderMaskedMultiHeadAttention(ProjectedHeads):
    """Attention of one query of each sequence, [B, 1, H * D], to a past and itself, or to keys of an encoder.

    Operands: the query (or query, key and value side by side), key and value in the same form (or those of the
    encoder, [B, H, T, D]), perhaps a mask [B, T], an addend of the scores, keys and values of the past [B, H, P, D],
    how many of these there are where the present is written among them, the width of beams and where each comes from,
    and the bias of all three. Results: [B, 1, H * D], keys and values of past and present.
    """

    output_qk: int = 0
    past_present_share_buffer: int = 0

    def make(self, source: SourceNode) -> list[Value]:
        b, past = source.builder, (source.input(5), source.input(6))
        if source.outputs > 3 or self.output_qk or source.input(9) is not None:
            raise Unsupported("DecoderMaskedMultiHeadAttention with scores as a result, or with beams")
        bias, key = source.input(10), source.input(1)
        if key is None:
            packed = source.required(0) if bias is None else apply(b, "Add", source.required(0), bias)
            q, k, v = projected(source, packed, (), self.num_heads)
        else:
            q, k, v = self.operands(source, bias)
        if q.type.rank != 4 or q.shape[2] is not const(1):
            raise ModelError(f"DecoderMaskedMultiHeadAttention of queries {source.required(0).type!r}, of one position")
        found, made = (q, k, v), (k, v)
        if past[0] is not None and past[1] is not None and (key is None or key.type.rank == 3):
            if self.past_present_share_buffer:
                made, seen = self._written(source, (past[0], past[1]), (k, v))
            else:
                seen = made = b.one(Concat(2), past[0], k), b.one(Concat(2), past[1], v)
            found = (q, *seen)
        return [self.attend(source, found, source.input(3), source.input(4)), *made]

    def _written(
        self, source: SourceNode, past: tuple[Value, Value], new: tuple[Value, Value]
    ) -> tuple[tuple[Value, Value], tuple[Value, Value]]:
        """The buffers of keys and values with the new ones behind those of the past, and their parts that count."""
        b, batch = source.builder, new[0].shape[0]
        count = cast(integer(source, 7, f"the length of the past of {source.op_type}"), I64)
        for old in past:
            inside = both(call("ge", count, 0), call("lt", count, old.shape[2]))
            require(constraints_of(source), inside, f"a past of {count!r} entries in a buffer {old.type!r}")
        at = apply(b, "Expand", apply(b, "Range", start=count, step=const(1), count=const(1)), shape=(batch,))

        def part(x: Value) -> Value:
            sizes = (*x.shape[:2], count + 1, x.shape[3])
            return b.one(Slice((const(0),) * 4, sizes, (1,) * 4), x)

        k, v = (b.one(Appended(old.shape[2]), old, x, at) for old, x in zip(past, new, strict=True))
        return (k, v), (part(k), part(v))
