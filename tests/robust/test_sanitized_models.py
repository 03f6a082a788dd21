"""Models with the sanitizers: what runs is compared, and what a sanitizer finds ends one of them alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

import torshc
from tests.conformance import sanitized
from tests.support import sanitize

from . import sanitized_models
from .sanitized_models import Tally, built_graph, built_model, checked, outcomes

SAMPLE = Path(__file__).resolve().parents[2] / "samples" / "digits.onnx"


@pytest.fixture(scope="module", autouse=True)
def _compiler() -> None:
    if sanitize.usable() is None:
        pytest.skip("no compiler with the sanitizers' runtime is here")


def test_models_and_graphs() -> None:
    tally = checked([(built_model, SAMPLE), (built_graph, 2)])
    assert str(tally).startswith("2 compiled, 2 right in ") and str(tally).endswith("0 findings of the sanitizers")
    assert tally.runs >= 2 and not tally.bad, tally.lines


def test_a_finding_ends_one_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two that run, one whose kernels read past their inputs, and one whose answers are not the reference's."""
    monkeypatch.setattr(sanitized_models, "FAILURES", tmp_path / "kept")
    text = '<ir_version: 8, opset_import: ["" : 18]> d (float[2,9] x) => (float[2,9] y) { y = Softmax(x) }'
    onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    good = built_model(tmp_path / "m.onnx", sanitized.compiler(), tmp_path)
    bad = replace(good, name="bad", folder=tmp_path / "bad.tsc")
    torshc.compile(tmp_path / "m.onnx", bad.folder, keep_intermediates=True)
    found = sanitize.usable()
    assert found is not None
    for kernel in (bad.folder / "src").glob("k*.c"):
        kernel.write_text(kernel.read_text().replace("(b0 + ", "(b0 + 1 + "))
    sanitize.rebuild(bad.folder, tmp_path / "work", found[0])
    wrong = replace(good, judge=lambda _, got: "" if got["y"].sum() == 0 else "it is another")
    absent = replace(good, name="absent", folder=tmp_path / "absent.tsc")
    done = outcomes([good, bad, wrong, absent, good], tmp_path)
    assert [o.kind for o in done] == ["fine", "finding", "wrong answer", "died", "fine"]
    assert "AddressSanitizer: heap-" in done[1].cause
    tally = Tally()
    for b, outcome in zip((good, bad, wrong, absent, good), done, strict=True):
        tally.note(b.name, outcome)
    assert tally.bad == 3 and str(tally).endswith("1 findings of the sanitizers")
    kept = sanitized_models.keep(bad, done[1])
    assert kept.read_bytes() == (tmp_path / "m.onnx").read_bytes()
    np.testing.assert_array_equal(np.load(kept.with_name("m-0.npz"))["x"], bad.feeds[0]["x"])
