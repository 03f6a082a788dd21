"""Models that train: steps, states and their files, from Python."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import torshc
from tests.emulation.emulated import emulated_tools
from tests.support.compilers import needed
from tests.training.networks import Array, affine
from torshc.base.errors import RunError
from torshc.runtime.training import TrainingModel
from torshc.targets.cpu.c import CTarget
from torshc.targets.gpu.cuda.target import CudaTarget

STEP = "weights: [w, b]\nloss: mse\noptimizer: {{{}: {{learning_rate: 0.05}}}}\n"
BATCH = {
    "x": np.arange(12, dtype=np.float32).reshape(4, 3) / 12,
    "target": np.arange(8, dtype=np.float32).reshape(4, 2) / 8,
}


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A bundle that trains by an optimizer, each once; of "run" one for inference."""
    needed()
    folder = tmp_path_factory.mktemp("state")

    def bundle(name: str) -> Path:
        out = folder / f"{name}.tsc"
        if not out.exists():
            step = folder / f"{name}.yaml"
            step.write_text(STEP.format(name))
            torshc.compile(affine(np.float32), out, **({} if name == "run" else {"train": step}))
        return out

    return bundle


def equal(a: dict[str, Array], b: dict[str, Array]) -> bool:
    return a.keys() == b.keys() and all(np.array_equal(a[n], b[n]) for n in a)


def test_a_training_bundle_has_steps_and_no_runs(bundles: Callable[[str], Path]) -> None:
    model = torshc.load(bundles("momentum"))
    assert isinstance(model, TrainingModel)
    assert [s.name for s in model.inputs] == ["x", "target"] and [s.name for s in model.outputs] == ["loss"]
    loss = np.empty((), np.float32)
    assert model.step(BATCH, {"loss": loss})["loss"] is loss and loss > model.step(BATCH)["loss"]
    for call in (lambda: model.run(BATCH), lambda: model(*BATCH.values())):
        with pytest.raises(RunError, match="trains") as caught:
            call()
        assert "step()" in caught.value.remedy
    with pytest.raises(RunError, match="has no contexts"):
        model.context()
    with pytest.raises(RunError, match="load others with torshc_state_load"):
        model.set_weights(bundles("momentum") / "weights.bin")
    with pytest.raises(RunError, match="input 'target' is missing"):
        model.step({"x": BATCH["x"]})
    model.close()
    for use in (model.state_dict, lambda: model.save_state("x"), lambda: model.load_state("x")):
        with pytest.raises(RunError, match="is closed"):
            use()


def test_a_bundle_for_inference_does_not_train(bundles: Callable[[str], Path]) -> None:
    model = torshc.load(bundles("run"))
    uses: list[Callable[[], Any]] = [
        lambda: model.step(BATCH), model.state_dict, lambda: model.save_state("x"), lambda: model.load_state("x")
    ]  # fmt: skip
    for use in uses:
        with pytest.raises(RunError, match="does not train") as caught:
            use()
        assert "--train" in caught.value.remedy


def test_the_states_have_the_models_names(bundles: Callable[[str], Path]) -> None:
    model = torshc.load(bundles("momentum"))
    first = model.state_dict()
    assert [*first] == ["torshc.step", "w", "b", "torshc.momentum/w", "torshc.momentum/b"]
    model.step(BATCH)
    then = model.state_dict()
    assert first["torshc.step"] == 0 and then["torshc.step"] == 1  # copies, which steps do not change
    # The momentum begins at zero, so that the first update is the gradient's.
    np.testing.assert_allclose(then["w"], first["w"] - 0.05 * then["torshc.momentum/w"], rtol=1e-6)


def test_resumed_training_has_the_bits_of_one_that_was_not_stopped(
    bundles: Callable[[str], Path], tmp_path: Path
) -> None:
    whole, halves = torshc.load(bundles("adam")), torshc.load(bundles("adam"))
    for _ in range(3):
        whole.step(BATCH), halves.step(BATCH)
    halves.save_state(tmp_path / "a.safetensors")
    resumed = torshc.load(bundles("adam"))
    resumed.load_state(tmp_path / "a.safetensors")
    for _ in range(3):
        assert whole.step(BATCH)["loss"].tobytes() == resumed.step(BATCH)["loss"].tobytes()
    assert equal(whole.state_dict(), resumed.state_dict())
    assert [*tmp_path.iterdir()] == [tmp_path / "a.safetensors"]


def test_states_on_a_card_go_on_where_those_of_a_processor_stopped(
    bundles: Callable[[str], Path], tmp_path: Path
) -> None:
    """And the other way round: the file is the same."""
    here = torshc.load(bundles("adam"))
    with emulated_tools():
        torshc.compile(
            affine(np.float32),
            tmp_path / "cuda.tsc",
            target="cuda",
            arch="sm_90a",
            train=bundles("adam").with_suffix(".yaml"),
        )
        away, whole = torshc.load(tmp_path / "cuda.tsc"), torshc.load(tmp_path / "cuda.tsc")
        assert equal(here.state_dict(), away.state_dict())
        for _ in range(4):  # the third is recorded, and the fourth a replay
            # Sums of few terms of about 1 in another order, and a function of the card that rounds otherwise.
            assert away.step(BATCH)["loss"] == pytest.approx(here.step(BATCH)["loss"], rel=1e-5)
            whole.step(BATCH)
        for name, state in here.state_dict().items():
            np.testing.assert_allclose(away.state_dict()[name], state, rtol=1e-4, atol=1e-6, err_msg=name)
        away.save_state(tmp_path / "away")
        here.load_state(tmp_path / "away")
        assert equal(here.state_dict(), away.state_dict())
        here.save_state(tmp_path / "here")
        assert (tmp_path / "here").read_bytes() == (tmp_path / "away").read_bytes()
        resumed = torshc.load(tmp_path / "cuda.tsc")
        resumed.load_state(tmp_path / "here")
        for _ in range(2):
            assert resumed.step(BATCH)["loss"].tobytes() == whole.step(BATCH)["loss"].tobytes()
        assert equal(resumed.state_dict(), whole.state_dict())


def test_what_all_libraries_share_leaves_states_to_their_targets() -> None:
    """The memory of a card is none of the processor's, as that of the emulator is."""
    for target in (CudaTarget, CTarget):
        for name in set(target.host.sources) - {"t_gpu_host.c", "t_host.c"}:
            assert "->states" not in target.host.text(name), name


def test_a_file_is_safetensors(bundles: Callable[[str], Path], tmp_path: Path) -> None:
    model = torshc.load(bundles("momentum"))
    model.step(BATCH)
    model.save_state(tmp_path / "a")
    data = (tmp_path / "a").read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    manifest = json.loads((bundles("momentum") / "manifest.json").read_text())
    assert header.pop("__metadata__") == {"format": "torshc-state", "model": manifest["training"]["model_sha256"]}
    places = sorted(tuple(e["data_offsets"]) for e in header.values())
    assert places[0][0] == 0 and places[-1][1] == len(data) - 8 - length  # no holes, which readers refuse
    assert all(a[1] == b[0] for a, b in pairwise(places))
    types = {"F32": np.float32, "I64": np.int64}
    for name, state in model.state_dict().items():
        low, high = header[name]["data_offsets"]
        found = np.frombuffer(data[8 + length + low : 8 + length + high], types[header[name]["dtype"]])
        assert np.array_equal(found.reshape(header[name]["shape"]), state)


DAMAGED: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "empty": (lambda data: b"", "is truncated: it has 0 of"),
    "within the length": (lambda data: data[:5], "is truncated: it has 5 of"),
    "within the header": (lambda data: data[:60], "is truncated: it has 60 of"),
    "within the states": (lambda data: data[:-1], "is truncated"),
    "longer": (lambda data: data + b"x", "is damaged"),
    "a bit": (lambda data: data[:-3] + bytes([data[-3] ^ 4]) + data[-2:], "is damaged"),
    "the digest": (lambda data: data.replace(data[-60:-52], b"12345678"), "is damaged"),
    "another file": (lambda data: b"PK" + bytes(400), "is none that a library of torshc wrote"),
    "another model": (lambda data: data.replace(data[58:64], b"000000"), "is of another model"),
    "a shape": (lambda data: data.replace(b'"shape":[3,2]', b'"shape":[2,3]'), "is of this model with other trained"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_file_is_refused_and_the_state_stays(
    name: str, bundles: Callable[[str], Path], tmp_path: Path
) -> None:
    model, (damage, message) = torshc.load(bundles("momentum")), DAMAGED[name]
    model.step(BATCH)
    before, file = model.state_dict(), tmp_path / "a.safetensors"
    model.save_state(file)
    data = file.read_bytes()
    assert damage(data) != data
    file.write_bytes(damage(data))
    with pytest.raises(RunError, match="state file") as caught:
        model.load_state(file)
    assert message in caught.value.message and caught.value.remedy
    assert equal(before, model.state_dict())


def test_states_of_another_optimizer_and_files_that_are_none_are_refused(
    bundles: Callable[[str], Path], tmp_path: Path
) -> None:
    model = torshc.load(bundles("momentum"))
    torshc.load(bundles("adam")).save_state(tmp_path / "adam")
    with pytest.raises(RunError, match="of this model with other trained weights or another optimizer"):
        model.load_state(tmp_path / "adam")
    os.mkfifo(tmp_path / "pipe")
    refused = {"no such": "No such file", "pipe": "is not a regular file", ".": "is not a regular file"}
    for path, message in refused.items():
        with pytest.raises(RunError, match=message):
            model.load_state(tmp_path / path)
    (tmp_path / "folder").mkdir()
    with pytest.raises(RunError, match="No such file or directory"):
        model.save_state(tmp_path / "missing" / "a")
    with pytest.raises(RunError, match="cannot be written: Is a directory"):
        model.save_state(tmp_path / "folder")
    with pytest.raises(RunError, match="no file is named"):
        model.save_state("a\0b")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["adam", "folder", "pipe"]


def test_a_file_that_cannot_be_written_leaves_the_old_one(bundles: Callable[[str], Path], tmp_path: Path) -> None:
    """What is written beside it has a longer name than the system takes, which stops root too."""
    model = torshc.load(bundles("momentum"))
    model.save_state(tmp_path / "a")
    place = (tmp_path / "a").rename(tmp_path / ("a" * 250))
    old = place.read_bytes()
    model.step(BATCH)
    with pytest.raises(RunError, match="File name too long"):
        model.save_state(place)
    assert place.read_bytes() == old and [*tmp_path.iterdir()] == [place]
