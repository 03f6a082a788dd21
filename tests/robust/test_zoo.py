"""The specimens against onnx's reference evaluator, without a byte written beside an output."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import torshc

from ..support.slow import some_pairs
from ..support.zoo import Array, Specimen, zoo

ZOO = zoo()
GUARD = 256


def guarded_run(model: torshc.Model, feeds: dict[str, Array]) -> dict[str, Array]:
    """Outputs, written between guards; inputs end where others begin, and are not written to."""
    plain = model.run(feeds)
    kept = {n: a.copy() for n, a in feeds.items()}
    raw = {n: np.full(a.nbytes + 2 * GUARD, 0xAB, np.uint8) for n, a in plain.items()}
    out = {n: raw[n][GUARD : GUARD + a.nbytes].view(a.dtype).reshape(a.shape) for n, a in plain.items()}
    model.run(feeds, out=out)
    for name, a in plain.items():
        assert out[name].tobytes() == a.tobytes(), f"{name}: a second run gives other bytes"
        assert (raw[name][:GUARD] == 0xAB).all() and (raw[name][GUARD + a.nbytes :] == 0xAB).all(), name
    for name, a in feeds.items():
        assert a.tobytes() == kept[name].tobytes(), f"input {name} was written to"
    return plain


def agrees(got: dict[str, Array], specimen: Specimen, feeds: dict[str, Array]) -> None:
    with np.errstate(all="ignore"):
        wanted = ReferenceEvaluator(specimen.model).run(None, feeds)
    for (name, a), b in zip(got.items(), map(np.asarray, wanted), strict=True):
        assert a.shape == b.shape and a.dtype == b.dtype, name
        finite = np.abs(b[np.isfinite(b)]) if b.dtype.kind == "f" else np.zeros(1)
        rtol = specimen.rtol
        np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol * float(finite.max(initial=0)), err_msg=name)


OPTIONS: dict[str, dict[str, Any]] = {
    "O0": {"opt_level": 0},
    "O3": {"opt_level": 3},
    "small groups": {"opt_level": 3, "max_fusion_size": 2},
    "large groups": {"opt_level": 3, "fusion": "aggressive"},
}


@pytest.mark.parametrize(("name", "how"), some_pairs(ZOO, ["O3", "O0", "small groups", "large groups"], 4))
def test_agrees_with_the_reference(name: str, how: str, tmp_path: Path) -> None:
    specimen = ZOO[name]
    onnx.save(specimen.model, tmp_path / "m.onnx")
    torshc.compile(tmp_path / "m.onnx", tmp_path / "m.tsc", **OPTIONS[how])
    with torshc.load(tmp_path / "m.tsc", threads=2) as model:
        for k in range(len(specimen.shapes)):
            feeds = specimen.feeds(k)
            agrees(guarded_run(model, feeds), specimen, feeds)
