"""One step of a decoder like Llama's, with weights of 4 bits and a cache, in operators of ONNX and of ONNX Runtime."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from .case import Case, Feed, Tensors, model

_BLOCK = 32  # weights that share a scale
_EPSILON = 1e-5
_RUNTIME = "com.microsoft"


@dataclass(frozen=True)
class Decoder:
    """Its sizes: heads of queries, of keys, their width; tokens in the cache."""

    hidden: int = 2048
    layers: int = 16
    heads: int = 32
    groups: int = 8
    width: int = 64
    inner: int = 5632
    words: int = 32000
    past: int = 1024

    @property
    def products(self) -> dict[str, tuple[int, int]]:
        """Terms and columns of each product with weights, by name; those of a layer end in its number."""
        q, kv = self.heads * self.width, self.groups * self.width
        of_layer = {
            "q": (self.hidden, q), "k": (self.hidden, kv), "v": (self.hidden, kv), "o": (q, self.hidden),
            "gate": (self.hidden, self.inner), "up": (self.hidden, self.inner), "down": (self.inner, self.hidden),
        }  # fmt: skip
        return {f"{n}{k}": s for k in range(self.layers) for n, s in of_layer.items()} | {
            "words": (self.hidden, self.words)
        }

    @property
    def cache(self) -> tuple[int, ...]:
        return 1, self.groups, self.past, self.width

    @property
    def bytes(self) -> int:
        """What a step has to read: weights with their scales, and the cache."""
        weights = sum(k * n for k, n in self.products.values())
        return weights // 2 + weights // _BLOCK * 2 + 2 * self.layers * Feed(self.cache, "f16").bytes


SMALL = Decoder(128, 2, 4, 2, 32, 256, 64, 8)


def decoder_cases(most: int | None) -> list[Case]:
    """Both ways to write it; with ``most`` at sizes for a processor."""
    size = Decoder() if most is None else SMALL
    wider = Decoder(inner=8192) if most is None else SMALL
    return [
        _case("Llama step, ONNX", size, False),
        _case("Llama step, GQA", size, True),
        _case("Llama step, GQA, 8192", wider, True),
    ]


def _case(name: str, size: Decoder, runtime: bool) -> Case:
    caches = [f"past_{n}{k}" for k in range(size.layers) for n in ("k", "v")]
    # The cache of ONNX Runtime's operator has room for the new entry; ONNX's makes a longer one.
    feeds = {"ids": Feed((1, 1), "i64"), **{n: Feed(size.cache, "f16") for n in caches}}
    peer = partial(step, size=size, runtime=runtime)
    return Case(
        name,
        partial(decoder, size, runtime),
        feeds,
        {"f16 weights": peer},
        peer,
        1 / 1.3,
        moved=size.bytes,
        constants=True,
        prepare=partial(dequantised, size=size),
        called=True,
    )


# ---- the model ------------------------------------------------------------------------------------------------------


def decoder(size: Decoder, runtime: bool) -> onnx.ModelProto:
    """The model: an id in, logits and the caches out."""
    rng = np.random.default_rng(1)
    constants = {"embeddings": rng.standard_normal((size.words, size.hidden), np.float32).astype(np.float16)}
    constants |= dict(zip(("cos", "sin"), _angles(size), strict=True))
    constants["place"] = np.array([[size.past - runtime]])
    if runtime:
        constants |= {"last": np.array([[size.past - 1]], np.int32), "longest": np.array(size.past, np.int32)}
    for name, (k, n) in size.products.items():
        constants[f"{name}_bits"] = rng.integers(0, 256, (n, k // _BLOCK, _BLOCK // 2), np.uint8)
        scales = rng.uniform(0.5, 1.5, (n, k // _BLOCK)) / (4.6 * k**0.5)  # numbers of 4 bits deviate by 4.6
        constants[f"{name}_scales"] = scales.astype(np.float16)
    norms = [f"{n}{k}" for k in range(size.layers) for n in ("before", "between")] + ["last_norm"]
    constants |= {n: rng.uniform(0.5, 1.5, size.hidden).astype(np.float16) for n in norms}
    nodes = [helper.make_node("Gather", ["embeddings", "ids"], ["x"])]
    x = "x"
    for k in range(size.layers):
        x = _layer(nodes, size, k, x, runtime)
    nodes += [_norm(x, "last_norm", "final"), _product(size, "final", "words", "logits")]
    caches = [(n, k) for k in range(size.layers) for n in ("k", "v")]
    cache, grown = Feed(size.cache, "f16"), (*size.cache[:2], size.past + 1 - runtime, size.width)
    inputs = {"ids": Feed((1, 1), "i64"), **{f"past_{n}{k}": cache for n, k in caches}}
    outputs = {"logits": Feed((1, 1, size.words), "f16"), **{f"now_{n}{k}": Feed(grown, "f16") for n, k in caches}}
    return model(nodes, inputs, outputs, [numpy_helper.from_array(a, n) for n, a in constants.items()])


def _layer(nodes: list[onnx.NodeProto], size: Decoder, k: int, x: str, runtime: bool) -> str:
    """Adds a layer; returns what it gives."""
    make = helper.make_node
    nodes.append(_norm(x, f"before{k}", f"a{k}"))
    nodes += [_product(size, f"a{k}", f"{n}{k}") for n in "qkv"]
    caches = [f"past_k{k}", f"past_v{k}"]
    results = [f"t{k}", f"now_k{k}", f"now_v{k}"]
    if runtime:
        given = [f"q{k}", f"k{k}", f"v{k}", *caches, "last", "longest", "cos", "sin"]
        how: dict[str, Any] = {"num_heads": size.heads, "kv_num_heads": size.groups, "do_rotary": 1}
        nodes.append(make("GroupQueryAttention", given, results, domain=_RUNTIME, **how))
    else:
        for n, count in (("q", size.heads), ("k", size.groups)):
            nodes.append(
                make("RotaryEmbedding", [f"{n}{k}", "cos", "sin", "place"], [f"turned_{n}{k}"], num_heads=count)
            )
        given = [f"turned_q{k}", f"turned_k{k}", f"v{k}", "", *caches]
        nodes.append(make("Attention", given, results, q_num_heads=size.heads, kv_num_heads=size.groups))
    nodes += [_product(size, f"t{k}", f"o{k}"), make("Add", [x, f"o{k}"], [f"b{k}"])]
    nodes += [_norm(f"b{k}", f"between{k}", f"c{k}"), *(_product(size, f"c{k}", f"{n}{k}") for n in ("gate", "up"))]
    nodes += [
        make("Sigmoid", [f"gate{k}"], [f"sigmoid{k}"]),
        make("Mul", [f"gate{k}", f"sigmoid{k}"], [f"swish{k}"]),
        make("Mul", [f"swish{k}", f"up{k}"], [f"d{k}"]),
        _product(size, f"d{k}", f"down{k}"),
        make("Add", [f"b{k}", f"down{k}"], [f"x{k}"]),
    ]
    return f"x{k}"


def _norm(x: str, scale: str, y: str) -> onnx.NodeProto:
    return helper.make_node("RMSNormalization", [x, scale], [y], axis=-1, epsilon=_EPSILON)


def _product(size: Decoder, x: str, name: str, y: str = "") -> onnx.NodeProto:
    k, n = size.products[name]
    operands = [x, f"{name}_bits", f"{name}_scales"]
    return helper.make_node("MatMulNBits", operands, [y or name], domain=_RUNTIME, K=k, N=n, bits=4, block_size=_BLOCK)


def _angles(size: Decoder) -> tuple[Any, Any]:
    half = size.width // 2
    angles = np.outer(np.arange(size.past + 1), 10000.0 ** (-np.arange(half) / half))
    return np.cos(angles).astype(np.float16), np.sin(angles).astype(np.float16)


# ---- the same in PyTorch --------------------------------------------------------------------------------------------


def dequantised(torch: Any, constants: Tensors, *, size: Decoder) -> dict[str, Any]:
    """Weights [K, N] of halves in place of packed ones."""
    others = {n: t for n, t in constants.items() if not n.endswith(("_bits", "_scales"))}
    return others | {name: _weight(torch, constants, name) for name in size.products}


def _weight(torch: Any, constants: Tensors, name: str) -> Any:
    bits, scales = constants[f"{name}_bits"], constants[f"{name}_scales"]
    numbers = torch.stack([bits & 15, bits >> 4], -1).flatten(2).to(scales.dtype) - 8
    return (numbers * scales[..., None]).flatten(1).T.contiguous()


def step(torch: Any, tensors: Tensors, *, size: Decoder, runtime: bool) -> Sequence[Any]:
    """A step in the type of the tensors."""
    place = size.past - runtime
    cos, sin = (tensors[n][place] for n in ("cos", "sin"))
    x = tensors["embeddings"][tensors["ids"][0]]
    caches = []
    for k in range(size.layers):
        a = _normed(torch, x, tensors[f"before{k}"])
        q, key, value = (
            (a @ tensors[f"{n}{k}"]).view(1, count, 1, size.width)
            for n, count in (("q", size.heads), ("k", size.groups), ("v", size.groups))
        )
        fresh = _turned(torch, key, cos, sin), value
        pasts = (tensors[f"past_{n}{k}"][:, :, :place] for n in "kv")
        key, value = (torch.cat(pair, 2) for pair in zip(pasts, fresh, strict=True))
        caches += [key, value]
        attend = torch.nn.functional.scaled_dot_product_attention
        t = attend(_turned(torch, q, cos, sin), key, value, enable_gqa=True)
        x = x + t.reshape(1, -1) @ tensors[f"o{k}"]
        c = _normed(torch, x, tensors[f"between{k}"])
        d = torch.nn.functional.silu(c @ tensors[f"gate{k}"]) * (c @ tensors[f"up{k}"])
        x = x + d @ tensors[f"down{k}"]
    logits = _normed(torch, x, tensors["last_norm"]) @ tensors["words"]
    return [logits[None], *caches]


def _normed(torch: Any, x: Any, scale: Any) -> Any:
    return torch.nn.functional.rms_norm(x, x.shape[-1:], scale, _EPSILON)


def _turned(torch: Any, x: Any, cos: Any, sin: Any) -> Any:
    left, right = x.chunk(2, -1)
    return torch.cat([left * cos - right * sin, left * sin + right * cos], -1)
