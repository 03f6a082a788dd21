"""Sums of ensembles over the same features are one ensemble."""

from __future__ import annotations

import numpy as np

from ..base.options import CompileOptions
from ..graph import Graph, Node, Patch, Value
from ..ops.ml.forest import Trees, joined, tables_of
from .manager import graph_pass
from .walk import Site, walk


@graph_pass("join_trees")
def join_trees(graph: Graph, options: CompileOptions) -> bool:
    """Join ensembles that are only added to each other.

    Leaves are then added in the order of the operands, tree by tree, where each ensemble was summed before.

    Before::

        %1 = Trees(%0, @nodes1, @roots1, @weights1)
        %2 = Trees(%0, @nodes2, @roots2, @weights2)
        %3 = Add(%1, %2)

    After::

        %3 = Trees(%0, @nodes, @roots, @weights)
    """
    return walk(graph, _rule, "join_trees")


def _rule(site: Site) -> Patch | None:
    if site.node.op.name not in ("Add", "Sum"):
        return None
    groups: dict[Value, list[Node]] = {}
    for v in site.node.operands:
        tree, same = v.producer, v.type == site.node.output.type
        if same and site.alone(v) and tree is not None and isinstance(tree.op, Trees) and tree.op.aggregate == "SUM":
            groups.setdefault(tree.operands[0], []).append(tree)
    several = {x: trees for x, trees in groups.items() if len(trees) > 1}
    if not several:
        return None
    left = [v for v in site.node.operands if v.producer is None or not any(v.producer in t for t in several.values())]
    terms = [*(_join(site, x, trees) for x, trees in several.items()), *left]
    return site.replace(terms[0] if len(terms) == 1 else site.builder.one(site.node.op, *terms))


def _join(site: Site, x: Value, trees: list[Node]) -> Value:
    weights = [t.operands[3].const for t in trees]
    assert all(w is not None for w in weights)
    known = [w for w in weights if w is not None]
    compare, missing, nodes, roots = joined([(tables_of(t), len(w)) for t, w in zip(trees, known, strict=True)])
    tables = (site.graph.constant(t) for t in (nodes, roots, np.concatenate(known)))
    return site.builder.one(Trees("SUM", compare, missing), x, *tables)
