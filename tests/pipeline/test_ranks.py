"""Bundles of models that several processes share: what is in them, and what does not go with ranks."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import torshc
from tests.sharding.models import mlp
from tests.support.models import save
from torshc.base.errors import ConfigError, OutputError, UnsupportedError
from torshc.base.options import CompileOptions
from torshc.bundle.package import is_bundle
from torshc.pipeline.compiler import prepare
from torshc.pipeline.ranks import compile_ranks, prepare_ranks


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, CompileOptions]:
    (tmp_path / "shard.yaml").write_text("stages: 2\n")
    return save(mlp(), tmp_path / "m.onnx"), CompileOptions(shard=tmp_path / "shard.yaml")


def test_a_bundle_holds_one_for_each_rank(files: tuple[Path, CompileOptions], tmp_path: Path) -> None:
    done = compile_ranks(files[0], tmp_path / "out.tsc", files[1])
    names = {p.name for p in (tmp_path / "out.tsc").iterdir()} - {"libtorshc_mpi.so"}
    assert names == {"rank0", "rank1", "mpi", "manifest.json"}
    assert all(is_bundle(tmp_path / "out.tsc" / name) for name in (".", "rank0", "rank1"))
    manifest = json.loads((tmp_path / "out.tsc" / "manifest.json").read_text())
    assert [(e["source"], e["target"], e["name"], e["dims"]) for e in manifest["exchanges"]] == [
        (0, 1, done.cut.transfers[0].name, ["n", 8]),
        (1, 0, "y", ["n", 8]),
    ]
    assert [r["weights_bytes"] for r in manifest["ranks"]] == [c.weights_bytes for c in done.compilations]
    # Each has a half of the products, and the padding between its weights.
    whole = prepare(files[0], CompileOptions()).weights_bytes
    assert all(whole * 0.4 < r["weights_bytes"] < whole * 0.6 for r in manifest["ranks"])


def test_the_bytes_are_the_same_each_time(files: tuple[Path, CompileOptions], tmp_path: Path) -> None:
    """Manifests have the hashes of libraries and weights."""
    texts = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        compile_ranks(files[0], tmp_path / name / "out.tsc", files[1])
        texts.append((tmp_path / name / "out.tsc" / "manifest.json").read_bytes())
    assert texts[0] == texts[1]


def test_a_bundle_takes_the_place_of_another(files: tuple[Path, CompileOptions], tmp_path: Path) -> None:
    """Of ranks or of a whole model; but not of a folder with other files."""
    out = tmp_path / "out.tsc"
    compile_ranks(files[0], out, files[1])
    torshc.compile(files[0], out)
    assert not (out / "rank0").exists()
    compile_ranks(files[0], out, files[1])
    assert (out / "rank0").exists() and not (out / "weights.bin").exists()
    (out / "rank0" / "mine.txt").touch()
    with pytest.raises(OutputError, match="is left alone"):
        compile_ranks(files[0], out, files[1])


def test_without_mpicc_the_remedy_is_told(
    files: tuple[Path, CompileOptions], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    which = shutil.which
    monkeypatch.setattr("torshc.bundle.ranks.shutil.which", lambda name: None if name == "mpicc" else which(name))
    done = compile_ranks(files[0], tmp_path / "out.tsc", files[1])
    (warning,) = done.warnings
    assert "mpicc is not installed" in warning and f"sh {tmp_path / 'out.tsc' / 'mpi' / 'build.sh'}" in warning
    assert not (tmp_path / "out.tsc" / "libtorshc_mpi.so").exists()


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "target": ({"target": "llvm"}, "--shard with --target llvm"),
    "variants": ({"specialize": ("n=1",)}, "--shard with --specialize"),
    "versions": ({"isa": ("x86-64-v2",)}, "--shard with --isa"),
    "names": ({"named_weights": True}, "--shard with --named-weights"),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_does_not_go_with_ranks_is_refused(what: str, files: tuple[Path, CompileOptions], tmp_path: Path) -> None:
    more, message = WRONG[what]
    with pytest.raises(ConfigError, match=message):
        compile_ranks(files[0], tmp_path / "out.tsc", CompileOptions(shard=files[1].shard, **more))
    assert not (tmp_path / "out.tsc").exists()


def test_sources_alone_have_no_ranks(files: tuple[Path, CompileOptions], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--shard with --emit source"):
        compile_ranks(files[0], tmp_path / "out.tsc", CompileOptions(shard=files[1].shard, emit="source"))


def test_other_commands_take_no_ranks(files: tuple[Path, CompileOptions]) -> None:
    with pytest.raises(ConfigError, match="use it with compile or explain"):
        torshc.compile(files[0], shard=files[1].shard)


def test_sizes_that_only_a_run_knows_are_refused(tmp_path: Path) -> None:
    (tmp_path / "shard.yaml").write_text("stages: 2\n")
    model = save("(float[n] x) => (int64[1,m] y) { a = Relu(x) y = NonZero(a) }", tmp_path / "m.onnx")
    with pytest.raises(UnsupportedError, match="NonZero"):
        prepare_ranks(model, CompileOptions(shard=tmp_path / "shard.yaml"))
