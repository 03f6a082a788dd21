"""The same model gives the same bytes, wherever, by whomever and however parallel it is compiled."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import onnx
import pytest

from ..support.slow import SLOW
from ..support.zoo import zoo

ZOO = zoo()
NAMES = ("convolutions", "layer norm", "reductions", "lstm", "attention", "results over operands")
_RUN = """
import sys
import torshc
for name in sys.argv[3:]:
    torshc.compile(f"{name}.onnx", f"{name}.tsc", jobs=int(sys.argv[1]), cache=False, opt_level=int(sys.argv[2]))
"""
HOW: tuple[tuple[int, dict[str, str]], ...] = (
    (1, {"PYTHONHASHSEED": "1", "LC_ALL": "C", "TZ": "UTC"}),
    (2, {"PYTHONHASHSEED": "77", "LC_ALL": "tr_TR.UTF-8", "TZ": "Asia/Tokyo", "CFLAGS": "-O0", "HOME": "/nonexistent"}),
)


@pytest.mark.parametrize("level", [pytest.param(0, marks=SLOW), 3])
def test_two_compilations_are_equal(level: int, tmp_path: Path) -> None:
    found = []
    for k, (jobs, more) in enumerate(HOW):
        folder = tmp_path / ("a" if k else "a much longer name of a folder")
        folder.mkdir()
        names = [n.replace(" ", "_") for n in NAMES]
        for plain, name in zip(NAMES, names, strict=True):
            onnx.save(ZOO[plain].model, folder / f"{name}.onnx")
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **more}
        command = [sys.executable, "-c", _RUN, str(jobs), str(level), *names]
        done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=600, check=False)
        assert done.returncode == 0, done.stderr[-3000:]
        found.append({str(p.relative_to(folder)): _sha256(p) for p in folder.rglob("*") if p.is_file()})
    assert sum(name.endswith("libmodel.so") for name in found[0]) == len(NAMES)
    assert found[0] == found[1]


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
