"""Options are resolved once, at the door."""

from __future__ import annotations

from pathlib import Path

import pytest

from torshc.base.errors import ConfigError
from torshc.base.options import CompileOptions
from torshc.pipeline.compiler import prepare
from torshc.pipeline.job import jobs_of


def test_a_job_for_each_version_the_best_first() -> None:
    jobs = jobs_of(CompileOptions(isa=("x86-64-v2", "x86-64-v4", "x86-64-v3"), triple="x86_64-linux-gnu"))
    assert [j.options.mcpu for j in jobs] == ["x86-64-v4", "x86-64-v3", "x86-64-v2"]
    assert [j.isa.lanes for j in jobs] == [j.target.machine.lanes for j in jobs] == [16, 8, 4]
    assert [j.target.machine.version for j in jobs] == ["v4", "v3", "v2"]


@pytest.mark.parametrize(("level", "strategy"), [(0, "none"), (1, "conservative"), (3, "default")])
def test_the_strategy_is_that_of_the_pipeline(level: int, strategy: str) -> None:
    (job,) = jobs_of(CompileOptions(opt_level=level))
    assert job.options.fusion == job.policy.strategy == strategy
    (asked,) = jobs_of(CompileOptions(opt_level=level, fusion="aggressive"))
    assert asked.options.fusion == asked.policy.strategy == "aggressive"


def test_the_loose_form_has_no_edited_kernels_and_dumps_apart(tmp_path: Path) -> None:
    (job,) = jobs_of(CompileOptions(kernels=tmp_path / "edited", dump=tmp_path / "dump"))
    loose = job.of_form("loose")
    assert loose.options.kernels is None and loose.options.dump == tmp_path / "dump" / "loose"
    assert loose.target is job.target and job.options.kernels == tmp_path / "edited"


def test_wrong_options_are_told_before_the_model_is_read(tmp_path: Path) -> None:
    options = CompileOptions(tuning_records=tmp_path / "none.txt")
    with pytest.raises(ConfigError, match=r"none\.txt"):
        prepare(tmp_path / "no_model.onnx", options)
