"""Compute rows of products, norms and what stands between them only where a mask says that they are no padding."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from ..base.errors import UnsupportedError
from ..base.options import CompileOptions
from ..expr import BOOL, I64, Expr, const
from ..graph import Graph, Node, Rewriter, Value
from ..ops import Tensor
from ..ops.core.axes import require
from ..ops.core.functions import equal, where
from ..ops.core.tensor import apply_named
from .manager import graph_pass
from .padded_rows import HIDDEN, ROWS, SPREAD, WHOLE, Padding, Twin, twin_of

_UNLIKELY = -1e3  # a score that is lowered by as much has a weight of 0 in models as they are trained


@graph_pass("drop_padding")
def drop_padding(graph: Graph, options: CompileOptions) -> bool:
    """Let operators that work on each row by itself work on the rows where the graph's mask is not 0, one behind the
    other. What reads a whole value gets zeros in the other rows, or the number that is known to be there.

    Before::

        %2 = MatMul(%1, %w)                          # [batch, seq, 384], and %mask [batch, seq]
        %3 = Attention(%2, ...)

    After, `rows` being numbers of rows and `place` where each row went::

        %4 = Gather(Reshape(%1), %rows)              # [mask.rows, 384]
        %5 = MatMul(%4, %w)
        %2 = Where(%mask, Reshape(Gather(%5, %place)), 0)
        %3 = Attention(%2, ...)

    Raises:
        UnsupportedError: no products work on rows, or a result depends on rows of padding.
    """
    if graph.padding is None or graph.padding.rows is not None:
        return False
    mask, stated = graph.padding.mask, graph.padding.stated
    twins = {n: t for n in graph.nodes if (t := twin_of(n, mask)) is not None}
    packed = {n: twins[n] for n in _packed_nodes(graph, twins)}
    if not any(twin.is_product for twin in packed.values()):
        raise UnsupportedError([f"no product works on the rows of {mask.name!r}"])
    padding = Padding(graph, mask, packed, _UNLIKELY if stated else HIDDEN, stated)
    made = [v for n in packed for v in n.outputs]
    if problems := [why for v in made if _read_whole(padding, v) and (why := padding.why(v))]:
        raise UnsupportedError([*dict.fromkeys(problems)])
    rows = graph.count_rows()
    require(graph.constraints, rows < mask.shape[0] * mask.shape[1], "rows of padding")
    _Packing(graph, padding, rows).run()
    return True


def _packed_nodes(graph: Graph, twins: Mapping[Node, Twin]) -> dict[Node, None]:
    """Nodes that work on rows alone: products, what follows them, and what only these read."""
    found: set[Node] = set()
    for node in graph.nodes:
        twin = twins.get(node)
        if twin is not None and (twin.is_product or any(v.producer in found for v in _rows_read(node, twin))):
            found.add(node)
    users, results = graph.users(), set(graph.outputs)
    for node in reversed(graph.nodes):
        if node not in twins or node in found or any(v in results or not users.get(v) for v in node.outputs):
            continue
        readers = [(n, v) for v in node.outputs for n in users[v]]
        if all(n in found and v in _rows_read(n, twins[n]) for n, v in readers):
            found.add(node)
    return {n: None for n in graph.nodes if n in found}


def _rows_read(node: Node, twin: Twin) -> list[Value]:
    return [v for v, want in zip(node.operands, twin.wants, strict=True) if want == ROWS]


def _read_whole(padding: Padding, v: Value) -> bool:
    """Whether a value is an output, or read otherwise than as rows."""
    packed = padding.packed
    readers = padding.users.get(v, ())
    return v in padding.results or any(n not in packed or _is_whole(n, packed[n], v) for n in readers)


def _is_whole(node: Node, twin: Twin, v: Value) -> bool:
    return any(x is v and want != ROWS for x, want in zip(node.operands, twin.wants, strict=True))


@dataclass
class _Packing:
    """Puts the nodes of rows in the places of those of whole values."""

    graph: Graph
    padding: Padding
    rows: Expr
    packed: dict[Value, Value] = field(default_factory=dict)  # rows of a value

    def run(self) -> None:
        """Change the graph."""
        rewriter = Rewriter(self.graph, "drop_padding")
        self.builder = rewriter.builder()
        self._number_rows()
        for node in rewriter:
            twin = self.padding.packed.get(node)
            if twin is None:
                rewriter.keep(node)
                continue
            rank = node.output.type.rank
            operands = [self._rows_of(v, want, rank) for v, want in zip(node.operands, twin.wants, strict=True)]
            first = len(rewriter.nodes)
            found = self.builder.add(twin.op(self.rows), operands, node.name)
            rewriter.nodes[first].inherit(node)
            for old, new in zip(node.outputs, found, strict=True):
                new.name = old.name
                self.packed[old] = new
                if _read_whole(self.padding, old):
                    whole = self._whole_of(old, new)
                    rewriter.replace(old, whole)
                    self.packed[whole] = new
        rewriter.finish()

    def _number_rows(self) -> None:
        """The numbers of rows that are kept, and where each row of the mask is among them; the others come behind."""
        mask = Tensor(self.builder, self.mask)
        batch, seq = self.mask.shape
        count = batch * seq
        self.seen = mask if mask.dtype is BOOL else ~equal(mask, mask.constant(0))
        flat = self.seen.reshape(count)
        order = apply_named("CumSum", flat.cast(I64), axis=0)
        numbers = order.range(0, count)
        self.place = where(flat, order - 1, order.range(self.rows, count) - order)
        everywhere = apply_named("ScatterElements", numbers, self.place, numbers, axis=0)
        self.kept = everywhere.slice((const(0),), (self.rows,))

    def _rows_of(self, v: Value, want: str, rank: int) -> Value:
        """An operand of a node of rows whose result has had a rank."""
        if want == WHOLE:
            return v
        x = Tensor(self.builder, v)
        if want == SPREAD:
            inner = (*(const(1),) * (rank - x.rank), *x.shape)[2:]
            return self._taken(x.expand(*self.mask.shape, *inner))
        if v not in self.packed:
            self.packed[v] = self._taken(x)
        return self.packed[v]

    def _taken(self, x: Tensor) -> Value:
        """The rows of a whole value."""
        flat = x.reshape(self.mask.type.size, *x.shape[2:])
        return apply_named("Gather", flat, self.kept, axis=0).value

    def _whole_of(self, old: Value, rows: Value) -> Value:
        """A value of all rows, with zeros in those of padding where nothing else is known of these."""
        x = apply_named("Gather", Tensor(self.builder, rows), self.place, axis=0).reshape(*old.shape)
        seen = self.seen.reshape(*self.mask.shape, *(1,) * (old.type.rank - 2))
        fill = self.graph.constant(np.asarray(self.padding.fill(old), old.dtype.numpy))
        return where(seen, x, Tensor(self.builder, fill)).value

    @property
    def mask(self) -> Value:
        return self.padding.mask
