"""Whole bundles in the cache: the same bytes, never those of anything else."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, external_data_helper, helper, numpy_helper, save

import torshc
from torshc.base.cache import Cache, content_key
from torshc.base.errors import ModelError
from torshc.base.options import CompileOptions
from torshc.base.resources import cache_folder
from torshc.pipeline import compiler
from torshc.workbench import kept


@pytest.fixture(scope="module")
def objects(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache with the objects that all bundles have, and no bundle."""
    folder = tmp_path_factory.mktemp("objects")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORSHC_CACHE_DIR", str(folder / "cache"))
        compiler.compile_model(model(folder / "m.onnx"), str(folder / "m.tsc"), options(prefix="another"))
    return folder / "cache"


@pytest.fixture(autouse=True)
def own_cache(objects: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(objects, tmp_path / "cache")
    monkeypatch.setenv("TORSHC_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was compiled, not copied."""
    seen: list[str] = []
    original = compiler.compile_model

    def compile_model(model: Path, out: str, *rest: Any, **more: Any) -> object:
        seen.append(out)
        return original(model, out, *rest, **more)

    monkeypatch.setattr(compiler, "compile_model", compile_model)
    return seen


def model(place: Path, factor: float = 2.0, beside: bool = False) -> Path:
    weight = numpy_helper.from_array(np.full((3, 5000), factor, np.float32), "w")
    if beside:
        external_data_helper.set_external_data(weight, f"{place.stem}.bin")
        (place.parent / f"{place.stem}.bin").write_bytes(weight.raw_data)
        weight.ClearField("raw_data")
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [4, k]) for n, k in (("x", 3), ("y", 5000)))
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", [x], [y], [weight])
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), place)
    return place


def options(**fields: Any) -> CompileOptions:
    return CompileOptions.create(**{"target": "llvm", **fields})


def content(bundle: Path) -> dict[str, tuple[object, int]]:
    return {
        p.name: (p.readlink() if p.is_symlink() else p.read_bytes(), p.lstat().st_mode)
        for p in sorted(bundle.iterdir())
    }


def test_the_second_is_a_copy(tmp_path: Path, compiled: list[str]) -> None:
    source, outs = model(tmp_path / "m.onnx"), [tmp_path / folder / "m.tsc" for folder in "ab"]
    for out in outs:
        out.parent.mkdir()
    first, second = (kept.compile_or_copy(source, str(out), options(jobs=k)) for k, out in enumerate(outs, 1))
    assert compiled == [str(outs[0])]
    assert content(outs[0]) == content(outs[1]) and "weights.bin" in content(outs[0])
    assert first.compiled > second.compiled == 0
    assert (first.launches, first.kernels) == (second.launches, second.kernels)
    assert first.weights_bytes == second.weights_bytes > 0
    x = np.ones((4, 3), np.float32)
    assert (torshc.load(outs[1]).run({"x": x})["y"] == 6).all()
    kept.compile_or_copy(source, str(outs[1]), options())  # over a bundle that is there
    assert len(compiled) == 1 and content(outs[0]) == content(outs[1])
    outs[1].joinpath("weights.bin").write_bytes(b"")  # what the user does to a copy is nobody else's
    kept.compile_or_copy(source, str(outs[1]), options())
    assert content(outs[0]) == content(outs[1])


def test_a_copy_loads_no_compiler(tmp_path: Path) -> None:
    """That takes longer than to copy a small bundle."""
    source, out = model(tmp_path / "m.onnx"), tmp_path / "m.tsc"
    call = f"cli(['compile', '-q', '{source}', '-o', '{out}', '--target', 'llvm'], standalone_mode=False)"
    code = f"import sys; from torshc.cli import cli; {call}; print(*sys.modules)"
    said = [subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True) for _ in range(2)]
    compiled, copied = (set(done.stdout.split()) for done in said)
    heavy = {"onnx", "jinja2", "torshc.ops", "torshc.explain", "torshc.pipeline.compiler"}
    assert compiled >= heavy and not copied & heavy


def test_a_copy_removes_what_killed_processes_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, out = model(tmp_path / "m.onnx"), str(tmp_path / "m.tsc")
    kept.compile_or_copy(source, out, options())
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "torshc-scratch-killed").mkdir()
    kept.compile_or_copy(source, out, options())
    assert not (tmp_path / "torshc-scratch-killed").exists()


@pytest.mark.parametrize(
    "changed",
    [
        {"opt_level": 1},
        {"prefix": "other"},
        {"shapes": {"x": (4, 3)}},
        {"passes": {"fold_constants": False}},
        {"budget": {"nodes": 1000}},
        {"mcpu": "x86-64-v3"},
        {"embed_weights": True},
        {"threads": 2},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_other_options_are_compiled(changed: dict[str, Any], tmp_path: Path, compiled: list[str]) -> None:
    source, out = model(tmp_path / "m.onnx"), str(tmp_path / "m.tsc")
    kept.compile_or_copy(source, out, options())
    kept.compile_or_copy(source, out, options(**changed))
    assert len(compiled) == 2


@pytest.mark.parametrize("name", ["cache", "emit", "keep_intermediates", "workdir", "dump", "pipeline", "specialize"])
def test_what_is_never_copied(name: str, tmp_path: Path, compiled: list[str]) -> None:
    """Where more is written than the bundle, or other files than the model's are read."""
    source, out = model(tmp_path / "m.onnx"), str(tmp_path / "m.tsc")
    pipeline, sizes = tmp_path / "p.yaml", tmp_path / "sizes"
    pipeline.write_text("passes: [canonicalise]\n")
    sizes.write_text("\n")
    asked = {
        "cache": False, "emit": "source", "keep_intermediates": True, "workdir": tmp_path / "work",
        "dump": tmp_path / "dump", "pipeline": pipeline, "specialize": f"@{sizes}",
    }  # fmt: skip
    for _ in range(2):
        kept.compile_or_copy(source, out, options(**{name: asked[name]}))
    assert len(compiled) == 2


def test_other_weights_are_compiled(tmp_path: Path, compiled: list[str]) -> None:
    """In the model and beside it, whatever the dates of the files say."""
    for beside in (False, True):
        source, results = tmp_path / "m.onnx", []
        for factor in (2.0, 3.0, 2.0):
            model(source, factor, beside)
            kept.compile_or_copy(source, str(tmp_path / "m.tsc"), options())
            results.append(torshc.load(tmp_path / "m.tsc").run({"x": np.ones((4, 3), np.float32)})["y"][0, 0])
        assert results == [6, 9, 6]
    assert len(compiled) == 4


def test_another_torshc_compiles(tmp_path: Path, compiled: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    source, own = model(tmp_path / "m.onnx"), tmp_path / "own"
    own.mkdir()
    monkeypatch.setattr(kept, "own_folders", lambda: (own,))
    for text in ("a", "a", "b"):
        (own / "pass.py").write_text(text)
        kept.compile_or_copy(source, str(tmp_path / "m.tsc"), options())
    assert len(compiled) == 2


def test_a_model_that_changes_meanwhile_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, out = model(tmp_path / "m.onnx"), str(tmp_path / "m.tsc")

    original = compiler.compile_model

    def compile_late(*given: Any, **more: Any) -> object:
        model(source, 3.0)
        return original(*given, **more)

    with monkeypatch.context() as patch:
        patch.setattr(compiler, "compile_model", compile_late)
        kept.compile_or_copy(source, out, options())
    model(source, 2.0)
    kept.compile_or_copy(source, out, options())
    assert (torshc.load(out).run({"x": np.ones((4, 3), np.float32)})["y"] == 6).all()


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-5] ^= 1
    path.write_bytes(data)


def lengthen(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"x")


@pytest.mark.parametrize("damage", [cut, flip, lengthen, Path.unlink, lambda path: path.chmod(0o666)])
@pytest.mark.parametrize("which", [0, 1], ids=["head", "files"])
def test_damage_is_never_used(
    damage: Callable[[Path], None], which: int, tmp_path: Path, compiled: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    source, out = model(tmp_path / "m.onnx"), tmp_path / "m.tsc"
    keys: list[str] = []
    monkeypatch.setattr(kept, "_key", lambda *given: keys.append(content_key(["k"])) or keys[0])
    kept.compile_or_copy(source, str(out), options())
    whole = content(out)
    key = (keys[0], kept._files_key(keys[0]))[which]
    damage(cache_folder() / "objects-1" / key[:2] / f"{key[2:]}.o")
    for _ in range(2):
        kept.compile_or_copy(source, str(out), options())
        assert content(out) == whole and [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []
    assert len(compiled) == 2


def test_large_ones_are_not_kept(tmp_path: Path, compiled: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    source, out = model(tmp_path / "m.onnx"), str(tmp_path / "m.tsc")
    with monkeypatch.context() as patch:
        patch.setattr(kept, "MOST", 1 << 16)
        kept.compile_or_copy(source, out, options())
    with monkeypatch.context() as patch:
        patch.setattr(Cache, "has_room", lambda *given: False)
        kept.compile_or_copy(source, out, options())
    kept.compile_or_copy(source, out, options())
    assert len(compiled) == 3


def test_what_cannot_be_read_is_the_compilations_to_tell(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(b"no model")
    for name in ("m.onnx", "absent.onnx"):
        with pytest.raises(ModelError, match=name):
            kept.compile_or_copy(tmp_path / name, str(tmp_path / "m.tsc"), options())
