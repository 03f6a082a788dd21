"""A NumPy interpreter of operators: folds constants, and is the reference in the tests of rewrites.

A nest runs as a whole: each loop variable is a vector along a dimension of its own, so that a scalar expression
becomes a few NumPy calls. Reads at affine indices are strided views, without a copy. Every operator with a nest or a
decomposition can be evaluated, from its one definition.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from ..base.errors import UnsupportedError
from ..expr import BOOL, DTYPES, FUNCTIONS, SYMBOLS, DType, Expr, acc, as_int, axis, const, load
from ..expr.index import poly_of
from ..graph import Builder, Graph, Node, Value
from ..ops import LoopNest
from ..ops.core.gradient import stated_parts
from ..ops.core.tensor import Tensor
from ..ops.tensor.scatter import Scattering, ScatterND

Array = np.ndarray[Any, Any]
Run = Callable[[Node, Sequence[Array | None]], list[Array]]
_UPDATE = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


class CannotEvaluate(Exception):
    """The operator or a size of it is not known at compile time."""


def run_node(node: Node, arrays: Sequence[Array | None]) -> list[Array]:
    """The results of a node.

    Args:
        arrays: contents of its inputs, None where one is absent. Their shapes are the inputs' static shapes.

    Returns:
        An array for each output; it may be a view of an input, so neither may be written to.

    Raises:
        CannotEvaluate: when a shape is symbolic, or no form of the operator can be evaluated here.
    """
    if any(v.type.static_shape is None for v in (*node.operands, *node.outputs)):
        raise CannotEvaluate(node.op.name)
    with np.errstate(all="ignore"):
        if node.op.name == "MatMul" and arrays[0] is not None and arrays[1] is not None:
            # The same result as its nest, without an array of all products.
            wide = _compute(node.output.dtype).numpy
            a, b = (x.astype(wide, copy=False) for x in arrays[:2] if x is not None)
            return [np.asarray(np.matmul(a, b), dtype=node.output.dtype.numpy)]
        if scatters(node):
            return [_scatter(node, *(x for x in arrays[:3] if x is not None))]
        nests = _nests_of(node)
        return _run_parts(node, arrays) if nests is None else [_run_nest(node, n, arrays) for n in nests]


def scatters(node: Node) -> bool:
    """Whether a node is a scatter, which takes a step for each update, though its nest visits all for each element."""
    return isinstance(node.op, Scattering) and bool(node.op.indexed_axes(node))


def _scatter(node: Node, data: Array, indices: Array, updates: Array) -> Array:
    """What a scatter computes: updates come one after the other, and those outside of the data not at all."""
    assert isinstance(node.op, Scattering)
    axes = node.op.indexed_axes(node)
    sizes = np.array([data.shape[axis] for axis in axes])
    if isinstance(node.op, ScatterND):
        at = np.where(indices < 0, indices + sizes, indices).T
    else:
        at = np.indices(indices.shape)
        at[axes[0]] = np.where(indices < 0, indices + sizes, indices)
    lies_inside = np.all([(at[axis] >= 0) & (at[axis] < size) for axis, size in zip(axes, sizes, strict=True)], axis=0)
    places = tuple(along[lies_inside] for along in at)
    if node.op.reduction == "none":
        made = data.copy()
        made[places] = updates[lies_inside]
        return made
    wide = _compute(node.output.dtype).numpy
    made = data.astype(wide)
    _UPDATE[node.op.reduction].at(made, places, updates[lies_inside].astype(wide, copy=False))
    return made.astype(data.dtype, copy=False)


def run_graph(graph: Graph, inputs: Mapping[Value, Array], run: Run = run_node) -> list[Array]:
    """The outputs of a graph whose shapes are static, for tests and references; what none of them needs is not run.

    Args:
        run: gives the results of a node, as :func:`run_node` does.

    Raises:
        UnsupportedError: when a node cannot be evaluated.
    """
    needed, nodes = set(graph.outputs), list[Node]()
    for node in reversed(graph.nodes):
        if not needed.isdisjoint(node.outputs):
            nodes.append(node)
            needed.update(node.operands)
    return _run_nodes(nodes[::-1], graph.outputs, dict(inputs), run)


def _run_nodes(
    nodes: Sequence[Node], outputs: Sequence[Value], known: dict[Value, Array], run: Run = run_node
) -> list[Array]:
    def contents(v: Value) -> Array:
        return v.const if v.const is not None else known[v]

    for node in nodes:
        try:
            results = run(node, [None if v is None else contents(v) for v in node.inputs])
        except CannotEvaluate as e:
            raise UnsupportedError([f"{node.describe()} cannot be evaluated here"]) from e
        known.update(zip(node.outputs, results, strict=True))
    return [contents(v) for v in outputs]


def _run_parts(node: Node, arrays: Sequence[Array | None]) -> list[Array]:
    """A composite through what it is made of."""
    made = _MADE.get(node)
    if made is None or made.inputs != node.inputs:
        made = _MADE[node] = _take_apart(node)
    known = {
        stand_in: array
        for stand_in, array in zip(made.stand_ins, arrays, strict=True)
        if stand_in is not None and stand_in.const is None and array is not None
    }
    try:
        return _run_nodes(made.nodes, made.outputs[: len(node.outputs)], known)
    except UnsupportedError as e:
        raise CannotEvaluate(node.op.name) from e


@dataclass(frozen=True)
class _Parts:
    """What a node with these inputs is made of, of values that stand for them."""

    inputs: tuple[Value | None, ...]
    stand_ins: Sequence[Value | None]
    nodes: Sequence[Node]
    outputs: Sequence[Value]


_MADE: WeakKeyDictionary[Node, _Parts] = WeakKeyDictionary()


def _take_apart(node: Node) -> _Parts:
    scratch = Graph()
    builder = Builder(scratch)
    # Constants stay, since what some operators are made of depends on them.
    stand_ins = [v if v is None or v.const is not None else scratch.new_value(v.type, data=v.data) for v in node.inputs]
    outputs = node.op.decompose(builder, stand_ins)
    if outputs is None:  # as of LSTM, whose kernels are written by hand
        stated = stated_parts(node.op, [None if v is None else Tensor(builder, v) for v in stand_ins])
        if stated is None:
            raise CannotEvaluate(node.op.name)
        outputs = [t.value for t in stated]
    return _Parts(node.inputs, stand_ins, scratch.nodes, outputs)


@dataclass(frozen=True)
class _LoopNest:
    """The loops and expressions of an output.

    Attributes:
        output: its number.
        axes, extents: of the result, then of the reduction.
        term: what is accumulated.
        total: stands for the accumulated value in `last`, which is the result; None where that is it.
    """

    output: int
    axes: tuple[Expr, ...]
    extents: tuple[int, ...]
    term: Expr
    combine: str
    total: Expr
    last: Expr | None


_KNOWN: WeakKeyDictionary[Node, tuple[tuple[Value | None, ...], list[_LoopNest]]] = WeakKeyDictionary()


def _nests_of(node: Node) -> list[_LoopNest] | None:
    """The loop nests of a node's outputs, kept for when it runs again; None where it has none."""
    inputs, found = _KNOWN.get(node, ((), None))
    if found is None or inputs != node.inputs:
        nests = [node.op.nest(node, k) for k in range(len(node.outputs))]
        if any(n is None for n in nests):
            return None
        found = [_loop_nest(node, k, n) for k, n in enumerate(nests) if n is not None]
        _KNOWN[node] = node.inputs, found
    return found


def _loop_nest(node: Node, output: int, nest: LoopNest) -> _LoopNest:
    shape = node.outputs[output].type.static_shape
    inner = tuple(as_int(e) for e in nest.reduce)
    if shape is None or any(e is None for e in inner):
        raise CannotEvaluate(node.op.name)
    extents = (*shape, *(e for e in inner if e is not None))
    axes = tuple(axis(f"i{k}", e) for k, e in enumerate(extents))
    # A dimension of 1 has but one index; as a constant it simplifies what is built on it.
    places = tuple(const(0) if e == 1 else a for a, e in zip(axes, extents, strict=True))
    at, within = places[: len(shape)], places[len(shape) :]

    def read(k: int, index: tuple[Expr, ...]) -> Expr:
        v = node.inputs[k]
        if v is None:
            raise CannotEvaluate(node.op.name)
        return load(k, index, _compute(v.dtype))

    term = nest.body(at, within, read)
    total = acc("total", term.dtype)
    last = nest.finish(total, at, read) if nest.last is not None else None
    return _LoopNest(output, axes, extents, term, nest.combine, total, last)


def _run_nest(node: Node, nest: _LoopNest, arrays: Sequence[Array | None]) -> Array:
    value = node.outputs[nest.output]
    rank = value.type.rank
    shape = nest.extents[:rank]
    tensors: dict[int, Array] = {k: a for k, a in enumerate(arrays) if a is not None}
    result = _Evaluator(nest.axes, nest.extents, tensors).value(nest.term)
    if len(nest.extents) > rank:
        result = _reduce(np.broadcast_to(result, nest.extents), nest.combine, rank)
    if nest.last is not None:
        outer = _Evaluator(nest.axes[:rank], shape, tensors)
        outer.memo[nest.total] = result
        result = outer.value(nest.last)
    return np.broadcast_to(result, shape).astype(value.dtype.numpy, copy=False)


def _compute(dtype: DType) -> DType:
    return DTYPES[dtype.compute]


def _reduce(terms: Array, combine: str, rank: int) -> Array:
    inner = tuple(range(rank, terms.ndim))
    if combine == "add":
        return np.asarray(np.add.reduce(terms, axis=inner, dtype=terms.dtype))
    if combine == "mul":
        return np.asarray(np.multiply.reduce(terms, axis=inner, dtype=terms.dtype))
    shape = terms.shape[:rank]
    if terms.dtype.kind == "f":
        count = math.prod(terms.shape[rank:])
        if not count:
            return np.full(shape, -np.inf if combine == "max" else np.inf, terms.dtype)
        # The first of equals, as kernels have it, which tells which of two zeros; the first NaN, if there is one.
        rows = terms.reshape(*shape, count)
        places = rows.argmax(-1) if combine == "max" else rows.argmin(-1)
        return np.asarray(np.take_along_axis(rows, places[..., None], -1)[..., 0])
    info: Any = None if terms.dtype.kind == "b" else np.iinfo(terms.dtype)
    low, high = (False, True) if info is None else (info.min, info.max)
    function = np.maximum if combine == "max" else np.minimum
    return np.asarray(function.reduce(terms, axis=inner, initial=low if combine == "max" else high))


class _Evaluator:
    """Evaluates scalar expressions over all loop variables at once.

    Results have a dimension for each loop variable, of size 1 where they do not depend on it.
    """

    def __init__(self, axes: Sequence[Expr], extents: Sequence[int], tensors: Mapping[int, Array]) -> None:
        self.place = {a: k for k, a in enumerate(axes)}
        self.extents = extents
        self.tensors = tensors
        self.memo: dict[Expr, Array] = {}

    def value(self, root: Expr) -> Array:
        """The expression's values."""
        stack = [root]
        while stack:
            e = stack[-1]
            # The indices of a load are evaluated by the load, and only when it is not a view.
            below = () if e.op in ("load", "axis") else e.args
            pending = [a for a in below if a not in self.memo]
            if pending:
                stack.extend(pending)
                continue
            if e not in self.memo:
                self.memo[e] = self._one(e)
            stack.pop()
        return self.memo[root]

    def _one(self, e: Expr) -> Array:
        if e.op == "const":
            return np.asarray(e.data, dtype=e.dtype.numpy).reshape((1,) * len(self.extents))
        if e.op == "axis":
            shape = [1] * len(self.extents)
            shape[self.place[e]] = self.extents[self.place[e]]
            return np.arange(shape[self.place[e]]).reshape(shape)
        if e.op == "load":
            return self._load(e)
        if e.op in (*SYMBOLS, "acc"):
            raise CannotEvaluate(str(e.data))
        xs = [self.memo[a] for a in e.args]
        if e.op == "select":
            return np.where(xs[0], xs[1], xs[2])
        if e.op == "cast":
            return convert(xs[0], e.dtype)
        if e.op in ("add", "mul") and len(xs) > 2:
            total = xs[0]
            for x in xs[1:]:
                total = FUNCTIONS[e.op].numpy(total, x)
            return total
        return np.asarray(FUNCTIONS[e.op].numpy(*xs)).astype(e.dtype.numpy, copy=False)

    def _load(self, e: Expr) -> Array:
        source = self.tensors.get(e.data) if isinstance(e.data, int) else None  # an input's number
        if source is None:
            raise CannotEvaluate(f"input {e.data}")
        seen = self._view(source, e.args)
        if seen is None:
            if 0 in source.shape:
                seen = np.zeros((1,) * len(self.extents), source.dtype)
            else:
                # Reads beyond the edge are behind a select that discards them.
                where = [np.clip(self.value(i), 0, d - 1) for i, d in zip(e.args, source.shape, strict=True)]
                seen = source[tuple(where)]
        return seen if seen.dtype == e.dtype.numpy else seen.astype(e.dtype.numpy)

    def _view(self, source: Array, index: Sequence[Expr]) -> Array | None:
        """The elements read at affine indices as a strided view, or None when an index is not affine or leaves."""
        if 0 in self.extents:
            return None
        shape, strides, first = [1] * len(self.extents), [0] * len(self.extents), []
        for e, size, stride in zip(index, source.shape, source.strides, strict=True):
            low = high = start = 0
            for atoms, c in poly_of(e).items():
                if not atoms:
                    low, high, start = low + c, high + c, c
                    continue
                if len(atoms) != 1 or atoms[0] not in self.place:
                    return None
                k = self.place[atoms[0]]
                reach = c * (self.extents[k] - 1)
                low, high = low + min(reach, 0), high + max(reach, 0)
                shape[k], strides[k] = self.extents[k], strides[k] + c * stride
            if not 0 <= low <= high < size:
                return None
            first.append(slice(start, start + 1))
        corner = source[tuple(first)]
        if source.dtype.isbuiltin == 1:
            return np.lib.stride_tricks.as_strided(corner, shape, strides, writeable=False)
        # NumPy finds no type by the name that one of ml_dtypes has there.
        bits = np.lib.stride_tricks.as_strided(corner.view(f"u{source.itemsize}"), shape, strides, writeable=False)
        return bits.view(source.dtype)


def convert(x: Array, dtype: DType) -> Array:
    """Conversion as :func:`torshc.expr.cast` defines it."""
    if dtype is BOOL:
        return np.asarray(x != 0)
    if x.dtype.kind == "f" and dtype.is_int:
        low, high = dtype.range
        whole = np.trunc(np.where(np.isnan(x), 0, x)).astype(np.float64)
        safe = np.clip(whole, float(low), np.nextafter(float(high), 0) if dtype.size == 8 else float(high))
        return np.where(whole >= float(high), high, safe.astype(dtype.numpy)).astype(dtype.numpy)
    return x.astype(dtype.numpy)
