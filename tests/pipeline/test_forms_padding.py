"""Variants that leave out rows of padding: runs with zeros in the mask take them, and answers are the same."""

from __future__ import annotations

import json
from ctypes import byref, c_size_t
from functools import partial
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import onnx
import pytest
from onnx import TensorProto

import torshc
from tests.support.compare import onnx_runtime
from tests.support.padded import encoder, feeds
from torshc.base.errors import ConfigError
from torshc.base.options import CompileOptions
from torshc.bundle.manifest import SCHEMA
from torshc.explain import explain, to_text
from torshc.pipeline.compiler import prepare
from torshc.workbench.reweigh import set_weights
from torshc.workbench.verify import verify_bundle

NO_WORKSPACE = 11  # TORSHC_E_WORKSPACE
# Numbers near 1 behind two products with sums of 8 terms, attention over at most 5 words and a norm: fewer than 100
# roundings of 6e-8 follow each other, which are 6e-6 together.
close = partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-5)
MASKS: dict[str, Any] = {
    "behind": [[1, 1, 1, 0], [1, 0, 0, 0], [1, 1, 1, 1]],
    "before": [[0, 0, 1, 1], [0, 1, 1, 1]],
    "between": [[1, 0, 1, 0, 1], [0, 1, 0, 0, 1]],
    "a sentence of padding": [[0, 0, 0], [1, 1, 0]],
    "nothing else": [[0, 0, 0], [0, 0, 0]],
    "one row": [[0, 1]],
}
WHOLE: dict[str, Any] = {
    "none": [[1, 1, 1], [1, 1, 1]],
    "no sentences": np.ones((0, 3)),
    "empty sentences": np.ones((2, 0)),
}


@pytest.mark.parametrize("tail", ["mean", "chosen"])
def test_runs_with_padding_compute_fewer_rows(tail: str, tmp_path: Path) -> None:
    made = encoder(tail)
    onnx.save(made, tmp_path / "m.onnx")
    torshc.compile(tmp_path / "m.onnx", tmp_path / "m.tsc", specialize=("mask=padded",))
    with torshc.load(tmp_path / "m.tsc") as found:
        for mask in (*MASKS.values(), *WHOLE.values()):
            given = feeds(mask)
            close(found.run(given)["y"], onnx_runtime(made, given)[0])
        runs = {form.sizes: form.runs for form in found.stats().forms}
        assert (runs["mask=padded"], runs[""]) == (len(MASKS), len(WHOLE))


def test_sizes_that_happen_to_be_equal_are_not_confused(tmp_path: Path) -> None:
    """As many sentences as words, and as numbers of a row."""
    made = encoder("chosen")
    onnx.save(made, tmp_path / "m.onnx")
    shapes = {"x": (8, 8, 8), "mask": (8, 8)}
    torshc.compile(tmp_path / "m.onnx", tmp_path / "m.tsc", specialize=("mask=padded",), shapes=shapes)
    with torshc.load(tmp_path / "m.tsc") as found:
        given = feeds(np.tri(8))
        close(found.run(given)["y"], onnx_runtime(made, given)[0])
        assert found.stats().forms[1].runs == 1


@pytest.mark.parametrize(("kind", "numpy"), [(TensorProto.BOOL, np.bool_), (TensorProto.INT32, np.int32)])
def test_rows_of_padding_are_zero_where_they_mean_nothing(kind: int, numpy: Any, tmp_path: Path) -> None:
    made = encoder("rows", kind)
    onnx.save(made, tmp_path / "m.onnx")
    torshc.compile(tmp_path / "m.onnx", tmp_path / "m.tsc", drop_padding="mask")
    with torshc.load(tmp_path / "m.tsc") as found:
        for mask in MASKS.values():
            given = feeds(mask, numpy)
            wanted = onnx_runtime(made, given)[0] * given["mask"][..., None]
            close(found.run(given)["y"], wanted)
        assert found.stats().forms[1].runs == len(MASKS)


def test_the_manifest_and_explain_say_which_rows(tmp_path: Path) -> None:
    onnx.save(encoder("rows"), tmp_path / "m.onnx")
    torshc.compile(tmp_path / "m.onnx", tmp_path / "m.tsc", drop_padding="mask")
    body = json.loads((tmp_path / "m.tsc" / "manifest.json").read_bytes())
    jsonschema.validate(body, json.loads(SCHEMA.read_bytes()))
    (only,) = body["variants"]
    assert only["padded"] == [{"name": "mask", "stated": True}]
    assert [s["kind"] for s in body["symbols"] if s["name"] == "mask.rows"] == ["count"]
    words = " ".join(to_text(explain(prepare(tmp_path / "m.onnx", CompileOptions(drop_padding="mask")))).split())
    assert "padding rows where mask is 0 are left out: they are 0 in outputs, as was asked for" in words
    words = " ".join(
        to_text(explain(prepare(tmp_path / "m.onnx", CompileOptions(specialize=("mask=padded",))))).split()
    )
    assert "variant none for mask=padded: rows of padding are in output 'y'" in words


def test_verify_and_other_weights_keep_the_variant(tmp_path: Path) -> None:
    made = encoder("rows")
    onnx.save(made, tmp_path / "m.onnx")
    torshc.compile(tmp_path / "m.onnx", tmp_path / "m.tsc", drop_padding="mask", named_weights=True)
    verdict = verify_bundle(tmp_path / "m.onnx", tmp_path / "m.tsc")
    assert verdict.ok and verdict.form == "" and [v.form for v in verdict.variants] == ["mask=padded"]
    weight = next(t for t in made.graph.initializer if t.name == "wo")
    weight.raw_data = (2 * onnx.numpy_helper.to_array(weight)).tobytes()
    onnx.save(made, tmp_path / "n.onnx")
    set_weights(tmp_path / "m.tsc", tmp_path / "n.onnx", CompileOptions())
    with torshc.load(tmp_path / "m.tsc") as found:
        given = feeds(MASKS["behind"])
        wanted = onnx_runtime(made, given)[0] * given["mask"][..., None]
        close(found.run(given)["y"], wanted)
        assert found.stats().forms[1].runs == 1


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"drop_padding": "mosk"}, "no such input; did you mean 'mask'"),
        ({"drop_padding": "x"}, "is no mask of rows"),
        ({"specialize": ("x=padded",)}, "is no mask of rows"),
    ],
)
def test_what_is_no_mask_is_refused(asked: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        prepare(encoder().SerializeToString(), CompileOptions(**asked))


def test_other_levels_compute_all_rows() -> None:
    options = CompileOptions(specialize=("n=2 mask=padded",), opt_level=2)
    (only,) = prepare(encoder().SerializeToString(), options).variants
    assert only.why == "the pass drop_padding, which leaves out rows, is one of -O3"


def test_cards_compute_all_rows() -> None:
    options = CompileOptions(specialize=("mask=padded",), target="cuda")
    (only,) = prepare(encoder().SerializeToString(), options).variants
    assert only.why == "on cuda rows of padding are computed, as their number is a size, which the processor sets"


def test_a_profile_whose_mask_has_zeros_leaves_them_out(tmp_path: Path) -> None:
    """Sizes of such runs have no variants then; those of the others do."""
    onnx.save(encoder(), tmp_path / "m.onnx")
    torshc.compile(tmp_path / "m.onnx", tmp_path / "m.tsc")
    with torshc.load(tmp_path / "m.tsc", profile=tmp_path / "seen") as found:
        for _ in range(3):
            found.run(feeds(MASKS["behind"]))
            found.run(feeds(WHOLE["none"]))
    (path,) = tmp_path.glob("seen.*")
    assert [line.split()[-1] for line in path.read_text().splitlines()[5:-1]] == ["12", "0"]
    for _ in range(2):  # what such a library wrote counts as well
        done = torshc.compile(tmp_path / "m.onnx", tmp_path / "n.tsc", observed=[tmp_path / "seen"])
        cases = [" ".join(map(str, v.case)) for v in done.variants if not v.why]
        assert cases[0] == "mask=padded" and "n=3 seq=4" not in " ".join(cases)
        with torshc.load(tmp_path / "n.tsc", profile=tmp_path / "seen") as found:
            for _ in range(3):
                found.run(feeds(MASKS["behind"]))


def test_a_workspace_that_was_asked_for_is_enough_for_any_mask(tmp_path: Path) -> None:
    """Though the query saw no padding."""
    onnx.save(encoder(), tmp_path / "m.onnx")
    torshc.compile(tmp_path / "m.onnx", tmp_path / "m.tsc", specialize=("mask=padded",))
    with torshc.load(tmp_path / "m.tsc") as found:
        seen = np.ones((3, 40))
        found.run(feeds(seen))
        assert found._opened is not None
        handle, size = found._opened.handle, c_size_t()
        assert found._library.torshc_workspace_size(handle, found._in.tensors, 2, byref(size)) == 0
        seen[0, 39] = 0
        given, out = feeds(seen), np.empty((3, 8), np.float32)
        found.run(given, out={"y": out})
        work = np.empty(size.value + 64, np.uint8)
        start = work.ctypes.data + -work.ctypes.data % 64
        run = partial(found._library.torshc_run, handle, found._in.tensors, 2, found._out.tensors, 1, start)
        assert run(size.value) == 0 and run(64) == NO_WORKSPACE
        assert found.stats().forms[1].runs == 2
