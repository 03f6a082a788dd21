"""Kernels of the gradients of convolutions' weights, beside their definition by NumPy in f64."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from onnx import helper

import torshc
from tests.support.compilers import needed
from tests.training.networks import Array, Steps, model, write_step
from torshc.base.options import CompileOptions
from torshc.pipeline.compiler import prepare
from torshc.targets.cpu.conv_weights import tile_of, turns

STEP = "weights: '*'\nloss: {output: loss}\noptimizer: {momentum: {learning_rate: 0.1}}\n"
# channels in and out, groups, kernel, stride, dilation, margin; rows of tiles and vectors of columns are left over
Case = tuple[int, int, int, int, int, int, int]
DEPTHWISE: list[Case] = [
    (11, 11, 11, 3, 1, 1, 1), (24, 24, 24, 5, 1, 1, 2), (40, 40, 40, 3, 1, 1, 1),
    (16, 16, 16, 3, 2, 1, 1), (9, 9, 9, 3, 1, 1, 4),
]  # fmt: skip
OTHERS: list[Case] = [
    (11, 5, 1, 3, 1, 2, 2), (33, 25, 1, 1, 1, 1, 0), (8, 8, 2, 3, 1, 1, 1), (3, 17, 1, 3, 2, 1, 1),
    (8, 7, 1, 1, 2, 1, 0),
]  # fmt: skip


def convolutions(cases: Sequence[Case], dtype: type) -> bytes:
    """The sum of each convolution's result, squared, of the same pictures widened to its channels."""
    rng, weights, nodes = np.random.default_rng(1), dict[str, Array](), []
    for k, (i, o, group, size, stride, dilation, pad) in enumerate(cases):
        weights |= {
            f"wide{k}": rng.standard_normal((i, 2, 1, 1)),
            f"w{k}": rng.standard_normal((o, i // group, size, size)),
        }
        shape = {"group": group, "strides": [stride] * 2, "dilations": [dilation] * 2, "pads": [pad] * 4}
        nodes += [
            helper.make_node("Conv", ["x", f"wide{k}"], [f"a{k}"], f"widen{k}"),
            helper.make_node("Conv", [f"a{k}", f"w{k}"], [f"b{k}"], f"slide{k}", **shape),
            helper.make_node("ReduceSumSquare", [f"b{k}"], [f"c{k}"], f"square{k}", keepdims=0),
        ]
    nodes.append(helper.make_node("Sum", [f"c{k}" for k in range(len(cases))], ["loss"], "all"))
    return model(nodes, {"x": ["n", 2, 7, 6]}, {"loss": []}, weights, dtype)


@pytest.mark.parametrize(
    ("rows", "columns", "lanes", "tile"),
    [(96, 16, 16, (24, 1)), (16, 96, 16, (8, 3)), (36, 24, 16, (12, 2)), (33, 5, 8, (11, 1)), (9, 40, 8, (5, 2))],
)
def test_tiles_have_as_many_sums_as_there_are_registers(
    rows: int, columns: int, lanes: int, tile: tuple[int, int]
) -> None:
    """And the operand that fills vectors gives the columns, as a row costs a load for each of its sums."""
    assert tile_of(rows, columns, lanes) == tile
    assert turns(columns, rows, lanes) == (columns in (5, 16)) and not turns(160, 960, lanes)


@pytest.mark.parametrize("part", [slice(2), slice(2, None)], ids=["some", "rest"])
def test_gradients_of_weights_are_those_of_the_definition(part: slice, tmp_path: Path) -> None:
    needed()
    cases = [*DEPTHWISE[part], *OTHERS[part]]
    one = convolutions(cases, np.float32)
    step = write_step(tmp_path, STEP)
    kinds = [k.kind for u in prepare(one, CompileOptions(train=step)).units for k in u.kernels]
    # Those that widen have two channels and are the rows of tiles; a convolution in two groups is taken apart.
    depthwise, groups = len(DEPTHWISE[part]), sum(c[2] == 2 for c in cases)
    assert kinds.count("depthwise_weights") == depthwise
    assert kinds.count("conv_weights") == 2 * len(cases) - depthwise - groups
    assert kinds.count("depthwise") >= depthwise
    torshc.compile(one, tmp_path / "m.tsc", train=step)
    x = np.random.default_rng(2).standard_normal((3, 2, 7, 6))
    with torshc.load(tmp_path / "m.tsc", threads=2) as trained:
        trained.step({"x": x.astype(np.float32)})
        found = trained.state_dict()
    reference = Steps(convolutions(cases, np.float64), step, {"x": x.shape})
    reference(x=x)
    for name, g in reference.states.items():
        if name.startswith("torshc.momentum/"):
            # Two hundred products of f32 a sum, of roundings of 6e-8 each, and what went into them is as far off.
            np.testing.assert_allclose(found[name], g, rtol=1e-4, atol=1e-5 * abs(g).max(), err_msg=name)
