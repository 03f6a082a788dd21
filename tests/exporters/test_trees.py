"""Tree ensembles as their libraries' converters write them, against ONNX Runtime: ``make exporters``."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import torshc
from tests.emulation.emulated import emulated_tools
from tests.support.seeded import seeded
from tests.support.slow import SLOW

onnxruntime = pytest.importorskip("onnxruntime")
onnxmltools = pytest.importorskip("onnxmltools", reason="the extra `exporters` is not installed")
LIBRARIES = {"xgboost": "XGB", "lightgbm": "LGBM"}
_COMPILE_ALL = """
import sys
from hashlib import sha256
from pathlib import Path
import torshc
folder = Path(sys.argv[1])
for path in sorted(folder.glob("*.onnx")):
    torshc.compile(path, folder / "m.tsc")
    print(path.stem, sha256((folder / "m.tsc" / "libmodel.so").read_bytes()).hexdigest())
"""
RNG = seeded(0)
X = RNG.normal(size=(300, 10)).astype(np.float32)
LABELS: dict[str, Any] = {
    "two classes": X[:, 0] * X[:, 1] + X[:, 2] > 0,
    "three classes": np.digitize(X[:, 0] + X[:, 4], [-0.5, 0.6]),
    "regression": X[:, 0] * 2 + np.sin(X[:, 3]),
}
SIZES = {"few": {"n_estimators": 4, "max_depth": 3}, "many": {"n_estimators": 60, "max_depth": 6}}


def converted(library: str, task: str, size: str) -> onnx.ModelProto:
    trained = pytest.importorskip(library, reason="the extra `exporters` is not installed")
    from onnxmltools.convert.common.data_types import FloatTensorType

    kind = "Regressor" if task == "regression" else "Classifier"
    quiet = {"verbose": -1} if library == "lightgbm" else {}
    fitted = getattr(trained, LIBRARIES[library] + kind)(random_state=1, n_jobs=1, **SIZES[size], **quiet)
    fitted.fit(X, LABELS[task] if kind == "Regressor" else LABELS[task].astype(int))
    plain = {"zipmap": False} if (library, kind) == ("lightgbm", "Classifier") else {}
    types = [("x", FloatTensorType([None, 10]))]
    return getattr(onnxmltools, f"convert_{library}")(fitted, initial_types=types, **plain)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("task", LABELS)
@pytest.mark.parametrize("library", LIBRARIES)
def test_as_onnx_runtime(library: str, task: str, size: str, tmp_path: Path) -> None:
    made = converted(library, task, size)
    onnx.save(made, tmp_path / "m.onnx")
    rows = X[:37].copy()
    rows[3, 1] = np.nan  # a missing value
    session = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    wanted = dict(zip(names, session.run(None, {"x": rows}), strict=True))
    for target in ("c", "cuda") if size == "few" else ("c",):
        with emulated_tools():
            torshc.compile(tmp_path / "m.onnx", tmp_path / f"{target}.tsc", target=target)
            with torshc.load(tmp_path / f"{target}.tsc") as model:
                got = model.run({"x": rows})
        for name in names:
            # Sums of up to 60 leaves in another order: some units in the last place of f32, of sums of about 1 here.
            np.testing.assert_allclose(got[name], np.asarray(wanted[name]), rtol=2e-6, atol=2e-6, err_msg=name)


def test_isolation_forest(tmp_path: Path) -> None:
    """Written as an ensemble for each tree, with a formula behind it: one launch."""
    ensemble = pytest.importorskip("sklearn.ensemble", reason="the extra `exporters` is not installed")
    skl2onnx = pytest.importorskip("skl2onnx", reason="the extra `exporters` is not installed")
    fitted = ensemble.IsolationForest(n_estimators=5, max_samples=32, random_state=0).fit(X)
    made = skl2onnx.to_onnx(fitted, X[:1], target_opset={"": 17, "ai.onnx.ml": 3})
    session = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    onnx.save(made, tmp_path / "m.onnx")
    torshc.compile(tmp_path / "m.onnx", tmp_path / "m.tsc", profile=True)
    with torshc.load(tmp_path / "m.tsc") as model:
        got = model.run({"X": X})
        assert [step.template for step in model.stats().steps] == ["trees.c.j2"]
    label, scores = session.run(None, {"X": X})
    np.testing.assert_array_equal(got["label"], label)
    # A sum of depths, and a power of it: some units in the last place of f32, of scores below 1.
    np.testing.assert_allclose(got["scores"], scores, atol=1e-6)


@pytest.mark.parametrize("seeds", [2, pytest.param(20, marks=SLOW)])
def test_one_library_for_all_hash_seeds(seeds: int, tmp_path: Path) -> None:
    for k, case in enumerate(product(LIBRARIES, LABELS, SIZES)):
        onnx.save(converted(*case), tmp_path / f"{k}.onnx")
    found = set()
    for seed in range(seeds):
        command = [sys.executable, "-c", _COMPILE_ALL, str(tmp_path)]
        env = {**os.environ, "PYTHONHASHSEED": str(seed), "PYTHONPATH": os.pathsep.join(sys.path)}
        found.add(subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout)
    assert len(found) == 1
    (listing,) = found
    assert len(listing.splitlines()) == len(LIBRARIES) * len(LABELS) * len(SIZES)
