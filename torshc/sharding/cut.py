"""The graphs of ranks that send each other tensors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ..expr import Expr
from ..graph import Builder, Graph, Node, TensorType, Value
from ..ops.ranks.chain import Chain
from ..ops.ranks.collectives import Collective, Recv, Send

EVERYWHERE = -1  # the stage of what every rank computes for itself


@dataclass(frozen=True)
class Transfer:
    """A tensor that a rank sends to another, or that all exchange.

    Attributes:
        source, target: the ranks; -1 for all of them.
        kind: the operator's name ("Send", "AllReduce").
        name: the model's name of the tensor, or of the node that makes it.
        type: type of what each rank gives.
    """

    source: int
    target: int
    kind: str
    name: str
    type: TensorType

    @property
    def nbytes(self) -> Expr:
        """Bytes that a rank gives."""
        return self.type.nbytes


@dataclass(frozen=True)
class Cut:
    """A model as the graphs of its ranks, and what these exchange in a run, in order.

    Attributes:
        chosen: the file that says the same, where the cost model chose; else empty.
    """

    graphs: tuple[Graph, ...]
    transfers: tuple[Transfer, ...]
    chosen: str = ""


class RankGraph:
    """The graph of a rank in the making; it has the inputs and outputs of the whole model.

    Args:
        whole: the model.
        rank, ranks: which of how many this is.

    Attributes:
        graph: the graph.
        there: what stands here for a value of the model.
        builder: adds nodes to it.
    """

    def __init__(self, whole: Graph, rank: int, ranks: int) -> None:
        self.whole, self.graph = whole, whole.child(whole.name)
        self.graph.rank, self.graph.ranks = rank, ranks
        self.builder = Builder(self.graph)
        self.there: dict[Value, Value] = {v: v.copy() for v in whole.inputs}
        self.graph.declare_inputs(self.there.values())
        self.graph.sources = {n: replace(s, value=self.there[s.value]) for n, s in whole.sources.items()}
        self.graph.constraints = list(whole.constraints)
        self.graph.choices = list(whole.choices)
        self.graph.custom = whole.custom
        self.graph.file_sha256 = whole.file_sha256
        self.graph.warnings = list(whole.warnings) if rank == 0 else []
        self._chain = Chain(self.builder)

    def get(self, v: Value) -> Value:
        """What stands for a value of the model; constants are shared."""
        return v if v.const is not None else self.there[v]

    def copy(self, node: Node) -> None:
        """Make a node of the model here."""
        outputs = {v: v.copy() for v in node.outputs}
        self.builder.copy(node, (None if v is None else self.get(v) for v in node.inputs), outputs.values())
        self.there |= outputs

    def exchange(self, op: Collective, *operands: Value, name: str = "") -> list[Value]:
        """Make an exchange behind the one before it; its results without the token."""
        return self._chain.add(op, *operands, name=name)

    def send(self, v: Value, own: Value, peer: int, tag: int) -> None:
        """Send what stands here for a value of the model, or for a part of one."""
        self.exchange(Send(peer, tag), own, name=name_of(v))

    def receive(self, v: Value, sent: Value, peer: int, tag: int) -> Value:
        """Receive what another rank sends for a value of the model."""
        (found,) = self.exchange(Recv(peer, tag, sent.dtype.name, sent.shape), name=name_of(v))
        found.name, found.data = v.name, sent.data
        return found

    def finish(self, results: Iterable[Value], demands: Mapping[Value, str]) -> Graph:
        """The graph with these outputs, which refuses runs as is demanded."""
        for v, what in demands.items():
            self.graph.demand(v, what)
        self._chain.settle()
        self.graph.declare_outputs(results, self.whole.output_names[: len(self.whole.results)])
        return self.graph


def name_of(v: Value) -> str:
    """What a model calls a value: its name, or that of the node that makes it."""
    return v.name or (v.producer.name if v.producer is not None else "") or f"value {v.id}"


def names_of(node: Node) -> list[str]:
    """What a model calls a node: its name, and those of what it makes."""
    return [name for name in (node.name, *(v.name for v in node.outputs)) if name]


def demands_of(graph: Graph) -> dict[Value, str]:
    """What a graph demands of values."""
    return dict(zip(graph.outputs[len(graph.results) :], graph.demands, strict=True))


def finish_stages(graph: Graph, ranks: Sequence[RankGraph], stage: Mapping[Node, int]) -> tuple[Graph, ...]:
    """The graphs of ranks that have all results of a model, with what it demands of values that they compute."""
    demands = demands_of(graph)
    done = []
    for k, rank in enumerate(ranks):
        mine = {rank.get(v): what for v, what in demands.items() if v.producer and stage[v.producer] in (EVERYWHERE, k)}
        done.append(rank.finish([rank.get(v) for v in graph.results], mine))
    return tuple(done)


def cone(v: Value) -> list[Node]:
    """The nodes that a value is made by, and what these read."""
    found: dict[Node, None] = {}
    pending = [v]
    while pending:
        node = pending.pop().producer
        if node is not None and node not in found:
            found[node] = None
            pending += node.operands
    return list(found)
