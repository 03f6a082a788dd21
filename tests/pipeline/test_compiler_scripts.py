"""Models whose sizes or steps are known only at run time: compiled, run, and compared with the reference evaluator."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from onnx import GraphProto, NodeProto, TensorProto, helper

import torshc
from tests.emulation.emulated import emulated_tools
from tests.support import models
from tests.support.compare import reference
from torshc.base.errors import InternalError, RunError, UnsupportedError
from torshc.base.options import CompileOptions
from torshc.pipeline.compiler import prepare

F, INT, B = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
Array = npt.NDArray[Any]
info = helper.make_tensor_value_info
node = helper.make_node


def floats(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


model_of = partial(models.model, opset=21)


def body_of(nodes: Sequence[NodeProto], inputs: Sequence[str], outputs: Sequence[str]) -> GraphProto:
    return helper.make_graph(
        nodes, "body", [helper.make_empty_tensor_value_info(i) for i in inputs],
        [helper.make_empty_tensor_value_info(o) for o in outputs],
    )  # fmt: skip


def same(got: Any, want: Any) -> None:
    if isinstance(want, list):
        assert len(got) == len(want)
        for g, w in zip(got, want, strict=True):
            same(g, w)
        return
    assert got.shape == np.shape(want)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


@pytest.fixture(params=["c", "cuda"])
def target(request: pytest.FixtureRequest) -> Iterator[str]:
    """The processor, and an emulated device."""
    with emulated_tools() if request.param != "c" else nullcontext():
        yield request.param


def agree(tmp_path: Path, model: onnx.ModelProto, *feeds: dict[str, Array], target: str = "c") -> None:
    """Every level and thread count gives what the reference gives, run after run."""
    onnx.save(model, tmp_path / "m.onnx")
    wanted = [reference(model, f) for f in feeds]
    for level in (0, 3) if target == "c" else (3,):
        torshc.compile(tmp_path / "m.onnx", tmp_path / "m.tsc", opt_level=level, target=target)
        with torshc.load(tmp_path / "m.tsc", threads=1 + level % 2) as compiled:
            for feed, want in zip((*feeds, *feeds), (*wanted, *wanted), strict=True):
                same(list(compiled.run(feed).values()), list(want))


def test_places_of_elements(tmp_path: Path, target: str) -> None:
    nodes = [
        node("Relu", ["x"], ["r"]),
        node("NonZero", ["r"], ["places"]),
        node("Transpose", ["places"], ["rows"], perm=[1, 0]),
        node("GatherND", ["r", "rows"], ["found"]),
        node("Mul", ["found", "found"], ["y"]),
        node("Shape", ["y"], ["n"]),
    ]
    model = model_of(nodes, {"x": (F, ["a", 5])}, ["y", "n"])
    agree(
        tmp_path,
        model,
        {"x": floats(3, 5)},
        {"x": -abs(floats(2, 5))},
        {"x": floats(7, 5)},
        {"x": floats(0, 5)},
        target=target,
    )
    parts = prepare(tmp_path / "m.onnx", CompileOptions()).units
    assert [[n.op.name for n in u.group.nodes] for u in parts][:2] == [["Relu"], ["GatherND", "Mul"]]


def test_a_shape_that_is_computed(tmp_path: Path, target: str) -> None:
    """A Reshape to sizes that a kernel finds, with the rest inferred."""
    nodes = [
        node("ReduceMax", ["x"], ["most"], keepdims=0),
        node("Cast", ["most"], ["whole"], to=INT),
        node("Unsqueeze", ["whole", "zero"], ["rows"]),
        node("Concat", ["rows", "rest"], ["shape"], axis=0),
        node("Reshape", ["x", "shape"], ["y"]),
        node("Softmax", ["y"], ["z"], axis=-1),
    ]
    weights = {"zero": np.array([0], np.int64), "rest": np.array([-1], np.int64)}
    model = model_of(nodes, {"x": (F, [12])}, ["z"], weights)
    feeds = [{"x": np.linspace(0, top, 12, dtype=np.float32)} for top in (2, 3, 6, 12)]
    agree(tmp_path, model, *feeds, target=target)
    with torshc.load(tmp_path / "m.tsc") as compiled, pytest.raises(RunError, match="do not fit"):
        compiled.run({"x": np.full(12, 5, np.float32)})


def test_a_found_size_that_meets_a_known_one(tmp_path: Path) -> None:
    """The parts of the operator know that the last dimension is 2, which the operator itself does not."""
    nodes = [
        node("NonZero", ["x"], ["places"]),
        node("Cast", ["places"], ["found"], to=F),
        node("LayerNormalization", ["found", "scale"], ["y"]),
    ]
    model = model_of(nodes, {"x": (F, ["a", 5])}, ["y"], {"scale": floats(2)})
    agree(tmp_path, model, {"x": np.eye(3, 5, 1, np.float32)[1:]})


def test_parts_that_state_again_what_must_be_equal(tmp_path: Path) -> None:
    """Gemm's columns meet a number found in the run; at -O0 its product is made when its kernel is lowered."""
    nodes = [
        node("NonZero", ["x"], ["places"]),
        node("Cast", ["places"], ["found"], to=F),
        node("Gemm", ["found", "w"], ["y"]),
    ]
    model = model_of(nodes, {"x": (F, ["a", 5])}, ["y"], {"w": floats(2, 3)})
    agree(tmp_path, model, {"x": np.eye(3, 5, 1, np.float32)[1:]})


def branches() -> tuple[GraphProto, GraphProto]:
    then = body_of([node("Mul", ["x", "x"], ["p"]), node("ReduceSum", ["p"], ["s"], keepdims=1)], [], ["s"])
    return then, body_of([node("Neg", ["x"], ["q"]), node("Exp", ["q"], ["e"])], [], ["e"])


def test_branches_of_different_sizes(tmp_path: Path, target: str) -> None:
    then, other = branches()
    nodes = [
        node("ReduceMax", ["x"], ["most"], keepdims=0),
        node("Greater", ["most", "limit"], ["c"]),
        node("If", ["c"], ["y"], then_branch=then, else_branch=other),
        node("Add", ["y", "one"], ["z"]),
    ]
    weights = {"limit": np.float32(1.5), "one": np.float32(1)}
    model = model_of(nodes, {"x": (F, [2, 3])}, ["z"], {k: np.asarray(v) for k, v in weights.items()})
    agree(tmp_path, model, {"x": np.ones((2, 3), np.float32)}, {"x": 2 * np.ones((2, 3), np.float32)}, target=target)


def test_a_loop_that_grows(tmp_path: Path, target: str) -> None:
    """The state's length changes with each round; rounds and condition come from the caller."""
    body = body_of(
        [
            node("Concat", ["s", "part"], ["longer"], axis=0),
            node("ReduceSum", ["longer"], ["total"], keepdims=1),
            node("Less", ["total", "limit"], ["on"]),
        ],
        ["i", "c", "s"],
        ["on", "longer", "total"],
    )
    nodes = [node("Exp", ["x"], ["part"]), node("Loop", ["n", "go", "x"], ["last", "totals"], body=body)]
    model = model_of(
        nodes, {"x": (F, ["k"]), "n": (INT, []), "go": (B, [])}, ["last", "totals"], {"limit": np.array(50, np.float32)}
    )
    runs = [(4, 3, True), (2, 100, True), (3, 1, True)]
    agree(tmp_path, model, *[{"x": floats(k), "n": np.array(n), "go": np.array(g)} for k, n, g in runs], target=target)
    for n, go in ((0, True), (5, False)):  # no round: the state as it was, and no totals
        with torshc.load(tmp_path / "m.tsc") as compiled:
            got = compiled.run({"x": floats(3), "n": np.array(n), "go": np.array(go)})
        same(got["last"], floats(3))
        assert got["totals"].shape == (0, 1)


def test_states_that_change_places(tmp_path: Path, target: str) -> None:
    body = body_of(
        [node("Identity", ["c"], ["on"]), node("Add", ["a", "b"], ["sum"])], ["i", "c", "a", "b"], ["on", "b", "sum"]
    )
    nodes = [node("Loop", ["n", "", "x", "y"], ["a1", "b1"], body=body)]
    model = model_of(nodes, {"x": (F, [2]), "y": (F, [2]), "n": (INT, [])}, ["a1", "b1"])
    onnx.save(model, tmp_path / "m.onnx")
    torshc.compile(tmp_path / "m.onnx", tmp_path / "m.tsc", target=target)
    with torshc.load(tmp_path / "m.tsc") as compiled:
        got = compiled.run({"x": np.zeros(2, np.float32), "y": np.ones(2, np.float32), "n": np.array(10)})
    same(got["a1"], np.full(2, 55.0))  # Fibonacci numbers
    same(got["b1"], np.full(2, 89.0))


def test_what_does_not_change_is_computed_once(tmp_path: Path) -> None:
    body = body_of(
        [node("Exp", ["x"], ["e"]), node("Add", ["s", "e"], ["t"]), node("Identity", ["c"], ["on"])],
        ["i", "c", "s"],
        ["on", "t"],
    )
    model = model_of([node("Loop", ["n", "", "x"], ["y"], body=body)], {"x": (F, [4]), "n": (INT, [])}, ["y"])
    onnx.save(model, tmp_path / "m.onnx")
    script = prepare(tmp_path / "m.onnx", CompileOptions()).script
    assert script is not None
    kinds = [s.kind for s in script.steps]
    assert kinds.index("call") < kinds.index("repeat")  # Exp stands in front of the loop


def test_nested(tmp_path: Path, target: str) -> None:
    """A branch in a loop in a branch, with values from all levels."""
    then = body_of([node("Mul", ["s", "two"], ["p"])], [], ["p"])
    other = body_of([node("Add", ["s", "x"], ["q"])], [], ["q"])
    body = body_of(
        [
            node("Mod", ["i", "twice"], ["odd"]),
            node("Cast", ["odd"], ["is_odd"], to=B),
            node("If", ["is_odd"], ["t"], then_branch=then, else_branch=other),
            node("Identity", ["c"], ["on"]),
        ],
        ["i", "c", "s"],
        ["on", "t"],
    )
    outer = body_of([node("Loop", ["n", "yes", "x"], ["z"], body=body)], [], ["z"])
    plain = body_of([node("Neg", ["x"], ["w"])], [], ["w"])
    nodes = [node("If", ["go"], ["y"], then_branch=outer, else_branch=plain), node("Abs", ["y"], ["out"])]
    weights = {"two": np.array(2, np.float32), "twice": np.array(2), "yes": np.array(True)}
    model = model_of(nodes, {"x": (F, ["k"]), "n": (INT, []), "go": (B, [])}, ["out"], weights)
    runs = [(3, 4, True), (5, 0, True), (2, 300, False), (1, 7, True)]
    agree(tmp_path, model, *[{"x": floats(k), "n": np.array(n), "go": np.array(g)} for k, n, g in runs], target=target)


def test_scan_over_a_symbolic_length(tmp_path: Path, target: str) -> None:
    body = body_of([node("Add", ["s", "part"], ["t"]), node("Mul", ["t", "t"], ["sq"])], ["s", "part"], ["t", "sq"])
    scan = node("Scan", ["first", "xs"], ["last", "rows"], body=body, num_scan_inputs=1)
    model = model_of([scan], {"first": (F, [2]), "xs": (F, ["n", 2])}, ["last", "rows"])
    agree(tmp_path, model, *[{"first": floats(2), "xs": floats(n, 2, seed=n)} for n in (1, 5, 40)], target=target)


def test_sequences(tmp_path: Path, target: str) -> None:
    """A loop that fills a sequence, which is joined, and given as it is."""
    body = body_of(
        [
            node("Unsqueeze", ["i", "zero"], ["i1"]),
            node("Slice", ["x", "zero", "i1"], ["head"]),
            node("SequenceInsert", ["seq", "head"], ["more"]),
            node("Identity", ["c"], ["on"]),
        ],
        ["i", "c", "seq"],
        ["on", "more"],
    )
    nodes = [
        node("SequenceEmpty", [], ["empty"]),
        node("Loop", ["n", "", "empty"], ["seq1"], body=body),
        node("ConcatFromSequence", ["seq1"], ["joined"], axis=0),
        node("SequenceLength", ["seq1"], ["count"]),
    ]
    weights = {"zero": np.array([0], np.int64)}
    model = model_of(nodes, {"x": (F, ["k"]), "n": (INT, [])}, ["joined", "count", "seq1"], weights)
    onnx.save(model, tmp_path / "m.onnx")
    torshc.compile(tmp_path / "m.onnx", tmp_path / "m.tsc", target=target)
    x = floats(6)
    with torshc.load(tmp_path / "m.tsc") as compiled:
        got = compiled.run({"x": x, "n": np.array(4)})
    same(got["seq1"], [x[:k] for k in range(4)])
    same(got["joined"], np.concatenate([x[:k] for k in range(4)]))
    assert got["count"] == 4


def test_strings_stay_out_of_sources(tmp_path: Path, target: str) -> None:
    secret = '"); system("touch /tmp/x"); //'
    nodes = [node("StringConcat", ["s", "tail"], ["y"])]
    model = model_of(nodes, {"s": (TensorProto.STRING, ["n"])}, ["y"], {})
    model.graph.initializer.append(helper.make_tensor("tail", TensorProto.STRING, [], [secret.encode()]))
    onnx.save(model, tmp_path / "m.onnx")
    torshc.compile(tmp_path / "m.onnx", tmp_path / "m.tsc", keep_intermediates=True, target=target)
    assert not any("tmp/x" in f.read_text() for f in (tmp_path / "m.tsc").rglob("*.[ch]"))
    with torshc.load(tmp_path / "m.tsc") as compiled:
        got = compiled.run({"s": np.array(["a", "", "ä"], object)})["y"]
    assert got.tolist() == [t + secret for t in ("a", "", "ä")]


def test_no_refusal_without_a_cause() -> None:
    with pytest.raises(InternalError, match="without a cause"):
        raise UnsupportedError([])


@pytest.mark.parametrize("rounds", [3, 300])
def test_each_round_draws_other_numbers(tmp_path: Path, rounds: int) -> None:
    """Whether the loop is unrolled or run by the host, the same numbers stand in the same rounds."""
    body = body_of(
        [node("RandomNormal", [], ["r"], shape=[4], seed=7.0), node("Identity", ["c"], ["on"])], ["i", "c"], ["on", "r"]
    )
    model = model_of([node("Loop", ["n", ""], ["rows"], body=body)], {}, ["rows"], {"n": np.array(rounds)})
    onnx.save(model, tmp_path / "m.onnx")
    torshc.compile(tmp_path / "m.onnx", tmp_path / "m.tsc")
    with torshc.load(tmp_path / "m.tsc") as compiled:
        rows, again = compiled.run({})["rows"], compiled.run({})["rows"]
    np.testing.assert_array_equal(rows, again)
    assert len(np.unique(rows)) == 4 * rounds
    np.testing.assert_allclose(rows[:2, 0], [0, 0], atol=4)


@pytest.mark.parametrize("target", ["c", "cuda", "metal"])
@pytest.mark.parametrize(
    "dead",
    [
        [node("NonZero", ["x"], ["nz"])],
        [
            node("ReduceMax", ["x"], ["most"], keepdims=0),
            node("Cast", ["most"], ["whole"], to=INT),
            node("Unsqueeze", ["whole", "zero"], ["size"]),
            node("ConstantOfShape", ["size"], ["filled"]),
            node("Add", ["filled", "x"], ["sum"]),  # demands that the size is that of x
        ],
    ],
)
def test_what_no_output_needs_makes_no_script(tmp_path: Path, target: str, dead: list[NodeProto]) -> None:
    nodes = [*dead, node("Relu", ["x"], ["y"])]
    model = model_of(nodes, {"x": (F, ["k"])}, ["y"], {"zero": np.array([0], np.int64)})
    onnx.save(model, tmp_path / "model.onnx")
    compilation = prepare(tmp_path / "model.onnx", CompileOptions(target=target, opt_level=0))
    assert compilation.script is None
    assert compilation.program.sizes == ("k",)
    assert [n.op.name for n in compilation.graph.nodes] == ["Relu"]
