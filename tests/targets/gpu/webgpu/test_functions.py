"""The table of WGSL's functions says what each calls."""

from __future__ import annotations

import re

from torshc.targets.gpu.webgpu.functions import functions, needed

DECLARED = re.compile(r"^(?:fn|var<\w+>) (t_\w+)", re.MULTILINE)
NAMED = re.compile(r"\bt_\w+")


def test_functions_call_what_the_table_says() -> None:
    """As their texts show: each declares itself, alone or with a variable of its own, and names what it calls."""
    table = functions(64)
    assert len(table) > 100
    for name, function in table.items():
        for text in filter(None, (function.text, function.subgroups)):
            own = set(DECLARED.findall(text))
            assert name in own
            assert set(NAMED.findall(text)) - own == set(function.calls), name


def test_needed_functions_come_once_with_what_they_call() -> None:
    table = functions(64)
    texts = [f.text for f in needed(["t_fmod_f32", "t_nan", "t_fmod_f32"], 64)]
    names = "t_fmod_f32", "t_nan", *(n for n in table["t_fmod_f32"].calls if n != "t_nan")
    assert texts[: len(names)] == [table[n].text for n in names] and len(texts) == len(set(texts))


def test_only_joins_of_words_know_subgroups() -> None:
    table = functions(128)
    assert {n for n, f in table.items() if f.subgroups} == {
        *(f"t_all_{how}_f32" for how in ("add", "mul")),
        *(f"t_all_{how}_{t}" for how in ("add", "mul", "min", "max") for t in ("i32", "u32")),
    }
    assert "array<f32, 128>" in table["t_shared_f32"].text
