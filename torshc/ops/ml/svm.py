"""Support vector machines of ai.onnx.ml, made of products and reductions at import; for integer labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ...base.errors import ModelError
from ...expr import F32, const
from ...graph import Partial, Value
from ..core.base import Op, operator
from ..core.functions import arg_max, clip, concat, exp, gather, reduce_sum_square, sigmoid, tanh, where
from ..core.functions import pow as power
from ..core.host import HostOp, emit
from ..core.source import SourceNode
from ..core.tensor import Tensor, operand
from .labels import named
from .linear import DOMAIN, floats, transformed

Array = np.ndarray[tuple[int, ...], np.dtype[np.floating]]


def _numbers(source: SourceNode, name: str, x: Tensor) -> Array:
    return np.asarray(source.attribute(name, ()), x.dtype.numpy)


def _features(source: SourceNode) -> tuple[Tensor, int]:
    """The operand as floats, and its static width."""
    x = floats(operand(source, 0))
    width = x.size(1) if x.rank == 2 else None
    if not width:
        raise ModelError(f"{source.op_type} of {x.type!r}")
    return x, width


def _table(source: SourceNode, values: Array, rows: int, width: int, what: str) -> Array:
    if values.size != rows * width:
        raise ModelError(f"{source.op_type} with {values.size} {what} and not {rows} times {width}")
    return np.ascontiguousarray(values.reshape(rows, width))


def _kernel(source: SourceNode, x: Tensor, vectors: Array) -> Tensor:
    """The kernel of each row of x[N, C] with each of vectors[V, C]: [N, V]."""
    kind = str(source.attribute("kernel_type", "LINEAR"))
    given = source.attribute("kernel_params") or (0.0, 0.0, 0.0)
    if len(given) != 3:
        raise ModelError(f"{source.op_type} with kernel_params {given}, and three are needed")
    gamma, offset, degree = (float(p) for p in given)
    if kind == "RBF":
        apart = x.reshape(x.shape[0], 1, x.shape[1]) - x.constant(vectors[None])
        return exp(reduce_sum_square(apart, axes=(2,), keepdims=False) * -gamma)
    product = x @ x.constant(np.ascontiguousarray(vectors.T))
    if kind == "LINEAR":
        return product
    inner = product * gamma + offset
    return tanh(inner) if kind == "SIGMOID" else power(inner, float(int(degree)))


def _linear(x: Tensor, weights: Array, shift: Array) -> Tensor:
    """x[N, V] times weights[V, K] plus a shift of one number or K."""
    return x @ x.constant(np.ascontiguousarray(weights)) + x.constant(shift)


@operator("SVMRegressor", DOMAIN)
@dataclass(frozen=True)
class SVMRegressor(Op):
    """The kernels with the support vectors, weighted and shifted: [N, 1] in f32; with `one_class` its sign, 1 or -1.

    Without support vectors it is linear in the features.
    """

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        x, width = _features(source)
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
        out = _linear(source_kernel, column, rho)
        if one_class:
            out = where(out > 0, out.constant(1.0), -1.0)
        return [transformed(out, kind).cast(F32).value]


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


def _probabilities(source: SourceNode, scores: Tensor, slopes: Array, offsets: Array, classes: int) -> Tensor:
    """The probability of each class, from the scores of pairs and a logistic function for each of them (J. Platt)."""
    pairs = classes * (classes - 1) // 2
    if slopes.size != pairs or offsets.size != pairs:
        raise ModelError(f"SVMClassifier of {pairs} pairs with {slopes.size} prob_a and {offsets.size} prob_b")
    chances = sigmoid(scores * scores.constant(-slopes) + scores.constant(-offsets)).cast(F32)
    between = clip(chances, 1e-7, 1 - 1e-7)
    made = emit(source, Couple(classes), [between.value], Partial(F32, (scores.shape[0], const(classes))))
    return Tensor(source.builder, made[0])


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
        x, width = _features(source)
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
            scores = _linear(kernels, table, rho)
            standing = _linear((scores > 0).cast(x.dtype), votes, before)
            if slopes.size:
                scores = _probabilities(source, scores, slopes, offsets, classes)
        else:
            own = _table(source, weights, classes, width, "coefficients")
            scores = standing = _linear(x, own.T, rho[:1])
        for name in ("kernel_type", "kernel_params"):
            source.attribute(name)
        source.fields(cls)
        positive = not slopes.size and bool(weights.min() >= 0)
        label = _label(standing, list(labels), rho.size == 1, positive)
        if scores.size(1) == 1 and classes == 2 and kind != "PROBIT":
            scores = concat(-scores, scores, axis=1)
        return [label.value, transformed(scores, kind).cast(F32).value][: max(source.outputs, 1)]


def _label(standing: Tensor, labels: list[int], single: bool, positive: bool) -> Tensor:
    """The label by votes or scores[N, K]; `single` is a machine with one rho."""
    names = np.asarray(labels, np.int64)
    most = standing.max(1, keep=False)
    if single and len(labels) != 2:  # what it is, or is not
        return where(most > 0, most.constant(np.asarray(1, np.int64)), 0)
    best = gather(standing.constant(names), arg_max(standing, axis=1, keepdims=0), axis=0)
    if not (single and positive):
        return best
    return where(most >= 0.5, most.constant(np.asarray(labels[1], np.int64)), best)
