"""Objects for other machines, made by LLVM in this process; programs of one, run by qemu."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import torshc
from tests.support.compilers import needed
from torshc.base.errors import ConfigError, ToolchainError
from torshc.base.options import CompileOptions
from torshc.formats import load_graph
from torshc.pipeline.compiler import prepare
from torshc.targets.native import machine_of, object_of

SAMPLES = Path(__file__).resolve().parents[2] / "samples"
ARM = "aarch64-linux-musl"


def test_an_object_for_another_machine() -> None:
    """The machine stands in the head of an ELF object: 183 is AArch64."""
    made = prepare(load_graph(SAMPLES / "mlp.json"), CompileOptions.create(target="llvm", triple=ARM))
    text = next(iter(made.sources.values()))
    assert int.from_bytes(object_of(text, machine_of(made.isa))[18:20], "little") == 183


def test_what_another_machine_needs(tmp_path: Path) -> None:
    gcc = needed("gcc").name
    for target in ("c", "llvm"):
        with pytest.raises(ToolchainError, match=f"not for --triple {ARM}"):
            torshc.compile(SAMPLES / "mlp.json", tmp_path / "out", target=target, triple=ARM, cc=gcc)
    pytest.importorskip("ziglang")
    with pytest.raises(ConfigError, match="static library for another machine"):
        torshc.compile(SAMPLES / "mlp.json", tmp_path / "out", triple=ARM, emit="archive", cc="zig")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "more"),
    [("c", {}), ("llvm", {}), ("c", {"mcpu": "neoverse-v1", "precision": "bf16"})],
    ids=["c", "llvm", "halves"],
)
def test_a_model_for_another_machine_runs_there(target: str, more: dict[str, str], tmp_path: Path) -> None:
    """The sample program, built with the bundle's objects, says what each of its images shows."""
    qemu = shutil.which("qemu-aarch64")
    if qemu is None:
        pytest.skip("qemu-user is not installed")
    pytest.importorskip("ziglang")
    bundle, program = tmp_path / "digits.tsc", tmp_path / "digits"
    torshc.compile(SAMPLES / "digits.onnx", bundle, target=target, triple=ARM, emit="objects", cc="zig", **more)
    objects = [str(p) for p in sorted((bundle / "obj").glob("*.o"))]
    command = [sys.executable, "-m", "ziglang", "cc", "-target", ARM, str(SAMPLES / "c" / "main.c"), *objects]
    subprocess.run([*command, f"-I{bundle}", "-static", "-lm", "-o", str(program)], check=True, capture_output=True)
    told = subprocess.run([qemu, str(program), str(bundle)], check=True, capture_output=True, text=True).stdout
    shown = [line.split(":")[1].split()[1].rstrip(",") for line in told.splitlines()[-10:]]
    assert sum(digit == str(k) for k, digit in enumerate(shown)) >= 9  # one of them is hard to read
