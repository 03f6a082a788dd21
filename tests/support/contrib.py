"""Models of one node of ONNX Runtime's own domain, and their results there and here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import torshc
from torshc.formats import import_model

from .evaluate import Array, run

DOMAIN = "com.microsoft"


def model_of(
    op: str,
    operands: tuple[Array | None, ...],
    fixed: tuple[int, ...] = (),
    outputs: int = 1,
    domain: str = DOMAIN,
    version: int = 20,
    dims: dict[int, list[Any]] | None = None,
    **attributes: Any,
) -> onnx.ModelProto:
    """A model of one node; operands at the places `fixed` are initializers, `dims` are shapes that inputs declare."""
    order = ["" if a is None else f"x{k}" for k, a in enumerate(operands)]
    names = [f"out{k}" for k in range(outputs)]
    node = helper.make_node(op, order, names, domain=domain, name="it", **attributes)
    codes = {k: helper.np_dtype_to_tensor_dtype(a.dtype) for k, a in enumerate(operands) if a is not None}
    inputs = [
        helper.make_tensor_value_info(f"x{k}", codes[k], (dims or {}).get(k, a.shape))
        for k, a in enumerate(operands)
        if a is not None and k not in fixed
    ]
    known = [numpy_helper.from_array(a, f"x{k}") for k, a in enumerate(operands) if a is not None and k in fixed]
    graph = helper.make_graph([node], "one", inputs, [helper.make_empty_tensor_value_info(n) for n in names], known)
    versions = {"": version, DOMAIN: 1} | ({} if domain in ("", DOMAIN) else {domain: 1})
    opsets = [helper.make_opsetid(*pair) for pair in versions.items()]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def feeds_of(operands: tuple[Array | None, ...], fixed: tuple[int, ...]) -> dict[str, Array]:
    return {f"x{k}": a for k, a in enumerate(operands) if a is not None and k not in fixed}


def expected(model: onnx.ModelProto, feeds: dict[str, Array]) -> list[Array]:
    """What ONNX Runtime answers, with its own rewriting of graphs off."""
    runtime = pytest.importorskip("onnxruntime")
    options = runtime.SessionOptions()
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.intra_op_num_threads = 1  # what is quantised by the range of a thread's rows depends on their number
    session = runtime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return [np.asarray(a) for a in session.run(None, feeds)]


def check(
    op: str,
    *operands: Array | None,
    fixed: tuple[int, ...] = (),
    rtol: float = 2e-5,
    atol: float = 2e-6,
    only: int | None = None,
    **form: Any,
) -> list[Array]:
    """Compare a node's results, of which the first `only` count, with ONNX Runtime's."""
    model, feeds = model_of(op, operands, fixed, **form), feeds_of(operands, fixed)
    wanted = expected(model, feeds)[:only]
    with np.errstate(all="ignore"):
        got = run(import_model(model.SerializeToString()), feeds)[:only]
    for g, w in zip(got, wanted, strict=True):
        assert g.shape == w.shape, (g.shape, w.shape)
        assert g.dtype == w.dtype
        np.testing.assert_allclose(g.astype(np.float64), w.astype(np.float64), rtol=rtol, atol=atol)
    return got


def numbers(*shape: int, seed: int = 0, dtype: Any = np.float32, low: float = -2.0, high: float = 2.0) -> Array:
    return np.asarray(np.random.default_rng(seed + sum(shape)).uniform(low, high, shape)).astype(dtype)


def some_bytes(*shape: int, seed: int = 0, dtype: Any = np.uint8) -> Array:
    """Integers of 8 bits; signed ones have 7, as ONNX Runtime wants it where processors lack VNNI.

    Its AVX2 kernels add two products of u8 and i8 in 16 bits and saturate: 2 * 255 * 64 just fits.
    """
    low, high = (-64, 63) if np.dtype(dtype) == np.int8 else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    return np.random.default_rng(seed + sum(shape)).integers(low, high + 1, shape).astype(dtype)


def compiled(model: onnx.ModelProto, feeds: dict[str, Array], folder: Path, level: int = 1) -> list[Array]:
    """The results of the compiled model."""
    folder.mkdir(exist_ok=True)
    (folder / "m.onnx").write_bytes(model.SerializeToString())
    torshc.compile(folder / "m.onnx", folder / "m.tsc", threads=1, opt_level=level)
    with torshc.load(folder / "m.tsc", threads=1) as loaded:
        return list(loaded.run(feeds).values())
