"""Tuning: what is measured, what counts, what is kept. No test depends on how long anything takes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner, Result
from onnx import helper

from torshc._version import __version__
from torshc.base.errors import ConfigError, OutputError
from torshc.base.options import CompileOptions
from torshc.bundle.build import Object
from torshc.cli import cli
from torshc.explain.sizes import Evaluator
from torshc.pipeline.compilation import Compilation
from torshc.pipeline.compiler import compile_model, prepare
from torshc.runtime import load
from torshc.targets.cpu.c import CTarget
from torshc.targets.gpu.contraction_choice import PIECES
from torshc.targets.gpu.contraction_tiles import GROUP_TILES, MMA_TILES, TF32_GROUP_TILES, TF32_TILES, TILES, AnyTile
from torshc.targets.gpu.cuda.nvcc import Card
from torshc.targets.gpu.cuda.target import CudaTarget
from torshc.targets.gpu.grid import GridRow
from torshc.targets.parameters import Parameter, parameters_of
from torshc.targets.toolchain import Tools
from torshc.workbench import measure, tune, tune_kernel
from torshc.workbench.measure import KernelBench, Variant
from torshc.workbench.tune import tune_model

from ..emulation.emulated import emulated_tools, missing
from ..support.cli_models import STATIC
from ..support.models import save
from ..support.products import product

VALUES = ((4, 2), (2, 1))


def chain() -> onnx.ModelProto:
    """Two softmaxes of rows of other lengths, and what has one place only."""
    nodes = [
        helper.make_node("Softmax", ["x"], ["a"]),
        helper.make_node("Softmax", ["y"], ["b"]),
        helper.make_node("Neg", ["z"], ["c"]),
    ]
    shapes = {"x": [3, 700], "y": [3, 900], "z": [1], "a": [3, 700], "b": [3, 900], "c": [1]}
    values = {n: helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, s) for n, s in shapes.items()}
    graph = helper.make_graph(nodes, "chain", [values[n] for n in "xyz"], [values[n] for n in "abc"])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The model's file; its template has two tiles to choose from, so that little is compiled."""
    monkeypatch.chdir(tmp_path)
    usual = CTarget.parameters

    def few(self: CTarget, kernel: measure.Kernel) -> tuple[Parameter, ...]:
        return (Parameter("tile", "a tile", VALUES),) if usual(self, kernel) else ()

    monkeypatch.setattr(CTarget, "parameters", few)
    monkeypatch.setattr("torshc.pipeline.records._check", lambda record, target: None)
    onnx.save(product(), tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


def timed(monkeypatch: pytest.MonkeyPatch, seconds: Callable[[Variant], float]) -> None:
    """Variants run as they are, and take as long as it is said."""
    add = KernelBench.add

    def said(self: KernelBench, variants: Sequence[Variant]) -> dict[Variant, Callable[[], float]]:
        def run(variant: Variant, real: Callable[[], float]) -> float:
            assert real() > 0
            return seconds(variant)

        return {v: lambda v=v, real=real: run(v, real) for v, real in add(self, variants).items()}  # type: ignore[misc]

    monkeypatch.setattr(KernelBench, "add", said)


def test_what_is_faster_is_kept_and_used(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    timed(monkeypatch, lambda v: 0.5 if dict(v.choices).get("tile") == (2, 1) else 1.0)
    done = tune_model(path, CompileOptions(), Path("r"), 60)
    (kernel,) = done.tuned
    assert kernel.record.choices == (("tile", (2, 1)),) and (kernel.variants, kernel.refused) == (2, 0)
    assert (kernel.usual, kernel.best, kernel.launches, done.left) == (1.0, 0.5, 1, 0)
    assert " 33x70,70x50 tile=2x1  # 500000.0 us, 1000000.0 before\n" in Path("r").read_text()
    assert prepare(path, CompileOptions(tuning_records=Path("r"))).units[0].tuned == "tile=2x1"
    again = tune_model(path, CompileOptions(), Path("r"), 60)
    assert (again.tuned, again.known) == ((), 1)


def test_what_is_hardly_faster_is_not(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    timed(monkeypatch, lambda v: 0.99 if v.choices else 1.0)
    assert tune_model(path, CompileOptions(), Path("r"), 60).tuned[0].record.choices == ()
    assert " default  # " in Path("r").read_text()


def test_what_computes_something_else_does_not_count(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    timed(monkeypatch, lambda v: 0.5 if v.choices else 1.0)
    real = KernelBench.results

    def wrong(self: KernelBench, run: Callable[[], float], variant: Variant) -> dict[measure.Value, measure.Array]:
        return {v: a + np.float32(0.01 * bool(variant.choices)) for v, a in real(self, run, variant).items()}

    monkeypatch.setattr(KernelBench, "results", wrong)
    (kernel,) = tune_model(path, CompileOptions(), Path("r"), 60).tuned
    assert kernel.record.choices == () and kernel.refused == 2


def test_variants_agree_with_numpy(path: Path) -> None:
    """What tuning compares is right, and is not left from the variant before."""
    found = prepare(path, CompileOptions())
    tools = found.target.toolchain.find(found.options, found.isa)
    with KernelBench(found, Evaluator({}), tools) as stand:
        runs = stand.add([measure.variant_of(found, found.units[0], (("tile", value),)) for value in VALUES])
        for variant, run in runs.items():
            (y,) = stand.results(run, variant).values()
            x = next(first for v, (_, first) in stand.values.items() if v.name == "x").view(np.float32)
            weights = found.graph.nodes[0].operands[1].const
            assert weights is not None
            expected = np.maximum(x.reshape(33, 70) @ weights, 0).reshape(-1)
            np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-5)


def test_time_runs_out(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter(range(0, 10**6, 4))
    monkeypatch.setattr(tune.time, "monotonic", lambda: float(next(ticks)))
    done = tune_model(path, CompileOptions(), Path("r"), 10)
    assert (done.tuned, done.left) == ((), 1)
    assert Path("r").read_text().startswith("torshc tuning records 1\n")


def run(*arguments: object) -> Result:
    return CliRunner().invoke(cli, ["tune", *map(str, arguments)], prog_name="torshc")


def test_an_interrupt_keeps_what_there_is(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(tune_kernel.Tuner, "turns", interrupted)
    result = run(path, "--tuning-records", "r")
    assert result.return_value == 130 or result.exit_code == 130
    assert (
        "interrupted; what was measured by then is kept" in result.stderr and "no time was left for 1" in result.stdout
    )
    assert Path("r").exists()


def test_the_command_tells_in_80_columns_and_json(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    timed(monkeypatch, lambda v: 0.5 if v.choices else 1.0)
    text = run(path).stdout
    assert "m.tuning: 1 of 1 kernels are faster tuned; their launches take 1000.00 ms untuned, 500.00 ms" in text
    table = text.splitlines()[:-1]
    assert any("tile=" in line for line in table) and max(map(len, table)) <= 80
    assert "1 had a record before" in run(path).stdout
    body = json.loads(run(path, "--tuning-records", "other", "--json").stdout)
    (kernel,) = body["tuned"]
    assert kernel["template"] == "gemm.c.j2" and kernel["choices"]["tile"] in ([4, 2], [2, 1]) and body["left"] == 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"target": "llvm"}, "the target llvm has nothing to tune"),
        ({"triple": "riscv64-linux-gnu"}, "no such machine"),
        ({"mcpu": "x86-64-v2", "target": "cuda"}, "there is no NVIDIA card, or no driver"),
        ({"isa": ("x86-64-v2", "x86-64-v3")}, "several versions cannot be measured at a time"),
    ],
)
def test_what_cannot_be_measured_is_refused(
    path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, object], said: str
) -> None:
    monkeypatch.setattr("torshc.targets.gpu.cuda.nvcc.find_cards", lambda: ())
    with pytest.raises(ConfigError, match=said):
        tune_model(path, CompileOptions.create(**options), Path("r"), 1)
    assert not Path("r").exists()


@pytest.mark.skipif(missing() is not None, reason=missing() or "")
def test_a_device_is_tuned_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The emulated card: pieces of sums in a second kernel, checked against one piece."""
    values = {"tile": ((128, 128, 16, 64, 32),), "splits": ((1,), (2,))}
    stated = tuple(Parameter(name, name, found) for name, found in values.items())
    usual = CudaTarget.parameters
    monkeypatch.setattr(CudaTarget, "parameters", lambda self, k: stated if usual(self, k) else ())
    monkeypatch.setattr("torshc.targets.gpu.cuda.nvcc.find_cards", lambda: (Card("a card", "sm_90", "1"),))
    timed(monkeypatch, lambda v: 1.0 - 0.2 * len(v.choices))
    onnx.save(product(), tmp_path / "m.onnx")
    with emulated_tools():
        options = CompileOptions(target="cuda", arch="sm_90")
        done = tune_model(tmp_path / "m.onnx", options, tmp_path / "r", 60)
        assert not done.skipped
        (kernel,) = done.tuned
        assert kernel.record.choices == (("splits", (2,)), ("tile", (128, 128, 16, 64, 32))) and kernel.refused == 0
        found = prepare(tmp_path / "m.onnx", CompileOptions(target="cuda", arch="sm_90", tuning_records=tmp_path / "r"))
        assert [k.kind for k in found.units[0].kernels] == ["contraction", "nest"]
        with pytest.raises(ConfigError, match="--arch sm_80 cannot be measured here: this is sm_90"):
            tune_model(tmp_path / "m.onnx", CompileOptions(target="cuda", arch="sm_80"), tmp_path / "r", 60)


@pytest.mark.skipif(missing() is not None, reason=missing() or "")
def test_what_comes_next_is_compiled_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a device; kernels whose sizes leave nothing to choose are passed over. A compilation takes what was found."""
    stated = (Parameter("share", "threads of a row", ((32,), (128,))), Parameter("packet", "neighbours", ((1,),)))
    monkeypatch.setattr(CudaTarget, "parameters", lambda self, k: stated)
    monkeypatch.setattr("torshc.targets.gpu.cuda.nvcc.find_cards", lambda: (Card("a card", "sm_90", "1"),))
    timed(monkeypatch, lambda v: 0.5 if dict(v.choices).get("share") == (128,) else 1.0)
    hurried: list[list[str]] = []
    real = tune_kernel.compile_sources

    def compiled(c: Compilation, tools: Tools, sources: Mapping[str, str], folder: Path) -> list[Object]:
        hurried.append(sorted(sources))
        return real(c, tools, sources, folder)

    monkeypatch.setattr(tune_kernel, "compile_sources", compiled)
    onnx.save(chain(), tmp_path / "m.onnx")
    x, y, z = (np.random.default_rng(1).standard_normal(s, dtype=np.float32) for s in ((3, 700), (3, 900), 1))
    with emulated_tools():
        options = CompileOptions(target="cuda", arch="sm_90")
        done = tune_model(tmp_path / "m.onnx", options, tmp_path / "r", 60)
        options = replace(options, tuning_records=tmp_path / "r")
        found = compile_model(tmp_path / "m.onnx", tmp_path / "m.tsc", options)
        with load(tmp_path / "m.tsc") as model:
            a, b, _ = model(x, y, z)
    assert [t.record.template for t in done.tuned] == ["row.j2", "row.j2"] and (done.left, done.skipped) == (0, ())
    assert str(done.place) == f"cuda a-card,sm_90 torshc {__version__}"
    assert hurried[0][0].endswith(".cu")
    rows = [k for u in found.units for k in u.kernels if isinstance(k, GridRow)]
    assert [k.share for k in rows] == [128, 128] and [u.tuned for u in found.units].count("share=128") == 2
    for given, got in ((x, a), (y, b)):
        e = np.exp(given - given.max(1, keepdims=True))
        np.testing.assert_allclose(got, e / e.sum(1, keepdims=True), rtol=1e-5)  # the order of sums


@pytest.mark.parametrize(
    ("template", "tiles"),
    [
        ("contraction.j2", TILES),
        ("contraction_mma.j2", (*MMA_TILES, *TF32_TILES)),
        ("contraction_group.j2", (*GROUP_TILES, *TF32_GROUP_TILES)),
    ],
)
def test_templates_of_devices_state_the_tiles_that_there_are(template: str, tiles: Sequence[AnyTile]) -> None:
    stated = {p.name: p.values for p in parameters_of(CudaTarget.search, template, 8)}
    assert set(stated["tile"]) == {t.sizes for t in tiles} and stated["splits"] == tuple((n,) for n in PIECES)


def test_other_bad_input(path: Path, tmp_path: Path) -> None:
    for budget in (0, float("nan")):
        with pytest.raises(ConfigError, match=f"--budget {budget} leaves no time to measure"):
            tune_model(path, CompileOptions(), Path("r"), budget)
    with pytest.raises(ConfigError, match="has nothing to tune: no template of its kernels"):
        tune_model(save(STATIC, tmp_path / "s.onnx"), CompileOptions(), Path("r"), 1)
    with pytest.raises(OutputError, match="cannot write"):
        tune_model(path, CompileOptions(), Path("none/r"), 1)
    Path("r").write_text("nonsense")
    with pytest.raises(ConfigError, match="r, line 1: it does not begin"):
        tune_model(path, CompileOptions(), Path("r"), 1)
