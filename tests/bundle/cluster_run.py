"""A model compiled and tuned by other processes, and what was seen: ``python -m tests.bundle.cluster_run MODEL``.

It is compiled here; by a LocalCluster of two of which one is killed; and by a scheduler with workers in two other
processes, of which one is killed: the libraries must have equal bytes. Those workers, one of them killed, then tune it
until Ctrl-C ends the command, which must keep what was measured. Last it is compiled twice by each cache of compilers
that is here (ccache, sccache), without torshc's own: the second time no compiler may run.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import distributed as dask_distributed

from torshc.base.digest import file_sha256
from torshc.targets.cc import find_compiler

distributed: Any = dask_distributed  # without types
TORSHC = [sys.executable, "-m", "torshc"]
ENOUGH = 3  # records of kernels after which Ctrl-C ends the tuning
WORKER = ["--nthreads", "1", "--no-dashboard", "--no-nanny", "--resources", "processor=1"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument(
        "--tune", type=int, default=300, help="seconds after which Ctrl-C ends the tuning at the latest"
    )
    args = parser.parse_args()
    signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # a shell's jobs in the background ignore it, as their children do
    with tempfile.TemporaryDirectory(prefix="torshc-cluster-") as name:
        return int(not all([*check(args.model.resolve(), Path(name), args.tune)]))


def check(model: Path, folder: Path, seconds: int) -> Iterator[bool]:
    """What has to hold, in turn; each is printed."""
    here = compile_model(model, folder / "here")
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        first = next(iter(cluster.workers.values())).process.pid
        with killed_later(first, 2):
            there = compile_model(model, folder / "local", "--scheduler", cluster.scheduler_address)
        yield said("LocalCluster of two, one killed: equal bytes", here == there)
    with scheduler(folder) as (address, workers):
        with killed_later(workers[0].pid, 2):
            there = compile_model(model, folder / "there", "--scheduler", address)
        yield said("workers in two other processes, one killed: equal bytes", here == there)
        workers.append(start_worker(address, folder))
        yield tuned(model, folder, address, workers, seconds)
    for cache in ("ccache", "sccache"):
        if shutil.which(cache):
            yield said(f"{cache}: equal bytes, and the second time no compiler", cached(model, folder, cache, here))


def said(what: str, holds: bool) -> bool:
    print(f"{'holds' if holds else 'FAILS'}: {what}", flush=True)
    return holds


def compile_model(model: Path, out: Path, *more: str, env: dict[str, str] | None = None) -> str:
    """Hash of the library; the cache of torshc is off."""
    began = time.monotonic()
    out.mkdir(exist_ok=True)
    command = [*TORSHC, "compile", str(model), "--no-cache", *more, "-o", "model.tsc"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=out, env=env, check=False)
    told = done.stdout.strip() or done.stderr[-800:]
    print(f"{time.monotonic() - began:6.1f} s  {' '.join(more) or 'here'}: {told}", flush=True)
    return file_sha256(out / "model.tsc/libmodel.so") if done.returncode == 0 else done.stderr


@contextmanager
def killed_later(pid: int, seconds: float) -> Iterator[None]:
    """Kill a process that many seconds from now, if what is done meanwhile takes so long."""
    timer = threading.Timer(seconds, os.kill, (pid, signal.SIGKILL))
    timer.start()
    yield
    if timer.is_alive():
        print("        it was done before a worker was killed")
    timer.cancel()


# ---- processes of Dask ----


@contextmanager
def scheduler(folder: Path) -> Iterator[tuple[str, list[subprocess.Popen[bytes]]]]:
    """A scheduler's address, and two workers, all of them processes of their own."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address, workers = f"tcp://127.0.0.1:{port}", list[subprocess.Popen[bytes]]()
    command = ["scheduler", "--host", "127.0.0.1", "--port", str(port), "--no-dashboard"]
    there = start_dask(command, folder / "scheduler.log")
    try:
        workers += [start_worker(address, folder) for _ in range(2)]
        with distributed.Client(address, timeout=60, set_as_default=False) as client:
            client.wait_for_workers(2, timeout=60)
        yield address, workers
    finally:
        for process in (*workers, there):
            process.kill()
            process.wait()


def start_worker(address: str, folder: Path) -> subprocess.Popen[bytes]:
    return start_dask(["worker", address, *WORKER, "--local-directory", str(folder)], folder / "worker.log")


def start_dask(arguments: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
    with log.open("ab") as file:
        return subprocess.Popen([sys.executable, "-m", "dask", *arguments], stdout=file, stderr=file)


# ---- tuning ----


def tuned(model: Path, folder: Path, address: str, workers: Sequence[subprocess.Popen[bytes]], seconds: int) -> bool:
    """Tune until Ctrl-C; a worker is killed as soon as there is a record."""
    records = folder / "model.tuning"
    command = [*TORSHC, "tune", str(model), "--scheduler", address, "--tuning-records", str(records)]
    job = subprocess.Popen([*command, "--budget", "3600"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    end, killed = time.monotonic() + seconds, False
    while time.monotonic() < end and job.poll() is None:
        if not killed and records.exists():
            workers[1].kill()
            killed = True
        if killed and recorded(records) >= ENOUGH:
            break
        time.sleep(0.2)
    job.send_signal(signal.SIGINT)
    text, kept = job.communicate(timeout=120)[0], recorded(records)
    print(f"        {kept} records at Ctrl-C, exit {job.returncode}: {text.strip()[-300:]}")
    compile_model(model, folder / "tuned", "--tuning-records", str(records))
    return said("tuned, a worker killed; Ctrl-C keeps what was measured", killed and kept > 0 and job.returncode == 130)


def recorded(records: Path) -> int:
    """How many kernels have a record."""
    return sum("  # " in line for line in records.read_text().splitlines()) if records.exists() else 0


# ---- caches of compilers ----


def cached(model: Path, folder: Path, cache: str, library: str) -> bool:
    """Whether the library is the compiler's own both times, and the second compilation finds all objects."""
    env = {**os.environ, "CCACHE_DIR": str(folder / "ccache"), "SCCACHE_DIR": str(folder / "sccache")}
    env |= {"SCCACHE_SERVER_UDS": str(folder / "sccache.socket")}
    compiler, found = find_compiler().name, list[tuple[str, int]]()
    try:
        for _ in range(2):
            made = compile_model(model, folder / cache, "--cc", f"{cache} {compiler}", env=env)
            found.append((made, misses(cache, env)))
    finally:
        if cache == "sccache":
            subprocess.run([cache, "--stop-server"], env=env, capture_output=True, check=False)
    print(f"        compiled by {cache}: {found[0][1]}, then {found[1][1] - found[0][1]}")
    return found[0][1] > 0 and found[1] == (library, found[0][1]) and found[0][0] == library


def misses(cache: str, env: dict[str, str]) -> int:
    """How many sources a cache has compiled so far."""
    if cache == "ccache":
        text = subprocess.run([cache, "--print-stats"], env=env, capture_output=True, text=True, check=True).stdout
        return int(dict(re.findall(r"^(\w+)\s+(\d+)$", text, re.M))["cache_miss"])
    told = subprocess.run([cache, "-s", "--stats-format", "json"], env=env, capture_output=True, text=True, check=True)
    stats: dict[str, Any] = json.loads(told.stdout)["stats"]
    return int(stats["non_cacheable_compilations"]) + sum(map(int, stats["cache_misses"]["counts"].values()))


if __name__ == "__main__":
    sys.exit(main())
