"""Steps of optimisers (ai.onnx.preview.training), made of pointwise operators at import.

Each takes a learning rate R, the number T of updates so far, and groups of tensors: all variables, then their
gradients, then their states. It gives the new variables, and then the new states group by group.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import reduce

from ...base.errors import ModelError
from ...expr import as_int
from ..core.composite import composite
from ..core.functions import sqrt, where
from ..core.pointwise import pointwise
from ..core.scalar import Scalar, expm1
from ..core.source import SourceNode
from ..core.tensor import Tensor

DOMAIN = "ai.onnx.preview.training"
Update = Callable[..., Sequence[Tensor]]


def _each(
    source: SourceNode, rate: Tensor, count: Tensor, tensors: Sequence[Tensor], groups: int, step: Update
) -> list[Tensor]:
    """The results of a step for each variable.

    Args:
        groups: groups of tensors.
        step: new variable and new states from R, T and a variable, its gradient and its states.
    """
    number = len(tensors) // groups
    if not tensors or len(tensors) != number * groups or max(source.outputs, 1) > number * (groups - 1):
        raise ModelError(
            f"{source.op_type} with {len(tensors)} tensors in {groups} groups"
            "; tensors have to fill groups, and results are new tensors"
        )
    made = []
    for k in range(number):
        own = tensors[k::number]
        if any(v.dtype is not own[0].dtype for v in own):
            raise ModelError(
                f"{source.op_type} of {', '.join(repr(v.type) for v in own)}, which have to be of one type"
            )
        made.append(step(_number(rate.cast(own[0].dtype)), _number(count), *own))
    return [results[g] for g in range(groups - 1) for results in made]


def _number(v: Tensor) -> Tensor:
    """An operand of one element as a scalar."""
    if as_int(v.type.size) != 1:
        raise ModelError(f"a learning rate or a number of updates {v.type!r}, where one number is needed")
    return v.reshape() if v.rank else v


def _sum_weighted(*terms: tuple[float, Tensor]) -> Tensor:
    """The sum of factors times values; a factor of 0 leaves a term out, as does 1 its product."""
    kept = [v if c == 1.0 else v * c for c, v in terms if c != 0.0]
    return reduce(Tensor.__add__, kept) if kept else terms[0][1] * 0.0


def _add_number(x: Tensor, by: float) -> Tensor:
    return x + by if by else x


@composite("Adagrad", DOMAIN, mixed=True)
def adagrad(
    source: SourceNode, rate: Tensor, count: Tensor, *tensors: Tensor, decay_factor: float = 0.0,
    epsilon: float = 1e-6, norm_coefficient: float = 0.0,
) -> list[Tensor]:  # fmt: skip
    """x - R / (1 + T decay) g / (sqrt(h') + epsilon), with g = G + norm x and h' = h + g^2."""

    def step(rate: Tensor, count: Tensor, x: Tensor, gradient: Tensor, h: Tensor) -> list[Tensor]:
        if decay_factor:
            rate = rate / (count.cast(x.dtype) * decay_factor + 1.0)
        g = _sum_weighted((1.0, gradient), (norm_coefficient, x))
        h = h + g * g
        root = _add_number(sqrt(h), epsilon)
        return [x - rate * g / root, h]

    return _each(source, rate, count, tensors, 3, step)


@pointwise("BiasCorrection", "torshc")
def bias_correction(count: Scalar, *, beta: float = 0.9) -> Scalar:
    """1 - beta^T after T updates, as -expm1(T log beta), which does not cancel for a beta near 1."""
    return -expm1(count * (math.log(beta) if beta else -math.inf))


@pointwise("AdamRate", "torshc")
def adam_rate(rate: Scalar, count: Scalar, *, alpha: float = 0.9, beta: float = 0.999) -> Scalar:
    """The learning rate R sqrt(1 - beta^T) / (1 - alpha^T) after T updates, R where there were none."""
    number = count.cast(rate.dtype)
    corrected = rate * sqrt(bias_correction(number, beta=beta)) / bias_correction(number, beta=alpha)
    return where(count > 0, corrected, rate)


@composite("Adam", DOMAIN, mixed=True)
def adam(
    source: SourceNode, rate: Tensor, count: Tensor, *tensors: Tensor, alpha: float = 0.9, beta: float = 0.999,
    epsilon: float = 1e-6, norm_coefficient: float = 0.0, norm_coefficient_post: float = 0.0,
) -> list[Tensor]:  # fmt: skip
    """(1 - post) (x - r v' / (sqrt(h') + epsilon)), with the rate r of `adam_rate`.

    g = G + norm x;  v' = alpha v + (1 - alpha) g;  h' = beta h + (1 - beta) g^2
    """
    if not (0 <= alpha < 1 and 0 <= beta <= 1):
        raise ModelError(f"Adam with alpha = {alpha} and beta = {beta}, which have to be from 0 to 1, alpha below 1")

    def step(rate: Tensor, count: Tensor, x: Tensor, gradient: Tensor, v: Tensor, h: Tensor) -> list[Tensor]:
        g = _sum_weighted((1.0, gradient), (norm_coefficient, x))
        v = _sum_weighted((alpha, v), (1 - alpha, g))
        h = _sum_weighted((beta, h), (1 - beta, g * g))
        move = adam_rate(rate, count, alpha=alpha, beta=beta) * v / _add_number(sqrt(h), epsilon)
        return [_sum_weighted((1 - norm_coefficient_post, x - move)), v, h]

    return _each(source, rate, count, tensors, 4, step)


@composite("Momentum", DOMAIN, mixed=True)
def momentum(
    source: SourceNode, rate: Tensor, count: Tensor, *tensors: Tensor, mode: str, alpha: float, beta: float,
    norm_coefficient: float,
) -> list[Tensor]:  # fmt: skip
    """x - R v', or x - R (g + alpha v') in the mode "nesterov", with g = G + norm x and v' = alpha v + beta g.

    In the first update, where T is 0, beta counts as 1.
    """

    def step(rate: Tensor, count: Tensor, x: Tensor, gradient: Tensor, v: Tensor) -> list[Tensor]:
        g = _sum_weighted((1.0, gradient), (norm_coefficient, x))
        fresh = g if beta == 1.0 else where(count > 0, x.constant(beta), x.constant(1.0)) * g
        v = _sum_weighted((alpha, v), (1.0, fresh))
        along = _sum_weighted((1.0, g), (alpha, v)) if mode == "nesterov" else v
        return [x - rate * along, v]

    return _each(source, rate, count, tensors, 3, step)
