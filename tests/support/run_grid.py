"""Runs kernels of devices of blocks in tests: renders them for CUDA, builds them with the emulator, launches them.

There the device's memory is the host's. Every buffer starts at a multiple of 16 bytes, as packets need, and ends at a
page that must not be touched, or at bytes before it that are looked at after a run; whatever a kernel writes starts out
as NaN. The emulator runs blocks and threads in an order of its own, which ``T_EMULATE_ORDER`` changes.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import subprocess
import sys
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.emulation.emulated import BIN, missing
from torshc.base.folders import scratch_folder
from torshc.expr import const
from torshc.graph import Graph
from torshc.kernels.base import Kernel
from torshc.kernels.machine import Machine
from torshc.passes.policy import Policy
from torshc.plan.place import Plan
from torshc.targets import Rendered, Target, find_target

from .compilers import program
from .run_kernel import _LIBC, Array, Planned, number

FLAGS = ["-std=c++17", "-O1", "-shared", "-Xcompiler", "-fPIC,-Wall,-Wextra,-Werror"]
GUARD = 0xFF
needs_emulator = pytest.mark.skipif(missing() is not None, reason=missing() or "")


@lru_cache(maxsize=1)
def _version() -> str:
    """What the emulator says about its own state."""
    return subprocess.run(
        [sys.executable, BIN / "nvcc", "--version"], capture_output=True, text=True, check=True
    ).stdout


@lru_cache(maxsize=512)
def compile_grid(source: str) -> Path:
    """A shared library of one kernel, for the emulator; warnings are errors."""
    with scratch_folder() as folder:
        for name, text in find_target("cuda")(Machine()).header_texts().items():
            (folder / name).write_text(text)
        path = folder / "k.cu"
        path.write_text(source + '\nextern "C" int t_finish() { return (int)cudaDeviceSynchronize(); }\n')
        return program([sys.executable, "-I", "-S", str(BIN / "nvcc"), *FLAGS], [path], [folder], version=_version())


@dataclass
class Memory:
    """A flat array, the bytes between its end and the page that nobody may touch, and what holds both."""

    array: Array
    rest: Array
    area: Any = field(repr=False)


def guarded(count: int, dtype: np.dtype[Any]) -> Memory:
    """Memory of `count` elements at a multiple of 16 bytes, filled with NaN (or the largest number)."""
    used = count * dtype.itemsize
    size = -(-max(used, 1) // 16) * 16
    pages = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
    area = mmap.mmap(-1, pages + mmap.PAGESIZE)
    start = ctypes.addressof(ctypes.c_char.from_buffer(area))
    if _LIBC.mprotect(ctypes.c_void_p(start + pages), mmap.PAGESIZE, 0):
        raise OSError(ctypes.get_errno(), "mprotect")
    whole = np.frombuffer(area, np.uint8, size, pages - size)
    whole[...] = GUARD if dtype != np.bool_ else 1
    return Memory(whole[:used].view(dtype), whole[used:], area)


@dataclass
class Launch:
    """A kernel that is ready to be launched."""

    kernel: Kernel
    source: str
    library: Path | None
    symbol: str
    pointers: Any
    dims: Any
    blocks: int

    def run(self) -> None:
        """Launches it in this process, unless its sizes leave it out."""
        if self.blocks == 0:
            return
        library = ctypes.CDLL(str(self.library))
        function = library[self.symbol]
        function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p]
        function.restype = ctypes.c_int
        assert function(self.pointers, self.dims, self.blocks, None) == 0
        assert library.t_finish() == 0


def run_apart(launches: Sequence[Launch]) -> None:
    """Launches kernels in a process of their own, which shares the buffers.

    Every library has an emulator with a stack for each thread of a block, more than one process may map for all tests;
    and what touches a guarded page ends that process alone.
    """
    child = os.fork()
    if child == 0:
        status = 1
        try:
            for launch in launches:
                launch.run()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)
    _, status = os.waitpid(child, 0)
    assert status == 0, f"the kernels ended with status {os.waitstatus_to_exitcode(status)}"


class GridProgram(Planned):
    """A planned graph, run by the emulator.

    Args:
        target: what to lower and render with; CUDA by default.
    """

    def __init__(
        self,
        graph: Graph,
        dims: Mapping[str, int] | None = None,
        target: Target | None = None,
        limits: Policy | None = None,
        plan: Plan | None = None,
    ) -> None:
        super().__init__(graph, dims, target or find_target("cuda")(Machine()), limits, plan, guarded)

    def _prepare(self, kernel: Kernel, made: Rendered) -> Launch:
        launched = number(kernel.if_launched(const(1)), self.dims_of) == 1
        return Launch(
            kernel,
            made.source,
            compile_grid(made.source) if launched else None,
            made.symbol,
            *self._arguments(kernel, made),
            number(kernel.if_launched(kernel.tasks), self.dims_of),
        )

    def run(self, *inputs: Array) -> list[Array]:
        """Values of the graph's outputs for values of its inputs."""
        self.write(inputs)
        run_apart(self.launches)
        for operand, memory in self.memory.items():
            assert (memory.rest == GUARD).all() or memory.array.dtype == np.bool_, f"written beyond {operand!r}"
        return [self.read(v) for v in self.graph.outputs]


def templates(program: GridProgram) -> list[str]:
    """The template of each kernel that the program's sizes launch."""
    return [x.kernel.template.removesuffix(".j2") for x in program.launches if x.library is not None]
