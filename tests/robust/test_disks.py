"""Disks that fail: each call to the system that a compilation makes, and disks of all sizes that are too small."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import numpy as np
import onnx
import pytest

import torshc

from ..support import compilers
from ..support.models import model, node
from ..support.slow import SLOW

HERE = Path(__file__).parent
Record = Callable[[str, object], None]
# Compiles in a child for each call that fails, and prints what became of it.
DRIVER = """
import ctypes, json, os, shutil, sys, tempfile
from pathlib import Path
import torshc.pipeline.compiler, torshc.cli.compile
from torshc.cli import main
faults = ctypes.CDLL(None)
place, code, lasting, step = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
out, messages = place / "m.tsc", place.with_name("messages")

def compile(at):
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    said = os.open(messages, os.O_CREAT | os.O_TRUNC | os.O_WRONLY)
    os.dup2(said, 2)
    tempfile.tempdir = None
    faults.fault_arm(os.fsencode(place), ctypes.c_long(at), code, lasting)
    sys.argv = ["torshc", "compile", str(place.with_name("m.onnx")), "-o", str(out), "--json"]
    try:
        main()
    finally:
        Path(place.with_name("count")).write_text(str(faults.fault_count()))

def left():
    return sorted(p.name for folder in (place, place / "temporary") for p in folder.iterdir())

assert compile(-1) == 0, messages.read_text()
total, before = int(place.with_name("count").read_text()), left()
for at in range(0, total, step):
    shutil.rmtree(place / "cache")
    (place / "cache").mkdir(0o700)
    status = compile(at)
    print(json.dumps([at, status, messages.read_text(), left() == before, left()]), flush=True)  # before the next fork
print(json.dumps(total))
"""
# What fails for good: a full disk and a read-only one. Files are free again when a failure has closed them. Nothing can
# be removed from a disk that fails for good; the next compilation does.
FAULTS = [
    (errno.ENOSPC, True),
    (errno.EIO, False),
    (errno.EROFS, True),
    (errno.EMFILE, False),
    (errno.ENOSPC, False),
    (errno.EIO, True),
]


def small() -> onnx.ModelProto:
    weights = {"w": np.linspace(-1, 1, 4096, dtype=np.float32)}
    return model([node("Mul", "x w", "a"), node("Tanh", "a", "y")], {"x": [4096]}, ["y"], weights)


@lru_cache(maxsize=1)
def shim() -> Path:
    return compilers.program([compilers.needed().cc, "-std=gnu11", "-O1", "-shared", "-fPIC"], [HERE / "faults.c"])


def environment(place: Path) -> dict[str, str]:
    (place / "temporary").mkdir(parents=True)
    (place / "cache").mkdir(0o700)
    paths = {"TMPDIR": str(place / "temporary"), "TORSHC_CACHE_DIR": str(place / "cache")}
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONDONTWRITEBYTECODE": "1", **paths}


def slowly(fault: tuple[int, bool]) -> object:
    """Some calls of one fault by default, every eighth of all faults among the slow tests."""
    name = f"{errno.errorcode[fault[0]]} {'from there on' if fault[1] else 'once'}"
    return pytest.param(*fault, 8, marks=SLOW, id=name)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="preloads a library as Linux does")
@pytest.mark.parametrize(("code", "lasting", "step"), [(*FAULTS[0], 100), *map(slowly, FAULTS)])
def test_each_call_that_can_fail(code: int, lasting: bool, step: int, tmp_path: Path, record_property: Record) -> None:
    """The cause is named, the old bundle stands, nothing else is left; or the call was not needed and all is well."""
    onnx.save(small(), tmp_path / "m.onnx")
    place = tmp_path / "disk"
    env = environment(place)
    command = [sys.executable, "-c", DRIVER, str(place), str(code), str(int(lasting)), str(step)]
    preload = {"LD_PRELOAD": str(shim())}
    done = subprocess.run(command, env=env | preload, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    *tries, total = map(json.loads, (line for line in done.stdout.splitlines() if line[0] in "[0123456789"))
    assert len(tries) == len(range(0, total, step)) > 1
    stays = (code, lasting) == FAULTS[-1]
    bad = [t for t in tries if not (t[3] or stays) or (t[1] and (t[1] == 70 or os.strerror(code) not in t[2]))]
    assert not bad, "\n".join(f"call {at}: exit {s}, left {names}\n{text}" for at, s, text, _, names in bad)
    assert any(t[1] for t in tries)
    with torshc.load(place / "m.tsc") as made:
        made.run({"x": np.zeros(4096, np.float32)})
    again = [sys.executable, "-m", "torshc", "compile", str(tmp_path / "m.onnx"), "-o", str(place / "m.tsc")]
    assert subprocess.run(again, env=env, check=False).returncode == 0
    assert sorted(p.name for p in place.iterdir()) == ["cache", "m.tsc", "temporary"]
    assert not any((place / "temporary").iterdir())
    record_property("failing calls", len(tries))


# Arguments: a size, a folder, a command, which finds a disk of that size there; lists what is left on it.
SMALL_DISK = """
size=$1; disk=$2; shift 2
mount -t tmpfs -o "size=$size,mode=0700" tmpfs "$disk"
"$@"; status=$?
ls -A "$disk"; exit $status
"""


def usable_disks() -> bool:
    """Whether this process may have a disk of its own."""
    command = ["unshare", "-rm", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    return bool(shutil.which("unshare")) and subprocess.run(command, capture_output=True, check=False).returncode == 0


@SLOW
@pytest.mark.parametrize("full", ["m.tsc", "cache", "temporary"])
def test_disks_that_are_too_small(full: str, tmp_path: Path, record_property: Record) -> None:
    """Of 4 KiB, 8 KiB and so on to 1 MiB: the bundle's, the cache's and the temporary files'."""
    if not usable_disks():
        pytest.skip("needs a file system of its own (unshare, mount)")
    onnx.save(small(), tmp_path / "m.onnx")
    place = tmp_path / "disk"
    env = environment(place)
    disk = place / "out" if full == "m.tsc" else place / full
    (place / "out").mkdir()
    outcomes = []
    for kib in [4 << n for n in range(9)]:
        shutil.rmtree(place / "cache")
        (place / "cache").mkdir(0o700)
        command = ["unshare", "-rm", "sh", "-c", SMALL_DISK, "-", f"{kib}k", str(disk)]
        command += [
            sys.executable,
            "-m",
            "torshc",
            "compile",
            str(tmp_path / "m.onnx"),
            "-o",
            str(place / "out" / "m.tsc"),
        ]
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120, check=False)
        left = [
            line
            for line in done.stdout.splitlines()
            if line in ("m.tsc", "objects-1") or line.startswith((".", "torshc"))
        ]
        outcomes.append((done.returncode, "No space left on device" in done.stderr))
        if full != "cache":
            assert left == (["m.tsc"] if full == "m.tsc" and not done.returncode else []), (kib, left, done.stderr)
        assert done.returncode != 70 and "Traceback" not in done.stderr, done.stderr
        assert done.returncode == 0 or outcomes[-1][1], (kib, done.stderr)
        shutil.rmtree(place / "out" / "m.tsc", ignore_errors=True)
    assert outcomes[0][1] and outcomes[-1] == (0, False), outcomes
    record_property("full disks", sum(said for _, said in outcomes))
