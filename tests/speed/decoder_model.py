"""A decoder like Llama's with random weights, in operators of ONNX Runtime: one step with a cache, as a file.

``python -m tests.speed.decoder_model FILE [--bits 4] [--layers 16]`` writes one. Weights stand beside the file, since
those of a model of a thousand million numbers are more than a file of ONNX can hold.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import onnx
from onnx import TensorProto, helper

from ..card import llama

_BLOCK = 32  # weights that share a scale
_EPSILON = 1e-5
_RUNTIME = "com.microsoft"
_TYPES = {np.dtype(np.float32): TensorProto.FLOAT, np.dtype(np.uint8): TensorProto.UINT8}
Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Decoder(llama.Decoder):
    """Its sizes: those of Llama 3.2 of 1 B parameters, but for the number of words.

    Attributes:
        hidden, inner: numbers of a token between layers, and within.
        heads, groups, width: heads of queries, of keys, and their numbers.
        words: in the vocabulary.
        past: positions that the cache has.
        bits: bits of a weight; 4 are MatMulNBits with a scale for 32 of them, 32 are floats.
    """

    inner: int = 8192
    bits: int = 32

    def bytes_of_step(self, weight: float) -> float:
        """What a step has to read: weights of so many bytes with their scales, the last product, keys and values."""
        weights = sum(k * n for k, n in self.products.values())
        cache = 2 * self.layers * self.groups * self.past * self.width
        return weights * weight + 4 * cache


def write_decoder(size: Decoder, path: Path) -> None:
    """Write the model: ids [1, 1], the last position [1] and caches in, logits and caches of the same size out."""
    tensors: list[TensorProto] = []
    with path.with_suffix(".weights").open("wb") as data:
        for name, array in _constants(size):
            tensors.append(_stored(name, array, data, path.with_suffix(".weights").name))
    make = helper.make_node
    nodes = [
        make("Gather", ["embeddings", "ids"], ["x"]),
        make("SimplifiedLayerNormalization", ["x", "before0"], ["a0"], epsilon=_EPSILON),
    ]
    x = "x"
    for k in range(size.layers):
        x = _add_layer(nodes, size, k, x)
    nodes.append(_product(size, f"a{size.layers}", "words", "logits"))
    caches = [f"{n}{k}" for k in range(size.layers) for n in "kv"]
    value = helper.make_tensor_value_info
    inputs = [value("ids", TensorProto.INT64, [1, 1]), value("last", TensorProto.INT32, [1])]
    inputs += [value(f"past_{n}", TensorProto.FLOAT, size.cache) for n in caches]
    outputs = [value("logits", TensorProto.FLOAT, [1, 1, size.words])]
    outputs += [value(f"present_{n}", TensorProto.FLOAT, size.cache) for n in caches]
    graph = helper.make_graph(nodes, "decoder", inputs, outputs, tensors)
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid(_RUNTIME, 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), path)


def _constants(size: Decoder) -> Iterator[tuple[str, Array]]:
    rng = np.random.default_rng(1)
    yield "embeddings", rng.standard_normal((size.words, size.hidden), np.float32)
    half = size.width // 2
    angles = np.outer(np.arange(size.past), 10000.0 ** (-np.arange(half) / half))
    yield "cos", np.cos(angles).astype(np.float32)
    yield "sin", np.sin(angles).astype(np.float32)
    yield "longest", np.array(size.past, np.int32)
    for name, (k, n) in size.products.items():
        if size.bits == 4:
            yield f"{name}_bits", rng.integers(0, 256, (n, k // _BLOCK, _BLOCK // 2), np.uint8)
            deviation = 4.6 * k**0.5  # numbers of 4 bits deviate by 4.6
            yield f"{name}_scales", (rng.uniform(0.5, 1.5, (n, k // _BLOCK)) / deviation).astype(np.float32)
        else:
            yield f"{name}_weights", rng.standard_normal((k, n), np.float32) / np.float32(k**0.5)
    for k in range(size.layers):
        for n in ("before", "between"):
            yield f"{n}{k}", rng.uniform(0.5, 1.5, size.hidden).astype(np.float32)
    yield f"before{size.layers}", rng.uniform(0.5, 1.5, size.hidden).astype(np.float32)


def _stored(name: str, array: Array, data: BinaryIO, file: str) -> TensorProto:
    """A tensor whose contents are appended to a file."""
    kind = TensorProto.INT32 if array.dtype == np.int32 else _TYPES[array.dtype]
    tensor = TensorProto(name=name, data_type=kind, dims=array.shape)
    if array.ndim == 0:  # which importers read as a number
        tensor.raw_data = array.tobytes()
        return tensor
    data.seek(-data.tell() % 64, 1)
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", file), ("offset", data.tell()), ("length", array.nbytes)):
        tensor.external_data.add(key=key, value=str(value))
    data.write(memoryview(np.ascontiguousarray(array)).cast("B"))
    return tensor


def _add_layer(nodes: list[onnx.NodeProto], size: Decoder, k: int, x: str) -> str:
    """Add a layer, and the norm behind it; returns the sum that the next one adds to."""
    make = helper.make_node
    nodes += [_product(size, f"a{k}", f"{n}{k}") for n in "qkv"]
    given = [f"q{k}", f"k{k}", f"v{k}", f"past_k{k}", f"past_v{k}", "last", "longest", "cos", "sin"]
    how: dict[str, Any] = {"num_heads": size.heads, "kv_num_heads": size.groups, "do_rotary": 1}
    results = [f"t{k}", f"present_k{k}", f"present_v{k}"]
    nodes.append(make("GroupQueryAttention", given, results, domain=_RUNTIME, **how))
    nodes += [
        _product(size, f"t{k}", f"o{k}"),
        _norm_of_sum(x, f"o{k}", f"between{k}", f"c{k}", f"b{k}"),
        *(_product(size, f"c{k}", f"{n}{k}") for n in ("gate", "up")),
        make("Sigmoid", [f"gate{k}"], [f"sigmoid{k}"]),
        make("Mul", [f"gate{k}", f"sigmoid{k}"], [f"swish{k}"]),
        make("Mul", [f"swish{k}", f"up{k}"], [f"d{k}"]),
        _product(size, f"d{k}", f"down{k}"),
        _norm_of_sum(f"b{k}", f"down{k}", f"before{k + 1}", f"a{k + 1}", f"x{k}"),
    ]
    return f"x{k}"


def _norm_of_sum(x: str, y: str, scale: str, result: str, total: str) -> onnx.NodeProto:
    names = [result, "", "", total]
    how: dict[str, Any] = {"domain": _RUNTIME, "epsilon": _EPSILON}
    return helper.make_node("SkipSimplifiedLayerNormalization", [x, y, scale], names, **how)


def _product(size: Decoder, x: str, name: str, y: str = "") -> onnx.NodeProto:
    k, n = size.products[name]
    if size.bits != 4:
        return helper.make_node("MatMul", [x, f"{name}_weights"], [y or name])
    operands = [x, f"{name}_bits", f"{name}_scales"]
    how: dict[str, Any] = {"domain": _RUNTIME, "K": k, "N": n, "bits": 4, "block_size": _BLOCK}
    return helper.make_node("MatMulNBits", operands, [y or name], **how)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--bits", type=int, choices=(4, 32), default=32)
    parser.add_argument("--layers", type=int, default=16)
    args = parser.parse_args()
    write_decoder(Decoder(bits=args.bits, layers=args.layers), args.file)


if __name__ == "__main__":
    main()
