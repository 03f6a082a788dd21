"""What ONNX models say themselves about several devices (IR 11): configurations, stages, and how tensors are split."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from google.protobuf.message import DecodeError
from onnx import GraphProto, ModelProto, NodeDeviceConfigurationProto, NodeProto, ShardingSpecProto

from ..base.errors import ModelError
from . import _is_json_graph
from .contents import read_file
from .model import Misfit, truncated
from .onnx_reader import _binary
from .onnx_wire import strip


@dataclass(frozen=True)
class SplitAxis:
    """How an axis of a tensor is split, as the model says it.

    Attributes:
        axis: which; negative from the end.
        blocks: lengths that the axis is the product of, outermost first, None where it is not known; and how many
            shards each is cut into.
    """

    axis: int
    blocks: tuple[tuple[int | None, int], ...]


@dataclass(frozen=True)
class TensorDevices:
    """How a node has one of its tensors.

    Attributes:
        tensor: its name.
        groups: for each shard in order, the devices that have it; empty where the model says nothing.
        axes: which are split.
    """

    tensor: str
    groups: tuple[tuple[int, ...], ...]
    axes: tuple[SplitAxis, ...]


@dataclass(frozen=True)
class NodeDevices:
    """What one node says for one configuration.

    Attributes:
        what: which node, for messages.
        name: its name.
        outputs: names of what it makes.
        configuration: the name of the configuration.
        stage: the node's stage of a pipeline; None where the model says nothing.
        tensors: how it has its tensors.
        nested: whether it stands in a branch, a loop's body or a function.
    """

    what: str
    name: str
    outputs: tuple[str, ...]
    configuration: str
    stage: int | None
    tensors: tuple[TensorDevices, ...]
    nested: bool


@dataclass(frozen=True)
class ModelDevices:
    """What a model says.

    Attributes:
        configurations: how many devices each has, by name, in order.
        nodes: what nodes say.
    """

    configurations: dict[str, int]
    nodes: tuple[NodeDevices, ...]


def read_devices(source: str | Path | bytes) -> ModelDevices:
    """What an ONNX model says about devices; nothing for other files.

    Raises:
        ModelError: the file is damaged.
    """
    what = "the model" if isinstance(source, bytes) else str(source)
    proto = ModelProto()
    try:
        data = memoryview(source) if isinstance(source, bytes) else read_file(Path(source))
        if _is_json_graph(data):
            return ModelDevices({}, ())
        proto.ParseFromString(strip(_binary(data)).message)
    except Misfit as e:
        raise ModelError(f"{what}: {e.message}", e.remedy) from e
    except (DecodeError, UnicodeDecodeError) as e:
        fault = truncated()
        raise ModelError(f"{what}: {fault.message}", fault.remedy) from e
    found = [*_of_nodes(proto.graph.node, False)]
    for function in proto.functions:
        found += _of_nodes(function.node, True)
    return ModelDevices({c.name: c.num_devices for c in proto.configuration}, tuple(found))


def _of_nodes(nodes: Iterable[NodeProto], nested: bool) -> Iterator[NodeDevices]:
    for k, n in enumerate(nodes):
        what = f"{n.op_type} node {n.name!r}" if n.name else f"{n.op_type} node[{k}]"
        for c in n.device_configurations:
            yield _of_node(n, what, c, nested)
        for inner in _bodies(n):
            yield from _of_nodes(inner.node, True)


def _bodies(n: NodeProto) -> Iterator[GraphProto]:
    for a in n.attribute:
        yield from ([a.g] if a.HasField("g") else [])
        yield from a.graphs


def _of_node(n: NodeProto, what: str, c: NodeDeviceConfigurationProto, nested: bool) -> NodeDevices:
    stage = c.pipeline_stage if c.HasField("pipeline_stage") else None
    tensors = tuple(map(_of_tensor, c.sharding_spec))
    return NodeDevices(what, n.name, tuple(n.output), c.configuration_id, stage, tensors, nested)


def _of_tensor(spec: ShardingSpecProto) -> TensorDevices:
    groups = {entry.key: tuple(entry.value) for entry in spec.index_to_device_group_map}
    axes = [
        SplitAxis(
            d.axis, tuple((s.dim_value if s.HasField("dim_value") else None, s.num_shards) for s in d.simple_sharding)
        )
        for d in spec.sharded_dim
    ]
    return TensorDevices(spec.tensor_name, tuple(groups.get(d, (d,)) for d in spec.device), tuple(axes))
