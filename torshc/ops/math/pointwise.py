"""Pointwise operators: one output element from one element of each operand, with NumPy's broadcasting.

Most are a line: a name and the scalar body. Those with attributes are classes whose fields are the attributes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from ...base.errors import ModelError
from ...expr import F8E8M0, F32, F64, I32, STRING, DType, Expr, acc, call, cast, const, from_onnx, select
from ...graph import Node, TensorType, Value, ints_of
from ..core.base import REGISTRY, Constraints, Index, Inputs, Nest, Op, Read, broadcast, broadcast_index, need, operator
from ..core.source import SourceNode, Unsupported
from ..text.numbers import cast_text


def compute(dtype: DType) -> DType:
    """The type that arithmetic happens in: f16, bf16 and narrower floats are read as f32."""
    return dtype.register


@dataclass(frozen=True)
class Pointwise(Op):
    """Base: subclasses give ``body``, and ``result`` where the output's dtype is not the first operand's."""

    family: ClassVar[str] = "pointwise"

    def body(self, *xs: Expr) -> Expr:
        raise NotImplementedError(self.name)

    def result(self, inputs: Inputs) -> DType:
        """Element type of the output: that of the first operand which is computed with in the body's type (so that f16
        stays f16), else the body's own, such as bool for a comparison."""
        present = [need(v, f"input {k} of {self.name}").dtype for k, v in enumerate(inputs)]
        made = self.body(*(acc(f"x{k}", compute(d)) for k, d in enumerate(present))).dtype
        return next((d for d in present if compute(d) is made), made)

    def infer(self, inputs: Inputs, constraints: Constraints) -> list[TensorType]:
        present = [need(v, f"input {k} of {self.name}") for k, v in enumerate(inputs or (None,))]
        try:
            dtype = self.result(inputs)
        except TypeError as e:
            raise ModelError(f"{self.name} of different types, {' and '.join(repr(v.type) for v in present)}") from e
        return [TensorType(dtype, broadcast([v.shape for v in present], constraints))]

    def nest(self, node: Node, output: int) -> Nest:
        shapes = [v.shape for v in node.operands]

        def body(at: Index, _: Index, read: Read) -> Expr:
            return self.body(*(read(k, broadcast_index(at, s)) for k, s in enumerate(shapes)))

        return Nest(body)


def pointwise(name: str, body: Callable[..., Expr], domain: str = "") -> type[Op]:
    """Declare a pointwise operator without attributes."""
    cls = type(name, (Pointwise,), {"body": lambda self, *xs: body(*xs), "__doc__": f"ONNX {name}."})
    return operator(name, domain)(dataclass(frozen=True)(cls))


def through_float(function: str, x: Expr) -> Expr:
    """A function of floats; of an integer it is computed in f32, as ONNX's definitions do, and loses its fraction."""
    return call(function, x) if x.dtype.is_float else cast(call(function, cast(x, F32)), x.dtype)


def _relu(x: Expr) -> Expr:
    return call("max", x, const(0, x.dtype))


def _reciprocal(x: Expr) -> Expr:
    return call("div", const(1, x.dtype), x)


def _softplus(x: Expr) -> Expr:
    """log(1 + exp(x)) as max(x, 0) + log1p(exp(-|x|)), which neither overflows nor cancels."""
    return _relu(x) + call("log1p", call("exp", call("neg", call("abs", x))))


def _mish(x: Expr) -> Expr:
    return call("mul", x, call("tanh", _softplus(x)))


_PLAIN = [
    "Add", "Sub", "Mul", "Div", "Neg", "Abs", "Sign", "Floor", "Ceil", "Round", "Sqrt", "Exp", "Log", "Tanh",
    "Sigmoid", "Sin", "Cos", "Tan", "Asin", "Acos", "Atan", "Sinh", "Cosh", "Asinh", "Acosh", "Atanh", "And", "Or",
    "Xor", "Not",
]  # fmt: skip
_RENAMED = {
    "Less": "lt", "LessOrEqual": "le", "Greater": "gt", "GreaterOrEqual": "ge", "Equal": "eq", "IsNaN": "isnan",
    "BitwiseAnd": "bitand", "BitwiseOr": "bitor", "BitwiseXor": "bitxor", "BitwiseNot": "bitnot",
}  # fmt: skip
for _name, _function in {**{n: n.lower() for n in _PLAIN}, **_RENAMED}.items():
    pointwise(_name, partial(call, _function))
pointwise("Erf", partial(through_float, "erf"))
pointwise("Relu", _relu)
pointwise("Reciprocal", _reciprocal)
pointwise("Softplus", _softplus)
pointwise("Softsign", lambda x: call("div", x, call("add", const(1, x.dtype), call("abs", x))))
pointwise("HardSwish", lambda x: call("mul", x, _clip(call("add", call("mul", x, 1 / 6), 0.5), 0.0, 1.0)))
pointwise("Mish", _mish)
pointwise("Where", select)
pointwise("Identity", lambda x: x)


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

    def body(self, *xs: Expr) -> Expr:
        return xs[0]


def _clip(x: Expr, low: float, high: float) -> Expr:
    return call("min", call("max", x, low), high)


@operator()
@dataclass(frozen=True)
class Pow(Pointwise):
    """x ** y of x's type, whatever the exponent's."""

    def body(self, *xs: Expr) -> Expr:
        x, y = xs
        whole = y.op == "const" and isinstance(y.data, float) and y.data.is_integer()
        if y.dtype.is_float and not x.dtype.is_float and not whole:
            return cast(call("pow", cast(x, F64), cast(y, F64)), x.dtype)
        y = cast(y, x.dtype)
        if y.op == "const" and y.data in (2, 3):
            return call("mul", x, x) if y.data == 2 else call("mul", call("mul", x, x), x)
        if y.op == "const" and y.data == 0.5 and x.dtype.is_float:
            return call("sqrt", x)
        if y.op == "const" and y.data == 0.75 and x.dtype.is_float:  # local response normalisation
            root = call("sqrt", x)
            return call("mul", root, call("sqrt", root))
        return call("pow", x, y)


WIDE = 7  # operands of a node, as many as a kernel of every target has; more are combined by several, from the left


class Variadic(Pointwise):
    """Base of Sum, Max, Min, Mean: any number of operands."""

    function: ClassVar[str] = "add"

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

    def body(self, *xs: Expr) -> Expr:
        total = xs[0]
        for x in xs[1:]:
            total = call(self.function, total, x)
        return total


@operator()
@dataclass(frozen=True)
class Sum(Variadic):
    """Elementwise sum of its operands."""


@operator()
@dataclass(frozen=True)
class Max(Variadic):
    """Elementwise maximum; NaN in any operand gives NaN."""

    function: ClassVar[str] = "max"


@operator()
@dataclass(frozen=True)
class Min(Variadic):
    """Elementwise minimum; NaN in any operand gives NaN."""

    function: ClassVar[str] = "min"


@operator()
@dataclass(frozen=True)
class Mean(Variadic):
    """Elementwise mean of its operands."""

    def joined(self, source: SourceNode, parts: Sequence[Value | None]) -> list[Value]:
        (total,) = Sum().joined(source, parts)
        return source.emit(REGISTRY["", "Mul"](), [total, source.builder.constant(1.0 / len(parts), total)])

    def body(self, *xs: Expr) -> Expr:
        return call("mul", super().body(*xs), 1.0 / len(xs)) if len(xs) > 1 else xs[0]


@operator()
@dataclass(frozen=True)
class Mod(Pointwise):
    """Remainder with the divisor's sign, or the dividend's when fmod is 1."""

    fmod: int = 0

    def body(self, *xs: Expr) -> Expr:
        return call("fmod" if self.fmod else "mod", *xs)


@operator()
@dataclass(frozen=True)
class LeakyRelu(Pointwise):
    alpha: float = 0.01

    def body(self, *xs: Expr) -> Expr:
        (x,) = xs
        return select(call("lt", x, 0.0), call("mul", x, self.alpha), x)


@operator()
@dataclass(frozen=True)
class ThresholdedRelu(Pointwise):
    alpha: float = 1.0

    def body(self, *xs: Expr) -> Expr:
        (x,) = xs
        return select(call("gt", x, self.alpha), x, const(0.0, x.dtype))


@operator()
@dataclass(frozen=True)
class PRelu(Pointwise):
    """x where x >= 0, else slope * x; the slope broadcasts to x."""

    def body(self, *xs: Expr) -> Expr:
        x, slope = xs
        return select(call("lt", x, const(0, x.dtype)), call("mul", x, slope), x)


@operator()
@dataclass(frozen=True)
class Elu(Pointwise):
    alpha: float = 1.0

    def body(self, *xs: Expr) -> Expr:
        (x,) = xs
        return select(call("lt", x, 0.0), call("mul", call("expm1", x), self.alpha), x)


@operator()
@dataclass(frozen=True)
class Celu(Pointwise):
    """max(0, x) + min(0, alpha * (exp(x / alpha) - 1))."""

    alpha: float = 1.0

    def body(self, *xs: Expr) -> Expr:
        (x,) = xs
        low = call("mul", call("expm1", call("div", x, self.alpha)), self.alpha)
        return call("add", _relu(x), call("min", low, 0.0))


@operator()
@dataclass(frozen=True)
class Selu(Pointwise):
    alpha: float = 1.67326319217681884765625
    gamma: float = 1.05070102214813232421875

    def body(self, *xs: Expr) -> Expr:
        (x,) = xs
        low = call("mul", call("expm1", x), self.alpha)
        return call("mul", select(call("gt", x, 0.0), x, low), self.gamma)


@operator()
@dataclass(frozen=True)
class HardSigmoid(Pointwise):
    alpha: float = 0.2
    beta: float = 0.5

    def body(self, *xs: Expr) -> Expr:
        (x,) = xs
        return _clip(call("add", call("mul", x, self.alpha), self.beta), 0.0, 1.0)


@operator()
@dataclass(frozen=True)
class Shrink(Pointwise):
    bias: float = 0.0
    lambd: float = 0.5

    def body(self, *xs: Expr) -> Expr:
        (x,) = xs
        below, above = call("add", x, const(self.bias, x.dtype)), call("sub", x, const(self.bias, x.dtype))
        zero = const(0, x.dtype)
        return select(
            call("lt", x, const(-self.lambd, x.dtype)),
            below,
            select(call("gt", x, const(self.lambd, x.dtype)), above, zero),
        )


@operator()
@dataclass(frozen=True)
class Swish(Pointwise):
    """x * sigmoid(alpha * x)."""

    alpha: float = 1.0

    def body(self, *xs: Expr) -> Expr:
        (x,) = xs
        return call("mul", x, call("sigmoid", call("mul", x, self.alpha) if self.alpha != 1.0 else x))


@operator()
@dataclass(frozen=True)
class Gelu(Pointwise):
    """Gaussian error linear unit; approximate is "none" (erf) or "tanh"."""

    approximate: str = "none"

    def body(self, *xs: Expr) -> Expr:
        (x,) = xs
        if self.approximate == "tanh":
            cubed = call("mul", call("mul", call("mul", x, x), x), 0.044715)
            inner = call("tanh", call("mul", call("add", x, cubed), math.sqrt(2 / math.pi)))
        else:
            inner = call("erf", call("mul", x, math.sqrt(0.5)))
        return call("mul", call("mul", x, 0.5), call("add", inner, 1.0))


@operator()
@dataclass(frozen=True)
class IsInf(Pointwise):
    detect_negative: int = 1
    detect_positive: int = 1

    def body(self, *xs: Expr) -> Expr:
        (x,) = xs
        if self.detect_negative and self.detect_positive:
            return call("isinf", x)
        sign = call("lt", x, 0.0) if self.detect_negative else call("gt", x, 0.0)
        return call("and", call("isinf", x), sign) if self.detect_negative or self.detect_positive else const(False)


@operator()
@dataclass(frozen=True)
class BitShift(Pointwise):
    direction: str = "LEFT"

    def body(self, *xs: Expr) -> Expr:
        return call("shl" if self.direction == "LEFT" else "shr", *xs)


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

    def body(self, *xs: Expr) -> Expr:
        (x,) = xs
        to = self.to
        if to.is_narrow and to.is_int:
            return call(f"as_{to.name}", cast(cast(x, I32) if x.dtype.is_float else x, compute(to)))
        value = cast(x, compute(to))
        if to is F8E8M0:
            return self._exponent(call("abs", value))
        if to.name in LARGEST and self.saturate:
            value = _clip(value, -LARGEST[to.name], LARGEST[to.name])
        # The model asks for it, so the rounding is done even where the result stays in a register.
        return call(f"as_{to.name}", value) if to.is_storage else value

    def _exponent(self, x: Expr) -> Expr:
        if self.saturate:
            x = select(call("isinf", x), x, call("min", x, 2.0**127))
        return call({"down": "as_f8e8m0"}.get(self.round_mode, f"as_f8e8m0_{self.round_mode}"), x)

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
        known = ints_of(x.data)
        if (
            dtype.is_float and not dtype.is_narrow and known is not None and len(known) == 1
        ):  # a bound of Range, which takes floats too
            return [source.builder.constant(np.asarray(known, dtype.numpy).reshape(x.type.static_shape or ()))]
        if not dtype.is_narrow:
            return source.emit(cls(to=dtype), [x])
        return source.emit(cls(dtype, saturate, mode if dtype is F8E8M0 else "up"), [x])


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

    def body(self, *xs: Expr) -> Expr:
        x, rest = xs[0], list(xs[1:])
        low = rest.pop(0) if "min" in self.operands else self.low
        high = rest.pop(0) if "max" in self.operands else self.high
        if low is not None:
            x = call("max", x, low if isinstance(low, Expr) else const(low, x.dtype))
        if high is not None:
            x = call("min", x, high if isinstance(high, Expr) else const(high, x.dtype))
        return x

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        x, kept, names = source.required(0), [], []
        bounds: dict[str, float | int | None] = {}
        for k, name in ((1, "min"), (2, "max")):
            operand = source.input(k)
            bounds[name] = source.attribute(name)
            if operand is not None and operand.const is not None:
                if operand.const.size != 1:
                    raise ModelError(f"Clip with a {name} of {operand.const.size} elements")
                bounds[name] = operand.const.reshape(-1)[0].item()
            elif operand is not None:
                kept.append(operand)
                names.append(name)
        return source.emit(cls(low=bounds["min"], high=bounds["max"], operands=",".join(names)), [x, *kept])
