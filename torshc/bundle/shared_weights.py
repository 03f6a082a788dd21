"""One weights file for several programs of a model: what more than one of them reads is in it once."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from .host import HostScript, Launch
from .program import Program, Weight
from .weights import weight_offsets


def share_weights(programs: Sequence[Program]) -> list[Program]:
    """The programs with the weights of all; one by itself stays as it is."""
    if len(programs) == 1:
        return list(programs)
    weights: dict[tuple[int, bytes], Weight] = {}
    keys = [[_key(w) for w in p.weights] for p in programs]
    for p, known in zip(programs, keys, strict=True):
        for key, weight in zip(known, p.weights, strict=True):
            weights.setdefault(key, weight)
    whole = list(weights.values())
    offsets = weight_offsets([w.nbytes for w in whole])
    places = dict(zip(weights, offsets, strict=True))
    return [
        replace(
            _moved(p, {at: places[key] for at, key in zip(p.offsets, known, strict=True)}),
            weights=whole,
            offsets=offsets,
        )
        for p, known in zip(programs, keys, strict=True)
    ]


def _key(weight: Weight) -> tuple[int, bytes]:
    digest = hashlib.sha256()
    for part in weight.parts():
        digest.update(np.ascontiguousarray(part).reshape(-1).view(np.uint8).data)
    return weight.nbytes, digest.digest()


def _moved(p: Program, to: Mapping[int, int]) -> Program:
    """A program whose weights lie elsewhere, by where each lay; of those without a byte, only the last at a place."""
    steps = tuple(_step(step, to) for step in p.steps)
    segments = tuple(_moved(q, to) for q in p.segments)
    return replace(p, steps=steps, segments=segments, script=p.script and _script(p.script, to))


def _step(step: Launch, to: Mapping[int, int]) -> Launch:
    buffers = tuple(
        replace(b, offset=b.offset - b.base + to[b.base], base=to[b.base]) if b.space == "weights" else b
        for b in step.buffers
    )
    return replace(step, buffers=buffers)


def _script(script: HostScript, to: Mapping[int, int]) -> HostScript:
    return replace(script, constants=tuple(replace(c, offset=to[c.offset]) for c in script.constants))
