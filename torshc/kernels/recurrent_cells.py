"""Cells of recurrent networks as scalar expressions: what one hidden unit computes in one step.

Registers (``acc``) of a cell: ``x0, x1, ...`` hold what each gate gets from the input, biases included, ``r0, r1, ...``
what it gets from the state, and every other name is an array of the kernel's state (``h``, ``c``, ...) at this unit,
or, as ``new_<name>``, a result that comes before.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..base.errors import InternalError
from ..expr import F32, Expr, acc, call, max_of, min_of, select, walk
from ..ops.core.base import REGISTRY
from ..ops.core.pointwise import Pointwise
from ..ops.nn.recurrent import GRU, LSTM, RNN, Recurrent

Vector = Callable[[int], Expr]  # part k of a vector of weights, at this unit
Activation = tuple[str, float, float]


@dataclass(frozen=True)
class Weights:
    """Weights that a cell reads for itself.

    Attributes:
        peephole: LSTM's, for the gates i, o and f, or None.
        bias: GRU's on what its last gate gets from the state, or None.
    """

    peephole: Vector | None = None
    bias: Vector | None = None


@dataclass(frozen=True)
class Result:
    """An array of the kernel's state and its new value; ``next`` is the hidden state after the step."""

    name: str
    value: Expr


@dataclass(frozen=True)
class Phase:
    """Gates that are computed together: a product with an array of the state, then the cell.

    Attributes:
        gates: ONNX's numbers of the gates, one after the other.
        operand: the array that the recurrent weights multiply.
        results: what the cell computes, in order.
    """

    gates: tuple[int, ...]
    operand: str
    results: tuple[Result, ...]

    def reads(self, name: str) -> bool:
        """Whether the cell reads a register."""
        return any(x.op == "acc" and x.data == name for r in self.results for x in walk(r.value))


def cell_phases(op: Recurrent, direction: Expr, weights: Weights) -> tuple[Phase, ...]:
    """The phases of a step; where the directions have different activations the cell asks for its direction."""
    count = len(op.usual)
    per_direction = [
        _phases(op, op.activations[k * count : (k + 1) * count] or _defaults(op), weights) for k in range(op.directions)
    ]
    first = per_direction[0]
    for other in per_direction[1:]:
        first = tuple(_choose(direction, a, b) for a, b in zip(first, other, strict=True))
    return first


def _defaults(op: Recurrent) -> tuple[Activation, ...]:
    return tuple((name, 0.0, 0.0) for name in op.usual)


def _choose(direction: Expr, a: Phase, b: Phase) -> Phase:
    results = (
        Result(x.name, select(call("eq", direction, 0), x.value, y.value))
        for x, y in zip(a.results, b.results, strict=True)
    )
    return Phase(a.gates, a.operand, tuple(results))


def _phases(op: Recurrent, activations: tuple[Activation, ...], weights: Weights) -> tuple[Phase, ...]:
    if isinstance(op, LSTM):
        return _lstm(op, activations, weights)
    if isinstance(op, GRU):
        return _gru(op, activations, weights)
    if isinstance(op, RNN):
        (f,) = activations
        return (Phase((0,), "h", (Result("next", _apply(op, f, _sum(0))),)),)
    raise InternalError(f"no cell of {op.name}")


def _lstm(op: LSTM, activations: tuple[Activation, ...], weights: Weights) -> tuple[Phase, ...]:
    f, g, h = activations
    c = acc("c", F32)

    def gate(k: int, state: Expr, part: int) -> Expr:
        total = _sum(k)
        if weights.peephole is not None:
            total = total + weights.peephole(part) * state
        return _apply(op, f, total)

    entered = gate(0, c, 0)
    kept = (1.0 - entered if op.input_forget else gate(2, c, 2)) * c
    added = entered * _apply(op, g, _sum(3))
    new_c = acc("new_c", F32)
    shown = gate(1, new_c, 1) * activate(h, new_c)
    return (Phase((0, 1, 2, 3), "h", (Result("c", kept + added), Result("next", shown))),)


def _gru(op: GRU, activations: tuple[Activation, ...], weights: Weights) -> tuple[Phase, ...]:
    f, g = activations
    h, update, reset = acc("h", F32), _apply(op, f, _sum(0)), _apply(op, f, _sum(1))
    if op.linear_before_reset:
        state = acc("r2", F32)
        if weights.bias is not None:
            state = state + weights.bias(0)
        candidate = _apply(op, g, acc("x2", F32) + reset * state)
        return (Phase((0, 1, 2), "h", (Result("next", _blend(update, candidate, h)),)),)
    gates = Phase((0, 1), "h", (Result("update", update), Result("reset", reset * h)))
    mixed = _blend(acc("update", F32), _apply(op, g, _sum(2)), h)
    return (gates, Phase((2,), "reset", (Result("next", mixed),)))


def _blend(update: Expr, candidate: Expr, h: Expr) -> Expr:
    """(1 - update) * candidate + update * h"""
    return (1.0 - update) * candidate + update * h


def _sum(gate: int) -> Expr:
    return acc(f"x{gate}", F32) + acc(f"r{gate}", F32)


def _apply(op: Recurrent, activation: Activation, x: Expr) -> Expr:
    if op.clip is not None:
        x = min_of(max_of(x, -op.clip), op.clip)
    return activate(activation, x)


def activate(activation: Activation, x: Expr) -> Expr:
    """An activation of ONNX's recurrent operators."""
    name, alpha, beta = activation
    if name in ("Tanh", "Sigmoid"):
        return call(name.lower(), x)
    if name == "Affine":
        return x * alpha + beta
    if name == "ScaledTanh":
        return call("tanh", x * beta) * alpha
    fields = {"alpha": alpha, "beta": beta} if name == "HardSigmoid" else {"alpha": alpha}
    plain = name in ("Relu", "Softsign", "Softplus")
    function = REGISTRY["", name](**({} if plain else fields))
    assert isinstance(function, Pointwise)
    return function.expression(x)
