"""What the fusion rules say about the nodes of one graph."""

from __future__ import annotations

from collections.abc import Iterable

from ..graph import Graph, Node, Rewriter, RuleName, Value
from ..ops.math.pointwise import Separator
from ..passes.fusion_rules import Fuse, FusionRule
from ..passes.mark_fusion import mark, places
from ..passes.policy import Policy
from .views import bases, behind_views, readers


class Permits:
    """Looks for the patterns of the rules in a graph, once.

    Args:
        graph: its separators are taken out, and its nodes get further marks.
    """

    def __init__(self, graph: Graph, policy: Policy) -> None:
        self.policy = policy
        allows = list(policy.fuses("allow"))
        mark(graph, [r for r in policy.rules if r.action != Fuse("allow")], through=True)
        self._apart = _lift(graph)
        self._forces = {r.name for r in policy.fuses("force")}
        self._allowed = _pairs(graph, allows)

    @property
    def pairs(self) -> list[tuple[RuleName, Node, Node]]:
        """What is kept apart: the rule, who makes a value, who reads it."""
        return [(rule, a, b) for a, found in self._apart.items() for b, rule in found.items() if a.id < b.id]

    def forced(self, maker: Node, reader: Node) -> RuleName | None:
        """The rule that wants one kernel for both."""
        return next((m.rule for m in maker.marks if m.rule in self._forces and m in reader.marks), None)

    def allowed(self, maker: Node, reader: Node) -> RuleName | None:
        """The rule that lets both share a kernel."""
        return self.forced(maker, reader) or self._allowed.get((maker, reader))

    def apart(self, some: Iterable[Node], others: Iterable[Node]) -> RuleName | None:
        """The rule that keeps some of these nodes apart from some of the others."""
        if not self._apart:
            return None
        away = set(others)
        return next((rule for n in some for m, rule in self._apart.get(n, {}).items() if m in away), None)

    def refusal(self, nodes: list[Node], shared: int, force: bool) -> tuple[str, RuleName] | None:
        """Why a group of these nodes would pass a limit; what a rule forces obeys only limits with a pattern.

        Args:
            shared: other groups that read the value through which it grows.
        """
        counts = {"nodes": len(nodes), "inputs": -1, "readers": shared + 1}
        for bound in self.policy.bounds(nodes):
            if force and not bound.match:
                continue
            for name, reason in (("nodes", "size"), ("inputs", "inputs"), ("readers", "reader")):
                most = getattr(bound.limit, name)
                if most is None:
                    continue
                if name == "inputs" and counts[name] < 0:
                    counts[name] = inputs_of(nodes)
                if counts[name] > most:
                    return reason, bound.rule
        return None


def inputs_of(nodes: Iterable[Node]) -> int:
    """How many tensors a kernel of these nodes reads; views of one count once, and numbers do not."""
    members = set(nodes)
    return tensors({b for n in members for v in n.operands for b in bases(v) if b.producer not in members})


def tensors(values: Iterable[Value]) -> int:
    """How many of these values a kernel reads from memory: numbers stand in its text."""
    return sum(not (v.const is not None and v.const.size == 1) for v in values)


def _pairs(graph: Graph, rules: Iterable[FusionRule]) -> dict[tuple[Node, Node], RuleName]:
    """Who makes and who reads a value in the places of rules, with the first rule that says so."""
    out: dict[tuple[Node, Node], RuleName] = {}
    for rule in rules:
        for found in places(graph, rule, through=True):
            inside = set(found.nodes)
            for node in found.nodes:
                for v in node.operands:
                    maker = behind_views(v)[0].producer
                    if maker in inside and maker is not None:
                        out.setdefault((maker, node), rule.name)
    return out


def _lift(graph: Graph) -> dict[Node, dict[Node, RuleName]]:
    """Take the separators out.

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
        direct.append((RuleName(node.op.rule, node.op.where), source[node.output], _beyond(node, users)))
    rewriter = Rewriter(graph, "the plan")
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


def _beyond(node: Node, users: dict[Value, list[Node]]) -> list[Node]:
    """Who reads the result of a separator, others in between passed over."""
    return [m for n in users.get(node.output, []) for m in (_beyond(n, users) if isinstance(n.op, Separator) else [n])]
