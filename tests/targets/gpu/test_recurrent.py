from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from torshc.base.errors import UnsupportedError
from torshc.expr import F64, const
from torshc.kernels.base import NoKernel
from torshc.kernels.machine import Device, Machine
from torshc.ops.nn.recurrent import FUNCTIONS
from torshc.targets.base import Target
from torshc.targets.gpu.cuda.target import CudaTarget
from torshc.targets.gpu.recurrent import GridRecurrent

from ...support.kernels import Maker, op
from ...support.run_grid import GridProgram, needs_emulator, templates
from ...support.run_kernel import Array, close
from ..cpu.test_recurrent import EVERYTHING, GATES, USUAL, Feeds, build, optional, runtime
from ..cpu.test_recurrent import operands as operands_of

pytestmark = needs_emulator
H = 5  # hidden units where their number does not matter: a warp each, which the emulator runs thread by thread
operands = partial(operands_of, hidden=H)
CELLS = [("LSTM", 0), ("GRU", 0), ("GRU", 1), ("RNN", 0)]


def together(blocks: int) -> Target:
    """CUDA with so many blocks at the most that wait for each other."""

    class Together(CudaTarget):
        @classmethod
        def capabilities(cls, archs: Sequence[str]) -> Device:
            return replace(super().capabilities(archs), together=blocks)

    return Together(Machine())


def run(
    kind: str,
    feeds: Feeds,
    attributes: Mapping[str, Any],
    constant: bool = True,
    symbolic: bool = False,
    wanted: Sequence[int] = (0, 1, 2),
    target: Target | None = None,
) -> tuple[list[Array], GridProgram]:
    graph, outs, names = build(kind, feeds, attributes, constant, symbolic)
    graph.outputs = [outs[k] for k in wanted if k < len(outs)]
    graph.output_names = [f"y{k}" for k in range(len(graph.outputs))]
    x = feeds["X"]
    sizes = {"n": x.shape[0 if attributes.get("layout") else 1], "t": x.shape[1 if attributes.get("layout") else 0]}
    program = GridProgram(graph, sizes, target or together(0))
    return program.run(*[feeds[n] for n in names]), program


def check(kind: str, feeds: Feeds, attributes: Mapping[str, Any], **how: Any) -> GridRecurrent:
    got, program = run(kind, feeds, attributes, **how)
    for a, b in zip(got, runtime(kind, feeds, attributes), strict=True):
        close(a, b, 1e-5)
    kernel = program.kernels[-1]
    assert isinstance(kernel, GridRecurrent)
    return kernel


def form(reset: int, **more: Any) -> dict[str, Any]:
    return {**more, **({"linear_before_reset": 1} if reset else {})}


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize(("kind", "reset"), CELLS)
def test_networks(kind: str, reset: int, direction: str) -> None:
    for more in ((), ("B",), optional(kind)):
        feeds = operands(kind, direction=direction, more=more)
        check(kind, feeds, form(reset, hidden_size=H, direction=direction))


# Steps, batch, size of the input, hidden units.
SIZES = [(1, 1, 1, 1), (4, 2, 8, 16), (3, 17, 5, 33), (9, 5, 1, 3), (2, 1, 20, 128), (3, 6, 4, 140)]


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize(("kind", "reset"), CELLS)
def test_sizes(kind: str, reset: int, sizes: tuple[int, int, int, int]) -> None:
    steps, batch, size, hidden = sizes
    feeds = operands(kind, steps, batch, size, hidden=hidden, direction="bidirectional", more=optional(kind))
    kernel = check(kind, feeds, form(reset, hidden_size=hidden, direction="bidirectional"))
    assert kernel.packed == (hidden >= 128) and kernel.rows == min(batch, 4)


@pytest.mark.parametrize("hidden", [1, 3, 16])
@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
@pytest.mark.parametrize(("kind", "reset"), CELLS)
def test_weights_kept_by_a_block_of_its_own(kind: str, reset: int, direction: str, hidden: int) -> None:
    target = together(2)
    attributes = form(reset, hidden_size=hidden, direction=direction)
    for batch, lengths in ((1, None), (4, [3, 6, 0, 5])):
        feeds = operands(kind, 6, batch, 5, hidden=hidden, direction=direction, more=optional(kind), lengths=lengths)
        constant = batch == 1
        if lengths is None:
            kernel = check(kind, feeds, attributes, target=target, constant=constant)
            assert kernel.kept and not kernel.cooperative
            continue
        got, _ = run(kind, feeds, attributes, target=target, constant=constant)
        plain, _ = run(kind, feeds, attributes, constant=constant)
        for a, b in zip(got, plain, strict=True):
            close(a, b, 1e-6)


# Hidden units, batch, direction, blocks that may wait for each other, blocks a direction; each with LSTM, GRUs and RNN.
SHARED = [
    (33, 1, "reverse", 16, 3),
    (33, 3, "bidirectional", 16, 3),
    (64, 8, "forward", 16, 4),
    (64, 3, "bidirectional", 4, 2),
    (256, 1, "bidirectional", 32, 16),
    (256, 3, "reverse", 16, 16),
    (256, 8, "bidirectional", 32, 16),
]


@pytest.mark.parametrize("form_of", SHARED, ids=str)
@pytest.mark.parametrize(("kind", "reset"), CELLS)
def test_blocks_that_pass_on_the_state(
    kind: str, reset: int, form_of: tuple[int, int, str, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    hidden, batch, direction, most, blocks = form_of
    steps, attributes = (2 if hidden == 256 else 5), form(reset, hidden_size=hidden, direction=direction)
    lengths = [1 + (3 * k + 1) % steps for k in range(batch)] if batch > 1 else None
    feeds = operands(kind, steps, batch, 7, hidden=hidden, direction=direction, more=optional(kind), lengths=lengths)
    expected = runtime(kind, feeds, attributes)
    graph, outs, names = build(kind, feeds, attributes, constant=batch != 3)
    graph.outputs, graph.output_names = outs, [f"y{k}" for k in range(len(outs))]
    program = GridProgram(graph, {}, together(most))
    kernel = program.kernels[-1]
    assert isinstance(kernel, GridRecurrent) and kernel.cooperative and kernel.blocks == blocks
    first = None
    for order in ("forward", "reverse", "random:3"):  # one after the other through the same memory
        monkeypatch.setenv("T_EMULATE_ORDER", order)
        got = program.run(*[feeds[n] for n in names])
        first = first or got
        for a, b, c in zip(got, expected, first, strict=True):
            close(a, b, 1e-5)
            np.testing.assert_array_equal(a, c)


def test_a_row_of_length_zero_is_passed_on() -> None:
    attributes = {"hidden_size": 40, "direction": "bidirectional"}
    for kind in GATES:
        feeds = operands(kind, 4, 4, hidden=40, direction="bidirectional", more=optional(kind), lengths=[3, 0, 4, 0])
        got, program = run(kind, feeds, attributes, target=together(16))
        assert program.kernels[-1].cooperative
        for a, b in zip(got, run(kind, feeds, attributes)[0], strict=True):
            close(a, b, 1e-6)


def test_readers_of_a_state_that_is_passed_on() -> None:
    feeds, attributes = operands("LSTM", 3, 2, hidden=40), {"hidden_size": 40}
    graph, outs, _ = build("LSTM", feeds, attributes)
    m = Maker()
    m.graph, m.builder = graph, type(m.builder)(graph)
    graph.outputs, graph.output_names = [m.add("Relu", outs[0]), m.add("Neg", outs[2])], ["y", "c"]
    y, _, c = runtime("LSTM", feeds, attributes)
    program = GridProgram(graph, {}, together(16))
    got = program.run(feeds["X"])
    assert program.kernels[-1].cooperative
    close(got[0], np.maximum(y, 0), 1e-5)
    close(got[1], -c, 1e-5)


def test_blocks_share_a_direction_where_they_may_wait_for_each_other() -> None:
    def kernel(blocks: int, batch: int, hidden: int) -> Any:
        target = together(blocks)
        feeds = operands("LSTM", 2, batch, 5, hidden=hidden, direction="bidirectional")
        graph, outs, _ = build("LSTM", feeds, {"hidden_size": hidden, "direction": "bidirectional"})
        graph.outputs, graph.output_names = outs[:1], ["y"]
        return GridProgram(graph, {}, target).kernels[-1]

    many = kernel(128, 1, 256)
    assert (many.blocks, many.kept, many.units) == (16, 1, 16)
    assert (kernel(16, 1, 256).blocks, kernel(16, 1, 256).kept) == (8, 2)
    assert kernel(4, 1, 256).kept == kernel(128, 9, 256).kept == kernel(0, 1, 256).kept == 0


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("kind", GATES)
def test_rows_of_different_length(kind: str, direction: str) -> None:
    attributes = {"hidden_size": H, "direction": direction}
    feeds = operands(kind, batch=5, direction=direction, more=optional(kind), lengths=[3, 6, 1, 5, 2])
    check(kind, feeds, attributes)
    check(kind, feeds, attributes, symbolic=True)


@pytest.mark.parametrize("kind", GATES)
def test_a_row_of_length_zero_keeps_its_start(kind: str) -> None:
    attributes = {"hidden_size": H, "direction": "bidirectional"}
    feeds = operands(kind, direction="bidirectional", more=("B", "initial_h"), lengths=[0, 6, 2])
    (y, h), _ = run(kind, feeds, attributes, wanted=(0, 1))
    assert not y[:, :, 0].any()
    np.testing.assert_array_equal(h[:, 0], feeds["initial_h"][:, 0])


@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("kind", GATES)
def test_symbolic_sizes(kind: str, constant: bool) -> None:
    attributes = {"hidden_size": H, "direction": "bidirectional"}
    for steps, batch in ((6, 3), (1, 1), (3, 20)):
        feeds = operands(kind, steps, batch, direction="bidirectional", more=optional(kind))
        check(kind, feeds, attributes, constant=constant, symbolic=True)


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize(("steps", "batch"), [(0, 3), (6, 0)])
def test_empty_sequences_and_batches(symbolic: bool, steps: int, batch: int) -> None:
    feeds = operands("LSTM", steps, batch, more=EVERYTHING)
    (y, h, c), _ = run("LSTM", feeds, {"hidden_size": H}, symbolic=symbolic)
    assert y.shape == (steps, 1, batch, H)
    np.testing.assert_array_equal(h, feeds["initial_h"])
    np.testing.assert_array_equal(c, feeds["initial_c"])


@pytest.mark.parametrize("kind", GATES)
def test_batch_first(kind: str) -> None:
    attributes = {"hidden_size": H, "direction": "bidirectional", "layout": 1}
    feeds = operands(kind, direction="bidirectional", layout=1, more=("B", "initial_h"))
    turned = {k: np.swapaxes(a, 0, 1) if k in ("X", "initial_h") else a for k, a in feeds.items()}
    y, *states = runtime(kind, turned, {**attributes, "layout": 0})
    for symbolic in (False, True):
        got, _ = run(kind, feeds, attributes, symbolic=symbolic)
        close(got[0], y.transpose(2, 0, 1, 3), 1e-5)
        for a, b in zip(got[1:], states, strict=True):
            close(a, np.swapaxes(b, 0, 1), 1e-5)


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("kind", GATES)
def test_activations(kind: str, function: str) -> None:
    names = [function] * len(USUAL[kind])
    numbers = {"activation_alpha": [0.3] * len(names), "activation_beta": [0.6] * len(names)}
    attributes = {"hidden_size": H, "activations": names, **numbers}
    feeds = {k: a * np.float32(0.3) for k, a in operands(kind, 3, more=("B",)).items()}
    got, _ = run(kind, feeds, attributes)
    for a, b in zip(got, runtime(kind, feeds, attributes), strict=True):
        close(a, b, 1e-4)


@pytest.mark.parametrize("kind", GATES)
def test_each_direction_has_its_activations(kind: str) -> None:
    names = [*USUAL[kind], *("Relu" if n == "Tanh" else "HardSigmoid" for n in USUAL[kind])]
    numbers = {"activation_alpha": [0.3] * len(names), "activation_beta": [0.5] * len(names)}
    attributes = {"hidden_size": H, "direction": "bidirectional", "activations": names, **numbers}
    check(kind, operands(kind, direction="bidirectional", more=optional(kind)), attributes)


@pytest.mark.parametrize(("kind", "reset"), CELLS)
def test_clip(kind: str, reset: int) -> None:
    check(kind, operands(kind, more=optional(kind)), form(reset, hidden_size=H, clip=0.2))


def test_coupled_input_and_forget_gates() -> None:
    attributes = {"hidden_size": H, "input_forget": 1, "direction": "bidirectional"}
    check("LSTM", operands("LSTM", direction="bidirectional", more=EVERYTHING), attributes)


@pytest.mark.parametrize("wanted", [(0,), (1,), (2,), (1, 2), (0, 2), (2, 0, 1)], ids=str)
def test_results_that_nobody_reads_are_not_stored(wanted: Sequence[int]) -> None:
    feeds, attributes = operands("LSTM", more=EVERYTHING), {"hidden_size": H}
    got, _ = run("LSTM", feeds, attributes, wanted=wanted)
    everything = runtime("LSTM", feeds, attributes)
    for k, a in zip(wanted, got, strict=True):
        close(a, everything[k], 1e-5)


def test_operands_in_another_layout() -> None:
    feeds, attributes = operands("LSTM", hidden=140), {"hidden_size": 140}
    graph, outs, names = build("LSTM", feeds, attributes, constant=False)
    for value in graph.inputs[:3]:
        value.layout = (2, 1, 0)
    graph.outputs, graph.output_names = outs[:1], ["y"]
    program = GridProgram(graph)
    close(program.run(*[feeds[n] for n in names])[0], runtime("LSTM", feeds, attributes)[0], 1e-5)


def test_readers_join() -> None:
    feeds, attributes = operands("GRU", direction="bidirectional"), {"hidden_size": H, "direction": "bidirectional"}
    graph, outs, _ = build("GRU", feeds, attributes)
    m = Maker()
    m.graph, m.builder = graph, type(m.builder)(graph)
    turned = m.add("Transpose", m.add("Relu", outs[0]), perm=(0, 2, 1, 3))
    graph.outputs = [m.add("Reshape", turned, shape=tuple(const(d) for d in (6, 3, 2 * H))), m.add("Neg", outs[1])]
    graph.output_names = ["y", "h"]
    y, h = runtime("GRU", feeds, attributes)
    program = GridProgram(graph)
    got = program.run(feeds["X"])
    close(got[0], np.maximum(y, 0).transpose(0, 2, 1, 3).reshape(6, 3, 2 * H), 1e-5)
    close(got[1], -h, 1e-5)
    assert templates(program)[-1] == "recurrent" and templates(program).count("recurrent") == 1


def test_a_reader_of_every_state_and_the_last_one() -> None:
    feeds, attributes = operands("GRU"), {"hidden_size": H}
    graph, outs, _ = build("GRU", feeds, attributes)
    m = Maker()
    m.graph, m.builder = graph, type(m.builder)(graph)
    flat = m.add("Reshape", outs[0], shape=tuple(const(d) for d in (6, 3, H)))
    graph.outputs, graph.output_names = [m.add("Relu", m.add("Mul", flat, outs[1])), outs[1]], ["y", "h"]
    y, h = runtime("GRU", feeds, attributes)
    got = GridProgram(graph).run(feeds["X"])
    close(got[0], np.maximum(y[:, 0] * h, 0), 1e-5)
    close(got[1], h, 1e-5)


@pytest.mark.parametrize("order", ["reverse", "random:5"])
def test_no_order_of_threads_shows(monkeypatch: pytest.MonkeyPatch, order: str) -> None:
    feeds, attributes = operands("GRU", batch=3, hidden=20, more=("B",)), {"hidden_size": 20}
    forward, _ = run("GRU", feeds, attributes)
    monkeypatch.setenv("T_EMULATE_ORDER", order)
    for a, b in zip(run("GRU", feeds, attributes)[0], forward, strict=True):
        np.testing.assert_array_equal(a, b)


def test_what_it_cannot_do_is_said() -> None:
    m = Maker()
    shapes = ((6, 3, 2), (1, H, 2), (1, H, H))
    (y, _) = m.builder.add(op("RNN", hidden_size=H), [m.input(*s, dtype=F64) for s in shapes])
    with pytest.raises(UnsupportedError, match="f64"):
        GridProgram(m.output(y))
    feeds = operands("RNN", 1, 1, 1, hidden=5000)
    with pytest.raises(NoKernel, match="5000"):
        run("RNN", feeds, {"hidden_size": 5000})
