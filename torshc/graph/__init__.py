"""The graph of a model: values, nodes, builder, patch."""

from .builder import Builder
from .data import data_of, indices, ints_of
from .graph import Element, Graph, Node, Partial, Shape, TensorType, Value
from .mark import Mark, RuleName
from .patch import Patch, apply, sort, substitute_values

__all__ = [
    "Builder", "Element", "Graph", "Mark", "Node", "Partial", "Patch", "RuleName", "Shape", "TensorType", "Value",
    "apply", "data_of", "indices", "ints_of", "sort", "substitute_values",
]  # fmt: skip
