"""What runs of a model saw, from the files that its bundles write, and the variants that it is worth.

torshc-profile 1
model 9fdee4589412...                         SHA-256 of the model's file
sizes 0.0 0.1                                 places of symbols: dimension 0 of input 0, ...; 1[2] is an element
others 0                                      runs with sizes beyond those of the lines below
17 81230000 8 128                             runs, nanoseconds of all but the first, sizes
end
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..base.budget import budget
from ..base.errors import ConfigError
from ..base.manifest import SizeRange
from ..base.variants import Case
from ..expr import as_int, const, dim, element, substitute
from .compilation import Compilation

_LEAST = 0.01  # of the time: sizes with less of it get no variant
_LARGEST = 1 << 24  # bytes of a file
_PLACE = re.compile(r"([0-9]{1,6})(?:\.([0-9]{1,3})|\[[0-9]{1,9}\])\Z")
_REMEDY = "delete it, or name files that TORSHC_PROFILE made"

Place = tuple[int, int]  # number of an input, and of its dimension
Sizes = tuple[tuple[Place, int], ...]


@dataclass
class Profile:
    """What runs saw: how many had which sizes, and the nanoseconds of some of them; files add up in any order.

    Attributes:
        runs, timed, time: by the sizes of dimensions.
        notes: a line for each file that is of another model or version.
    """

    runs: dict[Sizes, int] = field(default_factory=lambda: defaultdict(int))
    timed: dict[Sizes, int] = field(default_factory=lambda: defaultdict(int))
    time: dict[Sizes, int] = field(default_factory=lambda: defaultdict(int))
    notes: list[str] = field(default_factory=list)


def profile_files(names: Iterable[Path]) -> list[Path]:
    """The files that are meant: each that exists, and for a name that ``TORSHC_PROFILE`` had, those that begin with it.

    Raises:
        ConfigError: there are none for a name.
    """
    found: dict[Path, None] = {}
    for name in names:
        made = re.compile(re.escape(name.name) + r"\.[0-9]+-[0-9a-f]+\Z")
        try:
            beside = sorted(p for p in name.parent.iterdir() if made.match(p.name)) if name.parent.is_dir() else []
        except OSError as error:
            raise ConfigError(f"--observed {name}: {error.strerror or error}") from error
        files = [p for p in (name, *beside) if p.is_file()]
        if not files:
            raise ConfigError(f"--observed {name}: there is no such file, nor one that begins so", _REMEDY)
        found |= dict.fromkeys(files)
    return [*found]


def read_profiles(names: Sequence[Path], model: str) -> Profile:
    """What all files saw of a model.

    Args:
        names: as :func:`profile_files` takes them.
        model: the SHA-256 of its file.

    Raises:
        ConfigError: a file is missing, cannot be read, or is damaged.
    """
    profile = Profile()
    for path in profile_files(names):
        try:
            with path.open(encoding="ascii") as file:
                lines = file.read(_LARGEST).splitlines()
        except (OSError, ValueError) as error:
            raise ConfigError(f"--observed {path}: it cannot be read: {error}", _REMEDY) from error
        if lines[:1] != ["torshc-profile 1"]:
            profile.notes.append(f"--observed {path}: it is no profile of this version, and ignored")
        elif lines[1:2] != [f"model {model}"]:
            profile.notes.append(f"--observed {path}: it is of another model, and ignored")
        elif not _add(profile, lines[2:]):
            raise ConfigError(f"--observed {path}: it is damaged", _REMEDY)
    return profile


def _add(profile: Profile, lines: Sequence[str]) -> bool:
    """Add the lines behind a file's head; whether they are whole."""
    if len(lines) < 3 or lines[-1] != "end" or not lines[0].startswith("sizes") or not lines[1].startswith("others "):
        return False
    places = [_PLACE.match(word) for word in lines[0].split()[1:]]
    if None in places:
        return False
    dims = [(int(p[1]), int(p[2])) if p[2] else None for p in places if p]
    for line in lines[2:-1]:
        words = line.split(" ")
        if len(words) != 2 + len(dims) or not all(re.fullmatch(r"-?[0-9]{1,19}", word) for word in words):
            return False
        runs, time, *sizes = map(int, words)
        if runs < 1 or time < 0:
            return False
        key = tuple((place, size) for place, size in zip(dims, sizes, strict=True) if place is not None)
        profile.runs[key] += runs
        profile.timed[key] += runs - 1
        profile.time[key] += time
    return True


def observed_cases(compilation: Compilation, profile: Profile) -> list[tuple[Case, str]]:
    """Sizes that variants are worth, those of most time first, and what was seen of each.

    Where no runs were timed, as on a card, their operations stand for the time. As many are taken as the budget
    ``observed`` says, of those with a hundredth of the time at least.
    """
    timed = any(profile.time.values())
    found: dict[Case, list[int]] = {}
    for key, runs in profile.runs.items():
        case = _case(compilation, key)
        if case is not None:
            weight = profile.time[key] * runs // max(profile.timed[key], 1)
            weight = weight if timed else runs * _operations(compilation, case)
            seen = found.setdefault(case, [0, 0])
            seen[0] += runs
            seen[1] += weight
    whole = sum(weight for _, weight in found.values())
    total = sum(profile.runs.values())
    best = sorted(found.items(), key=lambda item: (-item[1][1], [(r.name, r.least) for r in item[0]]))
    return [
        (
            case,
            f"{runs} of {total} runs seen, {100 * weight / whole:.0f} % of their {'time' if timed else 'operations'}",
        )
        for case, (runs, weight) in best[: budget().observed]
        if case and weight >= _LEAST * whole and weight
    ]


def _case(compilation: Compilation, key: Sizes) -> Case | None:
    """Sizes of the symbols that a compilation has; None where it has other inputs, or its numbers are others."""
    inputs = compilation.graph.given
    found: dict[str, int] = {}
    for (number, place), size in key:
        if number >= len(inputs) or place >= len(inputs[number].shape) or size < 1:
            return None
        at = inputs[number].shape[place]
        if at.op == "dim":
            found[str(at.data)] = size
        elif as_int(at) != size:
            return None
    known = {leaf(name): const(size) for name, size in found.items() for leaf in (dim, element)}
    for c in compilation.program.conditions:
        left, right = as_int(substitute(c.left, known)), as_int(substitute(c.right, known))
        if None not in (left, right) and left != right:  # the loose form took this run
            return None
    return tuple(SizeRange(name, size, size) for name, size in found.items())


def _operations(compilation: Compilation, case: Case) -> int:
    """Operations and bytes of a run with these sizes, as far as sizes alone tell them."""
    known = {leaf(r.name): const(r.least) for r in case for leaf in (dim, element)}
    works = (e for u in compilation.units for k in u.kernels for e in (k.flops, k.nbytes))
    return sum(as_int(substitute(e, known)) or 0 for e in works)
