"""samples/ops and samples/image_decoder: operators of users, in files and in a package, do what they say."""

from __future__ import annotations

import os
import subprocess
import sys
import zlib
from functools import cache
from pathlib import Path

import numpy as np
import onnx
import pytest

import torshc
from tests.conformance.cases import Case, all_cases
from tests.support.compilers import needed
from tests.support.contrib import model_of
from tests.support.models import model, node
from torshc.base.errors import RunError
from torshc.base.options import CompileOptions
from torshc.workbench.verify import verify_bundle, verify_model

SAMPLES = Path(__file__).resolve().parents[2] / "samples"
DECODER = SAMPLES / "image_decoder/torshc_image_decoder/__init__.py"
LIBRARIES = {
    "jpeg": "jpeglib.h", "jpeg2k": "openjpeg.h", "png": "png.h", "webp": "webp/decode.h", "tiff": "tiffio.h",
    "zlib": "zlib.h",
}  # fmt: skip


def require_system() -> str:
    """A compiler that finds the system's libraries; a test is skipped where there is none."""
    found = needed()
    if found.kind == "zig":
        pytest.skip("zig finds none of the system's libraries")
    return found.cc


def require_header(library: str) -> None:
    """Skip a test where a library is not installed with its headers."""
    cc = require_system()
    if library not in LIBRARIES:
        return
    folders = [f"-I{folder}" for folder in Path("/usr/include").glob("openjpeg-2.*")]
    words = [cc, "-E", "-xc", "-", *folders]
    text = f"#include <stdio.h>\n#include <{LIBRARIES[library]}>\n"
    if subprocess.run(words, input=text, text=True, capture_output=True, check=False).returncode:
        pytest.skip(f"the headers of {library} are not installed")


def test_a_composite_of_a_foreign_domain(tmp_path: Path) -> None:
    x = np.random.default_rng(1).standard_normal((3, 8)).astype(np.float32)
    bias = np.random.default_rng(2).standard_normal(8).astype(np.float32)
    onnx.save(model_of("SwishGate", (x, bias), domain="com.example", dims={0: ["n", 8]}, beta=1.5), tmp_path / "m.onnx")
    torshc.compile(tmp_path / "m.onnx", tmp_path / "m.tsc", ops=SAMPLES / "ops/swish_gate.py")
    a, b = np.split(x + bias, 2, axis=-1)
    with torshc.load(tmp_path / "m.tsc") as loaded:
        np.testing.assert_allclose(loaded.run({"x0": x, "x1": bias})["out0"], a / (1 + np.exp(-1.5 * a)) * b, rtol=1e-5)


def test_functions_in_c(tmp_path: Path) -> None:
    require_header("zlib")
    ops = SAMPLES / "ops/functions_in_c.py"
    x = 20 * np.random.default_rng(1).standard_normal((5, 77)).astype(np.float32)
    onnx.save(model_of("BesselJ0", (x,), domain="com.example", dims={0: ["n", 77]}), tmp_path / "m.onnx")
    assert verify_model(tmp_path / "m.onnx", CompileOptions(ops=(ops,)), threads=3).ok
    text = b"There is no place like a place. " * 400
    data = np.frombuffer(zlib.compress(text), np.uint8)
    onnx.save(model_of("Inflate", (data,), domain="com.example", dims={0: ["n"]}), tmp_path / "m.onnx")
    torshc.compile(tmp_path / "m.onnx", tmp_path / "m.tsc", ops=ops)
    with torshc.load(tmp_path / "m.tsc") as loaded:
        assert loaded.run({"x0": data})["out0"].tobytes() == text
        with pytest.raises(RunError, match="its input is not what zlib compressed"):
            loaded.run({"x0": data[:-9]})
    np.save(tmp_path / "data.npy", data)
    given = [f"x0={tmp_path / 'data.npy'}"]
    assert verify_bundle(tmp_path / "m.onnx", tmp_path / "m.tsc", inputs=given, ops=[ops]).ok


def test_gradients_of_functions_in_c(tmp_path: Path) -> None:
    """ONNX's Gradient of J0, and of that."""
    require_header("zlib")
    x = np.array([-3.1, 0, 0.4, 7.5], np.float32)
    domain, training = "com.example", "ai.onnx.preview.training"
    nodes = [
        node("BesselJ0", "x", "y", domain=domain),
        node("Gradient", "x", "y1", domain=training, xs=["x"], y="y"),
        node("Gradient", "x", "y2", domain=training, xs=["x"], y="y1"),
    ]
    onnx.save(model(nodes, {"x": x}), tmp_path / "m.onnx")
    torshc.compile(tmp_path / "m.onnx", tmp_path / "m.tsc", ops=SAMPLES / "ops/functions_in_c.py")
    t = (np.arange(256) + 0.5) * (np.pi / 256)
    order = [np.cos(n * t - x[:, None].astype(np.float64) * np.sin(t)).mean(-1) for n in range(3)]
    with torshc.load(tmp_path / "m.tsc") as loaded:
        found = loaded.run({"x": x})
    # The second derivative of J0 is (J2 - J0) / 2.
    for name, wanted in (("y", order[0]), ("y1", -order[1]), ("y2", (order[2] - order[0]) / 2)):
        np.testing.assert_allclose(found[name], wanted, rtol=0, atol=1e-6)


FORMATS = (
    "bmp_rgb", "jpeg2k_rgb", "jpeg_bgr", "jpeg_grayscale", "jpeg_rgb", "png_rgb", "pnm_rgb", "tiff_rgb", "webp_rgb",
)  # fmt: skip


@cache
def images() -> dict[str, Case]:
    """Cases of ONNX by their formats. They are made when the first test needs them, which takes seconds."""
    found = (case for case in all_cases() if case.operator == "ImageDecoder")
    return {case.name.removeprefix("image_decoder_decode_"): case for case in found}


@pytest.mark.parametrize("form", FORMATS)
def test_images_of_all_formats(form: str, tmp_path: Path) -> None:
    require_header(form.split("_")[0])
    assert images().keys() == set(FORMATS)
    case = images()[form]
    model = onnx.ModelProto.FromString(case.model.SerializeToString())
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "n"
    torshc.compile(model, tmp_path / "m.tsc", ops=DECODER)
    with torshc.load(tmp_path / "m.tsc") as loaded:
        for given, wanted in case.data_sets:
            np.testing.assert_array_equal(loaded(*given)[0], wanted[0])
        (nothing,) = loaded(np.frombuffer(b"this is no image", np.uint8))
        assert nothing.shape == (0, 0, wanted[0].shape[2])
        (nothing,) = loaded(given[0][: len(given[0]) // 8])  # a part of the file
        assert nothing.ndim == 3


def test_a_format_without_its_library(tmp_path: Path) -> None:
    require_system()
    case = images()["webp_rgb"]
    package = tmp_path / "package"
    package.mkdir()
    for file in DECODER.parent.iterdir():
        if file.suffix in (".c", ".h", ".py"):
            text = file.read_text().replace("webp/decode.h", "webp/not_installed.h")
            (package / file.name).write_text(text)
    torshc.compile(case.model.SerializeToString(), tmp_path / "m.tsc", ops=package / "__init__.py")
    message = "compiled without WebP: install libwebp-dev and compile the model again"
    with torshc.load(tmp_path / "m.tsc") as loaded, pytest.raises(RunError, match=message):
        loaded(*case.data_sets[0][0])


def test_the_package_is_found_when_it_is_installed(tmp_path: Path) -> None:
    """As `pip install` leaves it: the package, and what names its entry point."""
    place = tmp_path / "site"
    place.mkdir()
    (place / "torshc_image_decoder").symlink_to(DECODER.parent)
    info = place / "torshc_image_decoder-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: torshc-image-decoder\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[torshc.operators]\nimages = torshc_image_decoder\n")
    case = images()["bmp_rgb"]
    (tmp_path / "m.onnx").write_bytes(case.model.SerializeToString())
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(place), *sys.path]), "TORSHC_CC": needed().cc}
    command = [sys.executable, "-m", "torshc", "explain", str(tmp_path / "m.onnx")]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    assert "ImageDecoder: host kernel" in done.stdout
    env["PYTHONPATH"] = os.pathsep.join(sys.path)
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert "ImageDecoder is not supported yet; declare it in Python and name that file with --ops" in done.stderr
