"""Operators that users declare by formulas over elements."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import torshc
from tests.emulation.emulated import emulated_tools
from tests.gradient.differences import check_graph
from tests.support.contrib import model_of
from tests.support.models import Array
from tests.support.seeded import seeded
from torshc.base.errors import ConfigError, ModelError, TorshcError
from torshc.base.options import CompileOptions
from torshc.formats import import_model
from torshc.gradient import gradients
from torshc.graph import Builder, Graph, Value
from torshc.ops import CustomOperators
from torshc.passes.interpret import run_graph
from torshc.workbench.verify import verify_model

DOMAIN = "com.example"
RNG = seeded(6)
X, ROW = RNG.standard_normal((3, 7)).astype(np.float32), RNG.standard_normal(7).astype(np.float32)
FILE = """
from torshc import ops

@ops.nest("Lean", "com.example")
def lean(x, y, *, slope: float = 0.5):
    return ops.where(x > y, x, slope * x) * ops.sigmoid(ops.min(x, 2.0)) + ops.clip(y, -1, 1)

@ops.nest("LogMeanExp", "com.example", combine="add", finish=lambda total, count: ops.log(total / count))
def log_mean_exp(x, *, scale: float = 1.0):
    return ops.exp(scale * x)

@ops.nest("Reach", "com.example", combine="max")
def reach(x):
    return abs(x)

@ops.composite("Both", "com.example")
def both(x):
    return lean(x, log_mean_exp(x, axes=(1,)), slope=0.25)
"""


def wanted(x: Array, y: Array, slope: float = 0.5) -> Array:
    gate = 1 / (1 + np.exp(-np.minimum(x, 2)))
    return np.where(x > y, x, slope * x) * gate + np.clip(y, -1, 1)


def results(folder: Path, op: str, *operands: Array, text: str = FILE, **given: Any) -> Array:
    model = model_of(op, operands, domain=DOMAIN, dims={0: ["n", *operands[0].shape[1:]]}, **given)
    (folder / "mine.py").write_text(text)
    onnx.save(model, folder / "m.onnx")
    torshc.compile(folder / "m.onnx", folder / "m.tsc", ops=folder / "mine.py")
    with torshc.load(folder / "m.tsc") as loaded:
        return np.asarray(*loaded.run({f"x{k}": a for k, a in enumerate(operands)}).values())


def test_a_formula_of_elements_broadcasts_and_fuses(tmp_path: Path) -> None:
    np.testing.assert_allclose(results(tmp_path, "Lean", X, ROW, slope=0.1), wanted(X, ROW, 0.1), rtol=1e-5, atol=1e-6)
    assert verify_model(tmp_path / "m.onnx", CompileOptions(ops=(tmp_path / "mine.py",)), dims={"n": 3}).ok


@pytest.mark.parametrize(
    ("given", "axes"), [({}, (0, 1)), ({"axes": [-1]}, (1,)), ({"axes": [0], "keepdims": 0}, (0,))]
)
def test_a_formula_that_is_accumulated(given: dict[str, Any], axes: tuple[int, ...], tmp_path: Path) -> None:
    keep = bool(given.get("keepdims", 1))
    got = results(tmp_path, "LogMeanExp", X, scale=0.5, **given)
    np.testing.assert_allclose(got, np.log(np.exp(0.5 * X).mean(axes, keepdims=keep)), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(results(tmp_path, "Reach", X, **given), np.abs(X).max(axes, keepdims=keep))


@pytest.mark.parametrize("target", ["c", "llvm", "cuda"])
def test_composites_call_them(target: str, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(FILE)
    onnx.save(model_of("Both", (X,), domain=DOMAIN, dims={0: ["n", 7]}), tmp_path / "m.onnx")
    with emulated_tools() if target == "cuda" else pytest.MonkeyPatch.context():
        done = torshc.compile(tmp_path / "m.onnx", tmp_path / "m.tsc", ops=tmp_path / "mine.py", target=target)
        with torshc.load(tmp_path / "m.tsc") as loaded:
            (got,) = loaded.run({"x0": X}).values()
    assert len(done.plan.groups) == 1
    mean = np.log(np.exp(X).mean(1, keepdims=True))
    np.testing.assert_allclose(got, wanted(X, mean, 0.25), rtol=1e-4, atol=1e-6)


HEAD = "from torshc import ops\n"


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("@ops.nest('F', 'com.example', combine='mean')\ndef f(x): return x\n", ConfigError, r":2: .*'mean'; one of"),
        ("@ops.nest('F', 'com.example', finish=len)\ndef f(x): return x\n", ConfigError, r"mine.py:2: .*combine="),
        ("@ops.nest('F', 'com.example', combine='add', finish=lambda total: total)\ndef f(x): return x\n",
         ConfigError, r"mine.py:2: .*finish= of F has to take two things"),
        ("@ops.nest('F', 'com.example')\ndef f(x): return ops.soft(x)\n", ConfigError, r":3: .*mean 'softsign'"),
        ("@ops.nest('F', 'com.example')\ndef f(x): return x if x > 0 else -x\n", ModelError, r"'it'.*where.*mine.py:3"),
        ("@ops.nest('F', 'com.example', combine='add')\ndef f(x): return x > 0\n", ModelError, r"gives bool.*.py:2"),
        ("@ops.nest('F', 'com.example')\ndef f(x, y): return x + y\n", ModelError, "F needs input 1"),
    ],
)  # fmt: skip
def test_refused_by_file_and_line(text: str, error: type[TorshcError], message: str, tmp_path: Path) -> None:
    with pytest.raises(error, match=message):
        results(tmp_path, "F", X, text=HEAD + text)


MORE = (
    FILE
    + """
@ops.nest("Volume", "com.example", combine="mul")
def volume(x, *, scale: float = 1.5):
    return scale * x

@ops.nest("Own", "com.example")
def own(x, y):
    return x * y

@ops.gradient_of(own)
def twice(gradient, x, y):
    return [2 * y * gradient, None]
"""
)


def differentiable(folder: Path, op: str, *operands: Array, **given: Any) -> tuple[Graph, dict[Value, Any]]:
    """A graph of one operator, and what its inputs are."""
    (folder / "mine.py").write_text(MORE)
    model = model_of(op, operands, domain=DOMAIN, **given)
    graph = import_model(model.SerializeToString(), custom=CustomOperators([folder / "mine.py"]))
    return graph, {v: operands[int(v.name[1:])] for v in graph.inputs}


@pytest.mark.parametrize(
    ("op", "operands", "given"),
    [
        ("Lean", (X, ROW), {"slope": 0.25}),
        ("LogMeanExp", (X,), {"scale": 0.5}),
        ("LogMeanExp", (X,), {"axes": [1]}),
        ("Reach", (X,), {"axes": [0], "keepdims": 0}),
        ("Volume", (X[:, :4],), {"axes": [1]}),
        ("Both", (X,), {}),
    ],
)
def test_formulas_are_differentiated(
    op: str, operands: tuple[Array, ...], given: dict[str, Any], tmp_path: Path
) -> None:
    graph, feeds = differentiable(tmp_path, op, *(a.astype(np.float64) for a in operands), **given)
    check_graph(graph, graph.results[0], feeds, second=op != "Both", whole=False)


def test_a_gradient_that_is_stated_goes_before(tmp_path: Path) -> None:
    graph, feeds = differentiable(tmp_path, "Own", X, X + 1)
    graph.outputs = gradients(Builder(graph), graph.results[0], graph.inputs)
    got = run_graph(graph, feeds)
    np.testing.assert_allclose(got[0], 2 * (X + 1))
    assert not got[1].any()
