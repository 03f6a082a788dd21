"""The C interface from C: every status code, threads, fork, sanitizers, valgrind; and the header from C++."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.compilers import Host, build, hosts, links, needed, needed_cxx

from . import tiny

HERE = Path(__file__).parent
STRICT = ("-Wall", "-Wextra", "-Werror")


def program(bundle: Path, cc: str, flags: tuple[str, ...] = ()) -> Path:
    """Builds abi_test.c against a bundle, as a user would."""
    target = bundle.parent / "abi_test"
    command = [cc, "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1", f"-I{bundle}", str(HERE / "abi_test.c")]
    command += [*flags, str(bundle / "libmodel.so"), "-lpthread", "-o", str(target)]
    build(command)
    return target


def run(command: list[str], env: dict[str, str] | None = None) -> str:
    """What the program says, when it found no failure."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env={**os.environ, **(env or {})})
    assert done.returncode == 0 and "0 failures" in done.stdout, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("cc", hosts(), ids=lambda cc: cc.kind)
@pytest.mark.parametrize("batch", [None, 5], ids=["symbolic", "static"])
@pytest.mark.parametrize("embed", [False, True], ids=["file", "embedded"])
def test_status_codes(
    tmp_path: Path, cc: Host, batch: int | None, embed: bool, record_property: Callable[[str, object], None]
) -> None:
    bundle = tiny.write(tmp_path / "b.tsc", batch, embed=embed, cc=cc.name, extra_flags=STRICT)
    weights = "-" if embed else str(bundle / "weights.bin")
    found = run([str(program(bundle, cc.cc)), weights, str(batch or 0)])
    record_property("wrong calls", int(found.split()[0]))


@pytest.mark.parametrize("sanitize", [("address", "undefined"), ("thread",)], ids="+".join)
@pytest.mark.parametrize("batch", [None, 5], ids=["symbolic", "static"])
def test_sanitizers(tmp_path: Path, sanitize: tuple[str, ...], batch: int | None) -> None:
    # gcc first: its sanitizers come with it, Debian's clang has them in a package of their own.
    flag = f"-fsanitize={','.join(sanitize)}"
    cc = next((h for h in reversed(hosts()) if h.kind != "zig" and links(h.cc, flag)), None)
    if cc is None:
        pytest.skip("no compiler with these sanitizers is here")
    bundle = tiny.write(tmp_path / "b.tsc", batch, cc=cc.name, sanitize=sanitize)
    test = program(bundle, cc.cc, (flag,))
    run([str(test), str(bundle / "weights.bin"), str(batch or 0)], {"TSAN_OPTIONS": "die_after_fork=0"})


@pytest.mark.skipif(not shutil.which("valgrind"), reason="needs valgrind")
def test_valgrind(tmp_path: Path) -> None:
    # Valgrind knows no AVX-512.
    bundle = tiny.write(tmp_path / "b.tsc", mcpu="x86-64-v3" if os.uname().machine == "x86_64" else None)
    test = program(bundle, needed().cc)
    checks = ["--leak-check=full", "--error-exitcode=9", "--track-fds=no", "-q"]
    run(["valgrind", *checks, str(test), str(bundle / "weights.bin"), "0"], {"ABI_TEST_VALGRIND": "1"})


def test_header_is_cxx(tmp_path: Path) -> None:
    source = tmp_path / "use.cpp"
    source.write_text('#include <model.h>\nstatic_assert(sizeof(torshc_tensor) == 48, "DLTensor");\nint main() {}\n')
    header = HERE.parents[1] / "templates" / "c" / "host"
    flags = ["-std=c++11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", f"-I{header}"]
    build([needed_cxx(), *flags, "-c", source, "-o", tmp_path / "use.o"])


@pytest.mark.skipif(not shutil.which("readelf"), reason="needs readelf and nm")
def test_library_is_closed(tmp_path: Path) -> None:
    """No search path, no executable stack, no name of ours but torshc_*."""
    bundle = tiny.write(tmp_path / "b.tsc")
    library = str(bundle / "libmodel.so")
    dynamic = subprocess.run(["readelf", "-dlW", library], capture_output=True, text=True, check=True).stdout
    assert "RUNPATH" not in dynamic and "RPATH" not in dynamic and "RWE" not in dynamic
    symbols = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True).stdout
    assert {line.split()[-1][:7] for line in symbols.splitlines()} == {"torshc_"}
