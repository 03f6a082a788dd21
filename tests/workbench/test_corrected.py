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


# An operator, the opset, the shape of its data, its attributes.
OLD: list[tuple[str, int, tuple[int, ...], dict[str, Any]]] = [
    ("BatchNormalization", 7, (2, 3, 4, 5), {"spatial": 1, "momentum": 0.5}),
    ("BatchNormalization", 8, (2, 3, 4, 5), {}),
    ("BatchNormalization", 9, (2, 3, 4, 5), {}),
    ("BatchNormalization", 13, (2, 3, 4), {}),
    ("BatchNormalization", 15, (2, 3, 4), {}),
    ("Dropout", 7, (3, 5), {"ratio": 0.25}),
    ("Dropout", 10, (3, 5), {"ratio": 0.25}),
    ("Dropout", 13, (3, 5), {}),
    ("LpNormalization", 1, (3, 5), {"axis": 1, "p": 1}),
    ("LRN", 9, (2, 7, 3, 4), {"size": 5, "alpha": 0.5}),
    ("LRN", 13, (1, 6, 3, 4), {"size": 3, "alpha": 2.0, "bias": 2.0}),
    *[
        (name, opset, (2, 5, 3, 1), attributes)
        for name in ("Softmax", "LogSoftmax", "Hardmax")
        for opset, attributes in [(9, {}), (11, {"axis": -2}), (12, {"axis": 0}), (13, {}), (13, {"axis": 0})]
    ],
]


@pytest.mark.parametrize(("name", "opset", "shape", "attributes"), OLD, ids=str)
def test_operators_of_old_opsets(
    name: str, opset: int, shape: tuple[int, ...], attributes: dict[str, Any], tmp_path: Path
) -> None:
    """As ONNX Runtime computes them: in old opsets they have other defaults, other axes and other types of results."""
    x, info = numbers(*shape) * 60, onnx.helper.make_tensor_value_info
    more = {n: numbers(shape[1], seed=i) ** 2 for i, n in enumerate("sbmv")} if name == "BatchNormalization" else {}
    outputs = [info("y", TensorProto.FLOAT, shape)]
    if name == "Dropout":
        outputs.append(info("z", TensorProto.FLOAT if opset < 10 else TensorProto.BOOL, shape))
    names = [o.name for o in outputs]
    node = onnx.helper.make_node(name, ["x", *more], names, **attributes)
    weights = [onnx.numpy_helper.from_array(a, n) for n, a in more.items()]
    graph = onnx.helper.make_graph([node], "g", [info("x", TensorProto.FLOAT, shape)], outputs, weights)
    path, opsets = tmp_path / "m.onnx", [onnx.helper.make_opsetid("", opset)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    found, wanted = (reference_outputs(path, against, names, {"x": x}) for against in ("reference", "ort"))
    assert found["y"].dtype == wanted["y"].dtype
    np.testing.assert_allclose(found["y"], wanted["y"], rtol=1e-5, atol=1e-5)
    assert verify_model(path, CompileOptions()).ok
