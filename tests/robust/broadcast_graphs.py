"""Random graphs whose operands meet in dimensions of different names, of which any may be 1 in a run."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import numpy as np
import onnx
from onnx import helper, numpy_helper

SIZES = (3, 2, 4)  # of dimensions by their place from the last one, where they are not 1
NAMES = 8
_BINARY = ("Add", "Mul", "Sub", "Max")
_UNARY = ("Relu", "Neg", "Sigmoid")


class Graph:
    """Nodes over tensors of rank 3 whose dimensions, from the last one, are of ``SIZES`` or 1 in every run.

    Args:
        scripts: whether some of these sizes may be known only during a run.

    Attributes:
        model: the model.
        shapes: by input, its dimensions: names, or numbers.
        places: for each name, how far from the last dimension it stands.
    """

    def __init__(self, seed: int, scripts: bool = False) -> None:
        self.rng = random.Random(seed)
        self.steps = {**_STEPS, Graph._unique: 2} if scripts else _STEPS
        self.places: dict[str, int] = {}
        self.shapes: dict[str, list[str | int]] = {}
        self.nodes: list[onnx.NodeProto] = []
        self.weights: dict[str, np.ndarray] = {}
        names = [f"x{k}" for k in range(self.rng.randrange(2, 5))]
        for name in names:
            rank = self.rng.randrange(1, 4)
            self.shapes[name] = [self._dimension(rank - 1 - k) for k in range(rank)]
        self.tensors = list(names)
        for _ in range(self.rng.randrange(2, 8)):
            self._step()
        last = self.tensors[-1]
        self._node("Add", [last, last]) if last in self.shapes else None
        read = {i for n in self.nodes for i in n.input}
        outputs = [t for t in self.tensors if t not in read and t not in self.shapes]
        used = [n for n in names if n in read]
        inputs = [helper.make_tensor_value_info(n, 1, self.shapes[n]) for n in used]
        self.shapes = {n: self.shapes[n] for n in used}
        graph = helper.make_graph(
            self.nodes, "broadcasts", inputs, [onnx.ValueInfoProto(name=o) for o in outputs],
            [numpy_helper.from_array(w, n) for n, w in self.weights.items()],
        )  # fmt: skip
        self.model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)

    def _dimension(self, place: int) -> str | int:
        if self.rng.random() < 0.2:
            return self.rng.choice((1, SIZES[place]))
        same = [n for n, p in self.places.items() if p == place]
        if same and self.rng.random() < 0.3:
            return self.rng.choice(same)
        name = f"d{len(self.places) % NAMES}_{place}"
        self.places[name] = place
        return name

    def _node(self, op: str, operands: list[str], **attributes: object) -> None:
        self.tensors.append(f"t{len(self.nodes)}")
        self.nodes.append(helper.make_node(op, operands, [self.tensors[-1]], **attributes))

    def _constant(self, array: np.ndarray) -> str:
        name = f"w{len(self.weights)}"
        self.weights[name] = array
        return name

    def _pick(self) -> str:
        return self.rng.choice(self.tensors[-4:] if self.rng.random() < 0.7 else self.tensors)

    def _step(self) -> None:
        self.rng.choices([*self.steps], [*self.steps.values()])[0](self)

    def _shape(self) -> list[int]:
        return [self.rng.choice((1, d)) for d in SIZES[: self.rng.randrange(1, 4)][::-1]]

    def _pair(self) -> None:
        self._node(self.rng.choice(_BINARY), [self._pick(), self._pick()])

    def _sum(self) -> None:
        self._node(self.rng.choice(("Sum", "Min")), [self._pick() for _ in range(3)])

    def _weight(self) -> None:
        shape = self._shape()
        values = np.linspace(-1, 1, int(np.prod(shape)), dtype=np.float32).reshape(shape)
        self._node(self.rng.choice((*_BINARY, "PRelu")), [self._pick(), self._constant(values)])

    def _where(self) -> None:
        self._node("Greater", [self._pick(), self._pick()])
        self._node("Where", [self.tensors.pop(), self._pick(), self._pick()])

    def _expand(self) -> None:
        self._node("Expand", [self._pick(), self._constant(np.array(self._shape()))])

    def _expand_as(self) -> None:
        self._node("Shape", [self._pick()])
        shape = self.tensors.pop()
        if self.rng.random() < 0.5:
            self._node("Expand", [self._pick(), shape])
        else:
            self._node("ConstantOfShape", [shape])

    def _count(self) -> None:
        """Times the number of elements of another tensor."""
        self._node("Size", [self._pick()])
        self._node("Cast", [self.tensors.pop()], to=1)
        self._node("Mul", [self._pick(), self.tensors.pop()])

    def _matrix(self) -> None:
        self._node("MatMul", [self._pick(), self._constant(np.eye(SIZES[0], dtype=np.float32) + 0.5)])

    def _attention(self) -> None:
        """What spells out attention: q, k, v and perhaps a mask, of rank 3 as a sum with ones makes them."""
        q, k, v = (self._whole() for _ in range(3))
        self._node("Transpose", [k], perm=[0, 2, 1])
        self._node("MatMul", [q, self.tensors.pop()])
        if self.rng.random() < 0.5:
            mask = np.where(np.tri(SIZES[1]), 0, -9).astype(np.float32)
            self._node("Add", [self.tensors.pop(), self._constant(mask)])
        self._node("Softmax", [self.tensors.pop()], axis=-1)
        self._node("MatMul", [self.tensors.pop(), v])

    def _whole(self) -> str:
        self._node("Add", [self._pick(), self._constant(np.ones((1, 1, 1), np.float32))])
        return self.tensors.pop()

    def _normalise(self) -> None:
        scale = self._constant(np.linspace(1, 2, SIZES[0], dtype=np.float32)[: self.rng.choice((1, SIZES[0]))])
        self._node("LayerNormalization", [self._pick(), scale])

    def _reduce(self) -> None:
        axes = self._constant(np.array([-1]))
        self._node(self.rng.choice(("ReduceSum", "ReduceMax")), [self._pick(), axes], keepdims=1)

    def _softmax(self) -> None:
        self._node("Softmax", [self._pick()], axis=-1)

    def _unique(self) -> None:
        """As many columns as differ: all of an input, or one; of a tensor that was expanded to several, one too."""
        self._node("Unique", [self.rng.choice([*self.shapes])], axis=-1)

    def _masked(self) -> None:
        """Scores of queries and keys whose mask is a tensor, as large as the scores or 1 in some dimensions."""
        q, k, v, mask = (self._whole() for _ in range(4))
        self._node("Transpose", [k], perm=[0, 2, 1])
        self._node("MatMul", [q, self.tensors.pop()])
        self._node("ReduceMax", [mask, self._constant(np.array([-1]))], keepdims=1)
        self._node("Add", [self.tensors.pop(-2), self.tensors.pop()])
        self._node("Softmax", [self.tensors.pop()], axis=-1)
        self._node("MatMul", [self.tensors.pop(), v])

    def _gemm(self) -> None:
        """Rows of a tensor by a weight, with a bias that is a tensor of one row, or of one number."""
        self._node("Reshape", [self._pick(), self._constant(np.array([-1, SIZES[0]]))])
        bias = self._constant(np.linspace(0, 1, SIZES[0], dtype=np.float32)[: self.rng.choice((1, SIZES[0]))])
        weight = self._constant(np.eye(SIZES[0], dtype=np.float32) + 0.5)
        self._node("Gemm", [self.tensors.pop(), weight, bias])
        self._node("ReduceSum", [self.tensors.pop(), self._constant(np.array([0]))], keepdims=1)

    def _unary(self) -> None:
        self._node(self.rng.choice(_UNARY), [self._pick()])

    def bindings(self) -> Iterator[dict[str, int]]:
        """Sizes of all names: as they are, each 1 in turn, then some of them."""
        names = sorted({d for s in self.shapes.values() for d in s if isinstance(d, str)})
        usual = {n: SIZES[self.places[n]] for n in names}
        yield usual
        for name in names:
            yield {**usual, name: 1}
        for _ in range(6):
            yield {n: self.rng.choice((1, size)) for n, size in usual.items()}
        if names:
            yield {**usual, self.rng.choice(names): 0}
            yield {**usual, self.rng.choice(names): 5}

    def feeds(self, sizes: dict[str, int]) -> dict[str, np.ndarray]:
        """Inputs of these sizes: numbers that all differ, as do the differences of two rows."""
        feeds = {}
        for k, (name, shape) in enumerate(self.shapes.items()):
            dims = [sizes[d] if isinstance(d, str) else d for d in shape]
            feeds[name] = np.sin(np.arange(np.prod(dims), dtype=np.float32).reshape(dims) + 7 * k)
        return feeds


_STEPS: dict[Callable[[Graph], None], int] = {
    Graph._pair: 9, Graph._sum: 2, Graph._weight: 3, Graph._where: 2, Graph._expand: 2, Graph._expand_as: 2,
    Graph._count: 1, Graph._matrix: 2, Graph._attention: 2, Graph._masked: 2, Graph._gemm: 1, Graph._normalise: 1,
    Graph._reduce: 1, Graph._softmax: 1, Graph._unary: 1,
}  # fmt: skip
