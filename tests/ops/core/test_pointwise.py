"""Operators that are functions over elements."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.support.contrib import model_of
from tests.support.evaluate import run
from tests.support.models import Array
from torshc.base.errors import ModelError, UnsupportedError
from torshc.expr import F16, F32, I32, DType, acc, call, const
from torshc.formats import import_model
from torshc.graph import Builder, Graph, TensorType
from torshc.ops import REGISTRY
from torshc.ops.core.functions import reduce_sum, sigmoid, where
from torshc.ops.core.pointwise import Function, pointwise
from torshc.ops.core.scalar import Scalar
from torshc.ops.core.tensor import Tensor

DOMAIN = "com.microsoft"  # for which the models of these tests state a version
X = np.array([[0.5, -2.0, 3.0]], np.float32)


@pytest.fixture
def gated() -> Iterator[Function]:
    """An operator of two operands and an attribute."""

    @pointwise("Gated", DOMAIN)
    def function(x: Scalar, gate: Scalar, *, scale: float = 2.0) -> Scalar:
        """x sigmoid(scale gate), 0 where x is negative."""
        return where(x < 0, 0, x * sigmoid(gate * scale))

    yield function
    del REGISTRY[DOMAIN, "Gated"]


def inputs(*shapes: tuple[int, ...], dtype: DType = F32) -> list[Tensor]:
    graph = Graph()
    values = [graph.new_value(TensorType(dtype, tuple(map(const, s))), f"x{k}") for k, s in enumerate(shapes)]
    graph.declare_inputs(values)
    return [Tensor(Builder(graph), v) for v in values]


def test_a_function_over_elements_is_an_operator(gated: Function) -> None:
    op = REGISTRY[DOMAIN, "Gated"](scale=1.0)
    assert (op.name, op.domain, op.family, str(op)) == ("Gated", DOMAIN, "pointwise", "Gated[scale=1.0]")
    assert op.__doc__ == "x sigmoid(scale gate), 0 where x is negative."


def test_of_tensors_it_adds_its_operator(gated: Function) -> None:
    x, gate = inputs((1, 3), (2, 1))
    y = gated(x, gate, scale=0.5)
    graph = x.builder.graph
    assert [n.op.name for n in graph.nodes] == ["Gated"]
    graph.declare_outputs([y.value], ["y"])
    g = np.array([[1.0], [-3.0]], np.float32)
    wanted = np.where(X < 0, 0, X / (1 + np.exp(-0.5 * g)))
    np.testing.assert_allclose(run(graph, {"x0": X, "x1": g})[0], wanted, rtol=1e-6)


def test_of_elements_it_is_its_formula(gated: Function) -> None:
    x, one = Scalar(acc("x", F32)), const(1.0, F32)
    assert gated(x, 1).expr is where(x < 0, 0, x * sigmoid(Scalar(one) * 2)).expr
    assert sigmoid(x).expr is call("sigmoid", x.expr)


def test_the_result_has_the_type_that_is_stored(gated: Function) -> None:
    x, gate = inputs((3,), (3,), dtype=F16)
    assert gated(x, gate).dtype is F16


def test_an_operator_on_tensors_is_none_on_elements() -> None:
    with pytest.raises(TypeError, match="ReduceSum of elements"):
        reduce_sum(Scalar(acc("x", F32)))


def test_types_that_the_formula_does_not_take_are_told(gated: Function) -> None:
    x, gate = inputs((3,), (3,), dtype=I32)
    with pytest.raises(ModelError, match=r"Gated of i32\[3\] and i32\[3\]: the number 0.5 beside an element of i32"):
        gated(x, gate, scale=0.5)
    with pytest.raises(ModelError, match=r"Gated of different types, i32\[3\] and f32\[\]"):
        gated(x, gate.cast(F32).sum(0, keep=False))


@pytest.mark.parametrize(
    ("operands", "attributes", "words"),
    [
        ((X,), {}, "Gated needs input 1"),
        ((X, X, X), {}, "Gated takes at most 2 inputs, and 3 are given"),
        ((X, X), {"scal": 1.0}, "no attribute 'scal'; did you mean 'scale'"),
        ((X, X.astype(np.float64)), {}, r"Gated of different types, f32\[1, 3\] and f64\[1, 3\]"),
    ],
)
def test_what_a_signature_does_not_have_is_refused(
    gated: Function, operands: tuple[Array, ...], attributes: dict[str, Any], words: str
) -> None:
    model = model_of("Gated", operands, (), 1, **attributes)
    with pytest.raises((ModelError, UnsupportedError), match=words):
        import_model(model.SerializeToString())
