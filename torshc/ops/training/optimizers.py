"""Steps of optimisers (ai.onnx.preview.training), made of pointwise operators at import.

Each takes a learning rate R, the number T of updates so far, and groups of tensors: all variables, then their
gradients, then their states. It gives the new variables, and then the new states group by group.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from ...errors import ModelError
from ...expr import Expr, as_int, call, cast, select
from ...graph import Builder, Value
from ..core.base import Op, operator
from ..core.compose import apply
from ..core.source import SourceNode
from ..math.pointwise import Pointwise
from ..tensor.view import Reshape

DOMAIN = "ai.onnx.preview.training"
Update = Callable[[Value, Value, list[Value]], list[Value]]


def _each(source: SourceNode, groups: int, step: Update) -> list[Value]:
    """The results of a step for each variable.

    Args:
        groups: groups of operands.
        step: new variable and new states from R, T and a variable, its gradient and its states.
    """
    b, rest = source.builder, [source.required(k) for k in range(2, len(source.inputs))]
    count = len(rest) // groups
    if not rest or len(rest) != count * groups or max(source.outputs, 1) > count * (groups - 1):
        raise ModelError(f"{source.op_type} with {len(rest)} tensors in {groups} groups")
    made = []
    for k in range(count):
        own = rest[k::count]
        if any(v.dtype is not own[0].dtype for v in own):
            raise ModelError(f"{source.op_type} of {', '.join(repr(v.type) for v in own)}")
        rate = source.required(0)
        rate = rate if rate.dtype is own[0].dtype else apply(b, "Cast", rate, to=own[0].dtype)
        made.append(step(_number(b, rate), _number(b, source.required(1)), own))
    return [results[g] for g in range(groups - 1) for results in made]


def _number(b: Builder, v: Value) -> Value:
    """An operand of one element as a scalar."""
    if as_int(v.type.size) != 1:
        raise ModelError(f"a learning rate or a number of updates {v.type!r}")
    return b.one(Reshape(()), v) if v.type.rank else v


def _weighted(b: Builder, *terms: tuple[float, Value]) -> Value:
    """The sum of factors times values; a factor of 0 leaves a term out, as does 1 its product."""
    kept = [v if c == 1.0 else apply(b, "Mul", v, c) for c, v in terms if c != 0.0]
    if not kept:
        return apply(b, "Mul", terms[0][1], 0.0)
    total = kept[0]
    for v in kept[1:]:
        total = apply(b, "Add", total, v)
    return total


def _floats(source: SourceNode, cls: type[Op], **defaults: float) -> list[float]:
    found = [float(source.attribute(name, value)) for name, value in defaults.items()]
    source.fields(cls)
    return found


@operator("Adagrad", DOMAIN)
@dataclass(frozen=True)
class Adagrad(Op):
    """x - R / (1 + T decay) g / (sqrt(h') + epsilon), with g = G + norm x and h' = h + g^2."""

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        b = source.builder
        decay, epsilon, norm = _floats(source, cls, decay_factor=0.0, epsilon=1e-6, norm_coefficient=0.0)

        def step(rate: Value, count: Value, own: list[Value]) -> list[Value]:
            x, gradient, h = own
            if decay:
                slower = apply(b, "Add", apply(b, "Mul", apply(b, "Cast", count, to=x.dtype), decay), 1.0)
                rate = apply(b, "Div", rate, slower)
            g = _weighted(b, (1.0, gradient), (norm, x))
            h = apply(b, "Add", h, apply(b, "Mul", g, g))
            root = _shifted(b, apply(b, "Sqrt", h), epsilon)
            return [apply(b, "Sub", x, apply(b, "Div", apply(b, "Mul", rate, g), root)), h]

        return _each(source, 3, step)


def _shifted(b: Builder, x: Value, by: float) -> Value:
    return apply(b, "Add", x, by) if by else x


@operator("AdamRate", "torshc")
@dataclass(frozen=True)
class AdamRate(Pointwise):
    """The learning rate R sqrt(1 - beta^T) / (1 - alpha^T) after T updates, R where there were none.

    1 - a^T is taken as -expm1(T log a), which does not cancel for an a near 1.
    """

    alpha: float = 0.9
    beta: float = 0.999

    def body(self, *xs: Expr) -> Expr:
        rate, count = xs
        number = cast(count, rate.dtype)

        def rest(base: float) -> Expr:
            power = call("mul", number, math.log(base) if base else -math.inf)
            return call("neg", call("expm1", power))

        corrected = call("div", call("mul", rate, call("sqrt", rest(self.beta))), rest(self.alpha))
        return select(call("gt", count, 0), corrected, rate)


@operator("Adam", DOMAIN)
@dataclass(frozen=True)
class Adam(Op):
    """(1 - post) (x - r v' / (sqrt(h') + epsilon)), with the rate r of `AdamRate`.

    g = G + norm x;  v' = alpha v + (1 - alpha) g;  h' = beta h + (1 - beta) g^2
    """

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        b = source.builder
        alpha, beta, epsilon, norm, post = _floats(
            source, cls, alpha=0.9, beta=0.999, epsilon=1e-6, norm_coefficient=0.0, norm_coefficient_post=0.0
        )
        if not (0 <= alpha < 1 and 0 <= beta <= 1):
            raise ModelError(f"Adam with alpha = {alpha} and beta = {beta}")

        def step(rate: Value, count: Value, own: list[Value]) -> list[Value]:
            x, gradient, v, h = own
            g = _weighted(b, (1.0, gradient), (norm, x))
            v = _weighted(b, (alpha, v), (1 - alpha, g))
            h = _weighted(b, (beta, h), (1 - beta, apply(b, "Mul", g, g)))
            rate = b.one(AdamRate(alpha, beta), rate, count)
            move = apply(b, "Div", apply(b, "Mul", rate, v), _shifted(b, apply(b, "Sqrt", h), epsilon))
            return [_weighted(b, (1 - post, apply(b, "Sub", x, move))), v, h]

        return _each(source, 4, step)


@operator("Momentum", DOMAIN)
@dataclass(frozen=True)
class Momentum(Op):
    """x - R v', or x - R (g + alpha v') in the mode "nesterov", with g = G + norm x and v' = alpha v + beta g.

    In the first update, where T is 0, beta counts as 1.
    """

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        b, mode = source.builder, source.attribute("mode")
        alpha, beta, norm = _floats(source, cls, alpha=0.0, beta=0.0, norm_coefficient=0.0)

        def step(rate: Value, count: Value, own: list[Value]) -> list[Value]:
            x, gradient, v = own
            g = _weighted(b, (1.0, gradient), (norm, x))
            fresh = g
            if beta != 1.0:
                later = apply(b, "Greater", count, 0)
                fresh = apply(b, "Mul", apply(b, "Where", later, b.constant(beta, x), b.constant(1.0, x)), g)
            v = _weighted(b, (alpha, v), (1.0, fresh))
            along = _weighted(b, (1.0, g), (alpha, v)) if mode == "nesterov" else v
            return [apply(b, "Sub", x, apply(b, "Mul", rate, along)), v]

        return _each(source, 3, step)
