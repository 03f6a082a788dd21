"""What can go wrong with a library for WebGPU: no library, no adapter, limits of the adapter, a lost device."""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest
from onnx import helper

import torshc
from tests.support import compilers
from tests.targets.gpu.webgpu.test_target import F32, model, opened
from tests.training.networks import ADAM, Reference, batches, convolutional, write_step
from torshc.base.errors import BundleError, RunError
from torshc.base.resources import find_template
from torshc.base.webgpu import NAMED, find_library
from torshc.targets.cc import find_compiler

Between = Callable[[str], ctypes.CDLL]

NEGATIVE = model([helper.make_node("Neg", ["x"], ["y"])], {"x": (F32, ["n"])}, {"y": F32})

# Stands between a bundle and the library: keeps the device, so that it can be lost.
BETWEEN = r"""
#include <dlfcn.h>
#include "t_webgpu.h"
void *library;
static w_object device;
static w_made given;
static void on_made(uint32_t status, void *made, w_text message, void *user, void *more)
{
    device = made;
    given.call(status, made, message, user, more);
}
void wgpuAdapterRequestDevice(w_object adapter, const w_device_options *options, w_made made)
{
    void (*request)(w_object, const w_device_options *, w_made);
    *(void **)&request = dlsym(library = dlopen(REAL, RTLD_NOW), "wgpuAdapterRequestDevice");
    given = made;
    made.call = on_made;
    request(adapter, options, made);
}
void lose(void)
{
    void (*destroy)(w_object);
    *(void **)&destroy = dlsym(library, "wgpuDeviceDestroy");
    destroy(device);
}
"""


# Denies the adapter's subgroups, or has it keep them; sees whether a kernel uses any.
SUBGROUPS = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>
#include "t_webgpu.h"
int allowed = 1, had, used;
uint32_t wgpuAdapterHasFeature(w_object adapter, enum w_feature feature)
{
    uint32_t (*real)(w_object, enum w_feature);
    *(void **)&real = dlsym(dlopen(REAL, RTLD_NOW), "wgpuAdapterHasFeature");
    had |= real(adapter, feature);
    return allowed && real(adapter, feature);
}
w_object wgpuDeviceCreateShaderModule(w_object device, const w_labelled *options)
{
    w_object (*real)(w_object, const w_labelled *);
    *(void **)&real = dlsym(dlopen(REAL, RTLD_NOW), "wgpuDeviceCreateShaderModule");
    const w_text code = ((const w_code *)options->next)->code;
    used |= memmem(code.data, code.length, "subgroupAdd", 11) != NULL;
    return real(device, options);
}
"""


@pytest.fixture
def between(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Between:
    """Compiles functions that bundles find in place of those of the library of the same names."""

    def built(source: str) -> ctypes.CDLL:
        real, made = find_library(), tmp_path / "between.so"
        (tmp_path / "between.c").write_text(source)
        headers = find_template(("webgpu",), "t_webgpu.h").parent
        flags = ["-shared", "-fPIC", f"-I{headers}", f'-DREAL="{real}"', "between.c", "-o", str(made), "-ldl"]
        flags += ["-Wl,--no-as-needed", real]  # for the other functions
        subprocess.run([compilers.needed().cc, *flags, f"-Wl,-rpath,{Path(real).parent}"], cwd=tmp_path, check=True)
        monkeypatch.setenv(NAMED, str(made))
        return ctypes.CDLL(str(made))

    return built


def test_no_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(NAMED, "/nowhere/libwebgpu.so")
    torshc.compile(NEGATIVE, tmp_path / "m.tsc", target="webgpu")
    with pytest.raises(
        BundleError, match=r"no library of webgpu\.h: /nowhere/libwebgpu\.so: .*; TORSHC_WEBGPU names one"
    ):
        torshc.load(tmp_path / "m.tsc")


def test_no_library_of_any_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message names the file that this system would have."""
    monkeypatch.setenv(NAMED, "")
    monkeypatch.setattr(torshc.base.webgpu, "find_library", str)
    torshc.compile(NEGATIVE, tmp_path / "m.tsc", target="webgpu", keep_intermediates=True)
    suffix = "dylib" if sys.platform == "darwin" else "so"
    with pytest.raises(
        BundleError, match=rf"no library of webgpu\.h: .*libwgpu_native\.{suffix}.*; TORSHC_WEBGPU"
    ) as no:
        torshc.load(tmp_path / "m.tsc")
    assert "pip install wgpu" in no.value.remedy and "nvidia" not in no.value.remedy
    sources = tmp_path / "m.tsc" / "src"
    command = [*find_compiler(None).command, "-E", "-P", "-I", str(sources), str(sources / "t_gpu.c")]
    for flag, name in (("-D__APPLE__", "libwgpu_native.dylib"), ("-U__APPLE__", "libwgpu_native.so")):
        text = subprocess.run([*command, flag], capture_output=True, text=True, check=True).stdout
        assert re.findall(r'"libwgpu_native[^"]*"', text) == [f'"{name}"']


def test_no_adapter(tmp_path: Path) -> None:
    """In another process, since drivers stay where they are loaded."""
    opened(NEGATIVE, tmp_path).close()
    hidden = {"VK_DRIVER_FILES": os.devnull, "__EGL_VENDOR_LIBRARY_FILENAMES": os.devnull}
    code = "import sys, torshc\ntry:\n torshc.load(sys.argv[1])\nexcept torshc.TorshcError as error:\n print(error)"
    command = [sys.executable, "-c", code, str(tmp_path / "m.tsc")]
    done = subprocess.run(command, env={**os.environ, **hidden}, capture_output=True, text=True, check=True)
    if not done.stdout:
        pytest.skip("this driver cannot be hidden")
    assert "cannot open 'test': WebGPU finds no adapter: no GPU with a driver" in done.stdout
    assert "its library says: " in done.stdout


def test_what_the_adapter_cannot_hold(tmp_path: Path) -> None:
    """The message has what is needed and what there is."""
    negative = opened(NEGATIVE, tmp_path)
    try:
        negative.run({"x": np.zeros(40_000_000, np.float32)})
    except RunError as error:
        binding = r"argument \d has 160000000 bytes; this adapter binds \d+ at most"
        assert re.search(rf"{binding}|asked \d+ bytes; a buffer of this adapter has \d+ at most", str(error))
    else:
        pytest.skip("this adapter holds it")
    assert list(negative.run({"x": np.ones(2, np.float32)})["y"]) == [-1, -1]


@pytest.mark.parametrize(
    "to, source, size", [(0, 0, 64), (8, 4, 61), (5, 0, 3), (3, 64, 1), (2, 7, 40), (64, 0, 32), (6, 4, 30), (0, 5, 0)]
)
@pytest.mark.parametrize("where", ["up", "down", "across", "within"])
def test_copies_of_any_bytes(where: str, to: int, source: int, size: int, tmp_path: Path) -> None:
    """WebGPU copies words between buffers; what shares words with other bytes leaves those alone."""
    opened_model = opened(NEGATIVE, tmp_path)
    library, handle = opened_model._opened.library, opened_model._opened.handle
    places = [ctypes.c_void_p(), ctypes.c_void_p()]
    held = [np.random.default_rng(k).integers(0, 256, 128, np.uint8) for k in (0, 1)]
    with opened_model:
        for place, bytes_ in zip(places, held, strict=True):
            assert library.torshc_alloc(handle, 128, ctypes.byref(place)) == 0
            assert library.torshc_copy(handle, place, bytes_.ctypes.data, 128) == 0
        first, second = (int(place.value or 0) for place in places)
        data = np.random.default_rng(2).integers(0, 256, 128, np.uint8)
        a = {"up": first, "down": data.ctypes.data, "across": first, "within": first}[where] + to
        b = {"up": data.ctypes.data, "down": second, "across": second, "within": first}[where] + source
        wanted = [held[0].copy(), held[1].copy(), data.copy()]
        target = wanted[2] if where == "down" else wanted[0]
        given = {"up": data, "down": held[1], "across": held[1], "within": held[0]}[where]
        target[to : to + size] = given[source : source + size]
        assert library.torshc_copy(handle, a, b, size) == 0
        for place, want in zip(places, wanted[:2], strict=True):
            found = np.zeros(128, np.uint8)
            assert library.torshc_copy(handle, found.ctypes.data, place, 128) == 0
            np.testing.assert_array_equal(found, want)
            library.torshc_free(handle, place)
        np.testing.assert_array_equal(data, wanted[2])


def test_another_device(tmp_path: Path) -> None:
    opened(NEGATIVE, tmp_path).close()
    with pytest.raises(RunError, match="there is no device 1 of WebGPU, only device 0"):
        torshc.load(tmp_path / "m.tsc", device=1)


def test_a_lost_device(tmp_path: Path, between: Between) -> None:
    opened(NEGATIVE, tmp_path).close()
    library = between(BETWEEN)
    with torshc.load(tmp_path / "m.tsc") as negative:
        assert list(negative.run({"x": np.ones(2, np.float32)})["y"]) == [-1, -1]
        library.lose()
        with pytest.raises(RunError, match=r"WebGPU's device was lost .*: close the models of this library"):
            negative.run({"x": np.ones(2, np.float32)})


@pytest.mark.parametrize("allowed", [0, 1])
def test_rows_with_and_without_subgroups(allowed: int, tmp_path: Path, between: Between) -> None:
    """The kernel has two texts, of which the device runs one."""
    source = model([helper.make_node("Softmax", ["x"], ["y"])], {"x": (F32, [3, 1030])}, {"y": F32})
    opened(source, tmp_path).close()
    library = between(SUBGROUPS)
    ctypes.c_int.in_dll(library, "allowed").value = allowed
    x = np.random.default_rng(0).normal(size=(3, 1030)).astype(np.float32)
    x[1, 7], x[2, 1029] = np.nan, -np.inf
    with torshc.load(tmp_path / "m.tsc") as softmax:
        found = softmax.run({"x": x})["y"]
        assert np.array_equal(softmax.run({"x": x})["y"], found, equal_nan=True)
    np.testing.assert_allclose(found, ort.InferenceSession(source).run(None, {"x": x})[0], rtol=1e-5)
    had, used = (ctypes.c_int.in_dll(library, name).value for name in ("had", "used"))
    assert used == (had and allowed)


@pytest.mark.parametrize("kind", ["gcc", "clang"])
def test_rows_of_a_library_that_was_built_from_its_sources(kind: str, tmp_path: Path) -> None:
    """Both texts of its kernel are there, with whichever compiler."""
    compiler = compilers.needed(kind)
    if compiler.kind == "zig":
        pytest.skip("build.sh is for clang and gcc")
    source = model([helper.make_node("Softmax", ["x"], ["y"])], {"x": (F32, [3, 1030])}, {"y": F32})
    opened(source, tmp_path).close()
    torshc.compile(source, tmp_path / "s.tsc", target="webgpu", emit="source")
    texts = {file.name: file.read_text() for file in (tmp_path / "s.tsc" / "src").glob("*.wgsl")}
    assert sorted("subgroupAdd" in text for text in texts.values()) == [False, True], texts.keys()
    env = {**os.environ, "TORSHC_CC": compiler.cc}
    subprocess.run(["sh", "src/build.sh"], cwd=tmp_path / "s.tsc", env=env, check=True)
    with torshc.load(tmp_path / "s.tsc") as softmax:
        found = softmax.run({"x": np.zeros((3, 1030), np.float32)})["y"]
    np.testing.assert_allclose(found, np.full((3, 1030), 1 / 1030), rtol=1e-5)


def test_steps_are_those_of_f64_and_states_are_files(tmp_path: Path) -> None:
    trained = opened(convolutional(batch=8), tmp_path, train=write_step(tmp_path, ADAM))
    reference, given = Reference(), batches(4)
    for k, batch in enumerate(given):
        if k == 2:
            trained.save_state(tmp_path / "s.safetensors")
        loss = float(trained.step(batch)["loss"])
        # each step is some hundred roundings of f32, of 6e-8 each, and begins with the errors of those before
        assert loss == pytest.approx(reference.step(**batch), rel=1e-5 * (k + 1), abs=1e-6 * (k + 1)), k
    after = trained.state_dict()
    trained.load_state(tmp_path / "s.safetensors")
    for batch in given[2:]:
        trained.step(batch)
    assert all(np.array_equal(after[name], state) for name, state in trained.state_dict().items())
