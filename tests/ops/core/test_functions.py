"""Operators as functions by their names."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import torshc.ops
from torshc.base.errors import ModelError
from torshc.expr import F32, const
from torshc.graph import Builder, Graph, TensorType
from torshc.ops import REGISTRY
from torshc.ops.core import functions
from torshc.ops.core.composite import Composite
from torshc.ops.core.functions import snake_case, where
from torshc.ops.core.tensor import Tensor

OWN = {"where", "snake_case"}


def imported() -> set[str]:
    """The names that modules of operators import from the functions."""
    found = set()
    for file in Path(torshc.ops.__path__[0]).rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module == "core.functions":
                found |= {n.name for n in node.names}
    return found


def test_every_function_that_is_used_is_an_operator() -> None:
    operators = {name for (domain, name), op in REGISTRY.items() if not domain and not issubclass(op, Composite)}
    names = {snake_case(name) for name in operators}
    assert "gelu" in imported()
    assert imported() - names <= OWN


def test_a_name_that_no_operator_has_is_told() -> None:
    with pytest.raises(AttributeError, match=r"gellu\(\).*did you mean 'gelu'"):
        functions.gellu()


def test_names_of_operators_stay_apart_in_snake_case() -> None:
    names = [name for domain, name in REGISTRY if not domain]
    assert len({snake_case(name) for name in names}) == len(names)


@pytest.mark.parametrize(
    ("name", "snake"),
    [
        ("IsNaN", "is_nan"),
        ("GatherND", "gather_nd"),
        ("ReduceL2", "reduce_l2"),
        ("LSTM", "lstm"),
        ("MatMul", "mat_mul"),
    ],
)
def test_snake_case(name: str, snake: str) -> None:
    assert snake_case(name) == snake


def test_numbers_in_where_have_the_other_sides_type() -> None:
    graph = Graph()
    x = Tensor(Builder(graph), graph.new_value(TensorType(F32, (const(2),))))
    assert where(x > 0, x, 0).dtype is F32
    assert where(x > 0, 0, x).dtype is F32
    with pytest.raises(TypeError, match="two numbers"):
        where(x > 0, 1, 0)


def test_numbers_that_an_operator_has_as_fields_are_no_operands() -> None:
    graph = Graph()
    x = Tensor(Builder(graph), graph.new_value(TensorType(F32, (const(2),))))
    with pytest.raises(TypeError, match=r"reduce_mean\(\) with a number.*axes=, keepdims="):
        functions.reduce_mean(x, [0])
    with pytest.raises(ModelError, match="low= and high="):
        functions.clip(x, 0.0, 1.0)
    assert functions.clip(x, low=0.0, high=1.0).dtype is F32
