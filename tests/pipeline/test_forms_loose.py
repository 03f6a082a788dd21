"""Runs in which a symbolic size is 1 and broadcasts: they take the loose form, whatever else a model goes through."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import numpy.typing as npt
import onnx
import pytest
from onnx import helper, numpy_helper

import torshc
from tests.bundle.test_build_script import build
from tests.bundle.test_versions import loaded, runnable
from tests.emulation.emulated import emulated_tools, missing
from tests.support import compilers, models
from tests.support.compare import onnx_runtime
from tests.support.contrib import model_of, some_bytes
from tests.support.nodes import numbers
from tests.targets.gpu.webgpu import test_target as webgpu
from torshc.base.errors import ModelError, RunError
from torshc.base.options import CompileOptions
from torshc.bundle.manifest import SCHEMA
from torshc.entry.inprocess import load_model
from torshc.explain import explain, to_text
from torshc.pipeline.compiler import prepare
from torshc.workbench.eject import eject
from torshc.workbench.reweigh import set_weights

Array = npt.NDArray[Any]
NODE = helper.make_node


def model(
    nodes: list[onnx.NodeProto], inputs: Mapping[str, list[Any]], weights: Mapping[str, Array] | None = None
) -> onnx.ModelProto:
    """A model with the output y."""
    return models.model(nodes, inputs, "y", weights)


ADD = model([NODE("Add", ["x", "z"], ["y"])], {"x": ["a", 4], "z": ["b", 4]})
W = np.arange(6, dtype=np.float32).reshape(3, 2)
DENSE = model(
    [NODE("MatMul", ["x", "w"], ["p"]), NODE("Add", ["p", "c"], ["q"]), NODE("Add", ["q", "z"], ["y"])],
    {"x": ["n", 3], "z": ["m", 2]},
    {"w": W, "c": np.array([5, 7], np.float32)},
)  # fmt: skip
EXAMPLES: dict[str, tuple[onnx.ModelProto, list[tuple[tuple[int, ...], ...]]]] = {
    "sum": (ADD, [((1, 4), (3, 4)), ((3, 4), (1, 4)), ((3, 4), (3, 4)), ((1, 4), (0, 4)), ((1, 4), (1, 4))]),
    "weight": (
        model([NODE("Mul", ["x", "w"], ["y"])], {"x": ["a", "b"]}, {"w": W}),
        [((1, 1),), ((3, 1),), ((1, 2),), ((3, 2),)],
    ),
    "expand": (
        model([NODE("Expand", ["x", "s"], ["y"])], {"x": [1, 1, "n"]}, {"s": np.array([2, 3, 4])}),
        [((1, 1, 1),), ((1, 1, 4),)],
    ),
    "product": (
        model([NODE("MatMul", ["x", "z"], ["y"])], {"x": ["a", "h", 5, 7], "z": ["b", "g", 7, 9]}),
        [((1, 3, 5, 7), (2, 3, 7, 9)), ((2, 1, 5, 7), (1, 3, 7, 9)), ((2, 3, 5, 7), (2, 3, 7, 9))],
    ),
    "mask": (
        model(
            [
                NODE("MatMul", ["x", "z"], ["s"]), NODE("Add", ["s", "mask"], ["t"]),
                NODE("Softmax", ["t"], ["p"], axis=-1), NODE("MatMul", ["p", "v"], ["y"]),
            ],
            {"x": ["b", "h", "t", 8], "z": ["b", "h", 8, "t"], "mask": ["b", "mh", "t", "t"], "v": ["b", "h", "t", 8]},
        ),
        [
            ((2, 3, 5, 8), (2, 3, 8, 5), (2, 1, 5, 5), (2, 3, 5, 8)),
            ((2, 3, 5, 8), (2, 3, 8, 5), (2, 3, 5, 5), (2, 3, 5, 8)),
            ((2, 1, 5, 8), (2, 1, 8, 5), (2, 3, 5, 5), (2, 1, 5, 8)),
        ],
    ),
    "gemm": (
        model([NODE("Gemm", ["x", "w", "c"], ["y"])], {"x": ["a", 3], "c": ["p", "q"]}, {"w": W}),
        [((4, 3), (1, 2)), ((4, 3), (4, 1)), ((4, 3), (1, 1)), ((4, 3), (4, 2)), ((1, 3), (1, 1))],
    ),
    "sum of products": (
        model(
            [NODE("Einsum", ["x", "z"], ["y"], equation="...ij,...jk->...ik")],
            {"x": ["a", "i", 4], "z": ["b", 4, "k"]},
        ),
        [((1, 3, 4), (2, 4, 5)), ((2, 3, 4), (1, 4, 5)), ((2, 3, 4), (2, 4, 5))],
    ),
    "scale": (
        model(
            [NODE("Abs", ["x"], ["p"]), NODE("Cast", ["p"], ["q"], to=2), NODE("DequantizeLinear", ["q", "s"], ["y"])],
            {"x": [2, "d", 3], "s": ["c"]},
        ),
        [((2, 5, 3), (1,)), ((2, 5, 3), (5,)), ((2, 1, 3), (1,))],
    ),
    "normalisation": (
        model([NODE("LayerNormalization", ["x", "g"], ["y"])], {"x": ["a", "d"], "g": ["e"]}),
        [((2, 5), (1,)), ((2, 5), (5,))],
    ),
}  # fmt: skip


def feeds_of(made: onnx.ModelProto, shapes: tuple[tuple[int, ...], ...], seed: int = 0) -> dict[str, Array]:
    names = [v.name for v in made.graph.input]
    return {n: numbers(*s, seed=seed + k) for k, (n, s) in enumerate(zip(names, shapes, strict=True))}


IN_PROCESS = "in the process"
TARGETS = ("c", "llvm", IN_PROCESS, "cuda", "metal", "webgpu")


@contextmanager
def opened(made: onnx.ModelProto, target: str, folder: Path, **options: Any) -> Iterator[Any]:
    """A model compiled for a target, or into this process, and loaded."""
    if target == IN_PROCESS:
        yield load_model(made.SerializeToString(), **options)
        return
    if target == "metal" and (reason := missing(metal=True)):
        pytest.skip(reason)
    if target == "webgpu":
        yield webgpu.opened(made.SerializeToString(), folder, **options)
        return
    with emulated_tools() if target in ("cuda", "metal") else nullcontext():
        torshc.compile(made, folder / "m.tsc", target=target, **options)
        with torshc.load(folder / "m.tsc") as found:
            yield found


@pytest.mark.parametrize(("target", "level"), [("c", 0), *((target, 3) for target in TARGETS)])
@pytest.mark.parametrize("name", EXAMPLES)
def test_a_size_of_1_is_broadcast(name: str, target: str, level: int, tmp_path: Path) -> None:
    made, runs = EXAMPLES[name]
    with opened(made, target, tmp_path, opt_level=level) as found:
        for shapes in runs:
            for seed in range(3):  # a card records the second run, and the third is that again
                feeds = feeds_of(made, shapes, seed)
                (want,) = onnx_runtime(made, feeds)
                np.testing.assert_allclose(found.run(feeds)["y"], want, rtol=1e-5, atol=1e-5)


def test_a_model_that_fits_sizes_of_1_alone_has_the_loose_form_alone(tmp_path: Path) -> None:
    """A size that has to be 3 and 5 where it is not 1; a sum of what has 3 and 5 fits none."""
    weights = {"v": np.ones(3, np.float32), "w": np.ones(5, np.float32)}
    sums = [NODE("Add", ["x", "v"], ["s"]), NODE("Add", ["x", "w"], ["t"])]
    made = model([*sums, NODE("Concat", ["s", "t"], ["y"], axis=0)], {"x": ["a"]}, weights)
    done = prepare(made.SerializeToString(), CompileOptions())
    said = (
        "only sizes of 1 that are broadcast fit, of a: the model: node 's' (Add): shapes (5,) and (3,) do not broadcast"
    )
    assert done.loose is None and len(done.forms) == 1 and said in done.warnings
    with opened(made, "c", tmp_path) as found:
        feeds = feeds_of(made, ((1,),))
        np.testing.assert_allclose(found.run(feeds)["y"], onnx_runtime(made, feeds)[0])
        with pytest.raises(RunError, match="does not hold"):
            found.run(feeds_of(made, ((3,),)))
    none = model([*sums, NODE("Add", ["s", "t"], ["y"])], {"x": ["a"]}, weights)
    with pytest.raises(ModelError, match="do not broadcast"):
        prepare(none.SerializeToString(), CompileOptions())


def test_a_model_whose_loose_form_fits_no_other_sizes_has_none(tmp_path: Path) -> None:
    """The sum alone would take n of 1, the product needs 2."""
    nodes = [NODE("Add", ["x", "w"], ["s"]), NODE("MatMul", ["s", "x"], ["y"])]
    made = model(nodes, {"x": ["n", 1]}, {"w": np.array([[1, 2], [3, 4]], np.float32)})
    assert prepare(made.SerializeToString(), CompileOptions()).loose is None
    torshc.compile(made.SerializeToString(), tmp_path / "m.tsc", threads=1)
    with torshc.load(tmp_path / "m.tsc", threads=1) as compiled:
        np.testing.assert_array_equal(compiled.run({"x": np.float32([[1], [2]])})["y"], [[8], [17]])
        with pytest.raises(RunError, match="1"):
            compiled.run({"x": np.float32([[1]])})


def test_attention_is_one_kernel_in_both_forms() -> None:
    """Queries are read as often as a mask has heads."""
    made = prepare(EXAMPLES["mask"][0].SerializeToString(), CompileOptions())
    assert len(made.forms) == 2
    for form in made.forms:
        assert [n.op.name for n in form.graph.nodes].count("Attention") == 1


@pytest.mark.parametrize("target", TARGETS)
def test_a_scale_of_each_column_or_one_for_all(target: str, tmp_path: Path) -> None:
    x, w, bias = some_bytes(2, 4, 6), some_bytes(6, 24, dtype=np.int8), numbers(24)
    operands = (
        x,
        w,
        bias,
        np.asarray(0.01, np.float32),
        np.full(24, 0.02, np.float32),
        None,
        np.asarray(120, np.uint8),
    )
    dims: dict[int, list[Any]] = {4: ["C"], 7: ["D"]}
    made = model_of("QAttention", (*operands, np.zeros(24, np.int8)), (1, 2, 3, 6), dims=dims, num_heads=2)
    with opened(made, target, tmp_path) as found:
        for size in (1, 24):
            feeds = {"x0": x, "x4": np.full(size, 0.02, np.float32), "x7": np.full(size, 3, np.int8)}
            one = {4: feeds["x4"], 7: feeds["x7"]}
            fixed = tuple(one.get(k, v) for k, v in enumerate((*operands, None)))
            (want,) = onnx_runtime(model_of("QAttention", fixed, (1, 2, 3, 6), num_heads=2), feeds)
            np.testing.assert_allclose(found.run(feeds)["out0"], want, rtol=1e-4, atol=1e-5)


def test_what_fits_neither_form_is_refused(tmp_path: Path) -> None:
    """A message names the fast form's condition, or the loose form's where a 1 is right and something else is wrong."""
    made, _ = EXAMPLES["weight"]
    with opened(ADD, "c", tmp_path) as found, pytest.raises(RunError, match="a == b does not hold, 2 is not 3"):
        found.run(feeds_of(ADD, ((2, 4), (3, 4))))
    with opened(made, "c", tmp_path) as found, pytest.raises(RunError, match=r"select\(b == 1, 2, b\) does not") as e:
        found.run(feeds_of(made, ((1, 3),)))
    assert "b is dimension 1 of input 'x'" in str(e.value) and "--shapes" not in e.value.remedy
    sizes = r"in0.shape\[0\] == in1.shape\[0\] does not hold, 2 is not 3"
    with opened(ADD, IN_PROCESS, tmp_path) as found, pytest.raises(RunError, match=sizes):
        found.run(feeds_of(ADD, ((2, 4), (3, 4))))
    with opened(made, IN_PROCESS, tmp_path) as found, pytest.raises(RunError, match=r"in0.shape\[1\] == 1"):
        found.run(feeds_of(made, ((1, 3),)))


@pytest.mark.parametrize("target", TARGETS)
def test_one_name_is_one_size(target: str, tmp_path: Path) -> None:
    """A model that declares two dimensions by one name has them equal, of 1 or not."""
    made = model([NODE("Add", ["x", "z"], ["s"]), NODE("Add", ["s", "v"], ["y"])], {"x": ["a"], "z": ["a"], "v": ["b"]})
    with opened(made, target, tmp_path) as found:
        assert found.run(feeds_of(made, ((1,), (1,), (3,))))["y"].shape == (3,)
        with pytest.raises(RunError, match=r"input 'z' has (the )?shape \[3\]; expected (\[a\] = )?\[1\]"):
            found.run(feeds_of(made, ((1,), (3,), (3,))))


def test_kernels_of_the_loose_form_are_loaded_when_a_run_takes_it(tmp_path: Path) -> None:
    with opened(DENSE, IN_PROCESS, tmp_path) as found:
        for shapes, more in ((((4, 3), (4, 2)), False), (((4, 3), (1, 2)), True)):
            found.run(feeds_of(DENSE, shapes))
            assert (found.stats().kernels > len(found.compilation.sources)) == more


def test_the_manifest_and_explain_say_so(tmp_path: Path) -> None:
    onnx.save(ADD, tmp_path / "m.onnx")
    torshc.compile(tmp_path / "m.onnx", tmp_path / "m.tsc")
    body = json.loads((tmp_path / "m.tsc" / "manifest.json").read_bytes())
    jsonschema.validate(body, json.loads(SCHEMA.read_bytes()))
    assert body["loose"]["sizes"] == ["a", "b"] and len(body["loose"]["form"]["steps"]) == 1
    assert body["outputs"][0]["dims"] == ["select(a == 1, b, a)", 4]
    text = to_text(explain(prepare(tmp_path / "m.onnx", CompileOptions())))
    assert "where a, b broadcast, runs take a second, loose form: 1 launch, 1" in text
    assert "(numbers at a=1, b=1)" in text
    done = prepare(tmp_path / "m.onnx", CompileOptions(loose="none"))
    assert done.loose is not None and done.loose.why == "it was left out (--loose none)" and len(done.forms) == 1
    assert "runs in which a, b would broadcast are refused" in to_text(explain(done))
    same = model([NODE("Add", ["x", "z"], ["y"])], {"x": ["a", 4], "z": ["a", 4]})
    assert prepare(same.SerializeToString(), CompileOptions()).loose is None


FOUND = [
    NODE("NonZero", ["x"], ["p"]), NODE("Transpose", ["p"], ["q"]), NODE("Cast", ["q"], ["f"], to=1),
    NODE("Add", ["f", "z"], ["g"]),
]  # fmt: skip
SCRIPTED = model(
    [
        *FOUND, NODE("Compress", ["x", "b"], ["c"]), NODE("Mul", ["u", "v"], ["h"]), NODE("ReduceSum", ["c"], ["r"]),
        NODE("ReduceSum", ["g"], ["s"], keepdims=0), NODE("Add", ["h", "s"], ["t"]), NODE("Add", ["t", "r"], ["y"]),
    ],
    {"x": ["m"], "z": ["n", 1], "u": ["k", 4], "v": ["l", 4]},
    {"b": np.array([True, False, True])},
)  # fmt: skip


@pytest.mark.parametrize("target", ["c", "llvm", "cuda", "metal", "webgpu"])
def test_a_script_has_two_forms(target: str, tmp_path: Path) -> None:
    """A run begins again in the loose form where it finds that sizes of its own do not fit the fast one."""
    with opened(SCRIPTED, target, tmp_path, fallback=True) as found:
        for n, k, m in ((5, 2, 2), (1, 2, 2), (5, 2, 2), (5, 1, 3), (1, 3, 1), (1, 1, 1), (5, 3, 3)):
            feeds = feeds_of(SCRIPTED, ((5,), (n, 1), (k, 4), (m, 4)))
            (want,) = onnx_runtime(SCRIPTED, feeds)
            np.testing.assert_allclose(found.run(feeds)["y"], want, rtol=1e-5, atol=1e-5)
        with pytest.raises(RunError, match=r"k == l does not hold, 2 is not 3; k is dimension 0 of input 'u', l is"):
            found.run(feeds_of(SCRIPTED, ((5,), (5, 1), (2, 4), (3, 4))))
        with pytest.raises(RunError, match=r"does not hold, 3 is not 5; n is dimension 0 of input 'z'"):
            found.run(feeds_of(SCRIPTED, ((5,), (3, 1), (2, 4), (2, 4))))


def test_operators_of_the_host_are_named_in_both_forms(tmp_path: Path) -> None:
    """Compress has a condition for each element, which an input of 2 elements is too short for."""
    made = onnx.ModelProto.FromString(SCRIPTED.SerializeToString())
    next(n for n in made.graph.node if n.op_type == "Compress").name = "of the model"
    with opened(made, "c", tmp_path) as found:
        for k, m in ((2, 2), (1, 2)):
            with pytest.raises(RunError, match=r"\(node 'of the model'\)"):
                found.run(feeds_of(made, ((2,), (2, 1), (k, 4), (m, 4))))


@pytest.mark.parametrize("target", ["c", "llvm", "cuda", "metal", "webgpu"])
def test_a_profile_counts_the_steps_of_both_forms(target: str, tmp_path: Path) -> None:
    with opened(ADD, target, tmp_path, profile=True) as found:
        for a in (3, 1, 1):
            found.run(feeds_of(ADD, ((a, 4), (3, 4))))
        assert [(s.loose, s.calls) for s in found.stats().steps] == [(False, 1), (True, 2)]
    with opened(SCRIPTED, target, tmp_path, profile=True, fallback=True) as found:
        for k in (2, 1, 1):
            found.run(feeds_of(SCRIPTED, ((5,), (5, 1), (k, 4), (2, 4))))
        last = {s.loose: s.calls for s in found.stats().steps}
        assert last == {False: 1, True: 2}


def test_what_a_device_has_no_kernel_for_in_the_loose_form_alone_runs_on_the_processor(tmp_path: Path) -> None:
    """The fast form sorts along an axis of 4, as nothing else fits; the loose one along one that is symbolic."""
    nodes = [
        NODE("TopK", ["x", "k"], ["t", "i"], axis=0),
        NODE("Add", ["x", "w"], ["s"]),
        NODE("Concat", ["t", "s"], ["y"], axis=0),
    ]
    made = model(nodes, {"x": ["a"]}, {"k": np.array([1]), "w": np.ones(4, np.float32)})
    done = prepare(made.SerializeToString(), CompileOptions(target="webgpu"))
    assert not any(u.refused for u in done.units) and [f for f in done.refusals if "TopK along a elements" in f]
    with opened(made, "webgpu", tmp_path, fallback=True) as found:
        for a in (4, 1, 4):
            feeds = feeds_of(made, ((a,),))
            np.testing.assert_allclose(found.run(feeds)["y"], onnx_runtime(made, feeds)[0])


@pytest.mark.parametrize("weights", ["new", "named"])
def test_other_weights_are_those_of_both_forms(weights: str, tmp_path: Path) -> None:
    onnx.save(DENSE, tmp_path / "m.onnx")
    torshc.compile(tmp_path / "m.onnx", tmp_path / "m.tsc", named_weights=weights == "named")
    made = onnx.ModelProto.FromString(DENSE.SerializeToString())
    made.graph.initializer[0].CopyFrom(numpy_helper.from_array(W[::-1] - 9, "w"))
    onnx.save(made, tmp_path / "new.onnx")
    with torshc.load(tmp_path / "m.tsc") as found:
        if weights == "new":
            set_weights(
                tmp_path / "m.tsc", tmp_path / "new.onnx", CompileOptions(prefix="my_m"), out=tmp_path / "new.tsc"
            )
            found.set_weights(tmp_path / "new.tsc" / "weights.bin")
        else:
            found.set_weights({"w": W[::-1] - 9})
        for shapes in (((4, 3), (4, 2)), ((4, 3), (1, 2)), ((1, 3), (4, 2))):
            feeds = feeds_of(DENSE, shapes)
            np.testing.assert_allclose(found.run(feeds)["y"], onnx_runtime(made, feeds)[0], rtol=1e-5, atol=1e-5)


def test_versions_have_both_forms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    onnx.save(DENSE, tmp_path / "m.onnx")
    levels = [v for v in runnable() if v in ("x86-64-v2", "x86-64-v3")]
    if len(levels) < 2:
        pytest.skip("this processor has no two of the levels")
    torshc.compile(tmp_path / "m.onnx", tmp_path / "m.tsc", isa=tuple(levels), profile=True)
    for level in levels:
        monkeypatch.setenv("TORSHC_ISA", level)
        with loaded(tmp_path / "m.tsc", tmp_path / level) as found:
            feeds = feeds_of(DENSE, ((1, 3), (4, 2)))
            np.testing.assert_allclose(found.run(feeds)["y"], onnx_runtime(DENSE, feeds)[0], rtol=1e-5, atol=1e-5)
            assert found.stats().isa == level and {s.calls for s in found.stats().steps if s.loose} == {1}


def test_sources_of_both_forms_are_built_to_the_same_library(tmp_path: Path) -> None:
    for name in ("one", "two"):
        torshc.compile(ADD, tmp_path / f"{name}.tsc", emit="source", prefix="same")
        build(tmp_path / f"{name}.tsc", tmp_path / "bin", compilers.needed().cc)
    first, second = ((tmp_path / f"{name}.tsc" / "libmodel.so").read_bytes() for name in ("one", "two"))
    assert first == second
    with torshc.load(tmp_path / "one.tsc") as found:
        assert found.run(feeds_of(ADD, ((1, 4), (3, 4))))["y"].shape == (3, 4)


def test_an_edited_kernel_is_for_both_forms_where_it_is_in_both(tmp_path: Path) -> None:
    made = model([NODE("Relu", ["x"], ["s"]), NODE("Add", ["s", "z"], ["y"])], {"x": [2, 4], "z": ["b", 4]})
    onnx.save(made, tmp_path / "m.onnx")
    options = CompileOptions(fusion="none")
    (folder, *_) = eject(prepare(tmp_path / "m.onnx", options), 0, tmp_path / "kernels")
    text = (folder / "kernel.c").read_text()
    end = text.rindex("}")
    (folder / "kernel.c").write_text(f"{text[:end]}    ((float *)buf[1])[0] = 7;\n{text[end:]}")
    torshc.compile(tmp_path / "m.onnx", tmp_path / "m.tsc", kernels=tmp_path / "kernels", fusion="none")
    with torshc.load(tmp_path / "m.tsc") as found:
        for b in (2, 1):
            y = found.run({"x": np.zeros((2, 4), np.float32), "z": np.zeros((b, 4), np.float32)})["y"]
            assert y.tolist() == [[7, 0, 0, 0], [0, 0, 0, 0]]
