"""run, verify, bisect, check, bench, explain, targets and cache through the command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from torshc.base import arrays
from torshc.base.errors import ConfigError, RunError
from torshc.runtime import load

from ..support.cli_models import CACHED, LABELS, ODD, UNKNOWN, hostile
from ..support.models import save
from .conftest import Torshc


def test_run_reads_and_writes_arrays(torshc: Torshc, bundle: Path) -> None:
    np.save("x.npy", np.full((3, 64), 0.5, np.float32))
    np.savez("all.npz", scale=np.ones(64, np.float32))
    text = torshc("run", bundle, "--input", "x=x.npy", "--input", "all.npz", "--output", "y.npz").output
    assert max(map(len, text.splitlines())) <= 80
    assert "random" not in text and "written: y.npz" in text and "[3, 64]" in text
    with np.load("y.npz") as found:
        assert set(found.files) == {"probability", "activation"}
        np.testing.assert_allclose(found["probability"], 1 / 64, rtol=1e-5)
    torshc("run", bundle, "--input", "x=x.npy", "--input", "scale=all.npz:scale", "--output", "folder")
    assert np.load("folder/activation.npy").shape == (3, 64)


def test_run_loads_no_compiler(bundle: Path) -> None:
    """To load it takes three times as long as all else that a small model needs."""
    code = (
        f"import sys; from torshc.cli import cli; cli(['run', '{bundle}'], standalone_mode=False); print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "torshc.runtime.model" in loaded
    assert not loaded & {"onnx", "jinja2", "torshc.ops", "torshc.explain", "torshc.pipeline.compiler"}


def test_run_draws_what_is_missing_from_a_seed(torshc: Torshc, bundle: Path) -> None:
    first = torshc("run", bundle, "--dims", "batch=5", "--seed", "1", "--json").stdout
    again = torshc("run", bundle, "--dims", "batch=5", "--seed", "1", "--json").stdout
    other = torshc("run", bundle, "--dims", "batch=5", "--seed", "2", "--json").stdout
    a, b, c = (json.loads(text) for text in (first, again, other))
    assert a["outputs"] == b["outputs"] != c["outputs"]
    assert a["random"] == ["x", "scale"] and a["outputs"][0]["shape"] == [5, 64]


def test_run_takes_sizes_from_the_files(torshc: Torshc, tmp_path: Path, bundle: Path) -> None:
    np.save("x.npy", np.zeros((7, 64), np.float32))
    found = json.loads(torshc("run", bundle, "--input", "x=x.npy", "--json").stdout)
    assert found["outputs"][1]["shape"] == [7, 64]


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["--input", "x=none.npy"], 6, "none.npy cannot be read: No such file or directory\n"),
        (["--input", "z=x.npy"], 6, "no input 'z'"),
        (["--input", "x=bad.npy"], 6, "bad.npy"),
        (["--input", "x=wide.npy"], 6, "float64"),
        (["--input", "x=flat.npy"], 6, "has shape [64]; expected"),
        (["--input", "x=short.npy"], 6, "expected"),
        (["--input", "x=all.npz:q"], 6, "holds no array 'q'"),
        (["--input", "flat.npy"], 6, "belongs to no input by name"),
        (["--input", "x=objects.npy"], 6, "objects.npy"),
        (["--dims", "bach=2"], 4, "did you mean 'batch'"),
        (["--dims", "batch"], 4, "--dims batch=2,seq=64"),
        (["--output", "bad.npy/deeper"], 8, "bad.npy"),
        (["--output", "/dev/null"], 8, "it is no folder"),
    ],
)
def test_run_says_what_is_wrong(torshc: Torshc, bundle: Path, arguments: list[str], code: int, says: str) -> None:
    Path("bad.npy").write_bytes(b"no array")
    np.save("wide.npy", np.zeros((1, 64)))
    np.save("flat.npy", np.zeros(64, np.float32))
    np.save("short.npy", np.zeros((1, 63), np.float32))
    np.save("objects.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    np.savez("all.npz", a=np.zeros(1), b=np.zeros(1))
    assert says in torshc("run", bundle, *arguments, code=code).output


def test_a_small_file_that_unpacks_to_much(torshc: Torshc, bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of it is unpacked but headers; the message names file, entry, both sizes, and what to do."""
    monkeypatch.setattr(arrays, "UNPACKED", 4 << 20)
    np.savez_compressed("bomb.npz", scale=np.zeros(2 << 20, np.float32), x=np.zeros((1 << 15, 64), np.float32))
    assert Path("bomb.npz").stat().st_size < 1 << 16
    monkeypatch.setattr(arrays, "read_bytes", None)
    fixed = torshc("run", bundle, "--input", "scale=bomb.npz:scale", code=6).output
    assert "bomb.npz: 'scale' is float32[2097152] of 8388608 bytes, and at most 1048576 are allowed" in fixed
    assert "give an array of float32, of shape [64]" in fixed
    free = torshc("run", bundle, "--input", "x=bomb.npz", code=6).output
    assert "bomb.npz: 'x' is float32[32768, 64] of 8388608 bytes, and at most 4194304" in free
    assert "numpy.savez, which packs nothing" in free


def test_run_of_what_is_no_bundle(torshc: Torshc, tmp_path: Path, bundle: Path) -> None:
    torshc("run", tmp_path, code=7)
    with (bundle / "libmodel.so").open("ab") as file:
        file.write(b"x")
    assert "altered" in torshc("run", bundle, code=7).output
    torshc("compile", tmp_path / "chain.onnx", "-o", bundle)
    text = (bundle / "manifest.json").read_text().replace('"f32"', '"f64"')
    (bundle / "manifest.json").write_text(text)
    assert "altered" in torshc("run", bundle, code=7).output


def test_hostile_output_names_become_no_paths(torshc: Torshc, tmp_path: Path) -> None:
    torshc("compile", save(hostile(), tmp_path / "h.onnx"), "-o", "h.tsc")
    torshc("run", "h.tsc", "--output", "folder")
    assert sorted(p.name for p in Path("folder").iterdir()) == ["output_0.npy", "output_1.npy"]
    torshc("run", "h.tsc", "--output", "y.npz")
    with np.load("y.npz") as found:
        assert found.files == ["output_0", "output_1"]


@pytest.mark.parametrize("verb", ["run", "verify", "bench", "bisect", "verify --against"])
def test_a_wrong_key_is_not_ignored(torshc: Torshc, chain: Path, bundle: Path, verb: str) -> None:
    """The input that it was meant for would be drawn at random, and nobody would know."""
    np.savez("all.npz", scales=np.ones(64, np.float32))
    word, *option = verb.split()
    subject = bundle if word == "run" else chain
    refused = torshc(word, subject, *(option or ["--input"]), "all.npz", code=RunError.exit_code).stderr
    kind, hint = ("output", "") if option else ("input", "; did you mean 'scale'?")
    assert f"all.npz holds 'scales', and there is no such {kind}{hint}" in refused


def test_run_says_which_sizes_it_took(torshc: Torshc, bundle: Path) -> None:
    assert "at batch=1" in torshc("run", bundle).stdout
    assert json.loads(torshc("run", bundle, "--dims", "batch=3", "--json").stdout)["dims"] == {"batch": 3}


def test_verify_agrees(torshc: Torshc, chain: Path, bundle: Path) -> None:
    for more in ((), ("--against", "ort"), ("--bundle", bundle), ("--dims", "batch=4"), ("-O0",)):
        assert "agrees" in torshc("verify", chain, *more).output
    found = json.loads(torshc("verify", chain, "--json").stdout)
    assert found["ok"] and found["dims"] == {"batch": 2} and max(o["error"] for o in found["outputs"]) < 1e-5


def test_a_bundle_takes_no_options_of_a_compilation(torshc: Torshc, chain: Path, bundle: Path) -> None:
    refused = torshc("verify", chain, "--bundle", bundle, "-O1", "--target", "cuda", code=2)
    assert "leave out -O, --target" in refused.stderr


def test_sizes_satisfy_the_models_equations(torshc: Torshc, tmp_path: Path) -> None:
    path = save(CACHED, tmp_path / "cached.onnx")
    assert "past=3, seq=5, total=8" in torshc("verify", path).stdout
    assert "past=1, seq=1, total=2" in torshc("bench", path, "--rounds", 1, "--seconds", 0.001).stdout
    refused = torshc("verify", path, "--dims", "total=1", code=ConfigError.exit_code)
    assert "past + seq == total" in refused.stderr and "--dims" in refused.stderr


def test_names_of_dimensions_steer_no_terminal(torshc: Torshc, tmp_path: Path) -> None:
    """Nor do they fill it."""
    name = "\u202e" + "long" * 1000
    relu = {"op": "Relu", "inputs": ["x"], "outputs": ["y"]}
    inputs = {"x": {"dtype": "f32", "shape": [name, 4]}}
    (tmp_path / "m.json").write_text(json.dumps({"torshc": 1, "inputs": inputs, "nodes": [relu], "outputs": ["y"]}))
    for verb, more in (("verify", ()), ("bench", ("--rounds", 1, "--seconds", 0.001))):
        text = torshc(verb, tmp_path / "m.json", *more).stdout
        assert "longlong=" in text and "\u202e" not in text and max(map(len, text.splitlines())) < 200


def test_strings_and_maps(torshc: Torshc, tmp_path: Path) -> None:
    labels = save(LABELS, tmp_path / "labels.onnx")
    text = torshc("verify", labels, "--against", "ort").output
    assert "agrees" in text
    torshc("compile", labels, "-o", "labels.tsc")
    shown = json.loads(torshc("run", "labels.tsc", "--dims", "batch=3", "--json").stdout)["outputs"]
    assert [(o["dtype"], o["shape"], o["low"]) for o in shown] == [("string", [3], None), ("sequence", [3], None)]
    assert "cannot be written as .npy" in torshc("run", "labels.tsc", "-o", "y.npz", code=4).output
    with load("labels.tsc") as model:
        maps = model.run({"x": np.array([[0.25, 0.75]], np.float32), "word": np.array(["a"])})["scores"]
    assert maps == [{"no": 0.25, "yes": 0.75}]


def test_verify_of_a_json_graph(torshc: Torshc) -> None:
    samples = Path(__file__).resolve().parents[2] / "samples"
    assert "agrees" in torshc("verify", samples / "mlp.json").output


def test_verify_finds_a_difference(torshc: Torshc, chain: Path, bundle: Path) -> None:
    torshc("run", bundle, "--dims", "batch=2", "--seed", "0", "--output", "good.npz")
    assert "agrees" in torshc("verify", chain, "--bundle", bundle, "--against", "good.npz").output
    with np.load("good.npz") as good:
        np.savez("bad.npz", **{**good, "activation": good["activation"] + 0.01})
    text = torshc("verify", chain, "--bundle", bundle, "--against", "bad.npz", code=1).output
    assert "differs" in text and "DIFFERS" in text and "ok" in text
    torshc("verify", chain, "--bundle", bundle, "--against", "bad.npz", "--rtol", "0.1")
    assert "other.npz" in torshc("verify", chain, "--bundle", bundle, "--against", "other.npz", code=6).output
    assert "one of reference" in torshc("verify", chain, "--against", "truth", code=4).output


def test_bisect(torshc: Torshc, chain: Path) -> None:
    """With no tolerance at all any rounding differs."""
    assert "agrees with reference" in torshc("bisect", chain).output and not Path("bisected.onnx").exists()
    text = torshc("bisect", chain, "--rtol", "0", code=1).output
    assert (
        "differs from reference" in text and "bisected.onnx, 1 node;" in text and max(map(len, text.splitlines())) <= 80
    )
    assert [line.split()[0] for line in text.splitlines()[-4:]] == ["step", "node", "kernel", "model"]
    found = json.loads(torshc("bisect", chain, "--rtol", "0", "-o", "small.onnx", "--json", code=1).stdout)
    assert not found["ok"] and found["place"]["model"] == "small.onnx" and Path("small.npz").exists()
    torshc("verify", "small.onnx", "--input", "small.npz", "--rtol", "0", code=1)
    assert "one of reference" in torshc("bisect", chain, "--against", "truth", code=4).output


def test_check(torshc: Torshc, chain: Path, tmp_path: Path) -> None:
    assert "everything is supported" in torshc("check", chain).output
    unknown = save(UNKNOWN, tmp_path / "u.onnx")
    text = torshc("check", unknown, code=3).output
    assert "Mystery" in text and "Riddle" in text and "2 unsupported" in text
    found = json.loads(torshc("check", unknown, "--json", code=3).stdout)
    assert not found["ok"] and len(found["problems"]) == 2 and not found["warnings"]


def test_warnings(torshc: Torshc, tmp_path: Path) -> None:
    """On stderr, or in the document that a machine reads."""
    odd = save(ODD, tmp_path / "odd.onnx")
    line = "warning: node 'y' (Relu): Relu of opset 14 has no attribute 'legacy', which is ignored"
    for verb in ("check", "compile"):
        assert line in torshc(verb, odd).stderr
        shown = torshc(verb, odd, "--json")
        assert json.loads(shown.stdout)["warnings"] == [line.removeprefix("warning: ")] and not shown.stderr
    many = save(ODD.replace("legacy=1", ", ".join(f"a{k}=1" for k in range(25))), tmp_path / "many.onnx")
    assert "5 more warnings; --json shows all" in torshc("check", many).stderr
    both = save(ODD.replace("y = Relu", "z = Riddle(x)\n  y = Relu"), tmp_path / "both.onnx")
    assert line in torshc("compile", both, code=3).stderr


def test_bench(torshc: Torshc, chain: Path) -> None:
    quick = ("--rounds", "2", "--seconds", "0.01", "--dims", "batch=8")
    text = torshc("bench", chain.name, "--levels", "0,3", "--against", "ort", "--profile", *quick).stdout
    for word in ("torshc -O0", "torshc -O3", "ONNX Runtime", "times as long", "kernel", "batch=8"):
        assert word in text
    assert max(map(len, text.splitlines())) <= 80
    found = json.loads(torshc("bench", chain, "--json", *quick).stdout)
    (figure,) = found["figures"]
    assert figure["ratio"] == 1 and len(figure["rounds"]) == 2 and figure["ms"] > 0
    assert "not a list of levels" in torshc("bench", chain, "--levels", "0,4", code=2).output


def test_a_profile_names_nodes_whole(torshc: Torshc, tmp_path: Path) -> None:
    """Over several lines, and of many as many as three lines hold."""
    names = [f"/encoder/layer.{k}/attention/self/scores" for k in range(5)]
    nodes = [helper.make_node("Exp", [x], [y], name=y) for x, y in pairwise(["x", *names])]
    ends = [[helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [4])] for n in ("x", names[-1])]
    onnx.save(helper.make_model(helper.make_graph(nodes, "g", *ends)), tmp_path / "long.onnx")
    text = torshc("bench", tmp_path / "long.onnx", "--profile", "--rounds", "1", "--seconds", "0.001").stdout
    head, _, rows = text.partition("nodes\n")
    column = len(head.splitlines()[-1])
    cell = " ".join(line[column:] for line in rows.partition("roof")[0].splitlines())
    assert cell.replace("/ ", "/") == f"{names[0]}, and 4 more"


def test_explain_forms(torshc: Torshc, chain: Path) -> None:
    text = torshc("explain", chain, "--dims", "batch=4").stdout
    assert "batch=4" in text and "launch" in text and max(map(len, text.splitlines())) <= 80
    assert json.loads(torshc("explain", chain, "--format", "json").stdout)["torshc_explain"] == 1
    assert torshc("explain", chain, "--format", "dot").stdout.startswith("digraph")
    assert "Kernels" in torshc("explain", chain, "--group", "0").stdout
    assert "groups are 0 to" in torshc("explain", chain, "--group", "99", code=4).output
    assert "give one of them" in torshc("explain", chain, "--group", "0", "--all", code=2).output
    assert "for --format text" in torshc("explain", chain, "--format", "json", "--all", code=2).output


def test_targets(torshc: Torshc) -> None:
    text = torshc("targets").output
    assert text.startswith("c  ") and max(map(len, text.splitlines())) <= 80
    everything = json.loads(torshc("targets", "--json").stdout)
    found = everything["targets"][0]
    assert found["name"] == "c" and everything["isa"]["lanes"] in (1, 4, 8, 16) and found["tools"]
    assert [t["name"] for t in everything["targets"]] == ["c", "llvm", "cuda", "metal", "webgpu"]
    assert all(t["tools"] or t["missing"] for t in everything["targets"])
    if os.uname().machine == "x86_64":
        shown = json.loads(torshc("targets", "--mcpu", "x86-64-v4", "--json").stdout)
        assert shown["isa"]["lanes"] == 16
    torshc("targets", "--cc", "no-such-compiler", code=5)


def test_targets_without_a_compiler_names_both_ways_out(torshc: Torshc, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setattr("torshc.targets.cc._ziglang", lambda: None)
    text = " ".join(torshc("targets").output.split())
    assert "apt install clang" in text and "pip install ziglang" in text and "no xcrun" in text


def test_cache(torshc: Torshc, chain: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TORSHC_CACHE_DIR", str(tmp_path / "cache"))
    assert json.loads(torshc("cache", "info", "--json").stdout)["objects"] == 0
    torshc("compile", chain, "-o", "out.tsc")
    found = json.loads(torshc("cache", "info", "--json").stdout)
    assert found["objects"] > 1 and found["bytes"] > 0 and found["folder"] == str(tmp_path / "cache")
    assert torshc("cache", "clear").output.startswith(f"{found['objects']} objects deleted")
    assert "0 objects" in torshc("cache", "info").output
