"""Runs kernels for AArch64 in tests: compiled and linked by Zig without a C library, run by qemu.

A program has all kernels of a graph. It maps a file with their memory, in which every buffer ends at a page that it
makes unreadable, and runs the tasks of each one by one, the last first, with spoilt scratch.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest

from torshc.base import resources
from torshc.base.options import CompileOptions
from torshc.graph import Graph
from torshc.kernels.base import Kernel
from torshc.kernels.machine import Machine
from torshc.targets.base import Rendered
from torshc.targets.cc import CToolchain
from torshc.targets.cpu.c import CTarget
from torshc.targets.isa import resolve

from .run_kernel import FLAGS, Array, Memory, Planned, guarded, number

TRIPLE = "aarch64-linux-musl"
PAGE = 4096
MAIN = Path(__file__).with_name("emulated.c")


@dataclass(frozen=True)
class Launch:
    """A kernel, what it is called with, and its memory."""

    kernel: Kernel
    symbol: str
    source: str
    buffers: list[tuple[Memory, int]]
    dims: list[int]
    scratch: Memory
    tasks: int


class Emulated(Planned):
    """A planned graph, run on a processor that this machine is not.

    Args:
        mcpu: the processor that it is compiled for.
    """

    def __init__(self, graph: Graph, mcpu: str, dims: Mapping[str, int] | None = None) -> None:
        pytest.importorskip("ziglang")
        if (qemu := shutil.which("qemu-aarch64")) is None:
            pytest.skip("qemu-user is not installed")
        self.isa, self.qemu = resolve(mcpu, TRIPLE), qemu
        self.folder = TemporaryDirectory(prefix="torshc-emulated-")
        machine = Machine(self.isa.lanes, "clang", extras=self.isa.extras)
        super().__init__(graph, dims, CTarget(machine), None, None, guarded)

    def _prepare(self, kernel: Kernel, made: Rendered) -> Launch:
        return Launch(
            kernel,
            made.symbol,
            made.source,
            [(self._memory(b.operand, b.dtype), b.start_bytes) for b in kernel.buffers],
            [int(n) for n in self._arguments(kernel, made)[1]],
            guarded(number(kernel.scratch, self.dims_of), np.dtype(np.uint8)),
            number(kernel.tasks, self.dims_of),
        )

    def run(self, *inputs: Array, on: str = "max") -> list[Array]:
        """Values of the graph's outputs for values of its inputs, on a processor by qemu's name."""
        self.write(inputs)
        assert self.status(on) == 0
        return [self.read(v) for v in self.graph.outputs]

    def status(self, processor: str) -> int:
        """How the program ends on a processor; below 0 it is a signal."""
        image = Path(self.folder.name) / "image"
        memories = self._write_image(image)
        done = subprocess.run([self.qemu, "-cpu", processor, self.program, image], capture_output=True, check=False)
        data = np.fromfile(image, np.uint8)
        for memory, end in memories:
            memory.array.view(np.uint8)[...] = data[end - memory.array.nbytes : end]
        return done.returncode

    @cached_property
    def program(self) -> Path:
        """The program, made when it is first asked for."""
        folder = Path(self.folder.name)
        tools = CToolchain().find(CompileOptions.create(triple=TRIPLE, cc="zig"), self.isa)
        names = [launch.symbol for launch in self.launches]
        sources = {f"{launch.symbol}.c": launch.source for launch in self.launches}
        sources[MAIN.name] = MAIN.read_text()
        sources["kernels.h"] = "".join(f"t_kernel {name};\n" for name in names)
        sources["kernels.h"] += f"static t_kernel *const kernels[] = {{{', '.join(names)}}};\n"
        for name, text in sources.items():
            (folder / name).write_text(text)
        parts = [name for name in sources if name.endswith(".c")]
        flags = [*FLAGS, "-fno-sanitize=undefined", "-g0", *tools.compiler.isa_flags(self.isa)]
        flags += [f"-I{resources.templates('c') / 'prelude'}"]
        objects = [Path(name).with_suffix(".o").name for name in parts]
        for part, made in zip(parts, objects, strict=True):
            tools.compiler.compile(part, made, flags, folder)
        tools.compiler.run(["-static", "-nostdlib", *objects, "-o", "program"], folder)
        return folder / "program"

    def _write_image(self, image: Path) -> list[tuple[Memory, int]]:
        """The file that the program maps: words for it, then memory. Returns where each memory ends."""
        memories = {id(m): m for x in self.launches for m in (*(m for m, _ in x.buffers), x.scratch)}
        words = 2 + len(memories) + sum(5 + len(x.buffers) + len(x.dims) for x in self.launches)
        at, ends = -(-8 * words // PAGE) * PAGE, {}
        for key, memory in memories.items():  # each ends where a page does, and the next page is for nothing
            at += -(-memory.array.nbytes // PAGE) * PAGE
            ends[key] = at
            at += PAGE
        head = [len(memories), len(self.launches), *ends.values()]
        for x in self.launches:
            scratch = ends[id(x.scratch)]
            buffers = [ends[id(m)] - m.array.nbytes + start for m, start in x.buffers]
            head += [x.tasks, scratch - x.scratch.array.nbytes, x.scratch.array.nbytes, len(buffers), len(x.dims)]
            head += [*buffers, *x.dims]
        assert len(head) == words
        data = np.zeros(at, np.uint8)
        data[: 8 * words] = np.array(head, np.int64).view(np.uint8)
        for key, memory in memories.items():
            data[ends[key] - memory.array.nbytes : ends[key]] = memory.array.view(np.uint8)
        data.tofile(image)
        return [(memory, ends[key]) for key, memory in memories.items()]


__all__ = ["TRIPLE", "Emulated"]
