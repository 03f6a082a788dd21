"""Files about the manifest: its JSON Schema, and the form that is hashed."""

from __future__ import annotations

import json
from pathlib import Path

from ..base.manifest import compact

COMPACT = "t_manifest.json"  # beside the sources: the same in the form that is hashed
SCHEMA = Path(__file__).with_name("manifest.schema.json")


def hashed_form(text: str) -> str:
    """What the "sha256" of a manifest's text is the hash of."""
    body = json.loads(text)
    del body["sha256"]
    return compact(body)
