"""From a model's file to the graph of a training step."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..base.digest import file_sha256
from ..base.errors import ConfigError, TorshcError
from ..bundle.weight_names import Array
from ..formats.files import model_files
from ..graph import Graph
from ..graph.text import graph_text
from ..ops.control.flow import all_nodes
from ..training import Training, make_training_graph

Import = Callable[[Mapping[str, Array]], Graph]


@dataclass(frozen=True)
class Trained:
    """What a compilation trains.

    Attributes:
        training: the step, as its file says.
        model: SHA-256 of the model's file, of several files that of their hashes.
    """

    training: Training
    model: str


def trained_model(source: str | Path | bytes | Graph, training: Training) -> Trained:
    """What a compilation of a model with a training step trains.

    Raises:
        ConfigError: a graph, which has lost the names of its weights.
    """
    if isinstance(source, Graph):
        raise ConfigError("a Graph cannot be trained: its weights have no names", "give the model's file")
    if isinstance(source, bytes):
        return Trained(training, hashlib.sha256(source).hexdigest())
    hashes = [file_sha256(path) for path in model_files(Path(source))]
    whole = hashes[0] if len(hashes) == 1 else hashlib.sha256("".join(hashes).encode()).hexdigest()
    return Trained(training, whole)


def training_graph(imported: Import, training: Training) -> Graph:
    """The graph of a training step.

    The model is imported once more with other values of its weights: a step would be wrong where values became part of
    the graph.

    Args:
        imported: imports the model with other values of some weights, and keeps their names.

    Raises:
        ConfigError: the step does not fit the model.
        UnsupportedError: the model cannot be differentiated.
    """
    graph = imported({})
    weights = dict(graph.weights)
    make_training_graph(graph, training)
    trained = [s.name for s in graph.states if s.trained]
    draws = np.random.default_rng(0)
    others = {n: draws.standard_normal(_array(weights[n].const).shape).astype(weights[n].dtype.numpy) for n in trained}

    def same(names: list[str]) -> bool:
        try:
            other = imported({n: others[n] for n in names})
            make_training_graph(other, training)
        except TorshcError:  # these values are none that the model takes
            return False
        return graph_text(other) == graph_text(graph) and all(map(np.array_equal, _constants(other), _constants(graph)))

    if not same(trained):
        fixed = [n for n in trained if not same([n])] or trained
        where = f"{training.file}: " if training.file else ""
        raise ConfigError(
            f"{where}the values of {', '.join(map(repr, fixed))} decided how the model was imported; with other "
            "values it would be another graph",
            "leave them out of the weights",
        )
    return graph


def _array(found: Array | None) -> Array:
    assert found is not None
    return found


def _constants(graph: Graph) -> Iterator[Array]:
    for node in all_nodes(graph):
        yield from (v.const for v in node.operands if v.const is not None)
