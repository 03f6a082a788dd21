"""Join products of weights of 4 bits with each other and with the layers around them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..base.features import Feature, Features
from ..base.options import CompileOptions
from ..expr import F16, as_int
from ..graph import Graph, Node, Patch, Rewriter, Value
from ..ops.nn.norm import RMSNormalization
from ..ops.quant.narrow import PairLayer, PairMatMul
from ..ops.tensor.parts import Split
from .manager import graph_pass
from .walk import Site, walk

Array = np.ndarray[Any, Any]
NARROW = 4096  # columns below which a product alone leaves a part of a large card idle
NORMED = 8192  # terms of a row up to which all blocks of a product may well normalise it themselves
ROWS, FEW = 32 << 10, 8  # bytes of rows that they hold, and how many
STEP = 128  # terms that they come in
GATES = ("Swish", "Gelu", "Sigmoid", "Relu")
HALF = 8  # columns of a tile that gate as many others


@graph_pass("join_pairs")
def join_pairs(graph: Graph, options: CompileOptions, *, features: Features) -> bool:
    """Products of few rows with weights of 4 bits, which take as long as their launches, do more at once.

    A gate and what it lets through are one product. Others of one factor are one, whose parts are read, if alone they
    have few columns. The RMS norm of the factor is computed by each block of the product. For targets
    with `INT4_WEIGHTS`.

    Before::

        %2 = RMSNormalization(%0:f16[1, 2048], @1)
        %5 = PairMatMul(%2, @3:u8[5632, 1024], @4)
        %6 = Swish(%5)
        %9 = PairMatMul(%2, @7:u8[5632, 1024], @8)
        %10 = Mul(%6, %9)

    After::

        %11 = PairLayer[gate=Swish](%0, @9:u8[11264, 1024], @10, @1)
    """
    if Feature.INT4_WEIGHTS not in features or not any(isinstance(n.op, PairMatMul) for n in graph.nodes):
        return False
    changed = walk(graph, _gate, "join_pairs")
    changed |= _join(graph)
    users = graph.users()
    changed |= walk(graph, lambda site: _norm(site, users), "join_pairs")
    return changed


def _gate(site: Site) -> Patch | None:
    """Mul(gate(PairMatMul(x, a)), PairMatMul(x, b)): a product with the columns of both."""
    node = site.node
    if node.op.name != "Mul":
        return None
    for gate, other in (node.operands, node.operands[::-1]):
        act = gate.producer
        if act is None or act.op.name not in GATES or act.op != type(act.op)():
            continue
        first, second = _pair(act.operands[0]), _pair(other)
        if not first or not second or not all(site.alone(v) for v in (gate, act.operands[0], other)):
            continue
        assert isinstance(first.op, PairMatMul)
        if first.op != second.op or first.operands[0] is not second.operands[0] or first.output.type != other.type:
            continue
        if (as_int(other.shape[-1]) or 1) % HALF or not _fits(first.operands[0]):
            continue
        op = PairLayer(first.op.block, gate=act.op.name)
        return site.replace(site.builder.one(op, first.operands[0], *_stack_weights(site.graph, [first, second])))
    return None


def _join(graph: Graph) -> bool:
    """Products of one factor, of which one has few columns, become one product, whose parts they read."""
    together: dict[tuple[Value, int], list[Node]] = {}
    for node in graph.nodes:
        if isinstance(node.op, PairMatMul):
            together.setdefault((node.operands[0], node.op.block), []).append(node)
    groups = [g for g in together.values() if len(g) > 1 and min(as_int(n.output.shape[-1]) or 0 for n in g) < NARROW]
    if not groups:
        return False
    first = {g[0]: g for g in groups}
    joined = {n for g in groups for n in g}
    rewriter = Rewriter(graph, "join_pairs")
    for node in rewriter:
        if node in first:
            b, group = rewriter.builder(node.name), first[node]
            whole = b.one(node.op, node.operands[0], *_stack_weights(graph, group))
            parts = b.add(Split(-1, tuple(n.output.shape[-1] for n in group)), [whole])
            for n, part in zip(group, parts, strict=True):
                rewriter.replace(n.output, part)
        elif node not in joined:
            rewriter.keep(node)
    rewriter.finish()
    return True


def _norm(site: Site, users: Mapping[Value, Sequence[Node]]) -> Patch | None:
    """A product of what RMSNormalization gives to products alone reads what that reads."""
    node, op = site.node, site.node.op
    norm = node.operands[0].producer if isinstance(op, PairMatMul | PairLayer) else None
    if norm is None or not isinstance(norm.op, RMSNormalization) or len(norm.operands) != 2 or len(node.operands) > 3:
        return None
    x, scale = norm.operands
    if norm.output in site.graph.outputs or any(
        not isinstance(n.op, PairMatMul | PairLayer) for n in users[norm.output]
    ):
        return None
    last = norm.op.axis in (-1, x.type.rank - 1)
    if not last or scale.dtype is not F16 or scale.shape != x.shape[-1:] or (as_int(x.shape[-1]) or 0) > NORMED:
        return None
    assert isinstance(op, PairMatMul | PairLayer)
    if not _fits(x):
        return None
    layer = PairLayer(op.block, norm.op.epsilon, op.gate if isinstance(op, PairLayer) else "")
    return site.replace(site.builder.one(layer, x, *node.operands[1:], scale))


def _pair(value: Value) -> Node | None:
    """The product that a value is."""
    node = value.producer
    return node if node is not None and isinstance(node.op, PairMatMul) else None


def _fits(x: Value) -> bool:
    """Whether blocks have room for all rows of a factor."""
    rows, terms = math.prod(as_int(d) or FEW + 1 for d in x.shape[:-1]), as_int(x.shape[-1]) or 0
    return rows <= FEW and rows * -(-terms // STEP) * STEP * 2 <= ROWS


def _stack_weights(graph: Graph, products: Sequence[Node]) -> list[Value]:
    """Weights and scales with the columns of all."""
    arrays = [[n.operands[k].const for n in products] for k in (1, 2)]
    return [graph.constant(np.concatenate([a for a in found if a is not None])) for found in arrays]
