"""Finding compilers and running tools."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import torshc
from tests.support.compilers import needed
from torshc.base.errors import ConfigError, ToolchainError
from torshc.base.options import CompileOptions
from torshc.pipeline.compiler import prepare
from torshc.targets import cc as toolchain
from torshc.targets import isa
from torshc.targets.cc import CCompiler, CToolchain, find_compiler
from torshc.targets.isa import Isa, resolve
from torshc.targets.toolchain import Tool, Tools

from ..bundle import tiny
from ..support.models import model, node
from ..support.slow import SLOW


@pytest.fixture(autouse=True)
def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TORSHC_CC", raising=False)
    toolchain._find.cache_clear()


def fake(folder: Path, name: str, script: str) -> Path:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def test_clang_comes_before_gcc_and_newer_before_older(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, says in [("clang-17", "clang version 17"), ("gcc", "gcc (Debian) 12"), ("clang", "clang version 14")]:
        fake(tmp_path, name, f"case $1 in -dumpversion) echo 12;; *) echo '{says}';; esac")
    fake(tmp_path, "clang-20", "exit 1")  # broken: passed over
    monkeypatch.setenv("PATH", str(tmp_path))
    found = find_compiler()
    assert (found.name, found.kind, found.version) == ("clang-17", "clang", "clang version 17")
    assert found.path == str(tmp_path / "clang-17")
    (tmp_path / "clang-17").unlink()
    (tmp_path / "clang").unlink()
    toolchain._find.cache_clear()
    assert find_compiler().kind == "gcc"


def test_a_survey_begins_with_what_compile_uses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Gcc(CToolchain):
        def find(self, options: CompileOptions, isa: Isa) -> Tools:
            return super().find(replace(options, cc="gcc"), isa)

    for name, says in [("clang", "clang version 17"), ("gcc", "gcc (Debian) 12")]:
        fake(tmp_path, name, f"case $1 in -dumpversion) echo 12;; *) echo '{says}';; esac")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(toolchain, "_ziglang", lambda: None)
    assert [tool.name for tool in CToolchain().survey().tools] == ["clang", "gcc"]
    assert [tool.name for tool in Gcc().survey().tools] == ["gcc", "clang"]


def test_a_gcc_for_another_machine_compiles_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    says = "-dumpversion) echo 12;; -dumpmachine) echo aarch64-linux-gnu;; *) echo 'gcc (Debian) 12';;"
    fake(tmp_path, "aarch64-linux-gnu-gcc", f"case $1 in {says} esac")
    monkeypatch.setenv("PATH", str(tmp_path))
    cc, isa = "aarch64-linux-gnu-gcc", resolve(None, "aarch64-linux-gnu")
    assert CToolchain().find(CompileOptions(cc=cc, triple="aarch64-linux-gnu"), isa).compiler.command[1:] == ()
    with pytest.raises(ToolchainError, match="compiles for aarch64-linux-gnu, not for --triple x86_64-linux-gnu"):
        CToolchain().find(CompileOptions(cc=cc, triple="x86_64-linux-gnu"), isa)


def test_a_clang_without_the_other_machines_headers_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake(tmp_path, "clang", "case $1 in --version) echo 'clang version 17';; *) exit 1;; esac")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ToolchainError, match="no headers of a C library for --triple aarch64-linux-gnu") as caught:
        CToolchain().find(CompileOptions(cc="clang", triple="aarch64-linux-gnu"), resolve(None, "aarch64-linux-gnu"))
    assert "ziglang" in caught.value.remedy and "--sysroot" in caught.value.remedy


def test_flags_of_a_compiler_are_no_part_of_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(fake(tmp_path, "clang", "echo 'clang version 17'").parent))
    found = find_compiler("clang -m32 --sysroot=/a")
    assert found.name == "clang" and found.command[1:] == ("-m32", "--sysroot=/a")


def test_kernels_have_the_tiles_of_the_compiler_that_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sources alone are the same wherever they are written; a look at a model needs no compiler."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(toolchain, "_ziglang", lambda: None)
    weights = {"w": np.zeros((768, 768), np.float32)}
    onnx.save(model([node("MatMul", "x w", "y")], {"x": (64, 768)}, ["y"], weights), tmp_path / "m.onnx")

    def look(**options: Any) -> tuple[str, set[str]]:
        made = prepare(tmp_path / "m.onnx", CompileOptions(**options))
        return made.target.machine.compiler, set(made.sources)

    clang = look()
    assert clang[0] == "clang"
    fake(tmp_path, "gcc", "case $1 in -dumpversion) echo 12;; *) echo 'gcc (Debian) 12';; esac")
    toolchain._find.cache_clear()
    gcc = look()
    assert gcc[0] == "gcc" and look(emit="source") == clang
    if isa.lanes() == 8:
        assert gcc[1] != clang[1]


def test_none_at_all_says_both_ways_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ToolchainError) as caught:
        find_compiler()
    assert "apt install clang" in str(caught.value) and "pip install ziglang" in str(caught.value)
    with pytest.raises(ToolchainError, match="not installed"):
        find_compiler("ziglang")


@pytest.mark.parametrize("cc", ["nonesuch", "sh -c", "'unbalanced", "/bin/true"])
def test_a_compiler_that_is_none(cc: str) -> None:
    with pytest.raises(ToolchainError) as caught:
        find_compiler(cc)
    assert caught.value.remedy.startswith("name a clang or gcc")


def test_environment_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    found = needed()
    monkeypatch.setenv("TORSHC_CC", found.cc)
    assert find_compiler().path == found.cc
    assert find_compiler(f"{found.cc} -m64").command[1:] == ("-m64",)


def test_failure_names_command_and_last_lines(tmp_path: Path) -> None:
    (tmp_path / "bad.c").write_text("int f( {\n")
    with pytest.raises(ToolchainError) as caught:
        find_compiler().compile("bad.c", "bad.o", ["-O1"], tmp_path)
    assert "-O1 -c bad.c -o bad.o" in caught.value.message and "error: " in caught.value.message


def test_only_the_end_of_long_messages(tmp_path: Path) -> None:
    tool = Tool("talker", (sys.executable, "-c"), "1")
    with pytest.raises(ToolchainError) as caught:
        tool.run(["import sys\nfor i in range(99): print('line', i, file=sys.stderr)\nsys.exit(3)"], tmp_path)
    assert "line 98" in caught.value.message and "line 78\n" not in caught.value.message


def test_timeout_kills_what_the_tool_started(tmp_path: Path) -> None:
    tool = Tool("slow", (str(fake(tmp_path, "slow", "sleep 60 & echo $! > child; wait")),), "1")
    with pytest.raises(ToolchainError, match="took more than"):
        tool.run([], tmp_path, timeout=0.5)
    child = int((tmp_path / "child").read_text())
    for _ in range(100):
        state = Path(f"/proc/{child}/stat")
        if not state.exists() or state.read_text().split()[2] == "Z":
            return
        time.sleep(0.05)
    pytest.fail("the child of a tool outlived its timeout")


def test_the_environment_does_not_leak(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_RUN_PATH", "/evil")
    monkeypatch.setenv("CPATH", "/evil")
    monkeypatch.setenv("LC_MESSAGES", "de_DE")
    tool = Tool("env", ("/usr/bin/env",), "1")
    seen = dict(line.split("=", 1) for line in tool.run([], tmp_path).splitlines() if "=" in line)
    assert not {"LD_RUN_PATH", "CPATH", "LC_MESSAGES"} & set(seen) and seen["LC_ALL"] == "C"


def test_isa_of_named_processors() -> None:
    here = isa.resolve()
    assert here.lanes in (1, 4, 8, 16) and isa.lanes("native") == here.lanes
    if here.arch == "x86_64":
        names = ["x86-64", "x86-64-v2", "haswell", "x86-64-v3", "x86-64-v4", "skylake-avx512", "znver4"]
        assert [isa.lanes(name) for name in names] == [4, 4, 8, 8, 16, 16, 16]
        assert "-mprefer-vector-width=512" in isa.resolve("x86-64-v4").flags("clang")


@pytest.mark.parametrize("name", ["nonesuch", "-O3", "x86-64; rm", "a" * 5000, ""])
def test_processors_that_there_are_not(name: str) -> None:
    with pytest.raises(ConfigError):
        isa.resolve(name)


@pytest.mark.parametrize("cc", tiny.COMPILERS)
def test_isa_flags_are_taken(cc: str | None, tmp_path: Path) -> None:
    compiler = find_compiler(cc)
    (tmp_path / "a.c").write_text("int lanes = TORSHC_LANES;\n")
    compiler.compile("a.c", "a.o", (*compiler.base_flags(), *compiler.isa_flags(isa.resolve()), "-Werror"), tmp_path)


@pytest.mark.parametrize("needed", [False, True])
def test_zig_links_its_runtime_where_something_calls_it(needed: bool, tmp_path: Path) -> None:
    refuses = "case $* in *-nostdlib*) exit 1;; esac" if needed else ""
    compiler = CCompiler("zig", (str(fake(tmp_path, "zig", f'echo "$@" >> calls; {refuses}')),), "", kind="zig")
    compiler.link(["a.o"], "a.so", tmp_path)
    first, *second = (tmp_path / "calls").read_text().splitlines()
    assert "-z,defs" in first and "-nostdlib" in first and first.endswith("-lc")
    assert "--strip-debug" in first  # debug information of Zig's own libc names the folder of the first link
    assert len(second) == needed and all("-fno-sanitize=undefined" in s and "-nostdlib" not in s for s in second)


@pytest.mark.skipif(not importlib.util.find_spec("ziglang"), reason="needs the ziglang package")
def test_zig_under_another_name(tmp_path: Path) -> None:
    """A user's wrapper, or `zig cc`: it spells processors its own way whatever it is called."""
    zig = find_compiler("zig")
    exports = " ".join(f"{key}='{value}'" for key, value in zig.env)
    wrapper = fake(tmp_path, "mycc", f'{exports} exec {zig.path} cc "$@"')
    compiler = find_compiler(str(wrapper))
    assert (compiler.name, compiler.kind) == ("mycc", "zig")
    assert "-march=x86_64_v3" in compiler.isa_flags(isa.resolve("x86-64-v3"))


@SLOW  # it compiles Zig's runtime first
@pytest.mark.skipif(not importlib.util.find_spec("ziglang"), reason="needs the ziglang package")
def test_zig_brings_division_of_128_bits(tmp_path: Path) -> None:
    compiler = find_compiler("zig")
    (tmp_path / "a.c").write_text("__int128 ratio(__int128 a, __int128 b) { return a / b; }\n")
    compiler.compile("a.c", "a.o", compiler.base_flags(), tmp_path)
    compiler.link(["a.o"], "a.so", tmp_path)
    assert ctypes.CDLL(str(tmp_path / "a.so"))


@SLOW  # `make test-bare` builds with it by default
@pytest.mark.skipif(not importlib.util.find_spec("ziglang"), reason="needs the ziglang package")
def test_ziglang_builds_a_bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import numpy as np

    from torshc.runtime import load

    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_compiler().kind == "zig"
    x = np.linspace(-2, 2, 48, dtype=np.float32).reshape(3, 16)
    for embed in (False, True):
        with load(tiny.write(tmp_path / "b.tsc", embed=embed)) as model:
            assert np.array_equal(model.run({"x": x})["y"], tiny.expected(x)["y"])
    assert os.environ["PATH"] == str(tmp_path)


# A cache of compilers, as ccache and sccache are: by a command and its preprocessed source. It counts what it compiles.
CACHE = """store=$(dirname "$0")/store
case " $* " in *" -c "*) ;; *) exec "$@" ;; esac
for out; do :; done
"$@" -E 2> "$store/none"
key=$(printf '%s\\n' "$@" | cat - "$out" 2> "$store/none" | sha256sum | cut -c1-64)
test -f "$store/$key" || { "$@" && cp "$out" "$store/$key" && echo "$out" >> "$store/compiled"; } || exit
exec cp "$store/$key" "$out\""""


def test_a_cache_of_compilers_compiles_nothing_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands are the same in whatever folder they run, and the library is that of the compiler alone."""
    (tmp_path / "store").mkdir()
    monkeypatch.setenv("PATH", f"{fake(tmp_path, 'ccache', CACHE).parent}:{os.environ['PATH']}")
    real = find_compiler()
    if real.kind == "zig":
        pytest.skip("the ziglang package has no compiler on PATH")
    relu = model([node("Relu", "x", "y")], {"x": [3]}, "y")
    compiled, libraries = [], []
    for cc in (f"ccache {real.name}", f"ccache {real.name}", real.name):
        torshc.compile(relu, tmp_path / "m.tsc", cc=cc, cache=cc == real.name)
        compiled.append(len((tmp_path / "store/compiled").read_text().splitlines()))
        libraries.append((tmp_path / "m.tsc/libmodel.so").read_bytes())
    assert compiled[0] > 5 and compiled[1:] == compiled[:1] * 2
    assert libraries[0] == libraries[1] == libraries[2]
    assert find_compiler(f"ccache {real.name}").name == real.name


def test_the_fingerprint_is_of_all_programs_of_a_command(tmp_path: Path) -> None:
    """What a cache is called with counts as much as the cache: it answers --version as the compiler does."""
    cache, *others = (fake(tmp_path, n, f"exec {s}") for n, s in (("ccache", '"$@"'), ("a", "cc"), ("b", "cc -m32")))
    found = [CCompiler(f.name, (str(cache), str(f)), "clang version 16") for f in others]
    assert found[0].fingerprint() != found[1].fingerprint()
    same = replace(found[0], command=(str(cache), str(fake(tmp_path, "c", "exec cc"))))
    assert same.fingerprint() == found[0].fingerprint()


def test_the_fingerprint_leaves_out_what_is_no_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Zig's compiler is called `zig cc`, with a target for a library: a machine's own `cc` does not count."""
    program = str(fake(tmp_path, "zig", "exit"))
    plain = CCompiler("zig", (program, "cc"), "clang version 22", kind="zig")
    targeted = replace(plain, command=(*plain.command, "-target", "x86_64-linux-gnu"))
    found = [plain.fingerprint(), targeted.fingerprint()]
    fake(tmp_path, "cc", "exit 1")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert found == [plain.fingerprint()] * 2


def test_a_profile_takes_the_kernels_that_are_there() -> None:
    """What times them is the host program."""
    plain, timed = (CToolchain().find(CompileOptions(profile=p), resolve()) for p in (False, True))
    assert plain.flags == timed.flags and plain.host != timed.host


def test_a_flag_that_a_compiler_takes_is_asked_for_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that it does not take may have failed for another reason, and another compiler is asked again."""
    monkeypatch.setenv("TORSHC_CACHE_DIR", str(tmp_path / "cache"))
    script = 'echo asked >> "$(dirname "$0")/asked"; case "$*" in *-mtune=good*) ;; *) exit 1 ;; esac'
    for content in (script, f"{script} # new"):
        program = str(fake(tmp_path, "clang", content))
        (tmp_path / "asked").write_text("")
        answers = [CCompiler("clang", (program,), "clang 16").knows(f) for f in ["-mtune=good", "-mtune=bad"] * 2]
        assert answers == [True, False] * 2
        assert (tmp_path / "asked").read_text().split() == ["asked"] * 3
