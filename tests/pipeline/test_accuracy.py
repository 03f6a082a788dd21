from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import torshc
from torshc.base.errors import ConfigError
from torshc.base.options import CompileOptions
from torshc.explain import explain, group_text, to_text
from torshc.pipeline import accuracy
from torshc.pipeline.accuracy import MEAN, slack_of
from torshc.pipeline.compilation import Compilation
from torshc.pipeline.compiler import prepare
from torshc.pipeline.tolerance import UNIT, relative_tolerance

from ..support.kernels import random
from ..support.models import model, node

MCPU = "x86-64-v3"  # plans are looked at, not run


def stack(
    channels: list[int], size: int | str = 20, relu: bool = True, images: int | str = 1, seed: int = 0
) -> onnx.ModelProto:
    """3x3 convolutions behind each other, each with a bias and most with a Relu."""
    rng = np.random.default_rng(seed)
    nodes, weights, last = [], [], "x"
    for k, (before, after) in enumerate(pairwise(channels)):
        w = random(rng, (after, before, 3, 3)) * np.float32((2 / (9 * before)) ** 0.5)
        weights += [numpy_helper.from_array(w, f"w{k}"), numpy_helper.from_array(random(rng, (after,)) / 10, f"b{k}")]
        nodes.append(helper.make_node("Conv", [last, f"w{k}", f"b{k}"], [f"c{k}"], f"conv{k}", pads=[1] * 4))
        nodes.append(helper.make_node("Relu" if relu else "Identity", [f"c{k}"], [f"r{k}"]))
        last = f"r{k}"
    entry = helper.make_tensor_value_info("x", TensorProto.FLOAT, [images, channels[0], size, size])
    exit_ = helper.make_tensor_value_info(last, TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "stack", [entry], [exit_], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def planned(model: onnx.ModelProto, **options: object) -> Compilation:
    return prepare(model.SerializeToString(), CompileOptions.create(mcpu=MCPU, **options))


def methods(done: Compilation) -> list[str]:
    """How each convolution is computed."""
    found = zip(done.units, done.accuracy.groups, strict=True)
    return [error.method for unit, error in found if unit.group.anchor is not None]


F4 = "winograd F(4x4, 3x3)"


def test_the_level_decides() -> None:
    model = stack([16, 32, 32])
    assert methods(planned(model)) == [F4, F4]
    assert methods(planned(model, accuracy="rounding")) == ["rounding"] * 2
    assert methods(planned(model, accuracy="exact")) == ["exact"] * 2
    for level in range(3):
        assert methods(planned(model, opt_level=level, accuracy="1e-2")) == ["exact"] * 2
    assert methods(planned(model, named_weights=True)) == ["exact"] * 2


def test_only_a_run_knows_how_many_images_there_are() -> None:
    """A library has what is fastest for each number, and states the largest of their errors."""
    model = stack([16, 32], images="n")
    assert methods(planned(model)) == methods(planned(model, shapes={"x": (3, 16, 20, 20)})) == [F4]
    model = stack([256, 256], size=10, images="n")
    kinds = [k.kind for k in planned(model).units[1].kernels]
    assert kinds == ["winograd_inputs", "gemm", "winograd_outputs"] * 2 + ["winograd"]
    assert methods(planned(model)) == [F4]
    assert methods(planned(model, shapes={"x": (1, 256, 10, 10)})) == ["rounding"]


def test_pictures_of_a_size_that_only_a_run_knows_are_summed_plainly() -> None:
    assert methods(planned(stack([16, 32], size="h"))) == ["exact"]


def test_convolutions_share_what_is_allowed() -> None:
    """F(4) of 256 channels has 6,130 roundings. A budget of 1e-5 is one of 159,000, with 2,304 a plain sum."""
    assert methods(planned(stack([256] * 11), accuracy="1e-5")) == [F4] * 10
    assert methods(planned(stack([256] * 23), accuracy="1e-5")) == ["rounding"] * 22
    assert methods(planned(stack([256] * 23))) == [F4] * 22


@pytest.mark.parametrize(("terms", "expected"), [(256, 638265 - 256), (2**20, 2**16)])
def test_what_long_sums_leave(monkeypatch: pytest.MonkeyPatch, terms: int, expected: int) -> None:
    """On a device all of -O3's budget of 2e-5, which is 638,265 roundings, and of more a sixteenth.

    On C nothing, or what is left where there are convolutions to have it.
    """
    entry = helper.make_tensor_value_info("x", TensorProto.FLOAT, [terms])
    exit_ = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    node = helper.make_node("ReduceSum", ["x"], ["y"], keepdims=0)
    graph = helper.make_graph([node], "sum", [entry], [exit_])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 12)], ir_version=8)
    done = planned(model)
    assert slack_of([done.graph], done.options, frozenset(), on_device=True) == expected
    assert slack_of([done.graph], done.options, frozenset()) == 0
    monkeypatch.setattr(accuracy, "_is_3x3", lambda _: True)
    assert slack_of([done.graph], done.options, frozenset()) == max(638265 - terms, 0)


def test_the_stated_errors_add_up() -> None:
    done = planned(stack([32] * 5))
    each = [e.expected for e in done.accuracy.groups if e.method == F4]
    assert len(each) == 4 and sum(e * e for e in each) ** 0.5 == pytest.approx(done.accuracy.expected, rel=0.01)
    n = done.tolerances[0].roundings["f32"]
    assert done.accuracy.expected == pytest.approx(MEAN * UNIT["f32"] * n**0.5)
    assert done.tolerances[0].relative == relative_tolerance({"f32": n})
    assert n > planned(stack([32] * 5), accuracy="exact").tolerances[0].roundings["f32"]


EXPLAINED = """\
Accuracy (errors relative to a result's largest element; exact: plain sums)
  computed               expected error   groups
  exact                  6.0e-07          0, 4-5
  winograd F(4x4, 3x3)   1.0e-06          1-3
  outputs     1.5e-06, with --accuracy 2e-5
"""


@pytest.mark.parametrize("relu", [True, False])
def test_stacks_keep_the_budget_against_double_precision(relu: bool, tmp_path: Path) -> None:
    """What is measured is at most what is expected, and that at most the budget."""
    for seed, channels in enumerate(([32] * 9, [16, 64, 128, 64, 32], [128] * 4)):
        model = stack(channels, 18, relu, seed=seed)
        compiled = torshc.compile(model, str(tmp_path / f"{seed}.tsc"))
        x = random(np.random.default_rng(seed), (1, channels[0], 18, 18))
        (found,) = torshc.load(str(tmp_path / f"{seed}.tsc")).run({"x": x}).values()
        expected = in_doubles(model, x, relu)
        off = np.abs(found - expected).max() / np.abs(expected).max()
        assert off <= 2 * compiled.accuracy.expected <= 2 * 2e-5  # the largest of many, twice the mean


def in_doubles(
    model: onnx.ModelProto, x: np.ndarray[tuple[int, ...], np.dtype[np.float32]], relu: bool
) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    arrays = {i.name: numpy_helper.to_array(i).astype(np.float64) for i in model.graph.initializer}
    y = x.astype(np.float64)
    for k in range(len(arrays) // 2):
        size, w = y.shape[-1], arrays[f"w{k}"]
        wide = np.pad(y, [(0, 0), (0, 0), (1, 1), (1, 1)])
        y = arrays[f"b{k}"][:, None, None] + sum(
            np.tensordot(w[:, :, i, j], wide[0, :, i : i + size, j : j + size], 1) for i in range(3) for j in range(3)
        )
        y = np.maximum(y, 0)[None] if relu else y[None]
    return y


def test_an_accuracy_that_cannot_be_kept_names_kernels_and_what_they_need() -> None:
    model = stack([16] * 7)
    with pytest.raises(ConfigError) as caught:
        planned(model, precision="bf16", accuracy="1e-5")
    assert "--accuracy 1e-5 cannot be kept" in str(caught.value) and "'conv" in str(caught.value)
    assert "bf16 weights" in str(caught.value) and "3 others" in str(caught.value)
    assert caught.value.remedy == "give --accuracy 1e-2 or leave out --precision bf16"
    planned(model, precision="bf16", accuracy="1e-2")
    for level in ("exact", "rounding"):
        with pytest.raises(ConfigError, match=f"--accuracy {level} cannot be kept"):
            planned(model, precision="f16", accuracy=level)
    with pytest.raises(ConfigError, match="cannot be kept") as caught:
        planned(stack([64, 64]), weights_dtype="f8", accuracy="1e-3")
    assert "--weights-dtype f8" in str(caught.value.remedy)
    planned(model, precision="bf16")  # the usual level bounds what is chosen, and refuses nothing


@pytest.mark.parametrize(
    ("mcpu", "count", "rounded"), [("x86-64-v3", 1, "weights"), ("x86-64-v4+avx512bf16", 2, "factors")]
)
def test_a_rounded_factor_counts_once(mcpu: str, count: int, rounded: str) -> None:
    """Without instructions for bf16 weights alone are rounded."""
    done = prepare(stack([64, 64]).SerializeToString(), CompileOptions(mcpu=mcpu, precision="bf16", opt_level=2))
    (product,) = (e for u, e in zip(done.units, done.accuracy.groups, strict=True) if u.group.anchor is not None)
    for error in (product.expected, done.accuracy.expected):
        assert product.method == f"bf16 {rounded}" and error == pytest.approx(
            MEAN * UNIT["bf16"] * count**0.5, rel=1e-3
        )


def test_weights_that_have_scales_are_not_rounded() -> None:
    """Nor is what they are multiplied with: `--precision` leaves such products as they are."""
    weights = {"w": np.random.default_rng(0).integers(-90, 90, (512, 512), np.int8), "s": np.float32(0.01)}
    nodes = [node("DequantizeLinear", "w s", "d"), node("MatMul", "x d", "y")]
    made = model(nodes, {"x": ["n", 512]}, ["y"], weights)
    done = planned(made, precision="bf16")
    assert [(n.op.name, e.method) for n, e in zip(done.graph.nodes, done.accuracy.groups, strict=True)] == [
        ("BlockMatMul", "exact")
    ]


def test_the_explanation_says_how_groups_are_computed_beside_the_budget() -> None:
    text = to_text(explain(planned(stack([16, 16, 64, 64, 3]))))
    shown = text[text.index("Accuracy") : text.index("\nTotals")]
    assert shown == EXPLAINED
    assert "winograd F(4x4, 3x3), expected error 6.3e-07" in group_text(explain(planned(stack([16, 16]))), 1)
