"""Support vector machines of ai.onnx.ml, made of products and reductions at import; for integer labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ...base.errors import ModelError
from ...expr import F32, as_int, const
from ...graph import Builder, Partial, Value
from ..core.base import Op, operator
from ..core.compose import apply, as_type
from ..core.host import HostOp, emit
from ..core.source import SourceNode
from ..core.tensor import Tensor
from ..math.linalg import MatMul
from ..tensor.view import Concat, Reshape
from .labels import named
from .linear import DOMAIN, floats, transformed

Array = np.ndarray[tuple[int, ...], np.dtype[np.floating]]


def _numbers(source: SourceNode, name: str, x: Value) -> Array:
    return np.asarray(source.attribute(name, ()), x.dtype.numpy)


def _features(source: SourceNode) -> tuple[Value, int]:
    """The operand as floats, and its static width."""
    x = floats(Tensor(source.builder, source.required(0))).value
    width = as_int(x.shape[1]) if x.type.rank == 2 else None
    if not width:
        raise ModelError(f"{source.op_type} of {x.type!r}")
    return x, width


def _table(source: SourceNode, values: Array, rows: int, width: int, what: str) -> Array:
    if values.size != rows * width:
        raise ModelError(f"{source.op_type} with {values.size} {what} and not {rows} times {width}")
    return np.ascontiguousarray(values.reshape(rows, width))


def _kernel(source: SourceNode, x: Value, vectors: Array) -> Value:
    """The kernel of each row of x[N, C] with each of vectors[V, C]: [N, V]."""
    b, kind = source.builder, str(source.attribute("kernel_type", "LINEAR"))
    given = source.attribute("kernel_params") or (0.0, 0.0, 0.0)
    if len(given) != 3:
        raise ModelError(f"{source.op_type} with kernel_params {given}, and three are needed")
    gamma, offset, degree = (float(p) for p in given)
    if kind == "RBF":
        rows = b.one(Reshape((x.shape[0], const(1), x.shape[1])), x)
        apart = apply(b, "Sub", rows, b.constant(vectors[None]))
        return apply(b, "Exp", apply(b, "Mul", apply(b, "ReduceSumSquare", apart, axes=(2,), keepdims=False), -gamma))
    product = b.one(MatMul(), x, b.constant(np.ascontiguousarray(vectors.T)))
    if kind == "LINEAR":
        return product
    inner = apply(b, "Add", apply(b, "Mul", product, gamma), offset)
    return apply(b, "Tanh", inner) if kind == "SIGMOID" else apply(b, "Pow", inner, float(int(degree)))


def _linear(source: SourceNode, x: Value, weights: Array, shift: Array) -> Value:
    """x[N, V] times weights[V, K] plus a shift of one number or K."""
    b = source.builder
    return apply(b, "Add", b.one(MatMul(), x, b.constant(np.ascontiguousarray(weights))), b.constant(shift))


@operator("SVMRegressor", DOMAIN)
@dataclass(frozen=True)
class SVMRegressor(Op):
    """The kernels with the support vectors, weighted and shifted: [N, 1] in f32; with `one_class` its sign, 1 or -1.

    Without support vectors it is linear in the features.
    """

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        b, (x, width) = source.builder, _features(source)
        count, one_class = int(source.attribute("n_supports", 0)), bool(source.attribute("one_class", 0))
        kind = str(source.attribute("post_transform", "NONE"))
        weights, rho = _numbers(source, "coefficients", x), _numbers(source, "rho", x)
        vectors, source_kernel = _numbers(source, "support_vectors", x), x
        if rho.size != 1:
            raise ModelError(f"SVMRegressor with {rho.size} rho values")
        if count > 0:
            source_kernel = _kernel(source, x, _table(source, vectors, count, width, "numbers in support vectors"))
        for name in ("kernel_type", "kernel_params"):
            source.attribute(name)
        source.fields(cls)
        column = _table(source, weights, count if count > 0 else width, 1, "coefficients")
        out = _linear(source, source_kernel, column, rho)
        if one_class:
            out = apply(b, "Where", apply(b, "Greater", out, 0.0), b.constant(1.0, out), b.constant(-1.0, out))
        return [as_type(b, transformed(Tensor(b, out), kind).value, F32)]


def _pairs(counts: list[int], weights: Array) -> tuple[Array, Array, Array]:
    """For each pair of classes: weights of all support vectors [V, P]; what a positive score adds to the votes of each
    class [P, K], and what each class has without any [K].

    Args:
        counts: support vectors of each class.
        weights: [K - 1, V]; those of the vectors of class i against class j are in row j - 1 if i < j, else in row j.
    """
    starts, classes = np.cumsum([0, *counts]), len(counts)
    pairs = [(i, j) for i in range(classes) for j in range(i + 1, classes)]
    table = np.zeros((sum(counts), len(pairs)), weights.dtype)
    votes, before = np.zeros((len(pairs), classes), weights.dtype), np.zeros(classes, weights.dtype)
    for p, (i, j) in enumerate(pairs):
        own, other = slice(starts[i], starts[i + 1]), slice(starts[j], starts[j + 1])
        table[own, p], table[other, p] = weights[j - 1, own], weights[i, other]
        votes[p, i], votes[p, j] = 1, -1
        before[j] += 1
    return table, votes, before


@dataclass(frozen=True)
class Couple(HostOp):
    """The probabilities of classes[N, K] from those of pairs[N, K (K - 1) / 2], in f32."""

    name: ClassVar[str] = "Couple"
    domain: ClassVar[str] = "torshc"
    function: ClassVar[str] = "t_op_couple"
    file: ClassVar[str] = "t_op_ml.c"
    classes: int = 2

    def integers(self) -> tuple[int, ...]:
        return (self.classes,)


def _probabilities(source: SourceNode, scores: Value, slopes: Array, offsets: Array, classes: int) -> Value:
    """The probability of each class, from the scores of pairs and a logistic function for each of them (J. Platt)."""
    b, pairs = source.builder, classes * (classes - 1) // 2
    if slopes.size != pairs or offsets.size != pairs:
        raise ModelError(f"SVMClassifier of {pairs} pairs with {slopes.size} prob_a and {offsets.size} prob_b")
    inner = apply(b, "Add", apply(b, "Mul", scores, b.constant(-slopes)), b.constant(-offsets))
    between = apply(b, "Clip", as_type(b, apply(b, "Sigmoid", inner), F32), 1e-7, 1 - 1e-7)
    return emit(source, Couple(classes), [between], Partial(F32, (scores.shape[0], const(classes))))[0]


@operator("SVMClassifier", DOMAIN)
@dataclass(frozen=True)
class SVMClassifier(Op):
    """The label of each row, and scores in f32: of each pair of classes, or of each class without support vectors.

    With `prob_a` and `prob_b`, which turn the score of a pair into a probability, they are the classes' probabilities.
    With support vectors each pair votes for one of its classes, and the first with the most votes is the label. The one
    score s of two classes is given as -s and s. As ONNX's reference has it, two classes whose coefficients are all
    positive have the second label once a vote or score reaches a half.
    """

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        if source.attribute("classlabels_strings"):
            return named(cls, source, "classlabels_ints")
        b, (x, width) = source.builder, _features(source)
        labels, kind = source.attribute("classlabels_ints"), str(source.attribute("post_transform", "NONE"))
        slopes, offsets = (_numbers(source, name, x) for name in ("prob_a", "prob_b"))
        counts = [int(c) for c in source.attribute("vectors_per_class", ())]
        weights, rho = _numbers(source, "coefficients", x), _numbers(source, "rho", x)
        vectors, classes = _numbers(source, "support_vectors", x), len(labels or ())
        if not labels or not rho.size or any(c < 0 for c in counts):
            raise ModelError(f"SVMClassifier with {classes} labels, {rho.size} rho values and {counts} vectors")
        if sum(counts):
            if len(counts) != classes or classes < 2 or rho.size != classes * (classes - 1) // 2:
                raise ModelError(f"SVMClassifier with {classes} labels, {rho.size} rho values and {counts} vectors")
            own = _table(source, weights, classes - 1, sum(counts), "coefficients")
            kernels = _kernel(source, x, _table(source, vectors, sum(counts), width, "numbers in support vectors"))
            table, votes, before = _pairs(counts, own)
            scores = _linear(source, kernels, table, rho)
            chosen = apply(b, "Cast", apply(b, "Greater", scores, 0.0), to=x.dtype)
            standing = _linear(source, chosen, votes, before)
            if slopes.size:
                scores = _probabilities(source, scores, slopes, offsets, classes)
        else:
            own = _table(source, weights, classes, width, "coefficients")
            scores = standing = _linear(source, x, own.T, rho[:1])
        for name in ("kernel_type", "kernel_params"):
            source.attribute(name)
        source.fields(cls)
        positive = not slopes.size and bool(weights.min() >= 0)
        label = _label(b, standing, list(labels), rho.size == 1, positive)
        if as_int(scores.shape[1]) == 1 and classes == 2 and kind != "PROBIT":
            scores = b.one(Concat(1), apply(b, "Neg", scores), scores)
        return [label, as_type(b, transformed(Tensor(b, scores), kind).value, F32)][: max(source.outputs, 1)]


def _label(b: Builder, standing: Value, labels: list[int], single: bool, positive: bool) -> Value:
    """The label by votes or scores[N, K]; `single` is a machine with one rho."""
    most = apply(b, "ReduceMax", standing, axes=(1,), keepdims=False)
    if single and len(labels) != 2:  # what it is, or is not
        return _whole(b, apply(b, "Greater", most, 0.0), 1, 0)
    names = b.constant(np.asarray(labels, np.int64))
    best = apply(b, "Gather", names, apply(b, "ArgMax", standing, axis=1, keepdims=0), axis=0)
    if not (single and positive):
        return best
    return apply(b, "Where", apply(b, "GreaterOrEqual", most, 0.5), b.constant(np.asarray(labels[1], np.int64)), best)


def _whole(b: Builder, condition: Value, yes: int, no: int) -> Value:
    constants = (b.constant(np.asarray(v, np.int64)) for v in (yes, no))
    return apply(b, "Where", condition, *constants)
