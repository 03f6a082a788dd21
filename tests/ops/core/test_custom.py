"""Operators that users declare in files of their own: what they compute, who knows of them, and what is refused."""

from __future__ import annotations

import json
import math
import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner

import torshc
from tests.support.contrib import model_of
from tests.support.models import Array
from torshc import ops
from torshc.backend import TorshcBackend
from torshc.base.errors import ConfigError, ModelError, TorshcError, UnsupportedError
from torshc.base.options import CompileOptions
from torshc.cli import cli
from torshc.ops import REGISTRY
from torshc.ops.core import custom
from torshc.ops.core.custom import CustomOperators
from torshc.workbench.depfile import write_depfile

DOMAIN = "com.example"
X = np.random.default_rng(31).standard_normal((3, 7)).astype(np.float32)
SWISH = """
from torshc import ops

@ops.composite("Swish2", "com.example")
def swish2(x, *, alpha: float = 1.5):
    return x * ops.sigmoid(alpha * x)
"""


def written(folder: Path, text: str, name: str = "mine.py") -> Path:
    """An operator file: what it always begins with, and then a text."""
    (folder / name).write_text(text if "import" in text else f"from torshc import ops\n{text}")
    return folder / name


def results(folder: Path, text: str, op: str, *operands: Array | None, outputs: int = 1, **given: Any) -> list[Array]:
    """What an operator of a file computes, compiled."""
    dims = given.pop("dims", None)
    model = model_of(op, operands, outputs=outputs, domain=DOMAIN, dims=dims, **given)
    with torshc.compile(model.SerializeToString(), ops=written(folder, text)) as loaded:
        feeds = {f"x{k}": a for k, a in enumerate(operands) if a is not None}
        return list(loaded.run(feeds).values())


def saved(folder: Path, op: str = "Swish2", **attributes: Any) -> Path:
    onnx.save(model_of(op, (X,), domain=DOMAIN, dims={0: ["n", 7]}, **attributes), folder / "m.onnx")
    return folder / "m.onnx"


@pytest.mark.parametrize("target", ["c", "llvm"])
def test_a_composite_of_a_foreign_domain_is_fused(target: str, tmp_path: Path) -> None:
    model, file = saved(tmp_path, alpha=2.0), written(tmp_path, SWISH)
    done = torshc.compile(model, tmp_path / "m.tsc", target=target, ops=str(file))
    assert len(done.plan.groups) == 1
    with torshc.load(tmp_path / "m.tsc") as loaded:
        (got,) = loaded.run({"x0": X}).values()
    np.testing.assert_allclose(got, X / (1 + np.exp(-2 * X)), rtol=1e-5)
    (told,) = json.loads((tmp_path / "m.tsc" / "manifest.json").read_text())["custom"]
    assert (told["op"], told["domain"], told["form"], told["file"]) == ("Swish2", DOMAIN, "composite", "mine.py")


def test_an_operator_belongs_to_its_compilation_alone(tmp_path: Path) -> None:
    model, known = saved(tmp_path), dict(REGISTRY)
    twice = written(tmp_path, SWISH.replace("x * ops", "2 * x * ops"), "twice.py")
    with torshc.compile(model, ops=[written(tmp_path, SWISH)]) as once, torshc.compile(model, ops=[twice]) as two:
        np.testing.assert_allclose(2 * once.run({"x0": X})["out0"], two.run({"x0": X})["out0"], rtol=1e-6)
    with pytest.raises(UnsupportedError, match=r"no operator Swish2 in domain com.example.*--ops"):
        torshc.compile(model, tmp_path / "m.tsc")
    assert known == REGISTRY
    assert not (tmp_path / "m.tsc").exists()


def test_every_operator_is_a_function(tmp_path: Path) -> None:
    text = """
@ops.composite("All", "com.example")
def everything(x):
    largest, places = ops.top_k(ops.clip(x, 0, 2), [2])
    inside = ops.and_(x > 0, ops.not_(x > 1))
    flat = ops.reshape(ops.cast(inside, to=ops.F32), [x.shape[0] * 7])
    centred = x - ops.reduce_mean(x, [-1], keepdims=1)
    halves = ops.split(x, [3, 4], axis=1, outputs=2)
    gathered = ops.gather(x, np.array([2, 0]), axis=1)
    return [largest, ops.cast(places, to=ops.F32), flat, ops.microsoft.gelu(centred), *halves, gathered]
"""
    text = f"import numpy as np\nfrom torshc import ops\n{text}"
    got = results(tmp_path, text, "All", X, outputs=7, dims={0: ["n", 7]})
    order = np.argsort(-np.clip(X, 0, 2), axis=1, kind="stable")[:, :2]
    np.testing.assert_array_equal(got[0], np.take_along_axis(np.clip(X, 0, 2), order, 1))
    np.testing.assert_array_equal(got[1], order)
    np.testing.assert_array_equal(got[2], ((X > 0) & (X <= 1)).reshape(-1))
    c = (X - X.mean(1, keepdims=True)).astype(np.float64)
    erf = np.vectorize(math.erf)
    np.testing.assert_allclose(got[3], 0.5 * c * (1 + erf(c / np.sqrt(2))), rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(got[4], X[:, :3])
    np.testing.assert_array_equal(got[5], X[:, 3:])
    np.testing.assert_array_equal(got[6], X[:, [2, 0]])


def test_operands_and_attributes_follow_the_signature(tmp_path: Path) -> None:
    text = """
@ops.composite("Shift", "com.example")
def shift(x, by=None, *, axes: tuple[int, ...] = (0,), negate: bool = False, how: str = "sum"):
    y = x if by is None else x + by
    y = ops.reduce_sum(y, list(axes)) if how == "sum" else ops.reduce_max(y, list(axes))
    return -y if negate else y
"""
    (got,) = results(tmp_path, text, "Shift", X)
    np.testing.assert_allclose(got, X.sum(0, keepdims=True), rtol=1e-5, atol=1e-6)
    (got,) = results(tmp_path, text, "Shift", X, X, axes=[0, 1], negate=1, how="max")
    np.testing.assert_allclose(got, -np.max(2 * X, keepdims=True), rtol=1e-6)


def test_operators_of_files_call_each_other(tmp_path: Path) -> None:
    text = (
        SWISH
        + """
@ops.composite("Thrice", "com.example")
def thrice(x):
    return swish2(swish2(swish2(x)), alpha=1.0)
"""
    )
    (got,) = results(tmp_path, text, "Thrice", X)
    want = X
    for alpha in (1.5, 1.5, 1.0):
        want = want / (1 + np.exp(-alpha * want))
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("text", "op", "attributes", "words"),
    [
        ("def f(:\n", "F", {}, r"mine.py:2: .*syntax"),
        ("\nimport nothing_of_this_name\n", "F", {}, r"mine.py:2: ModuleNotFoundError.*nothing_of"),
        ("x = 1 / 0\n", "F", {}, r"mine.py:2: ZeroDivisionError"),
        ("x = 1\n", "F", {}, "mine.py declares no operator"),
        ("@ops.pointwise('F', 'com.example')\ndef f(x): return x\n", "F", {}, r"mine.py:2: .*what declares an .*nest"),
        ("@ops.gradient_of('F')\ndef f(g, x): return g\n", "F", {}, r"mine.py:2: .*gradient_of\(\) of 'F'; give it"),
        (SWISH + "@ops.gradient_of(swish2)\ndef f(g, x): return g\n", "F", {}, "a composite, whose parts are diff"),
        ("@ops.composite('Gelu', 'com.microsoft')\ndef f(x): return x\n", "F", {}, r"mine.py:2: torshc has .*Gelu"),
        ("@ops.composite('Softmax', '')\ndef f(x): return x\n", "F", {}, r"mine.py:2: torshc has .*Softmax"),
        ("@ops.composite('If', '')\ndef f(x): return x\n", "F", {}, r"mine.py:2: torshc has .*If"),
        ("@ops.composite('F', 'com.example')\ndef f(x, *, by): return x\n", "F", {}, r"mine.py:2: .*'by' of f\(\)"),
        ("@ops.composite('F', 'com.example')\ndef f(x, *, by=[1]): return x\n", "F", {}, r"mine.py:2: .*by"),
        ("@ops.composite('F', 'com.example')\ndef f(x, *, by=(1,)): return x\n", "F", {}, "tuple of these"),
        ("@ops.composite('a-b', 'com.example')\ndef f(x): return x\n", "F", {}, "cannot be named 'a-b'"),
        ("@ops.composite('F', 'com.example')\ndef f(x): return 1.0\n", "F", {}, r"mine.py:2: com.example.F of node "),
        ("@ops.composite('F', 'com.example')\ndef f(x):\n  return x + [].y\n", "F", {}, r"mine.py:4: .*'it'.*no att"),
        ("@ops.composite('F', 'com.example')\ndef f(x):\n  return ops.relo(x)\n", "F", {}, r":4: .*mean 'relu'"),
        ("@ops.composite('F', 'com.example')\ndef f(x):\n  return ops.softmax(x, axes=1)\n", "F", {},
         r"'it'.*no attribute 'axes'; did you mean 'axis'.* \(at .*mine.py:4\)"),
        ("@ops.composite('F', 'com.example')\ndef f(x):\n  return ops.mat_mul(x, ops.expand(x, [3, 7]))\n", "F", {},
         r"mine.py:4\)"),
        ("@ops.composite('F', 'com.example')\ndef f(x):\n  return ops.relu(x) if x else x\n", "F", {}, r"mine.py:4: "),
        ("@ops.composite('F', 'com.example')\ndef f(x): return x\n", "F", {"by": 1}, "'it'.*no attribute 'by'"),
        ("@ops.composite('Scale', 'com.example')\ndef f(x): return x\n", "Scala", {}, "did you mean 'Scale'"),
    ],
)  # fmt: skip
def test_refused_by_file_and_line(text: str, op: str, attributes: dict[str, Any], words: str, tmp_path: Path) -> None:
    model, file = saved(tmp_path, op, **attributes), written(tmp_path, text)
    with pytest.raises((ConfigError, ModelError, UnsupportedError), match=words) as caught:
        torshc.compile(model, tmp_path / "m.tsc", ops=[file])
    assert isinstance(caught.value, TorshcError)
    assert not (tmp_path / "m.tsc").exists()
    told = CliRunner().invoke(cli, ["compile", str(model), "--ops", str(file), "-o", str(tmp_path / "m.tsc")])
    assert told.exit_code == caught.value.exit_code
    assert "Traceback" not in told.output


def test_fewer_results_than_are_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"'it' \(Swish2\): Swish2 has 1 results, and 2 are named"):
        results(tmp_path, SWISH, "Swish2", X, outputs=2)


def test_files_that_are_not_there_or_declare_one_operator_twice(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read the operator file .*none.py: No such file"):
        CustomOperators([tmp_path / "none.py"])
    files = [written(tmp_path, SWISH), written(tmp_path, SWISH, "other.py")]
    with pytest.raises(ConfigError, match=r"other.py:4: operator com.example.Swish2 is declared at .*mine.py:4 too"):
        CustomOperators(files)


def test_a_function_computes_nothing_by_itself() -> None:
    with pytest.raises(TypeError, match=r"sigmoid\(\) stands for a node"):
        ops.sigmoid(1.0)


def test_names_of_functions() -> None:
    with pytest.raises(AttributeError):
        _ = ops.NoSuchThing
    names = {custom.snake_case(name) for domain, name in REGISTRY if not domain}
    assert not names & {name for name in vars(ops) if not name.startswith("_")}  # which would hide the functions


def test_commands_take_operator_files(tmp_path: Path) -> None:
    model, file = str(saved(tmp_path)), str(written(tmp_path, SWISH))
    for words in (["check", model], ["verify", model], ["explain", model], ["bisect", model, "-o", "small.onnx"]):
        done = CliRunner().invoke(cli, [*words, "--ops", file])
        assert done.exit_code == 0, done.output
        if words[0] == "explain":
            assert "Swish2 of com.example: composite, " in done.output
    write_depfile(str(tmp_path / "m.tsc"), Path(model), CompileOptions.create(ops=file))
    assert file in (tmp_path / "m.tsc.d").read_text()
    loaded = TorshcBackend.prepare(onnx.load(model), ops=[file])
    np.testing.assert_allclose(loaded.run([X])[0], X / (1 + np.exp(-1.5 * X)), rtol=1e-5)


def test_packages_are_loaded_for_operators_that_nobody_else_knows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loads: list[str] = []

    class Entry(EntryPoint):
        def load(self) -> Any:
            loads.append(self.value)
            return super().load()

    written(tmp_path, SWISH, "torshc_swishes.py")
    monkeypatch.syspath_prepend(tmp_path)
    entries = (Entry("swishes", "torshc_swishes", custom.GROUP),)
    monkeypatch.setattr(custom, "entry_points", lambda group: entries if group == custom.GROUP else ())
    onnx.save(model_of("Relu", (X,), domain=""), tmp_path / "plain.onnx")
    torshc.compile(tmp_path / "plain.onnx", tmp_path / "plain.tsc", emit="source", ops=[])
    assert not loads
    done = torshc.compile(saved(tmp_path), tmp_path / "m.tsc", emit="source")
    assert [o.name for o in done.custom] == ["Swish2"]
    assert loads == ["torshc_swishes"]
    sys.modules.pop("torshc_swishes")
    (tmp_path / "torshc_swishes.py").write_text("raise ValueError('broken')")
    with pytest.raises(ConfigError, match=r"package torshc_swishes cannot be loaded: ValueError: broken"):
        torshc.compile(saved(tmp_path), tmp_path / "m2.tsc", emit="source")
