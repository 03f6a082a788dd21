"""Compute again, for the backward pass, what a training step makes element by element of activations that it keeps."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from ..base.options import CompileOptions
from ..expr import as_int, product
from ..graph import Graph, Node, Rewriter, Value, relayout, rewire
from ..ops.math.pointwise import Separator
from .manager import graph_pass

_LEAST = 2**16  # elements of an activation that is worth a kernel more
_RULE = "recompute: true"
_STEPS = 12  # nodes from the activations that are kept to the one that is computed again


@graph_pass("recompute_activations")
def recompute_activations(graph: Graph, options: CompileOptions) -> bool:
    """Results of a normalisation and an activation function are computed again before the backward pass reads them.

    Only where they follow element by element from activations that the backward pass reads too, and that are not
    computed again themselves. Where the step asks for it (`recompute: true`), the memory is free in between, and a
    kernel more reads those and writes this. In any step, what is read element by element alone, as Clip and its slope
    read a normalised image, is not stored at all where it follows from one image: slopes read that in its place.

    Before::

        %2 = Relu(%1)
        %4 = Conv(%2, %3)
        %9 = ConvWeights(%2, %8)
        %10 = Mul(%1, %7)

    After::

        %2 = Relu(%1)
        %4 = Conv(%2, %3)
        %11 = Relu(%1)
        %9 = ConvWeights(%11, %8)
        %10 = Mul(%1, %7)
    """
    if (not graph.recomputes and options.train is None) or graph.outputs[0].producer is None:
        return False
    order = {n: k for k, n in enumerate(graph.nodes)}
    turn, users = order[graph.outputs[0].producer], graph.users()
    late = {v: [n for n in by if order[n] > turn] for v, by in users.items()}
    chains = dict[Value, Sequence[Node]]()
    for node in graph.nodes[:turn]:
        v = node.output if len(node.outputs) == 1 else None
        if v is None or not late.get(v) or len(late[v]) == len(users[v]) or v in graph.outputs:
            continue
        passing = all(n.op.family == "pointwise" and n.output.shape == v.shape for n in users[v])
        if not graph.recomputes and not passing:
            continue
        chain = _Chain(v, late, chains).find()
        if chain and (graph.recomputes or _images_of(chain) == 1):
            chains[v] = chain
    return bool(chains) and _copy(graph, chains, late)


@dataclass
class _Chain:
    """The nodes that make an activation of others.

    Attributes:
        value: what they make.
        late: nodes of the backward pass that read each value.
        again: activations that are computed again.
    """

    value: Value
    late: Mapping[Value, Sequence[Node]]
    again: Collection[Value]

    def find(self) -> Sequence[Node]:
        """Them, in order; none if it cannot be computed again."""
        if not _is_activation(self.value):
            return []
        found, pending = dict[Node, None](), [self.value]
        while pending:
            v = pending.pop()
            node = v.producer
            if node is None or (v is not self.value and (v.shape != self.value.shape or node in found)):
                continue
            kept = v is not self.value and bool(self.late.get(v))
            if kept or node.op.family != "pointwise" or len(node.outputs) > 1:
                if v is self.value or not kept or v in self.again:
                    return []
                continue
            found[node] = None
            if len(found) > _STEPS:
                return []
            pending += [x for x in node.operands if x.const is None]
        return _in_order(found)


def _images_of(chain: Sequence[Node]) -> int:
    """How many whole activations a chain reads."""
    made = {n.output for n in chain}
    return len({x for n in chain for x in n.operands if x not in made and x.shape == chain[-1].output.shape})


def _is_activation(v: Value) -> bool:
    size = as_int(product(v.shape))
    return v.type.rank > 2 and v.dtype.is_float and size is not None and size >= _LEAST


def _in_order(nodes: Collection[Node]) -> list[Node]:
    """Nodes behind those whose results they read."""
    done: list[Node] = []
    while len(done) < len(nodes):
        waiting = [n for n in nodes if n not in done]
        done += [n for n in waiting if not any(v.producer in waiting for v in n.operands)]
    return done


def _copy(graph: Graph, chains: Mapping[Value, Sequence[Node]], late: Mapping[Value, Sequence[Node]]) -> bool:
    """Copies of chains, each before the first node that reads its result in the backward pass."""
    rewriter, made = Rewriter(graph, "recompute_activations"), dict[Value, Value]()
    readers = {n for v in chains for n in late[v]}
    for node in rewriter:
        if node in readers:
            for v in [v for v in node.operands if v in chains and v not in made]:
                made[v] = _again(rewriter, chains[v])
            rewire(node, tuple(x if x is None else made.get(x, x) for x in node.inputs))
        rewriter.keep(node)
    rewriter.finish()
    return bool(made)


def _again(rewriter: Rewriter, chain: Sequence[Node]) -> Value:
    """The result of a copy, kept from kernels that would compute it before its time, with what it reads beside."""
    now, whole = dict[Value, Value](), chain[-1].output
    for node in chain:
        for v in node.operands:
            if v not in now and v.producer is not None and v.shape != whole.shape:
                now[v] = rewriter.builder(node.name).one(Separator(_RULE), v)
                relayout(now[v], v.layout)
        inputs = [x if x is None else now.get(x, x) for x in node.inputs]
        (result,) = rewriter.builder(node.name).add(node.op, inputs)
        relayout(result, node.output.layout)
        now[node.output] = result
    return now[whole]
