"""The graph of a model: values, nodes, builder, rewriter, patch."""

from .builder import Builder
from .data import data_of, indices, ints_of
from .graph import Graph, Node, PaddingMask, Partial, Recomputation, Shape, State, SymbolSource, TensorType, Value
from .mark import Mark, RuleName
from .part import copy_part
from .patch import Patch, sort
from .rewriter import Rewriter, arrange, learn, relayout, rewire
from .sizes import require_fit, require_shape

__all__ = [
    "Builder", "Graph", "Mark", "Node", "PaddingMask", "Partial", "Patch", "Recomputation", "Rewriter", "RuleName",
    "Shape", "State", "SymbolSource", "TensorType", "Value", "arrange", "copy_part", "data_of", "indices", "ints_of",
    "learn", "relayout", "require_fit", "require_shape", "rewire", "sort",
]  # fmt: skip
