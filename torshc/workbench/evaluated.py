"""Users' operators for onnx's reference evaluator, which judges compiled models by them.

Where an operator has a reference of its own in NumPy, that computes it. A composite or a nest without one is computed
from its definition, operator by operator, on NumPy's arrays. A kernel without one cannot be judged.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, helper
from onnx.reference.op_run import OpRun

from ..base.errors import RunError
from ..formats import import_model
from ..formats.onnx_reader import read_attribute
from ..formats.schemas import exists
from ..graph import Node
from ..ops import CustomOperators
from ..ops.core.custom import Custom, label_of, reference_results
from ..ops.core.custom_kernel import CustomKernel
from ..passes.interpret import Array, run_graph, run_node


def evaluator_operators(proto: ModelProto, custom: CustomOperators) -> list[type[OpRun]]:
    """Classes for the evaluator of those operators of a model that a user declares."""
    functions = {(f.domain, f.name) for f in proto.functions}
    nodes = [*_nodes(proto.graph), *(n for f in proto.functions for n in f.node)]
    kinds = dict.fromkeys((n.domain, n.op_type) for n in nodes)
    opsets = {o.domain: o.version for o in proto.opset_import}
    found = (custom.find(*kind) for kind in kinds if kind not in functions and not exists(*kind))
    return [_make_evaluated(cls, custom, opsets) for cls in found if cls is not None]


def _nodes(graph: GraphProto) -> Iterator[NodeProto]:
    for node in graph.node:
        yield node
        for a in node.attribute:
            for inner in (a.g, *a.graphs):
                yield from _nodes(inner)


def _make_evaluated(cls: type[Custom], custom: CustomOperators, opsets: Mapping[str, int]) -> type[OpRun]:
    """An operator as the evaluator knows operators: a class of its name."""

    def run(self: OpRun, *arrays: Any, **_: Any) -> tuple[Any, ...]:
        node: NodeProto = self.onnx_node
        if cls.declared.reference is None:
            return tuple(_by_definition(cls, node, arrays, custom, opsets))
        given = {**cls.defaults, **{a.name: read_attribute(a) for a in node.attribute}}
        return tuple(reference_results(cls, arrays, given))[: len(node.output)]

    return type(cls.name, (OpRun,), {"op_domain": cls.domain, "_run": run})


def _by_definition(
    cls: type[Custom], node: NodeProto, arrays: tuple[Any, ...], custom: CustomOperators, opsets: Mapping[str, int]
) -> list[Any]:
    """The results of a node, from the operators that it is made of.

    Raises:
        RunError: it is a kernel, or one of these is a kernel without a reference.
    """
    if issubclass(cls, CustomKernel):
        raise _unjudged_error(cls, node.name)
    given = {name: np.asarray(a) for name, a in zip(node.input, arrays, strict=False) if name}
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for name, a in given.items()
    ]
    outputs = [helper.make_empty_tensor_value_info(name) for name in node.output if name]
    versions = [helper.make_opsetid(domain, version) for domain, version in opsets.items()]
    model = helper.make_model(helper.make_graph([node], "node", inputs, outputs), opset_imports=versions)
    graph = import_model(model.SerializeToString(), custom=custom)
    found = dict(
        zip(graph.output_names, run_graph(graph, {v: given[v.name] for v in graph.inputs}, run_judged), strict=True)
    )
    return [found.get(name) for name in node.output]


def run_judged(node: Node, arrays: Sequence[Array | None]) -> list[Array]:
    """The results of a node of a graph: of a kernel by its reference."""
    if not isinstance(node.op, CustomKernel):
        return run_node(node, arrays)
    if node.op.declared.reference is None:
        raise _unjudged_error(type(node.op), node.name)
    return reference_results(type(node.op), arrays, node.op.given)


def _unjudged_error(cls: type[Custom], node: str) -> RunError:
    return RunError(
        f"nothing says what node {node!r} ({label_of(cls)}) should compute",
        f"declare it with reference=, a function in NumPy, at {cls.declared.place}",
    )
