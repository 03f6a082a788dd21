"""Whether an answer is the reference's, but for what rounding explains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import onnx

Array = np.ndarray[Any, Any]

SPREAD, UNITS = 10.0, 16.0


def allowed(row: Sequence[Array], unit: float = 0.0) -> Array:
    """How far an answer may be from the reference's, for each element.

    The samples moved each operand by up to 2 units in its last place; 4 of them underestimate what the worst rounding
    does, hence the factor. 16 units more are for what happens inside one operator: a function's own error, a sum of
    some terms.

    Args:
        unit: the relative rounding of the coarsest type that the answer was computed in, where that is not its own.
    """
    wide = [a.astype(np.float64) for a in row]
    info = np.finfo(row[0].dtype)
    spread = np.max([abs(a - wide[0]) for a in wide[1:]], axis=0)
    return np.asarray(SPREAD * spread + UNITS * max(float(info.eps), unit) * abs(wide[0]) + float(info.tiny))


def difference(got: Array, row: Sequence[Array], unit: float = 0.0, other: Array | None = None) -> str:
    """Why an answer is not the reference's, or another's, empty when it is; what rounding decides is left out."""
    wanted = row[0] if other is None else other
    if got.dtype != wanted.dtype or got.shape != wanted.shape:
        return f"{got.dtype}{list(got.shape)} in place of {wanted.dtype}{list(wanted.shape)}"
    with np.errstate(all="ignore"):
        if wanted.dtype.kind != "f":
            sure = np.all([a == row[0] for a in row], axis=0)
            wrong = sure & (got != wanted)
            bound = np.zeros(wanted.shape)
        else:
            sure = np.all([_kind(a) == _kind(row[0]) for a in row], axis=0)
            bound = allowed(row, unit)
            near = abs(got.astype(np.float64) - wanted.astype(np.float64)) <= bound
            # What rounding moves by its own size, such as 1 / x beside 0, may be anything, infinite too.
            near |= bound > np.maximum(SPREAD * abs(wanted.astype(np.float64)) / 2, 1)
            wrong = sure & np.where(np.isfinite(wanted), ~near, _kind(got) != _kind(wanted))
    if not wrong.any():
        return ""
    at = tuple(int(k[0]) for k in np.nonzero(wrong)) if wrong.ndim else ()
    said = f"{got[at]!r} in place of {wanted[at]!r}, of which {bound[at]:.2g} is rounding"
    return f"{int(wrong.sum())} of {wrong.size} differ; at {list(at)} {said}"


def _kind(a: Array) -> Array:
    """0 for what is finite, else which of NaN and the infinities."""
    return np.where(np.isnan(a), 3, np.where(np.isinf(a), np.sign(a), 0))


def runtime_answers(model: onnx.ModelProto, feeds: Mapping[str, Array]) -> list[Array]:
    """ONNX Runtime's outputs; none when it is not installed, or does not know the operator or an element type."""
    with suppress(Exception):  # its exceptions share no public base
        import onnxruntime  # optional package

        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.intra_op_num_threads, options.log_severity_level = 1, 4
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        return [np.asarray(a) for a in session.run(None, feeds)]
    return []
