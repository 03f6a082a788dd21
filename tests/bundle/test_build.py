"""Objects and libraries: once each, through the cache, and the same bytes everywhere."""

from __future__ import annotations

import dataclasses
import multiprocessing
import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.support.slow import SLOW
from torshc.base.cache import Cache
from torshc.base.digest import file_sha256
from torshc.base.errors import InternalError, OutputError, ResourceError, ToolchainError
from torshc.bundle import build
from torshc.targets.cc import CCompiler, find_compiler

from . import tiny

HERE = Path(__file__).parent


def test_equal_sources_are_compiled_once(tmp_path: Path) -> None:
    compiler = find_compiler()
    seen: list[tuple[int, int, str]] = []
    objects = build.build_objects(
        {"b.c": "int x;", "a.c": "int x;", "c.c": "int y;"},
        {},
        compiler,
        compiler.base_flags(),
        Cache(None),
        2,
        tmp_path,
        lambda done, total, item: seen.append((done, total, item.source)),
    )
    assert [(o.source, o.path, o.cached) for o in objects] == [("a.c", "obj/a.o", False), ("c.c", "obj/c.o", False)]
    assert sorted(seen)[-1][:2] == (2, 2) and {name for *_, name in seen} == {"a.c", "c.c"}


def test_the_cache_is_used_and_every_input_counts(tmp_path: Path) -> None:
    compiler, cache = find_compiler(), Cache(tmp_path / "cache")

    def cached(
        text: str = '#include "h.h"\nint x = H;', header: str = "#define H 1", flags: tuple[str, ...] = ()
    ) -> bool:
        flags = (*compiler.base_flags(), *flags)
        (item,) = build.build_objects({"a.c": text}, {"h.h": header}, compiler, flags, cache, 1, tmp_path / "work")
        return item.cached

    assert [cached(), cached()] == [False, True]
    assert not cached(header="#define H 2")
    assert not cached(flags=("-DB",))
    assert not cached(text="int y;")
    assert cached()


def test_a_wrapper_shares_no_objects_with_its_compiler(tmp_path: Path) -> None:
    """It answers --version as the compiler does, and compiles something else."""
    cache, real = Cache(tmp_path / "cache"), find_compiler()
    wrapper = tmp_path / "cc"

    def cached(more: str = "") -> bool:
        wrapper.write_text(f'#!/bin/sh\nexec {shlex.join(real.command)} {more} "$@"\n')
        wrapper.chmod(0o755)
        compiler = dataclasses.replace(real, command=(str(wrapper),)) if more else real
        work = tmp_path / "work"
        (item,) = build.build_objects({"a.c": "int x = X;"}, {}, compiler, ["-DX=1"], cache, 1, work)
        return item.cached

    assert [cached(), cached("-UX -DX=2"), cached("-UX -DX=3"), cached("-UX -DX=3"), cached()] == [
        False, False, False, True, True,
    ]  # fmt: skip


def test_headers_that_a_source_does_not_name_do_not_count(tmp_path: Path) -> None:
    """Neither itself nor by another header; a macro may name it too."""
    compiler, cache = find_compiler(), Cache(tmp_path / "cache")
    source = '#define WHERE "a.h"\n#include WHERE\nint x = H;'

    def cached(**headers: str) -> bool:
        texts = {"a.h": '#include "b.h"', "b.h": "#define H 1"} | {f"{name}.h": text for name, text in headers.items()}
        flags = compiler.base_flags()
        (item,) = build.build_objects({"s.c": source}, texts, compiler, flags, cache, 1, tmp_path / "work")
        return item.cached

    assert [cached(), cached(c="#define H 2"), cached(b="#define H 2"), cached(a="#define H 1")] == [
        False, True, False, False,
    ]  # fmt: skip


def test_a_damaged_cache_entry_is_rebuilt(tmp_path: Path) -> None:
    compiler, work = find_compiler(), tmp_path / "work"

    def built(cache: Cache) -> list[bytes]:
        sources = {f"{name}.c": f"int {name};" for name in ("a", "b", "c")}
        made = build.build_objects(sources, {}, compiler, compiler.base_flags(), cache, 1, work)
        return [(work / item.path).read_bytes() for item in made]

    first = built(Cache(tmp_path / "cache"))
    objects = sorted((tmp_path / "cache").rglob("*.o"))
    assert len(objects) == 3
    for path in objects:
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 0x40
        path.write_bytes(data)
    again = Cache(tmp_path / "cache")
    assert built(again) == first and again.hits == 0
    for path in objects[1:]:  # all are the first one
        shutil.copyfile(objects[0], path)
    again = Cache(tmp_path / "cache")
    assert built(again) == first
    assert again.hits == 1 and sorted((tmp_path / "cache").rglob("*.o")) == objects


def test_a_failure_stops_the_build_and_names_the_source(tmp_path: Path) -> None:
    compiler = find_compiler()
    sources = {f"k{i}.c": f"int x{i};" for i in range(20)} | {
        "bad.c": "#error this one is long enough to come first\n" * 9
    }
    with pytest.raises(ToolchainError, match=r"compiling bad\.c") as caught:
        build.build_objects(sources, {}, compiler, ["-O0"], Cache(None), 2, tmp_path)
    assert "this one" in caught.value.message


SLOW_C = 'case "$*" in *slow.c*) touch started; sleep 60;; esac\nexec "$REAL" "$@"\n'


def slow_compiler(folder: Path) -> CCompiler:
    """A compiler that takes a minute for slow.c."""
    real = find_compiler()
    path = folder / "cc"
    path.write_text(f"#!/bin/sh\nREAL={shlex.quote(real.path)}\n{SLOW_C}")
    path.chmod(0o755)
    return dataclasses.replace(real, command=(str(path),))


@pytest.mark.parametrize(("holds", "says"), [("'mul' (Mul)", "the kernel of 'mul'"), ("", "took more than 1 s\n")])
def test_a_source_that_takes_too_long(holds: str, says: str, tmp_path: Path) -> None:
    sources = {"slow.c": "int f(void) { return 1; }\n"}
    with pytest.raises(ToolchainError, match=says) as caught:
        build.build_objects(
            sources, {}, slow_compiler(tmp_path), (), Cache(None), 2, tmp_path, seconds=1, holds={"slow.c": holds}
        )
    assert "compiling slow.c: " in caught.value.message and "--budget compiling=SECONDS" in caught.value.remedy
    assert ("--max-fusion-size" in caught.value.remedy) == bool(holds)


def test_an_interrupt_ends_the_compilers(tmp_path: Path) -> None:
    """They are in groups of their own, and threads that wait for them are not interrupted."""
    script = (  # whoever runs the tests in the background has them ignore SIGINT
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
        "from tests.bundle.test_build import build_slowly; build_slowly(sys.argv[1])"
    )
    process = subprocess.Popen([sys.executable, "-c", script, tmp_path], stderr=subprocess.DEVNULL)
    while not (tmp_path / "started").exists():
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    assert process.wait(20) != 0


def build_slowly(folder: str) -> None:
    place = Path(folder)
    sources = {"slow.c": "int f(void) { return 1; }\n", "slow.c2.c": "int g(void) { return 1; }\n"}
    build.build_objects(sources, {}, slow_compiler(place), (), Cache(None), 2, place)


def test_compilers_begin_with_the_sources_that_are_known(tmp_path: Path) -> None:
    compiler, headers = find_compiler(), {"n.h": "#define N 1\n"}
    text = '#include "n.h"\nint x = N;'
    with build.Build(compiler, Cache(None), 2, tmp_path) as building:
        building.add({"a.c": text}, headers, compiler.base_flags())
        while not (tmp_path / "obj" / "a.o").exists():
            time.sleep(0.01)
        written = (tmp_path / "src" / "n.h").stat()
        building.add({"b.c": text, "c.c": "int y = N;"}, headers, (*compiler.base_flags(), "-DN=2"))
        objects = building.objects()
    assert [o.source for o in objects] == ["a.c", "c.c"]
    assert (tmp_path / "src" / "n.h").stat() == written  # which compilers may be reading


def test_whoever_leaves_a_build_by_an_error_ends_its_compilers(tmp_path: Path) -> None:
    with pytest.raises(KeyError), build.Build(slow_compiler(tmp_path), Cache(None), 1, tmp_path) as building:
        building.add({"slow.c": "int x;", "z.c": ""}, {}, ())
        while not (tmp_path / "started").exists():
            time.sleep(0.01)
        raise KeyError
    assert not list((tmp_path / "obj").iterdir())


def test_a_work_folder_that_cannot_be_written_when_all_is_linked(tmp_path: Path) -> None:
    compiler = find_compiler()
    objects = build.build_objects({"a.c": "int x;"}, {}, compiler, compiler.base_flags(), Cache(None), 1, tmp_path)
    (tmp_path / "objects.rsp").mkdir()
    with pytest.raises(OutputError, match=r"cannot build in .*: Is a directory"):
        build.link_library(compiler, objects, tmp_path)


def test_a_thread_that_cannot_be_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(ResourceError, match="compiling 1 sources: can't start new thread"):
        build.build_objects({"a.c": ""}, {}, find_compiler(), [], Cache(None), 1, tmp_path)


@pytest.mark.parametrize("name", ["../a.c", "-o.c", "@x.c", ".c", "a/b.c"])
def test_names_that_are_no_plain_file_names(name: str, tmp_path: Path) -> None:
    with pytest.raises(InternalError):
        build.build_objects({name: ""}, {}, find_compiler(), [], Cache(None), 1, tmp_path)


def test_a_work_folder_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError), build.work_folder(tmp_path / "file" / "work"):
        pass


def test_a_work_folder_with_files_of_somebody_else(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "manifest.json").write_text("precious")
    with pytest.raises(OutputError, match="holds other files"), build.work_folder(tmp_path / "mine"):
        pass
    for _ in range(2):  # a folder that a build made may be used again
        with build.work_folder(tmp_path / "own") as folder:
            (folder / "manifest.json").write_text("")


def test_work_folders_are_removed_unless_kept_after_a_failure_or_named(tmp_path: Path) -> None:
    with build.work_folder() as gone:
        (gone / "x").write_text("")
    with build.work_folder(keep=True) as built:
        pass
    with pytest.raises(KeyError), build.work_folder(keep=True) as kept:
        raise KeyError
    with build.work_folder(tmp_path / "a" / "b") as named:
        pass
    assert not gone.exists() and not built.exists() and kept.exists() and named.exists()
    kept.rmdir()


BUILD = """
import sys, os
sys.path[:0] = [{tests!r}, {root!r}]
from pathlib import Path
from bundle import tiny
from torshc.base.cache import Cache
from torshc.base.digest import file_sha256
embed, debug = {embed}, {debug}
cache = Cache(Path({cache!r}) if {cache!r} else None)
out = tiny.write(Path({out!r}), embed=embed, jobs={jobs}, cache=cache, extra_flags=("-g",) if debug else ())
print(*(file_sha256(out / name) for name in ("libmodel.so", "manifest.json")))
"""


@pytest.mark.parametrize("debug", [False, pytest.param(True, marks=SLOW)], ids=["plain", "debug"])
def test_the_same_bytes_everywhere(tmp_path: Path, debug: bool) -> None:
    """Other folders, locales, time zones, hash seeds, users' umasks, job counts, with and without the cache."""
    results = set()
    for i in (0, 3) if debug else (1, 2, 3):  # debug information has folders, and nothing else of its own
        folder = tmp_path / f"{i}" / ("deep" * i or "x") / "with space"
        folder.mkdir(parents=True)
        env = {
            **os.environ,
            "PYTHONHASHSEED": str(i),
            "TZ": ["UTC", "Asia/Tokyo"][i % 2],
            "LANG": ["C", "tr_TR.UTF-8"][i % 2],
        }
        env |= {"TMPDIR": str(folder), "HOME": str(folder), "LC_ALL": ["C", "tr_TR.UTF-8"][i // 2]}
        cache = str(tmp_path / "cache") if i >= 2 else ""
        where = {"tests": str(HERE.parent), "root": str(HERE.parents[1]), "out": str(folder / "out.tsc")}
        code = BUILD.format(embed=True, debug=debug, jobs=1 + i % 2, cache=cache, **where)
        done = subprocess.run(
            [sys.executable, "-c", code], env=env, cwd=folder, capture_output=True, text=True, check=True
        )
        results.add(done.stdout)
    assert len(results) == 1, results


def race(folder: Path, number: int, batch: int) -> None:
    cache = Cache(folder / "cache")
    tiny.write(folder / f"{number}.tsc", batch or None, cache=cache)
    assert not cache.problem, cache.problem


@pytest.mark.parametrize("models", [2, pytest.param(8, marks=SLOW)])
def test_two_processes_a_model_on_a_cold_cache(models: int, tmp_path: Path) -> None:
    """Each compiles the sources that all models share."""
    context = multiprocessing.get_context("fork")
    children = [context.Process(target=race, args=(tmp_path, n, n % models)) for n in range(2 * models)]
    for child in children:
        child.start()
    for child in children:
        child.join()
    assert [child.exitcode for child in children] == [0] * len(children)
    hashes = [file_sha256(tmp_path / f"{n}.tsc" / "libmodel.so") for n in range(len(children))]
    assert hashes[:models] == hashes[models:] and len(set(hashes)) == models
    assert not list(tmp_path.rglob("*.tmp"))
