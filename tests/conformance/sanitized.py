"""A process in which libraries with the address and undefined-behaviour sanitizers can be loaded.

The sanitizers' runtime has to come first in a process, so the command starts itself again with it preloaded. The cases
go to that process in a file, as making them there takes several times longer. The compiler that it uses adds the
sanitizers' flags, into a cache of their own; the first finding ends a worker, and becomes the outcome of the case.
"""

from __future__ import annotations

import os
import pickle
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.support.sanitize import usable
from torshc.base.folders import private_folder
from torshc.base.resources import cache_folder

from .cases import Case

# -O1 keeps the compiler quick; the last -O counts. The function sanitizer of clang takes C's compatible types as
# different ones, across libraries.
_FLAGS = "-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer -g1"
_CLANG = "-fno-sanitize=function -shared-libasan"
_ASAN = (
    "detect_leaks=0:halt_on_error=1:exitcode=99:detect_stack_use_after_return=0:detect_odr_violation=0:"
    "alloc_dealloc_mismatch=0:malloc_context_size=3:quarantine_size_mb=64"
)
_UBSAN = "print_stacktrace=0:halt_on_error=1:exitcode=99"


def restarted() -> bool:
    """Whether this process has the runtime preloaded.

    Raises:
        SystemExit: no compiler with a runtime is here.
    """
    return os.environ.get("LD_PRELOAD") == _runtime()


def _runtime() -> str:
    found = usable()
    if found is None:
        raise SystemExit("no compiler with the sanitizers' runtime is here (on Debian: apt install libclang-rt-19-dev)")
    return found[1]


def environment() -> dict[str, str]:
    """What preloads the runtime into a process, and ends it at the first finding."""
    return {"LD_PRELOAD": _runtime(), "ASAN_OPTIONS": _ASAN, "UBSAN_OPTIONS": _UBSAN, "PYTHONMALLOC": "malloc"}


def command(arguments: Sequence[str], cases: Sequence[Case], file: Path) -> tuple[list[str], dict[str, str]]:
    """The command with the runtime preloaded, and its environment; writes the cases to a file, which it removes."""
    file.write_bytes(pickle.dumps(tuple(cases)))
    env = {**os.environ, **environment(), "TORSHC_CACHE_DIR": str(cache_folder() / "sanitized")}
    return [sys.executable, "-m", "tests.conformance", *arguments, "--cases", str(file)], env


def handed(file: Path) -> list[Case]:
    """The cases that :func:`command` wrote."""
    found: tuple[Case, ...] = pickle.loads(file.read_bytes())  # our own, of a moment ago
    file.unlink()
    return list(found)


def compiler() -> str:
    """A command that compiles and links with the sanitizers; it lies where it did before, for the cache of objects."""
    found = usable()
    assert found is not None
    tool = found[0]
    more = f"{_FLAGS} {_CLANG}" if tool.kind == "clang" else _FLAGS
    command = private_folder(cache_folder()) / "cc"
    part = command.with_suffix(f".{os.getpid()}")
    quick = "unset LD_PRELOAD"  # the compiler itself needs no sanitizers
    part.write_text(f'#!/bin/sh\n{quick}\nexec {shlex.join(tool.command)} {more} "$@" -O1\n')
    part.chmod(0o700)
    part.replace(command)
    return str(command)
