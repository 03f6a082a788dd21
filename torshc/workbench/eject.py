"""A group's kernels as a folder to work on: the source, its contract, and a program that checks and times it alone."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..base.errors import ConfigError, OutputError, ToolchainError
from ..explain.sizes import Evaluator, bind
from ..kernels.base import Kernel
from ..ops.core.custom_kernel import CustomKernel
from ..pipeline.compilation import Compilation, Unit, commented_sources, kernel_headers
from ..pipeline.contract import EDITED, FILE, ORIGINAL, Contract, contracts_of, sizes_of_kernel
from ..targets import Target
from ..targets.base import environment

INCLUDE = "include"  # what kernels include, beside their folders


def eject(compilation: Compilation, group: int, out: Path, dims: Mapping[str, int] | None = None) -> list[Path]:
    """Writes the kernels of a group, a folder each; kernels that are there already are left alone.

    Args:
        compilation: from :func:`torshc.pipeline.compiler.prepare`.
        group: its number, as ``torshc explain`` shows it.
        out: the folder to write to.
        dims: sizes of symbolic dimensions for the program that checks and times; 1 where left out.

    Returns:
        The folders.

    Raises:
        ConfigError: there is no such group, it calls a user's function, or a folder is there.
        OutputError: a file cannot be written.
    """
    if not 0 <= group < len(compilation.units):
        raise ConfigError(f"there is no group {group}", f"groups are 0 to {len(compilation.units) - 1}")
    unit = compilation.units[group]
    for node in unit.group.nodes:
        if isinstance(node.op, CustomKernel):
            raise ConfigError(
                f"group {group} calls {node.op.sources.function}(), a function of yours",
                f"edit it where it is: {', '.join(map(str, node.op.sources.files))}",
            )
    sizes = Evaluator(bind(list(compilation.program.sizes), dims or {}))
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
    if any(n is None for found in known.values() for n in found):
        return files  # sizes that only a run shows
    shown: dict[str, Any] = {"contract": contract, **known, "flops": sizes.total([kernel.flops]),
                             "moved": sizes.total([kernel.nbytes])}  # fmt: skip
    own = contract.suffix == compilation.target.suffix
    target = compilation.target if own else compilation.target.on_processor()
    name = f"bench{contract.suffix}.j2"
    templates = environment(target.search)
    if name not in templates.list_templates():
        return files  # there is no program for kernels of this language
    bench, words = templates.get_template(name), _commands(target, compilation)
    files["bench" + contract.suffix] = bench.render(shown)
    files["Makefile"] = environment(("c",)).get_template("Makefile.j2").render(shown, **words)
    return files


def _commands(target: Target, compilation: Compilation) -> dict[str, str]:
    """The compiler and its flags: what would compile the model here, else what does elsewhere."""
    try:
        tools = target.toolchain.find(compilation.options, compilation.isa)
        return {"cc": shlex.join(tools.compiler.command), "flags": shlex.join(tools.flags)}
    except ToolchainError:
        flags = target.toolchain.script(compilation.options, {target.machine.version: compilation.isa})["flags"]
        return {"cc": target.toolchain.command, "flags": flags}
