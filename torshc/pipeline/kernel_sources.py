"""The kernels of a library as they are compiled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..bundle.custom import CustomFiles, custom_files
from ..bundle.host_source import all_headers
from ..bundle.units import make_units, unit_text
from ..targets.toolchain import Tools
from .compilation import Compilation, kernel_headers


@dataclass(frozen=True)
class KernelSources:
    """The kernels of a library as they are compiled.

    Attributes:
        forms: of all versions, which the kernels are of.
        sources: text by file name, of units where several are compiled together.
        headers: text by file name of what sources of the library may include.
        own_headers: those of them that kernels alone include.
        flags: by the source's name.
        holds: nodes, by the source's name.
        custom: users' files beside them.
    """

    forms: Sequence[Compilation]
    sources: Mapping[str, str]
    headers: Mapping[str, str]
    own_headers: Mapping[str, str]
    flags: Mapping[str, Sequence[str]]
    holds: Mapping[str, str]
    custom: CustomFiles


def kernel_sources(versions: Sequence[Compilation], tools: Sequence[Tools]) -> KernelSources:
    """The kernels of all forms of all versions, in units but for those that a person wrote.

    Args:
        tools: of each version; none where only sources are written.
    """
    target, forms = type(versions[0].target), [form for c in versions for form in reversed(c.forms)]
    custom, own = custom_files(versions[0].custom, target.host, target.suffix), dict[str, str]()
    for form in forms:
        own = {**kernel_headers(form), **own}
    texts = {name: text for c in forms for name, text in c.sources.items()}
    flags = {n: t.flags for c, t in zip(versions, tools, strict=bool(tools)) for f in c.forms for n in f.sources}
    holds = {name: nodes for c in forms for name, nodes in c.held_nodes.items()}
    openings = target.openings()
    units = make_units(texts, flags, openings, {n for c in forms for n in c.pinned}) if tools else {}
    joined = {n for names in units.values() for n in names}
    sources = {n: text for n, text in texts.items() if n not in joined}
    for unit, names in units.items():
        sources[unit] = unit_text(names, texts, openings)
        flags[unit], holds[unit] = flags[names[0]], "; ".join(holds[n] for n in names if n in holds)
    headers = {**own, **all_headers(target.host), **custom.headers}
    return KernelSources(forms, sources, headers, own, flags, holds, custom)
