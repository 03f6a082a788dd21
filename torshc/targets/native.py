"""LLVM through llvmlite: from the text of a kernel to an object, without a file or another program."""

from __future__ import annotations

import ctypes
import os
import platform
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from ..base.errors import ConfigError, InternalError
from ..base.resources import find_template
from .isa import Isa, llvm_binding, resolve

_ARCH = {"x86_64": "x86_64-unknown-linux-gnu", "aarch64": "aarch64-unknown-linux-gnu"}


@dataclass(frozen=True)
class Machine:
    """The processor that LLVM generates code for.

    Attributes:
        triple: as LLVM spells it.
        cpu, features: as LLVM calls them.
    """

    triple: str
    cpu: str
    features: str

    def __str__(self) -> str:
        return f"{self.triple} {self.cpu} {self.features}"


def machine_of(isa: Isa) -> Machine:
    """LLVM's words for an instruction set."""
    llvm = llvm_binding()
    triple = llvm.get_process_triple() if isa.arch == platform.machine().lower() else _ARCH.get(isa.arch, isa.arch)
    features = [f"+{e}" for e in isa.extras]
    if isa.lanes == 16:
        features.append("-prefer-256-bit")
    return Machine(triple, isa.mcpu or "generic", ",".join(features))


def require_this_machine(mcpu: str, triple: str) -> None:
    """Raises ConfigError unless code for a machine runs in this process."""
    lacking = sorted({*resolve(mcpu, triple).cpu_features} - {*resolve().cpu_features})
    if triple or lacking:
        why = f": it has no {', '.join(lacking)}" if lacking else ""
        raise ConfigError(
            f"a model in the process runs on this machine, which is not {triple or mcpu}{why}",
            "leave out the machine, or compile a bundle",
        )


@lru_cache(maxsize=8)
def _target_machine(machine: Machine) -> Any:
    return _new_machine(machine)


def _new_machine(machine: Machine) -> Any:
    llvm = llvm_binding()
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    target = llvm.Target.from_triple(machine.triple)
    return target.create_target_machine(
        cpu=machine.cpu, features=machine.features, opt=3, reloc="pic", codemodel="small"
    )


def object_of(text: str, machine: Machine) -> bytes:
    """The object of a module.

    Raises:
        InternalError: LLVM does not take it.
    """
    llvm = llvm_binding()
    tm = _target_machine(machine)
    try:
        module = llvm.parse_assembly(text)
        module.triple = machine.triple
        module.data_layout = str(tm.target_data)
        # Kernels are written as they are to be: what is left is to name variables and to fold what is written twice.
        passes = llvm.create_new_module_pass_manager()
        passes.add_always_inliner_pass()
        passes.add_sroa_pass()
        passes.add_instruction_combine_pass()
        passes.add_simplify_cfg_pass()
        passes.add_loop_rotate_pass()
        passes.add_new_gvn_pass()
        passes.add_dead_code_elimination_pass()
        passes.run(module, llvm.create_pass_builder(tm, llvm.create_pipeline_tuning_options(speed_level=2)))
        made: bytes = tm.emit_object(module)
    except RuntimeError as error:
        raise InternalError(f"LLVM does not take a kernel: {error}") from error
    return made


def llvm_version() -> str:
    """What objects depend on of LLVM."""
    llvm = llvm_binding()
    return "LLVM " + ".".join(map(str, llvm.llvm_version_info))


class Loaded:
    """Objects in this process.

    Args:
        objects: what is loaded together.
        names: functions that are asked for.
    """

    def __init__(self, objects: Sequence[bytes], names: Sequence[str], machine: Machine) -> None:
        llvm = llvm_binding()
        _load_library()
        tm = _new_machine(machine)  # the engine takes it over
        module = llvm.parse_assembly("")
        module.triple = machine.triple
        self._engine = llvm.create_mcjit_compiler(module, tm)
        for data in objects:
            self._engine.add_object_file(llvm.ObjectFileRef.from_data(data))
        self._engine.finalize_object()
        self.addresses = {name: int(self._engine.get_function_address(name)) for name in names}


@lru_cache(maxsize=1)
def _load_library() -> None:
    """The C library's mathematical functions, which kernels call."""
    llvm = llvm_binding()
    for name in ("libm.so.6", "libm.so", "libSystem.B.dylib"):
        try:
            llvm.load_library_permanently(name)
            return
        except RuntimeError:
            continue


def runner_text() -> str:
    """The module that runs the steps of a model."""
    return find_template(["llvm"], "run.ll").read_text()


_FAULTS = {  # raised in the thread that is at fault
    signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGTRAP, signal.SIGABRT, signal.SIGSYS
}  # fmt: skip


class Team:
    """Threads that help with large kernels, one team for all models of the process."""

    def __init__(self, loaded: Loaded, threads: int) -> None:
        self.memory = np.zeros(16 + 8 * max(threads, 1), np.int64)
        start = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64)(loaded.addresses["t_team"])
        able = threads > 1 and sys.platform == "linux"  # elsewhere semaphores may need names
        before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - _FAULTS)  # threads inherit the mask
        self.helpers = int(start(self.memory.ctypes.data, threads - 1)) if able else 0
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


TEAMS: dict[int, Team] = {}


def _without_helpers() -> None:
    """In a child process: the threads stayed with the parent, and the memory of teams is in use."""
    for team in TEAMS.values():
        team.memory[8:10] = 0
        team.helpers = 0


os.register_at_fork(after_in_child=_without_helpers)


@lru_cache(maxsize=1)
def is_known_layout() -> bool:
    """Whether an array's object is as ``t_call`` reads it."""
    probe = np.zeros((2, 3), np.float32)
    at = id(probe) + HEAD
    word, short = ctypes.c_int64.from_address, ctypes.c_int32.from_address
    data, rank = word(at).value == probe.ctypes.data, short(at + 8).value == 2
    kind, flags = word(at + 40).value == id(probe.dtype), short(at + 48).value & 257 == 257
    return data and rank and kind and flags and word(word(at + 16).value + 8).value == 3


def aligned(nbytes: int) -> np.ndarray[Any, Any]:
    """Memory that begins where a cache line does."""
    raw = np.empty(nbytes + ALIGN, np.uint8)
    return raw[-raw.ctypes.data % ALIGN :][:nbytes] if nbytes else raw


ALIGN = 64
HEAD = object.__basicsize__  # bytes of the head of any object
