"""Checks a document against the part of JSON Schema that our own schemas use, and says where it fails."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from ..base.errors import did_you_mean
from .model import Misfit, several

_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,), "array": (list,), "string": (str,), "boolean": (bool,), "integer": (int,),
    "number": (int, float), "null": (type(None),),
}  # fmt: skip


@lru_cache(maxsize=4)
def schema(name: str) -> Mapping[str, Any]:
    """A schema that lies beside this module."""
    loaded: Mapping[str, Any] = json.loads(Path(__file__).with_name(name).read_text(encoding="utf-8"))
    return loaded


def require(value: Any, rule: Mapping[str, Any]) -> None:
    """Check a document.

    Raises:
        Misfit: names all places that do not fit, such as ``nodes[3].inputs``, and what was expected.
    """
    faults = [Misfit(text) for text in _faults(value, rule, rule, "")]
    if faults:
        raise several(faults)


def _faults(value: Any, rule: Mapping[str, Any], root: Mapping[str, Any], path: str) -> Iterator[str]:
    """What does not fit at a place; `root` is the document that the rule's references point into."""
    here = path or "the document"
    if "$ref" in rule:
        yield from _faults(value, root["$defs"][rule["$ref"].removeprefix("#/$defs/")], root, path)
        return
    if "anyOf" in rule:
        yield from _any_of(value, rule["anyOf"], root, path)
        return
    wrong = _wrong(value, rule)
    if wrong:
        yield f"{here} {wrong}"
    elif isinstance(value, dict):
        yield from _object(value, rule, root, path)
    elif isinstance(value, list) and "items" in rule:
        for k, item in enumerate(value):
            yield from _faults(item, rule["items"], root, f"{path}[{k}]")


def _wrong(value: Any, rule: Mapping[str, Any]) -> str:
    """What is wrong with a value itself, whatever is in it; "" if nothing."""
    if "const" in rule and (value != rule["const"] or isinstance(value, bool)):
        return f"must be {rule['const']!r}, and is {_show(value)}"
    if "enum" in rule and value not in rule["enum"]:
        known = [str(each) for each in rule["enum"]]
        hint = did_you_mean(str(value), known)
        return f"must be one of {', '.join(known)}, and is {_show(value)}{hint}"
    kinds = [rule["type"]] if isinstance(rule.get("type"), str) else rule.get("type")
    if kinds is not None and not any(_is(value, kind) for kind in kinds):
        return f"must be {' or '.join(map(_article, kinds))}, and is {_show(value)}"
    if isinstance(value, (int, float)) and value < rule.get("minimum", value):
        return f"must be at least {rule['minimum']}, and is {_show(value)}"
    if isinstance(value, (int, float)) and value > rule.get("maximum", value):
        return f"must be at most {rule['maximum']}, and is {_show(value)}"
    if isinstance(value, str) and not re.search(rule.get("pattern", ""), value):
        return f"must be of the form {rule['pattern']}, and is {_show(value)}"
    if len(value if isinstance(value, (str, list)) else "-" * 9) < rule.get("minLength", rule.get("minItems", 0)):
        return "must not be empty"
    return ""


def _object(value: Mapping[str, Any], rule: Mapping[str, Any], root: Mapping[str, Any], path: str) -> Iterator[str]:
    known = rule.get("properties", {})
    for name in rule.get("required", ()):
        if name not in value:
            yield f"{path or 'the document'} lacks {name!r}"
    rest = rule.get("additionalProperties", True)
    for name, item in value.items():
        inner = f"{path}.{name}" if path else name
        if name in known:
            yield from _faults(item, known[name], root, inner)
        elif rest is False:
            yield f"{path or 'the document'} has no key {name!r}{did_you_mean(name, list(known))}"
        elif isinstance(rest, dict):
            yield from _faults(item, rest, root, inner)


def _any_of(value: Any, rules: list[Mapping[str, Any]], root: Mapping[str, Any], path: str) -> Iterator[str]:
    """One of several rules; the faults are those of the last one of the value's own type, or of them all."""
    own: list[str] = []
    for rule in rules:
        faults = [*_faults(value, rule, root, path)]
        if not faults:
            return
        if _is(value, rule.get("type", "object")):
            own = faults
    kinds = " or ".join(_article(str(r.get("type", "tensor"))) for r in rules)
    yield from own or [f"{path or 'the document'} must be {kinds}, and is {_show(value)}"]


def _is(value: Any, kind: str) -> bool:
    return isinstance(value, _TYPES[kind]) and isinstance(value, bool) == (kind == "boolean")


def _article(kind: str) -> str:
    return f"an {kind}" if kind[0] in "aio" else f"a {kind}"


def _show(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=repr)
    return text if len(text) <= 40 else text[:37] + "..."
