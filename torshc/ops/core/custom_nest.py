"""Operators that users declare by a formula over elements: ``ops.nest``.

    @ops.nest("Swish2", "com.example")
    def swish2(x, *, alpha: float = 1.0):
        return x * ops.sigmoid(alpha * x)

    @ops.nest("LogMeanExp", "com.example", combine="add", finish=lambda total, count: ops.log(total / count))
    def log_mean_exp(x):
        return ops.exp(x)

Without `combine` it is an element of the result from one of each operand, which broadcast. With it, the formula gives
what is accumulated over the dimensions that a node names as ONNX's reductions do, by `axes` and `keepdims`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import MISSING, dataclass
from typing import Any, ClassVar, TypeVar

from ...base.errors import ModelError
from ...expr import Expr, acc
from ...graph import TensorType, Value
from ..math.reduce import Reduce
from .axes import axes_operand, known_axes
from .base import Constraints, Inputs, axis_of
from .custom import Custom, Reference, call_operator, checked_results, declare_operator, reading
from .pointwise import PointwiseFunction, compute
from .scalar import Scalar, element
from .source import SourceNode, Unsupported
from .tensor import Tensor

COMBINE = ("add", "mul", "max", "min")
F = TypeVar("F", bound=Callable[..., Any])
Finish = Callable[[Scalar, Scalar], Scalar]


class CustomPointwise(PointwiseFunction, Custom):
    """Base of the operators that are a formula of one element of each operand."""

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        with reading(cls, source):
            return checked_results(cls, source, super().read(source))


@dataclass(frozen=True)
class CustomReduction(Reduce, Custom):
    """Base of the operators that accumulate a formula over dimensions.

    Class attributes:
        formula: what is accumulated for an element.
        finish: the result from what was accumulated and how many elements; None where that is it.
    """

    formula: ClassVar[Callable[..., Scalar]]
    finish: ClassVar[Finish | None]

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        x = source.required(0)
        given = source.fields(cls)
        if lacking := [name for name, value in cls.defaults.items() if value is MISSING and name not in given]:
            raise ModelError(f"{source.op_type} lacks its attribute {lacking[0]!r}")
        axes = known_axes(axes_operand(source) or ())
        if axes is None:
            raise Unsupported(f"{source.op_type} over axes that are known only at run time")
        chosen = tuple(sorted({axis_of(a, x.type.rank) for a in axes})) or tuple(range(x.type.rank))
        op = cls(**{**given, "axes": chosen})
        with reading(cls, source):
            return checked_results(cls, source, source.emit(op, [x]))

    def infer(self, inputs: Inputs, constraints: Constraints) -> list[TensorType]:
        found = super().infer(inputs, constraints)
        wanted = compute(found[0].dtype)
        made = self.last(self.term(Scalar(acc("x", wanted))), acc("n", wanted)).dtype
        if made is not wanted:
            raise ModelError(f"{self.name} of {found[0].dtype!r} gives {made!r}, where it has to be {wanted!r}")
        return found

    def term(self, x: Scalar) -> Scalar:
        return type(self).formula(x, **{name: getattr(self, name) for name in self.defaults})

    def last(self, total: Scalar, count: Expr) -> Scalar:
        finish = type(self).finish
        return total if finish is None else finish(total, element(count, total.dtype))


def nest(
    name: str, domain: str, *, combine: str = "", finish: Finish | None = None, reference: Reference | None = None
) -> Callable[[F], Callable[..., Any]]:
    """Function decorator: declare the operator that a formula over elements computes.

    Args:
        name, domain: of the operator in models.
        combine: how elements are accumulated: "add", "mul", "max" or "min"; empty for none.
        finish: the result from the accumulated value and the number of elements.
        reference: the same in NumPy, of arrays and of attributes as keywords; `verify` compares with it.
    """
    if combine and combine not in COMBINE:
        raise ValueError(f"{name} cannot combine by {combine!r}; one of {', '.join(COMBINE)}")
    if finish is not None and not combine:
        raise ValueError(f"{name} has nothing to finish: say how elements are accumulated, with combine=")
    if finish is not None:
        _demand_two_parameters(name, finish)

    def declare(python: F) -> Callable[..., Any]:
        base: type[Custom] = CustomReduction if combine else CustomPointwise
        more = {"combine": combine, "formula": staticmethod(python)} if combine else {}
        if combine:
            more["finish"] = staticmethod(finish) if finish is not None else None
        declare_operator(python, name, domain, "nest", base, reference, **more)
        cls: type[Custom] = python.__operator__  # type: ignore[attr-defined]

        @functools.wraps(python)
        def applied(*operands: Tensor | Scalar | float, **attributes: Any) -> Any:
            if any(isinstance(v, Scalar) for v in operands):
                return python(*operands, **attributes)
            return call_operator(cls, operands, 1, attributes)

        return applied

    return declare


def _demand_two_parameters(name: str, finish: Finish) -> None:
    try:
        inspect.signature(finish).bind(None, None)
    except TypeError as error:
        raise ValueError(
            f"finish= of {name} has to take two things, the accumulated value and the number of elements"
        ) from error
