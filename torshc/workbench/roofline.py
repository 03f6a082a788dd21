"""What a machine can do at the most, measured where a model runs: the roof that its kernels stand under.

A kernel takes at least as long as its bytes take through memory, and as its arithmetic takes in the units that do it.
The first rate is that of a copy. The second is measured on a processor; of a card it is what its multiprocessors do in
a cycle.
"""

from __future__ import annotations

import ctypes
import math
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ..base.cache import Cache
from ..base.errors import ConfigError, RunError
from ..base.folders import scratch_folder
from ..base.resources import cache_folder, template_folders
from ..bundle.build import build_objects, link_library
from ..bundle.host import CPU
from ..kernels.base import Kernel
from ..pipeline.compilation import Compilation, kernel_headers
from ..targets.base import environment

COPIED = 64 << 20  # bytes that a thread of a processor copies
SECONDS = 0.05  # of a measurement on a processor
CUDA = 2  # DLPack's code
# Operations of a multiprocessor in a cycle, by compute capability: of f32 outside of tensor cores, and of halves on
# tensor cores, summed in f32. tf32 takes twice as long there as halves.
PLAIN = {75: 128, 80: 128, 86: 256, 87: 256, 89: 256, 90: 256, 100: 256, 103: 256, 120: 256}
TENSOR = {75: 1024, 80: 2048, 86: 512, 87: 1024, 89: 512, 90: 4096, 100: 8192, 103: 8192, 120: 512}


@dataclass(frozen=True)
class Roof:
    """The rates that a machine has at the most.

    Attributes:
        bytes: read and written in a second, by a copy.
        flops: operations in a second, by what does them ("f32", "f16", "tf32", "3tf32"; "bf16" by tiles of AMX).
        how: where this comes from, for people.
    """

    bytes: float
    flops: dict[str, float] = field(default_factory=dict)
    how: str = ""

    def least(self, flops: float, nbytes: float, unit: str) -> tuple[float, str]:
        """Seconds that a kernel takes at the least, and whether "bytes" or "flops" decide that.

        >>> Roof(1e9, {"f32": 1e10}).least(1e9, 5e7, "f32")
        (0.1, 'flops')
        """
        moved = nbytes / self.bytes
        computed = flops / self.flops[unit] if unit in self.flops else 0.0
        return (computed, "flops") if computed > moved else (moved, "bytes")


class Meter:
    """A library that measures the machine of a compilation.

    Raises:
        ToolchainError: it cannot be compiled.
    """

    def __init__(self, compilation: Compilation) -> None:
        self.target, name = compilation.target, f"roof{compilation.target.suffix}"
        options, tools = compilation.options, self.target.toolchain.find(compilation.options, compilation.isa)
        text = environment(self.target.search).get_template(f"{name}.j2").render()
        cache = Cache(cache_folder() if options.cache else None)
        with scratch_folder() as folder:
            objects = build_objects(
                {name: text}, kernel_headers(compilation), tools.compiler, tools.flags, cache, 1, folder
            )
            self.library = ctypes.CDLL(str(link_library(tools.compiler, objects, folder)))

    def roof(self, threads: int) -> Roof:
        """What so many threads of the processor, 0 for one a processor, or the card can do.

        Raises:
            RunError: it cannot be measured.
        """
        return self._processor(threads or len(os.sched_getaffinity(0))) if self.target.device == CPU else self._card()

    def _processor(self, threads: int) -> Roof:
        copy, rates = self.library.t_copy_rate, {"f32": self.library.t_flop_rate, "bf16": self.library.t_tile_rate}
        copy.restype = ctypes.c_double
        copy.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_double)
        for multiply in rates.values():
            multiply.restype, multiply.argtypes = ctypes.c_double, (ctypes.c_double,)

        def copied(_: int) -> float:
            to, source = np.ones(COPIED, np.uint8), np.ones(COPIED, np.uint8)
            return float(copy(to.ctypes.data, source.ctypes.data, COPIED, SECONDS))

        with ThreadPoolExecutor(threads) as pool:
            moved = sum(pool.map(copied, range(threads)))
            done = {unit: sum(pool.map(rate, [SECONDS] * threads)) for unit, rate in rates.items()}
        computed = {unit: float(rate) for unit, rate in done.items() if rate}
        return Roof(moved, computed, f"measured, {threads} thread{'s' if threads > 1 else ''}")

    def _card(self) -> Roof:
        found = (ctypes.c_int64 * 4)()
        self.library.t_card(found)
        units, clock, capability, cache = found
        self.library.t_copy_rate.restype, self.library.t_copy_rate.argtypes = ctypes.c_double, (ctypes.c_int64,)
        moved = float(self.library.t_copy_rate(8 * max(cache, 1 << 20)))
        if not moved > 0 or not math.isfinite(moved):
            raise RunError("the card's copy bandwidth cannot be measured", "leave out --profile, or free its memory")
        cycles = units * clock * 1e3
        flops = {"f32": cycles * PLAIN[capability]} if capability in PLAIN else {}
        if capability in TENSOR:
            half = cycles * TENSOR[capability]
            flops |= {"f16": half, "tf32": half / 2, "3tf32": half / 6}
        return Roof(moved, flops, f"copy measured, {units} multiprocessors at {clock / 1e6:.2f} GHz")

    def flush(self) -> None:
        """Writes twice the card's second cache.

        Raises:
            RunError: it cannot.
        """
        if self.library.t_flush():
            raise RunError("the card's second cache cannot be written", "leave out --flush-l2, or free its memory")


def meter_of(compilation: Compilation) -> Meter | None:
    """What measures the machine that a compilation is for; None where there is nothing for its target."""
    name = f"roof{compilation.target.suffix}.j2"
    known = any((folder / name).is_file() for folder in map(Path, template_folders(compilation.target.search)))
    return Meter(compilation) if known else None


def require_flush(target: Any) -> None:
    """Raises ConfigError for a target without a second cache to write."""
    if target.device != CUDA:
        raise ConfigError(
            f"--flush-l2 is for cards, and the target {target.name} is none", "it goes with --target cuda"
        )


def unit_of(kernel: Kernel) -> str:
    """What does the arithmetic of a kernel, by its operands; empty for integers, which no roof here is of."""
    reads = {b.dtype.name for b in kernel.buffers if not b.written}
    if kernel.kind not in ("nest", "row") and reads & {"i8", "u8"}:
        return ""
    if "amx-bf16" in kernel.needs:
        return "bf16"
    if not kernel.template.endswith(("_mma.j2", "_group.j2", "_tf32.j2")):
        return "f32"
    if reads & {"f16", "bf16"}:
        return "f16"
    return "3tf32" if getattr(getattr(kernel, "tile", None), "products", 1) == 3 else "tf32"
