"""Translation units of several kernels: a compiler takes longer for its start and its headers than for a small kernel.

Kernels of C++, which nvcc compiles, share a unit each in a namespace. Those of C that are short share one under other
names for their functions and structs, by macros around each.

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
# The same of kernels of C: clang takes as long for 1,500 as for its start.
_LENGTH_IN_C = 12_000
_SHORT = 6_000  # characters of a kernel of C; for a longer one a compiler's start is little
# What a kernel of C begins with: a comment, macros that headers ask for, and headers.
_OPENING_IN_C = re.compile(r"(?:/\*(?s:.*?)\*/\n)?((?:#define .*\n|#include .*\n|\n)*#include .*\n)")
_AT_MARGIN = re.compile(r"^[^\s}].*", re.MULTILINE)  # where something begins, as templates indent what is inside
_FUNCTION = re.compile(r"(?:T_FN|static) (?:__attribute__\(\(\w+\)\) )?(?:const )?(?:struct )?\w+ \**(\w+)\(")
_STRUCT = re.compile(r"struct (\w+) \{")
_MACRO = re.compile(r"#define (\w+)")
_UNNAMED = re.compile(r"/\*|void \w+\(")  # comments, and the kernel, whose name no other has


def make_units(
    sources: Mapping[str, str], flags: Mapping[str, Sequence[str]], openings: Sequence[str], apart: Collection[str] = ()
) -> dict[str, tuple[str, ...]]:
    """Names of the sources that are compiled together, each group by the name of its unit.

    Args:
        sources: text by file name.
        flags: what each is compiled with.
        openings: what texts of C++ begin with that may be compiled together.
        apart: names of those that are compiled alone.
    """
    joined = {n: o for n, t in sources.items() if n not in apart and (o := _opening(n, t, openings))}
    in_c = {n: o for n, o in joined.items() if n.endswith(".c")}
    in_cpp = {n: o for n, o in joined.items() if n not in in_c}
    lengths = {n: len(sources[n]) for n in joined}
    length, total = sum(lengths[n] for n in in_cpp), len(in_cpp)
    units = max(total / _TOGETHER, min(_UNITS, total / _LEAST), length / _LENGTH)
    found = [] if total <= _FEW else _deal_kinds(in_cpp, lengths, flags, units)
    found += _deal_kinds(in_c, lengths, flags, sum(lengths[n] for n in in_c) / _LENGTH_IN_C)
    return {_name(names, sources): tuple(names) for names in found if len(names) > 1}


def _opening(name: str, text: str, openings: Sequence[str]) -> str:
    """What a kernel begins with, which those of a unit have in common; "" of one that is compiled alone."""
    if not name.endswith(".c"):
        return next((o for o in openings if text.startswith(o)), "")
    opening = _OPENING_IN_C.match(text)
    return opening[1] if opening and len(text) <= _SHORT and _names_in(text[opening.end() :]) is not None else ""


def _names_in(body: str) -> tuple[list[str], list[str]] | None:
    """The functions and structs, and the macros, of a kernel of C behind its opening; None where it has more."""
    own, macros = list[str](), list[str]()
    for line in _AT_MARGIN.findall(body):
        if match := _FUNCTION.match(line) or _STRUCT.match(line):
            own.append(match[1])
        elif match := _MACRO.match(line):
            macros.append(match[1])
        elif not _UNNAMED.match(line):
            return None
    return list(dict.fromkeys(own)), macros


def _deal_kinds(
    joined: Mapping[str, str], lengths: Mapping[str, int], flags: Mapping[str, Sequence[str]], units: float
) -> list[list[str]]:
    """Kernels, given with their openings, in about so many units: each opening has its share of these."""
    shares = Counter[str]()
    for name, opening in joined.items():
        shares[opening] += lengths[name]
    parts = {o: _power_of_two(units * n / shares.total()) for o, n in shares.items()}
    kinds = defaultdict[tuple[str, tuple[str, ...]], list[str]](list)
    for name, opening in joined.items():
        kinds[opening, tuple(flags[name])].append(name)
    return [u for (o, _), names in kinds.items() for u in _deal({n: lengths[n] for n in names}, parts[o])]


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


def _power_of_two(about: float) -> int:
    """The power of two that is nearest to a number, by their ratio; 1 for less."""
    return 1 << max(0, round(math.log2(about)))


def _name(names: Sequence[str], sources: Mapping[str, str]) -> str:
    text = "\n".join(f"{len(sources[n])} {n}\n{sources[n]}" for n in names)
    return f"u{hashlib.sha256(text.encode()).hexdigest()[:12]}{Path(names[0]).suffix}"


def unit_text(names: Sequence[str], sources: Mapping[str, str], openings: Sequence[str]) -> str:
    """The text of a unit: the opening once, and a namespace or names for what each source has beside its kernel."""
    opening = _opening(names[0], sources[names[0]], openings)
    parts = [opening]
    for name in names:
        before, _, body = sources[name].partition(opening)
        space, line = Path(name).stem.replace(".", "_"), (before + opening).count("\n") + 1
        if name.endswith(".c"):
            own, macros = _names_in(body) or ((), ())
            parts += [f"#define {n} {n}_{space}\n" for n in own]
            parts.append(f'#line {line} "{name}"\n{body}')
            parts += [f"#undef {n}\n" for n in (*own, *macros)]
            continue
        parts.append(f'\nnamespace {space} {{\n#line {line} "{name}"\n{body}}}  // namespace {space}\n')
    return "".join(parts)
