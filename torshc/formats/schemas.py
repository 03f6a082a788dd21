"""ONNX's own schemas: whether a node has the right attributes and number of operands, and what defines it."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import onnx
from onnx.defs import OpSchema, get_schema, onnx_opset_version

from ..errors import did_you_mean
from ..ops import REGISTRY
from .model import Misfit, SourceFunction, SourceGraph, SourceOp, Sparse, Unusable
from .onnx_reader import read_attribute, read_function

NEWEST = onnx_opset_version()
OLDEST = 7

_KINDS: dict[str, type | tuple[type, ...]] = {
    "FLOAT": float, "INT": int, "STRING": (str, bytes), "TENSOR": (np.ndarray, Unusable), "GRAPH": SourceGraph,
    "SPARSE_TENSOR": (Sparse, Unusable), "TYPE_PROTO": Unusable,
}  # fmt: skip


@lru_cache(maxsize=1024)
def schema_of(op_type: str, domain: str, version: int) -> OpSchema | None:
    """The schema of an operator at a version of its domain, or None."""
    try:
        return get_schema(op_type, version, domain)
    except onnx.defs.SchemaError:
        return None


def check(op: SourceOp, schema: OpSchema, lenient: bool) -> dict[str, Any]:
    """The attributes of a node, checked against its schema.

    Args:
        lenient: take an int for a float and a list for an array, as JSON cannot tell them apart.

    Raises:
        Misfit: for an attribute that is unknown, missing or of the wrong kind, or a wrong number of operands.
    """
    out: dict[str, Any] = {}
    specs: Any = schema.attributes  # onnx's stubs lack the members of AttrType
    for name, value in op.attributes.items():
        if name not in specs:
            hint = did_you_mean(name, sorted(specs))
            raise Misfit(f"{op.op_type} of opset {schema.since_version} has no attribute {name!r}{hint}")
        kind = specs[name].type.name
        out[name] = _coerce(value, kind) if lenient else value
        if not _fits(out[name], kind):
            raise Misfit(f"attribute {name!r} of {op.op_type} must be {kind.lower()}")
    for name, spec in specs.items():
        if spec.required and name not in out:
            raise Misfit(f"{op.op_type} lacks its attribute {name!r}")
    for what, given, low, high in (
        ("inputs", op.inputs, schema.min_input, schema.max_input),
        ("outputs", op.outputs, schema.min_output, schema.max_output),
    ):
        if not low <= len(given) <= high:
            wanted = str(low) if low == high else f"{low} to {high}" if high < 1000 else f"at least {low}"
            raise Misfit(f"{op.op_type} takes {wanted} {what}, and {len(given)} are given")
    return out


def _fits(value: Any, kind: str) -> bool:
    if kind.endswith("S") and kind[:-1] in _KINDS:
        return isinstance(value, tuple) and all(_fits(v, kind[:-1]) for v in value)
    return isinstance(value, _KINDS.get(kind, object)) and not isinstance(value, bool)


def _coerce(value: Any, kind: str) -> Any:
    if isinstance(value, list) and kind.endswith("S"):
        return tuple(_coerce(v, kind[:-1]) for v in value)
    if kind == "FLOAT" and isinstance(value, int):
        return float(value)
    if kind == "INT" and isinstance(value, bool):
        return int(value)
    return value


def unknown(op: SourceOp) -> str:
    """Why there is no such operator."""
    if schema_of(op.op_type, op.domain, NEWEST if not op.domain else 1 << 30) is not None:
        return f"{op.op_type} is not supported yet"
    names = [n for d, n in REGISTRY if d == op.domain]
    domain = f"domain {op.domain}" if op.domain else "ONNX's own domain"
    return f"no operator {op.op_type} in {domain}{did_you_mean(op.op_type, names)}"


@lru_cache(maxsize=256)
def expansion(op_type: str, domain: str, version: int) -> SourceFunction | None:
    """The function by which ONNX defines an operator, or None when it is a primitive."""
    schema: Any = schema_of(op_type, domain, version)  # onnx's stubs lack has_function
    if schema is None or not schema.has_function:
        return None
    proto = schema.function_body
    function = read_function(proto)
    function.opsets = {**{domain: version}, **function.opsets}
    return function


def defaults(op_type: str, domain: str, version: int) -> dict[str, Any]:
    """The default values of an operator's attributes."""
    schema = schema_of(op_type, domain, version)
    found = schema.attributes.items() if schema is not None else ()
    return {name: read_attribute(a.default_value) for name, a in found if a.default_value.type}
