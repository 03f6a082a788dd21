"""The course of models whose sizes or steps are known only at run time."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner
from onnx import TensorProto, helper

from tests.support import models
from tests.support.models import save
from torshc.cli import cli


def model(tmp_path: Path) -> Path:
    """A NonZero between kernels, and a branch."""
    node, info = helper.make_node, helper.make_tensor_value_info
    then = helper.make_graph([node("Exp", ["x"], ["a"])], "t", [], [info("a", TensorProto.FLOAT, None)])
    other = helper.make_graph([node("Neg", ["x"], ["b"])], "e", [], [info("b", TensorProto.FLOAT, None)])
    nodes = [
        node("If", ["c"], ["y"], then_branch=then, else_branch=other, name="which"),
        node("NonZero", ["y"], ["places"]),
        node("Abs", ["places"], ["z"]),
    ]
    inputs = {"x": ["n"], "c": (TensorProto.BOOL, [])}
    return save(models.model(nodes, inputs, [info("z", TensorProto.INT64, None)], opset=21), tmp_path)


def test_text_and_json(tmp_path: Path) -> None:
    path = str(model(tmp_path))
    text = CliRunner().invoke(cli, ["explain", path]).stdout
    lines = [line.strip() for line in text[text.index("Course") :].splitlines()[1:]]
    assert lines[:8] == [
        "if the condition of If 'which' (node 2) holds",
        "group 0",
        "else",
        "group 1",
        "NonZero 'places' (node 3)" if "'places'" in text else "NonZero (node 3)",
        "a size becomes known",
        "group 2",
        "",
    ]
    body = json.loads(CliRunner().invoke(cli, ["explain", path, "--format", "json"]).stdout)
    assert [c["what"] for c in body["course"]] == ["if", "launch", "else", "launch", "operator", "size", "launch"]
