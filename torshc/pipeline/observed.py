"""What runs of a model saw, from the files that its bundles write, and the variants that it is worth.

torshc-profile 3
model 9fdee4589412...                         SHA-256 of the model's file
sizes 0.0 0.1                                 places of symbols: dimension 0 of input 0, ...; 1[2] is an element
inputs 1                                      which inputs were looked at, in some runs
others 0                                      runs with sizes beyond those of the lines below
17 81230000 8 128 9 1 8 130                   runs, nanoseconds of all but the first, sizes; in how many runs inputs
end                                           were looked at; of each a number, how many had it throughout, and
                                              elements of all of these that were 0

Files of version 1 have no inputs, and those of version 2 no zeros.
"""

from __future__ import annotations

import dataclasses
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..base.budget import budget
from ..base.errors import ConfigError
from ..base.manifest import InputValue, PaddedInput, SizeRange
from ..base.variants import Case
from ..expr import as_int, const, dim, element, substitute
from .compilation import Compilation

_LEAST = 0.01  # of the time: sizes with less of it get no variant
_MOSTLY = 0.9  # of runs, or of their time: what is so in as many is taken for granted
_LOOKING = 0.05  # of the bytes that a run moves: to look at inputs of more costs more than may come of it
_RECORDED, _USUAL_RECORDED, _SPARE = 256, 32, 8  # recordings of runs: the most, those of any library, for new sizes
_LARGEST = 1 << 24  # bytes of a file
_PADDED = 0.1  # of a mask, in most time: to leave out rows of fewer zeros gains little
_MASKS = ("keep", "hide")  # what the elements of a mask are used for
_NUMBERS = {"torshc-profile 1": 0, "torshc-profile 2": 2, "torshc-profile 3": 3}  # of an input in a line, by the head
_PLACE = re.compile(r"([0-9]{1,6})(?:\.([0-9]{1,3})|\[[0-9]{1,9}\])\Z")
_MADE = "name files that TORSHC_PROFILE made"
_REMEDY = f"delete it, or {_MADE}"

Place = tuple[int, int]  # number of an input, and of its dimension
Sizes = tuple[tuple[Place, int], ...]
Value = tuple[int, int]  # number of an input, and what it is throughout


@dataclass
class Profile:
    """What runs saw: how many had which sizes, and the nanoseconds of some of them; files add up in any order.

    Attributes:
        runs, timed, time: by the sizes of dimensions.
        looked, values: by these, in how many runs inputs were looked at, and how many had an input of a value.
        zeros: by these, how many elements of an input were 0 in the runs that were looked at.
        notes: a line for each file that is of another model or version.
    """

    runs: dict[Sizes, int] = field(default_factory=lambda: defaultdict(int))
    timed: dict[Sizes, int] = field(default_factory=lambda: defaultdict(int))
    time: dict[Sizes, int] = field(default_factory=lambda: defaultdict(int))
    looked: dict[Sizes, int] = field(default_factory=lambda: defaultdict(int))
    values: dict[Sizes, dict[Value, int]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(int)))
    zeros: dict[Sizes, dict[int, int]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(int)))
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
            raise ConfigError(f"--observed {name}: there is no such file, nor one that begins so", _MADE)
        found |= dict.fromkeys(files)
    return [*found]


def read_profiles(names: Sequence[Path], model: str) -> Profile:
    """The runs of a model that all files saw, added up.

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
        if not lines or lines[0] not in _NUMBERS:
            profile.notes.append(f"--observed {path}: it is no profile of this version, and ignored")
        elif lines[1:2] != [f"model {model}"]:
            profile.notes.append(f"--observed {path}: it is of another model, and ignored")
        elif not _add(profile, lines[2:], _NUMBERS[lines[0]]):
            raise ConfigError(f"--observed {path}: it is damaged", _REMEDY)
    return profile


def _add(profile: Profile, lines: Sequence[str], each: int) -> bool:
    """Add the lines behind a file's head, which have `each` numbers of an input; whether they are whole."""
    heads = ("sizes", "inputs", "others ") if each else ("sizes", "others ")
    if len(lines) <= len(heads) or lines[-1] != "end" or not all(map(str.startswith, lines, heads)):
        return False
    places, inputs = [_PLACE.match(word) for word in lines[0].split()[1:]], lines[1].split()[1:] if each else []
    if None in places or not all(re.fullmatch(r"[0-9]{1,6}", word) for word in inputs):
        return False
    dims = [(int(p[1]), int(p[2])) if p[2] else None for p in places if p]
    count = 2 + len(dims) + (1 + each * len(inputs) if each else 0)
    for line in lines[len(heads) : -1]:
        words = line.split(" ")
        if len(words) != count or not all(re.fullmatch(r"-?[0-9]{1,19}", word) for word in words):
            return False
        runs, time, *numbers = map(int, words)
        sizes, (seen, *values) = numbers[: len(dims)], numbers[len(dims) :] or [0]
        of = [values[at : at + each] for at in range(0, len(values), each)] if each else []
        pairs = [(number, x[0], x[1]) for number, x in zip(map(int, inputs), of, strict=True)]
        zeros = [x[2] for x in of] if each > 2 else [0] * len(of)
        if runs < 1 or time < 0 or not 0 <= seen <= runs or not all(0 <= had <= seen for _, _, had in pairs):
            return False
        if min(zeros, default=0) < 0:
            return False
        key = tuple((place, size) for place, size in zip(dims, sizes, strict=True) if place is not None)
        profile.runs[key] += runs
        profile.timed[key] += runs - 1
        profile.time[key] += time
        profile.looked[key] += seen
        for (number, value, had), none in zip(pairs, zeros, strict=True):
            profile.values[key][number, value] += had
            profile.zeros[key][number] += none
    return True


def recorded_runs(profile: Profile) -> int:
    """How many recordings of runs a card is to keep: one for each of the sizes that came again, and some for new ones.

    0, which means the usual number, where that is more.
    """
    again = sum(runs > 1 for runs in profile.runs.values())
    wanted = min(again + _SPARE, _RECORDED)
    return wanted if wanted > _USUAL_RECORDED else 0


@dataclass
class _Seen:
    """Runs of some sizes: how many, their weight, and which part of them had inputs of these values."""

    runs: int = 0
    weight: int = 0
    looked: int = 0
    values: dict[InputValue, int] = field(default_factory=lambda: defaultdict(int))

    def add(self, other: _Seen) -> None:
        self.runs += other.runs
        self.weight += other.weight
        self.looked += other.looked
        for value, had in other.values.items():
            self.values[value] += had

    @property
    def guards(self) -> tuple[InputValue, ...]:
        """Values that inputs had in most runs that were looked at."""
        return tuple(v for v, had in self.values.items() if had and had >= _MOSTLY * self.looked)


def padded_input(compilation: Compilation, profile: Profile) -> tuple[PaddedInput, str] | None:
    """The input whose zeros may say that rows are padding, and what was seen of them; None where they are few.

    It is of integers or truths, of two dimensions, and no indices or lengths.
    """
    taken = {use.input for use in compilation.needs.uses if use.kind not in _MASKS}
    best: tuple[float, PaddedInput] | None = None
    for number, v in enumerate(compilation.graph.given):
        if number in taken or v.type.rank != 2 or not (v.dtype.is_int or v.dtype.kind == "b") or v.dtype.width:
            continue
        zeros = whole = 0.0
        for key, weight, case in _weights(compilation, profile):
            known = {dim(r.name): const(r.least) for r in case}
            elements = (as_int(substitute(v.type.size, known)) or 0) * profile.looked[key]
            if elements:
                zeros, whole = zeros + weight * profile.zeros[key][number] / elements, whole + weight
        share = zeros / whole if whole else 0.0
        if _PADDED <= share < 1 and (best is None or share > best[0]):
            best = share, PaddedInput(v.name)
    return None if best is None else (best[1], f"{100 * best[0]:.0f} % of it were 0 in the runs seen, by their time")


def without_padded(compilation: Compilation, profile: Profile, padded: PaddedInput) -> Profile:
    """The runs of sizes for which the input was looked at and had no zeros."""
    number = [v.name for v in compilation.graph.given].index(padded.name)
    kept = {key: runs for key, runs in profile.runs.items() if not profile.zeros[key][number]}
    runs = defaultdict(int, kept)
    return dataclasses.replace(profile, runs=runs)


def _weights(compilation: Compilation, profile: Profile) -> Iterator[tuple[Sizes, int, tuple[SizeRange, ...]]]:
    """Of the sizes that runs had: their place in the profile, what they weigh, and the symbols' values.

    Where no runs were timed, as on a card, their operations stand for the time.
    """
    timed = any(profile.time.values())
    for key, runs in profile.runs.items():
        case = _case(compilation, key)
        if case is not None:
            weight = profile.time[key] * runs // max(profile.timed[key], 1)
            yield key, weight if timed else runs * _work(compilation, case, "flops", "nbytes"), case


def observed_cases(compilation: Compilation, profile: Profile) -> list[tuple[Case, str]]:
    """Sizes and values of inputs that variants are worth, those of most time first, and what was seen of each.

    As many are taken as the budget ``observed`` says, of those with a hundredth of the time at least. A value that an
    input has in nine of ten runs of these sizes belongs to it. What is left, where it is a tenth of the time, has a
    variant for the sizes and values that are the same in nine tenths of it.
    """
    timed = any(profile.time.values())
    found: dict[tuple[SizeRange, ...], _Seen] = {}
    for key, weight, case in _weights(compilation, profile):
        values = _values(compilation, profile, key, case)
        found.setdefault(case, _Seen()).add(_Seen(profile.runs[key], weight, profile.looked[key], values))
    whole = sum(seen.weight for seen in found.values())
    best = sorted(found.items(), key=lambda item: (-item[1].weight, [(r.name, r.least) for r in item[0]]))
    worth = [(case, seen) for case, seen in best if seen.weight and seen.weight >= _LEAST * whole]
    most = budget().observed
    taken = [(case, seen) for case, seen in worth[:most] if case or seen.guards]
    rest = _rest(best[most - 1 :] if len(worth) >= most else best[len(taken) :])
    if rest is not None and rest[1].weight >= (1 - _MOSTLY) * whole:
        taken = [*taken[: most - 1], rest]
    total = sum(profile.runs.values())
    return [
        ((*case, *seen.guards), _told(seen, total, whole, "time" if timed else "operations")) for case, seen in taken
    ]


def _rest(others: Sequence[tuple[tuple[SizeRange, ...], _Seen]]) -> tuple[tuple[SizeRange, ...], _Seen] | None:
    """The sizes that runs of several sizes share; None where there are none."""
    whole, sizes = _Seen(), dict[SizeRange, int]()
    for case, seen in others:
        whole.add(seen)
        for size in case:
            sizes[size] = sizes.get(size, 0) + seen.weight
    common = tuple(size for size, weight in sizes.items() if weight >= _MOSTLY * whole.weight)
    return (common, whole) if whole.weight and (common or whole.guards) else None


def _told(seen: _Seen, total: int, whole: int, what: str) -> str:
    """Words for what was seen, which say why there is a variant."""
    least = min((seen.values[v] for v in seen.guards), default=0)
    had = f"; {least} of {seen.looked} looked at had these values" if seen.guards else ""
    return f"{seen.runs} of {total} runs seen, {100 * seen.weight / whole:.0f} % of their {what}{had}"


def _values(c: Compilation, profile: Profile, key: Sizes, case: tuple[SizeRange, ...]) -> dict[InputValue, int]:
    """Values that inputs had in runs of some sizes, and in how many; not of inputs that take too long to look at."""
    inputs, known = c.graph.given, {dim(r.name): const(r.least) for r in case}
    moved = _work(c, case, "nbytes")
    found: dict[InputValue, int] = {}
    for (number, value), had in profile.values[key].items():
        if number >= len(inputs):
            continue
        bytes_ = as_int(substitute(inputs[number].type.nbytes, known))
        if bytes_ is not None and bytes_ <= _LOOKING * moved:
            found[InputValue(inputs[number].name, value)] = had
    return found


def _case(compilation: Compilation, key: Sizes) -> tuple[SizeRange, ...] | None:
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


def _work(compilation: Compilation, case: tuple[SizeRange, ...], *kinds: str) -> int:
    """Operations, bytes or both of a run with these sizes, as far as sizes alone tell them."""
    known = {leaf(r.name): const(r.least) for r in case for leaf in (dim, element)}
    works = (getattr(k, kind) for u in compilation.units for k in u.kernels for kind in kinds)
    return sum(as_int(substitute(e, known)) or 0 for e in works)
