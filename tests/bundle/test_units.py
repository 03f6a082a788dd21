"""Which kernels are compiled together, and as what text."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from torshc.base.errors import ToolchainError
from torshc.base.resources import find_template
from torshc.bundle.units import make_units, unit_text
from torshc.targets.cc import find_compiler
from torshc.targets.toolchain import BASE_FLAGS

from ..support.compilers import Host, hosts

GOLDEN = Path(__file__).parent.parent / "golden" / "c"
STRICT = ("-Wall", "-Wextra", "-Werror")

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


OPENINGS_IN_C = (
    '#define T_FEW_TYPES\n#include "t_kernel.h"\n',
    "/* What it computes,\n * in words. */\n"
    '#define T_MR 6\n#define T_FEW_TYPES\n#include "t_tile.h"\n\n#include <string.h>\n',
)
# A macro, a struct and functions that every kernel has, and a member by the name of one of them.
BESIDE = """
struct call {
    int64_t x, one;
};
#define N @
/* Says which kernel it is. */
T_FN int64_t one(const struct call *c) {
    return N + c->one;
}
static __attribute__((noinline)) void put(int64_t *to,
    struct call *c) {
    *to = one(c);
}
"""


def sources_in_c(count: int, beside: str = BESIDE) -> dict[str, str]:
    """Kernels of C that store their numbers."""
    body = "void k%012x(int64_t *to) {\n    struct call own = {0}, *c = &own;\n    put(to, c);\n}\n"
    return {f"k{k:012x}.c": OPENINGS_IN_C[k % 2] + beside.replace("@", str(k)) + "\n" + body % k for k in range(count)}


def test_short_kernels_of_c_are_joined_however_few() -> None:
    texts = sources_in_c(256)
    names, flags = [*texts], dict.fromkeys(texts, ("-O3",))
    long, table, apart = names[:3]
    texts[long] += "/* longer */\n" * 1000
    texts[table] = texts[table].replace("#define N", "static const int64_t table[] = {1};\n#define N")
    units = make_units(texts, flags, OPENINGS, [apart])
    members = [n for unit in units.values() for n in unit]
    assert {*texts} - {*members} == {long, table, apart} and len(members) == len(set(members)) and len(units) <= 16
    assert all(len({texts[n].partition("struct")[0] for n in unit}) == 1 for unit in units.values())
    assert len(make_units({n: texts[n] for n in names[4:8]}, flags, ())) == 2
    assert make_units({n: texts[n] for n in names[4:6]}, flags, ()) == {}


def test_a_unit_of_c_has_its_opening_once_and_a_name_for_all_that_a_kernel_has() -> None:
    texts = sources_in_c(8)
    unit = [*texts][1::2]
    text = unit_text(unit, texts, ())
    assert text.count("#include") == 2 and "in words" not in text
    for name in unit:
        body = texts[name].partition("<string.h>\n")[2]
        names = "".join(f"#define {n} {n}_{name[:-2]}\n" for n in ("call", "one", "put"))
        assert f'{names}#line 8 "{name}"\n{body}#undef call\n#undef one\n#undef put\n#undef N\n' in text


def test_kernels_of_a_unit_of_c_compute_what_they_do_alone(tmp_path: Path) -> None:
    texts = sources_in_c(8)
    unit = [*texts][::2]
    for file in ("t_kernel.h", "t_tile.h"):
        (tmp_path / file).write_text("#include <stdint.h>\n#define T_FN static inline\n")
    calls = "".join(f"void {n[:-2]}(int64_t *); int64_t r{k}; {n[:-2]}(&r{k});" for k, n in enumerate(unit))
    main = f"int main(void) {{ {calls} return !(r0 == 0 && r1 == 2 && r2 == 4 && r3 == 6); }}\n"
    (tmp_path / "unit.c").write_text(unit_text(unit, texts, ()) + main)
    compiler = find_compiler()
    compiler.run([*STRICT, "unit.c", "-o", "unit"], tmp_path)
    assert subprocess.run([tmp_path / "unit"]).returncode == 0
    texts[unit[1]] += "bad\n"
    (tmp_path / "unit.c").write_text(unit_text(unit, texts, ()))
    with pytest.raises(ToolchainError, match=rf"{unit[1]}:{texts[unit[1]].count(chr(10))}:\d+: error: "):
        compiler.run(["-c", "unit.c", "-o", "unit.o"], tmp_path)


def twice(golden: str) -> dict[str, str]:
    """A kernel under two names."""
    text = (GOLDEN / golden).read_text()
    symbol = re.findall(r"^void (\w+)\(void \*const", text, re.MULTILINE)[-1]
    return {f"{name}.c": re.sub(rf"\b{symbol}\b", name, text) for name in ("k0", "k1")}


JOINED = [g.name for g in sorted(GOLDEN.glob("*.c")) if make_units(twice(g.name), {"k0.c": (), "k1.c": ()}, ())]


@pytest.mark.parametrize("compiler", hosts(), ids=lambda host: host.kind)
@pytest.mark.parametrize("golden", JOINED)
def test_kernels_of_a_template_of_c_can_be_joined(golden: str, compiler: Host, tmp_path: Path) -> None:
    (tmp_path / "unit.c").write_text(unit_text(["k0.c", "k1.c"], twice(golden), ()))
    includes = f"-I{find_template(['c'], 'prelude/t_kernel.h').parent}"
    flags = ["-DTORSHC_LANES=16", "-Wno-psabi", includes, *BASE_FLAGS]
    find_compiler(compiler.cc).run([*STRICT, *flags, "-c", "unit.c", "-o", "unit.o"], tmp_path)


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
def test_kernels_of_a_unit_keep_functions_and_lines_of_their_own() -> None:
    texts = sources(40)
    unit = next(iter(make_units(texts, FLAGS, OPENINGS).values()))
    command = ["g++", "-fsyntax-only", "-x", "c++", "-"]
    assert subprocess.run(command, input=unit_text(unit, texts, OPENINGS), text=True).returncode == 0
    texts[unit[0]] += "bad\n"
    found = subprocess.run(command, input=unit_text(unit, texts, OPENINGS), text=True, capture_output=True)
    assert re.search(rf"^{unit[0]}:5:\d+: error: .*bad", found.stderr, re.MULTILINE)
