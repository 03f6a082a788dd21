"""Runs of models with run-time sizes or steps, given wrong, extreme or many values: never a wild read."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

import torshc
from tests.support.models import parsed, save
from torshc.base.errors import ModelError, RunError
from torshc.base.options import CompileOptions
from torshc.formats import load_graph
from torshc.pipeline.compiler import compile_model, prepare
from torshc.runtime.model import Model

from ..support import sanitize
from ..support.zoo import Array

F32 = np.float32
X = np.arange(6, dtype=F32).reshape(2, 3)


def compiled(text: str, folder: Path, opset: int = 18, **options: Any) -> Model:
    torshc.compile(save(parsed(text, opset), folder), folder / "m.tsc", threads=1, **options)
    return torshc.load(folder / "m.tsc", threads=1)


# What a caller hands over

LIST = """(seq(float[2,3]) s, optional(float[2]) o, string[N] t, int64 i) =>
    (float[A,B] y, float[K] z, string[M] u) {
    y = SequenceAt(s, i)  e = OptionalGetElement(o)  z = Neg(e)
    u = StringNormalizer<case_change_action="UPPER">(t) }"""
GOOD: dict[str, Any] = {"s": [X], "o": np.ones(2, F32), "t": np.array(["a"], object), "i": np.array(0)}
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "another type in a list": ({"s": [X, X.astype(np.float64)]}, "'s'.*float64"),
    "no list": ({"s": None}, "'s' is a sequence"),
    "an array for a list": ({"s": X}, "'s' is a sequence"),
    "nothing in a list": ({"s": [None]}, "'s'"),
    "a list in a list": ({"s": [[X]]}, r"'s' has shape \[1, 2, 3\]; expected \[2, 3\]"),
    "another rank": ({"s": [X, X[0]]}, r"'s' has shape \[3\]; expected \[2, 3\]"),
    "another shape": ({"s": [X[:, :2]]}, "element of input 0 has dimension 2"),
    "ragged": ({"s": [[[1.0], [1.0, 2.0]]]}, "'s' is not an array"),
    "an empty list": ({"s": []}, "position 0 of a sequence of 0"),
    "beyond the list": ({"i": np.array(1)}, r"^model 'm': node \d+: .*position 1 of a sequence of 1 \(node 'y'\)"),
    "far before the list": ({"i": np.array(-(2**63))}, "position -9223372036854775808"),
    "an empty optional": ({"o": None}, "optional is empty"),
    "an optional of another shape": ({"o": np.ones(3, F32)}, "dimension 3"),
    "text that is not UTF-8": ({"t": np.array([b"\xff\xfe"], object)}, "not UTF-8"),
    "half a surrogate pair": ({"t": np.array(["\ud800"], object)}, "'t' has a string that UTF-8 cannot hold"),
    "no text": ({"t": np.array([None], object)}, "'t' has type object; expected strings"),
    "text among numbers": ({"t": np.array(["a", 1], object)}, "'t' has type object; expected strings"),
}


@pytest.fixture(scope="module")
def taker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    with compiled(LIST, tmp_path_factory.mktemp("lists")) as model:
        yield model


@pytest.mark.parametrize("case", WRONG)
def test_wrong_feeds(taker: Model, case: str) -> None:
    change, message = WRONG[case]
    with pytest.raises(RunError, match=message):
        taker.run({**GOOD, **change})
    np.testing.assert_array_equal(taker.run(GOOD)["y"], X)  # and the next run is as ever


SHAPES: dict[str, tuple[str, dict[str, Any], str]] = {
    "overflow": (
        "(int64[4] s) => (float[A,B,C,D] y) { y = ConstantOfShape(s) }", {"s": np.full(4, 2**31 - 1)}, "2.47",
    ),
    "beyond 32 bits": (
        "(int64[1] s) => (float[A] y) { y = ConstantOfShape(s) }", {"s": np.array([2**62])}, "input 0, element 0",
    ),
    "negative": ("(int64[2] s) => (float[A,B] y) { y = ConstantOfShape(s) }", {"s": np.array([3, -1])}, "below zero"),
    "too large": (
        "(int64[2] s) => (float[A,B] y) { y = ConstantOfShape(s) }", {"s": np.array([2**20, 2**20])}, "memory",
    ),
    "a step of 0": (
        "(float[N] x, int64[1] a, int64[1] b) => (float[A] y) { y = Slice(x, a, b, a, a) }",
        {"x": X[0], "a": np.array([0]), "b": np.array([3])}, "do not fit",
    ),
    "a condition of two": (
        "(bool[N] c, float[2] x) => (float[2] y) { y = If(c) <then_branch = t () => (float[2] a) { a = Neg(x) },"
        " else_branch = e () => (float[2] b) { b = Abs(x) }> }",
        {"c": np.ones(2, bool), "x": np.ones(2, F32)}, "2 elements",
    ),
    "the place of a maximum of nothing": (
        "(float[N] x) => (int64 y) { y = ArgMax<keepdims=0>(x) }", {"x": np.zeros(0, F32)}, "1 <= N does not hold",
    ),
    "the place of a minimum of what a run leaves out": (
        "(float[N] x) => (int64[A] y) { places = NonZero(x)  y = ArgMin<axis=1, keepdims=0>(places) }",
        {"x": np.zeros(3, F32)}, r"1 <= places\.1 does not hold",
    ),
    "a scale below zero": (
        "(float[1,1,4,4] x, float[4] s) => (float[A,B,C,D] y) { y = Resize(x, , s) }",
        {"x": np.ones((1, 1, 4, 4), F32), "s": np.array([1, 1, -1, 1], F32)}, r"1 <= y/value\d+\[2\] does not hold",
    ),
    "a float beyond": (
        "(float a, float b) => (float[A] y) { y = Range(a, b, b) }", {"a": F32(-1e30), "b": F32(1e-30)}, "a size of",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", SHAPES)
def test_sizes_that_cannot_be(case: str, tmp_path: Path) -> None:
    text, feeds, message = SHAPES[case]
    with compiled(text, tmp_path) as model, pytest.raises(RunError, match=message):
        model.run(feeds)


# Indices out of range: refused; and clamped besides, under the sanitizers

INDICES = """(float[N,3] x, float[M] z, int64[K] i, int64[K] j, int64[1] a, int64[1] b) =>
    (float[K,3] y, float[K] e, float[P] g, float[K,4] h, float[Q,3] s) {
    d = Constant<value=int64 {4}>()  v = Constant<value_floats=[0.0, 1.0]>()  minus = Constant<value_ints=[-1]>()
    y = Gather(x, i)  e = GatherElements(z, j)
    u = Unsqueeze(i, minus)  w = Concat<axis=1>(u, u)  n = NonZero(w)  t = Mul(u, u)  r = Concat<axis=1>(u, t)
    g = GatherND(x, r)  h = OneHot(j, d, v)  s = Slice(x, a, b) }"""


def test_no_wild_read_behind_indices_out_of_range(tmp_path: Path) -> None:
    found = sanitize.usable()
    if found is None:
        pytest.skip("no compiler with the sanitizers' runtime is here")
    save(INDICES, tmp_path)
    graph = load_graph(tmp_path / "m.onnx")
    graph.drop_demands()  # as for targets that cannot refuse a run in its midst
    compile_model(graph, tmp_path / "m.tsc", CompileOptions(threads=1, keep_intermediates=True))
    sanitize.rebuild(tmp_path / "m.tsc", tmp_path / "work", found[0])
    far = np.array([2**62, -(2**63), 2**63 - 1, 5, -9])
    ends = {"a": np.array([-(2**63)]), "b": np.array([2**63 - 1])}
    feeds: list[dict[str, Array]] = [
        {"x": np.ones((rows, 3), F32), "z": np.ones(rows, F32), "i": far[:k], "j": far[::-1][:k], **ends}
        for rows, k in ((2, 5), (1, 5), (2, 0), (0, 0), (0, 2))
    ]
    results = sanitize.run(tmp_path / "m.tsc", feeds, tmp_path, found[1])
    assert [r[0].shape for r in results] == [(5, 3), (5, 3), (0, 3), (0, 3), (2, 3)]
    assert (results[0][0] == 1).all() and (results[0][3] == 0).all()


FAULT = "an index or a length is out of range"
# (nodes; x has 2 rows of 3, i and its square j are places), places that are there, places of which one is not
READS: dict[str, tuple[str, list[int], list[int]]] = {
    "Gather": ("[here] y = Gather(x, i)", [1, -2, 0], [0, 2]),
    "Gather before": ("[here] y = Gather(x, i)", [-1], [-3]),
    "Gather of nothing": ("[here] y = Gather<axis=1>(x, i)", [], [2**62]),
    "Gather with computed places": ("[here] y = Gather(x, j)", [1, 0], [0, 2]),
    "GatherElements": ("u = Unsqueeze(i, one) [here] y = GatherElements<axis=1>(x, u)", [2, -3], [0, 3]),
    "GatherND": ("u = Unsqueeze(i, one) [here] y = GatherND(x, u)", [1], [2]),
    "ScatterElements": ("u = Unsqueeze(i, one) v = Cast<to=1>(u) [here] y = ScatterElements(x, u, v)", [0, 1], [-3]),
    "ScatterND": ("u = Unsqueeze(i, one) v = Gather(x, none) w = Expand(v, row) [here] y = ScatterND(x, u, w)",
                  [-2, 1], [2]),
}  # fmt: skip


@pytest.mark.parametrize("fusion", ["none", "default", "aggressive"])
@pytest.mark.parametrize("case", READS)
def test_an_index_out_of_range_is_refused(case: str, fusion: str, tmp_path: Path) -> None:
    steps, good, bad = READS[case]
    text = f"""(float[N,3] x, int64[K] i) => (y) {{
        one = Constant<value_ints=[1]>()  none = Constant<value_ints=[0]>()
        k = Shape(i)  three = Constant<value_ints=[3]>()  row = Concat<axis=0>(k, three)
        j = Mul(i, i)  {steps} }}"""
    with compiled(text, tmp_path, fusion=fusion, opt_level=0 if fusion == "none" else 3) as model:
        feeds = {"x": X, "i": np.array(good, np.int64)}
        (wanted,) = ReferenceEvaluator(str(tmp_path / "m.onnx")).run(None, feeds)
        np.testing.assert_array_equal(model.run(feeds)["y"], wanted)
        result = np.full((2, 3), 7, F32) if case.startswith("Scatter") else np.full((len(bad), 3), 7, F32)
        fits = {"y": result} if result.shape == np.shape(wanted) else {}
        with pytest.raises(RunError, match=rf"step \d+ \({case.split()[0]}\): {FAULT} \(nodes 'here'"):
            model.run({"x": X, "i": np.array(bad, np.int64)}, out=fits)
        assert (result == 7).all() or "computed" in case  # what inputs alone decide is decided before the first write
        np.testing.assert_array_equal(model.run(feeds)["y"], wanted)


LENGTHS = """(float[T,B] x, int64[B] backward, float[1,1,2,2] u, int64[1,1,2,2] at, float[T,B,1] s, int32[B] steps,
    float[B,5,C] cache, float[B,T,C] new, int64[B] start, float[B,1,4,4] images, int64[2] which) => (a, b, c, d, e)
    <float[1,4,1] w = {0.5, 0.25, -0.5, 1}, float[2,4] rois = {0, 0, 2, 2, 1, 1, 3, 3}> {
    [here] a = ReverseSequence<batch_axis=1, time_axis=0>(x, backward)
    [here] b = MaxUnpool<kernel_shape=[2, 2], strides=[2, 2]>(u, at)
    [here] c = LSTM<hidden_size=1>(s, w, w, , steps)
    [here] d = TensorScatter<axis=1>(cache, new, start)
    [here] e = RoiAlign<output_height=2, output_width=2, sampling_ratio=2>(images, rois, which) }"""
# By input: the operator that it belongs to, what is possible, and what is not.
PLACES: dict[str, tuple[str, list[int], list[int]]] = {
    "backward": ("ReverseSequence", [0, 3], [4, -1]),
    "at": ("MaxUnpool", [0, 15, 7, 8], [16, 100, -1]),
    "steps": ("LSTM", [0, 3], [4, -1]),
    "start": ("TensorScatter", [0, 2], [3, -1]),
    "which": ("RoiAlign", [0, 1], [2, -3]),
}


def test_places_and_lengths_out_of_range_are_refused(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    shapes = {"x": (3, 2), "u": (1, 1, 2, 2), "s": (3, 2, 1), "cache": (2, 5, 2), "new": (2, 3, 2)}
    feeds = {name: rng.standard_normal(shape).astype(F32) for name, shape in shapes.items()}
    feeds["images"] = rng.standard_normal((2, 1, 4, 4)).astype(F32)
    dtypes = {"steps": np.int32}
    for name, (_, good, _) in PLACES.items():
        feeds[name] = np.array(good, dtypes.get(name, np.int64)).reshape((1, 1, 2, 2) if name == "at" else -1)
    with compiled(LENGTHS, tmp_path, opset=24) as model:
        wanted = ReferenceEvaluator(str(tmp_path / "m.onnx")).run(None, feeds)
        for (name, got), want in zip(model.run(feeds).items(), wanted, strict=True):
            if name != "c":  # onnx's LSTM does not look at lengths
                np.testing.assert_allclose(got, want, rtol=1e-6)
        for name, (operator, _, bad) in PLACES.items():
            for number in bad:
                wrong = feeds[name].copy()
                wrong.flat[0] = number
                with pytest.raises(RunError, match=rf"\({operator}\): {FAULT} \(nodes 'here'"):
                    model.run({**feeds, name: wrong})


def test_a_constant_length_out_of_range_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"'here' \(ReverseSequence\): .* with 4, which is not in 0 \.\. 3"):
        compiled("(float[3,1] x) => (y) { i = Constant<value_ints=[4]>() [here] y = ReverseSequence(x, i) }", tmp_path)


def test_a_constant_index_out_of_range_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"'here' \(Gather\): Gather at index 3, of a dimension of 3"):
        compiled(
            "(float[N,3] x) => (y) { i = Constant<value_ints=[0, 3]>() [here] y = Gather<axis=1>(x, i) }", tmp_path
        )


@pytest.mark.parametrize(
    "steps",
    [
        "i = ArgMax<axis=1, keepdims=0>(x) y = Gather(table, i)",
        "c = Less(x, x) i = Cast<to=7>(c) y = Gather(table, i)",
        "k = Shape(x) n = Gather(k, zero) r = Range(zero, n, one) y = Gather(x, r)",
        """k = Shape(x) n = Gather(k, zero) m = Gather(k, one) r = Range(zero, n, one) q = Range(zero, m, one)
        minus = Constant<value_ints=[-1]>() u = Unsqueeze(r, minus) e = Expand(u, k) f = Expand(q, k)
        i = Unsqueeze(e, minus) j = Unsqueeze(f, minus) both = Concat<axis=-1>(i, j) y = GatherND(x, both)""",
        "z = Relu(x) n = NonZero(x) t = Transpose(n) y = GatherND(z, t)",
        "k = Shape<start=0, end=1>(x) s = Slice(places, none, k, none) i = Unsqueeze(s, none) y = Gather(table, i)",
    ],
)
def test_what_cannot_be_out_of_range_is_not_looked_at(steps: str, tmp_path: Path) -> None:
    text = f"""(float[N,3] x) => (y) <float[4,2] table = {{0, 1, 2, 3, 4, 5, 6, 7}}> {{
        none = Constant<value_ints=[0]>()  zero = Constant<value_int=0>()  one = Constant<value_int=1>()
        places = Constant<value_ints=[0, 1, 2, 3]>() {steps} }}"""
    save(text, tmp_path)
    assert not load_graph(tmp_path / "m.onnx").demands


def test_one_look_serves_all_readers(tmp_path: Path) -> None:
    text = """(int64[K] i) => (y) <float[4,2] a = {0, 1, 2, 3, 4, 5, 6, 7}, float[4,2] b = {0, 1, 2, 3, 4, 5, 6, 7}> {
        u = Gather(a, i)  v = Gather(b, i)  y = Add(u, v) }"""
    save(text, tmp_path)
    assert len(prepare(tmp_path / "m.onnx", CompileOptions()).units) == 2


@pytest.mark.parametrize("rounds", [0, 2, 3])
def test_an_index_out_of_range_in_a_loop(rounds: int, tmp_path: Path) -> None:
    text = """(int64 n, int64 far, float[2,3] x) => (float[3] y) { z = Constant<value_floats=[0.0, 0.0, 0.0]>()
        y = Loop(n, , z) <body = b (int64 i, bool c, float[3] s) => (bool c, float[3] t) {
            [here] row = Gather(x, i)  [there] same = Gather(x, far)  r = Add(row, same)  t = Add(s, r) }> }"""
    with compiled(text, tmp_path) as model:
        feeds = {"n": np.array(rounds), "x": X, "far": np.array(1)}
        if rounds < 3:
            np.testing.assert_array_equal(model.run(feeds)["y"], sum(X[i] + X[1] for i in range(rounds)) + np.zeros(3))
        else:
            with pytest.raises(RunError, match=rf"\(Gather\): {FAULT} \(nodes 'Loop/here'"):
                model.run(feeds)
        feeds["far"] = np.array(9)
        if rounds:
            with pytest.raises(RunError, match=rf"\(Gather\): {FAULT}"):
                model.run(feeds)
        else:  # the body never runs
            np.testing.assert_array_equal(model.run(feeds)["y"], np.zeros(3))


# Loops

NESTED = """(int64 n, int64 k, float[K] a) => (float[K] p, float[R,S,T] r) {
    two = Constant<value_float=2.0>()
    p, r = Loop(n, , a) <body = o (int64 i, bool ci, float[K] u) => (bool ci, float[K] w, float[S,T] rows) {
        h = Mul(u, two)  fi = Cast<to=1>(i)
        w, rows = Loop(k, , u) <body = q (int64 j, bool cj, float[K] v) => (bool cj, float[K] v2, float[K] row) {
            t = Add(v, h)  v2 = Sub(t, fi)  row = Mul(v2, a) }> }> }"""


def nested(n: int, k: int, a: Array) -> tuple[Array, Array]:
    """The same by NumPy; values of the outer round are read in the inner ones."""
    u, blocks = a, np.zeros((n, k, len(a)), F32)
    for i in range(n):
        h = 2 * u
        for j in range(k):
            u = u + h - F32(i)
            blocks[i, j] = u * a
    return u, blocks


@pytest.fixture(scope="module")
def loops(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    with compiled(NESTED, tmp_path_factory.mktemp("loops")) as model:
        yield model


def given(n: int, k: int, size: int = 3) -> dict[str, Any]:
    return {"n": np.array(n), "k": np.array(k), "a": np.arange(size, dtype=F32)}


def test_nested_loops(loops: Model) -> None:
    """No rounds at all leave the sizes that are known: a result of none has the width that others have."""
    for n, k in ((0, 0), (0, 3), (3, 0), (1, 1), (2, 3), (9, 17), (-1, 2)):
        got = loops.run(given(n, k))
        state, rows = nested(max(n, 0), k, given(n, k)["a"])
        np.testing.assert_allclose(got["p"], state, rtol=1e-5)
        assert got["r"].shape == (max(n, 0), 0 if n <= 0 else k, 3)
        np.testing.assert_allclose(got["r"].reshape(-1), rows.reshape(-1)[: got["r"].size], rtol=1e-5)


def test_states_that_swap(tmp_path: Path) -> None:
    text = """(int64 n, float[K] a, float[K] b) => (float[K] p, float[K] q, float[R,K] r) {
        p, q, r = Loop(n, , a, b) <body = o (int64 i, bool ci, float[K] u, float[K] v) =>
            (bool ci, float[K] v, float[K] u, float[K] v) { }> }"""
    a, b = X[0], X[1]
    with compiled(text, tmp_path) as model:
        for n in (0, 1, 2, 5):
            got = model.run({"n": np.array(n), "a": a, "b": b})
            np.testing.assert_array_equal(got["p"], b if n % 2 else a)
            np.testing.assert_array_equal(got["q"], a if n % 2 else b)
            np.testing.assert_array_equal(got["r"], np.array([b, a] * n, F32).reshape(-1, 3)[:n])


def test_scan_in_both_directions(tmp_path: Path) -> None:
    text = """(float[N,K] x, float[M,N] z, float[K] a) => (float[K] p, float[K,R] r, float[R] q) {
        p, r, q = Scan<num_scan_inputs=2, scan_input_axes=[0,1], scan_input_directions=[1,0], scan_output_axes=[1,0],
            scan_output_directions=[0,1], body = o (float[K] u, float[K] xi, float[M] zi) =>
            (float[K] w, float[K] row, float m) { w = Add(u, xi)  row = Mul(w, a)  m = ReduceSum<keepdims=0>(zi) }>
            (a, x, z) }"""
    with compiled(text, tmp_path) as model:
        for n in (0, 1, 5):
            x, z, a = np.arange(3 * n, dtype=F32).reshape(n, 3), np.arange(2 * n, dtype=F32).reshape(2, n), X[1]
            got = model.run({"x": x, "z": z, "a": a})
            sums = a + np.cumsum(x[::-1], 0)
            np.testing.assert_array_equal(got["p"], sums[-1] if n else a)
            np.testing.assert_array_equal(got["r"], (sums * a).T)
            np.testing.assert_array_equal(got["q"], z.sum(0)[::-1])


def test_many_runs_take_no_more_memory(loops: Model) -> None:
    def used() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

    if not Path("/proc/self/statm").exists():
        pytest.skip("no /proc here")
    files = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(50):
        loops.run(given(3, 3, 1000))
    before = used()
    for k in range(1000):
        loops.run(given(3, k % 4, 1000))
    assert used() - before < 1 << 20
    assert len(list(Path("/proc/self/fd").iterdir())) == files


def test_threads_that_share_a_model(loops: Model) -> None:
    wrong: list[int] = []

    def work(k: int) -> None:
        want = nested(k, 3, given(k, 3, 50)["a"])
        for _ in range(100):
            got = loops.run(given(k, 3, 50))
            if not np.allclose(got["p"], want[0]) or not np.allclose(got["r"], want[1]):
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in (1, 2, 3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_results_outlive_the_model(tmp_path: Path) -> None:
    model = compiled(LIST, tmp_path)
    held = model.run(GOOD)
    model.close()
    np.testing.assert_array_equal(held["y"], X)
    assert held["u"].tolist() == ["A"]
    with pytest.raises(RunError, match="closed"):
        model.run(GOOD)
