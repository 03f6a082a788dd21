"""Sources compiled by workers of a Dask scheduler: equal bytes, lost workers, and what cannot be used, by name."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import distributed
import pytest

import torshc
from torshc.base.cache import Cache
from torshc.base.digest import file_sha256
from torshc.base.errors import ConfigError, ToolchainError
from torshc.base.options import CompileOptions
from torshc.bundle import cluster
from torshc.bundle.build import build_objects
from torshc.targets.cc import CCompiler, find_compiler

MODEL = Path(__file__).parents[2] / "samples/mlp.json"


@pytest.fixture(scope="module")
def workers() -> Iterator[Any]:
    """Two processes that compile one source at a time each."""
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=None, worker_dashboard_address=None
    ) as found:
        yield found


def test_the_library_has_the_bytes_of_one_machine(workers: Any, tmp_path: Path) -> None:
    scheduler = workers.scheduler_address
    for out, more in (("here", {}), ("there", {"scheduler": scheduler})):
        (tmp_path / out).mkdir()
        torshc.compile(MODEL, tmp_path / out / "mlp.tsc", cache=False, opt_level=1, **more)
    here, there = (file_sha256(tmp_path / out / "mlp.tsc/libmodel.so") for out in ("here", "there"))
    assert here == there
    with distributed.Client(scheduler, set_as_default=False) as client:
        done = client.run(lambda dask_worker: dask_worker.state.executed_count)
    assert sum(done.values()) > 5


def test_a_source_is_compiled_again_where_a_worker_died(workers: Any, tmp_path: Path) -> None:
    compiler = find_compiler()
    sources = {f"k{i}.c": f"int f{i}(int x) {{ return x * {i}; }}" for i in range(24)}
    killed = threading.Event()

    def kill_one(done: int, total: int, _: object) -> None:
        if done == 4:
            os.kill(next(iter(workers.workers.values())).process.pid, signal.SIGKILL)
            killed.set()

    with cluster.compile_on(CompileOptions(scheduler=workers.scheduler_address), compiler) as found:
        objects = build_objects(
            sources, {}, compiler, compiler.base_flags(), Cache(None), 1, tmp_path, kill_one, workers=found
        )
    assert killed.is_set() and len(objects) == 24
    local = build_objects(sources, {}, compiler, compiler.base_flags(), Cache(None), 1, tmp_path / "again")
    assert [(tmp_path / a.path).read_bytes() for a in objects] == [
        (tmp_path / "again" / b.path).read_bytes() for b in local
    ]


def test_errors_of_the_compiler_come_back(workers: Any, tmp_path: Path) -> None:
    compiler = find_compiler()
    with (
        cluster.compile_on(CompileOptions(scheduler=workers.scheduler_address), compiler) as found,
        pytest.raises(ToolchainError, match=r"compiling a\.c: .* failed") as caught,
    ):
        build_objects({"a.c": "int x = ;"}, {}, compiler, (), Cache(None), 1, tmp_path, workers=found)
    assert "expected expression" in caught.value.message


def test_other_compilers_and_no_scheduler_are_told(workers: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    found = find_compiler()
    other = CCompiler(found.name, found.command, "clang version 1.0 of another machine", kind=found.kind)
    with (
        pytest.raises(
            ToolchainError, match=r"no worker of tcp://\S+ compiles as this machine does.*version 1\.0"
        ) as told,
        cluster.compile_on(CompileOptions(scheduler=workers.scheduler_address), other),
    ):
        raise AssertionError
    assert told.value.message.count("\n  tcp://") == 2 and found.version in told.value.message
    monkeypatch.setattr(cluster, "_CONNECT_SECONDS", 1)
    with (
        pytest.raises(ConfigError, match="no Dask scheduler answers"),
        cluster.compile_on(CompileOptions(scheduler="tcp://127.0.0.1:9"), found),
    ):
        raise AssertionError
    with pytest.raises(ConfigError, match="is no address"):
        CompileOptions(scheduler="localhost; rm")


def test_a_worker_with_another_compiler_refuses_a_source() -> None:
    compiler = find_compiler()
    place = {"target": "c", "cc": compiler.name, "triple": "", "arch": ""}
    asked = {"place": place, "compiler": ["other"], "name": "a.c", "text": "int x;", "flags": [], "seconds": 60}
    assert cluster.compile_source(json.dumps(asked).encode(), b"{}")[:1] == b"d"
    asked["compiler"] = list(cluster.fingerprint(compiler))
    assert cluster.compile_source(json.dumps(asked).encode(), b"{}")[:5] == b"o\x7fELF"
    asked["name"] = "../a.c"
    with pytest.raises(torshc.TorshcError, match="not a plain file name"):
        raise cluster_error(cluster.compile_source(json.dumps(asked).encode(), b"{}"))


def cluster_error(reply: bytes) -> torshc.TorshcError:
    """The error in a worker's reply."""
    message, remedy = json.loads(reply[1:])
    return ToolchainError(message, remedy)
