"""What builds of others need to find a bundle: a CMake package and files for pkg-config, all relative to the bundle."""

from __future__ import annotations

from collections.abc import Sequence

from .._version import __version__
from ..targets.base import environment
from ..targets.toolchain import archive_name, soname
from .package import WEIGHTS

NEEDS = "-lm -lpthread"  # of a static library


def link_files(
    prefix: str, search: tuple[str, ...], archive: bool, weights: bool, libraries: Sequence[str] = ()
) -> dict[str, str]:
    """The texts, by file name.

    Args:
        prefix: what the model's functions begin with.
        search: folders of templates.
        archive: whether there is a static library.
        weights: whether there is a weights file.
        libraries: what a static library needs besides the system's, as -l takes it.
    """
    words = {
        "prefix": prefix,
        "version": __version__,
        "shared": soname(prefix),
        "static": archive_name(prefix) if archive else "",
        "weights": WEIGHTS if weights else "",
        "needs": " ".join(dict.fromkeys([*libraries, *NEEDS.split()])),
    }
    made = environment(search)
    package, config = made.get_template("name.pc.j2"), made.get_template("Config.cmake.j2")
    texts = {f"{prefix}.pc": package.render({**words, "static": ""}), f"{prefix}Config.cmake": config.render(words)}
    return {**texts, f"{prefix}-static.pc": package.render(words)} if archive else texts
