"""Optimisers as formulas over tensors: new weights, and new states of the optimizer, from weights and gradients.

The formulas are PyTorch's. Hyperparameters are fields, with their ranges; `states` names what is kept for each weight,
zeros at first.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias

from ..expr import F32, F64
from ..ops.core.functions import min as minimum
from ..ops.core.functions import sign, sqrt
from ..ops.core.tensor import Tensor
from ..ops.training.optimizers import bias_correction

INPUT = "input"  # a learning rate that the caller gives with each step
Rate: TypeAlias = "float | str"


def ranged(default: float, low: float, high: float) -> Any:
    """A hyperparameter with the numbers that it may be."""
    return field(default=default, metadata={"low": low, "high": high})


@dataclass(frozen=True)
class At:
    """What an update reads beside a weight and its gradient.

    Attributes:
        rate: the learning rate, of the weight's type.
        count: the number of this update, from 1 on, of the weight's type.
        decay: the weight decay.
    """

    rate: Tensor
    count: Tensor
    decay: float


@dataclass(frozen=True, kw_only=True)
class Optimizer(ABC):
    """An optimizer.

    Attributes:
        learning_rate: a number, or "input".
        states: what it keeps for each weight.
        decoupled: whether weight decay shrinks the weight, and is not part of its gradient.
    """

    states: ClassVar[tuple[str, ...]] = ()
    decoupled: ClassVar[bool] = False

    learning_rate: Rate

    def update(self, at: At, weight: Tensor, gradient: Tensor, *states: Tensor) -> Sequence[Tensor]:
        """The new weight and the new states."""
        if at.decay and self.decoupled:
            weight = weight - weight * (at.rate * at.decay)
        elif at.decay:
            gradient = gradient + weight * at.decay
        return self.move(at, weight, gradient, *states)

    @abstractmethod
    def move(self, at: At, weight: Tensor, gradient: Tensor, *states: Tensor) -> Sequence[Tensor]:
        """The new weight and the new states, where decay is done."""


@dataclass(frozen=True, kw_only=True)
class Sgd(Optimizer):
    """w - rate g"""

    def move(self, at: At, weight: Tensor, gradient: Tensor, *states: Tensor) -> Sequence[Tensor]:
        return [weight - gradient * at.rate]


@dataclass(frozen=True, kw_only=True)
class Momentum(Optimizer):
    """v' = momentum v + g;  w - rate v', or of Nesterov w - rate (g + momentum v')"""

    states = ("momentum",)

    momentum: float = ranged(0.9, 0.0, 1.0)
    nesterov: bool = False

    def move(self, at: At, weight: Tensor, gradient: Tensor, *states: Tensor) -> Sequence[Tensor]:
        v = states[0] * self.momentum + gradient
        along = gradient + v * self.momentum if self.nesterov else v
        return [weight - along * at.rate, v]


@dataclass(frozen=True, kw_only=True)
class Adam(Optimizer):
    """m' = beta1 m + (1 - beta1) g;  v' = beta2 v + (1 - beta2) g^2;  w - rate m^ / (sqrt(v^) + epsilon)

    m^ = m' / (1 - beta1^t) and v^ = v' / (1 - beta2^t) in update t. As in PyTorch epsilon is added after the
    correction, in ONNX's Adam before.
    """

    states = ("first_moment", "second_moment")

    beta1: float = ranged(0.9, 0.0, 0.999999)
    beta2: float = ranged(0.999, 0.0, 0.999999999)
    epsilon: float = ranged(1e-8, 0.0, 1.0)

    def move(self, at: At, weight: Tensor, gradient: Tensor, *states: Tensor) -> Sequence[Tensor]:
        m = states[0] * self.beta1 + gradient * (1 - self.beta1)
        v = states[1] * self.beta2 + gradient * gradient * (1 - self.beta2)
        first, second = (bias_correction(at.count, beta=beta) for beta in (self.beta1, self.beta2))
        root = sqrt(v) / sqrt(second) + self.epsilon
        return [weight - m / root * (at.rate / first), m, v]


@dataclass(frozen=True, kw_only=True)
class AdamW(Adam):
    """As adam, of weights that decay by themselves: w (1 - rate decay) first"""

    decoupled = True


@dataclass(frozen=True, kw_only=True)
class Adagrad(Optimizer):
    """h' = h + g^2;  w - rate g / (sqrt(h') + epsilon)"""

    states = ("sum",)

    epsilon: float = ranged(1e-10, 0.0, 1.0)

    def move(self, at: At, weight: Tensor, gradient: Tensor, *states: Tensor) -> Sequence[Tensor]:
        h = states[0] + gradient * gradient
        return [weight - gradient / (sqrt(h) + self.epsilon) * at.rate, h]


@dataclass(frozen=True, kw_only=True)
class RmsProp(Optimizer):
    """h' = alpha h + (1 - alpha) g^2;  w - rate g / (sqrt(h') + epsilon)"""

    states = ("second_moment",)

    alpha: float = ranged(0.99, 0.0, 1.0)
    epsilon: float = ranged(1e-8, 0.0, 1.0)

    def move(self, at: At, weight: Tensor, gradient: Tensor, *states: Tensor) -> Sequence[Tensor]:
        h = states[0] * self.alpha + gradient * gradient * (1 - self.alpha)
        return [weight - gradient / (sqrt(h) + self.epsilon) * at.rate, h]


@dataclass(frozen=True, kw_only=True)
class Lion(Optimizer):
    """w (1 - rate decay) - rate sign(beta1 m + (1 - beta1) g);  m' = beta2 m + (1 - beta2) g"""

    states = ("momentum",)
    decoupled = True

    beta1: float = ranged(0.9, 0.0, 1.0)
    beta2: float = ranged(0.99, 0.0, 1.0)

    def move(self, at: At, weight: Tensor, gradient: Tensor, *states: Tensor) -> Sequence[Tensor]:
        step = sign(states[0] * self.beta1 + gradient * (1 - self.beta1))
        return [weight - step * at.rate, states[0] * self.beta2 + gradient * (1 - self.beta2)]


OPTIMIZERS: dict[str, type[Optimizer]] = {
    "sgd": Sgd, "momentum": Momentum, "adam": Adam, "adamw": AdamW, "adagrad": Adagrad, "rmsprop": RmsProp,
    "lion": Lion,
}  # fmt: skip


def name_of(optimizer: Optimizer) -> str:
    """What files call it."""
    return next(name for name, kind in OPTIMIZERS.items() if type(optimizer) is kind)


def clipped(
    gradients: Sequence[Tensor], norm: float, squares: Sequence[Tensor], over: Callable[[Tensor], Tensor]
) -> list[Tensor]:
    """Gradients whose norm, of all together, is at most `norm`: min(1, norm / (|g| + 1e-6)) g.

    Args:
        squares: for each, the sum of its elements' squares, or this rank's part of that sum.
        over: the sum over ranks.
    """
    wide = F64 if any(g.dtype is F64 for g in gradients) else F32
    total = squares[0].cast(wide)
    for square in squares[1:]:
        total = total + square.cast(wide)
    total = over(total)
    scale = minimum(total.constant(1.0), norm / (sqrt(total) + 1e-6))
    return [g * scale.cast(g.dtype) for g in gradients]
