"""Parts of an ONNX model as models of their own: what :mod:`torshc.workbench.bisect` compiles instead of the whole."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, ValueInfoProto, helper

from ..base.errors import ModelError
from .files import one_piece, onnx_proto

Array = npt.NDArray[Any]


class Cuttable:
    """An ONNX model, of which parts can be taken.

    Attributes:
        nodes: those of its main graph, in topological order.
        made: for each value that a node makes, the node's number.

    Raises:
        ModelError: the file cannot be read, or holds a JSON graph.
    """

    def __init__(self, path: Path) -> None:
        found = onnx_proto(path)
        if found is None:
            raise ModelError(f"{path} is a JSON graph, of which no parts can be taken", "give an ONNX model")
        self.path = path
        self.proto: ModelProto = found
        self.nodes: Sequence[NodeProto] = found.graph.node
        self.made = {o: k for k, node in enumerate(self.nodes) for o in node.output if o}

    def describe(self, number: int) -> str:
        """A node for messages."""
        node = self.nodes[number]
        return f"{node.name or next(filter(None, node.output), '')!r} ({node.op_type})"

    def needed(self, values: Collection[str], given: Collection[str] = ()) -> list[int]:
        """Numbers of the nodes that some values need, in order, when others are given."""
        found: set[int] = set()
        pending = [v for v in values if v not in given]
        while pending:
            k = self.made.get(pending.pop())
            if k is not None and k not in found:
                found.add(k)
                pending += [v for v in reads(self.nodes[k]) if v not in given]
        return sorted(found)

    def behind(self, values: Collection[str]) -> list[str]:
        """Some values and those that they are computed from, as far as nodes make them, in the order of the nodes."""
        numbers = self.needed(values)
        read = {v for k in numbers for v in reads(self.nodes[k])} | set(values)
        return [o for k in numbers for o in self.nodes[k].output if o in read]

    def border(self, value: str, steps: int) -> set[str]:
        """What the part within some steps above a value reads from the rest; what has no operands is always inside."""
        near, edge = {value}, {value}
        for _ in range(steps + 1):
            edge = {v for u in edge if u in self.made for v in reads(self.nodes[self.made[u]])} - near
            near |= edge
        return {v for v in edge if v in self.made and reads(self.nodes[self.made[v]])}

    def part(self, outputs: Sequence[str], given: Mapping[str, Array] | None = None) -> ModelProto:
        """The nodes that some values need, as a model whose outputs they are.

        Args:
            given: values that become inputs, with arrays of their type and shape.
        """
        graph, given = self.proto.graph, given or {}
        nodes = [self.nodes[k] for k in self.needed(outputs, given)]
        read = {v for n in nodes for v in reads(n)} | set(outputs)
        made = ModelProto()
        made.CopyFrom(self.proto)
        for field in ("node", "input", "output", "initializer", "sparse_initializer", "value_info"):
            made.graph.ClearField(field)
        made.graph.node.extend(nodes)
        made.graph.input.extend(v for v in graph.input if v.name in read and v.name not in given)
        made.graph.input.extend(
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
            for n, a in given.items()
            if n in read
        )
        made.graph.initializer.extend(w for w in graph.initializer if w.name in read)
        made.graph.sparse_initializer.extend(w for w in graph.sparse_initializer if w.values.name in read)
        known = {v.name: v for v in (*graph.value_info, *graph.output)}
        made.graph.output.extend(known.get(n) or ValueInfoProto(name=n) for n in outputs)
        return made

    def part_bytes(self, part: ModelProto) -> bytes:
        """A part as a file's bytes.

        Raises:
            ModelError: it is larger than 2 GiB.
        """
        return one_piece(part, self.path, "take a model with fewer layers")


def reads(node: NodeProto) -> list[str]:
    """Names that a node reads, those that its subgraphs take from outside included, each once."""
    inner = [v for a in node.attribute for g in _graphs(a) for v in _free(g)]
    return [*dict.fromkeys(v for v in (*node.input, *inner) if v)]


def _graphs(attribute: AttributeProto) -> Iterator[GraphProto]:
    if attribute.HasField("g"):
        yield attribute.g
    yield from attribute.graphs


def _free(graph: GraphProto) -> Iterator[str]:
    own = {v.name for v in graph.input} | {w.name for w in graph.initializer}
    own |= {o for n in graph.node for o in n.output}
    yield from (v for n in graph.node for v in reads(n) if v not in own)
    yield from (o.name for o in graph.output if o.name not in own)


def is_array(value: Any) -> bool:
    """Whether a value can be an input of a part: a tensor of numbers."""
    return isinstance(value, np.ndarray) and value.dtype.kind not in "OUST"
