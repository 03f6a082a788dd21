"""WGSL kernels on an adapter, against ONNX Runtime; skipped where there is no adapter."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime as ort
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import torshc
from tests.support import models
from torshc.base.errors import BundleError, UnsupportedError
from torshc.base.webgpu import find_library
from torshc.kernels.base import Kernel
from torshc.targets.base import Rendered
from torshc.targets.gpu.webgpu import target as webgpu
from torshc.targets.gpu.webgpu.functions import functions

Array = npt.NDArray[Any]
F32, I64, I8, U8, F16, BOOL, F64 = (
    getattr(TensorProto, name) for name in ("FLOAT", "INT64", "INT8", "UINT8", "FLOAT16", "BOOL", "DOUBLE")
)
TASKS = Path("/proc/self/task")
ODD = np.array([-7, -1, 0, 1, 3, 2**31, -(2**31), 2**40 + 1, -(2**40) + 5, 2**63 - 1, -(2**63)], np.int64)


def model(nodes: list[Any], inputs: dict[str, Any], outputs: dict[str, int], opset: int = 18) -> bytes:
    made = [helper.make_tensor_value_info(name, kind, None) for name, kind in outputs.items()]
    return models.model(nodes, inputs, made, opset=opset).SerializeToString()


def opened(source: bytes, folder: Path, fallback: bool = False, **options: Any) -> Any:
    if not find_library():
        pytest.skip("no library of webgpu.h is here")
    torshc.compile(source, folder / "m.tsc", target="webgpu", fallback=fallback, **options)
    try:
        return torshc.load(folder / "m.tsc")
    except BundleError as error:
        if "WebGPU finds no adapter" not in str(error):
            raise  # such as a kernel that is not accepted
        pytest.skip(f"no adapter: {error}")


def check(source: bytes, feeds: dict[str, Array], folder: Path, atol: float = 0) -> None:
    found = opened(source, folder).run(feeds)
    wanted = ort.InferenceSession(source).run(None, feeds)
    for name, want in zip(found, wanted, strict=True):
        np.testing.assert_allclose(found[name], want, rtol=1e-5 if atol else 0, atol=atol)


def test_narrow_elements_share_words(tmp_path: Path) -> None:
    """Neighbouring threads write bytes and halves of one word; odd sizes end in the middle of one."""
    nodes = [
        helper.make_node("Cast", ["x"], ["a"], to=I8),
        helper.make_node("Cast", ["x"], ["b"], to=U8),
        helper.make_node("Cast", ["x"], ["c"], to=F16),
        helper.make_node("Greater", ["x", "y"], ["d"]),
    ]
    source = model(nodes, {"x": (F32, ["n", 7]), "y": (F32, [7])}, {"a": I8, "b": U8, "c": F16, "d": BOOL})
    rng = np.random.default_rng(0)
    x = np.abs(rng.normal(size=(45, 7)) * 20).astype(np.float32)
    check(source, {"x": x, "y": x[3]}, tmp_path)


def test_integers_of_64_bits(tmp_path: Path) -> None:
    names = ("Add", "Sub", "Mul", "Less")
    nodes = [helper.make_node(name, ["x", "y"], [name]) for name in names]
    nodes += [helper.make_node("Abs", ["x"], ["Abs"]), helper.make_node("Cast", ["x"], ["Cast"], to=F32)]
    outputs = {name: BOOL if name == "Less" else F32 if name == "Cast" else I64 for name in (*names, "Abs", "Cast")}
    source = model(nodes, {"x": (I64, ["n", 1]), "y": (I64, ["n"])}, outputs)
    check(source, {"x": ODD[:, None], "y": ODD}, tmp_path)


def test_quotients_of_floats_are_the_nearest(tmp_path: Path) -> None:
    """To the bit, so that what is rounded to whole numbers is right too; a card by itself may be 2.5 ULP away."""
    source = model([helper.make_node("Div", ["x", "y"], ["d"])], {"x": (F32, ["n"]), "y": (F32, ["n"])}, {"d": F32})
    rng = np.random.default_rng(2)
    x, y = (np.ldexp(rng.normal(size=4000), rng.integers(-40, 40, 4000)).astype(np.float32) for _ in "xy")
    x[:6], y[:6] = [0, -0.0, np.inf, 1, 3e38, 1e-30], [2, 3, 7, 0, 1e-3, 1e-3]
    check(source, {"x": x, "y": y}, tmp_path, 0)


def test_division_of_64_bits(tmp_path: Path) -> None:
    nodes = [helper.make_node("Div", ["x", "y"], ["d"]), helper.make_node("Mod", ["x", "y"], ["m"])]
    source = model(nodes, {"x": (I64, ["n", 1]), "y": (I64, ["m"])}, {"d": I64, "m": I64})
    divisors = np.array([-7, 1, 3, 2**33 + 1, -(2**40)], np.int64)
    check(source, {"x": ODD[:, None], "y": divisors}, tmp_path)


@pytest.mark.parametrize("shape", [(1, 1), (3, 63), (5, 1030)])
def test_rows(shape: tuple[int, int], tmp_path: Path) -> None:
    """Rows of a thread each, and rows that the threads of a block share."""
    nodes = [helper.make_node("Softmax", ["x"], ["s"]), helper.make_node("ReduceMax", ["x"], ["m"])]
    source = model(nodes, {"x": (F32, list(shape))}, {"s": F32, "m": F32})
    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    x[-1, -1] = np.inf if shape[0] == 1 else x[-1, -1]
    if shape[0] == 1:
        x[0, 0] = 3
    check(source, {"x": x}, tmp_path, 1e-6)


def test_floats_that_are_no_numbers(tmp_path: Path) -> None:
    nodes = [helper.make_node(name, ["x"], [name]) for name in ("IsNaN", "IsInf", "Exp", "Log", "Sign")]
    nodes.append(helper.make_node("Max", ["x", "y"], ["Max"]))
    outputs = {n.output[0]: BOOL if n.op_type.startswith("Is") else F32 for n in nodes}
    source = model(nodes, {"x": (F32, [8]), "y": (F32, [])}, outputs)
    x = np.array([np.nan, np.inf, -np.inf, 0, -0.0, 1e-42, 88.5, -104], np.float32)
    check(source, {"x": x, "y": np.array(1, np.float32)}, tmp_path, 1e-30)


def test_f64_is_refused_by_name(tmp_path: Path) -> None:
    source = model([helper.make_node("Neg", ["x"], ["y"])], {"x": (F64, [3])}, {"y": F64})
    with pytest.raises(UnsupportedError, match=r"Neg.*WGSL has no f64"):
        torshc.compile(source, tmp_path / "m.tsc", target="webgpu", fallback=False)


def test_sizes_of_elements_do_not_wrap(tmp_path: Path) -> None:
    """Scales that are inputs are ratios of large integers, whose products 32 bits do not hold."""
    node = helper.make_node(
        "Resize", ["x", "", "scales"], ["y"], mode="linear", coordinate_transformation_mode="asymmetric"
    )
    source = model([node], {"x": (F32, [1, 1, 4, 6]), "scales": (F32, [4])}, {"y": F32})
    x = np.arange(24, dtype=np.float32).reshape(1, 1, 4, 6)
    found = opened(source, tmp_path, fallback=True).run({"x": x, "scales": np.array([1, 1, 0.6, 1.7], np.float32)})
    wanted = ort.InferenceSession(source).run(None, {"x": x, "scales": np.array([1, 1, 0.6, 1.7], np.float32)})
    np.testing.assert_allclose(found["y"], wanted[0], atol=1e-4)  # f32 of numbers up to 24


@pytest.mark.parametrize("keys", [1, 65])
def test_attention(keys: int, tmp_path: Path) -> None:
    nodes = [
        helper.make_node("MatMul", ["q", "k"], ["s"]),
        helper.make_node("Softmax", ["s"], ["w"]),
        helper.make_node("MatMul", ["w", "v"], ["y"]),
    ]
    shapes = {"q": (2, 3, 5), "k": (2, 5, keys), "v": (2, keys, 70)}
    source = model(nodes, {name: (F32, list(shape)) for name, shape in shapes.items()}, {"y": F32})
    rng = np.random.default_rng(0)
    feeds = {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    check(source, feeds, tmp_path, 1e-5)


@pytest.mark.parametrize("rows", [3, 8, 21])
def test_running_sums(rows: int, tmp_path: Path) -> None:
    node = helper.make_node("CumSum", ["x", "axis"], ["y"], reverse=1, exclusive=1)
    source = model([node], {"x": (F32, ["n", 5]), "axis": (I64, [])}, {"y": F32})
    source = onnx_with_constant(source, "axis", np.array(0, np.int64))
    check(source, {"x": np.arange(rows * 5, dtype=np.float32).reshape(rows, 5)}, tmp_path)


@pytest.mark.parametrize("largest", [0, 1])
def test_the_first_of_a_row(largest: int, tmp_path: Path) -> None:
    node = helper.make_node("TopK", ["x", "k"], ["y", "i"], largest=largest)
    source = model([node], {"x": (F32, [3, 17]), "k": (I64, [1])}, {"y": F32, "i": I64})
    source = onnx_with_constant(source, "k", np.array([5], np.int64))
    check(source, {"x": np.random.default_rng(0).normal(size=(3, 17)).astype(np.float32)}, tmp_path)


def onnx_with_constant(source: bytes, name: str, value: Array) -> bytes:
    """The model with a constant in place of an input."""
    built = ModelProto.FromString(source)
    (port,) = (i for i in built.graph.input if i.name == name)
    built.graph.input.remove(port)
    built.graph.initializer.append(numpy_helper.from_array(value, name))
    return built.SerializeToString()


def test_integers_of_4_bits(tmp_path: Path) -> None:
    node = helper.make_node("Cast", ["x"], ["y"], to=TensorProto.INT4)
    source = model([node, helper.make_node("Cast", ["y"], ["z"], to=F32)], {"x": (F32, [5])}, {"z": F32})
    source = with_opset(source, 21)
    check(source, {"x": np.array([-8, -1, 0, 3, 7], np.float32)}, tmp_path)


def with_opset(source: bytes, version: int) -> bytes:
    built = ModelProto.FromString(source)
    built.opset_import[0].version, built.ir_version = version, 10
    return built.SerializeToString()


def test_floats_of_8_bits(tmp_path: Path) -> None:
    """From what rounds, overflows, is subnormal, and is no number. ONNX Runtime differs past the largest."""
    names = ("FLOAT8E4M3FN", "FLOAT8E4M3FNUZ", "FLOAT8E5M2", "FLOAT8E5M2FNUZ")
    kinds = {name: getattr(TensorProto, name) for name in names}
    nodes = []
    for k, (name, kind) in enumerate(kinds.items()):
        nodes.append(helper.make_node("Cast", ["x"], [f"{name}_bits"], to=kind, saturate=k % 2))
        nodes.append(helper.make_node("Cast", [f"{name}_bits"], [name], to=F32))
    source = model(nodes, {"x": (F32, ["n"])}, dict.fromkeys(kinds, F32), opset=19)
    rng = np.random.default_rng(0)
    odd = [np.nan, np.inf, -np.inf, 0, -0.0, 448, 464, 465, 57344, 61440, 2.0**-16, 2.0**-17, 1.5 * 2.0**-9, 1e-30]
    x = np.concatenate([odd, rng.normal(size=99) * np.exp2(rng.integers(-20, 9, 99))]).astype(np.float32)
    found = opened(source, tmp_path).run({"x": x})
    for name, want in zip(names, ReferenceEvaluator(source).run(None, {"x": x}), strict=True):
        np.testing.assert_array_equal(found[name], want)


def test_more_tensors_than_a_kernel_has_buffers(tmp_path: Path) -> None:
    """The device has the 8 buffers that each adapter has: chains, concatenations and parts are several kernels."""
    names = [f"x{k}" for k in range(12)]
    nodes = [
        helper.make_node("Concat", names, ["joined"], axis=1),
        helper.make_node("Sum", names, ["total"]),
        helper.make_node("Softmax", ["total"], ["a0"]),
        *(helper.make_node("Mul" if k % 2 else "Add", [f"a{k}", x], [f"a{k + 1}"]) for k, x in enumerate(names)),
        helper.make_node("Exp", ["a12"], ["e0"]),
        *(helper.make_node("Sin", [f"e{k}"], [f"e{k + 1}"]) for k in range(9)),
        helper.make_node("Split", ["joined"], [f"part{k}" for k in range(9)], axis=1, num_outputs=9),
        *(helper.make_node("Neg", [f"part{k}"], [f"negative{k}"]) for k in range(9)),
    ]
    results = [
        "joined",
        "a12",
        *(f"e{k}" for k in range(10)),
        *(f"part{k}" for k in range(9)),
        "negative0",
        "negative8",
    ]
    source = model(nodes, {x: (F32, [3, 6]) for x in names}, dict.fromkeys(results, F32))
    draw = np.random.default_rng(2)
    check(source, {x: draw.uniform(-1, 1, (3, 6)).astype("f4") for x in names}, tmp_path, 1e-6)


def test_weights_past_a_binding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights larger than a kernel may see at once are bound in parts, the last of which is short."""
    monkeypatch.setattr(webgpu, "BINDING", 16384)
    rng = np.random.default_rng(0)
    wide, narrow = rng.normal(size=(600, 16)).astype(np.float32), rng.normal(size=(700, 16)).astype(np.float16)
    nodes = [
        helper.make_node("Gather", ["wide", "rows"], ["x"]),
        helper.make_node("Gather", ["narrow", "rows"], ["y"]),
        helper.make_node("MatMul", ["x", "columns"], ["z"]),
    ]
    weights = {"wide": wide, "narrow": narrow, "columns": np.ascontiguousarray(wide.T)}
    built = onnx.load_model_from_string(model(nodes, {"rows": (I64, [50])}, {"x": F32, "y": F16, "z": F32}))
    built.graph.initializer.extend(numpy_helper.from_array(a, name) for name, a in weights.items())
    rows = np.concatenate([[0, 255, 256, 511, 512, 599], rng.integers(0, 600, 44)])
    check(built.SerializeToString(), {"rows": rows}, tmp_path, 1e-5)


@pytest.mark.skipif(not TASKS.is_dir(), reason="no list of this process's threads")
def test_a_closed_model_leaves_no_device(tmp_path: Path) -> None:
    """A bundle has a device of its own; what is left of it would call a library that is gone."""
    source = model([helper.make_node("Neg", ["x"], ["y"])], {"x": (F32, [3])}, {"y": F32})
    opened(source, tmp_path).close()
    before = len(list(TASKS.iterdir()))
    for _ in range(3):
        with torshc.load(tmp_path / "m.tsc") as again:
            again.run({"x": np.zeros(3, np.float32)})
    assert len(list(TASKS.iterdir())) == before


def test_a_kernel_that_the_adapter_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = model([helper.make_node("Neg", ["x"], ["y"])], {"x": (F32, [3])}, {"y": F32})
    opened(source, tmp_path).close()
    render = webgpu.WebGpuTarget.render

    def broken(target: webgpu.WebGpuTarget, kernel: Kernel) -> Rendered:
        made = render(target, kernel)
        return replace(made, text=made.text.replace("let tid", "let other"))

    monkeypatch.setattr(webgpu.WebGpuTarget, "render", broken)
    torshc.compile(source, tmp_path / "m.tsc", target="webgpu")
    with pytest.raises(BundleError, match=r"a kernel cannot be prepared: .*k[0-9a-f]{12}"):
        torshc.load(tmp_path / "m.tsc")


def test_no_remainder_of_negative_numbers() -> None:
    """Vulkan leaves `%` undefined for these, and cards show it; what bounds prove to have none is printed so."""
    for name, function in functions(64).items():
        for line in function.text.splitlines():
            assert "%" not in re.sub(r"% (\d+u|b\.x)", "", line), name


ROWS = ("ReduceSum", "ReduceProd", "ReduceMax", "ReduceMin")


@pytest.mark.parametrize("size", [64, 101, 4099])
@pytest.mark.parametrize("kind", [F32, TensorProto.INT32, TensorProto.UINT32, I64, TensorProto.UINT64, I8, U8, BOOL])
def test_rows_that_threads_share(kind: int, size: int, tmp_path: Path) -> None:
    """Of every type; NaN is the result of its row, as it is of NumPy's."""
    names = [n for n in ROWS if (kind not in (I8, U8) or n in ROWS[2:]) and (kind != BOOL or n in ROWS[2:])]
    axes = helper.make_node("Constant", [], ["axes"], value_ints=[1])
    nodes = [axes, *(helper.make_node(n, ["x", "axes"], [n], keepdims=0) for n in names)]
    source = model(nodes, {"x": (kind, [3, size])}, dict.fromkeys(names, kind), 20)
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    rng = np.random.default_rng(0)
    x = rng.integers(-3, 4, (3, size)).astype(dtype)
    if kind == F32:
        x = (1 + rng.random((3, size)) / size).astype(np.float32)
        x[1], x[2, 50] = -x[1], np.nan
    found = opened(source, tmp_path).run({"x": x})
    functions = {"ReduceSum": np.sum, "ReduceProd": np.prod, "ReduceMax": np.max, "ReduceMin": np.min}
    for name in names:
        want = functions[name](x, axis=1, dtype=np.float64) if kind == F32 and name in ROWS[:2] else None
        if want is None:
            want = functions[name](x, axis=1).astype(dtype)
        np.testing.assert_allclose(found[name], want, rtol=1e-4 if kind == F32 else 0)
