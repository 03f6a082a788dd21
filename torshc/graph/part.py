"""A part of a graph as a graph of its own."""

from __future__ import annotations

from collections.abc import Container, Sequence

from .graph import Graph, Node, Value


def copy_part(
    graph: Graph, nodes: Sequence[Node], outputs: Sequence[Value], unknown: Container[Value] = ()
) -> tuple[Graph, list[Value]]:
    """Copy some nodes of a graph, which stays as it is.

    Copies of nodes and of their results keep their numbers, and constants are shared. What is demanded of a result is
    demanded of its copy.

    Args:
        nodes: the nodes to copy, in topological order.
        outputs: results of these nodes, which become the outputs of the copy.
        unknown: values whose contents may not be used, as they are symbols that are not bound yet.

    Returns:
        The copy, and the values of the graph that its inputs stand for.
    """
    part = graph.child(graph.name)
    made = {v for n in nodes for v in n.outputs}
    read = list(dict.fromkeys(v for n in nodes for v in n.operands if v not in made and v.const is None))
    copies = {v: part.new_value(v.type, v.name, None if v in unknown else v.data) for v in read}
    part.inputs = list(copies.values())
    for node in nodes:
        copies |= {v: v.copy(known=v not in unknown) for v in node.outputs}
        inputs = tuple(copies.get(v, v) if v is not None else None for v in node.inputs)
        part.nodes.append(node.copy(inputs, [copies[v] for v in node.outputs]))
    hidden = zip(graph.outputs[len(graph.results) :], graph.demands, strict=True)
    part.faults = {copies[v]: what for v, what in hidden if v in made}
    part.declare_outputs([copies[v] for v in outputs], [v.name for v in outputs])
    return part, read
