"""Files of states: safetensors, whose header is the same for all files of one model and optimiser.

The library compares the header instead of reading JSON. Entries that begin with ``torshc.`` are no weights: a digest of
all that follows it, the number of steps, and what the optimizer keeps. Where ranks have parts of a state the file has
the whole, so that files of any number of ranks are alike.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from ..base.safetensors import OWN, STATE
from .host import HostState

DIGEST = f"{OWN}digest"
DIGEST_BYTES = 8
_TYPES = {"f32": "F32", "f64": "F64", "i64": "I64"}


def state_header(states: Sequence[HostState], model: str) -> str:
    """The JSON that a file begins with, behind its length.

    The library looks for the format and the model's hash at the places where they stand here.

    Args:
        states: the states, in the order in which they lie in the file, without gaps.
        model: SHA-256 of the model.
    """
    entries: dict[str, Any] = {"__metadata__": {"format": STATE, "model": model}}
    entries[DIGEST] = {"dtype": "U64", "shape": [1], "data_offsets": [0, DIGEST_BYTES]}
    at = DIGEST_BYTES
    for s in states:
        entries[s.name] = {"dtype": _TYPES[s.dtype], "shape": s.dims, "data_offsets": [at, at + s.bytes * s.parts]}
        at += s.bytes * s.parts
    text = json.dumps(entries, separators=(",", ":"))
    return text + " " * (-len(text) % 8)
