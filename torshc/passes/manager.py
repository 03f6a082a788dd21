"""The pass manager: reads pipelines, runs their passes in order, verifies after each, keeps a record of each."""

from __future__ import annotations

import inspect
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from ..base import resources
from ..base.errors import ConfigError, OutputError, TorshcError, did_you_mean
from ..base.features import Features
from ..base.options import FUSION_MODES, HALVES, CompileOptions
from ..graph import Graph, sort
from ..graph.text import graph_text
from ..graph.verify import Verifier
from .config import Item, Problems, read_yaml
from .fusion_rules import Limit, Recompute, parse_limit, parse_recompute, parse_word

Pass = Callable[..., bool]
PASSES: dict[str, Pass] = {}


@dataclass(frozen=True)
class PassRecord:
    """What a pass did.

    Attributes:
        name: the pass.
        changed: whether it changed the graph.
        before, after: number of nodes.
        seconds: wall time, the check after it included.
        operators: by how many nodes of each operator there are more now, or fewer (below 0); in order of names.
    """

    name: str
    changed: bool
    before: int
    after: int
    seconds: float
    operators: Mapping[str, int] = field(default_factory=dict)


Observer = Callable[[PassRecord, Graph], None]


@dataclass(frozen=True)
class PassStep:
    """A pass in a pipeline, with its parameters."""

    name: str
    parameters: Mapping[str, int | bool | str] = field(default_factory=dict)
    enabled: bool = True


@dataclass(frozen=True)
class Repeat:
    """Steps that are repeated until none changes anything, at most `at_most` times."""

    steps: tuple[PassStep, ...]
    at_most: int


@dataclass(frozen=True)
class Pipeline:
    """The passes of an optimisation level, in order, and how its nodes are fused.

    Attributes:
        fusion: the strategy, unless the options name one.
        limit, recompute: bounds in place of the strategy's.
    """

    name: str
    steps: tuple[PassStep | Repeat, ...]
    fusion: str = "default"
    limit: Limit | None = None
    recompute: Recompute | None = None

    def names(self) -> list[str]:
        """Every pass in it."""
        return list(dict.fromkeys(s.name for s in self._flat()))

    def running(self, switches: Mapping[str, bool]) -> list[str]:
        """The passes that run, by their own setting or a switch."""
        return list(dict.fromkeys(s.name for s in self._flat() if switches.get(s.name, s.enabled)))

    def _flat(self) -> list[PassStep]:
        return [s for part in self.steps for s in (part.steps if isinstance(part, Repeat) else (part,))]


def graph_pass(name: str) -> Callable[[Pass], Pass]:
    """Register a pass: a function (graph, options) that says whether it changed the graph.

    Keyword-only parameters with defaults are what a pipeline may set. A pass that takes ``features`` gets the target's.
    """

    def register(function: Pass) -> Pass:
        PASSES[name] = function
        return function

    return register


def call_pass(name: str, graph: Graph, options: CompileOptions, features: Features, **parameters: Any) -> bool:
    """Run one pass on a graph, in place; whether it changed it."""
    function = PASSES[name]
    if "features" in _parameters(function):
        parameters["features"] = features
    return function(graph, options, **parameters)


@cache
def _parameters(function: Pass) -> Mapping[str, inspect.Parameter]:
    """The parameters of a pass, by name."""
    return inspect.signature(function).parameters


def read_pipeline(path: Path) -> Pipeline:
    """A pipeline from a file.

    Raises:
        ConfigError: with file and line, for every unknown key, pass and parameter.
    """
    known = ("name", "about", "fusion", "limit", "recompute", "passes")
    top = read_yaml(path).mapping(known=known, required=("passes",))
    problems = Problems()
    parts: list[PassStep | Repeat] = []
    settings: dict[str, Any] = {}
    for item in top["passes"].sequence():
        with problems.gather():
            parts.append(_part(item))
    for key in ("fusion", "limit", "recompute"):
        with problems.gather():
            if key in top:
                settings[key] = _SETTINGS[key](top[key])
    problems.settle()
    return Pipeline(top["name"].text() if "name" in top else path.stem, tuple(parts), **settings)


_SETTINGS: dict[str, Callable[[Item], Any]] = {
    "fusion": lambda item: parse_word(item, FUSION_MODES, "fusion"),
    "limit": parse_limit,
    "recompute": parse_recompute,
}


def _part(item: Item) -> PassStep | Repeat:
    if not (isinstance(item.value, dict) and list(item.value) == ["repeat"]):
        return _step(item)
    group = item.value["repeat"].mapping(known=("at_most", "passes"), required=("at_most", "passes"))
    problems = Problems()
    steps: list[PassStep] = []
    for each in group["passes"].sequence():
        with problems.gather():
            steps.append(_step(each))
    problems.settle()
    return Repeat(tuple(steps), group["at_most"].integer(1, 100))


_NAMED_TARGETS = ("targets", "without", "pairs", "attention", "rotations")  # parameters of earlier versions


def _step(item: Item) -> PassStep:
    if isinstance(item.value, str):
        return PassStep(_known_pass(item, item.value))
    entries = item.mapping()
    if len(entries) != 1:
        raise item.error("a step is a pass's name, or one name with its parameters below it")
    ((name, parameters),) = entries.items()
    allowed = {
        p.name: p.default
        for p in _parameters(PASSES[_known_pass(parameters, name)]).values()
        if p.kind is p.KEYWORD_ONLY and p.default is not p.empty
    }
    for key, value in parameters.mapping().items():
        if key in _NAMED_TARGETS and key not in allowed:
            raise value.error(f"{name} has no parameter {key!r}", "leave it out: a pass asks the target what it can do")
    given = parameters.mapping(known=("enabled", *allowed))
    values: dict[str, int | bool | str] = {}
    for key, value in given.items():
        if key == "enabled":
            continue
        default = allowed[key]
        if isinstance(default, bool):
            values[key] = value.flag()
        else:
            values[key] = value.text() if isinstance(default, str) else value.integer(0, 2**48)
    return PassStep(name, values, given["enabled"].flag() if "enabled" in given else True)


def _known_pass(item: Item, name: str) -> str:
    if name not in PASSES:
        raise item.error(
            f"unknown pass {name!r}{did_you_mean(name, sorted(PASSES))}", f"known: {', '.join(sorted(PASSES))}"
        )
    return name


def pipeline_of(options: CompileOptions) -> Pipeline:
    """The pipeline that the options ask for.

    Raises:
        ConfigError: when its file is wrong, or a pass that is switched does not exist or is not in it.
    """
    pipeline = read_pipeline(options.pipeline or resources.rules("pipelines") / f"O{options.opt_level}.yaml")
    known = pipeline.names()
    for name in options.passes:
        if name not in PASSES:
            raise ConfigError(
                f"--pass: unknown pass {name!r}{did_you_mean(name, sorted(PASSES))}",
                f"known: {', '.join(sorted(PASSES))}",
            )
        if options.passes[name] and name not in known:
            raise ConfigError(
                f"--pass: {name!r} is not in the pipeline {pipeline.name}",
                "write a pipeline with it and pass --pipeline FILE",
            )
    if options.precision in HALVES and "half_products" not in known:
        raise ConfigError(
            f"--precision {options.precision}: the pass half_products is not in the pipeline {pipeline.name}",
            "add it before choose_layout",
        )
    return pipeline


def run_pipeline(
    graph: Graph, pipeline: Pipeline, options: CompileOptions, features: Features, observer: Observer | None = None
) -> list[PassRecord]:
    """Run the passes of a pipeline on a graph, in place.

    Args:
        features: what the target has kernels for.
        observer: told of each pass after it ran.

    Returns:
        A record for each pass that ran, in order.

    Raises:
        InternalError: when a pass leaves the graph broken.
        OutputError: when the dump cannot be written.
    """
    runner = _Runner(graph, options, features, observer)
    for part in pipeline.steps:
        if isinstance(part, PassStep):
            runner.run(part)
            continue
        for _ in range(part.at_most):
            changed = [runner.run(step) for step in part.steps]
            if not any(changed):
                break
    return runner.records


class _Runner:
    def __init__(self, graph: Graph, options: CompileOptions, features: Features, observer: Observer | None) -> None:
        self.graph, self.options, self.features, self.observer = graph, options, features, observer
        self.records: list[PassRecord] = []
        self.counts = Counter(node.op.name for node in graph.nodes)
        self.verifier = Verifier()
        self.verifier.check(graph, "the front end")
        self.dumps = 0
        self._dump("start")

    def run(self, step: PassStep) -> bool:
        if not self.options.passes.get(step.name, step.enabled):
            return False
        start, before = time.perf_counter(), len(self.graph.nodes)
        try:
            changed = call_pass(step.name, self.graph, self.options, self.features, **step.parameters)
        except TorshcError as e:
            e.add_note(f"in pass {step.name}")
            raise
        if changed:
            sort(self.graph)
            self.verifier.check(self.graph, f"pass {step.name}")
        seconds, operators = time.perf_counter() - start, self._recount() if changed else {}
        record = PassRecord(step.name, changed, before, len(self.graph.nodes), seconds, operators)
        self.records.append(record)
        if changed:
            self._dump(step.name)
        if self.observer is not None:
            self.observer(record, self.graph)
        return changed

    def _recount(self) -> dict[str, int]:
        """Count the nodes of each operator anew; what changed."""
        now = Counter(node.op.name for node in self.graph.nodes)
        changes = {name: now[name] - self.counts[name] for name in sorted({*now, *self.counts})}
        self.counts = now
        return {name: change for name, change in changes.items() if change}

    def _dump(self, name: str) -> None:
        folder = self.options.dump
        if folder is None:
            return
        try:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{self.dumps:03}-{name}.txt").write_text(graph_text(self.graph), encoding="utf-8")
        except OSError as e:
            raise OutputError(f"cannot write the dump to {str(folder)!r}: {e.strerror}") from e
        self.dumps += 1
