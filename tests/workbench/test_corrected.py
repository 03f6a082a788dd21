"""The operators that torshc puts right in onnx's reference evaluator, against ONNX Runtime, and in verdicts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from tests.support.ml_nodes import model_of
from tests.support.nodes import numbers
from torshc.base.options import CompileOptions
from torshc.workbench.verify import reference_outputs, verify_model


def machine(x: np.ndarray[Any, Any], counts: tuple[int, ...], **labels: Any) -> onnx.ModelProto:
    """A support vector machine of as many vectors for each class."""
    classes, vectors = len(counts), sum(counts)
    pairs = classes * (classes - 1) // 2
    return model_of(
        "SVMClassifier",
        x,
        outputs=2,
        kernel_type="RBF",
        kernel_params=[0.7, 0.0, 0.0],
        support_vectors=numbers(vectors * 3, seed=5).tolist(),
        coefficients=numbers((classes - 1) * vectors, seed=6).tolist(),
        vectors_per_class=counts,
        rho=numbers(pairs, seed=1).tolist(),
        prob_a=(-np.abs(numbers(pairs, seed=2))).tolist(),
        prob_b=numbers(pairs, seed=3).tolist(),
        **labels,
    )


@pytest.mark.parametrize("counts", [(2, 3), (2, 1, 3), (1, 2, 1, 3)])
@pytest.mark.parametrize("named", [False, True])
def test_probabilities_of_machines(counts: tuple[int, ...], named: bool, tmp_path: Path) -> None:
    """Of more than two classes onnx's own differ by 0.1; two classes with names it does not run."""
    x = numbers(17, 3)
    labels = {"classlabels_strings": list("abcd")[: len(counts)]} if named else {"classlabels_ints": range(len(counts))}
    path = tmp_path / "m.onnx"
    model = machine(x, counts, **labels)
    onnx.save(model, path)
    names = [o.name for o in model.graph.output]
    found, wanted = (reference_outputs(path, against, names, {"x0": x}) for against in ("reference", "ort"))
    np.testing.assert_array_equal(found[names[0]], wanted[names[0]])
    # The coupling ends when its gradient is small, so that a rounding can cost it a step of a thousandth of that.
    np.testing.assert_allclose(found[names[1]], wanted[names[1]], atol=2e-5)
    assert verify_model(path, CompileOptions()).ok


@pytest.mark.parametrize("conditioned", [False, True])
@pytest.mark.parametrize("shape", [(), (2,), (2, 3)])
def test_loops(shape: tuple[int, ...], conditioned: bool, tmp_path: Path) -> None:
    """Without a condition all rounds run, whatever their body says of it; what they yield is stacked."""
    info = onnx.helper.make_tensor_value_info
    body = onnx.helper.make_graph(
        [
            onnx.helper.make_node("Add", ["s", "s"], ["t"]),
            onnx.helper.make_node("Neg", ["t"], ["u"]),
            onnx.helper.make_node("Less", ["i", "most"], ["go"]),
        ],
        "body",
        [info("i", TensorProto.INT64, []), info("c", TensorProto.BOOL, []), info("s", TensorProto.FLOAT, shape)],
        [info("go", TensorProto.BOOL, []), info("t", TensorProto.FLOAT, shape), info("u", TensorProto.FLOAT, shape)],
    )  # fmt: skip
    nodes = [onnx.helper.make_node("Loop", ["rounds", "yes" if conditioned else "", "x"], ["y", "all"], body=body)]
    weights = {"rounds": np.array(5), "most": np.array(2), "yes": np.array(True)}
    graph = onnx.helper.make_graph(
        nodes,
        "loops",
        [info("x", TensorProto.FLOAT, shape)],
        [info("y", TensorProto.FLOAT, shape), info("all", TensorProto.FLOAT, [None, *shape])],
        [onnx.numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    path, names = tmp_path / "m.onnx", ["y", "all"]
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)], ir_version=10), path)
    feeds = {"x": np.asarray(numbers(*shape), np.float32)}
    rounds = 3 if conditioned else 5
    powers = np.stack([feeds["x"] * 2.0**k for k in range(1, rounds + 1)])
    found = reference_outputs(path, "reference", names, feeds)
    np.testing.assert_array_equal(found["y"], powers[-1])
    np.testing.assert_array_equal(found["all"], -powers)
    if conditioned:  # without one ONNX Runtime stops where the body says so
        np.testing.assert_array_equal(reference_outputs(path, "ort", names, feeds)["all"], -powers)
    assert verify_model(path, CompileOptions()).ok
