"""A bundle in builds of others: static libraries, pkg-config and find_package, wherever the bundle lies."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import onnx
import pytest

import torshc
from tests.support import compilers
from torshc.base.errors import ConfigError, ToolchainError
from torshc.base.options import CompileOptions
from torshc.targets.cc import CCompiler
from torshc.targets.gpu.cuda.target import CudaTarget
from torshc.targets.toolchain import find_archiver

from .test_interface import PROGRAM, STRICT, scaled

ANSWER = "8 12 x y n 1\n"


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two bundles with static libraries, moved after they were made."""
    if not compilers.joins():
        pytest.skip("the compiler, objcopy and ar here make no static libraries")
    made, moved = tmp_path_factory.mktemp("made"), tmp_path_factory.mktemp("moved here")
    for name, factor in (("one", 2), ("two", 3)):
        shutil.move(scaled(made, name, factor, emit="archive", embed_weights=True), moved / f"{name}.tsc")
    return moved / "one.tsc", moved / "two.tsc"


def said(program: Path) -> str:
    return subprocess.run([program], capture_output=True, text=True, check=False).stdout


@pytest.mark.parametrize("kind", ["clang", "gcc"])
def test_two_static_libraries_in_one_program(bundles: tuple[Path, Path], kind: str, tmp_path: Path) -> None:
    compiler = compilers.needed(kind).cc
    (tmp_path / "main.c").write_text(PROGRAM)
    command = [compiler, "-std=c11", *STRICT, "main.c", *(f"-I{b}" for b in bundles)]
    compilers.build([*command, *(b / f"lib{b.stem}.a" for b in bundles), "-lm", "-lpthread", "-o", "main"], tmp_path)
    assert said(tmp_path / "main") == ANSWER


def test_a_static_library_shows_its_own_functions_alone(bundles: tuple[Path, Path]) -> None:
    nm = shutil.which("nm")
    if nm is None:
        pytest.skip("needs nm")
    found = subprocess.run([nm, "-g", "--defined-only", bundles[0] / "libone.a"], capture_output=True, text=True)
    names = [line.split()[-1] for line in found.stdout.splitlines() if " T " in line]
    assert "one_open" in names and all(name.startswith("one_") for name in names)


def test_two_bundles_of_one_prefix_do_not_link(bundles: tuple[Path, Path], tmp_path: Path) -> None:
    again = scaled(tmp_path, "again", 5, prefix="one", emit="archive")
    (tmp_path / "main.c").write_text("#include <one.h>\nint main(void) { return one_abi_version(); }\n")
    whole = ["-Wl,--whole-archive", again / "libone.a", bundles[0] / "libone.a", "-Wl,--no-whole-archive"]
    command = [compilers.needed().cc, "main.c", f"-I{again}", *whole, "-lm", "-lpthread", "-o", "main"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode != 0 and "one_open" in done.stderr


@pytest.mark.parametrize("kind", ["static", "shared"])
def test_calls_are_linked_with_their_own_model(bundles: tuple[Path, Path], kind: str, tmp_path: Path) -> None:
    """Each part of a program has the header of another model, and the two models have one prefix."""
    text = '<ir_version: 8, opset_import: ["": 18]> g (float[n,5] other) => (float[n,5] y) { y = Relu(other) }'
    onnx.save(onnx.parser.parse_model(text), tmp_path / "again.onnx")
    torshc.compile(tmp_path / "again.onnx", tmp_path / "again.tsc", prefix="one", emit="archive")
    libraries, flags = [], [compilers.needed().cc, "-std=c11", *STRICT]
    for k, bundle in enumerate((bundles[0], tmp_path / "again.tsc")):
        body = f"int part{k}(one_model *m) {{ one_tensors t = {{0}}; return one_call(m, &t); }}"
        (tmp_path / f"part{k}.c").write_text(f"#include <one.h>\nint part{k}(one_model *m);\n{body}\n")
        compilers.build([*flags, f"-I{bundle}", "-c", f"part{k}.c"], tmp_path)
        libraries.append(bundle / ("libone.a" if kind == "static" else "libone.so"))
    (tmp_path / "main.c").write_text(
        "int part0(void *), part1(void *);\nint main(void) { return !(part0(0) && part1(0)); }"
    )
    (tmp_path / "other.c").write_text("int part1(void *m) { return !m; }\n")
    said_of = []
    for parts in (["part0.o", "other.c"], ["part0.o", "part1.o"]):
        command = [flags[0], "main.c", *parts, *libraries, "-lm", "-lpthread", "-o", "main"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            folders = ":".join(str(library.parent) for library in libraries)
            done = subprocess.run([tmp_path / "main"], env={"LD_LIBRARY_PATH": folders}, capture_output=True, text=True)
        said_of.append(done.stderr if done.returncode else "")
    assert said_of[0] == "" and ("one_is_" in said_of[1] or "one_open" in said_of[1])


@pytest.mark.skipif(shutil.which("pkg-config") is None, reason="needs pkg-config")
def test_pkg_config(bundles: tuple[Path, Path]) -> None:
    path = ":".join(str(b) for b in bundles)
    for name, wanted in (("one", "-lone"), ("two-static", "libtwo.a")):
        command = ["pkg-config", "--cflags", "--libs", name]
        done = subprocess.run(command, capture_output=True, text=True, env={"PKG_CONFIG_PATH": path}, check=True)
        assert wanted in done.stdout and "moved" in done.stdout and "made" not in done.stdout


CMAKE = """\
cmake_minimum_required(VERSION 3.16)
project(main C)
find_package(one CONFIG REQUIRED)
find_package(two CONFIG REQUIRED)
add_executable(shared main.c)
target_link_libraries(shared PRIVATE one::one two::two)
add_executable(static main.c)
target_link_libraries(static PRIVATE one::static two::static)
"""


@pytest.mark.skipif(shutil.which("cmake") is None, reason="needs cmake")
def test_find_package(bundles: tuple[Path, Path], tmp_path: Path) -> None:
    (tmp_path / "main.c").write_text(PROGRAM)
    (tmp_path / "CMakeLists.txt").write_text(CMAKE)
    prefix = ";".join(map(str, bundles))
    compiler = f"-DCMAKE_C_COMPILER={compilers.needed().cc}"
    for command in (["-S", ".", "-B", "build", compiler, f"-DCMAKE_PREFIX_PATH={prefix}"], ["--build", "build"]):
        done = subprocess.run(["cmake", *command], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    assert said(tmp_path / "build" / "shared") == said(tmp_path / "build" / "static") == ANSWER


def test_what_makes_no_static_library(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="no static libraries for target 'cuda'"):
        CudaTarget.toolchain.archiver(CompileOptions(target="cuda", emit="archive"))
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(ToolchainError, match="needs objcopy"):
        find_archiver(CCompiler("cc", ("cc",), ""))
