"""The gradients of LSTM, GRU and RNN of a known number of steps, from the last step to the first.

    u = x w' + h r' + biases              what the gates get, of all steps in one product, as the results tell h
    c' = C(u, c);  h' = H(u, c', h)       element by element, and so are their slopes, of all steps at once
    dh = dh + dy;  dc = dc + dh dH/dc'    then a step: what it gets from the one behind it,
    du = dc dC/du + dh dH/du
    dh = du r + dh dH/dh;  dc = dc dC/dc  and what it hands to the one before
    dr = du' h;  dw = du' x;  dx = du w   of all steps in one product each

Only the lines of a step are written out for each step. Where these are too many, or a run decides how many, the network
is differentiated as a loop.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from ..expr import I64, const, product
from ..ops.core.functions import concat, identity, where
from ..ops.core.gradient import Backward, gradient_of, spread
from ..ops.core.tensor import Tensor
from ..ops.nn.recurrent import GRU, LSTM, RNN, Recurrent
from ..ops.nn.recurrent_parts import (
    Cell,
    Direction,
    directions_of,
    enter_gates,
    is_written_out,
    pick,
    recurrent_bias,
    recurrent_parts,
    reverse_steps,
    stack,
)
from .reverse import gradients_of_several

Maybe = Tensor | None


@gradient_of(LSTM, GRU, RNN)
def _recurrent_gradient(op: Recurrent, at: Backward) -> list[Maybe]:
    steps = at.operand(0).size(1 if op.layout else 0)
    if steps is None or not is_written_out(steps):
        return _loop_gradient(op, at)
    results: list[Maybe] = [at.outputs[0], *at.gradients]
    if op.layout:
        results = [None if v is None else v.transpose(*_TIME_FIRST[v.rank]) for v in results]
    ways = []
    for way in directions_of(op, at.inputs):
        own = [None if v is None else pick(v, v.rank - 3, way.number).cast(way.x.dtype) for v in results]
        ways.append(_BACK[type(op)](op, way, steps, own).gradients())
    found = [_join(parts) for parts in zip(*ways, strict=True)]
    found[0] = None if found[0] is None else found[0].sum(0, keep=False)
    if op.layout:
        for k in (0, 5, 6):
            found[k] = None if (v := found[k]) is None else v.transpose(1, 0, 2)
    return [None if g is None else g.cast(at.outputs[0].dtype) for g in found[: len(at.inputs)]]


_TIME_FIRST = {4: (1, 2, 0, 3), 3: (1, 0, 2)}  # of y [N, T, D, H] and of states [N, D, H]


def _join(parts: Sequence[Maybe]) -> Maybe:
    """What each direction has, along a new first axis."""
    there = [p for p in parts if p is not None]
    return stack(there, 0) if there else None


def _loop_gradient(op: Recurrent, at: Backward) -> list[Maybe]:
    """The gradient of the network as a loop; of copies of the operands, as one value may be several of them."""
    builder = at.outputs[0].builder
    copies = [None if x is None else identity(x) for x in at.inputs]
    seeds = [(y.value, g) for y, g in zip(recurrent_parts(op, *copies), at.gradients, strict=False) if g is not None]
    wanted = {k: v.value for k, v in enumerate(copies) if v is not None and at.wants(k)}
    made = dict(zip(wanted, gradients_of_several(builder, seeds, [*wanted.values()]), strict=True))
    return [Tensor(builder, made[k]) if k in made else None for k in range(len(copies))]


@dataclass(frozen=True)
class _Found:
    """What the steps back have found.

    Attributes:
        entered: the gradient of what the gates get from the input.
        products: gradients of what gates get from their weights, and what these multiply; all gates in order.
        h, c: gradients of the first states, [1, N, H].
        peephole: [3 * H].
    """

    entered: Tensor
    products: Sequence[tuple[Tensor, Tensor]]
    h: Tensor
    c: Maybe = None
    peephole: Maybe = None


class _Back(ABC):
    """The way back through one direction. Tensors over all steps are [T, N, H], those of a step [1, N, H].

    Args:
        given: the results h, their gradients, and those of the last states [N, H].
    """

    def __init__(self, op: Recurrent, way: Direction, steps: int, given: Sequence[Maybe]) -> None:
        y, dy, *last = given
        assert y is not None
        if way.backward:
            y, dy = reverse_steps(y, way.lengths), None if dy is None else reverse_steps(dy, way.lengths)
        self.way, self.steps, self.state = way, steps, (const(1), *y.shape[1:])
        self.going: Maybe = None
        if way.lengths is not None:
            numbers = way.lengths.range(0, steps).reshape(steps, 1, 1)
            self.going = numbers < way.lengths.cast(I64).reshape(self.state[1], 1)
        self.none = y.constant(0.0).expand(*self.state)
        self.dy = None if dy is None else self.until_end(dy)
        self.last = [None if s is None else s.reshape(*self.state) for s in last]
        self.h = _in_time([self.start(way.h), *([y.part(0, 0, steps - 1)] if steps > 1 else [])])
        self.cell = Cell(op, way.number, way.r, recurrent_bias(op, way), way.peephole)
        self.entered = enter_gates(op, way)

    @abstractmethod
    def back(self) -> _Found:
        """Take the steps."""

    def gradients(self) -> list[Maybe]:
        """Of x, w, r, the bias, the lengths (none), the first h, the first c and the peepholes."""
        x, found = self.way.x, self.back()
        given = _rows(found.entered)
        dx = (given @ self.way.w).reshape(*x.shape)
        dr = [_rows(g).transpose(1, 0) @ _rows(v) for g, v in found.products]
        sums = [_rows(g).sum(0, keep=False) for g in (found.entered, *(g for g, _ in found.products))]
        return [
            reverse_steps(dx, self.way.lengths) if self.way.backward else dx,
            given.transpose(1, 0) @ _rows(x),
            concat(*dr, axis=0),
            None if self.way.bias is None else concat(*sums, axis=0),
            None,
            found.h.reshape(*self.state[1:]),
            None if found.c is None else found.c.reshape(*self.state[1:]),
            found.peephole,
        ]

    def start(self, state: Maybe) -> Tensor:
        """A first state."""
        return self.none if state is None else state.reshape(*self.state)

    def until_end(self, v: Tensor, then: float = 0.0) -> Tensor:
        """What holds until a sequence ends, and another number after that."""
        return v if self.going is None else where(self.going, v, then)

    def slopes(self, y: Tensor, *xs: Tensor) -> list[Tensor]:
        """What each element of y changes by with the same one of each x; by nothing when a sequence has ended."""
        ones = spread(y.constant(1.0), y.shape)
        found = gradients_of_several(y.builder, [(y.value, ones)], [x.value for x in xs])
        return [self.until_end(Tensor(y.builder, v)) for v in found]

    def after(self, t: int, dh: Maybe) -> Tensor:
        """The gradient of h after step t, from what the step behind hands to it."""
        here = None if self.dy is None else _of(self.dy, t)
        found = here if dh is None else dh if here is None else dh + here
        return self.none if found is None else found

    def before(self, t: int, dh: Tensor, found: Tensor) -> Tensor:
        """The gradient of h before step t: what was found, and all of what is behind it when a sequence has ended."""
        return found if self.going is None else where(_of(self.going, t), found, dh)


class _LSTMBack(_Back):
    def back(self) -> _Found:
        i, o, f, g = self.cell.gates(self.entered + self.cell.recurrent(self.h, 0, 4))
        states = self._states(i, f, g)
        before, after = (states.part(0, k, k + self.steps) for k in (0, 1))
        by_i, by_f, by_g, by_c = self.slopes(self.cell.lstm_state(i, f, g, before), i, f, g, before)
        by_o, by_new = self.slopes(self.cell.lstm_shown(o, after), o, after)
        (dh, dc), found = self.last, list[Tensor]()
        for t in reversed(range(self.steps)):
            dh = self.after(t, dh)
            new = dh * _of(by_new, t)
            dc = new if dc is None else dc + new
            found.append(concat(dc * _of(by_i, t), dh * _of(by_o, t), dc * _of(by_f, t), dc * _of(by_g, t), axis=2))
            dh = self.before(t, dh, found[-1] @ self.way.r)
            dc = self.before(t, dc, dc * _of(by_c, t))
        assert dh is not None
        du = _in_time(found[::-1])
        return _Found(du, [(du, self.h)], dh, dc, self._peephole(du, before, after))

    def _states(self, i: Tensor, f: Tensor, g: Tensor) -> Tensor:
        """The first c, and c after each step, [T + 1, N, H]."""
        found = [self.start(self.way.c)]
        for t in range(self.steps):
            c = self.cell.lstm_state(_of(i, t), _of(f, t), _of(g, t), found[-1])
            found.append(self.before(t, found[-1], c))
        return _in_time(found)

    def _peephole(self, du: Tensor, before: Tensor, after: Tensor) -> Maybe:
        if self.way.peephole is None:
            return None
        i, o, f, _ = self.cell.gates(du)
        return concat(*((g * c).sum((0, 1), keep=False) for g, c in ((i, before), (o, after), (f, before))), axis=0)


class _GRUBack(_Back):
    def back(self) -> _Found:
        """Where the gate r multiplies the state, and the last gate's weights the product; else as below."""
        cell, r = self.cell, self.way.r
        if isinstance(cell.op, GRU) and cell.op.linear_before_reset:
            return self._back_before_reset()
        rows = 2 * cell.size
        update, reset = cell.gates(self.entered.part(2, 0, rows) + cell.recurrent(self.h, 0, 2))
        held = cell.gru_reset(reset, self.h)
        candidate = cell.gates(self.entered)[2] + cell.recurrent(held, 2, 3)
        by_update, by_candidate, by_h = self.slopes(
            cell.gru_after(update, candidate, self.h), update, candidate, self.h
        )
        by_reset, held_by_h = self.slopes(held, reset, self.h)
        (dh,), gates, last = self.last, list[Tensor](), list[Tensor]()
        for t in reversed(range(self.steps)):
            dh = self.after(t, dh)
            last.append(dh * _of(by_candidate, t))
            given = last[-1] @ r.part(0, rows, rows + cell.size)
            gates.append(concat(dh * _of(by_update, t), given * _of(by_reset, t), axis=2))
            new = gates[-1] @ r.part(0, 0, rows) + dh * _of(by_h, t) + given * _of(held_by_h, t)
            dh = self.before(t, dh, new)
        assert dh is not None
        both, one = _in_time(gates[::-1]), _in_time(last[::-1])
        return _Found(concat(both, one, axis=2), [(both, self.h), (one, held)], dh)

    def _back_before_reset(self) -> _Found:
        """Where the gate r multiplies what the last gate gets from the state."""
        cell, rows = self.cell, 2 * self.cell.size
        update, reset = cell.gates(self.entered.part(2, 0, rows) + cell.recurrent(self.h, 0, 2))
        xs = update, reset, cell.gates(self.entered)[2], cell.recurrent(self.h, 2, 3), self.h
        by_update, by_reset, by_candidate, by_inner, by_h = self.slopes(cell.gru_before(*xs), *xs)
        (dh,), gates, last = self.last, list[Tensor](), list[Tensor]()
        for t in reversed(range(self.steps)):
            dh = self.after(t, dh)
            gates.append(concat(*(dh * _of(by, t) for by in (by_update, by_reset, by_inner)), axis=2))
            last.append(dh * _of(by_candidate, t))
            dh = self.before(t, dh, gates[-1] @ self.way.r + dh * _of(by_h, t))
        assert dh is not None
        given = _in_time(gates[::-1])
        return _Found(concat(given.part(2, 0, rows), _in_time(last[::-1]), axis=2), [(given, self.h)], dh)


class _RNNBack(_Back):
    def back(self) -> _Found:
        given = self.entered + self.cell.recurrent(self.h, 0, 1)
        (by,) = self.slopes(self.cell.activate(0, given), given)
        (dh,), found = self.last, list[Tensor]()
        for t in reversed(range(self.steps)):
            dh = self.after(t, dh)
            found.append(dh * _of(by, t))
            dh = self.before(t, dh, found[-1] @ self.way.r)
        assert dh is not None
        du = _in_time(found[::-1])
        return _Found(du, [(du, self.h)], dh)


_BACK: dict[type[Recurrent], type[_Back]] = {LSTM: _LSTMBack, GRU: _GRUBack, RNN: _RNNBack}


def _of(v: Tensor, t: int) -> Tensor:
    """What a step has of a tensor over all of them."""
    return v.part(0, t, t + 1)


def _in_time(parts: Sequence[Tensor]) -> Tensor:
    return concat(*parts, axis=0) if len(parts) > 1 else parts[0]


def _rows(v: Tensor) -> Tensor:
    """[T, N, K] as [T * N, K]."""
    return v.reshape(product(v.shape[:2]), v.shape[2])


__all__: list[str] = []
