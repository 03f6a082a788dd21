"""Values of random typed graphs, and the graph in the making.

Contents run along for each binding of the symbols: what onnx's reference evaluator computes, and what it computes when
every float that a node reads is moved by some units in its last place. How far the answers of those samples are apart
says how far rounding may move the model's answer: sums in another order, contracted or fused arithmetic.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import helper
from onnx.reference import ReferenceEvaluator

from torshc.formats.cut import reads
from torshc.ops import REGISTRY

from .typed_compare import difference, runtime_answers

Array = np.ndarray[Any, Any]
Dim = int | tuple[int, ...]  # one size, or a size for each binding

OPSET = 26
SAMPLES = 8  # answers with moved operands, beside the first
MOVED = 2.0  # units in the last place: what kernels' functions and a rounding left out may come to
BLURRED = 8.0  # units of the largest result: what sums of some terms inside an operator may come to
ELEMENTS = 3000  # of a tensor

FLOATS = ("float32", "float16", "float64")
SIGNED = ("int64", "int32", "int8", "int16")
UNSIGNED = ("uint8", "uint32", "uint16", "uint64")
TYPES = (*FLOATS, *SIGNED, *UNSIGNED, "bool")
_CHANCES = (12, 4, 4, 6, 4, 2, 1, 3, 1, 1, 1, 4)
_SPECIAL = (np.nan, np.inf, -np.inf, -0.0, 0.0, 1e30, -1e-30)


# Operators with sums, functions and constants of their own inside, of which moved operands do not show the rounding.
INEXACT = (
    "AffineGrid", "BatchNormalization", "BlackmanWindow", "DFT", "Det", "Gelu", "GridSample", "GroupNormalization",
    "HammingWindow", "HannWindow", "InstanceNormalization", "LayerNormalization", "LogSoftmax",
    "MeanVarianceNormalization", "MelWeightMatrix", "Resize", "STFT", "Softmax",
)  # fmt: skip


PRODUCTS = ("CumProd", "Mul", "ReduceProd")


class Rejected(Exception):
    """A node that does not fit; its text says why, the same for all such nodes."""


@dataclass(frozen=True)
class Value:
    """A tensor with its contents.

    Attributes:
        rows: for each binding the reference's answer and those of the samples.
        unit: the relative rounding of the coarsest type that it was computed in; 0 where integers come between.
    """

    name: str
    rows: tuple[tuple[Array, ...], ...]
    unit: float = 0.0

    @property
    def dtype(self) -> str:
        return str(self.rows[0][0].dtype)

    @property
    def rank(self) -> int:
        return self.rows[0][0].ndim

    @property
    def dims(self) -> tuple[Dim, ...]:
        sizes = zip(*(r[0].shape for r in self.rows), strict=True)
        return tuple(s[0] if len(set(s)) == 1 else s for s in sizes)

    def size(self, axis: int) -> int:
        """A size that is the same for all bindings."""
        found = self.dims[axis]
        if not isinstance(found, int):
            raise Rejected("a size must be known")
        return found


def onnx_type(dtype: str | np.dtype[Any]) -> int:
    return int(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))


def draw_type(rng: random.Random, among: Sequence[str] = TYPES) -> str:
    chances = [_CHANCES[TYPES.index(t)] for t in among]
    if not among:
        raise Rejected("no element type is left")
    return rng.choices(list(among), chances)[0]


def draw(generator: np.random.Generator, dtype: str, shape: Sequence[int], special: bool = False) -> Array:
    """Small numbers; with special ones among them when asked for."""
    if dtype == "bool":
        return generator.integers(0, 2, shape).astype(bool)
    if dtype not in FLOATS:
        return generator.integers(0 if dtype in UNSIGNED else -6, 9, shape).astype(dtype)
    found = np.asarray(generator.standard_normal(shape)).astype(dtype)
    if special and found.size:
        with np.errstate(all="ignore"):
            found.reshape(-1)[generator.integers(found.size)] = generator.choice(_SPECIAL)
    return found


@contextmanager
def quiet() -> Iterator[None]:
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        yield


def _moved(array: Array, generator: np.random.Generator) -> Array:
    """An operand, each element moved by up to `MOVED` units in the last place."""
    if array.dtype.kind != "f":
        return array
    step = MOVED * float(np.finfo(array.dtype).eps)
    wide = array.astype(np.float64) * (1 + step * generator.uniform(-1, 1, array.shape))
    return np.asarray(wide).astype(array.dtype)


def _vanishes(array: Array) -> bool:
    """Whether a half is zero, or so small that it has lost bits."""
    return bool(np.any(abs(array) < np.finfo(np.float16).tiny))


def _blurred(array: Array, generator: np.random.Generator) -> Array:
    """A result, each element moved by up to `BLURRED` units in the last place of the largest."""
    if array.dtype.kind != "f" or not array.size:
        return array
    wide = array.astype(np.float64)
    largest = np.max(abs(wide), where=np.isfinite(wide), initial=0)
    step = BLURRED * float(np.finfo(array.dtype).eps) * largest
    return np.asarray(wide + step * generator.uniform(-1, 1, array.shape)).astype(array.dtype)


def evaluated(node: onnx.NodeProto, operands: Sequence[Value | None], generator: np.random.Generator) -> list[Value]:
    """The outputs of a node, for all bindings and samples.

    Args:
        operands: what it reads, what its subgraphs take from outside included.

    Raises:
        Rejected: the evaluator fails, or gives what the schema or ONNX Runtime does not say, or shapes that rounding
            decides.
    """
    given = [v for v in operands if v is not None]
    inputs = [
        helper.make_tensor_value_info(v.name, onnx_type(v.dtype), [None] * v.rank)
        for v in {v.name: v for v in given}.values()
    ]
    outputs = [o for o in node.output if o]
    graph = helper.make_graph([node], "one", inputs, [helper.make_empty_tensor_value_info(o) for o in outputs])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)
    still = REGISTRY[("", node.op_type)].family == "view" if ("", node.op_type) in REGISTRY else False
    found: list[list[tuple[Array, ...]]] = [[] for _ in outputs]
    try:
        with quiet():
            types = _types(node, given)
            evaluator = ReferenceEvaluator(model)
            for b in range(len(given[0].rows)):
                answers = []
                for s in range(SAMPLES + 1):
                    move = s > 0 and not still
                    feeds = {v.name: _moved(v.rows[b][s], generator) if move else v.rows[b][s] for v in given}
                    made = [np.asarray(a) for a in evaluator.run(None, feeds)]
                    answers.append([_blurred(a, generator) for a in made] if s and node.op_type in INEXACT else made)
                for k, rows in enumerate(zip(*answers, strict=True)):
                    found[k].append(rows)
    except Exception as e:  # onnx's evaluator raises what comes, of operands that it cannot take; these are counted
        raise Rejected(f"{node.op_type}: {type(e).__name__}") from e
    for name, rows in zip(outputs, found, strict=True):
        if any(len({a.shape for a in row}) > 1 for row in rows) or len({row[0].ndim for row in rows}) > 1:
            raise Rejected(f"{node.op_type}: a shape depends on rounding, or a rank on sizes")
        if any(str(a.dtype) != types[name] for row in rows for a in row):
            raise Rejected(f"{node.op_type}: the evaluator gives another element type")
        if any(a.size > ELEMENTS for row in rows for a in row):
            raise Rejected("too many elements")
    if any(
        _doubted(model, {v.name: v.rows[b][0] for v in given}, [rows[b] for rows in found])
        for b in range(len(given[0].rows))
    ):
        raise Rejected(f"{node.op_type}: ONNX Runtime has another answer than the reference")
    unit = max((v.unit for v in given), default=0.0)
    return [Value(name, tuple(rows), _unit(rows[0][0], unit)) for name, rows in zip(outputs, found, strict=True)]


def _unit(array: Array, least: float) -> float:
    return max(float(np.finfo(array.dtype).eps), least) if array.dtype.kind == "f" else 0.0


def _doubted(model: onnx.ModelProto, feeds: dict[str, Array], found: Sequence[Sequence[Array]]) -> bool:
    """Whether ONNX Runtime has another answer; where it does not know a type of floats, another one in f32."""
    if any(not a.size for a in feeds.values()):
        return False  # ONNX Runtime may read what is not there
    first = runtime_answers(model, feeds)
    if first:
        return any(bool(difference(a, row)) for a, row in zip(first, found, strict=False))
    single = {n: a.astype(np.float32) if a.dtype.kind == "f" else a for n, a in feeds.items()}
    for v in model.graph.input:
        v.type.tensor_type.elem_type = onnx_type(single[v.name].dtype)
    for a, row in zip(runtime_answers(model, single), found, strict=False):
        wanted = row[0].astype(np.float64)
        scale = float(np.max(abs(wanted), where=np.isfinite(wanted), initial=0)) or 1.0
        with quiet():
            if a.shape != wanted.shape or not np.allclose(a, wanted, 1e-2, 1e-2 * scale, equal_nan=True):
                return True
    return False


def _types(node: onnx.NodeProto, given: Sequence[Value]) -> dict[str, str]:
    """Element types of a node's outputs by onnx's own inference."""
    if any(a.type == onnx.AttributeProto.GRAPH for a in node.attribute):  # subgraphs say them
        graph = next(a.g for a in node.attribute if a.type == onnx.AttributeProto.GRAPH)
        said = graph.output[len(graph.output) - len(node.output) :]
        kinds = zip(node.output, said, strict=True)
        return {n: str(helper.tensor_dtype_to_np_dtype(v.type.tensor_type.elem_type)) for n, v in kinds}
    schema = onnx.defs.get_schema(node.op_type, OPSET, "")
    kinds = {v.name: helper.make_tensor_type_proto(onnx_type(v.dtype), [None] * v.rank) for v in given}
    imports = [helper.make_opsetid("", OPSET)]
    found = onnx.shape_inference.infer_node_outputs(schema, node, kinds, opset_imports=imports, ir_version=10)
    return {n: str(helper.tensor_dtype_to_np_dtype(t.tensor_type.elem_type)) for n, t in found.items()}


@dataclass
class Maker:
    """A graph in the making."""

    rng: random.Random
    generator: np.random.Generator
    bindings: int
    values: list[Value] = field(default_factory=list)
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    weights: dict[str, Array] = field(default_factory=dict)
    pending: dict[str, Array] = field(default_factory=dict)
    constants: int = 0

    def chance(self, share: float) -> bool:
        return self.rng.random() < share

    def pick(self, *dtypes: str, least: int = 0, most: int = 6, where: Callable[[Value], bool] | None = None) -> Value:
        """A value, late ones more often.

        Raises:
            Rejected: there is none such.
        """
        found = [v for v in self.values if (not dtypes or v.dtype in dtypes) and least <= v.rank <= most]
        found = [v for v in found if where is None or where(v)]
        if not found:
            raise Rejected("no operand fits")
        return found[max(self.rng.randrange(len(found)), self.rng.randrange(len(found)))]

    def weight(self, array: Any, dtype: str | None = None) -> Value:
        """A constant; it joins the graph with the node that reads it."""
        found = np.asarray(array, dtype)
        name = f"w{self.constants}"
        self.constants += 1
        self.pending[name] = found
        return Value(name, ((found,) * (SAMPLES + 1),) * self.bindings)

    def ints(self, values: Any) -> Value:
        return self.weight(values, "int64")

    def drawn(self, dtype: str, shape: Sequence[int]) -> Value:
        return self.weight(draw(self.generator, dtype, shape, special=self.chance(0.03)))

    def of(self, dtype: str, dims: Sequence[Dim]) -> Value:
        """A value of a type and a shape: one that there is, or a constant."""
        there = [v for v in self.values if v.dtype == dtype and v.dims == tuple(dims)]
        sizes = [d for d in dims if isinstance(d, int)]
        if there and (len(sizes) < len(dims) or self.chance(0.5)):
            return self.rng.choice(there)
        if len(sizes) < len(dims):
            raise Rejected("no operand fits")
        return self.drawn(dtype, sizes)

    def partner(self, dtype: str, dims: Sequence[Dim]) -> Value:
        """A value of a type that broadcasts with a shape: dimensions are equal for all bindings, or 1 for all."""

        def fits(v: Value) -> bool:
            pairs = zip(v.dims[::-1], tuple(dims)[::-1], strict=False)
            return v.dtype == dtype and all(a == b or 1 in (a, b) for a, b in pairs)

        there = [v for v in self.values if fits(v)]
        if there and self.chance(0.7):
            return self.rng.choice(there)
        tail = tuple(dims)[self.rng.randrange(len(dims) + 1) :]
        return self.drawn(dtype, [d if isinstance(d, int) and self.chance(0.6) else 1 for d in tail])

    def axis(self, v: Value) -> int:
        """An axis, from either end."""
        if not v.rank:
            raise Rejected("a scalar has no axis")
        return self.rng.randrange(-v.rank, v.rank)

    def emit(
        self,
        op: str,
        operands: Sequence[Value | None],
        outputs: int = 1,
        captured: Sequence[Value] = (),
        **attributes: Any,
    ) -> list[Value]:
        """A node with its contents.

        Args:
            captured: what its subgraphs take from outside.

        Raises:
            Rejected: the reference cannot compute it, or ONNX does not say what it is.
        """
        names = [f"v{len(self.nodes)}_{k}" if k else f"v{len(self.nodes)}" for k in range(outputs)]
        node = helper.make_node(op, ["" if v is None else v.name for v in operands], names, **attributes)
        while node.input and not node.input[-1]:
            del node.input[-1]
        defined(op, [v for v in operands if v is not None], attributes)
        made = evaluated(node, [*operands, *captured], self.generator)
        for v in made:
            half = v.dtype == "float16" and any(np.isinf(a).any() for row in v.rows for a in row)
            if half and all(np.isfinite(o.rows[0][0]).all() for o in operands if o is not None):
                raise Rejected("a half overflows, which wider arithmetic in a kernel does not")
            if v.dtype == "float16" and op in PRODUCTS and any(_vanishes(a) for row in v.rows for a in row):
                raise Rejected("a product of halves vanishes, which wider arithmetic in a kernel keeps")
        self.nodes.append(node)
        self.values += made
        read = set(reads(node))
        self.weights |= {n: a for n, a in self.pending.items() if n in read}
        return made


# -- what ONNX leaves open ---------------------------------------------------------------------------------------------


def _nonzero(operands: Sequence[Value], attributes: dict[str, Any]) -> bool:
    return operands[1].dtype in FLOATS or _all(operands[1], lambda b: (b != 0) & (b != -1))


def _convertible(operands: Sequence[Value], attributes: dict[str, Any]) -> bool:
    to = attributes["to"] if "to" in attributes else onnx_type(operands[1].dtype)
    dtype = helper.tensor_dtype_to_np_dtype(to)
    if operands[0].dtype not in FLOATS or dtype.kind not in "iu":
        return True
    low, high = float(np.iinfo(dtype).min), float(np.iinfo(dtype).max)
    return _all(operands[0], lambda a: np.isfinite(a) & (a > max(low, -1e15) - 1) & (a < min(high, 1e15)))


def _shifts(operands: Sequence[Value], attributes: dict[str, Any]) -> bool:
    return _all(operands[1], lambda b: b < 8 * b.dtype.itemsize)


def _powers(operands: Sequence[Value], attributes: dict[str, Any]) -> bool:
    x, y = operands
    if x.dtype in FLOATS:
        return True
    if y.dtype in FLOATS or not _all(y, lambda b: (b >= 0) & (b < 20)):
        return False
    # Signed integers with u64 are f64 for the evaluator, which has another answer than integers that wrap.
    most = _largest(x) ** _largest(y)
    return np.result_type(x.dtype, y.dtype).kind != "f" or most <= min(np.iinfo(x.dtype).max, 1 << 53)


def _largest(v: Value) -> int:
    """Of integers, without their signs."""
    return max(int(abs(a.astype(np.float64)).max(initial=0)) for row in v.rows for a in row)


def _ordered(operands: Sequence[Value], attributes: dict[str, Any]) -> bool:
    return operands[0].dtype not in FLOATS or _all(operands[0], lambda a: ~np.isnan(a))


def _pooled(operands: Sequence[Value], attributes: dict[str, Any]) -> bool:
    """Whether each window has elements: of none but padding the evaluator gives 0, and ONNX Runtime refuses."""
    return _ordered(operands, attributes) and all(0 not in a.shape[2:] for row in operands[0].rows for a in row)


def _finite(operands: Sequence[Value], attributes: dict[str, Any]) -> bool:
    return all(v.dtype not in FLOATS or _all(v, np.isfinite) for v in operands)


def _moderate(operands: Sequence[Value], attributes: dict[str, Any]) -> bool:
    """Whether no square or product on the way leaves the type, in whatever order it is computed."""
    return _finite(operands, attributes) and all(
        v.dtype not in FLOATS or _all(v, lambda a: (abs(a) < 1e6) & ((a == 0) | (abs(a) > 1e-6))) for v in operands
    )


def _all(v: Value, holds: Callable[[Array], Any]) -> bool:
    with quiet():
        return all(bool(np.all(holds(a))) for row in v.rows for a in row)


def _filled(operands: Sequence[Value], attributes: dict[str, Any]) -> bool:
    return operands[0].dtype in FLOATS or all(a.size for row in operands[0].rows for a in row)


# A tap of ConvTranspose that falls outside of its operand is a product with 0 in our kernels, which NaN makes NaN.
_DEFINED: dict[str, Callable[[Sequence[Value], dict[str, Any]], bool]] = {
    "Div": _nonzero, "Mod": _nonzero, "Cast": _convertible, "CastLike": _convertible, "BitShift": _shifts,
    "Pow": _powers, "TopK": _ordered, "ArgMax": _ordered, "ArgMin": _ordered, "Unique": _ordered, "Hardmax": _ordered,
    "QuantizeLinear": _finite, "DynamicQuantizeLinear": _finite, "MaxPool": _pooled, "GridSample": _finite,
    "RoiAlign": _finite, "NonMaxSuppression": _finite, "DeformConv": _finite, "Det": _finite, "Resize": _finite,
    "ConvTranspose": _finite,
    "GroupNormalization": _moderate, "ReduceProd": _moderate, "ReduceMean": _filled,
    "Trilu": _finite, "LSTM": _finite, "GRU": _finite, "RNN": _finite,
}  # fmt: skip


def defined(op: str, operands: Sequence[Value], attributes: dict[str, Any]) -> None:
    """Refuse operands for which ONNX does not say what the answer is.

    Raises:
        Rejected: as division by 0, conversion of a number that does not fit, an order of NaN.
    """
    if op in _DEFINED and not _DEFINED[op](operands, attributes):
        raise Rejected(f"{op}: ONNX leaves the answer open")
