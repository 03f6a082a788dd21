"""What templates let a tuner choose: the parameters and their ranges in a template's front matter.

A template may begin with a comment whose first line is ``{# ---`` and whose last is ``--- #}``. In between is YAML:

    parameters:
      block: {is: rows of a task, values: [24, 48, 96]}
      tile: {is: rows x vectors of a register tile, lanes: {16: [6x4, 8x3], 8: [4x3, 6x2]}}

``lanes`` gives the values by the number of lanes of a vector; at widths that are not named there is nothing to choose.
``tile: {like: finish.j2}`` is the parameter of that name of another file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import yaml

from ..base.errors import InternalError
from ..base.resources import find_template
from ..kernels.machine import Choice

_OPEN, _CLOSE = "{# ---\n", "\n--- #}"


@dataclass(frozen=True)
class Parameter:
    """A parameter of a template: its name, what it is, and the values that it may have."""

    name: str
    what: str
    values: tuple[Choice, ...]


@lru_cache(maxsize=256)
def parameters_of(search: tuple[str, ...], template: str, lanes: int) -> tuple[Parameter, ...]:
    """The parameters that a template may be rendered with, in the order in which they are tried.

    Args:
        search: folders of ``templates/`` in which the template is looked for.
        lanes: f32 elements of a vector.

    Raises:
        InternalError: there is no such template, or its front matter is damaged.
    """
    stated = _front_matter(search, template)
    shared = {name: _front_matter(search, p["like"])[name] for name, p in stated.items() if "like" in p}
    stated = {**stated, **shared}
    found = (Parameter(name, p["is"], _values(p, lanes)) for name, p in stated.items())
    return tuple(p for p in found if p.values)


def _front_matter(search: tuple[str, ...], template: str) -> Mapping[str, Any]:
    """The parameters that a file states, by name."""
    text = find_template(search, template).read_text(encoding="utf-8")
    if not text.startswith(_OPEN):
        return {}
    body, closed, _ = text.removeprefix(_OPEN).partition(_CLOSE)
    if not closed:
        raise InternalError(f"the front matter of {template} has no end")
    stated: Mapping[str, Any] = yaml.safe_load(body)["parameters"]
    return stated


def _values(stated: Mapping[str, Any], lanes: int) -> tuple[Choice, ...]:
    values = stated["values"] if "values" in stated else stated["lanes"].get(lanes, ())
    return tuple(parse_choice(str(v)) for v in values)


def parse_choice(text: str) -> Choice:
    """A value from its text.

    Raises:
        ValueError: it is not of this form.

    >>> parse_choice("6x4"), parse_choice("96")
    ((6, 4), (96,))
    """
    parts = text.split("x")
    if not all(p.isdecimal() and p.isascii() and len(p) < 10 for p in parts):
        raise ValueError(text)
    return tuple(map(int, parts))


def choice_text(choice: Choice) -> str:
    """A value as text.

    >>> choice_text((6, 4))
    '6x4'
    """
    return "x".join(map(str, choice))
