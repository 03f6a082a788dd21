"""LSTM, GRU and RNN made of other operators, for their gradients: a loop over the steps, a direction after the other.

What the input gives all gates in all steps is one product in front of the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

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


@parts_of(LSTM, GRU, RNN)
def _recurrent_parts(op: Recurrent, x: Tensor, *rest: Tensor | None) -> list[Tensor]:
    kind = x.dtype
    wide = F64 if kind is F64 else F32  # that cells are computed in
    given: list[Tensor | None] = [*rest, *[None] * (7 - len(rest))]
    w, r, bias, lengths, h, c, peephole = given
    if op.layout:
        x, h, c = x.transpose(1, 0, 2), _put_batch_first(h), _put_batch_first(c)
    found = []
    for d in range(op.directions):
        own = [None if v is None else _of_direction(v, d).cast(wide) for v in (w, r, bias, h, c, peephole)]
        backward = op.direction == "reverse" or d == 1
        found.append(_direction(op, d, x.cast(wide), own, lengths, backward))
    y = _stack([each[0] for each in found], 1)
    states = [_stack([each[k] for each in found], 0) for k in range(1, 1 + op.states)]
    if op.layout:
        y, states = y.transpose(2, 0, 1, 3), [s.transpose(1, 0, 2) for s in states]
    return [t.cast(kind) for t in (y, *states)]


def _put_batch_first(state: Tensor | None) -> Tensor | None:
    return None if state is None else state.transpose(1, 0, 2)


def _of_direction(v: Tensor, d: int) -> Tensor:
    return gather(v, v.constant(np.array(d)), axis=0)


def _stack(parts: Sequence[Tensor], axis: int) -> Tensor:
    shape = parts[0].shape
    return apply_named("Concat", *(p.reshape(*shape[:axis], 1, *shape[axis:]) for p in parts), axis=axis)


def _direction(
    op: Recurrent, d: int, x: Tensor, own: Sequence[Tensor | None], lengths: Tensor | None, backward: bool
) -> list[Tensor]:
    """All h [T, N, H] of a direction, and the last states [N, H]."""
    w, r, bias, h, c, peephole = own
    assert w is not None and r is not None
    x = _reverse_steps(x, lengths) if backward else x
    gates, hidden = x @ w.transpose(1, 0), op.gates * op.hidden_size
    if bias is not None:
        gates = gates + bias.part(0, 0, hidden)
    none = x.constant(0.0).expand(x.shape[1], op.hidden_size)
    starts = [none if v is None else v for v in (h, c)[: op.states]]
    after = bias.part(0, hidden, 2 * hidden) if bias is not None else None

    def step(b: Builder, number: Value, current: list[Value]) -> tuple[Sequence[Value], Sequence[Value]]:
        inside = [None if v is None else Tensor(b, v.value) for v in (r, after, peephole)]
        place = Tensor(b, number)
        before = [Tensor(b, v) for v in current]
        cell = _Cell(op, d, *inside)
        states = cell.step(gather(Tensor(b, gates.value), place, axis=0), before)
        shown = states[0]
        if lengths is not None:
            going = (Tensor(b, lengths.value).cast(I64) > place).reshape(x.shape[1], 1)
            states = [where(going, s, old) for s, old in zip(states, before, strict=True)]
            shown = where(going, shown, 0.0)
        return [s.value for s in states], [shown.value]

    steps = apply_named("Shape", x, start=0, end=1).reshape()
    *last, y = repeat(x.builder, steps.value, [s.value for s in starts], step, x.shape[0])
    ys = Tensor(x.builder, y)
    return [_reverse_steps(ys, lengths) if backward else ys, *(Tensor(x.builder, v) for v in last)]


def _reverse_steps(x: Tensor, lengths: Tensor | None) -> Tensor:
    """Steps from the last to the first, of each sequence by its length."""
    if lengths is not None:
        return apply_op(ReverseSequence(batch_axis=1, time_axis=0), x, lengths.cast(I64))
    starts = (x.shape[0] - 1, *(const(0),) * (x.rank - 1))
    return apply_named("Slice", x, starts=starts, sizes=x.shape, steps=(-1, *(1,) * (x.rank - 1)))


class _Cell:
    """A step of a direction.

    Args:
        r: recurrent weights [gates * H, H]; `bias` [gates * H] is what goes with them; `peephole` is [3 * H].
    """

    def __init__(self, op: Recurrent, d: int, r: Tensor | None, bias: Tensor | None, peephole: Tensor | None) -> None:
        assert r is not None
        self.op, self.size, self.r, self.bias, self.peephole = op, op.hidden_size, r, bias, peephole
        count = len(op.usual)
        given = op.activations[d * count : (d + 1) * count] or tuple((name, 0.0, 0.0) for name in op.usual)
        self.functions = [partial(_activate, activation) for activation in given]

    def step(self, gates: Tensor, states: Sequence[Tensor]) -> list[Tensor]:
        """The new states [N, H] from what the gates get from the input [N, gates * H]."""
        if isinstance(self.op, LSTM):
            return self._lstm(self.op, gates, states[0], states[1])
        if isinstance(self.op, GRU):
            return [self._gru(self.op, gates, states[0])]
        return [self._clip_and_activate(0, gates + self._recurrent(states[0], 0, 1))]

    def _lstm(self, op: LSTM, gates: Tensor, h: Tensor, c: Tensor) -> list[Tensor]:
        gates = gates + self._recurrent(h, 0, 4)
        entered = self._clip_and_activate(0, self._add_peephole(self._gate(gates, 0), 0, c))
        kept = (
            1.0 - entered
            if op.input_forget
            else self._clip_and_activate(0, self._add_peephole(self._gate(gates, 2), 2, c))
        )
        c = kept * c + entered * self._clip_and_activate(1, self._gate(gates, 3))
        shown = self._clip_and_activate(0, self._add_peephole(self._gate(gates, 1), 1, c))
        return [shown * self.functions[2](c), c]

    def _gru(self, op: GRU, gates: Tensor, h: Tensor) -> Tensor:
        both = gates.part(1, 0, 2 * self.size) + self._recurrent(h, 0, 2)
        update, reset = self._clip_and_activate(0, self._gate(both, 0)), self._clip_and_activate(0, self._gate(both, 1))
        inner = reset * self._recurrent(h, 2, 3) if op.linear_before_reset else self._recurrent(reset * h, 2, 3)
        candidate = self._clip_and_activate(1, self._gate(gates, 2) + inner)
        return (1.0 - update) * candidate + update * h

    def _recurrent(self, h: Tensor, first: int, last: int) -> Tensor:
        """What some gates get from the state."""
        start, end = first * self.size, last * self.size
        made = h @ self.r.part(0, start, end).transpose(1, 0)
        return made if self.bias is None else made + self.bias.part(0, start, end)

    def _gate(self, gates: Tensor, k: int) -> Tensor:
        return gates.part(1, k * self.size, (k + 1) * self.size)

    def _add_peephole(self, x: Tensor, part: int, c: Tensor) -> Tensor:
        return x if self.peephole is None else x + c * self.peephole.part(0, part * self.size, (part + 1) * self.size)

    def _clip_and_activate(self, k: int, x: Tensor) -> Tensor:
        limit = self.op.clip
        return self.functions[k](x if limit is None else clip(x, low=-limit, high=limit))
