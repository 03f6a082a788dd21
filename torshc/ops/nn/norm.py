"""Normalisations and softmaxes; all but one decompose into primitives, which fusion makes one row kernel of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from ...base.errors import ModelError
from ...expr import F32, DType, Expr, as_int, const, from_onnx, product
from ...graph import Node, Shape, TensorType, Value
from ..core.axes import constraints_of
from ..core.base import (
    Constraints,
    Index,
    Inputs,
    LoopNest,
    Op,
    Read,
    axis_of,
    broadcast_into,
    need,
    operator,
    same_dim,
)
from ..core.composite import Formula
from ..core.functions import equal, exp, log, reciprocal, reduce_l1, reduce_l2, sqrt, where
from ..core.gradient import Backward, as_shape, gradient_of
from ..core.pointwise import compute
from ..core.scalar import Scalar, element, maximum
from ..core.source import SourceNode, Unsupported
from ..core.tensor import Axes, Tensor, apply_op
from ..math.expression import Expression, argument
from ..tensor.index import ArgSearch
from .conv import inside


@dataclass(frozen=True)
class SoftmaxBase(Formula):
    """Base of the operators along one axis.

    Before opset 13 they worked on the operand as a matrix, whose columns are all dimensions from the axis on.
    """

    axis: int = -1

    def infer(self, inputs: Inputs, constraints: Constraints) -> list[TensorType]:
        x = need(inputs[0], f"input 0 of {self.name}")
        axis_of(self.axis, x.type.rank)
        return [x.type]

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        x = Tensor(source.builder, source.required(0))
        axis = axis_of(int(source.attribute("axis", -1 if source.opset >= 13 else 1)), x.rank)
        source.fields(cls)
        if source.opset >= 13 or all(as_int(d) == 1 for d in x.shape[axis + 1 :]):
            return [apply_op(cls(axis), x).value]
        matrix = x.reshape(*x.shape[:axis], product(x.shape[axis:]))
        return [apply_op(cls(axis), matrix).reshape(*x.shape).value]


@operator()
@dataclass(frozen=True)
class Softmax(SoftmaxBase):
    """exp(x - max) / sum(exp(x - max)) along an axis."""

    def formula(self, x: Tensor) -> Tensor:
        e = exp(x - x.max(self.axis))
        return e / e.sum(self.axis)


@operator()
@dataclass(frozen=True)
class LogSoftmax(SoftmaxBase):
    """x - max - log(sum(exp(x - max))) along an axis."""

    def formula(self, x: Tensor) -> Tensor:
        shifted = x - x.max(self.axis)
        return shifted - log(exp(shifted).sum(self.axis))


@operator()
@dataclass(frozen=True)
class Hardmax(SoftmaxBase):
    """1 at the first maximum along an axis, 0 elsewhere."""

    def formula(self, x: Tensor) -> Tensor:
        axis = axis_of(self.axis, x.rank)
        first = apply_op(ArgSearch(axis, False), x, x.max(axis))  # ArgMax, but of nothing too
        places = x.range(0, x.shape[axis]).reshape(x.shape[axis], *(1,) * (x.rank - 1 - axis))
        return equal(first, places).cast(x.dtype)


def _affine(x: Tensor, scale: Tensor | None, bias: Tensor | None) -> Tensor:
    x = x if scale is None else x * scale
    return x if bias is None else x + bias


def _stash(x: Tensor) -> Tensor:
    """x in the precision that statistics are taken in."""
    return x if x.dtype.compute == x.dtype.name else x.cast(F32)


def _moments(x: Tensor, axes: Axes, epsilon: float) -> tuple[Tensor, Tensor, Tensor]:
    """Mean, x less its mean, and 1 / standard deviation over the axes, all kept."""
    mean = x.mean(axes)
    centred = x - mean
    variance = (centred * centred).mean(axes)
    return mean, centred, reciprocal(sqrt(variance + epsilon))


def _check_affine(x: Value, shape: Shape, inputs: Inputs, constraints: Constraints, name: str) -> None:
    """Check that scale and bias broadcast into `shape`."""
    for v in (v for v in inputs[1:] if v is not None):
        if v.dtype is not x.dtype:
            raise ModelError(f"{name} of {x.dtype!r} with a scale or bias of {v.dtype!r}, which have to be of one type")
        broadcast_into(v.shape, shape, constraints, f"{name} of {x.type!r} with a scale or bias of {v.type!r}")


@operator()
@dataclass(frozen=True)
class LayerNormalization(Formula):
    """(x - mean) / sqrt(variance + epsilon) * scale + bias, statistics over all dimensions from `axis` on.

    Attributes:
        results: 1, or up to 3 with the mean and 1 / standard deviation as further outputs.
    """

    axis: int = -1
    epsilon: float = 1e-5
    results: int = 1

    def infer(self, inputs: Inputs, constraints: Constraints) -> list[TensorType]:
        x = need(inputs[0], f"input 0 of {self.name}")
        axis = axis_of(self.axis, x.type.rank)
        _check_affine(x, x.shape, inputs, constraints, self.name)
        kept = (*x.shape[:axis], *(const(1),) * (x.type.rank - axis))
        stash = F32 if x.dtype.compute == "f32" else x.dtype
        return [x.type, TensorType(stash, kept), TensorType(stash, kept)][: self.results]

    def formula(self, x: Tensor, scale: Tensor | None = None, bias: Tensor | None = None) -> list[Tensor]:
        mean, centred, inverse = _moments(_stash(x), range(axis_of(self.axis, x.rank), x.rank), self.epsilon)
        normal = (centred * inverse).cast(x.dtype)
        return [_affine(normal, scale, bias), mean, inverse][: self.results]

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        code = int(source.attribute("stash_type", 1))
        if from_onnx(code) not in (F32, source.required(0).dtype):
            raise Unsupported(f"statistics in ONNX type {code}")
        return source.emit(cls(**source.fields(cls), results=source.outputs), source.inputs)


@operator()
@dataclass(frozen=True)
class RMSNormalization(Formula):
    """x / sqrt(mean(x * x) + epsilon) * scale, the mean over all dimensions from `axis` on."""

    axis: int = -1
    epsilon: float = 1e-5

    def infer(self, inputs: Inputs, constraints: Constraints) -> list[TensorType]:
        x = need(inputs[0], "input 0 of RMSNormalization")
        axis_of(self.axis, x.type.rank)
        _check_affine(x, x.shape, inputs, constraints, "RMSNormalization")
        return [x.type]

    def formula(self, x: Tensor, scale: Tensor | None = None) -> Tensor:
        wide = _stash(x)
        square = (wide * wide).mean(range(axis_of(self.axis, x.rank), x.rank))
        normal = wide * reciprocal(sqrt(square + self.epsilon))
        return _affine(normal.cast(x.dtype), scale, None)

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        source.attribute("stash_type")
        return source.emit(cls(**source.fields(cls)), source.inputs)


def _channels(v: Tensor, rank: int) -> Tensor:
    """A vector over the channels, shaped to broadcast against x[N, C, spatial]."""
    return v.reshape(v.shape[0], *(1,) * (rank - 2))


def _check_channels(x: Value, inputs: Inputs, constraints: Constraints, name: str) -> None:
    if x.type.rank < 2:
        raise ModelError(f"{name} of {x.type!r}, which has no channels")
    for v in inputs[1:]:
        v = need(v, f"an input of {name}")
        if v.type.rank != 1:
            raise ModelError(f"{name} with {v.type!r}, which is not a vector")
        same_dim(v.shape[0], x.shape[1], constraints, f"channels of {name} of {x.type!r}")


@operator()
@dataclass(frozen=True)
class BatchNormalization(Formula):
    """Inference: (x - mean) / sqrt(variance + epsilon) * scale + bias, each of the four a vector over channels.

    Attributes:
        momentum: what a step of training keeps of the running mean and variance.
    """

    epsilon: float = 1e-5
    momentum: float = 0.9

    def infer(self, inputs: Inputs, constraints: Constraints) -> list[TensorType]:
        x = need(inputs[0], "input 0 of BatchNormalization")
        _check_channels(x, inputs, constraints, "BatchNormalization")
        return [x.type]

    def formula(self, x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
        factor = scale / sqrt(variance + self.epsilon)
        shift = bias - mean * factor
        factor, shift = _channels(factor, x.rank), _channels(shift, x.rank)
        return _affine(x.cast(factor.dtype), factor, shift).cast(x.dtype)

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        spatial, training = source.attribute("spatial", 1), source.attribute("training_mode", 0)
        op = cls(**source.fields(cls))
        if not spatial:
            return [_each_activation(source, op).value]
        operands = [source.required(k) for k in range(5)]
        if training:
            if source.opset < 14 or source.outputs > 3:
                raise Unsupported("BatchNormalization in training mode before opset 14")
            found = source.emit(BatchNormalizationTraining(op.epsilon, op.momentum), operands)
            return found[: max(source.outputs, 1)]
        if source.outputs > 1:
            raise Unsupported("BatchNormalization in training mode")
        return source.emit(op, operands)


def _each_activation(source: SourceNode, op: BatchNormalization) -> Tensor:
    """Statistics of each element of a sample, of shape x.shape[1:], as up to opset 8 with `spatial` = 0."""
    x, *rest = (Tensor(source.builder, source.required(k)) for k in range(5))
    if source.outputs > 1:
        raise Unsupported("BatchNormalization in training mode")
    for v in rest:
        if v.rank != x.rank - 1:
            raise ModelError(
                f"BatchNormalization of {x.type!r} with {v.type!r} for each element of a sample"
                ", which needs one dimension less"
            )
        for mine, wanted in zip(v.shape, x.shape[1:], strict=True):
            same_dim(wanted, mine, constraints_of(source), f"BatchNormalization of {x.type!r} with {v.type!r}")
    scale, bias, mean, variance = rest
    factor = scale / sqrt(variance + op.epsilon)
    return (x - mean) * factor + bias


@operator("BatchNormalizationTraining", "torshc")
@dataclass(frozen=True)
class BatchNormalizationTraining(Formula):
    """(x - mean) / sqrt(variance + epsilon) * scale + bias, by the mean and variance of each channel of this batch.

    Operands: x, scale, bias, running mean and variance. Further results: the running mean and variance moved by
    1 - momentum to those of the batch; and these, whose variance is divided by the number of elements.

    Attributes:
        unbiased: the variance that the running one moves to is divided by one less, as PyTorch's is; ONNX's is not.
    """

    epsilon: float = 1e-5
    momentum: float = 0.9
    unbiased: bool = False

    def infer(self, inputs: Inputs, constraints: Constraints) -> list[TensorType]:
        x = need(inputs[0], "input 0 of BatchNormalization")
        _check_channels(x, inputs, constraints, "BatchNormalization")
        stash = F32 if x.dtype.compute == "f32" else x.dtype
        running = [need(v, "a running statistic").type for v in inputs[3:5]]
        return [x.type, *running, *[TensorType(stash, x.shape[1:2])] * 2]

    def formula(self, x: Tensor, scale: Tensor, bias: Tensor, *running: Tensor) -> list[Tensor]:
        wide = _stash(x)
        share = 1.0 / element(_elements_of_a_channel(x), wide.dtype)
        mean, variance = _statistics(wide, share)
        factor = _channels(scale, x.rank).cast(wide.dtype) * reciprocal(sqrt(variance + self.epsilon))
        y = _affine(wide, factor, _channels(bias, x.rank).cast(wide.dtype) - mean * factor).cast(x.dtype)
        batch = [as_shape(v, x.shape[1:2]) for v in (mean, variance)]
        towards = [batch[0], _scaled(batch[1], self.correction(x, wide.dtype))]
        pairs = zip(running, towards, strict=True)
        return [y, *(r * self.momentum + v.cast(r.dtype) * (1.0 - self.momentum) for r, v in pairs), *batch]

    def correction(self, x: Tensor, dtype: DType) -> Scalar:
        """What the batch's variance is multiplied by before the running one moves to it."""
        count = _elements_of_a_channel(x)
        return element(count, dtype) / element(count - 1, dtype) if self.unbiased else element(1.0, dtype)


@gradient_of(BatchNormalizationTraining)
def _batch_gradient(op: BatchNormalizationTraining, at: Backward) -> list[Tensor | None]:
    """The gradient of x is y's less its mean and its part along the normalised x, as x moves the two statistics."""
    x, scale, bias = (at.operand(k) for k in range(3))
    wide = _stash(x)
    share = 1.0 / element(_elements_of_a_channel(x), wide.dtype)
    mean, variance = (_channels(v, x.rank) for v in at.outputs[3:5])
    inverse = reciprocal(sqrt(variance + op.epsilon))
    g = at.gradient.cast(wide.dtype)
    down, along = _channel_sums(g), _channel_sums(g * _affine(wide, inverse, -(mean * inverse)))
    factor = _channels(scale, x.rank).cast(wide.dtype) * inverse
    tilt = factor * inverse * _scaled(along, share)
    slope = g * factor + _affine(wide, -tilt, mean * tilt - factor * _scaled(down, share))
    moved, direct = at.gradients[1:3], list(at.gradients[3:5])
    corrections = element(1.0, wide.dtype), op.correction(x, wide.dtype)
    for k, by in enumerate(corrections):  # the running ones move with the batch's
        if (g_moved := moved[k]) is not None:
            more = _scaled(g_moved.cast(wide.dtype) * (1.0 - op.momentum), by)
            direct[k] = more if (before := direct[k]) is None else before + more
    for g_direct, change in zip(direct, (None, (wide - mean) * 2.0), strict=True):
        if g_direct is not None:
            each = _scaled(_channels(g_direct, x.rank), share)
            slope = slope + (each if change is None else each * change)
    kept = [None if g_moved is None else g_moved * op.momentum for g_moved in moved]
    by_channel = [as_shape(v, scale.shape).cast(to.dtype) for v, to in ((along, scale), (down, bias))]
    return [slope.cast(x.dtype), *by_channel, *kept]


def _statistics(x: Tensor, share: Scalar) -> tuple[Tensor, Tensor]:
    """Mean and variance of each channel, both from sums over the differences from its first element.

    With d these differences the variance is mean(d^2) - mean(d)^2, which both come from one pass over memory. It has
    the rounding error of its sums times 1 + ((mean - first) / deviation)^2, and a first element is some deviations off
    the mean.
    Where there may be no first element, the second pass is over the differences from the mean.
    """
    if not all(as_int(d) for k, d in enumerate(x.shape) if k != 1):
        mean = _scaled(_channel_sums(x), share)
        centred = x - mean  # of the variance alone, so that no kernel stores it
        return mean, _scaled(_channel_sums(centred * centred), share)
    first = x.slice((const(0),) * x.rank, tuple(d if k == 1 else const(1) for k, d in enumerate(x.shape)))
    a, b = (Scalar(argument(k, x.dtype)) for k in range(2))
    moved, squares = (
        _scaled(_channel_sums(apply_op(Expression(e.expr, x.dtype), x, first)), share)
        for e in (a - b, (a - b) * (a - b))
    )
    variance = Expression(maximum(a - b * b, element(0.0, x.dtype)).expr, x.dtype)
    return first + moved, apply_op(variance, squares, moved)


def _channel_sums(x: Tensor) -> Tensor:
    """Sums over all dimensions but the channels, which are kept: of each sample first.

    So samples are independent tasks, and no sum is as long as a batch has pixels.
    """
    return (x.sum(range(2, x.rank)) if x.rank > 2 else x).sum(0)


def _elements_of_a_channel(x: Tensor) -> Expr:
    return product(d for k, d in enumerate(x.shape) if k != 1)


def _scaled(x: Tensor, by: Scalar) -> Tensor:
    """x times a size, or a ratio of sizes."""
    dtype = compute(x.dtype)
    return apply_op(Expression((Scalar(argument(0, dtype)) * by.cast(dtype)).expr, x.dtype), x)


@operator()
@dataclass(frozen=True)
class InstanceNormalization(Formula):
    """Each channel of each sample normalised over its spatial dimensions, then scaled and shifted."""

    epsilon: float = 1e-5

    def infer(self, inputs: Inputs, constraints: Constraints) -> list[TensorType]:
        x = need(inputs[0], "input 0 of InstanceNormalization")
        _check_channels(x, inputs, constraints, "InstanceNormalization")
        return [x.type]

    def formula(self, x: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
        _, centred, inverse = _moments(x, range(2, x.rank), self.epsilon)
        return _affine(centred * inverse, _channels(scale, x.rank), _channels(bias, x.rank))


@operator()
@dataclass(frozen=True)
class GroupNormalization(Formula):
    """Each group of channels of each sample normalised together; scale and bias are vectors over the channels."""

    num_groups: int = 1
    epsilon: float = 1e-5

    def infer(self, inputs: Inputs, constraints: Constraints) -> list[TensorType]:
        x = need(inputs[0], "input 0 of GroupNormalization")
        _check_channels(x, inputs, constraints, "GroupNormalization")
        return [x.type]

    def formula(self, x: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
        size = product(x.shape[1:]) // self.num_groups
        grouped = _stash(x).reshape(x.shape[0], self.num_groups, size)
        _, centred, inverse = _moments(grouped, 2, self.epsilon)
        normal = (centred * inverse).reshape(*x.shape).cast(x.dtype)
        return _affine(normal, _channels(scale, x.rank), _channels(bias, x.rank))

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        x, *vectors = (Tensor(source.builder, source.required(k)) for k in range(3))
        groups = int(source.attribute("num_groups", 0))
        source.attribute("stash_type")
        if x.rank < 2 or (x.shape[1].op == "const" and x.shape[1] % groups is not const(0)):
            raise ModelError(f"GroupNormalization of {x.type!r} in {groups} groups, which do not divide its channels")
        if source.opset < 21:  # scale and bias had an element a group
            each = x.shape[1] // groups
            vectors = [v.reshape(groups, 1).expand(groups, each).reshape(x.shape[1]) for v in vectors]
        return [apply_op(cls(**source.fields(cls)), x, *vectors).value]


@operator()
@dataclass(frozen=True)
class LpNormalization(Formula):
    """x / norm(x) along an axis, with the 1- or 2-norm; where the norm is 0 the result is 0."""

    axis: int = -1
    p: int = 2

    def infer(self, inputs: Inputs, constraints: Constraints) -> list[TensorType]:
        x = need(inputs[0], "input 0 of LpNormalization")
        axis_of(self.axis, x.type.rank)
        return [x.type]

    def formula(self, x: Tensor) -> Tensor:
        norm = (reduce_l1 if self.p == 1 else reduce_l2)(x, axes=(axis_of(self.axis, x.rank),))
        is_zero = equal(norm, 0.0)
        return where(is_zero, 0.0, x / where(is_zero, 1.0, norm))


@operator()
@dataclass(frozen=True)
class MeanVarianceNormalization(Formula):
    """(x - mean) / (standard deviation + 1e-9) over the axes.

    Before opset 9 it was experimental: channels apart or together, perhaps only centred. Samples are taken together, as
    by the default of opset 9 and by ONNX Runtime.
    """

    experimental: ClassVar[Mapping[str, Any]] = {"across_channels": 0, "normalize_variance": 1}
    axes: tuple[int, ...] = (0, 2, 3)

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        if source.opset >= 9:
            return super().read(source)
        x = Tensor(source.builder, source.required(0))
        together = bool(source.attribute("across_channels", 0))
        axes = tuple(k for k in range(x.rank) if together or k != 1)
        if x.rank < 3:
            raise ModelError(f"MeanVarianceNormalization of {x.type!r}, which has no spatial dimensions")
        if source.attribute("normalize_variance", 1):
            return [apply_op(cls(axes), x).value]
        return [(x - x.mean(axes)).value]

    def infer(self, inputs: Inputs, constraints: Constraints) -> list[TensorType]:
        x = need(inputs[0], "input 0 of MeanVarianceNormalization")
        for a in self.axes:
            axis_of(a, x.type.rank)
        return [x.type]

    def formula(self, x: Tensor) -> Tensor:
        axes = sorted(axis_of(a, x.rank) for a in self.axes)
        centred = x - x.mean(axes)
        variance = (centred * centred).mean(axes)
        return centred / (sqrt(variance) + 1e-9)


@operator()
@dataclass(frozen=True)
class LRN(Op):
    """x / (bias + alpha / size * sum of squares over `size` neighbouring channels) ** beta."""

    family: ClassVar[str] = "nest"
    alpha: float = 1e-4
    beta: float = 0.75
    bias: float = 1.0
    size: int = 1

    def infer(self, inputs: Inputs, constraints: Constraints) -> list[TensorType]:
        x = need(inputs[0], "input 0 of LRN")
        if x.type.rank < 2:
            raise ModelError(f"LRN of {x.type!r}, which has no channels")
        return [x.type]

    def nest(self, node: Node, output: int) -> LoopNest:
        channels = node.operands[0].shape[1]
        before = (self.size - 1) // 2

        def body(at: Index, inner: Index, read: Read) -> Scalar:
            channel = at[1] + inner[0] - before
            value = read(0, (at[0], channel, *at[2:]))
            return where(inside(channel, channels), value * value, 0)

        def finish(total: Scalar, at: Index, read: Read) -> Scalar:
            base = total * (self.alpha / self.size) + self.bias
            return read(0, at) / (base if self.beta == 1 else base**self.beta)

        return LoopNest(body, (const(self.size),), "add", finish)


@gradient_of(Softmax)
def _softmax_gradient(op: Softmax, at: Backward) -> Tensor:
    y, g = at.outputs[0], at.gradient
    return y * (g - (g * y).sum(op.axis))


@gradient_of(LogSoftmax)
def _log_softmax_gradient(op: LogSoftmax, at: Backward) -> Tensor:
    y, g = at.outputs[0], at.gradient
    return g - exp(y) * g.sum(op.axis)
