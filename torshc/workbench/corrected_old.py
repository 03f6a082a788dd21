"""Operators of opsets 1 to 6, which onnx's reference evaluator takes for those of opset 7: see :mod:`.corrected`."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx.reference.op_run import OpRun
from onnx.reference.ops import load_op

Array = np.ndarray[Any, Any]
SETTLED = 7  # the opset from which the evaluator's own are right
_HINTED = ("InstanceNormalization", "Max", "Min", "PRelu", "Sum")
_BINARY = ("Add", "And", "Div", "Equal", "Greater", "Less", "Mul", "Or", "Pow", "Sub", "Xor")


def _along_an_axis(name: str) -> type[OpRun]:
    """An operator of two operands. Its own knows no `axis` from which dimensions of the second stand."""
    own: Any = load_op("", name, SETTLED)

    def run(self: OpRun, a: Array, b: Array, axis: int | None = None, **_: Any) -> tuple[Array]:
        if axis is not None:
            b = b.reshape(*b.shape, *[1] * (a.ndim - axis % a.ndim - b.ndim))
        return (np.asarray(own.eval(a, b)),)

    return type(name, (OpRun,), {"_run": run})


def _without_hint(name: str) -> type[OpRun]:
    """An operator. Its own knows no `consumed_inputs`, which say what memory may be used again."""
    own: Any = load_op("", name, SETTLED)

    def run(self: OpRun, *arrays: Array, **given: Any) -> Any:
        return own._run(self, *arrays, **{k: v for k, v in given.items() if k != "consumed_inputs"})

    return type(name, (own,), {"_run": run})


class Clip(OpRun):
    """There is none of its own in opset 1."""

    def _run(self, x: Array, min: float | None = None, max: float | None = None, **_: Any) -> tuple[Array]:
        return (x if min is None and max is None else np.clip(x, min, max).astype(x.dtype),)


class Concat(OpRun):
    """Its own needs an axis."""

    def _load_attributes(self) -> None:
        self.axis = 1  # what it is in opset 1 where none is given; the evaluator looks for what is required
        super()._load_attributes()

    def _run(self, *parts: Array, **_: Any) -> tuple[Array]:
        return (np.concatenate(parts, axis=self.axis),)


class Gemm(OpRun):
    """There is none of its own in opset 1."""

    def _run(
        self, a: Array, b: Array, c: Array, alpha: float, beta: float, transA: int, transB: int, **_: Any
    ) -> tuple[Array]:
        product = (a.T if transA else a) @ (b.T if transB else b)
        return ((alpha * product + beta * c).astype(a.dtype),)


class Reshape(OpRun):
    """There is none of its own before opset 5."""

    def _run(self, x: Array, sizes: Array | None = None, shape: Any = None, **_: Any) -> tuple[Array]:
        wanted = shape if sizes is None else sizes
        return (x.reshape([x.shape[k] if n == 0 else int(n) for k, n in enumerate(wanted)]),)


class Selu(OpRun):
    """Its own has other usual numbers than opset 1."""

    def _run(self, x: Array, alpha: float, gamma: float, **_: Any) -> tuple[Array]:
        named = {a.name for a in self.onnx_node.attribute}
        if self.run_params["opsets"][""] < 6:
            alpha, gamma = alpha if "alpha" in named else 1.6732, gamma if "gamma" in named else 1.0507
        return ((gamma * np.where(x > 0, x, alpha * np.expm1(x))).astype(x.dtype),)


class Split(OpRun):
    """There is none of its own in opset 1, where lengths may be an operand."""

    def _run(self, x: Array, lengths: Array | None = None, axis: int | None = 0, split: Any = None, **_: Any) -> Any:
        parts, axis = len(self.onnx_node.output), axis or 0
        sizes = split if lengths is None else lengths
        return tuple(np.split(x, parts if sizes is None else np.cumsum(sizes)[:-1], axis))


class Tile(OpRun):
    """Its own takes no axis beside how often."""

    def _run(self, x: Array, times: Array, axis: Array | None = None) -> tuple[Array]:
        return (np.tile(x, times) if axis is None else np.concatenate([x] * int(times), int(axis)),)


OLD: tuple[type[OpRun], ...] = (
    *map(_along_an_axis, _BINARY), *map(_without_hint, _HINTED), Clip, Concat, Gemm, Reshape, Selu, Split, Tile,
)  # fmt: skip
