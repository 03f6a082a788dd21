"""samples/cmake: two models in one program with four threads, and a second build that does nothing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.compilers import Host, hosts

SAMPLE = Path(__file__).resolve().parents[2] / "samples" / "cmake"
pytestmark = pytest.mark.skipif(shutil.which("cmake") is None, reason="needs cmake")


def run(*command: str | Path, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False, timeout=300, env=env)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def host(kind: str) -> Host:
    found = next((h for h in hosts() if h.kind == kind and h.cxx), None)
    if found is None:
        pytest.skip(f"needs {kind} for C++")
    return found


@pytest.mark.parametrize(
    ("kind", "generator", "static", "nothing"),
    [("gcc", "Ninja", "OFF", "no work to do"), ("clang", "Unix Makefiles", "ON", "Built target server")],
)
def test_the_server(kind: str, generator: str, static: str, nothing: str, tmp_path: Path) -> None:
    if shutil.which({"Ninja": "ninja"}.get(generator, "make")) is None:
        pytest.skip(f"needs what builds {generator}")
    compiler = host(kind)
    torshc = tmp_path / "torshc"
    torshc.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m torshc "$@"\n')
    torshc.chmod(0o755)
    shutil.copytree(SAMPLE.parent, tmp_path / "samples", ignore=shutil.ignore_patterns("build"))
    build, env = tmp_path / "build", {**os.environ, "TORSHC_CC": compiler.cc}
    settings = (f"-DTORSHC={torshc}", f"-DCMAKE_CXX_COMPILER={compiler.cxx}", f"-DSTATIC={static}")
    run("cmake", "-S", tmp_path / "samples" / "cmake", "-B", build, "-G", generator, *settings, env=env)
    assert "Compiling the model digits" in run("cmake", "--build", build, env=env)
    again = run("cmake", "--build", build, env=env)
    assert nothing in again and "Compiling" not in again and "Linking" not in again and "Building" not in again
    assert "1000 requests to 2 models by 4 threads, 0 wrong answers" in run(build / "server")

    model = tmp_path / "samples" / "mlp.json"
    later = time.time() + 100
    os.utime(model, (later, later))
    text = run("cmake", "--build", build, env=env)
    assert "Compiling the model flowers" in text and "Compiling the model digits" not in text
