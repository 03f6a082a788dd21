"""Which kernels are compiled together, and as what text."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest

from torshc.bundle.units import make_units, unit_text

OPENINGS = ("#define T 1\n", "#define T 2\n")
FLAGS = dict.fromkeys([f"k{k:012x}.cu" for k in range(300)], ("-O3",))


def sources(count: int) -> dict[str, str]:
    return {name: _source(k, name.partition(".")[0]) for k, name in enumerate([*FLAGS][:count])}


def _source(k: int, name: str) -> str:
    own = f"static int one(void) {{ return {k}; }}"
    return f'{OPENINGS[k % 2]}\n{own}\nextern "C" int {name}(void) {{ return one() + T; }}\n'


def test_few_are_compiled_alone() -> None:
    assert make_units(sources(16), FLAGS, OPENINGS) == {} and make_units(sources(200), FLAGS, ()) == {}


def test_each_is_in_one_unit_with_others_of_its_opening_and_flags() -> None:
    texts = sources(250)
    odd = {n: ("-O3", "-g") if k % 3 else ("-O3",) for k, n in enumerate(texts)}
    apart = [*texts][:3]
    units = make_units(texts, odd, OPENINGS, apart)
    members = [n for names in units.values() for n in names]
    assert len(members) == len(set(members)) and set(apart).isdisjoint(members) and len(members) > 200
    for names in units.values():
        assert len({odd[n] for n in names}) == 1 and len({texts[n].split("\n")[0] for n in names}) == 1
    assert len(units) < 110 and make_units(dict(reversed(texts.items())), odd, OPENINGS, apart) == units


def test_few_kernels_of_a_kind_take_no_unit_each() -> None:
    """As a compiler takes longer to begin than for a kernel."""
    texts = {n: t.replace(OPENINGS[1], OPENINGS[0]) if k < 52 else t for k, (n, t) in enumerate(sources(64).items())}
    units = make_units(texts, FLAGS, OPENINGS)
    assert sum(texts[names[0]].startswith(OPENINGS[1]) for names in units.values()) <= 2 and len(units) <= 18
    assert len(make_units(sources(300), FLAGS, OPENINGS)) <= 32


def test_units_are_of_about_the_same_length() -> None:
    """As the last one is waited for; by names alone, one of ResNet-50 in f32 had 1.46 times the mean of eight."""
    texts = {n: t + "// longer\n" * (k * 7 % 100) for k, (n, t) in enumerate(sources(136).items())}
    units = make_units(texts, FLAGS, OPENINGS)
    lengths = [sum(len(texts[n]) for n in names) for names in units.values()]
    assert len(units) == 8 and max(lengths) <= 1.25 * sum(lengths) / len(lengths)


def test_long_kernels_make_more_units() -> None:
    """By kinds, too, so that few long ones take no longer than many short ones."""
    texts = {n: t + "// longer\n" * (5400 if k % 2 else 300) for k, (n, t) in enumerate(sources(137).items())}
    units = make_units(texts, FLAGS, OPENINGS)
    lengths = [sum(len(texts[n]) for n in names) for names in units.values()]
    assert sum(texts[names[0]].startswith(OPENINGS[1]) for names in units.values()) > 3 * len(units) / 4
    assert max(lengths) < 300_000 and 8 < len(units) <= 20


def test_another_kernel_changes_one_unit() -> None:
    """So that the cache has all others."""
    texts = sources(250)
    before = make_units(texts, FLAGS, OPENINGS)
    changed = {n.replace("k0", "k1") if k == 7 else n: t for k, (n, t) in enumerate(texts.items())}
    flags = FLAGS | dict.fromkeys(changed, ("-O3",))
    assert len(before.keys() - make_units(changed, flags, OPENINGS).keys()) <= 2


C_OPENINGS = ('#define T_FEW_TYPES\n#include "t_kernel.h"\n', '#include "t_kernel.h"\n')
BESIDE = ("struct call {\n    int x;\n};\n", "static int two(void) { return 2; }\n", "#define N 3\n", "")


def c_sources(count: int) -> dict[str, str]:
    """Kernels of C, of which one in four has nothing beside it."""
    names = [f"k{k:012x}" for k in range(count)]
    bodies = (f"\n{BESIDE[k % 4]}void {name}(void) {{\n    ;\n}}\n" for k, name in enumerate(names))
    return {
        f"{name}.c": C_OPENINGS[k // 4 % 2] + body for k, (name, body) in enumerate(zip(names, bodies, strict=True))
    }


def test_short_kernels_of_c_that_are_one_function_are_joined_however_few() -> None:
    texts = c_sources(256)
    flags = dict.fromkeys(texts, ("-O3",))
    plain = {n for k, n in enumerate(texts) if k % 4 == 3}
    long = f"k{11:012x}.c"
    texts[long] = texts[long].replace("    ;", "    ;\n" * 1000)
    units = make_units(texts, flags, C_OPENINGS)
    assert {n for names in units.values() for n in names} == plain - {long} and len(units) == 8
    few = {n: texts[n] for n in sorted(plain - {long})[:4]}
    assert [sum(t.startswith(o) for t in few.values()) for o in C_OPENINGS] == [2, 2]
    assert len(make_units(few, flags, C_OPENINGS)) == 2
    assert make_units(dict([*few.items()][:1]), flags, C_OPENINGS) == {}
    for names in units.values():
        text = unit_text(names, texts, C_OPENINGS)
        assert text.count("#include") == 1 and all(f'"{n}"\n\nvoid {n[:-2]}(' in text for n in names)


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
def test_kernels_of_a_unit_keep_functions_and_lines_of_their_own() -> None:
    texts = sources(40)
    unit = next(iter(make_units(texts, FLAGS, OPENINGS).values()))
    command = ["g++", "-fsyntax-only", "-x", "c++", "-"]
    assert subprocess.run(command, input=unit_text(unit, texts, OPENINGS), text=True).returncode == 0
    texts[unit[0]] += "bad\n"
    found = subprocess.run(command, input=unit_text(unit, texts, OPENINGS), text=True, capture_output=True)
    assert re.search(rf"^{unit[0]}:5:\d+: error: .*bad", found.stderr, re.MULTILINE)
