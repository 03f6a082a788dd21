"""Headers of kernels that a compiler reads once for all: to read them takes a fifth of its time for a small kernel.

A precompiled header is for one compiler, its flags and the text of the headers, which it names by their paths. So it
lies with them in a folder of the cache, or of the build where there is no cache. Objects have the same bytes with it.
"""

from __future__ import annotations

import contextlib
import fcntl
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..base.cache import Cache, content_key
from ..base.errors import ToolchainError
from ..base.folders import remove
from ..targets.toolchain import Compiler
from .sources import write_sources

FIRST = "t_kernel.h"  # before which kernels include nothing, and define nothing that it asks for but the next line
_FEW = "#define T_FEW_TYPES\n"
_LEAST = 4  # kernels of a build without a cache that are worth one: it takes as long to make as three gain
_MOST = 32  # folders of the cache, 2 MB each


class Precompiled:
    """The precompiled headers of a build.

    Args:
        compiler: what compiles the kernels.
        tool: its key.
        includes: text by file name of `FIRST` and of every header that it includes.
        cache: beside whose entries they are kept.
        workdir: the folder of the build, for where nothing is kept.
        kernels: how many sources there are to use one.
    """

    def __init__(
        self, compiler: Compiler, tool: str, includes: Mapping[str, str], cache: Cache, workdir: Path, kernels: int
    ) -> None:
        self.compiler, self.tool, self.includes, self.cache, self.workdir = compiler, tool, includes, cache, workdir
        self.usable = cache.folder is not None or kernels >= _LEAST
        self._found: dict[tuple[str, ...], Path | None] = {}
        self._lock = threading.Lock()

    def flags(self, text: str, flags: Sequence[str], seconds: int) -> list[str]:
        """What the compiler takes besides the flags of a kernel to read it with a precompiled header; [] for none."""
        if not self.usable or any(flag == "-g" or flag.startswith("-fsanitize=") for flag in flags):
            return []
        more = ["-DT_FEW_TYPES="] if _FEW in text else []  # the kernel defines the same again
        key = (*flags, *more)
        with self._lock:  # others wait for it, as they need the same one
            if key not in self._found:
                with contextlib.suppress(OSError, ToolchainError):
                    self._found[key] = self._make(key, seconds)
            found = self._found.setdefault(key, None)
        return [*more, *self.compiler.including(found)] if found else []

    def _make(self, flags: Sequence[str], seconds: int) -> Path | None:
        if not self.compiler.including(Path(FIRST)):
            return None
        parts = (part for name in sorted(self.includes) for part in (name, self.includes[name]))
        folder = self.cache.headers(content_key([self.tool, *flags, *parts]))
        if folder is None:
            folder = self.workdir / "obj" / content_key(flags)
        made = folder / f"{FIRST}.pch"
        if not made.exists():
            _sweep(folder.parent)
            folder.mkdir(exist_ok=True)
            with (folder / "lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)  # no other process writes headers while the compiler reads them
                if not made.exists():
                    write_sources(folder, self.includes)
                    self.compiler.precompile(FIRST, "part.pch", flags, folder, seconds)
                    (folder / "part.pch").replace(made)
        return made

    def drop(self) -> None:
        """Use none any more in this build, and make them anew in the next one."""
        self.usable = False
        for made in filter(None, tuple(self._found.values())):
            with contextlib.suppress(OSError):
                made.unlink()


def _sweep(place: Path) -> None:
    """Remove the folders made first but some; a build that used one does without."""
    folders = sorted((f for f in place.iterdir() if f.is_dir()), key=lambda f: f.stat().st_mtime, reverse=True)
    for folder in folders[_MOST:]:
        remove(folder)
