"""The files that a model consists of, and models whose weights come from all of them."""

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
    numpy_helper,
)

from ..base.arrays import SLACK, Archive, TooLarge
from ..base.errors import ConfigError, ModelError, did_you_mean
from ..base.safetensors import Safetensors
from ..expr import STRING, from_onnx
from . import _is_json_graph
from .contents import read_file
from .external import Folder, locate
from .json_format import parse
from .model import Misfit, truncated
from .onnx_reader import _binary
from .onnx_tensor import Tensors
from .onnx_wire import strip


def model_files(path: str | Path) -> list[Path]:
    """The model file itself, then the files beside it that hold its weights, each once.

    Raises:
        ModelError: when the model cannot be read, or names a file that cannot be used.
    """
    path = Path(path)
    return [path, *locate_all(path, external_names(path))]


def external_names(path: Path) -> list[str]:
    """What a model calls the files beside it that hold its weights, each once. Nothing but its own file decides it.

    Raises:
        ModelError: when the model cannot be read.
    """
    data = read_file(path)
    try:
        return list(dict.fromkeys(_json_names(parse(bytes(data))) if _is_json_graph(data) else _onnx_names(data)))
    except Misfit as e:
        raise ModelError(f"{path}: {e.message}", e.remedy) from e


def locate_all(path: Path, names: Iterable[str]) -> list[Path]:
    """Where the files lie that a model at this path names.

    Raises:
        ModelError: when one of them cannot be used.
    """
    try:
        return [locate(path.parent, name) for name in names]
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
        raise truncated() from e
    return (e.value for _, tensor in _external(model) for e in tensor.external_data if e.key == "location")


def _external(model: ModelProto) -> Iterator[tuple[str, TensorProto]]:
    """The tensors of a model whose data lie in other files, and what each is."""
    found = [*_of_graph(model.graph)]
    for function in model.functions:
        found += _of_nodes(function.node)
        found += _of_attributes(function.attribute_proto, f"function {function.name!r}")
    return ((what, tensor) for what, tensor in found if tensor.data_location == TensorProto.EXTERNAL)


def _of_graph(graph: GraphProto) -> Iterator[tuple[str, TensorProto]]:
    for tensor in (*graph.initializer, *_dense(graph.sparse_initializer)):
        yield f"initializer {tensor.name!r}", tensor
    yield from _of_nodes(graph.node)


def _of_nodes(nodes: Iterable[NodeProto]) -> Iterator[tuple[str, TensorProto]]:
    for node in nodes:
        name = node.name or ", ".join(node.output)
        yield from _of_attributes(node.attribute, f"node {name!r} ({node.op_type})")


def _of_attributes(attributes: Iterable[AttributeProto], owner: str) -> Iterator[tuple[str, TensorProto]]:
    for a in attributes:
        for tensor in (a.t, *a.tensors, *_dense((a.sparse_tensor, *a.sparse_tensors))):
            yield f"{owner}: attribute {a.name!r}", tensor
        for graph in (a.g, *a.graphs):
            yield from _of_graph(graph)


def _dense(tensors: Iterable[SparseTensorProto]) -> Iterator[TensorProto]:
    """What sparse tensors consist of."""
    for tensor in tensors:
        yield from (tensor.values, tensor.indices)


def onnx_proto(path: str | Path) -> ModelProto | None:
    """An ONNX model with its external data as protobuf, whichever form the file has; None for a JSON graph.

    Raises:
        ModelError: when the file, or one that it names, cannot be used.
        ResourceError: the system refuses memory or to open a file.
    """
    path = Path(path)
    data = read_file(path)
    if _is_json_graph(data):
        return None
    model = ModelProto()
    try:
        binary = _binary(data)
        strip(binary)  # refuses names that are not UTF-8, which protobuf hands through as bytes
        model.ParseFromString(binary)
        _embed_external(model, Folder(path.parent))
    except Misfit as e:
        raise ModelError(f"{path}: {e.message}", e.remedy) from e
    except (DecodeError, UnicodeDecodeError) as e:
        fault = truncated()
        raise ModelError(f"{path}: {fault.message}", fault.remedy) from e
    return model


def _embed_external(model: ModelProto, folder: Folder) -> None:
    """Put the data of other files into the tensors, checked as in a compilation."""
    tensors = Tensors([], folder)
    for what, tensor in _external(model):
        try:
            tensors.embed(tensor)
        except Misfit as e:
            raise Misfit(f"{what}: {e.message}", e.remedy) from e


def one_piece(model: ModelProto, path: str | Path, remedy: str) -> bytes:
    """A model as bytes.

    Raises:
        ModelError: protobuf cannot hold so much in one piece; names the file that it was made from.
    """
    try:
        return bytes(model.SerializeToString())
    except Exception as error:  # protobuf's own, which has changed its class more than once
        raise ModelError(f"{path} is larger than 2 GiB with its weights", remedy) from error


def with_weights(path: str | Path, new: Archive | Safetensors) -> bytes:
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
    return one_piece(proto, path, "pass a model with the new weights")


def _most(tensor: TensorProto) -> int | None:
    """Bytes that an array in place of a tensor may have; None where they are not known."""
    dtype = from_onnx(tensor.data_type)
    return None if dtype is None or dtype is STRING else max(math.prod(tensor.dims) * dtype.numpy.itemsize, SLACK)


def _kind(tensor: TensorProto) -> str:
    return f"{TensorProto.DataType.Name(tensor.data_type).lower()}{list(tensor.dims)}"
