"""Variants for values of inputs: runs that have these take them, others do not, and answers are the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import torshc
from tests.pipeline.test_forms_loose import IN_PROCESS, opened
from tests.support.compare import onnx_runtime
from tests.support.nodes import numbers
from torshc.base.errors import ConfigError, UnsupportedError
from torshc.base.options import CompileOptions
from torshc.bundle.manifest import SCHEMA
from torshc.explain import explain, to_text
from torshc.pipeline.compiler import prepare
from torshc.workbench.reweigh import set_weights
from torshc.workbench.verify import verify_bundle

NODE = helper.make_node
W = numbers(8, 8, seed=3)
# Sums of 8 products, a softmax over a few positions and sums of as many: some 50 roundings of 6e-8 each, 3e-6.
CLOSE = 1e-5


def attention(mask_type: int = TensorProto.INT64) -> onnx.ModelProto:
    """Scores that a mask hides, and rows of a table that kinds choose: what an encoder has of each."""
    nodes = [
        NODE("Gather", ["table", "kinds"], ["k"]), NODE("Add", ["x", "k"], ["h"]), NODE("MatMul", ["h", "w"], ["q"]),
        NODE("Transpose", ["h"], ["t"], perm=[0, 2, 1]), NODE("MatMul", ["q", "t"], ["s"]),
        NODE("Unsqueeze", ["mask", "one"], ["wide"]), NODE("Cast", ["wide"], ["seen"], to=TensorProto.FLOAT),
        NODE("Sub", ["whole", "seen"], ["hidden"]), NODE("Mul", ["hidden", "low"], ["bias"]),
        NODE("Add", ["s", "bias"], ["m"]), NODE("Softmax", ["m"], ["p"], axis=-1), NODE("MatMul", ["p", "h"], ["y"]),
    ]  # fmt: skip
    given = {"x": (TensorProto.FLOAT, ["n", "seq", 8]), "mask": (mask_type, ["n", "seq"]), "kinds": (7, ["n", "seq"])}
    weights = {
        "table": numbers(2, 8, seed=4), "w": W, "one": np.array([1]), "whole": np.float32(1), "low": np.float32(-1e30)
    }  # fmt: skip
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(name, kind, dims) for name, (kind, dims) in given.items()],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", "seq", 8])],
        [onnx.numpy_helper.from_array(np.asarray(a), name) for name, a in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


MODEL = attention()


def feeds(n: int, seq: int, mask: Any, kinds: Any, seed: int = 0) -> dict[str, Any]:
    shape = (n, seq)
    return {
        "x": numbers(n, seq, 8, seed=seed),
        "mask": np.broadcast_to(np.asarray(mask, np.int64), shape).copy(),
        "kinds": np.broadcast_to(np.asarray(kinds, np.int64), shape).copy(),
    }


LAST = [1, 1, 1, 1, 0]  # hides the last position
RUNS = [  # sizes, the mask, the kinds, and the variant that a run takes
    (2, 5, 1, 0, "n=2 seq=5 mask=1"),
    (2, 5, 1, 1, "n=2 seq=5 mask=1"),
    (2, 5, LAST, 0, ""),
    (3, 5, 1, 0, "mask=1 kinds=0"),
    (3, 5, 1, LAST, ""),
    (3, 5, 0, 0, ""),
    (1, 1, 1, 0, "mask=1 kinds=0"),
    (2, 5, [0, 1, 1, 1, 1], 0, ""),
    (0, 5, 1, 1, "mask=1 kinds=0"),  # of no elements all are what they have to be
]


@pytest.mark.parametrize("target", ["c", "llvm", "cuda", IN_PROCESS])
def test_runs_take_a_variant_only_with_its_values(target: str, tmp_path: Path) -> None:
    with opened(MODEL, target, tmp_path, specialize=("n=2 seq=5 mask=1", "mask=1 kinds=0")) as found:
        for k, (n, seq, mask, kinds, taken) in enumerate(RUNS):
            before = found.stats().forms if target != IN_PROCESS else ()
            given = feeds(n, seq, mask, kinds, seed=k)
            (want,) = onnx_runtime(MODEL, given)
            np.testing.assert_allclose(found.run(given)["y"], want, rtol=CLOSE, atol=CLOSE)
            if before:
                after = found.stats().forms
                assert [b.sizes for a, b in zip(before, after, strict=True) if b.runs > a.runs] == [taken]
        if target != IN_PROCESS:
            missed = {f.sizes: (f.runs, f.missed) for f in found.stats().forms}
            assert missed == {"": (4, 0), "n=2 seq=5 mask=1": (2, 2), "mask=1 kinds=0": (3, 4)}


@pytest.mark.parametrize(
    ("kind", "dtype"), [(9, np.bool_), (6, np.int32), (3, np.int8), (2, np.uint8), (13, np.uint64)]
)
def test_values_of_every_type_are_compared(kind: int, dtype: Any, tmp_path: Path) -> None:
    made = attention(kind)
    with opened(made, "c", tmp_path, specialize=("mask=1",)) as found:
        for mask in (1, [1, 1, 0], [0, 1, 1], 0):
            given = feeds(2, 3, mask, 0)
            given["mask"] = given["mask"].astype(dtype)
            np.testing.assert_allclose(found.run(given)["y"], onnx_runtime(made, given)[0], rtol=CLOSE, atol=CLOSE)
        assert [(f.sizes, f.runs, f.missed) for f in found.stats().forms] == [("", 3, 0), ("mask=1", 1, 3)]


def test_values_at_the_ends_of_a_type(tmp_path: Path) -> None:
    """Numbers that C has no text for, and of which only the last element differs."""
    ends = np.iinfo(np.int64)
    double = helper.make_model(
        helper.make_graph(
            [NODE("Max", ["x", "z"], ["y"])],
            "g",
            [helper.make_tensor_value_info(name, TensorProto.INT64, ["n"]) for name in "xz"],
            [helper.make_tensor_value_info("y", TensorProto.INT64, ["n"])],
        ),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
    )
    with opened(double, "c", tmp_path, specialize=(f"x={ends.min}", f"x={ends.max}", "x=-1")) as found:
        for value in (ends.min, ends.max, -1, ends.min + 1, 2**32 - 1):
            x, z = np.full(9, value), np.arange(9)
            np.testing.assert_array_equal(found.run({"x": x, "z": z})["y"], np.maximum(x, z))
            x[-1] += 1 if value < 0 else -1
            np.testing.assert_array_equal(found.run({"x": x, "z": z})["y"], np.maximum(x, z))
        assert {f.sizes: f.runs for f in found.stats().forms} == {
            "": 7, f"x={ends.min}": 1, f"x={ends.max}": 1, "x=-1": 1
        }  # fmt: skip


@pytest.mark.parametrize("target", ["c", "cuda"])
def test_a_model_of_known_sizes_has_variants(target: str, tmp_path: Path) -> None:
    """Its runs have no symbols, and yet a form."""
    with opened(
        MODEL, target, tmp_path, shapes={"x": (2, 3, 8), "mask": (2, 3), "kinds": (2, 3)}, specialize=("mask=1",)
    ) as found:
        for mask in (1, [1, 1, 0], 1, 0):
            given = feeds(2, 3, mask, 0)
            np.testing.assert_allclose(found.run(given)["y"], onnx_runtime(MODEL, given)[0], rtol=CLOSE, atol=CLOSE)
        assert [(f.sizes, f.runs, f.missed) for f in found.stats().forms] == [("", 2, 0), ("mask=1", 2, 2)]


def test_a_workspace_is_large_enough_for_what_values_choose(tmp_path: Path) -> None:
    with opened(MODEL, "c", tmp_path, specialize=("mask=1", "n=2 seq=40 mask=1")) as found:
        for mask in (1, 0):
            given = feeds(2, 40, mask, 0)
            np.testing.assert_allclose(found.run(given)["y"], onnx_runtime(MODEL, given)[0], rtol=CLOSE, atol=CLOSE)


def test_the_manifest_and_explain_name_guards(tmp_path: Path) -> None:
    onnx.save(MODEL, tmp_path / "m.onnx")
    torshc.compile(tmp_path / "m.onnx", tmp_path / "m.tsc", specialize=["n=2 mask=1"])
    body = json.loads((tmp_path / "m.tsc" / "manifest.json").read_bytes())
    jsonschema.validate(body, json.loads(SCHEMA.read_bytes()))
    (only,) = body["variants"]
    assert only["guards"] == [{"name": "mask", "value": 1}] and not only["on_device"]
    assert only["sizes"] == [{"name": "n", "least": 2, "most": 2}]
    with torshc.load(tmp_path / "m.tsc") as found:
        assert [str(part) for part in found.variants[0]] == ["n=2", "mask=1"]
    options = CompileOptions(specialize=("mask=1",))
    words = " ".join(to_text(explain(prepare(tmp_path / "m.onnx", options))).split())
    assert "guard all elements of mask are 1 (8*n*seq bytes): compared before each run" in words
    cuda = CompileOptions(specialize=("mask=1",), target="cuda")
    words = " ".join(to_text(explain(prepare(tmp_path / "m.onnx", cuda))).split())
    assert "one in the card's memory is compared by the card, which takes the form there, from the second run" in words
    timed = CompileOptions(specialize=("mask=1",), target="cuda", profile=True)
    words = " ".join(to_text(explain(prepare(tmp_path / "m.onnx", timed))).split())
    assert "is not looked at, and misses, as the steps are timed, and not recorded" in words


def test_verify_gives_guarded_variants_their_values(tmp_path: Path) -> None:
    onnx.save(MODEL, tmp_path / "m.onnx")
    torshc.compile(tmp_path / "m.onnx", tmp_path / "m.tsc", specialize=["n=2 seq=3 mask=1 kinds=0", "kinds=1"])
    verdict = verify_bundle(tmp_path / "m.onnx", tmp_path / "m.tsc")
    assert verdict.ok and verdict.form == ""
    assert [v.form for v in verdict.variants] == ["n=2 seq=3 mask=1 kinds=0", "kinds=1"]


def test_other_weights_keep_guards(tmp_path: Path) -> None:
    onnx.save(MODEL, tmp_path / "m.onnx")
    torshc.compile(tmp_path / "m.onnx", tmp_path / "m.tsc", specialize="mask=1", named_weights=True)
    other = onnx.ModelProto.FromString(MODEL.SerializeToString())
    next(t for t in other.graph.initializer if t.name == "w").raw_data = (2 * W).astype(np.float32).tobytes()
    given = feeds(2, 3, 1, 0)
    (want,) = onnx_runtime(other, given)
    with torshc.load(tmp_path / "m.tsc") as found:
        found.set_weights({"w": 2 * W})
        np.testing.assert_allclose(found.run(given)["y"], want, rtol=CLOSE, atol=CLOSE)
    np.savez(tmp_path / "w.npz", w=2 * W)
    set_weights(tmp_path / "m.tsc", tmp_path / "m.onnx", CompileOptions(), tmp_path / "w.npz")
    with torshc.load(tmp_path / "m.tsc") as found:
        np.testing.assert_allclose(found.run(given)["y"], want, rtol=CLOSE, atol=CLOSE)
        assert {f.sizes: f.runs for f in found.stats().forms} == {"": 0, "mask=1": 1}


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("masks=1", "no symbolic size and no input 'masks'; did you mean 'mask'"),
        ("x=1", "input 'x' is f32; a value is for integers of whole bytes and for truths"),
        ("mask=9223372036854775808", "a value of input 'mask', which is i64, is -9223372036854775808 to"),
        ("mask=1..2", "mask=1..2 is a range of values of input 'mask'"),
        ("n=0", "a size is 1 to 2\\^31 - 1"),
        ("n=-1 mask=1", "a size is 1 to 2\\^31 - 1"),
        ("mask=1,1", "twice"),
    ],
)
def test_values_that_an_input_cannot_have_are_refused(asked: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        prepare(MODEL.SerializeToString(), CompileOptions(specialize=(asked,)))


def test_what_is_no_truth_is_refused() -> None:
    with pytest.raises(ConfigError, match="which is bool, is 0 to 1"):
        prepare(attention(TensorProto.BOOL).SerializeToString(), CompileOptions(specialize=("mask=2",)))


def test_more_values_than_the_budget_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="more than the budget 'variants' of 1"):
        prepare(MODEL.SerializeToString(), CompileOptions(specialize=("mask=0,1",), budget={"variants": 1}))
    webgpu = prepare(MODEL.SerializeToString(), CompileOptions(specialize=("mask=1",), target="webgpu"))
    assert webgpu.variants[0].why == "on webgpu the form of a run is chosen by sizes alone"


def test_an_input_whose_elements_are_sizes_has_no_guard() -> None:
    graph = helper.make_graph(
        [NODE("Expand", ["x", "s"], ["y"])],
        "g",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3]),
            helper.make_tensor_value_info("s", TensorProto.INT64, [2]),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["a", "b"])],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    done = prepare(made.SerializeToString(), CompileOptions(specialize=("s=3",)))
    assert done.variants[0].why == "elements of s are sizes of the model"
