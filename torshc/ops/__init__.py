"""The operators, a class each, in families. Importing this package registers them all."""

from . import (
    attention,
    conv,
    einsum,
    generate,
    index,
    linalg,
    ml,
    norm,
    pointwise,
    pool,
    quantize,
    recurrent,
    reduce,
    sample,
    scatter,
    signal,
    sort,
    spatial,
    text,
    trees,
    view,
)
from .base import REGISTRY, Nest, Op, operator
from .source import SourceNode, Unsupported

__all__ = [
    "REGISTRY", "Nest", "Op", "SourceNode", "Unsupported", "attention", "conv", "einsum", "generate", "index", "linalg",
    "ml", "norm", "operator", "pointwise", "pool", "quantize", "recurrent", "reduce", "sample", "scatter",
    "signal", "sort", "spatial",
    "text", "trees", "view",
]  # fmt: skip
