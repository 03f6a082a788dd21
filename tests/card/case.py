"""A case: an ONNX model, what it is fed, and the same in PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

Tensors = Mapping[str, Any]
Peer = Callable[[Any, Tensors], Sequence[Any]]

NUMPY = {"f16": np.float16, "f32": np.float32, "i64": np.int64, "u8": np.uint8}
ONNX = {"f16": TensorProto.FLOAT16, "f32": TensorProto.FLOAT, "i64": TensorProto.INT64, "u8": TensorProto.UINT8}
BYTES = {"f16": 2, "f32": 4, "i64": 8, "u8": 1}


@dataclass(frozen=True)
class Feed:
    """An input: its shape and type; floats are drawn from the normal distribution, integers are zeros."""

    shape: tuple[int, ...]
    dtype: str = "f32"

    @property
    def bytes(self) -> int:
        return int(np.prod(self.shape)) * BYTES[self.dtype]


def unchanged(torch: Any, tensors: Tensors) -> dict[str, Any]:
    """Tensors as they are."""
    return dict(tensors)


def same(torch: Any, tensors: Tensors, outputs: Sequence[Any]) -> Sequence[Any]:
    """Outputs as they are."""
    return outputs


@dataclass(frozen=True)
class Case:
    """A line of a table.

    Attributes:
        name: what the table calls it.
        make: the model; a function that another process can call.
        feeds: by the model's names.
        peers: the same in PyTorch by the names of its ways, of the feeds and the model's constants; the fastest counts.
        exact: what gives the right outputs for feeds of f64.
        asked: the least that will do: of PyTorch's speed, or of the speed of a copy if bytes are given. 0: nothing.
        flops: additions and multiplications of a run.
        moved: bytes that a run has to read and write.
        precision: torshc's option ``precision``.
        constants: whether peers want the model's constants.
        prepare: what peers get of the constants.
        called: whether calls are timed too, by a line of their own.
        seen: what is compared of the outputs, such as elements where they are indices.
    """

    name: str
    make: Callable[[], onnx.ModelProto]
    feeds: Mapping[str, Feed]
    peers: Mapping[str, Peer]
    exact: Peer
    asked: float = 0.0
    flops: int = 0
    moved: int = 0
    precision: str = "f32"
    constants: bool = False
    prepare: Callable[[Any, Tensors], dict[str, Any]] = unchanged
    called: bool = False
    seen: Callable[[Any, Tensors, Sequence[Any]], Sequence[Any]] = same


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, Feed],
    outputs: Mapping[str, Feed],
    constants: Sequence[onnx.TensorProto] = (),
    opset: int = 23,
) -> onnx.ModelProto:
    """A model of one graph."""
    x, y = (
        [helper.make_tensor_value_info(name, ONNX[f.dtype], f.shape) for name, f in side.items()]
        for side in (inputs, outputs)
    )
    graph = helper.make_graph(list(nodes), "case", x, y, list(constants))
    domains = {n.domain for n in nodes} - {""}
    imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(d, 1) for d in sorted(domains))]
    return helper.make_model(graph, opset_imports=imports)


def cut(shape: Sequence[int], most: int | None) -> tuple[int, ...]:
    """A shape with no dimension above ``most``, for trying a case out."""
    return tuple(shape) if most is None else tuple(min(d, most) for d in shape)
