"""Constants that appear in a model twice under one name, as tools that merge and split graphs leave them."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx.defs import get_schema

from ..ops.tensor.generate import array_of
from .model import Array, Misfit, SourceGraph, SourceOp, Unusable, fits


def difference(a: Array | Unusable, b: Array | Unusable) -> str:
    """How two constants differ, for messages; empty when type, shape and bits are the same."""
    if isinstance(a, Unusable) or isinstance(b, Unusable):
        return "" if a == b else "and one of them cannot be read"
    types = [f"{x.dtype}{list(x.shape)}" for x in (a, b)]
    if types[0] != types[1]:
        return f"of types {types[0]} and {types[1]}"
    equal = np.array_equal(a, b) if a.dtype == object else np.array_equal(_bits(a), _bits(b))
    return "" if equal else f"with different contents, both {types[0]}"


def _bits(a: Array) -> Array:
    return np.ascontiguousarray(a).reshape(-1).view(np.uint8)


def without_repeats(graph: SourceGraph) -> list[SourceOp]:
    """The nodes, without each Constant of a value that an initializer or an earlier Constant of its name has too.

    Raises:
        Misfit: when the values differ.
    """
    known: dict[str, SourceOp | None] = dict.fromkeys(graph.constants)
    kept: list[SourceOp] = []
    for op in graph.nodes:
        name = op.outputs[0] if _is_constant(op) else ""
        if not name or name not in known:
            known |= {name: op} if name else {}
            kept.append(op)
            continue
        before = known[name]
        value = graph.constants[name] if before is None else array_of(before.attributes)
        if how := difference(value, array_of(op.attributes)):
            maker = f"initializer {name!r}" if before is None else before.describe()
            raise Misfit(f"{maker} and {op.describe()} both produce {name!r}, {how}")
    return kept


def _is_constant(op: SourceOp) -> bool:
    """Whether a node is a Constant that has a value; what is wrong with another is for others to say."""
    if op.op_type != "Constant" or op.domain or len(op.outputs) != 1 or len(op.attributes) != 1:
        return False
    specs: Any = get_schema("Constant").attributes  # onnx's stubs lack the members of AttrType
    ((name, value),) = op.attributes.items()
    return name in specs and fits(value, specs[name].type.name)
