"""nvcc as a toolchain: finding it, architectures, cards; and with the real one, equal bytes and closed libraries."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from torshc.base.cache import Cache
from torshc.base.errors import BundleError, ConfigError, ToolchainError
from torshc.base.options import CompileOptions
from torshc.kernels.machine import Machine
from torshc.runtime import load
from torshc.targets import find_target, isa
from torshc.targets.gpu.cuda import nvcc
from torshc.targets.gpu.cuda.nvcc import CudaToolchain, Nvcc, find_cards, find_nvcc

from ....bundle import tiny_cuda
from ....golden.models import case, node
from ....golden.test_golden import generated
from ....support.slow import SLOW

EMULATED = "emulation/bin"


def real() -> Nvcc | None:
    """nvcc itself, not what stands in for it in tests; None too where the compiler that it starts is missing."""
    try:
        found = find_nvcc()
    except ToolchainError:
        return None
    return None if EMULATED in found.path or not shutil.which("gcc") else found


needs_nvcc = pytest.mark.skipif(real() is None, reason="needs nvcc, and gcc for it")
STRICT = ("-Werror", "all-warnings", "-Xcompiler", "-Wall,-Wextra,-Werror")


def fake(folder: Path, name: str, script: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def fake_nvcc(folder: Path, release: str = "13.0", archs: str = "sm_80 sm_90") -> Path:
    lines = f"""case $1 in
        --version) echo 'nvcc: NVIDIA'; echo 'Cuda compilation tools, release {release}';;
        --list-gpu-code) echo '{archs}';;
        --help) echo "Allowed values: 'sm_52','compute_80','compute_90','sm_80','sm_90','sm_90a','compute_90a'.";;
        *) echo "$NVCC_APPEND_FLAGS$NVCC_PREPEND_FLAGS$@" >> '{folder}/calls'; touch obj.o;;
    esac"""
    return fake(folder, "nvcc", lines)


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty machine: no nvcc anywhere, no card."""
    for name in ("TORSHC_NVCC", "CUDA_HOME", "CUDA_PATH", "CUDA_VISIBLE_DEVICES", "NVCC_CCBIN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(nvcc, "USUAL_PLACE", str(tmp_path / "usual"))
    monkeypatch.setenv("PATH", f"{tmp_path / 'path'}:/usr/bin:/bin")
    nvcc._find.cache_clear()
    nvcc._cards.cache_clear()
    return tmp_path


def test_where_it_is_looked_for(alone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ToolchainError) as caught:
        find_nvcc()
    assert "nvidia-cuda-toolkit" in caught.value.remedy and "--emit source" in caught.value.remedy
    fake_nvcc(alone / "usual", "1")
    nvcc._find.cache_clear()
    assert "release 1;" in find_nvcc().version
    for k, name in enumerate(("CUDA_PATH", "CUDA_HOME"), 2):
        fake_nvcc(alone / name / "bin", str(k))
        monkeypatch.setenv(name, str(alone / name))
        assert f"release {k};" in find_nvcc().version
    fake_nvcc(alone / "path", "4")
    nvcc._find.cache_clear()
    assert "release 4;" in find_nvcc().version
    monkeypatch.setenv("TORSHC_NVCC", str(fake_nvcc(alone / "named", "5")))
    assert "release 5;" in find_nvcc().version


@pytest.mark.parametrize("script", ["exit 1", "echo hello", "exit 0"])
def test_what_is_no_nvcc(alone: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    monkeypatch.setenv("TORSHC_NVCC", str(fake(alone, "nvcc", script)))
    with pytest.raises(ToolchainError, match="--version"):
        find_nvcc()
    monkeypatch.setenv("TORSHC_NVCC", "nonesuch")
    with pytest.raises(ToolchainError, match="no such program"):
        find_nvcc()


def test_architectures(alone: Path) -> None:
    fake_nvcc(alone / "path")
    found = find_nvcc()
    assert found.archs == ("sm_80", "sm_90", "sm_90a", "compute_80", "compute_90", "compute_90a")
    usual = ["arch=compute_80,code=sm_80", "arch=compute_90a,code=sm_90a", "arch=compute_80,code=compute_80"]
    assert [f for f in found.gencode_flags() if f != "-gencode"] == usual
    assert found.gencode_flags(" sm_90, compute_80,sm_90,") == (
        *("-gencode", "arch=compute_90,code=sm_90"),
        *("-gencode", "arch=compute_80,code=compute_80"),
    )
    with pytest.raises(ConfigError) as caught:
        found.gencode_flags("sm_80,sm_90b")
    assert "did you mean 'sm_90'" in caught.value.message and "compute_90a" in caught.value.remedy
    for wrong in ("sm_70", "gfx90a", "90", "sm_80;rm", "x" * 5000, "-O3"):
        with pytest.raises(ConfigError):
            found.gencode_flags(wrong)
    with pytest.raises(ConfigError, match="no CUDA card"):
        found.gencode_flags("native")


def test_an_older_nvcc_compiles_for_what_it_knows(alone: Path) -> None:
    fake(alone / "path", "nvcc", "case $1 in --version) echo release 11.1;; --list-gpu-code) echo sm_80 sm_86;; esac")
    assert find_nvcc().gencode_flags() == ("-gencode", "arch=compute_80,code=sm_80")


def test_cards_of_this_machine(alone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_cards() == ()
    rows = "NVIDIA H200, 9.0, 570.1\\nNVIDIA A100, 8.0, 570.1\\nOld, N/A, 570.1\\n"
    fake(alone / "path", "nvidia-smi", f"printf '{rows}'")
    fake_nvcc(alone / "path")
    assert [(c.name, c.arch, c.driver) for c in find_cards()] == [
        ("NVIDIA H200", "sm_90", "570.1"),
        ("NVIDIA A100", "sm_80", "570.1"),
    ]
    assert [f for f in find_nvcc().gencode_flags() if "code" in f and f[0] != "-"] == [
        "arch=compute_90a,code=sm_90a",
        "arch=compute_80,code=sm_80",
    ]
    assert CudaToolchain().archs(CompileOptions(target="cuda")) == ("sm_90a", "sm_80")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert [c.arch for c in find_cards()] == ["sm_80"]
    nvcc._cards.cache_clear()
    fake(alone / "path", "nvidia-smi", "echo 'NVIDIA-SMI has failed'; exit 9")
    assert find_cards() == ()


def test_what_nvcc_is_told(alone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_nvcc(alone / "path")
    monkeypatch.setenv("NVCC_APPEND_FLAGS", "--evil")
    monkeypatch.setenv("NVCC_PREPEND_FLAGS", "--evil")
    found = find_nvcc()
    flags = found.base_flags(isa.resolve())
    assert {"-std=c++17", "-O3", "-cudart"} <= set(flags) and not any(
        "fast-math" in f or "use_fast" in f for f in flags
    )
    for source in ("a.cu", "a.c", "a.S"):
        found.compile(source, "obj.o", (*flags, "-Isrc", "-Wa,-Isrc"), alone)
    calls = (alone / "path" / "calls").read_text().splitlines()
    assert not any("--evil" in call for call in calls)
    assert ["--keep" in call for call in calls] == [True, False, False] and "assembler-with-cpp" in calls[2]
    assert not (alone / "keep" / "a.cu").exists()
    (alone / "obj.o").unlink()
    fake(alone / "path", "nvcc", "exit 0")
    with pytest.raises(ToolchainError, match="wrote nothing"):
        found.compile("a.cu", "obj.o", (), alone)
    with pytest.raises(ConfigError, match="sanitizers"):
        found.link(["obj.o"], "x.so", alone, ["address"])


@needs_nvcc
def test_an_error_of_the_compiler_is_told(tmp_path: Path) -> None:
    (tmp_path / "bad.cu").write_text("int main( {\n")
    with pytest.raises(ToolchainError) as caught:
        find_nvcc().compile("bad.cu", "bad.o", ["-O1"], tmp_path)
    assert "-c bad.cu -o bad.o" in caught.value.message and "error: " in caught.value.message


@needs_nvcc
def test_a_convolution_at_which_cicc_crashed(tmp_path: Path) -> None:
    """AlexNet's third on the way back, by three products of tf32, with loops that compute sums again in f32."""
    nodes, sizes = [node("Conv", ["x", "w"], ["y"], pads=[1] * 4)], {"x": (128, 384, 13, 13)}
    names, sources = generated(case(nodes, sizes, "", archs=("sm_90a",), w=(192, 384, 3, 3)), "cuda")
    for name, text in find_target("cuda")(Machine()).header_texts().items():
        (tmp_path / name).write_text(text)
    (tmp_path / "k.cu").write_text(sources[names.index("contraction_group")])
    command = [find_nvcc().path, "-std=c++17", "-O3", "-arch=compute_90a", "-ptx", "k.cu"]
    subprocess.run(command, cwd=tmp_path, check=True)


@needs_nvcc
@pytest.mark.parametrize("arch", ["sm_80", pytest.param("sm_80,sm_90a,compute_80", marks=SLOW)])
def test_equal_bytes_wherever_it_is_built(tmp_path: Path, arch: str) -> None:
    made = [
        tiny_cuda.write(tmp_path / f"{k}.tsc", arch=arch, embed=True, profile=True, fallback=True, cache=Cache(None))
        for k in range(2)
    ]
    assert made[0].joinpath("libmodel.so").read_bytes() == made[1].joinpath("libmodel.so").read_bytes()


@needs_nvcc
@pytest.mark.parametrize(
    "options", [{"profile": True, "fallback": True, "embed": True}, pytest.param({}, marks=SLOW)], ids=str
)
def test_no_warnings_and_nothing_left_open(tmp_path: Path, options: dict[str, bool]) -> None:
    bundle = tiny_cuda.write(tmp_path / "b.tsc", arch="sm_80", extra_flags=STRICT, **options)  # type: ignore[arg-type]
    library = str(bundle / "libmodel.so")
    if shutil.which("readelf"):
        dynamic = subprocess.run(["readelf", "-dlW", library], capture_output=True, text=True, check=True).stdout
        assert not re.search("RUNPATH|RPATH|RWE|libstdc|libcudart|libcuda", dynamic)
        symbols = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True).stdout
        assert {line.split()[-1][:7] for line in symbols.splitlines()} == {"torshc_"}
    if not Path("/dev/nvidiactl").exists():
        with pytest.raises(BundleError, match=r"no CUDA card can be used.*driver") as caught:
            load(bundle)
        assert "nvidia-smi" in caught.value.remedy
