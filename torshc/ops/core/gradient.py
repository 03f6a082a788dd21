"""The gradients of operators, stated beside their definitions as functions over tensors.

    @gradient_of(Transpose)
    def _transpose_gradient(op: Transpose, at: Backward) -> Tensor:
        return at.gradient.transpose(*inverse(op.perm))

A rule gives the gradients of the operands from those of the results: it multiplies by the transpose of the operator's
Jacobian. What it gives is made of operators again, which have gradients of their own. Pointwise operators need no rule,
as their bodies are differentiated (:mod:`torshc.expr.derivatives`); `slopes_of` states the slopes of one where the
derivative of its body is not what PyTorch takes. `parts_of` says what an operator is made of, for gradients only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from ...expr import as_int, call, const, is_runtime
from ...graph import Shape
from .base import REGISTRY, Op
from .scalar import Scalar
from .tensor import Tensor, apply_op

F = TypeVar("F", bound=Callable[..., Any])
Gradients = Tensor | None | Sequence[Tensor | None]
Rule = Callable[[Any, "Backward"], Gradients]
Slopes = Callable[..., Scalar | Sequence[Scalar]]
Parts = Callable[..., Sequence[Tensor] | Tensor]

RULES: dict[type[Op], Rule] = {}
SLOPES: dict[type[Op], Slopes] = {}
PARTS: dict[type[Op], Parts] = {}


class NoGradient(Exception):
    """An operator with these attributes or operands has no gradient; the message says why."""


@dataclass(frozen=True)
class Backward:
    """A node through which gradients go back.

    Attributes:
        inputs: operands, None where an optional one is absent.
        outputs: results.
        gradients: gradients of the results; None for a result on which nothing depends.
        wanted: for each operand, whether its gradient is asked for.
    """

    inputs: tuple[Tensor | None, ...]
    outputs: tuple[Tensor, ...]
    gradients: tuple[Tensor | None, ...]
    wanted: tuple[bool, ...]

    def operand(self, k: int) -> Tensor:
        """An operand that is there."""
        found = self.inputs[k]
        assert found is not None
        return found

    @property
    def gradient(self) -> Tensor:
        """Of the first result; zeros where nothing depends on it."""
        found = self.gradients[0]
        return zeros(self.outputs[0]) if found is None else found

    def wants(self, k: int) -> bool:
        """Whether operand k is there and its gradient is asked for."""
        return k < len(self.wanted) and self.wanted[k]


def gradient_of(*kinds: type[Op] | str) -> Callable[[F], F]:
    """Function decorator: the gradients of the operands of these operators, alone or in a list.

    The function takes the operator and a :class:`Backward`. Operators that are functions (`@pointwise`, `@composite`)
    are named by strings, as ONNX names them; those are of ONNX's own domain. Users have another decorator of this
    name, whose function takes tensors: :func:`torshc.ops.core.custom.gradient_of`.
    """
    return _note_in(RULES, kinds)


def slopes_of(*kinds: type[Op] | str) -> Callable[[F], F]:
    """Function decorator: what a change of each operand of a pointwise operator changes its result by.

    The function takes the change and the operands as elements, and the attributes as keywords.
    """
    return _note_in(SLOPES, kinds)


def parts_of(*kinds: type[Op] | str) -> Callable[[F], F]:
    """Function decorator: the results of these operators made of others, which have gradients.

    The function takes the operator and its operands as tensors.
    """
    return _note_in(PARTS, kinds)


def stated_parts(op: Op, inputs: Sequence[Tensor | None]) -> list[Tensor] | None:
    """What an operator is made of, as `parts_of` says; None where nothing does."""
    parts = next((PARTS[kind] for kind in type(op).__mro__ if kind in PARTS), None)
    if parts is None:
        return None
    made = parts(op, *inputs)
    return [made] if isinstance(made, Tensor) else list(made)


def _note_in(table: dict[type[Op], Any], kinds: Sequence[type[Op] | str]) -> Callable[[F], F]:
    def note(function: F) -> F:
        for kind in kinds:
            table[REGISTRY["", kind] if isinstance(kind, str) else kind] = function
        return function

    return note


def zeros(like: Tensor) -> Tensor:
    """Zeros of the type and shape of a tensor."""
    return like.constant(0.0).expand(*like.shape)


def sum_to(x: Tensor, shape: Shape) -> Tensor:
    """What a broadcast from `shape` hands back: x summed over the dimensions that it widened or added.

    Of a size that only a run knows, the run shows whether it was 1.
    """
    before = (const(1),) * (x.rank - len(shape)) + shape
    known = [k for k, d in enumerate(before) if as_int(d) == 1 and as_int(x.shape[k]) != 1]
    if known:
        x = x.sum(known)
    pairs = zip(before, x.shape, strict=True)
    marked = tuple(call("eq", d, 1) if is_runtime(d) and d is not wide else const(False) for d, wide in pairs)
    if any(m is not const(False) for m in marked):
        x = apply_op(_own("ReduceMarked")(kind="ReduceSum", marked=marked), x)
    return as_shape(x, shape)


def as_shape(x: Tensor, shape: Shape) -> Tensor:
    """A tensor under a shape of as many elements, which may name its sizes otherwise."""
    return x if x.shape == shape else x.reshape(*shape)


def spread(x: Tensor, shape: Shape) -> Tensor:
    """A tensor broadcast to a shape that it is known to fit."""
    if x.shape == shape:
        return x
    plain = all(as_int(d) == 1 or d is w for d, w in zip(x.shape, shape[len(shape) - x.rank :], strict=True))
    return x.expand(*shape) if plain else apply_op(_own("Stretch")(shape=shape), x)


def _own(name: str) -> type[Any]:
    """The class of an operator that is defined in a module that imports this one."""
    return REGISTRY["torshc", name]


__all__ = [
    "PARTS", "RULES", "SLOPES", "Backward", "NoGradient", "as_shape", "gradient_of", "parts_of",
    "slopes_of", "spread", "stated_parts", "sum_to", "zeros",
]  # fmt: skip
