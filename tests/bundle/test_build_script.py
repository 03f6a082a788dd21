"""Sources that are built by their own script, without Python, to a bundle like any other."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import torshc
from tests.support import compilers
from torshc.base.errors import BundleError
from torshc.base.resources import find_template
from torshc.bundle.host_source import OWN
from torshc.targets.cc import find_compiler
from torshc.targets.isa import resolve

from .test_interface import scaled

TOOLS = "sh cc ld as ar cat cp cut dirname ln mkdir mktemp mv rm sed sha256sum"
PEDANTIC = ["-std=c11", "-Wpedantic", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-DTORSHC_PROFILE", "-Wno-psabi"]


def build(bundle: Path, folder: Path, compiler: str) -> None:
    """Runs the script where there are no other programs than these."""
    if compilers.needed().kind == "zig":
        pytest.skip("the script is for clang and gcc")
    folder.mkdir(exist_ok=True)
    for name in TOOLS.split():
        program = shutil.which(compiler if name == "cc" else name)
        assert program is not None or name in ("ld", "as", "ar")
        if program and not (folder / name).exists():
            (folder / name).symlink_to(os.path.realpath(program))
    done = subprocess.run(
        ["sh", bundle / "src" / "build.sh"],
        env={"PATH": str(folder), "CC": compilers.needed().cc},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_sources_for_webgpu_become_a_library(tmp_path: Path) -> None:
    """Kernels are texts that one C file takes in, each by itself."""
    bundle = scaled(tmp_path, "one", 3, emit="source", target="webgpu")
    build(bundle, tmp_path / "bin", compilers.needed().cc)
    kernels = [path.stem for path in (bundle / "src").glob("*.wgsl")]
    library = (bundle / "libmodel.so").read_bytes()
    assert kernels and all(name.encode() + b"\0" in library for name in kernels)


@pytest.mark.parametrize("embed", [False, True], ids=["file", "embedded"])
def test_sources_become_a_bundle(tmp_path: Path, embed: bool) -> None:
    bundle = scaled(tmp_path, "one", 3, emit="source", embed_weights=embed)
    with pytest.raises(BundleError, match="not built yet") as caught:
        torshc.load(bundle)
    assert "build.sh" in caught.value.remedy
    for _ in range(1 if embed else 2):  # again over what is there
        build(bundle, tmp_path / "bin", compilers.needed().cc)
        with torshc.load(bundle) as model:
            assert model(np.ones((2, 2), np.float32))[0].tolist() == [[3, 3]] * 2
    assert (bundle / "libone.so").resolve() == (bundle / "libmodel.so").resolve()
    library = bundle / "libmodel.so"
    library.write_bytes(library.read_bytes() + b" ")
    with pytest.raises(BundleError, match=r"libmodel\.so was altered"):
        torshc.load(bundle)


@pytest.mark.parametrize("embed", [False, True], ids=["file", "embedded"])
def test_kept_sources_have_the_same_script(tmp_path: Path, embed: bool) -> None:
    kept = scaled(tmp_path, "kept", 4, keep_intermediates=True, embed_weights=embed, prefix="one")
    plain = scaled(tmp_path, "plain", 4, emit="source", embed_weights=embed, prefix="one")
    scripts = [(bundle / "src" / "build.sh").read_text() for bundle in (kept, plain)]
    assert scripts[0] == scripts[1]
    build(kept, tmp_path / "bin", compilers.needed().cc)
    with torshc.load(kept) as model:
        assert model(np.ones((1, 2), np.float32))[0].tolist() == [[4, 4]]


@pytest.mark.parametrize("cc", [c for c in compilers.hosts() if c.kind != "zig"], ids=lambda cc: cc.kind)
def test_generated_c_is_strict(tmp_path: Path, cc: compilers.Host) -> None:
    """Of a model, and all that a library may have besides."""
    bundle = scaled(tmp_path, "one", 3, emit="source")
    values = find_template(["c"], "t_value.c").parent
    host, prelude = values.parent / "host", values.parent / "prelude"
    sources = [*values.glob("*.c"), *host.glob("*.c"), *(bundle / "src").glob("k*.c"), bundle / "src" / OWN]
    include = [f"-I{folder}" for folder in (host, values, prelude)]
    flags = find_compiler(cc.name).isa_flags(resolve())
    compilers.build([cc.cc, *PEDANTIC, *flags, *include, *sources, bundle / "src" / "host.c"])
