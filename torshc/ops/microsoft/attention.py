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

from ...errors import ModelError
from ...expr import F16, F32, I64, Expr, as_int, call, cast, const, select
from ...graph import Builder, Node, TensorType, Value
from ..core.axes import integer
from ..core.base import Constraints, Index, Inputs, Nest, Op, Read, need, operator, same_dim
from ..core.bounds import demand_in_range
from ..core.compose import apply, as_type
from ..core.reach import within
from ..core.source import SourceNode, Unsupported
from ..nn.attention import Attention
from ..nn.heads import added, heads, kept, merged, places, window
from ..nn.norm import Softmax
from ..nn.rotary import rotated
from ..tensor.parts import Split
from ..tensor.view import Concat, Reshape, Transpose
from .base import DOMAIN, Contrib, part
from .quantize import integers, scaled

FILTER = -10000.0  # what a masked score gets by default


def padding(source: SourceNode, mask: Value | None, like: Value, length: Expr, hidden: float) -> Value | None:
    """What a mask of keys adds to the scores, [B, 1, S or 1, T].

    Args:
        mask: 0 where hidden, of [B, T] or [B, S, T]; or ends of sequences [B], or ends and then starts [2 * B].
        like: the queries, [B, H, S, D].
        length: T.
    """
    if mask is None:
        return None
    b, batch = source.builder, like.shape[0]
    if mask.type.rank in (2, 3):
        shape = (mask.shape[0], *(const(1),) * (4 - mask.type.rank), *mask.shape[1:])
        same_dim(mask.shape[-1], length, b.graph.constraints, f"the mask of {source.op_type}")
        return kept(b, apply(b, "Greater", b.one(Reshape(shape), mask), 0), like, hidden)
    if mask.type.rank != 1 or _contradicts(mask.shape[0], batch):
        raise Unsupported(f"{source.op_type} of {like.type!r} with a mask {mask.type!r}")
    ends, column = mask, as_type(b, places(b, length), mask.dtype)
    starts: Value | None = None
    if mask.shape[0] is batch * 2 and mask.shape[0] is not batch:
        ends, starts = b.add(Split(0, (batch, batch)), [mask])
    else:
        same_dim(mask.shape[0], batch, b.graph.constraints, f"ends of sequences for {source.op_type}")
    shape = (batch, *(const(1),) * 3)
    seen = apply(b, "Less", column, b.one(Reshape(shape), ends))
    if starts is not None:
        seen = apply(b, "And", seen, apply(b, "GreaterOrEqual", column, b.one(Reshape(shape), starts)))
    return kept(b, seen, like, hidden)


def _contradicts(count: Expr, batch: Expr) -> bool:
    """Whether there is surely neither one number for each sequence nor two."""
    have, wanted = as_int(count), as_int(batch)
    return have is not None and wanted is not None and have not in (wanted, 2 * wanted)


@dataclass(frozen=True)
class Heads(Contrib):
    """Base of the operators, with what they share."""

    num_heads: int = 0
    scale: float = 0.0
    mask_filter_value: float = FILTER

    def attend(
        self, source: SourceNode, qkv: Sequence[Value], mask: Value | None, bias: Value | None, causal: int = 0
    ) -> Value:
        """The result [B, S, H * D] of q[B, H, S, D], k and v, whose first T - S positions are from the past."""
        b, (q, k, v) = source.builder, qkv
        length = k.shape[2]
        terms = [padding(source, mask, q, length, self.mask_filter_value), bias]
        if causal and as_int(length - q.shape[2]) != 0:
            terms.append(window(b, q, length, length - q.shape[2], -1, 0))
            causal = 0
        total = added(b, terms)
        width = as_int(q.shape[-1])
        if not width:
            raise ModelError(f"{source.op_type} of heads {q.type!r}")
        op = Attention(self.scale or 1 / math.sqrt(width), causal=bool(causal))
        return merged(b, b.one(op, q, k, v, *([total] if total is not None else [])))


def projected(source: SourceNode, qkv: Value, sizes: Sequence[int], count: int) -> list[Value]:
    """Queries, keys and values by head, which stand side by side in qkv[B, S, ..]."""
    b, width = source.builder, as_int(qkv.shape[-1]) if qkv.type.rank == 3 else None
    if width is None or len(sizes) not in (0, 3) or (sizes and sum(sizes) != width) or (not sizes and width % 3):
        raise ModelError(f"{source.op_type} of queries, keys and values {qkv.type!r} of sizes {list(sizes)}")
    parts = tuple(const(n) for n in (sizes or (width // 3,) * 3))
    return [heads(b, x, count) for x in b.add(Split(2, parts), [qkv])]


def joined(b: Builder, past: Value | None, k: Value, v: Value) -> tuple[Value, Value, Value]:
    """Keys and values behind those of past[2, B, H, P, D], and both as [2, B, H, T, D]."""
    if past is not None:
        if past.type.rank != 5:
            raise ModelError(f"attention with a past {past.type!r}")
        before = [b.one(Reshape(past.shape[1:]), part(b, past, 0, n, n + 1)) for n in (0, 1)]
        k, v = (b.one(Concat(2), old, new) for old, new in zip(before, (k, v), strict=True))
    if as_int(k.shape[-1]) != as_int(v.shape[-1]):
        return k, v, k
    return k, v, b.one(Concat(0), *(b.one(Reshape((const(1), *x.shape)), x) for x in (k, v)))


@operator("Attention", DOMAIN)
@dataclass(frozen=True)
class SelfAttention(Heads):
    """Attention of x[B, S, I] with itself, projected by weights [I, 3 * H * D] and a bias.

    Operands: x, weights, perhaps bias, mask, past [2, B, H, P, D] and an addend of the scores. Results: [B, S, H * D],
    and keys and values of past and present.
    """

    do_rotary: int = 0
    past_present_share_buffer: int = 0
    qkv_hidden_sizes: tuple[int, ...] = ()
    rotary_embedding_dim: int = 0
    unidirectional: int = 0

    def make(self, source: SourceNode) -> list[Value]:
        if self.do_rotary or self.past_present_share_buffer or source.input(6) is not None:
            raise Unsupported("Attention with rotary positions or a past that shares its memory with the present")
        b, bias = source.builder, source.input(2)
        qkv = apply(b, "MatMul", source.required(0), source.required(1))
        qkv = qkv if bias is None else apply(b, "Add", qkv, bias)
        q, k, v = projected(source, qkv, self.qkv_hidden_sizes, self.num_heads)
        k, v, present = joined(b, source.input(4), k, v)
        if source.outputs > 1 and present is k:
            raise Unsupported("Attention whose keys and values differ in size, with a present")
        return [self.attend(source, (q, k, v), source.input(3), source.input(5), self.unidirectional), present]


@operator("QAttention", DOMAIN)
@dataclass(frozen=True)
class QAttention(Heads):
    """Attention of quantised x by quantised weights.

    Operands: x, weights, bias, their scales, and perhaps mask, their zero points, and past.
    """

    floating: ClassVar[bool] = False
    do_rotary: int = 0
    past_present_share_buffer: int = 0
    unidirectional: int = 0

    def make(self, source: SourceNode) -> list[Value]:
        if self.do_rotary or self.past_present_share_buffer:
            raise Unsupported("QAttention with rotary positions or a past that shares its memory with the present")
        total = integers(source, source.required(0), source.input(6), source.required(1), source.input(7))
        qkv = scaled(source, total, source.required(3), source.required(4), source.required(2))
        q, k, v = projected(source, qkv, (), self.num_heads)
        k, v, present = joined(source.builder, source.input(8), k, v)
        return [self.attend(source, (q, k, v), source.input(5), None, self.unidirectional), present]


@dataclass(frozen=True)
class ProjectedHeads(Heads):
    """Base of the operators whose queries, keys and values are projected already."""

    def operands(self, source: SourceNode, bias: Value | None) -> list[Value]:
        """Queries, keys and values by head."""
        b, q, k, v = source.builder, source.required(0), source.input(1), source.input(2)
        if q.type.rank == 5:
            given = self._packed(b, q, 3)
        elif k is None:
            raise ModelError(f"{source.op_type} of {q.type!r} without keys")
        elif k.type.rank == 5:
            given = [q, *self._packed(b, k, 2)]
        else:
            given = [q, k, source.required(2) if v is None else v]
        if any(x.type.rank not in (3, 4) for x in given):
            raise ModelError(f"{source.op_type} of {' and '.join(repr(x.type) for x in given)}")
        if bias is not None:
            sizes = [x.shape[-1] * (x.shape[1] if x.type.rank == 4 else 1) for x in given]
            shifts = b.add(Split(0, tuple(sizes)), [bias])
            given = [x if x.type.rank == 4 else apply(b, "Add", x, s) for x, s in zip(given, shifts, strict=True)]
        return [x if x.type.rank == 4 else heads(b, x, self.num_heads) for x in given]

    def _packed(self, b: Builder, x: Value, count: int) -> list[Value]:
        """The parts of x[B, S, H, count, D] as [B, S, H * D]."""
        if as_int(x.shape[3]) != count:
            raise ModelError(f"MultiHeadAttention of packed {x.type!r}")
        shape = (*x.shape[:2], x.shape[2] * x.shape[4])
        return [b.one(Reshape(shape), part(b, x, 3, n, n + 1)) for n in range(count)]


@operator("MultiHeadAttention", DOMAIN)
@dataclass(frozen=True)
class MultiHeadAttention(ProjectedHeads):
    """Attention of queries to keys and values that are projected already.

    Operands: queries [B, S, H * D], keys and values in the same form or by head [B, H, T, D] (which take no bias), or
    packed [B, S, H, 3, D] and [B, S, H, 2, D]; perhaps the bias of all three, a mask, an addend of the scores, keys and
    values of the past [B, H, P, D]. Results: [B, S, H * D], keys and values of past and present.
    """

    unidirectional: int = 0

    def make(self, source: SourceNode) -> list[Value]:
        b = source.builder
        if source.outputs > 3 or source.input(8) is not None or source.input(9) is not None:
            raise Unsupported("MultiHeadAttention with scores as a result, a shared past or indirections")
        q, k, v = self.operands(source, source.input(3))
        past = source.input(6), source.input(7)
        if past[0] is not None and past[1] is not None:
            k, v = b.one(Concat(2), past[0], k), b.one(Concat(2), past[1], v)
        return [self.attend(source, (q, k, v), source.input(4), source.input(5), self.unidirectional), k, v]


# -- rotary positions -------------------------------------------------------------------------------------------------


@operator("RotaryEmbedding", DOMAIN)
@dataclass(frozen=True)
class RotaryEmbedding(Contrib):
    """x[B, S, H * D] or [B, H, S, D] rotated by the angles of positions [B, S], or from one position [1] on."""

    interleaved: int = 0
    is_packed_batching: int = 0
    num_heads: int = 0
    rotary_embedding_dim: int = 0
    scale: float = 1.0

    def make(self, source: SourceNode) -> list[Value]:
        b, x, at, cos = source.builder, source.required(0), source.required(1), source.required(2)
        if self.is_packed_batching or self.scale != 1.0:
            raise Unsupported("RotaryEmbedding of packed batches or scaled")
        flat = x.type.rank == 3
        if flat:
            half, width = as_int(cos.shape[-1]) if cos.type.rank else None, as_int(x.shape[-1])
            count = self.num_heads
            if not self.rotary_embedding_dim and half and width:
                count = width // (2 * half)
            x = heads(b, x, count)
        elif x.type.rank != 4:
            raise ModelError(f"RotaryEmbedding of {x.type!r}")
        if at.type.rank < 2:
            first = b.one(Reshape((const(1), const(1))), at)
            at = apply(
                b, "Add", apply(b, "Range", start=const(0), step=const(1), count=x.shape[2], dtype=at.dtype), first
            )
        y = rotated(source, x, cos, source.required(3), at, bool(self.interleaved))
        return [merged(b, y) if flat else y]


# -- groups of heads with a cache -------------------------------------------------------------------------------------


_NONE = const(0)


@operator("Appended", "torshc")
@dataclass(frozen=True)
class Appended(Op):
    """A cache [B, G, P, D] with new entries [B, G, S, D] written into it from places [B] on; zeros behind both.

    Attributes:
        length: of the result.
    """

    family: ClassVar[str] = "nest"
    length: Expr = _NONE

    def infer(self, inputs: Inputs, constraints: Constraints) -> list[TensorType]:
        past, new, at = (need(v, f"input {k} of Appended") for k, v in enumerate(inputs))
        if past.type.rank != 4 or new.type.rank != 4 or past.dtype is not new.dtype or at.type.rank != 1:
            raise ModelError(f"a cache {past.type!r} with {new.type!r} at {at.type!r}")
        for k in (0, 1, 3):
            same_dim(past.shape[k], new.shape[k], constraints, f"a cache {past.type!r} with {new.type!r}")
        same_dim(new.shape[0], at.shape[0], constraints, "the batch of a cache")
        return [TensorType(new.dtype, (*new.shape[:2], self.length, new.shape[3]))]

    def nest(self, node: Node, output: int) -> Nest:
        old, new = (v.shape[2] for v in node.operands[:2])

        def body(at: Index, _: Index, read: Read) -> Expr:
            place = at[2] - cast(read(2, at[:1]), I64)
            ahead = call("and", call("ge", place, 0), call("lt", place, new))
            past = within(read, 0, at, node.operands[0].shape, (2,))
            before = select(call("lt", at[2], old), past, const(0.0, past.dtype))
            return select(ahead, within(read, 1, (*at[:2], place, at[3]), node.operands[1].shape, (2,)), before)

        return Nest(body)


@operator("GroupQueryAttention", DOMAIN)
@dataclass(frozen=True)
class GroupQueryAttention(Contrib):
    """Attention of H heads of queries to G heads of keys and values, whose past is a cache.

    Operands: queries [B, S, H * D], keys and values [B, S, G * D] (or all in one), caches of keys and values
    [B, G, P, D], the last position of each sequence [B], the longest sequence, tables of cosines and sines, positions
    [B, S], an addend of the scores, a logit of each head that takes part in the softmax and has no value. Results:
    [B, S, H * D] and the caches, of max(P, longest) positions.
    """

    causal: int = 1
    do_rotary: int = 0
    k_quant_type: str = "NONE"
    kv_cache_bit_width: int = 0
    kv_num_heads: int = 0
    local_window_size: int = -1
    num_heads: int = 0
    qk_norm_epsilon: float = 1e-6
    qk_output: int = 0
    rotary_interleaved: int = 0
    scale: float = 0.0
    sliding_window_cache: int = 0
    smooth_softmax: int = -1
    softcap: float = 0.0
    v_quant_type: str = "NONE"

    def make(self, source: SourceNode) -> list[Value]:
        self._refuse(source)
        b = source.builder
        q, k, v = self._operands(source)
        batch, _, length, _ = q.shape
        last, longest = source.required(5), cast(integer(source, 6, "the length of GroupQueryAttention"), I64)
        begin = apply(b, "Max", apply(b, "Sub", apply(b, "Add", as_type(b, last, I64), 1), self._number(b, length)), 0)
        begin = b.one(Reshape((batch,)), begin)
        row = apply(b, "Add", b.one(Reshape((batch, const(1))), begin), as_type(b, places(b, length), I64))  # [B, S]
        if self.do_rotary:
            at = row if source.input(9) is None else source.required(9)
            tables = source.required(7), source.required(8)
            q, k = (rotated(source, x, *tables, at, bool(self.rotary_interleaved)) for x in (q, k))
        past = source.input(3), source.input(4)
        if past[0] is not None and past[1] is not None:
            have = past[0].shape[2]
            whole = have if have is longest else call("max", have, longest)
            k, v = (b.one(Appended(whole), old, new, begin) for old, new in zip(past, (k, v), strict=True))
        demand_in_range(source, last, k.shape[2], negative=False)
        return [self._attend(source, q, k, v, row), k, v]

    def _refuse(self, source: SourceNode) -> None:
        caches = self.k_quant_type != "NONE" or self.v_quant_type != "NONE" or self.sliding_window_cache
        if caches or source.outputs > 3 or any(source.input(k) is not None for k in range(12, len(source.inputs))):
            raise Unsupported("GroupQueryAttention with caches quantised or of a window, scores as a result, or norms")
        if (source.input(3) is None) != (source.input(4) is None) or (source.input(1) is None) != (
            source.input(2) is None
        ):
            raise ModelError("GroupQueryAttention with keys but no values, or the other way round")
        if self.num_heads < 1 or self.kv_num_heads < 1 or self.num_heads % self.kv_num_heads:
            raise ModelError(f"GroupQueryAttention of {self.num_heads} heads in {self.kv_num_heads} groups")
        for k, rank in ((3, 4), (4, 4), (9, 2), (10, 4)):
            v = source.input(k)
            if v is not None and v.type.rank != rank:
                raise ModelError(f"GroupQueryAttention whose input {k} is {v.type!r}, and rank {rank} is needed")
        if source.required(0).dtype not in (F32, F16):
            raise Unsupported(f"GroupQueryAttention of {source.required(0).dtype!r}")

    def _number(self, b: Builder, e: Expr) -> Value:
        """An expression as a tensor of one element."""
        return apply(b, "Range", start=e, step=const(1), count=const(1))

    def _operands(self, source: SourceNode) -> list[Value]:
        """Queries, keys and values by head."""
        b, q, counts = source.builder, source.required(0), (self.num_heads, self.kv_num_heads, self.kv_num_heads)
        if source.input(1) is not None:
            return [heads(b, source.required(n), count) for n, count in enumerate(counts)]
        width = as_int(q.shape[-1]) if q.type.rank == 3 else None
        if width is None or width % sum(counts):
            raise ModelError(f"GroupQueryAttention of packed {q.type!r} in {counts} heads")
        sizes = tuple(const(width // sum(counts) * count) for count in counts)
        return [heads(b, x, count) for x, count in zip(b.add(Split(2, sizes), [q]), counts, strict=True)]

    def _attend(self, source: SourceNode, q: Value, k: Value, v: Value, row: Value) -> Value:
        """The result of q[B, H, S, D] and k and v[B, G, T, D], by the positions [B, S] of the queries."""
        b, bias, sink = source.builder, source.input(10), source.input(11)
        groups, each = const(self.kv_num_heads), const(self.num_heads // self.kv_num_heads)
        one = const(1)
        width = as_int(q.shape[-1]) or 1
        scale = self.scale or 1 / math.sqrt(width)
        mask = self._mask(b, q, k.shape[2], row)
        if bias is not None:
            bias = (
                bias if as_int(bias.shape[-1]) == as_int(k.shape[2]) else part(b, bias, 3, 0, as_int(k.shape[2]) or 0)
            )
            if as_int(bias.shape[1]) == 1:
                bias = b.one(Reshape((bias.shape[0], one, one, *bias.shape[2:])), bias)
            else:
                bias = b.one(Reshape((bias.shape[0], groups, each, *bias.shape[2:])), bias)
        total = added(b, (mask, bias))
        grouped = b.one(Reshape((q.shape[0], groups, each, *q.shape[2:])), q)
        k, v = (b.one(Reshape((x.shape[0], groups, one, *x.shape[2:])), x) for x in (k, v))
        if self.softcap or sink is not None or self.smooth_softmax > 0:
            y = self._spelt_out(b, (grouped, k, v), total, sink, scale)
        else:
            y = b.one(Attention(scale), grouped, k, v, *([total] if total is not None else []))
        return merged(b, b.one(Reshape(q.shape), y))

    def _mask(self, b: Builder, q: Value, length: Expr, row: Value) -> Value | None:
        """-inf where a position is later than the query's, or further back than the window: [B, 1, 1, S, T]."""
        row = b.one(Reshape((row.shape[0], const(1), const(1), row.shape[1], const(1))), row)
        column = as_type(b, places(b, length), I64)
        if not self.causal:  # up to the last of the sequence
            row = apply(b, "ReduceMax", row, axes=(3,))
        seen = apply(b, "LessOrEqual", column, row)
        if self.local_window_size > 0:
            oldest = apply(b, "Sub", row, self.local_window_size)
            seen = apply(b, "And", seen, apply(b, "Greater", column, oldest))
        return kept(b, seen, q, -np.inf)

    def _spelt_out(
        self, b: Builder, qkv: tuple[Value, Value, Value], mask: Value | None, sink: Value | None, scale: float
    ) -> Value:
        """Attention of scores that are bounded, or of which a logit takes part."""
        q, k, v = qkv
        scores = apply(b, "Mul", apply(b, "MatMul", q, b.one(Transpose((0, 1, 2, 4, 3)), k)), scale)
        if self.softcap:
            scores = apply(b, "Mul", apply(b, "Tanh", apply(b, "Div", scores, self.softcap)), self.softcap)
        scores = scores if mask is None else apply(b, "Add", scores, mask)
        if sink is None and self.smooth_softmax <= 0:
            return apply(b, "MatMul", b.one(Softmax(-1), scores), v)
        shape = (*scores.shape[:-1], const(1))
        logit = b.constant(0.0, q) if sink is None else b.one(Reshape((*scores.shape[1:3], const(1), const(1))), sink)
        wide = b.one(Softmax(-1), b.one(Concat(4), scores, apply(b, "Expand", logit, shape=shape)))
        weights = b.add(Split(4, (scores.shape[-1], const(1))), [wide])[0]
        return apply(b, "MatMul", weights, v)
