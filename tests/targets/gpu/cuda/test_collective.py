"""Exchanges between emulated cards, by a stand-in of NCCL."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import torshc
from tests.emulation.emulated import build_nccl, emulated_tools, missing
from tests.sharding.models import decoder, mlp
from tests.support.models import save
from tests.support.ranks import World
from tests.training.networks import ADAM, batches, convolutional, write_step
from torshc.base.errors import BundleError, RunError
from torshc.runtime.native import Options

pytestmark = pytest.mark.skipif(missing() is not None, reason=missing() or "")

ROOT = Path(__file__).resolve().parents[4]
X = np.random.default_rng(3).standard_normal((4, 8)).astype(np.float32)
STAGES = "stages: 2\n"
TENSORS = "tensors:\n  ranks: 2\n  split:\n    - {names: '[ab].up', axis: 1}\n"
SCATTERED = TENSORS + "  scatter:\n    - {names: 'h[27]', axis: 0}\n"
ATTENTION = """tensors:
  ranks: 2
  split:
    - {names: attn.qkv, axis: 1, parts: 3}
    - {names: mlp.up, axis: 0}
    - {names: table, axis: 0}
    - {names: head, axis: -1}
"""


@pytest.fixture(scope="module")
def nccl(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_nccl(tmp_path_factory.mktemp("nccl"))


@pytest.fixture(autouse=True)
def cards(nccl: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("T_EMULATE_DEVICES", "4")
    monkeypatch.setenv("TORSHC_NCCL", str(nccl))
    monkeypatch.setenv("TMPDIR", str(tmp_path))


def built(made: onnx.ModelProto, shard: str, folder: Path) -> Path:
    (folder / "shard.yaml").write_text(shard)
    with emulated_tools():
        torshc.compile(save(made, folder / "m.onnx"), folder / "r.tsc", shard=folder / "shard.yaml", target="cuda")
    return folder / "r.tsc"


@pytest.fixture(scope="module")
def tensors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    yield built(mlp(batch=4), TENSORS, tmp_path_factory.mktemp("tensors"))


def whole(made: onnx.ModelProto, feeds: dict[str, Any]) -> Any:
    return torshc.compile(made.SerializeToString()).run(feeds)["y"]


CASES: dict[str, tuple[onnx.ModelProto, str, dict[str, Any], int]] = {
    "stages": (mlp(), STAGES, {"x": X}, 2),
    "sums": (mlp(), TENSORS, {"x": X}, 2),
    "sums of one": (mlp(), TENSORS.replace("2", "1", 1), {"x": X}, 1),
    "sums of four": (mlp(), TENSORS.replace("2", "4", 1), {"x": X}, 4),
    "scattered sums": (mlp(batch=4), SCATTERED, {"x": X}, 2),
    "attention": (decoder(), ATTENTION, {"ids": np.array([[3, 1, 23], [0, 7, 5]])}, 2),
    "attention of four": (decoder(), ATTENTION.replace("2", "4", 1), {"ids": np.array([[3, 1, 23], [0, 7, 5]])}, 4),
}


@pytest.mark.parametrize("what", CASES)
def test_ranks_give_the_answers_of_the_whole(what: str, tmp_path: Path) -> None:
    """Again and again: the first run is made step by step, the second recorded, and the next ones replayed."""
    made, shard, feeds, ranks = CASES[what]
    bundle, want = built(made, shard, tmp_path), whole(made, feeds)
    found = World(ranks).run(bundle, [feeds] * 4)
    for each in found:
        if isinstance(each, Exception):
            raise each
        # Sums are in another order, and tensor cores are emulated: a few units in the last place of the largest.
        assert np.allclose(each["y"], want, rtol=0, atol=4e-6 * np.abs(want).max())


def test_ranks_train_with_shared_states(tmp_path: Path) -> None:
    """As one rank does of the whole batch, and files of states are whole."""
    (tmp_path / "shard.yaml").write_text("replicas: 2\noptimizer_states: sharded\n")
    step = write_step(tmp_path, ADAM)
    with emulated_tools():
        torshc.compile(
            convolutional(batch=4), tmp_path / "r.tsc", train=step, shard=tmp_path / "shard.yaml", target="cuda"
        )
    torshc.compile(convolutional(batch=8), tmp_path / "whole.tsc", train=step)
    learner, given = torshc.load(tmp_path / "whole.tsc"), batches(3)
    losses = [learner.step(b)["loss"].item() for b in given]
    found: list[Any] = [None, None]

    def run(rank: int, table: Any) -> None:
        own = torshc.load(tmp_path / "r.tsc", ranks=ctypes.addressof(table))
        part = slice(4 * rank, 4 * rank + 4)
        steps = [float(own.step({n: x[part] for n, x in b.items()})["loss"].item()) for b in given]
        own.save_state(tmp_path / f"{rank}.safetensors")
        own.load_state(tmp_path / f"{rank}.safetensors")
        found[rank] = steps, own.state_dict()

    World(2).each(run)
    assert (tmp_path / "0.safetensors").read_bytes() == (tmp_path / "1.safetensors").read_bytes()
    for steps, states in found:
        assert np.allclose(steps, losses, rtol=1e-5)
        for name, state in learner.state_dict().items():
            # Adam's first steps are of one size for each element, however small its gradient and what is rounded of it.
            assert np.allclose(states[name], state, rtol=0, atol=1e-5 * max(np.abs(state).max(initial=0), 1e-3)), name


def test_every_rank_has_a_card_of_its_own(tensors: Path) -> None:
    world = World(2)
    models: list[Any] = [None, None]

    def load(rank: int, table: Any) -> None:
        models[rank] = torshc.load(tensors, ranks=ctypes.addressof(table))

    world.each(load)
    assert [m.device for m in models] == ["cuda:0", "cuda:1"]


# ---- what is not as it should be ----


def fails(bundle: Path, world: World, ranks: list[int] | None = None) -> list[str]:
    found = world.run(bundle, [{"x": X}] * 3, ranks=ranks)
    assert all(isinstance(each, BundleError | RunError) for each in found), found
    return [str(each) for each in found]


def test_ranks_on_one_card_are_refused(tensors: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("T_EMULATE_DEVICES", "1")
    assert all("ranks 0 and 1 have one card, number 0 of the 1" in text for text in fails(tensors, World(2)))


def test_a_rank_that_never_comes_is_named(tensors: Path) -> None:
    (text,) = fails(tensors, World(2, seconds=0.5), [0])
    assert "opening the model on all ranks: rank 1 of 2 did not answer within 0.5 s" in text


def test_nccl_is_never_searched_for(tensors: Path, nccl: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(2)
    table = ctypes.addressof(world.table(0))
    monkeypatch.delenv("TORSHC_NCCL")
    for path, message in (
        (None, "nothing says where that is"),
        ("libnccl.so.2", "not absolute"),
        (tmp_path / "libnccl.so.2", "no file"),
    ):
        with pytest.raises(BundleError, match=message) as caught:
            torshc.load(tensors, ranks=table, nccl=path)
        assert "TORSHC_NCCL" in caught.value.remedy


def test_another_library_is_refused_by_name(tensors: Path) -> None:
    other = tensors / "rank0" / "libmodel.so"
    world = World(2)
    found: list[Any] = [None, None]

    def load(rank: int, table: Any) -> None:
        with pytest.raises(BundleError) as caught:
            torshc.load(tensors, ranks=ctypes.addressof(table), nccl=other)
        found[rank] = caught.value.message

    world.each(load)
    assert all("has no ncclGetVersion: it is not NCCL" in text for text in found)


def test_an_error_of_nccl_ends_the_wait(tensors: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where a cable was pulled: NCCL tells of it when it is asked."""
    monkeypatch.setenv("T_EMULATE_NCCL_ERROR", "6")
    world = World(2)
    held: dict[int, str] = {}

    def run(rank: int, table: Any) -> None:
        model = torshc.load(tensors, ranks=ctypes.addressof(table))
        if rank == 0:  # the other one is there, and does not run
            with pytest.raises(RunError) as caught:
                model.run({"x": X})
            held[rank] = caught.value.message

    world.each(run)
    assert "remote process exited" in held[0]


def test_a_run_that_others_do_not_make_is_given_up(tensors: Path) -> None:
    world = World(2)
    held: dict[int, Any] = {}

    def run(rank: int, table: Any) -> None:
        held[rank] = model = torshc.load(tensors, ranks=ctypes.addressof(table))
        table.seconds = 0.5
        if rank == 0:
            for message in (
                "waiting for a run: rank 1 of 2 did not answer within 0.5 s",
                "an earlier run failed.*it said: .*rank 1",
            ):
                with pytest.raises(RunError, match=message):
                    model.run({"x": X})

    world.each(run)


def test_a_call_of_nccl_that_hangs_is_given_up(tensors: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("T_EMULATE_NCCL_HANG", "1")
    assert all("AllReduce" in text for text in fails(tensors, World(2, of_runs=0.5)))


def test_the_callers_communicator_is_taken(tensors: Path, nccl: Path) -> None:
    library = ctypes.CDLL(os.fspath(nccl))
    uid = (ctypes.c_char * 128)()
    assert library.ncclGetUniqueId(uid) == 0
    world = World(2)
    found: list[Any] = [None, None]

    class Id(ctypes.Structure):
        _fields_ = (("bytes", ctypes.c_char * 128),)

    def run(rank: int, table: Any) -> None:
        comm = ctypes.c_void_p()
        library.ncclCommInitRank(ctypes.byref(comm), 2, Id.from_buffer_copy(uid), rank)
        assert comm.value is not None
        address = ctypes.addressof(table)
        with torshc.load(tensors, ranks=address, nccl=nccl, device=rank, communicator=comm.value) as model:
            found[rank] = model.run({"x": X})["y"]
        with pytest.raises(BundleError, match=f"is for rank {rank} of 2 on card {rank}; the model is"):
            torshc.load(tensors, ranks=address, nccl=nccl, device=3, communicator=comm.value)

    world.each(run)
    assert np.array_equal(*found)


def test_options_of_before_have_no_nccl(tensors: Path) -> None:
    """As of programs that were compiled with the header of an earlier version."""
    library = ctypes.CDLL(os.fspath(tensors / "rank0" / "libmodel.so"))
    library.torshc_last_error.restype = ctypes.c_char_p
    options, handle = Options(), ctypes.c_void_p()
    options.size, options.threads = Options.nccl_path.offset, 1
    options.weights_path = os.fsencode(tensors / "rank0" / "weights.bin")
    world = World(2)
    options.ranks = ctypes.addressof(world.table(0))
    assert library.torshc_open(ctypes.byref(options), ctypes.byref(handle)) != 0
    assert "no path of NCCL's library: set options.nccl_path" in library.torshc_last_error().decode()


# ---- processes ----

PROGRAM = """
import os, signal, sys
import numpy as np, torshc
bundle, feed, how = sys.argv[1:]
model = torshc.load(bundle)
x = np.load(feed)
for _ in range(3):
    y = model.run({"x": x})["y"]
np.save(f"{feed}.{model.rank}.npy", y)
if how == "kill":
    if model.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        model.run({"x": x})
    except torshc.TorshcError as failed:
        sys.exit(str(failed))
"""


def start(bundle: Path, folder: Path, how: str) -> list[subprocess.Popen[str]]:
    np.save(folder / "x.npy", X)
    meet = folder / "meet"
    meet.mkdir()
    command = [sys.executable, "-c", PROGRAM, str(bundle), str(folder / "x.npy"), how]
    common = {**os.environ, "TORSHC_WORLD": "2", "TORSHC_MEET": str(meet)}
    return [
        subprocess.Popen(command, env={**common, "TORSHC_RANK": str(r)}, stderr=subprocess.PIPE, text=True, cwd=ROOT)
        for r in range(2)
    ]


def test_processes_meet_in_a_folder(tensors: Path, tmp_path: Path) -> None:
    jobs = start(tensors, tmp_path, "")
    said = [job.communicate(timeout=100)[1] for job in jobs]
    assert [job.returncode for job in jobs] == [0, 0], said
    want = whole(mlp(batch=4), {"x": X})
    found = [np.load(tmp_path / f"x.npy.{rank}.npy") for rank in range(2)]
    assert all(np.allclose(y, want, rtol=0, atol=4e-6 * np.abs(want).max()) for y in found)


@pytest.mark.parametrize("stuck", ["", "1"], ids=["", "though its abort waits for ever"])
def test_a_killed_rank_ends_the_others_by_name(
    stuck: str, tensors: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second for a rank that may be done, and one for the work that is given up; not the 1,000 of an exchange."""
    monkeypatch.setenv("T_EMULATE_NCCL_STUCK", stuck)
    monkeypatch.setenv("TORSHC_RANKS_SECONDS", "1000")
    jobs = start(tensors, tmp_path, "kill")
    said = [job.communicate(timeout=100)[1] for job in jobs]
    assert jobs[0].returncode == 1 and jobs[1].returncode == -signal.SIGKILL
    assert "waiting for a run: rank 1 of 2 has ended" in said[0]


def test_the_c_of_ranks_is_free_of_warnings(tensors: Path, tmp_path: Path) -> None:
    compiler = shutil.which("clang-16") or shutil.which("clang") or shutil.which("gcc")
    assert compiler is not None
    templates = ROOT / "templates"
    folders = [f"-I{templates / name / 'host'}" for name in ("c", "gpu", "cuda")]
    for source in ("cuda/host/t_nccl.c", "c/host/t_ranks.c", "c/host/t_local.c"):
        flags = ["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", *folders]
        subprocess.run([compiler, *flags, "-c", str(templates / source), "-o", str(tmp_path / "x.o")], check=True)
