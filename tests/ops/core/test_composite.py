"""Operators declared as functions: their signature is what a node may have."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypedDict, Unpack

import numpy as np
import onnx
import pytest

import torshc
from tests.support.contrib import model_of
from tests.support.evaluate import run
from tests.support.models import Array
from torshc.base.errors import ModelError, UnsupportedError
from torshc.formats import import_model
from torshc.ops import REGISTRY, SourceNode
from torshc.ops.core.composite import composite
from torshc.ops.core.functions import sigmoid
from torshc.ops.core.tensor import Tensor

DOMAIN = "com.microsoft"  # for which the models of these tests state a version
X = np.array([-1.5, 0.25, 3.0], np.float32)


class Factors(TypedDict, total=False):
    """Attributes of which only those arrive that a node has."""

    left: float
    right: tuple[int, ...]


@pytest.fixture(autouse=True)
def declared() -> Iterator[None]:
    before = dict(REGISTRY)
    _declare()
    yield
    REGISTRY.clear()
    REGISTRY.update(before)


def _declare() -> None:
    @composite("TestSwish", DOMAIN)
    def swish(x, *, factor=1.1):  # type: ignore[no-untyped-def]
        return x * sigmoid(factor * x)

    @composite("TestShift", DOMAIN)
    def shift(x: Tensor, by: Tensor | None, scale: Tensor, *, times: int) -> list[Tensor]:
        """(x + by) * scale * times, and x."""
        return [(x if by is None else x + by) * scale * times, x]

    @composite("TestSum", DOMAIN, floats=False, mixed=True)
    def total(source: SourceNode, *xs: Tensor, **factors: Unpack[Factors]) -> Tensor:
        return sum(xs[1:], start=xs[0]) * (len(factors) + 10 * source.outputs)


def results(op: str, *operands: Array | None, outputs: int = 1, **attributes: Any) -> list[Array]:
    model = model_of(op, operands, (), outputs, **attributes)
    feeds = {f"x{k}": a for k, a in enumerate(operands) if a is not None}
    return run(import_model(model.SerializeToString()), feeds)


def test_three_lines_are_an_operator(tmp_path: Path) -> None:
    onnx.save(model_of("TestSwish", (X,), factor=2.0), tmp_path / "m.onnx")
    compilation = torshc.compile(tmp_path / "m.onnx", tmp_path / "m.tsc")
    assert len(compilation.plan.groups) == 1  # fused, as all that it is made of
    with torshc.load(tmp_path / "m.tsc") as loaded:
        (got,) = loaded.run({"x0": X}).values()
    np.testing.assert_allclose(got, X / (1 + np.exp(-2 * X)), rtol=1e-5)


def test_defaults_have_32_bits_as_attributes_have() -> None:
    (got,) = results("TestSwish", X.astype(np.float64))
    factor = float(np.float32(1.1))
    np.testing.assert_allclose(got, X / (1 + np.exp(-factor * X.astype(np.float64))), rtol=1e-12)


def test_operands_may_be_absent_in_the_middle() -> None:
    got, same = results("TestShift", X, None, X, times=3, outputs=2)
    np.testing.assert_allclose(got, X * X * 3, rtol=1e-6)
    np.testing.assert_array_equal(same, X)
    np.testing.assert_allclose(results("TestShift", X, X, X, times=1)[0], 2 * X * X, rtol=1e-6)


def test_any_number_of_operands_and_attributes_that_a_node_has() -> None:
    np.testing.assert_allclose(results("TestSum", X, X, X)[0], 3 * X * 10, rtol=1e-6)
    np.testing.assert_allclose(results("TestSum", X, left=0.5, right=[1, 2])[0], X * 12, rtol=1e-6)


@pytest.mark.parametrize(
    ("op", "operands", "attributes", "words"),
    [
        ("TestSwish", (X, X), {}, "TestSwish takes at most 1 input, and 2 are given"),
        ("TestSwish", (X.astype(np.int32),), {}, "TestSwish of i32"),
        ("TestSwish", (X,), {"faktor": 1.0}, "no attribute 'faktor'; did you mean 'factor'"),
        ("TestSwish", (X,), {"factor": 1}, "attribute 'factor' of TestSwish must be float"),
        ("TestShift", (X, X, X), {}, "TestShift lacks its attribute 'times'"),
        ("TestShift", (X, X), {"times": 1}, "TestShift needs input 2"),
        ("TestShift", (X, X.astype(np.float16), X), {"times": 1}, "TestShift of f16 and f32"),
        ("TestSum", (X, None, X), {}, "TestSum needs input 1"),
    ],
)
def test_what_a_signature_does_not_have_is_refused(op: str, operands: Any, attributes: Any, words: str) -> None:
    with pytest.raises((ModelError, UnsupportedError), match=words) as caught:
        results(op, *operands, **attributes)
    assert "'it'" in str(caught.value)


def test_an_attribute_needs_a_type() -> None:
    def scaled(x, *, factor):  # type: ignore[no-untyped-def]
        return x * factor

    with pytest.raises(TypeError, match="'factor' of scaled"):
        composite("TestScaled", DOMAIN)(scaled)


def test_two_operators_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="registered already"):
        composite("FastGelu", DOMAIN)(lambda x: x)
