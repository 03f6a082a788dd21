"""Bundles rebuilt with the address and undefined-behaviour sanitizers, and run in a process of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np

from torshc.base.cache import Cache
from torshc.base.errors import ToolchainError
from torshc.base.resources import cache_folder
from torshc.bundle.build import build_objects, link_library
from torshc.targets.cc import CCompiler, find_compiler
from torshc.targets.isa import resolve
from torshc.targets.processes import execute

from .zoo import Array

SANITIZERS = ("address", "undefined")
# The function sanitizer of clang tells types of functions apart that C calls compatible, across libraries.
_FLAGS = ("-fno-sanitize=function",)

_RUN = """
import sys
import numpy as np
import torshc
bundle, results, *files = sys.argv[1:]
with torshc.load(bundle, threads=2, verify=False) as model:
    for k, file in enumerate(files):
        with np.load(file) as stored:
            # Each input ends where its allocation ends, and each output begins and ends with one.
            feeds = {name: stored[name].copy() for name in stored.files}
        found = model.run(feeds)
        np.savez(f"{results}{k}.npz", **{f"o{n}": a for n, a in enumerate(found.values())})
"""


@lru_cache(maxsize=1)
def usable() -> tuple[CCompiler, str] | None:
    """A compiler with a sanitizer runtime, and the runtime's file; None when there is none."""
    for name, runtime in (("", "libclang_rt.asan-x86_64.so"), ("", "libclang_rt.asan.so"), ("gcc", "libasan.so")):
        try:
            compiler = find_compiler(name or None)
        except ToolchainError:
            continue
        if compiler.kind == ("gcc" if not name else "clang"):
            continue
        status, out, _ = execute([*compiler.command, f"-print-file-name={runtime}"], Path.cwd(), 60)
        if status == 0 and Path(out.strip()).is_absolute() and Path(out.strip()).exists():
            return compiler, out.strip()
    return None


def rebuild(bundle: Path, workdir: Path, compiler: CCompiler, kinds: Sequence[str] = SANITIZERS) -> None:
    """Replaces the library of a bundle that holds its sources by one with sanitizers."""
    shared = compiler.kind == "clang" and "address" in kinds
    sources = {p.name: p.read_text() for p in (bundle / "src").glob("*.c")}
    headers = {p.name: p.read_text() for p in (bundle / "src").glob("*.h")}
    flags = [*compiler.base_flags(1, kinds), *compiler.isa_flags(resolve("native")), "-Wno-psabi"]
    if shared:
        flags += [*_FLAGS, "-shared-libasan"]
    workdir.mkdir(parents=True, exist_ok=True)
    objects = build_objects(sources, headers, compiler, flags, Cache(cache_folder()), 1, workdir)
    if shared:
        names = [o.path for o in objects]
        (workdir / "objects.rsp").write_text("\n".join(names))
        compiler.run(
            ["-shared", "-shared-libasan", "-fsanitize=address,undefined", "-o", "libmodel.so", "@objects.rsp", "-lm"],
            workdir,
        )
        library = workdir / "libmodel.so"
    else:
        library = link_library(compiler, objects, workdir, None, kinds)
    library.replace(bundle / "libmodel.so")


def run(bundle: Path, feeds: Sequence[dict[str, Array]], workdir: Path, runtime: str) -> list[list[Array]]:
    """Outputs of the runs, in a process that ends at the first thing that a sanitizer finds.

    Raises:
        AssertionError: with the sanitizer's words.
    """
    files = []
    for k, arrays in enumerate(feeds):
        files.append(str(workdir / f"in{k}.npz"))
        np.savez(files[-1], **arrays)
    env = {
        **os.environ,
        "LD_PRELOAD": runtime,
        # No symbolizer: it would be started with the runtime preloaded too, and then hangs now and then.
        "ASAN_OPTIONS": "detect_leaks=0:halt_on_error=1:exitcode=99:detect_stack_use_after_return=0:symbolize=0",
        "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1:exitcode=99:symbolize=0",
        "PYTHONPATH": os.pathsep.join(sys.path),
        "PYTHONMALLOC": "malloc",
    }
    done = subprocess.run(
        [sys.executable, "-c", _RUN, str(bundle), str(workdir / "out"), *files],
        capture_output=True, text=True, env=env, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-6000:]
    found = []
    for k in range(len(feeds)):
        with np.load(workdir / f"out{k}.npz") as stored:
            found.append([stored[f"o{n}"] for n in range(len(stored.files))])
    return found
