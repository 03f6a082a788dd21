"""Text as features: tokens, and n-grams that are counted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ...base.errors import ModelError
from ...expr import F32, I64, STRING, as_int, const, eq
from ...graph import Node, Partial, TensorType, Value
from ..core.base import Constraints, Index, Inputs, LoopNest, Op, Read, affordable, filled, need, operator
from ..core.functions import min as smaller
from ..core.host import emit
from ..core.reach import clamped
from ..core.scalar import Scalar, element, equal, where
from ..core.source import SourceNode, Unsupported, text_of
from ..core.tensor import Tensor
from ..tensor.view import Reshape
from .regex import compile_between, compile_pattern
from .strings import Text, find, texts

Array = np.ndarray[Any, Any]


@operator("CountGrams", "torshc")
@dataclass(frozen=True)
class CountGrams(Op):
    """How often each n-gram occurs in the rows of x[N, C], its elements 1 to `distances` places apart: f32[N, J].

    Operands: x, grams[J, L] and their lengths[J]; one of length 0 is never found, one of length 1 at one distance only.
    """

    family: ClassVar[str] = "nest"
    distances: int = 1

    def infer(self, inputs: Inputs, constraints: Constraints) -> list[TensorType]:
        x, grams = need(inputs[0], "input 0 of CountGrams"), need(inputs[1], "the grams of CountGrams")
        return [TensorType(F32, (x.shape[0], grams.shape[0]))]

    def nest(self, node: Node, output: int) -> LoopNest:
        x, grams = node.operands[0].shape, node.operands[1].shape
        longest = as_int(grams[1]) or 0

        def body(at: Index, inner: Index, read: Read) -> Scalar:
            length = read(2, (at[1],))
            hit = (length > 0) & ((length > 1) | element(eq(inner[1], 0)))
            for k in range(longest):
                place = inner[0] + inner[1] * k + k
                fits = element(place < x[1])
                same = equal(read(0, (at[0], clamped(place, x[1]))).cast(I64), read(1, (at[1], const(k))))
                hit = hit & ((length <= k) | fits & same)
            return where(hit, element(1, F32), 0)

        return LoopNest(body, (x[1], const(self.distances)), "add")


def _grams(source: SourceNode, pool: Any) -> tuple[Array, Array]:
    """A pool's n-grams as a matrix in the order of the outputs, and their lengths: 0 for those of unwanted ones."""
    starts, places = source.attribute("ngram_counts"), source.attribute("ngram_indexes")
    low, high = int(source.attribute("min_gram_length", 1)), int(source.attribute("max_gram_length", 1))
    if not pool or not starts or not places or not 0 < low <= high or min(places) < 0:
        raise ModelError("TfIdfVectorizer needs a pool, its counts and indexes")
    if len(set(places)) != len(places):
        raise Unsupported("TfIdfVectorizer that counts several n-grams in one place")
    ends = [*starts[1:], len(pool)]
    rows = []
    for n, (start, end) in enumerate(zip(starts, ends, strict=True), 1):
        if not 0 <= start <= end <= len(pool) or (end - start) % n:
            raise ModelError(
                f"TfIdfVectorizer with counts {list(starts)} and a pool of {len(pool)}"
                ", where counts have to rise, by multiples of n for n-grams of n words"
            )
        rows += [(n, pool[k : k + n]) for k in range(start, end, n)]
    if len(rows) != len(places) or (max(places) + 1) * len(starts) > 1 << 22:
        raise ModelError(
            f"TfIdfVectorizer with {len(rows)} n-grams and {len(places)} indexes"
            ", where each n-gram needs one, which is small"
        )
    grams = np.zeros((max(places) + 1, len(starts)), np.int64)
    lengths = np.zeros(max(places) + 1, np.int64)
    for place, (n, gram) in zip(places, rows, strict=True):
        grams[place, :n], lengths[place] = gram, n if low <= n <= high else 0
    return grams, lengths


@operator()
@dataclass(frozen=True)
class TfIdfVectorizer(Op):
    """N-grams counted ("TF"), noted where present and weighed ("IDF"), or counted and weighed ("TFIDF").

    They are of integers, or of strings, which integers then stand for.

    x is [C] or [N, C]; the result has an element for each n-gram in place of each of the C. At import, a count and a
    product. Weights that would mean one thing in the order of the pool, as ONNX's text has it, and another in that of
    the results, as its reference has it, are refused.
    """

    objects: ClassVar[bool] = True

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        b, x, pool = source.builder, source.required(0), source.attribute("pool_int64s")
        words = source.attribute("pool_strings")
        if x.dtype is STRING and words:
            words = [text_of(w, "pool_strings") for w in words]
            x, ordered = find(b, x, words)
            number = {w: k for k, w in enumerate(ordered)}
            pool = [number[w] for w in words]
        grams, lengths = _grams(source, pool)
        mode, weights = str(source.attribute("mode", "TF")), source.attribute("weights")
        skips = int(source.attribute("max_skip_count", 0))
        source.fields(cls)
        if x.type.rank not in (1, 2) or not x.dtype.is_int:
            raise ModelError(
                f"TfIdfVectorizer of {x.type!r}, where a vector or a matrix of integers or strings is needed"
            )
        if weights is not None and mode != "TF" and len(weights) != len(lengths):
            raise ModelError(
                f"TfIdfVectorizer of {len(lengths)} n-grams with {len(weights)} weights, where each needs one"
            )
        if mode != "TF" and weights and [weights[p] for p in source.attribute("ngram_indexes")] != list(weights):
            raise Unsupported("TfIdfVectorizer with weights in another order than that of the results")
        filled(source.inputs, "TfIdfVectorizer")
        matrix = x if x.type.rank > 1 else b.one(Reshape((const(1), *x.shape)), x)
        affordable("TfIdfVectorizer", x.shape[-1] * (skips + 1), matrix.shape[0] * len(lengths))
        out = Tensor(b, b.one(CountGrams(skips + 1), matrix, b.constant(grams), b.constant(lengths)))
        if mode == "IDF":
            out = smaller(out, 1.0)
        if mode != "TF" and weights:
            out = out * out.constant(np.asarray(weights, np.float32))
        return [(out if x.type.rank > 1 else out.reshape(len(lengths))).value]


@operator("Tokenizer", "com.microsoft")
@dataclass(frozen=True)
class Tokenizer(Text):
    """The tokens of each text along a new last dimension, filled up with `pad_value`; ONNX Runtime's operator.

    A token is a longest match of `tokenexp` from the left, of at least `mincharnum` code points, or what stands between
    `separators`. One empty separator, or the expression ".", makes each code point a token. With `mark`, those of a
    text stand between U+0002 and U+0003. Without any token the new dimension is 0.
    """

    function: ClassVar[str] = "t_op_text_tokens"
    file: ClassVar[str] = "t_op_regex.c"
    mark: int = 0
    mincharnum: int = 1
    pad_value: str = ""
    separators: tuple[str, ...] = ()
    tokenexp: str = ""

    def integers(self) -> tuple[int, ...]:
        return self.mincharnum, int(self.mark != 0)

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        b, x, op = source.builder, source.required(0), cls(**source.fields(cls))
        letters = op.separators == ("",) or op.tokenexp == "."
        if x.dtype is not STRING or x.type.rank not in (1, 2) or (letters and op.mincharnum > 1):
            raise ModelError(
                f"Tokenizer of {x.type!r} with mincharnum {op.mincharnum}"
                ", where strings, a vector or a matrix, are needed, and single letters are not left out"
            )
        if bool(op.separators) == bool(op.tokenexp):
            raise ModelError("Tokenizer needs either separators or tokenexp")
        if op.separators and not letters:
            program = compile_between([text_of(t, "a separator") for t in op.separators])
        else:
            program = compile_pattern("(?s:.)" if letters else text_of(op.tokenexp, "tokenexp"))
        around = texts(b, [text_of(op.pad_value, "pad_value"), "\x02", "\x03"])
        return emit(source, op, [x, b.constant(program), around], Partial(STRING, (*x.shape, None)))
