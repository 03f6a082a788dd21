"""ONNX's operators as functions of tensors, by their names in snake case; pointwise ones of elements, too.

    from ..core.functions import gelu, reduce_mean
    gelu(x, approximate="tanh")

Keywords are the fields of the operator's class, also where a node of ONNX has an operand for them: `clip(x, low=0.0)`,
`reduce_mean(x, axes=(1,))`. Numbers are operands of pointwise operators alone. A name is looked up when the function is
called, as families import one another; a test finds names that no operator has.
"""

from __future__ import annotations

import dataclasses
import re
from functools import cache, partial
from typing import Any, overload

from ...base.errors import did_you_mean
from ...expr import Expr
from . import scalar
from .base import REGISTRY
from .pointwise import Function, Pointwise, function_of
from .scalar import Scalar
from .tensor import Operand, Tensor, apply_named


@overload
def where(condition: Tensor, x: Operand, y: Operand) -> Tensor: ...


@overload
def where(condition: Scalar | Expr, x: Scalar | float, y: Scalar | float) -> Scalar: ...


def where(condition: Tensor | Scalar | Expr, x: Any, y: Any) -> Tensor | Scalar:
    """x where the condition holds, else y; a number has the other one's type."""
    if not isinstance(condition, Tensor):
        return scalar.where(condition, x, y)
    like = x if isinstance(x, Tensor) else y
    if not isinstance(like, Tensor):
        raise TypeError("where() of two numbers: one of them has to be a tensor, as x.constant(0.0)")
    x, y = (v if isinstance(v, Tensor) else like.constant(v) for v in (x, y))
    return apply_named("Where", condition, x, y)


def __getattr__(name: str) -> Function:
    if name.startswith(("_", "pytest")):  # what Python, and pytest, ask any module for
        raise AttributeError(name)
    return partial(_call, name)


def _call(name: str, *operands: Any, **attributes: Any) -> Any:
    names = _names()
    if name not in names:
        raise AttributeError(f"no operator is called as {name}(){did_you_mean(name, sorted(names))}")
    cls = REGISTRY["", names[name]]
    if not issubclass(cls, Pointwise) and any(not isinstance(v, Tensor | Scalar | None) for v in operands):
        fields = ", ".join(f"{f.name}=" for f in dataclasses.fields(cls)) or "none"
        raise TypeError(
            f"{name}() with a number among its operands; what it takes beside tensors are keywords: {fields}"
        )
    return function_of(cls)(*operands, **attributes)


@cache
def _names() -> dict[str, str]:
    """Operators by their names in snake case, as found when all families are imported."""
    return {snake_case(name): name for domain, name in REGISTRY if not domain}


def snake_case(name: str) -> str:
    """IsNaN as is_nan, GatherND as gather_nd, ReduceL2 as reduce_l2."""
    name = name.replace("NaN", "Nan")
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()
