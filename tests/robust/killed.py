"""Kills a process that trains, again and again: ``python -m tests.robust.killed --count 50 --seed 0``.

The process makes steps of the digits CNN with Adam, saves its states after each into one file, and is killed by SIGKILL
at a random moment; the next goes on from the file. After each kill the file has to be the one that a training which
nobody killed saved at that step, byte by byte, and of the last step that the process told of or of the one after it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import torshc

_ROOT = Path(__file__).resolve().parents[2]
_SAMPLES = _ROOT / "samples"
_FIRST = "torshc.step"
_LONGEST = 0.03  # seconds that a process goes on after its first save
_CHILD = "from tests.robust.killed import go_on; go_on()"


def main() -> None:
    parser = argparse.ArgumentParser(description="kill a process that trains, and look at the file of its states")
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="torshc-killed-") as folder:
        bundle = Path(folder) / "digits.tsc"
        torshc.compile(_SAMPLES / "digits.onnx", bundle, train=_SAMPLES / "train_digits.yaml")
        steps, old, left = kill(bundle, Path(folder), options.count, options.seed)
    print(f"{options.count} kills within {steps} steps: each file is that of a training which was not killed")
    print(f"{old} of the last step told of, {options.count - old} of the one after it")
    print(f"{left} kills left an unfinished file beside it")


def kill(bundle: Path, folder: Path, count: int, seed: int) -> tuple[int, int, int]:
    """Kills so many processes that train a bundle of the digits.

    Returns:
        The steps that they made together, how often the file was that of the last step that a process told of, and how
        often a file was left that was not finished.

    Raises:
        AssertionError: a file is neither the old nor the new one, or training went on otherwise.
    """
    rng, file, old, left = random.Random(seed), folder / "state", 0, 0
    (folder / "whole").mkdir()
    undisturbed = _digests(bundle, folder / "whole" / "state")
    step, right = 0, ""
    for k in range(count):
        told = _run_and_kill(bundle, file, rng.uniform(0, _LONGEST))
        data = file.read_bytes()
        reached = _step_of(data)
        assert told <= reached <= told + 1, f"kill {k}: the file is of step {reached}, the last told of is {told}"
        while step < reached:
            step, right = next(undisturbed)
        assert hashlib.sha256(data).hexdigest() == right, f"kill {k}: step {reached} has other bits"
        unfinished = [p for p in folder.iterdir() if p.suffix == ".partial"]
        old, left = old + (reached == told), left + bool(unfinished)
        for p in unfinished:
            p.unlink()
    return step, old, left


def go_on() -> None:
    """Trains the bundle that the first argument names from the file that the second names, if it is there."""
    bundle, file = map(Path, sys.argv[1:])
    for step in _trained(bundle, file):
        print(step, flush=True)


def _digests(bundle: Path, file: Path) -> Iterator[tuple[int, str]]:
    """The number of each step and the digest of the file that it saved."""
    for step in _trained(bundle, file):
        yield step, hashlib.sha256(file.read_bytes()).hexdigest()


def _trained(bundle: Path, file: Path) -> Iterator[int]:
    """The number of each step, when its states are saved; batches depend on it."""
    digits: Mapping[str, Any] = np.load(_SAMPLES / "digits_train.npz")
    images, labels = (np.asarray(a) for a in digits.values())
    model = torshc.load(bundle, verify=False)
    if file.exists():
        model.load_state(file)
    step = int(model.state_dict()[_FIRST])
    while True:
        rows = np.arange(32 * step, 32 * (step + 1)) % len(labels)
        model.step({"image": images[rows], "target": labels[rows]})
        model.save_state(file)
        step += 1
        yield step


def _run_and_kill(bundle: Path, file: Path, seconds: float) -> int:
    """The last step that a process told of before it was killed."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(_ROOT), *filter(None, sys.path)])}
    child = subprocess.Popen(
        [sys.executable, "-c", _CHILD, str(bundle), str(file)], stdout=subprocess.PIPE, text=True, env=env
    )
    assert child.stdout is not None
    told = child.stdout.readline()
    time.sleep(seconds)
    child.send_signal(signal.SIGKILL)
    lines = [told, *child.stdout.readlines()]
    child.wait()
    child.stdout.close()
    assert child.returncode == -signal.SIGKILL, f"the process ended by itself with {child.returncode}"
    return int(lines[-1])


def _step_of(data: bytes) -> int:
    """What a file of states says of the number of updates."""
    (length,) = struct.unpack("<Q", data[:8])
    low, high = json.loads(data[8 : 8 + length])[_FIRST]["data_offsets"]
    return int(np.frombuffer(data[8 + length + low : 8 + length + high], np.int64)[0])


if __name__ == "__main__":
    main()
