"""Small graphs for the kernel tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from torshc.expr import F32, DType, const, dim
from torshc.graph import Builder, Graph, TensorType, Value
from torshc.ops import REGISTRY

Shape = Sequence[int | str]


def op(name: str, domain: str = "", **attributes: Any) -> Any:
    return REGISTRY[domain, name](**attributes)


class Maker:
    """A graph under construction; dimensions that are strings are symbols."""

    def __init__(self) -> None:
        self.graph = Graph()
        self.builder = Builder(self.graph)

    def input(self, *shape: int | str, dtype: DType = F32, layout: tuple[int, ...] | None = None) -> Value:
        dims = tuple(dim(d) if isinstance(d, str) else const(d) for d in shape)
        value = self.graph.new_value(TensorType(dtype, dims), f"x{len(self.graph.inputs)}")
        value.layout = layout
        self.graph.inputs.append(value)
        return value

    def constant(self, array: np.ndarray[Any, Any]) -> Value:
        return self.builder.constant(array)

    def add(self, name: str, *inputs: Value | None, layout: tuple[int, ...] | None = None, **attributes: Any) -> Value:
        (out,) = self.builder.add(op(name, **attributes), list(inputs))
        out.layout = layout
        return out

    def output(self, *values: Value) -> Graph:
        self.graph.outputs = list(values)
        self.graph.output_names = [f"y{k}" for k in range(len(values))]
        return self.graph


def sizes(shape: Shape, dims: dict[str, int]) -> list[int]:
    return [dims[d] if isinstance(d, str) else d for d in shape]


def random(rng: np.random.Generator, shape: Sequence[int], dtype: Any = np.float32) -> np.ndarray[Any, Any]:
    if np.dtype(dtype).kind in "iu":
        return rng.integers(-9, 9, shape).astype(dtype)
    return rng.standard_normal(shape).astype(dtype)
