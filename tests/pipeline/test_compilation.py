"""What a compilation says of its kernels."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from onnx import TensorProto, helper

from torshc.base.options import CompileOptions
from torshc.pipeline.compilation import commented_sources
from torshc.pipeline.compiler import prepare

SAMPLES = Path(__file__).resolve().parents[2] / "samples"


def comments(source: bytes | Path, target: str = "c") -> list[str]:
    texts = commented_sources(prepare(source, CompileOptions(target=target))).values()
    return [" ".join(re.sub(r"\n \* ?", " ", text[: text.index("*/")]).split()) for text in texts]


@pytest.mark.parametrize("target", ["c", "cuda"])
def test_comments_say_what_kernels_compute(target: str) -> None:
    found = " ".join(comments(SAMPLES / "digits.onnx", target))
    assert "Conv+Add+Relu -> f32[s0,32,4,4], nodes 9, 10, 57: " in found
    assert "MaxPool+copy -> f32[s0,32,2,2], nodes 11, 60: 512*s0 flops" in found and "batch" not in found


def test_comments_call_sizes_as_the_kernel_does() -> None:
    """Which numbers the sizes that it gets; one that it does not get has the host program's number."""
    dims = ["a", "b"], ["b", "c", 1]
    nodes = [helper.make_node("Exp", ["x"], ["y"]), helper.make_node("ReduceSum", ["z"], ["w"], keepdims=0)]
    inputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, d) for n, d in zip("xz", dims, strict=True)]
    outputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in "yw"]
    graph = helper.make_graph(nodes, "g", inputs, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    exp, total = comments(model.SerializeToString())
    assert exp == "/* Exp -> f32[s1,s0], nodes 0: s1*s0 flops, 8*s1*s0 bytes."  # as its loops go, from within
    assert total == "/* ReduceSum -> f32[], nodes 1: s1*s0 flops, 4*s1*s0 + 4 bytes."


def test_both_forms_of_a_kernel_are_commented() -> None:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [3, 1030])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([helper.make_node("Softmax", ["x"], ["y"])], "g", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    first, second = comments(model.SerializeToString(), "webgpu")
    assert first == second and "-> f32[3,1030]" in first
