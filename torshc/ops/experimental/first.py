"""The experimental operators of ONNX's releases before 1.5, made of its others at import.

ONNX has no schemas of them any more; what they mean is what its texts of that time say, which ONNX Runtime follows.
"""

from __future__ import annotations

import math
from typing import TypedDict, Unpack

import numpy as np

from ...base.errors import ModelError
from ...expr import Expr, as_int, const, eq, from_onnx
from ...graph import Shape
from ..core.axes import constraints_of, require
from ..core.composite import composite
from ..core.functions import softplus, tanh
from ..core.source import SourceNode
from ..core.tensor import Tensor, read_node

Floats = tuple[float, ...]
Ints = tuple[int, ...]

# -- one element in, one out ------------------------------------------------------------------------------------------


@composite("Affine")
def affine(x: Tensor, *, alpha: float = 1.0, beta: float = 0.0) -> Tensor:
    """alpha * x + beta."""
    return x * alpha + beta


@composite("Scale")
def scaled(x: Tensor, *, scale: float = 1.0) -> Tensor:
    """scale * x."""
    return x * scale


@composite("ScaledTanh")
def scaled_tanh(x: Tensor, *, alpha: float, beta: float) -> Tensor:
    """alpha * tanh(beta * x)."""
    return tanh(x * beta) * alpha


@composite("ParametricSoftplus")
def parametric_softplus(x: Tensor, *, alpha: float, beta: float) -> Tensor:
    """alpha * log(exp(beta * x) + 1)."""
    return softplus(x * beta) * alpha


# -- images -----------------------------------------------------------------------------------------------------------


@composite("ImageScaler")
def image_scaler(source: SourceNode, x: Tensor, *, bias: Floats, scale: float = 1.0) -> Tensor:
    """scale * x[N, C, H, W] + bias[C]."""
    if x.rank != 4:
        raise ModelError(f"ImageScaler of {x.type!r}, which is not a batch of images")
    what = f"ImageScaler of {x.type!r} with {len(bias)} biases"
    require(constraints_of(source), eq(x.shape[1], len(bias)), what)
    return x * scale + x.constant(np.asarray(bias, x.dtype.numpy).reshape(-1, 1, 1))


@composite("Crop")
def crop(source: SourceNode, x: Tensor, *, border: Ints, scale: Ints = ()) -> Tensor:
    """x[N, C, H, W] without a border (left, top, right, bottom), or the `scale` (height, width) behind left and top."""
    what = f"Crop of {x.type!r} by {list(border)} to {list(scale)}"
    if x.rank != 4 or len(border) != 4 or len(scale) not in (0, 2):
        raise ModelError(f"{what}; images need 4 dimensions, borders 4 numbers, and scales 2 or none")
    left, top, right, bottom = border
    sizes: list[Expr] = []
    for d, near, far, wanted in zip(x.shape[2:], (top, left), (bottom, right), scale or (-1, -1), strict=True):
        size = const(wanted) if scale else d - near - far
        inside = (size >= 0) & (size + near <= d)
        require(constraints_of(source), inside & const(near >= 0), f"{what}, more than its size")
        sizes.append(size)
    return x.slice((const(0), const(0), const(top), const(left)), (*x.shape[:2], *sizes))


@composite("DynamicSlice", floats=False)
def dynamic_slice(x: Tensor, starts: Tensor, ends: Tensor, axes: Tensor | None = None) -> Tensor:
    """Slice with operands, without steps."""
    return read_node("Slice", x, starts, ends, axes, opset=10)


# -- tensors made from attributes -------------------------------------------------------------------------------------


class Filled(TypedDict, total=False):
    """Attributes of the operators whose result has the shape of an attribute or of an operand.

    Attributes:
        shape: the shape, where there is no operand.
        extra_shape: dimensions behind those of the operand.
        input_as_shape: whether the operand's elements are the shape, rather than its dimensions.
    """

    shape: Ints
    extra_shape: Ints
    input_as_shape: int


def _dims(source: SourceNode, like: Tensor | None, form: Filled) -> Shape:
    """The shape of the result."""
    shape, extra, as_shape = form.get("shape"), form.get("extra_shape", ()), form.get("input_as_shape")
    if like is None and (extra or as_shape):
        raise ModelError(f"{source.op_type} without an operand, with extra_shape or input_as_shape")
    if like is not None and shape:
        raise ModelError(f"{source.op_type} with an operand and a shape, only one of which may say the shape")
    if like is None:
        found: Shape = tuple(const(d) for d in shape or ())
    elif as_shape:
        found = source.dims(0, f"the shape of {source.op_type}") or ()
    else:
        found = like.shape
    found = (*found, *(const(d) for d in extra))
    for d in found:
        require(constraints_of(source), d >= 0, f"{source.op_type} of shape {list(found)}")
    return found


@composite("ConstantFill", floats=False)
def constant_fill(
    source: SourceNode, like: Tensor | None = None, *, dtype: int = 1, value: float = 0.0, **form: Unpack[Filled]
) -> Tensor:
    """A tensor filled with one value."""
    kind, b = from_onnx(dtype), source.builder
    if kind is None or not (kind.is_float or kind.is_int or kind.kind == "b"):
        raise ModelError(f"ConstantFill with element type {dtype}, which is no type of numbers")
    if not kind.is_float and not math.isfinite(value):
        raise ModelError(f"ConstantFill of {kind!r} with {value}, which that type cannot hold")
    return Tensor(b, b.constant(np.asarray(value).astype(kind.numpy))).expand(*_dims(source, like, form))


@composite("GivenTensorFill", floats=False)
def given_tensor_fill(
    source: SourceNode, like: Tensor | None = None, *, values: Floats = (), **form: Unpack[Filled]
) -> Tensor:
    """A tensor of the values of an attribute."""
    dims, b = _dims(source, like, form), source.builder
    sizes = [as_int(d) for d in dims]
    if all(d is not None for d in sizes) and math.prod(d or 0 for d in sizes) != len(values):
        raise ModelError(f"GivenTensorFill of shape {sizes} with {len(values)} values, which is another number")
    return Tensor(b, b.constant(np.asarray(values, np.float32))).reshape(*dims)
