"""Recurrent networks: LSTM, GRU and RNN, with ONNX's operands and results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from ...base.errors import ModelError, did_you_mean
from ...expr import I32, Expr, const
from ...graph import Node, TensorType, Value
from ..core.base import Constraints, Inputs, Op, need, operator, same_dim
from ..core.bounds import demand_in_range
from ..core.source import SourceNode, Unsupported

_DEFAULTS = {"Affine": (1.0, 0.0), "LeakyRelu": (0.01, 0.0), "ThresholdedRelu": (1.0, 0.0), "ScaledTanh": (1.0, 1.0),
             "HardSigmoid": (0.2, 0.5), "Elu": (1.0, 0.0)}  # fmt: skip
FUNCTIONS = ("Relu", "Tanh", "Sigmoid", "Softsign", "Softplus", *_DEFAULTS)


@dataclass(frozen=True)
class Recurrent(Op):
    """Base of the three. Operands: x, w, r, bias?, lengths?, initial_h?, ... as ONNX lists them.

    x is [T, N, I] (layout 0) or [N, T, I] (layout 1); w is [D, gates * H, I], r is [D, gates * H, H], the bias
    [D, 2 * gates * H], with D = 2 for "bidirectional". Results: y [T, D, N, H] or [N, T, D, H], and the last states
    [D, N, H] or [N, D, H].

    Attributes:
        direction: "forward", "reverse" or "bidirectional".
        hidden_size: H.
        activations: (name, alpha, beta) of each activation, those of the second direction after the first's.
        clip: bound on the activations' inputs, or None.
        layout: 0 time first, 1 batch first.
    """

    family: ClassVar[str] = "recurrent"
    gates: ClassVar[int] = 1
    states: ClassVar[int] = 1
    usual: ClassVar[tuple[str, ...]] = ("Tanh",)
    extra: ClassVar[tuple[str, ...]] = ()

    direction: str = "forward"
    hidden_size: int = 0
    activations: tuple[tuple[str, float, float], ...] = ()
    clip: float | None = None
    layout: int = 0

    @property
    def directions(self) -> int:
        return 2 if self.direction == "bidirectional" else 1

    def infer(self, inputs: Inputs, constraints: Constraints) -> list[TensorType]:
        name, hidden, d = self.name, const(self.hidden_size), const(self.directions)
        x, w, r = (need(inputs[k], f"input {k} of {name}") for k in range(3))
        if x.type.rank != 3 or w.type.rank != 3 or r.type.rank != 3:
            raise ModelError(
                f"{name} of {x.type!r} with weights {w.type!r} and {r.type!r}, each of which needs 3 dimensions"
            )
        time, batch = (x.shape[1], x.shape[0]) if self.layout else x.shape[:2]
        rows = hidden * self.gates
        state = (batch, d, hidden) if self.layout else (d, batch, hidden)
        for k, shape in enumerate(((d, rows, x.shape[2]), (d, rows, hidden), (d, rows * 2), (batch,), state, state)):
            v = inputs[k + 1] if k + 1 < len(inputs) else None
            if v is None:
                continue
            if v.type.rank != len(shape):
                raise ModelError(f"input {k + 1} of {name} is {v.type!r}, and {list(shape)} is needed")
            for have, wanted in zip(v.shape, shape, strict=True):
                same_dim(have, wanted, constraints, f"input {k + 1} of {name}")
            if v.dtype is not (I32 if k == 3 else x.dtype):
                raise ModelError(f"input {k + 1} of {name} is {v.type!r}")
        y = (batch, time, d, hidden) if self.layout else (time, d, batch, hidden)
        return [TensorType(x.dtype, y), *[TensorType(x.dtype, state)] * self.states]

    def flops(self, node: Node) -> Expr:
        x = node.operands[0]
        steps = x.shape[0] * x.shape[1] * self.directions
        return steps * (self.gates * self.hidden_size * 2) * (x.shape[2] + self.hidden_size)

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        direction = str(source.attribute("direction", "forward"))
        r = source.required(2)
        hidden = int(source.attribute("hidden_size", 0) or _static(r, source.op_type))
        names = tuple(source.attribute("activations") or cls.usual * (2 if direction == "bidirectional" else 1))
        count = len(cls.usual) * (2 if direction == "bidirectional" else 1)
        numbers = [source.attribute(f"activation_{n}") or () for n in ("alpha", "beta")]
        activations = read_activations(source.op_type, names, count, numbers[0], numbers[1])
        clip, layout = source.attribute("clip"), int(source.attribute("layout", 0))
        source.attribute("output_sequence")
        rest = {k: source.attribute(k, 0) for k in cls.extra}
        source.fields(cls)
        op = cls(direction, hidden, activations, None if clip is None else float(clip), layout, **rest)
        found = source.emit(op, source.inputs)[: source.outputs]
        lengths = source.input(4)
        if lengths is not None:
            steps = source.required(0).shape[1 if layout else 0]
            demand_in_range(source, lengths, steps + 1, negative=False, use="length")
        return found


def _static(r: Value, name: str) -> int:
    shape = r.type.static_shape
    if shape is None or len(shape) != 3:
        raise Unsupported(f"{name} with recurrent weights {r.type!r}")
    return shape[2]


def read_activations(
    op_type: str, names: Sequence[str], count: int, alphas_given: Sequence[float], betas_given: Sequence[float]
) -> tuple[tuple[str, float, float], ...]:
    """Names with their alpha and beta; the lists of numbers hold entries only for functions that take one.

    Raises:
        ModelError: when there are not as many names as are needed, or one is of no function.
    """
    if len(names) != count:
        raise ModelError(f"{op_type} needs {count} activations, and {len(names)} are given")
    alphas, betas = iter(alphas_given), iter(betas_given)
    known = {f.lower(): f for f in FUNCTIONS}
    out = []
    for given in names:
        name = known.get(str(given).lower())
        if name is None:
            raise ModelError(f"{op_type} has no activation {given!r}{did_you_mean(str(given), FUNCTIONS)}")
        alpha, beta = _DEFAULTS.get(name, (0.0, 0.0))
        if name in _DEFAULTS:
            alpha = float(next(alphas, alpha))
        if name in ("Affine", "ScaledTanh", "HardSigmoid"):
            beta = float(next(betas, beta))
        out.append((name, alpha, beta))
    return tuple(out)


@operator()
@dataclass(frozen=True)
class RNN(Recurrent):
    """h = f(x w' + h r' + biases)."""


@operator()
@dataclass(frozen=True)
class GRU(Recurrent):
    """Gates z, r, h in this order; linear_before_reset multiplies by r after the product with the hidden weights."""

    gates: ClassVar[int] = 3
    usual: ClassVar[tuple[str, ...]] = ("Sigmoid", "Tanh")
    extra: ClassVar[tuple[str, ...]] = ("linear_before_reset",)
    linear_before_reset: int = 0


@operator()
@dataclass(frozen=True)
class LSTM(Recurrent):
    """Gates i, o, f, c in this order; peepholes are operand 7; results y, last h, last c.

    Attributes:
        input_forget: the forget gate is 1 - i.
    """

    gates: ClassVar[int] = 4
    states: ClassVar[int] = 2
    usual: ClassVar[tuple[str, ...]] = ("Sigmoid", "Tanh", "Tanh")
    extra: ClassVar[tuple[str, ...]] = ("input_forget",)
    input_forget: int = 0
