"""The loose form of a model: for runs in which a size is 1 and broadcasts, where the fast form takes it for another."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from ..base.errors import ModelError, UnsupportedError
from ..bundle.forms import join_forms
from .compilation import Compilation, Loose, with_edited


def with_loose(fast: Compilation, sizes: frozenset[str], compiled: Callable[[], Compilation] | None) -> Compilation:
    """A compilation with the loose form of its model, or why there is none; as it is where that fits no other sizes.

    Args:
        sizes: names of the dimensions that may be 1 there.
        compiled: compiles the model with these as sizes known only in a run; None where it cannot be imported again.
    """
    wanted = tuple(sorted(sizes))
    if fast.options.loose == "none":
        return dataclasses.replace(fast, loose=Loose(wanted, why="it was left out (--loose none)"))
    if compiled is None:
        return dataclasses.replace(fast, loose=Loose(wanted, why="a Graph is compiled once, and changed by that"))
    try:
        form = compiled()
        if sizes.isdisjoint(form.program.names):  # what fixes them in the fast form fixes them there too
            return fast
        programs = join_forms(fast.program, form.program)
    except (ModelError, UnsupportedError) as error:
        return dataclasses.replace(fast, loose=Loose(wanted, why="; ".join(str(error).splitlines())))
    fast, form = (dataclasses.replace(c, program=p) for c, p in zip((fast, form), programs, strict=True))
    shared = {name: text for name, text in fast.pinned.items() if name in form.sources}
    sources = form.sources
    for name in shared:  # an edited kernel stands for all that had its text
        sources = with_edited(sources, name, fast.sources[name])
    form = dataclasses.replace(form, sources=sources, pinned=shared)
    return dataclasses.replace(fast, loose=Loose(wanted, form))
