"""One weights file for several programs of a model: what more than one of them reads is in it once."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from .copies import Copy
from .host import HostScript, Launch, NamedWeight
from .program import Program, Weight
from .weights import weight_offsets

_Key = tuple[int, str, bytes, int]


def share_weights(programs: Sequence[Program]) -> list[tuple[Program, Mapping[int, int]]]:
    """The programs with the weights of all, and where what each had at a place is now; one by itself stays as it is.

    Equal weights of one program stay apart, as other values of them need not be equal.
    """
    if len(programs) == 1:
        return [(p, {at: at for at in p.offsets}) for p in programs]
    weights: dict[_Key, Weight] = {}
    keys = [_keys(p.weights) for p in programs]
    for p, known in zip(programs, keys, strict=True):
        for key, weight in zip(known, p.weights, strict=True):
            weights.setdefault(key, weight)
    whole = list(weights.values())
    offsets = weight_offsets([w.nbytes for w in whole])
    places = dict(zip(weights, offsets, strict=True))
    moves = [
        {at: places[key] for at, key in zip(p.offsets, known, strict=True)}
        for p, known in zip(programs, keys, strict=True)
    ]
    return [
        (replace(_move_weights(p, to), weights=whole, offsets=offsets), to)
        for p, to in zip(programs, moves, strict=True)
    ]


def bytes_beside(program: Program, usual: Program) -> int:
    """Bytes of the weights that a program's steps read in an order in which those of another one do not.

    Weights are told apart by name, order and size: whether unnamed ones are equal is only known once they are packed.
    """
    known = {key for key, _ in _read(usual)}
    return sum(nbytes for key, nbytes in dict(_read(program)).items() if key not in known)


def _read(p: Program) -> list[tuple[tuple[str, str, int], int]]:
    found = [w for w, at in zip(p.weights, p.offsets, strict=True) if at in p.weights_read]
    return [((w.source.name, getattr(w.operand, "how", ""), w.nbytes), w.nbytes) for w in found]


def move_named(named: Iterable[NamedWeight], to: Mapping[int, int]) -> tuple[NamedWeight, ...]:
    """Weights by name of a program whose weights lie elsewhere, by where each lay."""
    return tuple(replace(w, copies=tuple(_copy(c, w, to) for c in w.copies)) for w in named)


def _copy(copy: Copy, weight: NamedWeight, to: Mapping[int, int]) -> Copy:
    size = weight.dlpack[1] // 8
    base = max(at for at in to if at <= copy.place * size)
    return replace(copy, place=copy.place + (to[base] - base) // size)


def _keys(weights: Sequence[Weight]) -> list[_Key]:
    """What tells each weight from others: its name in the model and its contents, and which of those that have both."""
    seen: Counter[tuple[int, str, bytes]] = Counter()
    found = []
    for weight in weights:
        digest = hashlib.sha256()
        for part in weight.parts():
            digest.update(np.ascontiguousarray(part).reshape(-1).view(np.uint8).data)
        key = weight.nbytes, weight.source.name, digest.digest()
        found.append((*key, seen[key]))
        seen[key] += 1
    return found


def _move_weights(p: Program, to: Mapping[int, int]) -> Program:
    """A program whose weights lie elsewhere, by where each lay; of those without a byte, only the last at a place."""
    steps = tuple(_step(step, to) for step in p.steps)
    segments = tuple(_move_weights(q, to) for q in p.segments)
    states = tuple(replace(s, first=to[s.first]) if s.first >= 0 else s for s in p.states)
    return replace(p, steps=steps, states=states, segments=segments, script=p.script and _script(p.script, to))


def _step(step: Launch, to: Mapping[int, int]) -> Launch:
    buffers = tuple(
        replace(b, offset=b.offset - b.base + to[b.base], base=to[b.base]) if b.space == "weights" else b
        for b in step.buffers
    )
    return replace(step, buffers=buffers)


def _script(script: HostScript, to: Mapping[int, int]) -> HostScript:
    return replace(script, constants=tuple(replace(c, offset=to[c.offset]) for c in script.constants))
