"""Tuning records: what a tuner measured to be faster than what lowerings choose, as text that can be committed.

    torshc tuning records 1

    [c x86-64-v4,znver4,clang torshc 0.9.0]
    k0123456789ab gemm.c.j2 128x768x3072 block=96 tile=6x4  # 412.0 us, 470.1 before
    k123456789abc conv.c.j2 3136x64x576 default  # 803.0 us

A section holds the kernels of a target and a machine, by name: a processor with its compiler, or a card, such as
"cuda NVIDIA-H200,sm_90a". A kernel's name is the hash of the text that it has without records: sizes, element types and
epilogue, and nothing of the model. So a record serves every model with the same kernel, and a kernel that is computed
otherwise has none.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from .._version import __version__
from ..base.errors import ConfigError, OutputError, did_you_mean
from ..base.resources import template_folders
from ..kernels.base import Kernel
from ..kernels.machine import Choice
from ..kernels.nest import MapKernel, RowKernel
from ..targets import Target
from ..targets.isa import Isa
from ..targets.parameters import choice_text, parameters_of, parse_choice

HEAD = "torshc tuning records 1"
LOOPS = frozenset({MapKernel.kind, RowKernel.kind})
USUAL = "default"  # in place of choices: nothing was faster by more than the noise
REMEDY = "mend the line, or remove it and run torshc tune again"
_SECTION = re.compile(r"\[([\w]+) ([^\s\[\]]+) torshc ([^\s\[\]]+)\]\Z")
_KERNEL = re.compile(r"k[0-9a-z_]{12,40}\Z")

Choices = tuple[tuple[str, Choice], ...]


@dataclass(frozen=True)
class TuningKey:
    """What records hold for: a target, the processor with its compiler or the card, and a version of torshc."""

    target: str
    machine: str
    version: str = __version__

    def __str__(self) -> str:
        return f"{self.target} {self.machine} torshc {self.version}"


@dataclass(frozen=True)
class Record:
    """What was measured of a kernel.

    Attributes:
        kernel: its name without records.
        template: what renders it.
        shape: its sizes, for people.
        choices: what it is rendered with; empty for what lowerings choose.
        note: the times, for people.
    """

    kernel: str
    template: str
    shape: str
    choices: Choices = ()
    note: str = ""

    def __str__(self) -> str:
        choices = choices_text(self.choices) or USUAL
        return f"{self.kernel} {self.template} {self.shape} {choices}" + (f"  # {self.note}" if self.note else "")


Records = Mapping[TuningKey, Mapping[str, Record]]


@dataclass(frozen=True)
class Tuning:
    """The choices that hold for a compilation, by kernel, and what was passed over in the file, a line each."""

    choices: Mapping[str, Choices] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


def choices_text(choices: Choices) -> str:
    """Choices as a record has them.

    >>> choices_text((("block", (96,)), ("tile", (6, 4))))
    'block=96 tile=6x4'
    """
    return " ".join(f"{name}={choice_text(value)}" for name, value in choices)


def tuning_key(target: Target, isa: Isa) -> TuningKey:
    """What measurements of a target's kernels hold for: the card, else the processor and the kind of compiler."""
    machine = target.machine
    if machine.archs:
        parts = (target.toolchain.card(machine.archs), *machine.archs)
    else:
        isa = isa.asking_for(())  # a library may or may not use tiles
        parts = (isa.name, *isa.extras, isa.tune, machine.compiler)
    return TuningKey(target.name, ",".join(filter(None, parts)))


def tunable(target: Target, kernels: Sequence[Kernel]) -> Kernel | None:
    """Of the kernels of a group the one whose template has parameters: it names the group in records.

    What is chosen for a heavy operator is its kernel's, not that of loops which prepare its operands.
    """
    heavy = [k for k in kernels if k.kind not in LOOPS]
    return next((k for k in heavy or kernels if target.parameters(k)), None)


def name_of(target: Target, kernel: Kernel) -> str:
    """A kernel's name in records: the same in all versions of a library."""
    return type(target)(replace(target.machine, version="")).render(kernel).symbol


def tuning_of(path: Path | None, target: Target, isa: Isa) -> Tuning:
    """The choices of a file for a target and a machine; none without a file.

    Raises:
        ConfigError: the file cannot be read or is malformed, or a choice is out of its template's range.
    """
    if path is None:
        return Tuning()
    here = tuning_key(target, isa)
    found = read_records(path, target, here)
    used = _find_place(found, here)
    others = [str(place) for place in found if place != used]
    warnings = [f"{path}: records for {', '.join(others)} are ignored: this is {here}"] if others else []
    known = found.get(used, {})
    return Tuning({name: r.choices for name, r in known.items() if r.choices}, tuple(warnings))


def _find_place(found: Records, here: TuningKey) -> TuningKey:
    """The place whose records hold here: this one, or without a card the only card of these architectures."""
    if here in found:
        return here
    cards = [p for p in found if _may_hold(p, here)]
    return cards[0] if len(cards) == 1 else here


def _may_hold(place: TuningKey, here: TuningKey) -> bool:
    """Whether records of a place are for this one, or for a card where only its architectures are known."""
    return place == replace(here, machine=place.machine) and f",{place.machine}".endswith(f",{here.machine}")


def read_records(path: Path, target: Target, here: TuningKey) -> Records:
    """The records of a file; the choices of those that may hold here are checked against the templates of `target`.

    Other machines have other ranges: tiles depend on the width of vectors.

    Raises:
        ConfigError: as :func:`tuning_of`; with the line, and what is wrong with it.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise ConfigError(f"cannot read the tuning records {path}: {why}", "torshc tune writes such a file") from error
    if not lines or lines[0].strip() != HEAD:
        raise ConfigError(f"{path}, line 1: it does not begin with {HEAD!r}", "name a file that torshc tune wrote")
    records: dict[TuningKey, dict[str, Record]] = {}
    place = None
    for number, line in enumerate(lines[1:], 2):
        text, _, note = (part.strip() for part in line.partition("#"))
        if not text:
            continue
        try:
            if text.startswith("["):
                place = _place(text)
                records.setdefault(place, {})
                continue
            if place is None:
                raise ValueError("a record stands before the first [section]")
            record = _record(text, note)
            if record.kernel in records[place]:
                raise ValueError(f"{record.kernel} has a record above")
            if _may_hold(place, here):
                _check(record, target)
        except ValueError as error:
            raise ConfigError(f"{path}, line {number}: {error}", REMEDY) from error
        records[place][record.kernel] = record
    return records


def _place(text: str) -> TuningKey:
    found = _SECTION.match(text)
    if found is None:
        raise ValueError(f"{text[:80]!r} is not a section such as [c x86-64-v3,clang torshc {__version__}]")
    return TuningKey(*found.groups())


def _record(text: str, note: str) -> Record:
    words = text.split()
    if len(words) < 4 or not _KERNEL.match(words[0]):
        raise ValueError(f"{text[:80]!r} is not a record: a kernel, its template, its sizes, and choices or {USUAL!r}")
    return Record(words[0], words[1], words[2], () if words[3:] == [USUAL] else _choices(words[3:]), note)


def _choices(words: Sequence[str]) -> Choices:
    found: dict[str, Choice] = {}
    for word in words:
        name, equals, value = word.partition("=")
        try:
            if not equals or name in found:
                raise ValueError
            found[name] = parse_choice(value)
        except ValueError:
            raise ValueError(f"{word[:80]!r} is not a choice such as tile=6x4") from None
    return tuple(sorted(found.items()))


def _check(record: Record, target: Target) -> None:
    """Raises ValueError for a choice that the template does not state."""
    names = {f.name for folder in template_folders(target.search) for f in folder.glob("*.j2")}
    if record.template not in names:
        raise ValueError(f"there is no template {record.template!r}{did_you_mean(record.template, sorted(names))}")
    parameters = {p.name: p for p in parameters_of(target.search, record.template, target.machine.lanes)}
    for name, value in record.choices:
        if name not in parameters:
            known = ", ".join(parameters) or "none"
            raise ValueError(
                f"{record.template} has no parameter {name!r}{did_you_mean(name, list(parameters))}; it has {known}"
            )
        if value not in parameters[name].values:
            stated = ", ".join(map(choice_text, parameters[name].values))
            raise ValueError(f"{name}={choice_text(value)} is out of the range of {record.template}: {stated}")


def write_records(path: Path, records: Records) -> None:
    """Writes a file of records, sorted, whole or not at all.

    Raises:
        OutputError: it cannot be written.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        temporary.write_text("\n".join(_lines(records)) + "\n", encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        raise OutputError(
            f"cannot write {path}: {error.strerror or error}", "name another with --tuning-records"
        ) from error
    finally:
        if os.path.lexists(temporary):
            temporary.unlink()


def _lines(records: Records) -> Iterator[str]:
    yield HEAD
    for place in sorted(records, key=str):
        yield f"\n[{place}]"
        yield from map(str, sorted(records[place].values(), key=lambda r: r.kernel))
