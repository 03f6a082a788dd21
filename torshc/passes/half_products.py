"""Let heavy operators read halves where the options ask for it."""

from __future__ import annotations

import dataclasses
from collections.abc import Container, Iterable, Sequence
from typing import Any

import numpy as np

from ..base.features import Feature, Features
from ..base.options import HALVES, CompileOptions
from ..expr import BF16, DTYPES, F16, F32, DType, as_int
from ..graph import Builder, Graph, Node, Patch, Rewriter, Value, rewire
from ..ops.math.pointwise import Cast, Separator
from ..ops.nn.pool import MaxPool, Pool, PoolPlace
from ..ops.tensor.view import Concat, Expand, Reshape, Transpose
from .manager import graph_pass
from .walk import Site, walk

Array = np.ndarray[Any, Any]
# How many operands are multiplied, by family; bias and mask follow them.
FACTORS = {"gemm": 2, "conv": 2, "conv_transpose": 2, "conv_weights": 2, "attention": 3}
QUERIES = 8  # attention of so few is bound by reading keys and values, which a cast would read and write once more
_BY_WEIGHTS = ("gemm", "conv", "conv_transpose")  # whose second factor may be weights
_WIDEN = ("pointwise", "reduce", "nest", "view")  # families of nodes that read as floats what is stored as halves
SHALLOW = 8  # sums below this are too short for matrix units: outer products such as positions times frequencies
_SHOWN = 3  # weights that a warning names


@graph_pass("half_products")
def half_products(graph: Graph, options: CompileOptions, *, features: Features = frozenset()) -> bool:
    """Products, convolutions and attention of f32 read f16 or bf16 operands, as ``options.precision`` says.

    Their sums, results, biases and masks stay f32, as does everything else. A value has one cast, which comes before
    the views that its readers look through, so that its producer can store it as halves; where nothing else
    reads it, no f32 copy is left. Constants are rounded here; finite ones too large for a half become its largest
    number, of which there is a warning, as of those that are all too small. Values of a run that are too large become
    infinite. With `BF16_CONVOLUTIONS`, what convolutions read as bf16
    all others read as rounded, residuals say: activations are stored once, in half the bytes. Without `HALF_PRODUCTS`
    attention of few queries stays f32, as its keys and values are read only once. With `BF16_WEIGHTS` but without
    `BF16_PRODUCTS` weights alone become bf16: multiplied as floats, so that rounding activations saves nothing.
    Error class: 2^-11 (f16) or 2^-8 (bf16) of each factor.

    Before::

        %1 = Transpose[perm=(1, 0)](%0) : f32[4, 16]
        %3 = MatMul(%1, @2:f32[16, 9]) : f32[4, 9]

    After::

        %4 = Cast[to=f16](%0) : f16[16, 4]
        %1 = Transpose[perm=(1, 0)](%4) : f16[4, 16]
        %3 = MatMul[out='f32'](%1, @5:f16[16, 9]) : f32[4, 9]
    """
    if options.precision not in HALVES:
        return False
    changed = walk(graph, _replace_composite, "half_products")
    rewriter = Rewriter(graph, "half_products")
    exempt = {n for n in graph.nodes if Feature.HALF_PRODUCTS not in features and _is_bound_by_memory(n)}
    halves = _Halves(graph, DTYPES[options.precision], rewriter, exempt)
    rounded = set[Value]()
    if options.train is not None and Feature.HALF_PRODUCTS in features:
        rounded = _find_activations(graph)
    elif options.precision == BF16.name and Feature.BF16_CONVOLUTIONS in features:
        rounded = _find_images(graph)
    for node in rewriter:
        if _takes_halves(node) and node not in exempt:
            operands = list(node.inputs)
            by_weights = node.operands[1].const is not None
            for k in rounded_factors(node.op.family, by_weights, options.precision, features):
                operands[k] = halves.cast(node.operands[k])
            if operands != list(node.inputs):
                # Operators of the families in FACTORS have the field, as their common base does not.
                rewire(node, tuple(operands), dataclasses.replace(node.op, out=F32.name))  # type: ignore[call-arg]
                changed = True
        elif isinstance(node.op, PoolPlace):  # it looks for a maximum, which is rounded where this is
            if node.operands[0] in rounded:
                rewire(node, tuple(halves.cast(v) for v in node.operands))
        elif node.op.family in _WIDEN and not rounded.isdisjoint(node.operands):
            # A cast for each reader, which computes it: stored, it would be as large as before.
            rewire(node, tuple(halves.round(v) if v in rounded else v for v in node.inputs))
        rewriter.keep(node)
    rewriter.finish()
    graph.warnings += warn_of_range("--precision", halves.dtype, halves.made)
    return changed


def rounded_factors(family: str, by_weights: bool, precision: str, features: Features) -> Sequence[int]:
    """The operands of f32 that ``--precision`` rounds, of an operator of a family; none where it multiplies nothing.

    Args:
        by_weights: whether its second operand is a constant.
    """
    if precision == BF16.name and Feature.BF16_WEIGHTS in features and Feature.BF16_PRODUCTS not in features:
        return (1,) if by_weights and family in _BY_WEIGHTS else ()
    return range(FACTORS.get(family, 0))


def warn_of_range(option: str, dtype: DType, constants: Iterable[Value]) -> list[str]:
    """Warnings of an option that rounds constants to halves, a line for each way in which some are out of range."""
    found: dict[str, list[str]] = {}
    for v in constants:
        if v.const is not None and (what := _describe_range(v.const, dtype)):
            found.setdefault(what, []).append(repr(v.name) if v.name else repr(v.type))
    remedy = "bf16 has the range of f32" if dtype is F16 else "leave it out"
    return [
        f"{option} {dtype.name}: {what}: {', '.join(names[:_SHOWN])}"
        + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
        + f"; {remedy}"
        for what, names in found.items()
    ]


def _find_images(graph: Graph) -> set[Value]:
    """Values that are stored rounded where convolutions read bf16; outputs of the graph are not.

    These are what convolutions read, and of several results of convolutions that one node reads all but the last,
    which can share its kernel.
    """
    made = {n.output: k for k, n in enumerate(graph.nodes) if n.op.family == "conv" and _takes_halves(n)}
    found = {v.producer.operands[0] for v in made if v.producer is not None}
    for node in graph.nodes:
        summands = sorted((v for v in dict.fromkeys(node.operands) if v in made), key=made.__getitem__)
        found.update(summands[:-1] if node.op.family == "pointwise" else [])
    return found.difference(graph.outputs)


def _find_activations(graph: Graph) -> set[Value]:
    """Activations of a training step that are stored rounded; outputs of the graph are not.

    These are what convolutions read, and what kernels of convolutions and pools read and store. Such a kernel goes on
    through elementwise nodes, each of which alone reads the one before, and stores the result of the last. It has one
    convolution: where several lead to a result, the last.
    """
    users, found, taken = graph.users(), set[Value](), set[Value]()
    for node in reversed(graph.nodes):
        convolves = node.op.family in ("conv", "conv_transpose", "conv_weights") and _takes_halves(node)
        if convolves:
            found.update(node.operands[: FACTORS[node.op.family]])
        if isinstance(node.op, Pool):
            found.add(node.operands[0])
        elif not convolves or node.op.family == "conv_weights":
            continue
        value = node.outputs[0]
        while len(readers := users.get(value, [])) == 1 and readers[0].op.family == "pointwise":
            if value in taken or readers[0].output.shape != value.shape:
                break
            taken.update(readers[0].operands)
            value = readers[0].output
        found.add(value)
    large = {v for v in found if v.dtype is F32 and v.type.rank > 2 and v.const is None and v.producer is not None}
    sums = {v for v in large if (by := users.get(v, ())) and all(n.op.family == "reduce" for n in by)}
    return large.difference(sums, graph.outputs)


def _replace_composite(site: Site) -> Patch | None:
    """A composite operator with a product in it becomes its parts; only -O0 leaves any."""
    if site.node.op.family != "composite":
        return None
    outputs = site.node.op.decompose(site.builder, site.node.inputs)
    if outputs is None or not any(_takes_halves(n) for n in site.nodes):
        return None
    return site.replace(*outputs)


def _takes_halves(node: Node) -> bool:
    count = FACTORS.get(node.op.family)
    if count is None or any(v.dtype is not F32 for v in node.operands[:count]):
        return False
    depth = as_int(node.operands[0].shape[-1]) if node.op.family == "gemm" else None
    return depth is None or depth >= SHALLOW


def _is_bound_by_memory(node: Node) -> bool:
    """Whether an attention has so few queries that memory bounds it, as in a decoder's step."""
    queries = as_int(node.operands[0].shape[-2]) if node.op.family == "attention" else None
    return queries is not None and queries <= QUERIES


class _Halves:
    """Makes the casts of a graph, one a value.

    Args:
        dtype: f16 or bf16.
        rewriter: the walk in which they are built.
        exempt: heavy nodes that stay in f32.
    """

    def __init__(self, graph: Graph, dtype: DType, rewriter: Rewriter, exempt: Container[Node]) -> None:
        self.graph, self.dtype, self.rewriter = graph, dtype, rewriter
        self.f32_values = _find_f32_values(graph, exempt)
        self.made: dict[Value, Value] = {}

    def cast(self, value: Value) -> Value:
        """The value as halves."""
        if value not in self.made:
            self.made.update(self._make(value))
        return self.made[value]

    def round(self, value: Value) -> Value:
        """The value rounded to a half, as f32 again."""
        return self._builder("").one(Cast(to=F32), self.cast(value))

    def _make(self, value: Value) -> dict[Value, Value]:
        node = value.producer
        if value.const is not None:
            return {value: self.graph.constant(_round_to_half(value.const, self.dtype), value.name)}
        if node is None:
            return {value: self._builder("").one(Cast(to=self.dtype), value)}
        if isinstance(node.op, Cast) and node.operands[0].dtype is self.dtype:
            return {value: node.operands[0]}
        if self._moves_before(node, value):
            operands = [self.cast(v) for v in node.operands]
            return dict(zip(node.outputs, self._builder(node.name).add(node.op, operands), strict=True))
        return {value: self._builder(node.name).one(Cast(to=self.dtype), value)}

    def _builder(self, name: str) -> Builder:
        return self.rewriter.builder(name)

    def _moves_before(self, node: Node, value: Value) -> bool:
        """Whether a node that only moves or chooses elements works on halves rather than its result being cast.

        One that drops elements does so only where its operand is not needed as f32: else there is more to cast.
        """
        if isinstance(node.op, Reshape | Transpose | Expand | Separator):
            return True
        if isinstance(node.op, Concat):
            return value not in self.f32_values
        return _chooses(node) and node.operands[0] not in self.f32_values


def _find_f32_values(graph: Graph, exempt: Container[Node]) -> set[Value]:
    """Values that are read as f32 by something else than heavy operators and what comes before those."""
    found = set(graph.outputs)
    for node in reversed(graph.nodes):
        if _takes_halves(node) and node not in exempt:
            found.update(v for v in node.inputs[FACTORS[node.op.family] :] if v is not None)
        elif not _chooses(node) or not found.isdisjoint(node.outputs):
            found.update(node.operands)
    return found


def _chooses(node: Node) -> bool:
    """Whether each element of a node's result is one of its operands', the same one when they are rounded first."""
    return node.op.family == "view" or (isinstance(node.op, MaxPool) and len(node.outputs) == 1)


def _round_to_half(array: Array, dtype: DType) -> Array:
    """A constant as halves, its finite elements finite: a mask of -3.4e38 must not become -inf, as -inf * 0 is NaN."""
    with np.errstate(over="ignore"):
        halves = array.astype(dtype.numpy)
    overflown = np.isinf(halves.astype(np.float32)) & np.isfinite(array)
    if overflown.any():
        halves[overflown] = np.copysign(_largest(dtype), array[overflown]).astype(dtype.numpy)
    halves.flags.writeable = False
    return halves


def _describe_range(array: Array, dtype: DType) -> str:
    """How a constant is out of a half's range, so that it loses more than a rounding; empty where it is not."""
    most, least = np.abs(array[np.isfinite(array)]).max(initial=0), 2.0 ** {"f16": -14, "bf16": -126}[dtype.name]
    if most > _largest(dtype):
        return f"numbers beyond {_largest(dtype):.6g} become that in weights"
    return f"all numbers are below {least:.2g} and lose digits in weights" if 0 < most < least else ""


def _largest(dtype: DType) -> np.float32:
    """The largest finite half: all bits of the fraction set, and all but the last of the exponent."""
    bits = {"f16": 0x7BFF, "bf16": 0x7F7F}[dtype.name]
    return np.float32(np.array(bits, np.uint16).view(dtype.numpy).astype(np.float32))
