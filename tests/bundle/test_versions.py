"""Libraries with versions for several processors: the one that runs, its weights, and refusals."""

from __future__ import annotations

import json
import platform
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import jsonschema
import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import torshc
from tests.support import compilers
from torshc.base.errors import BundleError, ConfigError
from torshc.base.options import CompileOptions
from torshc.bundle.manifest import SCHEMA
from torshc.formats import load_graph
from torshc.targets.isa import resolve
from torshc.workbench.reweigh import set_weights

from .test_build_script import build

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="versions are levels of x86-64")

HALVES = ("x86-64-v4-amx", "x86-64-v4-bf16", "x86-64-v3")
VERSIONS = ("x86-64-v4", "x86-64-v3", "x86-64-v2")
W = np.arange(-24, 24, dtype=np.float32).reshape(4, 12)
TABLE = np.arange(12, dtype=np.float32) + 0.5
X = np.array([[1, 2, 3, 4], [-1, 0, 0.5, 7]], np.float32)
MAIN = """
#include "both.h"
#include <stdio.h>
int main(int argc, char **argv)
{
    const float x[] = {1, 2, 3, 4};
    float y[12];
    torshc_options options = {.size = sizeof options, .threads = 1, .weights_path = argv[argc - 1]};
    both_model *model;
    both_tensors t = {0};
    if (both_open(&options, &model)) {
        puts(both_last_error());
        return 3;
    }
    t.n = 1;
    t.x = x;
    t.y = y;
    if (both_call(model, &t)) {
        puts(both_last_error());
        return 4;
    }
    printf("%s %g\\n", both_isa(), y[11]);
    both_close(model);
    return 0;
}
"""


def source(scale: float = 1) -> bytes:
    """A product, whose weights are packed for a width, and a sum, whose are not."""
    text = """<ir_version: 8, opset_import: ["" : 18]> both (float[n,4] x) => (float[n,12] y)
        { p = MatMul(x, w) y = Add(p, t) }"""
    model = onnx.parser.parse_model(text)
    model.graph.initializer.extend([numpy_helper.from_array(W * scale, "w"), numpy_helper.from_array(TABLE, "t")])
    return model.SerializeToString()


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("versions") / "both.tsc"
    torshc.compile(source(), place, isa=VERSIONS[::-1], emit="archive" if compilers.joins() else "bundle", profile=True)
    return place


def runnable(versions: Sequence[str] = VERSIONS) -> list[str]:
    here = {*resolve().cpu_features}
    return [v for v in versions if here.issuperset(resolve(v).cpu_features)]


def loaded(bundle: Path, place: Path) -> torshc.runtime.Model:
    """The bundle from another folder: a library chooses once."""
    shutil.copytree(bundle, place, symlinks=True)
    return torshc.load(place)


def test_the_best_version_runs(bundle: Path) -> None:
    with torshc.load(bundle) as model:
        assert model.versions == VERSIONS
        np.testing.assert_array_equal(model(X)[0], X @ W + TABLE)  # integers, and halves
        stats = model.stats()
    assert stats.isa == runnable()[0]
    assert {step.calls for step in stats.steps} == {1}


def test_another_one_on_request(bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for version in runnable():
        monkeypatch.setenv("TORSHC_ISA", version)
        with loaded(bundle, tmp_path / version) as model:
            np.testing.assert_array_equal(model(X)[0], X @ W + TABLE)
            stats = model.stats()
        mark = version.rpartition("-")[2]
        assert stats.isa == version and all(step.kernel.startswith(f"k{mark}_") for step in stats.steps)
    monkeypatch.setenv("TORSHC_ISA", "znver9")
    with pytest.raises(BundleError, match="TORSHC_ISA is znver9, which this library has no version for"):
        loaded(bundle, tmp_path / "none")


def test_the_manifest_names_the_versions(bundle: Path) -> None:
    body = json.loads((bundle / "manifest.json").read_bytes())
    jsonschema.validate(body, json.loads(SCHEMA.read_bytes()))
    assert [v["isa"]["mcpu"] for v in (body, *body["other_versions"])] == [*VERSIONS]
    # Each at a multiple of 256 bytes: the sum's weights once, the product's for each width at most.
    assert body["weights"]["bytes"] <= 4 * 256


def test_other_weights_for_all_versions(bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "m.onnx").write_bytes(source(2))
    set_weights(bundle, tmp_path / "m.onnx", CompileOptions(prefix="both"), out=tmp_path / "new.tsc")
    for version in runnable():
        monkeypatch.setenv("TORSHC_ISA", version)
        with loaded(tmp_path / "new.tsc", tmp_path / version) as model:
            np.testing.assert_array_equal(model(X)[0], X @ (2 * W) + TABLE)


def test_a_script_built_from_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Constants of a script move in the common weights file too; the host's build uses each version's flags."""
    text = """<ir_version: 8, opset_import: ["" : 18]> s (float[n] x) => (float[k,1] y, int64[1,m] z)
        <int64[4] big = {40, 30, 20, 10}> { z = NonZero(x) t = Transpose(z) y = Gather(table, t) }"""
    model = onnx.parser.parse_model(text)
    model.graph.initializer.append(numpy_helper.from_array(TABLE, "table"))
    torshc.compile(model, tmp_path / "s.tsc", isa=VERSIONS[1:], emit="source")
    build(tmp_path / "s.tsc", tmp_path / "bin", compilers.needed().cc)
    x = np.array([0, 1, 0, 2], np.float32)
    for version in [v for v in runnable() if v in VERSIONS[1:]]:
        monkeypatch.setenv("TORSHC_ISA", version)
        with loaded(tmp_path / "s.tsc", tmp_path / version) as model_:
            found = model_.run({"x": x})
            assert model_.stats().isa == version
        assert found["y"].tolist() == [[1.5], [3.5]] and found["z"].tolist() == [[1, 3]]


@pytest.fixture(scope="module")
def program(bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """A program that is linked with the static library, and its weights."""
    if not compilers.joins():
        pytest.skip("the compiler, objcopy and ar here make no static libraries")
    folder = tmp_path_factory.mktemp("program")
    (folder / "main.c").write_text(MAIN)
    made = [compilers.needed().cc, "main.c", "-o", "main", f"-I{bundle}", str(bundle / "libboth.a"), "-lm", "-lpthread"]
    subprocess.run(made, cwd=folder, check=True)
    return [str(folder / "main"), str(bundle / "weights.bin")]


def test_a_static_library_chooses_too(program: list[str]) -> None:
    told = subprocess.run(program, capture_output=True, text=True, check=True).stdout
    assert told.split() == [runnable()[0], f"{(X[0] @ W + TABLE)[11]:g}"]


@pytest.mark.parametrize(
    ("processor", "told"),
    [
        ("Nehalem", "x86-64-v2 "),
        ("Haswell", "x86-64-v3 "),
        ("core2duo", "this processor lacks sse4.1, which the library was compiled for (x86-64-v2)"),
    ],
)
def test_on_other_processors(program: list[str], processor: str, told: str) -> None:
    """Emulated ones end a program at an instruction that they lack: nothing of another version runs there."""
    if (qemu := shutil.which("qemu-x86_64")) is None:
        pytest.skip("qemu-user is not installed")
    done = subprocess.run([qemu, "-cpu", processor, *program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout[: len(told)]) == (3 if "lacks" in told else 0, told)


@pytest.mark.slow
def test_on_processors_of_another_machine(tmp_path: Path) -> None:
    """Of AArch64 too a library takes the best of its versions that the processor can run."""
    if (qemu := shutil.which("qemu-aarch64")) is None:
        pytest.skip("qemu-user is not installed")
    pytest.importorskip("ziglang")
    triple, place, versions = "aarch64-linux-musl", tmp_path / "both.tsc", ("armv8.2-a-bf16", "armv8.2-a-dotprod")
    torshc.compile(source(), place, isa=versions, emit="objects", cc="zig", triple=triple)
    (tmp_path / "main.c").write_text(MAIN)
    objects = [str(p) for p in sorted((place / "obj").glob("*.o"))]
    made = [
        sys.executable,
        "-m",
        "ziglang",
        "cc",
        "-target",
        triple,
        "-static",
        "main.c",
        *objects,
        f"-I{place}",
        "-lm",
    ]
    subprocess.run([*made, "-o", "main"], cwd=tmp_path, check=True, capture_output=True)
    lacks = "this processor lacks dotprod, which the library was compiled for (armv8.2-a-dotprod)"
    for processor, told in (("max", versions[0]), ("neoverse-n1", versions[1]), ("cortex-a72", lacks)):
        command = [qemu, "-cpu", processor, str(tmp_path / "main"), str(place / "weights.bin")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.stdout.startswith(told), done
        assert done.returncode == (3 if told == lacks else 0)


def test_what_is_refused(tmp_path: Path) -> None:
    for isa, more, why in (
        ("x86-64-v9", {}, r"--isa cannot hold 'x86-64-v9'; did you mean"),
        (VERSIONS, {"mcpu": "znver4"}, "--mcpu znver4 goes with one version"),
        (VERSIONS, {"triple": "aarch64-linux-musl"}, "this library is for aarch64"),
        (VERSIONS, {"target": "cuda"}, "the target cuda does not use --isa"),
    ):
        with pytest.raises(ConfigError, match=why):
            torshc.compile(source(), tmp_path / "m.tsc", isa=isa, **more)
    (tmp_path / "m.onnx").write_bytes(source())
    with pytest.raises(ConfigError, match="a Graph is compiled once"):
        torshc.compile(load_graph(tmp_path / "m.onnx"), tmp_path / "m.tsc", isa=VERSIONS)


def test_weights_by_name_in_all_versions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each version packs them in its own way; two that are equal when compiled are two."""
    text = """<ir_version: 8, opset_import: ["" : 18]> named (float[n,4] x) => (float[n,12] y)
        { p = MatMul(x, w) q = Add(p, t) r = Relu(q) y = Add(r, u) }"""
    model = onnx.parser.parse_model(text)
    given = {"w": W, "t": TABLE, "u": TABLE}
    model.graph.initializer.extend(numpy_helper.from_array(a, n) for n, a in given.items())
    torshc.compile(model, tmp_path / "named.tsc", isa=VERSIONS, named_weights=True)
    for version in runnable():
        monkeypatch.setenv("TORSHC_ISA", version)
        with loaded(tmp_path / "named.tsc", tmp_path / version) as opened:
            opened.set_weights({"w": 2 * W, "u": 3 * TABLE})
            assert opened.stats().isa == version
            np.testing.assert_array_equal(opened(X)[0], np.maximum(X @ (2 * W) + TABLE, 0) + 3 * TABLE)


def test_versions_for_instructions_that_multiply_halves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The processor takes the first that it and its system can run; weights of halves lie there once for all."""
    rng = np.random.default_rng(3)
    w, x = (rng.integers(-4, 5, shape).astype(np.float32) for shape in ((40, 64), (5, 40)))
    text = """<ir_version: 8, opset_import: ["" : 18]> halves (float[n,40] x) => (float[n,64] y) { y = MatMul(x, w) }"""
    model = onnx.parser.parse_model(text)
    model.graph.initializer.append(numpy_helper.from_array(w, "w"))
    torshc.compile(model, tmp_path / "halves.tsc", isa=HALVES, precision="bf16")
    assert json.loads((tmp_path / "halves.tsc" / "manifest.json").read_bytes())["weights"]["bytes"] == 4 * 64 * 16 * 2
    with torshc.load(tmp_path / "halves.tsc") as best:
        assert best.stats().isa == runnable(HALVES)[0]
    for version in HALVES:
        monkeypatch.setenv("TORSHC_ISA", version)
        if version in runnable(HALVES):
            with loaded(tmp_path / "halves.tsc", tmp_path / version) as one:
                np.testing.assert_array_equal(one.run({"x": x})["y"], x @ w)
                assert one.stats().isa == version
        else:
            with pytest.raises(BundleError, match=f"TORSHC_ISA is {version}, but this processor.* lacks a[mv]x"):
                loaded(tmp_path / "halves.tsc", tmp_path / version)
