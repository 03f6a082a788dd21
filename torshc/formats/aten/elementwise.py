"""Elementwise operators: operands are converted to the type that PyTorch promotes them to."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ...expr import BOOL
from ...ops.core import functions as ops
from ...ops.core.scalar import Scalar, equal, floor, fmod, function_named, isnan, maximum, minimum, trunc, where
from ...ops.core.tensor import Tensor, apply_named
from .call import Call, aten, elementwise

Bodies = Callable[..., Scalar]

# Functions of the table of scalar functions, of the result's type.
_UNARY = [
    "abs", "acos", "acosh", "asin", "asinh", "atan", "atanh", "ceil", "cos", "cosh", "erf", "exp", "expm1", "floor",
    "log", "log1p", "neg", "round", "sigmoid", "sin", "sinh", "sqrt", "tan", "tanh", "trunc",
]  # fmt: skip
_KEPT = {"abs", "ceil", "floor", "neg", "round", "trunc"}  # of integers too, which all but abs and neg leave alone
_FORMULAS: dict[str, Bodies] = {
    "reciprocal": lambda x: 1.0 / x,
    "rsqrt": lambda x: 1.0 / function_named("sqrt")(x),
    "log2": lambda x: function_named("log")(x) * (1 / math.log(2)),
    "log10": lambda x: function_named("log")(x) * (1 / math.log(10)),
    "exp2": lambda x: function_named("exp")(x * math.log(2)),
}


def _unary(name: str, body: Bodies) -> None:
    @aten(f"{name}.default")
    def apply(call: Call, x: Tensor) -> Tensor:
        if name in _KEPT and x.dtype.is_int and name not in ("abs", "neg"):
            return x
        return elementwise(lambda e: body(e), x.cast(call.dtype))


for _name in _UNARY:
    _unary(_name, function_named(_name))
for _name, _body in _FORMULAS.items():
    _unary(_name, _body)


@aten("relu.default")
def relu(call: Call, x: Tensor) -> Tensor:
    return ops.relu(x)


@aten("sign.default")
def sign(call: Call, x: Tensor) -> Tensor:
    """0 of NaN, unlike ONNX's."""
    return elementwise(lambda e: where(isnan(e), 0, function_named("sign")(e)), x) if x.dtype.is_float else ops.sign(x)


@aten("isnan.default")
def is_nan(call: Call, x: Tensor) -> Tensor:
    return elementwise(lambda e: isnan(e), x) if x.dtype.is_float else call.full(False)


@aten("isinf.default")
def is_inf(call: Call, x: Tensor) -> Tensor:
    return elementwise(lambda e: function_named("isinf")(e), x) if x.dtype.is_float else call.full(False)


@aten("logical_not.default")
def logical_not(call: Call, x: Tensor) -> Tensor:
    return ~x.cast(BOOL)


@aten("bitwise_not.default")
def bitwise_not(call: Call, x: Tensor) -> Tensor:
    return ~x if x.dtype is BOOL else ops.bitwise_not(x)


def _pair(call: Call, x: Any, y: Any) -> tuple[Tensor, Tensor]:
    common = call.common
    return call.tensor(x, common), call.tensor(y, common)


_COMPARED = {
    "eq": "Equal", "lt": "Less", "le": "LessOrEqual", "gt": "Greater", "ge": "GreaterOrEqual",
}  # fmt: skip


def _comparison(name: str, operator: str) -> None:
    @aten(f"{name}.Tensor", f"{name}.Scalar")
    def compare(call: Call, x: Tensor, y: Any) -> Tensor:
        return apply_named(operator, *_pair(call, x, y))


for _name, _operator in _COMPARED.items():
    _comparison(_name, _operator)


@aten("ne.Tensor", "ne.Scalar")
def unequal(call: Call, x: Tensor, y: Any) -> Tensor:
    return ~apply_named("Equal", *_pair(call, x, y))


_LOGICAL = {"and": "And", "or": "Or", "xor": "Xor"}


def _logical(name: str, operator: str) -> None:
    @aten(f"logical_{name}.default")
    def logical(call: Call, x: Tensor, y: Tensor) -> Tensor:
        return apply_named(operator, x.cast(BOOL), y.cast(BOOL))

    @aten(f"bitwise_{name}.Tensor", f"bitwise_{name}.Scalar")
    def bitwise(call: Call, x: Tensor, y: Any) -> Tensor:
        pair = _pair(call, x, y)
        return apply_named(operator if pair[0].dtype is BOOL else f"Bitwise{operator}", *pair)


for _name, _operator in _LOGICAL.items():
    _logical(_name, _operator)


def _scaled(call: Call, y: Any, alpha: Any) -> Tensor:
    return call.tensor(y, call.dtype) if alpha == 1 else call.tensor(y, call.dtype) * call.constant(alpha)


@aten("add.Tensor", "add.Scalar")
def add(call: Call, x: Any, y: Any, alpha: Any = 1) -> Tensor:
    first = call.tensor(x, call.dtype)
    return first | call.tensor(y, BOOL) if call.dtype is BOOL else first + _scaled(call, y, alpha)


@aten("sub.Tensor", "sub.Scalar")
def subtract(call: Call, x: Any, y: Any, alpha: Any = 1) -> Tensor:
    return call.tensor(x, call.dtype) - _scaled(call, y, alpha)


@aten("mul.Tensor", "mul.Scalar")
def multiply(call: Call, x: Any, y: Any) -> Tensor:
    first, second = call.tensor(x, call.dtype), call.tensor(y, call.dtype)
    return first & second if call.dtype is BOOL else first * second


@aten("div.Tensor", "div.Scalar")
def divide(call: Call, x: Any, y: Any) -> Tensor:
    return call.tensor(x, call.dtype) / call.tensor(y, call.dtype)


@aten("div.Tensor_mode", "div.Scalar_mode")
def divide_rounding(call: Call, x: Any, y: Any, rounding_mode: str | None = None) -> Tensor:
    first, second = call.tensor(x, call.dtype), call.tensor(y, call.dtype)
    if rounding_mode is None or not (call.dtype.is_float or rounding_mode == "floor"):
        return first / second
    return elementwise(_divide_to_floor if rounding_mode == "floor" else lambda a, b: trunc(a / b), first, second)


def _divide_to_floor(a: Scalar, b: Scalar) -> Scalar:
    """Rounded down by the remainder, as Python does: the quotient itself may have been rounded up to a whole number."""
    if not a.dtype.is_float:
        return function_named("floordiv")(a, b)
    exact = (a - _remainder(a, b)) / b
    below = floor(exact)
    whole = where(exact - below > 0.5, below + 1.0, below)
    return where(equal(b, 0.0), a / b, whole)


def _remainder(a: Scalar, b: Scalar) -> Scalar:
    """Of the sign of the divisor."""
    rest = fmod(a, b)
    return where(~equal(rest, 0) & function_named("ne")(rest < 0, b < 0), rest + b, rest)


@aten("remainder.Tensor", "remainder.Scalar", "remainder.Scalar_Tensor")
def remainder(call: Call, x: Any, y: Any) -> Tensor:
    return elementwise(_remainder, call.tensor(x, call.dtype), call.tensor(y, call.dtype))


@aten("fmod.Tensor", "fmod.Scalar")
def truncated_remainder(call: Call, x: Tensor, y: Any) -> Tensor:
    return elementwise(lambda a, b: fmod(a, b), x.cast(call.dtype), call.tensor(y, call.dtype))


@aten("pow.Tensor_Scalar", "pow.Tensor_Tensor", "pow.Scalar")
def power(call: Call, x: Any, y: Any) -> Tensor:
    base = call.tensor(x, call.dtype)
    if not isinstance(y, Tensor) and y == 2:
        return base * base
    return apply_named("Pow", base, call.tensor(y, call.dtype))


@aten("maximum.default")
def largest(call: Call, x: Tensor, y: Tensor) -> Tensor:
    return elementwise(lambda a, b: maximum(a, b), *_pair(call, x, y))


@aten("minimum.default")
def least(call: Call, x: Tensor, y: Tensor) -> Tensor:
    return elementwise(lambda a, b: minimum(a, b), *_pair(call, x, y))


@aten("clamp.default", "clamp.Tensor", "hardtanh.default")
def clamp(call: Call, x: Tensor, min: Any = None, max: Any = None) -> Tensor:
    if call.node.target.__name__.startswith("hardtanh"):
        min, max = -1.0 if min is None else min, 1.0 if max is None else max
    x = x.cast(call.dtype)
    if min is not None:
        x = elementwise(lambda a, b: maximum(a, b), x, call.tensor(min, call.dtype))
    return x if max is None else elementwise(lambda a, b: minimum(a, b), x, call.tensor(max, call.dtype))


@aten("where.self")
def choose(call: Call, condition: Tensor, x: Any, y: Any) -> Tensor:
    condition = condition.cast(BOOL)
    return apply_named("Where", condition, call.tensor(x, call.dtype), call.tensor(y, call.dtype))


@aten("gelu.default")
def gelu(call: Call, x: Tensor, approximate: str = "none") -> Tensor:
    return ops.gelu(x, approximate=approximate)


@aten("leaky_relu.default")
def leaky_relu(call: Call, x: Tensor, negative_slope: float = 0.01) -> Tensor:
    return ops.leaky_relu(x, alpha=float(negative_slope))


@aten("elu.default")
def elu(call: Call, x: Tensor, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Tensor:
    if scale != 1 or input_scale != 1:
        expm1 = function_named("expm1")
        return elementwise(lambda e: where(e > 0, e * scale, expm1(e * input_scale) * (alpha * scale)), x)
    return ops.elu(x, alpha=float(alpha))


@aten("_to_copy.default", "prims.convert_element_type.default")
def convert(call: Call, x: Tensor, *_: Any, **__: Any) -> Tensor:
    return x.cast(call.dtype)
