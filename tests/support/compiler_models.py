"""Small ONNX models for tests that compile and run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import torshc

Shape = Sequence[int | str]


def node(op: str, inputs: str, outputs: str, **attributes: Any) -> onnx.NodeProto:
    """A node; operands are separated by blanks, `_` is an absent one."""
    names = [n if n != "_" else "" for n in inputs.split()]
    return helper.make_node(op, names, outputs.split(), **attributes)


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: dict[str, Shape],
    outputs: Sequence[str],
    weights: dict[str, np.ndarray] | None = None,
    dtypes: dict[str, str] | None = None,
    opset: int = 20,
) -> onnx.ModelProto:
    """A model; output types are inferred."""
    dtypes = dtypes or {}
    values = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(np.dtype(dtypes.get(n, "float32"))), s)
        for n, s in inputs.items()
    ]
    initializers = [numpy_helper.from_array(a, n) for n, a in (weights or {}).items()]
    graph = helper.make_graph(nodes, "test", values, [onnx.ValueInfoProto(name=n) for n in outputs], initializers)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    return onnx.shape_inference.infer_shapes(made, strict_mode=True)


def run(made: onnx.ModelProto, feeds: dict[str, np.ndarray], folder: Path, **options: Any) -> dict[str, np.ndarray]:
    """Compile, load and run a model."""
    onnx.save(made, folder / "m.onnx")
    torshc.compile(folder / "m.onnx", folder / "m.tsc", **options)
    with torshc.load(folder / "m.tsc") as compiled:
        return compiled.run(feeds)


def check(
    made: onnx.ModelProto, feeds: dict[str, np.ndarray], folder: Path, rtol: float = 2e-6, **options: Any
) -> None:
    """Compare a compiled model with onnx's reference evaluator.

    The tolerance is relative to the largest element: sums in f32 in another order differ by some units in the last
    place (2**-24 each) of the largest term.
    """
    got = run(made, feeds, folder, **options)
    wanted = ReferenceEvaluator(made).run(None, feeds)
    for (name, a), b in zip(got.items(), wanted, strict=True):
        b = np.asarray(b)
        assert a.shape == b.shape and a.dtype == b.dtype, name
        scale = float(np.max(np.abs(b[np.isfinite(b)]), initial=0)) if b.dtype.kind == "f" else 0
        np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol * scale, err_msg=name)
