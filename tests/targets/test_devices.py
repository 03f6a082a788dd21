"""Whole bundles for devices, through the emulators: every kind of kernel, each target.

The emulator runs the threads of a block, and the blocks, in the order that ``T_EMULATE_ORDER`` says; results must not
depend on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest

import torshc
from tests.emulation.emulated import emulated_tools
from tests.robust.test_zoo import OPTIONS, agrees, guarded_run
from tests.support.zoo import zoo

from ..support.networks import mobilenet_v2, squeezenet, transformer
from ..support.slow import some, some_pairs

ZOO = zoo()
TARGETS = ("cuda", "metal")
ORDERS = ("forward", "reverse", "random:1")


@pytest.fixture(autouse=True)
def emulated() -> Iterator[None]:
    with emulated_tools():
        yield


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("name", "how"), some_pairs(ZOO, ["O3", "O0"], 4))
def test_specimens(name: str, how: str, target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    specimen = ZOO[name]
    onnx.save(specimen.model, tmp_path / "m.onnx")
    torshc.compile(tmp_path / "m.onnx", tmp_path / "m.tsc", target=target, **OPTIONS[how])
    for order in ORDERS if how == "O3" else ORDERS[:1]:
        monkeypatch.setenv("T_EMULATE_ORDER", order)
        with torshc.load(tmp_path / "m.tsc") as model:
            for k in range(len(specimen.shapes)):
                feeds = specimen.feeds(k)
                agrees(guarded_run(model, feeds), specimen, feeds)


NETWORKS: dict[str, tuple[Callable[[], onnx.ModelProto], dict[str, tuple[int, ...]]]] = {
    "squeezenet": (squeezenet, {"data_0": (1, 3, 224, 224)}),
    "mobilenet_v2": (mobilenet_v2, {"x": (1, 3, 224, 224)}),
    "transformer": (transformer, {"x": (2, 11, 64), "mask": (2, 1, 1, 11)}),
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", some([*reversed(NETWORKS)], len(NETWORKS)))
def test_networks_agree_with_the_processor(name: str, target: str, tmp_path: Path) -> None:
    make, shapes = NETWORKS[name]
    onnx.save(make(), tmp_path / "m.onnx")
    rng = np.random.default_rng(0)
    feeds = {n: rng.standard_normal(s).astype(np.float32) for n, s in shapes.items()}
    answers = []
    for where in ("c", target):
        torshc.compile(tmp_path / "m.onnx", tmp_path / "m.tsc", target=where)
        with torshc.load(tmp_path / "m.tsc") as model:
            (answer,) = model.run(feeds).values()
            answers.append(answer)
    # Sums in another order, through some fifty layers.
    assert np.abs(answers[1] - answers[0]).max() <= 1e-4 * np.abs(answers[0]).max()
