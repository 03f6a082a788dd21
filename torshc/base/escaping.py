"""Names of a model in outputs for people: nothing in them may steer a terminal or break a line."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping

# Control, format (direction marks, zero width), surrogates, private use, unassigned, line and paragraph separators.
_UNSEEN = frozenset(("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"))


def printable(text: str, keep: str = "") -> str:
    """Text in which every character that is not seen stands as an escape.

    Args:
        keep: characters that stay, such as a newline in a message of several lines.

    >>> printable("a\\x1b[31mb\\n")
    'a\\\\x1b[31mb\\\\x0a'
    """
    return "".join(c if c in keep or unicodedata.category(c) not in _UNSEEN else _escape(ord(c)) for c in text)


def _escape(code: int) -> str:
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def shortened(text: str, width: int) -> str:
    """A printable name of at most ``width`` characters; the end of a long one is kept, as it tells most.

    >>> shortened("/encoder/layer.0/attention/self/MatMul", 20)
    '...tion/self/MatMul'
    """
    text = printable(text)
    return text if len(text) <= width else "..." + text[len(text) - width + 4 :]


def sizes_text(sizes: Mapping[str, int]) -> str:
    """Sizes by the names of dimensions, which are as long as the model has them.

    >>> sizes_text({"batch": 2, "s" * 10000: 7})
    'batch=2, ...ssssssssssssssssssssssssssssssssssss=7'
    """
    return ", ".join(f"{shortened(name, 40)}={size}" for name, size in sizes.items())
