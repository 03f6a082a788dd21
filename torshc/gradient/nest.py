"""The gradients of loop nests: what a read's change makes of the result goes back to where the read was.

    y[n, m] = sum over k of x[n, m + k] * w[k]
    dx[n, m + k] gains dy[n, m] * w[k], a scatter that adds
    dw[k] = sum over n and m of dy[n, m] * x[n, m + k], a nest again, as a loop is the index

This holds of any indices, those that are computed of other operands included.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..expr import (
    I64,
    DType,
    Expr,
    NoDerivative,
    as_int,
    axis,
    cast,
    const,
    load,
    locals_of,
    max_of,
    min_of,
    product,
    rebuild,
    tangent,
    walk,
)
from ..graph import Builder, Node, Shape, Value
from ..ops import LoopNest
from ..ops.core.gradient import Backward, NoGradient, as_shape, gradient_of
from ..ops.core.pointwise import compute
from ..ops.core.tensor import Tensor, apply_named
from ..ops.math.expression import Loops
from ..ops.tensor.scatter import ScatterND

_REDUCTIONS = {"mul": "ReduceProd", "max": "ReduceMax", "min": "ReduceMin"}


def nest_parts(builder: Builder, node: Node) -> list[Value] | None:
    """The results of a node by its loop nests, taken apart into sums, other reductions and what is made of these."""
    made: list[Value] = []
    for k, output in enumerate(node.outputs):
        nest = node.op.nest(node, k)
        if nest is None:
            return None
        made.append(_parts(builder, node, nest, output))
    return made


def _parts(builder: Builder, node: Node, nest: LoopNest, output: Value) -> Value:
    axes, inner = _loops("i", output.shape), _loops("r", nest.reduce)
    at, within = _places(axes), _places(inner)
    operands = [v for v in node.inputs if v is not None]
    number = {k: n for n, k in enumerate(k for k, v in enumerate(node.inputs) if v is not None)}

    def read(k: int, index: tuple[Expr, ...]) -> Expr:
        return load(number[k], index, compute(operands[number[k]].dtype))

    term = nest.body(at, within, read)
    if not inner and nest.last is None:
        return builder.one(Loops(term, axes, (), output.dtype), *operands)
    kind = output.dtype if nest.last is None else term.dtype
    if nest.combine in _REDUCTIONS:
        terms = builder.one(Loops(term, (*axes, *inner), (), term.dtype), *operands)
        over = tuple(range(len(axes), len(axes) + len(inner)))
        total = apply_named(_REDUCTIONS[nest.combine], Tensor(builder, terms), axes=over, keepdims=False).value
    else:
        total = builder.one(Loops(term, axes, inner, kind), *operands)
    if nest.last is None:
        return total
    whole = load(len(operands), at, compute(kind))
    return builder.one(Loops(nest.finish(whole, at, read), axes, (), output.dtype), *operands, total)


def _loops(name: str, extents: Shape) -> tuple[Expr, ...]:
    return tuple(axis(f"{name}{k}", d) for k, d in enumerate(extents))


def _places(axes: Sequence[Expr]) -> tuple[Expr, ...]:
    """The axes as indices, which are numbers where there is but one turn."""
    return tuple(const(0) if as_int(a.args[0]) == 1 else a for a in axes)


@gradient_of(Loops)
def _loops_gradient(op: Loops, at: Backward) -> list[Tensor | None]:
    operands = [at.operand(k) for k in range(len(at.inputs))]
    g, builder = at.gradient, at.outputs[0].builder
    change = load(len(operands), _places(op.axes), compute(g.dtype))
    reads = [e for e in walk(op.of) if e.op == "load" and e.dtype.is_float and at.wants(_number(e))]
    found: dict[tuple[int, tuple[int, ...]], Tensor] = {}
    for e in reads:
        try:
            slope = tangent(op.of, {e: cast(change, e.dtype)})
        except NoDerivative as problem:
            raise NoGradient(f"the function {problem} has no derivative") from problem
        if slope is None:
            continue
        k = _number(e)
        landing = _find_landing(operands[k], e.args, (*op.axes, *op.inner))
        key = k, landing.found
        found[key] = _land_changes(builder, landing, cast(slope, e.dtype), [*operands, g], found.get(key))
    gradients: list[Tensor | None] = [None] * len(operands)
    for (k, places), made in found.items():
        x = operands[k]
        whole = as_shape(_in_order(made, x.shape, places), x.shape)
        before = gradients[k]
        gradients[k] = whole if before is None else before + whole
    return gradients


def _number(e: Expr) -> int:
    assert isinstance(e.data, int)
    return e.data


@dataclass(frozen=True)
class _Landing:
    """Where the changes of a read go.

    Attributes:
        x: the operand.
        index: index of the read.
        found: dimensions of x whose index is computed.
        own: loops that are themselves the index of each other dimension.
        spread: loops that the computed indices depend on.
        rest: loops that the read does not depend on.
    """

    x: Tensor
    index: tuple[Expr, ...]
    found: tuple[int, ...]
    own: tuple[Expr, ...]
    spread: tuple[Expr, ...]
    rest: tuple[Expr, ...]


def _find_landing(x: Tensor, index: tuple[Expr, ...], loops: Sequence[Expr]) -> _Landing:
    plain = {
        k: axis(f"one{k}", 1) if as_int(d) == 1 else i
        for k, (i, d) in enumerate(zip(index, x.shape, strict=True))
        if (i is const(0) and as_int(d) == 1) or (i.op == "axis" and i.args[0] is d)
    }
    while True:
        found = tuple(k for k in range(x.rank) if k not in plain)
        used = {a for k in found for a in _axes_in(index[k])}
        own = list(plain.values())
        clash = [k for k, a in plain.items() if a in used or own.count(a) > 1]
        if not clash:
            break
        del plain[clash[-1]]
    spread = tuple(a for a in loops if a in used)
    rest = tuple(a for a in loops if a not in used and a not in plain.values())
    return _Landing(x, index, found, tuple(plain[k] for k in sorted(plain)), spread, rest)


def _axes_in(e: Expr) -> Iterable[Expr]:
    return (a for a in locals_of(e) if a.op == "axis")


def _land_changes(builder: Builder, to: _Landing, slope: Expr, operands: list[Tensor], onto: Tensor | None) -> Tensor:
    """The changes added at their places: dimensions with computed indices as one in front, then the others."""
    x = to.x
    if not to.found:
        made = _compute_nest(builder, slope, to.own, to.rest, x.dtype, operands)
        return made if onto is None else onto + made
    sizes = tuple(x.shape[k] for k in to.found)
    place = const(0)
    for k, size in zip(to.found, sizes, strict=True):
        # Where a read is guarded its index may be anything, and its change is 0.
        place = place * size + max_of(min_of(to.index[k], size - 1), 0)
    turns = product(a.args[0] for a in to.spread)
    kept = tuple(a.args[0] for a in to.own)
    places = _compute_nest(builder, place, to.spread, (), I64, operands).reshape(turns, 1)
    updates = _compute_nest(builder, slope, (*to.spread, *to.own), to.rest, x.dtype, operands).reshape(turns, *kept)
    if onto is None:
        onto = x.constant(0.0).expand(product(sizes), *kept)
    return Tensor(builder, builder.one(ScatterND("add"), onto.value, places.value, updates.value))


def _compute_nest(
    builder: Builder, of: Expr, axes: tuple[Expr, ...], inner: tuple[Expr, ...], to: DType, operands: list[Tensor]
) -> Tensor:
    """An expression of those operands that it reads, for each turn of the axes, summed over the inner ones."""
    used = sorted({_number(e) for e in walk(of) if e.op == "load"})

    def numbered(e: Expr) -> Expr | None:
        if e.op != "load":
            return None
        return load(used.index(_number(e)), tuple(rebuild(i, numbered) for i in e.args), e.dtype)

    return Tensor(
        builder, builder.one(Loops(rebuild(of, numbered), axes, inner, to), *(operands[k].value for k in used))
    )


def _in_order(made: Tensor, shape: Shape, found: tuple[int, ...]) -> Tensor:
    """Dimensions that lie as one in front, each where it belongs."""
    if not found:
        return made
    order = [*found, *(k for k in range(len(shape)) if k not in found)]
    return made.reshape(*(shape[k] for k in order)).transpose(*sorted(range(len(shape)), key=order.__getitem__))
