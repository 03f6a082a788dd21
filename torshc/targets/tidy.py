"""Indentation of rendered text, so that templates need not care."""

from __future__ import annotations

import re

_VOID = re.compile(r"\s*\(void\)(\w+);$")
_COMMENTS = re.compile(r"/\*.*?\*/|^[^/]*\*/")


def tidy(text: str) -> str:
    """Indent C by its brackets and drop runs of blank lines, so that templates need not care.

    >>> print(tidy("void f(void) {\\nif (x) {\\ny();\\n}\\n}"), end="")
    void f(void) {
        if (x) {
            y();
        }
    }
    """
    lines: list[str] = []
    depth = 0
    for raw in text.strip().splitlines():
        line = raw.strip()
        if not line:
            if lines and lines[-1]:
                lines.append("")
            continue
        code = "" if line.startswith(("*", "/*")) and "*/" not in line else _COMMENTS.sub("", line)
        opened = code.count("{") + code.count("(")
        closed = code.count("}") + code.count(")")
        leading = len(line) - len(line.lstrip("})"))
        indent = 0 if line.startswith("#") else 4 * max(0, depth - leading)
        lines.append(" " * (indent + line.startswith("*")) + line)
        depth += opened - closed
    return "\n".join(lines) + "\n"


def drop_voids(text: str) -> str:
    """Leave out each ``(void)name;`` whose name is read behind it, within its brackets.

    >>> print(drop_voids("{\\nint a = f();\\n(void)a;\\nint b = g();\\n(void)b;\\nuse(a);\\n}\\n"), end="")
    {
    int a = f();
    int b = g();
    (void)b;
    use(a);
    }
    """
    lines = text.split("\n")
    return "\n".join(x for k, x in enumerate(lines) if not ((m := _VOID.match(x)) and _read(lines, k + 1, m[1])))


def _read(lines: list[str], start: int, name: str) -> bool:
    """Whether a name occurs from a line on, before the brackets that hold the line close."""
    word, depth = re.compile(rf"(?<![\w.>]){name}\b"), 0
    for line in lines[start:]:
        depth += line.count("{") - line.count("}")
        if depth < 0:
            return False
        if word.search(line) and not _VOID.match(line):
            return True
    return False
