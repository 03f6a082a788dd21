"""Translation units of several kernels: a compiler takes longer for its start and its headers than for a small kernel.

Kernels of C++, which nvcc compiles, share a unit each in a namespace; of C, those that are one short function.

A kernel keeps its source of its own, in which it is read and edited. What it is compiled in depends on the names and
texts of a library's kernels alone, so that a library has the same bytes everywhere; and on few others of them, so that
the cache has most units of a library of which a kernel has changed.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

_FEW = 16  # kernels that are compiled alone: processors do that side by side
_LEAST = 4  # kernels of a unit at the least, on average, where there are fewer units than `_UNITS`
# At the least where there are kernels enough, for processors that compile side by side. Each takes 0.8 s of a processor
# before its first kernel, as three kernels do.
_UNITS = 8
_TOGETHER = (
    16  # kernels of a unit at most, on average; the number of units is a power of two, so that it seldom changes
)
# Characters of kernels of C++ for each unit, about, where that makes more units. A compiler takes as long for 47,000 as
# for its start and its headers: smaller units take more of all processors, larger ones are waited for.
_LENGTH = 200_000
_FULL = 1.2  # times the mean length of units that one may have at the most, as processors wait for the longest
_TOGETHER_IN_C = 8  # the same of small kernels of C
_SMALL = 4000  # characters of a kernel of C that takes no longer than the start of its compiler, with the headers
_AT_MARGIN = re.compile(r"^[^\s}]", re.MULTILINE)  # where something begins, if templates indent what is inside


def make_units(
    sources: Mapping[str, str], flags: Mapping[str, Sequence[str]], openings: Sequence[str], apart: Collection[str] = ()
) -> dict[str, tuple[str, ...]]:
    """Names of the sources that are compiled together, each group by the name of its unit.

    Args:
        sources: text by file name.
        flags: what each is compiled with.
        openings: what texts begin with that may be compiled together: those with the same one and the same flags.
        apart: names of those that are compiled alone.
    """
    joined = {n: o for n, t in sources.items() if n not in apart for o in openings if t.startswith(o)}
    joined = {n: o for n, o in joined.items() if not n.endswith(".c") or _is_small(sources[n].removeprefix(o))}
    total, in_c = len(joined), any(n.endswith(".c") for n in joined)
    if total <= _FEW and not in_c:
        return {}
    shares = Counter[str]()
    for name, opening in joined.items():
        shares[opening] += 1 if in_c else len(sources[name])
    whole = shares.total()
    units = total / _TOGETHER_IN_C if in_c else max(total / _TOGETHER, min(_UNITS, total / _LEAST), whole / _LENGTH)
    parts = {o: _power_of_two(units * n / whole) for o, n in shares.items()}
    kinds = defaultdict[tuple[str, tuple[str, ...]], list[str]](list)
    for name, opening in joined.items():
        kinds[opening, tuple(flags[name])].append(name)
    found = [u for (o, _), names in kinds.items() for u in _deal({n: len(sources[n]) for n in names}, parts[o])]
    return {_name(names, sources): tuple(names) for names in found if len(names) > 1}


def _deal(lengths: Mapping[str, int], parts: int) -> list[list[str]]:
    """Names of kernels in units of about the same length: by a kernel's name, and by room.

    A kernel more or less changes its unit, and seldom another, whose kernels had no room elsewhere.
    """
    digests = {n: int.from_bytes(hashlib.sha256(n.encode()).digest()[:8], "big") for n in lengths}
    most, found, filled = _FULL * sum(lengths.values()) / parts, [list[str]() for _ in range(parts)], [0] * parts
    for name in sorted(lengths, key=digests.__getitem__):
        places = [(digests[name] + k) % parts for k in range(parts)]
        fitting = (k for k in places if filled[k] + lengths[name] <= most)
        place = next(fitting, min(places, key=lambda k: filled[k]))
        found[place].append(name)
        filled[place] += lengths[name]
    return [sorted(names) for names in found]


def _is_small(body: str) -> bool:
    """Whether a kernel of C is short, and has nothing beside it that could meet another's: a function, a macro."""
    return len(body) <= _SMALL and len(_AT_MARGIN.findall(body)) == 1


def _power_of_two(about: float) -> int:
    """The power of two that is nearest to a number, by their ratio; 1 for less."""
    return 1 << max(0, round(math.log2(about)))


def _name(names: Sequence[str], sources: Mapping[str, str]) -> str:
    text = "\n".join(f"{len(sources[n])} {n}\n{sources[n]}" for n in names)
    return f"u{hashlib.sha256(text.encode()).hexdigest()[:12]}{Path(names[0]).suffix}"


def unit_text(names: Sequence[str], sources: Mapping[str, str], openings: Sequence[str]) -> str:
    """The text of a unit: the opening once, and in C++ a namespace for what each source has beside its kernel."""
    (opening,) = (o for o in openings if sources[names[0]].startswith(o))
    parts = [opening]
    for name in names:
        space, line = Path(name).stem.replace(".", "_"), opening.count("\n") + 1
        body = sources[name].removeprefix(opening)
        if name.endswith(".c"):
            parts.append(f'#line {line} "{name}"\n{body}')
            continue
        parts.append(f'\nnamespace {space} {{\n#line {line} "{name}"\n{body}}}  // namespace {space}\n')
    return "".join(parts)
