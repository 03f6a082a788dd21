"""What a model computes here, beside onnx's reference evaluator and ONNX Runtime."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import torshc
from torshc.formats import import_model

from . import evaluate
from .models import Array, save


def evaluated(made: onnx.ModelProto, feeds: Mapping[str, Array]) -> list[Array]:
    """Outputs by our operators' own definitions, in NumPy."""
    return evaluate.run(import_model(made.SerializeToString()), feeds)


def compiled(made: onnx.ModelProto, feeds: Mapping[str, Array], folder: Path, **options: Any) -> dict[str, Array]:
    """Outputs by name of the compiled model; `options` as of torshc.compile()."""
    torshc.compile(save(made, folder), folder / "m.tsc", **options)
    with torshc.load(folder / "m.tsc", threads=options.get("threads")) as loaded:
        return dict(loaded.run(feeds))


def reference(made: onnx.ModelProto, feeds: Mapping[str, Array]) -> list[Any]:
    """Outputs by onnx's reference evaluator."""
    with np.errstate(all="ignore"):
        return list(ReferenceEvaluator(made).run(None, dict(feeds)))


def onnx_runtime(made: onnx.ModelProto, feeds: Mapping[str, Array]) -> list[Array]:
    """Outputs by ONNX Runtime, with its own rewriting of graphs off."""
    onnxruntime = pytest.importorskip("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.intra_op_num_threads = 1  # what is quantised by the range of a thread's rows depends on their number
    session = onnxruntime.InferenceSession(made.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return [np.asarray(a) for a in session.run(None, feeds)]


def assert_close(got: Iterable[Array], wanted: Iterable[Any], rtol: float, atol: float = 0) -> None:
    """Outputs have the wanted types, shapes and, within the tolerance, elements."""
    for k, (g, w) in enumerate(zip(got, map(np.asarray, wanted), strict=True)):
        assert (g.dtype, g.shape) == (w.dtype, w.shape), k
        # Types that NumPy lacks have no differences of their own.
        pair = (g, w) if w.dtype.isbuiltin == 1 else (g.astype(np.float64), w.astype(np.float64))
        np.testing.assert_allclose(*pair, rtol=rtol, atol=atol, err_msg=f"output {k}")


def assert_same(got: Array, wanted: Any, what: str = "") -> None:
    """Equal elements of equal type, with the signs of zeros."""
    wanted = np.asarray(wanted)
    assert (got.dtype, got.shape) == (wanted.dtype, wanted.shape), what
    if wanted.dtype == object:
        assert got.tolist() == wanted.tolist(), what
        return
    pair = (got, wanted) if wanted.dtype.isbuiltin == 1 else (got.astype(np.float64), wanted.astype(np.float64))
    np.testing.assert_array_equal(*pair, err_msg=what)
    if pair[1].dtype.kind == "f":
        known = ~np.isnan(pair[1])
        np.testing.assert_array_equal(*(np.signbit(a[known]) for a in pair), err_msg=what)


def check(made: onnx.ModelProto, feeds: Mapping[str, Array], folder: Path, rtol: float = 2e-6, **options: Any) -> None:
    """Compare the compiled model with onnx's reference evaluator.

    The tolerance is relative to the largest element: sums in f32 in another order differ by some units in the last
    place (2**-24 each) of the largest term.
    """
    got = compiled(made, feeds, folder, **options)
    for (name, a), b in zip(got.items(), map(np.asarray, reference(made, feeds)), strict=True):
        assert a.shape == b.shape and a.dtype == b.dtype, name
        scale = float(np.max(np.abs(b[np.isfinite(b)]), initial=0)) if b.dtype.kind == "f" else 0
        np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol * scale, err_msg=name)
