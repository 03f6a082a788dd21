"""Kernels measured by workers of a Dask scheduler: the records of one machine, lost workers, other devices."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import distributed
import numpy as np
import onnx
import pytest
from click.testing import CliRunner

from torshc.base.errors import ConfigError, InternalError, ModelError, ToolchainError
from torshc.base.options import CompileOptions
from torshc.cli import cli
from torshc.pipeline.records import Records, write_records
from torshc.workbench.tune import tune_model
from torshc.workbench.tune_cluster import choose_device, describe_device, pack, unpack

from ..support.fixed_times import fix_times
from ..support.models import model, node


def products() -> onnx.ModelProto:
    """A chain of three products of other sizes."""
    draw = np.random.default_rng(0)
    weights = {f"w{k}": draw.standard_normal(s, dtype=np.float32) for k, s in enumerate(((20, 30), (30, 50), (50, 9)))}
    nodes = [node("MatMul", "x w0", "a"), node("MatMul", "a w1", "b"), node("MatMul", "b w2", "y")]
    return model(nodes, {"x": [7, 20]}, "y", weights, 18)


@pytest.fixture(scope="module")
def workers() -> Iterator[Any]:
    """Two processes that have a processor to measure on."""
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=":0", worker_dashboard_address=":0",
        resources={"processor": 1}, preload=["tests.support.fixed_times"],
    ) as found:  # fmt: skip
        yield found


def test_records_are_those_of_one_machine(workers: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a worker dies on the way; what has a record is not measured again."""
    onnx.save(products(), tmp_path / "m.onnx")
    killed: list[str] = []

    def kill_one(stage: str, seconds: float) -> None:
        if ": kernel" in stage and not killed:
            (nanny,) = (n for n in workers.workers.values() if n.worker_address.endswith(stage.partition(": ")[0]))
            os.kill(nanny.process.pid, signal.SIGKILL)
            killed.append(nanny.worker_address)

    options = CompileOptions(scheduler=workers.scheduler_address)
    there = tune_model(tmp_path / "m.onnx", options, tmp_path / "there", 300, say=kill_one)
    fix_times(monkeypatch.setattr)
    here = tune_model(tmp_path / "m.onnx", CompileOptions(), tmp_path / "here", 300)
    assert (tmp_path / "there").read_text() == (tmp_path / "here").read_text()
    assert there.tuned == here.tuned and there.place == here.place and (there.left, there.skipped) == (0, ())
    assert killed and sum(there.workers.values()) == 3


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[CompileOptions]:
    """Options with a scheduler whose one worker is a thread of this process; the folder has a model."""
    monkeypatch.chdir(tmp_path)
    fix_times(monkeypatch.setattr)
    onnx.save(products(), "m.onnx")
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=2, processes=False, protocol="tcp://", dashboard_address=":0",
        resources={"processor": 1},
    ) as found:  # fmt: skip
        yield CompileOptions(scheduler=found.scheduler_address)


def test_an_interrupt_keeps_what_there_is(threads: CompileOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    def write(path: Path, records: Records) -> None:
        write_records(path, records)
        if any(records.values()):
            raise KeyboardInterrupt

    monkeypatch.setattr("torshc.workbench.tune.write_records", write)
    result = CliRunner().invoke(cli, ["tune", "m.onnx", "--scheduler", threads.scheduler], prog_name="torshc")
    assert 130 in (result.return_value, result.exit_code) and "what was measured by then is kept" in result.stderr
    assert "1 of 1 kernels are faster tuned" in result.stdout
    assert "measured by 1 worker; no time was left for 2" in result.stdout
    assert Path("m.tuning").read_text().count(" tile=2x1  # ") == 1


def test_files_of_options_and_weights_travel(threads: CompileOptions) -> None:
    """The worker has nothing but what is sent; a mistake in a file is told by the name that it has here."""
    onnx.save(products(), "split.onnx", save_as_external_data=True, location="weights.bin", size_threshold=0)
    Path("rules").mkdir()
    Path("rules/r.yaml").write_text("- name: small\n  fuse: {}\n")
    with pytest.raises(ConfigError) as caught:
        tune_model("split.onnx", dataclasses.replace(threads, rules=(Path("rules/r.yaml"),)), Path("r"), 60)
    with pytest.raises(ConfigError) as usual:
        tune_model("split.onnx", CompileOptions(rules=(Path("rules/r.yaml"),)), Path("r"), 60)
    assert caught.value.message == usual.value.message and "rules/r.yaml" in usual.value.message
    assert len(tune_model("split.onnx", threads, Path("r"), 300).tuned) == 3
    parcel = pack(Path("split.onnx"), CompileOptions(opt_level=1, rules=(Path("rules/r.yaml"),), shapes={"x": (7, 20)}))
    assert [*parcel.paths] == ["model/split.onnx", "model/weights.bin", "rules0/r.yaml"]
    assert json.loads(json.dumps(dict(parcel.options))) == {
        "opt_level": 1, "rules": ["rules0/r.yaml"], "shapes": {"x": [7, 20]},
    }  # fmt: skip
    unpack(parcel.files, Path("there"))
    for name, path in parcel.paths.items():
        assert (Path("there") / name).read_bytes() == path.read_bytes()


def test_a_parcel_stays_in_its_folder(tmp_path: Path) -> None:
    for name in ("../a", "/tmp/a", "b/../../a"):
        with pytest.raises(InternalError, match="is no name of a file in a parcel"):
            unpack(json.dumps([[name, 1]]).encode() + b"\nx", tmp_path / "in")
    assert not (tmp_path / "a").exists()


def test_what_cannot_be_measured_there_is_told(threads: CompileOptions) -> None:
    def tune(**more: Any) -> None:
        tune_model("m.onnx", dataclasses.replace(threads, **more), Path("r"), 60)

    with pytest.raises(ToolchainError, match="without --resources card=1") as told:
        tune(target="cuda")
    assert "--resources card=1" in told.value.remedy
    with pytest.raises(ToolchainError, match=r"can measure kernels for c\n  tcp://.*no such program"):
        tune(cc="no-compiler")
    with pytest.raises(ConfigError, match="--dump with --scheduler"):
        tune(dump=Path("d"))
    Path("m.onnx").write_bytes(b"\x08")
    with pytest.raises(ModelError, match=r"m\.onnx"):
        tune()
    assert not Path("r").exists()


def test_of_several_devices_this_machines_is_meant() -> None:
    own = describe_device(json.dumps({"target": "c"}).encode())
    options, other = CompileOptions(scheduler="tcp://h:1"), own.replace(b"x86-64", b"x86-65")
    answers = {"tcp://a:1": other, "tcp://b:1": own, "tcp://c:1": b"no compiler"}
    assert choose_device(options, answers, b'{"target": "c"}') == own
    assert choose_device(options, {"tcp://a:1": other, "tcp://c:1": b"no compiler"}, b'{"target": "c"}') == other
    with pytest.raises(ConfigError, match=r"several devices\n  tcp://a:1: c x86-65.*\n  tcp://b:1: c x86-66") as told:
        choose_device(options, {"tcp://a:1": other, "tcp://b:1": own.replace(b"x86-64", b"x86-66")}, b'{"target": "c"}')
    assert "--mcpu" in told.value.remedy
