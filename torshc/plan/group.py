"""A fusion group: the nodes that one kernel computes, and why it ends where it does."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import groupby

from ..graph import Builder, Graph, Node, RuleName, Value


@dataclass(frozen=True)
class Boundary:
    """Why a value goes through memory instead of staying inside a kernel.

    Attributes:
        value: the value at the boundary.
        consumer: the node that could have joined.
        reason: a code of :data:`REASONS`.
        rule: the fusion rule that says so, where it is one.
    """

    value: Value
    consumer: Node
    reason: str
    rule: RuleName | None = None


# The words that `explain` prints for the codes of `Fuser._refusal` (fusion.py) and `Permits.refusal`
# (fusion_permissions.py).
REASONS = {
    "reader": "another kernel reads it too",
    "shape": "its reader runs over another shape",
    "axes": "its reader reduces over other axes",
    "size": "the group has reached the size limit",
    "inputs": "the group would read more inputs than the limit",
    "buffers": "their kernel would have more buffers than the target allows",
    "apart": "a rule keeps them apart",
    "rule": "no rule lets them share a kernel",
    "half": "its reader takes the halves, which are in memory for others too",
    "template": "no kernel template computes both",
    "operand": "a heavy kernel reads its operands from memory",
    "heavy": "each is a heavy kernel, or follows one",
    "cycle": "joining them would make a cycle",
    "beside": "its readers compute it from what is stored anyway",
    "states": "their kernel would update more states than the target is fast with",
    "layout": "its reader needs another order in memory",
}


@dataclass(eq=False)
class Group:
    """The nodes of one kernel.

    Attributes:
        id: number in launch order.
        kind: "nest" (no reduction), "row" (reductions) or the family of the heavy anchor.
        nodes: its nodes, in topological order.
        folded: views, and cheap nodes computed again, that it reads through; they may be in several groups.
        anchor: the heavy node, if there is one.
        outputs: values that it writes to memory.
        boundaries: what else could have joined, and why it did not.
        reads: values that it reads from memory.
        rules: the fusion rules by which its nodes came together.
        alias: for an output of a composite node that lowering has expanded, the value that replaces it.
        totals: of the nodes, sums over the pixels of each image of what the anchor's kernel stores, and what they alone
            read. Where no kernel of the anchor adds up what it stores, another one does behind it.
    """

    id: int
    kind: str
    nodes: list[Node]
    anchor: Node | None = None
    folded: list[Node] = field(default_factory=list)
    outputs: list[Value] = field(default_factory=list)
    reads: list[Value] = field(default_factory=list)
    boundaries: list[Boundary] = field(default_factory=list)
    rules: list[RuleName] = field(default_factory=list)
    alias: dict[Value, Value] = field(default_factory=dict)
    totals: list[Node] = field(default_factory=list)

    @property
    def numbers(self) -> list[int]:
        return sorted({n.id for n in (*self.nodes, *self.folded)})

    @property
    def operators(self) -> str:
        """Its operators in order, runs of one counted: ``Conv+Add+Relu``, ``Mul(3)+Sqrt``."""
        runs = ((name, sum(1 for _ in run)) for name, run in groupby(map(operator_of, self.nodes)))
        return "+".join(name if count == 1 else f"{name}({count})" for name, count in runs)


def operator_of(node: Node) -> str:
    """What a node's operator is called: an Identity that is left after the passes copies a value to an output, or to
    another layout."""
    return "copy" if node.op.name == "Identity" else node.op.name


def expand(graph: Graph, nodes: Iterable[Node]) -> tuple[list[Node], dict[Value, Value]]:
    """Replace composite nodes by the simpler ones that they stand for.

    Returns:
        The nodes in topological order, and for each output of a composite node the value that takes its place.
    """
    out: list[Node] = []
    alias: dict[Value, Value] = {}

    def visit(node: Node) -> None:
        inputs = tuple(alias.get(v, v) if v is not None else None for v in node.inputs)
        scratch: list[Node] = []
        made = node.op.decompose(Builder(graph, scratch, node.name), inputs) if node.op.family == "composite" else None
        if made is None:
            if inputs != node.inputs:
                node = _rewire(graph, node, inputs, alias)
            out.append(node)
            return
        for inner in scratch:
            inner.inherit(node)
            visit(inner)
        for old, new in zip(node.outputs, made, strict=False):
            alias[old] = alias.get(new, new)

    for node in nodes:
        visit(node)
    return out, alias


def _rewire(graph: Graph, node: Node, inputs: tuple[Value | None, ...], alias: dict[Value, Value]) -> Node:
    outputs = [graph.new_value(v.type, v.name, layout=v.layout) for v in node.outputs]
    alias |= zip(node.outputs, outputs, strict=True)
    made = graph.new_node(node.op, inputs, outputs, node.name)
    made.inherit(node)
    return made
