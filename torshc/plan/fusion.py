"""Fusion: which nodes share a kernel, and the reason wherever two do not.

Nodes are taken in topological order, each joining the groups that make its operands where that is legal. A group is
one of: "nest" (pointwise work over one index space), "row" (reductions over one set of axes with what comes before
and after them), or a heavy anchor (a product, a convolution...) with pointwise work after it. Views belong to no
group: whoever reads through one folds its index arithmetic.

`Fuser._refusal` decides about a node and the group that makes one of its operands, and gives the code of the first
reason that it finds, a key of :data:`torshc.plan.group.REASONS`. `torshc explain` shows those that hold in the end
(:func:`torshc.explain.rules.standing`). Nodes of which neither reads the other are never asked about; in the end
reductions over the rows of one value are joined where the target wants that (`Policy.shared_rows`), and what slides
over the same windows of it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from ..expr import as_int, const
from ..graph import Graph, Node, RuleName, Shape, Value
from .fusion_permissions import Permits, tensors
from .group import Boundary, Group
from .views import bases, behind_views, is_view

Space = tuple[Shape, tuple[int, ...]]  # the shape that reductions run over, and their axes


def kind_of(node: Node) -> str:
    """The kind of a group that holds this node alone."""
    if node.op.heavy:
        return node.op.family
    if node.op.family == "composite":
        return "row"
    nest = node.op.nest(node, 0)
    return "row" if nest is not None and nest.reduce else "nest"


class Fuser:
    """The state of the search."""

    def __init__(self, graph: Graph, permits: Permits) -> None:
        self.graph = graph
        self.permits = permits
        self.group_of: dict[Node, Group] = {}
        self.position = {n: k for k, n in enumerate(graph.nodes)}
        self.users = graph.users()
        self.outputs = set(graph.outputs)
        self.states = {held for _, held, _ in graph.updates}
        self.updated: dict[Node, int] = {}  # states that pointwise work on a product's result reads
        self.boundaries: list[Boundary] = []

    def run(self) -> None:
        """Form the groups: first what rules force together, then, from the front to the end, what they allow."""
        nodes = [n for n in self.graph.nodes if not is_view(n)]
        for node in nodes:
            kind = kind_of(node)
            self.group_of[node] = Group(0, kind, [node], anchor=node if node.op.heavy else None)
        for node in nodes:
            if node.marks:
                self._join_producers(node, force=True)
        for node in nodes:
            self._join_producers(node, force=False)
        if self.permits.policy.shared_rows and not self.permits.policy.off:
            self._join_reductions()
            self._join_windows()

    def _join_reductions(self) -> None:
        """Join reductions over the rows of one value of which neither needs the other, so that it is read once."""
        first: dict[tuple[Value, Space], Node] = {}
        for node in self.graph.nodes:
            own = self.group_of.get(node)
            space = row_space(own) if own is not None and own.kind == "row" else None
            if node.op.family != "reduce" or own is None or space is None:
                continue
            for value in dict.fromkeys(b for n in own.nodes for v in n.operands for b in bases(v)):
                if value.shape != space[0] or value.producer in own.nodes:
                    continue
                source = self.group_of[first.setdefault((value, space), node)]
                if source is not own and self._stand_apart(source, own):
                    self.merge(source, own, None)
                    break

    def _join_windows(self) -> None:
        """Join what walks over windows with who walks over the same ones for it, as for the places of maxima."""
        for node in self.graph.nodes:
            own, windows = self.group_of.get(node), _windows(node)
            if own is None or windows is None:
                continue
            for value in node.operands:
                maker = value.producer
                if maker is None or _windows(maker) != windows or maker.operands[0] is not node.operands[0]:
                    continue
                source = self.group_of[maker]
                if source is not own and self._may_share(source, own) and not self.would_cycle(source, own):
                    self.merge(source, own, None)

    def _stand_apart(self, source: Group, own: Group) -> bool:
        """Whether neither of two groups of reductions needs the other, and one kernel may compute both."""
        pairs = (source, own), (own, source)
        needs = any(a in self._feeders(b) or self.would_cycle(a, b) for a, b in pairs)
        return not needs and self._may_share(source, own)

    def _may_share(self, source: Group, own: Group) -> bool:
        """Whether one kernel may compute two groups, and has each value where it is read."""
        nodes = {*source.nodes, *own.nodes}
        if self.permits.apart(source.nodes, own.nodes) is not None:
            return False
        most = self.permits.policy.max_buffers
        if (most and self._buffers(nodes) > most) or self.permits.refusal([*nodes], 0, False) is not None:
            return False
        return self._find_reached(nodes, None) is not None and not self._strays(nodes, _row_shapes(nodes))

    def _join_producers(self, node: Node, force: bool) -> None:
        """Join the groups of the operands, latest first; a node with its own kernel kind joins none."""
        sources = [(v, *behind_views(v)) for v in dict.fromkeys(node.operands)]
        made = [(v, b, c) for v, b, c in sources if b.producer is not None and b.producer in self.group_of]
        made.sort(key=lambda s: -max(self.position[n] for n in self.group_of[_maker(s[1])].nodes))
        for value, base, chain in made:
            source, own = self.group_of[_maker(base)], self.group_of[node]
            rule = self.permits.forced(_maker(base), node)
            if source is own or (force and rule is None):
                continue
            rule = rule or self.permits.allowed(_maker(base), node)
            if rule is None and self.permits.policy.off:
                continue  # no reason is needed for what no rule asks for
            found = self._refusal(node, value, base, chain, source, own, rule)
            if found is None:
                self.merge(source, own, rule)
            else:
                self.boundaries.append(Boundary(value, node, *found))

    def _refusal(
        self,
        node: Node,
        value: Value,
        base: Value,
        chain: list[Node],
        source: Group,
        own: Group,
        rule: RuleName | None,
    ) -> tuple[str, RuleName | None] | None:
        """Why `own` (which holds `node`) cannot take in `source`, with the rule that says so; None when it can."""
        if (apart := self.permits.apart(source.nodes, own.nodes)) is not None:
            return "apart", apart
        if (reason := self._illegal(node, value, base, chain, source, own)) is not None:
            return reason, None
        if (most := self.permits.policy.max_buffers) and self._buffers({*source.nodes, *own.nodes}) > most:
            return "buffers", None
        if rule is None:
            return "rule", None
        force = self.permits.forced(_maker(base), node) is not None
        if not force and self._stores_beside(node, base, source, own):
            return "beside", None
        if not force and self._updates_many(source):
            return "states", None
        return self.permits.refusal([*source.nodes, *own.nodes], len(self._outside_readers(base, own)), force)

    def _illegal(
        self, node: Node, value: Value, base: Value, chain: list[Node], source: Group, own: Group
    ) -> str | None:
        """Why no kernel can compute `own` (which holds `node`) and `source`, or None when one can."""
        if node.op.heavy:
            return "operand"
        if node.op.family == "composite":
            return "template"
        if self._widens(node, value):
            return "half"
        if source.anchor is not None and own.anchor is not None:
            return "heavy"
        if any(g.anchor is not None and not g.anchor.op.epilogue for g in (source, own)):
            return "template"
        if own.anchor is not None and self._anchor_reads(own, source):
            return "cycle"
        reason = self._fits(node, value, base, chain, source, own)
        if reason is not None:
            return reason
        nodes, anchor = {*source.nodes, *own.nodes}, source.anchor or own.anchor
        if anchor is not None or "row" in (source.kind, own.kind):
            reached = self._find_reached(nodes, anchor)
            if reached is None:
                return "shape"
            if self._strays(nodes, {v.shape for v in reached} if anchor is not None else _row_shapes(nodes)):
                return "reader"
        return "cycle" if self.would_cycle(source, own) else None

    def _widens(self, node: Node, value: Value) -> bool:
        """Whether a node makes floats of halves that are in memory for others too: its reader reads fewer bytes so."""
        if node.op.name != "Cast" or not value.dtype.is_float or value.dtype.size >= node.output.dtype.size:
            return False
        readers = self.users.get(node.output, [])
        if len(readers) != 1 or node.output in self.outputs or readers[0].op.family not in ("pointwise", "reduce"):
            return False
        others = (b.producer for v in readers[0].operands for b in bases(v) if v is not node.output)
        follows = any(n in self.group_of and self.group_of[n].anchor is not None for n in others if n is not None)
        return follows or self._is_wanted(value, {node})

    def _fits(self, node: Node, value: Value, base: Value, chain: list[Node], source: Group, own: Group) -> str | None:
        reshapes = all(n.op.name == "Reshape" for n in chain) and (not chain or _row_major(base, value))
        if node.op.family == "reduce":
            return self._fits_reduce(node, base, chain, source, own)
        if node.op.family != "pointwise":
            return "template"
        if "composite" in {n.op.family for n in source.nodes}:
            return "template"
        if source.kind == "row" or own.kind == "row":
            return self._fits_row(node, value, base, chain, source, own)
        if value.shape != node.output.shape:
            return "shape"
        if not reshapes:
            return "layout"
        if base.layout != node.output.layout and not chain and _spread(base):
            return "layout"
        return None

    def _fits_reduce(self, node: Node, base: Value, chain: list[Node], source: Group, own: Group) -> str | None:
        if source.anchor is not None:
            return "template"
        if chain:
            return "shape"
        space = _space(node)
        for group in (source, own):
            known = row_space(group) if group.kind == "row" else None
            if group.kind == "row" and known is None:
                return "template"
            if known is not None and known != space:
                return "axes"
        if source.kind == "nest" and base.shape != space[0]:
            return "shape"
        return None

    def _fits_row(
        self, node: Node, value: Value, base: Value, chain: list[Node], source: Group, own: Group
    ) -> str | None:
        if chain:
            return "shape"
        if source.anchor is not None or own.anchor is not None:
            return "template"
        spaces = {row_space(g) for g in (source, own) if g.kind == "row"}
        if None in spaces:  # a window reduction such as pooling: pointwise work on its result
            windowed = source if source.kind == "row" and row_space(source) is None else own
            if len(spaces) > 1 or windowed is own:
                return "template"
            if own.kind == "row" and _loops(source) != _loops(own):
                return "axes"
            return None if value.shape == node.output.shape else "shape"
        if len(spaces) > 1:
            return "axes"
        full, axes = next(s for s in spaces if s is not None)
        row = tuple(d for k, d in enumerate(full) if k not in axes)
        shapes = {full, _keep_dims(full, axes)} | (
            {row} if len(axes) == len(full) or node.output.shape == row else set()
        )
        if node.output.shape not in shapes:
            return "shape"
        return None if value.shape in shapes else "shape"

    def merge(self, source: Group, own: Group, rule: RuleName | None) -> Group:
        """Make one group of two."""
        nodes = sorted({*source.nodes, *own.nodes}, key=self.position.__getitem__)
        merged = Group(0, own.kind, nodes, anchor=source.anchor or own.anchor)
        merged.rules = list(dict.fromkeys([*source.rules, *own.rules, *([rule] if rule is not None else [])]))
        if merged.anchor is not None:
            merged.kind = merged.anchor.op.family
        elif "row" in (source.kind, own.kind):
            merged.kind = "row"
        for n in nodes:
            self.group_of[n] = merged
        return merged

    def _outside_readers(self, value: Value, own: Group) -> list[Node]:
        return [n for n in dict.fromkeys(self.users.get(value, ())) if self.group_of.get(n) is not own]

    def _anchor_reads(self, own: Group, source: Group) -> bool:
        """Whether the heavy node of a group reads what `source` makes, through views; that must stay before it."""
        assert own.anchor is not None
        return any(b.producer in source.nodes for v in own.anchor.operands for b in bases(v))

    def _strays(self, nodes: set[Node], shapes: set[Shape]) -> bool:
        """Whether the joint kernel would have to store a value whose shape none of its results has.

        Such a value comes after a reshape: it can be computed on the way, but not stored at the kernel's indices.
        """
        return any(v.shape not in shapes and self._is_wanted(v, nodes) for n in nodes for v in n.outputs)

    def _buffers(self, nodes: set[Node]) -> int:
        """Buffers of a joint kernel at most, as long as it reads concatenations from memory."""
        read = {b for n in nodes for v in n.operands for b in bases(v, joined=False) if b.producer not in nodes}
        return tensors(read) + self.stores(nodes)

    def stores(self, nodes: Collection[Node], within: Collection[Node] | None = None) -> int:
        """Results of these nodes that others read than these, or than all of some group, or the caller."""
        return sum(self._is_wanted(v, within or nodes) for n in nodes for v in n.outputs)

    def _find_reached(self, nodes: set[Node], anchor: Node | None) -> set[Value] | None:
        """What follows from the heavy node or the reductions of a joint kernel, with their own results.

        None when one of these values is read at another place than where the kernel has it: through a view that moves
        elements, or broadcast along another dimension. Nodes that stood in different groups until now may do so.
        """
        ordered = sorted(nodes, key=self.position.__getitem__)
        space = next((_space(n) for n in ordered if n.op.family == "reduce"), None) if anchor is None else None
        reached: set[Value] = set()
        for n in ordered:
            hits = [v for v in n.operands if any(b in reached for b in bases(v))]
            if any(not _reads_in_place(n, v, space, moved=v not in reached, heavy=anchor is not None) for v in hits):
                return None
            if hits or n is anchor or (anchor is None and n.op.family != "pointwise" and kind_of(n) == "row"):
                reached.update(n.outputs)
        return reached

    def _is_wanted(self, value: Value, nodes: Collection[Node]) -> bool:
        """Whether others than these nodes read a value, be it through views, or it is an output of the graph."""
        pending, seen = [value], set[Node]()
        while pending:
            v = pending.pop()
            if v in self.outputs:
                return True
            for n in self.users.get(v, ()):
                if n not in nodes and n not in seen:
                    if not is_view(n):
                        return True
                    seen.add(n)
                    pending.extend(n.outputs)
        return False

    def would_cycle(self, source: Group, own: Group) -> bool:
        """Whether something stands between the two: a group, or a concatenation that may have to be in memory."""
        if self._reads_joined(own, source):
            return True
        first = min(self.position[n] for n in source.nodes)
        seen: set[int] = set()
        pending = [g for g in self._feeders(own) if g is not source]
        while pending:
            group = pending.pop()
            if id(group) in seen:
                continue
            seen.add(id(group))
            if group is source:
                return True
            if max(self.position[n] for n in group.nodes) < first:
                continue
            pending.extend(g for g in self._feeders(group) if g is not own)
        return False

    def _stores_beside(self, node: Node, base: Value, source: Group, own: Group) -> bool:
        """Whether the kernel of a heavy node or of windows would store a result beside what it is computed of.

        Readers that cannot join may as well read the latter, as sums of a normalisation's gradient do.
        """
        windows = source.kind == "row" and row_space(source) is None
        if not (source.anchor is not None or windows) or any(n.op.family != "pointwise" for n in own.nodes):
            return False
        readers = self.users.get(node.output, ())
        if not readers or node.output in self.outputs or not self._is_wanted(base, {*source.nodes, *own.nodes}):
            return False
        return all(r.op.family == "reduce" or self._stands_between(source, self.group_of.get(r), own) for r in readers)

    def _updates_many(self, source: Group) -> bool:
        """Whether pointwise work on a product's result updates more states than the target's kernels of products do."""
        anchor, most = source.anchor, self.permits.policy.states
        if most is None or anchor is None or anchor.op.family != "gemm":
            return False
        if anchor not in self.updated:
            self.updated[anchor] = self._count_states(anchor)
        return self.updated[anchor] > most

    def _count_states(self, anchor: Node) -> int:
        """States of the size of a result that pointwise work on it reads, or works on before."""
        size, pending, seen = anchor.output.type.size, [anchor.output], set[Node]()
        while pending:
            for n in self.users.get(pending.pop(), ()):
                if n not in seen and n.op.family == "pointwise" and n.output.type.size is size:
                    seen.add(n)
                    pending.append(n.output)
        found, pending = set[Value](), [v for n in seen for v in n.operands]
        while pending:
            for base in bases(pending.pop()):
                maker = base.producer
                if base.type.size is not size or maker in seen:
                    continue
                if base in self.states:
                    found.add(base)
                elif maker is not None and maker.op.family == "pointwise":
                    seen.add(maker)
                    pending += maker.operands
        return len(found)

    def _stands_between(self, source: Group, reader: Group | None, own: Group) -> bool:
        """Whether a group reads either of two others through one that is no pointwise work, which cannot join them."""
        if reader is None or reader.kind != "nest":
            return False
        first = min(self.position[n] for n in source.nodes)
        pending, seen = [(reader, False)], set[tuple[int, bool]]()
        while pending:
            group, apart = pending.pop()
            for g in self._feeders(group):
                if g is source or g is own:
                    if apart:
                        return True
                elif max(self.position[n] for n in g.nodes) >= first:
                    step = g, apart or g.kind != "nest"
                    if (id(g), step[1]) not in seen:
                        seen.add((id(g), step[1]))
                        pending.append(step)
        return False

    def _reads_joined(self, own: Group, source: Group) -> bool:
        """Whether a group reads what another makes as a part of a concatenation."""
        members = set(source.nodes)
        pending = [(v, False) for n in own.nodes for v in n.operands]
        seen: set[tuple[Value, bool]] = set()
        while pending:
            v, joined = pending.pop()
            if (v, joined) in seen or v.producer is None:
                continue
            seen.add((v, joined))
            if is_view(v.producer):
                pending.extend((x, joined or v.producer.op.name == "Concat") for x in v.producer.operands)
            elif joined and v.producer in members:
                return True
        return False

    def _feeders(self, group: Group) -> Iterator[Group]:
        """Groups whose results this group reads, through views."""
        pending = [v for n in group.nodes for v in n.operands]
        seen: set[Value] = set()
        while pending:
            v = pending.pop()
            if v in seen or v.producer is None:
                continue
            seen.add(v)
            owner = self.group_of.get(v.producer)
            if owner is None:
                pending.extend(v.producer.operands)
            elif owner is not group:
                yield owner


def _windows(node: Node) -> object:
    """What a node slides over its first operand, None where it does not."""
    return getattr(node.op, "windows", None)


def _maker(value: Value) -> Node:
    assert value.producer is not None
    return value.producer


def _keep_dims(full: Shape, axes: tuple[int, ...]) -> Shape:
    return tuple(const(1) if k in axes else d for k, d in enumerate(full))


def _row_shapes(nodes: Iterable[Node]) -> set[Shape]:
    """Shapes of values that a row kernel can store: the whole row's, and its result's with and without its axes."""
    for n in nodes:
        if n.op.family == "reduce":
            full, axes = _space(n)
            return {full, _keep_dims(full, axes), tuple(d for k, d in enumerate(full) if k not in axes)}
    return {n.output.shape for n in nodes if kind_of(n) == "row"}


def _row_major(base: Value, value: Value) -> bool:
    return base.layout is None and value.layout is None


def _spread(value: Value) -> bool:
    """Whether a value has more than one dimension that is not 1, so that its layout matters."""
    return sum(as_int(d) != 1 for d in value.shape) > 1


def row_space(group: Group) -> Space | None:
    """Full shape and reduced axes of a row group, or None for a window reduction or an undecomposed composite."""
    return next((_space(n) for n in group.nodes if n.op.family == "reduce"), None)


def _loops(group: Group) -> set[Shape]:
    """The extents over which the nodes of a row group are summed, a kernel's loop for all of them."""
    nests = [node.op.nest(node, 0) for node in group.nodes if kind_of(node) == "row"]
    return {nest.reduce for nest in nests if nest is not None}


def _space(node: Node) -> Space:
    return node.operands[0].shape, getattr(node.op, "axes", ())


def _reads_in_place(node: Node, value: Value, space: Space | None, moved: bool, heavy: bool) -> bool:
    """Whether a node of a joint kernel reads a value of that kernel at the indices where the kernel computes it."""
    if _windows(node) is not None:
        return value is not node.operands[0]
    if node.op.family not in ("pointwise", "reduce"):  # a Pad by 1 and -1 keeps the shape, and reads the row before
        return False
    if moved:
        base, chain = behind_views(value)
        plain = all(n.op.name == "Reshape" for n in chain) and _row_major(base, value)
        return (
            heavy
            and plain
            and not (base.producer is not None and is_view(base.producer))
            and value.shape == node.output.shape
        )
    if space is None:
        return value.shape == node.output.shape
    full, axes = space
    kept = _keep_dims(full, axes)
    if len(axes) == len(full):
        return True
    if node.op.family == "reduce":
        return value.shape in (full, kept)
    return value.shape == node.output.shape or (value.shape == kept and node.output.shape == full)
