"""Which fusion rules hold for a compilation: torshc's own, the pipeline's, the user's files, the command line's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path

from ..base.options import CompileOptions
from ..graph import Node, RuleName
from .fusion_rules import UNLIMITED, Fuse, FusionRule, Limit, Recompute
from .manager import Pipeline
from .rules import rules_of


@dataclass(frozen=True)
class Bound:
    """A bound of groups, and the rule that set it."""

    limit: Limit
    rule: RuleName
    match: bool


@dataclass(frozen=True)
class Policy:
    """The rules that hold, ours first.

    Attributes:
        strategy: the value of ``--fusion``: "none", "conservative", "default" or "aggressive".
        rules: those that hold for it.
        max_buffers: most buffers of a kernel, where the target has a limit; else 0.
        horizontal_fusion: whether small kernels that do not need each other are one launch.
        shared_rows: whether reductions over the rows of one value are one kernel, though neither needs the other, and
            who looks for the places of maxima shares one with who computes these.
        totals: whether kernels of convolutions also add up what they store.
        states: how many states a product's kernel may update at most, in a training step; None for any number.
    """

    strategy: str
    rules: tuple[FusionRule, ...]
    max_buffers: int = 0
    horizontal_fusion: bool = False
    shared_rows: bool = False
    states: int | None = None
    totals: bool = False

    @classmethod
    def of(cls, strategy: str = "default", size: int | None = None, files: Iterable[Path] = ()) -> Policy:
        """The rules of a strategy.

        Args:
            size: most nodes of a group, in place of what the rules say.
            files: the user's files.
        """
        return cls._make(strategy, (), files, size)

    @classmethod
    def _make(cls, strategy: str, own: Iterable[FusionRule], files: Iterable[Path], size: int | None) -> Policy:
        known = rules_of(files).fusion
        last = [FusionRule(RuleName("--max-fusion-size"), Limit(nodes=size))] if size is not None else []
        shipped = [r for r in known if not r.name.where]
        rules = [*shipped, *own, *(r for r in known if r.name.where), *last]
        return cls(strategy, tuple(r for r in rules if not r.fusion or strategy in r.fusion))

    @property
    def off(self) -> bool:
        """Whether each node is a kernel of its own but where a rule asks for more."""
        return self.strategy == "none"

    def fuses(self, kind: str) -> Iterator[FusionRule]:
        """The rules that ask for a kernel in this way, the user's first."""
        found = [r for r in self.rules if r.action == Fuse(kind)]
        return iter(sorted(found, key=lambda r: not r.name.where))

    def bounds(self, nodes: Iterable[Node]) -> list[Bound]:
        """What limits a group of these nodes: of the general limits the last that names a bound, and all of its own."""
        marked = {m.rule for n in nodes for m in n.marks}
        general: dict[str, Bound] = {}
        special: list[Bound] = []
        for rule in self.rules:
            if not isinstance(rule.action, Limit):
                continue
            if rule.match is not None:
                special += [Bound(rule.action, rule.name, True)] if rule.name in marked else []
                continue
            for f in fields(Limit):
                if (most := getattr(rule.action, f.name)) is not None:
                    general[f.name] = Bound(Limit(**{f.name: most}), rule.name, False)
        return [*special, *general.values()]

    def recompute(self, node: Node) -> tuple[Recompute, RuleName | None]:
        """Up to what cost a node is computed again by each reader, and the rule that said so last."""
        found, name = Recompute(0, UNLIMITED, UNLIMITED), None
        marked = {m.rule for m in node.marks}
        for rule in self.rules:
            if isinstance(rule.action, Recompute) and (rule.match is None or rule.name in marked):
                given = {f.name: v for f in fields(Recompute) if (v := getattr(rule.action, f.name)) is not None}
                found, name = replace(found, **given), rule.name
        return found, name


def policy_of(options: CompileOptions, pipeline: Pipeline) -> Policy:
    """The policy that the options and the pipeline ask for.

    Raises:
        ConfigError: when a file of rules is wrong.
    """
    where = f"{options.pipeline}" if options.pipeline is not None else ""
    name = RuleName(f"pipeline {pipeline.name}", where)
    own = [FusionRule(name, action) for action in (pipeline.limit, pipeline.recompute) if action is not None]
    return Policy._make(options.fusion or pipeline.fusion, own, options.rules, options.max_fusion_size)
