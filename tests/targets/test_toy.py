"""A target more costs one file and one folder, and no change anywhere else."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner

import torshc
from tests.robust.test_zoo import agrees, guarded_run
from tests.support.models import model, node
from tests.support.zoo import zoo
from torshc.base.errors import InternalError, UnsupportedError
from torshc.base.options import OF_SOME_TARGETS
from torshc.cli import cli
from torshc.targets import TARGETS
from torshc.targets.cc import find_compiler

from .toy import ToyTarget

del TARGETS[ToyTarget.name]  # known only while the tests of this file run
ZOO = zoo()
X, W = np.array([1, -2, 3], np.float32), np.array([0.5, 1, -4], np.float32)
NO_KERNEL = {name for name in ZOO if any(word in name for word in ("attention", "lstm", "gru", "rnn", "recurrent"))}


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    TARGETS[ToyTarget.name] = ToyTarget
    yield
    del TARGETS[ToyTarget.name]


@pytest.mark.parametrize("name", sorted(ZOO.keys() - NO_KERNEL))
def test_specimens(name: str, tmp_path: Path) -> None:
    specimen = ZOO[name]
    onnx.save(specimen.model, tmp_path / "m.onnx")
    torshc.compile(tmp_path / "m.onnx", tmp_path / "m.tsc", target="toy")
    with torshc.load(tmp_path / "m.tsc", threads=2) as loaded:
        for k in range(len(specimen.shapes)):
            feeds = specimen.feeds(k)
            agrees(guarded_run(loaded, feeds), specimen, feeds)


@pytest.mark.parametrize("name", sorted(NO_KERNEL))
def test_what_it_lacks_is_refused_by_name_or_runs_on_the_processor(name: str, tmp_path: Path) -> None:
    specimen = ZOO[name]
    onnx.save(specimen.model, tmp_path / "m.onnx")
    with pytest.raises(UnsupportedError, match="no kernel of family"):
        torshc.compile(tmp_path / "m.onnx", tmp_path / "m.tsc", target="toy", fallback=False)
    made = torshc.compile(tmp_path / "m.onnx", tmp_path / "m.tsc", target="toy")
    assert any("runs on the processor: no kernel of family" in line for line in made.refusals)
    with torshc.load(tmp_path / "m.tsc", threads=2) as loaded:
        feeds = specimen.feeds(0)
        agrees(guarded_run(loaded, feeds), specimen, feeds)


def chain(folder: Path) -> Path:
    onnx.save(model([node("Add", "x w", "a"), node("Relu", "a", "y")], {"x": (3,)}, ["y"], {"w": W}), folder / "m.onnx")
    return folder / "m.onnx"


def test_its_device_and_its_toolchain_are_its_own(tmp_path: Path) -> None:
    made = torshc.compile(chain(tmp_path), tmp_path / "m.tsc", target="toy")
    assert {Path(name).suffix for name in made.sources} == {".toy"}
    manifest = json.loads((tmp_path / "m.tsc" / "manifest.json").read_text())
    assert manifest["device"] == ToyTarget.device and manifest["tools"][0]["name"] == "toycc"
    assert "-O1" in manifest["tools"][0]["flags"]
    with torshc.load(tmp_path / "m.tsc") as loaded:
        assert loaded.device == "device type 12:0"
        np.testing.assert_array_equal(loaded.run({"x": X})["y"], np.maximum(X + W, 0))
    with pytest.raises(torshc.TorshcError, match="there is one toy"):
        torshc.load(tmp_path / "m.tsc", device=1)


def test_its_sources_build_elsewhere(tmp_path: Path) -> None:
    cc = find_compiler()
    if cc.kind == "zig":
        pytest.skip("the script is for clang and gcc")
    torshc.compile(chain(tmp_path), tmp_path / "m.tsc", target="toy", emit="source", embed_weights=True)
    env = {**os.environ, "CC": shlex.join(cc.command)}
    subprocess.run(["sh", "src/build.sh"], cwd=tmp_path / "m.tsc", env=env, check=True)
    with torshc.load(tmp_path / "m.tsc", verify=False) as loaded:
        np.testing.assert_array_equal(loaded.run({"x": X})["y"], np.maximum(X + W, 0))


def test_it_is_listed() -> None:
    shown = CliRunner().invoke(cli, ["targets"]).output
    assert "toy    plain C on a make-believe device" in shown and "* toycc" in shown and "one toy" in shown


def test_a_family_has_one_lowering() -> None:
    """A second one of the same target would take the place of the first, whichever module comes later."""
    with pytest.raises(InternalError, match="ToyTarget already has a lowering of "):
        ToyTarget.lowers(*ToyTarget._lowerings)(next(iter(ToyTarget._lowerings.values())))


def test_it_is_small() -> None:
    here = Path(__file__).parent
    assert sum(len(p.read_text().splitlines()) for p in (here / "toy.py", *(here / "toy").iterdir())) < 250


def test_options_of_some_targets_are_those_that_some_name() -> None:
    assert frozenset().union(*(t.options for t in TARGETS.values())) == OF_SOME_TARGETS
    with pytest.raises(InternalError, match="Odd uses colour"):
        type("Odd", (ToyTarget,), {"options": frozenset({"colour"})})
