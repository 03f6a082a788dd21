"""Operators of ai.onnx.ml on numbers: features, scalings and linear models, made of ONNX's others at import."""

from __future__ import annotations

import math

import numpy as np

from ...base.errors import ModelError
from ...expr import F32, F64, const
from ..core.base import REGISTRY
from ..core.bounds import demand_in_range
from ..core.composite import composite
from ..core.functions import abs as magnitude
from ..core.functions import (
    arg_max,
    concat,
    equal,
    exp,
    gather,
    is_nan,
    pad,
    reduce_l1,
    reduce_l2,
    sigmoid,
    sqrt,
    where,
)
from ..core.functions import log as logarithm
from ..core.functions import max as larger
from ..core.pointwise import pointwise
from ..core.scalar import Scalar, element
from ..core.source import SourceNode, Unsupported
from ..core.tensor import Tensor
from .labels import named

DOMAIN = "ai.onnx.ml"
Floats = tuple[float, ...]
Ints = tuple[int, ...]


def floats(x: Tensor) -> Tensor:
    """The operand as f32, which these operators give, or f64 as it is."""
    return x if x.dtype is F64 else x.cast(F32)


def transformed(scores: Tensor, kind: str) -> Tensor:
    """Scores[N, classes] as ONNX's `post_transform` gives them."""
    if kind == "NONE":
        return scores
    if kind == "LOGISTIC":
        return sigmoid(scores)
    if kind == "SOFTMAX":
        return scores.softmax(-1)
    if kind == "SOFTMAX_ZERO":  # scores that are next to 0 stay so and hardly count
        most = scores.max(1)
        absent = magnitude(scores) <= 1e-7
        exponents = exp(scores - most)
        kept = where(absent, scores * exp(-most), exponents)
        return kept / kept.sum(1)
    return probit(scores)  # PROBIT


@pointwise("Probit", "torshc")
def probit(p: Scalar) -> Scalar:
    """The number that a normal variable is below with a given probability, as ONNX's reference and runtimes have it.

    Its sqrt(2) erfinv(2 p - 1) takes S. Winitzki's approximation of erfinv, "A handy approximation for the error
    function and its inverse" (2008), with a = 0.147, good to 2e-3; 0 and 1 give 0.
    """
    x = p * 2 - 1
    inside = (1 - x) * (x + 1)
    log = logarithm(inside)
    half = log * 0.5 + 2 / (math.pi * 0.147)
    size = sqrt(sqrt(half * half - log * (1 / 0.147)) - half) * math.sqrt(2)
    size = where(equal(inside, 0), 0, size)
    return where(x < 0, -size, size)


def _vector(x: Tensor, numbers: Floats | Ints) -> Tensor | None:
    return x.constant(np.asarray(numbers, x.dtype.numpy)) if numbers else None


@composite("ArrayFeatureExtractor", DOMAIN, floats=False)
def array_feature_extractor(source: SourceNode, x: Tensor, indices: Tensor) -> Tensor:
    """The elements of the last dimension at some indices; a vector counts as a matrix of one row."""
    if not x.rank or not indices.dtype.is_int:
        raise ModelError(
            f"ArrayFeatureExtractor of {x.type!r} at {indices.type!r}"
            "; indices have to be integers, and the operand needs a dimension at least"
        )
    flat = indices.reshape(indices.type.size)
    matrix = x if x.rank > 1 else x.reshape(1, *x.shape)
    demand_in_range(source, flat.value, matrix.shape[-1])
    return gather(matrix, flat, axis=matrix.rank - 1)


@pointwise("Binarizer", DOMAIN)
def binarizer(x: Scalar, *, threshold: float = 0.0) -> Scalar:
    """1 above the threshold, else 0; NaN gives 0."""
    return where(x > threshold, element(1, x.dtype), 0)


@composite("Scaler", DOMAIN, floats=False)
def scaler(x: Tensor, *, offset: Floats = (), scale: Floats = ()) -> Tensor:
    """(x - offset) * scale in f32; offset and scale are numbers, or vectors over the last dimension."""
    x = floats(x)
    shift, factor = _vector(x, offset), _vector(x, scale)
    x = x if shift is None else x - shift
    return (x if factor is None else x * factor).cast(F32)


@composite("Normalizer", DOMAIN, floats=False)
def normalizer(x: Tensor, *, norm: str = "MAX") -> Tensor:
    """Rows divided by their norm, the largest magnitude ("MAX"), "L1" or "L2"; norms below 1e-30 count as that."""
    x, axes = floats(x), (x.rank - 1,)
    if x.rank not in (1, 2):
        raise ModelError(f"Normalizer of {x.type!r}, which is neither a vector nor a matrix")
    size = magnitude(x).max(-1) if norm == "MAX" else (reduce_l1 if norm == "L1" else reduce_l2)(x, axes=axes)
    return (x / larger(size, 1e-30)).cast(F32)


@composite("Imputer", DOMAIN, floats=False)
def imputer(
    x: Tensor, *, imputed_value_floats: Floats = (), imputed_value_int64s: Ints = (), replaced_value_float: float = 0.0,
    replaced_value_int64: int = 0,
) -> Tensor:  # fmt: skip
    """A value, or every NaN, replaced by another, one for all columns or one for each."""
    real = x.dtype.is_float
    values = _vector(x, imputed_value_floats if real else imputed_value_int64s)
    if values is None:
        raise ModelError(f"Imputer of {x.dtype!r} needs imputed_value_{'float' if real else 'int64'}s")
    if x.rank != 2 or values.size(0) not in (1, x.size(1)):
        raise ModelError(
            f"Imputer of {x.type!r} with {values.size(0)} values"
            "; the operand has to be a matrix, with one value for all columns or one for each"
        )
    replaced = replaced_value_float if real else replaced_value_int64
    return where(is_nan(x) if math.isnan(replaced) else equal(x, replaced), values, x)


@composite("FeatureVectorizer", DOMAIN, floats=False, mixed=True)
def feature_vectorizer(*xs: Tensor, inputdimensions: Ints = ()) -> Tensor:
    """Matrices side by side in f32, each cut or filled up with zeros to its width; a vector is a column."""
    columns = []
    for k, x in enumerate(xs):
        x = x.reshape(*x.shape, 1) if x.rank == 1 else x
        have = x.size(1) if x.rank == 2 else None
        want = inputdimensions[k] if k < len(inputdimensions) else have
        if have is None or want is None or want < 0:
            raise Unsupported(f"FeatureVectorizer of {x.type!r}")
        if want < have:
            x = x.part(1, 0, want)
        elif want > have:
            x = pad(x, before=(const(0), const(0)), after=(const(0), const(want - have)))
        columns.append(x.cast(F32))
    return concat(*columns, axis=1) if len(columns) > 1 else columns[0]


def _scores(x: Tensor, coefficients: Floats, intercepts: Floats, targets: int) -> Tensor:
    """x[N, C] times the coefficients, which are a matrix [targets, C], plus the intercepts."""
    width = x.size(1) if x.rank == 2 else None
    if width is None or targets < 1 or not coefficients or len(coefficients) != targets * width:
        raise ModelError(
            f"a linear model of {x.type!r} for {targets} targets with {len(coefficients)} coefficients"
            "; the operand has to be a matrix, with a coefficient for each column and target"
        )
    weights = np.ascontiguousarray(np.asarray(coefficients, x.dtype.numpy).reshape(targets, width).T)
    out, shift = x @ x.constant(weights), _vector(x, intercepts)
    return out if shift is None else out + shift


@composite("LinearRegressor", DOMAIN, floats=False)
def linear_regressor(
    x: Tensor, *, coefficients: Floats = (), intercepts: Floats = (), post_transform: str = "NONE", targets: int = 1
) -> Tensor:
    """x[N, C] times coefficients plus intercepts: [N, targets] in f32."""
    return transformed(_scores(floats(x), coefficients, intercepts, targets), post_transform).cast(F32)


@composite("LinearClassifier", DOMAIN, floats=False)
def linear_classifier(
    source: SourceNode, x: Tensor, *, classlabels_ints: Ints = (), classlabels_strings: tuple[str, ...] = (),
    coefficients: Floats, intercepts: Floats = (), multi_class: int = 0, post_transform: str = "NONE",
) -> list[Tensor]:  # fmt: skip
    """The label of the largest score of each row, and the scores.

    With one row of coefficients for two labels, the scores are -s and s. One label stands for scores from 0 on (from a
    half on after a transform), 0 for those below.
    """
    if classlabels_strings:
        made = named(REGISTRY[DOMAIN, "LinearClassifier"], source, "classlabels_ints")
        return [Tensor(source.builder, v) for v in made]
    x, labels = floats(x), classlabels_ints
    width = x.size(1) if x.rank == 2 else None
    if not labels or not coefficients or not width:
        raise ModelError(
            f"LinearClassifier of {x.type!r} with {len(labels)} labels"
            "; the operand has to be a matrix of known width, and labels and coefficients are needed"
        )
    rows = len(coefficients) // width
    scores = _scores(x, coefficients, intercepts, rows)
    if rows == 1 and len(labels) == 2:
        scores = concat(-scores, scores, axis=1)
    elif rows != len(labels):
        raise ModelError(f"LinearClassifier of {rows} classes with {len(labels)} labels, where each class needs one")
    scores = transformed(scores, post_transform)
    if len(labels) > 1:
        best = arg_max(scores, axis=1, keepdims=0)
        chosen = gather(x.constant(np.asarray(labels, np.int64)), best, axis=0)
    else:
        held = scores.reshape(*scores.shape[:1]) >= (0.5 if post_transform != "NONE" else 0.0)
        chosen = where(held, *(x.constant(np.asarray(v, np.int64)) for v in (labels[0], 0)))
    return [chosen, scores.cast(F32)]
