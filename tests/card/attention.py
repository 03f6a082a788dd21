"""Attention of halves beside PyTorch's kernels: ONNX's operator, and the pattern of products and Softmax."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from .case import Case, Feed, Peer, Tensors, model

# Batch, heads, tokens, size of a head, whether causal; what is asked of PyTorch's speed.
WHOLE = [
    (8, 12, 1024, 64, False, 0.8), (8, 12, 1024, 64, True, 0.8), (4, 16, 4096, 128, False, 0.8),
    (4, 16, 4096, 128, True, 0.8), (32, 12, 128, 64, False, 1.0), (32, 12, 128, 64, True, 1.0),
]  # fmt: skip
# Heads, those of keys and values, keys, size of a head: one query each.
DECODING = [(32, 32, 4096, 128), (32, 8, 4096, 128), (32, 8, 1024, 64), (32, 32, 16384, 128)]
BACKENDS = {"flash": "FLASH_ATTENTION", "cudnn": "CUDNN_ATTENTION"}
DRY = {"math": "MATH"}


def attention_cases(most: int | None) -> list[Case]:
    """All of them; with ``most`` at sizes for a processor."""
    cases = []
    for b, h, t, d, causal, asked in WHOLE:
        b, h, t, d = (b, h, t, d) if most is None else (2, 3, min(t, most), 16)
        feeds = {n: Feed((b, h, t, d), "f16") for n in ("q", "k", "v")}
        flops = 4 * b * h * t * t * d // (2 if causal else 1)
        for form, maker in (("", operator), (", pattern", spelled)):
            name = f"{b}x{h}x{t}x{d}{' causal' * causal}{form}"
            peers = backends(causal, most)
            make = partial(maker, (b, h, t, d), causal)
            cases.append(Case(name, make, feeds, peers, partial(exact, causal=causal), asked, flops))
    return cases + [decoding(s if most is None else (4, s[1] // 8, min(s[2], most), 16), most) for s in DECODING]


def decoding(size: tuple[int, int, int, int], most: int | None) -> Case:
    """One query over many keys."""
    h, few, keys, d = size
    feeds = {"q": Feed((1, h, 1, d), "f16"), "k": Feed((1, few, keys, d), "f16"), "v": Feed((1, few, keys, d), "f16")}
    name = f"1 query, {keys} keys, {h}{f'/{few}' if few < h else ''}x{d}"
    return Case(
        name,
        partial(one_query, size),
        feeds,
        backends(False, most),
        partial(exact, causal=False),
        0.85,
        moved=sum(f.bytes for f in feeds.values()) + feeds["q"].bytes,
    )


def operator(size: tuple[int, int, int, int], causal: bool) -> onnx.ModelProto:
    """ONNX's Attention."""
    feeds = {n: Feed(size, "f16") for n in ("q", "k", "v")}
    node = helper.make_node("Attention", ["q", "k", "v"], ["y"], is_causal=int(causal))
    return model([node], feeds, {"y": Feed(size, "f16")})


def one_query(size: tuple[int, int, int, int]) -> onnx.ModelProto:
    """ONNX's Attention with a query of one row."""
    h, few, keys, d = size
    feeds = {"q": Feed((1, h, 1, d), "f16"), "k": Feed((1, few, keys, d), "f16"), "v": Feed((1, few, keys, d), "f16")}
    node = helper.make_node("Attention", ["q", "k", "v"], ["y"])
    return model([node], feeds, {"y": feeds["q"]})


def spelled(size: tuple[int, int, int, int], causal: bool) -> onnx.ModelProto:
    """Products and Softmax, the causal mask by Trilu, as exporters write them."""
    feeds = {n: Feed(size, "f16") for n in ("q", "k", "v")}
    constants: dict[str, Any] = {"scale": np.float16(size[3] ** -0.5)}
    nodes = [
        helper.make_node("Transpose", ["k"], ["across"], perm=[0, 1, 3, 2]),
        helper.make_node("Mul", ["q", "scale"], ["scaled"]),
        helper.make_node("MatMul", ["scaled", "across"], ["scores"]),
        helper.make_node("Softmax", ["masked" if causal else "scores"], ["weights"]),
        helper.make_node("MatMul", ["weights", "v"], ["y"]),
    ]
    if causal:
        constants |= {"square": np.array([size[2]] * 2), "none": np.float16(0), "lowest": np.float16(-np.inf)}
        one = numpy_helper.from_array(np.array([True]))
        nodes[3:3] = [
            helper.make_node("ConstantOfShape", ["square"], ["ones"], value=one),
            helper.make_node("Trilu", ["ones"], ["past"], upper=0),
            helper.make_node("Where", ["past", "none", "lowest"], ["mask"]),
            helper.make_node("Add", ["scores", "mask"], ["masked"]),
        ]
    arrays = [numpy_helper.from_array(np.asarray(a), n) for n, a in constants.items()]
    return model(nodes, feeds, {"y": Feed(size, "f16")}, arrays, 20)


def backends(causal: bool, most: int | None) -> Mapping[str, Peer]:
    """PyTorch's function, held to one kernel each."""
    names = BACKENDS if most is None else DRY
    return {short: partial(attend, backend=name, causal=causal) for short, name in names.items()}


def attend(torch: Any, tensors: Tensors, *, backend: str, causal: bool) -> Sequence[Any]:
    """scaled_dot_product_attention by one of its kernels."""
    q, k, v = (tensors[n] for n in "qkv")
    with torch.nn.attention.sdpa_kernel(getattr(torch.nn.attention.SDPBackend, backend)):
        grouped = {"enable_gqa": True} if q.shape[1] != k.shape[1] else {}
        return [torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal, **grouped)]


def exact(torch: Any, tensors: Tensors, *, causal: bool) -> Sequence[Any]:
    """In parts, an entry of the batch each, so that the scores of f64 have room."""
    parts = [t.split(1) for t in (tensors["q"], tensors["k"], tensors["v"])]
    return [torch.cat([_entry(torch, q, k, v, causal) for q, k, v in zip(*parts, strict=True)])]


def _entry(torch: Any, q: Any, k: Any, v: Any, causal: bool) -> Any:
    times = q.shape[1] // k.shape[1]
    k, v = (t.repeat_interleave(times, 1) for t in (k, v))
    scores = q @ k.mT * q.shape[-1] ** -0.5
    if causal:
        future = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
        scores = scores.masked_fill_(future, -float("inf"))
    return scores.softmax(-1) @ v
