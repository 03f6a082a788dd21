"""Kernels as LLVM's text, run in the process and compared with NumPy; no file, no other program."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

from tests.support.ensembles import COMPARE, grown, rows
from tests.support.kernels import Maker
from tests.support.models import model, parsed
from torshc.base.errors import ConfigError, RunError, UnsupportedError
from torshc.entry.inprocess import InProcess, load_model
from torshc.formats import load_graph

Array = np.ndarray[Any, Any]


def loaded(text: str, **options: Any) -> InProcess:
    return load_model(load_graph(parsed(text).SerializeToString()), **options)


def drawn(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


@pytest.fixture(scope="module")
def blend() -> InProcess:
    """An elementwise chain and a softmax over its rows, of any size."""
    return loaded(
        """(float[N, M] a, float[N, M] b, float[M] c) => (float[N, M] y, float[N, M] z) {
            s = Sigmoid(a)  t = Tanh(b)  p = Mul(s, t)  y = Add(p, c)  z = Softmax(y)
        }"""
    )


@pytest.mark.parametrize(("n", "m"), [(1, 1), (3, 5), (2, 16), (7, 33), (0, 3), (3, 0)])
def test_blocks_of_lanes_and_what_is_left(blend: InProcess, n: int, m: int) -> None:
    a, b, c = drawn(n, m), 3 * drawn(n, m), drawn(m)
    y, z = blend(a, b, c)
    want = np.tanh(b) / (1 + np.exp(-a)) + c
    np.testing.assert_allclose(y, want, rtol=1e-5, atol=1e-6)
    powers = np.exp(want - want.max(-1, keepdims=True, initial=-9))
    np.testing.assert_allclose(z, powers / powers.sum(-1, keepdims=True), rtol=1e-5, atol=1e-6)


def test_nan_and_infinity_stay(blend: InProcess) -> None:
    a = np.array([[np.nan, np.inf, -np.inf, 1e30, -1e30]], np.float32)
    zero = np.zeros_like(a)
    y, _ = blend(zero, a, zero[0])
    np.testing.assert_array_equal(y, np.float32(0.5) * np.tanh(a))


def test_threads_change_nothing() -> None:
    text = "(float[N] a, float[N] b) => (float[N] y) { m = Mul(a, b) y = Exp(m) }"
    a, b = drawn(300_001), drawn(300_001)[::-1].copy()
    one, two = loaded(text)(a, b)[0], loaded(text, threads=2)(a, b)[0]
    np.testing.assert_array_equal(one, two)


def test_a_child_process_runs_without_the_threads_of_its_parent() -> None:
    model = loaded("(float[N] a, float[N] b) => (float[N] y) { m = Mul(a, b) y = Exp(m) }", threads=2)
    a = drawn(300_001)
    want = model(a, a)[0]
    child = os.fork()
    if child == 0:
        os._exit(0 if np.array_equal(model(a, a)[0], want) else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_a_run_reads_sizes_from_elements_and_refuses_what_is_out_of_range() -> None:
    look = loaded("(float[N] a, int64[K] i) => (float[K] y) { y = Gather(a, i) }")
    assert look(np.arange(4, dtype=np.float32), np.array([3, -4]))[0].tolist() == [3, 0]
    with pytest.raises(RunError, match="out of range"):
        look(np.arange(4, dtype=np.float32), np.array([4]))


@pytest.mark.parametrize(("sizes", "says"), [([2, -1], "a dimension below zero"), ([2**30, 2**30], "2\\^47 bytes")])
def test_sizes_that_no_result_can_have(sizes: list[int], says: str) -> None:
    model = loaded("(float[N, 2] a, int64[2] r) => (float[P, Q] y) { y = Tile(a, r) }")
    with pytest.raises(RunError, match=f"these shapes .*{says}"):
        model(np.ones((3, 2), np.float32), np.array(sizes))


@pytest.mark.parametrize("count", [1, 5, 37])
def test_a_part_that_data_chooses_is_read_within_it(joined: InProcess, count: int) -> None:
    parts = [drawn(n) for n in (2, 9, 3)]
    at = np.random.default_rng(count).integers(0, 14, count)
    np.testing.assert_array_equal(joined(*parts, at)[0], -np.concatenate(parts)[at])


@pytest.fixture(scope="module")
def joined() -> InProcess:
    """A gather of a concatenation, in one kernel."""
    return loaded(
        "(float[2] a, float[n] b, float[3] c, int64[k] at) => (float[k] y) {"
        " joined = Concat<axis = 0>(a, b, c)  taken = Gather(joined, at)  y = Neg(taken) }"
    )


def test_wrong_inputs_are_refused(blend: InProcess) -> None:
    a = drawn(2, 3)
    with pytest.raises(RunError, match=r"do not fit together|has the shape"):
        blend(a, drawn(2, 4), drawn(3))
    with pytest.raises(RunError, match="float64"):
        blend(a, a.astype(np.float64), drawn(3))
    with pytest.raises(RunError, match="2 inputs; expected 3"):
        blend(a, a)


def test_equal_kernels_are_loaded_once() -> None:
    text = "(float[N] a) => (float[N] y) { y = Cos(a) }"
    first = loaded(text)
    assert loaded(text).stats().cached == first.stats().kernels == 1


def test_stats_count(blend: InProcess) -> None:
    before = blend.stats()
    blend(drawn(2, 3), drawn(2, 3), drawn(3))
    after = blend.stats()
    assert (after.runs - before.runs, after.launches - before.launches) == (1, 1)
    # Two operands and a row in, two results out, of four bytes an element.
    assert after.bytes - before.bytes == 4 * (4 * 6 + 3)


def test_what_there_is_no_kernel_for_is_listed_at_once() -> None:
    with pytest.raises(UnsupportedError) as refused:
        loaded("(float[N] a, bool c) => (float[M] y) { i = NonZero(a)  j = Squeeze(i)  y = Gather(a, j) }")
    assert any("NonZero" in p for p in refused.value.problems)


@pytest.mark.parametrize(("m", "k", "n"), [(1, 1, 2), (5, 7, 3), (13, 33, 50), (3, 4, 64)])
def test_products_of_any_size(product: InProcess, m: int, k: int, n: int) -> None:
    a, b, c = drawn(2, m, k), drawn(2, k, n), drawn(n)
    np.testing.assert_allclose(product(a, b, c)[0], np.maximum(a @ b + c, 0), rtol=1e-5, atol=1e-5)


@pytest.fixture(scope="module")
def product() -> InProcess:
    """A product of two operands of the run, whose right one is packed first, with an epilogue."""
    return loaded(
        "(float[2, M, K] a, float[2, K, N] b, float[N] c) => (float[2, M, N] y) {"
        " p = MatMul(a, b)  q = Add(p, c)  y = Relu(q) }"
    )


def one_node(node: onnx.NodeProto, x: Array, weights: dict[str, Array]) -> onnx.ModelProto:
    return model([node], {"x": x}, [o for o in node.output if o], weights, 18)


def agrees(node: onnx.NodeProto, x: Array, weights: dict[str, Array]) -> None:
    """One node, as the reference evaluator has it; sums may be in another order."""
    made = one_node(node, x, weights)
    want = ReferenceEvaluator(made).run(None, {"x": x})
    got = load_model(load_graph(made.SerializeToString()))(x)
    for g, w in zip(got, want, strict=True):
        np.testing.assert_allclose(g, w, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("operator", "gates", "attributes"),
    [("LSTM", 4, {}), ("GRU", 3, {"linear_before_reset": 1}), ("GRU", 3, {}), ("RNN", 1, {})],
)
def test_recurrent_networks(operator: str, gates: int, attributes: dict[str, Any]) -> None:
    """Five hidden units: less than a vector; three rows of a batch: less than a tile."""
    weights = {"w": drawn(1, gates * 5, 2), "r": drawn(1, gates * 5, 5), "b": drawn(1, gates * 10)}
    node = helper.make_node(operator, ["x", *weights], ["y", "h"], hidden_size=5, **attributes)
    agrees(node, drawn(4, 3, 2), weights)


def test_the_first_of_a_row() -> None:
    """Equal ones in the order of their places, NaN before all numbers, -0 beside 0."""
    first = loaded("(float[N, M] x) => (float[N, 4] y, int64[N, 4] i) <int64[1] k = {4}> { y, i = TopK(x, k) }")
    _, places = first(np.array([[1, np.nan, 3, 3, -1, 0], [-0.0, 0, -0.0, -1, -2, -3]], np.float32))
    assert places.tolist() == [[1, 2, 3, 0], [0, 1, 2, 3]]


def test_trees() -> None:
    """As loops that are written out."""
    made, x = (
        grown(np.random.default_rng(0), 19, list(COMPARE), targets=2, lost=True),
        rows(np.random.default_rng(1), 9),
    )
    m = Maker()
    scores = made.add(m.builder, m.input("n", 5))
    m.output(scores, m.add("Neg", scores))
    got = load_model(m.graph)(x)
    # Sums of 19 leaves in another order.
    np.testing.assert_allclose(got[0], made.run(x), rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(got[1], -got[0])


@pytest.mark.parametrize(
    ("channels", "filters", "groups", "attributes"),
    [
        (3, 18, 1, {"pads": [1, 1, 1, 1], "strides": [2, 2]}),
        (4, 6, 2, {"dilations": [2, 1], "pads": [2, 0, 2, 0]}),
        (18, 18, 18, {"pads": [1, 1, 1, 1]}),
    ],
)
def test_convolutions(channels: int, filters: int, groups: int, attributes: dict[str, Any]) -> None:
    """Weights are constants, so the oracle is the same convolution by the definition."""
    w = drawn(filters, channels // groups, 3, 3)
    conv = helper.make_node("Conv", ["x", "w"], ["y"], **attributes, group=groups)
    x = drawn(2, channels, 7, 5)
    made = one_node(conv, x, {"w": w})
    (want,) = ReferenceEvaluator(made).run(None, {"x": x})
    (got,) = load_model(load_graph(made.SerializeToString()))(x)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("strides", [[1, 1], [2, 3]])
def test_transposed_convolutions(strides: list[int]) -> None:
    """Pixels of a stride are phases, which have taps of their own."""
    node = helper.make_node("ConvTranspose", ["x", "w"], ["y"], strides=strides, pads=[1, 0, 0, 1])
    agrees(node, drawn(2, 3, 5, 4), {"w": drawn(3, 18, 3, 3)})


def test_long_sums_are_sums_of_pieces() -> None:
    """Over rows, of a product and of a convolution. One chain of n terms would be off by up to n roundings."""
    text = """(float[20000, 16] x, float[8, 20000] t, float[1, 600, 6, 6] i, float[4, 600, 3, 3] w) =>
        (float[16] s, float[8, 16] p, float[1, 4, 4, 4] c) {
            zero = Constant<value_ints = [0]>()  s = ReduceSum<keepdims = 0>(x, zero)  p = MatMul(t, x)  c = Conv(i, w)
        }"""
    rng = np.random.default_rng(0)
    x, t, i, w = (rng.random(s, np.float32) for s in ((20000, 16), (8, 20000), (1, 600, 6, 6), (4, 600, 3, 3)))
    pixels = np.lib.stride_tricks.sliding_window_view(i.astype(np.float64), (3, 3), (2, 3))
    wanted = x.sum(0, np.float64), t.astype(np.float64) @ x, np.einsum("nchwij,ocij->nohw", pixels, w)
    for got, want in zip(loaded(text)(x, t, i, w), wanted, strict=True):
        # Of positive terms; 313 sums of 64, 20 of 1,024, 9 of 600: of 1,024 roundings of 6e-8, one way or the other,
        # some sqrt(1,024) remain, 2e-6. As one chain these sums were off by 3e-6 to 6e-6.
        np.testing.assert_allclose(got, want, rtol=2e-6)


def test_rows_of_a_recurrent_network_that_end_early() -> None:
    """Each is as one alone that is as short; the second direction runs from its end, and behind it are zeros."""
    weights = {"w": drawn(2, 15, 2), "r": drawn(2, 15, 5), "b": drawn(2, 30)}
    attributes: dict[str, Any] = {"hidden_size": 5, "direction": "bidirectional", "linear_before_reset": 1}
    x, lengths = drawn(4, 3, 2), np.array([4, 1, 3], np.int32)
    node = helper.make_node("GRU", ["x", *weights, "lengths"], ["y", "h"], **attributes)
    y, h = load_model(load_graph(one_node(node, x, weights | {"lengths": lengths}).SerializeToString()))(x)
    alone = helper.make_node("GRU", ["x", *weights], ["y", "h"], **attributes)
    for row, length in enumerate(lengths):
        part = np.ascontiguousarray(x[:length, row : row + 1])
        want, last = load_model(load_graph(one_node(alone, part, weights).SerializeToString()))(part)
        # Sums of five products, in another order.
        np.testing.assert_allclose(y[:length, :, row], want[:, :, 0], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(h[:, row], last[:, 0], rtol=1e-5, atol=1e-6)
        assert not y[length:, :, row].any()


@pytest.mark.parametrize("attributes", ["reverse = 0", "exclusive = 1", "reverse = 1"])
def test_running_sums(attributes: str) -> None:
    one = loaded(f"(float[N, M] x, int64 i) => (float[N, M] y) <int64 i = {{0}}> {{ y = CumSum<{attributes}>(x, i) }}")
    x = drawn(4, 19)
    turned = x[::-1] if attributes == "reverse = 1" else x
    want = np.cumsum(turned, 0) - (turned if "exclusive" in attributes else 0)
    want = want[::-1] if attributes == "reverse = 1" else want
    np.testing.assert_allclose(one(x)[0], want, rtol=1e-5, atol=1e-5)


def test_a_row_that_is_kept_lies_outside_of_what_chooses_its_elements() -> None:
    """Each element comes from one of two tensors, by its row; the sum keeps them for the first result."""
    made = loaded(
        """(float[8, 1, 2, 3] x, float[8, 1, 1, 3] u) => (float[8, 1, 2, 3] y, float[1, 1, 2, 1] z)
        <int64[2] axes = {0, 3}> {
            y = TensorScatter <axis: int = 2> (x, u)  z = ReduceSum (y, axes)
        }""",
        fusion="aggressive",
    )
    x, u = drawn(8, 1, 2, 3), drawn(8, 1, 1, 3)
    y, z = made(x, u)
    want = np.concatenate([u, x[:, :, 1:]], axis=2)
    np.testing.assert_array_equal(y, want)
    np.testing.assert_allclose(z, want.sum((0, 3), keepdims=True), rtol=1e-5)


def test_another_machine_is_refused_in_the_process() -> None:
    with pytest.raises(ConfigError, match="runs on this machine"):
        loaded("(float[N] a) => (float[N] y) { y = Cos(a) }", triple="aarch64-linux-gnu")
