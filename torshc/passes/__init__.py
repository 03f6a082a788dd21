"""The passes over a graph, and the pipelines that order them. Importing this finds every pass of the folder."""

from __future__ import annotations

import pkgutil
from importlib import import_module

from ..base.features import Features
from ..base.options import CompileOptions
from ..graph import Graph
from .manager import (
    PASSES,
    Observer,
    PassRecord,
    PassStep,
    Pipeline,
    Repeat,
    graph_pass,
    pipeline_of,
    read_pipeline,
    run_pipeline,
)

for _found in pkgutil.iter_modules(__path__, f"{__name__}."):
    import_module(_found.name)

__all__ = [
    "PASSES", "Observer", "PassRecord", "PassStep", "Pipeline", "Repeat", "graph_pass", "optimise", "pipeline_of",
    "read_pipeline", "run_pipeline",
]  # fmt: skip


def optimise(
    graph: Graph, options: CompileOptions, features: Features, observer: Observer | None = None
) -> list[PassRecord]:
    """Run the pipeline that the options ask for on a graph, in place; `features` as in :func:`run_pipeline`.

    Returns:
        A record for each pass that ran.

    Raises:
        ConfigError: when a pipeline, a rule or a switch is wrong.
        InternalError: when a pass leaves the graph broken.
    """
    return run_pipeline(graph, pipeline_of(options), options, features, observer)
