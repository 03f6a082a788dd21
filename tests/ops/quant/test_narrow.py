"""Floats of 8 and 4 bits and integers of 4 and 2: conversions, quantisation and views, against ml_dtypes and ONNX."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import NodeProto, helper
from onnx.numpy_helper import saturate_cast, to_float8e8m0
from onnx.reference import ReferenceEvaluator

from tests.emulation.emulated import emulated_tools
from tests.support.compare import assert_same, compiled
from tests.support.models import model
from torshc.base.errors import ModelError
from torshc.expr import DTYPES, F16, F32, I8, I32, NARROW, DType, from_numpy, from_onnx
from torshc.expr.functions import FUNCTIONS

Array = np.ndarray[Any, Any]
FLOATS = [t for t in NARROW if t.is_float]
SHORT = [t for t in NARROW if t.is_int]
SATURATING = [t for t in FLOATS if t.name.startswith("f8") and t.name != "f8e8m0"]
CORNERS = [np.nan, np.inf, -np.inf, 3e9, -3e9, 0, -0.9, 7.9, 8.0]  # of casts to integers
node = helper.make_node


@pytest.fixture(autouse=True)
def quiet() -> Any:
    """The arguments overflow and are NaN on purpose."""
    with np.errstate(all="ignore"):
        yield


def codes(dtype: DType) -> Array:
    """Every element that a type has."""
    return np.arange(2**dtype.bits, dtype=np.uint8).view(dtype.numpy)


def floats() -> Array:
    """All f16, random f32, and the neighbours of both: ties, subnormals, NaN, and what is too large."""
    halves = np.arange(65536, dtype=np.uint16).view(np.float16).astype(np.float32)
    drawn = np.random.default_rng(0).integers(0, 2**32, 20001, np.uint32).view(np.float32)
    return np.concatenate([halves, np.nextafter(halves, np.float32(1)), np.nextafter(halves, np.float32(9e9)), drawn])


def test_names() -> None:
    for t in NARROW:
        assert from_numpy(t.numpy) is t is from_onnx(t.onnx) is DTYPES[t.name]
        assert t.is_narrow and t.register in (F32, I8, DTYPES["u8"])
    assert [DTYPES[n].range for n in ("i4", "u4", "i2", "u2")] == [(-8, 7), (0, 15), (-2, 1), (0, 3)]


@pytest.mark.parametrize("dtype", NARROW, ids=repr)
def test_functions_of_bits(dtype: DType) -> None:
    every = codes(dtype)
    held = every.astype(dtype.register.numpy)
    number = ~np.isnan(held.astype(np.float32))
    bits = FUNCTIONS[f"bits_{dtype.name}"].numpy(held)
    np.testing.assert_array_equal(bits[number], every.view(np.uint8)[number])
    np.testing.assert_array_equal(FUNCTIONS[f"from_bits_{dtype.name}"].numpy(every.view(np.uint8)), held)
    np.testing.assert_array_equal(FUNCTIONS[f"as_{dtype.name}"].numpy(held), held)


# -- casts -----------------------------------------------------------------------------------------------------------


def casts(x: Array, whole: Array) -> tuple[list[NodeProto], dict[str, Array]]:
    """Casts of floats to every type in every manner, there and back, and what they give."""
    nodes, wanted = [], {}

    def add(name: str, source: str, dtype: DType, want: Array, **how: Any) -> None:
        nodes.append(node("Cast", [source], [f"y_{name}"], to=dtype.onnx, **how))
        nodes.append(node("Cast", [source], [f"inner_{name}"], to=dtype.onnx, **how))
        nodes.append(node("Cast", [f"inner_{name}"], [f"y_back_{name}"], to=F32.onnx))
        wanted[f"y_{name}"], wanted[f"y_back_{name}"] = want, want.astype(np.float32)

    for t in SATURATING:
        add(t.name, "x", t, saturate_cast(x, t.numpy))
        add(f"open_{t.name}", "x", t, x.astype(t.numpy), saturate=0)
    for saturate in (0, 1):
        for mode in ("up", "down", "nearest"):
            want = to_float8e8m0(x, bool(saturate), mode)
            add(f"{mode}{saturate}", "x", DTYPES["f8e8m0"], want, saturate=saturate, round_mode=mode)
    add("f4e2m1", "x", DTYPES["f4e2m1"], x.astype(DTYPES["f4e2m1"].numpy))
    for t in SHORT:
        add(t.name, "whole", t, lowest_bits(whole, t))
    return nodes, wanted


def lowest_bits(x: Array, dtype: DType) -> Array:
    """What Cast says of floats to integers of 4 and 2 bits, also where ONNX leaves it open."""
    low, high = I32.range
    whole = np.clip(np.trunc(np.nan_to_num(x.astype(np.float64), nan=0)), low, high).astype(np.int64)
    least = dtype.range[0]
    return (least + (whole - least) % 2**dtype.bits).astype(dtype.numpy)


@pytest.mark.parametrize("target, level", [("c", 0), ("c", 3), ("llvm", 3)])
def test_casts_to_narrow_types(target: str, level: int, tmp_path: Path) -> None:
    whole = np.random.default_rng(1).uniform(-70000, 70000, 5003).astype(np.float32)
    feeds = {
        "x": floats(),
        "whole": np.concatenate([whole, whole / 4096, np.array(CORNERS, np.float32)]),
    }
    nodes, wanted = casts(feeds["x"], feeds["whole"])
    found = compiled(model(nodes, feeds, opset=25), feeds, tmp_path, opt_level=level, target=target, fallback=False)
    for name, want in wanted.items():
        assert_same(found[name], want, name)


@pytest.mark.parametrize("level", [0, 3])
def test_casts_from_narrow_types(level: int, tmp_path: Path) -> None:
    """Of inputs, and of constants, which are folded; f32, f16, and i8 where that is another integer."""
    feeds, weights, nodes, wanted = {}, {}, [], {}
    for t in NARROW:
        every = np.concatenate([codes(t)] * 3)[:-1]
        feeds[t.name], weights[f"c_{t.name}"] = every, every
        for to in (F32, F16, *([I8] if t.is_int else [])):
            for source in (t.name, f"c_{t.name}"):
                out = f"y_{source}_{to.name}"
                nodes.append(node("Cast", [source], [out], to=to.onnx))
                wanted[out] = every.astype(np.float32).astype(to.numpy)
    found = compiled(model(nodes, feeds, weights=weights, opset=25), feeds, tmp_path, opt_level=level)
    for name, want in wanted.items():
        assert_same(found[name], want, name)


def test_casts_of_constants_and_of_integers(tmp_path: Path) -> None:
    x, n = floats()[::7], np.arange(-300, 300, dtype=np.int64)
    nodes, wanted = casts(x, n.astype(np.float32))
    for t in (*SATURATING, *SHORT):
        nodes.append(node("Cast", ["n"], [f"y_n_{t.name}"], to=t.onnx))
        wanted[f"y_n_{t.name}"] = saturate_cast(n, t.numpy) if t.is_float else n.astype(t.numpy)
    nodes.append(node("Cast", ["n"], ["whole"], to=F32.onnx))
    found = compiled(model(nodes, {"n": n}, weights={"x": x}, opset=25), {"n": n}, tmp_path, opt_level=3)
    for name, want in wanted.items():
        assert_same(found[name], want, name)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("level", [0, 3])
def test_casts_to_integers_are_folded_as_they_run(level: int, tmp_path: Path) -> None:
    """Also of what the integers cannot hold, which ONNX leaves open, and without a word of NumPy's."""
    integers = [t for t in DTYPES.values() if t.is_int]
    x = np.concatenate([floats()[::997], np.array(CORNERS, np.float32)])
    nodes = [node("Cast", [of], [f"y_{of}_{t.name}"], to=t.onnx) for t in integers for of in ("x", "w")]
    made = model(nodes, {"x": x}, weights={"w": x}, opset=25)
    with np.errstate(all="warn"):
        found = compiled(made, {"x": x}, tmp_path, opt_level=level)
    for t in integers:
        assert_same(found[f"y_w_{t.name}"], found[f"y_x_{t.name}"], t.name)


def test_what_a_cast_must_not_skip(tmp_path: Path) -> None:
    """Casts that follow each other are one only where nothing is lost on the way."""
    every = codes(DTYPES["f8e8m0"])
    nodes = [node("Cast", ["x"], ["half"], to=F16.onnx), node("Cast", ["half"], ["y"], to=F32.onnx)]
    nodes += [node("Cast", ["flag"], ["power"], to=DTYPES["f8e8m0"].onnx), node("Cast", ["power"], ["y1"], to=F32.onnx)]
    feeds = {"x": every, "flag": np.array([False, True])}
    found = compiled(model(nodes, feeds, opset=25), feeds, tmp_path, opt_level=3)
    assert_same(found["y"], every.astype(np.float32).astype(np.float16).astype(np.float32), "through f16")
    assert_same(found["y1"], np.array([2.0**-127, 1], np.float32), "of truth values")


def test_a_cast_that_rounds_no_known_way(tmp_path: Path) -> None:
    feeds = {"x": np.ones(3, np.float32)}
    made = model([node("Cast", ["x"], ["y"], to=DTYPES["f8e8m0"].onnx, round_mode="sideways")], feeds, opset=25)
    with pytest.raises(ModelError, match="'round_mode' is 'sideways'"):
        compiled(made, feeds, tmp_path, opt_level=3)


# -- quantisation ----------------------------------------------------------------------------------------------------


def quantised(dtype: DType, how: str, scale: np.dtype[Any]) -> tuple[list[NodeProto], dict[str, Array]]:
    """Quantised and back; the scale of the tensor, of places on axis 1 or of blocks of 4 along it."""
    rng = np.random.default_rng(2)
    shape = {"tensor": (), "axis": (12,), "block": (5, 3)}[how]
    size = 4 if how == "block" else 0
    zeros = rng.integers(dtype.range[0], dtype.range[1] + 1, shape) if dtype.is_int else np.zeros(shape)
    weights = {"scale": np.asarray(rng.uniform(0.1, 2, shape)).astype(scale), "zero": zeros.astype(dtype.numpy)}
    nodes = [
        node("QuantizeLinear", ["x", "scale", "zero"], ["y"], axis=1, block_size=size),
        node("QuantizeLinear", ["x", "scale"], ["y_plain"], axis=1, block_size=size, output_dtype=dtype.onnx),
        node("DequantizeLinear", ["y", "scale", "zero"], ["y_back"], axis=1, block_size=size),
        node("DequantizeLinear", ["y_plain", "scale"], ["y_plain_back"], axis=1, block_size=size),
    ]
    return nodes, weights


@pytest.mark.parametrize("how", ["tensor", "axis", "block"])
@pytest.mark.parametrize("dtype", [t for t in NARROW if t.name != "f8e8m0"], ids=repr)
def test_quantisation(dtype: DType, how: str, tmp_path: Path) -> None:
    nodes, weights = quantised(dtype, how, np.dtype(np.float32))
    feeds = {"x": np.random.default_rng(3).standard_normal((5, 12)).astype(np.float32) * np.float32(9)}
    made = model(nodes, feeds, weights=weights, opset=25)
    found = compiled(made, feeds, tmp_path, opt_level=3)
    for name, want in zip(found, ReferenceEvaluator(made).run(None, feeds), strict=True):
        assert_same(found[name], want, name)


def test_quantisation_in_halves(tmp_path: Path) -> None:
    """The quotient is rounded to `precision` before it is rounded again, and saturation can be left out."""
    dtype = DTYPES["f8e5m2"]
    x = np.random.default_rng(4).standard_normal((5, 12)).astype(np.float32) * np.float32(1e5)
    weights = {"scale": np.asarray(1.0625, np.float32)}
    nodes = [
        node("QuantizeLinear", ["x", "scale"], ["y"], output_dtype=dtype.onnx, precision=F16.onnx),
        node("QuantizeLinear", ["x", "scale"], ["y_open"], output_dtype=dtype.onnx, saturate=0),
    ]
    found = compiled(model(nodes, {"x": x}, weights=weights, opset=25), {"x": x}, tmp_path, opt_level=3)
    quotient = x / weights["scale"]
    assert_same(found["y"], saturate_cast(quotient.astype(np.float16).astype(np.float32), dtype.numpy), "y")
    assert_same(found["y_open"], quotient.astype(dtype.numpy), "y_open")


@pytest.mark.parametrize("level", [0, 3])
def test_a_product_with_weights_of_4_bits(level: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    weights = {
        "w": rng.integers(-8, 8, (64, 48)).astype(DTYPES["i4"].numpy),
        "scale": rng.uniform(0.5, 1, (4, 48)).astype(np.float32),
    }
    nodes = [
        node("DequantizeLinear", ["w", "scale"], ["wide"], axis=0, block_size=16),
        node("MatMul", ["x", "wide"], ["y"]),
    ]
    feeds = {"x": rng.standard_normal((7, 64)).astype(np.float32)}
    found = compiled(model(nodes, feeds, weights=weights, opset=25), feeds, tmp_path, opt_level=level)
    wide = weights["w"].astype(np.float32) * np.repeat(weights["scale"], 16, axis=0)
    np.testing.assert_allclose(found["y"], feeds["x"] @ wide, rtol=1e-4, atol=1e-4)


def test_a_zero_point_of_floats_is_0(tmp_path: Path) -> None:
    dtype = DTYPES["f8e4m3fn"]
    feeds = {"x": np.ones(3, np.float32)}
    weights = {"scale": np.asarray(1, np.float32), "zero": np.asarray(1).astype(dtype.numpy)}
    made = model([node("QuantizeLinear", ["x", "scale", "zero"], ["y"])], feeds, weights=weights, opset=25)
    with pytest.raises(ModelError, match="zero point of f8e4m3fn that is not 0"):
        compiled(made, feeds, tmp_path, opt_level=3)


# -- views -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", [0, 3])
@pytest.mark.parametrize("dtype", NARROW, ids=repr)
def test_views(dtype: DType, level: int, tmp_path: Path) -> None:
    """Elements are moved as they are, among others along an axis that vectors cannot read in a row."""
    x = np.resize(codes(dtype), (19, 23))
    weights = {"pads": np.array([1, 2, 0, 3]), "fill": codes(dtype)[1], "shape": np.array([23, -1])}
    nodes = [
        node("Transpose", ["x"], ["y_turned"]),
        node("Reshape", ["x", "shape"], ["y_shape"]),
        node("Pad", ["x", "pads", "fill"], ["y_padded"]),
        node("Identity", ["x"], ["y_same"]),
        node("Transpose", ["x"], ["inner"]),
        node("Cast", ["inner"], ["y_wide"], to=F32.onnx),
    ]
    found = compiled(model(nodes, {"x": x}, weights=weights, opset=25), {"x": x}, tmp_path, opt_level=level)
    assert_same(found["y_turned"], x.T, "Transpose")
    assert_same(found["y_shape"], x.reshape(23, 19), "Reshape")
    padded = np.full((20, 28), codes(dtype)[1])
    padded[1:, 2:25] = x
    assert_same(found["y_padded"], padded, "Pad")
    assert_same(found["y_same"], x, "Identity")
    assert_same(found["y_wide"], x.T.astype(np.float32), "Cast")


@pytest.mark.parametrize("level", [0, 3])
def test_bits_of_elements(level: int, tmp_path: Path) -> None:
    """Every type as unsigned integers of its width, and as it is again; of NaN that it is one."""
    feeds = {t.name: codes(t) for t in NARROW}
    nodes = []
    for t in NARROW:
        bits = DTYPES[f"u{t.bits}"]
        nodes.append(node("BitCast", [t.name], [f"y_{t.name}"], to=bits.onnx))
        nodes.append(node("BitCast", [f"y_{t.name}"], [f"y_back_{t.name}"], to=t.onnx))
    found = compiled(model(nodes, feeds, opset=26), feeds, tmp_path, opt_level=level)
    for t in NARROW:
        assert_same(found[f"y_back_{t.name}"], codes(t), t.name)
        number = ~np.isnan(codes(t).astype(np.float32))
        numbered = np.arange(2**t.bits).astype(DTYPES[f"u{t.bits}"].numpy)
        assert_same(found[f"y_{t.name}"][number], numbered[number], t.name)


@pytest.mark.parametrize("target", ["cuda", "metal"])
def test_devices(target: str, tmp_path: Path) -> None:
    """Kernels of devices that store and load each kind; the conversions themselves stand in tests/templates."""
    x, whole = floats()[::61], np.linspace(-300, 300, 1003, dtype=np.float32)
    nodes, wanted = casts(x, whole)
    chosen = [n for n in nodes if n.output[0].removeprefix("y_") in ("f8e5m2", "up1", "f4e2m1", "i4", "u2")]
    chosen += [node("Cast", [n.output[0]], [f"{n.output[0]}_half"], to=F16.onnx) for n in chosen]
    feeds = {"x": x, "whole": whole}
    with emulated_tools():
        found = compiled(model(chosen, feeds, opset=25), feeds, tmp_path, target=target, fallback=False)
    assert len(found) == 10
    for name, array in found.items():
        want = wanted[name.removesuffix("_half")]
        assert_same(array, want.astype(np.float16) if name.endswith("_half") else want, name)
