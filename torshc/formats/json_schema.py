"""Checks a document against the part of JSON Schema that our own schemas use, and says where it fails."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from ..errors import did_you_mean
from .model import Misfit

_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,), "array": (list,), "string": (str,), "boolean": (bool,), "integer": (int,),
    "number": (int, float),
}  # fmt: skip


@lru_cache(maxsize=4)
def schema(name: str) -> Mapping[str, Any]:
    """A schema that lies beside this module."""
    loaded: Mapping[str, Any] = json.loads(Path(__file__).with_name(name).read_text(encoding="utf-8"))
    return loaded


def require(value: Any, rule: Mapping[str, Any], root: Mapping[str, Any], path: str = "") -> None:
    """Check a value.

    Args:
        root: the document that the rule's references point into.
        path: where the value stands, such as ``nodes[3].inputs``.

    Raises:
        Misfit: names the first place that does not fit, and what was expected.
    """
    here = path or "the document"
    if "$ref" in rule:
        require(value, root["$defs"][rule["$ref"].removeprefix("#/$defs/")], root, path)
        return
    if "anyOf" in rule:
        _any_of(value, rule["anyOf"], root, path)
        return
    if "const" in rule and (value != rule["const"] or isinstance(value, bool)):
        raise Misfit(f"{here} must be {rule['const']!r}, and is {_show(value)}")
    if "enum" in rule and value not in rule["enum"]:
        hint = did_you_mean(str(value), rule["enum"])
        raise Misfit(f"{here} must be one of {', '.join(rule['enum'])}, and is {_show(value)}{hint}")
    kind = rule.get("type")
    if kind is not None and (not isinstance(value, _TYPES[kind]) or isinstance(value, bool) != (kind == "boolean")):
        raise Misfit(f"{here} must be {_article(kind)}, and is {_show(value)}")
    if isinstance(value, (int, float)) and value < rule.get("minimum", value):
        raise Misfit(f"{here} must be at least {rule['minimum']}, and is {value}")
    if len(value if isinstance(value, (str, list)) else "-" * 9) < rule.get("minLength", rule.get("minItems", 0)):
        raise Misfit(f"{here} must not be empty")
    if isinstance(value, dict):
        _object(value, rule, root, path)
    elif isinstance(value, list) and "items" in rule:
        for k, item in enumerate(value):
            require(item, rule["items"], root, f"{path}[{k}]")


def _object(value: Mapping[str, Any], rule: Mapping[str, Any], root: Mapping[str, Any], path: str) -> None:
    known = rule.get("properties", {})
    for name in rule.get("required", ()):
        if name not in value:
            raise Misfit(f"{path or 'the document'} lacks {name!r}")
    rest = rule.get("additionalProperties", True)
    for name, item in value.items():
        inner = f"{path}.{name}" if path else name
        if name in known:
            require(item, known[name], root, inner)
        elif rest is False:
            raise Misfit(f"{path or 'the document'} has no key {name!r}{did_you_mean(name, list(known))}")
        elif isinstance(rest, dict):
            require(item, rest, root, inner)


def _any_of(value: Any, rules: list[Mapping[str, Any]], root: Mapping[str, Any], path: str) -> None:
    """One of several rules; the complaint is that of the last one of the value's own type, or of them all."""
    complaint: Misfit | None = None
    for rule in rules:
        try:
            require(value, rule, root, path)
            return
        except Misfit as e:
            kind = rule.get("type", "object")
            if isinstance(value, _TYPES[kind]) and not isinstance(value, bool):
                complaint = e
    kinds = " or ".join(_article(str(r.get("type", "tensor"))) for r in rules)
    raise complaint or Misfit(f"{path or 'the document'} must be {kinds}, and is {_show(value)}")


def _article(kind: str) -> str:
    return f"an {kind}" if kind[0] in "aio" else f"a {kind}"


def _show(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=repr)
    return text if len(text) <= 40 else text[:37] + "..."
