"""No name of a model reaches a source, a flag, a path or the library; all come back as they went in."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

import torshc

MARK = "qzxw"  # stands in each name, so that a trace of any would be found
NAMES = {
    "quotes": "\"'`",
    "comment end": "*/ int evil; /*",
    "line comment": "// \\",
    "newlines": "\n#include </etc/passwd>\r\n",
    "template": "{{ 7*7 }}{% raw %}{# x #}",
    "path": "../../../../tmp/",
    "shell": "$(touch pwned); `touch pwned` | & > <",
    "keyword": "int return while asm",
    "format": "%s%n%p{0}",
    "unicode": "imágè😀\u202e\u2028\u0301",
    "control": "\x01\x1b[31m\x7f\t",
    "flag": "-o/tmp/pwned",
    "long": "a" * 5000,
    "backslash": "\\x41\\u0041\\",
    "trigraph": "??/ ??= %:",
}


def hostile(text: str) -> tuple[ModelProto, dict[str, str]]:
    """A model with the text in every place that can hold one; its names by what they name."""
    names = {k: f"{MARK}{text}{k}" for k in ("x", "w", "conv", "a", "b", "y", "z", "n", "m", "graph", "f")}
    x = helper.make_tensor_value_info(names["x"], TensorProto.FLOAT, [names["n"], 3, 5, names["m"]])
    y = helper.make_tensor_value_info(names["y"], TensorProto.FLOAT, None)
    z = helper.make_tensor_value_info(names["z"], TensorProto.FLOAT, [names["n"], 4, None, None])
    nodes = [
        helper.make_node("Conv", [names["x"], names["w"]], [names["conv"]], name=names["a"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", [names["conv"]], [names["z"]], name=names["b"], doc_string=text),
        helper.make_node("Softmax", [names["z"]], [names["y"]], name=names["f"]),
    ]
    weight = numpy_helper.from_array(np.full((4, 3, 3, 3), 0.1, np.float32), names["w"])
    graph = helper.make_graph(nodes, names["graph"], [x], [y, z], [weight], doc_string=text)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    model.producer_name = model.producer_version = model.doc_string = model.domain = MARK + text
    helper.set_model_props(model, {MARK + text: MARK + text})
    return model, names


INTERFACE = ("x", "y", "z", "n", "m")  # what a library tells of itself, as data


def check_names(path: Path, names: dict[str, str], text: str) -> None:
    """No name is in a file but those of the interface: in a string without escapes of its own, or as an identifier."""
    found = path.read_bytes()
    assert not any(names[k].encode() in found for k in names if k not in INTERFACE), path
    if path.suffix in (".o", ".so") or MARK.encode() not in found:
        return
    said = re.sub(r'"(?:[^"\\\n]|\\[0-7]{3})*"', "", found.decode())
    assert text.isidentifier() or text not in said, path


@pytest.mark.parametrize("case", NAMES)
@pytest.mark.parametrize("level", [0, 3])
def test_names_reach_the_manifest_only(
    case: str, level: int, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    model, names = hostile(NAMES[case])
    path = tmp_path / "m.onnx"
    path.write_bytes(model.SerializeToString())
    work = tmp_path / "work"
    torshc.compile(
        path, tmp_path / "m.tsc", opt_level=level, workdir=work, keep_intermediates=True, dump=tmp_path / "dump",
        profile=True,
    )  # fmt: skip
    files = [p for folder in (work, tmp_path / "m.tsc") for p in folder.rglob("*") if p.is_file()]
    assert any(p.suffix == ".c" for p in files) and any(p.suffix == ".so" for p in files)
    for p in files:
        assert MARK not in p.name
        if p.suffix != ".json":  # the manifest, and what sources carry of it
            check_names(p, names, NAMES[case])
    for p in (tmp_path / "dump").rglob("*"):
        assert MARK not in p.name
    assert {p.name for p in tmp_path.iterdir()} == {"m.onnx", "m.tsc", "work", "dump"}
    assert not Path("pwned").exists() and not Path("/tmp/pwned").exists()
    record_property("files searched", len(files))
    manifest = json.loads((tmp_path / "m.tsc" / "manifest.json").read_text())
    assert manifest["model"] == "m"  # its file's name
    with torshc.load(tmp_path / "m.tsc") as compiled:
        assert [s.name for s in compiled.inputs] == [names["x"]]
        found = compiled.run({names["x"]: np.ones((2, 3, 5, 7), np.float32)})
        assert list(found) == [names["y"], names["z"]]
        assert found[names["z"]].shape == (2, 4, 5, 7)
        np.testing.assert_allclose(found[names["y"]].sum(-1), 1, rtol=1e-5)


@pytest.mark.parametrize("case", NAMES)
def test_names_in_messages_are_made_printable(case: str, tmp_path: Path) -> None:
    from click.testing import CliRunner

    from torshc.cli import cli

    model, _ = hostile(NAMES[case])
    model.graph.node[1].op_type = f"{MARK}{NAMES[case]}"
    path = tmp_path / "m.onnx"
    path.write_bytes(model.SerializeToString())
    for verb in ("compile", "explain"):
        result = CliRunner().invoke(cli, [verb, str(path)], prog_name="torshc")
        assert result.exit_code == 3 and MARK in result.output
        assert not any(c in result.output for c in "\x01\x1b\x7f\r\u202e\u2028")


def test_folders_with_hostile_names(tmp_path: Path) -> None:
    """The model's own folder and file may be called anything that a file system allows."""
    model, names = hostile("plain")
    for text in ("a b\"c'd", "$(touch pwned)", "{{ 7*7 }}", "-o", "new\nline", "é😀", "%s", "x" * 200):
        folder = tmp_path / text
        folder.mkdir()
        onnx.save(model, folder / f"{text[:100]}.onnx")
        torshc.compile(folder / f"{text[:100]}.onnx", folder / f"{text[:100]}.tsc", workdir=folder / f"w{text[:50]}")
        with torshc.load(folder / f"{text[:100]}.tsc") as compiled:
            compiled.run({names["x"]: np.ones((1, 3, 5, 7), np.float32)})
    assert not list(tmp_path.rglob("pwned"))
