"""Look through index arithmetic: what it comes to may be a constant, or a view of one tensor."""

from __future__ import annotations

import numpy as np

from ..base.options import CompileOptions
from ..expr import DTYPES, I64, Expr, as_int, axis, const, dim, dims_of, load, min_of, rebuild, substitute
from ..expr import walk as scan
from ..graph import Builder, Graph, Patch, Value
from ..ops.tensor.index import CumSum
from ..ops.tensor.view import Expand, Reshape, Transpose, linear
from .manager import graph_pass
from .walk import Site, walk

_GATHERS = ("Gather", "GatherElements", "GatherND")
_STEPS = 64  # nodes looked through for one node
_UNIFORM = 1 << 20  # elements of a constant that are compared with each other


@graph_pass("resolve_indices")
def resolve_indices(graph: Graph, options: CompileOptions) -> bool:
    """Replace gathers and integer or bool arithmetic whose every element is known to be a constant, or an element of
    one tensor at the same place up to the order of dimensions.

    Exported attention masks index a mask by ranges of batch and positions, and compare positions with 0.

    Before::

        %1 = Range[start=0, step=1, count=seq]()
        %2 = Gather[axis=1](%0, %1)              # %0 is bool[batch, seq]
        %3 = GreaterOrEqual(%1, 0)
        out %2, %3

    After::

        %3 = Expand[shape=(seq,)](true)
        out %0, %3
    """
    known: Known = {}
    return walk(graph, lambda site: _rule(site, known), "resolve_indices")


# What elements were found to be, by the shape of the result that reads them, the value and the index. In one walk what
# comes before a node no longer changes.
Known = dict[tuple[tuple[Expr, ...], Value, tuple[Expr, ...]], Expr]


def _rule(site: Site, known: Known) -> Patch | None:
    node, out = site.node, site.node.output
    if len(node.outputs) > 1 or node.op.family == "view" or node.op.name == "Identity":
        return None
    if node.op.name not in _GATHERS and (out.dtype.is_float or node.op.family != "pointwise"):
        return None
    found, at = element_of(out, known)
    if found.op == "const":
        return site.replace(_spread(site.builder, found, out))
    if found.op != "load":
        return None
    source = found.data
    assert isinstance(source, Value)
    if source is out:
        return None
    new = _view(site.builder, source, found.args, at, out) if source.dtype is out.dtype else None
    return site.replace(new) if new is not None and new.type == out.type else None


def element_of(value: Value, known: Known | None = None) -> tuple[Expr, tuple[Expr, ...]]:
    """An element of a value over the axes that are its index, and these: as far as constants and places decide it.

    Args:
        known: what was found for others before.
    """
    at = tuple(const(0) if as_int(d) == 1 else axis(f"i{k}", d) for k, d in enumerate(value.shape))
    return _Reader(value, {} if known is None else known).element(value, at), at


class _Reader:
    """Elements of values as expressions, through the nodes that make them."""

    def __init__(self, out: Value, known: Known) -> None:
        self.steps = 0
        self.shape = out.shape
        self.known = known
        # Where an element of the result is computed, its dimensions are no 0, nor are the sizes that would make them 0.
        sizes = {
            dim(name) for d in out.shape for name in dims_of(d) if as_int(substitute(d, {dim(name): const(0)})) == 0
        }
        dims = (*out.shape, *sizes, out.type.size)
        facts = {d > 0: const(True) for d in dims} | {min_of(n, 1): const(1) for n in sizes}
        self.nonempty = {fact: known for fact, known in facts.items() if fact.op != "const"}

    def element(self, value: Value, at: tuple[Expr, ...]) -> Expr:
        """The element at an index; a load where nothing more is known."""
        key = (self.shape, value, at)
        if key not in self.known:
            self.known[key] = self._element(value, at)
        return self.known[key]

    def _element(self, value: Value, at: tuple[Expr, ...]) -> Expr:
        dtype = DTYPES[value.dtype.compute]
        if value.const is not None:
            number = _uniform(value)
            return const(number, dtype) if number is not None else load(value, at, dtype)
        if value.data is not None and dtype is I64 and all(as_int(i) is not None for i in at):
            return value.data[as_int(linear(at, value.shape)) or 0]
        node = value.producer
        if node is None or self.steps >= _STEPS or node.op.family not in ("pointwise", "view", "nest", "scan"):
            return load(value, at, dtype)
        if isinstance(node.op, CumSum):  # of zeros there are zeros
            along = node.op.axis
            anywhere = (*at[:along], axis("sum", value.shape[along]), *at[along + 1 :])
            term = self.element(node.operands[0], anywhere)
            return const(0, dtype) if term is const(0, dtype) else load(value, at, dtype)
        if node.op.name in _GATHERS and any(map(_depends_on_data, at)):  # it was looked at itself: no more is known
            return load(value, at, dtype)
        nest = node.op.nest(node, node.outputs.index(value))
        if nest is None or nest.reduce:
            return load(value, at, dtype)
        self.steps += 1

        def read(k: int, index: tuple[Expr, ...]) -> Expr:
            operand = node.inputs[k]
            assert operand is not None
            return self.element(operand, index)

        body = nest.body(at, (), read)
        body = rebuild(rebuild(body, self.nonempty.get), _goes_on)
        # Arithmetic on elements, and elements at places that are elements, stay where they are: of use here are only
        # numbers, places, and elements at places that are known before a run.
        parts = body.args if body.op == "load" else (body,)
        return load(value, at, dtype) if any(map(_depends_on_data, parts)) else body


def _goes_on(e: Expr) -> Expr | None:
    """What has a value of its own at the first place, as a Concat has, but the one that the rest has there too."""
    if e.op != "select" or e.args[0].op != "lt" or e.args[0].args[1] is not const(1):
        return None
    place, first, rest = e.args[0].args[0], rebuild(e.args[1], _goes_on), rebuild(e.args[2], _goes_on)
    return rest if place.op == "axis" and substitute(rest, {place: const(0)}) is first else None


def _depends_on_data(e: Expr) -> bool:
    return any(part.op == "load" for part in scan(e))


def _uniform(value: Value) -> int | float | bool | None:
    """The number that every element of a constant is."""
    array = value.const
    if array is None or not 0 < array.size <= _UNIFORM:
        return None
    first = array.reshape(-1)[0]
    same = array.tobytes() == first.tobytes() * array.size if array.size > 1 else True
    number = first.item()
    return number if same and isinstance(number, int | float | bool) else None


def _spread(b: Builder, number: Expr, out: Value) -> Value:
    scalar = b.graph.constant(np.asarray(number.data, dtype=out.dtype.numpy))
    return b.one(Expand(out.shape), scalar) if out.shape else scalar


def _view(b: Builder, source: Value, index: tuple[Expr, ...], at: tuple[Expr, ...], out: Value) -> Value | None:
    """The result as a view of `source`, when each of its dimensions is indexed by one whole dimension of the result."""
    place = {a: k for k, a in enumerate(at) if a.op == "axis"}
    kept: list[tuple[int, int]] = []  # dimension of the result, dimension of the source
    for d, e in enumerate(index):
        if e in place and source.shape[d] is out.shape[place[e]]:
            kept.append((place[e], d))
        elif not (as_int(e) == 0 and as_int(source.shape[d]) == 1):
            return None
    kept.sort()
    if len({k for k, _ in kept}) != len(kept):
        return None
    ones = [d for d in range(source.type.rank) if d not in {s for _, s in kept}]
    transposed = b.one(Transpose((*ones, *(s for _, s in kept))), source) if source.type.rank else source
    there = {k for k, _ in kept}
    shape = tuple(d if k in there else const(1) for k, d in enumerate(out.shape))
    return b.one(Expand(out.shape), b.one(Reshape(shape), transposed))
