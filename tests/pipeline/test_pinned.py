"""A kernel ejected, edited, compiled in, and made stale."""

from __future__ import annotations

import json
import subprocess
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import torshc
from torshc.base.errors import ConfigError, RunError, ToolchainError
from torshc.base.options import CompileOptions
from torshc.explain import explain, group_text, to_text
from torshc.pipeline.compiler import prepare
from torshc.workbench.bisect import bisect_model
from torshc.workbench.eject import eject
from torshc.workbench.verify import verify_model

from ..emulation.emulated import emulated_tools, missing
from ..support.cli_models import CHAIN, STATIC
from ..support.compilers import needed
from ..support.models import parsed


@pytest.fixture
def ejected(tmp_path: Path) -> Path:
    """The folder of the only kernel of a model that is y = relu(x)."""
    (folder,) = eject(prepare(parsed(STATIC).SerializeToString(), CompileOptions()), 0, tmp_path / "kernels")
    return folder


def edit(folder: Path, old: str, new: str) -> None:
    text = (folder / "kernel.c").read_text()
    assert old in text
    (folder / "kernel.c").write_text(text.replace(old, new))


def spoiled(folder: Path) -> None:
    """Edit y = relu(x) to 7 at the first element."""
    text = (folder / "kernel.c").read_text()
    end = text.rindex("}")
    (folder / "kernel.c").write_text(f"{text[:end]}    ((float *)buf[1])[0] = 7;\n{text[end:]}")


def test_an_edited_kernel_is_compiled_in_and_named(ejected: Path, tmp_path: Path) -> None:
    spoiled(ejected)
    kernels = ejected.parent
    torshc.compile(parsed(STATIC), tmp_path / "m.tsc", kernels=kernels)
    with torshc.load(tmp_path / "m.tsc") as loaded:
        (y,) = loaded(x=np.ones((2, 8), np.float32))
    assert y.reshape(-1).tolist() == [7.0] + [1.0] * 15
    manifest = json.loads((tmp_path / "m.tsc" / "manifest.json").read_text())
    assert [k["pinned"] for k in manifest["kernels"]] == [True]
    found = explain(prepare(parsed(STATIC).SerializeToString(), CompileOptions(kernels=kernels)))
    assert f"{ejected.name}/kernel.c" in to_text(found).partition("pinned")[2]
    assert "kernel.c" in group_text(found, 0)


def test_a_kernel_that_ends_the_process_is_named(ejected: Path, tmp_path: Path) -> None:
    text = (ejected / "kernel.c").read_text()
    end = text.rindex("}")
    (ejected / "kernel.c").write_text(f"{text[:end]}    *(volatile float *)0 = 7;\n{text[end:]}")
    onnx.save(parsed(STATIC), tmp_path / "m.onnx")
    how = CompileOptions(kernels=ejected.parent)
    for command in (verify_model, partial(bisect_model, out=tmp_path / "part.onnx")):
        with pytest.raises(RunError, match=rf"the edited kernel {ejected.name} of 'y' ended the process: Segm"):
            command(tmp_path / "m.onnx", how)


def test_the_program_checks_and_times(ejected: Path) -> None:
    # Zig by itself would compile its runtime libraries for this program, 17 s of it.
    run = ["make", "-s", "-C", str(ejected), f"CC={needed().cc}"]
    done = subprocess.run([*run, "bench"], capture_output=True, text=True, check=True)
    assert "buffer 1: error 0.00e+00 ok" in done.stdout and "GFLOP/s" in done.stdout
    spoiled(ejected)
    failed = subprocess.run([*run, "check"], capture_output=True, text=True, check=False)
    assert failed.returncode != 0 and "DIFFERS" in failed.stdout


def test_a_stale_kernel_is_refused_by_name(ejected: Path, tmp_path: Path) -> None:
    options = {"kernels": ejected.parent, "emit": "source"}
    with pytest.raises(ConfigError, match=f"{ejected.name} is stale: .*buffer 0 is 96 bytes of f32, not 64 bytes"):
        torshc.compile(parsed(STATIC.replace("[2,8]", "[3,8]")), tmp_path / "m.tsc", **options)
    with pytest.raises(ConfigError, match=f"{ejected.name} is stale: no group of this model is made of Relu"):
        torshc.compile(parsed(CHAIN), tmp_path / "m.tsc", **options)
    with pytest.raises(ConfigError, match=r"is stale: (.|\n)*target is cuda, not c"):
        torshc.compile(parsed(STATIC), tmp_path / "m.tsc", target="cuda", **options)


def test_a_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="none: there is no such folder"):
        prepare(parsed(STATIC).SerializeToString(), CompileOptions(kernels=tmp_path / "none"))


def test_a_kernel_of_another_type_is_refused_by_the_compiler(ejected: Path, tmp_path: Path) -> None:
    edit(ejected, "void *const *buf", "float **buf")
    with pytest.raises(ToolchainError, match=f"{ejected.name}/kernel.c:\\d+"):
        torshc.compile(parsed(STATIC), tmp_path / "m.tsc", kernels=ejected.parent)


def test_damage_is_told_at_once(ejected: Path, tmp_path: Path) -> None:
    contract = json.loads((ejected / "contract.json").read_text())
    contract["tasks"] = 99
    (ejected / "contract.json").write_text(json.dumps(contract))
    (ejected.parent / "other").mkdir()
    (ejected.parent / "other" / "contract.json").write_text("[" * 5000)
    with pytest.raises(ConfigError, match=r"it was altered(.|\n)*other: the kernel cannot be read"):
        torshc.compile(parsed(STATIC), tmp_path / "m.tsc", kernels=ejected.parent)
    with pytest.raises(ConfigError, match="holds no ejected kernel"):
        torshc.compile(parsed(STATIC), tmp_path / "m.tsc", kernels=tmp_path)


@pytest.mark.parametrize(("field", "value"), [("nodes", [5]), ("kind", None), ("suffix", "/../../kernel.c")])
def test_names_that_are_none(field: str, value: Any, ejected: Path) -> None:
    body = json.loads((ejected / "contract.json").read_text())
    (ejected / "contract.json").write_text(json.dumps({**body, field: value}))
    with pytest.raises(ConfigError, match="it was altered: a name in it is none"):
        prepare(parsed(STATIC).SerializeToString(), CompileOptions(kernels=ejected.parent))


def test_a_kernel_that_is_there_is_left_alone(ejected: Path) -> None:
    made = prepare(parsed(STATIC).SerializeToString(), CompileOptions())
    with pytest.raises(ConfigError, match="is there already"):
        eject(made, 0, ejected.parent)
    with pytest.raises(ConfigError, match="no group 5"):
        eject(made, 5, ejected.parent)


def test_symbolic_sizes_and_devices(tmp_path: Path) -> None:
    chain = parsed(CHAIN).SerializeToString()
    (folder, *_) = eject(prepare(chain, CompileOptions()), 0, tmp_path / "c", {"batch": 3})
    assert "768" in (folder / "bench.c").read_text()  # bytes of f32[3,64]
    (there, *_) = eject(prepare(chain, CompileOptions(target="cuda", emit="source")), 0, tmp_path / "cuda")
    assert {p.name for p in there.iterdir()} == {"contract.json", "kernel.cu", "original.cu", "bench.cu", "Makefile"}
    done = torshc.compile(chain, tmp_path / "m.tsc", target="cuda", emit="source", kernels=tmp_path / "cuda")
    assert [*done.pinned] == [f"{there.name}.cu"]
    (other, *_) = eject(prepare(chain, CompileOptions(target="llvm")), 0, tmp_path / "llvm")
    assert {p.name for p in other.iterdir()} == {"contract.json", "kernel.ll", "original.ll"}
    done = torshc.compile(chain, tmp_path / "n.tsc", target="llvm", kernels=tmp_path / "llvm")
    assert [*done.pinned] == [f"{other.name}.ll"]


def test_an_edited_text_is_for_all_devices(tmp_path: Path) -> None:
    """A kernel of WGSL may have another text for devices with subgroups; an edited one has not."""
    text = STATIC.replace("[2,8]", "[3,1030]").replace("Relu", "Softmax")
    source = parsed(text).SerializeToString()
    made = prepare(source, CompileOptions(target="webgpu"))
    (name,) = (Path(file).stem for file in made.sources if "." not in Path(file).stem)
    assert set(made.sources) == {f"{name}.wgsl", f"{name}.subgroups.wgsl"}
    (folder,) = eject(made, 0, tmp_path / "kernels")
    (folder / "kernel.wgsl").write_text((folder / "kernel.wgsl").read_text() + "// edited\n")
    pinned = prepare(source, CompileOptions(target="webgpu", kernels=folder.parent))
    assert set(pinned.sources) == {f"{name}.wgsl"} and pinned.sources[f"{name}.wgsl"].endswith("// edited\n")


@pytest.mark.skipif(missing() is not None, reason=missing() or "")
def test_the_program_of_a_device(tmp_path: Path) -> None:
    with emulated_tools():
        made = prepare(parsed(CHAIN).SerializeToString(), CompileOptions(target="cuda"))
        (folder, *_) = eject(made, 0, tmp_path, {"batch": 3})
        done = subprocess.run(["make", "-s", "-C", str(folder), "check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "error 0.00e+00 ok" in done.stdout, done.stdout + done.stderr
