"""Weights by the model's names, in a library that is there: from C, and what cannot be exchanged."""

from __future__ import annotations

import json
import subprocess
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import torshc
from tests.support import compilers, sanitize
from tests.support.seeded import seeded
from torshc.base.errors import ConfigError, RunError
from torshc.base.options import CompileOptions
from torshc.formats import load_graph
from torshc.pipeline.compilation import Compilation
from torshc.pipeline.compiler import prepare
from torshc.pipeline.weight_names import named_in
from torshc.targets.cc import find_compiler

HERE = Path(__file__).parent
RNG = seeded(14)
Arrays = dict[str, np.ndarray[Any, Any]]

# Two kinds of convolutions and a product behind batch normalisation; what is folded is `scale` and what it scales.
CNN = """<ir_version: 8, opset_import: ["" : 18]> cnn (float[2,3,10,10] x) => (float[2,10] y) {
    c = Conv<pads=[1,1,1,1]>(x, first, bias) n = BatchNormalization(c, scale, shift, mean, variance) r = Relu(n)
    d = Conv<pads=[1,1,1,1]>(r, second, other) e = Conv<group=20>(d, taps) g = GlobalAveragePool(e) f = Flatten(g)
    y = Gemm<transB=1>(f, dense, last) }"""
CNN_WEIGHTS = {
    "first": (17, 3, 3, 3), "bias": (17,), "scale": (17,), "shift": (17,), "mean": (17,), "variance": (17,),
    "second": (20, 17, 3, 3), "other": (20,), "taps": (20, 1, 3, 3), "dense": (10, 20), "last": (10,),
}  # fmt: skip
FOLDED = {"first", "bias", "scale", "shift", "mean", "variance"}

BLOCK = """<ir_version: 8, opset_import: ["" : 20]> block (float[1,9,24] x) => (float[1,9,24] y) {
    n = LayerNormalization(x, gamma, beta) q = MatMul(n, wq) k = MatMul(n, wk) v = MatMul(n, wv) qb = Add(q, bq)
    s = Constant<value = int64[4] {1, 9, 3, 8}>() t = Constant<value = int64[3] {1, 9, 24}>()
    qs = Reshape(qb, s) ks = Reshape(k, s) vs = Reshape(v, s) qh = Transpose<perm=[0,2,1,3]>(qs)
    kh = Transpose<perm=[0,2,3,1]>(ks) vh = Transpose<perm=[0,2,1,3]>(vs) w = MatMul(qh, kh) z = Mul(w, factor)
    p = Softmax(z) a = MatMul(p, vh) at = Transpose<perm=[0,2,1,3]>(a) ar = Reshape(at, t) o = MatMul(ar, wo)
    h = Add(x, o) u = Gemm1(h) y = Add(h, u) }"""
BLOCK = BLOCK.replace("u = Gemm1(h)", "f = MatMul(h, up) fb = Add(f, upb) g = Gelu(fb) u = MatMul(g, down)")
BLOCK_WEIGHTS = {
    "gamma": (24,), "beta": (24,), "wq": (24, 24), "wk": (24, 24), "wv": (24, 24), "bq": (24,), "factor": (),
    "wo": (24, 24), "up": (24, 50), "upb": (50,), "down": (50, 24),
}  # fmt: skip


def drawn(shapes: dict[str, tuple[int, ...]]) -> Arrays:
    """Positive, as variances are."""
    return {name: RNG.uniform(0.1, 1, shape).astype(np.float32) for name, shape in shapes.items()}


def model(text: str, weights: Arrays) -> bytes:
    made = onnx.parser.parse_model(text)
    made.graph.initializer.extend(numpy_helper.from_array(a, n) for n, a in weights.items())
    return bytes(made.SerializeToString())


def named(bundle: Path) -> dict[str, str]:
    """Of each weight that the manifest names, why it cannot be exchanged."""
    listed = json.loads((bundle / "manifest.json").read_bytes())["weights"]["named"]
    return {w["name"]: w["why"] for w in listed}


def program(bundle: Path, cc: str, flags: tuple[str, ...] = ()) -> Path:
    target = bundle.parent / "named_test"
    command = [cc, "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1", f"-I{bundle}", HERE / "named_test.c", *flags]
    compilers.build([*command, bundle / "libmodel.so", f"-Wl,-rpath,{bundle}", "-lpthread", "-o", target])
    return target


def exchange(test: Path, bundle: Path, x: np.ndarray[Any, Any], new: Arrays, fixed: str) -> np.ndarray[Any, Any]:
    """The results before and after, from a process of its own."""
    folder, words = bundle.parent, []
    x.tofile(folder / "x")
    for name, array in new.items():
        array.tofile(folder / name)
        words += [name, "x".join(map(str, array.shape)), folder / name]
    command = [test, bundle / "weights.bin", folder / "x", folder / "y", fixed, *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0 and done.stdout == "ok\n", done.stdout + done.stderr
    return np.fromfile(folder / "y", np.float32).reshape(2, -1)


CASES = [
    pytest.param(CNN, CNN_WEIGHTS, FOLDED, "scale", (2, 3, 10, 10), id="cnn"),
    pytest.param(BLOCK, BLOCK_WEIGHTS, {"factor"}, "factor", (1, 9, 24), id="block"),
]


@pytest.mark.parametrize(("text", "shapes", "folded", "fixed", "size"), CASES)
@pytest.mark.parametrize("how", ["file", "embedded", "thread", "address"])
def test_new_weights_from_c_are_those_that_compiling_would_make(
    text: str, shapes: Any, folded: set[str], fixed: str, size: tuple[int, ...], how: str, tmp_path: Path
) -> None:
    """Bit by bit, while two threads run; "thread" and "address" under these sanitizers."""
    weights, options = drawn(shapes), {"embed_weights": how == "embedded"}
    torshc.compile(model(text, weights), tmp_path / "m.tsc", named_weights=True, keep_intermediates=True, **options)
    assert {name for name, why in named(tmp_path / "m.tsc").items() if why} == folded
    new = {name: a for name, a in drawn(shapes).items() if name not in folded}
    cc, flags = compilers.needed().cc, ()
    if how in ("thread", "address"):
        flags = (f"-fsanitize={how}",)
        host = next((h for h in reversed(compilers.hosts()) if h.kind != "zig" and compilers.links(h.cc, *flags)), None)
        if host is None:
            pytest.skip("no compiler with this sanitizer is here")
        sanitize.rebuild(tmp_path / "m.tsc", tmp_path / "work", find_compiler(host.name), (how,))
        cc = host.cc
    x = RNG.standard_normal(size).astype(np.float32)
    before, after = exchange(program(tmp_path / "m.tsc", cc, flags), tmp_path / "m.tsc", x, new, fixed)
    if how in ("thread", "address"):
        return  # with another compiler
    for got, given in ((before, weights), (after, {**weights, **new})):
        torshc.compile(model(text, given), tmp_path / "wanted.tsc", **options)
        with torshc.load(tmp_path / "wanted.tsc") as wanted:
            assert got.tobytes() == wanted(x)[0].tobytes()


def compiled(source: bytes, **options: Any) -> Compilation:
    again = partial(prepare, source, CompileOptions(named_weights=True, **options), None)
    return named_in(again(), again)


def listed(text: str, weights: Arrays, **options: Any) -> dict[str, str]:
    source = model(text, weights)
    return {w.name: w.why for w in compiled(source, **options).named}


def test_without_folding_all_can_be_exchanged() -> None:
    assert not any(listed(CNN, drawn(CNN_WEIGHTS), opt_level=0).values())
    found = listed(CNN, drawn(CNN_WEIGHTS), passes={"fold_batch_norm": False})
    assert {name for name, why in found.items() if why} == {"scale", "shift", "mean", "variance"}


def test_names_of_any_kind(tmp_path: Path) -> None:
    """They stand in the library's tables, as what no compiler takes for anything else or finds too long."""
    names = ["x" * 5000, 'a"b\\c', "new\nline", "*/ int x; /*", "{{ 7*7 }}", "%s%n"]
    steps = " ".join(f"t{k + 1} = MatMul(t{k}, w{k})" for k in range(len(names)))
    made = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["" : 18]> n (float[2,3] x) => (float[2,3] y)
        {{ t0 = Relu(x) {steps} y = Relu(t{len(names)}) }}"""
    )
    for node in made.graph.node:
        node.input[:] = [names[int(i[1:])] if i.startswith("w") else i for i in node.input]
    made.graph.initializer.extend(numpy_helper.from_array(np.eye(3, dtype=np.float32), n) for n in names)
    torshc.compile(made, tmp_path / "m.tsc", named_weights=True, keep_intermediates=True)
    strict = ["-std=c11", "-Wpedantic", "-Wall", "-Wextra", "-Werror", "-Wno-psabi", "-c", "-o", tmp_path / "host.o"]
    for host in compilers.hosts():
        compilers.build([host.cc, *strict, tmp_path / "m.tsc" / "src" / "host.c"])
    with torshc.load(tmp_path / "m.tsc") as loaded:
        loaded.set_weights({n: (k + 2) * np.eye(3, dtype=np.float32) for k, n in enumerate(names)})
        np.testing.assert_array_equal(loaded(np.ones((2, 3), np.float32))[0], np.full((2, 3), 5040, np.float32))


def test_a_name_that_ends_early_in_c_is_no_other_weights(tmp_path: Path) -> None:
    text = '<ir_version: 8, opset_import: ["" : 18]> n (float[4] x) => (float[4] y) { t = Mul(x, v) y = Add(t, w) }'
    made = onnx.parser.parse_model(text)
    made.graph.node[0].input[1] = "w\0x"
    ones = np.ones(4, np.float32)
    made.graph.initializer.extend(numpy_helper.from_array(ones, name) for name in ("w\0x", "w"))
    torshc.compile(made, tmp_path / "m.tsc", named_weights=True)
    with torshc.load(tmp_path / "m.tsc") as loaded:
        loaded.set_weights({"w": 5 * ones})
        np.testing.assert_array_equal(loaded(2 * ones)[0], 7 * ones)
        with pytest.raises(RunError, match="no weight"):
            loaded.set_weights({"w\0x": ones})


def test_a_warning_says_which_pass_folds() -> None:
    source = model(CNN, drawn(CNN_WEIGHTS))
    (warning,) = compiled(source).warnings
    assert "6 of 11 weights" in warning and "--pass fold_batch_norm=off" in warning
    assert not compiled(source, passes={"fold_batch_norm": False}).warnings
    assert not compiled(model(BLOCK, drawn(BLOCK_WEIGHTS))).warnings


def test_values_that_decide() -> None:
    """A factor of ones is left out, equal biases are one, and a weight that is stored as f16 is rounded."""
    text = """<ir_version: 8, opset_import: ["" : 18]> d (float[2,64] x) => (float[2,64] y, float[2,64] z)
        { m = Mul(x, ones) p = MatMul(m, w) y = Add(p, b1) z = Add(p, b2) }"""
    weights = {"ones": np.ones(64, np.float32), "b1": np.full(64, 0.5, np.float32), "b2": np.full(64, 0.5, np.float32)}
    weights["w"] = RNG.standard_normal((64, 64)).astype(np.float32)
    found = listed(text, weights)
    assert found["ones"] and not found["w"]
    assert found["b1"] and found["b2"]  # they would be two with other values
    assert found.keys() == weights.keys()
    assert listed(text, weights, weights_dtype="f16")["w"] == "it is stored as f16"


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "double"])
def test_other_types(dtype: str) -> None:
    """A table with more elements than a digit of the smaller types can number."""
    text = f"""<ir_version: 8, opset_import: ["" : 18]> t (int64[7] x) => ({dtype}[7,40] y) {{ y = Gather(w, x) }}"""
    made = onnx.parser.parse_model(text)
    kind = onnx.TensorProto.DataType.Value(dtype.upper())
    made.graph.initializer.append(onnx.helper.make_tensor("w", kind, (130, 40), RNG.standard_normal(130 * 40)))
    source = bytes(made.SerializeToString())
    (found,) = compiled(source).named
    assert not found.why and len(found.copies) == 1


def test_what_goes_without(tmp_path: Path) -> None:
    source = model(CNN, drawn(CNN_WEIGHTS))
    with pytest.raises(ConfigError, match="the target llvm does not use --named-weights"):
        prepare(source, CompileOptions(target="llvm", named_weights=True))
    sized = model(
        """<ir_version: 8, opset_import: ["" : 18]> s (float[n] x) => (int64[1,k] y) { y = NonZero(x) }""", {}
    )
    with pytest.raises(ConfigError, match="known only at run time"):
        torshc.compile(sized, tmp_path / "m.tsc", named_weights=True)
    with pytest.raises(ConfigError, match="a Graph is compiled once"):
        torshc.compile(load_graph(source), tmp_path / "m.tsc", named_weights=True)
