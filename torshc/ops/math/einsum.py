"""Einstein summation: two operands become a matrix product, everything else one loop nest."""

from __future__ import annotations

import string
from dataclasses import dataclass
from typing import ClassVar

from ...base.errors import ModelError
from ...expr import Expr, const, product
from ...graph import Node, Shape, TensorType, Value
from ..core.base import (
    Constraints,
    Index,
    Inputs,
    LoopNest,
    Op,
    Read,
    broadcast,
    broadcast_index,
    need,
    operator,
    same_dim,
)
from ..core.gradient import Backward, NoGradient, gradient_of, spread, sum_to
from ..core.scalar import Scalar
from ..core.source import SourceNode
from ..core.tensor import Tensor, apply_op

_ELLIPSIS = string.digits + string.punctuation  # what the dimensions of an ellipsis are called


@operator()
@dataclass(frozen=True)
class Einsum(Op):
    """Products of elements of the operands, summed over every label that the output lacks.

    Attributes:
        labels: for each operand, a character for each dimension; the ellipsis is written out as characters that are no
            letters.
        result: labels of the output.
    """

    family: ClassVar[str] = "nest"
    labels: tuple[str, ...] = ()
    result: str = ""

    def sizes(self, inputs: Inputs, constraints: Constraints) -> dict[str, Expr]:
        """Extent of each label; a dimension of 1 broadcasts where the ellipsis stands."""
        dims: dict[str, list[Expr]] = {}
        for k, (v, labels) in enumerate(zip(inputs, self.labels, strict=True)):
            for label, d in zip(labels, need(v, f"input {k} of Einsum").shape, strict=True):
                dims.setdefault(label, []).append(d)
        return {label: self._extent(label, found, constraints) for label, found in dims.items()}

    def _extent(self, label: str, dims: list[Expr], constraints: Constraints) -> Expr:
        if label in _ELLIPSIS:
            return broadcast([(d,) for d in dims], constraints)[0]
        first = dims[0]
        for d in dims[1:]:
            first = same_dim(first, d, constraints, f"label {label!r} of Einsum")
        return first

    def infer(self, inputs: Inputs, constraints: Constraints) -> list[TensorType]:
        first = need(inputs[0], "input 0 of Einsum")
        if any(v is None or v.dtype is not first.dtype for v in inputs):
            raise ModelError("Einsum of operands of different types, which have to be of one type")
        sizes = self.sizes(inputs, constraints)
        return [TensorType(first.dtype, tuple(sizes[label] for label in self.result))]

    def nest(self, node: Node, output: int) -> LoopNest:
        sizes = self.sizes(node.inputs, [])
        summed = [label for label in sizes if label not in self.result]

        def body(at: Index, inner: Index, read: Read) -> Scalar:
            place = {**dict(zip(self.result, at, strict=True)), **dict(zip(summed, inner, strict=True))}
            total: Scalar | None = None
            for k, (v, labels) in enumerate(zip(node.operands, self.labels, strict=True)):
                value = read(k, broadcast_index(tuple(place[label] for label in labels), v.shape))
                total = value if total is None else total * value
            assert total is not None
            return total

        return LoopNest(body, tuple(sizes[label] for label in summed), "add" if summed else "")

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        operands = [source.required(k) for k in range(len(source.inputs))]
        op = cls(*expand_labels(str(source.attribute("equation", "")), [v.type.rank for v in operands]))
        source.fields(cls)
        product = as_matmul(op, [Tensor(source.builder, v) for v in operands])
        return [product.value] if product is not None else source.emit(op, operands)


def expand_labels(equation: str, ranks: list[int]) -> tuple[tuple[str, ...], str]:
    """The labels of the operands and of the output of an equation, its ellipses written out.

    Raises:
        ModelError: when the equation does not fit the ranks.
    """
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks):
        raise ModelError(f"Einsum {equation!r} of {len(ranks)} operands, where it names {len(terms)}")
    widths = [rank - len(t) + 3 for t, rank in zip(terms, ranks, strict=True) if "..." in t]
    width = max(widths, default=0)
    dots = _ELLIPSIS[:width]
    if width > len(_ELLIPSIS) or min(widths, default=0) < 0:
        raise ModelError(f"Einsum {equation!r} of operands of ranks {ranks}, which do not fit its labels")
    labels = tuple(
        t.replace("...", dots[len(dots) - (rank - len(t) + 3) :]) for t, rank in zip(terms, ranks, strict=True)
    )
    letters = "".join(t.replace("...", "", 1) for t in terms)
    if any(len(t) != rank for t, rank in zip(labels, ranks, strict=True)) or not (letters + "a").isalpha():
        raise ModelError(f"Einsum {equation!r} of operands of ranks {ranks}, which do not fit its labels")
    if not arrow:
        right = "..." + "".join(sorted(c for c in set(letters) if letters.count(c) == 1))
    result = right.replace("...", dots)
    if len(set(result)) != len(result) or set(result) - set("".join(labels)):
        raise ModelError(f"Einsum {equation!r}: its output does not follow from its operands")
    return labels, result


def as_matmul(op: Einsum, operands: list[Tensor]) -> Tensor | None:
    """The summation as a product of matrices, or None when it is not one."""
    if len(operands) != 2 or any(len(set(labels)) != len(labels) for labels in op.labels):
        return None
    left, right = op.labels
    sizes = op.sizes([v.value for v in operands], [])
    if any(
        d is not sizes[c] for v, t in zip(operands, op.labels, strict=True) for c, d in zip(t, v.shape, strict=True)
    ):
        return None  # an ellipsis that broadcasts, or symbols that must be compared at run time
    shared = [c for c in left if c in right]
    batch, inner = [c for c in shared if c in op.result], [c for c in shared if c not in op.result]
    rows, columns = [c for c in left if c not in shared], [c for c in right if c not in shared]
    if not inner or any(c not in op.result for c in rows + columns):
        return None

    def grouped(v: Tensor, labels: str, groups: list[list[str]]) -> Tensor:
        v = _reorder(v, [labels.index(c) for g in (batch, *groups) for c in g])
        return _reshape_to(v, (*(sizes[c] for c in batch), *(product(sizes[c] for c in g) for g in groups)))

    matmul = grouped(operands[0], left, [rows, inner]) @ grouped(operands[1], right, [inner, columns])
    made = [*batch, *rows, *columns]
    return _reorder(_reshape_to(matmul, tuple(sizes[c] for c in made)), [made.index(c) for c in op.result])


def _reorder(v: Tensor, order: list[int]) -> Tensor:
    return v if order == list(range(len(order))) else v.transpose(*order)


def _reshape_to(v: Tensor, shape: Shape) -> Tensor:
    return v if shape == v.shape else v.reshape(*shape)


@gradient_of(Einsum)
def _einsum_gradient(op: Einsum, at: Backward) -> list[Tensor | None]:
    """The summation of the gradient with the other operands to the labels of this one; what those lack is spread."""
    operands = [at.operand(k) for k in range(len(at.inputs))]
    found: list[Tensor | None] = []
    for k, (x, labels) in enumerate(zip(operands, op.labels, strict=True)):
        if len(set(labels)) < len(labels):
            raise NoGradient(f"the label {max(labels, key=labels.count)!r} appears twice in an operand")
        rest = [*operands[:k], *operands[k + 1 :]]
        terms = (op.result, *op.labels[:k], *op.labels[k + 1 :])
        sizes = op.sizes([v.value for v in operands], [])
        have = "".join(c for c in labels if any(c in term for term in terms))
        made = apply_op(Einsum(terms, have), at.gradient, *rest) if at.wants(k) else None
        if made is not None:
            lined = made.reshape(*(sizes[c] if c in have else const(1) for c in labels))
            made = sum_to(spread(lined, tuple(sizes[c] for c in labels)), x.shape)
        found.append(made)
    return found
