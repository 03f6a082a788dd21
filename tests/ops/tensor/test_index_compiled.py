"""Operators that go where other tensors say, compiled: among others that fuse with them, and with hostile places."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import torshc
from tests.support import sanitize
from tests.support.compare import assert_close, compiled, reference
from tests.support.evaluate import Array
from tests.support.models import model, save
from tests.support.nodes import F32, I64, numbers
from torshc.base.options import CompileOptions
from torshc.formats import load_graph
from torshc.pipeline.compiler import compile_model, prepare

node = helper.make_node


MIXED = [
    node("Relu", ["x"], ["a"]),
    node("Softmax", ["a"], ["soft"], axis=-1),
    node("TopK", ["soft", "k"], ["best", "places"], axis=-1),
    node("Mul", ["best", "two"], ["y_topk"]),
    node("ScatterElements", ["a", "columns", "update"], ["scattered"], axis=1),
    node("Sigmoid", ["scattered"], ["y_elements"]),
    node("ScatterND", ["a", "rows", "row_updates"], ["summed"], reduction="add"),
    node("Exp", ["summed"], ["y_nd"]),
    node("Tanh", ["grid"], ["curved"]),
    node("Abs", ["image"], ["positive"]),
    node("GridSample", ["positive", "curved"], ["sampled"], mode="linear"),
    node("Neg", ["sampled"], ["y_grid"]),
    node("QuantizeLinear", ["x", "scale", "zero"], ["q"]),
    node("DequantizeLinear", ["q", "scale", "zero"], ["dq"]),
    node("Add", ["dq", "a"], ["y_rounded"]),
    node("DynamicQuantizeLinear", ["x"], ["dynamic", "size", "centre"]),
    node("MatMulInteger", ["dynamic", "weights", "centre"], ["product"]),
    node("Cast", ["product"], ["wide"], to=TensorProto.FLOAT),
    node("Mul", ["wide", "size"], ["y_product"]),
    node("MaxPool", ["positive"], ["pooled", "where"], kernel_shape=[2, 2], strides=[2, 2]),
    node("Mul", ["pooled", "two"], ["doubled"]),
    node("MaxUnpool", ["doubled", "where"], ["unpooled"], kernel_shape=[2, 2], strides=[2, 2]),
    node("Add", ["unpooled", "two"], ["y_unpooled"]),
    node("Resize", ["image", "", "scales"], ["small"], mode="cubic", antialias=1),
    node("Relu", ["small"], ["y_small"]),
]


def mixed() -> tuple[onnx.ModelProto, dict[str, Array]]:
    rng = np.random.default_rng(0)
    feeds = {"x": numbers(6, 16), "grid": numbers(1, 5, 7, 2), "image": numbers(1, 3, 8, 10)}
    weights = {
        "k": np.array([3], I64), "two": np.asarray(2, F32), "update": numbers(6, 4), "row_updates": numbers(5, 16),
        "columns": np.argsort(rng.random((6, 16)), axis=1)[:, :4], "rows": rng.integers(0, 6, (5, 1)),
        "scale": np.asarray(0.02, F32), "zero": np.asarray(100, np.uint8), "scales": np.array([1, 1, 0.5, 0.4], F32),
        "weights": rng.integers(0, 255, (16, 9)).astype(np.uint8),
    }  # fmt: skip
    return model(MIXED, feeds, weights=weights), feeds


@pytest.mark.parametrize("options", [{"opt_level": 3, "fusion": "aggressive"}, {"opt_level": 0}])
def test_among_others(options: dict[str, Any], tmp_path: Path) -> None:
    made, feeds = mixed()
    got = compiled(made, feeds, tmp_path, threads=2, jobs=1, **options)
    assert_close(got.values(), reference(made, feeds), rtol=1e-4, atol=1e-5)


HOSTILE = [
    node("ScatterElements", ["x", "places", "u"], ["y_elements"], axis=1),
    node("ScatterND", ["x", "pairs", "v"], ["y_nd"], reduction="max"),
    node("GridSample", ["image", "grid"], ["y_zeros"], padding_mode="zeros", mode="cubic"),
    node("GridSample", ["image", "grid"], ["y_border"], padding_mode="border", mode="nearest"),
    node("GridSample", ["image", "grid"], ["y_reflection"], padding_mode="reflection", align_corners=1),
    node("RoiAlign", ["image", "rois", "batches"], ["y_rois"], output_height=2, output_width=2, sampling_ratio=2),
    node("MaxUnpool", ["image", "where"], ["y_unpooled"], kernel_shape=[2, 2], strides=[2, 2]),
    node("DeformConv", ["image", "w", "offset"], ["y_deformed"]),
    node("TopK", ["grid", "k"], ["y_values", "y_places"], axis=1),
    node("ScatterElements", ["x", "few", "few_u"], ["y_few"], axis=1),
    node("ScatterElements", ["x", "few", "few_u"], ["y_added"], axis=0, reduction="add"),
    node("MaxPool", ["image"], ["y_pool", "y_where"], kernel_shape=[3, 2], pads=[2, 1, 1, 1], strides=[2, 1]),
    node("Col2Im", ["columns", "sizes", "block"], ["y_image"], pads=[1, 0, 1, 1], strides=[2, 1]),
    node("TfIdfVectorizer", ["pairs"], ["y_counts"], mode="TF", max_skip_count=4, min_gram_length=1, max_gram_length=3,
         pool_int64s=[0, 7, -1, 3, 0, 7, 3], ngram_counts=[0, 2, 4], ngram_indexes=[0, 1, 2, 3]),
    node("Resize", ["image", "roi", "", "target"], ["y_crop"], mode="cubic", exclude_outside=1,
         coordinate_transformation_mode="tf_crop_and_resize"),
]  # fmt: skip


def test_hostile_places_are_harmless(tmp_path: Path) -> None:
    """Indices out of any range and coordinates that are not numbers: nothing is read or written out of bounds."""
    found = sanitize.usable()
    if found is None:
        pytest.skip("no compiler with the sanitizers' runtime is here")
    far = np.array([-(2**63), 2**63 - 1, -1, 2**40, 0, 7, -8, 3], I64)
    wild = np.array([np.nan, np.inf, -np.inf, 1e30, -1e30, 3e9, 0, 1], F32)
    feeds = {
        "x": numbers(4, 8), "u": numbers(4, 8), "v": numbers(8), "places": np.tile(far, (4, 1)),
        "pairs": np.stack([far, far[::-1]], 1), "image": numbers(1, 2, 4, 4), "grid": np.resize(wild, (1, 5, 3, 2)),
        "rois": wild.reshape(2, 4), "batches": far[:2], "where": np.resize(far, (1, 2, 4, 4)),
        "w": numbers(1, 2, 2, 2), "offset": np.resize(wild, (1, 8, 3, 3)), "few": far.reshape(2, 4),
        "few_u": numbers(2, 4), "columns": numbers(1, 12, 12),
    }  # fmt: skip
    fixed = {
        "k": np.array([2], I64), "sizes": np.array([5, 4], I64), "block": np.array([3, 2], I64),
        "roi": np.array([0, 0, -1, -1, 1, 1, 2, 2], F32), "target": np.array([1, 2, 7, 5], I64),
    }  # fmt: skip
    save(model(HOSTILE, feeds, weights=fixed), tmp_path)
    bundle = tmp_path / "m.tsc"
    graph = load_graph(tmp_path / "m.onnx")
    graph.drop_demands()  # as for targets that cannot refuse a run in its midst
    compile_model(graph, bundle, CompileOptions(keep_intermediates=True))
    with torshc.load(bundle) as compiled:
        plain = compiled.run(feeds)
    sanitize.rebuild(bundle, tmp_path / "work", found[0])
    (results,) = sanitize.run(bundle, [feeds], tmp_path, found[1])
    # Where a coordinate has no fraction left, which pixel its reflection meets is a matter of rounding.
    vague = np.any(np.isfinite(feeds["grid"]) & (abs(feeds["grid"]) > 2**24), -1)[:, None]
    for got, (name, wanted) in zip(results, plain.items(), strict=True):
        unlike = vague if name == "y_reflection" else False
        np.testing.assert_allclose(np.where(unlike, 0, got), np.where(unlike, 0, wanted), rtol=1e-4, atol=1e-5)


def test_places_that_are_bounded_are_plain_sums(tmp_path: Path) -> None:
    """What a select or a bound does not limit wraps; what was moved into a dimension needs no detour."""
    inputs = {"x": numbers(300, 24), "i": np.zeros((5, 7), I64)}
    save(model([node("Gather", ["x", "i"], ["y"])], inputs), tmp_path)
    sources = "".join(prepare(tmp_path / "m.onnx", CompileOptions(mcpu="x86-64-v3")).sources.values())
    assert "+ 24 * t_imax(0, t_imin(299, " in sources and "(uint64_t)v0 + (uint64_t)300" in sources
