"""Operators of onnx's reference evaluator that fail, or compute something else than ONNX says, put right.

So that a verdict is on the compiled model. What an operator does otherwise stays onnx's own.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from onnx.reference.op_run import OpRun
from onnx.reference.ops.aionnxml.op_svm_classifier import SVMClassifier as _SVMClassifier
from onnx.reference.ops.op_batch_normalization import BatchNormalization_14 as _BatchNormalization
from onnx.reference.ops.op_dropout import Dropout_12 as _Dropout
from onnx.reference.ops.op_loop import Loop as _Loop

Array = np.ndarray[Any, Any]


class BatchNormalization(_BatchNormalization):
    """Its own of opsets before 14 computes statistics of the batch, as if it trained."""

    def _run(self, *inputs: Any, **attributes: Any) -> Any:
        run: Any = super()._run  # opset 7 has `spatial`, opset 6 `is_test` too
        return run(*inputs, **{k: v for k, v in attributes.items() if k not in ("spatial", "is_test")})


class Dropout(_Dropout):
    """Its own has a mask of truth values also before opset 10, where it is of the data's type."""

    def _run(self, *inputs: Any, seed: int | None = None, ratio: float | None = None) -> Any:
        run: Any = super()._run  # before opset 12 the ratio is an attribute, and nothing is dropped
        x, *mask = run(*inputs, seed=seed)
        return x, *(m.astype(x.dtype) if _opset(self) < 10 else m for m in mask)


class GatherElements(OpRun):
    """Its own fails where the axis is longer than NumPy's choose takes."""

    def _run(self, data: Array, indices: Array, axis: int) -> tuple[Array]:
        part = tuple(slice(None if d == axis % data.ndim else n) for d, n in enumerate(indices.shape))
        return (np.take_along_axis(data[part], indices.astype(np.int64), axis),)


class Softmax(OpRun):
    """Its own takes one axis, by default the last, in all opsets; before 13 these are all from an axis on."""

    def _run(self, x: Array, axis: int) -> tuple[Array]:
        return (_over_rows(self, x, axis, _softmax),)


class LogSoftmax(OpRun):
    """As Softmax, and its own is infinite where a result of Softmax is too small for its type."""

    def _run(self, x: Array, axis: int) -> tuple[Array]:
        return (_over_rows(self, x, axis, _log_softmax),)


class Hardmax(OpRun):
    """As Softmax."""

    def _run(self, x: Array, axis: int) -> tuple[Array]:
        return (_over_rows(self, x, axis, _hardmax),)


class LRN(OpRun):
    """Its own normalises as many channels as there are images."""

    def _run(self, x: Array, alpha: float, beta: float, bias: float, size: int) -> tuple[Array]:
        before, behind = (size - 1) // 2, size // 2
        channels = [(x[:, max(0, c - before) : c + behind + 1] ** 2).sum(axis=1) for c in range(x.shape[1])]
        sums = np.stack(channels, axis=1) if channels else x
        return ((x / (bias + alpha / size * sums) ** beta).astype(x.dtype),)


class LpNormalization(OpRun):
    """Its own divides by a sum of numbers, not of their magnitudes, where p is 1."""

    def _run(self, x: Array, axis: int, p: int) -> tuple[Array]:
        norm = np.linalg.norm(x, p, axis=axis, keepdims=True)
        return (np.where(norm == 0, 0, x / norm).astype(x.dtype),)


class Loop(_Loop):
    """Its own takes a condition that is left out for false, not for no condition, and concatenates what rounds yield
    instead of stacking it.
    """

    def _run(
        self,
        M: Array | None,
        cond: Array | None,
        *carried: Any,
        context: Any = None,
        body: Any = None,
        attributes: Any = None,
        bindings: Any = None,
    ) -> Any:
        loop: Any = self
        states, conditioned = list(carried), cond is not None
        yielded: list[list[Array]] = [[] for _ in loop.body.output_names[1 + len(states) :]]
        rounds = 0
        while (cond or not conditioned) and (M is None or rounds < M):
            inputs = [np.array(rounds, np.int64), np.array(True), *states]
            feeds = {**(context or {}), **dict(zip(loop.body.input_names, inputs, strict=True))}
            cond, *results = loop._run_body(feeds, attributes=attributes, bindings=bindings)
            rounds += 1
            states = results[: len(states)]
            for parts, part in zip(yielded, results[len(states) :], strict=True):
                parts.append(part)
        if rounds == 0 and yielded:  # onnx's own exception for what it lacks; verify names the remedy
            raise NotImplementedError("Loop that yields values, in no rounds")
        return self._check_and_fix_outputs((*states, *map(np.stack, yielded)))


class SVMClassifier(_SVMClassifier):
    """Its own couples the probabilities of three classes and more by another matrix, and fails for two names."""

    def _run(self, *arrays: Any, **given: Any) -> Any:
        run: Any = super()._run
        if not given.get("classlabels_strings"):
            return run(*arrays, **given)
        names = np.array(given["classlabels_strings"])
        numbers = {"classlabels_ints": list(range(len(names))), "classlabels_strings": None}
        places, scores = run(*arrays, **(given | numbers))
        return names[places], scores

    def _probabilities(self, scores: Any, class_count_: int) -> Any:
        """The probabilities of classes from those of pairs: T.-F. Wu, C.-J. Lin and R. C. Weng, Probability estimates
        for multi-class classification by pairwise coupling, JMLR 5 (2004), algorithm 2; iterations as LIBSVM has them.
        """
        pairs = np.zeros((class_count_, class_count_), scores.dtype)
        given: Any = self._svm.atts
        chances = np.clip(1 / (1 + np.exp(scores * given.prob_a + given.prob_b)), 1e-7, 1 - 1e-7)
        pairs[np.triu_indices(class_count_, 1)] = chances
        pairs.T[np.triu_indices(class_count_, 1)] = 1 - chances
        matrix = -pairs.T * pairs
        np.fill_diagonal(matrix, (pairs**2).sum(axis=0))
        found = np.full(class_count_, 1 / class_count_, scores.dtype)
        for _ in range(max(100, class_count_)):
            products = matrix @ found
            whole = found @ products
            if np.abs(products - whole).max() < 0.005 / class_count_:
                break
            for t in range(class_count_):
                step = (whole - products[t]) / matrix[t, t]
                found[t] += step
                whole = (whole + step * (step * matrix[t, t] + 2 * products[t])) / (1 + step) ** 2
                products = (products + step * matrix[t]) / (1 + step)
                found /= 1 + step
        return found


def _opset(op: OpRun) -> int:
    """The version of ONNX's operators that an operator is of."""
    return int(op.run_params["opsets"].get("", onnx.defs.onnx_opset_version()))


def _over_rows(op: OpRun, x: Array, axis: int, function: Callable[[Array, int], Array]) -> Array:
    """A function of rows along an axis; before opset 13 along all axes from one on, the second where none is given."""
    if x.size == 0:
        return x
    if _opset(op) >= 13:
        return function(x, axis)
    first = next((a.i for a in op.onnx_node.attribute if a.name == "axis"), 1)
    first += x.ndim if first < 0 else 0
    return function(x.reshape(math.prod(x.shape[:first]), -1), 1).reshape(x.shape)


def _softmax(rows: Array, axis: int) -> Array:
    powers = np.exp(rows - rows.max(axis=axis, keepdims=True))
    result: Array = (powers / powers.sum(axis=axis, keepdims=True)).astype(rows.dtype)
    return result


def _log_softmax(rows: Array, axis: int) -> Array:
    below = rows - rows.max(axis=axis, keepdims=True)
    result: Array = (below - np.log(np.exp(below).sum(axis=axis, keepdims=True))).astype(rows.dtype)
    return result


def _hardmax(rows: Array, axis: int) -> Array:
    result = np.zeros_like(rows)
    np.put_along_axis(result, rows.argmax(axis=axis, keepdims=True), 1, axis)
    return result


CORRECTED: tuple[type[OpRun], ...] = (
    BatchNormalization,
    Dropout,
    GatherElements,
    Hardmax,
    LogSoftmax,
    Loop,
    LpNormalization,
    LRN,
    Softmax,
    SVMClassifier,
)
