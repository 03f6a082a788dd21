"""Files of rules: rewrites and fusion rules, those that come with torshc and those of ``--rules``."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ..base import resources
from ..base.errors import did_you_mean
from ..ops import Op
from .config import Item, Problems, read_yaml
from .fusion_rules import ACTIONS, FusionRule, parse_fusion_rule
from .fusion_rules import KEYS as FUSION_KEYS
from .rewrite_rules import KEYS as REWRITE_KEYS
from .rewrite_rules import Rewrite, parse_rewrite
from .rule_examples import check_example


@dataclass(frozen=True)
class Rules:
    """What a file, or several, hold."""

    rewrites: tuple[Rewrite, ...] = ()
    fusion: tuple[FusionRule, ...] = ()


def read_rules(file: Path, user: bool = True) -> Rules:
    """The rules of a file.

    Args:
        user: whether it is the user's, so that its lines are shown where a rule is named.

    Raises:
        ConfigError: with file, line and what was meant, for everything that is wrong.
    """
    top = read_yaml(file)
    problems = Problems()
    rewrites: list[Rewrite] = []
    fusion: list[FusionRule] = []
    names: set[str] = set()
    for item in top.sequence() if top.value is not None else []:
        with problems.gather():
            is_rewrite = _is_rewrite(item)
            name = item.value["name"].value if "name" in item.value else None
            if isinstance(name, str) and name in names:
                raise item.error(f"two rules are called {name!r}")
            names.add(str(name))
            if is_rewrite:
                rewrites.append(parse_rewrite(item, user))
            else:
                fusion.append(parse_fusion_rule(item, user))
    problems.settle()
    return Rules(tuple(rewrites), tuple(fusion))


def _is_rewrite(item: Item) -> bool:
    """Whether an entry is a rewrite rather than a fusion rule; its one action decides, and its other keys must fit."""
    entries = item.mapping()
    actions = [k for k in entries if k in ("replace", *ACTIONS)]
    problems = Problems()
    known = (*FUSION_KEYS, "replace") if not actions else REWRITE_KEYS if actions[0] == "replace" else FUSION_KEYS
    for key, value in entries.items():
        if key not in known and key not in actions:
            with problems.gather():
                raise value.error(f"unknown key {key!r}{did_you_mean(key, known)}", f"known: {', '.join(known)}")
    if len(actions) > 1:
        with problems.gather():
            raise item.error(f"an entry does one thing, but this one has {' and '.join(actions)}")
    problems.settle()
    if not actions:
        raise item.error(f"the entry does nothing: one of replace, {', '.join(ACTIONS)} is missing")
    return actions == ["replace"]


def rules_of(files: Iterable[Path]) -> Rules:
    """The rules that come with torshc, and then those of the user's files.

    Raises:
        ConfigError: with all that is wrong with the files.
    """
    return _join_files(tuple((f, _time_of_change(f)) for f in files))


def rewrites_of(files: Iterable[Path]) -> dict[type[Op], tuple[Rewrite, ...]]:
    """The rewrites of :func:`rules_of` by the outermost operator of their patterns."""
    return _by_root(tuple((f, _time_of_change(f)) for f in files))


def _time_of_change(file: Path) -> int:
    """When the file last changed, so that what was read from an older one is not used."""
    try:
        return file.stat().st_mtime_ns
    except OSError:
        return 0  # reading it says what is wrong


@cache
def _join_files(files: tuple[tuple[Path, int], ...]) -> Rules:
    own = [read_rules(f, user=False) for f in (*resources.rule_files("rewrites"), *resources.rule_files("fusion"))]
    problems = Problems()
    for file, _ in files:
        with problems.gather():
            own.append(_try_examples(read_rules(file)))
    problems.settle()
    return Rules(tuple(r for x in own for r in x.rewrites), tuple(r for x in own for r in x.fusion))


def _try_examples(rules: Rules) -> Rules:
    """Rules whose examples bear them out; those of torshc's own are tried by its tests."""
    problems = Problems()
    for rule in rules.rewrites:
        with problems.gather():
            if "example" in rule.item.mapping():
                check_example(rule)
    problems.settle()
    return rules


@cache
def _by_root(files: tuple[tuple[Path, int], ...]) -> dict[type[Op], tuple[Rewrite, ...]]:
    table: dict[type[Op], list[Rewrite]] = {}
    for rule in _join_files(files).rewrites:
        for op in rule.match.ops:
            table.setdefault(op, []).append(rule)
    return {op: tuple(rules) for op, rules in table.items()}
