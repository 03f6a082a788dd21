"""The operators, a class each, in families. Importing this package registers them all."""

from . import (
    attention,
    bits,
    contrib,
    contrib_attention,
    contrib_fused,
    contrib_narrow,
    contrib_quantize,
    conv,
    einsum,
    generate,
    index,
    labels,
    linalg,
    ml,
    norm,
    parts,
    pointwise,
    pool,
    quantize,
    random,
    recurrent,
    reduce,
    sample,
    scatter,
    select,
    sequence,
    signal,
    sort,
    spatial,
    strings,
    svm,
    text,
    train,
    trees,
    view,
)
from .base import REGISTRY, Nest, Op, operator
from .source import SourceNode, Unsupported

__all__ = [
    "REGISTRY", "Nest", "Op", "SourceNode", "Unsupported", "attention", "bits", "contrib", "contrib_attention",
    "contrib_fused", "contrib_narrow", "contrib_quantize", "conv", "einsum", "generate", "index",
    "labels", "linalg", "ml", "norm", "operator", "parts", "pointwise", "pool", "quantize", "random", "recurrent",
    "reduce", "sample", "scatter", "select", "sequence", "signal", "sort", "spatial", "strings", "svm", "text", "train",
    "trees", "view",
]  # fmt: skip
