"""Indentation and blank lines of rendered text, so that templates need not care. No statement is changed or dropped."""

from __future__ import annotations

import re

_COMMENTS = re.compile(r"/\*.*?\*/|^[^/]*\*/")


def tidy(text: str) -> str:
    """Indent C by its brackets, and drop blank lines after another and at the start of a block.

    So templates need not care.

    >>> print(tidy("void f(void) {\\nif (x) {\\n\\ny();\\n}\\n}"), end="")
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
            if lines and lines[-1] and not lines[-1].endswith("{"):
                lines.append("")
            continue
        code = _COMMENTS.sub("", line) if "*/" in line else "" if line.startswith(("*", "/*")) else line
        opened = code.count("{") + code.count("(")
        closed = code.count("}") + code.count(")")
        leading = len(line) - len(line.lstrip("})"))
        indent = 0 if line.startswith("#") else 4 * max(0, depth - leading)
        lines.append(" " * (indent + line.startswith("*")) + line)
        depth += opened - closed
    return "\n".join(lines) + "\n"
