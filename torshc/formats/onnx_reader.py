"""Reads ONNX files (binary, text, protobuf-JSON) as source models."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnx
from google.protobuf import json_format
from google.protobuf.message import DecodeError
from onnx import AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto

from ..base.errors import ModelError
from .contents import read_file
from .external import Folder
from .model import (
    Array,
    Misfit,
    Reference,
    SourceFunction,
    SourceGraph,
    SourceModel,
    SourceOp,
    TypeDecl,
    Unusable,
    truncated,
)
from .onnx_tensor import Tensors, declared
from .onnx_wire import DEPTH, strip
from .repeats import difference


def read_model(path: str | Path | bytes, data: memoryview | None = None) -> SourceModel:
    """Read an ONNX model without looking at its operators.

    Args:
        data: the file's bytes, if they are at hand.

    Raises:
        ModelError: when it is no ONNX model, or is damaged.
    """
    file = "the model" if isinstance(path, bytes) else str(path)
    folder = None if isinstance(path, bytes) else Path(path).parent
    try:
        if data is None:
            data = memoryview(path) if isinstance(path, bytes) else read_file(Path(path))
        return _Reader(file, _binary(data), Folder(folder)).model()
    except Misfit as e:
        raise ModelError(f"{file}: {e.message}", e.remedy) from e


def _binary(data: memoryview) -> memoryview:
    """The binary form of a model in any of the three forms."""
    if not len(data):
        raise Misfit("the model is empty")
    head = bytes(data[:4096]).lstrip(b" \t\r\n\xef\xbb\xbf")
    if head.startswith(b"{"):
        try:
            return memoryview(json_format.Parse(bytes(data), ModelProto()).SerializeToString())
        except (json_format.ParseError, UnicodeDecodeError, RecursionError, DecodeError) as e:
            raise Misfit(f"not an ONNX model in JSON: {e}") from e
    if head.startswith((b"<", b"//", b"#")):
        return memoryview(_parse_text(bytes(data)).SerializeToString())
    return data


_BRACKETS = re.compile(rb'"(?:\\.|[^"\\])*"|#[^\n]*|([({[])|([)}\]])', re.DOTALL)  # what is not in texts and comments


def _parse_text(text: bytes) -> ModelProto:
    """A model in text form. ONNX's parser calls itself for each bracket within another, until the stack ends."""
    depth = 0
    for found in _BRACKETS.finditer(text):
        depth = max(depth + bool(found[1]) - bool(found[2]), 0)
        if depth > DEPTH:
            raise Misfit("the file nests its brackets too deeply")
    try:
        return onnx.parser.parse_model(text.decode())
    except (onnx.parser.ParseError, ValueError, IndexError, RuntimeError) as e:  # the last three: of its numbers
        raise Misfit(f"not an ONNX model in text form: {e}") from e


class _Reader:
    def __init__(self, file: str, data: memoryview, folder: Folder) -> None:
        stripped = strip(data)
        self.file = file
        self.proto = ModelProto()
        try:
            self.proto.ParseFromString(stripped.message)
        except (DecodeError, UnicodeDecodeError) as e:
            raise truncated() from e
        self.tensors = Tensors(stripped.chunks, folder)

    def model(self) -> SourceModel:
        m = self.proto
        if not m.HasField("graph") or not (m.graph.node or m.graph.output):
            raise Misfit("the file holds no graph; is it an ONNX model?")
        if not m.opset_import:
            raise Misfit("the model does not say which operator set it uses")
        return SourceModel(
            self.file,
            self.graph(m.graph),
            _opsets(m.opset_import),
            {(_domain(f.domain), f.name): self.function(f) for f in m.functions},
            self.stated,
        )

    def graph(self, g: GraphProto) -> SourceGraph:
        constants: dict[str, Array | Unusable] = {}
        for t in g.initializer:
            self._initializer(constants, t.name, lambda t=t: self.tensors.array(t))
        for s in g.sparse_initializer:
            self._initializer(constants, s.values.name, lambda s=s: self.tensors.sparse(s))
        return SourceGraph(
            g.name,
            [(v.name, declared(v.type)) for v in g.input],
            constants,
            [self.node(n, k) for k, n in enumerate(g.node)],
            [(v.name, declared(v.type)) for v in g.output],
        )

    def _initializer(self, constants: dict[str, Array | Unusable], name: str, make: Any) -> None:
        try:
            array = make()
        except Misfit as e:
            raise Misfit(f"initializer {name!r}: {e.message}", e.remedy) from e
        if name in constants and (how := difference(constants[name], array)):
            raise Misfit(f"two initializers are named {name!r}, {how}")
        constants[name] = array

    def node(self, n: NodeProto, k: int) -> SourceOp:
        op = SourceOp(n.op_type, _domain(n.domain), n.name, tuple(n.input), tuple(n.output), {}, f"node[{k}]")
        attributes: dict[str, Any] = {}
        for a in n.attribute:
            if a.name in attributes:
                raise Misfit(f"{op.describe()} has attribute {a.name!r} twice")
            try:
                attributes[a.name] = self.attribute(a)
            except Misfit as e:
                raise Misfit(f"{op.describe()}: attribute {a.name!r}: {e.message}", e.remedy) from e
        op.attributes = attributes
        return op

    def attribute(self, a: AttributeProto) -> Any:
        """An attribute's value; text that is not UTF-8 stays bytes."""
        kind = AttributeProto.AttributeType.Name(a.type) if a.type in AttributeProto.AttributeType.values() else ""
        if a.ref_attr_name:
            return Reference(a.ref_attr_name)
        match kind:
            case "FLOAT" | "INT":
                return a.f if kind == "FLOAT" else a.i
            case "FLOATS" | "INTS":
                return tuple(a.floats if kind == "FLOATS" else a.ints)
            case "STRING":
                return _text(a.s)
            case "STRINGS":
                return tuple(_text(s) for s in a.strings)
            case "TENSOR":
                return self.tensors.array(a.t)
            case "TENSORS":
                return tuple(self.tensors.array(t) for t in a.tensors)
            case "SPARSE_TENSOR":
                return self.tensors.sparse(a.sparse_tensor)
            case "GRAPH":
                return self.graph(a.g)
            case "GRAPHS":
                return tuple(self.graph(g) for g in a.graphs)
            case "TYPE_PROTO":
                return declared(a.tp)
        return Unusable(f"an attribute of kind {kind or a.type}")

    def function(self, f: FunctionProto) -> SourceFunction:
        return SourceFunction(
            tuple(f.input),
            tuple(f.output),
            [self.node(n, k) for k, n in enumerate(f.node)],
            _opsets(f.opset_import),
            {a.name: self.attribute(a) for a in f.attribute_proto},
        )

    def stated(self) -> dict[str, TypeDecl]:
        """The types that the model states. ONNX's shape inference knows more, but damaged models can crash it."""
        return {v.name: declared(v.type) for v in (*self.proto.graph.value_info, *self.proto.graph.output)}


def read_function(proto: FunctionProto) -> SourceFunction:
    """A function that is not part of a model: the body by which ONNX defines an operator."""
    return _detached_reader().function(proto)


def read_attribute(proto: AttributeProto) -> Any:
    """The value of an attribute that is not part of a model."""
    return _detached_reader().attribute(proto)


def _detached_reader() -> _Reader:
    return _Reader("", memoryview(b""), Folder(None))


def _domain(name: str) -> str:
    return "" if name == "ai.onnx" else name


def _opsets(entries: Sequence[onnx.OperatorSetIdProto]) -> dict[str, int]:
    return {_domain(e.domain): int(e.version) for e in entries}


def _text(s: bytes) -> str | bytes:
    try:
        return s.decode()
    except UnicodeDecodeError:
        return s
