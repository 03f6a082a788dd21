"""The oldest glibc that a library can be loaded with."""

from __future__ import annotations

import json
import platform
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support import compilers
from torshc.bundle.elf import glibc_floor
from torshc.targets.cc import find_compiler

from .test_interface import scaled

pytestmark = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="a C library without versions")


def told(bundle: Path) -> str:
    return str(json.loads((bundle / "manifest.json").read_bytes())["glibc"])


def test_the_manifest_says_what_the_library_asks_for(tmp_path: Path) -> None:
    if (objdump := shutil.which("objdump")) is None:
        pytest.skip("objdump is not installed")
    bundle = scaled(tmp_path, "one", 3, cc=compilers.needed().cc)
    symbols = subprocess.run([objdump, "-T", bundle / "libmodel.so"], capture_output=True, text=True, check=True).stdout
    versions = [tuple(map(int, v.split("."))) for v in re.findall(r"GLIBC_([0-9.]+)", symbols)]
    assert told(bundle) == ".".join(map(str, max(versions)))


@pytest.mark.slow
def test_zig_links_for_an_old_one(tmp_path: Path) -> None:
    pytest.importorskip("ziglang")
    bundle = scaled(tmp_path, "one", 3, cc="zig")
    assert told(bundle) == "2.17"


def test_one_that_needs_packed_relocations(tmp_path: Path) -> None:
    compiler = find_compiler(compilers.needed().cc)
    (tmp_path / "a.c").write_text("extern int puts(const char *);\nint (*f)(const char *) = puts;\n")
    flags = ["-shared", "-fPIC", "-Wl,-z,pack-relative-relocs", "a.c", "-o", "a.so"]
    made = subprocess.run([*compiler.command, *flags], cwd=tmp_path, capture_output=True, text=True, check=False)
    if made.returncode or b"DT_RELR" not in (tmp_path / "a.so").read_bytes():
        pytest.skip("the linker does not pack relocations")
    assert glibc_floor(tmp_path / "a.so") == "2.36"


def test_other_files_ask_for_none(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"\xcf\xfa\xed\xfe" + bytes(100))
    assert glibc_floor(tmp_path / "a") == ""
