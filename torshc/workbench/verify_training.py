"""Comparing the gradients of a compiled training step with those in f64, and these with central differences.

The step is compiled with momentum for an optimizer, which keeps the first step's gradients as they are. Beside it the
same graph is run by NumPy in f64: the definitions of the operators, and not the kernels. What a change of each weight
along a random direction changes the loss by is computed from the model alone, without any gradient.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from ..base.budget import spending
from ..base.errors import ConfigError
from ..base.folders import scratch_folder
from ..base.options import CompileOptions
from ..base.safetensors import OWN
from ..formats import load_graph
from ..formats.files import onnx_proto
from ..graph import Graph, Value
from ..passes.interpret import run_graph
from ..plan.partition import drop_unneeded
from ..runtime import load
from ..training import Training, make_training_graph, read_training
from ..training.optimizers import Momentum
from ..training.scaling import SKIPPED
from .feeds import Array, checked_dims, make_inputs
from .verify import SIZES, OutputCheck, Verdict

RTOL = 1e-3  # f32 loses some digits on the way back through many layers; a gradient that is wrong is off by far more
DIFFERENCE = 1e-6  # how far weights are moved, as a part of a direction of normally distributed numbers
# A difference is off by roundings of 1e-16 of the loss over DIFFERENCE, and by slopes that jump in between.
DIFFERENCE_RTOL = 1e-4
# Of the largest gradient of all weights: what is smaller may be noise of f32, as of a bias before a normalisation.
FLOOR = 1e-3
KEPT = f"{OWN}momentum/"
SCALES = 200  # of the loss that are tried: more halves than there are from the largest scale to the least


def verify_training(
    path: str | Path,
    options: CompileOptions,
    observer: Any = None,
    *,
    dims: Mapping[str, int] | None = None,
    inputs: Sequence[str] = (),
    seed: int = 0,
    rtol: float | None = None,
    threads: int = 1,
) -> Verdict:
    """Compiles a training step to a temporary bundle, and compares its loss and the gradients of all weights.

    Args:
        dims, inputs, seed, threads: as of :func:`torshc.workbench.verify.verify_bundle`.
        rtol: largest max|a-b| / max|b| of a gradient; `RTOL` where left out.

    Raises:
        TorshcError: a member of the family, by cause.
    """
    from ..pipeline.compiler import compile_model  # start-up: as of verify_model

    assert options.train is not None
    step = read_training(options.train)
    momentum = Momentum(learning_rate=1.0)
    plain = dataclasses.replace(
        step, optimizer=momentum, weight_decay=0.0, clip_norm=None, accumulate=1, outputs=(), gradients=()
    )
    with scratch_folder() as folder:
        compile_model(path, folder / "step.tsc", options, observer, training=plain, check=checked_dims(dims))
        with load(folder / "step.tsc", max(threads, 1)) as model:
            made = make_inputs(model.inputs, inputs, dims, seed, SIZES, model.needs)
            for _ in range(SCALES):
                before = model.state_dict()
                given = model.step(made.arrays)
                if not given.get("skipped", False):
                    break
            loss, found = given["loss"], model.state_dict()
    with spending(options.budget):  # which says how long a loop is written out
        reference = _Wide(Path(path), plain, made.arrays, before)
        wanted, gradients = reference.gradients()
        allowed = RTOL if rtol is None else rtol
        floor = FLOOR * max((abs(g).max() for g in gradients.values()), default=0.0)
        checks = [_check("loss", np.asarray(loss), np.asarray(wanted), allowed, 0.0, "")]
        rng = np.random.default_rng(seed)
        for name, g in gradients.items():
            off = reference.off(name, g, rng, floor)
            note = f"differences of the loss are {off:.1e} from its gradient in f64" if off > DIFFERENCE_RTOL else ""
            checks.append(_check(name, found[KEPT + name], g, allowed, floor, note))
    return Verdict("gradients in f64 and central differences", allowed, made.dims, tuple(checks))


def _check(name: str, got: Array, wanted: Array, allowed: float, floor: float, problem: str) -> OutputCheck:
    size = max(float(abs(wanted).max(initial=0.0)), floor)
    error = float(abs(got - wanted).max(initial=0.0)) / size if size else float(abs(got).max(initial=0.0))
    ok = not problem and error <= allowed  # not where it is NaN
    return OutputCheck(name, got.shape, error, problem, ok, allowed=allowed)


class _Wide:
    """A training step of a model in f64, by NumPy.

    Args:
        feeds: the step's inputs.
        states: the model's states before its step, among them how many updates it left out, as draws depend on that.
    """

    def __init__(self, path: Path, training: Training, feeds: Mapping[str, Array], states: Mapping[str, Array]) -> None:
        source = widened(path)
        shapes = {v.name: feeds[v.name].shape for v in load_graph(source).inputs}
        self.graph, self.alone = (load_graph(source, shapes, {}) for _ in range(2))
        for graph in (self.graph, self.alone):
            make_training_graph(graph, training)
        self.feeds = {n: a.astype(np.float64) if a.dtype == np.float32 else a for n, a in feeds.items()}
        self.first = {s.name: _contents(s.first, held) for s, held, _ in self.graph.updates}
        self.first |= {name: states[name] for name in (SKIPPED,) if name in states}
        inputs, loss = list(self.alone.inputs), self.alone.returned[0]
        self.alone.declare_states(())
        self.alone.declare_outputs([loss], ["loss"])
        drop_unneeded(self.alone)
        self.alone.declare_inputs(inputs)

    def gradients(self) -> tuple[float, dict[str, Array]]:
        """The loss, and the gradients by the weights' names."""
        found = run_graph(self.graph, self._given(self.graph, {}))[: len(self.graph.results)]
        kept = found[len(self.graph.returned) :]
        states = dict(zip((s.name for s in self.graph.states), kept, strict=True))
        return float(found[0]), {s.name: states[KEPT + s.name] for s in self.graph.states if s.trained}

    def off(self, name: str, g: Array, rng: np.random.Generator, floor: float) -> float:
        """How far a gradient is from what differences of the loss show along a random direction, by its norm."""
        along = rng.standard_normal(g.shape)
        moved = (self.first[name] + s * DIFFERENCE * along for s in (1, -1))
        high, low = (float(run_graph(self.alone, self._given(self.alone, {name: w}))[0]) for w in moved)
        return abs((high - low) / (2 * DIFFERENCE) - float((g * along).sum())) / max(
            float(np.linalg.norm(g)), floor, 1e-30
        )

    def _given(self, graph: Graph, changed: Mapping[str, Array]) -> dict[Value, Array]:
        known = {**self.first, **self.feeds, **changed}
        return {v: known[v.name] for v in graph.inputs}


def _contents(first: Value | None, held: Value) -> Array:
    if first is not None:
        assert first.const is not None
        return first.const
    dims = held.type.static_shape
    assert dims is not None
    return np.zeros(dims, held.dtype.numpy)


def widened(path: Path) -> bytes:
    """An ONNX model whose f32 are f64: weights, inputs, constants, and what nodes are told to make.

    Raises:
        ConfigError: it is a JSON graph.
        ModelError: it, or a file that it names, cannot be used.
    """
    model = onnx_proto(path)
    if model is None:
        raise ConfigError(f"{path}: verify --train takes no JSON graph", "write the model as ONNX")
    scales = {n.input[k] for n in model.graph.node for k in _SCALES.get(n.op_type, ()) if k < len(n.input)}
    for w in model.graph.initializer:
        if w.data_type == TensorProto.FLOAT and w.name not in scales:
            w.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(w).astype(np.float64), w.name))
    for v in (*model.graph.input, *model.graph.output):
        if v.type.tensor_type.elem_type == TensorProto.FLOAT:
            v.type.tensor_type.elem_type = TensorProto.DOUBLE
    del model.graph.value_info[:]
    for node in model.graph.node:
        if not scales.intersection(node.output):
            _widen_attributes(node)
    return bytes(model.SerializeToString())


_SCALES = {"Resize": (2,), "Upsample": (1,)}  # operands that are f32, whatever the data is


def _widen_attributes(node: onnx.NodeProto) -> None:
    for a in node.attribute:
        if a.name in ("to", "dtype") and a.i == TensorProto.FLOAT:
            a.i = TensorProto.DOUBLE
        if a.t.data_type == TensorProto.FLOAT:
            a.t.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(a.t).astype(np.float64), a.t.name))
        if a.name in ("value_float", "value_floats"):
            values = np.asarray(list(a.floats) if a.name == "value_floats" else a.f, np.float64)
            node.ClearField("attribute")
            node.attribute.append(onnx.helper.make_attribute("value", numpy_helper.from_array(values)))
            return
