"""Sources do not depend on the order of sets: each of 20 hash seeds (3 by default) gives the same."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.support.models import model, node
from tests.support.slow import SLOW

_RUN = """
import sys
from hashlib import sha256
from pathlib import Path
from torshc.pipeline.compiler import prepare
from torshc.base.options import CompileOptions
for path in sorted(Path(sys.argv[1]).rglob("*.onnx")):
    for target in path.parent.name.split("-"):
        made = prepare(path, CompileOptions(target=target))
        text = "".join(f"{name}{source}" for name, source in made.sources.items())
        print(path.stem, target, sha256(text.encode()).hexdigest())
"""


def tree_regressor(trees: int, depth: int) -> onnx.ModelProto:
    """Whole binary trees, with the tables that exporters of XGBoost and LightGBM write."""
    inner, total = 2**depth - 1, 2 ** (depth + 1) - 1
    rng = np.random.default_rng(depth)
    every = [(t, n) for t in range(trees) for n in range(total)]
    leaves = [(t, n) for t, n in every if n >= inner]
    made = helper.make_node(
        "TreeEnsembleRegressor",
        ["x"],
        ["y"],
        domain="ai.onnx.ml",
        n_targets=1,
        nodes_treeids=[t for t, _ in every],
        nodes_nodeids=[n for _, n in every],
        nodes_featureids=[int(rng.integers(10)) if n < inner else 0 for _, n in every],
        nodes_values=[float(rng.normal()) if n < inner else 0.0 for _, n in every],
        nodes_modes=["BRANCH_LT" if n < inner else "LEAF" for _, n in every],
        nodes_truenodeids=[2 * n + 1 if n < inner else 0 for _, n in every],
        nodes_falsenodeids=[2 * n + 2 if n < inner else 0 for _, n in every],
        nodes_missing_value_tracks_true=[n % 2 for _, n in every],
        target_treeids=[t for t, _ in leaves],
        target_nodeids=[n for _, n in leaves],
        target_ids=[0] * len(leaves),
        target_weights=[float(rng.normal()) for _ in leaves],
    )
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 10])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 1])
    graph = helper.make_graph([made], "trees", [x], [y])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def models() -> dict[str, onnx.ModelProto]:
    one, half, wide = np.array([1]), np.array(0.5, np.float32), np.linspace(-1, 1, 12, dtype=np.float32)
    buckets = [
        node("Unsqueeze", "x one", "x1"),
        node("Greater", "x1 bounds", "over"),
        node("Cast", "over", "count", to=TensorProto.FLOAT),
        node("ReduceSum", "count one", "y", keepdims=0),
    ]
    shapes = [
        node("Shape", "x", "s"),
        node("Gather", "s zero", "batch"),
        node("Mul", "batch two", "doubled"),
        node("Concat", "doubled minus", "to", axis=0),
        node("Reshape", "x to", "r"),
        node("Transpose", "r", "t", perm=[1, 0]),
        node("Softmax", "t", "y", axis=1),
    ]
    mixed = [
        node("TopK", "x k", "top places", axis=1),
        node("Less", "top half", "small"),
        node("Where", "small top half", "y"),
        node("MatMul", "top w", "m"),
        node("Tanh", "m", "n"),
    ]
    return {
        "few trees": tree_regressor(3, 2),
        "many trees": tree_regressor(20, 5),
        "buckets": model(buckets, {"x": ("n",)}, ["y"], {"one": one, "bounds": wide}),
        "shapes": model(
            shapes, {"x": ("n", 6)}, ["y"], {"zero": np.array([0]), "two": np.array([2]), "minus": np.array([-1])}
        ),
        "largest": model(
            mixed,
            {"x": ("n", 9)},
            ["y", "places", "n"],
            {"k": np.array([3]), "half": half, "w": np.eye(3, 40, dtype=np.float32)},
        ),
    }


def host_models() -> dict[str, onnx.ModelProto]:
    """What the host has a part in, which devices refuse."""
    found = [
        node("Less", "x half", "small"),
        node("NonZero", "small", "at"),
        node("Transpose", "at", "rows", perm=[1, 0]),
        node("GatherND", "x rows", "picked"),
        node("TopK", "x k", "top places", axis=1),
        node("Unsqueeze", "picked one", "p1"),
        node("Greater", "p1 bounds", "over"),
        node("Cast", "over", "count", to=TensorProto.FLOAT),
        node("ReduceSum", "count one", "buckets", keepdims=0),
    ]
    weights = {
        "half": np.array(0.5, np.float32), "k": np.array([2]), "one": np.array([1]),
        "bounds": np.linspace(-1, 1, 12, dtype=np.float32),
    }  # fmt: skip
    return {"found": model(found, {"x": ("n", 7)}, ["buckets", "top", "places"], weights)}


@pytest.mark.parametrize("seeds", [2, pytest.param(20, marks=SLOW)])
def test_sources_are_equal_under_all_seeds(
    seeds: int, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """One process for each seed compiles all models."""
    for folder, made in (("c-cuda", models()), ("c", host_models())):
        (tmp_path / folder).mkdir()
        for name, proto in made.items():
            onnx.save(proto, tmp_path / folder / f"{name.replace(' ', '_')}.onnx")
    found: dict[str, list[int]] = {}
    for seed in range(seeds):
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONHASHSEED": str(seed)}
        command = [sys.executable, "-c", _RUN, str(tmp_path)]
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, f"seed {seed}: {done.stderr[-3000:]}"
        found.setdefault(done.stdout, []).append(seed)
    assert len(found) == 1, "\n".join(f"seeds {alike}:\n{text}" for text, alike in found.items())
    each = len(next(iter(found)).splitlines())
    assert each == 2 * len(models()) + len(host_models())
    record_property("rebuilds", seeds * each)
