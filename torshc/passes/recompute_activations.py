"""Compute again, for the backward pass, what a training step makes element by element of activations that it keeps."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from ..base.features import Feature, Features
from ..base.options import CompileOptions
from ..expr import as_int, product
from ..graph import Graph, Node, Recomputation, Rewriter, Value, relayout, rewire
from ..ops.math.pointwise import Separator
from ..ops.nn.taps import FoldedTaps
from .manager import graph_pass
from .recompute_segments import Kept, find_segments
from .recompute_slopes import find_slopes, is_from_product, source_of

_LEAST = 2**16  # elements of an activation that is worth a kernel more
_RULE = "recompute_activations"
_STEPS = 12  # nodes from the activations that are kept to the one that is computed again


@graph_pass("recompute_activations")
def recompute_activations(graph: Graph, options: CompileOptions, *, features: Features = frozenset()) -> bool:
    """Results of a normalisation and an activation function are computed again before the backward pass reads them.

    Only where they follow element by element from activations that the backward pass reads too, and that are not
    computed again themselves, or are pictures whose taps are channels (`fold_taps.py`). In any step, what is read
    element by element alone, as Clip and its slope read a normalised image, is not stored at all where it follows from
    one image: slopes read that in its place. Where the step asks for more (`recompute: true`), the memory is free in
    between, and a kernel more reads those and writes this. For a bound of memory (`--train-memory`) whole segments of
    the forward pass are computed again too (`recompute_segments.py`): of all that could be, as many as the bound needs,
    those first that free the most for their time.
    On targets with `FREE_ARITHMETIC` a slope of an activation that is stored reads what this follows from, where the
    gradient of a normalisation reads that anyway, and shares its kernels, not the product's before
    (`recompute_slopes.py`).

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
    asked = graph.recomputes or graph.bound is not None
    if graph.outputs[0].producer is None or not (asked or options.train is not None):
        return False
    kept, free = Kept(graph, graph.outputs[0].producer), set[Value]()
    chains, bought = dict[Value, Sequence[Node]](), dict[Value, Sequence[Node]]()
    slopes = dict[Value, Sequence[Node]]()
    for v in kept.values:
        chain = _Chain(v, kept.late, bought, free, _LEAST if graph.bound is None else kept.least).find()
        if not chain:
            continue
        chains[v], source = chain, source_of(v, chain)
        if source is not None and _costs_nothing(v, kept.users[v]):
            free.add(v)
        elif asked:
            bought[v] = chain
        if source is not None and _is_activation(v, _LEAST) and Feature.FREE_ARITHMETIC in features:
            slopes[v] = find_slopes(v, source, kept.late[v], kept.users)
    found = [Recomputation((v,), len(c), kept.bytes(v), _more_moved(kept, v, c), True) for v, c in bought.items()]
    if graph.bound is not None:
        segments, chosen = graph.bound
        found = sorted((*found, *find_segments(kept, segments)), key=lambda r: r.cost / r.bytes)
        found = [replace(r, chosen=k in chosen) for k, r in enumerate(found)]
    graph.recomputations = tuple(found)
    single = free | {v for r in found if r.chosen and len(r.values) == 1 for v in r.values if v in bought}
    inside = {v for r in found if r.chosen and not single.issuperset(r.values) for v in r.values}
    slopes = {v: by for v, by in slopes.items() if by and v not in inside}
    late = slopes | {v: kept.late[v] for v in (*single, *inside)}
    return _Again(graph, kept, _Copies(chains, inside, late, slopes, slopes.keys() - single)).copy()


@dataclass
class _Chain:
    """The nodes that make an activation of others.

    Attributes:
        value: what they make.
        late: nodes of the backward pass that read each value.
        again: activations that are computed again.
        free: those of them that nobody stores, so that what follows from them is computed of what they follow from.
        least: elements of an activation that is worth a kernel more.
    """

    value: Value
    late: Mapping[Value, Sequence[Node]]
    again: Collection[Value]
    free: Collection[Value]
    least: int

    def find(self) -> Sequence[Node]:
        """Them, in order; none if it cannot be computed again."""
        if not _is_activation(self.value, self.least):
            return []
        found, pending = dict[Node, None](), [self.value]
        while pending:
            v = pending.pop()
            node = v.producer
            if node is None or (v is not self.value and (v.shape != self.value.shape or node in found)):
                continue
            kept = v is not self.value and v not in self.free and bool(self.late.get(v))
            folds = isinstance(node.op, FoldedTaps) and node.operands[0].producer is None
            if kept or not (folds or node.op.family == "pointwise") or len(node.outputs) > 1:
                if v is self.value or not kept or v in self.again:
                    return []
                continue
            found[node] = None
            if len(found) > _STEPS:
                return []
            pending += [x for x in node.operands if x.const is None]
        return _in_order(found)


def _costs_nothing(v: Value, readers: Sequence[Node]) -> bool:
    """Whether those who read an activation, element by element, can read the one activation that it follows from."""
    alike = all(n.op.family == "pointwise" and n.output.shape == v.shape for n in readers)
    return alike and _is_activation(v, _LEAST)


def _more_moved(kept: Kept, v: Value, chain: Sequence[Node]) -> int:
    """Bytes that are moved when a chain of nodes makes an activation again.

    A kernel that reads the activation element by element reads what the chain does in its place.
    """
    made = {n.output for n in chain}
    moved = kept.bytes(v) + sum(map(kept.bytes, {x for n in chain for x in n.operands} - made))
    alike = any(n.op.family == "pointwise" and n.output.shape == v.shape for n in kept.late[v])
    return moved - (kept.bytes(v) if alike else 0)


def _is_activation(v: Value, least: int) -> bool:
    size = as_int(product(v.shape))
    return v.type.rank > 2 and v.dtype.is_float and size is not None and size >= least


def _in_order(nodes: Collection[Node]) -> list[Node]:
    """Nodes behind those whose results they read."""
    done: list[Node] = []
    while len(done) < len(nodes):
        waiting = [n for n in nodes if n not in done]
        done += [n for n in waiting if not any(v.producer in waiting for v in n.operands)]
    return done


@dataclass(frozen=True)
class _Copies:
    """What is copied.

    Attributes:
        chains: what makes each value that follows element by element from values that are kept.
        inside: values of segments that are computed again.
        late: who reads the copies, by what they are of.
        slopes: those of them that share no kernel with the product whose result they also read.
        stored: what is kept too, for others than these.
    """

    chains: Mapping[Value, Sequence[Node]]
    inside: Collection[Value]
    late: Mapping[Value, Sequence[Node]]
    slopes: Mapping[Value, Sequence[Node]]
    stored: Collection[Value]


class _Again:
    """Makes copies of nodes, each before the first node that reads its result in the backward pass."""

    def __init__(self, graph: Graph, kept: Kept, copies: _Copies) -> None:
        self.kept, self.copies = kept, copies
        self.again = copies.late.keys() - copies.stored
        self.apart = {n for by in copies.slopes.values() for n in by}
        self.rewriter = Rewriter(graph, "recompute_activations")
        self.made: dict[Value, Value] = {}
        self.beside: dict[Value, Value] = {}  # copies of what is stored

    def copy(self) -> bool:
        """Whether there was something to copy."""
        late = self.copies.late
        readers = {n for by in late.values() for n in by}
        for node in self.rewriter:
            if node in readers:
                for v in node.operands:
                    if node in late.get(v, ()) and v not in self.made and v not in self.beside:
                        self._restore(v)
                rewire(node, tuple(x if x is None else self._copy_of(x, node) for x in node.inputs))
            self.rewriter.keep(node)
        self.rewriter.finish()
        return bool(self.made or self.beside)

    def _copy_of(self, v: Value, reader: Node) -> Value:
        if reader in self.copies.late.get(v, ()):
            return self.beside.get(v) or self.made[v]
        return self._separate(v, reader) if reader in self.apart and is_from_product(v) else v

    def _restore(self, v: Value) -> None:
        """Copy the nodes that make a value of what is kept."""
        inside = self.copies.inside
        chain = None if v in inside else self.copies.chains[v]
        for node in chain or self.kept.nodes_for(v, inside, self.made):
            for x in node.operands:
                if x in self.again and x not in self.made and (chain or x not in inside):
                    self._restore(x)
            if chain:
                continue
            inputs = [x if x is None else self.made.get(x) or self._separate(x, node) for x in node.inputs]
            for old, new in zip(node.outputs, self.rewriter.builder(node.name).add(node.op, inputs), strict=True):
                relayout(new, old.layout)
                self.made[old] = new
        if chain:
            (self.beside if v in self.copies.stored else self.made)[v] = self._chain(chain)

    def _separate(self, v: Value, reader: Node) -> Value:
        """A value that is kept, with its kernel kept from computing its readers before their time."""
        if v.producer is None or v.const is not None:
            return v
        found = self.rewriter.builder(reader.name).one(Separator(_RULE), v)
        relayout(found, v.layout)
        return found

    def _chain(self, chain: Sequence[Node]) -> Value:
        """The result of a copy, kept from kernels that would compute it before its time, with what it reads beside."""
        now, whole = dict[Value, Value](), chain[-1].output
        for node in chain:
            for v in node.operands:
                if v not in now and v.producer is not None and v.shape != whole.shape:
                    now[v] = self._separate(v, node)
            inputs = [x if x is None else now.get(x) or self.made.get(x, x) for x in node.inputs]
            (result,) = self.rewriter.builder(node.name).add(node.op, inputs)
            relayout(result, node.output.layout)
            now[node.output] = result
        return now[whole]
