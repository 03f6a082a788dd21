"""A model of Llama's layers, whole and cut into ranks, which this program starts as processes: answers, times, and
what the cost model says of them.

    python -m tests.speed.ranks --target c --ranks 1 2 4 8 --width 1024 --inner 2816 --layers 4 --rows 128
    python -m tests.speed.ranks --target cuda --nccl /absolute/libnccl.so.2 --ranks 2 --dtype f16 --kill
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import torshc
from tests.support.models import model, node, save
from torshc.base.options import CompileOptions
from torshc.explain.ranks import ranks_json
from torshc.pipeline.compiler import compile_model
from torshc.pipeline.ranks import compile_ranks

SPLIT = "tensors:\n  ranks: {ranks}\n  split:\n" + "".join(
    f'    - {{{{names: "*.{name}", axis: 1}}}}\n' for name in ("q", "k", "v", "gate", "up")
)
SECONDS = 15  # that ranks wait for each other


@dataclass(frozen=True)
class Llama:
    """Sizes of a model: its layers, their width within and between them, and the width of a head."""

    layers: int
    width: int
    inner: int
    depth: int
    rows: int
    dtype: Any

    @property
    def heads(self) -> int:
        """How many there are."""
        return self.width // self.depth

    def make(self) -> onnx.ModelProto:
        """The model: what comes out of its layers for a sequence of vectors, each of which sees those before it."""
        rng = np.random.default_rng(1)

        def weight(rows: int, columns: int) -> Any:
            return (rng.standard_normal((rows, columns), np.float32) / rows**0.5).astype(self.dtype)

        shapes = dict.fromkeys("qkvo", (self.width, self.width))
        shapes |= {"gate": (self.width, self.inner), "up": (self.width, self.inner), "down": (self.inner, self.width)}
        drawn = {name: weight(*shape) for name, shape in shapes.items()}
        angles = np.outer(np.arange(self.rows), 10000.0 ** (-np.arange(self.depth // 2) / (self.depth // 2)))
        constants: dict[str, Any] = {
            "heads": np.array([0, 0, self.heads, self.depth]), "together": np.array([0, 0, self.width]),
            "cos": np.cos(np.hstack([angles, angles])).astype(self.dtype),
            "sin": np.sin(np.hstack([angles, angles])).astype(self.dtype),
            "mask": np.triu(np.full((self.rows, self.rows), -10000.0), 1).astype(self.dtype),
            "factor": np.array(self.depth**-0.5, self.dtype), "scale": np.ones(self.width, self.dtype),
            "zero": np.array([0]), "half": np.array([self.depth // 2]), "all": np.array([self.depth]),
            "last": np.array([3]),
        }  # fmt: skip
        nodes, x = [], "x"
        for k in range(self.layers):
            constants |= {f"{k}.{n}": np.roll(w, 7919 * k, axis=1) for n, w in drawn.items()}  # no two are equal
            nodes += self._layer(k, x)
            x = f"y{k}" if k < self.layers - 1 else "y"
        shape = (1, self.rows, self.width)
        return model(nodes, {"x": (self.dtype, shape)}, ["y"], constants, opset=23)

    def _layer(self, k: int, x: str) -> list[onnx.NodeProto]:
        y = f"y{k}" if k < self.layers - 1 else "y"
        lines = [node("RMSNormalization", f"{x} scale", f"n{k}", axis=-1)]
        for n in "qkv":
            lines += [node("MatMul", f"n{k} {k}.{n}", f"{n}a{k}"), node("Reshape", f"{n}a{k} heads", f"{n}b{k}"),
                      node("Transpose", f"{n}b{k}", f"{n}c{k}", perm=[0, 2, 1, 3])]  # fmt: skip
        for n in "qk":
            c = f"{n}c{k}"
            lines += [
                node("Slice", f"{c} half all last", f"{n}d{k}"), node("Neg", f"{n}d{k}", f"{n}e{k}"),
                node("Slice", f"{c} zero half last", f"{n}f{k}"),
                node("Concat", f"{n}e{k} {n}f{k}", f"{n}g{k}", axis=3),
                node("Mul", f"{c} cos", f"{n}h{k}"), node("Mul", f"{n}g{k} sin", f"{n}i{k}"),
                node("Add", f"{n}h{k} {n}i{k}", f"{n}j{k}"),
            ]  # fmt: skip
        return [
            *lines,
            node("Transpose", f"kj{k}", f"kt{k}", perm=[0, 1, 3, 2]), node("MatMul", f"qj{k} kt{k}", f"s{k}"),
            node("Mul", f"s{k} factor", f"t{k}"), node("Add", f"t{k} mask", f"u{k}"),
            node("Softmax", f"u{k}", f"p{k}", axis=-1), node("MatMul", f"p{k} vc{k}", f"m{k}"),
            node("Transpose", f"m{k}", f"ma{k}", perm=[0, 2, 1, 3]), node("Reshape", f"ma{k} together", f"mb{k}"),
            node("MatMul", f"mb{k} {k}.o", f"o{k}"), node("Add", f"o{k} {x}", f"r{k}"),
            node("RMSNormalization", f"r{k} scale", f"rn{k}", axis=-1),
            node("MatMul", f"rn{k} {k}.gate", f"g{k}"), node("MatMul", f"rn{k} {k}.up", f"w{k}"),
            node("Sigmoid", f"g{k}", f"ga{k}"), node("Mul", f"g{k} ga{k}", f"gb{k}"),
            node("Mul", f"gb{k} w{k}", f"gc{k}"), node("MatMul", f"gc{k} {k}.down", f"d{k}"),
            node("Add", f"d{k} r{k}", y),
        ]  # fmt: skip


# ---- a rank, and the whole model ------------------------------------------------------------------------------------


def work(bundle: str, folder: Path, seconds: float, how: str) -> None:
    """Run a bundle again and again for some time; write its answer and its median time.

    Args:
        how: "kill" has rank 1 end by itself after the first run.
    """
    if "kill" in how:
        faulthandler.dump_traceback_later(40, exit=True)
    loaded = torshc.load(bundle, threads=1 if "cpu" in how else None)
    (spec,) = loaded.inputs
    x = (
        np.random.default_rng(2)
        .standard_normal(tuple(map(int, spec.dims)), np.float32)
        .astype({"f16": np.float16, "f32": np.float32}[spec.dtype])
    )
    feeds, out = {"x": x}, None
    if loaded.device != "cpu" and find_spec("torch"):
        import torch

        place = torch.device(loaded.device)
        feeds = {"x": torch.from_numpy(x).to(place)}
        out = {"y": torch.empty_like(feeds["x"])}
    y = loaded.run(feeds, out=out)["y"] if out else loaded.run(feeds)["y"]
    print(f"rank {loaded.rank} of {loaded.ranks} on {loaded.device} ran", flush=True)
    if "kill" in how and loaded.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    times = list[float]()
    count = 3
    while len(times) < count:  # equally many on every rank
        began = time.perf_counter()
        loaded.run(feeds, out=out) if out else loaded.run(feeds)
        times.append(time.perf_counter() - began)
        if len(times) == 3 and count == 3:
            count = 3 + rounds(folder, times[-1], seconds, loaded.rank)
    if loaded.rank == 0:
        host = y.cpu().numpy() if hasattr(y, "cpu") else y
        np.save(folder / "y.npy", np.asarray(host, np.float32))
        found = {"median": statistics.median(times[3:]), "least": min(times[3:]), "runs": len(times) - 3}
        (folder / "times.json").write_text(json.dumps(found))
    loaded.close()


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
        common = {**os.environ, "TORSHC_WORLD": str(ranks), "TORSHC_MEET": folder, "TORSHC_NCCL": options.nccl}
        common |= {"TORSHC_RANKS_SECONDS": str(SECONDS), "NCCL_NVLS_ENABLE": "0"}
        how += " cpu" if options.target == "c" else ""
        command = [sys.executable, "-X", "faulthandler", "-m", "tests.speed.ranks", "--work", str(bundle), folder]
        command += [str(options.seconds), how]
        began = time.monotonic()
        places, alone = cores(), not (bundle / "rank0").exists()
        jobs = [
            subprocess.Popen(
                command if options.target == "cuda" else ["taskset", "-c", str(places[rank % len(places)]), *command],
                env=common if alone else {**common, "TORSHC_RANK": str(rank)},
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            )
            for rank in range(ranks)
        ]  # fmt: skip
        said = []
        for job in jobs:
            try:
                said.append(job.communicate(timeout=max(1, began + options.patience - time.monotonic()))[0])
            except subprocess.TimeoutExpired:
                job.kill()
                said.append(job.communicate()[0] + "\nit did not end")
        found: dict[str, Any] = {"codes": [job.returncode for job in jobs], "said": said}
        found["took"] = time.monotonic() - began
        if (Path(folder) / "times.json").exists():
            found |= json.loads((Path(folder) / "times.json").read_text())
            found["y"] = np.load(Path(folder) / "y.npy")
        return found


# ---- all of it ------------------------------------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what the arguments say."""
    if sys.argv[1:2] == ["--work"]:
        work(sys.argv[2], Path(sys.argv[3]), float(sys.argv[4]), sys.argv[5])
        return 0
    options = _parse(arguments)
    dtype = {"f32": np.float32, "f16": np.float16}[options.dtype]
    size = Llama(options.layers, options.width, options.inner, options.depth, options.rows, dtype)
    failed = 0
    with tempfile.TemporaryDirectory(dir=options.folder) as place:
        folder = Path(place)
        began = time.monotonic()
        file = save(size.make(), folder / "llama.onnx")
        common: dict[str, Any] = {"target": options.target, "threads": 1, "arch": options.arch}
        done = compile_model(file, folder / "whole.tsc", CompileOptions(**common))
        print(f"{size}: {done.weights_bytes / 1e6:.0f} MB, compiled in {time.monotonic() - began:.0f} s", flush=True)
        whole = start(folder / "whole.tsc", 1, options)
        _complain(whole)
        print(f"whole: {whole['median'] * 1e3:.3f} ms, least {whole['least'] * 1e3:.3f}", flush=True)
        for ranks in options.ranks:
            failed += _ranks(ranks, file, folder, whole, options, common)
    return int(failed > 0)


def _ranks(
    ranks: int, file: Path, folder: Path, whole: dict[str, Any], options: argparse.Namespace, common: dict[str, Any]
) -> int:
    """Measure a number of ranks; 1 where they fail."""
    shard, bundle = folder / f"{ranks}.yaml", folder / f"ranks{ranks}.tsc"
    shard.write_text(SPLIT.format(ranks=ranks))
    began = time.monotonic()
    made = compile_ranks(file, bundle, CompileOptions(shard=shard, **common))
    told = ranks_json(made, {})
    compiled = time.monotonic() - began
    predicted = told["ranks"][0]["predicted_ms"] + sum(e.get("predicted_ms", 0) for e in told["exchanges"])
    found = start(bundle, ranks, options)
    if _complain(found):
        return 1
    error = float(np.abs(found["y"] - whole["y"]).max() / np.abs(whole["y"]).max())
    print(
        f"{ranks} ranks: {found['median'] * 1e3:.3f} ms, least {found['least'] * 1e3:.3f}, "
        f"{whole['median'] / found['median']:.2f} times the whole's speed; predicted {predicted:.3f} ms; "
        f"error {error:.1e}; {found['runs']} runs, compiled in {compiled:.0f} s",
        flush=True,
    )
    if options.kill and ranks > 1:
        found = start(bundle, ranks, options, "kill")
        print(f"rank 1 killed: exit codes {found['codes']} after {found['took']:.1f} s", flush=True)
        print(
            "\n".join(f"  {line[:150]}" for text in found["said"] for line in text.strip().splitlines()[-8:]),
            flush=True,
        )
    return 0


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
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--dtype", choices=["f32", "f16"], default="f32")
    for name, usual in (("layers", 4), ("width", 1024), ("inner", 2816), ("depth", 64), ("rows", 128)):
        parser.add_argument(f"--{name}", type=int, default=usual)
    parser.add_argument("--seconds", type=float, default=3, help="of measuring, for each number of ranks")
    parser.add_argument("--patience", type=float, default=60, help="seconds that ranks may take in all")
    parser.add_argument("--nccl", default="", help="absolute path of libnccl.so.2")
    parser.add_argument("--arch", default="", help="of cards, as of compile")
    parser.add_argument("--kill", action="store_true", help="also see what happens when a rank is killed")
    parser.add_argument("--folder", help="for models and bundles")
    parser.add_argument("--meet", default="/dev/shm", help="where ranks meet: a folder in memory")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
