"""Operators of ONNX Runtime's own domain, made of ONNX's others at import: fusions of its optimizers, and a few more.

Attributes have ONNX Runtime's names and defaults. Quantised operators are in :mod:`.quantize`, those of attention in
:mod:`.attention`. Decided here where its text leaves it open: what is saved for training (a mean, an inverse deviation)
is that of the sum which is normalised.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import ClassVar

from ...base.errors import ModelError
from ...expr import I32, I64, from_onnx
from ...graph import Value
from ..core.base import axis_of, operator
from ..core.bounds import demand_in_range
from ..core.composite import composite
from ..core.functions import equal, gather, gelu, is_inf, is_nan, reciprocal, sqrt, swish
from ..core.functions import max as larger
from ..core.gradient import Backward, gradient_of
from ..core.source import SourceNode, Unsupported
from ..core.tensor import Tensor, apply_all, apply_op, read_all, read_node
from ..math.elimination import Elimination, eliminated
from ..nn.norm import LayerNormalization, RMSNormalization
from .base import DOMAIN, put_channels_first, put_channels_last

# -- scalar functions -------------------------------------------------------------------------------------------------


@composite("Gelu", DOMAIN)
def plain_gelu(x: Tensor) -> Tensor:
    """x / 2 * (1 + erf(x / sqrt(2)))."""
    return gelu(x)


@composite("BiasGelu", DOMAIN)
def bias_gelu(x: Tensor, bias: Tensor) -> Tensor:
    """Gelu of x + bias."""
    return gelu(x + bias)


@composite("FastGelu", DOMAIN)
def fast_gelu(x: Tensor, bias: Tensor | None = None) -> Tensor:
    """Gelu by tanh, of x + bias."""
    return gelu(x if bias is None else x + bias, approximate="tanh")


@composite("QuickGelu", DOMAIN)
def quick_gelu(x: Tensor, *, alpha: float = 1.702) -> Tensor:
    """x * sigmoid(alpha * x)."""
    return swish(x, alpha=alpha)


@composite("BiasSplitGelu", DOMAIN)
def bias_split_gelu(x: Tensor, bias: Tensor) -> Tensor:
    """Of x + bias, the first half of the last dimension times Gelu of the second."""
    x = x + bias
    width = x.size(-1) if x.rank else None
    if width is None or width % 2:
        raise Unsupported(f"BiasSplitGelu of {x.type!r}")
    left, right = x.split(-1, width // 2, width // 2)
    return left * gelu(right)


@composite("BiasAdd", DOMAIN)
def bias_add(x: Tensor, bias: Tensor, skip: Tensor) -> Tensor:
    """x + bias + skip."""
    return x + bias + skip


@composite("IsAllFinite", DOMAIN, mixed=True)
def is_all_finite(*xs: Tensor, isinf_only: int = 0, isnan_only: int = 0) -> Tensor:
    """Whether no operand has an element that is infinite or no number; a scalar."""
    tests = [test for test, off in ((is_inf, isnan_only), (is_nan, isinf_only)) if not off]
    if not tests:
        raise ModelError("IsAllFinite of infinities only and of NaN only")

    def found(x: Tensor) -> Tensor:
        bad = reduce(Tensor.__or__, [test(x) for test in tests])
        return bad.cast(I32).max(range(x.rank), keep=False)

    return equal(reduce(larger, map(found, xs)), 0)


# -- normalisations ---------------------------------------------------------------------------------------------------


def _sum(*terms: Tensor | None) -> Tensor:
    """The sum of those that are there."""
    return reduce(Tensor.__add__, [t for t in terms if t is not None])


def _rms(x: Tensor, scale: Tensor, axis: int, epsilon: float) -> tuple[Tensor, Tensor]:
    """x normalised by its root mean square and scaled, and the inverse of that root."""
    square = (x * x).mean(range(axis_of(axis, x.rank), x.rank))
    inverse = reciprocal(sqrt(square + epsilon))
    return apply_op(RMSNormalization(axis, epsilon), x, scale), inverse


@composite("SimplifiedLayerNormalization")
def simplified_layer_normalization(
    x: Tensor, scale: Tensor, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
) -> Sequence[Tensor]:
    """RMSNormalization, as ONNX Runtime writes it into ONNX's own domain; and perhaps 1 / root mean square."""
    if from_onnx(stash_type) is None:
        raise ModelError(f"there is no ONNX type {stash_type}")
    return _rms(x, scale, axis, epsilon)


@composite("SkipLayerNormalization", DOMAIN)
def skip_layer_normalization(
    x: Tensor, skip: Tensor, scale: Tensor, shift: Tensor | None = None, bias: Tensor | None = None, *,
    epsilon: float = 1e-12,
) -> list[Tensor]:  # fmt: skip
    """LayerNormalization of x + skip + bias over the last dimension; its statistics, and the sum itself."""
    total = _sum(x, skip, bias)
    return [*apply_all(LayerNormalization(-1, epsilon, 3), total, scale, shift), total]


@composite("SkipSimplifiedLayerNormalization", DOMAIN)
def skip_simplified_layer_normalization(
    x: Tensor, skip: Tensor, scale: Tensor, bias: Tensor | None = None, *, epsilon: float = 1e-12
) -> list[Tensor]:
    """RMSNormalization of x + skip + bias over the last dimension; its statistics, and the sum itself."""
    total = _sum(x, skip, bias)
    y, inverse = _rms(total, scale, -1, epsilon)
    return [y, total.mean(-1), inverse, total]


@composite("EmbedLayerNormalization", DOMAIN, floats=False)
def embed_layer_normalization(
    source: SourceNode, ids: Tensor, segments: Tensor | None, words: Tensor, places: Tensor, kinds: Tensor | None,
    scale: Tensor, shift: Tensor, mask: Tensor | None = None, positions: Tensor | None = None, *,
    epsilon: float = 1e-12, mask_index_type: int = 0,
) -> list[Tensor]:  # fmt: skip
    """Rows of tables of words, positions and segments, summed and normalised; words in the mask; the sum itself.

    Operands: ids[B, S], segments or none, the three tables (that of segments may be absent), scale and shift, perhaps
    a mask[B, S], whose ones are counted, and positions[B or 1, S], 0.. where absent.
    """
    if ids.rank != 2 or (segments is None) != (kinds is None):
        raise ModelError(
            f"EmbedLayerNormalization of {ids.type!r} with segments {segments} and their table {kinds}"
            "; words have to be [batch, length], and segments need a table"
        )
    if mask is not None and mask.rank != 2:
        raise ModelError(f"EmbedLayerNormalization with a mask {mask.type!r}, where [batch, length] is needed")
    positions = ids.range(0, ids.shape[1]) if positions is None else positions

    def row(table: Tensor | None, at: Tensor | None) -> Tensor | None:
        if table is None or at is None:
            return None
        if table.rank != 2:
            raise ModelError(f"EmbedLayerNormalization with a table {table.type!r}, which is not a matrix")
        demand_in_range(source, at.value, table.shape[0], use="position" if at is positions else "index")
        return gather(table, at)

    total = _sum(row(words, ids), row(places, positions), row(kinds, segments))
    y = apply_op(LayerNormalization(-1, epsilon), total, scale, shift)
    if mask is None:
        return [y, ids.constant(0).expand(ids.shape[0]), total]
    return [y, equal(mask, 1).cast(I32).sum(1, keep=False).cast(ids.dtype), total]


@composite("BiasSoftmax", DOMAIN)
def bias_softmax(x: Tensor, bias: Tensor, *, axis: int = 1, is_inner_broadcast: int = 0) -> Tensor:
    """Softmax of x + bias, over all dimensions from `axis` on as one."""
    if bias.rank != x.rank:
        raise Unsupported(f"BiasSoftmax of {x.type!r} with a bias {bias.type!r}")
    return read_node("Softmax", x + bias, opset=11, axis=axis)


@composite("GroupNorm", DOMAIN, mixed=True)
def group_norm(
    x: Tensor, scale: Tensor, shift: Tensor, *, activation: int = 0, channels_last: int = 1, epsilon: float = 1e-5,
    groups: int = 0,
) -> Tensor:  # fmt: skip
    """Groups of channels of x[N, spatial, C] or [N, C, spatial] normalised, scaled, shifted; perhaps a Swish of it."""
    if x.rank < 3 or groups < 1:
        raise ModelError(
            f"groups of channels of {x.type!r}, {groups} of them; 3 dimensions and one group at least are needed"
        )
    inner, scale, shift = put_channels_first(x) if channels_last else x, scale.cast(x.dtype), shift.cast(x.dtype)
    y = read_node("GroupNormalization", inner, scale, shift, opset=21, num_groups=groups, epsilon=epsilon)
    y = swish(y) if activation else y
    return put_channels_last(y) if channels_last else y


@composite("SkipGroupNorm", DOMAIN, mixed=True)
def skip_group_norm(
    x: Tensor, scale: Tensor, shift: Tensor, skip: Tensor, bias: Tensor | None = None, *, activation: int = 0,
    channels_last: int = 1, epsilon: float = 1e-5, groups: int = 0,
) -> list[Tensor]:  # fmt: skip
    """GroupNorm of x + skip + bias, and that sum; a skip of rank 2 counts for all places."""
    if not channels_last:
        raise Unsupported("SkipGroupNorm with channels first")
    if skip.rank == 2:
        skip = skip.reshape(skip.shape[0], *(1,) * (x.rank - 2), skip.shape[1])
    total = x + _sum(skip, bias)
    return [group_norm(total, scale, shift, activation=activation, epsilon=epsilon, groups=groups), total]


# -- the rest ---------------------------------------------------------------------------------------------------------


@composite("Trilu", DOMAIN, floats=False)
def trilu(x: Tensor, k: Tensor | None = None, *, upper: int = 1) -> Tensor:
    """ONNX's."""
    return read_node("Trilu", x, k, upper=upper)


@composite("GatherND", DOMAIN, floats=False)
def gather_nd(x: Tensor, indices: Tensor) -> Tensor:
    """ONNX's."""
    return read_node("GatherND", x, indices)


@composite("Range", DOMAIN, floats=False)
def arange(first: Tensor, last: Tensor, step: Tensor | None = None) -> Tensor:
    """ONNX's, of bounds that may be vectors of one element; in steps of 1 where none are given."""
    step = first.constant(1) if step is None else step
    return read_node("Range", *(v.reshape() if v.rank else v for v in (first, last, step)))


@composite("ExpandDims", DOMAIN, floats=False)
def expand_dims(source: SourceNode, x: Tensor, axis: Tensor) -> Tensor:
    """A dimension of 1 put in at an axis that is known when the model is read."""
    known = source.array(1, "the axis of ExpandDims")
    if known is None or known.size != 1:
        raise ModelError("ExpandDims needs one axis")
    return read_node("Unsqueeze", x, axis.constant(known.reshape(1).astype(I64.numpy)))


@composite("Unique", DOMAIN, floats=False)
def unique(x: Tensor) -> list[Tensor]:
    """The different elements of a vector by their first places; which of them stands at each place; their counts."""
    y, _, places, counts = read_all("Unique", x, outputs=4, sorted=0)
    return [y, places, counts]


@composite("CDist", DOMAIN)
def c_dist(a: Tensor, b: Tensor, *, metric: str = "sqeuclidean") -> Tensor:
    """Distances of a's rows [M, N] to b's [K, N]: [M, K]; metric "euclidean" or its square, "sqeuclidean"."""
    if a.rank != 2 or b.rank != 2:
        raise ModelError(f"CDist of {a.type!r} and {b.type!r}, which have to be matrices")
    apart = a.reshape(a.shape[0], 1, a.shape[1]) - b
    squares = (apart * apart).sum(2, keep=False)
    return sqrt(squares) if metric == "euclidean" else squares


def _whole_transform(source: SourceNode, normalized: int, onesided: int, dimensions: int) -> None:
    if normalized or not onesided or dimensions != 1:
        raise Unsupported(
            f"{source.op_type} with normalized={normalized}, onesided={onesided}, signal_ndim={dimensions}"
        )


@composite("Rfft", DOMAIN)
def rfft(source: SourceNode, x: Tensor, *, normalized: int = 0, onesided: int = 1, signal_ndim: int = 1) -> Tensor:
    """The first n // 2 + 1 elements of the Fourier transform of x[..., n], as [..., n // 2 + 1, 2]."""
    _whole_transform(source, normalized, onesided, signal_ndim)
    return read_node("DFT", x.reshape(*x.shape, 1), opset=17, axis=x.rank - 1, onesided=1)


@composite("Irfft", DOMAIN)
def irfft(source: SourceNode, x: Tensor, *, normalized: int = 0, onesided: int = 1, signal_ndim: int = 1) -> Tensor:
    """The inverse of Rfft."""
    _whole_transform(source, normalized, onesided, signal_ndim)
    y = read_node("DFT", x, opset=17, axis=x.rank - 2, onesided=1, inverse=1)
    return y.reshape(*y.shape[:-1])


@operator("Inverse", DOMAIN)
@dataclass(frozen=True)
class Inverse(Elimination):
    """The inverses of x[..., N, N]. A matrix without one is an error of the run."""

    function: ClassVar[str] = "t_op_inverse"

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        return [eliminated(source, cls(**source.fields(cls)), source.required(0).shape)]


@gradient_of(Inverse)
def _inverse_gradient(op: Inverse, at: Backward) -> Tensor:
    """-y' g y' of the inverse y, ' being the transpose."""
    y = at.outputs[0]
    turned = y.transpose(*range(y.rank - 2), y.rank - 1, y.rank - 2)
    return -(turned @ at.gradient @ turned)
