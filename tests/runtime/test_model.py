"""Loading and running a bundle from Python."""

from __future__ import annotations

import copy
import gc
import json
import os
import pickle
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from ctypes import byref, c_void_p
from pathlib import Path, PosixPath
from typing import Any

import numpy as np
import pytest

import torshc
from tests.bundle import tiny
from tests.support.forks import in_child
from tests.support.models import parsed
from tests.support.slow import SLOW
from torshc.base.errors import BundleError, RunError
from torshc.base.manifest import manifest_hash
from torshc.runtime import Model, load
from torshc.runtime.native import Library
from torshc.runtime.values import LARGE

Z = 'z"*/\n{{ }}'


@pytest.fixture(scope="session")
def symbolic(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.write(tmp_path_factory.mktemp("symbolic") / "b.tsc", profile=True)


@pytest.fixture(scope="session")
def static(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.write(tmp_path_factory.mktemp("static") / "b.tsc", 4)


def rows(n: int, seed: int = 0) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.random.default_rng(seed).standard_normal((n, 16)).astype(np.float32)


def count(kind: str) -> int:
    """This process's "fd"s or "task"s."""
    return len(list(Path("/proc/self", kind).iterdir()))


def same(found: dict[str, Any], x: np.ndarray[Any, Any]) -> bool:
    want = tiny.expected(x)
    return list(found) == list(want) and all(np.array_equal(found[k], want[k]) for k in want)


def test_run_by_name_and_by_place(symbolic: Path) -> None:
    with load(symbolic, threads=2) as model:
        for n in (4, 0, 1, 2, 7, 100, 3):
            x = rows(n, n)
            assert same(model.run({"x": x}), x)
            y, z = model(x)
            assert np.array_equal(y, tiny.expected(x)["y"]) and z.shape == (n, 16)
        assert [(s.name, s.dtype, s.shape) for s in model.inputs] == [("x", "f32", ("batch", 16))]
        assert [s.name for s in model.outputs] == ["y", Z]


def test_copies_only_what_must_be(symbolic: Path) -> None:
    with load(symbolic, threads=1) as model:
        x = rows(8)
        assert same(model.run({"x": x[::2]}), x[::2])
        turned = np.asfortranarray(x)
        assert same(model.run({"x": turned}), x)
        raw = np.zeros(8 * 64 + 1, np.uint8)
        odd = raw[1:].view(np.float32).reshape(8, 16)
        odd[:] = x
        assert same(model.run({"x": odd}), x)
        x.setflags(write=False)
        assert same(model.run({"x": x}), x)


def test_repeated_runs(symbolic: Path) -> None:
    """Runs with the shapes of the one before take a shorter way: arrays that cannot go it are copied or refused."""
    with load(symbolic, threads=1) as model:
        x = rows(4)
        assert same(model.run({"x": x}), x)
        raw = np.zeros(4 * 64 + 1, np.uint8)
        odd = raw[1:].view(np.float32).reshape(4, 16)
        odd[:] = x
        fixed = x.copy()
        fixed.setflags(write=False)
        for given in (rows(4, 1), x[::-1], np.asfortranarray(x), odd, fixed, rows(4, 2), rows(5), rows(4, 3)):
            assert same(model.run({"x": given}), given)
            again = model.run({"x": given})
            assert same(again, given)
            out = {"y": np.full_like(again["y"], np.nan)}
            found = model.run({"x": given}, out)
            assert found["y"] is out["y"] and same(found, given)
        for wrong in (x.astype(np.float64), x[:, :15], x[0]):
            with pytest.raises(RunError, match="input 'x' has"):
                model.run({"x": wrong})
            assert same(model.run({"x": x}), x)
        for target in (np.empty((4, 9), np.float32), again["y"][::-1], again["y"].astype(np.float64)):
            target.setflags(write=False)
            with pytest.raises(RunError, match=r"out\['y'\] is not"):
                model.run({"x": x}, {"y": target})
        runs = model.stats().runs
        assert same(model.run({"x": x}), x) and model.stats().runs == runs + 1
    with pytest.raises(RunError, match="is closed"):
        model.run({"x": x})


def test_arrays_from_other_processes_take_the_shorter_way(symbolic: Path) -> None:
    """What pickle makes has a type of its own, equal to NumPy's."""
    with load(symbolic, threads=1) as model:
        x = pickle.loads(pickle.dumps(rows(4)))
        assert same(model.run({"x": x}), x)
        assert isinstance(model, Model) and model._repeat is not None
        assert x.dtype is not np.dtype(np.float32) and model._repeat.set({"x": x}, {}) is not None
        assert model._repeat.set({"x": x.astype(">f4")}, {}) is None


def test_out(symbolic: Path) -> None:
    with load(symbolic, threads=1) as model:
        x, y = rows(3), np.zeros((3, 16), np.float32)
        found = model.run({"x": x}, out={"y": y})
        assert found["y"] is y and same(found, x)
        for wrong in (np.zeros((3, 16)), np.zeros((2, 16), np.float32), np.zeros((3, 32), np.float32)[:, ::2], [1]):
            with pytest.raises(RunError, match="'y'"):
                model.run({"x": x}, out={"y": wrong})  # type: ignore[dict-item]
        with pytest.raises(RunError, match="no output 'q'"):
            model.run({"x": x}, out={"q": y})
        with pytest.raises(RunError, match="overlaps"):
            model.run({"x": x}, out={"y": x})
        with pytest.raises(RunError, match="overlaps"):
            model.run({"x": x}, out={"y": y, Z: y})


@pytest.mark.parametrize(
    ("inputs", "says"),
    [
        ({}, "input 'x' is missing"),
        ({"x": rows(1), "w": rows(1)}, "no input 'w'"),
        ({"xx": rows(1)}, r"no input 'xx'; did you mean 'x'\?"),
        ({"x": rows(1).astype(np.float64)}, "float64; expected float32"),
        ({"x": rows(1).astype(">f4")}, "expected float32"),
        ({"x": [[1.0] * 16]}, "float64; expected float32"),
        ({"x": "text"}, "expected float32"),
        ({"x": None}, "expected float32"),
        ({"x": rows(1)[0]}, r"has shape \[16\]; expected \[batch, 16\]"),
        ({"x": rows(2)[:, :15]}, r"shape \[2, 15\]; expected \[batch, 16\]"),
        ([rows(1)], "dictionary"),
    ],
)
def test_wrong_inputs_are_named(symbolic: Path, inputs: Any, says: str) -> None:
    with load(symbolic, threads=1) as model, pytest.raises(RunError, match=says):
        model.run(inputs)


def test_text_is_not_told_to_be_cast(symbolic: Path) -> None:
    with load(symbolic, threads=1) as model, pytest.raises(RunError) as caught:
        model.run({"x": "text"})
    assert caught.value.remedy == "pass an array of float32"


def test_wrong_counts_and_static_shapes(static: Path) -> None:
    with load(static, threads=1) as model:
        assert same(model.run({"x": rows(4)}), rows(4))
        with pytest.raises(RunError, match="0 inputs; expected 1"):
            model()
        with pytest.raises(RunError, match=r"shape \[3, 16\]; expected \[4, 16\]"):
            model(rows(3))
        assert model.stats().steps == ()


def test_stats(symbolic: Path) -> None:
    with load(symbolic, threads=1) as model:
        for _ in range(3):
            model(rows(5))
        model(rows(0))  # no tasks: no launch
        stats = model.stats()
        assert stats.runs == 4 and stats.seconds > 0
        assert [(s.kernel, s.calls, s.nodes) for s in stats.steps] == [("k0", 3, ("node 0",)), ("k1", 3, ("node 1",))]
        assert 0 < sum(s.seconds for s in stats.steps) <= stats.seconds


def test_closed(symbolic: Path) -> None:
    model = load(symbolic, threads=1)
    model.close()
    model.close()
    assert "closed" in repr(model) and model.stats().steps == ()
    with pytest.raises(RunError, match="closed"):
        model(rows(1))


def test_threads_share_a_model_and_models_share_a_process(symbolic: Path, static: Path) -> None:
    wrong: list[str] = []
    with load(symbolic, threads=2) as one, load(static, threads=1) as other:

        def work(seed: int) -> None:
            for i in range(150):
                n = 1 + (seed + i) % 9
                if not same(one.run({"x": rows(n, seed)}), rows(n, seed)) or not same(
                    other.run({"x": rows(4, seed)}), rows(4, seed)
                ):
                    wrong.append(f"thread {seed}")

        threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong


def test_contexts_run_at_the_same_time(symbolic: Path) -> None:
    """Each has its own lock and workspace; the model may be closed before them."""
    with load(symbolic) as model:
        contexts = [model.context(), model.context(threads=2), model.context()]
        nested = contexts[2].context()
    with pytest.raises(RunError, match="is closed"):
        model.context()
    with pytest.raises(RunError, match="0 threads"):
        nested.context(threads=0)

    def run(context: Model) -> bool:
        return all(same(context.run({"x": rows(n, n)}), rows(n, n)) for n in range(1, 40))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(run, [*contexts, nested]))
    assert [c.stats().runs for c in contexts] == [39] * 3


def test_a_library_without_contexts_says_so(symbolic: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Library, "has_contexts", False)
    with load(symbolic) as model, pytest.raises(RunError, match="without contexts"):
        model.context()


def test_a_replaced_bundle_beside_an_open_one(tmp_path: Path) -> None:
    place, x = tmp_path / "b.tsc", rows(4)
    old = load(tiny.write(place), threads=1)
    for step in (1, 2, 3):
        tiny.write(place, weights=np.full(16, float(step), np.float32))
        with load(place, threads=1) as new:
            assert np.array_equal(new(x)[0], np.maximum(x, 0) + np.float32(step))
            assert same(old.run({"x": x}), x)
    old.close()


def test_a_model_collected_while_another_is_loaded(symbolic: Path, static: Path) -> None:
    """The collector may run at any place of Python's code, also where libraries that are loaded are counted."""
    old = [load(symbolic, threads=1)]

    class Collecting(PosixPath):
        def __hash__(self) -> int:
            old.clear()
            gc.collect()
            return super().__hash__()

    loaded = list[Library]()
    library = Collecting(static / "libmodel.so")
    loading = threading.Thread(target=lambda: loaded.append(Library(library)), daemon=True)
    loading.start()
    loading.join(20)
    assert loaded, "loading waits for itself"
    loaded[0].unload()


def copied(bundle: Path, folder: Path) -> Path:
    return Path(shutil.copytree(bundle, folder / "copy.tsc"))


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def edit(change: dict[str, Any], honest: bool = False) -> Callable[[Path], None]:
    def apply(bundle: Path) -> None:
        body = json.loads((bundle / "manifest.json").read_text()) | change
        if honest:
            body.pop("sha256")
            body["sha256"] = manifest_hash(body)
        (bundle / "manifest.json").write_text(json.dumps(body))

    return apply


def changed(part: str, number: int, **fields: Any) -> Callable[[Path], None]:
    """Some fields of an entry are others; the manifest's own hash fits."""

    def apply(bundle: Path) -> None:
        entries = json.loads((bundle / "manifest.json").read_text())[part]
        entries[number] |= fields
        edit({part: entries}, honest=True)(bundle)

    return apply


ALTERATIONS: dict[str, Callable[[Path], object]] = {
    "library bit": lambda b: flip(b / "libmodel.so", 5000),
    "library gone": lambda b: (b / "libmodel.so").unlink(),
    "weights bit": lambda b: flip(b / "weights.bin", 3),
    "weights short": lambda b: os.truncate(b / "weights.bin", 100),
    "weights gone": lambda b: (b / "weights.bin").unlink(),
    "manifest gone": lambda b: (b / "manifest.json").unlink(),
    "manifest empty": lambda b: (b / "manifest.json").write_text(""),
    "manifest folder": lambda b: ((b / "manifest.json").unlink(), (b / "manifest.json").mkdir()),
    "manifest name": edit({"model": "other"}),
    "manifest version": edit({"format_version": 99}, honest=True),
    "manifest field": edit({"inputs": None}, honest=True),
    "manifest dtype": edit({"inputs": [{"name": "x", "dtype": "q3", "dims": []}]}, honest=True),
    "manifest dims": edit({"inputs": [{"name": "x", "dtype": "f32", "dims": ["batch", 17]}]}, honest=True),
    "manifest inputs": edit({"inputs": []}, honest=True),
    "manifest input's name": changed("inputs", 0, name="z"),
    "manifest input's dtype": changed("inputs", 0, dtype="i32"),
    "manifest output's name": changed("outputs", 0, name="other"),
    "manifest output's dtype": changed("outputs", 1, dtype="f64"),
    "manifest symbol's range": changed("symbols", 0, max=5),
    "manifest symbols": edit({"symbols": [{"name": "batch"}]}, honest=True),
    "manifest device": edit({"device": 2}, honest=True),
    "manifest device unknown": edit({"device": 5}, honest=True),
}


@pytest.mark.parametrize("name", ALTERATIONS)
def test_altered_bundles_are_refused(name: str, symbolic: Path, tmp_path: Path) -> None:
    bundle = copied(symbolic, tmp_path)
    load(bundle, threads=1).close()
    ALTERATIONS[name](bundle)
    with pytest.raises(BundleError) as caught:
        load(bundle, threads=1)
    assert caught.value.remedy


@pytest.mark.parametrize("name", ["manifest.json", "weights.bin", "libmodel.so"])
def test_a_pipe_in_a_bundle_is_not_waited_for(name: str, symbolic: Path, tmp_path: Path) -> None:
    bundle = copied(symbolic, tmp_path)
    (bundle / name).unlink()
    os.mkfifo(bundle / name)
    for verify in (True, False):
        with pytest.raises(BundleError, match="not a plain file"):
            load(bundle, threads=1, verify=verify)


@pytest.mark.parametrize("name", ["weights short", "weights gone", "library gone"])
def test_what_is_seen_without_verifying(name: str, symbolic: Path, tmp_path: Path) -> None:
    bundle = copied(symbolic, tmp_path)
    ALTERATIONS[name](bundle)
    with pytest.raises(BundleError):
        load(bundle, threads=1, verify=False)


def test_the_weights_of_another_build(symbolic: Path, tmp_path: Path) -> None:
    bundle = copied(symbolic, tmp_path)
    other = tiny.write(tmp_path / "other.tsc", weights=np.zeros(16, np.float32))
    shutil.copy(other / "weights.bin", bundle / "weights.bin")
    with pytest.raises(BundleError, match="another"):
        load(bundle, threads=1, verify=False)


def test_what_is_no_bundle(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for place in (tmp_path, tmp_path / "file", tmp_path / "nothing"):
        with pytest.raises(BundleError):
            load(place)
    with pytest.raises(RunError):
        load(tmp_path, threads=0)


def test_relative_paths_and_embedded_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    tiny.write(Path("b.tsc"), embed=True)
    assert not Path("b.tsc/weights.bin").exists()
    with load("b.tsc") as model:
        monkeypatch.chdir("/")
        assert same(model.run({"x": rows(3)}), rows(3))


GROWTH = """
import gc, os, resource, sys
from pathlib import Path
import numpy as np
from torshc.runtime import load

def counts():
    gc.collect()
    maps = sum("libmodel" in line for line in Path("/proc/self/maps").read_text().splitlines())
    return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task")), maps

def open_close(times):
    for i in range(times):
        load(sys.argv[1 + i % 2], threads=2, verify=False).close()

open_close(50)
before, memory = counts(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
open_close(1000)
with load(sys.argv[1], threads=1) as model:
    x = {"x": np.ones((4, 16), np.float32)}
    for _ in range(int(sys.argv[3])):
        model.run(x)
assert counts() == before, (counts(), before)
grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory
assert grown < 4096, grown  # KiB
print(grown)
"""


@pytest.mark.parametrize("runs", [20_000, pytest.param(100_000, marks=SLOW)])
def test_no_growth(runs: int, symbolic: Path, static: Path, record_property: Callable[[str, object], None]) -> None:
    """In a process of its own: other tests leave files open that may be closed meanwhile."""
    command = [sys.executable, "-c", GROWTH, str(static), str(symbolic), str(runs)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    for what, value in (("runs", runs), ("open and close", 1000), ("at most KiB of growth", done.stdout)):
        record_property(what, int(value))


def test_forked_children_are_told(symbolic: Path) -> None:
    model = load(symbolic, threads=2)
    model(rows(1))

    def run() -> None:
        with pytest.raises(RunError, match="fork"):
            model(rows(1))

    assert in_child(run) == 0
    model.close()


def test_a_model_that_is_dropped_is_closed(symbolic: Path) -> None:
    model: Model | None = load(symbolic, threads=2)
    tasks = count("task")
    del model
    gc.collect()
    assert count("task") == tasks - 1


def test_loading_imports_no_compiler(symbolic: Path) -> None:
    code = (
        "import sys; from torshc.runtime import load; load(sys.argv[1]).close();"
        "bad = [m for m in sys.modules if m.split('.')[0] in ('onnx', 'jinja2', 'llvmlite', 'yaml', 'click')"
        " or m.startswith(('torshc.bundle', 'torshc.graph', 'torshc.ops'))]; sys.exit(str(bad) if bad else 0)"
    )
    root = str(Path(__file__).parents[2])
    subprocess.run([sys.executable, "-c", code, str(symbolic)], check=True, env={**os.environ, "PYTHONPATH": root})


class Shared:
    """A tensor of another library on the processor."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self.array = array

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)

    def __dlpack__(self, **how: Any) -> Any:
        return self.array.__dlpack__(**how)


def test_tensors_of_other_libraries(symbolic: Path) -> None:
    with load(symbolic, threads=1) as model:
        x, y = rows(3), np.zeros((3, 16), np.float32)
        assert same(model.run({"x": Shared(x)}), x)
        assert same(model.run({"x": Shared(np.asfortranarray(x))}), x)
        there = Shared(y)
        assert model.run({"x": Shared(x)}, out={"y": there})["y"] is there
        assert np.array_equal(y, tiny.expected(x)["y"])
        with pytest.raises(RunError, match=r"out\['y'\] is not contiguous"):
            model.run({"x": x}, out={"y": Shared(np.zeros((16, 3), np.float32).T)})
        with pytest.raises(RunError, match="is not an array of float32"):
            model.run({"x": x}, out={"y": [0.0]})


def test_inputs_by_keyword(symbolic: Path) -> None:
    with load(symbolic, threads=1) as model:
        x = rows(2)
        assert np.array_equal(model(x=x)[0], tiny.expected(x)["y"])
        for wrong in (lambda: model(x, x=x), lambda: model(z=x), lambda: model(x, z=x), lambda: model()):
            with pytest.raises(RunError):
                wrong()


def test_pickling_and_copying_are_refused(symbolic: Path) -> None:
    with load(symbolic, threads=1) as model:
        for act in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(RunError, match="cannot be pickled or copied"):
                act(model)


@pytest.fixture(scope="session")
def sized(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle of results whose sizes only a run knows: one of its own, and one that is two outputs."""
    made = parsed(
        """<ir_version: 8, opset_import: ["" : 18]> s (float[n, 64] x, bool[n] c) => (float[m, 64] y, float[m, 64] z,
        float[m, 64] w) { y = Compress<axis = 0>(x, c) a = Neg(x) z = Compress<axis = 0>(a, c) w = Identity(z) }"""
    )
    path = tmp_path_factory.mktemp("sized") / "b.tsc"
    torshc.compile(made, path)
    return path


@pytest.mark.parametrize("n", [0, 100, 2000])
def test_results_that_a_library_gives_away(sized: Path, n: int) -> None:
    """They stay as they are, whatever runs next, and when the model is closed; what is shared or small is copied."""
    x = np.random.default_rng(n).standard_normal((n, 64)).astype(np.float32)
    chosen = np.arange(n) % 3 > 0
    with load(sized, threads=1) as model:
        found = [model(x + k, chosen) for k in range(3)]
        lone = [values.base for values, *_ in found if not isinstance(values.base, np.ndarray | None)]
        assert len(lone) == (3 if n * 64 * 4 * 2 // 3 >= LARGE else 0)
        del found[1]
        found.insert(1, model(x + 1, chosen))
    gc.collect()
    for k, (y, z, w) in enumerate(found):
        y += 0  # it is the caller's
        assert np.array_equal(y, (x + k)[chosen]) and np.array_equal(z, -(x + k)[chosen]) and np.array_equal(w, z)


def kept(model: Model, output: int) -> tuple[int, int | None]:
    """The status of torshc_keep, and the memory."""
    memory = c_void_p()
    return model._library.torshc_keep(model._passed[0], output, byref(memory)), memory.value


def test_what_cannot_be_kept(sized: Path, symbolic: Path) -> None:
    x = np.ones((2000, 64), np.float32)
    with load(sized, threads=1) as model:
        assert kept(model, 0) == (0, None), "there was no run"
        taken = model(x, np.ones(2000, bool))
        assert kept(model, 0) == (0, None), "it was kept"
        assert kept(model, 1) == (0, None) and np.array_equal(taken[0], x)
        assert kept(model, 3)[0] and "output 3 of 3" in model._library.last_error()
    with load(symbolic, threads=1) as model:
        assert kept(model, 0)[0]
        assert "wrote the outputs into the caller's memory" in model._library.last_error()
