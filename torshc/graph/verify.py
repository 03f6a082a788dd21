"""The verifier: what must hold of a graph after every pass."""

from __future__ import annotations

from ..base.errors import InternalError, ModelError
from .graph import Graph, Node, TensorType, Value
from .text import node_text

_Signature = tuple[object, tuple[TensorType | None, ...], tuple[TensorType, ...]]


class Verifier:
    """Checks graphs; it remembers the nodes whose types it inferred before, so that a second look is cheap."""

    def __init__(self) -> None:
        self._inferred: dict[Node, _Signature] = {}

    def check(self, graph: Graph, origin: str) -> None:
        """Check a graph.

        Args:
            origin: the pass that ran last, for the message.

        Raises:
            InternalError: naming the pass, the fault and the nodes around it.
        """
        made: set[Value] = set()
        for v in graph.inputs:
            if v in made:
                raise InternalError(f"{origin}: input {v!r} appears twice")
            if v.producer is not None or v.const is not None:
                raise InternalError(f"{origin}: input {v!r} is also made by something else")
            made.add(v)
        seen: set[Node] = set()
        for node in graph.nodes:
            if node in seen:
                raise _wrong(origin, graph, node, "the node appears twice")
            seen.add(node)
            self._operands(graph, node, made, origin)
            self._results(graph, node, made, origin)
            self._types(graph, node, origin)
        for v in graph.outputs:
            if v.const is None and v not in made:
                raise InternalError(f"{origin}: output {v!r} is not made by any node")
        if len(graph.outputs) != len(graph.output_names):
            raise InternalError(f"{origin}: {len(graph.outputs)} outputs but {len(graph.output_names)} names")

    def _operands(self, graph: Graph, node: Node, made: set[Value], origin: str) -> None:
        for v in node.operands:
            if v.const is None and v not in made:
                raise _wrong(origin, graph, node, f"operand {v!r} is not made before it is read")
            if v.const is not None and (v.const.shape != v.type.static_shape or v.const.dtype != v.dtype.numpy):
                raise _wrong(origin, graph, node, f"constant {v!r} is {v.const.dtype}{v.const.shape}, not {v.type!r}")

    def _results(self, graph: Graph, node: Node, made: set[Value], origin: str) -> None:
        if not node.outputs:
            raise _wrong(origin, graph, node, "the node has no results")
        for v in node.outputs:
            if v in made or v.const is not None:
                raise _wrong(origin, graph, node, f"result {v!r} is made twice")
            if v.producer is not node:
                raise _wrong(origin, graph, node, f"result {v!r} names another producer")
            if v.layout is not None and sorted(v.layout) != list(range(v.type.rank)):
                raise _wrong(origin, graph, node, f"layout {v.layout} of {v!r} is not a permutation of its dimensions")
            made.add(v)

    def _types(self, graph: Graph, node: Node, origin: str) -> None:
        results = tuple(v.type for v in node.outputs)
        signature = (node.op, tuple(None if v is None else v.type for v in node.inputs), results)
        known = self._inferred.get(node)
        if known is not None and known[0] is signature[0] and known[1:] == signature[1:]:
            return
        try:
            inferred = node.op.infer(node.inputs, [])
        except ModelError as e:
            raise _wrong(origin, graph, node, f"its operands do not fit: {e}") from e
        if len(inferred) < len(results) or any(a != b for a, b in zip(inferred, results, strict=False)):
            raise _wrong(origin, graph, node, f"its results are {list(results)}, but must be {inferred}")
        self._inferred[node] = signature


def verify(graph: Graph, origin: str = "verify") -> None:
    """Check a graph once.

    Raises:
        InternalError: naming the fault and the nodes around it.
    """
    Verifier().check(graph, origin)


def _wrong(origin: str, graph: Graph, node: Node, what: str) -> InternalError:
    near = [v.producer for v in node.operands if v.producer is not None]
    near.append(node)
    near.extend(n for n in graph.nodes if any(v in node.outputs for v in n.operands))
    shown = "\n".join(f"    {'->' if n is node else '  '} {node_text(n)}" for n in dict.fromkeys(near))
    return InternalError(f"{origin}: {node.describe()}: {what}\n{shown}", "this is a fault of torshc; please report it")
