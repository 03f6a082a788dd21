"""Small models that are cut into ranks, and what their ranks and the whole give."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx

import torshc
from tests.support.models import model, node, save
from tests.support.ranks import World

Array = np.ndarray[Any, Any]


def weight(seed: int, *shape: int) -> Array:
    """A weight whose products are about as large as their operands."""
    return (np.random.default_rng(seed).standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32)


def mlp(width: int = 8, inner: int = 24, batch: Any = "n") -> onnx.ModelProto:
    """Two blocks of two products each, with what was before them added."""
    nodes = [
        node("MatMul", "x a.up", "h0"), node("Relu", "h0", "h1"), node("MatMul", "h1 a.down", "h2"),
        node("Add", "h2 x", "h3"), node("MatMul", "h3 b.up", "h4"), node("Add", "h4 b.bias", "h5"),
        node("Sigmoid", "h5", "h6"), node("MatMul", "h6 b.down", "h7"), node("Add", "h7 h3", "y"),
    ]  # fmt: skip
    constants = {
        "a.up": weight(1, width, inner), "a.down": weight(2, inner, width), "b.up": weight(3, width, inner),
        "b.bias": weight(4, inner), "b.down": weight(5, inner, width),
    }  # fmt: skip
    return model(nodes, {"x": ("float32", (batch, width))}, {"y": ("float32", (batch, width))}, constants)


def decoder(vocab: int = 24, width: int = 16, heads: int = 4, seq: Any = "s") -> onnx.ModelProto:
    """An embedding, attention whose queries, keys and values are one product, two products, and logits."""
    depth = width // heads
    nodes = [
        node("Gather", "table ids", "e"),
        node("LayerNormalization", "e scale shift", "n0", axis=-1),
        node("MatMul", "n0 attn.qkv", "p0"), node("Add", "p0 attn.bias", "p1"),
        node("Split", "p1", "q0 k0 v0", axis=2, num_outputs=3),
        *(node("Reshape", f"{t}0 heads", f"{t}1") for t in "qkv"),
        node("Transpose", "q1", "q2", perm=[0, 2, 1, 3]), node("Transpose", "k1", "k2", perm=[0, 2, 3, 1]),
        node("Transpose", "v1", "v2", perm=[0, 2, 1, 3]),
        node("MatMul", "q2 k2", "s0"), node("Mul", "s0 factor", "s1"), node("Softmax", "s1", "s2", axis=-1),
        node("MatMul", "s2 v2", "m0"), node("Transpose", "m0", "m1", perm=[0, 2, 1, 3]),
        node("Reshape", "m1 whole", "m2"), node("MatMul", "m2 attn.out", "o0"), node("Add", "o0 e", "o1"),
        node("Gemm", "row mlp.up mlp.bias", "u0", transB=1), node("Gelu", "u0", "u1"),
        node("Gemm", "u1 mlp.down mlp.shift", "u2", alpha=0.5, beta=2.0), node("Reshape", "u2 back", "u3"),
        node("Add", "u3 o1", "o2"), node("MatMul", "o2 head", "y"),
    ]  # fmt: skip
    at = next(k for k, n in enumerate(nodes) if n.op_type == "Gemm")
    nodes.insert(at, node("Reshape", "o1 flat", "row"))
    constants = {
        "table": weight(1, vocab, width), "scale": 1 + weight(2, width), "shift": weight(3, width),
        "attn.qkv": weight(4, width, 3 * width), "attn.bias": weight(5, 3 * width), "attn.out": weight(6, width, width),
        "mlp.up": weight(7, 4 * width, width), "mlp.bias": weight(8, 4 * width),
        "mlp.down": weight(9, 4 * width, width), "mlp.shift": weight(10, width), "head": weight(11, width, vocab),
        "heads": np.array([0, 0, heads, depth]), "whole": np.array([0, 0, width]), "flat": np.array([-1, width]),
        "back": np.array([2, -1, width]), "factor": np.array(depth**-0.5, np.float32),
    }  # fmt: skip
    return model(nodes, {"ids": ("int64", (2, seq))}, {"y": ("float32", (2, seq, vocab))}, constants)


def compiled(made: onnx.ModelProto, shard: str, folder: Path, **options: Any) -> tuple[Path, torshc.runtime.Model]:
    """The bundle of a model's ranks, and the whole model."""
    (folder / "shard.yaml").write_text(shard)
    file = save(made, folder / "m.onnx")
    torshc.compile(file, folder / "ranks.tsc", shard=folder / "shard.yaml", **options)
    return folder / "ranks.tsc", torshc.compile(file, **options)


def run_ranks(
    made: onnx.ModelProto, shard: str, folder: Path, feeds: dict[str, Array], ranks: int, **options: Any
) -> tuple[list[Any], Any, World]:
    """What each rank gives for the output y, what the whole model gives, and the ranks' world."""
    bundle, whole = compiled(made, shard, folder, **options)
    world = World(ranks)
    found = world.run(bundle, feeds)
    for each in found:
        if isinstance(each, Exception):
            raise each
    return [each["y"] for each in found], whole.run(feeds)["y"], world
