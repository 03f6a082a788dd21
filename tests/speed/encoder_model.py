"""An encoder of sentences like MiniLM's with random weights, as PyTorch exports one: ids, mask and types of tokens in,
hidden states out, or of each sentence their mean over its tokens, as servers of sentences have it.

``python -m tests.speed.encoder_model FILE`` writes it. Batch and length are symbolic.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper

_EPSILON = 1e-12
_HIDDEN = -3.4028234663852886e38  # what a position that is masked adds to a score
Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Encoder:
    """Its sizes: those of MiniLM-L6.

    Attributes:
        layers: how many.
        hidden, inner: numbers of a token between layers, and within.
        heads: of attention.
        words, positions: rows of the tables of embeddings.
    """

    layers: int = 6
    hidden: int = 384
    inner: int = 1536
    heads: int = 12
    words: int = 30522
    positions: int = 512


class _Parts:
    """Nodes and constants of a model that is being written; each method gives the name of a result."""

    def __init__(self, size: Encoder) -> None:
        self.size = size
        self.nodes: list[NodeProto] = []
        self.constants: list[TensorProto] = []
        self._rng = np.random.default_rng(0)

    def node(self, kind: str, *inputs: str, **attributes: Any) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [name], name=name, **attributes))
        return name

    def constant(self, array: Array) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(array, name))
        return name

    def integers(self, *numbers: int) -> str:
        return self.constant(np.array(numbers, np.int64))

    def number(self, value: float) -> str:
        return self.constant(np.array(value, np.float32))

    def weight(self, *shape: int) -> str:
        spread = 1 / math.sqrt(shape[0]) if len(shape) > 1 else 0.02
        return self.constant(self._rng.standard_normal(shape, np.float32) * np.float32(spread))

    def dense(self, x: str, terms: int, columns: int) -> str:
        return self.node("Add", self.node("MatMul", x, self.weight(terms, columns)), self.weight(columns))

    def norm(self, x: str) -> str:
        n = self.size.hidden
        one = self.constant(np.ones(n, np.float32))
        return self.node("LayerNormalization", x, one, self.weight(n), axis=-1, epsilon=_EPSILON)

    def heads(self, x: str) -> str:
        size = self.size
        split = self.node("Reshape", x, self.integers(0, 0, size.heads, size.hidden // size.heads))
        return self.node("Transpose", split, perm=[0, 2, 1, 3])

    def attention(self, x: str, mask: str) -> str:
        size = self.size
        q, k, v = (self.heads(self.dense(x, size.hidden, size.hidden)) for _ in range(3))
        scores = self.node("MatMul", q, self.node("Transpose", k, perm=[0, 1, 3, 2]))
        scaled = self.node("Div", scores, self.number(math.sqrt(size.hidden / size.heads)))
        weights = self.node("Softmax", self.node("Add", scaled, mask), axis=-1)
        joined = self.node("Transpose", self.node("MatMul", weights, v), perm=[0, 2, 1, 3])
        flat = self.node("Reshape", joined, self.integers(0, 0, size.hidden))
        return self.dense(flat, size.hidden, size.hidden)

    def gelu(self, x: str) -> str:
        half = self.node("Mul", x, self.number(0.5))
        erf = self.node("Erf", self.node("Div", x, self.number(math.sqrt(2))))
        return self.node("Mul", half, self.node("Add", erf, self.number(1.0)))

    def layer(self, x: str, mask: str) -> str:
        size = self.size
        x = self.norm(self.node("Add", self.attention(x, mask), x))
        inner = self.gelu(self.dense(x, size.hidden, size.inner))
        return self.norm(self.node("Add", self.dense(inner, size.inner, size.hidden), x))

    def embeddings(self) -> str:
        size = self.size
        length = self.node("Gather", self.node("Shape", "input_ids"), self.constant(np.array(1, np.int64)))
        range_ = self.node("Range", self.constant(np.array(0, np.int64)), length, self.constant(np.array(1, np.int64)))
        words = self.node("Gather", self.weight(size.words, size.hidden), "input_ids")
        types = self.node("Gather", self.weight(2, size.hidden), "token_type_ids")
        places = self.node("Gather", self.weight(size.positions, size.hidden), range_)
        return self.norm(self.node("Add", self.node("Add", words, types), places))

    def mask(self) -> str:
        wide = self.node("Unsqueeze", "attention_mask", self.integers(1, 2))
        hidden = self.node("Sub", self.number(1.0), self.node("Cast", wide, to=TensorProto.FLOAT))
        return self.node("Mul", hidden, self.number(_HIDDEN))

    def mean(self, x: str) -> str:
        """Of the rows where the mask is 1."""
        shape = self.node("Shape", x)
        wide = self.node("Expand", self.node("Unsqueeze", "attention_mask", self.integers(-1)), shape)
        mask = self.node("Cast", wide, to=TensorProto.FLOAT)
        total = self.node("ReduceSum", self.node("Mul", x, mask), self.integers(1), keepdims=0)
        count = self.node("Clip", self.node("ReduceSum", mask, self.integers(1), keepdims=0), self.number(1e-9))
        return self.node("Div", total, count)


def write_encoder(size: Encoder, path: Path, pooled: bool = False) -> None:
    """Write the model: ``input_ids``, ``attention_mask``, ``token_type_ids`` [batch, seq] in, the hidden states out.

    Args:
        pooled: their mean over the tokens of each sentence in place of them.
    """
    parts = _Parts(size)
    x, mask = parts.embeddings(), parts.mask()
    for _ in range(size.layers):
        x = parts.layer(x, mask)
    name = "sentence_embedding" if pooled else "last_hidden_state"
    parts.nodes.append(helper.make_node("Identity", [parts.mean(x) if pooled else x], [name]))
    dims = ["batch", "seq"]
    given = ("input_ids", "attention_mask", "token_type_ids")
    graph = helper.make_graph(
        parts.nodes,
        "encoder",
        [helper.make_tensor_value_info(name, TensorProto.INT64, dims) for name in given],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", *([] if pooled else ["seq"]), size.hidden])],
        parts.constants,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    onnx.save(model, path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--pooled", action="store_true", help="the mean over the tokens of each sentence comes out")
    args = parser.parse_args()
    write_encoder(Encoder(layers=args.layers), args.file, args.pooled)


if __name__ == "__main__":
    main()
