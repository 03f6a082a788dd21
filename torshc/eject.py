"""A group's kernels as a folder to work on: the source, its contract, and a program that checks and times it alone."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .compilation import Compilation, Unit, commented_sources, kernel_headers
from .contract import EDITED, FILE, ORIGINAL, Contract, contracts_of, sizes_of_kernel
from .errors import ConfigError, OutputError
from .explain.sizes import Evaluator, bind
from .kernels.base import Kernel
from .targets import find_target
from .targets.base import environment

INCLUDE = "include"  # what kernels include, beside their folders


def eject(compilation: Compilation, group: int, out: Path, dims: Mapping[str, int] | None = None) -> list[Path]:
    """Writes the kernels of a group, a folder each; kernels that are there already are left alone.

    Args:
        compilation: from :func:`torshc.compiler.prepare`.
        group: its number, as ``torshc explain`` shows it.
        out: the folder to write to.
        dims: sizes of symbolic dimensions for the program that checks and times; 1 where left out.

    Returns:
        The folders.

    Raises:
        ConfigError: there is no such group, or a folder is there.
        ToolchainError: there is no C compiler.
        OutputError: a file cannot be written.
    """
    if not 0 <= group < len(compilation.units):
        raise ConfigError(f"there is no group {group}", f"groups are 0 to {len(compilation.units) - 1}")
    unit = compilation.units[group]
    sizes = Evaluator(bind(list(compilation.program.names), dims or {}))
    texts: dict[Path, str] = {out / INCLUDE / name: text for name, text in kernel_headers(compilation).items()}
    folders = []
    for kernel, contract in contracts_of(compilation, unit):
        folder = out / contract.symbol
        if (folder / FILE).exists():
            raise ConfigError(f"{folder} is there already", "remove it, or name another folder with -o")
        folders.append(folder)
        texts |= {folder / name: t for name, t in _files(compilation, unit, kernel, contract, sizes).items()}
    try:
        for path, text in texts.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise OutputError(f"cannot write {out}: {error.strerror or error}", "name another folder with -o") from error
    return folders


def _files(
    compilation: Compilation, unit: Unit, kernel: Kernel, contract: Contract, sizes: Evaluator
) -> dict[str, str]:
    file = contract.symbol + contract.suffix
    source = commented_sources(compilation)[file]
    files = {
        FILE: contract.to_json(),
        EDITED + contract.suffix: source,
        ORIGINAL + contract.suffix: source,
    }
    numbers = sizes_of_kernel(compilation, kernel, contract.symbol)
    known = {name: [sizes.integer(e) for e in found] for name, found in numbers.items()}
    if contract.suffix != ".c" or any(n is None for found in known.values() for n in found):
        return files  # a device's kernel has no program of its own, nor has one whose sizes only a run shows
    templates = environment(("c",))
    shown: dict[str, Any] = {"contract": contract, **known, "flops": sizes.total([kernel.flops]),
                             "moved": sizes.total([kernel.nbytes])}  # fmt: skip
    tools = find_target("c").toolchain.find(compilation.options, compilation.isa)
    flags, cc = (shlex.join(words) for words in (tools.flags, tools.compiler.command))
    files["bench.c"] = templates.get_template("bench.c.j2").render(shown)
    files["Makefile"] = templates.get_template("Makefile.j2").render(flags=flags, cc=cc, symbol=contract.symbol)
    return files
