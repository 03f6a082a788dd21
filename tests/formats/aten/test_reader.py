"""What is an input, what an output, and what PyTorch does itself; skipped where there is no PyTorch."""

from __future__ import annotations

from typing import Any

import pytest

from torshc.base.errors import UnsupportedError
from torshc.expr import as_int, dim

torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed")

from torshc.formats.aten import read_program  # noqa: E402  # after the skip
from torshc.formats.aten.reader import Step, order_of  # noqa: E402

from .test_call import traced  # noqa: E402


def test_an_order_is_that_of_memory() -> None:
    images = torch.empty(2, 3, 4, 5)
    assert order_of(images) is None
    assert order_of(images.to(memory_format=torch.channels_last)) == (0, 2, 3, 1)
    assert order_of(images.mT) == (0, 1, 3, 2)
    assert order_of(torch.empty(2, 1, 3).transpose(0, 1)) is None  # sizes of 1 may stand anywhere
    assert order_of(images[:, :, ::2]) is None and order_of(torch.empty(1).expand(4)) is None  # copied to rows


def test_inputs_and_outputs_lie_as_pytorch_has_them() -> None:
    x = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    program = read_program(traced(lambda x: x + 1, (x,)))
    assert program.ports[0].order == (0, 2, 3, 1) == program.results[0].order
    assert [as_int(d) for d in program.graph.inputs[0].shape] == [2, 4, 5, 3]


def test_views_of_arguments_are_left_to_pytorch() -> None:
    program = read_program(
        traced(lambda w, x: [w.t(), x[1:], x.sin().view(6), w], (torch.ones(2, 3), torch.ones(3, 2)))
    )
    assert [r.argument for r in program.results] == [0, 1, None, 0]
    assert [len(r.views) for r in program.results] == [1, 1, 1, 0] and len(program.graph.outputs) == 1
    assert [p.source for p in program.ports] == [1]  # w is not read


def test_random_numbers_are_inputs_that_pytorch_draws() -> None:
    def noisy(x: Any) -> Any:
        return x + torch.rand_like(x)

    drawn = [p.source for p in read_program(traced(noisy, (torch.ones(3),))).ports if isinstance(p.source, Step)]
    assert [str(d.target) for d in drawn] == ["aten.rand_like.default"]


def test_symbolic_sizes_are_those_of_arguments() -> None:
    program = read_program(traced(lambda x: x.view(-1).exp(), (torch.ones(4, 6),), "symbolic"))
    (n, m) = program.symbols
    assert program.graph.inputs[0].shape == (n, m) and program.graph.results[0].shape == (n * m,)
    assert [*program.symbols.values()] == [(0, 0), (0, 1)]


def test_a_size_that_no_input_has_is_the_length_of_one() -> None:
    """As in a backward graph, whose tensors may have products of sizes only."""
    graph = traced(lambda x, y: y.view(x.shape[0], -1).sum(0), (torch.ones(4, 6), torch.ones(24)), "symbolic")
    program = read_program(graph)
    assert [p.source for p in program.ports[1:]] == [dim(str(s.data)) for s in program.symbols][
        : len(program.ports) - 1
    ]
    assert len(program.ports) > 1


def test_everything_that_is_unsupported_is_told_at_once() -> None:
    def wanting(x: Any) -> Any:
        return torch.lgamma(x) + torch.special.i1(x).sum() + torch.fft.fft(x).real

    with pytest.raises(UnsupportedError) as error:
        read_program(traced(wanting, (torch.ones(3),)))
    named = " ".join(error.value.problems)
    assert "lgamma" in named and "special_i1" in named and "_fft" in named
