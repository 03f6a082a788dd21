"""A model of Llama's layers, or that of a file, whole and cut into ranks, which this program starts as processes:
answers, times, and what the cost model says of them.

    python -m tests.speed.ranks --target c --ranks 1 2 4 8 --width 1024 --inner 2816 --layers 4 --rows 128
    python -m tests.speed.ranks --target cuda --nccl /absolute/libnccl.so.2 --ranks 2 --dtype f16 --kill
    python -m tests.speed.ranks --model gpt2.onnx --shard samples/ranks/gpt2.yaml --ranks 2 4 --mpi --kill
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

import torshc
from tests.speed.llama_model import Llama, read_model
from tests.support.models import save
from torshc.base.options import CompileOptions
from torshc.explain.data import explain
from torshc.explain.ranks import predicted_seconds, ranks_json
from torshc.pipeline.compiler import compile_model
from torshc.pipeline.ranks import compile_ranks
from torshc.sharding import machine_of

SPLIT = "tensors:\n  ranks: {ranks}\n  split:\n" + "".join(
    f'    - {{{{names: "*.{name}", axis: 1}}}}\n' for name in ("q", "k", "v", "gate", "up")
)
SECONDS = 15  # that ranks wait for each other
DTYPES: dict[str, Any] = {"f16": np.float16, "f32": np.float32, "i32": np.int32, "i64": np.int64}
BEFORE_DEATH = 3  # seconds that ranks run before one is killed


# ---- a rank, and the whole model ------------------------------------------------------------------------------------


def work(bundle: str, folder: Path, seconds: float, how: str) -> None:
    """Run a bundle again and again for some time; write its answer and its median time.

    Args:
        how: "kill" has it say when it is ready, and run until that fails.
    """
    if "kill" in how:
        faulthandler.dump_traceback_later(50, exit=True)
    loaded = torshc.load(bundle, threads=1 if "cpu" in how else None)
    rng = np.random.default_rng(2)
    feeds: dict[str, Any] = {}
    for spec in loaded.inputs:
        shape = tuple(map(int, spec.dims))
        drawn = rng.integers(0, 100, shape) if spec.dtype[0] == "i" else rng.standard_normal(shape, np.float32)
        feeds[spec.name] = drawn.astype(DTYPES[spec.dtype])
    out: dict[str, Any] | None = None
    if loaded.device != "cpu" and find_spec("torch"):
        import torch

        place = torch.device(loaded.device)
        feeds = {name: torch.from_numpy(x).to(place) for name, x in feeds.items()}
        kinds = {"f16": torch.float16, "f32": torch.float32}
        out = {s.name: torch.empty(tuple(map(int, s.dims)), dtype=kinds[s.dtype], device=place) for s in loaded.outputs}

    def run() -> Any:
        return next(iter((loaded.run(feeds, out=out) if out else loaded.run(feeds)).values()))

    y = run()
    print(f"rank {loaded.rank} of {loaded.ranks} on {loaded.device} ran", flush=True)
    if "kill" in how:
        run_until_failure(run, folder, loaded.rank)
    times = list[float]()
    count = 3
    while len(times) < count:  # equally many on every rank
        began = time.perf_counter()
        run()
        times.append(time.perf_counter() - began)
        if len(times) == 3 and count == 3:
            count = 3 + rounds(folder, times[-1], seconds, loaded.rank)
    if loaded.rank == 0:
        host = y.cpu().numpy() if hasattr(y, "cpu") else y
        np.save(folder / "y.npy", np.asarray(host, np.float32))
        found = {"median": statistics.median(times[3:]), "least": min(times[3:]), "runs": len(times) - 3}
        (folder / "times.json").write_text(json.dumps(found))
    loaded.close()


def run_until_failure(run: Callable[[], Any], folder: Path, rank: int) -> None:
    """Say that this rank is ready, and when and how its runs failed; then exit as a program that could not cope."""
    for _ in range(3):
        run()
    (folder / f"ready{rank}.new").write_text(str(os.getpid()))
    (folder / f"ready{rank}.new").rename(folder / f"ready{rank}")
    try:
        while True:
            run()
    except torshc.TorshcError as failed:
        (folder / f"failed{rank}").write_text(json.dumps([time.monotonic(), failed.message]))
        sys.exit(1)


def rounds(folder: Path, one: float, seconds: float, rank: int) -> int:
    """How many runs are measured: rank 0 says so in a file, as all have to make equally many."""
    said = folder / "rounds"
    if rank == 0:
        (folder / "rounds.new").write_text(str(max(5, min(2000, int(seconds / one)))))
        (folder / "rounds.new").rename(said)
    while not said.exists():
        time.sleep(0.001)
    return int(said.read_text())


def cores() -> list[int]:
    """A processor of each core that this process may use."""
    found: dict[str, int] = {}
    for cpu in sorted(os.sched_getaffinity(0)):
        siblings = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
        found.setdefault(siblings.read_text().strip() if siblings.exists() else str(cpu), cpu)
    return [*found.values()]


def start(bundle: Path, ranks: int, options: argparse.Namespace, how: str = "") -> dict[str, Any]:
    """Start the ranks of a bundle and wait for them."""
    with tempfile.TemporaryDirectory(dir=options.meet) as folder:
        common = {
            **os.environ,
            "TORSHC_NCCL": options.nccl,
            "TORSHC_RANKS_SECONDS": str(SECONDS),
            "NCCL_NVLS_ENABLE": "0",
        }
        how += " cpu" if options.target == "c" else ""
        command = [sys.executable, "-X", "faulthandler", "-m", "tests.speed.ranks", "--work", str(bundle), folder]
        command += [str(options.seconds), how]
        began = time.monotonic()
        places, alone = cores(), not (bundle / "rank0").exists()
        lines = [["taskset", "-c", str(places[r % len(places)]), *command] for r in range(ranks)]
        lines = [command] * ranks if options.target == "cuda" else lines
        if options.mpi and not alone:
            lines = [["mpirun", "--oversubscribe", "--allow-run-as-root", "-n", str(ranks), *command]]
        elif not alone:
            common |= {"TORSHC_WORLD": str(ranks), "TORSHC_MEET": folder}
        jobs = [
            subprocess.Popen(
                line, env=common if alone or options.mpi else {**common, "TORSHC_RANK": str(rank)},
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            )
            for rank, line in enumerate(lines)
        ]  # fmt: skip
        killed = kill_one(Path(folder), ranks, began + options.patience) if "kill" in how else None
        said = []
        for job in jobs:
            try:
                said.append(job.communicate(timeout=max(1, began + options.patience - time.monotonic()))[0])
            except subprocess.TimeoutExpired:
                job.kill()
                said.append(job.communicate()[0] + "\nit did not end")
        found: dict[str, Any] = {"codes": [job.returncode for job in jobs], "said": said}
        if killed is not None:
            found["killed"] = tell_death(Path(folder), killed, time.monotonic(), ranks)
        if (Path(folder) / "times.json").exists():
            found |= json.loads((Path(folder) / "times.json").read_text())
            found["y"] = np.load(Path(folder) / "y.npy")
        return found


def kill_one(folder: Path, ranks: int, end: float) -> float | None:
    """Kill the last rank some seconds after all were ready; when that was, or None where they never were."""
    ready = [folder / f"ready{rank}" for rank in range(ranks)]
    while not all(file.exists() for file in ready):
        if time.monotonic() > end:
            return None
        time.sleep(0.01)
    time.sleep(BEFORE_DEATH)
    os.kill(int(ready[-1].read_text()), signal.SIGKILL)
    return time.monotonic()


def tell_death(folder: Path, killed: float, ended: float, ranks: int) -> str:
    """What others said of a rank that was killed, and how long after that."""
    lines = [
        f"rank {ranks - 1} killed {BEFORE_DEATH} s after all were ready; the job's end {ended - killed:.2f} s later"
    ]
    for rank in range(ranks - 1):
        if (folder / f"failed{rank}").exists():
            at, message = json.loads((folder / f"failed{rank}").read_text())
            lines.append(f"  rank {rank} after {at - killed:.2f} s: {message[:300]}")
    return "\n".join(lines)


# ---- all of it ------------------------------------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what the arguments say."""
    if sys.argv[1:2] == ["--work"]:
        work(sys.argv[2], Path(sys.argv[3]), float(sys.argv[4]), sys.argv[5])
        return 0
    options = _parse(arguments)
    size = Llama(options.layers, options.width, options.inner, options.depth, options.rows, DTYPES[options.dtype])
    failed = 0
    with tempfile.TemporaryDirectory(dir=options.folder) as place:
        folder = options.keep or Path(place)
        began = time.monotonic()
        folder.mkdir(exist_ok=True)
        file = folder / "model.onnx"
        if not file.exists():
            save(read_model(options.model) if options.model else size.make(), file)
        common: dict[str, Any] = {"target": options.target, "threads": 1, "arch": options.arch}
        common["precision"] = options.precision
        made = _made(folder / "whole.json", lambda: _compile_whole(file, folder, common, options))
        name = options.model.name if options.model else size
        print(f"{name}: {made['megabytes']:.0f} MB, compiled in {time.monotonic() - began:.0f} s", flush=True)
        for ranks in options.ranks if options.prepare else ():
            _made(folder / f"{ranks}.json", partial(_compile_ranks, ranks, file, folder, options, common))
        if options.prepare:
            return 0
        whole = start(folder / "whole.tsc", 1, options) | made
        if _complain(whole):
            return 1
        print(
            f"whole: {whole['median'] * 1e3:.3f} ms, least {whole['least'] * 1e3:.3f}; "
            f"predicted {whole['predicted']:.3f} ms",
            flush=True,
        )
        for ranks in options.ranks:
            failed += _ranks(ranks, file, folder, whole, options, common)
    return int(failed > 0)


def _made(note: Path, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What was noted of a bundle that an earlier call compiled; else it is compiled, and noted."""
    if not note.exists():
        note.write_text(json.dumps(make()))
    return dict(json.loads(note.read_text()))


def _compile_whole(file: Path, folder: Path, common: dict[str, Any], options: argparse.Namespace) -> dict[str, Any]:
    """Megabytes of weights, and milliseconds by the cost model."""
    done = compile_model(file, folder / "whole.tsc", CompileOptions(**common))
    machine = machine_of(options.target == "cuda", options.precision)
    predicted = predicted_seconds(explain(done, {}), done, machine) * 1e3
    return {"megabytes": done.weights_bytes / 1e6, "predicted": predicted}


def _compile_ranks(
    ranks: int, file: Path, folder: Path, options: argparse.Namespace, common: dict[str, Any]
) -> dict[str, Any]:
    """Milliseconds by the cost model, and seconds that compiling took."""
    shard = folder / f"{ranks}.yaml"
    text = options.shard.read_text() if options.shard else SPLIT.format(ranks=ranks)
    shard.write_text(re.sub(r"\b(ranks|stages): \d+", rf"\g<1>: {ranks}", text))
    began = time.monotonic()
    asked = CompileOptions(shard=Path(f"auto:{ranks}") if options.auto else shard, **common)
    told = ranks_json(compile_ranks(file, folder / f"ranks{ranks}.tsc", asked), {})
    return {"predicted": _predict(told, text), "compiled": time.monotonic() - began}


def _ranks(
    ranks: int, file: Path, folder: Path, whole: dict[str, Any], options: argparse.Namespace, common: dict[str, Any]
) -> int:
    """Measure a number of ranks; 1 where they fail."""
    made = _made(folder / f"{ranks}.json", partial(_compile_ranks, ranks, file, folder, options, common))
    bundle, predicted = folder / f"ranks{ranks}.tsc", made["predicted"]
    found = start(bundle, ranks, options)
    if _complain(found):
        return 1
    error = float(np.abs(found["y"] - whole["y"]).max() / np.abs(whole["y"]).max())
    print(
        f"{ranks} ranks: {found['median'] * 1e3:.3f} ms, least {found['least'] * 1e3:.3f}, "
        f"{whole['median'] / found['median']:.2f} times the whole's speed; predicted {predicted:.3f} ms, "
        f"{whole['predicted'] / predicted:.2f} times; "
        f"error {error:.1e}; {found['runs']} runs, compiled in {made['compiled']:.0f} s",
        flush=True,
    )
    if options.kill and ranks > 1:
        found = start(bundle, ranks, options, "kill")
        print(found.get("killed") or found["said"], f"; exit codes {found['codes']}", sep="", flush=True)
    return 0


def _predict(told: dict[str, Any], shard: str) -> float:
    """Milliseconds of a run by the cost model, of ranks that work side by side or are stages of parts of a batch."""
    times: list[float] = [rank["predicted_ms"] for rank in told["ranks"]]
    exchanges: float = sum(e.get("predicted_ms", 0) for e in told["exchanges"])
    if "stages" not in shard:
        return max(times) + exchanges
    found = re.search(r"micro_batches: (\d+)", shard)
    if found is None:
        return sum(times) + exchanges
    parts = int(found[1])  # a link carries parts one after the other, while others carry and compute
    return max(times) * (len(times) + parts - 1) / parts + exchanges / max(1, len(times) - 1)


def _complain(found: dict[str, Any]) -> bool:
    """Print what failed, where something did."""
    if any(found["codes"]) or "median" not in found:
        for code, text in zip(found["codes"], found["said"], strict=True):
            print(f"exit code {code}: {text[-1500:]}", flush=True)
        return True
    return False


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", choices=["c", "cuda"], default="c")
    parser.add_argument("--model", type=Path, help="a file in place of Llama's layers; weights that it lacks are drawn")
    parser.add_argument("--shard", type=Path, help="how the model is cut, for any number of ranks or stages")
    parser.add_argument("--auto", action="store_true", help="cut it as the cost model chooses")
    parser.add_argument("--mpi", action="store_true", help="start ranks by mpirun")
    parser.add_argument("--precision", default="f32", help="as of compile")
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--dtype", choices=["f32", "f16"], default="f32")
    for name, usual in (("layers", 4), ("width", 1024), ("inner", 2816), ("depth", 64), ("rows", 128)):
        parser.add_argument(f"--{name}", type=int, default=usual)
    parser.add_argument("--seconds", type=float, default=3, help="of measuring, for each number of ranks")
    parser.add_argument("--patience", type=float, default=60, help="seconds that ranks may take in all")
    parser.add_argument("--nccl", default="", help="absolute path of libnccl.so.2")
    parser.add_argument("--arch", default="", help="of cards, as of compile")
    parser.add_argument("--kill", action="store_true", help="also see what happens when the last rank is killed")
    parser.add_argument("--folder", help="for models and bundles")
    parser.add_argument("--keep", type=Path, help="where models and bundles stay, for a later call")
    parser.add_argument("--prepare", action="store_true", help="stop before the measurement")
    parser.add_argument("--meet", default="/dev/shm", help="where ranks meet: a folder in memory")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
