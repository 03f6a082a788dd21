"""Tolerances: their terms, the same everywhere, wide enough for rounding, and narrow enough for a wrong kernel."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from onnx import helper

import torshc
from tests.support.models import parsed, save
from torshc.base.options import CompileOptions
from torshc.cli import cli
from torshc.pipeline.compilation import manifest_of
from torshc.pipeline.compiler import compile_model, prepare, prepare_versions
from torshc.pipeline.job import jobs_of
from torshc.pipeline.tolerance import LEAST, MOST, UNIT, Tolerance, relative_tolerance, spread, tolerances_of
from torshc.workbench.eject import eject
from torshc.workbench.verify import compare, verify_bundle, verify_model

PRODUCT = """
<ir_version: 9, opset_import: ["" : 21]>
product (TYPE[n,64] x) => (TYPE[n,64] y) <TYPE[64,64] w> {
  p = MatMul(x, w)
  y = Neg(p)
}
"""
# A product between quantised tensors, as exporters write it: QDQ, and QLinear.
QDQ = """
<ir_version: 9, opset_import: ["" : 21]>
qdq (float[n,64] x) => (float[n,64] y)
<float s = {0.03}, uint8 z = {128}, float sw = {0.01}, int8 zw = {0}, float so = {0.125}, int8[64,64] w> {
  a = QuantizeLinear(x, s, z)
  b = DequantizeLinear(a, s, z)
  c = DequantizeLinear(w, sw, zw)
  d = MatMul(b, c)
  e = QuantizeLinear(d, so, z)
  y = DequantizeLinear(e, so, z)
}
"""
QLINEAR = """
<ir_version: 9, opset_import: ["" : 21]>
qlinear (uint8[n,64] x) => (uint8[n,64] y)
<float s = {0.03}, uint8 z = {128}, float sw = {0.01}, int8 zw = {0}, float so = {0.125}, int8[64,64] w> {
  y = QLinearMatMul(x, s, z, w, sw, zw, so, z)
}
"""
SCALED = """
- name: wrong
  match: "Neg(x)"
  replace: "Mul(x, -FACTOR)"
"""


def product(kind: str = "float") -> Any:
    """The product with weights of about 1/8, drawn from a seed; all positive, so that no result is near 0."""
    made = parsed(PRODUCT.replace("TYPE", kind))
    return filled(made, np.random.default_rng(0).uniform(0.002, 0.01, (64, 64)))


def quantised(text: str) -> Any:
    return filled(parsed(text), np.random.default_rng(0).integers(1, 90, (64, 64)))


def filled(made: Any, weights: np.ndarray) -> Any:
    """The model with its weights, which its text only declares."""
    (w,) = made.graph.value_info
    kind = w.type.tensor_type.elem_type
    made.graph.initializer.append(helper.make_tensor("w", kind, weights.shape, weights.reshape(-1).tolist()))
    del made.graph.value_info[:]
    return made


# Each precision: the model, its options, and the fault in a result that is found: a factor, just above the tolerance.
CASES: dict[str, tuple[Any, dict[str, Any], float]] = {
    "f32": (product, {}, 1.0003),
    "f16": (product, {"precision": "f16"}, 1.01),
    "bf16": (product, {"precision": "bf16"}, 1.05),
    "f16 weights": (product, {"weights_dtype": "f16"}, 1.01),
    "bf16 weights": (product, {"weights_dtype": "bf16"}, 1.05),
    "f8 weights": (product, {"weights_dtype": "f8"}, 1.5),
    "f16 model": (lambda: product("float16"), {}, 1.01),
    "bf16 model": (lambda: product("bfloat16"), {}, 1.05),
    "f64 model": (lambda: product("double"), {}, 1 + 1e-9),
    "QDQ": (lambda: quantised(QDQ), {}, 1.0),
    "QLinear": (lambda: quantised(QLINEAR), {}, 1.0),
}


def spoiled(path: Path, options: CompileOptions, folder: Path) -> Path:
    """A folder with the last kernel of a model, edited: it writes something else to the first bytes of its results."""
    done = prepare(path, options)
    source = eject(done, len(done.units) - 1, folder)[-1] / "kernel.c"
    buffers = json.loads(source.with_name("contract.json").read_text())["buffers"]
    written = [k for k, b in enumerate(buffers) if b["written"]]
    edit = "".join(f"    for (int i = 0; i < 8; i++)\n        ((char *)buf[{k}])[i] = 0x3c;\n" for k in written)
    text = source.read_text()
    end = text.rindex("}")
    source.write_text(text[:end] + edit + text[end:])
    return folder


@pytest.mark.parametrize("case", CASES)
def test_a_right_model_agrees_and_a_wrong_kernel_is_found(case: str, tmp_path: Path) -> None:
    made, given, _ = CASES[case]
    path = save(made(), tmp_path / "m.onnx")
    assert verify_model(path, CompileOptions(**given), dims={"n": 1}).ok
    kernels = spoiled(path, CompileOptions(**given), tmp_path / "kernels")
    wrong = verify_model(path, CompileOptions(**given, kernels=kernels), dims={"n": 1})
    assert not wrong.ok and wrong.outputs[0].error > 0.2


@pytest.mark.parametrize("case", [name for name, (_, _, factor) in CASES.items() if factor > 1])
def test_small_faults_are_found(case: str, tmp_path: Path) -> None:
    """Results that are too large by some parts in a thousand, or in a hundred where types are that coarse."""
    made, given, factor = CASES[case]
    path = save(made(), tmp_path / "m.onnx")
    (tmp_path / "wrong.yaml").write_text(SCALED.replace("FACTOR", repr(factor)))
    wrong = verify_model(path, CompileOptions(**given, rules=(tmp_path / "wrong.yaml",)), dims={"n": 1})
    assert not wrong.ok and wrong.outputs[0].error < 2 * (factor - 1)


@pytest.mark.parametrize(
    ("mode", "against", "quantum"),
    [("linear", "reference", 1.0), ("linear", "ort", 1.0), ("cubic", "reference", 1.0), ("nearest", "ort", 0.0)],
)
def test_weighted_integers_may_be_the_next(mode: str, against: str, quantum: float, tmp_path: Path) -> None:
    """Resize of them: onnx's evaluator rounds, in f64, and ONNX Runtime drops the fraction."""
    text = f"""
        <ir_version: 9, opset_import: ["" : 19]>
        resized (uint8[1,2,9,7] x) => (uint8[1,2,27,11] y) <int64[4] sizes = {{1, 2, 27, 11}}> {{
          y = Resize <mode = "{mode}"> (x, , , sizes)
        }}"""
    path = save(parsed(text), tmp_path / "m.onnx")
    compile_model(path, tmp_path / "m.tsc", CompileOptions())
    with torshc.load(tmp_path / "m.tsc") as loaded:
        assert [(t.relative, t.quantum) for t in loaded.tolerances] == [(0.0, quantum)]
    assert verify_bundle(path, tmp_path / "m.tsc", against).ok


@pytest.mark.parametrize("text", [QDQ, QLINEAR])
def test_one_quantum(text: str, tmp_path: Path) -> None:
    """An element that is the next integer is said and is no fault; all of them shifted by a twentieth are."""
    path = save(quantised(text), tmp_path / "m.onnx")
    compile_model(path, tmp_path / "m.tsc", CompileOptions())
    with torshc.load(tmp_path / "m.tsc") as loaded:
        (tolerance,) = loaded.tolerances
        quantum = 0.125 if text is QDQ else 1.0
        assert tolerance.quantum == quantum
        rows = np.float32([[-0.7], [0.7]]) if text is QDQ else np.uint8([[120], [150]])
        x = np.repeat(rows, 64, axis=1)
        y = loaded.run({"x": x})["y"]
    np.savez(tmp_path / "x.npz", x=x)
    for quanta, ok, note in ((1, True, "within one quantum"), (3, True, "within 3 quanta"), (20, False, "")):
        other = y.copy()
        other[1, 5] -= np.asarray(quanta * quantum, y.dtype)
        np.savez(tmp_path / "y.npz", y=other)
        found = verify_bundle(
            path, tmp_path / "m.tsc", str(tmp_path / "y.npz"), inputs=[str(tmp_path / "x.npz")]
        ).outputs[0]
        assert (found.ok, found.note) == (ok, note), quanta


def test_notes_name_the_type() -> None:
    b = np.float32([1.0, 0.5])
    assert compare("y", b * np.float32(1.01), b, Tolerance(0.02, 0.0, {"f32": 9, "bf16": 2})).note == "rounding to bf16"
    assert compare("y", b, b, Tolerance(0.02, 0.0, {"f32": 9, "bf16": 2})).note == ""
    assert compare("y", b * np.float32(1.1), b, Tolerance(0.02, 0.0, {"bf16": 2})).note == ""


def terms(text: str, **options: Any) -> Tolerance:
    (found,) = prepare(parsed(text).SerializeToString(), CompileOptions(**options)).tolerances
    return found


def test_terms() -> None:
    head = '<ir_version: 9, opset_import: ["" : 21]>\n'
    chain = head + "m (float16[4] x) => (float16[4] y) { a = Exp(x) b = Relu(a) y = Tanh(b) }"
    assert terms(chain).roundings == {"f32": 2, "f16": 2}
    double = head + "m (double[4] x) => (double[4] y) { a = Exp(x) y = Tanh(a) }"
    assert terms(double).relative == LEAST["f64"] < 1e-12
    mixed = head + "m (double[4] x) => (double[4] y) { a = Cast<to=1>(x) b = Exp(a) y = Cast<to=11>(b) }"
    assert terms(mixed).relative == LEAST["f32"]
    deep = head + "m (float[4,3000000] x) => (float[4] y) <int64[1] axes = {1}> { y = ReduceSum<keepdims=0>(x, axes) }"
    assert terms(deep).relative == pytest.approx(4 * 2.0**-24 * 3_000_000**0.5)
    twice = head + "m (float[4,64] x, float[64,64] w) => (float[4,64] y) { a = MatMul(x, w) y = MatMul(a, w) }"
    assert terms(twice, precision="f16").roundings == {"f32": 128, "f16": 4}
    assert terms(twice, weights_dtype="f8").roundings == {"f32": 128}  # no weight of the model's
    loop = head + (
        "m (float16[4] x) => (float16[4] y) <int64 n = {9}, bool c = {1}> { y = Loop(n, c, x) <body = b"
        " (int64 i, bool k, float16[4] s) => (bool o, float16[4] t) { o = Identity(k) t = Sin(s) }> }"
    )
    assert terms(loop).roundings == {"f32": 9, "f16": 9}


BY_FACTOR = """
<ir_version: 9, opset_import: ["" : 21]>
m (float[n,64] x, float[64,64] v) => (float[n,64] y) <float[64,64] w> { FACTOR y = MatMul(x, u) }
"""
BY_GEMM = BY_FACTOR.replace("FACTOR y = MatMul(x, u)", "y = Gemm(x, w)")


@pytest.mark.parametrize(
    ("factor", "alone"),
    [
        ("u = Identity(w)", 1),
        ("u = Transpose<perm=[1, 0]>(w)", 1),
        ("u = Identity(v)", 0),
        ("u = Add(v, w)", 0),
        ("", 1),
    ],
)
def test_rounded_factors(factor: str, alone: int) -> None:
    """Weights alone, constants or what is computed of them, where a processor does not multiply bf16."""
    text = BY_FACTOR.replace("FACTOR", factor) if factor else BY_GEMM
    made = filled(parsed(text), np.random.default_rng(0).uniform(0.002, 0.01, (64, 64))).SerializeToString()
    for mcpu, precision, count in (
        ("x86-64-v3", "bf16", alone), ("x86-64-v4+avx512bf16", "bf16", 2), ("x86-64-v3", "f16", 2),
    ):  # fmt: skip
        (found,) = prepare(made, CompileOptions(mcpu=mcpu, precision=precision)).tolerances
        assert found.roundings.get(precision, 0) == count, mcpu


def test_attention_is_rounded_where_halves_are_multiplied() -> None:
    """Without instructions its factors, all of a run, stay f32."""
    text = """
    <ir_version: 10, opset_import: ["" : 23]>
    m (float[1,2,16,32] q, float[1,2,16,32] k, float[1,2,16,32] v) => (float[1,2,16,32] y) { y = Attention(q, k, v) }
    """
    assert "bf16" not in terms(text, mcpu="x86-64-v3", precision="bf16").roundings
    assert terms(text, mcpu="x86-64-v4+avx512bf16", precision="bf16").roundings["bf16"] == 4


def test_versions_of_a_library_share_the_loosest_tolerance() -> None:
    """The best version is not the one that rounds most: of bf16 a Xeon without its tiles multiplies none."""
    versions = ("x86-64-v4-fp16", "x86-64-v4-bf16", "x86-64-v3")
    jobs = jobs_of(CompileOptions(isa=versions, precision="bf16"))
    done = prepare_versions(product().SerializeToString(), jobs)
    assert [c.isa.processor for c in done] == list(versions)
    assert [c.tolerances[0].roundings["bf16"] for c in done] == [2, 2, 2]
    (known,) = manifest_of(*done).tolerances
    assert known.roundings["bf16"] == 2


def test_integers_that_are_decided_are_exact() -> None:
    """Not those that a float becomes; those have its rounding."""
    head = '<ir_version: 9, opset_import: ["" : 21]>\n'
    place = head + "m (float[4] x) => (int64[1] y) { a = Exp(x) y = ArgMax(a) }"
    whole = head + "m (int64[4] x) => (int64[4] y) { a = Mul(x, x) y = Concat<axis=0>(a) }"
    cast = head + "m (float[4] x) => (int64[4] y) { a = Exp(x) b = Cast<to=7>(a) y = Neg(b) }"
    assert [terms(t).relative for t in (place, whole, cast)] == [0.0, 0.0, LEAST["f32"]]
    far = np.array([20_000])
    assert not compare("y", far + 1, far, terms(place)).ok and compare("y", far, far, terms(place)).ok


def test_the_formula() -> None:
    assert spread({"f16": 9, "bf16": 9}) == pytest.approx(4 * 3 * (UNIT["f16"] ** 2 + UNIT["bf16"] ** 2) ** 0.5)
    assert relative_tolerance({"bf16": 10**6}) == MOST and relative_tolerance({}, "f16") == LEAST["f32"]


def test_all_that_compares_uses_the_same(tmp_path: Path) -> None:
    """verify, compile --verify, verify --bundle and the test in the bundle: the manifest's tolerance."""
    path, bundle = save(product(), tmp_path / "m.onnx"), tmp_path / "m.tsc"

    def told(*words: object) -> str:
        done = CliRunner().invoke(cli, [str(w) for w in words], catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return done.output.splitlines()[-1]

    narrow = ("--precision", "f16", "--weights-dtype", "bf16")
    wanted = told("verify", path, *narrow)
    assert wanted == "agrees with reference, tolerance 0.016, at n=2"
    assert told("compile", path, *narrow, "--with-test", "-o", bundle, "--verify") == wanted
    assert told("verify", path, "--bundle", bundle) == wanted
    assert told("bisect", path, *narrow, "-o", tmp_path / "small.onnx") == wanted
    (known,) = json.loads((bundle / "manifest.json").read_text())["tolerances"]
    assert known["roundings"] == {"f32": 64, "f16": 2, "bf16": 1}
    program = (bundle / "test" / "test.c").read_text()
    assert f"RELATIVE[OUTPUTS + 1] = {{{known['relative']}}}" in program
    assert tolerances_of(prepare(path, CompileOptions()).graph, CompileOptions(), frozenset())


def test_the_cause_of_a_difference(tmp_path: Path) -> None:
    """A sine of hundreds is rounding, which f32 shows; a wrong kernel of bf16 is not; what f32 has too is another."""
    options = CompileOptions(precision="bf16")
    sine = PRODUCT.replace("TYPE", "float").replace(
        "y = Neg(p)", "k = Constant<value_float=100.0>() z = Mul(p, k) y = Sin(z)"
    )
    path = save(filled(parsed(sine), np.random.default_rng(0).uniform(-0.1, 0.1, (64, 64))), tmp_path / "sine.onnx")
    found = verify_model(path, options)
    assert not found.ok and re.fullmatch(
        "rounding of bf16, which this model amplifies: in f32 it agrees to .e-.*", found.why
    )

    path = save(product(), tmp_path / "m.onnx")
    kernels = spoiled(path, options, tmp_path / "kernels")
    found = verify_model(path, replace(options, kernels=kernels), dims={"n": 1})
    assert not found.ok and re.match(
        "in f32 it agrees to .e-.*, and bf16 explains no more than .e-03 a rounding", found.why
    )

    (tmp_path / "wrong.yaml").write_text(SCALED.replace("FACTOR", "1.1"))
    found = verify_model(path, replace(options, rules=(tmp_path / "wrong.yaml",)))
    assert found.why == "in f32 it differs too, by 1e-01, so bf16 is not all of the cause"


def test_the_cause_is_numbers_that_a_half_does_not_hold(tmp_path: Path) -> None:
    """Weights that become the largest half, and those of a run that become infinite."""
    text = PRODUCT.replace("TYPE", "float")
    far = filled(parsed(text), np.random.default_rng(0).uniform(-1e6, 1e6, (64, 64)))
    for options in (CompileOptions(precision="f16"), CompileOptions(weights_dtype="f16")):
        found = verify_model(save(far, tmp_path / "far.onnx"), options)
        assert not found.ok and "numbers beyond 65504 become that in weights" in found.why and "bisect" not in found.why

    steep = parsed(text.replace("p = MatMul(x", "k = Constant<value_float=1000000.0>() u = Mul(x, k) p = MatMul(u"))
    path = save(filled(steep, np.random.default_rng(0).uniform(-1, 1, (64, 64))), tmp_path / "steep.onnx")
    found = verify_model(path, CompileOptions(precision="f16"))
    assert not found.ok and "unless a number beyond 65504 became infinite" in found.why
