"""Tensors that are handed from library to library: what is looked at in each call, however often they came before."""

from __future__ import annotations

import gc
import time
import weakref
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from tests.bundle import tiny
from torshc.base.errors import RunError
from torshc.runtime import Model, load
from torshc.runtime.device import REMEDIES
from torshc.runtime.native import Status

from ..support.foreign import Described
from .conftest import Write
from .test_device import Z, rows, same, to_device


@pytest.fixture
def model(write: Write) -> Iterator[Model]:
    with load(write()) as opened:
        yield opened


def there(model: Model, x: np.ndarray[Any, Any]) -> Described:
    return Described(to_device(model, x))


def outputs(model: Model, n: int = 3) -> dict[str, Any]:
    return {name: there(model, np.zeros((n, 16), np.float32)) for name in ("y", Z)}


def right(found: dict[str, Any], x: np.ndarray[Any, Any]) -> bool:
    """Whether tensors on the device hold the model's outputs, in its order."""
    return same({name: tensor.array for name, tensor in found.items()}, x)


@pytest.fixture
def direct(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Counts the runs in which a library's own descriptions were enough."""
    counted, into = [0], Model._into

    def count(*call: Any) -> bool:
        was = into(*call)
        counted[0] += was
        return was

    monkeypatch.setattr(Model, "_into", count)
    yield counted


def test_a_tensor_that_changes_is_described_anew(model: Model, direct: list[int]) -> None:
    x, out = there(model, rows(3)), outputs(model)
    inputs = {"x": x}
    for seed in (0, 0, 1, 1, 2):  # recorded and replayed; the same object with other memory
        x.array = to_device(model, rows(3, seed))
        assert right(model.run(inputs, out=out), rows(3, seed))
    assert direct == [5]
    good, y = x.array, out["y"].array
    for wrong, says in (
        (rows(5), r"out\['y'\] has shape \[3, 16\]; expected \[5, 16\]"),
        (rows(3)[:, :8], "input 'x' has shape"),
        (rows(3)[0], r"input 'x' has shape \[16\]; expected \[batch, 16\]"),
        (rows(3).astype(np.float64), "input 'x' has type float64; expected float32"),
    ):
        x.array = to_device(model, wrong)
        with pytest.raises(RunError, match=says):
            model.run(inputs, out=out)
    x.array = good
    for wrong, says in ((rows(5), "has shape"), (rows(3).astype(np.float64), "has type float64")):
        out["y"].array = to_device(model, wrong)
        with pytest.raises(RunError, match=rf"out\['y'\] {says}"):
            model.run(inputs, out=out)
    out["y"].array = y
    x.place = (2, 1)
    with pytest.raises(RunError, match="input 'x' is on cuda:1; the model is on cuda:0"):
        model.run(inputs, out=out)
    x.place = (2, 0)
    assert direct == [5] and right(model.run(inputs, out=out), rows(3, 2)) and direct == [6]


def test_a_run_that_fails_is_made_once(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of ranks the second would fail for the first, and say so; a call that is refused is looked at more closely."""
    x, out = there(model, rows(3)), outputs(model)
    model.run({"x": x})
    for status, calls in ((Status.RANKS, 1), (Status.LAUNCH, 1), (Status.DEVICE, 2)):
        for given in (out, None):
            answers: list[int] = []
            monkeypatch.setattr(model, "_call", lambda *_, s=status, to=answers: to.append(s) or s)
            with pytest.raises(RunError) as caught:
                model.run({"x": x}, out=given)
            assert len(answers) == calls and caught.value.remedy == REMEDIES[status]


def test_other_sizes_in_the_same_objects(model: Model, direct: list[int]) -> None:
    x, out = there(model, rows(1)), outputs(model)
    for n in (3, 5, 5, 0, 3, 40, 1):
        x.array = to_device(model, rows(n, n))
        for tensor in out.values():
            tensor.array = to_device(model, np.zeros((n, 16), np.float32))
        assert right(model.run({"x": x}, out=out), rows(n, n))
    assert direct == [7]


def test_a_tensor_that_joins_a_computation_of_gradients(model: Model, direct: list[int]) -> None:
    x, out = there(model, rows(3)), outputs(model)
    for graded in (False, True, False):
        x.requires_grad = graded  # type: ignore[attr-defined]
        x.streams.clear()
        assert right(model.run({"x": x}, out=out), rows(3)) and bool(x.streams) == graded
        out["y"].requires_grad = graded
        assert right(model.run({"x": x}, out=out), rows(3)) and bool(out["y"].streams) == graded
        out["y"].requires_grad = False
        out["y"].streams.clear()
    assert direct == [4]


def test_a_library_that_goes_on_in_another_stream(
    model: Model, direct: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    x, out = there(model, rows(3)), outputs(model)
    for works_in, asked in ((0, set()), (1, set()), (4096, {1}), (0, set()), (4096, {1})):
        monkeypatch.setattr(Described, "works_in", works_in)
        x.streams.clear()
        assert right(model.run({"x": x}, out=out), rows(3)) and set(x.streams) == asked
    assert direct == [5] and not out["y"].streams  # one tensor is asked for all
    x.place = (x.place[0], 7)
    with pytest.raises(RunError, match=r"input 'x' is on .*7; the model is on"):
        model.run({"x": x}, out=out)


def test_tensors_that_take_the_place_of_others(model: Model, direct: list[int]) -> None:
    """An object that is gone leaves its address, by which a new one is known."""
    seen = set()
    for k in range(60):
        n = 1 + k % 4
        x, out = there(model, rows(n, k)), outputs(model, n)
        seen.add(id(x))
        assert right(model.run({"x": x}, out=out), rows(n, k))
        del x, out
    assert len(seen) < 60 and direct == [60]


def test_no_tensor_is_kept(model: Model) -> None:
    x, out = there(model, rows(3)), outputs(model)
    gone = [weakref.ref(tensor) for tensor in (x, *out.values())]
    model.run({"x": x}, out=out)
    model.run({"x": x})
    del x, out
    gc.collect()
    assert all(tensor() is None for tensor in gone)


class Slow(Described):
    """Lets other threads go on while it is described."""

    @property
    def array(self) -> Any:
        time.sleep(1e-4)
        return self.held

    @array.setter
    def array(self, array: Any) -> None:
        self.held = array


def test_threads_that_share_a_model(model: Model, direct: list[int]) -> None:
    """Each has tensors of its own, which are described one after the other, and then read."""

    def work(seed: int) -> bool:
        x, y, z = (Slow(to_device(model, rows(3, seed))) for _ in range(3))
        return all(right(model.run({"x": x}, out={"y": y, Z: z}), rows(3, seed)) for _ in range(25))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(4)))
    assert direct[0] > 50  # counted by several threads


def test_dictionaries_of_every_kind(model: Model, direct: list[int]) -> None:
    x, out = there(model, rows(3)), outputs(model)
    turned = {Z: out[Z], "y": out["y"]}
    for inputs, given in (({"x": x}, turned), (MappingProxyType({"x": x}), out), ({"x": x}, MappingProxyType(turned))):
        found = model.run(inputs, out=given)
        assert list(found) == ["y", Z] and found["y"] is out["y"] and right(found, rows(3))
    assert direct == [1]
    assert model.run({"x": x}, out={Z: out[Z]})[Z] is out[Z]
    filled: dict[str, Any] = defaultdict(lambda: x)
    for inputs, given, says in (
        ({}, out, "input 'x' is missing"),
        (filled, out, "input 'x' is missing"),
        ({"w": x}, out, "there is no input 'w'"),
        ({"x": x, "w": x}, out, "there is no input 'w'"),
        ({"x": x}, {"y": out["y"], "w": out[Z]}, "there is no output 'w'"),
        ({"x": x}, {**out, "w": out[Z]}, "there is no output 'w'"),
    ):
        with pytest.raises(RunError, match=says):
            model.run(inputs, out=given)
    assert not filled and direct == [1]


def test_tensors_of_several_libraries(model: Model, direct: list[int]) -> None:
    x, out, here = there(model, rows(3)), outputs(model), np.zeros((3, 16), np.float32)
    assert model.run({"x": x}, out={"y": here, Z: out[Z]})["y"] is here
    assert np.array_equal(here, tiny.expected(rows(3))["y"]) and direct == [0]
    assert right(model.run({"x": rows(3)}, out=out), rows(3)) and direct == [0]

    class Other(Described):
        """Of a class of its own, with the same table."""

    assert right(model.run({"x": Other(x.array)}, out=out), rows(3)) and direct == [0]
    assert right(model.run({"x": x}, out=out), rows(3)) and direct == [1]


def test_a_run_that_fails_is_not_counted(model: Model) -> None:
    x, out = there(model, rows(3)), outputs(model)
    model.run({"x": x}, out=out)
    runs = model.stats().runs
    with pytest.raises(RunError, match=r"output 0 .* overlaps input 0"):
        model.run({"x": x}, out={"y": x, Z: out[Z]})
    assert model.stats().runs == runs and right(model.run({"x": x}, out=out), rows(3))
    assert model.stats().runs == runs + 1
