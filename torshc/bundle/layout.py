"""How a library reads its weights: two compilations with one layout can exchange their weights files."""

from __future__ import annotations

import hashlib
import json
from functools import cache

from ..expr import Expr, to_text
from .program import Program

_LIMIT = 1 << 16  # nodes of an offset; it is written whole


def weights_layout(*programs: Program) -> str:
    """A hash over the sizes of all weights, and over each launch with what it is given, in all versions of a model."""
    program, parts = programs[0], [q for p in programs for q in p.segments or (p,)]
    text = cache(_text)  # the steps of a product for ranges of sizes share their buffers
    steps = [
        [step.symbol, *((b.space, b.index, text(b.offset)) for b in step.buffers)] for p in parts for step in p.steps
    ]
    body = {"weights": [w.nbytes for w in program.weights], "steps": steps}
    return hashlib.sha256(json.dumps(body).encode()).hexdigest()


def _text(offset: Expr | int) -> int | str:
    return offset if isinstance(offset, int) else to_text(offset, _LIMIT)
