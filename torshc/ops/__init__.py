"""The operators, a class each, in families. Importing this package registers them all."""

from . import pointwise, reduce, view
from .base import REGISTRY, Nest, Op, operator
from .source import SourceNode, Unsupported

__all__ = ["REGISTRY", "Nest", "Op", "SourceNode", "Unsupported", "operator", "pointwise", "reduce", "view"]
