"""The files that a model consists of, for a build tool's list of dependencies."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError
from onnx import (
    AttributeProto,
    GraphProto,
    ModelProto,
    NodeProto,
    SparseTensorProto,
    TensorProto,
    load_external_data_for_model,
    numpy_helper,
)

from ..arrays import SLACK, Archive, TooLarge
from ..errors import ConfigError, ModelError, did_you_mean
from ..expr import STRING, from_onnx
from . import _is_json_graph
from .contents import read_file
from .external import locate
from .json_format import parse
from .model import Misfit
from .onnx_reader import _binary
from .onnx_wire import strip


def model_files(path: str | Path) -> list[Path]:
    """The model file itself, then the files beside it that hold its weights, each once.

    Raises:
        ModelError: when the model cannot be read, or names a file that cannot be used.
    """
    path = Path(path)
    data = read_file(path)
    try:
        names = list(_json_names(parse(bytes(data)))) if _is_json_graph(data) else list(_onnx_names(data))
        return [path, *(locate(path.parent, name) for name in dict.fromkeys(names))]
    except Misfit as e:
        raise ModelError(f"{path}: {e.message}", e.remedy) from e


def _json_names(document: dict[str, Any]) -> Iterator[str]:
    tensors = list(document.get("weights", {}).values())
    for node in document.get("nodes", []):
        tensors += node.get("attributes", {}).values()
    return (t["file"] for t in tensors if isinstance(t, dict) and "file" in t)


def _onnx_names(data: memoryview) -> Iterator[str]:
    model = ModelProto()
    try:
        model.ParseFromString(strip(_binary(data)).message)
    except (DecodeError, UnicodeDecodeError) as e:
        raise Misfit("the file is truncated, or is not an ONNX model") from e
    yield from _graph_names(model.graph)
    for function in model.functions:
        yield from _node_names(function.node)


def _graph_names(graph: GraphProto) -> Iterator[str]:
    for tensor in (*graph.initializer, *_dense(graph.sparse_initializer)):
        yield from _tensor_names(tensor)
    yield from _node_names(graph.node)


def _node_names(nodes: Any) -> Iterator[str]:
    for node in nodes:
        assert isinstance(node, NodeProto)
        for a in node.attribute:
            yield from _attribute_names(a)


def _attribute_names(a: AttributeProto) -> Iterator[str]:
    for tensor in (a.t, *a.tensors, *_dense((a.sparse_tensor, *a.sparse_tensors))):
        yield from _tensor_names(tensor)
    for graph in (a.g, *a.graphs):
        yield from _graph_names(graph)


def _dense(tensors: Iterable[SparseTensorProto]) -> Iterator[TensorProto]:
    """What sparse tensors consist of."""
    for tensor in tensors:
        yield from (tensor.values, tensor.indices)


def _tensor_names(tensor: TensorProto) -> Iterator[str]:
    if tensor.data_location == TensorProto.EXTERNAL:
        yield from (e.value for e in tensor.external_data if e.key == "location")


def onnx_proto(path: str | Path) -> ModelProto | None:
    """An ONNX model with its external data as protobuf, whichever form the file has; None for a JSON graph.

    Raises:
        ModelError: when the file cannot be read.
    """
    path = Path(path)
    data = read_file(path)
    if _is_json_graph(data):
        return None
    model = ModelProto()
    try:
        model.ParseFromString(_binary(data))
        load_external_data_for_model(model, str(path.parent))
    except Misfit as e:
        raise ModelError(f"{path}: {e.message}", e.remedy) from e
    except (DecodeError, UnicodeDecodeError) as e:
        raise ModelError(f"{path}: the file is truncated, or is not an ONNX model") from e
    return model


def with_weights(path: str | Path, new: Archive) -> bytes:
    """An ONNX model with other weights, as bytes.

    Args:
        new: arrays by the names of the model's initializers.

    Raises:
        ConfigError: with all names that the model does not have, and arrays of another type or shape.
        ModelError: the model cannot be read, or is no ONNX model, or larger than 2 GiB.
        ValueError: an array is damaged.
    """
    proto = onnx_proto(path)
    if proto is None:
        raise ModelError(f"{path} is a JSON graph, whose weights come with it", "pass a graph with the new weights")
    known = {tensor.name: tensor for tensor in proto.graph.initializer}
    problems = []
    for name in new.names:
        if name not in known:
            problems.append(f"the model has no weight {name!r}{did_you_mean(name, list(known))}")
            continue
        old = known[name]
        try:
            tensor = numpy_helper.from_array(new.array(name, _most(old)), name)
        except TooLarge as error:
            problems.append(f"weight {error}; expected {_kind(old)}")
            continue
        if (old.data_type, list(old.dims)) != (tensor.data_type, list(tensor.dims)):
            problems.append(f"weight {name!r} is {_kind(tensor)}; expected {_kind(old)}")
        old.CopyFrom(tensor)
    if problems:
        raise ConfigError("\n".join(problems), "name and shape the weights as the model does")
    try:
        return bytes(proto.SerializeToString())
    except Exception as error:  # protobuf's own, which has changed its class more than once
        raise ModelError(f"{path} is larger than 2 GiB", "pass a model with the new weights") from error


def _most(tensor: TensorProto) -> int | None:
    """Bytes that an array in place of a tensor may have; None where they are not known."""
    dtype = from_onnx(tensor.data_type)
    return None if dtype is None or dtype is STRING else max(math.prod(tensor.dims) * dtype.numpy.itemsize, SLACK)


def _kind(tensor: TensorProto) -> str:
    return f"{TensorProto.DataType.Name(tensor.data_type).lower()}{list(tensor.dims)}"
