"""Damaged models: each is compiled or refused, within bounds of time and memory, never by a traceback or a signal."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.slow import SLOW

COUNT = 100  # a seed; two seeds
SECONDS, MEMORY = 10, 1 << 30

_RUN = """
import resource, sys, time, warnings
warnings.simplefilter("ignore")
seed, count, seconds, memory = map(int, sys.argv[1:5])
import torshc
from torshc.compiler import prepare
from torshc.errors import InternalError, TorshcError
from torshc.options import CompileOptions
from tests.support.mutate import mutants
made = list(mutants(count, seed))
resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
bad = 0
for name, data in made:
    print(name, file=sys.stderr, flush=True)
    open("m.onnx", "wb").write(data)
    began = time.process_time()
    try:
        prepare("m.onnx", CompileOptions(opt_level=3))
        said = "compiled"
    except TorshcError as error:
        said = f"{type(error).__name__} {error}"
        if isinstance(error, InternalError) or not str(error).strip():
            print(f"BAD {name}: {said}\\n{error.__cause__!r}")
            bad += 1
            open(f"bad{bad}.onnx", "wb").write(data)
    except BaseException as error:
        import traceback
        place = traceback.extract_tb(error.__traceback__)[-1]
        print(f"BAD {name}: {type(error).__name__}: {str(error)[:300]} at {place.filename}:{place.lineno}")
        bad += 1
        open(f"bad{bad}.onnx", "wb").write(data)
    if time.process_time() - began > seconds:
        print(f"BAD {name}: took {time.process_time() - began:.1f} s")
        bad += 1
sys.exit(bad > 0)
"""


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=SLOW)])
def test_damaged_models(seed: int, tmp_path: Path) -> None:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([*sys.path, str(Path(__file__).parents[2])])}
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", _RUN, str(seed), str(COUNT), str(SECONDS), str(MEMORY)],
        cwd=tmp_path, env=env, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout[-4000:]}\n{done.stderr[-2000:]}"
