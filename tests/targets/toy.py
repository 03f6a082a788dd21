"""A target as somebody might add one: a device with a number and a toolchain of its own, whose blocks have one thread.

This file and the folder ``toy`` are all of it: how a kernel begins and ends, the device layer, the script that builds.
"""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torshc.base.options import CompileOptions
from torshc.expr import product
from torshc.graph import Value
from torshc.kernels.base import Kernel
from torshc.kernels.generic import lower_generic
from torshc.kernels.lower import idle_when_empty
from torshc.kernels.machine import Machine
from torshc.kernels.nest import MapKernel, RowKernel, lower_nest
from torshc.plan.group import Group
from torshc.plan.storage import Storage
from torshc.targets import NoKernel, register
from torshc.targets.cc import CCompiler, find_compiler
from torshc.targets.gpu.base import HOST, GridTarget, Words
from torshc.targets.gpu.grid import GridMap, GridRow
from torshc.targets.isa import Isa, resolve
from torshc.targets.toolchain import BASE_FLAGS, LINK_FLAGS, Survey, Toolchain, Tools, found


class ToyCompiler(CCompiler):
    """A C compiler that knows the ending of the toy's kernels."""

    def compile(self, source: str, target: str, flags: Sequence[str], cwd: Path, timeout: float = 600.0) -> None:
        language = ["-x", "c"] if source.endswith(ToyTarget.suffix) else []
        super().compile(source, target, [*flags, *language], cwd, timeout)


class ToyToolchain(Toolchain):
    """The C compiler that is here, with other flags."""

    def find(self, options: CompileOptions, isa: Isa) -> Tools:
        cc = find_compiler(options.cc or None)
        compiler = ToyCompiler("toycc", cc.command, cc.version, cc.env, cc.kind)
        return Tools(compiler, (*compiler.base_flags(1), *isa.flags(cc.kind), "-Wno-psabi", "-Werror=implicit-int"))

    def script(self, options: CompileOptions, versions: Mapping[str, Isa]) -> dict[str, Any]:
        isa = next(iter(versions.values()))
        flags = ["-O1", *BASE_FLAGS, *isa.flags("clang"), "-Wno-psabi"]
        return {"flags": shlex.join(flags), "link": shlex.join(LINK_FLAGS)}

    def survey(self, cc: str = "") -> Survey:
        return Survey((found(self.find(CompileOptions(cc=cc), resolve()).compiler),), ("one toy",))


@register
class ToyTarget(GridTarget):
    """C without vectors, as if it were for a device."""

    name = "toy"
    title = "plain C on a make-believe device"
    suffix = ".toy"
    device = 12  # DLPack's number for devices that extend it
    toolchain = ToyToolchain()
    search = (str(Path(__file__).parent / "toy"), "gpu", "c")
    preludes = ("gpu",)
    host = dataclasses.replace(HOST, search=search, sources=(*HOST.sources, "t_device.c"))
    words = Words(shared="", barrier="")


@ToyTarget.lowers("nest", "gemm", "conv", "conv_transpose")
def lower_toy(group: Group, storage: Mapping[Value, Storage], machine: Machine) -> list[Kernel]:
    """The group as plain loops."""
    make = lower_nest if group.anchor is None else lower_generic
    return [idle_when_empty(_serial(k)) for k in make(group, storage, keep=None)]


@ToyTarget.lowers("attention", "recurrent", "scan", "topk")
def refuse(group: Group, storage: Mapping[Value, Storage], machine: Machine) -> list[Kernel]:
    """What blocks of one thread cannot compute."""
    raise NoKernel(f"no kernel of family {group.kind}")


def _serial(kernel: Kernel) -> Kernel:
    """A block for each point of the parallel axes."""
    assert isinstance(kernel, MapKernel | RowKernel)
    tasks = product([a.args[0] for a in kernel.axes])
    kind = GridMap if isinstance(kernel, MapKernel) else GridRow
    return kind.of(kernel, tasks=tasks, threads=1)
