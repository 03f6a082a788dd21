"""The explanation as one page for a browser, which needs no network.

What it shows is compressed JSON inside the page; ``page/page.js`` draws it, with Cytoscape.js (``page/vendor``) for the
graph.
"""

from __future__ import annotations

import base64
import gzip
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jinja2

from ..base.errors import ConfigError
from .data import Explanation
from .json_form import body_of

_PAGE = Path(__file__).with_name("page")


@dataclass(frozen=True)
class Shown:
    """A compilation as the page shows it.

    Attributes:
        title: what it is called there.
        explanation: what is known of it.
        sources: source of each kernel, by its symbol.
        measured: seconds a call of each launch, in order; empty where nothing was measured.
        roof: operations of f32 ("flops") and bytes in a second, where they were measured; else empty.
    """

    title: str
    explanation: Explanation
    sources: Mapping[str, str]
    measured: Sequence[float] = field(default_factory=tuple)
    roof: Mapping[str, float] = field(default_factory=dict)


def to_html(shown: Sequence[Shown]) -> str:
    """The page of one compilation, or of two side by side."""
    bodies = [
        {
            **body_of(s.explanation),
            "title": s.title,
            "sources": dict(s.sources),
            "measured": list(s.measured),
            "roof": dict(s.roof),
        }
        for s in shown
    ]
    packed = gzip.compress(json.dumps(bodies, separators=(",", ":")).encode(), 6, mtime=0)
    environment = jinja2.Environment(undefined=jinja2.StrictUndefined, autoescape=True)
    texts = {name: (_PAGE / file).read_text(encoding="utf-8") for name, file in _FILES.items()}
    return environment.from_string((_PAGE / "page.html.j2").read_text(encoding="utf-8")).render(
        title=" and ".join(s.title for s in shown), data=base64.b64encode(packed).decode(), **texts
    )


_FILES = {
    "style": "page.css", "graph_library": "vendor/cytoscape.min.js", "layout_library": "vendor/cytoscape-dagre.min.js",
    "script": "page.js", "licences": "vendor/LICENSES.txt",
}  # fmt: skip


def read_measured(path: Path, explanation: Explanation) -> list[float]:
    """Seconds a call of each launch, from what ``torshc bench --profile --json`` printed.

    Raises:
        ConfigError: it cannot be read, has no profile, or is of another compilation.
    """
    remedy = "write it with torshc bench MODEL --profile --json > FILE"
    try:
        steps: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["steps"]
        times = [(str(s["kernel"]), s["seconds"] / max(s["calls"], 1)) for s in steps]
        if not all(0 <= seconds < math.inf for _, seconds in times):
            raise ValueError("its times are no numbers")
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}", remedy) from error
    except (ValueError, KeyError, TypeError, ArithmeticError, RecursionError) as error:
        raise ConfigError(f"{path} is not what bench printed: {error}", remedy) from error
    if [name for name, _ in times] != [k.symbol for g in explanation.groups for k in g.kernels]:
        what = "has no profile" if not times else "is of another compilation: its kernels are others"
        raise ConfigError(f"{path} {what}", "run bench with --profile and the options of explain")
    return [seconds for _, seconds in times]


def read_roof(path: Path) -> dict[str, float]:
    """The roof in a file that :func:`read_measured` takes; empty where it has none."""
    roof: Any = json.loads(path.read_text(encoding="utf-8")).get("roof")
    try:
        found = {"bytes": float(roof["bytes"]), "flops": float(roof["flops"]["f32"])}
    except (KeyError, TypeError, ValueError, OverflowError):
        return {}
    return found if all(0 < rate < math.inf for rate in found.values()) else {}
