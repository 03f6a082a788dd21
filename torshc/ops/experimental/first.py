"""The experimental operators of ONNX's releases before 1.5, made of its others at import.

ONNX has no schemas of them any more; what they mean is what its texts of that time say, which ONNX Runtime follows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ...errors import ModelError
from ...expr import BF16, F16, F32, F64, Expr, as_int, call, const, from_onnx
from ...graph import Shape, Value
from ..core.axes import constraints_of, require
from ..core.base import REGISTRY, Op, operator
from ..core.compose import apply
from ..core.source import SourceNode
from ..tensor.parts import Slice
from ..tensor.view import Expand, Reshape

FLOATS = (F16, BF16, F32, F64)
Floats = tuple[float, ...]
Ints = tuple[int, ...]


@dataclass(frozen=True)
class OfFloats(Op):
    """Base of the operators of one tensor of floats.

    Class attributes:
        needed: attributes without a default.
    """

    needed: ClassVar[tuple[str, ...]] = ()

    def make(self, source: SourceNode, x: Value) -> Value:
        """The output, made of other operators."""
        raise NotImplementedError(self.name)

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        for name in cls.needed:
            if name not in source.attributes:
                raise ModelError(f"{source.op_type} lacks its attribute {name!r}")
        x = source.required(0)
        if x.dtype not in FLOATS or len(source.inputs) > 1:
            raise ModelError(f"{source.op_type} of {', '.join(repr(v.type) for v in source.inputs if v)}")
        return [cls(**source.fields(cls)).make(source, x)]


# -- one element in, one out ------------------------------------------------------------------------------------------


@operator()
@dataclass(frozen=True)
class Affine(OfFloats):
    """alpha * x + beta."""

    alpha: float = 1.0
    beta: float = 0.0

    def make(self, source: SourceNode, x: Value) -> Value:
        return apply(source.builder, "Add", apply(source.builder, "Mul", x, self.alpha), self.beta)


@operator()
@dataclass(frozen=True)
class Scale(OfFloats):
    """scale * x."""

    scale: float = 1.0

    def make(self, source: SourceNode, x: Value) -> Value:
        return apply(source.builder, "Mul", x, self.scale)


@operator()
@dataclass(frozen=True)
class ScaledTanh(OfFloats):
    """alpha * tanh(beta * x)."""

    needed: ClassVar[tuple[str, ...]] = ("alpha", "beta")
    alpha: float = 1.0
    beta: float = 1.0

    def make(self, source: SourceNode, x: Value) -> Value:
        b = source.builder
        return apply(b, "Mul", apply(b, "Tanh", apply(b, "Mul", x, self.beta)), self.alpha)


@operator()
@dataclass(frozen=True)
class ParametricSoftplus(OfFloats):
    """alpha * log(exp(beta * x) + 1)."""

    needed: ClassVar[tuple[str, ...]] = ("alpha", "beta")
    alpha: float = 1.0
    beta: float = 1.0

    def make(self, source: SourceNode, x: Value) -> Value:
        b = source.builder
        return apply(b, "Mul", apply(b, "Softplus", apply(b, "Mul", x, self.beta)), self.alpha)


# -- images -----------------------------------------------------------------------------------------------------------


@operator()
@dataclass(frozen=True)
class ImageScaler(OfFloats):
    """scale * x[N, C, H, W] + bias[C]."""

    needed: ClassVar[tuple[str, ...]] = ("bias",)
    bias: Floats = ()
    scale: float = 1.0

    def make(self, source: SourceNode, x: Value) -> Value:
        b = source.builder
        if x.type.rank != 4:
            raise ModelError(f"ImageScaler of {x.type!r}, which is not a batch of images")
        what = f"ImageScaler of {x.type!r} with {len(self.bias)} biases"
        require(constraints_of(source), call("eq", x.shape[1], len(self.bias)), what)
        bias = b.constant(np.asarray(self.bias, x.dtype.numpy).reshape(-1, 1, 1))
        return apply(b, "Add", apply(b, "Mul", x, self.scale), bias)


@operator()
@dataclass(frozen=True)
class Crop(OfFloats):
    """x[N, C, H, W] without a border (left, top, right, bottom), or the `scale` (height, width) behind left and top."""

    needed: ClassVar[tuple[str, ...]] = ("border",)
    border: Ints = ()
    scale: Ints = ()

    def make(self, source: SourceNode, x: Value) -> Value:
        if x.type.rank != 4 or len(self.border) != 4 or len(self.scale) not in (0, 2):
            raise ModelError(f"Crop of {x.type!r} by {list(self.border)} to {list(self.scale)}")
        left, top, right, bottom = self.border
        sizes: list[Expr] = []
        for d, near, far, wanted in zip(x.shape[2:], (top, left), (bottom, right), self.scale or (-1, -1), strict=True):
            size = const(wanted) if self.scale else d - near - far
            inside = call("and", call("ge", size, 0), call("le", size + near, d))
            what = f"Crop of {x.type!r} by {list(self.border)} to {list(self.scale)}, more than its size"
            require(constraints_of(source), call("and", inside, const(near >= 0)), what)
            sizes.append(size)
        start = const(0), const(0), const(top), const(left)
        return source.builder.one(Slice(start, (*x.shape[:2], *sizes), (1,) * 4), x)


@operator()
@dataclass(frozen=True)
class DynamicSlice(Op):
    """Slice with operands, without steps."""

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        if len(source.inputs) > 4:
            raise ModelError(f"DynamicSlice of {len(source.inputs)} operands")
        source.fields(cls)
        return REGISTRY["", "Slice"].read(SourceNode("Slice", 10, {}, source.inputs, 1, source.builder))


# -- tensors made from attributes -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Filled(Op):
    """Base of the operators whose result has the shape of an attribute or of an operand.

    Attributes:
        shape: the shape, where there is no operand.
        extra_shape: dimensions behind those of the operand.
        input_as_shape: whether the operand's elements are the shape, rather than its dimensions.
    """

    shape: Ints = ()
    extra_shape: Ints = ()
    input_as_shape: int = 0

    def dims(self, source: SourceNode) -> Shape:
        """The shape of the result."""
        like = source.input(0)
        if like is None and (self.extra_shape or self.input_as_shape):
            raise ModelError(f"{source.op_type} without an operand, with extra_shape or input_as_shape")
        if like is not None and self.shape:
            raise ModelError(f"{source.op_type} with an operand and a shape")
        if like is None:
            found: Shape = tuple(const(d) for d in self.shape)
        elif self.input_as_shape:
            found = source.dims(0, f"the shape of {source.op_type}") or ()
        else:
            found = like.shape
        found = (*found, *(const(d) for d in self.extra_shape))
        for d in found:
            require(constraints_of(source), call("ge", d, 0), f"{source.op_type} of shape {list(found)}")
        return found


@operator()
@dataclass(frozen=True)
class ConstantFill(Filled):
    """A tensor filled with one value."""

    dtype: int = 1
    value: float = 0.0

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        op = cls(**source.fields(cls))
        dtype = from_onnx(op.dtype)
        if dtype is None or not (dtype.is_float or dtype.is_int or dtype.kind == "b"):
            raise ModelError(f"ConstantFill with element type {op.dtype}")
        if not dtype.is_float and not math.isfinite(op.value):
            raise ModelError(f"ConstantFill of {dtype!r} with {op.value}")
        fill = source.builder.constant(np.asarray(op.value).astype(dtype.numpy))
        return source.emit(Expand(op.dims(source)), [fill])


@operator()
@dataclass(frozen=True)
class GivenTensorFill(Filled):
    """A tensor of the values of an attribute."""

    values: Floats = ()

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        op = cls(**source.fields(cls))
        dims, values = op.dims(source), np.asarray(op.values, np.float32)
        sizes = [as_int(d) for d in dims]
        if all(d is not None for d in sizes) and math.prod(d or 0 for d in sizes) != len(values):
            raise ModelError(f"GivenTensorFill of shape {sizes} with {len(values)} values")
        return source.emit(Reshape(dims), [source.builder.constant(values)])
