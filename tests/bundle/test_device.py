"""Libraries for devices from C++, through the emulator, and on a card where there is one."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.emulation.emulated import emulated_tools
from tests.support.compilers import build, needed_cxx
from torshc.targets.gpu.cuda.nvcc import find_cards

from . import tiny_cuda

HERE = Path(__file__).parent


@pytest.fixture(params=["emulated", "card"])
def tools(request: pytest.FixtureRequest) -> Iterator[None]:
    if request.param == "card":
        if not find_cards():
            pytest.skip("no card")
        yield
        return
    with emulated_tools():
        yield


@pytest.mark.parametrize("batch", [None, 5], ids=["symbolic", "static"])
@pytest.mark.parametrize("options", [{}, {"embed": True, "fallback": True}, {"profile": True}], ids=str)
@pytest.mark.usefixtures("tools")
def test_from_cxx(tmp_path: Path, batch: int | None, options: dict[str, bool]) -> None:
    bundle = tiny_cuda.write(tmp_path / "b.tsc", batch, **options)  # type: ignore[arg-type]  # switches alone
    target = tmp_path / "device_test"
    command = [
        needed_cxx(),
        "-std=c++17",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-O1",
        f"-I{bundle}",
        HERE / "device_test.cpp",
    ]
    build([*command, bundle / "libmodel.so", "-lpthread", "-o", target])
    weights = "-" if options.get("embed") else str(bundle / "weights.bin")
    done = subprocess.run([str(target), weights, str(batch or 0)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and "0 failures" in done.stdout, done.stdout + done.stderr
