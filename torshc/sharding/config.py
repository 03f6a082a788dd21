"""How a model is cut into ranks as a user writes it (YAML), read into typed data; mistakes are told with their lines.

stages: 2                       # by bytes of weights, or time (micro_batches); or a list, of each what it begins with
micro_batches: 4                # parts of the batch that stages work on side by side

stages:
  - embedding*
  - ["layer.2/*", "layer.3/*"]

tensors:                        # or: all ranks compute all nodes, with their parts of weights
  ranks: 4
  split:
    - {names: "*.c_attn.weight", axis: 1, parts: 3}
    - {names: "*.c_fc.weight", axis: 1}
  scatter:                      # sums of which every rank gets its part, as of rows
    - {names: "*.c_proj*", axis: 0}

replicas: 2                     # or, with --train: each rank has a part of the batch, and all the same weights
optimizer_states: sharded       # of what the optimizer keeps each rank has its part
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from ..base.errors import ConfigError, did_you_mean
from ..passes.config import Item, Problems, read_yaml

KEYS = ("stages", "tensors", "replicas", "micro_batches", "optimizer_states")
STATES = ("replicated", "sharded")
RANKS_MOST = 1024
PARTS_MOST = 64
SIZE_MOST = 1 << 31


@dataclass(frozen=True)
class Choice:
    """A name or a pattern of names (`*`, `?`, `[ab]`), and where it stands."""

    text: str
    where: str

    def among(self, names: Collection[str]) -> set[str]:
        """The names that it matches.

        Raises:
            ConfigError: there are none.
        """
        found = {name for name in names if fnmatchcase(name, self.text)}
        if self.text in names:
            found.add(self.text)
        if not found:
            raise ConfigError(
                f"{self.where}: no node and no tensor is called {self.text!r}{did_you_mean(self.text, [*names])}",
                "name one of the model, or a pattern such as '*layer.0*'; `torshc explain` lists the nodes",
            )
        return found


@dataclass(frozen=True)
class Stages:
    """A model as stages, one behind the other.

    Attributes:
        count: how many there are.
        names: for each stage, its nodes, by their names or those of their results; empty where the bytes of
            weights decide.
        where: file and line.
        parts: into how many a batch is cut, on which stages work side by side.
    """

    count: int
    names: tuple[tuple[Choice, ...], ...] = ()
    where: str = ""
    parts: int = 1


@dataclass(frozen=True)
class SplitRule:
    """Which weights are split, and along which axis.

    Attributes:
        names: weights, or products, which are named by their nodes or by their results.
        axis: axis of the weights; a negative one counts from the end.
        parts: how many equal sections the axis has, or their lengths, of each of which a rank has its part: 3 where one
            product makes queries, keys and values.
        where: file and line.
    """

    names: Choice
    axis: int
    parts: int | tuple[int, ...] = 1
    where: str = ""

    def sections(self, size: int) -> tuple[int, ...]:
        """The sections of an axis of this length; their sum is another where they do not fit."""
        if isinstance(self.parts, tuple):
            return self.parts
        return (size // self.parts,) * self.parts


@dataclass(frozen=True)
class ScatterRule:
    """Sums over ranks of which each gets its part, so that what follows is computed once and not by every rank.

    Attributes:
        names: products, which are named by their nodes or by their results.
        axis: axis of the result; a negative one counts from the end.
        where: file and line.
    """

    names: Choice
    axis: int
    where: str = ""


@dataclass(frozen=True)
class TensorParallel:
    """All ranks compute all nodes, with their parts of weights.

    Attributes:
        ranks: how many there are.
        rules: which weights are split; of those that name one, the first counts.
        where: file and line.
        scatter: which sums are scattered; of those that name one, the first counts.
    """

    ranks: int
    rules: tuple[SplitRule, ...]
    where: str = ""
    scatter: tuple[ScatterRule, ...] = ()

    @property
    def text(self) -> str:
        """As a file says it."""
        lines = ["tensors:", f"  ranks: {self.ranks}", "  split:"]
        for r in self.rules:
            several = isinstance(r.parts, tuple) and len(r.parts) > 1
            parts = f", parts: {list(r.parts)}" if several and isinstance(r.parts, tuple) else ""
            lines.append(f"    - {{names: {json.dumps(r.names.text)}, axis: {r.axis}{parts}}}")
        lines += ["  scatter:"] if self.scatter else []
        lines += [f"    - {{names: {json.dumps(r.names.text)}, axis: {r.axis}}}" for r in self.scatter]
        return "\n".join(lines) + "\n"


@dataclass(frozen=True)
class Sharding:
    """How a model is cut into ranks: in one of these ways.

    Attributes:
        stages: stages one behind the other.
        tensors: parts of weights.
        replicas: how many ranks train on a part of the batch each; 0 for none.
        shard_states: whether each of these keeps its part of what the optimizer keeps, and updates its part of weights.
        file: where it was read.
    """

    stages: Stages | None = None
    tensors: TensorParallel | None = None
    replicas: int = 0
    shard_states: bool = False
    file: str = ""


def read_sharding(path: Path) -> Sharding:
    """The cut in a file.

    Raises:
        ConfigError: with all that is wrong with it, each with its line.
    """
    top = read_yaml(path)
    problems, found = Problems(), dict[str, Any]()
    with problems.gather():
        items = top.mapping(KEYS)
        parts, states = items.pop("micro_batches", None), items.pop("optimizer_states", None)
        if parts is not None and "stages" not in items:
            raise parts.error("micro_batches without stages", "only stages work on parts of a batch side by side")
        if states is not None and "replicas" not in items:
            raise states.error("optimizer_states without replicas", "only ranks that train have states to share")
        if len(items) != 1:
            if items:
                raise top.error(f"{' and '.join(items)} at once", "cut the model in one of these ways")
            raise top.error("nothing says how the model is cut", f"one of: {', '.join(_READERS)}")
        for key, item in items.items():
            with problems.gather():
                found[key] = _READERS[key](item)
        if parts is not None:
            with problems.gather():
                count = parts.integer(2, PARTS_MOST)
                found["stages"] = replace(found["stages"], parts=count) if "stages" in found else None
        if states is not None:
            with problems.gather():
                found["shard_states"] = _states(states) == "sharded"
    problems.settle()
    return Sharding(file=top.file, **found)


def _place(item: Item) -> str:
    return f"{item.file}:{item.line}"


def _stages(item: Item) -> Stages:
    if not isinstance(item.value, list):
        return Stages(item.integer(2, RANKS_MOST), where=_place(item))
    stages = item.sequence()
    if not 2 <= len(stages) <= RANKS_MOST:
        raise item.error(f"{len(stages)} stages", f"a list of 2 to {RANKS_MOST}, or their number")
    return Stages(len(stages), tuple(tuple(_choices(stage)) for stage in stages), _place(item))


def _choices(item: Item) -> Iterable[Choice]:
    items: Sequence[Item] = item.sequence() if isinstance(item.value, list) else [item]
    if not items:
        raise item.error("no names", "name nodes or tensors of the model, or patterns of them")
    return [Choice(i.text(), _place(i)) for i in items]


def _tensors(item: Item) -> TensorParallel:
    items = item.mapping(("ranks", "split", "scatter"), required=("ranks", "split"))
    rules = [_split_rule(i) for i in items["split"].sequence()]
    if not rules:
        raise items["split"].error("nothing is split", "name weights or products of the model, or patterns of them")
    scatter = [_scatter_rule(i) for i in items["scatter"].sequence()] if "scatter" in items else []
    return TensorParallel(items["ranks"].integer(1, RANKS_MOST), tuple(rules), _place(item), tuple(scatter))


def _scatter_rule(item: Item) -> ScatterRule:
    items = item.mapping(("names", "axis"), required=("names", "axis"))
    names = items["names"]
    return ScatterRule(Choice(names.text(), _place(names)), items["axis"].integer(-8, 7), _place(item))


def _split_rule(item: Item) -> SplitRule:
    items = item.mapping(("names", "axis", "parts"), required=("names", "axis"))
    parts: int | tuple[int, ...] = 1
    if "parts" in items:
        given = items["parts"]
        several = isinstance(given.value, list)
        parts = tuple(i.integer(1, SIZE_MOST) for i in given.sequence()) if several else given.integer(1, RANKS_MOST)
    names = items["names"]
    return SplitRule(Choice(names.text(), _place(names)), items["axis"].integer(-8, 7), parts, _place(item))


def _states(item: Item) -> str:
    text = item.text()
    if text not in STATES:
        raise item.error(f"unknown states {text!r}{did_you_mean(text, STATES)}", " or ".join(STATES))
    return text


def _replicas(item: Item) -> int:
    return item.integer(2, RANKS_MOST)


_READERS: Mapping[str, Callable[[Item], Any]] = {"stages": _stages, "tensors": _tensors, "replicas": _replicas}
