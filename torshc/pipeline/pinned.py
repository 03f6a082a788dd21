"""Edited kernels in place of generated ones, wherever the contract is still the same."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

from ..base.errors import ConfigError
from ..targets.base import environment
from .compilation import Compilation, with_edited
from .contract import EDITED, FILE, Contract, contracts_of

_C_LIKE = (".c", ".cu")  # endings of sources that may begin with a declaration of C


def with_pinned(compilation: Compilation, folder: Path) -> Compilation:
    """The compilation with the kernels of a folder that ``torshc eject`` wrote, edited since.

    Raises:
        ConfigError: with all kernels that fit nowhere in this model, or cannot be read.
    """
    if not folder.is_dir():
        raise ConfigError(f"--kernels {folder}: there is no such folder", "name the one that `torshc eject` wrote")
    here = _contracts(compilation)
    places = places_of(folder)
    problems: list[str] = []
    pinned: dict[str, str] = {}
    sources = compilation.sources
    for place in places:
        try:
            contract = _contract_in(place)
            text = (place / f"{EDITED}{contract.suffix}").read_text(encoding="utf-8")
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            problems.append(f"{place}: the kernel cannot be read: {error}")
            continue
        if contract.interface not in here:
            problems.append(f"{place} is stale: {_why(contract, list(here.values()))}")
            continue
        file = contract.symbol + contract.suffix
        sources = with_edited(sources, file, _declare_prototype(compilation, contract) + text)
        pinned[file] = str(place / f"{EDITED}{contract.suffix}")
    if not places:
        problems.append(f"{folder} holds no ejected kernel")
    if problems:
        raise ConfigError("\n".join(problems), "eject it again (torshc eject) and carry the edits over, or remove it")
    return dataclasses.replace(compilation, sources=sources, pinned=pinned)


def places_of(folder: Path) -> list[Path]:
    """The folders of edited kernels in a folder, in order."""
    return sorted(p.parent for p in folder.glob(f"*/{FILE}"))


def fitting_places(compilation: Compilation, folder: Path) -> list[Path]:
    """The folders of edited kernels that have a place in a compilation; all of them can be read."""
    here = _contracts(compilation)
    return [place for place in places_of(folder) if _contract_in(place).interface in here]


def _contracts(compilation: Compilation) -> dict[str, Contract]:
    return {c.interface: c for unit in compilation.units for _, c in contracts_of(compilation, unit)}


def _contract_in(place: Path) -> Contract:
    return Contract.from_json(json.loads((place / FILE).read_text(encoding="utf-8")))


def _why(contract: Contract, here: list[Contract]) -> str:
    """Why a kernel fits nowhere: what the kernel of the same nodes is like, if there is one."""
    what = f"{contract.kind} of {', '.join(contract.nodes)}"
    alike = [c for c in here if c.nodes == contract.nodes]
    same = next((c for c in alike if c.kind == contract.kind), next(iter(alike), None))
    if same is None:
        return f"no group of this model is made of {', '.join(contract.nodes)}"
    return f"{what} is group {same.group} here, where {'; '.join(contract.differences(same))}"


def _declare_prototype(compilation: Compilation, contract: Contract) -> str:
    """The kernel's prototype, so that another type is an error of its compiler; lines are counted as in the file."""
    if contract.suffix not in _C_LIKE:
        return ""
    target = compilation.target
    search = (target if contract.suffix == target.suffix else target.on_processor()).search
    launch = environment(search).get_template("launch.j2").module
    prototype = str(launch.prototype(contract.symbol, compilation.target.host.launchers)).strip()  # type: ignore[attr-defined]
    if not prototype:
        return ""
    outside = 'extern "C" ' if contract.suffix != ".c" else ""
    return f'#include <stdint.h>\n{outside}{prototype}\n#line 1 "{contract.symbol}/{EDITED}{contract.suffix}"\n'
