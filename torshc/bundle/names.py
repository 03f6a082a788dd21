"""A model's names in generated C: as identifiers, all of them through :func:`identifiers`, and as data."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from ..base.options import PREFIX_WORDS, is_prefix

_SEPARATORS = re.compile(r"[ ./:\-_]+")
_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}\Z")
# Keywords of C23 and C++23 (and of GNU's C, and contract_assert of C++26), types that headers of ours use, and names
# that systems' headers define as macros.
_WORDS = """
    alignas alignof and and_eq asm auto bitand bitor bool break case catch char char16_t char32_t char8_t class
    co_await co_return co_yield compl concept const const_cast consteval constexpr constinit continue
    contract_assert decltype default delete do double dynamic_cast else enum explicit export extern false float
    for friend goto if inline int long mutable namespace new noexcept not not_eq nullptr operator or or_eq
    private protected public register reinterpret_cast requires restrict return short signed sizeof static
    static_assert static_cast struct switch template this thread_local throw true try typedef typeid typename
    typeof typeof_unqual union unsigned using virtual void volatile wchar_t while xor xor_eq
    int8_t int16_t int32_t int64_t intptr_t intmax_t uint8_t uint16_t uint32_t uint64_t uintptr_t uintmax_t
    size_t ptrdiff_t max_align_t nullptr_t
    I EOF NAN NULL INFINITY alloca assert atomic complex environ errno imaginary import linux major minor module
    offsetof stderr stdin stdout unix
"""
STAND_IN = "my_model"  # a prefix, where the bundle's name gives none
_TAKEN = frozenset(_WORDS.split())
# Macros of <stdint.h>, and what model.h defines.
_DEFINED = re.compile(r"((U?INT\w*|PTRDIFF|SIZE|WCHAR|WINT|SIG_ATOMIC)_(MAX|MIN|C|WIDTH)|torshc_\w*|TORSHC_\w*)\Z")
_LITERAL = 4095  # characters
_RAW = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_ .,/:*+-()")


def identifiers(names: Iterable[tuple[str, str]], taken: Iterable[str] = ()) -> list[str]:
    """A C identifier for each of a model's names, no two alike, and none of ``taken``.

    Letters and digits stay, and what exporters separate words with becomes ``_``. A name with anything else in it, one
    that begins with no letter and one of more than 64 characters is replaced by its stand-in. Who comes second gets a
    number.

    Args:
        names: a name and its stand-in, such as ("layer.0/out", "output0").

    >>> identifiers([("layer.0/out", "output0"), ("layer_0.out", "output1"), ('"); abort(); ("', "output2")])
    ['layer_0_out', 'layer_0_out_2', 'output2']
    >>> identifiers([("int", "input0"), ("3d", "input1"), ("größe", "input2")])
    ['int_', 'input1', 'input2']
    """
    used, found = set(taken), []
    for name, instead in names:
        word = _SEPARATORS.sub("_", name).strip("_")
        word = word if _PLAIN.match(word) else instead
        word = f"{word}_" if word in _TAKEN or _DEFINED.match(word) else word
        number, free = 2, word
        while free in used:
            free, number = f"{word}_{number}", number + 1
        used.add(free)
        found.append(free)
    return found


def prefix_of(out: Path) -> str:
    """The prefix of a bundle's functions when none is given: its name, or ``my_`` and its name.

    >>> [prefix_of(Path(p)) for p in ("build/digits-v2.tsc", "model.tsc", "m.tsc", "50.tsc", "ü.tsc")]
    ['digits_v2', 'my_model', 'my_m', 'my_50', 'my_model']
    """
    stem = _SEPARATORS.sub("_", out.stem).strip("_")[:40].strip("_")
    for name in (stem, f"my_{stem}"):
        if is_prefix(name) and name not in PREFIX_WORDS and name not in _TAKEN:
            return name
    return STAND_IN


def c_text(text: str) -> str:
    r"""Text as a C string literal: by numbers, where a character of it could mean anything to a compiler.

    What is longer than C promises for a literal is an array.

    >>> print(c_text("layer.0/out"), c_text('"é'))
    "layer.0/out" "\042\303\251"
    >>> print(c_text("é" * 4096)[:29])
    (const char[]){'\303', '\251'
    """
    data = text.encode("utf-8", "replace")
    if len(data) > _LITERAL:
        return "(const char[]){" + "".join(f"'\\{b:03o}', " for b in data) + "0}"
    plain = _RAW.issuperset(data)
    return '"' + "".join(chr(b) if plain else f"\\{b:03o}" for b in data) + '"'
