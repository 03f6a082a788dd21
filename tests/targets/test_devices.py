"""Whole bundles for devices against onnx's reference evaluator, through the emulators: every kind of kernel, each target.

The emulator runs the threads of a block, and the blocks, in the order that ``T_EMULATE_ORDER`` says; results must not
depend on it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import onnx
import pytest

import torshc
from tests.emulation.emulated import emulated_tools
from tests.robust.test_zoo import OPTIONS, agrees, guarded_run
from tests.robust.zoo import zoo

ZOO = zoo()
TARGETS = ("cuda",)
ORDERS = ("forward", "reverse", "random:1")


@pytest.fixture(autouse=True)
def emulated() -> Iterator[None]:
    with emulated_tools():
        yield


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", ZOO)
def test_specimens(name: str, target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    specimen = ZOO[name]
    onnx.save(specimen.model, tmp_path / "m.onnx")
    for how in ("O0", "O3"):
        torshc.compile(tmp_path / "m.onnx", tmp_path / "m.tsc", target=target, **OPTIONS[how])
        for order in ORDERS if how == "O3" else ORDERS[:1]:
            monkeypatch.setenv("T_EMULATE_ORDER", order)
            with torshc.load(tmp_path / "m.tsc") as model:
                for k in range(len(specimen.shapes)):
                    feeds = specimen.feeds(k)
                    agrees(guarded_run(model, feeds), specimen, feeds)
