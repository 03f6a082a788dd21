"""Calls in the functions of users' operators, ``ops.clip(x, 0, 6)``, as nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import onnx

from ..base.errors import did_you_mean
from ..expr import DType, Expr, as_int, const
from ..graph import Builder, Value
from ..ops import REGISTRY
from ..ops.core.compose import apply
from ..ops.core.custom import named_operators
from ..ops.core.tensor import OPSET
from . import schemas
from .model import SourceOp

OPSETS = {"": OPSET}  # whose meaning of ONNX's operators counts; of those that came later, their first definition


def node_of(
    builder: Builder, domain: str, name: str, operands: Sequence[Any], attributes: Mapping[str, Any], outputs: int
) -> tuple[SourceOp, list[Value | None]]:
    """The node that a call stands for, and its operands.

    Args:
        name: name of the operator, in snake case.
        outputs: how many results are wanted; 0 for those that it always has.

    Raises:
        AttributeError: no operator is called so.
        TypeError: an operand is of a kind that no constant is made of.
    """
    names = _names(domain)
    if name not in names:
        raise AttributeError(f"no operator is called as {name}(){did_you_mean(name, sorted(names))}")
    op_type = names[name]
    version = max(OPSETS.get(domain, 1), schemas.first_version(domain, op_type))
    schema = schemas.schema_of(op_type, domain, version)
    values = [_value(builder, schema, k, operands) for k in range(len(operands))]
    count = outputs or (max(1, schema.min_output) if schema is not None else 1)
    given = tuple(str(k) if v is not None else "" for k, v in enumerate(values))
    plain = {key: v.onnx if isinstance(v, DType) else v for key, v in attributes.items()}
    return SourceOp(op_type, domain, builder.name, given, tuple(map(str, range(count))), plain), values


@cache
def _names(domain: str) -> dict[str, str]:
    """ONNX's names of the operators of a domain by what functions call them."""
    known = {name for d, name in REGISTRY if d == domain}
    known |= {s.name for s in onnx.defs.get_all_schemas() if s.domain == domain and schemas.is_function(s)}
    return named_operators(sorted(known))


def _value(builder: Builder, schema: onnx.defs.OpSchema | None, k: int, operands: Sequence[Any]) -> Value | None:
    """Operand k of a call; what is no tensor becomes a constant."""
    given = operands[k]
    if given is None or isinstance(given, Value):
        return given
    if isinstance(given, np.ndarray):
        return builder.constant(given)
    if isinstance(given, list | tuple):
        if all(isinstance(e, Expr) or type(e) is int for e in given):
            return _sizes(builder, given)
        return builder.constant(np.asarray(given, _number_type(schema, k, operands, given)))
    if isinstance(given, Expr):
        return _sizes(builder, [given], scalar=True)
    if isinstance(given, bool | int | float | np.generic):
        return builder.constant(np.asarray(given, _number_type(schema, k, operands, given)))
    raise TypeError(f"operand {k} is {given!r}, of which no constant is made")


def _number_type(schema: onnx.defs.OpSchema | None, k: int, operands: Sequence[Any], given: Any) -> Any:
    """The element type of a number: that of a tensor that must be of the same, or else the one that Python's means."""
    tensors = {i: v for i, v in enumerate(operands) if isinstance(v, Value)}
    if schema is not None:
        formal: Any = schema.inputs
        wanted = [formal[min(i, len(formal) - 1)].type_str for i in range(len(operands))]
        tensors = {i: v for i, v in tensors.items() if wanted[i] == wanted[k]}
    if tensors:
        return next(iter(tensors.values())).dtype.numpy
    dtype = np.asarray(given).dtype
    return np.dtype(np.float32) if dtype == np.float64 else dtype


def _sizes(builder: Builder, sizes: Sequence[Expr | int], scalar: bool = False) -> Value:
    """Sizes as a tensor of i64."""
    known = [e if isinstance(e, int) else as_int(e) for e in sizes]
    if None not in known:
        return builder.constant(np.asarray(known[0] if scalar else known, np.int64))
    starts = [e if isinstance(e, Expr) else const(e) for e in sizes]
    parts = [apply(builder, "Range", start=e, step=const(1), count=const(1)) for e in starts]
    whole = parts[0] if len(parts) == 1 else apply(builder, "Concat", *parts, axis=0)
    return apply(builder, "Reshape", whole, shape=()) if scalar else whole
