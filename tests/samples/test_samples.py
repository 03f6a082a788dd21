"""The samples do what they say: the model is sound, the JSON graph classifies, the C program and the demo run."""

from __future__ import annotations

import importlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import torshc
from tests.support.browser import WEBGPU, Browser, find
from tests.support.compilers import needed
from tests.support.serve import serving
from tests.support.slow import SLOW
from torshc.base.options import CompileOptions
from torshc.workbench.reweigh import set_weights, write_model

SAMPLES = Path(__file__).resolve().parents[2] / "samples"

# A flower of each kind from Fisher's table: sepal length and width, petal length and width in cm.
IRIS = np.array([[5.1, 3.4, 1.5, 0.2], [7.0, 3.2, 4.7, 1.4], [6.8, 3.2, 5.9, 2.3]], np.float32)


@pytest.fixture(scope="module")
def digits() -> onnx.ModelProto:
    return onnx.load(SAMPLES / "digits.onnx")


def run(*command: str | Path) -> str:
    """Standard output of a command that has to succeed; what it said is in the failure's message."""
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def c_compiler() -> str:
    """The compiler that torshc takes, in the spelling of make's CC."""
    found = needed()
    return f"{sys.executable} -m ziglang cc" if found.kind == "zig" else found.cc


def demo_web() -> Any:
    """The module of what `make demo-web` runs."""
    sys.path.insert(0, str(SAMPLES))
    try:
        return importlib.import_module("demo_web")
    finally:
        sys.path.remove(str(SAMPLES))


def digits_said(text: str) -> list[int]:
    """The answers in the C program's output."""
    return [int(digit) for digit in re.findall(r"says (\d)", text)]


def test_digits_is_valid_onnx_with_something_to_fuse(digits: onnx.ModelProto) -> None:
    onnx.checker.check_model(digits, full_check=True)
    assert digits.opset_import[0].version >= 17
    dims = digits.graph.input[0].type.tensor_type.shape.dim
    assert dims[0].dim_param == "batch" and [d.dim_value for d in dims[1:]] == [1, 8, 8]
    operators = [node.op_type for node in digits.graph.node]
    assert operators.count("Conv") == operators.count("BatchNormalization") == operators.count("Relu") == 3
    assert {"Add", "MaxPool", "Flatten", "Gemm", "Softmax"} <= set(operators)


def test_digits_classifies_held_back_images(digits: onnx.ModelProto) -> None:
    with np.load(SAMPLES / "digits_test.npz") as data:
        images, labels = data["images"], data["labels"]
    assert images.shape[1:] == (1, 8, 8) and images.dtype == np.float32 and len(images) == len(labels) >= 400
    answers = ReferenceEvaluator(digits).run(None, {"image": images})[0].argmax(axis=1)
    assert (answers == labels).mean() >= 0.97


def test_samples_are_small() -> None:
    assert sum((SAMPLES / name).stat().st_size for name in ("digits.onnx", "digits_test.npz")) < 500_000


def test_json_graph_is_consistent() -> None:
    graph = json.loads((SAMPLES / "mlp.json").read_text())
    known = set(graph["inputs"]) | set(graph["weights"])
    for weight in graph["weights"].values():
        assert len(weight["data"]) == np.prod(weight["shape"])
    for node in graph["nodes"]:
        assert set(node["inputs"]) <= known
        known |= set(node["outputs"])
    assert set(graph["outputs"]) <= known


@pytest.mark.parametrize("flowers", [IRIS, IRIS[:1], np.tile(IRIS, (7, 1))], ids=["3", "1", "21"])
def test_json_graph_classifies_flowers(tmp_path: Path, flowers: np.ndarray) -> None:
    import torshc

    torshc.compile(SAMPLES / "mlp.json", tmp_path / "mlp.tsc")
    species = torshc.load(tmp_path / "mlp.tsc").run({"flower": flowers})["species"]
    assert species.argmax(axis=1).tolist() == ([0, 1, 2] * 7)[: len(flowers)]
    np.testing.assert_allclose(species.sum(axis=1), 1, rtol=1e-6)


@pytest.mark.skipif(shutil.which("make") is None, reason="the sample is built by make")
def test_c_program_is_built_and_classifies(tmp_path: Path) -> None:
    build = tmp_path / "build"
    make = ("make", "-C", SAMPLES / "c", f"BUILD={build}", f"TORSHC={sys.executable} -m torshc", f"CC={c_compiler()}")
    run(*make)
    program = (build / "digits", build / "digits.tsc")
    with np.load(SAMPLES / "digits_test.npz") as data:
        images, labels = data["images"], data["labels"]
    wanted = ReferenceEvaluator(str(SAMPLES / "digits.onnx")).run(None, {"image": images})[0].argmax(axis=1)

    images[:5].tofile(tmp_path / "images.raw")
    assert digits_said(run(*program, tmp_path / "images.raw")) == wanted[:5].tolist()

    first_of_each = [int(np.flatnonzero(labels == digit)[0]) for digit in range(10)]
    assert digits_said(run(*program)) == wanted[first_of_each].tolist()

    (tmp_path / "short.raw").write_bytes(b"\0" * 100)
    refused = subprocess.run([*program, tmp_path / "short.raw"], capture_output=True, text=True, check=False)
    assert refused.returncode == 1 and "256 bytes" in refused.stderr


@pytest.mark.skipif(shutil.which("make") is None, reason="the sample is built by make")
def test_depfile_rebuilds_exactly_when_the_model_changes(tmp_path: Path) -> None:
    model, build = tmp_path / "digits.onnx", tmp_path / "build"
    shutil.copy(SAMPLES / "digits.onnx", model)
    options = (f"BUILD={build}", f"MODEL={model}", f"TORSHC={sys.executable} -m torshc", f"CC={c_compiler()}")
    make = ("make", "-C", SAMPLES / "c", *options)
    run(*make)
    assert str(model) in (build / "digits.tsc.d").read_text()
    assert "torshc compile" not in run(*make)
    later = model.stat().st_mtime + 100
    os.utime(model, (later, later))
    assert "torshc compile" in run(*make)


@pytest.mark.skipif(find() is None, reason="no Chromium here")
def test_a_drawn_digit_is_read_in_the_browser(tmp_path: Path) -> None:
    demo_web().build(tmp_path / "site")
    seven = [(80, 40), (200, 40), (190, 70), (160, 130), (130, 190), (110, 245)]
    program = find()
    assert program is not None
    with serving(tmp_path / "site") as address, Browser(program, tmp_path / "profile", WEBGPU) as browser:
        browser.open(f"{address}/index.html")
        x, y = browser.run("[...Object.values(document.getElementById('pad').getBoundingClientRect().toJSON())]")[:2]
        browser.drag([(x + a, y + b) for a, b in seven])
        browser.run("""new Promise((done) => { const look = () =>
            document.getElementById("answer").textContent === "7" ? done() : setTimeout(look, 20); look(); })""")
        assert not browser.errors


@pytest.mark.slow
@pytest.mark.skipif(find() is None, reason="no Chromium here")
def test_a_page_learns_digits_from_nothing(tmp_path: Path) -> None:
    demo = demo_web()
    demo.build(tmp_path / "site")
    demo.build_learning(tmp_path / "site")
    program = find()
    assert program is not None
    with (
        serving(tmp_path / "site") as address,
        Browser(program, tmp_path / "profile", WEBGPU, patience=600) as browser,
    ):
        browser.open(f"{address}/learn.html")
        score = "parseFloat(document.getElementById('score').textContent)"
        assert browser.run(score) < 50
        browser.run("""new Promise((done) => { const learn = document.getElementById("learn"); learn.click();
            const look = () => learn.disabled ? setTimeout(look, 50) : done(); look(); })""")
        # four trainings of as many steps by a library for C, and one by a page, ended at 96 to 98 % of 450 pictures
        assert browser.run(score) >= 95, browser.run("document.getElementById('status').textContent")
        assert not browser.errors


def test_demo_runs_and_reads_well_in_80_columns(tmp_path: Path) -> None:
    text = run(sys.executable, SAMPLES / "demo.py", tmp_path).replace(str(tmp_path), "build")
    accuracy = re.search(r"accuracy: (\d+) of (\d+)", text)
    assert accuracy and int(accuracy[1]) / int(accuracy[2]) >= 0.97
    assert "us per image" in text
    assert [line for line in text.splitlines() if len(line) > 80] == []


def test_a_function_written_in_numpy() -> None:
    """Prices of some 100, of a logarithm, two exponentials and a square root in f32."""
    *rows, last = run(sys.executable, SAMPLES / "numpy_function.py").splitlines()[1:]
    assert len(rows) == 3 and last.startswith("traces: 1;")
    assert all(float(row.split()[-1]) < 1e-3 for row in rows)


@pytest.mark.slow
def test_a_small_gpt_learns_from_a_text() -> None:
    """Twelve steps; of 30 letters, the first guess costs as much as one at random, log(30) = 3.4 nats, and more."""
    said = run(sys.executable, SAMPLES / "tiny_gpt.py", SAMPLES / "README.md", "12")
    costs = [float(cost) for cost in re.findall(r"step .*: (\S+) nats", said)]
    assert len(costs) == 12 and costs[0] > 3.4 and costs[-1] < costs[0] - 0.7


@SLOW  # the samples of digits train too
def test_the_last_blocks_of_a_network_learn_pictures() -> None:
    """Sixty steps; of three kinds a guess is right for a third."""
    said = run(sys.executable, SAMPLES / "fine_tune.py", "60")
    right = [int(part) for part in re.findall(r"(\d+)% of other pictures", said)]
    assert len(right) == 3 and right[0] < 55 and right[-1] > 65


def test_the_program_that_trains_learns_and_goes_on(tmp_path: Path) -> None:
    """Without warnings; a second run goes on where the first one stopped, and a bundle reads what was learned."""
    bundle, state, program = (tmp_path / n for n in ("training.tsc", "state.safetensors", "train"))
    torshc.compile(SAMPLES / "digits.onnx", bundle, train=SAMPLES / "train_digits.yaml")
    flags = ("-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", f"-Wl,-rpath,{bundle}")
    run(needed().cc, *flags, f"-I{bundle}", SAMPLES / "train_digits.c", f"-L{bundle}", "-ltraining", "-o", program)
    first = [float(loss) for loss in re.findall(r"loss (\S+)", run(program, bundle, state))]
    then = [float(loss) for loss in re.findall(r"loss (\S+)", run(program, bundle, state, "10"))]
    assert len(first) == 5 and first[0] > 1 and first[-1] < 0.01 and then[0] <= first[-1]
    assert torshc.load(bundle).state_dict().keys() >= {"torshc.step", "conv0.weight"}
    refused = subprocess.run([program, bundle, SAMPLES / "digits.onnx"], capture_output=True, text=True, check=False)
    assert refused.returncode == 1 and "is none that a library of torshc wrote" in refused.stderr

    write_model(SAMPLES / "digits.onnx", state, tmp_path / "turned.onnx")
    torshc.compile(SAMPLES / "digits.onnx", tmp_path / "digits.tsc")
    set_weights(tmp_path / "digits.tsc", SAMPLES / "digits.onnx", CompileOptions(), state)
    text = (SAMPLES / "c" / "digits.h").read_text().partition("= {")[2]
    images = np.array(re.findall(r"\d+", text), np.float32).reshape(10, 64)[:, ::-1].reshape(10, 1, 8, 8) / 16
    said = torshc.load(tmp_path / "digits.tsc").run({"image": images})["probability"]
    assert said.argmax(1).tolist() == [*range(10)]
    (expected,) = ReferenceEvaluator(onnx.load(tmp_path / "turned.onnx")).run(None, {"image": images})
    np.testing.assert_allclose(said, expected, atol=1e-5)
