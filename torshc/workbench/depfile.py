"""Dependency files for make: what a bundle was made from."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from pathlib import Path

from ..base.errors import ConfigError, OutputError
from ..base.options import CompileOptions
from ..base.variants import case_files
from ..formats.files import model_files
from ..ops import CustomOperators
from ..pipeline.observed import profile_files


def write_depfile(out: str, model: Path, options: CompileOptions, targets: Sequence[str] = ()) -> Path:
    """Writes ``OUT.d``: the bundle depends on the model, its external data, and the rules, pipeline, kernels,
    tuning records, training step, files of sizes and profiles given.

    Args:
        out: the bundle as the user spelled it, which is how the makefile spells its target.
        targets: what the build calls the target, where that is not the bundle: its files, for Ninja and CMake.

    Raises:
        ConfigError: a name cannot be written in a makefile.
        OutputError: the file cannot be written.
    """
    extra = [*options.rules, *options.ops, *filter(None, (options.pipeline, options.tuning_records, options.train))]
    extra += [f for o in CustomOperators(options.ops).of_files.values() for f in o.files]
    extra += [*case_files(options.specialize), *profile_files(options.observed)]
    extra += sorted(p for p in options.kernels.glob("*/*") if p.is_file()) if options.kernels else []
    target = out.rstrip("/") or out
    path = Path(f"{target}.d")
    text = rule(targets or [target], [*map(str, model_files(model)), *map(str, extra)])
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        temporary.write_text(text, encoding="utf-8", errors="surrogateescape")
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise OutputError(f"cannot write {path}: {error.strerror or error}", "check the permissions") from error
    return path


def rule(targets: Sequence[str], files: Iterable[str]) -> str:
    """A rule, and an empty one for each file, so that make continues when one is gone.

    >>> print(rule(["a b.tsc"], ["m.onnx"]), end="")
    a\\ b.tsc: \\
      m.onnx
    m.onnx:
    """
    names = [_escape(name) for name in dict.fromkeys(files)]
    made = " ".join(map(_escape, targets))
    return f"{made}: \\\n  " + " \\\n  ".join(names) + "\n" + "".join(f"{name}:\n" for name in names)


def _escape(name: str) -> str:
    """A file name as make reads it: https://www.gnu.org/software/make/manual/html_node/Rule-Syntax.html."""
    if any(c in name for c in "\n\r\t") or name.endswith("\\"):
        raise ConfigError(f"the file name {name!r} cannot be written in a makefile", "rename it, or leave --MD out")
    for character, spelled in (("$", "$$"), ("#", "\\#"), (" ", "\\ "), (":", "\\:"), ("%", "\\%")):
        name = name.replace(character, spelled)
    return name
