"""Pointwise operators: one output element from one element of each operand, with NumPy's broadcasting.

Most are a function of elements, whose keywords are the attributes. Those whose number of operands or result type
varies are classes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import ClassVar

from ...base.errors import ModelError
from ...expr import BOOL, F8E8M0, F32, F64, I32, STRING, DType, from_onnx
from ...graph import Value
from ..core import scalar
from ..core.base import REGISTRY, Inputs, need, operator
from ..core.gradient import Backward, NoGradient, gradient_of, slopes_of
from ..core.pointwise import Pointwise, compute, pointwise
from ..core.scalar import (
    Scalar,
    clip,
    element,
    erf,
    exp,
    expm1,
    isinf,
    log1p,
    maximum,
    minimum,
    sigmoid,
    tanh,
    where,
)
from ..core.source import SourceNode, Unsupported
from ..core.tensor import Tensor, apply_op
from ..text.numbers import cast_text
from .expression import Expression, argument


def through_float(function: Callable[[Scalar], Scalar], x: Scalar) -> Scalar:
    """A function of floats; of an integer it is computed in f32, as ONNX's definitions do, and loses its fraction."""
    return function(x) if x.dtype.is_float else function(x.cast(F32)).cast(x.dtype)


_UNARY = [
    "Neg", "Abs", "Sign", "Floor", "Ceil", "Round", "Sqrt", "Exp", "Log", "Tanh", "Sigmoid", "Sin", "Cos", "Tan",
    "Asin", "Acos", "Atan", "Sinh", "Cosh", "Asinh", "Acosh", "Atanh", "Not", "IsNaN",
]  # fmt: skip
_BINARY = ["Add", "Sub", "Mul", "Div", "And", "Or", "Xor"]
_RENAMED = {
    "Less": "lt", "LessOrEqual": "le", "Greater": "gt", "GreaterOrEqual": "ge", "Equal": "eq", "BitwiseAnd": "bitand",
    "BitwiseOr": "bitor", "BitwiseXor": "bitxor",
}  # fmt: skip


def _unary(function: Callable[..., Scalar]) -> Callable[[Scalar], Scalar]:
    return lambda x: function(x)


def _binary(function: Callable[..., Scalar]) -> Callable[[Scalar, Scalar], Scalar]:
    return lambda x, y: function(x, y)


for _name, _function in {**{n: n.lower() for n in _UNARY}, "BitwiseNot": "bitnot"}.items():
    pointwise(_name)(_unary(scalar.function_named(_function)))
for _name, _function in {**{n: n.lower() for n in _BINARY}, **_RENAMED}.items():
    pointwise(_name)(_binary(scalar.function_named(_function)))
pointwise("Where")(where)


@pointwise("Identity")
def identity(x: Scalar) -> Scalar:
    return x


@pointwise("Erf")
def _erf(x: Scalar) -> Scalar:
    return through_float(erf, x)


@pointwise("Relu")
def relu(x: Scalar) -> Scalar:
    return maximum(x, 0)


@gradient_of("Relu")
def _relu_gradient(op: Pointwise, at: Backward) -> Tensor:
    y, g = at.outputs[0], at.gradient
    return apply_op(relu_slope(g.dtype, y.dtype), g, y)


def relu_slope(change: DType, kept: DType) -> Expression:
    """What hands a gradient back of the gradient and the Relu's result, which others keep.

    0 at 0, as PyTorch has it; so are all that follow where a slope jumps.
    """
    g, y = (Scalar(argument(k, compute(t))) for k, t in enumerate((change, kept)))
    return Expression(where(y > 0, g, 0).expr, change)


@pointwise("Reciprocal")
def reciprocal(x: Scalar) -> Scalar:
    return 1 / x


@pointwise("Softplus")
def softplus(x: Scalar) -> Scalar:
    """log(1 + exp(x)) as max(x, 0) + log1p(exp(-|x|)), which neither overflows nor cancels."""
    return relu(x) + log1p(exp(-abs(x)))


@slopes_of("Softplus")
def _softplus_slope(t: Scalar, x: Scalar) -> Scalar:
    return t * sigmoid(x)


@pointwise("Softsign")
def softsign(x: Scalar) -> Scalar:
    return x / (1 + abs(x))


@pointwise("HardSwish")
def hard_swish(x: Scalar) -> Scalar:
    return x * hard_sigmoid(x, alpha=1 / 6)


@slopes_of("HardSwish")
def _hard_swish_slope(t: Scalar, x: Scalar) -> Scalar:
    return where(x <= -3, 0, where(x < 3, t * (x / 3 + 0.5), t))


@pointwise("Mish")
def mish(x: Scalar) -> Scalar:
    return x * tanh(softplus(x))


@pointwise("Mod")
def mod(x: Scalar, y: Scalar, *, fmod: int = 0) -> Scalar:
    """Remainder with the divisor's sign, or the dividend's when fmod is 1."""
    return scalar.fmod(x, y) if fmod else x % y


@pointwise("LeakyRelu")
def leaky_relu(x: Scalar, *, alpha: float = 0.01) -> Scalar:
    return where(x < 0, x * alpha, x)


@slopes_of("LeakyRelu")
def _leaky_relu_slope(t: Scalar, x: Scalar, *, alpha: float) -> Scalar:
    return where(x > 0, t, t * alpha)


@pointwise("ThresholdedRelu")
def thresholded_relu(x: Scalar, *, alpha: float = 1.0) -> Scalar:
    return where(x > alpha, x, 0)


@pointwise("PRelu")
def p_relu(x: Scalar, slope: Scalar) -> Scalar:
    """x where x >= 0, else slope * x; the slope broadcasts to x."""
    return where(x < 0, x * slope, x)


@slopes_of("PRelu")
def _p_relu_slopes(t: Scalar, x: Scalar, slope: Scalar) -> list[Scalar]:
    return [where(x > 0, t, t * slope), where(x > 0, 0, t * x)]


@pointwise("Elu")
def elu(x: Scalar, *, alpha: float = 1.0) -> Scalar:
    return where(x < 0, expm1(x) * alpha, x)


@slopes_of("Elu")
def _elu_slope(t: Scalar, x: Scalar, *, alpha: float) -> Scalar:
    return where(x > 0, t, t * alpha * exp(x))


@pointwise("Celu")
def celu(x: Scalar, *, alpha: float = 1.0) -> Scalar:
    """max(0, x) + min(0, alpha * (exp(x / alpha) - 1))."""
    return relu(x) + minimum(expm1(x / alpha) * alpha, 0)


@slopes_of("Celu")
def _celu_slope(t: Scalar, x: Scalar, *, alpha: float) -> Scalar:
    return where(x > 0, t, t * exp(x / alpha))


@pointwise("Selu")
def selu(x: Scalar, *, alpha: float = 1.67326319217681884765625, gamma: float = 1.05070102214813232421875) -> Scalar:
    return where(x > 0, x, expm1(x) * alpha) * gamma


@pointwise("HardSigmoid")
def hard_sigmoid(x: Scalar, *, alpha: float = 0.2, beta: float = 0.5) -> Scalar:
    return clip(x * alpha + beta, 0, 1)


@slopes_of("HardSigmoid")
def _hard_sigmoid_slope(t: Scalar, x: Scalar, *, alpha: float, beta: float) -> Scalar:
    y = x * alpha + beta
    return where((y > 0) & (y < 1), t * alpha, 0)


@pointwise("Shrink")
def shrink(x: Scalar, *, bias: float = 0.0, lambd: float = 0.5) -> Scalar:
    return where(x < -lambd, x + bias, where(x > lambd, x - bias, 0))


@pointwise("Swish")
def swish(x: Scalar, *, alpha: float = 1.0) -> Scalar:
    """x * sigmoid(alpha * x)."""
    return x * sigmoid(x * alpha if alpha != 1.0 else x)


@pointwise("Gelu")
def gelu(x: Scalar, *, approximate: str = "none") -> Scalar:
    """Gaussian error linear unit; approximate is "none" (erf) or "tanh".

    (1 + tanh(u)) / 2 is sigmoid(2 u), of which no sum cancels where x is negative.
    """
    if approximate == "tanh":
        return x * sigmoid((x + x * x * x * 0.044715) * (2 * math.sqrt(2 / math.pi)))
    return x * 0.5 * (erf(x * math.sqrt(0.5)) + 1)


@pointwise("IsInf")
def is_inf(x: Scalar, *, detect_negative: int = 1, detect_positive: int = 1) -> Scalar:
    if not (detect_negative or detect_positive):
        return element(False, BOOL)
    if detect_negative and detect_positive:
        return isinf(x)
    return isinf(x) & (x < 0 if detect_negative else x > 0)


@pointwise("BitShift")
def bit_shift(x: Scalar, y: Scalar, *, direction: str = "LEFT") -> Scalar:
    return x << y if direction == "LEFT" else x >> y


@pointwise("Pow")
def power(x: Scalar, y: Scalar) -> Scalar:
    """x ** y of x's type, whatever the exponent's."""
    whole = isinstance(y.number, float) and y.number.is_integer()
    if y.dtype.is_float and not x.dtype.is_float and not whole:
        return (x.cast(F64) ** y.cast(F64)).cast(x.dtype)
    return x ** y.cast(x.dtype)


@dataclass(frozen=True)
class Separator(Pointwise):
    """x, which who computes it and who reads it here hand over in memory: no pass looks through it.

    A rule puts it there and `finalise` takes it out, so it is not an operator that a model may have.

    Attributes:
        rule, where: of :class:`torshc.graph.RuleName`.
    """

    name: ClassVar[str] = "Separator"
    domain: ClassVar[str] = "torshc"
    family: ClassVar[str] = "boundary"
    rule: str = ""
    where: str = ""

    def body(self, *xs: Scalar) -> Scalar:
        return xs[0]


WIDE = 7  # operands of a node, as many as a kernel of every target has; more are combined by several, from the left


class Variadic(Pointwise):
    """Base of Sum, Max, Min, Mean: any number of operands."""

    function: ClassVar[Callable[[Scalar, Scalar], Scalar]] = Scalar.__add__

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        parts = source.inputs
        return super().read(source) if len(parts) <= WIDE else cls().joined(source, parts)

    def joined(self, source: SourceNode, parts: Sequence[Value | None]) -> list[Value]:
        """Many operands, combined from the left."""
        total, rest = parts[0], parts[1:]
        for k in range(0, len(rest), WIDE - 1):
            (total,) = source.emit(self, [total, *rest[k : k + WIDE - 1]])
        return [need(total, f"an input of {self.name}")]

    def body(self, *xs: Scalar) -> Scalar:
        return reduce(type(self).function, xs)


@operator()
@dataclass(frozen=True)
class Sum(Variadic):
    """Elementwise sum of its operands."""


@operator()
@dataclass(frozen=True)
class Max(Variadic):
    """Elementwise maximum; NaN in any operand gives NaN."""

    function: ClassVar[Callable[..., Scalar]] = maximum


@operator()
@dataclass(frozen=True)
class Min(Variadic):
    """Elementwise minimum; NaN in any operand gives NaN."""

    function: ClassVar[Callable[..., Scalar]] = minimum


@operator()
@dataclass(frozen=True)
class Mean(Variadic):
    """Elementwise mean of its operands."""

    def joined(self, source: SourceNode, parts: Sequence[Value | None]) -> list[Value]:
        (total,) = Sum().joined(source, parts)
        return source.emit(REGISTRY["", "Mul"](), [total, source.builder.constant(1.0 / len(parts), total)])

    def body(self, *xs: Scalar) -> Scalar:
        return super().body(*xs) * (1.0 / len(xs)) if len(xs) > 1 else xs[0]


@operator()
@dataclass(frozen=True)
class Cast(Pointwise):
    """Conversion; floats to integers truncate and saturate, NaN becomes 0, anything to bool is != 0.

    To integers of 4 and 2 bits only the lowest bits are kept, of floats as well, once they are i32. Floats of 8 and 4
    bits round to nearest even, through f32; NaN becomes a zero of f4e2m1, which has none. f8e8m0 takes abs(x) and
    rounds as `round_mode` says; zero becomes its smallest number, and infinity NaN. A cast to the type that a value has
    already changes nothing. Text is left to :mod:`torshc.ops.text.numbers`.

    Attributes:
        to: element type of the result.
        saturate: for floats of 8 bits, whether what is too large becomes the largest number; else it becomes infinite,
            or NaN. f4e2m1 always saturates.
        round_mode: for f8e8m0, "up", "down" or "nearest".
    """

    objects: ClassVar[bool] = True
    to: DType = F32
    saturate: int = 1
    round_mode: str = "up"

    def body(self, *xs: Scalar) -> Scalar:
        (x,) = xs
        to = self.to
        if to.is_narrow and to.is_int:
            return _store_and_load((x.cast(I32) if x.dtype.is_float else x).cast(compute(to)), to.name)
        value = x.cast(compute(to))
        if to is F8E8M0:
            value = abs(value)
            if self.saturate:
                value = where(isinf(value), value, minimum(value, 2.0**127))
            return _store_and_load(value, to.name if self.round_mode == "down" else f"{to.name}_{self.round_mode}")
        if to.name in LARGEST and self.saturate:
            value = clip(value, -LARGEST[to.name], LARGEST[to.name])
        # The model asks for it, so the rounding is done even where the result stays in a register.
        return _store_and_load(value, to.name) if to.is_storage else value

    def result(self, inputs: Inputs) -> DType:
        return self.to

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        code = source.attribute("to")
        saturate, mode = int(source.attribute("saturate", 1)), str(source.attribute("round_mode", "up"))
        if source.op_type == "CastLike":
            dtype: DType | None = source.required(1).dtype
        else:
            dtype = code if isinstance(code, DType) else from_onnx(int(code or 0))
        if dtype is None:
            raise Unsupported(f"a cast to ONNX type {code}")
        x = source.required(0)
        if STRING in (dtype, x.dtype):
            if x.dtype.is_narrow:
                (x,) = source.emit(cls(to=x.dtype.register), [x])
            (x,) = cast_text(source, x, dtype.register if dtype.is_narrow else dtype)
            if not dtype.is_narrow:
                return [x]
        if not dtype.is_narrow:
            return source.emit(cls(to=dtype), [x])
        return source.emit(cls(dtype, saturate, mode if dtype is F8E8M0 else "up"), [x])


def _store_and_load(x: Scalar, how: str) -> Scalar:
    """An element as it is after it was stored as a narrow type and loaded again."""
    return scalar.function_named(f"as_{how}")(x)


REGISTRY[("", "CastLike")] = Cast
# The largest numbers of floats of 8 bits.
LARGEST = {"f8e4m3fn": 448.0, "f8e4m3fnuz": 240.0, "f8e5m2": 57344.0, "f8e5m2fnuz": 57344.0}


@operator()
@dataclass(frozen=True)
class Clip(Pointwise):
    """min(max(x, low), high); a bound that is absent is not applied. Bounds that are constants become fields."""

    low: float | int | None = None
    high: float | int | None = None
    operands: str = ""  # which bounds stay operands: "", "min", "max" or "min,max"

    def body(self, *xs: Scalar) -> Scalar:
        x, *bounds = xs
        low = bounds.pop(0) if "min" in self.operands else self.low
        high = bounds.pop(0) if "max" in self.operands else self.high
        if bounds:
            raise TypeError("its bounds are low= and high=, and operands only as operands= names them")
        return clip(x, low, high)

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        x, kept, names = source.required(0), [], []
        bounds: dict[str, float | int | None] = {}
        for k, name in ((1, "min"), (2, "max")):
            operand = source.input(k)
            bounds[name] = source.attribute(name)
            if operand is not None and operand.const is not None:
                if operand.const.size != 1:
                    raise ModelError(
                        f"Clip with a {name} of {operand.const.size} elements, where a bound has to be one number"
                    )
                bounds[name] = operand.const.reshape(-1)[0].item()
            elif operand is not None:
                kept.append(operand)
                names.append(name)
        return source.emit(cls(low=bounds["min"], high=bounds["max"], operands=",".join(names)), [x, *kept])


@slopes_of(Clip)
def _clip_slopes(t: Scalar, *xs: Scalar, low: float | None, high: float | None, operands: str) -> list[Scalar]:
    """1 at a bound, as of torch.clamp; a bound has what x loses, and the upper one counts where they cross."""
    x, rest = xs[0], list(xs[1:])
    least = rest.pop(0) if "min" in operands else None if low is None else element(low, x.dtype)
    most = rest.pop(0) if "max" in operands else None if high is None else element(high, x.dtype)
    inside, under, over = element(True), element(False), element(False)
    if least is not None:
        inside, under = x >= least, x < least
    if most is not None:
        inside, over = inside & (x <= most), x > most
    if least is not None and most is not None:
        under, over = under & (least < most), over | (least > most)
    found = {"": inside, "min": under, "max": over}
    return [where(found[name], t, 0) for name in ("", *filter(None, operands.split(",")))]


@gradient_of(Cast)
def _cast_gradient(op: Cast, at: Backward) -> Tensor:
    """The gradient passes as if the conversion did not round."""
    if op.to.is_narrow or at.operand(0).dtype.is_narrow:
        raise NoGradient("floats of 8 bits and fewer have none")
    return at.gradient.cast(at.operand(0).dtype)
