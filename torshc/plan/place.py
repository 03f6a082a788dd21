"""What must be in memory: which results groups write, what they read through, where concatenations are built."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ..expr import Expr, as_int, axis, const, cost, walk
from ..graph import Graph, Node, RuleName, Value
from ..ops.core.base import REGISTRY
from ..ops.tensor.view import too_wide
from ..passes.fusion_rules import Recompute
from ..passes.policy import Policy
from .finalise import FinalGraph
from .fusion import Fuser, kind_of
from .fusion_permissions import Permits, tensors
from .group import Boundary, Group
from .horizontal_fusion import gathered, side_by_side
from .inline import Inliner
from .storage import Storage, contiguous, strided
from .totals import join_totals
from .updates import readers_of_old_states
from .views import behind_views, is_view, readers

SOON = 8  # groups up to which what refuses a run is computed ahead of everything else


@dataclass
class Plan:
    """The groups in launch order and where values lie.

    Attributes:
        groups: in an order in which every group finds its operands ready.
        storage: values that lie inside the memory of others.
        boundaries: why fusion stopped where it did.
        policy: the rules that held.
        apart: what rules kept apart: the rule, who makes a value, who reads it.
        stored: nodes that may be computed again, and why their results are stored all the same.
    """

    graph: Graph
    policy: Policy
    groups: list[Group] = field(default_factory=list)
    storage: dict[Value, Storage] = field(default_factory=dict)
    boundaries: list[Boundary] = field(default_factory=list)
    apart: list[tuple[RuleName, Node, Node]] = field(default_factory=list)
    stored: dict[Node, str] = field(default_factory=dict)


def make_plan(final: FinalGraph) -> Plan:
    """Fuse a graph and decide what is stored."""
    return _Placer(final.graph, Permits(final)).run()


class _Placer:
    def __init__(self, graph: Graph, permits: Permits) -> None:
        self.graph = graph
        self.permits = permits
        self.off = permits.policy.off
        self.stored: dict[Node, str] = {}
        self.fuser = Fuser(graph, permits)
        self.fuser.run()
        if permits.policy.totals and not self.off:
            join_totals(self.fuser)
        self.group_of = self.fuser.group_of
        self.users = graph.users()
        self.parts: dict[Value, tuple[Value, int, Expr]] = {}  # operand -> (concatenation, axis, start)
        self.joined: dict[Value, list[Value]] = {}  # concatenation -> operands
        self.aliases: dict[Value, tuple[Value, Expr]] = {}  # view -> (value in memory, offset)
        self.roots: set[Value] = set()  # values that aliases look at
        self.made: dict[Value, Group] = {}  # value -> group that writes it
        self.done: set[int] = set()
        self.sparing: set[Group] = set()  # those that read what they could compute, so that they have fewer buffers
        self.widened: set[Node] = set()  # nodes that readers compute, since their group stores a narrower value
        self.groups: list[Group] = []
        self.boundaries = self.fuser.boundaries

    def run(self) -> Plan:
        if self.off:
            most = self.permits.policy.max_buffers
            for node in self.graph.nodes:
                if is_view(node) and (not most or len(node.operands) < most):
                    self.group_of[node] = Group(0, "nest", [node])
        for v in self.graph.outputs:
            self._need(v)
        self._order()
        for group in self.groups:
            if not self.widened.isdisjoint(group.nodes):
                used = {
                    n
                    for v in group.outputs
                    if v.producer is not None
                    for n in self._needed_members(v.producer, group.folded)
                }
                group.nodes = [n for n in group.nodes if n in used]
            group.boundaries = [b for b in self.boundaries if b.consumer in group.nodes]
        permits = self.permits
        return Plan(
            self.graph, permits.policy, self.groups, self._settle(), self.boundaries, permits.pairs, self.stored
        )

    # -- what is needed in memory ------------------------------------------------------------------------------

    def _need(self, value: Value) -> None:
        """See to it that a value will be in memory."""
        pending = [value]
        while pending:
            v = pending.pop()
            if self._is_stored(v) or v.producer is None:
                continue
            group = self.group_of.get(v.producer)
            if group is None:
                pending.extend(self._materialise(v))
                continue
            self.made[v] = group
            group.outputs.append(v)
            pending.extend(self._reads(group))

    def _is_stored(self, v: Value) -> bool:
        """Whether a value is already known to be in memory."""
        return v in self.made or v in self.aliases or v in self.joined

    def _reads(self, group: Group) -> list[Value]:
        """The values that a group reads from memory; done once a group."""
        if id(group) in self.done:
            return []
        self.done.add(id(group))
        self.groups.append(group)
        members, rules, most = set(group.nodes), list(group.rules), self.permits.policy.max_buffers
        group.reads = self._values_read(group)
        if most and tensors(group.reads) + self.fuser.stores(members) > most:
            group.folded, group.rules = [], rules
            self.sparing.add(group)
            group.reads = self._values_read(group)
        group.folded = sorted(dict.fromkeys(group.folded), key=self.fuser.position.__getitem__)
        return group.reads

    def _values_read(self, group: Group) -> list[Value]:
        """The values that a group reads from memory, as far back as it computes itself what its nodes read."""
        members = set(group.nodes)
        wanted: dict[Value, None] = {}
        for node in group.nodes:
            for v in node.operands:
                if v.producer in members:
                    continue
                if node.op.heavy:
                    self._pull_heavy(group, node, v, wanted)
                else:
                    self._pull(group, node, v, wanted)
        return list(wanted)

    def _pull(self, group: Group, reader: Node, value: Value, wanted: dict[Value, None]) -> None:
        """Read a value through views and cheap nodes as far as that goes."""
        node = value.producer
        base, chain = behind_views(value)
        if chain and base.producer in group.nodes:  # never from memory that this very kernel writes
            group.folded.extend(chain)
            return
        if value.const is not None or node is None or self._is_stored(value):
            wanted[value] = None
            return
        if node in group.folded or node in group.nodes:
            return
        found = self._folds(group, node) if reader.op.family != "composite" else []
        for member in found:
            group.folded.append(member)
            for v in member.operands:
                self._pull(group, member, v, wanted)
        if not found:
            wanted[value] = None

    def _folds(self, group: Group, node: Node) -> list[Node]:
        """The nodes that a group computes itself in order not to read what a node has stored; none to read it."""
        if is_view(node):
            return [node] if not self.off and self._foldable(group, node) else []
        if group in self.sparing:
            return []
        widening = self._find_widening(node)
        if widening and self.permits.apart(widening, (*group.nodes, *group.folded)) is None:
            self.widened.update(widening)
            return widening
        rule = self._cheap(node)
        members = self._needed_members(node) if rule is not None else []
        if rule is None or self.permits.apart(members, (*group.nodes, *group.folded)) is not None:
            return []
        if rule not in group.rules:
            group.rules.append(rule)
        return members

    def _foldable(self, group: Group, view: Node) -> bool:
        """Whether a group may read through a view: concatenations only where the branch is cheap and not nested."""
        if view.op.name != "Concat":
            return True
        if group in self.sparing:
            return False
        nested = any(_behind_concat(v) for v in view.operands) or any(
            n.op.name == "Concat" or n.op.heavy for n in self.users.get(view.output, [])
        )
        return group.kind == "nest" and len(view.operands) <= 4 and not nested and self._light(view)

    def _light(self, view: Node) -> bool:
        """Whether all readers of a view, through other views, are pointwise groups."""
        if any(self.group_of[n].kind != "nest" for n in readers(view.output, self.users)):
            return False
        return not any(v in self.graph.outputs for v in view.outputs)

    def _cheap(self, node: Node) -> RuleName | None:
        """The rule by which each reader computes a value of a pointwise group again; None to store it."""
        most, rule = self.permits.policy.recompute(node)
        if not most.nodes:
            return None
        reason = self._why_stored(node, most)
        if reason:
            self.stored[node] = reason
        return rule if not reason else None

    def _find_widening(self, node: Node) -> list[Node]:
        """The last steps of a group that make a wide value of a narrow one, cheap enough for each reader to take them.

        So bytes that a kernel quantises lie in memory as bytes, whoever wants them as floats.
        """
        group, (most, _) = self.group_of[node], self.permits.policy.recompute(node)
        if group.kind == "nest" or any(v in self.graph.outputs for v in node.outputs):
            return []
        if any(n.op.heavy for v in node.outputs for n in readers(v, self.users)):
            return []
        steps, found, at = list[Node](), list[Node](), node
        while len(steps) < (most.nodes or 0) and at in group.nodes and at.op.family == "pointwise":
            steps.append(at)
            made = [v for v in at.operands if v.const is None]
            if len(made) != 1 or made[0].producer is None or made[0].shape != node.output.shape:
                break
            at = made[0].producer
            if made[0].dtype.size < node.output.dtype.size and at in group.nodes:
                found = list(steps)
        if not found:
            return []
        index = tuple(axis(f"i{k}", d) for k, d in enumerate(node.output.shape))
        return found if cost(Inliner(found).at(node.output, index)) <= (most.work or 0) else []

    def _why_stored(self, node: Node, most: Recompute) -> str:
        """Why the value of a node is not computed again, or nothing."""
        group = self.group_of[node]
        if group.kind != "nest":
            return f"a kernel of kind {group.kind} makes it"
        if any(v in self.graph.outputs for v in node.outputs):
            return "it is an output of the model"
        if len(group.nodes) > (most.nodes or 0):
            return f"its kernel has {len(group.nodes)} nodes, more than {most.nodes}"
        if node.op.name == "Identity" and node.output.layout != node.operands[0].layout:
            return "its readers need another order in memory"
        if any(n.op.heavy for v in node.outputs for n in readers(v, self.users)):
            return "a heavy kernel reads it, which takes its operands from memory"
        index = tuple(axis(f"i{k}", d) for k, d in enumerate(node.output.shape))
        body = Inliner(group.nodes).at(node.output, index)
        loads = sum(x.op == "load" for x in walk(body))
        if loads > (most.loads or 0):
            return f"an element needs {loads} loads, more than {most.loads}"
        work = cost(body)
        return f"an element takes {work} operations, more than {most.work}" if work > (most.work or 0) else ""

    def _needed_members(self, node: Node, folded: Sequence[Node] = ()) -> list[Node]:
        """The nodes of a group that one of its results depends on, also through views that its kernel looks through."""
        members, out, pending = {*self.group_of[node].nodes, *folded}, list[Node](), [node]
        while pending:
            n = pending.pop()
            if n in out:
                continue
            out.append(n)
            pending.extend(v.producer for v in n.operands if v.producer in members and v.producer is not None)
        return out

    def _pull_heavy(self, group: Group, node: Node, value: Value, wanted: dict[Value, None]) -> None:
        """An operand of a heavy node: read through views where that leaves plain strides, else from memory."""
        base, chain = behind_views(value)
        filled = base.const is not None and base.const.size == 1 and not self.off
        if filled and node.op.family == "scatter" and value is node.operands[0]:
            group.folded.extend(chain)
            wanted[base] = None
            return
        can_stride = node.op.family in ("gemm", "attention") and not self.off
        if not can_stride or not chain or self._is_stored(value):
            wanted[value] = None
            return
        for length in range(len(chain), 0, -1):
            views = chain[:length]
            found = strided(value, views)
            if found is not None and self._steps_well(node, value, found[2]):
                group.folded.extend(views)
                wanted[found[0]] = None
                return
        wanted[value] = None

    def _steps_well(self, node: Node, value: Value, strides: Sequence[object]) -> bool:
        """Products read rows of their left operand with step 1; attention reads rows of all operands so."""
        right = node.op.family == "gemm" and len(node.operands) > 1 and value is node.operands[1]
        return right or not strides or strides[-1] is const(1) or as_int(value.shape[-1]) == 1

    # -- views that must be stored -----------------------------------------------------------------------------

    def _materialise(self, value: Value) -> list[Value]:
        """Give a view memory: that of what it looks at, a part of a concatenation, or a copy."""
        node = value.producer
        assert node is not None
        base, chain = behind_views(value)
        found = strided(value, chain) if chain else None
        if found is not None and self._can_alias(value, base, found[1], found[2]):
            self.aliases[value] = (base, found[1])
            self.roots.add(base)
            return [base]
        if node.op.name == "Concat":
            return self._place_concat(node)
        if chain and self._push(value, base, chain):
            return []
        group = Group(0, "nest", [node])
        self.group_of[node] = group
        return [value]

    def _can_alias(self, value: Value, base: Value, offset: Expr, strides: tuple[Expr, ...]) -> bool:
        if not contiguous(value, strides):
            return False
        if base in self.parts or base in self.joined or (base.producer is not None and is_view(base.producer)):
            return False
        if value not in self.graph.outputs:
            return True
        # The base is then written to the caller's memory, which holds this output only.
        if offset is not const(0) or value.type.size is not base.type.size or base in self.graph.outputs:
            return False
        taken = any(self.aliases[v][0] is base for v in self.graph.outputs if v in self.aliases)
        return not taken and base.const is None and base.producer is not None

    def _push(self, value: Value, base: Value, chain: list[Node]) -> bool:
        """Let the producer store through the views: only when nothing reads what comes before them.

        A scatter does not: it fills its result and changes that in place. Nor does a user's function, nor an exchange.
        """
        group = self.group_of.get(base.producer) if base.producer is not None else None
        alone = all(len(self.users.get(v, [])) == 1 for n in chain for v in n.operands)
        if (
            group is None
            or group.anchor is None
            or id(group) in self.done
            or not alone
            or group.kind in ("scatter", "custom", "collective")
        ):
            return False
        if any(n.op.name not in ("Reshape", "Transpose") for n in chain) or base.layout is not None:
            return False
        if base in self.graph.outputs or any(v in self.graph.outputs for n in chain for v in n.operands):
            return False
        for n in reversed(chain):
            group.nodes.append(n)
            self.group_of[n] = group
        self._need(value)
        return True

    def _place_concat(self, node: Node) -> list[Value]:
        """Operands write straight into their part of the result; what cannot is copied there."""
        out = node.output
        along = getattr(node.op, "axis", 0) % out.type.rank
        start = const(0)
        self.joined[out] = []
        for v in node.operands:
            end = start + v.shape[along]
            if not self._placeable(v, node):
                v = self._copy_of(v, node)
            self.parts[v] = (out, along, start)
            self.joined[out].append(v)
            start = end
        return self.joined[out]

    def _placeable(self, v: Value, reader: Node) -> bool:
        node, out = v.producer, reader.output
        if node is None or v in self.parts or v in self.roots or v in self.aliases or v in self.graph.outputs:
            return False
        if v.layout != out.layout or not v.shape:
            return False
        if is_view(node):
            return node.op.name == "Concat" and node not in self.group_of and not _in_groups(reader)
        group = self.group_of[node]
        return group.kind in ("nest", "row", "conv", "gemm") and not any(
            n.op.family == "composite" for n in group.nodes
        )

    def _copy_of(self, v: Value, reader: Node) -> Value:
        out = self.graph.new_value(v.type, v.name, layout=reader.output.layout)
        node = self.graph.new_node(REGISTRY["", "Identity"](), [v], [out], reader.name)
        self.fuser.position[node] = self.fuser.position[reader]
        self.group_of[node] = Group(0, "nest", [node])
        self.users.setdefault(v, []).append(node)
        return out

    # -- order -------------------------------------------------------------------------------------------------

    def _order(self) -> None:
        """Put the groups in an order in which operands are ready, close to the order of the model."""
        position = self.fuser.position
        ordered: list[Group] = []
        state: dict[int, int] = {}
        demanded = [g for v in self.graph.outputs[len(self.graph.results) :] for g in self._writers(v)]
        # What inputs decide by a few small steps is decided first, before a result is written.
        first = {id(g) for g in demanded if self._is_soon_known(g)}
        waits = readers_of_old_states(self.graph, self.groups, self.made, self._writers)
        for root in sorted(self.groups, key=lambda g: (id(g) not in first, max(position[n] for n in g.nodes))):
            stack: list[tuple[Group, bool]] = [(root, False)]
            while stack:
                g, ready = stack.pop()
                if ready and state[id(g)] == 1:
                    state[id(g)] = 2
                    ordered.append(g)
                elif id(g) not in state:
                    state[id(g)] = 1
                    stack.append((g, True))
                    stack.extend((r, False) for r in waits.get(id(g), []) if id(r) not in state)
                    stack.extend((w, False) for v in reversed(g.reads) for w in self._writers(v) if id(w) not in state)
        if self.permits.policy.horizontal_fusion and not self.off:
            if self.graph.states:
                ordered = gathered(ordered, self._writers, waits)
            ordered = side_by_side(ordered, self._writers, position.__getitem__)
        for k, g in enumerate(ordered):
            g.id = k
        self.groups = ordered

    def _is_soon_known(self, group: Group) -> bool:
        """Whether a group needs no more than a few others, all of them without a heavy node."""
        seen, pending = dict[int, Group](), [group]
        while pending and len(seen) <= SOON:
            g = pending.pop()
            if g.kind not in ("nest", "row"):
                return False
            seen[id(g)] = g
            pending.extend(w for v in g.reads for w in self._writers(v) if id(w) not in seen)
        return len(seen) <= SOON

    def _writers(self, value: Value) -> list[Group]:
        """The groups that must have run before a value can be read."""
        out: list[Group] = []
        pending, seen = [value], set()
        while pending:
            v = pending.pop()
            if v in seen:
                continue
            seen.add(v)
            if v in self.made:
                out.append(self.made[v])
            elif v in self.aliases:
                pending.append(self.aliases[v][0])
            else:
                pending.extend(self.joined.get(v, []))
        return out

    def _settle(self) -> dict[Value, Storage]:
        """Final places: a part of a part lies in the outermost concatenation."""
        storage: dict[Value, Storage] = {}

        def place(v: Value) -> Storage:
            if v not in self.parts:
                return Storage(v, const(0), v.strides)
            parent, along, start = self.parts[v]
            outer = place(parent)
            return Storage(outer.root, outer.offset + start * outer.strides[along], outer.strides)

        for v in self.parts:
            storage[v] = place(v)
        for v, (base, offset) in self.aliases.items():
            storage[v] = Storage(base, offset, v.strides)
        return storage


def _in_groups(node: Node) -> bool:
    """Whether a concatenation joins groups of so many parts that each part's offset would be a long sum."""
    made = [v.producer for v in node.operands]
    inner = [n.operands if n is not None and n.op.name == "Concat" else [] for n in made]
    return too_wide([v for operands in inner for v in operands])


def _behind_concat(v: Value) -> bool:
    base, _ = behind_views(v)
    return base.producer is not None and base.producer.op.name == "Concat"


__all__ = ["Plan", "kind_of", "make_plan"]
