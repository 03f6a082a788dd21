"""The operators that torshc puts right in onnx's reference evaluator, against ONNX Runtime, and in verdicts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.support.compare import assert_close, assert_same, compiled
from tests.support.ml_nodes import model_of
from tests.support.models import ML, Array, feeds_of, model, node_model, parsed
from tests.support.nodes import numbers
from torshc.base.options import CompileOptions
from torshc.expr import DTYPES
from torshc.workbench.corrected import MatMulInteger
from torshc.workbench.corrected_casts import decide_casts
from torshc.workbench.onnx_runtime import ort_outputs_here
from torshc.workbench.verify import reference_outputs, verify_model


def answers(path: Path, names: list[str], feeds: dict[str, Array]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Outputs as verify's reference and ONNX Runtime compute them."""
    return reference_outputs(path, "reference", names, feeds), ort_outputs_here(path, names, feeds)


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
    found, wanted = answers(path, names, {"x0": x})
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
        np.testing.assert_array_equal(ort_outputs_here(path, names, feeds)["all"], -powers)
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
    found, wanted = answers(path, names, {"x": x})
    assert found["y"].dtype == wanted["y"].dtype
    np.testing.assert_allclose(found["y"], wanted["y"], rtol=1e-5, atol=1e-5)
    assert verify_model(path, CompileOptions()).ok


X, I64, F32 = numbers(2, 3, 7, 8), np.int64, np.float32
WINDOWS: list[dict[str, Any]] = [
    {"kernel_shape": [3, 3]},
    {"kernel_shape": [3, 2], "strides": [2, 2], "pads": [1, 1, 1, 0]},
    {"kernel_shape": [2, 3], "strides": [2, 1], "auto_pad": "SAME_LOWER"},
    {"kernel_shape": [3, 3], "strides": [2, 2], "auto_pad": "SAME_UPPER"},
    {"kernel_shape": [2, 2], "strides": [3, 3], "auto_pad": "VALID"},
]
CEILED: list[dict[str, Any]] = [
    {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1], "ceil_mode": 1},
    {"kernel_shape": [2, 2], "strides": [3, 3], "pads": [1, 1, 0, 0], "ceil_mode": 1},
]
HOLES = {"kernel_shape": [2, 3], "dilations": [2, 1], "pads": [1, 1, 1, 1], "strides": [2, 2]}
SCALES, HEADS, NUMBER = np.array([1, 1, 2.5, 3], F32), numbers(2, 3, 6, 8), np.array(0.75, F32)
TO_SCALES = [{"mode": mode} for mode in ("nearest", "linear")]


def at(*places: int) -> Array:
    return np.array(places, I64)


def recurrent(name: str, gates: int, directions: int, more: int) -> list[Array | None]:
    """Operands: x, w, r, and so many of the bias, lengths, the first states and peepholes."""
    weights = [numbers(directions, gates * 5, n, seed=n) for n in (3, 5)]
    state = numbers(directions, 2, 5)
    rest = [numbers(directions, 2 * gates * 5), np.array([2, 4], np.int32), state, -state, numbers(directions, 15)]
    return [numbers(4, 2, 3), *weights, *rest[: more if name == "LSTM" else min(more, 3)]]


# An operator, the opset, its operands, which of them are weights, how many outputs, its attributes.
NODES: list[tuple[str, int, list[Array | None], tuple[int, ...], int, dict[str, Any]]] = [
    *[("Attention", 23, [HEADS[:, :, :4], HEADS, -HEADS, numbers(4, 6), HEADS[:, :, :0], HEADS[:, :, :0]], (), 4,
       {"softcap": softcap, "qk_matmul_output_mode": mode}) for softcap in (0.0, 1.5) for mode in range(4)],
    ("BatchNormalization", 8, [X[..., 0, 0], *(numbers(3, seed=k) ** 2 for k in range(4))], (1, 2, 3, 4), 1, {}),
    ("BatchNormalization", 7, [X, *(numbers(3, 7, 8, seed=k) ** 2 for k in range(4))], (1, 2, 3, 4), 1, {"spatial": 0}),
    ("Upsample", 7, [X], (), 1, {"scales": [1.0, 1.0, 2.0, 3.0]}),
    *[("Upsample", 7, [X], (), 1, {"scales": [1.0, 1.0, 1.5, 2.0], **a}) for a in TO_SCALES],
    *[("Upsample", 9, [X, SCALES], (1,), 1, a) for a in TO_SCALES],
    *[("Resize", 10, [X, np.array(s, F32)], (1,), 1, a)
      for a in TO_SCALES for s in ([1, 1, 2.5, 3], [1, 1, 0.75, 0.5], [1, 1, 0.3, 1.25])],
    ("Resize", 11, [X, np.zeros(0, F32), SCALES], (1, 2), 1,
     {"coordinate_transformation_mode": "tf_half_pixel_for_nn", "nearest_mode": "floor"}),
    ("Scatter", 9, [numbers(4, 5), np.array([[0, 4, 2], [1, 0, 3]]), numbers(2, 3)], (), 1, {"axis": 1}),
    *[("GlobalLpPool", opset, [X], (), 1, {"p": p}) for opset in (2, 21) for p in (1, 2, 3)],
    *[("GlobalAveragePool", 1, [x], (), 1, {}) for x in (X, X[:0])],
    *[("AveragePool", 7, [X], (), 1, {**a, "count_include_pad": k}) for a in WINDOWS for k in (0, 1)],
    *[("AveragePool", 19, [X], (), 1, {**a, "count_include_pad": k}) for a in [*CEILED, HOLES] for k in (0, 1)],
    *[("LpPool", 2, [X], (), 1, {**a, "p": p}) for a in WINDOWS for p in (1, 3)],
    *[("LpPool", 18, [X], (), 1, {**a, "p": 2}) for a in [*CEILED, HOLES]],
    *[("MaxPool", 8, [X], (), 2, {**a, "storage_order": k}) for a in WINDOWS for k in (0, 1)],
    *[("MaxPool", 12, [-np.abs(X)], (), 2, a) for a in [*CEILED, HOLES]],
    ("MaxPool", 12, [(X * 60).astype(np.int8)], (), 1, HOLES),
    ("MaxPool", 12, [X[:, :, 0]], (), 2, {"kernel_shape": [3], "strides": [2]}),
    *[("ConvTranspose", 11, [numbers(2, 4, 6, 7), numbers(4, 3, 3, 2), numbers(6)], (1, 2), 1, {"group": 2, **a})
      for a in ({}, {"strides": [2, 2], "pads": [1, 0, 1, 1]}, {"strides": [2, 2], "auto_pad": "SAME_UPPER"})],
    *[("DequantizeLinear", opset, [(X * 60).astype(np.int8), s, z], (1, 2), 1, {})
      for opset, s, z in [(10, np.array(0.5, F32), np.array(3, np.int8)),
                          (13, np.array([0.5, 2, 3], F32), np.array([3, 0, -4], np.int8))]],
    *[("GridSample", opset, [X, numbers(2, 4, 3, 2) * F32(0.6)], (), 1, {"mode": mode, "align_corners": 1})
      for opset, modes in [(16, ("bilinear", "nearest", "bicubic")), (20, ("linear", "cubic"))] for mode in modes],
    ("GridSample", 16, [X, numbers(2, 4, 3, 2)], (), 1, {"padding_mode": "reflection"}),
    ("RoiAlign", 10, [X, np.array([[1, 1, 6, 5], [0, 2, 7, 7]], F32), at(1, 0)], (), 1,
     {"output_height": 2, "output_width": 3, "sampling_ratio": 2}),
    ("RoiAlign", 16, [X, np.array([[1, 1, 6, 5], [0, 2, 7, 7]], F32), at(1, 0)], (), 1, {"sampling_ratio": 2}),
    *[("Pad", 2, [X], (), 1, {"pads": [0, 0, -1, 2, 0, 0, 1, -3], "mode": mode, **a})
      for mode, a in [("constant", {"value": 1.5}), ("reflect", {}), ("edge", {})]],
    ("Pad", 18, [X, at(-1, 2), np.array(0.5, F32), at(-1)], (1, 2, 3), 1, {}),
    ("Pad", 19, [X, at(0, 0, 0, 2, 0, 0, 0, 3)], (1,), 1, {"mode": "wrap"}),
    ("OneHot", 9, [np.array([[1, -2], [7, 0]]), at(5), np.array([2, 3], F32)], (1, 2), 1, {"axis": 0}),
    ("Flatten", 9, [X[:0]], (), 1, {"axis": 1}),
    ("Flatten", 13, [X], (), 1, {"axis": -1}),
    ("Mean", 8, [X[0, 0, 0], X, X[:1]], (), 1, {}),
    ("Softsign", 1, [NUMBER], (), 1, {}),
    ("Unsqueeze", 11, [X], (), 1, {"axes": [5, 0]}),
    ("Unsqueeze", 13, [X, at(5, 0)], (1,), 1, {}),
    *[("ReduceLogSumExp", opset, [x, *axes], (1,), 1, {})
      for opset, x, axes in [(13, NUMBER, []), (13, X, []), (18, X, [at(1, 2)]), (18, NUMBER, [])]],
    *[("ReduceSumSquare", opset, [(X * 9).astype(np.int32)], (), 1, a)
      for opset, a in [(1, {"axes": [1, 3]}), (11, {"keepdims": 0}), (18, {})]],
    ("ReduceSumSquare", 18, [(X * 9).astype(np.int32), at(1, 2)], (1,), 1, {}),
]  # fmt: skip
ACTIVATIONS: list[dict[str, Any]] = [
    {"name": "Affine", "alpha": 0.5, "beta": 0.1},
    {"name": "Elu", "alpha": 0.5},
    {"name": "HardSigmoid", "alpha": 0.3, "beta": 0.4},
    {"name": "LeakyRelu", "alpha": 0.2},
    {"name": "Relu"},
    {"name": "ScaledTanh", "alpha": 1.2, "beta": 0.7},
    {"name": "Sigmoid"},
    {"name": "Softsign"},
    {"name": "Tanh"},
    {"name": "ThresholdedRelu", "alpha": 0.3},
]
for _name, _gates, _usual in (("RNN", 1, 1), ("GRU", 3, 2), ("LSTM", 4, 3)):
    _fixed = (1, 2, 3)
    for _way, _count in (("forward", 1), ("reverse", 1), ("bidirectional", 2)):
        NODES += [
            (_name, opset, recurrent(_name, _gates, _count, more), (1, 2, 3, 7)[: 4 if more == 5 else more + 2], 2,
             {"hidden_size": 5, "direction": _way}) for opset, more in ((7, 0), (14, 1), (22, 5))
        ]  # fmt: skip
    NODES.append((_name, 7, recurrent(_name, _gates, 1, 1), _fixed, 2, {"hidden_size": 5, "clip": 0.3}))
    for _activation in ACTIVATIONS:
        _numbers = {f"activation_{k}": [_activation[k]] * _usual for k in ("alpha", "beta") if k in _activation}
        _all = {"activations": [_activation["name"]] * _usual, **_numbers, "hidden_size": 5}
        NODES.append((_name, 14, recurrent(_name, _gates, 1, 1), _fixed, 2, _all))
NODES += [
    ("GRU", 7, recurrent("GRU", 3, 1, 1), (1, 2, 3), 2, {"hidden_size": 5, "linear_before_reset": 1}),
    ("LSTM", 7, recurrent("LSTM", 4, 1, 1), (1, 2, 3), 3, {"hidden_size": 5, "input_forget": 1}),
]


def both(made: onnx.ModelProto, feeds: dict[str, Array], folder: Path) -> tuple[list[Array], list[Array]]:
    """The outputs of :func:`answers`, without their names."""
    names = [o.name for o in made.graph.output]
    onnx.save(made, folder / "m.onnx")
    found, wanted = answers(folder / "m.onnx", names, feeds)
    return list(found.values()), list(wanted.values())


def typed(made: onnx.ModelProto) -> onnx.ModelProto:
    """With the types that ONNX infers, which ONNX Runtime asks for; of an IR version that knows all opsets."""
    made.ir_version = 10
    return onnx.shape_inference.infer_shapes(made)


@pytest.mark.parametrize("case", range(len(NODES)), ids=lambda k: f"{NODES[k][0]}-{NODES[k][1]}-{k}")
def test_nodes(case: int, tmp_path: Path) -> None:
    """As ONNX Runtime computes them."""
    name, opset, operands, fixed, outputs, attributes = NODES[case]
    fixed = tuple(k for k in fixed if k < len(operands))
    made = typed(node_model(name, operands, fixed, outputs, version=opset, **attributes))
    found, wanted = both(made, feeds_of(operands, fixed), tmp_path)
    assert_close(found, wanted, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("name", ["RNN", "GRU", "LSTM"])
def test_bundles_of_recurrent_networks(name: str, tmp_path: Path) -> None:
    operands = recurrent(name, {"RNN": 1, "GRU": 3, "LSTM": 4}[name], 2, 2)
    more: dict[str, Any] = {"hidden_size": 5, "clip": 0.3, "direction": "bidirectional"}
    made = node_model(name, operands, (1, 2, 3, 4), 2, version=14, **more)
    onnx.save(typed(made), tmp_path / "m.onnx")
    assert verify_model(tmp_path / "m.onnx", CompileOptions()).ok


LEARNED = [(name, dtype) for name in ("LinearClassifier", "Normalizer", "Scaler") for dtype in (F32, "f8", I64, "i4")]
LEARNED += [("LinearRegressor", F32), ("OneHotEncoder", F32), ("OneHotEncoder", "f8"), ("OneHotEncoder", I64)]


@pytest.mark.parametrize(("name", "dtype"), LEARNED)
def test_learned_operators(name: str, dtype: Any, tmp_path: Path) -> None:
    """Results are f32, whatever the data's type is."""
    lines = numbers(8).tolist()
    attributes: dict[str, Any] = {
        "LinearRegressor": {"coefficients": lines, "targets": 2},
        "LinearClassifier": {"coefficients": lines, "intercepts": [0.5, 0.25], "classlabels_ints": [3, 5]},
        "Normalizer": {"norm": "L2"},
        "OneHotEncoder": {"cats_int64s": [-1, 0, 1, 2]},
        "Scaler": {"offset": [1.0], "scale": [2.5]},
    }[name]
    x = (numbers(3, 4) * 2).astype(dtype)
    outputs = 2 if name == "LinearClassifier" else 1
    made = typed(node_model(name, [x], (), outputs, domain=ML, version={"": 15, ML: 1}, **attributes))
    found, wanted = both(made, {"x0": x}, tmp_path)
    assert_close(found, wanted, rtol=1e-5, atol=1e-6)


def test_zero_points_of_rows() -> None:
    """ONNX Runtime has one of the first operand only."""
    a, b = np.arange(12, dtype=np.uint8).reshape(3, 4), np.arange(8, dtype=np.uint8).reshape(4, 2)
    found = MatMulInteger.eval(a, b, np.array([1, 2, 3], np.uint8))
    np.testing.assert_array_equal(found, (a.astype(np.int32) - [[1], [2], [3]]) @ b.astype(np.int32))


OPTIONAL = """
<ir_version: 8, opset_import: ["" : 18]>
optional (float[4,3] x) => (float[4,3] y, bool full, bool empty, float[n,3] all) {
  one = Optional(x)
  y = OptionalGetElement(one)
  full = OptionalHasElement(one)
  none = Optional()
  empty = OptionalHasElement(none)
  sequence = SequenceConstruct(x, x)
  kept = Optional(sequence)
  parts = OptionalGetElement(kept)
  all = ConcatFromSequence<axis=0>(parts)
}
"""


def test_what_is_optional(tmp_path: Path) -> None:
    x = numbers(4, 3)
    made = parsed(OPTIONAL)
    kind = onnx.helper.make_tensor_type_proto(TensorProto.FLOAT, [4, 3])
    made.graph.node[3].attribute.append(onnx.helper.make_attribute("type", kind))
    onnx.save(made, tmp_path / "m.onnx")
    found = reference_outputs(tmp_path / "m.onnx", "reference", ["y", "full", "empty", "all"], {"x": x})
    np.testing.assert_array_equal(found["y"], x)
    np.testing.assert_array_equal(found["all"], np.concatenate([x, x]))
    assert found["full"] and not found["empty"]


FAR = [0.9, -0.9, -3, 8, 100, 200, 300, -129, 7e4, 3e9, 1e10, -1e10, 1e19, 2e19, np.inf, -np.inf, np.nan]
INTEGERS = [t for t in DTYPES.values() if t.is_int]


@pytest.mark.parametrize("source", ["f16", "bf16", "f32", "f64"])
@pytest.mark.parametrize("name", ["Cast", "CastLike"])
def test_casts_to_integers_that_cannot_hold_a_float(name: str, source: str, tmp_path: Path) -> None:
    """ONNX leaves these open: a bundle is right."""
    with np.errstate(over="ignore"):
        x = np.array(FAR).astype(DTYPES[source].numpy)
    likes = {f"like_{t}": np.zeros(1, t.numpy) for t in INTEGERS}
    casts = {
        "Cast": [helper.make_node("Cast", ["x"], [f"y_{t}"], to=t.onnx) for t in INTEGERS],
        "CastLike": [helper.make_node("CastLike", ["x", f"like_{t}"], [f"y_{t}"]) for t in INTEGERS],
    }
    made = model(casts[name], {"x": x}, weights=likes, opset=25)
    got = compiled(made, {"x": x}, tmp_path)
    wanted = reference_outputs(tmp_path / "m.onnx", "reference", [*got], {"x": x})
    for output, array in got.items():
        assert_same(array, wanted[output], output)


def test_casts_that_a_type_holds_stay_the_evaluators_own() -> None:
    x = np.array([-129.0, -128.9, 127.9, 128, np.nan])
    found = decide_casts(x, np.array([1, 2, 3, 4, 5], np.int8))
    assert found.dtype == np.int8 and found.tolist() == [-128, 2, 3, 127, 0]
    for other in (x, x > 0, np.array([*map(str, x)], object)):
        assert decide_casts(x, other) is other
    assert decide_casts(np.array([300]), likewise := np.array([44], np.int8)) is likewise


@pytest.mark.parametrize(("to", "far"), [(TensorProto.INT32, 1e10), (TensorProto.INT4, 100), (TensorProto.UINT8, -3)])
def test_a_verdict_on_casts_of_what_a_type_cannot_hold(to: int, far: float, tmp_path: Path) -> None:
    x = np.array([far, np.nan, 3.7, 1], np.float32)
    onnx.save(model([helper.make_node("Cast", ["x"], ["y"], to=to)], {"x": x}, opset=25), tmp_path / "m.onnx")
    np.save(tmp_path / "x.npy", x)
    verdict = verify_model(tmp_path / "m.onnx", CompileOptions(), inputs=[f"x={tmp_path / 'x.npy'}"])
    assert verdict.ok, verdict


# Of opsets that ONNX Runtime does not compute.
OLDEST: list[tuple[str, int, list[Array | None], int, dict[str, Any]]] = [
    *[(name, opset, [X, numbers(3)], 1, {"broadcast": 1, "axis": 1})
      for name in ("Add", "Sub", "Mul", "Div", "Less", "Greater") for opset in (1, 6)],
    ("Pow", 1, [np.abs(X), numbers(3)], 1, {"broadcast": 1, "axis": 1}),
    ("And", 1, [X > 0, numbers(3) > 0], 1, {"broadcast": 1, "axis": -3}),
    ("AveragePool", 1, [X], 1, WINDOWS[1]),
    ("BatchNormalization", 1, [X, *(numbers(3, seed=k) ** 2 for k in range(4))], 1,
     {"is_test": 1, "consumed_inputs": [0] * 5}),
    ("BatchNormalization", 6, [X, *(numbers(3, seed=k) ** 2 for k in range(4))], 1, {"is_test": 1}),
    ("Cast", 1, [X], 1, {"to": "INT32"}),
    ("Cast", 6, [X], 1, {"to": 7}),
    ("Cast", 6, [X], 1, {"to": 2}),
    ("Clip", 1, [X], 1, {"min": -0.5}),
    ("Concat", 1, [X, X[:, :1]], 1, {}),
    ("Concat", 1, [X, X[:1]], 1, {"axis": 0}),
    ("Concat", 4, [X, X[:1]], 1, {"axis": 0}),
    ("Dropout", 1, [X], 2, {"is_test": 1, "consumed_inputs": [0]}),
    ("Dropout", 6, [X], 1, {"is_test": 1, "ratio": 0.3}),
    ("Gemm", 1, [numbers(3, 4), numbers(5, 4), numbers(5)], 1, {"transB": 1, "alpha": 0.5, "broadcast": 1}),
    ("GlobalLpPool", 1, [X], 1, {"p": 2.0}),
    ("InstanceNormalization", 1, [X, numbers(3), numbers(3)], 1, {"consumed_inputs": [0] * 3}),
    ("Mean", 1, [X, X[::-1]], 1, {"consumed_inputs": [0, 0]}),
    ("Pad", 1, [X], 1, {"paddings": [0, 0, 1, 2, 0, 0, 3, 4], "value": 1.5}),
    ("PRelu", 1, [X[:, :, 0, 0], numbers(3)], 1, {"consumed_inputs": [0, 0]}),
    ("Reshape", 1, [X], 1, {"shape": [0, -1, 4]}),
    ("Reshape", 5, [X, at(0, -1, 4)], 1, {}),
    ("Selu", 1, [X], 1, {}),
    ("Split", 1, [X], 2, {"axis": 3}),
    ("Split", 2, [X], 2, {"axis": 3, "split": [3, 5]}),
    ("Sum", 1, [X, X], 1, {"consumed_inputs": [0, 0]}),
    ("Tile", 1, [X, np.array(3, F32), np.array(1, F32)], 1, {}),
    ("Tile", 6, [X, at(1, 2, 1, 3)], 1, {}),
    ("Upsample", 1, [X], 1, {"height_scale": 2.0, "width_scale": 1.5, "mode": "bilinear"}),
]  # fmt: skip


@pytest.mark.parametrize("case", range(len(OLDEST)), ids=lambda k: f"{OLDEST[k][0]}-{OLDEST[k][1]}-{k}")
def test_models_of_the_first_opsets(case: int, tmp_path: Path) -> None:
    """They agree with what torshc makes of them, whose definitions tests/formats/test_legacy.py has in NumPy."""
    name, opset, operands, outputs, attributes = OLDEST[case]
    fixed = tuple(range(1, len(operands))) if name in ("Reshape", "Tile") else ()
    made = typed(node_model(name, operands, fixed, outputs, version=opset, **attributes))
    onnx.save(made, tmp_path / "m.onnx")
    verdict = verify_model(tmp_path / "m.onnx", CompileOptions(opt_level=0))
    assert verdict.ok, verdict
