"""How a model says itself that it is cut (ONNX IR 11), as stages or as layouts of its tensors."""

from __future__ import annotations

import glob
import math

from ..base.errors import ConfigError, did_you_mean
from ..expr import as_int
from ..formats.devices import ModelDevices, NodeDevices, SplitAxis, TensorDevices
from ..graph import Graph, Node, Value
from ..ops.math.linalg import Gemm, MatMul
from ..passes.config import Problems
from .config import RANKS_MOST, Choice, Stages
from .cut import names_of
from .layout import Axis, Layout
from .tensors import Layouts

WHERE = "--shard model"


def cut_as_annotated(graph: Graph, devices: ModelDevices, name: str = "") -> Stages | Layouts:
    """What a model's annotations come to.

    Args:
        graph: the model.
        name: name of the configuration; may be left out where there is one.

    Raises:
        ConfigError: with all annotations that say nothing that ranks can do.
    """
    name, ranks = _choose(devices, name)
    nodes = [n for n in devices.nodes if n.configuration == name]
    if unknown := sorted({n.configuration for n in devices.nodes} - devices.configurations.keys()):
        raise ConfigError(
            f"{WHERE}: nodes name the configurations {', '.join(map(repr, unknown))}, which the model does not have",
            "have the model list them, with how many devices each has",
        )
    nested = [n.what for n in nodes if n.nested]
    if nested:
        raise ConfigError(
            f"{WHERE}: {', '.join(nested)}: annotations in branches, loops and functions are not used",
            "annotate nodes of the model's graph alone",
        )
    if any(n.stage is not None for n in nodes):
        return _stages(graph, nodes, ranks)
    return _layouts(graph, nodes, ranks)


def _choose(devices: ModelDevices, name: str) -> tuple[str, int]:
    known = devices.configurations
    if not known:
        raise ConfigError(
            f"{WHERE}: the model has no device configurations (IR 11)", "name a file, or auto:N, after --shard"
        )
    if not name and len(known) > 1:
        listed = ", ".join(map(repr, known))
        raise ConfigError(
            f"{WHERE}: the model has the configurations {listed}", f"name one: {WHERE}:{next(iter(known))}"
        )
    name = name or next(iter(known))
    if name not in known:
        raise ConfigError(
            f"{WHERE}:{name}: the model has no such configuration{did_you_mean(name, [*known])}",
            f"it has: {', '.join(known)}",
        )
    if not 1 <= known[name] <= RANKS_MOST:
        raise ConfigError(f"{WHERE}: {known[name]} devices in {name!r}", f"1 to {RANKS_MOST} are possible")
    return name, known[name]


# ---- stages ----


def _stages(graph: Graph, nodes: list[NodeDevices], ranks: int) -> Stages:
    there = {name for n in graph.nodes for name in names_of(n)}
    stages: list[list[Choice]] = [[] for _ in range(ranks)]
    problems = Problems()
    for n in nodes:
        with problems.gather():
            if any(len(_shards(t)) > 1 or _splits(t) for t in n.tensors):
                raise ConfigError(
                    f"{WHERE}: {n.what} has parts of tensors, and others have stages", "annotate one of the two"
                )
            if n.stage is None:
                continue
            if not 0 <= n.stage < ranks:
                raise ConfigError(
                    f"{WHERE}: {n.what} is in stage {n.stage} of a configuration of {ranks} devices",
                    f"number stages from 0 to {ranks - 1}: each is a rank",
                )
            names = [name for name in (*n.outputs, n.name) if name in there]
            stages[n.stage] += [Choice(glob.escape(name), f"{WHERE}: {n.what}") for name in names[:1]]
    problems.settle()
    return Stages(ranks, tuple(map(tuple, stages)), WHERE)


# ---- parts of tensors ----


def _layouts(graph: Graph, nodes: list[NodeDevices], ranks: int) -> Layouts:
    by_name: dict[str, list[Node]] = {}
    for node in graph.nodes:
        for name in names_of(node):
            by_name.setdefault(name, []).append(node)
    found = Layouts(ranks, where=WHERE)
    problems = Problems()
    for n in nodes:
        here = list(dict.fromkeys(node for name in (n.name, *n.outputs) for node in by_name.get(name, ())))
        for t in n.tensors:
            with problems.gather():
                _place(found, n, t, here)
    problems.settle()
    return found


def _place(found: Layouts, n: NodeDevices, t: TensorDevices, here: list[Node]) -> None:
    """Add what a node says of a tensor to the layouts.

    Raises:
        ConfigError: ranks cannot have it so.
    """
    made = [v for node in here for v in node.outputs if v.name == t.tensor]
    read = [(node, v) for node in here for v in node.operands if v.name == t.tensor]
    _require_all_devices(n, t, found.ranks)
    if not made and not read:
        if _splits(t):
            raise _refusal(
                n, t, "the compiler has no such tensor there: it is no operand or result, or is known without a run"
            )
        return
    layout = _layout(n, t, made[0] if made else read[0][1], found.ranks)
    for v in made:
        found.gives[v] = layout
        if layout is not None and v.producer is not None and isinstance(v.producer.op, MatMul | Gemm):
            found.scattered[v.producer] = layout
    for node, v in read:
        found.uses.setdefault(node, {})[v] = layout


def _layout(n: NodeDevices, t: TensorDevices, v: Value, ranks: int) -> Layout:
    split = _splits(t)
    if not split or ranks == 1:
        return None
    if len(split) > 1:
        raise _refusal(n, t, f"{len(split)} axes are split, and ranks split one")
    rank = v.type.rank
    if not -rank <= split[0].axis < rank:
        raise _refusal(n, t, f"it has {rank} dimensions and no axis {split[0].axis}")
    axis = split[0].axis % rank
    size = as_int(v.shape[axis])
    if size is None:
        raise _refusal(n, t, f"axis {axis} is {v.shape[axis]!r} long, which only a run knows", "pin it with --shapes")
    return Axis(axis, _sections(n, t, split[0], size, ranks))


def _sections(n: NodeDevices, t: TensorDevices, split: SplitAxis, size: int, ranks: int) -> tuple[int, ...]:
    """Stretches of an axis of which each rank has its part: with queries, keys and values in one, 3 blocks of which the
    next is split.
    """
    at = [k for k, (_, shards) in enumerate(split.blocks) if shards != 1]
    if len(at) > 1 or split.blocks[at[0]][1] != ranks:
        counts = " x ".join(str(shards) for _, shards in split.blocks)
        raise _refusal(n, t, f"axis {split.axis} is cut into {counts} shards, and there are {ranks} ranks")
    lengths = [length for length, _ in split.blocks]
    if len(lengths) == 1:
        lengths = [size if lengths[0] is None else lengths[0]]
    known = [length for length in lengths if length is not None]
    if len(known) < len(lengths) or math.prod(known) != size:
        told = " x ".join("?" if length is None else str(length) for length in lengths)
        raise _refusal(n, t, f"axis {split.axis} is {size} long, and is annotated as {told}")
    count = math.prod(known[: at[0]])
    if not count or (size // count) % ranks or known[at[0]] % ranks:
        raise _refusal(n, t, f"axis {split.axis} is {size} long, which {ranks} ranks cannot share as {count} sections")
    return (size // count,) * count


def _require_all_devices(n: NodeDevices, t: TensorDevices, ranks: int) -> None:
    """Refuse what not all ranks have: each its part in the order of their numbers, or all of them the whole."""
    own = [group[0] if len(group) == 1 else -1 for group in t.groups]
    every = sorted(d for group in t.groups for d in group) == [*range(ranks)]
    if t.groups and not (own == [*range(ranks)] if _splits(t) else every):
        groups = ", ".join(str(list(group)) if len(group) != 1 else str(group[0]) for group in t.groups)
        what = "part k belongs to device k" if _splits(t) else "all devices have what is whole"
        raise _refusal(n, t, f"it is on the devices {groups}, and of {ranks} ranks {what}")


def _splits(t: TensorDevices) -> list[SplitAxis]:
    return [axis for axis in t.axes if any(shards != 1 for _, shards in axis.blocks)]


def _shards(t: TensorDevices) -> set[int]:
    """The devices that have a tensor."""
    return {d for group in t.groups for d in group}


def _refusal(n: NodeDevices, t: TensorDevices, why: str, remedy: str = "") -> ConfigError:
    return ConfigError(f"{WHERE}: {n.what}, tensor {t.tensor!r}: {why}", remedy or "change or leave out its annotation")
