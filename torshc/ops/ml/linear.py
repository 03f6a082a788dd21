"""Operators of ai.onnx.ml on numbers: features, scalings and linear models, made of ONNX's others at import."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ...errors import ModelError
from ...expr import F32, F64, I64, Expr, as_int, call, const, select
from ...graph import Builder, TensorType, Value
from ..core.base import Constraints, Inputs, Op, need, operator
from ..core.bounds import demand_in_range
from ..core.compose import apply, as_type
from ..core.source import SourceNode, Unsupported
from ..math.linalg import MatMul
from ..math.pointwise import Pointwise
from ..tensor.parts import Slice
from ..tensor.view import Concat, Reshape
from .labels import named

DOMAIN = "ai.onnx.ml"


def floats(source: SourceNode, x: Value) -> Value:
    """The operand as f32, which these operators give, or f64 as it is."""
    return x if x.dtype in (F32, F64) else apply(source.builder, "Cast", x, to=F32)


def post_transform(b: Builder, scores: Value, kind: str) -> Value:
    """Scores[N, classes] as ONNX's `post_transform` gives them."""
    if kind == "NONE":
        return scores
    if kind == "LOGISTIC":
        return apply(b, "Sigmoid", scores)
    if kind == "SOFTMAX":
        return apply(b, "Softmax", scores, axis=-1)
    if kind == "SOFTMAX_ZERO":  # scores that are next to 0 stay so and hardly count
        most = apply(b, "ReduceMax", scores, axes=(1,))
        absent = apply(b, "LessOrEqual", apply(b, "Abs", scores), 1e-7)
        exponents = apply(b, "Exp", apply(b, "Sub", scores, most))
        kept = apply(b, "Where", absent, apply(b, "Mul", scores, apply(b, "Exp", apply(b, "Neg", most))), exponents)
        return apply(b, "Div", kept, apply(b, "ReduceSum", kept, axes=(1,)))
    return b.one(Probit(), scores)  # PROBIT


@operator("Probit", "torshc")
@dataclass(frozen=True)
class Probit(Pointwise):
    """The number that a normal variable is below with a given probability, as ONNX's reference and runtimes have it.

    Its sqrt(2) erfinv(2 p - 1) takes S. Winitzki's approximation of erfinv, "A handy approximation for the error
    function and its inverse" (2008), with a = 0.147, good to 2e-3; 0 and 1 give 0.
    """

    def body(self, *xs: Expr) -> Expr:
        (p,) = xs
        x = call("sub", call("mul", p, 2.0), 1.0)
        inside = call("mul", call("sub", 1.0, x), call("add", x, 1.0))
        log = call("log", inside)
        half = call("add", call("mul", log, 0.5), 2 / (math.pi * 0.147))
        inner = call("sub", call("sqrt", call("sub", call("mul", half, half), call("mul", log, 1 / 0.147))), half)
        size = call("mul", call("sqrt", inner), math.sqrt(2))
        size = select(call("eq", inside, 0.0), const(0.0, p.dtype), size)
        return select(call("lt", x, 0.0), call("neg", size), size)


def _vector(source: SourceNode, name: str, x: Value) -> Value | None:
    given = source.attribute(name)
    return source.builder.constant(np.asarray(given, x.dtype.numpy)) if given is not None and len(given) else None


@operator("ArrayFeatureExtractor", DOMAIN)
@dataclass(frozen=True)
class ArrayFeatureExtractor(Op):
    """The elements of the last dimension at some indices; a vector counts as a matrix of one row."""

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        x, indices = source.required(0), source.required(1)
        if not x.type.rank or not indices.dtype.is_int:
            raise ModelError(f"ArrayFeatureExtractor of {x.type!r} at {indices.type!r}")
        flat = source.emit(Reshape((indices.type.size,)), [indices])[0]
        matrix = x if x.type.rank > 1 else source.emit(Reshape((const(1), *x.shape)), [x])[0]
        demand_in_range(source, flat, matrix.shape[-1])
        return [apply(source.builder, "Gather", matrix, flat, axis=matrix.type.rank - 1)]


@operator("Binarizer", DOMAIN)
@dataclass(frozen=True)
class Binarizer(Pointwise):
    """1 above the threshold, else 0; NaN gives 0."""

    threshold: float = 0.0

    def body(self, *xs: Expr) -> Expr:
        (x,) = xs
        if not x.dtype.is_float:  # n > t for an integer n just where n > floor(t)
            return select(call("gt", x, math.floor(self.threshold)), const(1, x.dtype), const(0, x.dtype))
        return select(call("gt", x, self.threshold), const(1.0, x.dtype), const(0.0, x.dtype))


@operator("Scaler", DOMAIN)
@dataclass(frozen=True)
class Scaler(Op):
    """(x - offset) * scale in f32; offset and scale are numbers, or vectors over the last dimension."""

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        x = floats(source, source.required(0))
        offset, scale = _vector(source, "offset", x), _vector(source, "scale", x)
        source.fields(cls)
        if offset is not None:
            x = apply(source.builder, "Sub", x, offset)
        x = x if scale is None else apply(source.builder, "Mul", x, scale)
        return [as_type(source.builder, x, F32)]


@operator("Normalizer", DOMAIN)
@dataclass(frozen=True)
class Normalizer(Op):
    """Rows divided by their norm, the largest magnitude ("MAX"), "L1" or "L2"; norms below 1e-30 count as that."""

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        b, x, norm = source.builder, floats(source, source.required(0)), str(source.attribute("norm", "MAX"))
        source.fields(cls)
        if x.type.rank not in (1, 2):
            raise ModelError(f"Normalizer of {x.type!r}")
        axes = (x.type.rank - 1,)
        if norm == "MAX":
            size = apply(b, "ReduceMax", apply(b, "Abs", x), axes=axes)
        else:
            size = apply(b, f"Reduce{norm}", x, axes=axes)
        out = apply(b, "Div", x, apply(b, "Max", size, 1e-30))
        return [as_type(b, out, F32)]


@operator("Imputer", DOMAIN)
@dataclass(frozen=True)
class Imputer(Op):
    """A value, or every NaN, replaced by another, one for all columns or one for each."""

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        b, x = source.builder, source.required(0)
        kind = "float" if x.dtype.is_float else "int64"
        replaced = source.attribute(f"replaced_value_{kind}", 0)
        values = _vector(source, f"imputed_value_{kind}s", x)
        for name in ("imputed_value_floats", "imputed_value_int64s", "replaced_value_float", "replaced_value_int64"):
            source.attribute(name)
        source.fields(cls)
        if values is None:
            raise ModelError(f"Imputer of {x.dtype!r} needs imputed_value_{kind}s")
        if x.type.rank != 2 or as_int(values.shape[0]) not in (1, as_int(x.shape[1])):
            raise ModelError(f"Imputer of {x.type!r} with {as_int(values.shape[0])} values")
        missing = apply(b, "IsNaN", x) if replaced != replaced else apply(b, "Equal", x, replaced)
        return [apply(b, "Where", missing, values, x)]


@operator("FeatureVectorizer", DOMAIN)
@dataclass(frozen=True)
class FeatureVectorizer(Op):
    """Matrices side by side in f32, each cut or filled up with zeros to its width; a vector is a column."""

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        b, widths = source.builder, source.attribute("inputdimensions")
        source.fields(cls)
        columns = []
        for k in range(len(source.inputs)):
            x = source.required(k)
            x = b.one(Reshape((*x.shape, const(1))), x) if x.type.rank == 1 else x
            have = as_int(x.shape[1]) if x.type.rank == 2 else None
            want = int(widths[k]) if widths is not None and k < len(widths) else have
            if have is None or want is None or want < 0:
                raise Unsupported(f"FeatureVectorizer of {x.type!r}")
            if want < have:
                x = b.one(Slice((const(0), const(0)), (x.shape[0], const(want)), (1, 1)), x)
            elif want > have:
                zero = const(0)
                x = apply(b, "Pad", x, before=(zero, zero), after=(zero, const(want - have)))
            columns.append(as_type(b, x, F32))
        return [b.one(Concat(1), *columns) if len(columns) > 1 else columns[0]]


def _scores(source: SourceNode, x: Value, targets: int) -> Value:
    """x[N, C] times the coefficients, attributes as a matrix [targets, C], plus the intercepts."""
    b, given = source.builder, source.attribute("coefficients")
    width = as_int(x.shape[1]) if x.type.rank == 2 else None
    if width is None or given is None or targets < 1 or len(given) != targets * width:
        raise ModelError(f"{source.op_type} of {x.type!r} for {targets} targets with {len(given or ())} coefficients")
    weights = np.ascontiguousarray(np.asarray(given, x.dtype.numpy).reshape(targets, width).T)
    out, shift = b.one(MatMul(), x, b.constant(weights)), _vector(source, "intercepts", x)
    return out if shift is None else apply(b, "Add", out, shift)


@operator("LinearRegressor", DOMAIN)
@dataclass(frozen=True)
class LinearRegressor(Op):
    """x[N, C] times coefficients plus intercepts: [N, targets] in f32."""

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        x, targets = floats(source, source.required(0)), int(source.attribute("targets", 1))
        kind = str(source.attribute("post_transform", "NONE"))
        out = _scores(source, x, targets)
        source.fields(cls)
        out = post_transform(source.builder, out, kind)
        return [as_type(source.builder, out, F32)]


@operator("LinearClassifier", DOMAIN)
@dataclass(frozen=True)
class LinearClassifier(Op):
    """The label of the largest score of each row, and the scores.

    With one row of coefficients for two labels, the scores are -s and s. One label stands for scores from 0 on (from a
    half on after a transform), 0 for those below.
    """

    family: ClassVar[str] = "composite"

    def infer(self, inputs: Inputs, constraints: Constraints) -> list[TensorType]:
        return [TensorType(I64, need(inputs[0], "the scores").shape[:1])]

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        if source.attribute("classlabels_strings"):
            return named(cls, source, "classlabels_ints")
        b, x = source.builder, floats(source, source.required(0))
        labels, kind = source.attribute("classlabels_ints"), str(source.attribute("post_transform", "NONE"))
        source.attribute("multi_class")
        given: Any = source.attribute("coefficients")
        width = as_int(x.shape[1]) if x.type.rank == 2 else None
        if not labels or not given or not width:
            raise ModelError(f"LinearClassifier of {x.type!r} with {len(labels or ())} labels")
        rows = len(given) // width
        scores = _scores(source, x, rows)
        source.fields(cls)
        if rows == 1 and len(labels) == 2:
            scores = b.one(Concat(1), apply(b, "Neg", scores), scores)
        elif rows != len(labels):
            raise ModelError(f"LinearClassifier of {rows} classes with {len(labels)} labels")
        scores = post_transform(b, scores, kind)
        if len(labels) > 1:
            best = apply(b, "ArgMax", scores, axis=1, keepdims=0)
            chosen = apply(b, "Gather", b.constant(np.asarray(labels, np.int64)), best, axis=0)
        else:
            held = apply(b, "GreaterOrEqual", b.one(Reshape(scores.shape[:1]), scores), 0.5 if kind != "NONE" else 0.0)
            chosen = apply(b, "Where", held, *(b.constant(np.asarray(v, np.int64)) for v in (labels[0], 0)))
        out = as_type(b, scores, F32)
        return [chosen, out][: max(source.outputs, 1)]
