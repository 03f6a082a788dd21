"""Support vector machines of ai.onnx.ml, made of products and reductions at import; for integer labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ...base.errors import ModelError
from ...expr import F32, const
from ...graph import Partial
from ..core.base import REGISTRY
from ..core.composite import composite
from ..core.functions import arg_max, clip, concat, exp, gather, reduce_sum_square, sigmoid, tanh, where
from ..core.functions import pow as power
from ..core.host import HostOp, emit
from ..core.source import SourceNode
from ..core.tensor import Tensor
from .labels import named
from .linear import DOMAIN, Floats, Ints, floats, transformed

Array = np.ndarray[tuple[int, ...], np.dtype[np.floating]]


def _features(x: Tensor, what: str) -> tuple[Tensor, int]:
    """The operand as floats, and its static width."""
    x = floats(x)
    width = x.size(1) if x.rank == 2 else None
    if not width:
        raise ModelError(f"{what} of {x.type!r}, where a matrix of known width is needed")
    return x, width


def _table(x: Tensor, numbers: Floats, rows: int, width: int, what: str) -> Array:
    """Numbers as a matrix of the type of x.

    Args:
        what: operator and numbers, with {} for how many these are.
    """
    if len(numbers) != rows * width:
        raise ModelError(f"{what.format(len(numbers))} and not {rows} times {width}")
    return np.asarray(numbers, x.dtype.numpy).reshape(rows, width)


def _kernel(x: Tensor, vectors: Array, kind: str, params: Floats) -> Tensor:
    """The kernel of each row of x[N, C] with each of vectors[V, C]: [N, V]."""
    if len(params or (0, 0, 0)) != 3:
        raise ModelError(f"a support vector machine with kernel_params {params}, and three are needed")
    gamma, offset, degree = params or (0.0, 0.0, 0.0)
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


@composite("SVMRegressor", DOMAIN, floats=False)
def svm_regressor(
    x: Tensor, *, coefficients: Floats = (), kernel_params: Floats = (), kernel_type: str = "LINEAR",
    n_supports: int = 0, one_class: int = 0, post_transform: str = "NONE", rho: Floats = (),
    support_vectors: Floats = (),
) -> Tensor:  # fmt: skip
    """The kernels with the support vectors, weighted and shifted: [N, 1] in f32; with `one_class` its sign, 1 or -1.

    Without support vectors it is linear in the features.
    """
    x, width = _features(x, "SVMRegressor")
    if len(rho) != 1:
        raise ModelError(f"SVMRegressor with {len(rho)} rho values, where one is needed")
    terms = x
    if n_supports > 0:
        vectors = _table(x, support_vectors, n_supports, width, "SVMRegressor with {} numbers in support vectors")
        terms = _kernel(x, vectors, kernel_type, kernel_params)
    column = _table(x, coefficients, n_supports if n_supports > 0 else width, 1, "SVMRegressor with {} coefficients")
    out = _linear(terms, column, np.asarray(rho, x.dtype.numpy))
    if one_class:
        out = where(out > 0, out.constant(1.0), -1.0)
    return transformed(out, post_transform).cast(F32)


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


def _probabilities(source: SourceNode, scores: Tensor, slopes: Floats, offsets: Floats, classes: int) -> Tensor:
    """The probability of each class, from the scores of pairs and a logistic function for each of them (J. Platt)."""
    pairs = classes * (classes - 1) // 2
    if len(slopes) != pairs or len(offsets) != pairs:
        raise ModelError(
            f"SVMClassifier of {pairs} pairs with {len(slopes)} prob_a and {len(offsets)} prob_b"
            ", where each pair needs one of each"
        )
    factors, terms = (scores.constant(-np.asarray(v, scores.dtype.numpy)) for v in (slopes, offsets))
    chances = sigmoid(scores * factors + terms).cast(F32)
    between = clip(chances, low=1e-7, high=1 - 1e-7)
    made = emit(source, Couple(classes), [between.value], Partial(F32, (scores.shape[0], const(classes))))
    return Tensor(source.builder, made[0])


@composite("SVMClassifier", DOMAIN, floats=False)
def svm_classifier(
    source: SourceNode, x: Tensor, *, classlabels_ints: Ints = (), classlabels_strings: tuple[str, ...] = (),
    coefficients: Floats = (), kernel_params: Floats = (), kernel_type: str = "LINEAR", post_transform: str = "NONE",
    prob_a: Floats = (), prob_b: Floats = (), rho: Floats = (), support_vectors: Floats = (),
    vectors_per_class: Ints = (),
) -> list[Tensor]:  # fmt: skip
    """The label of each row, and scores in f32: of each pair of classes, or of each class without support vectors.

    With `prob_a` and `prob_b`, which turn the score of a pair into a probability, they are the classes' probabilities.
    With support vectors each pair votes for one of its classes, and the first with the most votes is the label. The one
    score s of two classes is given as -s and s. As ONNX's reference has it, two classes whose coefficients are all
    positive have the second label once a vote or score reaches a half.
    """
    if classlabels_strings:
        made = named(REGISTRY[DOMAIN, "SVMClassifier"], source, "classlabels_ints")
        return [Tensor(source.builder, v) for v in made]
    x, width = _features(x, "SVMClassifier")
    labels, counts, classes = classlabels_ints, list(vectors_per_class), len(classlabels_ints)
    what = f"SVMClassifier with {classes} labels, {len(rho)} rho values and {counts} vectors"
    if not labels or not rho or any(c < 0 for c in counts):
        raise ModelError(f"{what}, where labels and rho are needed, and counts of 0 or more")
    shift = np.asarray(rho, x.dtype.numpy)
    if sum(counts):
        if len(counts) != classes or classes < 2 or len(rho) != classes * (classes - 1) // 2:
            raise ModelError(f"{what}, where each class needs a number of vectors, and each pair of classes a rho")
        own = _table(x, coefficients, classes - 1, sum(counts), "SVMClassifier with {} coefficients")
        vectors = _table(x, support_vectors, sum(counts), width, "SVMClassifier with {} numbers in support vectors")
        table, votes, before = _pairs(counts, own)
        scores = _linear(_kernel(x, vectors, kernel_type, kernel_params), table, shift)
        standing = _linear((scores > 0).cast(x.dtype), votes, before)
        if prob_a:
            scores = _probabilities(source, scores, prob_a, prob_b, classes)
    else:
        own = _table(x, coefficients, classes, width, "SVMClassifier with {} coefficients")
        scores = standing = _linear(x, own.T, shift[:1])
    label = _label(standing, list(labels), len(rho) == 1, not prob_a and min(coefficients) >= 0)
    if scores.size(1) == 1 and classes == 2 and post_transform != "PROBIT":
        scores = concat(-scores, scores, axis=1)
    return [label, transformed(scores, post_transform).cast(F32)]


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
