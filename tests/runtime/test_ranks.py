"""Models that several processes share: with a table of one's own, and by MPI."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import torshc
from tests.sharding.models import compiled, mlp
from tests.support.ranks import Table, World
from torshc.base.errors import BundleError, RunError
from torshc.runtime.native import Options

X = np.random.default_rng(3).standard_normal((4, 8)).astype(np.float32)
ROOT = Path(__file__).resolve().parents[2]
STAGES = "stages: 2\n"
TENSORS = "tensors:\n  ranks: 2\n  split:\n    - {names: '[ab].up', axis: 1}\n"
needs_mpi = pytest.mark.skipif(
    shutil.which("mpicc") is None or shutil.which("mpirun") is None, reason="mpicc and mpirun are not installed"
)


@pytest.fixture(scope="module")
def stages(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    bundle, whole = compiled(mlp(), STAGES, tmp_path_factory.mktemp("stages"))
    return bundle, whole.run({"x": X})["y"]


# ---- a table of the program's own ----


def test_runs_one_after_the_other(stages: tuple[Path, Any]) -> None:
    bundle, whole = stages
    for found in World(2).run(bundle, [{"x": X[:1]}, {"x": X}, {"x": X}]):
        assert isinstance(found, dict) and np.array_equal(found["y"], whole)


def test_a_rank_that_does_not_answer_is_named(stages: tuple[Path, Any]) -> None:
    """Within the time that an exchange may take, and two seconds for the roll call."""
    began = time.monotonic()
    (found,) = World(2, seconds=0.3).run(stages[0], {"x": X}, ranks=[0])
    assert isinstance(found, RunError) and "rank 1 of 2 did not answer within 0.3 s" in found.message
    assert time.monotonic() - began < 8


def test_a_job_that_was_stopped_goes_on(stages: tuple[Path, Any]) -> None:
    """As by Ctrl-Z: the time in which no rank ran is none that an exchange took."""
    for found in World(2, seconds=0.8, stops=1.0).run(stages[0], {"x": X}):
        assert isinstance(found, dict) and np.array_equal(found["y"], stages[1])


def test_a_failed_exchange_says_why(stages: tuple[Path, Any]) -> None:
    (found,) = World(2, refuses=True).run(stages[0], {"x": X}, ranks=[0])
    assert isinstance(found, RunError) and "(Send): the wire is cut (with rank 1)" in found.message


def test_a_failed_run_breaks_the_world(stages: tuple[Path, Any]) -> None:
    table = World(2, refuses=True).table(1)
    model = torshc.load(stages[0], ranks=ctypes.addressof(table))
    assert table.broken == 0
    with pytest.raises(RunError):
        model.run({"x": X})
    assert table.broken == 1
    with pytest.raises(RunError, match="an earlier run failed"):
        model.run({"x": X})


def test_bad_inputs_are_refused_before_anything_is_sent(stages: tuple[Path, Any]) -> None:
    world = World(2)
    table = world.table(0)
    model = torshc.load(stages[0], ranks=ctypes.addressof(table))
    with pytest.raises(RunError):
        model.run({"x": X[:, :3].copy()})
    assert world.log[0] == [] and table.broken == 0


def test_runs_of_a_rank_take_turns(stages: tuple[Path, Any]) -> None:
    model = torshc.load(stages[0], ranks=ctypes.addressof(World(2).table(0)))
    with pytest.raises(BundleError, match="take turns"):
        model.context()


@pytest.mark.parametrize(
    ("rank", "count", "message"), [(0, 3, "cut into 2 ranks; the world has 3"), (2, 2, "rank 2 of 2")]
)
def test_another_world_is_refused(rank: int, count: int, message: str, stages: tuple[Path, Any]) -> None:
    with pytest.raises(BundleError, match=message):
        torshc.load(stages[0], ranks=ctypes.addressof(World(count).table(rank)))


def test_a_rank_by_itself_says_what_it_is(stages: tuple[Path, Any]) -> None:
    with pytest.raises(BundleError, match="this is rank 1 of a model that 2 processes share"):
        torshc.load(stages[0] / "rank1")


def test_the_library_checks_the_table(stages: tuple[Path, Any], tmp_path: Path) -> None:
    """Also where nobody looked at the manifest around it, as in C."""
    for change, message in (
        ({"count": 3}, "the model is cut for 2 ranks; the world has 3"),
        ({"rank": 1}, "this library is for rank 0, and this process is rank 1"),
        ({"size": 8}, "options.ranks of another version"),
    ):
        table = World(2).table(0)
        for name, value in change.items():
            setattr(table, name, value)
        library = ctypes.CDLL(os.fspath(stages[0] / "rank0" / "libmodel.so"))
        library.torshc_last_error.restype = ctypes.c_char_p
        options, handle = Options(), ctypes.c_void_p()
        options.size, options.threads = ctypes.sizeof(Options), 1
        options.weights_path = os.fsencode(stages[0] / "rank0" / "weights.bin")
        options.ranks = ctypes.addressof(table)
        assert library.torshc_open(ctypes.byref(options), ctypes.byref(handle)) != 0
        assert message in library.torshc_last_error().decode()


def test_a_bundle_that_was_mixed_is_refused(stages: tuple[Path, Any], tmp_path: Path) -> None:
    mixed = tmp_path / "mixed.tsc"
    shutil.copytree(stages[0], mixed, symlinks=True)
    shutil.rmtree(mixed / "rank1")
    shutil.copytree(mixed / "rank0", mixed / "rank1", symlinks=True)
    with pytest.raises(BundleError, match="belongs to another bundle"):
        torshc.load(mixed, ranks=ctypes.addressof(World(2).table(1)))
    text = (mixed / "manifest.json").read_text()
    (mixed / "manifest.json").write_text(text.replace('"rank1"', '"rank0"'))
    with pytest.raises(BundleError, match="was altered"):
        torshc.load(mixed, ranks=ctypes.addressof(World(2).table(1)))


def test_without_mpi_the_remedy_is_told(stages: tuple[Path, Any], tmp_path: Path) -> None:
    bare = tmp_path / "bare.tsc"
    shutil.copytree(stages[0], bare, symlinks=True)
    (bare / "libtorshc_mpi.so").unlink(missing_ok=True)
    with pytest.raises(BundleError, match=r"no libtorshc_mpi\.so") as caught:
        torshc.load(bare)
    assert f"sh {bare / 'mpi' / 'build.sh'}" in caught.value.remedy


def test_the_table_is_that_of_the_header() -> None:
    assert ctypes.sizeof(Table) == 4 * 4 + 8 * 10


# ---- processes of one machine, without MPI ----

LOCAL = """
import os, signal, sys, time
import numpy as np, torshc
bundle, feed, how = sys.argv[1:]
model = torshc.load(bundle)
x = np.load(feed)
for _ in range(3):
    y = model.run({"x": x})["y"]
if how == "answers":
    np.save(f"{feed}.{model.rank}.npy", y)
elif how == "kill" and model.rank == 1:
    os.kill(os.getpid(), signal.SIGKILL)
elif how == "leave" and model.rank == 1:
    sys.exit(0)
elif how == "wait" and model.rank == 1:
    time.sleep(60)
else:
    model.run({"x": x})
"""


def start_local(bundle: Path, folder: Path, how: str, x: Any = X, **environment: str) -> list[subprocess.Popen[str]]:
    """The processes of a bundle of two ranks."""
    np.save(folder / "x.npy", x)
    (folder / "meet").mkdir()
    common = {**os.environ, "TORSHC_WORLD": "2", "TORSHC_MEET": str(folder / "meet"), **environment}
    command = [sys.executable, "-c", LOCAL, str(bundle), str(folder / "x.npy"), how]
    return [
        subprocess.Popen(command, env={**common, "TORSHC_RANK": str(r)}, stderr=subprocess.PIPE, text=True, cwd=ROOT)
        for r in range(2)
    ]


SCATTERED = TENSORS + "  scatter:\n    - {names: h2, axis: 0}\n"


@pytest.mark.parametrize("shard", [STAGES, TENSORS, SCATTERED], ids=["stages", "tensors", "scattered"])
@pytest.mark.parametrize("rows", [2, 30000], ids=["small", "several pieces"])
def test_processes_meet_in_a_folder(shard: str, rows: int, tmp_path: Path) -> None:
    """Also where a tensor is larger than the memory through which it goes."""
    x = np.random.default_rng(5).standard_normal((rows, 8 if rows == 2 else 40)).astype(np.float32)
    bundle, whole = compiled(mlp(x.shape[1], batch=rows), shard, tmp_path)
    jobs = start_local(bundle, tmp_path, "answers", x)
    said = [job.communicate(timeout=100)[1] for job in jobs]
    assert [job.returncode for job in jobs] == [0, 0], said
    want = whole.run({"x": x})["y"]
    for rank in range(2):
        y = np.load(tmp_path / f"x.npy.{rank}.npy")
        # Sums over ranks are in another order: a few units in the last place of the largest element.
        assert np.array_equal(y, want) if shard == STAGES else np.allclose(y, want, atol=2e-6 * np.abs(want).max())


@pytest.mark.parametrize(("how", "code"), [("kill", -9), ("leave", 0)])
def test_a_process_that_is_gone_is_named(how: str, code: int, stages: tuple[Path, Any], tmp_path: Path) -> None:
    """At once: the others need not wait for the 30 s of an exchange."""
    began = time.monotonic()
    jobs = start_local(stages[0], tmp_path, how)
    said = [job.communicate(timeout=100)[1] for job in jobs]
    assert jobs[1].returncode == code and jobs[0].returncode not in (0, None) and "rank 1 has ended" in said[0]
    assert time.monotonic() - began < 60  # on a machine with other work; on an idle one 2 s


def test_a_process_that_does_not_run_is_told_apart(stages: tuple[Path, Any], tmp_path: Path) -> None:
    jobs = start_local(stages[0], tmp_path, "wait", TORSHC_RANKS_SECONDS="0.5")
    said = jobs[0].communicate(timeout=100)[1]
    jobs[1].kill()
    jobs[1].communicate()
    assert jobs[0].returncode != 0 and "rank 1 of 2 did not answer within 0.5 s" in said


WRONG_PLACES: dict[str, tuple[dict[str, str], str]] = {
    "no number": ({"TORSHC_RANK": "one"}, "are no rank and no number of ranks"),
    "no world": ({"TORSHC_WORLD": ""}, "are no rank and no number of ranks"),
    "another world": ({"TORSHC_WORLD": "3"}, "cut into 2 ranks; the world has 3"),
    "too high": ({"TORSHC_RANK": "2"}, "this is rank 2 of 2"),
    "no folder": ({"TORSHC_MEET": "/nowhere/at/all"}, "no absolute path of a folder"),
    "nowhere": ({"TORSHC_MEET": ""}, "no absolute path of a folder"),
}


@pytest.mark.parametrize("what", WRONG_PLACES)
def test_an_environment_that_says_no_rank_is_refused(
    what: str, stages: tuple[Path, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    change, message = WRONG_PLACES[what]
    for name, text in {"TORSHC_RANK": "0", "TORSHC_WORLD": "2", "TORSHC_MEET": str(tmp_path), **change}.items():
        monkeypatch.setenv(name, text)
    with pytest.raises(BundleError, match=message):
        torshc.load(stages[0])


def test_a_folder_of_another_job_is_refused(
    stages: tuple[Path, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What lies there says how far the other job came. The same process may open its bundle again."""
    for name, text in {"TORSHC_RANK": "0", "TORSHC_WORLD": "2", "TORSHC_MEET": str(tmp_path)}.items():
        monkeypatch.setenv(name, text)
    command = [sys.executable, "-c", "import sys, torshc; torshc.load(sys.argv[1])", str(stages[0])]
    assert subprocess.run(command, cwd=ROOT).returncode == 0
    with pytest.raises(BundleError, match="another job's is") as caught:
        torshc.load(stages[0])
    assert "a new folder in TORSHC_MEET" in caught.value.remedy
    (meet,) = tmp_path.glob("*.ranks")
    meet.unlink()
    for _ in range(2):
        assert torshc.load(stages[0]).ranks == 2
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode != 0 and "another process is this rank" in done.stderr


# ---- MPI ----

PROGRAM = """
import os, signal, sys
import numpy as np, torshc
bundle, feed, how = sys.argv[1:]
model = torshc.load(bundle)
x = np.load(feed)
y = model.run({"x": x})["y"]
if how == "answers":
    np.save(f"{feed}.{model.rank}.npy", y)
elif how == "kill" and model.rank == 1:
    os.kill(os.getpid(), signal.SIGKILL)
elif how == "leave" and model.rank == 1:
    sys.exit(0)
else:
    model.run({"x": x})
"""


def mpirun(count: int, *command: str, seconds: float = 0) -> subprocess.CompletedProcess[str]:
    """A job of so many processes, of which more than cores may be there, by whoever runs the tests."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("OMPI_", "PMIX_"))}
    environment |= {"TORSHC_RANKS_SECONDS": str(seconds)} if seconds else {}
    line = ["mpirun", "--oversubscribe", "--allow-run-as-root", "-n", str(count), *command]
    return subprocess.run(line, capture_output=True, text=True, timeout=100, cwd=ROOT, env=environment)


@needs_mpi
@pytest.mark.parametrize("shard", [STAGES, TENSORS], ids=["stages", "tensors"])
def test_mpirun_runs_it(shard: str, tmp_path: Path) -> None:
    bundle, whole = compiled(mlp(), shard, tmp_path)
    np.save(tmp_path / "x.npy", X)
    done = mpirun(2, sys.executable, "-c", PROGRAM, str(bundle), str(tmp_path / "x.npy"), "answers")
    assert done.returncode == 0, done.stderr
    found = [np.load(tmp_path / f"x.npy.{rank}.npy") for rank in range(2)]
    want = whole.run({"x": X})["y"]
    # Sums over ranks are in another order.
    assert all(np.array_equal(y, want) if shard == STAGES else np.allclose(y, want, atol=1e-6) for y in found)


@needs_mpi
@pytest.mark.parametrize(("how", "message"), [("kill", "rank 1"), ("leave", "rank 1 of 2 did not answer within 1 s")])
def test_a_rank_that_is_gone_ends_the_job(how: str, message: str, stages: tuple[Path, Any], tmp_path: Path) -> None:
    """By name, with an exit code that is not 0, and without waiting."""
    np.save(tmp_path / "x.npy", X)
    began = time.monotonic()
    done = mpirun(2, sys.executable, "-c", PROGRAM, str(stages[0]), str(tmp_path / "x.npy"), how, seconds=1)
    assert done.returncode != 0 and message in done.stderr
    assert time.monotonic() - began < 60  # on a machine with other work; on an idle one 3 and 5 s


@needs_mpi
def test_a_world_of_another_size_is_refused(stages: tuple[Path, Any]) -> None:
    done = mpirun(3, sys.executable, "-m", "torshc", "run", str(stages[0]))
    assert done.returncode == 7 and "cut into 2 ranks; the world has 3" in done.stderr


@needs_mpi
def test_a_program_in_c_runs_it(stages: tuple[Path, Any], tmp_path: Path) -> None:
    sample = ROOT / "samples" / "ranks" / "main.c"
    compiler = shutil.which("cc") or shutil.which("clang")
    assert compiler is not None
    program = tmp_path / "ranks"
    command = [
        compiler,
        "-std=gnu11",
        "-Wall",
        "-Wextra",
        "-Werror",
        f"-I{stages[0] / 'mpi'}",
        str(sample),
        "-o",
        str(program),
    ]
    subprocess.run([*command, "-ldl"], check=True)
    done = mpirun(2, str(program), str(stages[0]))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("output 0 of 2 ranks: sum ")
