"""How far an output may be from a reference's: one function of the model and its options, for all that compares.

``verify``, ``compile --verify``, ``bench``, ``bisect`` and the test that a bundle carries use it; ``tune`` uses its
formula for kernels alone. Its terms stand in the manifest, so that a bundle is judged as the model is that it was made
from.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ..base.features import Features
from ..base.options import LARGE, CompileOptions
from ..expr import DTYPES, F32, as_int
from ..expr.formulas_narrow import FORMATS
from ..graph import Graph, Node, Value
from ..ops.control.flow import Branching, Looping, bodies
from ..ops.image.resize import Resize
from ..ops.quant.quantize import DequantizeLinear, QuantizeLinear
from ..passes.half_products import FACTORS, rounded_factors

# The largest relative error of one rounding: half a unit in the last place. Integers of b bits stand for numbers of up
# to 2^(b-1) quanta, of which a rounding leaves half a one.
UNIT = {
    **{"f64": 2.0**-53, "f32": 2.0**-24, "tf32": 2.0**-11, "f8": 2.0**-4, "f8e8m0": 2.0**-1},
    **{t.name: 2.0 ** -(f.fraction + 1) for t, f in FORMATS.items()},
    **{t.name: 2.0**-t.bits for t in DTYPES.values() if t.is_int and t.bits <= 16},
}
PEAK = 4.0  # 5 sqrt(2) / sqrt(3): see relative_tolerance
LEAST = {"f64": 1e-4 * 2.0**-29, "f32": 1e-4}  # 1,678 units of the type
MOST = 0.5
ASSUMED = 1024  # terms of a sum, and rounds of a loop, whose number only a run knows

_MOVES = frozenset({
    "Identity", "Dropout", "Relu", "MaxPool", "Gather", "GatherElements", "GatherND", "Max", "Min", "Clip", "Where",
    "ReduceMax", "ReduceMin", "GlobalMaxPool", "Pad", "Neg", "Abs",
})  # fmt: skip


@dataclass(frozen=True)
class Tolerance:
    """How far an output may be from a reference's: ``relative`` of its largest element, and ``quantum`` more.

    Attributes:
        relative: what :func:`relative_tolerance` says of the roundings.
        quantum: what a step of a quantised integer is worth in the output, where that is such integers or made of
            them by moving and scaling alone, else 0: a number half-way between two integers may become either.
        roundings: how many are behind each other on the way to the output, by type.
    """

    relative: float
    quantum: float = 0.0
    roundings: Mapping[str, int] = field(default_factory=dict)

    @property
    def coarsest(self) -> str:
        """The type that most of the error comes from; empty where nothing is rounded."""
        return max(self.roundings, key=lambda t: self.roundings[t] * UNIT[t] ** 2, default="")


def spread(roundings: Mapping[str, int]) -> float:
    """What some roundings may change, as part of the largest element: 4 sqrt(sum of n u^2).

    An error of a rounding is anything from -u to u, so its standard deviation is u / sqrt(3). Of n behind each other it
    is sqrt(n) times that: they go either way, in the terms of a sum too (Higham and Mary, A New Approach to
    Probabilistic Rounding Error Analysis, SIAM J. Sci. Comput. 41, 2019). The largest of a million errors is 5 standard
    deviations, and the reference rounds as well: sqrt(2). 5 sqrt(2) / sqrt(3) = 4.1.

    >>> spread({"bf16": 1}) == 2.0**-6, spread({"f16": 4}) == 2.0**-8
    (True, True)
    """
    return PEAK * math.sqrt(sum(n * UNIT[t] ** 2 for t, n in roundings.items()))


def relative_tolerance(roundings: Mapping[str, int], dtype: str = "f32") -> float:
    """The largest max|a-b| / max|b| of an output of a type: min(1/2, max(least, 4 sqrt(sum of n_t u_t^2))).

    n_t counts the roundings to a type t that are behind each other on the way to the output:

    * a result of f16, bf16 or fewer bits is one; of recurrent cells each step is, of loops each round;
    * a sum of K terms is K of the type it is summed in, which is f32 for halves; any other arithmetic is one;
    * a product has one for each factor that ``--precision`` rounds, which are weights alone on a processor without
      instructions for bf16, and attention one for its probabilities beside Q, K and V;
    * a weight that ``--weights-dtype`` stores in fewer bits is one: errors of weights are independent, so the error of
      a sum of products is as large a part of it as that of each;
    * a number that becomes an integer of b bits is one of 2^-b: half of a quantum of 2^(b-1).

    u_t is the largest error of one (:data:`UNIT`), and 4 is derived in :func:`spread`. That leaves out how much a model
    amplifies what is rounded before. In place of the 4, 0.2 to 1.6 were measured with SqueezeNet and a transformer of
    six layers (f16, bf16, QDQ with ONNX Runtime or onnx's evaluator), and 2.4 to 2.8 with a MobileNetV2 of random
    weights, which amplifies most.

    ``least`` is for what functions such as exp and differences of near numbers add to few roundings: 1e-4 where f32
    has a part in an output, and as many units of f64 where that is all there is. Zeros in place of an answer are an
    error of 1, so nothing above a half is allowed. What is made of integers alone, or is decided (the place of a
    largest element, a comparison), has no rounding, and is the same or wrong.

    >>> relative_tolerance({"f32": 512}), relative_tolerance({"bf16": 2, "f32": 64}), relative_tolerance({}, "i64")
    (0.0001, 0.022097086994..., 0.0)
    >>> relative_tolerance({"f8": 100})
    0.5
    """
    types = {*roundings, *({dtype} if dtype in DTYPES and DTYPES[dtype].is_float else ())}
    least = max((LEAST.get(t, LEAST["f32"]) for t in types), default=0.0)
    return min(MOST, max(least, spread(roundings)))


def tolerances_of(graph: Graph, options: CompileOptions, features: Features) -> tuple[Tolerance, ...]:
    """The tolerance of each output of a model as it was imported, before any pass.

    Args:
        features: what the target has kernels for.
    """
    paths = Paths(options, features)
    paths.walk(graph)
    found = []
    for v in graph.returned:
        roundings, step = paths.roundings(v), paths.steps.get(v, 0.0)
        found.append(Tolerance(relative_tolerance(roundings, v.dtype.name), step, roundings))
    return tuple(found)


def loosest(versions: Iterable[Sequence[Tolerance]]) -> tuple[Tolerance, ...]:
    """The tolerance of each output of a library that runs one of several versions of a model."""
    return tuple(max(each, key=lambda t: t.relative) for each in zip(*versions, strict=True))


class Paths:
    """For each value the roundings of the path to it that has the most, and what a step of a quantised one is worth.

    Args:
        features: what the target has kernels for, which decides what ``--precision`` rounds.
        forms: nodes whose kernel sums otherwise than the node says, and the roundings of f32 that it has instead.
    """

    def __init__(self, options: CompileOptions, features: Features, forms: Mapping[Node, int] | None = None) -> None:
        self.options, self.features = options, features
        self.forms = forms or {}
        self.steps: dict[Value, float] = {}
        self._longest: dict[Value, tuple[float, Mapping[str, int]]] = {}  # with what the roundings amount to
        self._folded: set[Value] = set()  # what passes compute of constants

    def roundings(self, v: Value) -> Mapping[str, int]:
        return self._longest.get(v, (0.0, {}))[1]

    def walk(self, graph: Graph, rounds: int = 1) -> None:
        for node in graph.nodes:
            before = self._before(node.operands)
            if node.operands and all(map(self._is_constant, node.operands)):
                self._folded.update(node.outputs)
            if isinstance(node.op, Branching | Looping):
                self._control(node, before, rounds)
                continue
            for v in node.outputs:
                if not _decides(node, v):
                    self._put(v, before, {t: n * rounds for t, n in self.own(node, v).items()})
                if step := self._step(node, v):
                    self.steps[v] = step

    def _before(self, operands: tuple[Value, ...]) -> Mapping[str, int]:
        known = (self._longest[v] for v in operands if v in self._longest)
        return max(known, key=lambda path: path[0], default=(0.0, {}))[1]

    def _put(self, v: Value, before: Mapping[str, int], own: Mapping[str, int]) -> None:
        path = {**before, **{t: before.get(t, 0) + n for t, n in own.items()}} if own else before
        self._longest[v] = spread(path), path

    def _control(self, node: Node, before: Mapping[str, int], rounds: int) -> None:
        """What a branch or a loop gives has the roundings of its operands, and of its bodies in each round."""
        if isinstance(node.op, Looping):
            first = node.inputs[0]
            count = first.const if first is not None and first.dtype.is_int else None
            trips = ASSUMED if count is None or count.size != 1 else min(int(count.item()), ASSUMED)
            rounds *= max(trips, 1)
        graphs = bodies(node)
        for body in graphs:
            for v in body.inputs:
                self._put(v, before, {})
            self.walk(body, rounds)
        results = tuple(v for body in graphs for v in body.results)
        for v in node.outputs:
            self._put(v, self._before(results) or before, {})

    def own(self, node: Node, v: Value) -> dict[str, int]:
        """The roundings in a node, by type."""
        op, dtype = node.op, v.dtype
        own: dict[str, int] = {}
        if _quantises(node, v):
            own[dtype.name] = 1
        elif dtype.is_float and not _moves(node):
            own[dtype.compute] = self.forms.get(node) or _terms(node)
            if dtype.is_storage:
                own[dtype.name] = _length(node.operands[0]) if op.family == "recurrent" else 1
        narrow, precision = self.options.weights_dtype, self.options.precision
        if count := self._rounded_factors(node):
            own[precision] = own.get(precision, 0) + count
        if narrow != "f32" and any(map(_is_large, node.operands)):
            own[narrow] = own.get(narrow, 0) + 1
        return own

    def _rounded_factors(self, node: Node) -> int:
        """How many factors of f32 ``--precision`` rounds in a node, or has rounded: then it says what it sums in."""
        precision, family = self.options.precision, "gemm" if node.op.name == "Gemm" else node.op.family
        if precision == F32.name or family not in FACTORS:
            return 0
        factors = node.operands[: FACTORS[family]]
        made = {precision} if getattr(node.op, "out", "") else set()
        if not {v.dtype.name for v in factors} <= {F32.name, *made}:
            return 0
        count = len(rounded_factors(family, self._is_constant(factors[1]), precision, self.features))
        return count + (count > 0 and family == "attention")

    def _is_constant(self, v: Value) -> bool:
        return v.const is not None or v in self._folded

    def _step(self, node: Node, v: Value) -> float:
        """What a step of a quantised integer is worth in a result; 0 where that is more than moved and scaled."""
        if _quantises(node, v) or _weighs_integers(node, v):
            return 1.0
        steps = [self.steps.get(x, 0.0) for x in node.operands]
        if not any(steps):
            return 0.0
        if isinstance(node.op, DequantizeLinear) or node.op.name in ("Mul", "Div"):
            by = node.operands[1] if steps[0] else node.operands[0]
            factor = _largest(by, node.op.name == "Div") if steps[0] or node.op.name == "Mul" else 0.0
            return max(steps[:2]) * factor
        if node.op.name in ("Add", "Sub"):
            return sum(steps)
        return max(steps) if _moves(node) or node.op.name == "Cast" else 0.0


def _quantises(node: Node, v: Value) -> bool:
    """Whether a node makes integers of few bits of floats. QLinear operators are imported as such casts."""
    few = v.dtype.is_int and v.dtype.name in UNIT
    return few and (isinstance(node.op, QuantizeLinear) or (node.op.name == "Cast" and node.operands[0].dtype.is_float))


def _weighs_integers(node: Node, v: Value) -> bool:
    """Whether a node sums integers by fractions, and makes an integer of the sum."""
    return v.dtype.is_int and isinstance(node.op, Resize) and node.op.mode != "nearest"


def _decides(node: Node, v: Value) -> bool:
    """Whether a result is no number that is rounded: the same, or another one."""
    whole = v.dtype.kind not in "fq" and node.op.name != "Cast" and not _quantises(node, v)
    return whole and any(x.dtype.is_float for x in node.operands)


def _moves(node: Node) -> bool:
    return node.op.family == "view" or node.op.name in _MOVES


def _is_large(v: Value) -> bool:
    return v.const is not None and v.dtype is F32 and v.const.ndim >= 2 and v.const.size >= LARGE


def _largest(v: Value, inverse: bool) -> float:
    """The largest element of a constant, or of what 1 is when divided by it; 0 where it is none."""
    if v.const is None or not v.const.size:
        return 0.0
    sizes = np.abs(v.const.astype(np.float64))
    if not inverse:
        return float(sizes.max())
    return float(1 / sizes.min()) if sizes.all() else 0.0


def _length(v: Value) -> int:
    """Steps of recurrent cells."""
    known = as_int(v.shape[0]) if v.shape else 1
    return ASSUMED if known is None else max(known, 1)


def _terms(node: Node) -> int:
    """Terms of the sums in a node. A composite has them along its operand's last dimension, as norms and Gemm do."""
    if node.op.family == "pointwise":
        return 1
    nest = node.op.nest(node, 0)
    if nest is not None:
        extents = nest.reduce if nest.combine == "add" else ()
    elif node.op.heavy or node.op.family == "composite":
        extents = node.operands[0].shape[-1:] if node.operands else ()
    else:
        extents = ()
    return math.prod(ASSUMED if (known := as_int(e)) is None else max(known, 1) for e in extents)
