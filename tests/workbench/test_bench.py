"""Measuring: what is timed and shown. No test depends on how long anything takes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from torshc.base.errors import ConfigError
from torshc.base.options import CompileOptions
from torshc.cli import cli
from torshc.runtime.stats import StepStats
from torshc.workbench import bench
from torshc.workbench import roofline as roofs
from torshc.workbench.bench import bench_model, paired

from ..emulation.emulated import emulated_tools, missing
from ..support.cli_models import STATIC
from ..support.models import save


def test_a_profile_has_work_and_a_roof(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same in JSON and as text, and the page takes it."""
    monkeypatch.chdir(tmp_path)
    save(STATIC, tmp_path / "m.onnx")
    quick = ["bench", "m.onnx", "--profile", "--rounds", "1", "--seconds", "0.001"]
    done = CliRunner().invoke(cli, [*quick, "--json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["roof"]["bytes"] > 0 and found["roof"]["flops"]["f32"] > 0 and "1 thread" in found["roof"]["how"]
    for step in found["steps"]:
        assert step["bytes"] > 0 and step["flops"] >= 0 and step["share"] > 0 and step["bound"] in ("bytes", "flops")
    text = CliRunner().invoke(cli, quick).stdout
    assert "roof" in text and "GB/s" in text and max(map(len, text.splitlines())) <= 80
    Path("p.json").write_text(done.stdout)
    shown = CliRunner().invoke(cli, ["explain", "m.onnx", "--measured", "p.json", "-o", "page.html"])
    assert shown.exit_code == 0, shown.output


def test_without_a_profile_nothing_more_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "meter_of", lambda done: pytest.fail("it is measured"))
    path = save(STATIC, tmp_path / "m.onnx")
    found = bench_model(path, CompileOptions(), rounds=1, seconds=0.001)
    assert (found.steps, found.roof, found.flushed) == ((), None, False)


def test_other_answers_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the tolerance that verify has: figures of systems that compute different things say nothing."""
    path = str(save(STATIC, tmp_path / "m.onnx"))
    quick = ["bench", path, "--against", "ort", "--rounds", "1", "--seconds", "0.001"]
    assert "differs" not in CliRunner().invoke(cli, quick).output

    class Wrong:
        def run(self, names: None, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
            return [np.maximum(feeds["x"], 0) * np.float32(1.01)]

    monkeypatch.setattr(bench, "ort_session", lambda path, threads: Wrong())
    done = CliRunner().invoke(cli, quick)
    assert done.exit_code == 0 and "ONNX Runtime: 'y' differs from torshc -O3's: by 1e-02" in done.stderr


@pytest.mark.skipif(missing() is not None, reason=missing() or "")
def test_a_card_is_asked_what_it_can_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And its second cache is written before every call. The emulated one is an sm_90 of 1 GHz."""
    flushed: list[int] = []
    real = roofs.Meter.flush

    def counted(self: roofs.Meter) -> None:
        flushed.append(1)
        real(self)

    monkeypatch.setattr(roofs.Meter, "flush", counted)
    path = save(STATIC, tmp_path / "m.onnx")
    with emulated_tools():
        options = CompileOptions(target="cuda", arch="sm_90", profile=True)
        found = bench_model(path, options, rounds=2, seconds=0.001, flush=True)
    runs = max(s.calls for s in found.steps)
    assert found.flushed and len(flushed) == runs >= 2 * (1 + bench.LEAST_CALLS)
    assert found.roof is not None and "multiprocessors at 1.00 GHz" in found.roof.how
    flops = found.roof.flops
    assert flops["f16"] == 16 * flops["f32"] == 2 * flops["tf32"] == 6 * flops["3tf32"]
    assert all(s.share is not None and s.share > 0 for s in found.steps)


def test_the_cache_of_a_processor_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--flush-l2 is for cards, and the target c is none"):
        bench_model(save(STATIC, tmp_path / "m.onnx"), CompileOptions(), flush=True)


def test_what_comes_before_a_call_takes_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(bench.time, "perf_counter", lambda: now[0])

    def spend(seconds: float) -> None:
        now[0] += seconds

    times = paired({"a": lambda: spend(1)}, 2, 3.5, lambda *_: None, lambda: spend(7))
    assert times == {"a": [[1.0] * bench.LEAST_CALLS] * 2}


def test_steps_of_another_version_have_no_work(tmp_path: Path) -> None:
    """And neither has what only a run knows."""
    from torshc.pipeline.compiler import prepare

    done = prepare(save(STATIC, tmp_path / "m.onnx"), CompileOptions())
    step = StepStats("k_of_another", "map.c.j2", (), 1, 1.0)
    (found,) = bench.profiled([step], done, {}, roofs.Roof(1.0))
    assert (found.kernel, found.bytes, found.share) == ("k_of_another", None, None)
