"""What the fusion rules say about the nodes of one graph."""

from __future__ import annotations

from collections.abc import Iterable

from ..graph import Graph, Node, RuleName, Value
from ..passes.fusion_rules import FusionRule
from ..passes.mark_fusion import places
from .finalise import FinalGraph
from .views import bases, behind_views


class Permits:
    """What may share a kernel, by the marks of the nodes and the patterns of the rules."""

    def __init__(self, final: FinalGraph) -> None:
        self.policy = policy = final.policy
        self._apart = final.apart
        self._forces = {r.name for r in policy.fuses("force")}
        self._allowed = _pairs(final.graph, policy.fuses("allow"))

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
    """How many tensors a kernel of these nodes reads; a tensor and its views count once, numbers never."""
    members = set(nodes)
    return tensors({b for n in members for v in n.operands for b in bases(v) if b.producer not in members})


def tensors(values: Iterable[Value]) -> int:
    """How many of these values a kernel reads from memory; constants of one element are written into its source."""
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
