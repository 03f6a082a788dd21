"""Precompiled headers: objects have the same bytes with them, and nothing goes wrong where one cannot be used."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from torshc.base.cache import Cache
from torshc.base.errors import ToolchainError
from torshc.base.resources import templates
from torshc.bundle.build import build_objects
from torshc.targets.cc import find_compiler
from torshc.targets.isa import resolve

HEADERS = {path.name: path.read_text() for path in sorted((templates("c") / "prelude").glob("*.h"))}
KERNEL = """#include "t_kernel.h"
void k(void *const *buf, const int64_t *dim, void *scratch, int64_t begin, int64_t end) {
    (void)dim, (void)scratch;
    const float *a = buf[0];
    float *b = buf[1];
    for (int64_t i = begin; i < end; i++) t_store_f32(b + i * TORSHC_LANES, t_sqrt_f32(t_load_f32(a + i * 3)));
}
"""
SOURCES = {
    "few.c": f"#define T_FEW_TYPES\n{KERNEL}",
    "tile.c": f'#define T_MR 4\n#define T_NV 2\n#include "t_tile.h"\n{KERNEL}',
    "all.c": KERNEL.replace("f32", "f64").replace("float", "double"),
    "host.c": "int without_them;\n",
}


def built(
    folder: Path, cache: Cache, sources: dict[str, str] = SOURCES, flags: tuple[str, ...] = ()
) -> dict[str, bytes]:
    compiler = find_compiler()
    flags = (*compiler.base_flags(), *compiler.isa_flags(resolve()), *flags)
    found = build_objects(sources, HEADERS, compiler, flags, cache, 2, folder)
    return {o.source: (folder / o.path).read_bytes() for o in found}


def made(folder: Path) -> list[Path]:
    return sorted(folder.glob("**/*.pch"))


# gcc reads a precompiled header only where it lies beside the header of its name, so torshc makes none for it.
needs_clang = pytest.mark.skipif(not find_compiler().including(Path("h")), reason="gcc makes none")


@needs_clang
def test_objects_have_the_same_bytes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    expected = built(tmp_path / "plain", Cache(None))
    assert not made(tmp_path), "the build has too few kernels"
    with caplog.at_level(logging.INFO):
        assert built(tmp_path / "work", Cache(tmp_path / "cache")) == expected
    commands = [line for line in caplog.messages if "-include-pch" in line]
    assert len(commands) == 3 and sum("-DT_FEW_TYPES=" in line for line in commands) == 1
    assert len(made(tmp_path / "cache")) == 2, "of few types, and of all"


@needs_clang
def test_later_builds_use_them_and_flags_count(tmp_path: Path) -> None:
    cache, sources = Cache(tmp_path / "cache"), {"few.c": SOURCES["few.c"]}
    built(tmp_path / "work", cache, sources)
    first = {path: path.stat().st_mtime_ns for path in made(tmp_path / "cache")}
    cache.trim(0)
    built(tmp_path / "again", cache, sources)
    assert {path: path.stat().st_mtime_ns for path in made(tmp_path / "cache")} == first
    built(tmp_path / "other", cache, sources, ("-DOTHER",))
    assert len(made(tmp_path / "cache")) == 2
    cache.clear()
    assert made(tmp_path / "cache") == []


@needs_clang
def test_without_a_cache_many_kernels_share_one(tmp_path: Path) -> None:
    few = SOURCES["few.c"]
    sources = {f"k{n}.c": few.replace("void k(", f"void k{n}(") for n in range(4)}
    built(tmp_path, Cache(None), sources)
    assert len(made(tmp_path)) == 1


def cut_off(header: Path) -> None:
    header.write_bytes(header.read_bytes()[:-5000])


def empty(header: Path) -> None:
    header.write_bytes(b"")


def leave_alone(header: Path) -> None:
    header.with_name("t_vec.h").unlink()


def put_beside_others(header: Path) -> None:
    header.with_name("t_vec.h").write_text("int other;\n")


@needs_clang
@pytest.mark.parametrize("damage", [cut_off, empty, leave_alone, put_beside_others])
def test_one_that_is_damaged_is_made_anew(
    damage: Callable[[Path], None], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cache, sources = Cache(tmp_path / "cache"), {"few.c": SOURCES["few.c"]}
    expected = built(tmp_path / "work", cache, sources)
    (header,) = made(tmp_path / "cache")
    damage(header)
    cache.trim(0)
    assert built(tmp_path / "again", cache, sources) == expected
    cache.trim(0)
    with caplog.at_level(logging.INFO):
        assert built(tmp_path / "third", cache, sources) == expected
    assert ["-include-pch" in line for line in caplog.messages] == [False, True], "it is made, then used"


@needs_clang
def test_processes_that_start_together_make_one(tmp_path: Path) -> None:
    cache, sources = Cache(tmp_path / "cache"), {"few.c": SOURCES["few.c"]}
    with ThreadPoolExecutor(3) as pool:
        found = [pool.submit(built, tmp_path / f"work{n}", cache, sources, ("-DOWN",)) for n in range(3)]
    assert len({f.result()["few.c"] for f in found}) == 1 and len(made(tmp_path / "cache")) == 1


@needs_clang
def test_debuggers_get_none(tmp_path: Path) -> None:
    built(tmp_path / "work", Cache(tmp_path / "cache"), {"few.c": SOURCES["few.c"]}, ("-g",))
    assert not made(tmp_path)


def test_the_message_of_a_source_that_is_wrong_does_not_name_it(tmp_path: Path) -> None:
    with pytest.raises(ToolchainError, match="unknown_name") as caught:
        built(tmp_path / "work", Cache(tmp_path / "cache"), {"k.c": KERNEL.replace("buf[1]", "unknown_name")})
    assert "pch" not in str(caught.value)
