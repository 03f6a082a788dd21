"""The generated runtime's thread pool: every task once, under the sanitizers, with refused threads."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SOURCES = HERE.parents[1] / "templates" / "c" / "host"
COMPILER = next((name for name in ("clang-19", "clang", "gcc") if shutil.which(name)), None)


def build(work: Path, compiler: str, flags: list[str]) -> Path:
    """The harness compiled with the flags."""
    program = work / "pool_harness"
    sources = [str(HERE / "pool_harness.c"), str(SOURCES / "t_pool.c")]
    command = [compiler, "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O2", "-g", *flags, f"-I{SOURCES}", *sources]
    done = subprocess.run([*command, "-o", str(program), "-pthread"], capture_output=True, text=True, check=False)
    if done.returncode and "san" in done.stderr and "cannot find" in done.stderr:
        pytest.skip("no such sanitizer here")
    assert done.returncode == 0, done.stderr[-4000:]
    return program


def run(command: list[str]) -> str:
    """The harness's output; it must succeed."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


@pytest.mark.skipif(COMPILER is None, reason="no C compiler")
@pytest.mark.parametrize("flags", [[], ["-fsanitize=thread"], ["-fsanitize=address,undefined"]], ids=str)
def test_every_task_is_done_once(tmp_path: Path, flags: list[str]) -> None:
    assert COMPILER is not None
    program = build(tmp_path, COMPILER, flags)
    for threads in (0, 1, 2, 3, 8):
        assert run([str(program), str(threads), "1500"]) == f"threads {max(1, threads)}\n"


@pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc")
def test_gcc_compiles_it(tmp_path: Path) -> None:
    assert run([str(build(tmp_path, "gcc", [])), "2", "1500"]) == "threads 2\n"


@pytest.mark.skipif(shutil.which("valgrind") is None, reason="no valgrind")
def test_valgrind_finds_no_leak(tmp_path: Path) -> None:
    program = build(tmp_path, COMPILER or "gcc", ["-gdwarf-4"])
    run(["valgrind", "-q", "--error-exitcode=9", "--leak-check=full", str(program), "2", "200"])


REFUSING = """
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
int refused_create(pthread_t *t, const pthread_attr_t *a, void *(*f)(void *), void *x);
int refused_create(pthread_t *t, const pthread_attr_t *a, void *(*f)(void *), void *x) {
    static int made;
    return made++ < LIMIT ? pthread_create(t, a, f, x) : EAGAIN;
}
"""


@pytest.mark.skipif(COMPILER is None, reason="no C compiler")
@pytest.mark.parametrize("limit", [0, 2])
def test_refused_threads_are_done_without(tmp_path: Path, limit: int) -> None:
    assert COMPILER is not None
    refusing = tmp_path / "refusing.c"
    refusing.write_text(REFUSING, encoding="utf-8")
    stub = tmp_path / "refusing.o"
    subprocess.run([COMPILER, f"-DLIMIT={limit}", "-c", str(refusing), "-o", str(stub)], check=True)
    pool = tmp_path / "t_pool.o"
    rename = ["-include", "pthread.h", "-Dpthread_create=refused_create"]
    subprocess.run([COMPILER, *rename, "-c", str(SOURCES / "t_pool.c"), "-o", str(pool)], check=True)
    program = tmp_path / "pool_harness"
    objects = [str(HERE / "pool_harness.c"), str(pool), str(stub)]
    subprocess.run([COMPILER, f"-I{SOURCES}", *objects, "-o", str(program), "-pthread"], check=True)
    assert run([str(program), "6", "300"]) == f"threads {limit + 1}\n"
