"""Models that ask for too much or nest without end: refused in seconds, by name; none of it is folded or expanded."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import FunctionProto, NodeProto, TensorProto, helper

import torshc
from tests.support import models
from torshc.base.errors import ModelError, TorshcError, UnsupportedError

F, INT, B = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
X = helper.make_tensor_value_info("x", F, [3])
ONE, BIG = np.ones(1, np.float32), np.array([1 << 20, 1 << 20])
SECONDS = 20  # on a busy machine; each takes well under one


def node(op: str, inputs: str, output: str = "y", **attributes: Any) -> NodeProto:
    return helper.make_node(op, inputs.split(",") if inputs else [], output.split(","), name=f"the_{op}", **attributes)


def model(
    nodes: list[NodeProto],
    weights: dict[str, Any],
    inputs: Any = (),
    functions: Any = (),
    outputs: Any = (),
    opset: int = 18,
) -> bytes:
    made = models.model(
        nodes, inputs, outputs or nodes[-1].output[:1], weights, {"": opset, "local": 1}, functions=functions
    )
    return bytes(made.SerializeToString())


def _saved(source: bytes, folder: Path) -> Path:
    (folder / "m.onnx").write_bytes(source)
    return folder / "m.onnx"


def compiled(source: bytes, folder: Path, **options: Any) -> None:
    torshc.compile(_saved(source, folder), folder / "m.tsc", emit="source", **options)


IMAGE = np.ones((1, 1, 4, 4), np.float32)
LARGE: dict[str, tuple[list[NodeProto], dict[str, Any]]] = {
    "ConstantOfShape": ([node("ConstantOfShape", "s")], {"s": BIG}),
    "Expand": ([node("Expand", "x,s")], {"x": ONE, "s": BIG}),
    "Tile": ([node("Tile", "x,s")], {"x": ONE, "s": np.array([1 << 42])}),
    "Range": ([node("Range", "a,b,c")], {"a": 0, "b": 1 << 42, "c": 1}),
    "Range of floats": ([node("Range", "a,b,c")], {"a": np.float32(0), "b": np.float32(1), "c": np.float32(1e-30)}),
    "OneHot": ([node("OneHot", "i,d,v")], {"i": np.array([1]), "d": 1 << 42, "v": np.ones(2, np.float32)}),
    "RandomNormal": ([node("RandomNormal", "", shape=[1 << 21, 1 << 21])], {}),
    "Resize": ([node("Resize", "x,,s")], {"x": IMAGE, "s": np.array([1, 1, 1e6, 1e6], np.float32)}),
    "Pad": ([node("Pad", "x,p")], {"x": ONE, "p": np.array([1 << 41, 1 << 41])}),
    "MatMul": (
        [node("Expand", "x,s", "a"), node("Expand", "x,t", "b"), node("MatMul", "a,b")],
        {"x": np.ones((1, 1), np.float32), "s": np.array([1 << 20, 1]), "t": np.array([1, 1 << 20])},
    ),
    "Einsum": ([node("Einsum", "x,x,x", equation="i,j,k->ijk")], {"x": np.ones(1 << 14, np.float32)}),
    "Add": ([node("Add", "x,z")], {"x": np.ones((1 << 20, 1), np.float32), "z": np.ones((1, 1 << 20), np.float32)}),
    "beyond 64 bits": ([node("ConstantOfShape", "s")], {"s": np.array([1 << 62, 1 << 62, 1 << 62])}),
    "Concat": (
        [helper.make_node("Concat", [f"v{k}"] * 2, [f"v{k + 1}"], axis=0) for k in range(60)],
        {"v0": np.ones(4, np.float32)},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", LARGE)
def test_a_few_bytes_that_ask_for_terabytes(case: str, tmp_path: Path) -> None:
    nodes, weights = LARGE[case]
    began = time.perf_counter()
    with pytest.raises(TorshcError, match=r"node .*(TiB|more than memory can hold)"):
        compiled(model(nodes, weights), tmp_path)
    assert time.perf_counter() - began < SECONDS


FAR, WINDOW = 6148914691236517206, np.ones((1, 1, 3, 3), np.float32)  # three times FAR is 2 beyond 2^64
PICTURE = helper.make_tensor_value_info("p", F, [1, 1, 8, 8])
PLACES = np.zeros((1, 1, 8, 8), np.int64)


WINDOWED: dict[str, tuple[dict[str, Any], str]] = {
    "dilations": ({"dilations": [1, FAR]}, f"a kernel of 3 with a dilation of {FAR} does not fit into 8 "),
    "pads": ({"dilations": [1, 2**62], "pads": [0, 2**62, 0, 2**62]}, r"f32\[1, 1, 8, 8\] would reach 2\^65"),
    "strides": ({"strides": [1, 2**62], "dilations": [1, 2**62], "auto_pad": "SAME_UPPER"}, "would reach"),
}


def windowed(op: str, case: str) -> tuple[list[NodeProto], dict[str, Any], str]:
    """A convolution or pooling of the picture, and what is said of it."""
    attributes, said = WINDOWED[case]
    if op != "Conv":
        return [node(op, "p", kernel_shape=[3, 3], **attributes)], {}, said
    return [node(op, "p,w", **attributes)], {"w": WINDOW}, said


WRAPPED: dict[str, tuple[list[NodeProto], dict[str, Any], str]] = {
    **{f"{op}, {k}": windowed(op, k) for op in ("Conv", "MaxPool", "LpPool", "AveragePool") for k in WINDOWED},
    "Tile": ([node("Tile", "p,n")], {"n": np.array([1, 1, 2**61, 8])}, r"18446744073709551616, 64\], which is more"),
    "Tile of nothing": ([node("Tile", "p,n")], {"n": np.array([1, 1, 2**61, 0])}, r"616, 0\], which is more than"),
    "Pad": ([node("Pad", "p,n")], {"n": np.array([0, 0, 0, 2**63 - 1] * 2)}, r"18446744073709551622\], which is more"),
    "Pad and cut": ([node("Pad", "p,n")], {"n": np.array([0, 0, 0, -(2**63), 0, 0, 0, 2**63 - 1])}, "would reach 2"),
    "MaxUnpool": (
        [node("MaxUnpool", "p,i", kernel_shape=[2, 2], pads=[2**62] * 4)],
        {"i": PLACES},
        r"shape \[1, 1, -9223372036854775799, -9223372036854775799\], with a negative dimension",
    ),
    "ConvTranspose": ([node("ConvTranspose", "p,w", strides=[1, 2**61])], {"w": WINDOW}, "16140901064495857667"),
    "ConvTranspose, dilations": ([node("ConvTranspose", "p,w", dilations=[FAR] * 2)], {"w": WINDOW}, "more than"),
    "LRN": ([node("LRN", "p", size=2**63 - 1)], {}, "indices into f32.* would reach"),
    "Split": ([node("Split", "p,n", "y,z", axis=3)], {"n": np.array([2**63 - 1] * 2)}, "18446744073709551614 and 8"),
    "DepthToSpace": ([node("DepthToSpace", "p", blocksize=2**62)], {}, "not a multiple of 212676479325586539664609"),
}


@pytest.mark.parametrize("case", WRAPPED)
def test_sizes_do_not_wrap(case: str, tmp_path: Path) -> None:
    nodes, weights, message = WRAPPED[case]
    with pytest.raises(TorshcError, match=rf"(?s)node 'the_{nodes[0].op_type}' .*{message}"):
        compiled(model(nodes, weights, [PICTURE], opset=19), tmp_path)


def test_more_dimensions_than_there_can_be(tmp_path: Path) -> None:
    deep = helper.make_tensor_value_info("x", F, [1] * 65)
    with pytest.raises(ModelError, match=r"m\.onnx: input 'x' has 65 dimensions, and at most 64 are possible"):
        compiled(model([node("Neg", "x")], {}, [deep]), tmp_path)
    axes = {"a": np.arange(64)}
    with pytest.raises(ModelError, match=r"'the_Unsqueeze' \(Unsqueeze\): the result of .* has 66 dimensions"):
        pair = helper.make_tensor_value_info("x", F, [2, 3])
        compiled(model([node("Unsqueeze", "x,a")], axes, [pair]), tmp_path)


def test_large_numbers_that_fit(tmp_path: Path) -> None:
    """Ends of a slice and a stride past the picture are no offsets."""
    nodes = [node("MaxPool", "p", "a", kernel_shape=[3, 3], strides=[2**63 - 1] * 2), node("Slice", "p,b,e,d,e")]
    weights = {"b": np.array([-(2**63)]), "e": np.array([2**63 - 1]), "d": np.array([3])}
    torshc.compile(_saved(model(nodes, weights, [PICTURE], outputs=["a", "y"]), tmp_path), tmp_path / "m.tsc")
    picture = np.arange(64, dtype=np.float32).reshape(1, 1, 8, 8)
    with torshc.load(tmp_path / "m.tsc") as loaded:
        found = loaded.run({"p": picture})
    assert found["a"].tolist() == [[[[18.0]]]] and found["y"].tolist() == picture[..., :1].tolist()


def test_elements_wrap_where_sizes_do_not(tmp_path: Path) -> None:
    """The elements of a small tensor are expressions too, but of 64 bits."""
    nodes = [
        node("Add", "a,a", "s"), node("Mul", "s,a", "m"), node("Div", "m,t", "d"), node("Neg", "l", "n"),
        node("Div", "l,u"),
    ]  # fmt: skip
    weights = {"a": np.array([2**62, 7]), "t": np.array([3]), "l": np.array([-(2**63)]), "u": np.array([-1])}
    made = model(nodes, weights, outputs=["s", "m", "d", "n", "y"])
    torshc.compile(_saved(made, tmp_path), tmp_path / "m.tsc", opt_level=0)
    with torshc.load(tmp_path / "m.tsc") as loaded:
        found = loaded.run({})
    low = -(2**63)
    wanted = {"s": [low, 14], "m": [0, 98], "d": [0, 32], "n": [low], "y": [low]}
    assert {k: v.tolist() for k, v in found.items()} == wanted


LABELS: dict[str, Any] = {"keys_floats": [0.5, 7.0], "values_floats": [1.0, 2.0], "domain": "ai.onnx.ml"}
LONG = helper.make_tensor_value_info("l", F, [1, 1 << 20, 1, 1])
BUDGETS: dict[str, tuple[bytes, dict[str, int], int, str]] = {
    "outputs": (
        model([node("Split", "p", "y,z", num_outputs=2**31)], {}, [PICTURE]), {}, 0,
        "'the_Split' (Split): Split into 2147483648 parts, more than the budget 'outputs' of 4096",
    ),
    "nodes": (
        model([node("Neg", "p", "q"), node("Abs", "q")], {}, [PICTURE]), {"nodes": 1}, 1 << 10,
        "'the_Abs' (Abs): 2 nodes, with what passes make of them, more than the budget 'nodes' of 1",
    ),
    "search": (
        model([node("LabelEncoder", "p", **LABELS)], {}, [PICTURE]), {"search": 99}, 1 << 20,
        "'the_LabelEncoder' (LabelEncoder): a table of keys that searches 2 updates for each of 64 elements",
    ),
    "steps": (
        model([node("LRN", "l", size=1 << 40)], {}, [LONG]), {}, 1 << 62,
        "(LRN, 'the_LRN'): loops of 2305843009213693952 steps, more than the budget 'steps' of 1125899906842624",
    ),
    "memory": (
        model([node("Expand", "x,s")], {"x": ONE, "s": np.array([1 << 20])}), {"memory": 1 << 20}, 1 << 30,
        "more than the budget 'memory' of 1048576 bytes",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BUDGETS)
def test_budgets(name: str, tmp_path: Path) -> None:
    """Over a budget: the node, the budget and how to raise it, which lets the model pass."""
    source, given, enough, message = BUDGETS[name]
    with pytest.raises(UnsupportedError, match=re.escape(message)) as caught:
        compiled(source, tmp_path, budget=given)
    assert caught.value.remedy.endswith(f"raise the budget with --budget {name}=NUMBER")
    if enough:
        compiled(source, tmp_path, budget={name: enough})


def test_strides_beyond_the_output(tmp_path: Path) -> None:
    """A kernel has a phase for each place within a stride, as long as there are few."""
    nodes = [node("ConvTranspose", "o,w", strides=[2**61, 17])]
    one = helper.make_tensor_value_info("o", F, [1, 1, 1, 2])
    torshc.compile(_saved(model(nodes, {"w": WINDOW}, [one]), tmp_path), tmp_path / "m.tsc")
    with torshc.load(tmp_path / "m.tsc") as loaded:
        (found,) = loaded.run({"o": np.array([2, 3], np.float32).reshape(1, 1, 1, 2)}).values()
    wanted = np.zeros((3, 20), np.float32)
    wanted[:, :3], wanted[:, 17:] = 2, 3
    assert found.tolist() == [[wanted.tolist()]]


@pytest.mark.parametrize("case", ["sum", "product"])
def test_what_is_large_and_need_not_be_stored_is_neither_folded_nor_refused(case: str, tmp_path: Path) -> None:
    first = node("Expand", "x,s", "e") if case == "sum" else node("ConstantOfShape", "s", "e")
    compiled(model([first, node("ReduceSum" if case == "sum" else "ReduceProd", "e")], {"x": ONE, "s": BIG}), tmp_path)


def branches(depth: int) -> bytes:
    """If in If, in the wire format, as the library would refuse to build it."""

    def number(n: int) -> bytes:
        return bytes([n & 127 | 128]) + number(n >> 7) if n > 127 else bytes([n])

    def part(field: int, data: bytes) -> bytes:
        return number(field << 3 | 2) + number(len(data)) + data

    empty = helper.make_empty_tensor_value_info("y").SerializeToString()
    graph = part(1, helper.make_node("Identity", ["x"], ["y"]).SerializeToString()) + part(12, empty)
    for _ in range(depth):
        sides = [part(1, k) + b"\xa0\x01\x05" + part(6, graph) for k in (b"then_branch", b"else_branch")[:1]]
        one = part(1, helper.make_node("Neg", ["x"], ["y"]).SerializeToString()) + part(12, empty)
        sides.append(part(1, b"else_branch") + b"\xa0\x01\x05" + part(6, one))
        graph = part(1, part(1, b"c") + part(2, b"y") + part(4, b"If") + b"".join(part(5, s) for s in sides))
        graph += part(12, empty)
    for value in (X, helper.make_tensor_value_info("c", B, [])):
        graph += part(11, value.SerializeToString())
    return b"\x08\x0a" + part(7, part(2, b"g") + graph) + part(8, helper.make_opsetid("", 18).SerializeToString())


def test_branches_in_branches(tmp_path: Path) -> None:
    compiled(branches(12), tmp_path)
    for depth in (60, 1000):
        with pytest.raises(ModelError, match="too deeply"):
            compiled(branches(depth), tmp_path)


def function(name: str, calls: str, times: int) -> FunctionProto:
    """A function that calls another so many times, one call after the other."""
    values = ["a", *(f"t{k}" for k in range(times - 1)), "b"]
    domain = {} if calls == "Neg" else {"domain": "local"}
    nodes = [helper.make_node(calls, [values[k]], [values[k + 1]], **domain) for k in range(times)]
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("local", 1)]
    return helper.make_function("local", name, ["a"], ["b"], nodes, opsets)


CALLS: dict[str, tuple[list[FunctionProto], str]] = {
    "a circle": ([function("F", "G", 1), function("G", "F", 1)], "in a circle"),
    "itself, many times": ([function("F", "F", 10)], "in a circle"),
    "a chain": ([function("F", "F1", 1), *(function(f"F{k}", f"F{k + 1}", 1) for k in range(1, 90))], "too deeply"),
    "ten calls each": (
        [function(f"F{k or ''}", f"F{k + 1}" if k < 12 else "Neg", 10) for k in range(13)],
        "functions and bodies expand to 11111111111110 nodes, more than the budget 'expanded' of 10000",
    ),
    "two calls each": ([function(f"F{k or ''}", f"F{k + 1}" if k < 62 else "Neg", 2) for k in range(63)], r" 2\^63 "),
}  # fmt: skip


@pytest.mark.parametrize("case", CALLS)
def test_functions_without_end(case: str, tmp_path: Path) -> None:
    functions, message = CALLS[case]
    began = time.perf_counter()
    with pytest.raises((ModelError, UnsupportedError), match=f"node .*{message}"):
        made = model([helper.make_node("F", ["x"], ["y"], domain="local")], {}, [X], functions)
        compiled(made, tmp_path, budget={"expanded": 10000})
    assert time.perf_counter() - began < 3 * SECONDS


def test_a_size_beyond_memory_is_told_of_the_models_own_operator(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"\(ConstantOfShape\): the result has shape .*more than memory"):
        compiled(model([node("ConstantOfShape", "n")], {"n": np.array([1 << 62])}), tmp_path)


@pytest.mark.parametrize(("rounds", "condition"), [(1 << 62, None), (None, None)])
def test_loops_that_never_end(rounds: int | None, condition: bool | None, tmp_path: Path) -> None:
    state = [helper.make_tensor_value_info(n, t, []) for n, t in (("i", INT), ("c", B), ("s", F))]
    results = [helper.make_empty_tensor_value_info(n) for n in ("c", "t", "t")]
    body = helper.make_graph([node("Add", "s,one", "t")], "body", state, results)
    loop = helper.make_node("Loop", ["n" if rounds else "", "", "start"], ["last", "rows"], name="it", body=body)
    weights = {"one": np.float32(1), "start": np.float32(0), "n": np.int64(rounds or 0)}
    with pytest.raises(TorshcError, match=r"'it' \(Loop\).*never ends"):
        compiled(model([loop], weights), tmp_path)


@pytest.mark.parametrize("kind", [F, INT])
def test_products_of_products(kind: int, tmp_path: Path) -> None:
    """x to the power of 2^70, one square after the other: neither sizes nor numbers are multiplied out."""
    nodes = [helper.make_node("Mul", [f"v{k}"] * 2, [f"v{k + 1}"]) for k in range(70)]
    nodes[0].input[1] = "w"
    inputs = [helper.make_tensor_value_info(n, kind, ["n"]) for n in ("v0", "w")]
    compiled(model(nodes, {}, inputs), tmp_path)


BAD_TEXT: dict[str, tuple[Callable[[], bytes], str]] = {
    "a value": (lambda: model([node("Neg", "QQQQ")], {"QQQQ": ONE}), "not UTF-8"),
    "an operator": (lambda: model([helper.make_node("QQQQ", ["x"], ["y"])], {}, [X]), "not UTF-8"),
    "a string": (lambda: model([node("Identity", "w")], {"w": np.array(["QQQQ"], object)}), "'w'.*not UTF-8"),
    "an attribute": (lambda: model([node("Constant", "", value_string="QQQQ")], {}), "the_Constant.*not UTF-8"),
    "a mode": (
        lambda: model([node("Resize", "x,,s", mode="QQQQ")], {"x": IMAGE, "s": np.ones(4, np.float32)}), "the_Resize",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD_TEXT)
def test_text_that_is_none(case: str, tmp_path: Path) -> None:
    make, message = BAD_TEXT[case]
    with pytest.raises(TorshcError, match=message):
        compiled(make().replace(b"QQQQ", b"Q\xff\xfeQ"), tmp_path)
