"""What is measured on a card: products and convolutions as ONNX models, and models of PyTorch's libraries."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

_TYPES = {"f16": (np.float16, TensorProto.FLOAT16), "f32": (np.float32, TensorProto.FLOAT)}

# Rows, columns, terms.
PRODUCTS = [
    (2048, 2048, 2048), (4096, 4096, 4096), (8192, 8192, 8192), (1024, 1024, 1024), (512, 512, 512),
    (4096, 3072, 768), (4096, 768, 3072), (128, 768, 768), (128, 3072, 768), (64, 4096, 4096), (16, 4096, 4096),
]  # fmt: skip
# Images, channels, height and width, filters, their height and width; ResNet-50's layers.
CONVOLUTIONS = [
    (32, 64, 56, 64, 3), (32, 128, 28, 128, 3), (32, 256, 14, 256, 3), (32, 512, 7, 512, 3), (32, 256, 56, 64, 1),
    (32, 64, 56, 256, 1), (32, 1024, 14, 256, 1), (32, 256, 14, 1024, 1), (1, 64, 56, 64, 3), (1, 256, 14, 256, 3),
    (1, 512, 7, 512, 3), (1, 2048, 7, 512, 1),
]  # fmt: skip
MODELS = (
    "bert_32x128", "gpt2_4x1024", "vit_32", "resnet50_32", "bert_1x128", "gpt2_1x128", "vit_1", "resnet50_1",
    "mobilenet_1", "vgg19_1", "efficientnet_1",
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A product or convolution with a constant second factor.

    Attributes:
        name: what the table calls it.
        model: as ONNX; the input is x, the output y. Images have their channels innermost.
        shape: of x.
        flops: additions and multiplications.
        peer: the same of x and the weight in PyTorch.
    """

    name: str
    model: onnx.ModelProto
    shape: tuple[int, ...]
    flops: int
    peer: Callable[[Any, Any], Any]


def product(size: tuple[int, int, int], dtype: str) -> Case:
    """x[m, k] times a constant [k, n]."""
    m, n, k = size
    weight = np.random.default_rng(1).standard_normal((k, n), np.float32)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    return Case(f"{m}x{n}x{k}", _model(nodes, (m, k), (m, n), weight, dtype), (m, k), 2 * m * n * k, _matmul)


def convolution(size: tuple[int, int, int, int, int], dtype: str) -> Case:
    """A convolution of stride 1 that keeps height and width."""
    b, c, side, filters, kernel = size
    weight = np.random.default_rng(1).standard_normal((filters, c, kernel, kernel), np.float32)
    nodes = [
        helper.make_node("Transpose", ["x"], ["planes"], perm=[0, 3, 1, 2]),
        helper.make_node("Conv", ["planes", "w"], ["z"], pads=[kernel // 2] * 4),
        helper.make_node("Transpose", ["z"], ["y"], perm=[0, 2, 3, 1]),
    ]
    shape, out = (b, side, side, c), (b, side, side, filters)
    model = _model(nodes, shape, out, weight / np.sqrt(c * kernel**2), dtype)
    return Case(
        f"{b}x{c}x{side} to {filters}, {kernel}x{kernel}",
        model,
        shape,
        2 * b * side**2 * c * filters * kernel**2,
        _conv,
    )


def network(name: str) -> tuple[Any, Any]:
    """A model of torchvision or transformers with random weights, on the processor, and an input for it."""
    torch, models = (importlib.import_module(m) for m in ("torch", "torchvision.models"))
    hugging: Any = importlib.import_module("transformers")
    torch.manual_seed(0)
    kind, _, size = name.partition("_")
    dims = tuple(map(int, size.split("x")))
    texts: dict[str, Any] = {
        "bert": lambda: (hugging.BertModel(hugging.BertConfig(), add_pooling_layer=False), "last_hidden_state", {}),
        "gpt2": lambda: (hugging.GPT2LMHeadModel(hugging.GPT2Config()), "logits", {"use_cache": False}),
        "vit": lambda: (hugging.ViTForImageClassification(hugging.ViTConfig()), "logits", {}),
    }
    images = {"mobilenet": "mobilenet_v2", "efficientnet": "efficientnet_b0"}
    made = _chosen(torch, *texts[kind]()) if kind in texts else getattr(models, images.get(kind, kind))()
    x = torch.randint(0, 30000, dims) if len(dims) > 1 else torch.randn(dims[0], 3, 224, 224)
    return made.eval(), x


def _chosen(torch: Any, model: Any, field: str, more: dict[str, Any]) -> Any:
    """A module that gives one field of what a model of transformers gives."""

    class Chosen(torch.nn.Module):  # type: ignore[misc]  # PyTorch is no dependency
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, x: Any) -> Any:
            return getattr(self.model(x, **more), field)

    return Chosen()


def _model(
    nodes: list[onnx.NodeProto], shape: tuple[int, ...], out: tuple[int, ...], weight: Any, dtype: str
) -> onnx.ModelProto:
    numpy, onnx_type = _TYPES[dtype]
    x, y = (helper.make_tensor_value_info(n, onnx_type, s) for n, s in (("x", shape), ("y", out)))
    graph = helper.make_graph(nodes, "case", [x], [y], [numpy_helper.from_array(weight.astype(numpy), "w")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])


def _matmul(x: Any, w: Any) -> Any:
    return x @ w


def _conv(x: Any, w: Any) -> Any:
    torch: Any = importlib.import_module("torch")
    last = w.contiguous(memory_format=torch.channels_last)
    return torch.conv2d(x.permute(0, 3, 1, 2), last, None, 1, w.shape[-1] // 2).permute(0, 2, 3, 1)
