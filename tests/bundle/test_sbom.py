"""A bundle's bill of materials: hashes of what is there, and the same text in each build."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import torshc
from tests.support.models import model, node
from torshc.base.digest import file_sha256
from torshc.base.options import CompileOptions
from torshc.bundle.package import SBOM, is_bundle
from torshc.workbench.reweigh import set_weights


@pytest.fixture
def source(tmp_path: Path) -> Path:
    weights = {"w": np.ones((3, 4), np.float32)}
    onnx.save(model([node("MatMul", "x w", "y")], {"x": (2, 3)}, ["y"], weights), tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


def bill(source: Path, out: Path, **options: Any) -> dict[str, Any]:
    torshc.compile(source, out, sbom=True, **options)
    found: dict[str, Any] = json.loads((out / SBOM).read_text())
    return found


def test_hashes_are_of_what_is_there(source: Path, tmp_path: Path) -> None:
    found = bill(source, tmp_path / "m.tsc")
    assert (found["bomFormat"], found["specVersion"]) == ("CycloneDX", "1.6")
    hashes = {c["name"]: c["hashes"][0]["content"] for c in found["components"] if "hashes" in c}
    assert hashes["m.onnx"] == file_sha256(source)
    for name in ("weights.bin", "model.h", "my_m.h"):
        assert hashes[name] == file_sha256(tmp_path / "m.tsc" / name)
    library = found["metadata"]["component"]
    assert library["hashes"][0]["content"] == file_sha256(tmp_path / "m.tsc" / "libmodel.so")
    tools = [t["name"] for t in found["metadata"]["tools"]["components"]]
    assert tools[0] == "torshc" and len(tools) == 2
    references = {c["bom-ref"] for c in found["components"]}
    assert set(found["dependencies"][0]["dependsOn"]) == references and len(references) == len(found["components"])


def test_the_same_bundle_has_the_same_bill(source: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    assert bill(source, tmp_path / "a" / "m.tsc") == bill(source, tmp_path / "b" / "m.tsc")


def test_a_bundle_with_a_bill_is_one_and_other_weights_leave_the_bill_out(source: Path, tmp_path: Path) -> None:
    """It would name the hash of weights that are not there."""
    bill(source, tmp_path / "m.tsc")
    assert is_bundle(tmp_path / "m.tsc")
    set_weights(tmp_path / "m.tsc", source, CompileOptions(), out=tmp_path / "other.tsc")
    assert not (tmp_path / "other.tsc" / SBOM).exists()
