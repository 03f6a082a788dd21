"""Runs kernels in tests: renders and compiles them, lays out their memory, calls them through ctypes.

Every buffer ends at a page that must not be touched, outputs and scratch start out as NaN, and the tasks of a kernel
are run one by one in a shuffled order, so that reads and writes beyond an end, reads of what nobody wrote, and results
that depend on how tasks are split do not pass unseen.
"""

from __future__ import annotations

import ctypes
import mmap
import platform
import random
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from torshc.base import resources
from torshc.base.folders import scratch_folder
from torshc.expr import DType, Expr, as_int, const, dim, substitute
from torshc.graph import Graph, Value
from torshc.kernels.base import Kernel, Packed, Temporary
from torshc.kernels.machine import Machine
from torshc.passes.policy import Policy
from torshc.plan.finalise import finalise
from torshc.plan.place import Plan, make_plan
from torshc.targets.base import Rendered, Target
from torshc.targets.cpu.c import CTarget
from torshc.targets.isa import resolve

from .compilers import hosts, library, needed

Array = np.ndarray[Any, Any]
FLAGS = [
    "-std=gnu11", "-O3", "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math",
    "-fno-strict-aliasing", "-Wall", "-Wextra", "-Werror",
]  # fmt: skip
ISA = {16: ["-march=x86-64-v4"], 8: ["-march=x86-64-v3"], 4: ["-march=x86-64-v2"]}
_LIBC = ctypes.CDLL(None, use_errno=True)


def compilers() -> tuple[str, ...]:
    """Kinds of the compilers that are here, the one that torshc finds first: "clang", "gcc" or "zig"."""
    return tuple(host.kind for host in hosts())


def native_lanes() -> int:
    """Lanes that this processor and the compilers' flags above can run."""
    if platform.machine() == "aarch64":
        return 4
    info = Path("/proc/cpuinfo")
    flags = info.read_text().split() if info.exists() else []
    return 8 if "avx2" in flags and "fma" in flags else 4 if "sse4_2" in flags else 1


@lru_cache
def native_extras() -> tuple[str, ...]:
    """Instruction sets beyond x86-64-v4 that this process may use; Linux is asked for tiles."""
    extras = resolve().extras
    request, tile_data = 0x1023, 18  # of arch_prctl, which is system call 158
    if "amx-tile" in extras and _LIBC.syscall(158, request, tile_data):
        extras = tuple(e for e in extras if not e.startswith("amx"))
    return extras


def kind_of(compiler: str) -> str:
    """What a machine calls a compiler: Zig's is clang."""
    return "clang" if compiler == "zig" else compiler


@lru_cache(maxsize=512)
def compile_source(source: str, lanes: int, compiler: str, extra: tuple[str, ...] = ()) -> ctypes.CDLL:
    """A shared library of one kernel; warnings are errors."""
    isa = ISA.get(lanes, []) if platform.machine() == "x86_64" else []
    if compiler == "zig":
        isa = [flag.replace("x86-64-v", "x86_64_v") for flag in isa]
    command = [needed(compiler).cc, *FLAGS, *isa, f"-DTORSHC_LANES={lanes}", *extra]
    with scratch_folder() as folder:
        path = folder / "k.c"
        path.write_text(source)
        return ctypes.CDLL(str(library(command, path, resources.templates("c") / "prelude", "t_kernel.h")))


@dataclass
class Memory:
    """A flat array that ends at a page nobody may touch."""

    array: Array
    page: Any = field(repr=False)


def guarded(count: int, dtype: np.dtype[Any]) -> Memory:
    """Memory of `count` elements, filled with NaN (or the largest number)."""
    size = max(count * dtype.itemsize, 1)
    pages = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
    area = mmap.mmap(-1, pages + mmap.PAGESIZE)
    start = ctypes.addressof(ctypes.c_char.from_buffer(area))
    if _LIBC.mprotect(ctypes.c_void_p(start + pages), mmap.PAGESIZE, 0):
        raise OSError(ctypes.get_errno(), "mprotect")
    array = np.frombuffer(area, dtype, count, pages - count * dtype.itemsize)
    array.view(np.uint8)[...] = 255 if dtype != np.bool_ else 1
    return Memory(array, area)


def number(e: Expr | int, dims: Mapping[str, int]) -> int:
    """The value of a size."""
    value = as_int(substitute(e, {dim(k): const(v) for k, v in dims.items()}) if isinstance(e, Expr) else e)
    assert value is not None, f"{e!r} with {dims}"
    return value


def to_memory(array: Array, value: Value) -> Array:
    """The elements of a value in the order of its layout."""
    return np.ascontiguousarray(array if value.layout is None else array.transpose(value.layout)).reshape(-1)


@dataclass
class Launch:
    """A kernel that is ready to be called."""

    kernel: Kernel
    source: str
    function: Any
    pointers: Any
    dims: Any
    scratch: Memory
    tasks: int

    def run(self, begin: int = 0, end: int | None = None) -> None:
        where = self.scratch.array.ctypes.data if self.scratch.array.size else None
        self.function(self.pointers, self.dims, where, begin, self.tasks if end is None else end)

    def run_shuffled(self, seed: int = 0) -> None:
        """Each task on its own, in another order, with spoilt scratch."""
        order = list(range(self.tasks))
        random.Random(seed).shuffle(order)
        for task in order if len(order) <= 500 else [None]:
            self.scratch.array.view(np.uint8)[...] = 255
            self.run(*((task, task + 1) if task is not None else (0, self.tasks)))

    def seconds(self, repeats: int = 9, budget: float = 0.2) -> float:
        """Median time of a call over all tasks on one thread."""
        self.run()
        start = time.perf_counter()
        self.run()
        inner = max(1, int(budget / repeats / max(time.perf_counter() - start, 1e-6)))
        times = []
        for _ in range(repeats):
            start = time.perf_counter()
            for _ in range(inner):
                self.run()
            times.append((time.perf_counter() - start) / inner)
        return float(np.median(times))


class Planned(ABC):
    """A planned graph with its kernels built and its memory laid out.

    Args:
        graph: the graph; its plan is made here unless `plan` is given.
        dims: values of the symbolic dimensions.
        target: what to lower and render with.
        guarded: what makes memory.
    """

    def __init__(
        self,
        graph: Graph,
        dims: Mapping[str, int] | None,
        target: Target,
        limits: Policy | None,
        plan: Plan | None,
        guarded: Callable[[int, np.dtype[Any]], Any],
    ) -> None:
        self.graph, self.dims_of, self.target, self.guarded = graph, dict(dims or {}), target, guarded
        self.plan = plan or make_plan(finalise(graph, limits or Policy.of()))
        self.memory: dict[object, Any] = {}
        self.launches: list[Any] = []
        for group in self.plan.groups:
            for kernel in target.lower(graph, group, self.plan.storage):
                self.launches.append(self._prepare(kernel, target.render(kernel)))

    @abstractmethod
    def _prepare(self, kernel: Kernel, made: Rendered) -> Any:
        """The kernel, ready to be launched."""

    @property
    def kernels(self) -> list[Kernel]:
        return [x.kernel for x in self.launches]

    def _arguments(self, kernel: Kernel, made: Rendered) -> tuple[Any, Any]:
        """The buffers and the sizes that a kernel is called with."""
        buffers = [self._memory(b.operand, b.dtype).array.ctypes.data + b.start_bytes for b in kernel.buffers]
        sizes = [number(dim(d) if isinstance(d, str) else d, self.dims_of) for d in made.dims]
        return (ctypes.c_void_p * max(len(buffers), 1))(*buffers), (ctypes.c_int64 * max(len(sizes), 1))(*sizes)

    def _memory(self, operand: Value | Packed | Temporary, dtype: DType) -> Any:
        if operand not in self.memory:
            self.memory[operand] = self._fill(operand, dtype)
        return self.memory[operand]

    def _fill(self, operand: Value | Packed | Temporary, dtype: DType) -> Any:
        if isinstance(operand, Temporary):
            return self.guarded(-(-number(operand.nbytes, self.dims_of) // dtype.size), dtype.numpy)
        if isinstance(operand, Packed):
            assert operand.source.const is not None
            flat = np.concatenate([np.ravel(part) for part in operand.make(operand.source.const)])
            assert flat.nbytes == operand.nbytes, operand.how
        elif operand.const is not None:
            flat = to_memory(operand.const, operand)
        else:
            return self.guarded(number(operand.type.size, self.dims_of), dtype.numpy)
        out = self.guarded(flat.size, flat.dtype)
        out.array[...] = flat
        return out

    def write(self, inputs: Sequence[Array]) -> None:
        """Put values of the graph's inputs into their memory."""
        for value, array in zip(self.graph.inputs, inputs, strict=True):
            self._memory(value, value.dtype).array[...] = to_memory(array.astype(value.dtype.numpy), value)

    def read(self, value: Value) -> Array:
        """The contents of a value in memory, as a logical array."""
        shape = [number(d, self.dims_of) for d in value.shape]
        place = self.plan.storage.get(value)
        root = place.root if place else value
        start = number(place.offset, self.dims_of) if place else 0
        strides = [number(s, self.dims_of) for s in (place.strides if place else value.strides)]
        flat = self._memory(root, root.dtype).array[start:]
        return np.lib.stride_tricks.as_strided(flat, shape, [s * flat.itemsize for s in strides]).copy()


class Program(Planned):
    """A planned graph, run on the processor.

    Args:
        machine: lanes and compiler to lower for.
        compiler: the compiler to run.
    """

    def __init__(
        self,
        graph: Graph,
        dims: Mapping[str, int] | None = None,
        machine: Machine | None = None,
        compiler: str | None = None,
        limits: Policy | None = None,
        plan: Plan | None = None,
    ) -> None:
        self.compiler = compiler or compilers()[0]
        self.machine = machine or Machine(lanes=native_lanes(), compiler=kind_of(self.compiler))
        super().__init__(graph, dims, CTarget(self.machine), limits, plan, guarded)

    def _prepare(self, kernel: Kernel, made: Rendered) -> Launch:
        here = native_extras() if self.machine.lanes == 16 else ()
        flags = tuple(f"-m{e}" for e in self.machine.extras if e in here)
        library = compile_source(made.source, self.machine.lanes, self.compiler, flags)
        function = library[made.symbol]
        function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64]
        function.restype = None
        return Launch(
            kernel,
            made.source,
            function,
            *self._arguments(kernel, made),
            guarded(number(kernel.scratch, self.dims_of) // 4, np.dtype(np.float32)),
            number(kernel.if_launched(kernel.tasks), self.dims_of),
        )

    def run(self, *inputs: Array, shuffled: bool = True) -> list[Array]:
        """Values of the graph's outputs for values of its inputs."""
        self.write(inputs)
        for launch in self.launches:
            launch.run_shuffled() if shuffled else launch.run()
        return [self.read(v) for v in self.graph.outputs]


def kinds(program: Program) -> list[str]:
    """The template of each kernel."""
    return [k.template.removesuffix(".c.j2") for k in program.kernels]


def close(actual: Array, expected: Array, tolerance: float = 1e-4) -> None:
    """Fails when max|a-b| / max|b| is larger."""
    assert actual.shape == expected.shape
    if actual.size:
        scale = max(float(np.abs(expected).max()), 1e-30)
        error = float(np.abs(actual.astype(np.float64) - expected.astype(np.float64)).max())
        assert error / scale <= tolerance, error / scale


def sources(program: Program) -> Sequence[str]:
    return [x.source for x in program.launches]
