"""Variants of a model for some sizes in one library: runs with these take them, and answers are the same."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import onnx
import pytest
from onnx import helper

import torshc
from tests.pipeline.test_forms_loose import IN_PROCESS, SCRIPTED, feeds_of, model, opened
from tests.support.compare import onnx_runtime
from tests.support.nodes import numbers
from torshc.base.errors import ConfigError, RunError, UnsupportedError
from torshc.base.options import CompileOptions
from torshc.bundle.manifest import SCHEMA
from torshc.explain import explain, to_text
from torshc.pipeline.compiler import prepare
from torshc.workbench.reweigh import set_weights
from torshc.workbench.verify import verify_bundle

NODE = helper.make_node
W = numbers(8, 6, seed=3)
# z[b, 6] meets the rows of x, so that b is n where neither is 1
DENSE = model(
    [
        NODE("MatMul", ["x", "w"], ["p"]), NODE("Softmax", ["p"], ["q"], axis=1), NODE("Add", ["q", "z"], ["y"]),
    ],
    {"x": ["n", "seq", 8], "z": ["b", 1, 6]},
    {"w": W},
)  # fmt: skip
SPECIALIZE = ("n=3 seq=1..5", "n=1,3 seq=5")
RUNS = {  # the variant that a run takes, by the sizes of n and seq
    (3, 5): "n=3 seq=5", (1, 5): "n=1 seq=5", (3, 4): "n=3 seq=1..5", (3, 1): "n=3 seq=1..5", (3, 6): "", (2, 5): "",
    (0, 5): "", (3, 0): "",
}  # fmt: skip


@pytest.mark.parametrize("target", ["c", "llvm", IN_PROCESS, "cuda", "webgpu"])
def test_runs_take_the_variant_that_fits(target: str, tmp_path: Path) -> None:
    with opened(DENSE, target, tmp_path, specialize=SPECIALIZE) as found:
        for (n, seq), taken in RUNS.items():
            before = found.stats().forms if target in ("c", "llvm", "cuda") else ()
            for seed in range(2):
                feeds = feeds_of(DENSE, ((n, seq, 8), (n, 1, 6)), seed)
                (want,) = onnx_runtime(DENSE, feeds)
                np.testing.assert_allclose(found.run(feeds)["y"], want, rtol=1e-5, atol=1e-5)
            if before:
                more = [new.runs - old.runs for old, new in zip(before, found.stats().forms, strict=True)]
                assert [f.sizes for f, k in zip(before, more, strict=True) if k == 2] == [taken] and sum(more) == 2
        feeds = feeds_of(DENSE, ((3, 5, 8), (1, 1, 6)))  # broadcasts: the loose form's, whatever variants there are
        np.testing.assert_allclose(found.run(feeds)["y"], onnx_runtime(DENSE, feeds)[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("target", ["c", "cuda"])
def test_sizes_of_a_script_that_do_not_fit_a_variant_take_another_form(target: str, tmp_path: Path) -> None:
    with opened(SCRIPTED, target, tmp_path, specialize=("k=2", "n=5 k=3"), fallback=True) as found:
        for n, k, m in ((5, 2, 2), (1, 2, 2), (5, 3, 3), (5, 1, 3), (1, 3, 3), (5, 4, 4), (1, 1, 2)):
            feeds = feeds_of(SCRIPTED, ((5,), (n, 1), (k, 4), (m, 4)))
            (want,) = onnx_runtime(SCRIPTED, feeds)
            np.testing.assert_allclose(found.run(feeds)["y"], want, rtol=1e-5, atol=1e-5)
        if target == "c":
            runs = {(f.sizes, f.loose): f.runs for f in found.stats().forms}
            assert runs == {("n=5 k=3", False): 1, ("k=2", False): 1, ("", False): 1, ("", True): 4}
        with pytest.raises(RunError, match=r"does not hold, 3 is not 5; n is dimension 0 of input 'z'"):
            found.run(feeds_of(SCRIPTED, ((5,), (3, 1), (2, 4), (2, 4))))


def test_the_manifest_explain_and_contexts_know_variants(tmp_path: Path) -> None:
    onnx.save(DENSE, tmp_path / "m.onnx")
    torshc.compile(tmp_path / "m.onnx", tmp_path / "m.tsc", specialize=["n=1 seq=5", "seq=2..4"], profile=True)
    body = json.loads((tmp_path / "m.tsc" / "manifest.json").read_bytes())
    jsonschema.validate(body, json.loads(SCHEMA.read_bytes()))
    one, none = body["variants"]
    assert one["sizes"] == [{"name": "n", "least": 1, "most": 1}, {"name": "seq", "least": 5, "most": 5}]
    assert one["form"]["steps"] and not one["why"]
    assert none["form"] is None and none["why"].startswith("no size of it is one number")
    text = to_text(explain(prepare(tmp_path / "m.onnx", CompileOptions(specialize=("n=1 seq=5", "seq=2..4")))))
    assert "variant     for n=1 seq=5: " in text and "none for seq=2..4: no size of it is one number" in text
    with torshc.load(tmp_path / "m.tsc") as found, found.context() as context:
        assert [str(r) for r in found.variants[0]] == ["n=1", "seq=5"] and len(found.variants) == 1
        feeds = feeds_of(DENSE, ((1, 5, 8), (1, 1, 6)))
        for at in (found, context, context):
            at.run(feeds)
        assert [f.runs for f in found.stats().forms] == [0, 1, 0]
        assert [f.runs for f in context.stats().forms] == [0, 2, 0]
        assert {s.form for s in context.stats().steps if s.calls} == {1}


def test_kernels_and_weights_that_are_equal_are_there_once(tmp_path: Path) -> None:
    plain = torshc.compile(DENSE, tmp_path / "plain.tsc")
    done = torshc.compile(DENSE, tmp_path / "m.tsc", specialize=SPECIALIZE, emit="source")
    kernels = [s for form in done.forms for u in form.units for s in u.symbols]
    files = {p.stem for p in (tmp_path / "m.tsc" / "src").glob("k*.c")}
    assert files == set(kernels) and len(files) < len(kernels)
    sizes = [(tmp_path / name / "weights.bin").stat().st_size for name in ("plain.tsc", "m.tsc")]
    read = {at for form in done.forms for at in form.program.weights_read}
    assert sizes[1] <= sizes[0] + sum(w.nbytes for w in plain.program.weights) and len(read) <= len(kernels)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("seqq=5", "the model has no symbolic size and no input 'seqq'; did you mean 'seq'"),
        ("n=2 b=3", "no run has these sizes, as n == b does not hold"),
        ("n=2 b=3..5", "no run has these sizes, as b is 2 there and not b=3..5"),
        ("n=2,2", "twice"),
    ],
)
def test_sizes_that_the_model_cannot_have_are_refused(asked: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        prepare(DENSE.SerializeToString(), CompileOptions(specialize=(asked,)))


def test_what_can_have_no_variants_is_refused(tmp_path: Path) -> None:
    whole = CompileOptions(specialize=("n=2", "b=2"))
    with pytest.raises(ConfigError, match="gives n=2 twice, as b=2 is the same"):
        prepare(DENSE.SerializeToString(), whole)
    with pytest.raises(ConfigError, match="--train with --specialize"):
        CompileOptions(train=tmp_path / "step.yaml", specialize=("n=2",))
    with pytest.raises(ConfigError, match="give texts such as"):
        CompileOptions.create(specialize=[3])
    with pytest.raises(UnsupportedError, match="more than the budget 'variants' of 1"):
        prepare(DENSE.SerializeToString(), CompileOptions(specialize=("n=2,3",), budget={"variants": 1}))


def test_variants_of_several_versions_take_weights_by_name_and_from_a_file(tmp_path: Path) -> None:
    onnx.save(DENSE, tmp_path / "m.onnx")
    options: dict[str, Any] = {"isa": ["x86-64-v3", "x86-64-v2"], "named_weights": True, "specialize": "n=1,3 seq=5"}
    torshc.compile(tmp_path / "m.onnx", tmp_path / "m.tsc", **options)
    feeds = feeds_of(DENSE, ((3, 5, 8), (3, 1, 6)))
    other = onnx.ModelProto.FromString(DENSE.SerializeToString())
    next(t for t in other.graph.initializer if t.name == "w").raw_data = (2 * W).astype(np.float32).tobytes()
    (want,) = onnx_runtime(other, feeds)
    with torshc.load(tmp_path / "m.tsc") as found:
        found.set_weights({"w": 2 * W})
        np.testing.assert_allclose(found.run(feeds)["y"], want, rtol=1e-5, atol=1e-5)
    np.savez(tmp_path / "w.npz", w=2 * W)
    set_weights(tmp_path / "m.tsc", tmp_path / "m.onnx", CompileOptions(), tmp_path / "w.npz")
    with torshc.load(tmp_path / "m.tsc") as found:
        np.testing.assert_allclose(found.run(feeds)["y"], want, rtol=1e-5, atol=1e-5)
        assert {f.sizes: f.runs for f in found.stats().forms}["n=3 seq=5"] == 1


def test_verify_compares_each_variant_and_the_usual_form(tmp_path: Path) -> None:
    onnx.save(DENSE, tmp_path / "m.onnx")
    torshc.compile(tmp_path / "m.onnx", tmp_path / "m.tsc", specialize="n=2,1 seq=3")
    verdict = verify_bundle(tmp_path / "m.onnx", tmp_path / "m.tsc")
    assert verdict.ok and verdict.form == "" and [v.form for v in verdict.variants] == ["n=2 seq=3", "n=1 seq=3"]
    verdict = verify_bundle(tmp_path / "m.onnx", tmp_path / "m.tsc", dims={"n": 2})
    assert [v.form for v in verdict.variants] == ["n=2 seq=3"]
    other = onnx.ModelProto.FromString(DENSE.SerializeToString())
    other.graph.initializer[0].raw_data = (2 * W).astype(np.float32).tobytes()
    onnx.save(other, tmp_path / "other.onnx")
    assert len(verify_bundle(tmp_path / "other.onnx", tmp_path / "m.tsc").differing) == 3


def test_compile_says_which_variants_there_are(tmp_path: Path) -> None:
    onnx.save(DENSE, tmp_path / "m.onnx")
    asked = ["--specialize", "n=1", "--specialize", "seq=2..4", "--emit", "source"]
    command = [
        sys.executable,
        "-m",
        "torshc",
        "compile",
        str(tmp_path / "m.onnx"),
        "-o",
        str(tmp_path / "m.tsc"),
        *asked,
    ]
    why = "no size of it is one number, so its kernels would be the same"
    done = subprocess.run([*command, "--json"], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["variants"] == {"n=1": "", "seq=2..4": why}
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert f"no variant for seq=2..4: {why}" in done.stderr
