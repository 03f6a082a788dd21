"""The same model gives the same bytes, wherever, by whomever and however parallel it is compiled."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import onnx
import pytest

from ..support.slow import SLOW
from ..support.zoo import zoo

ZOO = zoo()
NAMES = ("convolutions", "layer norm", "results over operands", "reductions", "lstm", "attention")
_RUN = """
import sys
import torshc
for name in sys.argv[3:]:
    torshc.compile(f"{name}.onnx", f"{name}.tsc", jobs=int(sys.argv[1]), cache=False, opt_level=int(sys.argv[2]))
"""
HOW: tuple[tuple[int, dict[str, str]], ...] = (
    (1, {"PYTHONHASHSEED": "1", "LC_ALL": "C", "TZ": "UTC"}),
    (2, {"PYTHONHASHSEED": "77", "LC_ALL": "tr_TR.UTF-8", "TZ": "Asia/Tokyo", "CFLAGS": "-O0", "HOME": "/nonexistent"}),
    (1, {"PYTHONHASHSEED": "3", "LANG": "de_DE.UTF-8", "TZ": "America/St_Johns", "COLUMNS": "40"}),
    (4, {"PYTHONHASHSEED": "random", "LC_NUMERIC": "de_DE.UTF-8", "PYTHONUTF8": "0", "OPENBLAS_NUM_THREADS": "1"}),
)


@lru_cache(maxsize=1)
def _another_user() -> list[str]:
    """How a command is run as a user of another number, with the rights of this one; empty where that cannot be."""
    prefix = ["unshare", "--user", "--map-user=12345"]
    works = shutil.which("unshare") and subprocess.run([*prefix, "true"], capture_output=True, check=False)
    return prefix if works and works.returncode == 0 else []


@pytest.mark.parametrize(
    ("level", "ways", "models"),
    [(3, 2, NAMES[:1]), pytest.param(0, len(HOW), NAMES, marks=SLOW), pytest.param(3, len(HOW), NAMES, marks=SLOW)],
    ids=["some", "all-O0", "all-O3"],
)
def test_compilations_are_equal(
    level: int, ways: int, models: tuple[str, ...], tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """In folders of different lengths, every second by another user."""
    found = []
    for k, (jobs, more) in enumerate(HOW[:ways]):
        folder = tmp_path / ("x" * 40 * k + "y")
        folder.mkdir()
        names = [n.replace(" ", "_") for n in models]
        for plain, name in zip(models, names, strict=True):
            onnx.save(ZOO[plain].model, folder / f"{name}.onnx")
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **more}
        user = _another_user() if k % 2 else []
        command = [*user, sys.executable, "-c", _RUN, str(jobs), str(level), *names]
        done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=600, check=False)
        assert done.returncode == 0, done.stderr[-3000:]
        found.append({str(p.relative_to(folder)): _sha256(p) for p in folder.rglob("*") if p.is_file()})
    assert sum(name.endswith("libmodel.so") for name in found[0]) == len(models)
    assert all(other == found[0] for other in found)
    record_property("rebuilds", ways * len(models))
    record_property("equal files", ways * len(found[0]))
    record_property("at most users", 1 + bool(_another_user()))


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
