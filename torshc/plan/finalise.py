"""The last changes to a graph, behind its passes: planning only reads what this leaves."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from ..expr import const
from ..graph import Graph, Node, Rewriter, RuleName, Value
from ..ops.math.pointwise import Separator
from ..passes.decompose import like
from ..passes.fusion_rules import Fuse
from ..passes.mark_fusion import mark
from ..passes.policy import Policy
from ..passes.settle_outputs import settle
from .group import expand
from .views import bases, readers


@dataclass(frozen=True)
class FinalGraph:
    """A graph that nothing changes any more.

    Attributes:
        graph: frozen; its nodes bear the marks of the rules that hold for them.
        policy: the fusion rules.
        apart: for each node those that share no kernel with it, and the rule that says so.
    """

    graph: Graph
    policy: Policy
    apart: Mapping[Node, Mapping[Node, RuleName]]


def finalise(graph: Graph, policy: Policy) -> FinalGraph:
    """Bring a graph into the form that is planned, and freeze it.

    Composite nodes that no kernel computes are replaced by what they stand for, every output gets a node of its own,
    nodes are marked by the rules that match what the passes have left, and separators become pairs of nodes that are
    kept apart.
    """
    forced = {r.name for r in policy.fuses("force")}
    _split_composites(graph, [n for n in graph.nodes if any(m.rule in forced for m in n.marks)])
    settle(graph)
    mark(graph, [r for r in policy.rules if r.action != Fuse("allow")], through=True)
    apart = _remove_separators(graph)
    graph.freeze()
    return FinalGraph(graph, policy, apart)


def _split_composites(graph: Graph, opened: Collection[Node] = ()) -> None:
    """Replace composite nodes that no single kernel computes by the simpler nodes they stand for.

    The others stay whole, so that without fusion each node of the model is a launch.

    Args:
        opened: nodes that are replaced all the same, as a rule wants them in one kernel with others.
    """
    rewriter = Rewriter(graph, "finalise")
    for node in rewriter:
        if node.op.family == "composite":
            inner, alias = expand(graph, [node])
            if node in opened or not _one_kernel(inner, [alias.get(v, v) for v in node.outputs]):
                rewriter.keep(*inner)
                for old in node.outputs:
                    rewriter.replace(old, like(rewriter.builder(node.name), alias[old], old))
                continue
        rewriter.keep(node)
    rewriter.finish()


def _one_kernel(nodes: list[Node], outputs: list[Value]) -> bool:
    """Whether nodes fit one kernel: one product and what follows it, or reductions over one space."""
    families = [n.op.family for n in nodes]
    others = [n for n in nodes if n.op.family not in ("pointwise", "view", "reduce")]
    reduces = [n for n in nodes if n.op.family == "reduce"]
    if others:
        anchor = others[0]
        follow = nodes[nodes.index(anchor) + 1 :]
        plain = all(n.op.family == "pointwise" and n.output.shape == anchor.output.shape for n in follow)
        return len(others) == 1 and not reduces and plain and anchor.op.family == "gemm"
    if not reduces:
        return "view" not in families
    spaces = {(n.operands[0].shape, getattr(n.op, "axes", ())) for n in reduces}
    if len(spaces) > 1 or "view" in families:
        return False
    ((full, axes),) = spaces
    kept = tuple(const(1) if k in axes else d for k, d in enumerate(full))
    allowed = {full, kept, tuple(d for k, d in enumerate(full) if k not in axes)}
    return all(n.output.shape in allowed for n in nodes)


def _remove_separators(graph: Graph) -> dict[Node, dict[Node, RuleName]]:
    """Take the separators out of a graph.

    Returns:
        For each node those that share no kernel with it.
    """
    found = [n for n in graph.nodes if isinstance(n.op, Separator)]
    if not found:
        return {}
    users = graph.users()
    source: dict[Value, Value] = {}
    direct: list[tuple[RuleName, Value, list[Node]]] = []
    for node in found:
        assert isinstance(node.op, Separator)
        (value,) = node.operands
        source[node.output] = source.get(value, value)
        direct.append((RuleName(node.op.rule, node.op.where), source[node.output], _readers_behind(node, users)))
    rewriter = Rewriter(graph, "finalise")
    for node in rewriter:
        if isinstance(node.op, Separator):
            rewriter.replace(node.output, source[node.output])
        else:
            rewriter.keep(node)
    rewriter.finish()
    users = graph.users()
    apart: dict[Node, dict[Node, RuleName]] = {}
    for rule, value, nodes in direct:
        ends = [m for n in nodes for m in ([n] if n.op.family != "view" else readers(n.output, users))]
        for maker in (b.producer for b in bases(value)):
            for reader in ends if maker is not None else ():
                assert maker is not None
                apart.setdefault(maker, {})[reader] = rule
                apart.setdefault(reader, {})[maker] = rule
    return apart


def _readers_behind(node: Node, users: dict[Value, list[Node]]) -> list[Node]:
    """Who reads the result of a separator, others in between passed over."""
    out: list[Node] = []
    for n in users.get(node.output, []):
        out += _readers_behind(n, users) if isinstance(n.op, Separator) else [n]
    return out
