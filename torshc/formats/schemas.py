"""ONNX's own schemas: whether a node has the right attributes and number of operands, and what defines it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, get_type_hints

import numpy as np
import onnx
from onnx import FunctionProto, helper, numpy_helper
from onnx.defs import OpSchema, get_schema, onnx_opset_version

from ..base.errors import ConfigError, did_you_mean
from ..expr import MAP, OPTIONAL, SEQUENCE, DType, as_int
from ..graph import Partial, Value
from ..ops import REGISTRY, CustomOperators, Op, Unsupported
from ..ops.core.custom import label_of
from ..ops.microsoft.base import DOMAIN as MICROSOFT
from . import differentiate, legacy, quantized_lstm
from .model import Misfit, SourceFunction, SourceGraph, SourceOp, Unusable, fits
from .onnx_reader import read_attribute, read_function

NEWEST = onnx_opset_version()

_CALLS_OUT = (("", "ATen"), ("org.pytorch.aten", "ATen"))  # operators that stand for one of another tool


@lru_cache(maxsize=1024)
def schema_of(op_type: str, domain: str, version: int) -> OpSchema | None:
    """The schema of an operator at a version of its domain, or None."""
    try:
        return get_schema(op_type, version, domain)
    except onnx.defs.SchemaError:
        return None


@lru_cache(maxsize=1)
def _versions() -> dict[tuple[str, str], list[int]]:
    """The versions of its domain in which each operator was defined or changed, in order."""
    found: dict[tuple[str, str], list[int]] = {}
    for s in sorted(onnx.defs.get_all_schemas_with_history(), key=lambda s: s.since_version):
        found.setdefault((s.domain, s.name), []).append(s.since_version)
    return found


def meant(op: SourceOp, version: int) -> int:
    """The version of its domain by which a node is read.

    Tools write operators into models of opsets before those that define them, as ONNX Runtime does LayerNormalization;
    they mean the first definition. An operator with an experimental form has that before. They write attributes so,
    too, as ONNX Runtime's quantiser does the axis of DequantizeLinear into opset 10: the first version is meant that
    knows the most attributes of the node and takes its operands.
    """
    key = (op.domain, op.op_type)
    if key in REGISTRY and REGISTRY[key].experimental:
        return version
    version = max(version, first_version(*key))
    if op.attributes.keys() <= _attributes(*key, version):
        return version
    later = (v for v in _versions().get(key, ()) if v > version and _takes(op, v))
    return max((version, *later), key=lambda v: len(op.attributes.keys() & _attributes(*key, v)))


@lru_cache(maxsize=1024)
def _attributes(domain: str, op_type: str, version: int) -> frozenset[str]:
    """The names of an operator's attributes at a version of its domain."""
    schema = schema_of(op_type, domain, version)
    return frozenset(schema.attributes if schema is not None else ())


def _takes(op: SourceOp, version: int) -> bool:
    """Whether a version of an operator takes as many operands as a node has."""
    schema = schema_of(op.op_type, op.domain, version)
    return schema is not None and schema.min_input <= len(op.inputs) <= schema.max_input


def first_version(domain: str, op_type: str) -> int:
    """The version of its domain in which an operator was defined first; 0 where ONNX does not define it."""
    return _versions().get((domain, op_type), [0])[0]


_CONTROL = frozenset({"If", "Loop", "Scan"})  # the importer's own


def exists(domain: str, op_type: str) -> bool:
    """Whether torshc itself has an operator."""
    key = (domain, op_type)
    own = key in REGISTRY or key == differentiate.OPERATOR or (not domain and op_type in _CONTROL)
    return own or is_function(schema_of(op_type, domain, 1 << 30))


def require_new(custom: CustomOperators) -> None:
    """Refuse files that declare what torshc has.

    Raises:
        ConfigError: naming the first such operator.
    """
    for (domain, name), cls in custom.of_files.items():
        if exists(domain, name):
            raise ConfigError(
                f"{cls.declared.place}: torshc has an operator {label_of(cls)} of its own",
                "declare yours under another name or domain, and use that in the model",
            )


def check(op: SourceOp, schema: OpSchema, lenient: bool) -> tuple[dict[str, Any], list[str]]:
    """The attributes of a node that its schema knows, and what is to be said about the others.

    Args:
        lenient: the node comes from JSON, which is written for us: take an int for a float and a list for an array,
            as JSON cannot distinguish them, and refuse an unknown attribute, which is a misspelt one.

    Raises:
        Misfit: for an attribute that is missing or of the wrong kind, or a wrong number of operands.
    """
    out: dict[str, Any] = {}
    unknown: list[str] = []
    specs: Any = schema.attributes  # onnx's stubs lack the members of AttrType
    for name, value in op.attributes.items():
        if name not in specs:
            hint = did_you_mean(name, sorted(specs))
            text = f"{op.op_type} of opset {schema.since_version} has no attribute {name!r}"
            if lenient:
                raise Misfit(text + hint)
            unknown.append(f"{text}, which is ignored{hint}")
            continue
        kind = specs[name].type.name
        out[name] = _coerce(value, kind) if lenient else value
        if not fits(out[name], kind):
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
    formal: Any = schema.inputs
    for k, operand in enumerate(op.inputs):
        spec = formal[min(k, len(formal) - 1)]
        if not operand and spec.option.name != "Optional":
            raise Misfit(f"{op.op_type} needs its input {k}, {spec.name!r}")
    return out, unknown


def check_types(op: SourceOp, schema: OpSchema, operands: Sequence[Value | None]) -> None:
    """Check the operands' element types against a schema.

    Raises:
        Misfit: for a type that the operator does not take, or two types of operands that must have the same.
    """
    first: dict[str, Value] = {}
    for k, v in enumerate(operands):
        spec: Any = schema.inputs[min(k, len(schema.inputs) - 1)]
        if v is None:
            continue
        name = _type_text(v.type.partial)
        if not any(t.startswith(name) for t in spec.types):
            raise Misfit(f"input {k} of {op.op_type} of opset {schema.since_version} cannot be {v.dtype!r}")
        if not spec.is_homogeneous or v.dtype is OPTIONAL:
            continue
        other = first.setdefault(spec.type_str, v)
        if other.dtype is not v.dtype:
            raise Misfit(f"{op.op_type} of different types, {other.type!r} and {v.type!r}")


def _type_text(p: Partial) -> str:
    """ONNX's name of a type; the beginning of it where a sequence or an optional has nothing in it yet."""
    if p.dtype is MAP and p.inner and p.inner.inner:
        return f"map({_element_text(p.inner.dtype)}, {_element_text(p.inner.inner.dtype)})"
    if p.dtype not in (SEQUENCE, OPTIONAL):
        return f"tensor({_element_text(p.dtype)})"
    outside = "seq(" if p.dtype is SEQUENCE else "optional("
    if p.inner is None:
        return outside
    inside = _type_text(p.inner)
    return f"{outside}{inside})" if inside.endswith(")") else outside + inside


def _element_text(dtype: DType) -> str:
    """ONNX's name of an element type in its schemas, as "float8e5m2"."""
    name: str = onnx.TensorProto.DataType.Name(dtype.onnx)
    return name.lower()


_FIELD_KINDS: dict[Any, str] = {
    bool: "FLAG", int: "INT", float: "FLOAT", str: "STRING", tuple[int, ...]: "INTS", tuple[float, ...]: "FLOATS",
    tuple[str, ...]: "STRINGS",
}  # fmt: skip


def _field_kinds(cls: type[Op]) -> dict[str, str]:
    """The kinds of an operator's attributes in a file, "" for those that only the compiler gives it."""
    if cls.experimental:
        return {name: _FIELD_KINDS[type(value)] for name, value in cls.experimental.items()}
    hints = get_type_hints(cls)
    return {f.name: _FIELD_KINDS.get(hints[f.name], "") for f in dataclasses.fields(cls)}


def check_fields(op: SourceOp, cls: type[Op], lenient: bool) -> dict[str, Any]:
    """The attributes of a node of an operator without a schema, checked against the operator's fields.

    Args:
        lenient: as :func:`check` takes it.

    Raises:
        Misfit: for an attribute that is unknown or of the wrong kind.
    """
    kinds = _field_kinds(cls)
    out: dict[str, Any] = {}
    for name, value in op.attributes.items():
        if name not in kinds:
            raise Misfit(f"{op.op_type} has no attribute {name!r}{did_you_mean(name, sorted(kinds))}")
        if kinds[name] == "FLAG" and isinstance(value, int) and value in (0, 1):
            out[name] = bool(value)
            continue
        out[name] = _coerce(value, kinds[name]) if lenient else value
        if not kinds[name] or not fits(out[name], kinds[name]) or isinstance(value, bytes):
            wanted = kinds[name].lower() or "left to torshc"
            raise Misfit(f"attribute {name!r} of {op.op_type} must be {wanted}")
    return out


def _coerce(value: Any, kind: str) -> Any:
    if isinstance(value, list) and kind.endswith("S"):
        return tuple(_coerce(v, kind[:-1]) for v in value)
    if kind == "FLOAT" and isinstance(value, int):
        return float(value)
    if kind == "INT" and isinstance(value, bool):
        return int(value)
    return value


def unknown(op: SourceOp, custom: CustomOperators) -> str:
    """Why there is no such operator."""
    if schema_of(op.op_type, op.domain, NEWEST if not op.domain else 1 << 30) is not None:
        return f"{op.op_type} is not supported yet; declare it in Python and name that file with --ops"
    if (op.domain, op.op_type) in _CALLS_OUT:
        called = op.attributes.get("operator", "")
        return f"ATen calls PyTorch's own operator {called!r}; export the model with operators of ONNX only"
    if op.op_type == "GRUUnit" and not op.domain:
        return "GRUUnit was experimental, and ONNX does not say what it computes; export the model with GRU"
    names = [*(n for d, n in REGISTRY if d == op.domain), *custom.names(op.domain)]
    domain = f"domain {op.domain}" if op.domain else "ONNX's own domain"
    found = f"no operator {op.op_type} in {domain}{did_you_mean(op.op_type, names)}"
    if op.domain.startswith("com.microsoft"):
        return (
            f"{found}; write the model with operators of ONNX, as ONNX Runtime's optimizer leaves them at level 'basic'"
            ", or declare it in Python and name that file with --ops"
        )
    if op.domain:
        return (
            f"{found}; declare it in Python and name that file with --ops, or add it to the model as a function of "
            "ONNX's operators (onnx.helper.make_function)"
        )
    return found


def expansion(op: SourceOp, version: int, operands: Sequence[Value | None]) -> SourceFunction | None:
    """The function by which ONNX, or we, define an operator, or None when it is a primitive.

    Args:
        operands: on whose types the function may depend.
    """
    if (op.domain, op.op_type) == (MICROSOFT, "DynamicQuantizeLSTM"):
        return quantized_lstm.function_of(op, operands)
    schema: Any = schema_of(op.op_type, op.domain, version)  # onnx's stubs lack some of these members
    if schema is None:
        return None
    if schema.has_function:
        proto = schema.function_body
    elif schema.has_context_dependent_function:
        proto = _in_context(schema, op, version, operands)
    else:
        return None
    function = read_function(proto)
    function.opsets = {op.domain: version, **function.opsets}
    return function


def _in_context(schema: Any, op: SourceOp, version: int, operands: Sequence[Value | None]) -> FunctionProto:
    """The function for these attributes and types of operands."""
    if any(isinstance(v, (SourceGraph, Unusable)) for v in op.attributes.values()):
        raise Unsupported(f"{op.op_type} with a graph as an attribute")
    attributes: dict[str, Any] = {
        k: numpy_helper.from_array(v) if isinstance(v, np.ndarray) else v
        for k, v in op.attributes.items()
        if not _is_empty(v)
    }
    node = helper.make_node(op.op_type, op.inputs, op.outputs, domain=op.domain, **attributes)
    types = [_state_type(v) for v in operands]
    channels = types[0].tensor_type.shape.dim[1:2] if types else []
    depthwise = op.op_type == "CausalConvWithState" and any(not d.HasField("dim_value") for d in channels)
    if depthwise:  # its function states the channels as a number of groups
        channels[0].dim_value = 1
    bodies = sorted(v for v in schema.context_dependent_function_opset_versions if v <= version)
    if not bodies:
        raise Unsupported(f"{op.op_type} of opset {version}")
    try:
        text = schema.get_context_dependent_function_with_opset_version(
            bodies[-1], node.SerializeToString(), [t.SerializeToString() for t in types]
        )
    except (RuntimeError, ValueError, onnx.defs.SchemaError) as e:
        raise Unsupported(f"{op.op_type} with these operands: {e}") from e
    proto = FunctionProto()
    proto.ParseFromString(text)
    if not proto.node:
        raise Unsupported(f"{op.op_type} with these operands")
    for inner in proto.node:
        if depthwise and inner.op_type == "Conv":
            inner.CopyFrom(helper.make_node("DepthwiseConv", inner.input, inner.output, inner.name, domain="torshc"))
    return proto


def _state_type(v: Value | None) -> onnx.TypeProto:
    """The type of an operand as onnx writes it."""
    if v is None:
        return onnx.TypeProto()
    dims = [as_int(d) if as_int(d) is not None else repr(d) for d in v.shape]
    return helper.make_tensor_type_proto(v.dtype.onnx, dims)


def _is_empty(value: Any) -> bool:
    """Whether an attribute is an empty list, whose kind a NodeProto could not say."""
    return isinstance(value, tuple) and not value


def defaults(op_type: str, domain: str, version: int) -> dict[str, Any]:
    """The default values of an operator's attributes."""
    schema = schema_of(op_type, domain, version)
    found = schema.attributes.items() if schema is not None else ()
    return {name: read_attribute(a.default_value) for name, a in found if a.default_value.type}


def is_legacy(schema: OpSchema, version: int) -> bool:
    """Whether a later definition, by opset 7, has replaced that of an opset before it."""
    if schema.domain or version >= legacy.SETTLED:
        return False
    settled = schema_of(schema.name, "", legacy.SETTLED)
    return settled is None or settled.since_version != schema.since_version


def is_function(schema: OpSchema | None) -> bool:
    """Whether ONNX defines an operator by a function."""
    found: Any = schema
    return found is not None and bool(found.has_function or found.has_context_dependent_function)
