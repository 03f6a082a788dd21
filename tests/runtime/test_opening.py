"""Loading bundles that others replace meanwhile."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.bundle import tiny
from torshc.base.errors import BundleError
from torshc.bundle.package import _exchange
from torshc.runtime import load, opening

X = np.linspace(-3, 3, 64, dtype=np.float32).reshape(4, 16)
WEIGHTS = [np.full(16, value, np.float32) for value in (1, 2)]


@pytest.fixture
def bundles(tmp_path: Path) -> tuple[Path, Path]:
    """Two bundles of one model with other weights, of two builds: a place, and what takes turns there."""
    place, other = tmp_path / "b.tsc", tmp_path / "other.tsc"
    for folder, weights in zip((place, other), WEIGHTS, strict=True):
        tiny.write(folder, weights=weights)
    return place, other


def swap(place: Path, other: Path, gap: bool) -> None:
    """As a bundle is replaced, where the system can exchange two folders in one step and where it cannot."""
    if not gap and _exchange(place, other):
        return
    aside = place.with_name("aside")
    place.rename(aside)
    other.rename(place)
    aside.rename(other)


@contextmanager
def swapping(place: Path, other: Path, gap: bool) -> Iterator[None]:
    """Another process swaps them all the time, but leaves them alone for as long as five loads take here."""
    began = time.perf_counter()
    which(place, verify=True)
    pause = 5 * (time.perf_counter() - began)
    child = os.fork()
    if not child:
        while True:
            swap(place, other, gap)
            time.sleep(pause)
    try:
        yield
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)


def which(place: Path, verify: bool) -> int:
    """The number of the bundle that was loaded, by its answer."""
    with load(place, threads=1, verify=verify) as model:
        (found,) = (k for k, w in enumerate(WEIGHTS) if np.array_equal(model(X)[0], np.maximum(X, 0) + w))
    return found


@pytest.mark.parametrize("gap", [False, True], ids=["exchanged", "in two steps"])
def test_loads_while_others_replace(
    bundles: tuple[Path, Path], gap: bool, record_property: Callable[[str, object], None]
) -> None:
    count = 200
    with swapping(*bundles, gap):
        seen = {which(bundles[0], verify=bool(k % 2)) for k in range(count)}
    assert seen == {0, 1}
    record_property("loads during replacement", count)


@pytest.mark.parametrize("name", ["read_manifest", "require_plain", "_check_file", "Library", "Opened", "Model"])
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_bundle_that_is_replaced_at_each_step(
    bundles: tuple[Path, Path], name: str, after: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    step, left = getattr(opening, name), [1]

    def replaced(*arguments: Any) -> Any:
        done = step(*arguments) if after else None
        if left:
            left.clear()
            swap(*bundles, gap=False)
        return done if after else step(*arguments)

    monkeypatch.setattr(opening, name, replaced)
    assert which(bundles[0], verify=True) == 1 and not left


def test_a_bundle_that_goes_and_comes_back(bundles: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Both within a tick of the clock, so that nothing tells: its manifest meets the other's library."""
    step, left = opening.Library, [1]

    def replaced(*arguments: Any) -> Any:
        if not left:
            return step(*arguments)
        left.clear()
        swap(*bundles, gap=False)
        try:
            return step(*arguments)
        finally:
            swap(*bundles, gap=False)

    found = opening._identity(bundles[0])
    monkeypatch.setattr(opening, "_identity", lambda _: found)
    monkeypatch.setattr(opening, "_TICK", 3600)
    monkeypatch.setattr(opening, "Library", replaced)
    assert which(bundles[0], verify=True) == 0 and not left


def test_a_bundle_that_is_never_left_alone(bundles: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    step = opening.Library

    def replaced(*arguments: Any) -> Any:
        swap(*bundles, gap=False)
        return step(*arguments)

    monkeypatch.setattr(opening, "Library", replaced)
    with pytest.raises(BundleError, match=r"keeps being replaced|belongs to another"):
        load(bundles[0])


def test_what_is_wrong_is_said_soon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tries, step = [], opening.read_manifest

    def counted(folder: Path) -> Any:
        tries.append(folder)
        return step(folder)

    monkeypatch.setattr(opening, "read_manifest", counted)
    with pytest.raises(BundleError, match="is not a folder"):
        load(tmp_path / "none.tsc")
    assert len(tries) == opening._LOOKS
    with pytest.raises(BundleError, match=r"is not a torshc bundle: manifest\.json: No such file"):
        load(tmp_path)
    place = tiny.write(tmp_path / "b.tsc")
    with pytest.raises(BundleError, match=r"b\.tsc/weights\.bin is a file of a bundle"):
        load(place / "weights.bin")
    tries.clear()
    (place / "weights.bin").write_bytes(b"damaged")
    time.sleep(2 * opening._TICK)  # what has just been replaced is looked at again
    with pytest.raises(BundleError, match="was altered"):
        load(place)
    assert len(tries) == 1
