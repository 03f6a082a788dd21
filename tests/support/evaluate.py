"""Runs a graph with NumPy by its operators' own definitions: loop nests and decompositions.

It is slow and simple, and checks what a compiled kernel could not: that no read that counts leaves its tensor.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from torshc.expr import (
    BOOL,
    FUNCTIONS,
    SYMBOLS,
    DType,
    Expr,
    acc,
    as_int,
    axis,
    const,
    element,
    is_runtime,
    load,
    substitute,
)
from torshc.graph import Builder, Graph, Node, Value
from torshc.graph.graph import Numbers
from torshc.ops import LoopNest
from torshc.ops.control.flow import Branching, Looping, bodies
from torshc.ops.core.pointwise import compute

Array = np.ndarray[Any, Any]
RunBody = Callable[[Graph, dict[Value, Array]], list[Array]]
_FAR = 2**31 - 1
_MOST_ROUNDS = 1000
_REDUCE: dict[str, np.ufunc] = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


def run(graph: Graph, feeds: Mapping[str, Array]) -> list[Array]:
    """Outputs of a graph for inputs by name; what an index out of range gives, as on targets that cannot refuse it.

    Raises:
        ValueError: when a condition does not hold that a run checks.
    """
    values: dict[Value, Array] = {}
    dims: dict[Expr, Expr] = {}
    for v in graph.inputs:
        array = np.asarray(feeds[v.name])
        assert array.ndim == v.type.rank, (array.shape, v.type)
        for d, size in zip(v.shape, array.shape, strict=True):
            if d.op == "dim":
                dims[d] = const(size)
        values[v] = array
    for node in [None, *graph.nodes]:
        run_nodes([node] if node else [], values, dims)
        _bind(graph, values, dims)
    return [_value(v, values) for v in graph.results]


def _bind(graph: Graph, values: Mapping[Value, Array], dims: dict[Expr, Expr]) -> None:
    """The symbols that are elements of what is computed by now, and the conditions that can be told of them."""
    for name, e in graph.sources.items():
        if e.kind == "dim" or element(name) in dims or (e.value not in values and e.value.const is None):
            continue
        number = int(_value(e.value, values).reshape(-1)[e.position])
        if e.kind == "clamped":
            number = max(-_FAR, min(number, _FAR))
        elif abs(number) > _FAR:
            raise ValueError(f"element {name} is {number}")
        dims[element(name)] = const(number)
    for a, b in graph.constraints:
        left, right = as_int(substitute(a, dims)), as_int(substitute(b, dims))
        if None not in (left, right) and left != right:
            raise ValueError(f"{a!r} is not {b!r}")


def run_nodes(nodes: list[Node], values: dict[Value, Array], dims: dict[Expr, Expr]) -> None:
    """Compute every node's outputs into `values`."""
    for node in nodes:
        if bodies(node):
            _control(node, values, dims)
        for k, out in enumerate(node.outputs):
            if out in values:
                continue
            nest = node.op.nest(node, k)
            if nest is not None:
                values[out] = _run_nest(node, out, nest, values, dims)
                continue
            _decompose(node, values, dims)
        for out in node.outputs:
            shape = tuple(as_int(substitute(d, dims)) for d in out.shape)
            if any(d is not None and d < 0 for d in shape):
                raise ValueError(f"{node} makes a tensor of shape {shape}")
            assert values[out].shape == shape, f"{node}: {values[out].shape} is not {shape}"


def _control(node: Node, values: dict[Value, Array], dims: dict[Expr, Expr]) -> None:
    """A branch or a loop, with the run-time dimensions of its results."""

    def body(graph: Graph, inner: dict[Value, Array]) -> list[Array]:
        run_nodes(graph.nodes, inner, dims)
        return [_value(v, inner) for v in graph.results]

    found = run_control(node, [None if v is None else _value(v, values) for v in node.inputs], body)
    for v, a in zip(node.outputs, found, strict=True):
        values[v] = a
        dims.update({d: const(n) for d, n in zip(v.shape, a.shape, strict=True) if is_runtime(d) and d.op == "dim"})


def run_control(node: Node, arrays: Sequence[Array | None], run_body: RunBody) -> list[Array]:
    """The results of a branch or a loop.

    Args:
        arrays: its operands, what its bodies read among them.
        run_body: gives the results of a body from these and its inputs.
    """
    around = {v: a for v, a in zip(node.inputs, arrays, strict=True) if v is not None and a is not None}
    if isinstance(node.op, Branching):
        return run_body(node.op.then if np.all(arrays[0]) else node.op.other, around)
    assert isinstance(node.op, Looping)
    count, body = node.op.states, node.op.body
    limit, condition = arrays[:2]
    states = [a for a in arrays[2 : 2 + count] if a is not None]
    going, rounds = condition is None or bool(condition.all()), 0
    stacks: list[list[Array]] = [[] for _ in node.outputs[count:]]
    while going and (limit is None or rounds < limit.item()):
        assert rounds < _MOST_ROUNDS, f"{node} goes on and on"
        inner = zip(body.inputs, [np.asarray(rounds), np.asarray(True), *states], strict=True)
        after, *made = run_body(body, {**around, **dict(inner)})
        going, states, rounds = bool(after.all()) or not node.op.uses_condition, made[:count], rounds + 1
        for stack, part in zip(stacks, made[count:], strict=True):
            stack.append(part)
    for stack, v in zip(stacks, node.outputs[count:], strict=True):
        sizes = [as_int(d) or 0 for d in v.shape[1:]]
        states.append(np.stack(stack) if stack else np.zeros((0, *sizes), v.dtype.numpy))
    return states


def _decompose(node: Node, values: dict[Value, Array], dims: dict[Expr, Expr]) -> None:
    graph = Graph()
    graph.numbers = Numbers(itertools.count(1 << 20))
    inner: list[Node] = []
    made = node.op.decompose(Builder(graph, inner), node.inputs)
    assert made is not None, f"{node} has neither a nest nor a decomposition"
    assert [v.type for v in made] == [v.type for v in node.outputs], (node, made)
    run_nodes(inner, values, dims)
    for old, new in zip(node.outputs, made, strict=True):
        values[old] = _value(new, values)


def _value(v: Value, values: Mapping[Value, Array]) -> Array:
    return v.const if v.const is not None else values[v]


def _run_nest(node: Node, out: Value, nest: LoopNest, values: Mapping[Value, Array], dims: dict[Expr, Expr]) -> Array:
    def sizes(exprs: tuple[Expr, ...]) -> list[int]:
        found = [as_int(substitute(e, dims)) for e in exprs]
        assert all(f is not None for f in found), (node, exprs)
        if any(f is not None and f < 0 for f in found):
            raise ValueError(f"{node} has an extent below 0: {found}")
        return [f for f in found if f is not None]

    shape, inner = sizes(out.shape), sizes(nest.reduce)
    tensors = [None if v is None else _value(v, values) for v in node.inputs]
    present = [v for v in node.inputs if v is not None]

    def read(k: int, at: tuple[Expr, ...]) -> Expr:
        assert len(at) == present[k].type.rank, f"{node} reads {present[k].type} at {at}"
        return load(k, at, compute(present[k].dtype))

    at = tuple(axis(f"o{k}", d) for k, d in enumerate(out.shape))
    over = tuple(axis(f"r{k}", d) for k, d in enumerate(nest.reduce))
    loops = {a: np.arange(n) for a, n in zip((*at, *over), (*shape, *inner), strict=True)}
    for k, a in enumerate((*at, *over)):
        rest = len(shape) + len(inner) - k - 1
        loops[a] = loops[a].reshape(-1, *(1,) * rest)
    evaluator = _Evaluator([t for t in tensors if t is not None], loops, dims, (*shape, *inner))
    result = evaluator.of(nest.body(at, over, read))
    if not nest.reduce:
        return _store(result, out.dtype, shape)
    whole = np.broadcast_to(result, (*shape, *inner))
    total = whole
    if inner:
        axes = tuple(range(len(shape), len(shape) + len(inner)))
        total = _reduce(whole, nest.combine, axes)
    if nest.last is not None:
        body = nest.body(at, over, read)
        name = acc("total", body.dtype)
        finisher = _Evaluator(evaluator.tensors, {}, dims, tuple(shape))
        finisher.known = {name: total}
        for k, a in enumerate(at):
            finisher.known[a] = np.arange(shape[k]).reshape(-1, *(1,) * (len(shape) - k - 1))
        total = finisher.of(nest.finish(name, at, read))
    return _store(total, out.dtype, shape)


def _reduce(whole: Array, combine: str, axes: tuple[int, ...]) -> Array:
    if combine in ("add", "mul"):
        return np.asarray(_REDUCE[combine].reduce(whole, axis=axes, dtype=whole.dtype))
    low: Any = combine == "min"
    if whole.dtype.kind == "f":
        low = -np.inf if combine == "max" else np.inf
    elif whole.dtype.kind in "iu":
        low = np.iinfo(whole.dtype).min if combine == "max" else np.iinfo(whole.dtype).max
    return np.asarray(_REDUCE[combine].reduce(whole, axis=axes, initial=low))


def _store(result: Array, dtype: DType, shape: list[int]) -> Array:
    return np.ascontiguousarray(np.broadcast_to(_cast(np.asarray(result), dtype), shape)).reshape(shape)


def _cast(x: Array, dtype: DType) -> Array:
    """Conversion as generated code does it: saturating, with NaN to 0."""
    if dtype is BOOL:
        return np.asarray(x != 0)
    if x.dtype.kind == "f" and dtype.is_int:
        low, high = dtype.range
        safe = np.where(np.isnan(x), 0.0, np.trunc(x.astype(np.float64)))
        inside = (safe > low) & (safe < high)
        plain = np.where(inside, safe, 0).astype(dtype.numpy)
        return np.where(inside, plain, np.where(safe <= low, low, np.where(safe >= high, high, 0)).astype(dtype.numpy))
    with np.errstate(all="ignore"):
        return np.asarray(x).astype(dtype.numpy)


class _Evaluator:
    """Evaluates expressions over all loop indices at once."""

    def __init__(
        self, tensors: list[Array], loops: Mapping[Expr, Array], dims: Mapping[Expr, Expr], shape: tuple[int, ...]
    ) -> None:
        self.tensors = tensors
        self.known: dict[Expr, Array] = dict(loops)
        self.dims = dims
        self.shape = shape

    def of(self, e: Expr) -> Array:
        with np.errstate(all="ignore"):
            return self._visit(e, np.asarray(True), {})

    def _visit(self, e: Expr, mask: Array, memo: dict[Expr, Array]) -> Array:
        if e in self.known:
            return self.known[e]
        if e in memo:
            return memo[e]
        memo[e] = result = self._node(e, mask, memo)
        return result

    def _node(self, e: Expr, mask: Array, memo: dict[Expr, Array]) -> Array:
        if e.op == "const":
            return np.asarray(e.data, dtype=e.dtype.numpy)
        if e.op in SYMBOLS:
            return np.asarray(as_int(self.dims[e]))
        if e.op == "select":
            condition = self._visit(e.args[0], mask, memo)
            yes = self._visit(e.args[1], mask & condition, {})
            no = self._visit(e.args[2], mask & ~condition, {})
            return np.where(condition, yes, no)
        xs = [self._visit(a, mask, memo) for a in e.args]
        if e.op == "load":
            return self._load(e, xs, mask)
        if e.op == "cast":
            return _cast(xs[0], e.dtype)
        if e.op in ("add", "mul", "and", "or") and len(xs) > 2:
            total = xs[0]
            for x in xs[1:]:
                total = FUNCTIONS[e.op].numpy(total, x)
            return np.asarray(total)
        return np.asarray(FUNCTIONS[e.op].numpy(*xs)).astype(e.dtype.numpy)

    def _load(self, e: Expr, index: list[Array], mask: Array) -> Array:
        assert isinstance(e.data, int)
        tensor = self.tensors[e.data]
        for i, size in zip(index, tensor.shape, strict=True):
            outside = ((i < 0) | (i >= size)) & mask
            assert not np.broadcast_to(outside, np.broadcast_shapes(outside.shape, self.shape)).any(), (
                f"{e} leaves its tensor of shape {tensor.shape}"
            )
        if not tensor.size:
            return np.zeros((), e.dtype.numpy)
        clipped = tuple(np.clip(i, 0, size - 1) for i, size in zip(index, tensor.shape, strict=True))
        found = tensor[clipped] if clipped else tensor.reshape(())
        return np.asarray(found).astype(e.dtype.numpy)


__all__ = ["run", "run_control", "run_nodes"]
