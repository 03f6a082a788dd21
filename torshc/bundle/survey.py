"""What can be compiled for here: tools and devices for each toolchain, and how to get what is missing."""

from __future__ import annotations

import platform
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ..errors import ToolchainError
from .nvcc import find_cards, find_nvcc
from .toolchain import CLANGS, GCCS, REMEDY, Compiler, find_compiler
from .xcrun import find_xcrun


@dataclass(frozen=True)
class ToolFound:
    """A tool: its name, kind, command, and what it says about its version."""

    name: str
    kind: str
    command: tuple[str, ...]
    version: str


@dataclass(frozen=True)
class Survey:
    """What there is for a target.

    Attributes:
        tools: what builds its libraries; the first is what compile uses.
        devices: devices that run them, a line each; empty where none is asked for.
        missing: what is not here and how to get it, a line each.
    """

    tools: tuple[ToolFound, ...]
    devices: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()


def survey(kind: str, cc: str = "") -> Survey:
    """What there is for a kind of toolchain: "cc", "nvcc" or "xcrun".

    Raises:
        ToolchainError: the C compiler that is named does not work.
    """
    return _SURVEYS[kind](cc)


def _tool(c: Compiler) -> ToolFound:
    return ToolFound(c.name, c.kind, tuple(c.command), c.version)


def _cc(cc: str) -> Survey:
    """All compilers that answer, the one that compile would take first, each program once."""
    names = [n for n in (*CLANGS, "clang", *GCCS, "gcc", "cc") if shutil.which(n)]
    found: list[Compiler] = []
    for name in (cc, *names, "zig"):
        try:
            found.append(find_compiler(name or None))
        except ToolchainError:
            if name and name == cc:
                raise
    once = list({Path(c.path).resolve(): c for c in reversed(found)}.values())[::-1]
    return Survey(tuple(map(_tool, once)), (), () if once else (f"no C compiler: {REMEDY}",))


def _nvcc(cc: str) -> Survey:
    cards = tuple(f"{card.name}, {card.arch}, driver {card.driver}" for card in find_cards())
    missing = () if cards else ("no NVIDIA card or driver: libraries are built for --arch, and run elsewhere",)
    try:
        tool = find_nvcc()
    except ToolchainError as error:
        return Survey((), cards, (f"{error.message}; {error.remedy}", *missing))
    return Survey((ToolFound(tool.name, tool.kind, tuple(tool.command), tool.version),), cards, missing)


def _xcrun(cc: str) -> Survey:
    missing = () if platform.system() == "Darwin" else ("no Apple GPU: this is no Mac",)
    try:
        tool = find_xcrun()
    except ToolchainError as error:
        return Survey((), (), (f"{error.message}; {error.remedy}", *missing))
    return Survey((ToolFound(tool.name, tool.kind, tuple(tool.command), tool.version),), (), missing)


_SURVEYS: dict[str, Callable[[str], Survey]] = {"cc": _cc, "nvcc": _nvcc, "xcrun": _xcrun}

__all__ = ["Survey", "ToolFound", "survey"]
