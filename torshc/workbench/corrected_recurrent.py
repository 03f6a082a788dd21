"""RNN, GRU and LSTM of onnx's reference evaluator, put right: see :mod:`.corrected`.

Its own take no lengths of sequences, no `clip` and no `input_forget`, and few activations or, in GRU and LSTM, none
but the usual ones.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from onnx.reference.op_run import OpRun

Array = np.ndarray[Any, Any]
Activation = Callable[[Array], Array]

# Each function of x, alpha and beta, with the usual alpha and beta of those that have them.
_FUNCTIONS: dict[str, tuple[Callable[[Array, float, float], Array], tuple[float, ...]]] = {
    "affine": (lambda x, a, b: a * x + b, (1.0, 0.0)),
    "elu": (lambda x, a, b: np.where(x < 0, a * np.expm1(x), x), (1.0,)),
    "hardsigmoid": (lambda x, a, b: np.clip(a * x + b, 0, 1), (0.2, 0.5)),
    "leakyrelu": (lambda x, a, b: np.where(x < 0, a * x, x), (0.01,)),
    "relu": (lambda x, a, b: np.maximum(x, 0), ()),
    "scaledtanh": (lambda x, a, b: a * np.tanh(b * x), (1.0, 1.0)),
    "sigmoid": (lambda x, a, b: 1 / (1 + np.exp(-x)), ()),
    "softplus": (lambda x, a, b: np.logaddexp(x, 0), ()),
    "softsign": (lambda x, a, b: x / (1 + np.abs(x)), ()),
    "tanh": (lambda x, a, b: np.tanh(x), ()),
    "thresholdedrelu": (lambda x, a, b: np.where(x > a, x, 0), (1.0,)),
}


class _Recurrent(OpRun):
    """Steps of all rows at once; a row whose sequence has ended keeps its state, and yields 0."""

    gates: int
    usual: tuple[str, ...]
    count = 1
    clip: float | None

    @abstractmethod
    def step(self, x: Array, states: list[Array], weights: Sequence[Array], f: Sequence[Activation]) -> list[Array]:
        """The states after a step: of x [N, I] and states [N, H], h first, with w, r, both biases and peepholes."""

    def _run(
        self,
        x: Array,
        w: Array,
        r: Array,
        b: Array | None = None,
        lengths: Array | None = None,
        h: Array | None = None,
        c: Array | None = None,
        peepholes: Array | None = None,
        *,
        layout: int = 0,
        direction: str = "forward",
        **given: Any,
    ) -> tuple[Array, ...]:
        states = [h, c][: self.count]
        if layout:
            x, states = x.swapaxes(0, 1), [None if s is None else s.swapaxes(0, 1) for s in states]
        (steps, rows, _), (directions, _, hidden) = x.shape, r.shape
        b = np.zeros((directions, 2 * self.gates * hidden), x.dtype) if b is None else b
        peepholes = np.zeros((directions, 3 * hidden), x.dtype) if peepholes is None else peepholes
        lengths = np.full(rows, steps) if lengths is None else lengths
        y = np.zeros((steps, directions, rows, hidden), x.dtype)
        last: list[list[Array]] = [[] for _ in states]
        activations = self._activations(directions, **given)
        for d in range(directions):
            now = [np.zeros((rows, hidden), x.dtype) if s is None else s[d] for s in states]
            weights = (w[d].T, r[d].T, *np.split(b[d], 2), peepholes[d])
            for t in range(steps):
                at = lengths - 1 - t if d or direction == "reverse" else np.full(rows, t)
                goes, row = t < lengths, np.arange(rows)
                after = self.step(x[at, row], now, weights, activations[d])
                now = [np.where(goes[:, None], new, old).astype(x.dtype) for new, old in zip(after, now, strict=True)]
                y[at[goes], d, row[goes]] = now[0][goes]
            for state, value in zip(last, now, strict=True):
                state.append(value)
        ends = [np.stack(state) for state in last]
        if layout:
            y, ends = y.transpose(2, 0, 1, 3), [e.swapaxes(0, 1) for e in ends]
        return (y, *ends)[: len(self.onnx_node.output)]

    def gate(self, f: Activation, x: Array) -> Array:
        """An activation of what is bounded by `clip`: a gate's, not that of LSTM's state, as ONNX Runtime has it."""
        bound = self.clip or np.inf
        return f(np.clip(x, -bound, bound))

    def _activations(self, directions: int, **given: Any) -> list[list[Activation]]:
        """Those of each direction; alphas and betas are listed for functions that have them."""
        listed = [iter(given.get(name) or ()) for name in ("activation_alpha", "activation_beta")]

        def read(name: str) -> Activation:
            function, usual = _FUNCTIONS[name.lower()]
            a, b = (*(next(numbers, default) for numbers, default in zip(listed, usual, strict=False)), 0.0, 0.0)[:2]
            return lambda v: function(v, a, b)

        found = [read(name) for name in given.get("activations") or self.usual * directions]
        return [found[d * len(self.usual) :][: len(self.usual)] for d in range(directions)]


class RNN(_Recurrent):
    """Its own knows the activations Tanh and Affine."""

    gates, usual = 1, ("Tanh",)

    def step(self, x: Array, states: list[Array], weights: Sequence[Array], f: Sequence[Activation]) -> list[Array]:
        w, r, bw, br, _ = weights
        return [self.gate(f[0], x @ w + states[0] @ r + bw + br)]


class GRU(_Recurrent):
    """Its own has the activations Sigmoid and Tanh."""

    gates, usual = 3, ("Sigmoid", "Tanh")
    linear_before_reset: int

    def step(self, x: Array, states: list[Array], weights: Sequence[Array], f: Sequence[Activation]) -> list[Array]:
        (h,), (w, r, bw, br, _) = states, weights
        of_x, of_h, hidden = x @ w + bw, h @ r + br, h.shape[1]
        z, reset = (self.gate(f[0], of_x[:, k : k + hidden] + of_h[:, k : k + hidden]) for k in (0, hidden))
        rest = slice(2 * hidden, None)
        inner = reset * of_h[:, rest] if self.linear_before_reset else (reset * h) @ r[:, rest] + br[rest]
        return [(1 - z) * self.gate(f[1], of_x[:, rest] + inner) + z * h]


class LSTM(_Recurrent):
    """Its own has the activations Sigmoid, Tanh and Tanh."""

    gates, usual, count = 4, ("Sigmoid", "Tanh", "Tanh"), 2
    input_forget: int

    def step(self, x: Array, states: list[Array], weights: Sequence[Array], f: Sequence[Activation]) -> list[Array]:
        (h, c), (w, r, bw, br, peepholes) = states, weights
        i, o, forget, new = np.split(x @ w + bw + h @ r + br, 4, axis=1)
        pi, po, pf = np.split(peepholes, 3)
        i = self.gate(f[0], i + pi * c)
        kept = 1 - i if self.input_forget else self.gate(f[0], forget + pf * c)
        c = kept * c + i * self.gate(f[1], new)
        return [self.gate(f[0], o + po * c) * f[2](c), c]
