"""The generated runtime's thread pool: every task once, under the sanitizers, with refused threads."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support import compilers

HERE = Path(__file__).parent
SOURCES = HERE.parents[1] / "templates" / "c" / "host"


def build(compiler: str, flags: Sequence[str]) -> Path:
    """The harness compiled with the flags."""
    command = [compiler, "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O2", "-g", *flags]
    return compilers.program(command, [HERE / "pool_harness.c", SOURCES / "t_pool.c"], [SOURCES])


def run(command: list[str]) -> str:
    """The harness's output; it must succeed."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


@pytest.mark.parametrize("flags", [(), ("-fsanitize=thread",), ("-fsanitize=address,undefined",)], ids=str)
def test_every_task_is_done_once(flags: tuple[str, ...]) -> None:
    compiler = compilers.needed().cc
    if not compilers.links(compiler, *flags):
        pytest.skip("no such sanitizer here")
    program, rounds = build(compiler, flags), "300" if flags else "1500"
    for threads in (0, 1, 2, 3, 8):
        assert run([str(program), str(threads), rounds]) == f"threads {max(1, threads)}\n"


def test_gcc_compiles_it() -> None:
    assert run([str(build(compilers.needed("gcc").cc, [])), "2", "1500"]) == "threads 2\n"


@pytest.mark.skipif(shutil.which("valgrind") is None, reason="no valgrind")
def test_valgrind_finds_no_leak() -> None:
    program = build(compilers.needed().cc, ["-gdwarf-4"])
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


@pytest.mark.parametrize("limit", [0, 2])
def test_refused_threads_are_done_without(tmp_path: Path, limit: int) -> None:
    compiler = compilers.needed().cc
    refusing = tmp_path / "refusing.c"
    refusing.write_text(REFUSING, encoding="utf-8")
    stub = tmp_path / "refusing.o"
    compilers.build([compiler, f"-DLIMIT={limit}", "-c", str(refusing), "-o", str(stub)])
    pool = tmp_path / "t_pool.o"
    rename = ["-include", "pthread.h", "-Dpthread_create=refused_create"]
    compilers.build([compiler, *rename, "-c", str(SOURCES / "t_pool.c"), "-o", str(pool)])
    program = tmp_path / "pool_harness"
    objects = [str(HERE / "pool_harness.c"), str(pool), str(stub)]
    compilers.build([compiler, f"-I{SOURCES}", *objects, "-o", str(program), "-pthread"])
    assert run([str(program), "6", "300"]) == f"threads {limit + 1}\n"


LATE = """
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>
#include "t_pool.h"
static atomic_int may_start;
static struct { void *(*f)(void *); void *x; } first;
static void *start_late(void *unused) {
    while (!atomic_load(&may_start)) usleep(1000);
    return unused ? unused : first.f(first.x);
}
int late_create(pthread_t *t, const pthread_attr_t *a, void *(*f)(void *), void *x);
int late_create(pthread_t *t, const pthread_attr_t *a, void *(*f)(void *), void *x) {
    first.f = f, first.x = x;
    return pthread_create(t, a, start_late, NULL);
}
static void add(void *const *buf, const int64_t *dim, void *scratch, int64_t begin, int64_t end) {
    (void)dim, (void)scratch;
    *(int64_t *)buf[0] += end - begin;
}
int main(void) {
    alarm(20);
    int64_t done = 0;
    void *buf[] = {&done};
    t_pool *pool = t_pool_create(2);
    for (int i = 0; i < 3; i++) t_pool_run(pool, add, buf, NULL, NULL, 0, 100);
    atomic_store(&may_start, 1);
    t_pool_destroy(pool);
    return done != 300;
}
"""


def run_replacing(header: str, function: str, replacement: str, text: str, folder: Path) -> None:
    """Run a program with the pool, in which another function stands for one of the system's."""
    source, pool, program = folder / "program.c", folder / "t_pool.o", folder / "program"
    source.write_text(text, encoding="utf-8")
    compiler = compilers.needed().cc
    replace = ["-include", header, f"-D{function}={replacement}"]
    compilers.build([compiler, "-O2", *replace, "-c", str(SOURCES / "t_pool.c"), "-o", str(pool)])
    compilers.build([compiler, "-O2", f"-I{SOURCES}", str(source), str(pool), "-o", str(program), "-pthread"])
    run([str(program)])


def test_who_wakes_late_is_not_waited_for(tmp_path: Path) -> None:
    """A thread that runs only after the work is done."""
    run_replacing("pthread.h", "pthread_create", "late_create", LATE, tmp_path)


GIVING_WAY = """
#define _GNU_SOURCE
#include <stdatomic.h>
#include <unistd.h>
#include "t_pool.h"
static atomic_int runs, over, gave_way;
int stand_aside(void);
int stand_aside(void) {
    const int now = atomic_load(&runs);
    atomic_fetch_add(&gave_way, 1);
    while (atomic_load(&runs) == now && !atomic_load(&over)) usleep(100);
    return 0;
}
static void add(void *const *buf, const int64_t *dim, void *scratch, int64_t begin, int64_t end) {
    (void)dim, (void)scratch;
    usleep((unsigned)(end - begin) * 100);
    atomic_fetch_add((atomic_llong *)buf[0], end - begin);
}
int main(void) {
    alarm(60);
    atomic_llong done = 0;
    void *buf[] = {&done};
    t_pool *pool = t_pool_create(2);
    while (atomic_load(&gave_way) < 3) {
        t_pool_run(pool, add, buf, NULL, NULL, 0, 200);
        atomic_fetch_add(&runs, 1);
    }
    atomic_store(&over, 1);
    t_pool_destroy(pool);
    return done != 200 * runs;
}
"""


def test_who_gives_way_is_not_waited_for(tmp_path: Path) -> None:
    """A worker whose processor others have until the run is over."""
    run_replacing("sched.h", "sched_yield", "stand_aside", GIVING_WAY, tmp_path)
