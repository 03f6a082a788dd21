"""The passes over a graph, and the pipelines that order them."""

from __future__ import annotations

from ..graph import Graph
from ..options import CompileOptions
from . import (
    canonicalise,
    choose_layout,
    common_subexpressions,
    dead_code,
    decompose,
    fold_batch_norm,
    fold_constants,
    half_products,
    integer_products,
    mark_fusion,
    narrow_weights,
    propagate,
    recognise_attention,
    resolve_indices,
    rewrite,
    settle_outputs,
    strength_reduction,
)
from .manager import (
    PASSES,
    Observer,
    PassRecord,
    Pipeline,
    Repeat,
    Step,
    graph_pass,
    pipeline_of,
    read_pipeline,
    run_pipeline,
)

__all__ = [
    "PASSES", "Observer", "PassRecord", "Pipeline", "Repeat", "Step", "canonicalise", "choose_layout",
    "common_subexpressions", "dead_code", "decompose", "fold_batch_norm", "fold_constants", "graph_pass",
    "half_products", "integer_products", "mark_fusion", "narrow_weights", "optimise", "pipeline_of", "propagate",
    "read_pipeline", "recognise_attention", "resolve_indices", "rewrite", "run_pipeline", "settle_outputs",
    "strength_reduction",
]  # fmt: skip


def optimise(graph: Graph, options: CompileOptions, observer: Observer | None = None) -> list[PassRecord]:
    """Run the pipeline that the options ask for on a graph, in place.

    Returns:
        A record for each pass that ran.

    Raises:
        ConfigError: when a pipeline, a rule or a switch is wrong.
        InternalError: when a pass leaves the graph broken.
    """
    return run_pipeline(graph, pipeline_of(options), options, observer)
