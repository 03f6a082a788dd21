"""The script that builds a bundle from its sources elsewhere."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path

from ..base.options import CompileOptions
from ..targets import Target
from ..targets.base import environment
from ..targets.isa import Isa
from ..targets.toolchain import soname
from .build import weights_source
from .custom import NO_FILES, CustomFiles
from .manifest import COMPACT


def build_script(
    target: type[Target], versions: Mapping[str, Isa], options: CompileOptions, custom: CustomFiles = NO_FILES
) -> dict[str, str]:
    """What goes with the sources of a bundle so that they can be built elsewhere, by file name.

    The script runs the commands that the tools of the target's toolchain would run, and completes the manifest.

    Args:
        target: what is compiled for.
        versions: the processors to compile for by the marks of their versions, the best first; see `version_mark`.
        options: those of the compilation.
        custom: files of users' operators.
    """
    words = target.toolchain.script(options, versions)
    suffixes = sorted({".c", target.suffix, *(Path(name).suffix for name in target.host.sources)})
    texts = {
        "build.sh": environment(target.search)
        .get_template("build.sh.j2")
        .render(
            words,
            suffixes=suffixes,
            library=soname(options.prefix),
            manifest=COMPACT,
            libraries=shlex.join(custom.libraries),
            folders={f"src/{name}": shlex.join(flags) for name, flags in custom.flags.items()},
        )
    }
    return {**texts, "t_weights.S": weights_source()} if options.embed_weights else texts
