"""Whole compilations in processes of their own: killed at random moments, and many at once on one empty cache."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

import torshc
from torshc.base.digest import file_sha256

from ..support.slow import SLOW
from ..support.zoo import zoo

ZOO = zoo()
MODELS = ("convolutions", "lstm", "attention", "reductions", "gemm", "softmax", "views", "layer norm")
PROCESSES = 16
Record = Callable[[str, object], None]


def compiling(name: str, out: Path, cache: Path, *more: str) -> subprocess.Popen[str]:
    """A process, leader of its own group, that compiles the model beside ``out``."""
    temporary = out.parent / "temporary"
    temporary.mkdir(exist_ok=True)
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "TORSHC_CACHE_DIR": str(cache),
        "TMPDIR": str(temporary),
        "OPENBLAS_NUM_THREADS": "1",
    }
    command = [sys.executable, "-m", "torshc", "compile", str(out.parent / f"{name}.onnx"), "-o", str(out), *more]
    nothing, pipe = subprocess.DEVNULL, subprocess.PIPE
    return subprocess.Popen(command, env=env, text=True, start_new_session=True, stdout=nothing, stderr=pipe)


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    _, messages = process.communicate(timeout=600)
    return process.returncode, messages


@pytest.mark.parametrize("kills", [1, pytest.param(40, marks=SLOW)])
def test_killed_at_random_moments(kills: int, tmp_path: Path, record_property: Record) -> None:
    """With its compilers, or alone. The old bundle is whole, or the new one; the next leaves nothing else."""
    specimen, rng = ZOO["softmax"], random.Random(kills)
    feeds = specimen.feeds(0)
    onnx.save(specimen.model, tmp_path / "m.onnx")
    began = time.monotonic()
    assert ended(compiling("m", tmp_path / "m.tsc", tmp_path / "cache0", "-O0"))[0] == 0
    seconds = time.monotonic() - began
    hashes = {file_sha256(tmp_path / "m.tsc" / "libmodel.so")}
    assert ended(compiling("m", tmp_path / "other.tsc", tmp_path / "cache0", "--prefix", "my_m"))[0] == 0
    hashes.add(file_sha256(tmp_path / "other.tsc" / "libmodel.so"))
    killed = 0
    while killed < kills:
        process = compiling("m", tmp_path / "m.tsc", tmp_path / f"cache{killed}", *(["-O0"] if killed % 4 else []))
        time.sleep(rng.uniform(0.2, 1) * seconds)
        (os.killpg if rng.random() < 0.5 else os.kill)(process.pid, signal.SIGKILL)
        status, messages = ended(process)
        assert status in (0, -signal.SIGKILL), messages
        seconds = seconds if status else seconds * 0.95  # it was done before
        killed += status != 0
        assert file_sha256(tmp_path / "m.tsc" / "libmodel.so") in hashes
        with torshc.load(tmp_path / "m.tsc") as model:
            assert np.isfinite(next(iter(model.run(feeds).values()))).all()
    assert ended(compiling("m", tmp_path / "m.tsc", tmp_path / "cache0"))[0] == 0
    places = [*tmp_path.iterdir(), *(tmp_path / "temporary").iterdir()]
    left = [p.name for p in places if not p.name.startswith(("cache", "temporary"))]
    assert sorted(left) == ["m.onnx", "m.tsc", "other.tsc"]
    record_property("kills at random moments", killed)


@SLOW
def test_sixteen_compilations_on_a_cold_cache(tmp_path: Path, record_property: Record) -> None:
    """Each model is compiled by two at once."""
    names = [name.replace(" ", "_") for name in MODELS]
    for plain, name in zip(MODELS, names, strict=True):
        onnx.save(ZOO[plain].model, tmp_path / f"{name}.onnx")
    running = [
        compiling(names[n % len(names)], tmp_path / f"{n}.tsc", tmp_path / "cache", "--prefix", "my")
        for n in range(PROCESSES)
    ]
    for process in running:
        status, messages = ended(process)
        assert status == 0 and "warning" not in messages, messages
    hashes = [file_sha256(tmp_path / f"{n}.tsc" / "libmodel.so") for n in range(PROCESSES)]
    assert hashes[: len(names)] * 2 == hashes and len(set(hashes)) == len(names)
    assert not list(tmp_path.rglob("*.tmp"))
    for what, value in (("processes", PROCESSES), ("models", len(names)), ("different libraries", len(set(hashes)))):
        record_property(what, value)
