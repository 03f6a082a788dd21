"""LSTM, GRU and RNN made of other operators, for their gradients: step after step, a direction after the other.

What the input gives all gates in all steps is one product in front of the steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from ...base.budget import budget
from ...expr import F32, F64, I64, const
from ...graph import Builder, Value
from ..control.flow import repeat
from ..core.functions import (
    clip,
    elu,
    gather,
    hard_sigmoid,
    leaky_relu,
    relu,
    sigmoid,
    softplus,
    softsign,
    tanh,
    thresholded_relu,
    where,
)
from ..core.gradient import parts_of
from ..core.tensor import Tensor, apply_named, apply_op
from ..tensor.index import ReverseSequence
from .recurrent import GRU, LSTM, RNN, Recurrent

_FUNCTIONS: dict[str, Callable[[Tensor, float, float], Tensor]] = {
    "Affine": lambda x, alpha, beta: x * alpha + beta,
    "Elu": lambda x, alpha, beta: elu(x, alpha=alpha),
    "HardSigmoid": lambda x, alpha, beta: hard_sigmoid(x, alpha=alpha, beta=beta),
    "LeakyRelu": lambda x, alpha, beta: leaky_relu(x, alpha=alpha),
    "Relu": lambda x, alpha, beta: relu(x),
    "ScaledTanh": lambda x, alpha, beta: tanh(x * beta) * alpha,
    "Sigmoid": lambda x, alpha, beta: sigmoid(x),
    "Softplus": lambda x, alpha, beta: softplus(x),
    "Softsign": lambda x, alpha, beta: softsign(x),
    "Tanh": lambda x, alpha, beta: tanh(x),
    "ThresholdedRelu": lambda x, alpha, beta: thresholded_relu(x, alpha=alpha),
}


def _activate(activation: tuple[str, float, float], x: Tensor) -> Tensor:
    name, alpha, beta = activation
    return _FUNCTIONS[name](x, alpha, beta)


@dataclass(frozen=True)
class Direction:
    """What one direction of a network computes, in the type that cells compute in, with time first.

    Attributes:
        number: 0, or 1 for the second.
        backward: whether it goes from the last step to the first.
        x: [T, N, I], from its first step on.
        w, r, bias, h, c, peephole: [gates * H, I], [gates * H, H], [2 * gates * H], [N, H], [N, H], [3 * H].
        lengths: steps of each sequence, [N].
    """

    number: int
    backward: bool
    x: Tensor
    w: Tensor
    r: Tensor
    bias: Tensor | None
    lengths: Tensor | None
    h: Tensor | None
    c: Tensor | None
    peephole: Tensor | None


def directions_of(op: Recurrent, operands: Sequence[Tensor | None]) -> list[Direction]:
    """The directions of a network, from its operands as ONNX lists them."""
    given: list[Tensor | None] = [*operands, *[None] * (8 - len(operands))]
    x, w, r, bias, lengths, h, c, peephole = given
    assert x is not None and w is not None and r is not None
    wide = F64 if x.dtype is F64 else F32
    if op.layout:
        x, h, c = x.transpose(1, 0, 2), _swap_batch(h), _swap_batch(c)
    x = x.cast(wide)

    def own(v: Tensor | None, d: int) -> Tensor | None:
        return None if v is None else pick(v, 0, d).cast(wide)

    found = []
    for d in range(op.directions):
        backward = op.direction == "reverse" or d == 1
        entry = reverse_steps(x, lengths) if backward else x
        rows, columns = (pick(v, 0, d).cast(wide) for v in (w, r))
        h_own, c_own, p_own = (own(v, d) for v in (h, c, peephole))
        found.append(Direction(d, backward, entry, rows, columns, own(bias, d), lengths, h_own, c_own, p_own))
    return found


def is_written_out(steps: int) -> bool:
    """Whether so many steps stand one after the other in a graph; others are a loop."""
    return 0 < steps <= budget().unrolled


@parts_of(LSTM, GRU, RNN)
def recurrent_parts(op: Recurrent, *operands: Tensor | None) -> list[Tensor]:
    """The results of a network."""
    x = operands[0]
    assert x is not None
    found = [_direction(op, way) for way in directions_of(op, operands)]
    y = stack([each[0] for each in found], 1)
    states = [stack([each[k] for each in found], 0) for k in range(1, 1 + op.states)]
    if op.layout:
        y, states = y.transpose(2, 0, 1, 3), [s.transpose(1, 0, 2) for s in states]
    return [t.cast(x.dtype) for t in (y, *states)]


def _swap_batch(state: Tensor | None) -> Tensor | None:
    """A state with the batch first, or first no more."""
    return None if state is None else state.transpose(1, 0, 2)


def pick(v: Tensor, axis: int, place: int) -> Tensor:
    """A tensor at a place of an axis."""
    return gather(v, v.constant(np.array(place)), axis=axis)


def stack(parts: Sequence[Tensor], axis: int) -> Tensor:
    """Tensors along a new axis."""
    shape = parts[0].shape
    return apply_named("Concat", *(p.reshape(*shape[:axis], 1, *shape[axis:]) for p in parts), axis=axis)


def _direction(op: Recurrent, way: Direction) -> list[Tensor]:
    """All h [T, N, H] of a direction, and the last states [N, H]."""
    x, lengths = way.x, way.lengths
    entered = enter_gates(op, way)
    none = x.constant(0.0).expand(x.shape[1], op.hidden_size)
    starts = [none if v is None else v for v in (way.h, way.c)[: op.states]]
    after = recurrent_bias(op, way)

    def step(b: Builder, number: Value, current: Sequence[Value]) -> tuple[Sequence[Value], Sequence[Value]]:
        r, bias, peephole = (None if v is None else Tensor(b, v.value) for v in (way.r, after, way.peephole))
        assert r is not None
        place = Tensor(b, number)
        before = [Tensor(b, v) for v in current]
        cell = Cell(op, way.number, r, bias, peephole)
        states = cell.step(gather(Tensor(b, entered.value), place, axis=0), before)
        shown = states[0]
        if lengths is not None:
            going = (Tensor(b, lengths.value).cast(I64) > place).reshape(x.shape[1], 1)
            states = [where(going, s, old) for s, old in zip(states, before, strict=True)]
            shown = where(going, shown, 0.0)
        return [s.value for s in states], [shown.value]

    last: Sequence[Value] = [s.value for s in starts]
    count = x.size(0)
    if count is not None and is_written_out(count):
        rows = []
        for k in range(count):
            last, shown = step(x.builder, x.constant(np.array(k)).value, last)
            rows += [Tensor(x.builder, v) for v in shown]
        ys = stack(rows, 0)
    else:
        steps = apply_named("Shape", x, start=0, end=1).reshape()
        *last, y = repeat(x.builder, steps.value, last, step, x.shape[0])
        ys = Tensor(x.builder, y)
    return [reverse_steps(ys, lengths) if way.backward else ys, *(Tensor(x.builder, v) for v in last)]


def enter_gates(op: Recurrent, way: Direction) -> Tensor:
    """What all gates get from the input in all steps, [T, N, gates * H]."""
    made = way.x @ way.w.transpose(1, 0)
    return made if way.bias is None else made + way.bias.part(0, 0, op.gates * op.hidden_size)


def recurrent_bias(op: Recurrent, way: Direction) -> Tensor | None:
    """The half of the bias that goes with the recurrent weights, [gates * H]."""
    rows = op.gates * op.hidden_size
    return None if way.bias is None else way.bias.part(0, rows, 2 * rows)


def reverse_steps(x: Tensor, lengths: Tensor | None) -> Tensor:
    """Steps from the last to the first, of each sequence by its length."""
    if lengths is not None:
        return apply_op(ReverseSequence(batch_axis=1, time_axis=0), x, lengths.cast(I64))
    starts = (x.shape[0] - 1, *(const(0),) * (x.rank - 1))
    return apply_named("Slice", x, starts=starts, sizes=x.shape, steps=(-1, *(1,) * (x.rank - 1)))


class Cell:
    """A step of a direction, or all of them: tensors are [..., H], the gates' [..., gates * H].

    Args:
        d: the direction's number.
        r: recurrent weights [gates * H, H]; `bias` [gates * H] is what goes with them; `peephole` is [3 * H].
    """

    def __init__(self, op: Recurrent, d: int, r: Tensor, bias: Tensor | None, peephole: Tensor | None) -> None:
        self.op, self.size, self.r, self.bias, self.peephole = op, op.hidden_size, r, bias, peephole
        count = len(op.usual)
        given = op.activations[d * count : (d + 1) * count] or tuple((name, 0.0, 0.0) for name in op.usual)
        self.functions = [partial(_activate, activation) for activation in given]

    def step(self, entered: Tensor, states: Sequence[Tensor]) -> list[Tensor]:
        """The new states from what the gates get from the input."""
        h = states[0]
        if isinstance(self.op, LSTM):
            i, o, f, g = self.gates(entered + self.recurrent(h, 0, 4))
            c = self.lstm_state(i, f, g, states[1])
            return [self.lstm_shown(o, c), c]
        if isinstance(self.op, GRU):
            update, reset = self.gates(entered.part(-1, 0, 2 * self.size) + self.recurrent(h, 0, 2))
            candidate = self._gate(entered, 2)
            if self.op.linear_before_reset:
                return [self.gru_before(update, reset, candidate, self.recurrent(h, 2, 3), h)]
            return [self.gru_after(update, candidate + self.recurrent(self.gru_reset(reset, h), 2, 3), h)]
        return [self.activate(0, entered + self.recurrent(h, 0, 1))]

    def lstm_state(self, i: Tensor, f: Tensor, g: Tensor, c: Tensor) -> Tensor:
        """The new c from what the gates i, f and g get."""
        entered = self.activate(0, self._add_peephole(i, 0, c))
        forgets = isinstance(self.op, LSTM) and self.op.input_forget
        kept = 1.0 - entered if forgets else self.activate(0, self._add_peephole(f, 2, c))
        return kept * c + entered * self.activate(1, g)

    def lstm_shown(self, o: Tensor, c: Tensor) -> Tensor:
        """The new h from what the gate o gets, and the new c."""
        return self.activate(0, self._add_peephole(o, 1, c)) * self.functions[2](c)

    def gru_before(self, z: Tensor, r: Tensor, entered: Tensor, from_state: Tensor, h: Tensor) -> Tensor:
        """The new h, where the gate r multiplies what the last gate gets from the state."""
        return self.gru_after(z, entered + self.activate(0, r) * from_state, h)

    def gru_reset(self, r: Tensor, h: Tensor) -> Tensor:
        """What the last gate's weights multiply where the gate r goes first."""
        return self.activate(0, r) * h

    def gru_after(self, z: Tensor, candidate: Tensor, h: Tensor) -> Tensor:
        """The new h from all that the gates z and the last one get."""
        update = self.activate(0, z)
        return (1.0 - update) * self.activate(1, candidate) + update * h

    def recurrent(self, h: Tensor, first: int, last: int) -> Tensor:
        """What some gates get from the state."""
        start, end = first * self.size, last * self.size
        made = h @ self.r.part(0, start, end).transpose(1, 0)
        return made if self.bias is None else made + self.bias.part(0, start, end)

    def gates(self, x: Tensor) -> list[Tensor]:
        """The parts of several gates, one after the other."""
        size = x.size(-1)
        assert size is not None
        return [self._gate(x, k) for k in range(size // self.size)]

    def activate(self, k: int, x: Tensor) -> Tensor:
        """Activation number k of a gate, with the bound on its operand."""
        limit = self.op.clip
        return self.functions[k](x if limit is None else clip(x, low=-limit, high=limit))

    def _gate(self, gates: Tensor, k: int) -> Tensor:
        return gates.part(-1, k * self.size, (k + 1) * self.size)

    def _add_peephole(self, x: Tensor, part: int, c: Tensor) -> Tensor:
        return x if self.peephole is None else x + c * self.peephole.part(0, part * self.size, (part + 1) * self.size)
