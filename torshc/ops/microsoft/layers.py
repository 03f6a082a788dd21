"""Operators of ONNX Runtime's own domain, made of ONNX's others at import: fusions of its optimizers, and a few more.

Fields are the attributes with ONNX Runtime's names and defaults. Quantised ones are in :mod:`.quantize`,
those of attention in :mod:`.attention`. Decided here where its text leaves it open: what is saved for training
(a mean, an inverse deviation) is that of the sum which is normalised.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ...errors import ModelError
from ...expr import I32, I64, as_int, const, from_onnx
from ...graph import Value
from ..core.base import REGISTRY, axis_of, operator
from ..core.bounds import demand_in_range
from ..core.compose import apply, as_type
from ..core.source import SourceNode, Unsupported
from ..math.elimination import Elimination, eliminated
from ..nn.norm import LayerNormalization, RMSNormalization
from ..tensor.parts import Split
from ..tensor.view import Reshape
from .base import DOMAIN, OPSET, Contrib, channels_first, channels_last, node

# -- scalar functions -------------------------------------------------------------------------------------------------


@operator("Gelu", DOMAIN)
@dataclass(frozen=True)
class Gelu(Contrib):
    """x / 2 * (1 + erf(x / sqrt(2)))."""

    def make(self, source: SourceNode) -> list[Value]:
        return [apply(source.builder, "Gelu", source.required(0))]


@operator("BiasGelu", DOMAIN)
@dataclass(frozen=True)
class BiasGelu(Contrib):
    """Gelu of a sum."""

    def make(self, source: SourceNode) -> list[Value]:
        b = source.builder
        return [apply(b, "Gelu", apply(b, "Add", source.required(0), source.required(1)))]


@operator("FastGelu", DOMAIN)
@dataclass(frozen=True)
class FastGelu(Contrib):
    """Gelu by tanh, of a sum where there is a bias."""

    def make(self, source: SourceNode) -> list[Value]:
        b, x, bias = source.builder, source.required(0), source.input(1)
        return [apply(b, "Gelu", x if bias is None else apply(b, "Add", x, bias), approximate="tanh")]


@operator("QuickGelu", DOMAIN)
@dataclass(frozen=True)
class QuickGelu(Contrib):
    """x * sigmoid(alpha * x)."""

    alpha: float = 1.7020000219345093

    def make(self, source: SourceNode) -> list[Value]:
        return [apply(source.builder, "Swish", source.required(0), alpha=self.alpha)]


@operator("BiasSplitGelu", DOMAIN)
@dataclass(frozen=True)
class BiasSplitGelu(Contrib):
    """Of x + bias, the first half of the last dimension times Gelu of the second."""

    def make(self, source: SourceNode) -> list[Value]:
        b, x = source.builder, apply(source.builder, "Add", source.required(0), source.required(1))
        width = as_int(x.shape[-1]) if x.type.rank else None
        if width is None or width % 2:
            raise Unsupported(f"BiasSplitGelu of {x.type!r}")
        left, right = b.add(Split(x.type.rank - 1, (const(width // 2),) * 2), [x])
        return [apply(b, "Mul", left, apply(b, "Gelu", right))]


@operator("BiasAdd", DOMAIN)
@dataclass(frozen=True)
class BiasAdd(Contrib):
    """x + bias + skip."""

    def make(self, source: SourceNode) -> list[Value]:
        b = source.builder
        return [apply(b, "Add", apply(b, "Add", source.required(0), source.required(1)), source.required(2))]


@operator("IsAllFinite", DOMAIN)
@dataclass(frozen=True)
class IsAllFinite(Contrib):
    """Whether no operand has an element that is infinite or no number; a scalar."""

    mixed: ClassVar[bool] = True
    isinf_only: int = 0
    isnan_only: int = 0

    def make(self, source: SourceNode) -> list[Value]:
        b, total = source.builder, None
        for k in range(len(source.inputs)):
            x = source.required(k)
            marks = [
                apply(b, name, x) for name, off in (("IsInf", self.isnan_only), ("IsNaN", self.isinf_only)) if not off
            ]
            if not marks:
                raise ModelError("IsAllFinite of infinities only and of NaN only")
            bad = marks[0] if len(marks) == 1 else apply(b, "Or", *marks)
            found = apply(b, "ReduceMax", as_type(b, bad, I32), axes=tuple(range(x.type.rank)), keepdims=False)
            total = found if total is None else apply(b, "Max", total, found)
        if total is None:
            raise ModelError("IsAllFinite without inputs")
        return [apply(b, "Equal", total, 0)]


# -- normalisations ---------------------------------------------------------------------------------------------------


def _sum(source: SourceNode, *which: int) -> Value:
    """The sum of the operands that are there."""
    total = source.required(which[0])
    for k in which[1:]:
        v = source.input(k)
        total = total if v is None else apply(source.builder, "Add", total, v)
    return total


def _rms(source: SourceNode, x: Value, scale: Value, axis: int, epsilon: float) -> tuple[Value, Value]:
    """x normalised by its root mean square and scaled, and the inverse of that root."""
    b, axes = source.builder, tuple(range(axis_of(axis, x.type.rank), x.type.rank))
    square = apply(b, "ReduceMean", apply(b, "Mul", x, x), axes=axes)
    inverse = apply(b, "Reciprocal", apply(b, "Sqrt", apply(b, "Add", square, epsilon)))
    return b.one(RMSNormalization(axis, epsilon), x, scale), inverse


@operator("SimplifiedLayerNormalization")
@dataclass(frozen=True)
class SimplifiedLayerNormalization(Contrib):
    """RMSNormalization, as ONNX Runtime writes it into ONNX's own domain; and perhaps 1 / root mean square."""

    axis: int = -1
    epsilon: float = 1e-5
    stash_type: int = 1

    def make(self, source: SourceNode) -> list[Value]:
        if from_onnx(self.stash_type) is None:
            raise ModelError(f"there is no ONNX type {self.stash_type}")
        return [*_rms(source, source.required(0), source.required(1), self.axis, self.epsilon)]


@operator("SkipLayerNormalization", DOMAIN)
@dataclass(frozen=True)
class SkipLayerNormalization(Contrib):
    """LayerNormalization of input + skip + bias over the last dimension; its statistics, and the sum itself."""

    epsilon: float = 9.999999960041972e-13

    def make(self, source: SourceNode) -> list[Value]:
        total, scale, shift = _sum(source, 0, 1, 4), source.required(2), source.input(3)
        op = LayerNormalization(-1, self.epsilon, 3)
        return [*source.emit(op, [total, scale, *([shift] if shift is not None else [])]), total]


@operator("SkipSimplifiedLayerNormalization", DOMAIN)
@dataclass(frozen=True)
class SkipSimplifiedLayerNormalization(Contrib):
    """RMSNormalization of input + skip + bias over the last dimension; its statistics, and the sum itself."""

    epsilon: float = 9.999999960041972e-13

    def make(self, source: SourceNode) -> list[Value]:
        total = _sum(source, 0, 1, 3)
        y, inverse = _rms(source, total, source.required(2), -1, self.epsilon)
        return [y, apply(source.builder, "ReduceMean", total, axes=(total.type.rank - 1,)), inverse, total]


@operator("EmbedLayerNormalization", DOMAIN)
@dataclass(frozen=True)
class EmbedLayerNormalization(Contrib):
    """Rows of tables of words, positions and segments, summed and normalised; words in the mask; the sum itself.

    Operands: ids[B, S], segments or none, the three tables (that of segments may be absent), scale and shift, perhaps
    a mask[B, S], whose ones are counted, and positions[B or 1, S], 0.. where absent.
    """

    floating: ClassVar[bool] = False
    epsilon: float = 9.999999960041972e-13
    mask_index_type: int = 0

    def make(self, source: SourceNode) -> list[Value]:
        b, ids, positions = source.builder, source.required(0), source.input(8)
        segments, table, mask = source.input(1), source.input(4), source.input(7)
        if ids.type.rank != 2 or (segments is None) != (table is None):
            raise ModelError(
                f"EmbedLayerNormalization of {ids.type!r} with segments {segments} and their table {table}"
            )
        if positions is None:
            positions = apply(b, "Range", start=const(0), step=const(1), count=ids.shape[1])
        parts = []
        for table, rows in ((source.required(2), ids), (source.required(3), positions), (source.input(4), segments)):
            if table is None or rows is None:
                continue
            if table.type.rank != 2:
                raise ModelError(f"EmbedLayerNormalization with a table {table.type!r}")
            demand_in_range(source, rows, table.shape[0], use="position" if rows is positions else "index")
            parts.append(apply(b, "Gather", table, rows))
        total = parts[0]
        for each in parts[1:]:
            total = apply(b, "Add", total, each)
        if mask is not None and mask.type.rank != 2:
            raise ModelError(f"EmbedLayerNormalization with a mask {mask.type!r}")
        y = b.one(LayerNormalization(-1, self.epsilon), total, source.required(5), source.required(6))
        if mask is None:
            return [y, apply(b, "Expand", b.constant(0, ids), shape=ids.shape[:1]), total]
        ones = as_type(b, apply(b, "Equal", mask, 1), I32)
        return [y, as_type(b, apply(b, "ReduceSum", ones, axes=(1,), keepdims=False), ids.dtype), total]


@operator("BiasSoftmax", DOMAIN)
@dataclass(frozen=True)
class BiasSoftmax(Contrib):
    """Softmax of a sum, over all dimensions from `axis` on as one."""

    axis: int = 1
    is_inner_broadcast: int = 0

    def make(self, source: SourceNode) -> list[Value]:
        x, bias = source.required(0), source.required(1)
        if bias.type.rank != x.type.rank:
            raise Unsupported(f"BiasSoftmax of {x.type!r} with a bias {bias.type!r}")
        return [node(source, "Softmax", apply(source.builder, "Add", x, bias), opset=11, axis=self.axis)]


@dataclass(frozen=True)
class GroupNormBase(Contrib):
    """Base: groups of channels normalised, scaled, shifted, and perhaps times their sigmoid."""

    mixed: ClassVar[bool] = True
    activation: int = 0
    channels_last: int = 1
    epsilon: float = 1e-5
    groups: int = 0

    def normal(self, source: SourceNode, x: Value) -> Value:
        b = source.builder
        if x.type.rank < 3 or self.groups < 1:
            raise ModelError(f"{source.op_type} of {x.type!r} in {self.groups} groups")
        inner = channels_first(b, x) if self.channels_last else x
        vectors = [as_type(b, source.required(k), x.dtype) for k in (1, 2)]
        y = node(source, "GroupNormalization", inner, *vectors, opset=21, num_groups=self.groups, epsilon=self.epsilon)
        y = apply(b, "Swish", y) if self.activation else y
        return channels_last(b, y) if self.channels_last else y


@operator("GroupNorm", DOMAIN)
@dataclass(frozen=True)
class GroupNorm(GroupNormBase):
    """GroupNormalization of x[N, spatial, C], or [N, C, spatial]."""

    def make(self, source: SourceNode) -> list[Value]:
        return [self.normal(source, source.required(0))]


@operator("SkipGroupNorm", DOMAIN)
@dataclass(frozen=True)
class SkipGroupNorm(GroupNormBase):
    """GroupNorm of x + skip + bias, and that sum; a skip of rank 2 counts for all places."""

    def make(self, source: SourceNode) -> list[Value]:
        b, x, skip, bias = source.builder, source.required(0), source.required(3), source.input(4)
        ones = (const(1),) * (x.type.rank - 2)
        if not self.channels_last:
            raise Unsupported("SkipGroupNorm with channels first")
        if skip.type.rank == 2:
            skip = b.one(Reshape((skip.shape[0], *ones, skip.shape[1])), skip)
        total = apply(b, "Add", x, skip if bias is None else apply(b, "Add", skip, bias))
        return [self.normal(source, total), total]


# -- the rest ---------------------------------------------------------------------------------------------------------


@operator("Trilu", DOMAIN)
@dataclass(frozen=True)
class Trilu(Contrib):
    """ONNX's."""

    floating: ClassVar[bool] = False
    upper: int = 1

    def make(self, source: SourceNode) -> list[Value]:
        return [node(source, "Trilu", *source.inputs, upper=self.upper)]


@operator("GatherND", DOMAIN)
@dataclass(frozen=True)
class GatherND(Contrib):
    """ONNX's."""

    floating: ClassVar[bool] = False

    def make(self, source: SourceNode) -> list[Value]:
        return [node(source, "GatherND", source.required(0), source.required(1))]


@operator("Range", DOMAIN)
@dataclass(frozen=True)
class Range(Contrib):
    """ONNX's, of bounds that may be vectors of one element; in steps of 1 where none are given."""

    floating: ClassVar[bool] = False

    def make(self, source: SourceNode) -> list[Value]:
        b, step = source.builder, source.input(2)
        first, last = source.required(0), source.required(1)
        step = b.constant(1, first) if step is None else step
        return [node(source, "Range", *(b.one(Reshape(()), v) if v.type.rank else v for v in (first, last, step)))]


@operator("ExpandDims", DOMAIN)
@dataclass(frozen=True)
class ExpandDims(Contrib):
    """A dimension of 1 put in at an axis that is known when the model is read."""

    floating: ClassVar[bool] = False

    def make(self, source: SourceNode) -> list[Value]:
        axis = source.array(1, "the axis of ExpandDims")
        if axis is None or axis.size != 1:
            raise ModelError("ExpandDims needs one axis")
        return [
            node(source, "Unsqueeze", source.required(0), source.builder.constant(axis.reshape(1).astype(I64.numpy)))
        ]


@operator("Unique", DOMAIN)
@dataclass(frozen=True)
class Unique(Contrib):
    """The different elements of a vector by their first places; which of them stands at each place; their counts."""

    floating: ClassVar[bool] = False

    def make(self, source: SourceNode) -> list[Value]:
        inner = SourceNode("Unique", OPSET, {"sorted": 0}, [source.required(0)], 4, source.builder)
        y, _, places, counts = REGISTRY["", "Unique"].read(inner)
        return [y, places, counts]


@operator("CDist", DOMAIN)
@dataclass(frozen=True)
class CDist(Contrib):
    """Distances of a's rows [M, N] to b's [K, N]: [M, K]; metric "euclidean" or its square, "sqeuclidean"."""

    metric: str = "sqeuclidean"

    def make(self, source: SourceNode) -> list[Value]:
        b, left, right = source.builder, source.required(0), source.required(1)
        if left.type.rank != 2 or right.type.rank != 2:
            raise ModelError(f"CDist of {left.type!r} and {right.type!r}")
        apart = apply(b, "Sub", b.one(Reshape((left.shape[0], const(1), left.shape[1])), left), right)
        squares = apply(b, "ReduceSum", apply(b, "Mul", apart, apart), axes=(2,), keepdims=False)
        return [apply(b, "Sqrt", squares) if self.metric == "euclidean" else squares]


@operator("Rfft", DOMAIN)
@dataclass(frozen=True)
class Rfft(Contrib):
    """The first n // 2 + 1 elements of the Fourier transform of x[..., n], as [..., n // 2 + 1, 2]."""

    normalized: int = 0
    onesided: int = 1
    signal_ndim: int = 1
    inverse: ClassVar[int] = 0

    def make(self, source: SourceNode) -> list[Value]:
        b, x = source.builder, source.required(0)
        if self.normalized or not self.onesided or self.signal_ndim != 1:
            raise Unsupported(f"{source.op_type} with {self}")
        if not self.inverse:
            x = b.one(Reshape((*x.shape, const(1))), x)
        axis = x.type.rank - 2
        return [node(source, "DFT", x, opset=17, axis=axis, onesided=1, inverse=self.inverse)]


@operator("Irfft", DOMAIN)
@dataclass(frozen=True)
class Irfft(Rfft):
    """The inverse of Rfft."""

    inverse: ClassVar[int] = 1

    def make(self, source: SourceNode) -> list[Value]:
        (y,) = super().make(source)
        return [source.builder.one(Reshape(y.shape[:-1]), y)]


@operator("Inverse", DOMAIN)
@dataclass(frozen=True)
class Inverse(Elimination):
    """The inverses of x[..., N, N]. A matrix without one is an error of the run."""

    function: ClassVar[str] = "t_op_inverse"

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        return [eliminated(source, cls(**source.fields(cls)), source.required(0).shape)]
