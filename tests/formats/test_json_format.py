"""JSON graphs: what may be written, and messages that name the place of what may not."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

from tests.support.evaluate import run
from torshc.base.errors import ModelError, UnsupportedError
from torshc.formats import load_graph
from torshc.formats.json_schema import schema

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def document(**changes: Any) -> dict[str, Any]:
    base: dict[str, Any] = {
        "torshc": 1,
        "inputs": {"x": {"dtype": "f32", "shape": ["n", 3]}},
        "weights": {"w": {"dtype": "f32", "shape": [3], "data": [1, 2.5, -1]}},
        "nodes": [{"op": "Mul", "inputs": ["x", "w"], "outputs": ["y"]}],
        "outputs": ["y"],
    }
    return {**base, **changes}


def load(d: Any) -> Any:
    return load_graph(json.dumps(d).encode())


def test_a_graph() -> None:
    d = document()
    jsonschema.validate(d, dict(schema("graph.schema.json")))
    graph = load(d)
    np.testing.assert_array_equal(run(graph, {"x": X})[0], X * np.array([1, 2.5, -1], np.float32))
    assert repr(graph.outputs[0].type) == "f32[n, 3]"


def test_weights_in_files(tmp_path: Path) -> None:
    np.save(tmp_path / "w.npy", np.array([1, 2, 3], np.float32))
    d = document(weights={"w": {"dtype": "f32", "shape": [3], "file": "w.npy"}})
    (tmp_path / "m.json").write_text(json.dumps(d))
    np.testing.assert_array_equal(run(load_graph(tmp_path / "m.json"), {"x": X})[0], X * [1, 2, 3])
    for name in ("../w.npy", "none.npy", "m.json"):
        d["weights"]["w"]["file"] = name
        (tmp_path / "m.json").write_text(json.dumps(d))
        with pytest.raises(ModelError, match=r"m\.json: weights\.w: "):
            load_graph(tmp_path / "m.json")


def test_attributes_of_every_kind() -> None:
    tensor = {"dtype": "i64", "shape": [2], "data": [3, 2]}
    nodes = [
        {"op": "Constant", "inputs": [], "outputs": ["shape"], "attributes": {"value": tensor}},
        {"op": "Reshape", "inputs": ["x", "shape"], "outputs": ["a"], "attributes": {"allowzero": False}},
        {"op": "Transpose", "inputs": ["a"], "outputs": ["b"], "attributes": {"perm": [1, 0]}},
        {"op": "LeakyRelu", "inputs": ["b"], "outputs": ["c"], "attributes": {"alpha": 2}},
        {"op": "Gelu", "inputs": ["c"], "outputs": ["y"], "attributes": {"approximate": "tanh"}},
    ]
    inputs = {"x": {"dtype": "f32", "shape": [2, 3]}}
    assert repr(load(document(nodes=nodes, inputs=inputs)).outputs[0].type) == "f32[2, 3]"


def test_operators_of_our_own() -> None:
    q = {"dtype": "f32", "shape": ["n", 3]}
    attention = {"op": "Attention", "domain": "torshc", "inputs": ["x", "x", "x"], "outputs": ["y"]}
    for attributes in ({}, {"scale": 0.5, "safe": True}):
        graph = load(document(inputs={"x": q}, nodes=[{**attention, "attributes": attributes}]))
        assert repr(graph.outputs[0].type) == "f32[n, 3]"
    for attributes, words in (({"scale": "a"}, "scale"), ({"scal": 1}, "did you mean 'scale'")):
        with pytest.raises(ModelError, match=words):
            load(document(inputs={"x": q}, nodes=[{**attention, "attributes": attributes}]))


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"torshc": 2}, "torshc must be 1, and is 2"),
    ({"inputz": {}}, "no key 'inputz'; did you mean 'inputs'"),
    ({"inputs": {"x": {"dtype": "float", "shape": []}}}, r"inputs\.x\.dtype must be one of"),
    ({"inputs": {"x": {"dtype": "f32"}}}, r"inputs\.x lacks 'shape'"),
    ({"inputs": {"x": {"dtype": "f32", "shape": [-1]}}}, r"inputs\.x\.shape\[0\] must be at least 0"),
    ({"inputs": {"x": {"dtype": "f32", "shape": [1.5]}}}, r"inputs\.x\.shape\[0\] must be"),
    ({"nodes": [{"op": "Neg", "inputs": "x", "outputs": ["y"]}]}, r"nodes\[0\]\.inputs must be an array"),
    ({"nodes": [{"op": "Neg", "inputs": ["x"], "outputs": []}]}, r"nodes\[0\]\.outputs must not be empty"),
    (
        {"nodes": [{"op": "Neg", "inputs": ["x"], "outputs": ["y"], "attributes": {"a": None}}]},
        r"attributes\.a must be",
    ),
    ({"outputs": []}, "outputs must not be empty"),
    ({"outputs": [3]}, r"outputs\[0\] must be a string"),
    ({"weights": {"w": {"dtype": "f32", "shape": [3], "data": {}}}}, r"weights\.w\.data must be an array"),
]


@pytest.mark.parametrize(("changes", "words"), WRONG)
def test_what_the_schema_refuses(changes: dict[str, Any], words: str) -> None:
    """Our reader and the published schema agree."""
    d = document(**changes)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(d, dict(schema("graph.schema.json")))
    with pytest.raises(ModelError, match=words):
        load(d)


@pytest.mark.parametrize(
    ("weight", "words"),
    [
        ({"dtype": "f32", "shape": [3]}, r"weights\.w needs either data or file"),
        ({"dtype": "f32", "shape": [3], "data": [1, 2]}, "holds 2 elements"),
        ({"dtype": "f32", "shape": [3], "data": [1, "a", 2]}, r"weights\.w\.data has an element that is not f32"),
        ({"dtype": "i64", "shape": [3], "data": [1, 1.5, 2]}, "an element that is not i64"),
        ({"dtype": "u8", "shape": [3], "data": [1, 300, 2]}, "outside the range of u8"),
        ({"dtype": "f32", "shape": [3], "data": [[1], [2, 3]]}, r"weights\.w\.data"),
        ({"dtype": "f32", "shape": [3, 1 << 62], "data": []}, "too many elements"),
        ({"dtype": "f32", "shape": [3], "file": "w.npy"}, "not read from a file"),
        ({"dtype": "f32", "shape": [1] * 70, "data": [1]}, r"weights\.w: it has 70 dimensions, and at most 64"),
    ],
)
def test_weights_that_are_wrong(weight: dict[str, Any], words: str) -> None:
    with pytest.raises(ModelError, match=words):
        load(document(weights={"w": weight}))


@pytest.mark.parametrize(
    ("node", "error", "words"),
    [
        ({"op": "Mull", "inputs": ["x", "w"], "outputs": ["y"]}, UnsupportedError, "did you mean 'Mul'"),
        ({"op": "Mul", "inputs": ["x", "v"], "outputs": ["y"]}, ModelError, "reads 'v'"),
        ({"op": "Mul", "inputs": ["x"], "outputs": ["y"]}, ModelError, "takes 2 inputs"),
        ({"op": "Neg", "inputs": ["x"], "outputs": ["y"], "attributes": {"a": 1}}, ModelError, "no attribute 'a'"),
        ({"op": "Elu", "inputs": ["x"], "outputs": ["y"], "attributes": {"alpha": "a"}}, ModelError, "must be float"),
        ({"op": "Softmax", "inputs": ["x"], "outputs": ["y"], "attributes": {"axis": 1 << 70}}, ModelError, "64 bits"),
    ],
)
def test_nodes_that_are_wrong(node: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        load(document(nodes=[node]))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b'{"torshc": 1,\n "inputs": }', "line 2, column 12"),
        (b'{"torshc": 1, "torshc": 1}', "has 'torshc' twice"),
        (b'{"torshc": 1, "inputs": {"\xff": 1}}', "UTF-8"),
        (b'{"a": ' + b"[" * 100000 + b"]" * 100000 + b"}", "nested too deeply"),
        (rb'{"torshc": 1, "inputs": {"\ud800": 1}}', "lone surrogate"),
        (b"{}", "lacks 'torshc'"),
        (b'{"torshc": ' + b"9" * 5000 + b"}", "digits"),
    ],
)
def test_text_that_is_no_graph(text: bytes, words: str) -> None:
    with pytest.raises(ModelError, match=words):
        load_graph(text)


def test_all_mistakes_are_told_at_once() -> None:
    """Of the document's form first; of nodes once it is well formed, and not what follows from another mistake."""
    wrong = document(nodes=[{"opp": "Relu", "inputs": ["x"], "outputs": "a"}], outputs=[])
    wrong["torshc"] = 2
    with pytest.raises(ModelError) as caught:
        load(wrong)
    assert caught.value.message.splitlines()[1:] == [
        "  - torshc must be 1, and is 2",
        "  - nodes[0] lacks 'op'",
        "  - nodes[0] has no key 'opp'; did you mean 'op'?",
        '  - nodes[0].outputs must be an array, and is "a"',
        "  - outputs must not be empty",
    ]
    values = document(weights={"w": {"dtype": "f32", "shape": [3], "data": [1]}, "x": document()["weights"]["w"]})
    values["nodes"][0]["attributes"] = {"a": 1 << 70}
    with pytest.raises(ModelError, match=r"(?s)3 mistakes.*weights\.w\.data.*weights\.x: .*attributes\.a: "):
        load(values)
    nodes = [
        {"op": "Softmax", "inputs": ["x"], "outputs": ["a"], "attributes": {"axis": 9}},
        {"op": "MatMul", "inputs": ["a", "a", "a"], "outputs": ["b"]},
        {"op": "Relu", "inputs": ["a"], "outputs": ["c"]},
    ]
    with pytest.raises(ModelError) as caught:
        load(document(nodes=nodes, outputs=["c", "d"]))
    first, *rest = caught.value.message.splitlines()
    assert first.endswith("3 mistakes in this model:")
    assert "axis 9 is out of range" in rest[0] and "MatMul takes 2 inputs" in rest[1]
    assert rest[2] == "  - nothing produces the output 'd'"
    lost = [{"op": "Add", "inputs": ["p", "q"], "outputs": ["y"]}]
    with pytest.raises(ModelError, match=r"reads 'p', which nothing produces\n.*reads 'q', which nothing produces"):
        load(document(nodes=lost))


@pytest.mark.parametrize("size", ["batch*", "n - ", "2 ** n", "n / 2", "n % 0", "(n", "f(n)", "n < 3"])
def test_a_size_that_cannot_be_read_is_no_name(size: str) -> None:
    with pytest.raises(ModelError, match=re.escape(f"inputs.x.shape[1]: {size!r} is no size")):
        load(document(inputs={"x": {"dtype": "f32", "shape": ["n", size]}}))


def test_sizes_are_names_or_expressions() -> None:
    shape = ["n", "n % 2 + 3", "unk__12.3", "batch size", 3]
    graph = load(document(inputs={"x": {"dtype": "f32", "shape": shape}}))
    assert [repr(d) for d in graph.inputs[0].shape] == ["n", "n % 2 + 3", "unk__12.3", "batch size", "3"]
