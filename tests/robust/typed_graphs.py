"""Random graphs of mixed operators and element types, with static and symbolic shapes."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import onnx
from onnx import helper, numpy_helper

from torshc.formats.cut import reads

from .reduce import needed
from .typed_nodes import step
from .typed_values import OPSET, SAMPLES, Array, Maker, Rejected, Value, draw, draw_type, evaluated, onnx_type

SYMBOLS = ("n", "m")
# Sizes of the symbols, one pair for each binding: all different, so that what is equal for all is one symbol.
BINDINGS = (((2, 3), (5, 4), (1, 7)), ((3, 8), (6, 1), (4, 2)), ((3, 2), (0, 5), (7, 1)))
_SIZES = (1, 2, 3, 4, 4, 5, 8, 9)
_ROWS = (*_SIZES, 16, 17, 33, 40)  # of the last dimension: around the lanes of a vector
_RANKS = (0, 1, 2, 2, 3, 3, 4, 4)
TRIES = 8  # draws for each node that is wanted


@dataclass(frozen=True)
class TypedGraph:
    """A finished graph with the reference's answers.

    Attributes:
        seed: what makes it again.
        inputs: dimensions by name; a word is a symbol.
        values: contents of each value, inputs among them, for each binding and sample.
    """

    seed: int
    nodes: tuple[onnx.NodeProto, ...]
    weights: dict[str, Array]
    inputs: dict[str, tuple[int | str, ...]]
    outputs: tuple[str, ...]
    values: dict[str, Value]

    @property
    def operators(self) -> list[str]:
        return [n.op_type for n in self.nodes]

    @property
    def bindings(self) -> int:
        return len(next(iter(self.values.values())).rows)

    def feeds(self, binding: int) -> dict[str, Array]:
        return {n: self.values[n].rows[binding][0] for n in self.inputs}


def make_graph(seed: int, refused: Counter[str] | None = None) -> TypedGraph:
    """A graph of 3 to 15 nodes, the same for the same seed.

    Args:
        refused: counts why nodes were drawn in vain.
    """
    rng = random.Random(seed)
    symbolic = rng.random() < 0.4
    sizes = rng.choice(BINDINGS) if symbolic else ((0, 0),)
    m = Maker(rng, np.random.default_rng(seed), len(sizes))
    inputs = _inputs(m, sizes, symbolic)
    wanted = rng.randrange(3, 16)
    for _ in range(TRIES * wanted):
        if len(m.nodes) >= wanted:
            break
        try:
            step(m)
        except Rejected as e:
            if refused is not None:
                refused[str(e)] += 1
    read = {i for n in m.nodes for i in reads(n)}
    made = [v.name for v in m.values if v.name not in inputs]
    ends = [n for n in made if n not in read]
    outputs = tuple(n for n in made if n in ends or rng.random() < 0.1)
    return trim(TypedGraph(seed, tuple(m.nodes), m.weights, inputs, outputs, {v.name: v for v in m.values}))


def _inputs(m: Maker, sizes: Sequence[tuple[int, ...]], symbolic: bool) -> dict[str, tuple[int | str, ...]]:
    found: dict[str, tuple[int | str, ...]] = {}
    common = (
        *(m.rng.choice(_SIZES) for _ in range(3)),
        m.rng.choice(_ROWS),
    )  # of which most inputs have a part, so that they fit
    for k in range(m.rng.randrange(2, 6)):
        rank = m.rng.choice(_RANKS)
        dims: list[int | str] = list(common[4 - rank :])
        for j in range(rank):
            if m.chance(0.25):
                dims[j] = m.rng.choice((*_SIZES, 0)) if m.chance(0.1) else m.rng.choice(_SIZES)
            if symbolic and (m.chance(0.3) or (j == 0 and k == 0)):
                dims[j] = m.rng.choice(SYMBOLS)
        dtype = draw_type(m.rng, ("float32", "float16", "float64")) if k == 0 else draw_type(m.rng)
        special = m.chance(0.05)
        rows = []
        for binding in sizes:
            shape = [d if isinstance(d, int) else binding[SYMBOLS.index(d)] for d in dims]
            rows.append((draw(m.generator, dtype, shape, special),) * (SAMPLES + 1))
        found[f"x{k}"] = tuple(dims)
        m.values.append(Value(f"x{k}", tuple(rows)))
    return found


def trim(graph: TypedGraph) -> TypedGraph:
    """The graph without what no output needs."""
    kept, names = needed(graph.nodes, graph.outputs)
    return replace(
        graph,
        nodes=kept,
        weights={n: a for n, a in graph.weights.items() if n in names},
        inputs={n: d for n, d in graph.inputs.items() if n in names},
    )


def model_of(graph: TypedGraph) -> onnx.ModelProto:
    """The model, checked by onnx.

    Raises:
        Exception: whatever onnx's checker finds wrong.
    """
    inputs = [helper.make_tensor_value_info(n, onnx_type(graph.values[n].dtype), d) for n, d in graph.inputs.items()]
    outputs = [
        helper.make_tensor_value_info(n, onnx_type(graph.values[n].dtype), [None] * graph.values[n].rank)
        for n in graph.outputs
    ]
    weights = [numpy_helper.from_array(a, n) for n, a in graph.weights.items()]
    made = helper.make_graph(graph.nodes, f"seed {graph.seed}", inputs, outputs, weights)
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)
    onnx.checker.check_model(model, full_check=True)
    return model


# -- smaller ones ------------------------------------------------------------------------------------------------------


def cut(graph: TypedGraph, length: int) -> Iterator[TypedGraph]:
    """Runs of some nodes, their operands as inputs or weights."""
    for first in range(len(graph.nodes) - length + 1):
        nodes = graph.nodes[first : first + length]
        made = [o for n in nodes for o in n.output if o]
        read = dict.fromkeys(i for n in nodes for i in reads(n) if i not in made)
        ends = [o for o in made if o in nodes[-1].output]
        inputs = {i: _declared(graph, i) for i in read if i not in graph.weights}
        if inputs or length > 1:
            yield trim(replace(graph, nodes=nodes, inputs=inputs, outputs=tuple(ends)))


def _declared(graph: TypedGraph, name: str) -> tuple[int | str, ...]:
    """Dimensions of a value as an input."""
    if name in graph.inputs:
        return graph.inputs[name]
    return tuple(d if isinstance(d, int) else "d" + "_".join(map(str, d)) for d in graph.values[name].dims)


def smaller(graph: TypedGraph) -> Iterator[TypedGraph]:
    """The graph with one binding, one output, a node less, or a smaller dimension."""
    if graph.bindings > 1:
        for b in range(graph.bindings):
            values = {n: Value(n, v.rows[b : b + 1], v.unit) for n, v in graph.values.items()}
            inputs = {n: values[n].rows[0][0].shape for n in graph.inputs}
            yield replace(graph, values=values, inputs=inputs)
    if len(graph.outputs) > 1:
        for name in graph.outputs:
            yield trim(replace(graph, outputs=(name,)))
    for k, n in enumerate(graph.nodes[:-1]):
        rest = (*graph.nodes[:k], *graph.nodes[k + 1 :])
        read = {i for node in rest for i in reads(node)}
        inputs = {**graph.inputs, **{o: _declared(graph, o) for o in n.output if o in read}}
        outputs = tuple(o for o in graph.outputs if o not in n.output)
        if outputs:
            yield trim(replace(graph, nodes=rest, inputs=inputs, outputs=outputs))
    sizes = {d for d in (*graph.inputs.values(), *(w.shape for w in graph.weights.values())) for d in d}
    for size in sorted(s for s in sizes if isinstance(s, int) and s > 1):
        for new in sorted({1, size // 2, size - 1}):
            found = _resized(graph, size, new)
            if found is not None:
                yield found


def _resized(graph: TypedGraph, size: int, new: int) -> TypedGraph | None:
    """The graph with each dimension of a size as another one, if the reference can still compute it."""

    def part(a: Array) -> Array:
        return a[tuple(slice(new) if d == size else slice(None) for d in a.shape)]

    weights = {n: part(a) for n, a in graph.weights.items()}
    values = {
        n: Value(n, tuple(tuple(part(a) for a in row) for row in graph.values[n].rows), graph.values[n].unit)
        for n in graph.inputs
    }
    inputs = {n: tuple(new if d == size else d for d in dims) for n, dims in graph.inputs.items()}
    known = {**values, **{n: Value(n, ((a,) * (SAMPLES + 1),) * graph.bindings) for n, a in weights.items()}}
    try:
        for n in graph.nodes:
            operands = [known[i] for i in reads(n)]
            known |= {v.name: v for v in evaluated(n, operands, np.random.default_rng(graph.seed))}
    except Rejected:
        return None
    return replace(graph, weights=weights, inputs=inputs, values=known)
