"""What a compilation says of its kernels."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from onnx import NodeProto, TensorProto, helper

from torshc.base.options import CompileOptions
from torshc.bundle.host_source import render_host
from torshc.pipeline.compilation import commented_sources
from torshc.pipeline.compiler import prepare
from torshc.targets.size_names import MARK

SAMPLES = Path(__file__).resolve().parents[2] / "samples"


def comments(source: bytes | Path, target: str = "c") -> list[str]:
    texts = commented_sources(prepare(source, CompileOptions(target=target))).values()
    return [" ".join(re.sub(r"\n \* ?", " ", text[: text.index("*/")]).split()) for text in texts]


@pytest.mark.parametrize("target", ["c", "cuda"])
def test_comments_say_what_kernels_compute(target: str) -> None:
    found = " ".join(comments(SAMPLES / "digits.onnx", target))
    assert "Conv+Add+Relu -> f32[s0,32,4,4], nodes 9, 10, 57: " in found
    assert "MaxPool+copy -> f32[s0,32,2,2], nodes 11, 60: 512*s0 flops" in found and "batch" not in found


def written(dims: dict[str, Sequence[str | int]], nodes: Sequence[NodeProto], target: str) -> tuple[list[str], str]:
    """The kernels' sources and the host program's, as people read them."""
    inputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, d) for n, d in dims.items()]
    outputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for node in nodes for n in node.output]
    graph = helper.make_graph(nodes, "g", inputs, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    made = prepare(model.SerializeToString(), CompileOptions(target=target))
    return [*commented_sources(made).values()], render_host(
        made.program.host(device=made.target.device), made.target.host
    )


LAUNCHED = re.compile(r"dim\[\] = \{(.*)\}")
GIVEN = {
    "c": re.compile(r"(?:const int64_t |\.)(\w+) = dim\["),
    "cuda": re.compile(r"const int64_t (\w+)[,)]"),
}


@pytest.mark.parametrize("target", sorted(GIVEN))
def test_sizes_have_one_name(target: str) -> None:
    """A kernel calls what it is given as the host does that gives it, long sizes too."""
    dims = {"x": ["one", "a", 16], "z": ["b", "c", 1], "u": ["b", 16], "t": [16, "d"]}
    nodes = [helper.make_node("Exp", ["x"], ["e"]), helper.make_node("Neg", ["z"], ["f"]),
             helper.make_node("MatMul", ["u", "t"], ["g"])]  # fmt: skip
    kernels, host = written(dims, nodes, target)
    launched = [names.split(", ") for names in LAUNCHED.findall(host)]
    found = [list(dict.fromkeys(GIVEN[target].findall(text))) for text in kernels]
    assert found == launched and len({name for names in launched for name in names}) >= 5
    assert {name for names in found for name in names} >= {"s0", "s1", "s2", "s3", "s4"}
    for text, names in zip(kernels, found, strict=True):
        shown = set(re.findall(r"\b[sz]\d+\b", text))
        assert set(names) <= shown and MARK not in text
    assert target != "c" or any("z0" in names for names in found)


def test_kernels_of_two_sizes_have_the_names_of_the_first() -> None:
    nodes = [helper.make_node("Softmax", ["x"], ["e"]), helper.make_node("Softmax", ["z"], ["f"])]
    kernels, _ = written({"x": ["a", 16], "z": ["b", 16]}, nodes, "c")
    assert len(kernels) == 1 and "const int64_t s0 = dim[0];" in kernels[0] and "s1 = dim" not in kernels[0]
    assert "-> f32[s1,16]" in kernels[0] and "Here s0 is s1." in re.sub(r"\n \* +", " ", kernels[0])


def test_both_forms_of_a_kernel_are_commented() -> None:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [3, 1030])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([helper.make_node("Softmax", ["x"], ["y"])], "g", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    first, second = comments(model.SerializeToString(), "webgpu")
    assert first == second and "-> f32[3,1030]" in first


def test_launches_that_compute_the_same_share_a_line() -> None:
    nodes = [helper.make_node("Softmax", [f"x{k}"], [f"y{k}"]) for k in range(7)]
    kernels, _ = written({f"x{k}": ["a", 16] for k in range(7)}, nodes, "c")
    (text,) = kernels
    head = re.sub(r"\s*\n \* +", " ", text.partition("*/")[0]).rstrip()
    assert head.count("-> f32[s0,16]") == 1
    assert re.search(r" Again for nodes ([\d, to]+; ){3}and 3 times more\.$", head)
