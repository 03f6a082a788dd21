"""Cut a graph into segments, each of which can be fused and compiled, and the host's steps between them.

    x -> Relu -> NonZero -> Gather -> y      becomes      segment 0 (Relu), NonZero, segment 1 (Gather)

A node is in the first segment that finds its operands there and the symbols in its shapes bound. All nodes of one
segment are one graph, so that fusion works as if the rest were not there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..expr import Expr, as_int, dims_of
from ..graph import Graph, Node, Rewriter, SymbolSource, Value, copy_part
from ..ops.control.flow import Branching, Looping, all_nodes, bodies, symbols_of
from .script import Bind, Branch, Call, Check, Move, Operate, Repeat, Script, Stack, Step, flat, with_drops


def is_plain(graph: Graph) -> bool:
    """Whether one segment does: there is nothing for the host to do, and inputs define all symbols."""
    given = set(graph.inputs)
    objects = any(v.dtype.is_object for v in (*graph.inputs, *graph.outputs))
    host = any(n.op.family == "host" for n in graph.nodes)
    return not host and not objects and all(e.value in given for e in graph.sources.values())


def drop_unneeded(graph: Graph) -> None:
    """Take out what no output needs: nodes, then symbols that only these told, and the checks of such symbols.

    What the import chose a branch by is needed. Bodies are done too, from the innermost on. A pass would do it as well,
    but what waits for the run decides how a graph is cut, which comes first.
    """
    for part in [graph, *(body for n in all_nodes(graph) for body in bodies(n))][::-1]:
        rewriter = Rewriter(part, "drop_unneeded")
        rewriter.keep(*_needed_nodes(part))
        rewriter.finish()
    there = {*graph.inputs, *(v for n in all_nodes(graph) for v in n.outputs)}
    there.update(v for n in all_nodes(graph) for body in bodies(n) for v in body.inputs)
    lost = {name for name, e in graph.sources.items() if e.value not in there}
    for g in (graph, *(body for n in all_nodes(graph) for body in bodies(n))):
        g.forget(lost)
    needed = _used_symbols(graph)
    graph.forget({n for n, e in graph.sources.items() if n not in needed and e.value not in graph.inputs})


def partition(graph: Graph) -> Script:
    """The script of a graph, whose segments are graphs of their own. It is frozen, as are the bodies in it."""
    return _Partition(graph).run()


class _Partition:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.script = Script()
        self.slot_of: dict[Value, int] = {}
        self.sources = graph.sources
        self.by_value: dict[Value, list[str]] = {}
        self.unknown: set[Value] = set()
        used = _used_symbols(graph)
        for name in (n for n in self.sources if n in used):
            e = self.sources[name]
            self.by_value.setdefault(e.value, []).append(name)

    def run(self) -> Script:
        script, graph = self.script, self.graph
        given = set(graph.inputs)
        script.bound = tuple(n for n in graph.symbols() if n not in self.sources or self.sources[n].value in given)
        script.inputs = tuple(self.slot(v) for v in graph.inputs)
        steps, outputs = self.body(graph)
        script.outputs = tuple(outputs)
        script.computed = tuple(dict.fromkeys(x.symbol for x in flat(steps) if isinstance(x, Bind)))
        own = set(range(script.slots)) - set(script.inputs) - set(script.constants) - set(outputs)
        script.steps = with_drops(steps, own, set())
        return script

    def slot(self, v: Value) -> int:
        """The slot of a value; that of a constant is filled from the start."""
        if v not in self.slot_of:
            self.slot_of[v] = self.fresh()
            if v.const is not None:
                self.script.constants[self.slot_of[v]] = v
        return self.slot_of[v]

    def fresh(self) -> int:
        self.script.slots += 1
        return self.script.slots - 1

    def body(self, graph: Graph) -> tuple[list[Step], list[int]]:
        """The steps of a graph, or of a body in it, and the slots of its outputs."""
        graph.freeze()
        nodes = _needed_nodes(graph)
        place = _Places(nodes, self.sources).run()
        steps: list[Step] = []
        checks = _checks(graph, place)
        for at in range(max([*place.of.values(), *checks, -1]) + 1):
            steps += [Check(a, b) for a, b in checks.get(at, ())]
            here = [n for n in nodes if place.of[n] == at]
            if here and at % 2 == 0:
                steps += self.segment(graph, nodes, here)
            for node in here if at % 2 else ():
                steps.append(self.operate(node))
                steps += self.binds(node.outputs)
        return steps, [self.slot(v) for v in graph.results]

    def binds(self, values: Iterable[Value]) -> list[Step]:
        found = [(n, self.sources[n]) for v in values for n in self.by_value.get(v, ())]
        return [Bind(name, self.slot(e.value), e.position, e.kind) for name, e in found]

    def segment(self, graph: Graph, nodes: list[Node], here: list[Node]) -> list[Step]:
        """A call of a graph of its own, made of some of the nodes."""
        inside = {v for n in here for v in n.outputs}
        outside = {v for n in nodes if n not in set(here) for v in n.operands} | set(graph.results)
        wanted = [v for n in here for v in n.outputs if v in outside or v in self.by_value]
        self.unknown.update(v for v in inside if v in self.by_value)  # this segment cannot know them yet
        part, read = copy_part(graph, here, wanted, self.unknown)
        call = Call(len(self.script.segments), tuple(map(self.slot, read)), tuple(map(self.slot, wanted)))
        self.script.segments.append(part)
        return [call, *self.binds(wanted)]

    def operate(self, node: Node) -> Step:
        if isinstance(node.op, Branching):
            return self.branch(node, node.op)
        if isinstance(node.op, Looping):
            return self.loop(node, node.op)
        slots = tuple(-1 if v is None else self.slot(v) for v in node.inputs)
        return Operate(node, slots, tuple(self.slot(v) for v in node.outputs))

    def branch(self, node: Node, op: Branching) -> Step:
        condition = self.slot(node.operands[0])
        sides = []
        for graph in (op.then, op.other):
            first = self.script.slots
            steps, outputs = self.body(graph)
            own = set(range(first, self.script.slots)) - set(self.script.constants)
            moves = [Move(self.slot(v), o) for v, o in zip(node.outputs, outputs, strict=True)]
            sides.append(with_drops([*steps, *moves], own - {m.target for m in moves}, set()))
        return Branch(node, condition, sides[0], sides[1])

    def loop(self, node: Node, op: Looping) -> Step:
        limit, condition = (-1 if v is None else self.slot(v) for v in node.inputs[:2])
        starts = [self.slot(v) for v in node.inputs[2 : 2 + op.states] if v is not None]
        first = self.script.slots
        number, going, *states = (self.slot(v) for v in op.body.inputs)
        steps, outputs = self.body(op.body)
        steps = [*self.binds(op.body.inputs), *steps]
        own = set(range(first, self.script.slots)) - set(self.script.constants)
        kept = {number, going, *states, *outputs}
        results = [self.slot(v) for v in node.outputs]
        stacks = tuple(
            Stack(each, self.fresh(), joined, value)
            for each, joined, value in zip(
                outputs[1 + op.states :], results[op.states :], node.outputs[op.states :], strict=True
            )
        )
        return Repeat(
            node,
            limit,
            condition,
            number,
            going,
            tuple(zip(states, starts, outputs[1 : 1 + op.states], results, strict=False)),
            outputs[0] if op.uses_condition else -1,
            stacks,
            with_drops(steps, own, kept),
            tuple(sorted((own & set(outputs)) - {number, going, *states})),
        )


def _used_symbols(graph: Graph) -> set[str]:
    """The symbols that kernels or checks need, in the graph and the bodies in it."""
    found: set[str] = set()
    for g in (graph, *(body for n in all_nodes(graph) for body in bodies(n))):
        found.update(dims_of(*(e for pair in g.constraints for e in pair)))
        for node in g.nodes:
            if node.op.family != "host":
                found |= symbols_of(node)
    return found


def _needed_nodes(graph: Graph) -> list[Node]:
    """The nodes that the outputs need, in order."""
    wanted = {*graph.outputs, *(graph.sources[s].value for s in dims_of(*graph.choices) if s in graph.sources)}
    kept = []
    for node in reversed(graph.nodes):
        if any(v in wanted for v in node.outputs):
            kept.append(node)
            wanted.update(node.operands)
            wanted.update(graph.sources[s].value for s in symbols_of(node) if s in graph.sources)
    return kept[::-1]


class _Places:
    """The place of each node: 0, 2, 4 are the segments, 1, 3, 5 the host's steps after each."""

    def __init__(self, nodes: list[Node], sources: Mapping[str, SymbolSource]) -> None:
        self.nodes = nodes
        self.sources = sources
        self.of: dict[Node, int] = {}
        self.made: dict[Value, int] = {}

    def run(self) -> _Places:
        for node in self.nodes:
            host = node.op.family == "host"
            ready = [self.value(v, host) for v in node.operands]
            ready += [self.symbol(s, host, node) for s in symbols_of(node)]
            self.of[node] = max(ready, default=1 if host else 0)
            self.made.update(dict.fromkeys(node.outputs, self.of[node]))
        return self

    def value(self, v: Value, host: bool) -> int:
        """The first place where a value can be read."""
        at = self.made.get(v, -1)
        if host:
            return max(at + 1 - at % 2, 1)
        return at + 1 if at % 2 else at

    def symbol(self, name: str, host: bool, node: Node | None = None) -> int:
        """The first place where a symbol is bound."""
        found = self.sources.get(name)
        if found is None or found.value not in self.made or (node is not None and found.value in node.outputs):
            return 1 if host else 0
        at = self.made[found.value]
        if host:
            return at + 1 - at % 2
        return at + 1 if at % 2 else at + 2


def _checks(graph: Graph, place: _Places) -> dict[int, list[tuple[Expr, Expr]]]:
    """The constraints of a graph by the place before which they can be checked."""
    found: dict[int, list[tuple[Expr, Expr]]] = {}
    for a, b in dict.fromkeys(graph.constraints):
        if a is not b and (as_int(a) is None or as_int(b) is None):
            at = max((place.symbol(s, False) for s in dims_of(a, b)), default=0)
            found.setdefault(at, []).append((a, b))
    return found
