"""Normalisations and softmaxes; all but one decompose into primitives, which fusion makes one row kernel of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from ...errors import ModelError
from ...expr import F32, Expr, call, const, from_onnx, select
from ...graph import Builder, Node, Shape, TensorType, Value
from ..core.base import Constraints, Index, Inputs, Nest, Op, Read, axis_of, broadcast_into, need, operator, same_dim
from ..core.compose import apply, as_type
from ..core.source import SourceNode, Unsupported
from ..tensor.index import ArgSearch
from ..tensor.view import Expand, Reshape
from .conv import inside


@dataclass(frozen=True)
class SoftmaxBase(Op):
    """Base of the operators along one axis.

    Before opset 13 they worked on the operand as a matrix, whose columns are all dimensions from the axis on.
    """

    family: ClassVar[str] = "composite"
    axis: int = -1

    def infer(self, inputs: Inputs, constraints: Constraints) -> list[TensorType]:
        x = need(inputs[0], f"input 0 of {self.name}")
        axis_of(self.axis, x.type.rank)
        return [x.type]

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        x = source.required(0)
        rank = x.type.rank
        axis = axis_of(int(source.attribute("axis", -1 if source.opset >= 13 else 1)), rank)
        source.fields(cls)
        if source.opset >= 13 or all(d.op == "const" and d.data == 1 for d in x.shape[axis + 1 :]):
            return source.emit(cls(axis), [x])
        columns = const(1)
        for d in x.shape[axis:]:
            columns = columns * d
        matrix = source.emit(Reshape((*x.shape[:axis], columns)), [x])
        return source.emit(Reshape(x.shape), source.emit(cls(axis), matrix))


@operator()
@dataclass(frozen=True)
class Softmax(SoftmaxBase):
    """exp(x - max) / sum(exp(x - max)) along an axis."""

    def decompose(self, b: Builder, inputs: Inputs) -> list[Value]:
        x = need(inputs[0], "input 0 of Softmax")
        axes = (axis_of(self.axis, x.type.rank),)
        e = apply(b, "Exp", apply(b, "Sub", x, apply(b, "ReduceMax", x, axes=axes)))
        return [apply(b, "Div", e, apply(b, "ReduceSum", e, axes=axes))]


@operator()
@dataclass(frozen=True)
class LogSoftmax(SoftmaxBase):
    """x - max - log(sum(exp(x - max))) along an axis."""

    def decompose(self, b: Builder, inputs: Inputs) -> list[Value]:
        x = need(inputs[0], "input 0 of LogSoftmax")
        axes = (axis_of(self.axis, x.type.rank),)
        shifted = apply(b, "Sub", x, apply(b, "ReduceMax", x, axes=axes))
        total = apply(b, "ReduceSum", apply(b, "Exp", shifted), axes=axes)
        return [apply(b, "Sub", shifted, apply(b, "Log", total))]


@operator()
@dataclass(frozen=True)
class Hardmax(SoftmaxBase):
    """1 at the first maximum along an axis, 0 elsewhere."""

    def decompose(self, b: Builder, inputs: Inputs) -> list[Value]:
        x = need(inputs[0], "input 0 of Hardmax")
        axis = axis_of(self.axis, x.type.rank)
        first = b.one(ArgSearch(axis, False), x, apply(b, "ReduceMax", x, axes=(axis,)))  # ArgMax, but of nothing too
        places = apply(b, "Range", start=const(0), step=const(1), count=x.shape[axis])
        places = b.one(Reshape((x.shape[axis], *(const(1),) * (x.type.rank - 1 - axis))), places)
        return [apply(b, "Cast", apply(b, "Equal", first, places), to=x.dtype)]


def _affine(b: Builder, x: Value, scale: Value | None, bias: Value | None) -> Value:
    x = apply(b, "Mul", x, scale) if scale is not None else x
    return apply(b, "Add", x, bias) if bias is not None else x


def _stash(b: Builder, x: Value) -> Value:
    """x in the precision that statistics are taken in."""
    return x if x.dtype.compute == x.dtype.name else apply(b, "Cast", x, to=F32)


def _moments(b: Builder, x: Value, axes: tuple[int, ...], epsilon: float) -> tuple[Value, Value, Value]:
    """Mean, x less its mean, and 1 / standard deviation over the axes, all kept."""
    mean = apply(b, "ReduceMean", x, axes=axes)
    centred = apply(b, "Sub", x, mean)
    variance = apply(b, "ReduceMean", apply(b, "Mul", centred, centred), axes=axes)
    return mean, centred, apply(b, "Reciprocal", apply(b, "Sqrt", apply(b, "Add", variance, epsilon)))


def _check_affine(x: Value, shape: Shape, inputs: Inputs, constraints: Constraints, name: str) -> None:
    """Check that scale and bias broadcast into `shape`."""
    for v in (v for v in inputs[1:] if v is not None):
        if v.dtype is not x.dtype:
            raise ModelError(f"{name} of {x.dtype!r} with a scale or bias of {v.dtype!r}")
        broadcast_into(v.shape, shape, constraints, f"{name} of {x.type!r} with a scale or bias of {v.type!r}")


@operator()
@dataclass(frozen=True)
class LayerNormalization(Op):
    """(x - mean) / sqrt(variance + epsilon) * scale + bias, statistics over all dimensions from `axis` on.

    Attributes:
        results: 1, or up to 3 with the mean and 1 / standard deviation as further outputs.
    """

    family: ClassVar[str] = "composite"
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

    def decompose(self, b: Builder, inputs: Inputs) -> list[Value]:
        x, scale, bias = (*inputs, None)[:3]
        x = need(x, "input 0 of LayerNormalization")
        axes = tuple(range(axis_of(self.axis, x.type.rank), x.type.rank))
        mean, centred, inverse = _moments(b, _stash(b, x), axes, self.epsilon)
        normal = apply(b, "Mul", centred, inverse)
        normal = as_type(b, normal, x.dtype)
        return [_affine(b, normal, scale, bias), mean, inverse][: self.results]

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        code = int(source.attribute("stash_type", 1))
        if from_onnx(code) not in (F32, source.required(0).dtype):
            raise Unsupported(f"statistics in ONNX type {code}")
        return source.emit(cls(**source.fields(cls), results=source.outputs), source.inputs)


@operator()
@dataclass(frozen=True)
class RMSNormalization(Op):
    """x / sqrt(mean(x * x) + epsilon) * scale, the mean over all dimensions from `axis` on."""

    family: ClassVar[str] = "composite"
    axis: int = -1
    epsilon: float = 1e-5

    def infer(self, inputs: Inputs, constraints: Constraints) -> list[TensorType]:
        x = need(inputs[0], "input 0 of RMSNormalization")
        axis_of(self.axis, x.type.rank)
        _check_affine(x, x.shape, inputs, constraints, "RMSNormalization")
        return [x.type]

    def decompose(self, b: Builder, inputs: Inputs) -> list[Value]:
        x = need(inputs[0], "input 0 of RMSNormalization")
        axes = tuple(range(axis_of(self.axis, x.type.rank), x.type.rank))
        wide = _stash(b, x)
        square = apply(b, "ReduceMean", apply(b, "Mul", wide, wide), axes=axes)
        inverse = apply(b, "Reciprocal", apply(b, "Sqrt", apply(b, "Add", square, self.epsilon)))
        normal = apply(b, "Mul", wide, inverse)
        normal = as_type(b, normal, x.dtype)
        return [_affine(b, normal, inputs[1] if len(inputs) > 1 else None, None)]

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        source.attribute("stash_type")
        return source.emit(cls(**source.fields(cls)), source.inputs)


def _channels(b: Builder, v: Value, rank: int) -> Value:
    """A vector over the channels, shaped to broadcast against x[N, C, spatial]."""
    return b.one(Reshape((v.shape[0], *(const(1),) * (rank - 2))), v)


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
class BatchNormalization(Op):
    """Inference: (x - mean) / sqrt(variance + epsilon) * scale + bias, each of the four a vector over channels."""

    family: ClassVar[str] = "composite"
    epsilon: float = 1e-5

    def infer(self, inputs: Inputs, constraints: Constraints) -> list[TensorType]:
        x = need(inputs[0], "input 0 of BatchNormalization")
        _check_channels(x, inputs, constraints, "BatchNormalization")
        return [x.type]

    def decompose(self, b: Builder, inputs: Inputs) -> list[Value]:
        x, scale, bias, mean, variance = (need(v, "an input of BatchNormalization") for v in inputs)
        factor = apply(b, "Div", scale, apply(b, "Sqrt", apply(b, "Add", variance, self.epsilon)))
        shift = apply(b, "Sub", bias, apply(b, "Mul", mean, factor))
        rank = x.type.rank
        factor, shift = (_channels(b, v, rank) for v in (factor, shift))
        if factor.dtype is not x.dtype:
            wide = _affine(b, apply(b, "Cast", x, to=factor.dtype), factor, shift)
            return [apply(b, "Cast", wide, to=x.dtype)]
        return [_affine(b, x, factor, shift)]

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        momentum = float(source.attribute("momentum", 0.9))
        if not source.attribute("spatial", 1):
            return [_each_activation(source, cls(**source.fields(cls)))]
        if source.attribute("training_mode", 0):
            return _trained(source, cls(**source.fields(cls)), momentum)
        if source.outputs > 1:
            raise Unsupported("BatchNormalization in training mode")
        return source.emit(cls(**source.fields(cls)), [source.required(k) for k in range(5)])


def _each_activation(source: SourceNode, op: BatchNormalization) -> Value:
    """Statistics of each element of a sample, of shape x.shape[1:], as up to opset 8 with `spatial` = 0."""
    b, (x, *rest) = source.builder, [source.required(k) for k in range(5)]
    if source.outputs > 1:
        raise Unsupported("BatchNormalization in training mode")
    for v in rest:
        if v.type.rank != x.type.rank - 1:
            raise ModelError(f"BatchNormalization of {x.type!r} with {v.type!r} for each element of a sample")
        for mine, wanted in zip(v.shape, x.shape[1:], strict=True):
            same_dim(wanted, mine, b.graph.constraints, f"BatchNormalization of {x.type!r} with {v.type!r}")
    scale, bias, mean, variance = rest
    factor = apply(b, "Div", scale, apply(b, "Sqrt", apply(b, "Add", variance, op.epsilon)))
    return apply(b, "Add", apply(b, "Mul", apply(b, "Sub", x, mean), factor), bias)


def _trained(source: SourceNode, op: BatchNormalization, momentum: float) -> list[Value]:
    """Training mode: the batch's own statistics, and the running ones, which they move by 1 - momentum.

    The variance is that of the population, divided by the number of elements.
    """
    b, (x, scale, bias, *running) = source.builder, [source.required(k) for k in range(5)]
    if source.opset < 14 or source.outputs > 3:
        raise Unsupported("BatchNormalization in training mode before opset 14")
    axes = tuple(k for k in range(x.type.rank) if k != 1)
    wide = _stash(b, x)
    centred = apply(b, "Sub", wide, apply(b, "ReduceMean", wide, axes=axes, keepdims=True))
    mean = apply(b, "ReduceMean", wide, axes=axes, keepdims=False)
    variance = apply(b, "ReduceMean", apply(b, "Mul", centred, centred), axes=axes, keepdims=False)
    current = [as_type(b, v, r.dtype) for v, r in zip((mean, variance), running, strict=True)]
    moved = [
        apply(b, "Add", apply(b, "Mul", old, momentum), apply(b, "Mul", new, 1.0 - momentum))
        for old, new in zip(running, current, strict=True)
    ]
    return [*source.emit(op, [x, scale, bias, *current]), *moved][: max(source.outputs, 1)]


@operator()
@dataclass(frozen=True)
class InstanceNormalization(Op):
    """Each channel of each sample normalised over its spatial dimensions, then scaled and shifted."""

    family: ClassVar[str] = "composite"
    epsilon: float = 1e-5

    def infer(self, inputs: Inputs, constraints: Constraints) -> list[TensorType]:
        x = need(inputs[0], "input 0 of InstanceNormalization")
        _check_channels(x, inputs, constraints, "InstanceNormalization")
        return [x.type]

    def decompose(self, b: Builder, inputs: Inputs) -> list[Value]:
        x, scale, bias = (need(v, "an input of InstanceNormalization") for v in inputs)
        rank = x.type.rank
        _, centred, inverse = _moments(b, x, tuple(range(2, rank)), self.epsilon)
        normal = apply(b, "Mul", centred, inverse)
        return [_affine(b, normal, _channels(b, scale, rank), _channels(b, bias, rank))]


@operator()
@dataclass(frozen=True)
class GroupNormalization(Op):
    """Each group of channels of each sample normalised together; scale and bias are vectors over the channels."""

    family: ClassVar[str] = "composite"
    num_groups: int = 1
    epsilon: float = 1e-5

    def infer(self, inputs: Inputs, constraints: Constraints) -> list[TensorType]:
        x = need(inputs[0], "input 0 of GroupNormalization")
        _check_channels(x, inputs, constraints, "GroupNormalization")
        return [x.type]

    def decompose(self, b: Builder, inputs: Inputs) -> list[Value]:
        x, scale, bias = (need(v, "an input of GroupNormalization") for v in inputs)
        rest = const(1)
        for d in x.shape[1:]:
            rest = rest * d
        size = call("floordiv", rest, self.num_groups)
        grouped = b.one(Reshape((x.shape[0], const(self.num_groups), size)), _stash(b, x))
        _, centred, inverse = _moments(b, grouped, (2,), self.epsilon)
        normal = b.one(Reshape(x.shape), apply(b, "Mul", centred, inverse))
        normal = as_type(b, normal, x.dtype)
        rank = x.type.rank
        return [_affine(b, normal, _channels(b, scale, rank), _channels(b, bias, rank))]

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        x, operands = source.required(0), [source.required(k) for k in range(3)]
        groups = int(source.attribute("num_groups", 0))
        source.attribute("stash_type")
        if x.type.rank < 2 or (x.shape[1].op == "const" and x.shape[1] % groups is not const(0)):
            raise ModelError(f"GroupNormalization of {x.type!r} in {groups} groups")
        if source.opset < 21:  # scale and bias had an element a group
            each = call("floordiv", x.shape[1], groups)
            for k in (1, 2):
                column = source.emit(Reshape((const(groups), const(1))), [operands[k]])
                wide = source.emit(Expand((const(groups), each)), column)
                operands[k] = source.emit(Reshape((x.shape[1],)), wide)[0]
        return source.emit(cls(**source.fields(cls)), operands)


@operator()
@dataclass(frozen=True)
class LpNormalization(Op):
    """x / norm(x) along an axis, with the 1- or 2-norm; where the norm is 0 the result is 0."""

    family: ClassVar[str] = "composite"
    axis: int = -1
    p: int = 2

    def infer(self, inputs: Inputs, constraints: Constraints) -> list[TensorType]:
        x = need(inputs[0], "input 0 of LpNormalization")
        axis_of(self.axis, x.type.rank)
        return [x.type]

    def decompose(self, b: Builder, inputs: Inputs) -> list[Value]:
        x = need(inputs[0], "input 0 of LpNormalization")
        norm = apply(b, f"ReduceL{self.p}", x, axes=(axis_of(self.axis, x.type.rank),))
        is_zero = apply(b, "Equal", norm, 0.0)
        zero, one = b.constant(0.0, x), b.constant(1.0, x)
        return [apply(b, "Where", is_zero, zero, apply(b, "Div", x, apply(b, "Where", is_zero, one, norm)))]


@operator()
@dataclass(frozen=True)
class MeanVarianceNormalization(Op):
    """(x - mean) / (standard deviation + 1e-9) over the axes.

    Before opset 9 it was experimental: channels apart or together, perhaps only centred. Samples are taken together, as
    by the default of opset 9 and by ONNX Runtime.
    """

    family: ClassVar[str] = "composite"
    experimental: ClassVar[Mapping[str, Any]] = {"across_channels": 0, "normalize_variance": 1}
    axes: tuple[int, ...] = (0, 2, 3)

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        if source.opset >= 9:
            return super().read(source)
        x, b = source.required(0), source.builder
        together = bool(source.attribute("across_channels", 0))
        axes = tuple(k for k in range(x.type.rank) if together or k != 1)
        if x.type.rank < 3:
            raise ModelError(f"MeanVarianceNormalization of {x.type!r}, which has no spatial dimensions")
        if source.attribute("normalize_variance", 1):
            return [b.one(cls(axes), x)]
        return [apply(b, "Sub", x, apply(b, "ReduceMean", x, axes=axes))]

    def infer(self, inputs: Inputs, constraints: Constraints) -> list[TensorType]:
        x = need(inputs[0], "input 0 of MeanVarianceNormalization")
        for a in self.axes:
            axis_of(a, x.type.rank)
        return [x.type]

    def decompose(self, b: Builder, inputs: Inputs) -> list[Value]:
        x = need(inputs[0], "input 0 of MeanVarianceNormalization")
        axes = tuple(sorted(axis_of(a, x.type.rank) for a in self.axes))
        centred = apply(b, "Sub", x, apply(b, "ReduceMean", x, axes=axes))
        variance = apply(b, "ReduceMean", apply(b, "Mul", centred, centred), axes=axes)
        return [apply(b, "Div", centred, apply(b, "Add", apply(b, "Sqrt", variance), 1e-9))]


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

    def nest(self, node: Node, output: int) -> Nest:
        channels = node.operands[0].shape[1]
        before = (self.size - 1) // 2

        def body(at: Index, inner: Index, read: Read) -> Expr:
            channel = at[1] + inner[0] - before
            value = read(0, (at[0], channel, *at[2:]))
            return select(inside(channel, channels), call("mul", value, value), const(0, value.dtype))

        def finish(total: Expr, at: Index, read: Read) -> Expr:
            base = call("add", call("mul", total, self.alpha / self.size), self.bias)
            return call("div", read(0, at), _power(base, self.beta))

        return Nest(body, (const(self.size),), "add", finish)


def _power(x: Expr, exponent: float) -> Expr:
    """x ** exponent, through square roots where that is exact enough to be worth it."""
    if exponent == 0.75:
        half = call("sqrt", x)
        return call("mul", half, call("sqrt", half))
    if exponent == 0.5:
        return call("sqrt", x)
    return x if exponent == 1.0 else call("pow", x, const(exponent, x.dtype))
