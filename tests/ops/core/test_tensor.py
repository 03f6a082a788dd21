"""Each Python operator adds the registered operator of its name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.support.evaluate import run
from torshc.base.errors import ModelError
from torshc.expr import F16, F32, I64, const, dim, substitute
from torshc.graph import Builder, Graph, TensorType
from torshc.ops.core.tensor import Tensor, apply_named, apply_op, read_node
from torshc.ops.nn.norm import LayerNormalization

Array = np.ndarray[Any, Any]
X = np.array([[0.5, -2.0, 3.0], [4.0, 1.5, -0.25]], np.float32)
Y = np.array([[2.0, -2.0, 0.5], [1.0, 8.0, 0.75]], np.float32)


def two() -> tuple[Tensor, Tensor]:
    """Inputs x and y of a graph."""
    graph = Graph()
    x, y = (graph.new_value(TensorType(F32, (const(2), const(3))), name) for name in "xy")
    graph.declare_inputs([x, y])
    b = Builder(graph)
    return Tensor(b, x), Tensor(b, y)


def computed(formula: Callable[[Any, Any], Tensor]) -> Array:
    """What a formula gives for X and Y."""
    result = formula(*two())
    graph = result.builder.graph
    graph.declare_outputs([result.value], ["out"])
    return run(graph, {"x": X, "y": Y})[0]


@pytest.mark.parametrize(
    "formula",
    [
        lambda x, y: x + y, lambda x, y: x - y, lambda x, y: x * y, lambda x, y: x / y, lambda x, y: -x,
        lambda x, y: abs(x), lambda x, y: x + 1, lambda x, y: 1 + x, lambda x, y: 2.5 - x, lambda x, y: 3 * x,
        lambda x, y: 1 / x, lambda x, y: x < y, lambda x, y: x <= y, lambda x, y: x > y, lambda x, y: x >= y,
        lambda x, y: x < 1, lambda x, y: (x < y) & (x > 0), lambda x, y: (x < y) | (x > 0),
        lambda x, y: x.reshape(3, 2), lambda x, y: x.transpose(1, 0), lambda x, y: x @ y.transpose(1, 0),
    ],
)  # fmt: skip
def test_operators_mean_what_numpy_means(formula: Callable[[Any, Any], Any]) -> None:
    got, wanted = computed(formula), formula(X, Y)
    assert got.dtype == wanted.dtype
    np.testing.assert_allclose(got, wanted, rtol=1e-6)


def test_reductions_and_parts() -> None:
    np.testing.assert_allclose(computed(lambda x, y: x.mean(-1)), X.mean(-1, keepdims=True), rtol=1e-6)
    np.testing.assert_allclose(computed(lambda x, y: x.sum((0, 1), keep=False)), X.sum(), rtol=1e-6)
    np.testing.assert_array_equal(computed(lambda x, y: x.max(0)), X.max(0, keepdims=True))
    np.testing.assert_array_equal(computed(lambda x, y: x.min(range(2), keep=False)), X.min())
    np.testing.assert_array_equal(computed(lambda x, y: x.part(-1, 1, 3)), X[:, 1:3])
    np.testing.assert_array_equal(computed(lambda x, y: x.split(1, 1, 2)[1]), X[:, 1:])
    np.testing.assert_array_equal(computed(lambda x, y: x.range(4, 3)), [4, 5, 6])
    np.testing.assert_array_equal(
        computed(lambda x, y: x.max(1).expand(2, 2)), np.repeat(X.max(1, keepdims=True), 2, 1)
    )
    np.testing.assert_allclose(computed(lambda x, y: x.softmax(-1)).sum(-1), [1, 1], rtol=1e-6)


def test_parts_lie_inside_the_tensor() -> None:
    x, _ = two()
    with pytest.raises(ModelError, match=r"4 places along dimension 1 of f32.2, 3."):
        x.part(1, 2, 4)
    graph = Graph()
    graph.declare_inputs([graph.new_value(TensorType(F32, (dim("n"),)), "x")])
    Tensor(Builder(graph), graph.inputs[0]).part(0, 0, 3)
    ((there, one),) = graph.constraints
    for n in (2, 3, 5):
        assert (substitute(there, {dim("n"): const(n)}) is one) == (n >= 3)


def test_numbers_have_the_type_of_the_tensor() -> None:
    x, _ = two()
    assert (x.cast(F16) * 0.1).dtype is F16
    assert (x.cast(I64) + 1).dtype is I64
    assert x.cast(F32) is x


def test_what_is_not_known_while_a_graph_is_built_is_refused() -> None:
    x, y = two()
    with pytest.raises(TypeError, match="neither true nor false"):
        assert x < y
    with pytest.raises(TypeError, match=r"equal\(\)"):
        assert x == y
    with pytest.raises(TypeError, match="numbers only"):
        apply_named("Gelu", 1.0)


def test_absent_operands_behind_the_last_are_left_out() -> None:
    x, y = two()
    made = apply_op(LayerNormalization(-1), x, y, None)
    assert made.value.producer is not None and len(made.value.producer.inputs) == 2


def test_an_empty_attribute_counts_as_absent() -> None:
    x, _ = two()
    pooled = read_node("MaxPool", x.reshape(1, 1, 2, 3), kernel_shape=(2, 2), auto_pad="", pads=())
    assert pooled.type.static_shape == (1, 1, 1, 2)
