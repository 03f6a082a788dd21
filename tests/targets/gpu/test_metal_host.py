"""Metal's device layer, t_device.mm itself, run over stand-ins for the framework's classes (fake_metal.mm)."""

from __future__ import annotations

import ctypes
import ctypes.util
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto

import torshc
from tests.emulation.emulated import BIN, HERE, emulated_tools, missing
from tests.support.models import node
from torshc.base import resources
from torshc.base.errors import BundleError, RunError
from torshc.runtime.native import Device, Dtype, Library, Options, Tensor

from .test_metal import Array, floats, model

CLANG = next((c for c in ("clang++", *(f"clang++-{n}" for n in range(22, 13, -1))) if shutil.which(c)), None)
pytestmark = pytest.mark.skipif(
    missing(metal=True) is not None or CLANG is None or ctypes.util.find_library("objc") is None,
    reason="needs the emulator, clang++ and GNU's libobjc",
)
XCRUN = [str(BIN / "xcrun"), "-sdk", "macosx"]
# GNU's runtime knows no reference counting; the stand-ins live for ever.
OBJECTIVE = ["-std=c++17", "-x", "objective-c++", "-fobjc-runtime=gcc", "-fno-objc-arc", "-fblocks", "-O1", "-fPIC"]


@pytest.fixture(scope="module", autouse=True)
def tools() -> Iterator[None]:
    with emulated_tools():
        yield


@pytest.fixture(scope="module")
def layer(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Objects of the device layer and the stand-ins."""
    folder = tmp_path_factory.mktemp("layer")
    metal = HERE / "metal"
    include = [metal / "frameworks", metal, *resources.template_folders(("gpu", "c"))]
    made = {}
    for source in (resources.find_template(["metal"], "t_device.mm"), metal / "fake_metal.mm"):
        made[source.stem] = folder / f"{source.stem}.o"
        command = [str(CLANG), *OBJECTIVE, *(f"-I{f}" for f in include), "-fvisibility=hidden"]
        subprocess.run([*command, "-c", str(source), "-o", str(made[source.stem])], check=True)
    return made


def compile_over(layer: dict[str, Path], made: onnx.ModelProto, folder: Path, **options: Any) -> Path:
    """A bundle of which the library has the true device layer."""
    onnx.save(made, folder / "m.onnx")
    work = folder / "work"
    torshc.compile(folder / "m.onnx", folder / "m.tsc", target="metal", workdir=work, **options)
    kernels = {path.stem for path in (work / "src").glob("*.metal")}
    objects = [str(p) for p in sorted((work / "obj").iterdir()) if p.stem not in kernels and p.stem != "t_device"]
    embed = "-Wl,-sectcreate,__TEXT,__metallib,default.metallib"
    command = [*XCRUN, "clang++", "-dynamiclib", embed, *objects, *map(str, layer.values()), "-l:libobjc.so.4"]
    subprocess.run([*command, "-o", str(folder / "m.tsc" / "libmodel.so")], cwd=work, check=True)
    return folder / "m.tsc"


def test_runs(layer: dict[str, Path], tmp_path: Path) -> None:
    made, feeds = floats(np.random.default_rng(6), "float32")
    place = compile_over(layer, made, tmp_path)
    torshc.compile(tmp_path / "m.onnx", tmp_path / "c.tsc", target="c")
    with torshc.load(tmp_path / "c.tsc") as reference, torshc.load(place, verify=False) as loaded:
        for rows in (3, 1, 3):
            some = {k: a[:rows] for k, a in feeds.items()}
            wanted = reference.run(some)
            for key, a in loaded.run(some).items():
                np.testing.assert_allclose(a, wanted[key], rtol=3e-6, atol=3e-6, err_msg=key)
        contexts = [loaded.context(), loaded.context()]
        found = loaded.run(feeds)
    for context in contexts:  # the model is closed, its weights are not
        for key, a in context.run(feeds).items():
            np.testing.assert_array_equal(a, found[key], err_msg=key)
        context.close()


def mixed() -> tuple[onnx.ModelProto, dict[str, Array]]:
    """Steps on the processor between steps on the device, odd sizes, and an empty operand."""
    feeds: dict[str, Array] = {
        "x": np.linspace(-1, 1, 15, dtype=np.float32).reshape(3, 5),
        "i": np.arange(9, dtype=np.int8).reshape(3, 3),
        "e": np.zeros((3, 0), np.float32),
    }
    nodes = [
        node("Exp", "x", "a"),
        node("Cast", "a", "wide", to=TensorProto.DOUBLE),
        node("Sin", "wide", "sin"),
        node("Cast", "sin", "narrow", to=TensorProto.FLOAT),
        node("Neg", "narrow", "b"),
        node("Identity", "i", "same"),
        node("Concat", "b e x", "joined", axis=1),
    ]
    return model(nodes, feeds, "b same joined", symbolic=False), feeds


def test_processor_and_device_take_turns(layer: dict[str, Path], tmp_path: Path) -> None:
    made, feeds = mixed()
    place = compile_over(layer, made, tmp_path, fusion="none", profile=True)
    with torshc.load(place, verify=False) as loaded:
        for _ in range(2):
            got = loaded.run(feeds)
            wanted = -np.sin(np.exp(feeds["x"]).astype(np.float64)).astype(np.float32)
            np.testing.assert_allclose(got["b"], wanted, rtol=1e-6)
            np.testing.assert_array_equal(got["same"], feeds["i"])
            np.testing.assert_array_equal(got["joined"], np.concatenate([got["b"], feeds["x"]], axis=1))
        seconds = [step.seconds for step in loaded.stats().steps]
        assert all(0 < s < 1 for s in seconds) and sum(s == 2e-3 for s in seconds) >= 3  # 1 ms a launch, says the fake


def test_tensors_on_the_device(layer: dict[str, Path], tmp_path: Path) -> None:
    """In place where they are aligned to 16 bytes, else through copies on the device, by the device or byte by byte."""
    x, i = np.linspace(-1, 1, 15, dtype=np.float32).reshape(3, 5), np.arange(9, dtype=np.int8).reshape(3, 3)
    made = model([node("Exp", "x", "y"), node("Neg", "i", "j")], {"x": x, "i": i}, "y j")
    library = Library(compile_over(layer, made, tmp_path) / "libmodel.so")
    handle, at = ctypes.c_void_p(), ctypes.c_void_p()
    options = Options(ctypes.sizeof(Options))
    assert library.torshc_open(ctypes.byref(options), ctypes.byref(handle)) == 0
    assert library.torshc_alloc(handle, ctypes.c_size_t(4096), ctypes.byref(at)) == 0
    base = at.value or 0

    def copy(to: int, source: int, size: int) -> None:
        places = ctypes.c_void_p(to), ctypes.c_void_p(source)
        assert library.torshc_copy(handle, *places, ctypes.c_size_t(size)) == 0, library.last_error()

    def tensor(array: Array, place: int) -> Tensor:
        dtype = Dtype(2 if array.dtype.kind == "f" else 0, array.itemsize * 8, 1)
        shape = (ctypes.c_int64 * 2)(*array.shape)
        return Tensor(place, Device(8, 0), 2, dtype, shape)

    for offset, step in ((0, 0), (4, 4), (8, 1)):
        places = [base + offset, base + 512 + step, base + 1024 + offset, base + 1536 + step]
        copy(places[0], x.ctypes.data, x.nbytes)
        copy(places[1], i.ctypes.data, i.nbytes)
        inputs = (Tensor * 2)(tensor(x, places[0]), tensor(i, places[1]))
        outputs = (Tensor * 2)(tensor(x, places[2]), tensor(i, places[3]))
        assert library.torshc_run(handle, inputs, 2, outputs, 2, None, 0) == 0, library.last_error()
        y, j = np.zeros_like(x), np.zeros_like(i)
        copy(y.ctypes.data, places[2], y.nbytes)
        copy(j.ctypes.data, places[3], j.nbytes)
        np.testing.assert_allclose(y, np.exp(x), rtol=1e-6)
        np.testing.assert_array_equal(j, -i)
    inputs[0].data = x.ctypes.data
    assert library.torshc_run(handle, inputs, 2, outputs, 2, None, 0) == 10
    assert "input 0 says it is on a Metal device" in library.last_error()
    inputs[0].data = base + 16384 - 32  # the rest of the page is too short
    assert library.torshc_run(handle, inputs, 2, outputs, 2, None, 0) == 10
    assert library.torshc_free(handle, at) == 0
    library.torshc_close(handle)
    library.unload()


def test_failures_name_the_step(layer: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.ones((4, 4), np.float32)
    made = model([node("Exp", "x", "a"), node("Sin", "a", "b"), node("Neg", "b", "y")], {"x": x}, "y")
    place = compile_over(layer, made, tmp_path, fusion="none")
    monkeypatch.setenv("T_FAKE_FAIL", "1")
    with torshc.load(place, verify=False) as loaded:
        with pytest.raises(RunError, match=r"one of steps 0 to 2 \(TORSHC_METAL_BLOCKING=1 shows which\): a fault"):
            loaded(x)
        np.testing.assert_allclose(loaded(x)[0], -np.sin(np.exp(x)), rtol=1e-6)  # the model is still of use
    monkeypatch.setenv("T_FAKE_FAIL", "2")
    monkeypatch.setenv("TORSHC_METAL_BLOCKING", "1")
    with torshc.load(place, verify=False) as loaded, pytest.raises(RunError, match=r"step 2 \(k\w+\): a fault"):
        loaded(x)


def test_devices_that_will_not_do(layer: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.ones((4, 4), np.float32)
    place = compile_over(layer, model([node("Exp", "x", "y")], {"x": x}, "y"), tmp_path)
    with pytest.raises(RunError, match="there is no device 1; devices 0 to 0 exist"):
        torshc.load(place, verify=False, device=1)
    with torshc.load(place, verify=False) as loaded:
        with pytest.raises(RunError, match="asked 2097152 bytes, free 1047552 of 1048576, 1048576 at most"):
            loaded(np.ones((65536, 4), np.float32))
        np.testing.assert_allclose(loaded(x)[0], np.exp(x), rtol=1e-6)
    monkeypatch.setenv("T_FAKE_WIDTH", "64")
    with pytest.raises(BundleError, match="Fake GPU runs 64 threads at a time; the library's kernels are for 32"):
        torshc.load(place, verify=False)
