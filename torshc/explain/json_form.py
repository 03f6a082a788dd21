"""The explanation as JSON, for programs."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from .data import Explanation

VERSION = 1


def to_json(explanation: Explanation) -> str:
    """One JSON object in ASCII: the fields of :class:`Explanation`, with ``"torshc_explain": 1`` in front."""
    return json.dumps(body_of(explanation), indent=1, ensure_ascii=True)


def body_of(explanation: Explanation) -> dict[str, Any]:
    """The object of :func:`to_json`."""
    body = dataclasses.asdict(explanation)
    totals = {"flops": explanation.flops, "bytes": explanation.bytes}
    for group, shown in zip(explanation.groups, body["groups"], strict=True):
        shown.update(templates=group.templates, flops=group.flops, bytes=group.bytes)
    return {"torshc_explain": VERSION, **body, "totals": totals}
