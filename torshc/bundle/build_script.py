"""The script that builds a bundle from its sources elsewhere."""

from __future__ import annotations

from pathlib import Path

from ..base.options import CompileOptions
from ..targets import Target
from ..targets.base import environment
from ..targets.isa import Isa, resolve
from ..targets.toolchain import soname
from .build import weights_source
from .manifest import COMPACT


def build_script(target: type[Target], isa: Isa | None = None, options: CompileOptions | None = None) -> dict[str, str]:
    """What goes with the sources of a bundle so that they can be built elsewhere, by file name.

    The script runs the commands that the tools of the target's toolchain would run, and completes the manifest.

    Args:
        target: what is compiled for.
        isa: the processor to compile for; this one when None.
        options: those of the compilation.
    """
    options = options or CompileOptions()
    words = target.toolchain.script(options, isa or resolve(options.mcpu, options.triple))
    suffixes = sorted({".c", target.suffix, *(Path(name).suffix for name in target.host.sources)})
    texts = {
        "build.sh": environment(target.search)
        .get_template("build.sh.j2")
        .render(words, suffixes=suffixes, library=soname(options.prefix), manifest=COMPACT)
    }
    return {**texts, "t_weights.S": weights_source()} if options.embed_weights else texts
