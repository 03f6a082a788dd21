"""The Metal target: its words, what it refuses, its device layer, and whole bundles that agree with those for C."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Sequence
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto

import torshc
from tests.emulation.emulated import BIN, HERE, emulated_tools, missing
from tests.support import models
from tests.support.models import node, with_types
from tests.support.zoo import zoo
from torshc.base import resources
from torshc.base.errors import BundleError, RunError, UnsupportedError
from torshc.base.options import CompileOptions
from torshc.kernels.machine import Device
from torshc.pipeline.compiler import prepare
from torshc.targets import TARGETS
from torshc.targets.gpu import metal
from torshc.targets.gpu.metal import MetalTarget

Array = np.ndarray[Any, Any]
ORDERS = ("forward", "reverse", "random:3")
ZOO = zoo()

needs_emulator = pytest.mark.skipif(missing(metal=True) is not None, reason=missing(metal=True) or "")


@pytest.fixture(scope="module")
def tools() -> Iterator[None]:
    if reason := missing(metal=True):
        pytest.skip(reason)
    with emulated_tools():
        yield


def model(
    nodes: Sequence[onnx.NodeProto],
    feeds: dict[str, Array],
    outputs: str,
    weights: dict[str, Array] | None = None,
    symbolic: bool = True,
) -> onnx.ModelProto:
    """A model that takes these arrays; the first dimension of each is "n" where sizes are symbolic."""
    inputs = {n: (a.dtype, ["n" if symbolic else a.shape[0], *a.shape[1:]]) for n, a in feeds.items()}
    return with_types(models.model(nodes, inputs, outputs, weights))


# ---- words ----

FOREIGN = {
    "metal": r"__\w+__\b|__sync|__shfl|\w+Idx\.|cuda|extern|\blong\s+long\b|\bdouble\b|__builtin|asm",
    "cuda": r"\b(threadgroup\w*|simd_\w+|mem_flags|constant|device|kernel)\b|\[\[",
}


@pytest.mark.parametrize("name", ZOO)
def test_kernels_are_in_the_words_of_their_target(name: str, tmp_path: Path) -> None:
    onnx.save(ZOO[name].model, tmp_path / "m.onnx")
    kernels = {}
    for target, foreign in FOREIGN.items():
        made = prepare(tmp_path / "m.onnx", CompileOptions(target=target))
        suffix = TARGETS[target].suffix
        kernels[target] = [k.template for u in made.units for k in u.kernels if u.suffix == suffix]
        for file, text in made.sources.items():
            code = re.sub(r"/\*.*?\*/|//[^\n]*", "", text, flags=re.DOTALL)
            if file.endswith(suffix):
                assert not (found := re.search(foreign, code)), f"{file}: {found[0] if found else ''}\n{code}"
                if target == "metal":  # an address space, never a variable
                    assert not re.search(r"\bthread\b(?!\s+[A-Za-z_])", code), code
    assert bool(kernels["metal"]) == bool(kernels["cuda"])


def test_headers_of_kernels_are_there() -> None:
    texts = MetalTarget.header_texts(MetalTarget.__new__(MetalTarget))
    included = {m for text in texts.values() for m in re.findall(r'#include "(\w+\.h)"', text)}
    assert included <= texts.keys() and all(texts.values())


# ---- the device layer ----


@needs_emulator
@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("", "", ""),
        ("waitUntilCompleted]", "waitUntilDone]", "waitUntilDone"),
        ("MTLSizeMake((NSUInteger)step->blocks, 1, 1)", "step->blocks", "MTLSize"),
        ("[d->device newCommandQueue]", "d->device", "id<MTLCommandQueue>"),
    ],
)
def test_the_device_layer_fits_the_framework(tmp_path: Path, old: str, new: str, message: str) -> None:
    """Checked against declarations of Metal; each spoiled copy is noticed, so the check sees something."""
    text = resources.find_template(["metal"], "t_device.mm").read_text()
    assert old in text
    (tmp_path / "t_device.mm").write_text(text.replace(old, new, 1) if old else text)
    include = [f"-I{folder}" for folder in resources.template_folders(("metal", "gpu", "c"))]
    command = [str(BIN / "xcrun"), "-sdk", "macosx", "clang++", "-std=c++17", "-x", "objective-c++", "-fobjc-arc"]
    command += ["-Wall", "-Wextra", "-Werror", *include, "-c", "t_device.mm", "-o", "t_device.o"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (HERE / "metal" / "frameworks").is_dir()
    if message:
        assert done.returncode and message in done.stderr, done.stderr
    else:
        assert not done.returncode and not done.stderr, done.stderr


# ---- whole bundles ----


def floats(rng: np.random.Generator, dtype: str) -> tuple[onnx.ModelProto, dict[str, Array]]:
    feeds = {"x": rng.standard_normal((3, 6, 5, 7)), "y": rng.standard_normal((3, 1, 5, 1))}
    weights = {"w": rng.standard_normal((6, 1, 7)), "g": rng.standard_normal(7), "b": rng.standard_normal(7)}
    weights = {k: v.astype(dtype) for k, v in weights.items()}
    weights |= {f"axis{k}": np.array([k]) for k in range(4)}
    nodes = [
        node("Add", "x y", "sum"),
        node("Mul", "sum w", "scaled"),
        node("Gelu", "scaled", "a"),
        node("Softmax", "scaled", "b_", axis=-1),
        node("Softmax", "scaled", "c", axis=1),
        node("LayerNormalization", "scaled g b", "d", axis=-1),
        *(node(op, f"scaled axis{k}", f"r{k}", keepdims=0) for k, op in enumerate(("ReduceMax", "ReduceMean") * 2)),
        node("MaxPool", "scaled", "m", kernel_shape=[3, 2], strides=[2, 2], pads=[1, 0, 1, 0]),
        node("AveragePool", "scaled", "n_", kernel_shape=[2, 3], pads=[0, 1, 0, 1]),
        node("Transpose", "scaled", "t", perm=[0, 3, 1, 2]),
    ]
    feeds = {k: v.astype(dtype) for k, v in feeds.items()}
    return model(nodes, feeds, "a b_ c d r0 r1 r2 r3 m n_ t", weights), feeds


def integers(rng: np.random.Generator) -> tuple[onnx.ModelProto, dict[str, Array]]:
    feeds: dict[str, Array] = {
        "i": rng.integers(-(2**62), 2**62, (4, 9)),
        "j": rng.integers(-3, 3, (4, 9)),
        "u": rng.integers(0, 2**63, (4, 9)).astype(np.uint64),
        "k": rng.integers(-6, 6, (4, 3)),
        "h": rng.integers(-100, 100, (4, 9)).astype(np.int8),
    }
    weights: dict[str, Array] = {
        "low": np.array(-(2**63)),
        "high": np.array(2**64 - 1, np.uint64),
        "table": rng.standard_normal((6, 5)).astype(np.float32),
        "one": np.array([1]),
    }
    nodes = [
        node("Mod", "i j", "a"),
        node("Add", "i low", "wrapped"),
        node("Mul", "wrapped j", "b"),
        node("BitwiseXor", "u high", "c"),
        node("Gather", "table k", "d"),
        node("Less", "i j", "less"),
        node("Equal", "j h64", "equal"),
        node("Cast", "h", "h64", to=TensorProto.INT64),
        node("Or", "less equal", "e"),
        node("Where", "e i j", "f"),
        node("Mul", "h h", "g"),
        node("ReduceMin", "i one", "low_", keepdims=1),
        node("ReduceSum", "u one", "total", keepdims=0),
        node("Cast", "i", "as_float", to=TensorProto.FLOAT),
    ]
    nodes.insert(0, nodes.pop(7))
    return model(nodes, feeds, "a b c d e f g low_ total as_float", weights), feeds


def large_rows(rng: np.random.Generator) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """Rows that a whole block shares, in packets of four and one by one; sizes that are all known."""
    feeds: dict[str, Array] = {
        "x": rng.standard_normal((2, 3, 2052)).astype(np.float32),
        "y": rng.standard_normal((2, 3, 1029)).astype(np.float32),
    }
    nodes = [
        node("Softmax", "x", "a", axis=-1),
        node("Softmax", "y", "b", axis=-1),
        node("ArgMax", "y", "c", axis=2, keepdims=0),
        node("Concat", "x y", "d", axis=2),
    ]
    return model(nodes, feeds, "a b c d", symbolic=False), feeds


MODELS = {
    "f32": lambda rng: floats(rng, "float32"),
    "f16": lambda rng: floats(rng, "float16"),
    "integers": integers,
    "large rows": large_rows,
}


@pytest.mark.parametrize("name", MODELS)
def test_agrees_with_c(name: str, tools: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, feeds = MODELS[name](np.random.default_rng(5))
    onnx.save(made, tmp_path / "m.onnx")
    torshc.compile(tmp_path / "m.onnx", tmp_path / "c.tsc", target="c")
    compiled = torshc.compile(tmp_path / "m.onnx", tmp_path / "m.tsc", target="metal", fallback=False)
    assert all(unit.suffix == ".metal" for unit in compiled.units)
    with torshc.load(tmp_path / "c.tsc") as reference, torshc.load(tmp_path / "m.tsc") as loaded:
        for rows in (None, 1) if name != "large rows" else (None,):
            some = {k: a[:rows] for k, a in feeds.items()}
            wanted = reference.run(some)
            for order in ORDERS:
                monkeypatch.setenv("T_EMULATE_ORDER", order)
                for key, a in loaded.run(some).items():
                    assert a.dtype == wanted[key].dtype and a.shape == wanted[key].shape
                    rtol = {"f": 3e-6 if a.dtype == np.float32 else 2e-3}.get(a.dtype.kind, 0)
                    np.testing.assert_allclose(a, wanted[key], rtol=rtol, atol=rtol, err_msg=f"{key}, {order}")


def test_two_models_at_once(tools: None, tmp_path: Path) -> None:
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    opened = []
    for k, op in enumerate(("Neg", "Abs", "Exp")):
        onnx.save(model([node(op, "x", "y")], {"x": x}, "y"), tmp_path / "m.onnx")
        torshc.compile(tmp_path / "m.onnx", tmp_path / f"{k}.tsc", target="metal", profile=True)
        opened.append(torshc.load(tmp_path / f"{k}.tsc"))
    for loaded, wanted in zip(opened, (-x, x, np.exp(x)), strict=True):
        np.testing.assert_allclose(loaded(x)[0], wanted, rtol=1e-6)
        assert [step.calls for step in loaded.stats().steps] == [1]
        loaded.close()


# ---- what Metal lacks ----


def test_f64_falls_back_visibly(tools: None, tmp_path: Path) -> None:
    x = np.linspace(0, 1, 12).reshape(3, 4)
    nodes = [node("Exp", "x", "wide"), node("Cast", "wide", "narrow", to=TensorProto.FLOAT), node("Neg", "narrow", "y")]
    onnx.save(model(nodes, {"x": x}, "wide y"), tmp_path / "m.onnx")
    made = torshc.compile(tmp_path / "m.onnx", tmp_path / "m.tsc", target="metal", fusion="none")
    assert any("runs on the processor: Metal has no f64" in line and "Exp" in line for line in made.fallbacks)
    assert {Path(name).suffix for name in made.sources} == {".c", ".metal"}
    assert "Metal has no f64" in (tmp_path / "m.tsc" / "manifest.json").read_text()
    with torshc.load(tmp_path / "m.tsc") as loaded:
        wide, y = loaded(x)
        np.testing.assert_allclose(wide, np.exp(x), rtol=1e-15)
        np.testing.assert_array_equal(y, -np.exp(x).astype(np.float32))
    with pytest.raises(UnsupportedError) as caught:
        torshc.compile(tmp_path / "m.onnx", tmp_path / "m.tsc", target="metal", fusion="none", fallback=False)
    assert any("Exp" in line and "Metal has no f64" in line for line in caught.value.problems)
    assert not any("Neg" in line for line in caught.value.problems)


def test_more_tensors_than_a_kernel_has_buffers(tmp_path: Path) -> None:
    feeds = {f"x{k}": np.zeros((2, 72), np.float32) for k in range(36)}
    parts = " ".join(f"part{k}" for k in range(36))
    nodes = [node("Max", " ".join(feeds), "y"), node("Split", "x0", parts, axis=1, num_outputs=36)]
    onnx.save(model(nodes, feeds, f"y {parts}"), tmp_path / "m.onnx")
    made = prepare(tmp_path / "m.onnx", CompileOptions(target="metal"))
    assert not made.fallbacks
    counts = [len(kernel.buffers) for unit in made.units for kernel in unit.kernels]
    assert len(counts) == 4 and max(counts) <= 30


_BYTES = {"uint8_t": 1, "uint16_t": 2, "half": 2, "float": 4, "int": 4, "float4": 16}


def declared_bytes(text: str) -> int:
    """Bytes of threadgroup memory that a kernel's text declares."""
    sizes = dict(_BYTES)
    for element, count, name in re.findall(r"\btypedef t_packet<(\w+), (\d+)> (\w+);", text):
        sizes[name] = sizes.get(element, 8) * int(count)
    total = 0
    for kind, variables in re.findall(r"^\s*threadgroup (\w+) ([^*();]*);", text, re.MULTILINE):
        for dims in re.findall(r"\w+((?:\[\d+\])*)", variables):
            total += sizes.get(kind, 8) * prod(int(n) for n in re.findall(r"\d+", dims))
    return total


@pytest.mark.parametrize("name", ["gemm", "attention", "lstm", "row_softmax", "layer_norm"])
def test_kernels_know_the_memory_that_their_text_declares(name: str, tmp_path: Path) -> None:
    names = [n for n in ZOO if name.split("_")[-1] in n]
    for n in names:
        onnx.save(ZOO[n].model, tmp_path / "m.onnx")
        made = prepare(tmp_path / "m.onnx", CompileOptions(target="metal"))
        for unit in made.units:
            for kernel, file in zip(unit.kernels, unit.files, strict=True):
                if file.endswith(".metal"):
                    assert kernel.shared == declared_bytes(made.sources[file]), (n, file)


def test_threadgroup_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    onnx.save(ZOO["gemm"].model, tmp_path / "m.onnx")
    made = prepare(tmp_path / "m.onnx", CompileOptions(target="metal"))
    sizes = [k.shared for u in made.units for k in u.kernels]
    assert 0 < max(sizes) <= metal.SHARED
    same = Device(units=16, shared=metal.SHARED)  # so that the tiles stay
    monkeypatch.setattr(MetalTarget, "capabilities", staticmethod(lambda _archs: same))
    monkeypatch.setattr(metal, "SHARED", max(sizes) - 1)
    made = prepare(tmp_path / "m.onnx", CompileOptions(target="metal"))
    assert any(f"a kernel of {max(sizes)} bytes of threadgroup memory" in line for line in made.fallbacks)


def test_no_device_and_no_memory(tools: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.ones((64, 64), np.float32)
    onnx.save(model([node("Neg", "x", "y")], {"x": x}, "y"), tmp_path / "m.onnx")
    torshc.compile(tmp_path / "m.onnx", tmp_path / "m.tsc", target="metal")
    monkeypatch.setenv("T_EMULATE_DEVICES", "0")
    with pytest.raises(BundleError, match="no Metal device was found"):
        torshc.load(tmp_path / "m.tsc")
    monkeypatch.delenv("T_EMULATE_DEVICES")
    with pytest.raises(RunError, match="there is no device 4; devices 0 to 0 exist"):
        torshc.load(tmp_path / "m.tsc", device=4)
    monkeypatch.setenv("T_EMULATE_MEMORY", "40000")
    with torshc.load(tmp_path / "m.tsc") as loaded:
        with pytest.raises(RunError, match="asked 32768 bytes"):
            monkeypatch.setenv("T_EMULATE_MEMORY", "30000")
            loaded(x)
        monkeypatch.setenv("T_EMULATE_MEMORY", "40000")
        np.testing.assert_array_equal(loaded(x)[0], -x)
