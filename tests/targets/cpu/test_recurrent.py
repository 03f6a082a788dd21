from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import ModelProto, helper
from onnx.reference import ReferenceEvaluator

from tests.support.models import model
from torshc.base.errors import UnsupportedError
from torshc.expr import F32, F64, I32, Expr, const, dim
from torshc.graph import Graph, TensorType, Value
from torshc.kernels.machine import Machine
from torshc.ops.nn.recurrent import FUNCTIONS

from ...support.kernels import Maker, op
from ...support.run_kernel import Array, Program, close, compilers, kind_of, kinds, native_lanes

SLOTS = ("X", "W", "R", "B", "sequence_lens", "initial_h", "initial_c", "P")
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
USUAL = {"LSTM": ("Sigmoid", "Tanh", "Tanh"), "GRU": ("Sigmoid", "Tanh"), "RNN": ("Tanh",)}
LANES = sorted({native_lanes(), 4 if native_lanes() >= 4 else 1, 1})
Feeds = dict[str, Array]


def operands(
    kind: str,
    steps: int = 6,
    batch: int = 3,
    size: int = 5,
    hidden: int = 11,
    direction: str = "forward",
    layout: int = 0,
    more: Sequence[str] = ("B",),
    lengths: Sequence[int] | None = None,
) -> Feeds:
    """Random operands; `more` names the optional ones that are there."""
    rng = np.random.default_rng(5)
    d, g = 2 if direction == "bidirectional" else 1, GATES[kind]
    state = (batch, d, hidden) if layout else (d, batch, hidden)
    shapes = {
        "X": (batch, steps, size) if layout else (steps, batch, size),
        "W": (d, g * hidden, size),
        "R": (d, g * hidden, hidden),
        "B": (d, 2 * g * hidden),
        "initial_h": state,
        "initial_c": state,
        "P": (d, 3 * hidden),
    }
    given = {
        k: (0.5 * rng.standard_normal(s)).astype(np.float32) for k, s in shapes.items() if k in ("X", "W", "R", *more)
    }
    if lengths is not None:
        given["sequence_lens"] = np.array(lengths, np.int32)
    return given


def model_of(kind: str, feeds: Feeds, attributes: Mapping[str, Any]) -> ModelProto:
    """An ONNX model of one network."""
    present = [s if s in feeds else "" for s in SLOTS[: 8 if kind == "LSTM" else 6]]
    while not present[-1]:
        present.pop()
    outs = ["Y", "Y_h", "Y_c"][: 3 if kind == "LSTM" else 2]
    return model([helper.make_node(kind, present, outs, **attributes)], feeds, outs, opset=14)


def runtime(kind: str, feeds: Feeds, attributes: Mapping[str, Any]) -> list[Array]:
    """What ONNX Runtime makes of it."""
    model = model_of(kind, feeds, attributes).SerializeToString()
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    return list(session.run(None, feeds))


def reference(kind: str, feeds: Feeds, attributes: Mapping[str, Any]) -> list[Array]:
    """What the reference evaluator makes of it."""
    return list(ReferenceEvaluator(model_of(kind, feeds, attributes)).run(None, feeds))


def build(
    kind: str, feeds: Feeds, attributes: Mapping[str, Any], constant: bool = True, symbolic: bool = False
) -> tuple[Graph, list[Value], list[str]]:
    """A graph of one network, its results, and the names of its inputs; weights are constants or inputs."""
    m, values, names = Maker(), list[Value | None](), list[str]()
    batch = 0 if attributes.get("layout") else 1
    for slot in SLOTS[: 8 if kind == "LSTM" else 6]:
        array = feeds.get(slot)
        if array is None:
            values.append(None)
        elif constant and slot in ("W", "R", "B", "P"):
            values.append(m.constant(array))
        else:
            dims: list[Expr] = [const(d) for d in array.shape]
            if symbolic and slot == "X":
                dims[batch], dims[1 - batch] = dim("n"), dim("t")
            elif symbolic and slot not in ("W", "R", "B", "P"):
                dims[0 if slot == "sequence_lens" else batch] = dim("n")
            value = m.graph.new_value(TensorType(F32 if array.dtype == np.float32 else I32, tuple(dims)))
            m.graph.inputs.append(value)
            values.append(value)
            names.append(slot)
    fields = dict(attributes)
    fields["activations"] = _activations(fields)
    outs = m.builder.add(op(kind, **fields), values)
    return m.graph, outs, names


def _activations(fields: dict[str, Any]) -> tuple[tuple[str, float, float], ...]:
    alphas, betas = list(fields.pop("activation_alpha", ())), list(fields.pop("activation_beta", ()))
    names = fields.pop("activations", ())
    return tuple((n, alphas[k] if alphas else 0.0, betas[k] if betas else 0.0) for k, n in enumerate(names))


def run(
    kind: str,
    feeds: Feeds,
    attributes: Mapping[str, Any],
    constant: bool = True,
    symbolic: bool = False,
    compiler: str = "",
    lanes: int = 0,
    wanted: Sequence[int] = (0, 1, 2),
) -> tuple[list[Array], Program]:
    graph, outs, names = build(kind, feeds, attributes, constant, symbolic)
    graph.outputs = [outs[k] for k in wanted if k < len(outs)]
    graph.output_names = [f"y{k}" for k in range(len(graph.outputs))]
    x = feeds["X"]
    sizes = {"n": x.shape[0 if attributes.get("layout") else 1], "t": x.shape[1 if attributes.get("layout") else 0]}
    compiler = compiler or compilers()[0]
    program = Program(graph, sizes, Machine(lanes or native_lanes(), kind_of(compiler)), compiler)
    return program.run(*[feeds[n] for n in names]), program


def check(kind: str, feeds: Feeds, attributes: Mapping[str, Any], **how: Any) -> Program:
    got, program = run(kind, feeds, attributes, **how)
    for a, b in zip(got, runtime(kind, feeds, attributes), strict=True):
        close(a, b, 1e-5)
    return program


EVERYTHING = ("B", "initial_h", "initial_c", "P")


def optional(kind: str) -> tuple[str, ...]:
    return EVERYTHING if kind == "LSTM" else EVERYTHING[:2]


@pytest.mark.parametrize("compiler", compilers())
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("kind", GATES)
def test_networks(kind: str, direction: str, compiler: str) -> None:
    attributes = {"hidden_size": 11, "direction": direction}
    for more in ((), ("B",), optional(kind)):
        program = check(kind, operands(kind, direction=direction, more=more), attributes, compiler=compiler)
        assert kinds(program) == ["gemm", "recurrent"]


@pytest.mark.parametrize("reset", [0, 1])
@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
@pytest.mark.parametrize("more", [(), ("B",), ("B", "initial_h")], ids=len)
def test_gru_forms(reset: int, direction: str, more: Sequence[str]) -> None:
    attributes = {"hidden_size": 11, "direction": direction, "linear_before_reset": reset}
    check("GRU", operands("GRU", direction=direction, more=more), attributes)


SIZES = [(1, 1, 1, 1), (7, 1, 3, 8), (4, 2, 8, 16), (3, 17, 5, 33), (2, 1, 130, 100), (9, 5, 1, 3), (2, 40, 4, 24)]


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize(("kind", "reset"), [("LSTM", 0), ("GRU", 0), ("GRU", 1), ("RNN", 0)])
def test_sizes(kind: str, reset: int, sizes: tuple[int, int, int, int]) -> None:
    steps, batch, size, hidden = sizes
    attributes = {"hidden_size": hidden, "direction": "bidirectional", **({"linear_before_reset": 1} if reset else {})}
    feeds = operands(kind, steps, batch, size, hidden, "bidirectional", more=optional(kind))
    check(kind, feeds, attributes)


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize(("kind", "reset"), [("LSTM", 0), ("GRU", 0), ("GRU", 1), ("RNN", 0)])
def test_every_vector_width(kind: str, reset: int, lanes: int) -> None:
    attributes = {"hidden_size": 11, "direction": "reverse", **({"linear_before_reset": 1} if reset else {})}
    check(kind, operands(kind, direction="reverse", more=optional(kind)), attributes, lanes=lanes)


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("kind", GATES)
def test_rows_of_different_length(kind: str, direction: str) -> None:
    attributes = {"hidden_size": 11, "direction": direction}
    feeds = operands(kind, batch=4, direction=direction, more=optional(kind), lengths=[3, 6, 1, 5])
    check(kind, feeds, attributes)
    check(kind, feeds, attributes, symbolic=True)


@pytest.mark.parametrize("kind", GATES)
def test_a_row_of_length_zero_keeps_its_start(kind: str) -> None:
    attributes = {"hidden_size": 11, "direction": "bidirectional"}
    feeds = operands(kind, direction="bidirectional", more=("B", "initial_h"), lengths=[0, 6, 2])
    (y, h), _ = run(kind, feeds, attributes, wanted=(0, 1))
    assert not y[:, :, 0].any()
    np.testing.assert_array_equal(h[:, 0], feeds["initial_h"][:, 0])


@pytest.mark.parametrize("kind", GATES)
@pytest.mark.parametrize("constant", [False, True])
def test_symbolic_sizes(kind: str, constant: bool) -> None:
    attributes = {"hidden_size": 11, "direction": "bidirectional"}
    for steps, batch in ((6, 3), (1, 1), (3, 20)):
        feeds = operands(kind, steps, batch, direction="bidirectional", more=optional(kind))
        check(kind, feeds, attributes, constant=constant, symbolic=True)


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize(("steps", "batch"), [(0, 3), (6, 0)])
def test_empty_sequences_and_batches(symbolic: bool, steps: int, batch: int) -> None:
    feeds = operands("LSTM", steps, batch, more=EVERYTHING)
    (y, h, c), _ = run("LSTM", feeds, {"hidden_size": 11}, symbolic=symbolic)
    assert y.shape == (steps, 1, batch, 11)
    np.testing.assert_array_equal(h, feeds["initial_h"])
    np.testing.assert_array_equal(c, feeds["initial_c"])


@pytest.mark.parametrize(("kind", "reset"), [("LSTM", 0), ("GRU", 0), ("GRU", 1), ("RNN", 0)])
def test_weights_that_only_a_run_knows(kind: str, reset: int) -> None:
    for hidden, direction in ((11, "bidirectional"), (1, "forward"), (40, "forward")):
        attributes = {"hidden_size": hidden, "direction": direction, **({"linear_before_reset": 1} if reset else {})}
        feeds = operands(kind, hidden=hidden, direction=direction, more=optional(kind))
        check(kind, feeds, attributes, constant=False)


@pytest.mark.parametrize("kind", GATES)
def test_batch_first(kind: str) -> None:
    attributes = {"hidden_size": 11, "direction": "bidirectional", "layout": 1}
    feeds = operands(kind, direction="bidirectional", layout=1, more=("B", "initial_h"))
    turned = {k: np.swapaxes(a, 0, 1) if k in ("X", "initial_h") else a for k, a in feeds.items()}
    y, *states = runtime(kind, turned, {**attributes, "layout": 0})
    for symbolic in (False, True):
        got, _ = run(kind, feeds, attributes, symbolic=symbolic)
        close(got[0], y.transpose(2, 0, 1, 3), 1e-5)
        for a, b in zip(got[1:], states, strict=True):
            close(a, np.swapaxes(b, 0, 1), 1e-5)


@pytest.mark.parametrize("kind", GATES)
def test_reference_evaluator_agrees(kind: str) -> None:
    for direction in ("forward", "bidirectional"):
        attributes = {"hidden_size": 5, "direction": direction}
        more = ("B", "initial_h", "initial_c", "P") if kind == "LSTM" else ("B", "initial_h")
        feeds = operands(kind, hidden=5, direction=direction, more=more)
        try:
            wanted = reference(kind, feeds, attributes)
        except (NotImplementedError, RuntimeError):
            assert direction == "bidirectional"
            continue
        got, _ = run(kind, feeds, attributes)
        for a, b in zip(got, wanted, strict=True):
            close(a, b.reshape(a.shape), 1e-5)


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("kind", GATES)
def test_activations(kind: str, function: str) -> None:
    names = [function] * len(USUAL[kind])
    attributes = {
        "hidden_size": 11,
        "activations": names,
        "activation_alpha": [0.3] * len(names),
        "activation_beta": [0.6] * len(names),
    }
    feeds = {k: a * np.float32(0.3) for k, a in operands(kind, 3, more=("B",)).items()}  # ONNX Runtime overflows early
    got, _ = run(kind, feeds, attributes)
    for a, b in zip(got, runtime(kind, feeds, attributes), strict=True):
        close(a, b, 1e-4)


@pytest.mark.parametrize("kind", GATES)
def test_each_direction_has_its_activations(kind: str) -> None:
    names = [*USUAL[kind], *("Relu" if n == "Tanh" else "HardSigmoid" for n in USUAL[kind])]
    attributes = {
        "hidden_size": 11,
        "direction": "bidirectional",
        "activations": names,
        "activation_alpha": [0.3] * len(names),
        "activation_beta": [0.5] * len(names),
    }
    check(kind, operands(kind, direction="bidirectional", more=optional(kind)), attributes)


@pytest.mark.parametrize(("kind", "reset"), [("LSTM", 0), ("GRU", 0), ("GRU", 1), ("RNN", 0)])
def test_clip(kind: str, reset: int) -> None:
    attributes = {"hidden_size": 11, "clip": 0.2, **({"linear_before_reset": 1} if reset else {})}
    check(kind, operands(kind, more=optional(kind)), attributes)


def test_coupled_input_and_forget_gates() -> None:
    attributes = {"hidden_size": 11, "input_forget": 1, "direction": "bidirectional"}
    check("LSTM", operands("LSTM", direction="bidirectional", more=EVERYTHING), attributes)


@pytest.mark.parametrize("wanted", [(0,), (1,), (2,), (1, 2), (0, 2), (2, 0, 1)], ids=str)
def test_results_that_nobody_reads_are_not_stored(wanted: Sequence[int]) -> None:
    feeds, attributes = operands("LSTM", more=EVERYTHING), {"hidden_size": 11}
    got, _ = run("LSTM", feeds, attributes, wanted=wanted)
    everything = runtime("LSTM", feeds, attributes)
    for k, a in zip(wanted, got, strict=True):
        close(a, everything[k], 1e-5)


def test_input_in_another_layout_is_copied() -> None:
    feeds, attributes = operands("LSTM"), {"hidden_size": 11}
    graph, outs, _ = build("LSTM", feeds, attributes)
    graph.inputs[0].layout = (2, 1, 0)
    graph.outputs, graph.output_names = outs[:1], ["y"]
    program = Program(graph)
    close(program.run(feeds["X"])[0], runtime("LSTM", feeds, attributes)[0], 1e-5)
    assert kinds(program) == ["map", "gemm", "recurrent"]


def test_readers_join() -> None:
    feeds, attributes = operands("GRU", direction="bidirectional"), {"hidden_size": 11, "direction": "bidirectional"}
    graph, outs, _ = build("GRU", feeds, attributes)
    m = Maker()
    m.graph, m.builder = graph, type(m.builder)(graph)
    relu = m.add("Relu", outs[0])
    turned = m.add("Transpose", relu, perm=(0, 2, 1, 3))
    graph.outputs = [m.add("Reshape", turned, shape=tuple(const(d) for d in (6, 3, 22))), m.add("Neg", outs[1])]
    graph.output_names = ["y", "h"]
    y, h = runtime("GRU", feeds, attributes)
    program = Program(graph)
    got = program.run(feeds["X"])
    close(got[0], np.maximum(y, 0).transpose(0, 2, 1, 3).reshape(6, 3, 22), 1e-5)
    close(got[1], -h, 1e-5)
    assert kinds(program) == ["gemm", "recurrent"]


def test_a_reader_of_every_state_and_the_last_one() -> None:
    feeds, attributes = operands("GRU"), {"hidden_size": 11}
    graph, outs, _ = build("GRU", feeds, attributes)
    m = Maker()
    m.graph, m.builder = graph, type(m.builder)(graph)
    flat = m.add("Reshape", outs[0], shape=tuple(const(d) for d in (6, 3, 11)))
    graph.outputs, graph.output_names = [m.add("Relu", m.add("Mul", flat, outs[1])), outs[1]], ["y", "h"]
    y, h = runtime("GRU", feeds, attributes)
    got = Program(graph).run(feeds["X"])
    close(got[0], np.maximum(y[:, 0] * h, 0), 1e-5)
    close(got[1], h, 1e-5)


def test_what_it_cannot_do_is_said() -> None:
    m = Maker()
    shapes = ((6, 3, 5), (1, 11, 5), (1, 11, 11))
    (y, _) = m.builder.add(op("RNN", hidden_size=11), [m.input(*s, dtype=F64) for s in shapes])
    with pytest.raises(UnsupportedError, match="f64"):
        Program(m.output(y))
