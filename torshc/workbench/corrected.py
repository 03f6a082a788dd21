"""Operators of onnx's reference evaluator that fail, or compute something else than ONNX says, put right.

So that a verdict is on the compiled model. What an operator does otherwise stays onnx's own.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from onnx.reference.op_run import OpRun
from onnx.reference.ops import load_op
from onnx.reference.ops._op import OpRunReduceNumpy
from onnx.reference.ops.aionnxml import load_op as load_op_of_ml
from onnx.reference.ops.aionnxml.op_svm_classifier import SVMClassifier as _SVMClassifier
from onnx.reference.ops.op_loop import Loop as _Loop

from .corrected_casts import decide_casts
from .corrected_old import OLD, SETTLED
from .corrected_pools import AveragePool, GlobalAveragePool, GlobalLpPool, LpPool, MaxPool
from .corrected_recurrent import GRU, LSTM, RNN

Array = np.ndarray[Any, Any]


class Attention(OpRun):
    """Its own gives products that are already bounded by `softcap` where those before it are asked for."""

    def _run(self, *inputs: Any, softcap: float, qk_matmul_output_mode: int, **given: Any) -> Any:
        found = _own(self)(*inputs, softcap=softcap, qk_matmul_output_mode=qk_matmul_output_mode, **given)
        if qk_matmul_output_mode or not softcap or len(found) < 4:
            return found
        return *found[:3], _own(self)(*inputs, softcap=None, qk_matmul_output_mode=0, **given)[3]


class BatchNormalization(OpRun):
    """Its own of opsets before 14 computes statistics of the batch, as if it trained, and `spatial` has no meaning."""

    def _run(self, x: Array, *vectors: Array, spatial: int = 1, **given: Any) -> Any:
        run = _own(self, version=14)
        named = {k: v for k, v in given.items() if k not in ("is_test", "consumed_inputs")}  # of opset 6 and before
        if spatial:
            return run(x, *vectors, **named)
        flat = (a.reshape(-1) for a in vectors)  # a number for each element, as if it were a channel
        y, *rest = run(x.reshape(len(x), -1), *flat, **named)
        return y.reshape(x.shape), *rest


class Cast(OpRun):
    """Its own knows no names of types, as before opset 6, and leaves floats that an integer type cannot hold to NumPy.
    ONNX leaves these open: here they are as in a run.
    """

    def _run(self, x: Array, to: str | int, **given: Any) -> tuple[Array]:
        kind = onnx.TensorProto.DataType.Value(to.upper()) if isinstance(to, str) else to
        return (decide_casts(x, _own(self, version=25)(x, to=kind, **given)[0]),)


class CastLike(OpRun):
    """As Cast, and its own takes no `round_mode`."""

    def _run(self, x: Array, like: Array, saturate: int, **_: Any) -> tuple[Array]:
        return (decide_casts(x, _own(self, version=25)(x, like, saturate=saturate)[0]),)


class ConvTranspose(OpRun):
    """Its own fails for several groups."""

    def _run(self, x: Array, w: Array, b: Array | None = None, *, group: int = 1, **given: Any) -> Any:
        biases = [None] * group if b is None else np.split(b, group)
        parts = zip(np.split(x, group, axis=1), np.split(w, group), biases, strict=True)
        return (np.concatenate([_own(self)(*part, group=1, **given)[0] for part in parts], axis=1),)


class DequantizeLinear(OpRun):
    """There is none of its own before opset 19."""

    def _run(self, *arrays: Array, **given: Any) -> Any:
        return _own(self, version=25)(*arrays, **given)


class Dropout(OpRun):
    """Its own has a mask of truth values also before opset 10, where it is of the data's type."""

    def _run(self, *inputs: Any, seed: int | None = None, **_: Any) -> Any:
        run = _own(self, version=12)  # before opset 12 the ratio is an attribute, and nothing is dropped
        x, *mask = run(*inputs, seed=seed)
        return x, *(m.astype(x.dtype) if _opset(self) < 10 else m for m in mask)


class Flatten(OpRun):
    """Its own fails for a tensor without elements."""

    def _run(self, x: Array, axis: int) -> tuple[Array]:
        return (x.reshape(math.prod(x.shape[:axis]), math.prod(x.shape[axis:])),)


class GatherElements(OpRun):
    """Its own fails where the axis is longer than NumPy's choose takes."""

    def _run(self, data: Array, indices: Array, axis: int) -> tuple[Array]:
        part = tuple(slice(None if d == axis % data.ndim else n) for d, n in enumerate(indices.shape))
        return (np.take_along_axis(data[part], indices.astype(np.int64), axis),)


class GridSample(OpRun):
    """Its own knows no names of opset 16."""

    def _run(self, *inputs: Array, mode: str, **given: Any) -> Any:
        return _own(self)(*inputs, mode={"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode), **given)


class LinearRegressor(OpRun):
    """Its own gives no numbers where intercepts are left out."""

    op_domain = "ai.onnx.ml"

    def _run(self, x: Array, intercepts: Any = None, targets: int = 1, **given: Any) -> Any:
        return _own(self)(x, intercepts=intercepts or [0.0] * targets, targets=targets, **given)


class MatMulInteger(OpRun):
    """Its own takes a zero point for each row for one of each column."""

    def _run(self, a: Array, b: Array, a_zero: Array | None = None, b_zero: Array | None = None) -> Any:
        return _own(self)(a, b, a_zero[:, None] if a_zero is not None and a_zero.ndim == 1 else a_zero, b_zero)


class Mean(OpRun):
    """Its own fails where the first operand is smaller than others."""

    def _run(self, *operands: Array, **_: Any) -> tuple[Array]:
        total = functools.reduce(np.add, operands)
        return ((total / len(operands)).astype(total.dtype),)


class Normalizer(OpRun):
    """Its own fails for a vector."""

    op_domain = "ai.onnx.ml"

    def _run(self, x: Array, norm: str) -> Any:
        return (_own(self)(np.atleast_2d(x), norm=norm)[0].reshape(x.shape),)


class OneHot(OpRun):
    """Its own fails for a depth of one dimension."""

    def _run(self, indices: Array, depth: Array, values: Array, axis: int) -> Any:
        return _own(self)(indices, depth.reshape(()), values, axis=axis)


class OneHotEncoder(OpRun):
    """Its own looks for floats as they are, not cast to integers."""

    op_domain = "ai.onnx.ml"

    def _run(self, x: Array, **given: Any) -> Any:
        return _own(self)(x.astype(np.int64) if x.dtype.kind == "f" else x, **given)


class _Held(list[Any]):
    """What an optional value holds: one thing, or None. Its own is a list like that of a sequence."""


class Optional(OpRun):
    """Its own is a list, which OptionalGetElement gives whole."""

    def _run(self, x: Any = None, **_: Any) -> Any:
        return (_Held([x]),)


class OptionalGetElement(OpRun):
    """See Optional."""

    def _run(self, x: Any) -> Any:
        return (x[0] if isinstance(x, _Held) else x,)


class OptionalHasElement(OpRun):
    """Its own takes what holds nothing for something."""

    def _run(self, x: Any = None) -> tuple[Array]:
        held = x[0] if isinstance(x, _Held) else x
        return (np.array(held is not None),)


class Pad(OpRun):
    """Its own fails for margins below 0, which crop."""

    def _run(
        self, x: Array, pads: Any = None, value: Any = None, axes: Any = None, *, mode: str, paddings: Any = None
    ) -> tuple[Array]:
        given = paddings if pads is None else pads
        margins, crop = np.zeros((x.ndim, 2), np.int64), [slice(None)] * x.ndim
        margins[range(x.ndim) if axes is None else axes] = np.reshape(given, (2, -1)).T
        filled = {"constant_values": 0 if value is None else value} if mode == "constant" else {}
        pad: Any = np.pad  # which has no overload for a mode that is any string
        padded = pad(x, np.maximum(margins, 0), mode, **filled)
        for k, (before, behind) in enumerate(np.maximum(-margins, 0)):
            crop[k] = slice(before, padded.shape[k] - behind)
        return (padded[tuple(crop)].astype(x.dtype),)


class ReduceLogSumExp(OpRun):
    """Its own fails for a tensor of rank 0."""

    def _run(self, x: Array, *axes: Array, **given: Any) -> Any:
        if _opset(self) < 18:
            del given["noop_with_empty_axes"]  # which the evaluator gives all of this name
        return (x,) if x.ndim == 0 else _own(self)(x, *axes, **given)


class ReduceSumSquare(OpRunReduceNumpy):
    """Its own has sums of more bits than the data."""

    def _run(self, x: Array, axes: Any = None, keepdims: int = 1, noop_with_empty_axes: int = 0) -> tuple[Array]:
        handle: Any = self.handle_axes
        along = handle(tuple(axes) if isinstance(axes, list) else axes, noop_with_empty_axes)
        return (np.asarray(np.sum(np.square(x), axis=along, keepdims=bool(keepdims), dtype=x.dtype)),)


class Resize(OpRun):
    """Its own fails for what opset 10 has as its second operand, scales, and for a mode of opsets 11 and 12."""

    def _run(self, x: Array, *operands: Any, **given: Any) -> Any:
        run = _own(self)
        if _opset(self) >= 11:
            kind = given["coordinate_transformation_mode"], given["nearest_mode"]
            if kind == ("tf_half_pixel_for_nn", "floor"):  # half a pixel further than half_pixel
                given |= {"coordinate_transformation_mode": "half_pixel", "nearest_mode": "round_prefer_ceil"}
            return run(x, *operands, **given)
        (scales,) = operands
        given |= {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
        if given["mode"] != "nearest":
            return run(x, None, scales, **given)
        (larger,) = run(x, None, np.maximum(scales, 1), **given)
        return run(larger, None, np.minimum(scales, 1), **given | {"nearest_mode": "ceil"})


class RoiAlign(OpRun):
    """Its own takes the coordinates of opset 16 before it too."""

    def _run(self, *inputs: Array, **given: Any) -> Any:
        if _opset(self) < 16:
            given["coordinate_transformation_mode"] = "output_half_pixel"
        return _own(self)(*inputs, **given)


class Scatter(OpRun):
    """There is none of its own."""

    def _run(self, data: Array, indices: Array, updates: Array, axis: int) -> Any:
        return _own(self, "ScatterElements", 18)(data, indices, updates, axis=axis, reduction="none")


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


class Softsign(OpRun):
    """Its own fails for a tensor of rank 0."""

    def _run(self, x: Array) -> tuple[Array]:
        return (np.asarray(x / (1 + np.abs(x))),)


class Unsqueeze(OpRun):
    """Its own fails for axes in another order than theirs before opset 13."""

    def _run(self, x: Array, axes: Any = None) -> tuple[Array]:
        return (np.expand_dims(x, tuple(axes)),)


class Upsample(OpRun):
    """Its own repeats elements, and fails for any other mode or scale, and for those of opsets before 9."""

    def _run(self, x: Array, scales: Any = None, *, mode: str, **given: Any) -> Any:
        if scales is None:  # of opset 1
            scales = 1, 1, given["height_scale"], given["width_scale"]
        kind = {
            "mode": mode.removeprefix("bi"),
            "coordinate_transformation_mode": "asymmetric",
            "nearest_mode": "floor",
        }
        return _own(self, "Resize", 13)(x, None, np.asarray(scales, np.float32), **kind)


def _opset(op: OpRun) -> int:
    """The version of its domain's operators that an operator is of."""
    return int(op.run_params["opsets"].get(op.op_domain, onnx.defs.onnx_opset_version()))


def _own(op: OpRun, name: str = "", version: int = 0) -> Any:
    """What computes an operator in onnx, or another in its place, of the same opset where none is given."""
    load: Any = load_op_of_ml if op.op_domain else load_op
    return load(op.op_domain, name or op.op_type, version or _opset(op))(op.onnx_node, op.run_params)._run


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


def _in_floats(name: str, corrected: Any = None) -> type[OpRun]:
    """An operator of numbers whose results are f32. Its own computes in the type of the data."""
    own = corrected or load_op_of_ml("ai.onnx.ml", name, None)

    def run(self: OpRun, *arrays: Array, **given: Any) -> tuple[Array, ...]:
        found = own._run(self, *(a.astype(np.float32) if a.dtype.kind in "iu" else a for a in arrays), **given)
        return tuple(a.astype(np.float32) if a.dtype == np.float64 else a for a in found)

    return type(name, (own,), {"_run": run})


_ALL: tuple[type[OpRun], ...] = (
    Attention, AveragePool, BatchNormalization, Cast, CastLike, ConvTranspose, DequantizeLinear, Dropout, Flatten,
    GatherElements, GlobalAveragePool, GlobalLpPool, GridSample, GRU, Hardmax, LogSoftmax, Loop, LpNormalization,
    LpPool, LRN, LSTM, MatMulInteger, MaxPool, Mean, OneHot, OneHotEncoder, Optional, OptionalGetElement,
    OptionalHasElement, Pad, ReduceLogSumExp, ReduceSumSquare, Resize, RNN, RoiAlign, Scatter, Softmax, Softsign,
    Unsqueeze, Upsample,
    *map(_in_floats, ("FeatureVectorizer", "LinearClassifier", "Scaler", "SVMRegressor", "TreeEnsembleRegressor")),
    *(_in_floats(own.__name__, own) for own in (LinearRegressor, Normalizer, SVMClassifier)),
)  # fmt: skip


def corrected_operators(proto: onnx.ModelProto) -> list[type[OpRun]]:
    """The operators that are put right for a model, which says the opset."""
    opset = max((o.version for o in proto.opset_import if not o.domain), default=SETTLED)
    return [*_ALL, *(OLD if opset < SETTLED else ())]
