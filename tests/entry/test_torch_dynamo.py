"""torch.compile(backend="torshc"); skipped where there is no PyTorch, on which torshc does not depend."""

from __future__ import annotations

import copy
import logging
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed")
from torshc.entry import torch_dynamo  # noqa: E402  # after the skip
from torshc.entry.torch_dynamo import torshc  # noqa: E402

F = torch.nn.functional


@pytest.fixture(autouse=True)
def _fresh() -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)


@pytest.fixture
def compiled_graphs(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> list[Any]:
    """The graphs that were compiled; none may be left to PyTorch."""
    found: list[Any] = []
    compile_loaded = torch_dynamo.compile_loaded

    def noted(graph: Any, options: Any) -> Any:
        found.append(graph)
        return compile_loaded(graph, options)

    monkeypatch.setattr(torch_dynamo, "compile_loaded", noted)
    return found


def gradients(run: Callable[..., Any], module: Any, x: Any, seed: int = 3) -> list[Any]:
    """Of a loss of the squares, and what it is of."""
    torch.manual_seed(seed)
    module.zero_grad()
    y = run(x)
    y.square().mean().backward()
    return [y.detach(), *(p.grad.clone() for p in module.parameters() if p.grad is not None)]


def agree(module: Any, inputs: Sequence[Any], run: Any = None, **how: Any) -> None:
    """Results and gradients are PyTorch's, within some hundred roundings of f32; buffers too."""
    twin = copy.deepcopy(module)
    run = run or torch.compile(module, backend=torshc, **how)
    for x in inputs:
        for got, want in zip(gradients(run, module, x), gradients(twin, twin, x), strict=True):
            torch.testing.assert_close(got, want, rtol=1e-4, atol=2e-6)
        for got, want in zip(module.buffers(), twin.buffers(), strict=True):
            torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-6)


def perceptron() -> Any:
    return torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.GELU(), torch.nn.Linear(7, 3))


def test_a_module_with_its_weights(caplog: pytest.LogCaptureFixture) -> None:
    layers = torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.BatchNorm1d(8)
    module = torch.nn.Sequential(*layers).eval()
    compiled = torch.compile(module, backend=torshc)
    x = torch.randn(3, 4)
    with torch.no_grad(), caplog.at_level(logging.WARNING, "torshc"):
        torch.testing.assert_close(compiled(x), module(x))
        layers[0].weight.mul_(2)  # the weights are constants of the compiled model, until they change
        torch.testing.assert_close(compiled(x), module(x))
        torch.testing.assert_close(compiled(x[:2]), module(x[:2]))
    assert not [r for r in caplog.records if r.name == "torshc"]


def test_graph_breaks_and_mutations_are_respected() -> None:
    def function(x: Any) -> Any:
        y = torch.relu(x) * 2
        x.add_(1)
        return (y + x, x) if y.sum() > 0 else (y - 1, 3)

    compiled = torch.compile(function, backend=torshc)
    with torch.no_grad():
        for sign in (1, -1):
            here, there = sign * torch.ones(3, 3), sign * torch.ones(3, 3)
            got, wanted = compiled(here), function(there)
            assert torch.equal(here, there) and torch.equal(got[0], wanted[0])
            assert got[1] is here if sign > 0 else got[1] == 3


def test_what_torshc_cannot_do_runs_in_pytorch(caplog: pytest.LogCaptureFixture) -> None:
    compiled = torch.compile(lambda x: torch.linalg.eigvalsh(x), backend=torshc)
    with torch.no_grad(), caplog.at_level(logging.WARNING, "torshc"):
        torch.testing.assert_close(compiled(torch.eye(3)), torch.ones(3))
    assert "leaves a graph to PyTorch" in caplog.text


def test_steps_of_an_optimizer_compile_nothing(compiled_graphs: list[Any]) -> None:
    module = perceptron()
    twin = copy.deepcopy(module)
    compiled = torch.compile(module, backend=torshc)
    steps = [(r, torch.optim.AdamW(m.parameters(), 0.01)) for r, m in ((compiled, module), (twin, twin))]
    x, losses = torch.randn(6, 5), list[tuple[float, ...]]()
    for _ in range(20):
        row = []
        for run, optimizer in steps:
            optimizer.zero_grad()
            loss = F.cross_entropy(run(x), torch.tensor([0, 1, 2, 0, 1, 2]))
            loss.backward()
            optimizer.step()
            row.append(loss.item())
        losses.append(tuple(row))
    assert len(compiled_graphs) == 2  # forward and backward
    assert losses[-1][0] < losses[0][0] and all(abs(a - b) < 1e-5 for a, b in losses)


def test_convolutions_statistics_and_dropout(compiled_graphs: list[Any]) -> None:
    """Masks are those that PyTorch draws for the same seed."""
    layers = torch.nn.Conv2d(2, 4, 3, 2, 1), torch.nn.BatchNorm2d(4), torch.nn.ReLU(), torch.nn.MaxPool2d(2)
    agree(torch.nn.Sequential(*layers, torch.nn.Dropout(0.4), torch.nn.Flatten(), torch.nn.Linear(16, 3)),
          [torch.randn(3, 2, 8, 8)])  # fmt: skip
    assert len(compiled_graphs) == 2


class Attending(torch.nn.Module):  # type: ignore[misc]  # PyTorch is no dependency
    def __init__(self) -> None:
        super().__init__()
        self.words, self.norm = torch.nn.Embedding(11, 8), torch.nn.LayerNorm(8)
        self.joint, self.out = torch.nn.Linear(8, 24), torch.nn.Linear(8, 11, bias=False)
        self.out.weight = self.words.weight

    def forward(self, x: Any) -> Any:
        h = self.words(x)
        parts = self.joint(self.norm(h)).unflatten(-1, (3, 2, 4)).permute(2, 0, 3, 1, 4)
        return self.out(h + F.scaled_dot_product_attention(*parts, is_causal=True).transpose(1, 2).flatten(2))


def test_attention_with_an_embedding_that_is_tied(compiled_graphs: list[Any]) -> None:
    agree(Attending(), [torch.randint(0, 11, (2, 5))])
    assert len(compiled_graphs) == 2


def test_a_symbolic_batch(compiled_graphs: list[Any]) -> None:
    agree(perceptron(), [torch.randn(n, 5) for n in (4, 7, 2)], dynamic=True)
    assert len(compiled_graphs) == 2


def test_channels_last_is_kept() -> None:
    layers = torch.nn.Conv2d(3, 4, 3), torch.nn.SiLU(), torch.nn.ConvTranspose2d(4, 2, 2, 2)
    module = torch.nn.Sequential(*layers).to(memory_format=torch.channels_last)
    x = torch.randn(2, 3, 6, 5).to(memory_format=torch.channels_last)
    compiled = torch.compile(module, backend=torshc)
    assert compiled(x).stride() == copy.deepcopy(module)(x).stride()
    agree(module, [x], compiled)


def test_graph_breaks_keep_gradients() -> None:
    class Turning(torch.nn.Module):  # type: ignore[misc]  # PyTorch is no dependency
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = torch.nn.Linear(3, 3), torch.nn.Linear(3, 2)

        def forward(self, x: Any) -> Any:
            h = self.first(x)
            return self.second(h) if h.sum() > 0 else self.second(h * -2)

    agree(Turning(), [torch.ones(2, 3), -torch.ones(2, 3)])


def test_a_graph_that_is_kept_goes_back_again() -> None:
    module = perceptron()
    loss = torch.compile(module, backend=torshc)(torch.randn(4, 5)).square().sum()
    loss.backward(retain_graph=True)
    once = [p.grad.clone() for p in module.parameters()]
    loss.backward()
    for p, g in zip(module.parameters(), once, strict=True):
        torch.testing.assert_close(p.grad, 2 * g)


def test_checkpoints() -> None:
    class Twice(torch.nn.Module):  # type: ignore[misc]  # PyTorch is no dependency
        def __init__(self) -> None:
            super().__init__()
            self.inner = perceptron()

        def forward(self, x: Any) -> Any:
            return torch.utils.checkpoint.checkpoint(self.inner, x, use_reentrant=False)

    agree(Twice(), [torch.randn(4, 5)])


def test_evaluation_between_steps_compiles_twice(compiled_graphs: list[Any]) -> None:
    """With constant weights at first, and with weights as inputs once they have changed."""
    module = perceptron()
    compiled = torch.compile(module, backend=torshc)
    x = torch.randn(4, 5)
    for _ in range(4):
        with torch.no_grad():
            torch.testing.assert_close(compiled(x), module(x))
            for p in module.parameters():
                p.add_(0.1)
    assert len(compiled_graphs) == 2


def test_two_modules_and_two_types(compiled_graphs: list[Any]) -> None:
    a, b = perceptron(), perceptron().bfloat16()
    x = torch.randn(4, 5)
    agree(a, [x])
    twin = copy.deepcopy(b)
    found = gradients(torch.compile(b, backend=torshc), b, x.bfloat16()), gradients(twin, twin, x.bfloat16())
    for got, want in zip(*found, strict=True):  # some roundings to 8 bits
        torch.testing.assert_close(got, want, rtol=0.05, atol=0.02)
    assert len(compiled_graphs) == 4


def test_all_that_a_graph_lacks_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    compiled = torch.compile(lambda x: torch.special.i1(x) + torch.lgamma(x) + torch.special.i1(x + 1), backend=torshc)
    x = torch.rand(3, requires_grad=True)
    with caplog.at_level(logging.WARNING, "torshc"):
        torch.testing.assert_close(compiled(x), torch.special.i1(x) + torch.lgamma(x) + torch.special.i1(x + 1))
    (first, *_) = [r.getMessage() for r in caplog.records if r.name == "torshc"]
    assert first.count("special_i1") == 1 and "lgamma" in first and "TORCH_LOGS" in first


def test_pytorch_finds_it_by_name() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["torch_dynamo_backends"] == {"torshc": f"{torshc.__module__}:{torshc.__name__}"}
