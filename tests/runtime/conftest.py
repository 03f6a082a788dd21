"""Fixtures of tests of models on a device: bundles for the emulator, and for a card where there is one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.bundle import tiny_cuda
from tests.emulation.emulated import emulated_tools
from torshc.base.errors import ToolchainError
from torshc.targets.gpu.cuda.nvcc import find_cards, find_nvcc

Write = Callable[..., Path]


def _has_card() -> bool:
    try:
        find_nvcc()
    except ToolchainError:
        return False
    return bool(find_cards())


@pytest.fixture(scope="module", params=["emulated", "card"])
def write(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Write]:
    """Writes a bundle; each kind once."""
    folder, made = tmp_path_factory.mktemp("cuda"), dict[str, Path]()
    if request.param == "card" and not _has_card():
        pytest.skip("no nvcc or no card")

    def once(batch: int | None = None, **options: Any) -> Path:
        key = f"{batch} {options}"
        if key not in made:
            made[key] = tiny_cuda.write(folder / f"{len(made)}.tsc", batch, **options)
        return made[key]

    if request.param == "card":
        yield once
        return
    with emulated_tools():
        yield once


@pytest.fixture
def emulated(write: Write, request: pytest.FixtureRequest) -> Write:
    if "card" in request.node.name:
        pytest.skip("only the emulator fails on demand")
    return write
