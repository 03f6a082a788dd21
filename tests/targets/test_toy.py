"""A target more costs one file and one folder, and no change anywhere else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import onnx
import pytest

import torshc
from tests.robust.test_zoo import agrees, guarded_run
from tests.support.zoo import zoo
from torshc.errors import UnsupportedError
from torshc.targets import TARGETS

from .toy import ToyTarget

del TARGETS[ToyTarget.name]  # known only while the tests of this file run
ZOO = zoo()
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
    with torshc.load(tmp_path / "m.tsc", threads=2) as model:
        for k in range(len(specimen.shapes)):
            feeds = specimen.feeds(k)
            agrees(guarded_run(model, feeds), specimen, feeds)


@pytest.mark.parametrize("name", sorted(NO_KERNEL))
def test_what_it_lacks_is_refused_by_name(name: str, tmp_path: Path) -> None:
    onnx.save(ZOO[name].model, tmp_path / "m.onnx")
    with pytest.raises(UnsupportedError, match="no kernel of family"):
        torshc.compile(tmp_path / "m.onnx", tmp_path / "m.tsc", target="toy", fallback=False)


def test_it_is_small() -> None:
    here = Path(__file__).parent
    sizes = [len(p.read_text().splitlines()) for p in (here / "toy.py", here / "toy" / "kernel.j2")]
    assert sum(sizes) < 80
