"""Convolutions that add up what they store, in training steps, beside their definition by NumPy in f64."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import helper

import torshc
from tests.support.compilers import Host, hosts
from tests.training.networks import Array, Steps, model, write_step
from torshc.base.options import CompileOptions
from torshc.kernels.base import buffers_read
from torshc.kernels.heavy import HeavyKernel
from torshc.kernels.nest import MapKernel
from torshc.passes import slice_convolutions
from torshc.pipeline.compiler import prepare
from torshc.plan import totals
from torshc.targets.cpu import c

STEP = "weights: '*'\nloss: {output: loss}\noptimizer: {momentum: {learning_rate: 0.1}}\n"
Layer = tuple[int, int, int, int]  # channels, groups, kernel, stride
NETWORKS: dict[str, list[Layer]] = {
    "products": [(24, 1, 1, 1), (19, 1, 1, 1), (50, 1, 1, 1)],
    "depthwise": [(19, 1, 1, 1), (19, 19, 3, 1), (19, 19, 3, 2), (5, 1, 1, 1)],
    "whole vectors": [(32, 1, 1, 1), (32, 32, 3, 2), (32, 32, 3, 1), (16, 1, 1, 1)],
    "others": [(9, 1, 3, 1), (8, 1, 1, 2), (7, 1, 1, 1)],
}


def network(layers: list[Layer], shape: tuple[int, ...], dtype: type) -> bytes:
    """Convolutions that are normalised and clipped, one behind the other; the sum of squares of the last one's."""
    rng, weights, nodes, before = np.random.default_rng(1), dict[str, Array](), [], "x"
    channels = shape[1]
    for k, (wide, groups, size, stride) in enumerate(layers):
        weights |= {
            f"w{k}": rng.standard_normal((wide, channels // groups, size, size)),
            f"scale{k}": rng.uniform(0.5, 2, wide),
            f"bias{k}": rng.standard_normal(wide) + 1,
            f"mean{k}": np.zeros(wide),
            f"var{k}": np.ones(wide),
        }
        fields = {"group": groups, "strides": [stride] * 2, "pads": [size // 2] * 4}
        running = [f"{name}{k}" for name in ("scale", "bias", "mean", "var")]
        nodes += [
            helper.make_node("Conv", [before, f"w{k}"], [f"a{k}"], f"slide{k}", **fields),
            helper.make_node("BatchNormalization", [f"a{k}", *running], [f"b{k}"], f"norm{k}"),
            helper.make_node("Relu", [f"b{k}"], [f"c{k}"], f"relu{k}"),
        ]
        before, channels = f"c{k}", wide
    nodes.append(helper.make_node("ReduceSumSquare", [before], ["loss"], "square", keepdims=0))
    return model(nodes, {"x": [*shape]}, {"loss": []}, weights, dtype)


@pytest.fixture(autouse=True)
def _all_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tensors of tests count as larger than the caches."""
    for where, name in ((slice_convolutions, "LARGE"), (totals, "LARGE"), (c, "PAST_CACHES"), (c, "FAR_BYTES")):
        monkeypatch.setattr(where, name, 1)


@pytest.mark.parametrize("cc", hosts(), ids=lambda cc: cc.kind)
@pytest.mark.parametrize("images", [1, 3])
@pytest.mark.parametrize("name", NETWORKS)
def test_steps_are_those_of_the_definition(name: str, images: int, cc: Host, tmp_path: Path) -> None:
    """Whatever the number of threads: states have the same bits."""
    shape = (images, 6, *((8, 12) if name == "whole vectors" else (9, 7)))
    step = write_step(tmp_path, STEP)
    torshc.compile(network(NETWORKS[name], shape, np.float32), tmp_path / "m.tsc", train=step, cc=cc.name)
    x = np.random.default_rng(2).standard_normal(shape) + 3
    found = []
    for threads in (1, 2):
        with torshc.load(tmp_path / "m.tsc", threads=threads) as trained:
            trained.step({"x": x.astype(np.float32)})
            found.append(trained.state_dict())
    reference = Steps(network(NETWORKS[name], shape, np.float64), step, {"x": x.shape})
    reference(x=x)
    for key, wanted in reference.states.items():
        if key.startswith("torshc."):
            continue
        np.testing.assert_array_equal(found[0][key], found[1][key], err_msg=key)
        # Some hundred roundings of 6e-8 along the way; gradients are differences that lose another digit.
        np.testing.assert_allclose(found[0][key], wanted, rtol=0, atol=1e-4 * np.abs(wanted).max(), err_msg=key)


@pytest.mark.parametrize("name", NETWORKS)
def test_kernels_add_up_what_they_store(name: str, tmp_path: Path) -> None:
    """No kernel reads a result of theirs again for sums over its pixels, but of those that cannot add up."""
    model_file = network(NETWORKS[name], (3, 6, 8, 12), np.float32)
    units = prepare(model_file, CompileOptions(train=write_step(tmp_path, STEP))).units
    kernels = [k for u in units for k in u.kernels]
    adding = sum(bool(k.adds_up) for k in kernels if isinstance(k, HeavyKernel))
    maps = [k for k in kernels if isinstance(k, MapKernel)]
    spread = sum(any(s.buffer in buffers_read(s.value) for s in k.stores) for k in maps)
    assert (adding, spread) == {
        "products": (5, 0), "depthwise": (6, 1), "whole vectors": (6, 1), "others": (2, 0),
    }[name]  # fmt: skip
