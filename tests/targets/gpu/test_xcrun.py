"""xcrun as a toolchain: finding it, its commands, the script that goes with sources, and what there is without it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import torshc
from tests.emulation.emulated import emulated_tools, missing
from tests.support.compilers import needed
from tests.support.models import model, node
from torshc.base.cache import Cache
from torshc.base.errors import ConfigError, ToolchainError
from torshc.base.options import CompileOptions
from torshc.bundle.build import build_objects, link_library
from torshc.bundle.build_script import build_script
from torshc.targets import isa
from torshc.targets.gpu import xcrun
from torshc.targets.gpu.metal import MetalTarget
from torshc.targets.gpu.xcrun import find_xcrun

needs_emulator = pytest.mark.skipif(missing(metal=True) is not None, reason=missing(metal=True) or "")


@pytest.fixture(autouse=True)
def forget(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("TORSHC_XCRUN", raising=False)
    xcrun._find.cache_clear()
    yield
    xcrun._find.cache_clear()


def fake(folder: Path, script: str, name: str = "xcrun") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def recorder(folder: Path) -> Path:
    """An xcrun that notes its command lines in ``calls`` and makes what it is asked for."""
    return fake(
        folder,
        f"""echo "$MACOSX_DEPLOYMENT_TARGET $*" >> '{folder}/calls'
        case "$*" in *--version) echo "$3 version 1"; exit;; esac
        while [ $# -gt 1 ]; do shift; [ "$1" != -o ] || echo made > "$2"; done""",
    )


def calls(folder: Path) -> list[str]:
    lines = (folder / "calls").read_text().splitlines()
    (folder / "calls").unlink()
    return [line for line in lines if not line.endswith("--version")]


@pytest.fixture
def model_path(tmp_path: Path) -> Path:
    made = model([node("Mul", "x w", "y")], {"x": (4, 8)}, ["y"], {"w": np.arange(8, dtype=np.float32)})
    onnx.save(made, tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


# ---- finding it ----


def test_where_it_is_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorder(tmp_path / "path")
    monkeypatch.setenv("PATH", f"{tmp_path / 'path'}:/usr/bin:/bin")
    found = find_xcrun()
    assert found.command == (str(tmp_path / "path" / "xcrun"), "-sdk", "macosx")
    assert found.version == "metal version 1; clang++ version 1"
    monkeypatch.setenv("TORSHC_XCRUN", str(recorder(tmp_path / "named")))
    assert find_xcrun().path == str(tmp_path / "named" / "xcrun")


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ('echo "xcrun: error: unable to find utility \\"metal\\"" >&2; exit 72', "has no metal: xcrun: error: unable"),
        ('[ "$3" = metal ] && echo 1 || exit 1', "has no clang"),
        ("exit 0", "has no metal: it says nothing"),
    ],
)
def test_tools_that_lack_something(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, message: str) -> None:
    monkeypatch.setenv("TORSHC_XCRUN", str(fake(tmp_path, script)))
    with pytest.raises(ToolchainError, match=message) as caught:
        find_xcrun()
    assert "Xcode" in caught.value.remedy and "--emit source" in caught.value.remedy


def test_none_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORSHC_XCRUN", "nonesuch")
    with pytest.raises(ToolchainError, match="TORSHC_XCRUN='nonesuch': no such program"):
        find_xcrun()
    monkeypatch.delenv("TORSHC_XCRUN")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ToolchainError, match="no xcrun on PATH"):
        find_xcrun()


def test_the_command_line_says_it_in_one_message(tmp_path: Path, model_path: Path) -> None:
    out = tmp_path / "m.tsc"
    command = [sys.executable, "-m", "torshc", "compile", str(model_path), "-o", str(out), "--target", "metal"]
    environment = {"PATH": str(tmp_path), "TMPDIR": str(tmp_path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == ToolchainError.exit_code == 5
    assert done.stderr.count("no xcrun on PATH") == 1 and "Traceback" not in done.stderr
    assert "Xcode" in done.stderr and "--emit source" in done.stderr and not out.exists()
    done = subprocess.run([*command, "--emit", "source"], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    names = {path.suffix for path in (out / "src").iterdir()}
    assert {".metal", ".mm", ".c", ".h", ".sh"} <= names and not (out / "libmodel.so").exists()


# ---- its commands ----

SOURCES = {"k1.metal": "kernel", "host.c": "int host;", "t_device.mm": "@class X;"}


def build(compiler: Any, work: Path, flags: list[str], sources: dict[str, str] = SOURCES) -> None:
    objects = build_objects(sources, {"t.h": ""}, compiler, flags, Cache(None), 1, work)
    link_library(compiler, objects, work)


def test_each_source_has_its_tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORSHC_XCRUN", str(recorder(tmp_path)))
    compiler = find_xcrun()
    build(compiler, tmp_path / "work", [*compiler.base_flags(isa.resolve()), "-DTORSHC_PROFILE"])
    made = {line.split(" -c ")[-1].split()[0]: line for line in calls(tmp_path)}
    metal, c, objective = made["src/k1.metal"], made["src/host.c"], made["src/t_device.mm"]
    assert all(line.startswith("13.0 -sdk macosx ") for line in made.values())
    assert "macosx metal -std=metal3.0 -O2 -fno-fast-math -Isrc -c src/k1.metal -o obj/k1.o" in metal
    assert " clang -std=gnu11 " in c and " clang++ -std=c++17 -x objective-c++ -fobjc-arc " in objective
    assert "-Xmetal" not in c + objective and "-DTORSHC_PROFILE" in c and "-DTORSHC_PROFILE" in objective
    assert (tmp_path / "work" / "air" / "k1.air").read_text() == "made\n"


def test_the_library_holds_the_kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORSHC_XCRUN", str(recorder(tmp_path)))
    build(find_xcrun(), tmp_path / "work", [])
    metallib, link = calls(tmp_path)[-2:]
    assert metallib.endswith(" metallib air/k1.air -o default.metallib")
    assert " clang++ -dynamiclib " in link and "-framework Metal -framework Foundation" in link
    assert link.endswith("-Wl,-sectcreate,__TEXT,__metallib,default.metallib obj/host.o obj/t_device.o -o libmodel.so")
    # Where every step runs on the processor there is nothing to hold.
    build(find_xcrun(), tmp_path / "other", [], {k: v for k, v in SOURCES.items() if k != "k1.metal"})
    assert not any("metallib" in line for line in calls(tmp_path))


def test_what_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = 'case "$*" in *--version) echo 1;; *k1*) echo "k1.metal:3: error: what" >&2; exit 1;; esac'
    monkeypatch.setenv("TORSHC_XCRUN", str(fake(tmp_path, script)))
    compiler = find_xcrun()
    with pytest.raises(ToolchainError, match=r"compiling k1\.metal: xcrun failed with status 1") as caught:
        build(compiler, tmp_path / "work", [], {"k1.metal": ""})
    assert "k1.metal:3: error: what" in caught.value.message
    with pytest.raises(ToolchainError, match=r"compiling host\.c: xcrun says it succeeded, but wrote nothing"):
        build(compiler, tmp_path / "other", [], {"host.c": ""})
    with pytest.raises(ConfigError, match="sanitizers"):
        compiler.link([], "libmodel.so", tmp_path, ("address",))


# ---- the script ----


def test_the_script_runs_the_same_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORSHC_XCRUN", str(recorder(tmp_path)))
    monkeypatch.setattr(sys, "platform", "darwin")  # elsewhere the script leaves the processor's flags out
    here, options = isa.resolve(), CompileOptions(profile=True)
    compiler = find_xcrun()
    build(compiler, tmp_path / "work", [*compiler.base_flags(here), "-DTORSHC_PROFILE"])
    ours = calls(tmp_path)
    folder = tmp_path / "m.tsc" / "src"
    folder.mkdir(parents=True)
    for name, text in {**SOURCES, "t.h": "", **build_script(MetalTarget, {"": here}, options)}.items():
        (folder / name).write_text(text)
    subprocess.run(["sh", str(folder / "build.sh")], check=True)
    assert sorted(calls(tmp_path)) == sorted(ours)
    assert (tmp_path / "m.tsc" / "libmodel.so").read_text() == "made\n"
    assert {path.name for path in (tmp_path / "m.tsc").iterdir()} == {"src", "libmodel.so"}


def test_a_script_for_another_machine_names_no_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    there = isa.Isa("x86_64", "x86-64-v4", "", ("avx512vnni",), 16)
    script = build_script(MetalTarget, {"": there}, CompileOptions())["build.sh"]
    assert "-DTORSHC_LANES=16" in script and "avx512" not in script and " -m" not in script


@needs_emulator
@pytest.mark.parametrize(("target", "embed"), [("c", True), ("metal", True), ("cuda", False)])
def test_sources_build_and_run(tmp_path: Path, model_path: Path, target: str, embed: bool) -> None:
    options: dict[str, Any] = {"target": target, "embed_weights": embed}
    x = np.arange(32, dtype=np.float32).reshape(4, 8)
    with emulated_tools():
        torshc.compile(model_path, tmp_path / "s.tsc", emit="source", **options)
        script = tmp_path / "s.tsc" / "src" / "build.sh"
        if target == "metal":  # it was written for a Mac; the emulator runs it here
            text = script.read_text()
            script.write_text(text.replace("-DTORSHC_LANES", f"{isa.resolve().flags('clang')[0]} -DTORSHC_LANES"))
        subprocess.run(["env", f"CC={needed().cc}", "sh", str(script)], check=True)
        with torshc.load(tmp_path / "s.tsc", verify=False) as loaded:
            np.testing.assert_array_equal(loaded(x)[0], x * np.arange(8, dtype=np.float32))
