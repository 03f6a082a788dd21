"""Every bad input: a message with cause and remedy, its exit code, no traceback, nothing half-written."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper, parser

import torshc as package
from torshc.base.errors import (
    BundleError,
    ModelError,
    OutputError,
    RunError,
    ToolchainError,
    TorshcError,
    UnsupportedError,
)
from torshc.base.manifest import manifest_hash

from .conftest import Torshc

HEAD = '<ir_version: 8, opset_import: ["" : 18]>\n'
GOOD = HEAD + "g (float[n,4] x, float[4] w) => (float[n,4] y) { a = Mul(x, w)  y = Tanh(a) }"


def text(body: str) -> ModelProto:
    return parser.parse_model(HEAD + body)


def save(model: ModelProto | str, path: str = "m.onnx") -> Path:
    onnx.save(parser.parse_model(model) if isinstance(model, str) else model, path)
    return Path(path)


def left_over() -> list[str]:
    """What a failed command may have left behind here."""
    return sorted(p.name for p in Path().iterdir() if p.name.endswith((".tsc", ".tmp", ".d")) or p.name[:1] == ".")


# -- files that are not models ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [b"", b"\x00" * 64, b"\x08\x07\x12", b"{", b'{"torshc": 1', b"PK\x03\x04zip", b"\x7fELF", b"<html>", b"\xff\xfe"],
)
@pytest.mark.parametrize("verb", ["compile", "check", "explain", "verify", "bench"])
def test_no_model(torshc: Torshc, data: bytes, verb: str) -> None:
    Path("m.onnx").write_bytes(data)
    assert "m.onnx" in torshc(verb, "m.onnx", code=2).output
    assert not left_over()


def test_truncated_at_every_tenth_byte(torshc: Torshc) -> None:
    whole = parser.parse_model(GOOD).SerializeToString()
    for end in range(0, len(whole), 10):
        Path("m.onnx").write_bytes(whole[:end])
        with pytest.raises((ModelError, UnsupportedError), match=r"m\.onnx|unsupported"):
            package.compile("m.onnx", "out.tsc", emit="source")
    assert not left_over()


def test_missing_file_and_folder(torshc: Torshc) -> None:
    Path("folder.onnx").mkdir()
    assert "none.onnx" in torshc("compile", "none.onnx", code=2).output
    assert "folder.onnx" in torshc("compile", "folder.onnx", code=2).output


# -- graphs that contradict themselves -------------------------------------------------------------------------------


def _cyclic() -> ModelProto:
    m = text("g (float[4] x) => (float[4] y) { a = Add(x, x)  b = Neg(a)  y = Neg(b) }")
    m.graph.node[0].input[1] = "b"
    return m


def _missing_input() -> ModelProto:
    m = text("g (float[4] x) => (float[4] y) { y = Neg(x) }")
    m.graph.node[0].input[0] = "nowhere"
    return m


def _twice() -> ModelProto:
    m = text("g (float[4] x) => (float[4] y) { a = Neg(x)  y = Neg(a) }")
    m.graph.node[1].output[0] = "a"
    m.graph.output[0].name = "a"
    return m


def _input_twice() -> ModelProto:
    m = text("g (float[4] x) => (float[4] y) { y = Neg(x) }")
    m.graph.input.append(m.graph.input[0])
    return m


def _no_such_output() -> ModelProto:
    m = text("g (float[4] x) => (float[4] y) { y = Neg(x) }")
    m.graph.output[0].name = "z"
    return m


def _wrong_attribute_type() -> ModelProto:
    m = text("g (float[4] x) => (float[4] y) { y = Softmax<axis=0>(x) }")
    m.graph.node[0].attribute[0].CopyFrom(helper.make_attribute("axis", "zero"))
    return m


def _bad_tensor(change: Callable[[TensorProto], object]) -> ModelProto:
    m = text("g (float[4] x) => (float[4] y) { y = Mul(x, w) }")
    m.graph.initializer.append(onnx.numpy_helper.from_array(np.arange(1, 5, dtype=np.float32), "w"))
    change(m.graph.initializer[0])
    return m


BAD: dict[str, tuple[Callable[[], ModelProto], int, str]] = {
    "cycle": (_cyclic, 2, "cycl"),
    "missing input": (_missing_input, 2, "nowhere"),
    "value made twice": (_twice, 2, "'a'"),
    "input twice": (_input_twice, 2, "'x'"),
    "missing output": (_no_such_output, 2, "'z'"),
    "attribute of another type": (_wrong_attribute_type, 2, "axis"),
    "unknown operator": (lambda: text("g (float[4] x) => (float[4] y) { y = Reluu(x) }"), 3, "Relu"),
    "unknown domain": (
        lambda: parser.parse_model(
            '<ir_version: 8, opset_import: ["" : 18, "com.x" : 1]> g (float[4] x) => (float[4] y) { y = com.x.F(x) }'
        ), 3, "com.x",
    ),
    "too few operands": (lambda: text("g (float[4] x) => (float[4] y) { y = Add(x) }"), 2, "Add"),
    "too many operands": (lambda: text("g (float[4] x) => (float[4] y) { y = Relu(x, x) }"), 2, "Relu"),
    "shapes": (lambda: text("g (float[4] x, float[3] z) => (float[4] y) { y = Add(x, z) }"), 2, "Add"),
    "inner dimensions": (
        lambda: text("g (float[4,5] x, float[4,5] z) => (float[4,5] y) { y = MatMul(x, z) }"), 2, "MatMul",
    ),
    "types": (lambda: text("g (float[4] x, int64[4] z) => (float[4] y) { y = Add(x, z) }"), 2, "Add"),
    "declared type": (lambda: text("g (float[4] x) => (double[4] y) { y = Neg(x) }"), 2, "'y'"),
    "axis": (lambda: text("g (float[4] x) => (float[4] y) { y = Softmax<axis=3>(x) }"), 2, "axis"),
    "complex numbers": (lambda: text("g (complex64[4] x) => (complex64[4] y) { y = Identity(x) }"), 3, "COMPLEX64"),
    "future opset": (
        lambda: parser.parse_model(GOOD.replace('"" : 18', '"" : 9999')), 3, "9999",
    ),
    # Before opset 7 operands of different ranks met only where an attribute said so.
    "ranks of an old opset": (lambda: parser.parse_model(GOOD.replace('"" : 18', '"" : 3')), 2, "broadcast is not set"),
    "tensor too short": (lambda: _bad_tensor(lambda t: setattr(t, "raw_data", b"\0" * 7)), 2, "w"),
    "negative dimension": (lambda: _bad_tensor(lambda t: t.dims.__setitem__(0, -4)), 2, "w"),
    "huge dimension": (lambda: _bad_tensor(lambda t: t.dims.__setitem__(0, 2**62)), 2, "w"),
    "dtype of no kind": (lambda: _bad_tensor(lambda t: setattr(t, "data_type", 77)), 2, "w"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_graphs(torshc: Torshc, case: str) -> None:
    make, code, names = BAD[case]
    Path("m.onnx").write_bytes(make().SerializeToString())
    assert names in torshc("compile", "m.onnx", code=code).output
    assert not left_over()


def test_unsorted_graphs_are_sorted(torshc: Torshc) -> None:
    m = parser.parse_model(GOOD)
    nodes = list(m.graph.node)[::-1]
    del m.graph.node[:]
    m.graph.node.extend(nodes)
    torshc("compile", save(m), "--emit", "source")


def test_all_that_is_unsupported_is_told_at_once(torshc: Torshc) -> None:
    save(text("g (float[4] x, complex64[2] s) => (float[4] y) { a = Foo(x)  b = Bar(a)  y = Relu(b) }"))
    output = torshc("compile", "m.onnx", code=3).output
    assert "Foo" in output and "Bar" in output and "'s'" in output and "3 unsupported" in output


# -- external data ---------------------------------------------------------------------------------------------------


def _external(location: str, length: int | None = None, offset: int | None = None) -> Path:
    m = _bad_tensor(lambda t: t.ClearField("raw_data"))
    t = m.graph.initializer[0]
    t.data_location = TensorProto.EXTERNAL
    for key, value in (("location", location), ("length", length), ("offset", offset)):
        if value is not None:
            t.external_data.add(key=key, value=str(value))
    Path("m.onnx").write_bytes(m.SerializeToString())
    return Path("m.onnx")


@pytest.fixture(scope="module")
def weighted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle of the model that `_external` makes, with weights of its own."""
    folder = tmp_path_factory.mktemp("weighted")
    onnx.save(_bad_tensor(lambda t: None), folder / "m.onnx")
    package.compile(folder / "m.onnx", folder / "m.tsc")
    np.savez(folder / "new.npz", w=np.arange(2, 6, dtype=np.float32))
    return folder / "m.tsc"


VERBS: dict[str, Callable[[Path], tuple[object, ...]]] = {
    "compile": lambda _: ("compile", "m.onnx"),
    "bench": lambda _: ("bench", "m.onnx", "--against", "ort", "--seconds", "0.01"),
    "bisect": lambda _: ("bisect", "m.onnx", "-o", "small.onnx"),
    "verify": lambda bundle: ("verify", "m.onnx", "--bundle", bundle),
    "weights": lambda bundle: ("weights", bundle, "m.onnx", "-o", "new.tsc"),
    "weights --model": lambda bundle: (
        "weights", bundle, bundle.with_name("new.npz"), "--model", "m.onnx", "-o", "new.tsc",
    ),
}  # fmt: skip
FORBIDDEN = ("../w.bin", "/etc/passwd", "link.bin", "hard.bin", "fifo", "/dev/zero", "none.bin", "w\0.bin", ".", "")


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(
    ("location", "length", "offset"),
    [
        *((location, None, None) for location in FORBIDDEN), ("w.bin", 32, None), ("w.bin", 16, 8), ("w.bin", 8, None),
        ("w.bin", -1, None), ("w.bin", 16, -4), ("w.bin", 16, 2**63), ("a/../../w.bin", None, None),
    ],
)  # fmt: skip
def test_bad_external_data(
    torshc: Torshc, location: str, length: int | None, offset: int | None, verb: str, weighted: Path
) -> None:
    _beside()
    _external(location, length, offset)
    assert "m.onnx" in torshc(*VERBS[verb](weighted), code=2).output
    assert not left_over()


@pytest.mark.parametrize("location", FORBIDDEN)
def test_no_path_for_onnx_runtime_to_open(torshc: Torshc, location: str, weighted: Path) -> None:
    """ONNX Runtime opens a model by itself; what torshc would refuse never reaches it."""
    _beside()
    _external(location)
    found = torshc("verify", "m.onnx", "--bundle", weighted, "--against", "ort", code=2).output
    assert "m.onnx" in found and "ONNXRuntimeError" not in found


@pytest.mark.parametrize("verb", VERBS)
def test_of_a_large_file_only_the_weights_are_read(torshc: Torshc, verb: str, weighted: Path) -> None:
    with Path("w.bin").open("wb") as file:
        file.write(np.arange(1, 5, dtype=np.float32).tobytes())
        file.truncate(200 << 30)
    _external("w.bin")
    torshc(*VERBS[verb](weighted))


def _beside() -> None:
    """Files that a model may name, of which w.bin alone is one for it."""
    Path("w.bin").write_bytes(b"\0" * 16)
    Path("link.bin").symlink_to("/etc/passwd")
    Path("other.bin").write_bytes(b"\0" * 16)
    Path("hard.bin").hardlink_to("other.bin")
    os.mkfifo("fifo")


# -- options and files of rules --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "names"),
    [
        ("name: p\npasses: [dead_cod]\n", "dead_code"),
        ("name: p\npases: []\n", "passes"),
        ("name: [\n", "p.yaml"),
        ("- 1\n- 2\n", "p.yaml"),
        ("", "p.yaml"),
        ("!!python/object/apply:os.system ['touch pwned']\n", "p.yaml"),
        ("name: p\npasses: [" + "[" * 3000 + "]" * 3000 + "]\n", "p.yaml"),
        ("\x00\x01", "p.yaml"),
    ],
)
@pytest.mark.parametrize("option", ["--pipeline", "--rules"])
def test_bad_yaml(torshc: Torshc, body: str, names: str, option: str) -> None:
    save(GOOD)
    if option == "--rules" and not body:
        return  # a file without rules
    Path("p.yaml").write_text(body)
    output = torshc("compile", "m.onnx", option, "p.yaml", code=4).output
    assert "p.yaml" in output and (option == "--rules" or names in output)
    assert not left_over() and not Path("pwned").exists()


# -- compilers -------------------------------------------------------------------------------------------------------


def _fake_compiler(script: str) -> str:
    path = Path("fakecc").absolute()
    path.write_text(f'#!/bin/sh\ncase "$*" in *--version*) echo "clang version 19.0"; exit 0;; esac\n{script}\n')
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize("script", ["echo 'k.c:1: error: boom' >&2; exit 1", "kill -9 $$", "exit 0"])
def test_a_compiler_that_fails(torshc: Torshc, script: str) -> None:
    save(GOOD)
    output = torshc("compile", "m.onnx", "--cc", _fake_compiler(script), "--no-cache", code=5).output
    assert "fakecc" in output and ("boom" in output or "boom" not in script)
    assert not left_over()


def test_no_compiler(torshc: Torshc, monkeypatch: pytest.MonkeyPatch) -> None:
    from torshc.targets import cc as toolchain

    save(GOOD)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(toolchain, "_ziglang", lambda: None)
    toolchain._find.cache_clear()
    output = torshc("compile", "m.onnx", code=5).output
    assert "apt install clang" in output and "ziglang" in output
    with pytest.raises(ToolchainError):
        package.compile("m.onnx", "out.tsc")
    assert not left_over()


# -- places to write to ----------------------------------------------------------------------------------------------


def test_places_that_cannot_be_written(torshc: Torshc) -> None:
    save(GOOD)
    Path("file").write_text("mine")
    Path("full").mkdir()
    Path("full/mine.txt").write_text("mine")
    for place in ("file", "full", "file/out.tsc", "none/there/out.tsc", "/proc/out.tsc"):
        torshc("compile", "m.onnx", "-o", place, code=8)
    with pytest.raises(OutputError):
        package.compile("m.onnx", "full")
    assert Path("file").read_text() == Path("full/mine.txt").read_text() == "mine"
    assert sorted(p.name for p in Path().iterdir()) == ["file", "full", "m.onnx"]


# -- runs ------------------------------------------------------------------------------------------------------------

X, W = np.ones((3, 4), np.float32), np.ones(4, np.float32)
WRONG: dict[str, dict[str, object]] = {
    "missing": {"x": X},
    "extra": {"x": X, "w": W, "v": W},
    "misspelt": {"x": X, "W": W},
    "type": {"x": X.astype(np.float64), "w": W},
    "integers": {"x": X.astype(np.int32), "w": W},
    "rank": {"x": X[0], "w": W},
    "rank 0": {"x": X, "w": np.float32(1)},
    "shape": {"x": X, "w": np.ones(5, np.float32)},
    "strings": {"x": "three", "w": W},
    "ragged": {"x": [[1.0], [1.0, 2.0]], "w": W},
    "nothing": {"x": None, "w": W},
    "objects": {"x": np.array([[object()] * 4] * 3), "w": W},
    "bytes swapped": {"x": X.astype(">f4"), "w": W},
}


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bundle")
    onnx.save(parser.parse_model(GOOD), folder / "m.onnx")
    package.compile(folder / "m.onnx", folder / "m.tsc")
    return folder / "m.tsc"


@pytest.mark.parametrize("case", WRONG)
def test_wrong_inputs(bundle: Path, case: str) -> None:
    with package.load(bundle) as model:
        with pytest.raises(RunError):
            model.run(WRONG[case])  # type: ignore[arg-type]
        np.testing.assert_allclose(model.run({"x": X, "w": W})["y"], np.tanh(X), rtol=1e-5)


def test_wrong_inputs_at_the_command_line(torshc: Torshc, bundle: Path) -> None:
    np.save("x.npy", X.astype(np.float64))
    np.save("w.npy", W)
    Path("no.npy").write_bytes(b"not numpy")
    for given in (["x=x.npy", "w=w.npy"], ["v=w.npy"], ["x=no.npy", "w=w.npy"], ["x=none.npy"], ["x"]):
        torshc("run", bundle, *(a for g in given for a in ("--input", g)), "--output", "y.npz", code=6)
        assert not Path("y.npz").exists()


def test_layouts_of_inputs_do_not_matter(bundle: Path) -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((3, 4)).astype(np.float32)
    raw = np.zeros(x.nbytes + 1, np.uint8)
    odd = raw[1:].view(np.float32).reshape(3, 4)
    odd[...] = x
    readonly = x.copy()
    readonly.flags.writeable = False
    views = [x, np.asfortranarray(x), np.repeat(x, 2, 1)[:, ::2], x[::-1].copy()[::-1], odd, readonly, x.tolist()]
    with package.load(bundle) as model:
        for v in views:
            v = np.asarray(v, np.float32) if isinstance(v, list) else v
            np.testing.assert_array_equal(model.run({"x": v, "w": W})["y"], model.run({"x": x, "w": W})["y"])


def test_outputs_that_do_not_fit_or_overlap(bundle: Path) -> None:
    x = X.copy()
    raw = np.zeros(x.nbytes + 1, np.uint8)
    readonly = np.empty_like(x)
    readonly.flags.writeable = False
    bad = [x, np.empty((3, 5), np.float32), np.empty((3, 4)), raw[1:].view(np.float32).reshape(3, 4), readonly,
           np.empty((3, 8), np.float32)[:, ::2]]  # fmt: skip
    with package.load(bundle) as model:
        for out in bad:
            before = out.copy()
            with pytest.raises(RunError):
                model.run({"x": x, "w": W}, out={"y": out})
            np.testing.assert_array_equal(out, before)
        with pytest.raises(RunError, match="no output 'z'"):
            model.run({"x": x, "w": W}, out={"z": x})
        model.close()
        with pytest.raises(RunError, match="closed"):
            model.run({"x": x, "w": W})


# -- bundles that were altered ---------------------------------------------------------------------------------------


def _flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def _say(bundle: Path, field: str, text: str) -> None:
    """Another value in the manifest, with a hash that fits it."""
    body = json.loads((bundle / "manifest.json").read_text())
    body[field] = json.loads(text)
    body["sha256"] = manifest_hash({name: value for name, value in body.items() if name != "sha256"})
    (bundle / "manifest.json").write_text(json.dumps(body))


ALTERED: dict[str, Callable[[Path], object]] = {
    "library": lambda b: _flip(b / "libmodel.so", -100),
    "library truncated": lambda b: (b / "libmodel.so").write_bytes((b / "libmodel.so").read_bytes()[:500]),
    "library missing": lambda b: (b / "libmodel.so").unlink(),
    "manifest": lambda b: _flip(b / "manifest.json", 300),
    "manifest truncated": lambda b: (b / "manifest.json").write_bytes((b / "manifest.json").read_bytes()[:-20]),
    "manifest empty": lambda b: (b / "manifest.json").write_bytes(b""),
    "manifest of another": lambda b: (b / "manifest.json").write_text(json.dumps({"format": "other"})),
    "manifest deep": lambda b: (b / "manifest.json").write_text("[" * 100000),
    "manifest missing": lambda b: (b / "manifest.json").unlink(),
    "manifest renamed field": lambda b: (b / "manifest.json").write_text(
        (b / "manifest.json").read_text().replace('"symbols"', '"symbolz"')
    ),
    "manifest threads": lambda b: _say(b, "threads", '"abc"'),
    "manifest many threads": lambda b: _say(b, "threads", "1" * 30),
    "manifest without threads": lambda b: _say(b, "threads", "[1]"),
    "manifest nested": lambda b: _say(
        b, "inputs", '[{"name":"x","dtype":"map","dims":[],"inner":' * 200 + "0" + "}]" * 200
    ),
    "manifest operators": lambda b: _say(b, "operators", '[{"node": "x", "op": "", "name": ""}]'),
    "manifest inner": lambda b: _say(b, "inputs", '{"name": 1}'),
}


@pytest.mark.parametrize("case", ALTERED)
def test_altered_bundles(torshc: Torshc, bundle: Path, tmp_path: Path, case: str) -> None:
    import shutil

    shutil.copytree(bundle, "copy.tsc")
    ALTERED[case](Path("copy.tsc"))
    with pytest.raises(BundleError) as caught:
        package.load("copy.tsc")
    assert isinstance(caught.value, TorshcError) and caught.value.remedy
    torshc("run", "copy.tsc", code=7)
