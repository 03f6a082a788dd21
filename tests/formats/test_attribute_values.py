"""A value of an attribute that ONNX does not define is refused: of every attribute of every operator that there is."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from torshc.base.errors import ModelError, UnsupportedError
from torshc.formats import import_model, load_graph
from torshc.formats.attribute_values import _BY_NAME, _BY_OPERATOR, Values, values_of
from torshc.formats.schemas import NEWEST
from torshc.ops import REGISTRY

Array = np.ndarray[Any, Any]
MICROSOFT = "com.microsoft"
FIELDS = [(name, cls, f) for (d, name), cls in REGISTRY.items() if d == MICROSOFT for f in dataclasses.fields(cls)]
SCHEMAS = [s for s in onnx.defs.get_all_schemas_with_history() if s.attributes and not s.deprecated]
KINDS = ("INT", "INTS", "STRING", "STRINGS")


def is_listed(op: str, name: str) -> bool:
    return name in _BY_NAME or (op, name) in _BY_OPERATOR


def outside(allowed: Values) -> list[Any]:
    """Values that the table does not allow: neighbours, and misspelt ones."""
    assert allowed is not None
    if isinstance(allowed[0], str):
        words = [str(w) for w in allowed]
        changed = {c for w in words if w for c in (w.swapcase(), w.title() + "x", w[:-1], f" {w}")} | {"?"}
        return sorted(changed - set(words))
    low, high = allowed[0], allowed[-1] if isinstance(allowed, tuple) or allowed.stop < 1 << 62 else None
    return [int(low) - 1, -(1 << 40), *([] if high is None else [int(high) + 1, int(high) + 4])]


def schema_cases() -> list[Any]:
    return [
        pytest.param(s, name, id=f"{s.domain or 'onnx'}.{s.name}-{s.since_version}-{name}")
        for s in SCHEMAS
        for name, a in s.attributes.items()
        if a.type.name in KINDS and values_of(s.name, name, s.since_version) is not None
    ]


def refusal(op: str, domain: str, version: int, attributes: dict[str, Any], inputs: int, outputs: int = 1) -> str:
    """What is said of a model of one node."""
    names = [f"x{k}" for k in range(inputs)]
    node = helper.make_node(op, names, [f"y{k}" for k in range(outputs)], name="the node", domain=domain, **attributes)
    graph = helper.make_graph(
        [node],
        "one",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2, 3]) for n in names],
        [helper.make_empty_tensor_value_info("y0")],
    )
    opsets = [helper.make_opsetid(domain, version), *([helper.make_opsetid("", NEWEST)] if domain else [])]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    with pytest.raises(ModelError) as caught:
        import_model(model.SerializeToString())
    return str(caught.value)


def required(schema: onnx.defs.OpSchema) -> dict[str, Any]:
    """Something for each attribute that must be there, of the right kind."""
    body = helper.make_graph([], "body", [], [])
    tensor = helper.make_tensor("t", TensorProto.FLOAT, [1], [0.0])
    filler = {"INT": 1, "FLOAT": 1.0, "STRING": "?", "INTS": [1], "FLOATS": [1.0], "STRINGS": ["?"], "GRAPH": body}
    return {n: filler.get(a.type.name, tensor) for n, a in schema.attributes.items() if a.required}


def legal(schema: onnx.defs.OpSchema) -> dict[str, Any]:
    """The attributes that must be there, with values that have a meaning."""
    out = required(schema)
    for name, value in out.items():
        allowed = values_of(schema.name, name, schema.since_version)
        if allowed is not None and isinstance(value, (int, str, list)):
            out[name] = [allowed[-1]] if isinstance(value, list) else allowed[0]
    return out


def test_every_attribute_is_in_the_table() -> None:
    of_onnx = {(s.name, n) for s in SCHEMAS for n, a in s.attributes.items() if a.type.name in KINDS}
    discrete = {(op, f.name) for op, _, f in FIELDS if not isinstance(f.default, float) and "float" not in str(f.type)}
    assert len(of_onnx) > 250 and len(discrete) > 100
    assert not sorted(key for key in of_onnx | discrete if not is_listed(*key))


def test_the_table_has_nothing_else() -> None:
    known = {(s.name, n) for s in SCHEMAS for n in s.attributes} | {(op, f.name) for op, _, f in FIELDS}
    known |= {(name, key) for (_, name), cls in REGISTRY.items() for key in cls.experimental}
    known |= {(name, f.name) for (_, name), cls in REGISTRY.items() for f in dataclasses.fields(cls)}
    assert not {key[:2] for key in _BY_OPERATOR} - known
    assert not set(_BY_NAME) - {name for _, name in known}


def test_what_is_meant_without_an_attribute_is_allowed() -> None:
    wrong = []
    for s in SCHEMAS:
        for name, a in s.attributes.items():
            allowed = values_of(s.name, name, s.since_version)
            if not a.default_value.type or a.type.name not in ("INT", "STRING") or allowed is None:
                continue
            value = helper.get_attribute_value(a.default_value)
            value = value.decode() if isinstance(value, bytes) else value
            if value not in allowed:
                wrong.append((s.name, s.since_version, name, value))
    assert wrong == [("GRU", 1, "direction", "foward")]  # a slip in ONNX's own text


@pytest.mark.parametrize(("schema", "name"), schema_cases())
def test_values_outside_are_refused(
    schema: onnx.defs.OpSchema, name: str, record_property: Callable[[str, object], None]
) -> None:
    allowed, listed = values_of(schema.name, name, schema.since_version), schema.attributes[name].type.name[-1] == "S"
    record_property("values", len(outside(allowed)))
    for value in outside(allowed):
        attributes = legal(schema) | {name: [value] if listed else value}
        counts = schema.min_input, max(1, schema.min_output)
        said = refusal(schema.name, schema.domain, schema.since_version, attributes, *counts)
        assert "the node" in said and f"{name!r} is {value!r}"[:30] in said and "must be" in said


@pytest.mark.parametrize(("op", "field"), [(op, f) for op, _, f in FIELDS], ids=lambda x: getattr(x, "name", x))
def test_values_outside_are_refused_by_operators_of_microsoft(op: str, field: dataclasses.Field[Any]) -> None:
    allowed = values_of(op, field.name, 1)
    if isinstance(field.default, float) or allowed is None:
        said = refusal(op, MICROSOFT, 1, {field.name: helper.make_tensor("t", TensorProto.FLOAT, [1], [0.0])}, 1)
        assert "the node" in said and f"attribute {field.name!r} of {op} must be" in said
        return
    for value in outside(allowed):
        said = refusal(op, MICROSOFT, 1, {field.name: [value] if "tuple" in str(field.type) else value}, 1)
        assert "the node" in said and f"{field.name!r} is {value!r}"[:30] in said and "must be" in said


@pytest.mark.parametrize(
    ("op", "inputs", "attributes", "said"),
    [
        ("BitShift", 2, {"direction": "left"}, "is 'left', and must be 'LEFT' or 'RIGHT'; did you mean 'LEFT'?"),
        ("SoftmaxCrossEntropyLoss", 2, {"reduction": "Mean"}, "must be 'none', 'sum' or 'mean'; did you mean 'mean'?"),
        ("Gelu", 1, {"approximate": "Tanh"}, "is 'Tanh', and must be 'none' or 'tanh'; did you mean 'tanh'?"),
        ("Mod", 2, {"fmod": 7}, "attribute 'fmod' is 7, and must be 0 or 1"),
        ("DepthToSpace", 1, {"blocksize": 0}, "attribute 'blocksize' is 0, and must be 1 or more"),
        ("Cast", 1, {"to": 99}, "attribute 'to' is 99, and must be 1 to"),
        ("Conv", 2, {"strides": [1, 0]}, "an element of attribute 'strides' is 0, and must be 1 or more"),
    ],
)
def test_a_refusal_says_what_is_allowed(op: str, inputs: int, attributes: dict[str, Any], said: str) -> None:
    assert said in refusal(op, "", NEWEST, attributes, inputs)


def test_tables_of_trees_have_values_too() -> None:
    modes = helper.make_tensor("m", TensorProto.UINT8, [2], [0, 9])
    schema = onnx.defs.get_schema("TreeEnsemble", 5, "ai.onnx.ml")
    said = refusal("TreeEnsemble", "ai.onnx.ml", 5, legal(schema) | {"nodes_modes": modes}, 1)
    assert "an element of attribute 'nodes_modes' is 9, and must be 0 to 6" in said


def test_long_values_are_cut() -> None:
    assert len(refusal("Gelu", "", NEWEST, {"approximate": "x" * 100_000}, 1)) < 300


def inner(op: str, **attributes: Any) -> tuple[onnx.GraphProto, onnx.ValueInfoProto]:
    """A body of one node that reads `x` from around it."""
    y = helper.make_tensor_value_info("z", TensorProto.FLOAT, [2, 3])
    return helper.make_graph([helper.make_node(op, ["x"], ["z"], name="the node", **attributes)], "body", [], [y]), y


def around(nodes: list[onnx.NodeProto], functions: tuple[onnx.FunctionProto, ...] = ()) -> bytes:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])
    c = helper.make_tensor_value_info("c", TensorProto.BOOL, [])
    graph = helper.make_graph(nodes, "outer", [x, c], [helper.make_empty_tensor_value_info("y")])
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("own", 1)]
    return helper.make_model(graph, opset_imports=opsets, functions=functions, ir_version=10).SerializeToString()


def test_nodes_of_branches_are_checked() -> None:
    body, _ = inner("Gelu", approximate="Tanh")
    node = helper.make_node("If", ["c"], ["y"], then_branch=body, else_branch=body, name="choice")
    with pytest.raises(ModelError, match=r"the node.*'approximate' is 'Tanh'"):
        import_model(around([node]))


def test_nodes_of_loops_are_checked() -> None:
    body, _ = inner("Gelu", approximate="Tanh")
    body.node.append(helper.make_node("Identity", ["going"], ["goes"]))
    body.input.extend([
        helper.make_tensor_value_info("number", TensorProto.INT64, []),
        helper.make_tensor_value_info("going", TensorProto.BOOL, []),
    ])  # fmt: skip
    body.output.insert(0, helper.make_tensor_value_info("goes", TensorProto.BOOL, []))
    limit = helper.make_node("Constant", [], ["limit"], value_int=3)
    node = helper.make_node("Loop", ["limit", "c"], ["y"], body=body, name="repeated")
    with pytest.raises(ModelError, match=r"the node.*'approximate' is 'Tanh'"):
        import_model(around([limit, node]))


def test_nodes_of_functions_are_checked_with_the_attributes_of_a_call() -> None:
    node = helper.make_node("Gelu", ["a"], ["b"], name="the node")
    node.attribute.append(onnx.AttributeProto(name="approximate", ref_attr_name="how", type=onnx.AttributeProto.STRING))
    f = helper.make_function("own", "F", ["a"], ["b"], [node], [helper.make_opsetid("", 20)], attributes=["how"])
    call = helper.make_node("F", ["x"], ["y"], domain="own", how="Tanh", name="a call")
    with pytest.raises(ModelError, match=r"a call/node 'the node'.*'approximate' is 'Tanh'"):
        import_model(around([call], (f,)))


@pytest.mark.parametrize(
    ("node", "said"),
    [
        ({"op": "Gelu", "attributes": {"approximate": "Tanh"}}, "did you mean 'tanh'"),
        ({"op": "QuickGelu", "domain": "com.microsoft", "attributes": {"alfa": 1}}, "did you mean 'alpha'"),
        ({"op": "Tokenizer", "domain": "com.microsoft", "attributes": {"mark": 2}}, "'mark' is 2, and must be 0 or 1"),
        ({"op": "Attention", "domain": "com.microsoft", "attributes": {"qkv_hidden_sizes": [1, "a"]}}, "must be ints"),
    ],
)
def test_graphs_in_json_are_checked(node: dict[str, Any], said: str) -> None:
    graph = {
        "torshc": 1,
        "inputs": {"x": {"dtype": "f32", "shape": [2, 3]}},
        "nodes": [node | {"inputs": ["x"], "outputs": ["y"]}],
        "outputs": ["y"],
    }
    with pytest.raises(ModelError, match=said):
        load_graph(json.dumps(graph).encode())


def test_lists_of_json_reach_operators_of_microsoft() -> None:
    node = {"op": "QLinearReduceMean", "domain": "com.microsoft", "attributes": {"axes": [1]}}
    graph = {
        "torshc": 1,
        "inputs": {"x": {"dtype": "u8", "shape": [2, 3]}, "s": {"dtype": "f32", "shape": []}},
        "nodes": [node | {"inputs": ["x", "s", "", "s"], "outputs": ["y"]}],
        "outputs": ["y"],
    }
    try:
        load_graph(json.dumps(graph).encode())
    except UnsupportedError:
        pytest.fail("its axes are a list")
