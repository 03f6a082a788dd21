"""Networks of PyTorch with a batch and a loss; masks of dropout are drawn once and stay."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..card import networks as pictures

CROSS, SQUARE = "cross_entropy", "mse"
_KEEP = 0.9  # of what passes a mask of dropout


@dataclass(frozen=True)
class Lesson:
    """What is learned.

    Attributes:
        make: the network, with the same weights each time.
        batch: its inputs by name, and "target", from the number of the batch.
        loss: the loss that is computed from the network's one output.
        steps: how many are compared, fewer than 100 where these take too long on a processor.
        traced: whether PyTorch's older exporter takes it, which traces; else torch.export does.
    """

    make: Callable[[Any], Any]
    batch: Callable[[Any, int], dict[str, Any]]
    loss: str = CROSS
    steps: int = 100
    traced: bool = True


def module(torch: Any, parts: dict[str, Any], forward: Callable[..., Any]) -> Any:
    """A module of parts whose forward pass is a function of it and the inputs."""

    class Made(torch.nn.Module):  # type: ignore[misc]  # PyTorch is no dependency
        def __init__(self) -> None:
            super().__init__()
            for name, part in parts.items():
                setattr(self, name, part)

        def forward(self, *inputs: Any) -> Any:
            return forward(self, *inputs)

    return Made()


def mask(torch: Any) -> Any:
    """A Dropout whose mask is drawn when it first sees an operand, and is a buffer from then on."""

    def forward(own: Any, x: Any) -> Any:
        if not hasattr(own, "mask"):
            own.register_buffer("mask", (torch.rand_like(x) < _KEEP).to(x.dtype) / _KEEP)
        return x * own.mask

    return module(torch, {}, forward)


def with_masks(torch: Any, made: Any) -> Any:
    """The module with a mask in place of every Dropout that drops anything."""
    for name, child in made.named_children():
        if isinstance(child, torch.nn.Dropout) and child.p:
            setattr(made, name, mask(torch))
        else:
            with_masks(torch, child)
    return made


def _pictures(count: int, *dims: int, classes: int = pictures.CLASSES) -> Callable[[Any, int], dict[str, Any]]:
    def batch(torch: Any, number: int) -> dict[str, Any]:
        draws = torch.Generator().manual_seed(number)
        x = torch.randn(count, *dims, generator=draws)
        return {"x": x, "target": torch.randint(0, classes, (count,), generator=draws)}

    return batch


def _mobilenet(torch: Any) -> Any:
    """With the mask before its last layer that torchvision's has as a Dropout."""
    made = pictures.network("mobilenet_v2")
    made.insert(len(made) - 1, mask(torch))
    return made


def _series(count: int, length: int, width: int, classes: int) -> Callable[[Any, int], dict[str, Any]]:
    def batch(torch: Any, number: int) -> dict[str, Any]:
        draws = torch.Generator().manual_seed(number)
        x = torch.randn(length, count, width, generator=draws)
        return {"x": x, "target": torch.randint(0, classes, (length * count,), generator=draws)}

    return batch


def _bilstm(torch: Any) -> Any:
    nn = torch.nn
    parts = {
        "first": nn.LSTM(20, 32, bidirectional=True),
        "drop": mask(torch),
        "second": nn.LSTM(64, 32, bidirectional=True),
        "last": nn.Linear(64, 10),
    }
    return module(torch, parts, lambda own, x: own.last(own.second(own.drop(own.first(x)[0]))[0]).flatten(0, 1))


def _bert(torch: Any) -> Any:
    found = importlib.import_module("transformers")
    config = found.BertConfig(
        num_hidden_layers=4, hidden_size=128, num_attention_heads=4, intermediate_size=512, vocab_size=1000,
        max_position_embeddings=64, num_labels=5, attention_probs_dropout_prob=0.0, attn_implementation="eager",
    )  # fmt: skip
    made = with_masks(torch, found.BertForSequenceClassification(config))

    def forward(own: Any, x: Any, seen: Any) -> Any:
        return own.net(input_ids=x, attention_mask=seen).logits

    return module(torch, {"net": made}, forward)


def _sentences(torch: Any, number: int) -> dict[str, Any]:
    draws = torch.Generator().manual_seed(number)
    lengths = torch.randint(8, 33, (8, 1), generator=draws)
    seen = (torch.arange(32) < lengths).long()
    x = torch.randint(1, 1000, (8, 32), generator=draws)  # 0 is a padding, whose row PyTorch does not train
    return {"x": x, "seen": seen, "target": torch.randint(0, 5, (8,), generator=draws)}


def _gpt2(torch: Any) -> Any:
    found = importlib.import_module("transformers")
    config = found.GPT2Config(attn_pdrop=0.0, attn_implementation="eager", use_cache=False)
    made = with_masks(torch, found.GPT2LMHeadModel(config))
    return module(torch, {"net": made}, lambda own, x: own.net(input_ids=x).logits.flatten(0, 1))


def _text(count: int, length: int, words: int) -> Callable[[Any, int], dict[str, Any]]:
    def batch(torch: Any, number: int) -> dict[str, Any]:
        draws = torch.Generator().manual_seed(number)
        x = torch.randint(0, words, (count, length + 1), generator=draws)
        return {"x": x[:, :-1].contiguous(), "target": x[:, 1:].reshape(-1)}

    return batch


LESSONS: dict[str, Lesson] = {
    "digits": Lesson(lambda torch: pictures.network("digits"), _pictures(64, 1, 8, 8, classes=10)),
    "resnet18": Lesson(lambda torch: pictures.network("resnet18"), _pictures(8, 3, 64, 64)),
    "mobilenet_v2": Lesson(_mobilenet, _pictures(8, 3, 64, 64)),
    "bilstm": Lesson(_bilstm, _series(8, 24, 20, 10)),
    "bert": Lesson(_bert, _sentences, traced=False),
    "gpt2": Lesson(_gpt2, _text(1, 32, 50257), steps=10, traced=False),
}
