"""Tuning records: read, checked, written, and honoured by compilations."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import torshc
from torshc.base.errors import ConfigError
from torshc.base.options import CompileOptions
from torshc.explain import explain, group_text, to_text
from torshc.expr import const
from torshc.pipeline import records
from torshc.pipeline.compilation import Compilation
from torshc.pipeline.compiler import prepare
from torshc.pipeline.records import Record, TuningKey, read_records, tunable, tuning_key, write_records
from torshc.targets import find_target
from torshc.targets.gpu.cuda import nvcc
from torshc.targets.gpu.grid import GridMap

from ..support.products import WEIGHTS, product


@pytest.fixture(scope="module")
def usual() -> Compilation:
    return prepare(product().SerializeToString(), CompileOptions())


def written(path: Path, compilation: Compilation, choices: str, where: str = "") -> Path:
    """A file with a record of the model's kernel."""
    (unit,) = compilation.units
    found = tunable(compilation.target, unit.kernels)
    assert found is not None
    symbol = unit.symbols[unit.kernels.index(found)]
    place = where or str(tuning_key(compilation.target, compilation.isa))
    path.write_text(f"{records.HEAD}\n\n# mine\n[{place}]\n{symbol} {found.template} 33x50x70 {choices}  # 1.0 us\n")
    return path


def tile_of(compilation: Compilation) -> object:
    return next(k.tile for u in compilation.units for k in u.kernels if hasattr(k, "tile"))


def test_a_record_is_honoured_and_named(usual: Compilation, tmp_path: Path) -> None:
    file = written(tmp_path / "r", usual, "tile=8x1 block=24 depth=256" if usual.isa.lanes == 8 else "tile=4x3")
    torshc.compile(product(), tmp_path / "m.tsc", tuning_records=file)
    x = np.random.default_rng(1).standard_normal((33, 70), dtype=np.float32)
    with torshc.load(tmp_path / "m.tsc") as loaded:
        np.testing.assert_allclose(loaded(x=x)[0], np.maximum(x @ WEIGHTS, 0), rtol=1e-4, atol=1e-5)
    manifest = json.loads((tmp_path / "m.tsc" / "manifest.json").read_text())
    (kernel,) = manifest["kernels"]
    assert "tile=" in kernel["tuned"] and kernel["symbol"] not in usual.units[0].symbols  # so nothing cached is taken
    found = prepare(product().SerializeToString(), CompileOptions(tuning_records=file))
    assert tile_of(found) != tile_of(usual) and not found.warnings
    assert "tile=" in to_text(explain(found)).partition("tuned")[2] and "tuned" in group_text(explain(found), 0)


def test_records_for_other_machines_and_versions_are_ignored_in_a_line(usual: Compilation, tmp_path: Path) -> None:
    place = tuning_key(usual.target, usual.isa)
    for other in (TuningKey("c", "x86-64-v9,gcc"), TuningKey("cuda", "sm_99"), TuningKey("c", place.machine, "0.0.1")):
        file = written(tmp_path / "r", usual, "tile=4x3", where=str(other))
        found = prepare(product().SerializeToString(), CompileOptions(tuning_records=file))
        (line,) = found.warnings
        assert f"records for {other} are ignored: this is {place}" in line and "\n" not in line
        assert found.units[0].symbols == usual.units[0].symbols


def test_records_of_wider_vectors_may_stand_in_the_file(usual: Compilation, tmp_path: Path) -> None:
    """One file serves machines whose tiles differ."""
    place = tuning_key(usual.target, usual.isa)
    other = TuningKey("c", "x86-64-v4,znver4,clang" if usual.isa.lanes == 8 else "x86-64-v3,znver1,clang")
    tile = "12x2" if usual.isa.lanes == 8 else "3x3"
    file = written(tmp_path / "r", usual, f"tile={tile}", where=str(other))
    assert [*read_records(file, usual.target, place)] == [other]
    with pytest.raises(ConfigError, match=f"tile={tile} is out of the range"):
        read_records(written(tmp_path / "r", usual, f"tile={tile}"), usual.target, place)


LINE = "kaaaaaaaaaaaa gemm.c.j2 1x2x3 {}"


@pytest.mark.parametrize(
    ("lines", "wrong"),
    [
        (["tile=6x4"], "line 1: it does not begin with 'torshc tuning records 1'"),
        ([records.HEAD, LINE.format("default")], "line 2: a record stands before the first"),
        ([records.HEAD, "", "[c here]"], "line 3: '\\[c here\\]' is not a section such as"),
        ([records.HEAD, "[PLACE]", "kaaaaaaaaaaaa gemm.c.j2"], "line 3: .* is not a record"),
        ([records.HEAD, "[PLACE]", LINE.format("tile=axb")], "line 3: 'tile=axb' is not a choice such as tile=6x4"),
        ([records.HEAD, "[PLACE]", LINE.format("tile=99x99")], "line 3: tile=99x99 is out of the range of gemm.c.j2: "),
        ([records.HEAD, "[PLACE]", LINE.format("tiles=4x3")], "no parameter 'tiles'; did you mean 'tile'.*it has tile"),
        ([records.HEAD, "[PLACE]", LINE.format("tile=4x3").replace("mm", "m")], "no template 'gem.c.j2'; did you mean"),
        ([records.HEAD, "[PLACE]", *[LINE.format("default")] * 2], "line 4: kaaaaaaaaaaaa has a record above"),
    ],
)  # fmt: skip
def test_a_malformed_file_names_line_and_cause(
    usual: Compilation, tmp_path: Path, lines: list[str], wrong: str
) -> None:
    place = str(tuning_key(usual.target, usual.isa))
    (tmp_path / "r").write_text("\n".join(line.replace("PLACE", place) for line in lines))
    with pytest.raises(ConfigError, match=wrong):
        prepare(product().SerializeToString(), CompileOptions(tuning_records=tmp_path / "r"))


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read the tuning records .*none: No such file"):
        prepare(product().SerializeToString(), CompileOptions(tuning_records=tmp_path / "none"))
    (tmp_path / "r").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="it is no text"):
        prepare(product().SerializeToString(), CompileOptions(tuning_records=tmp_path / "r"))


def test_a_target_without_parameters_says_so(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="the target llvm does not use --tuning-records"):
        prepare(product().SerializeToString(), CompileOptions(target="llvm", tuning_records=tmp_path / "r"))


def test_files_are_sorted_and_read_back(usual: Compilation, tmp_path: Path) -> None:
    place = tuning_key(usual.target, usual.isa)
    tuned = Record("kbbbbbbbbbbbb", "gemm.c.j2", "1x2x3", (("block", (96,)), ("tile", (4, 3))), "1.0 us, 2.0 before")
    kept = Record("kaaaaaaaaaaaa", "conv.c.j2", "3x4", (), "1.0 us")
    found = {place: {r.kernel: r for r in (tuned, kept)}, TuningKey("c", "another"): {}}
    write_records(tmp_path / "r", found)
    text = (tmp_path / "r").read_text()
    assert text.index("[c another") < text.index(f"[{place}]") < text.index("kaaaa") < text.index("kbbbb")
    place = tuning_key(usual.target, usual.isa)
    assert read_records(tmp_path / "r", find_target("c")(usual.target.machine), place) == found
    assert [p.name for p in tmp_path.iterdir()] == ["r"]


CARD, OTHER = "NVIDIA-H200,sm_90a", "NVIDIA-H100-PCIe,sm_90a"


def on_card(monkeypatch: pytest.MonkeyPatch, name: str, arch: str = "sm_90") -> None:
    monkeypatch.setattr(nvcc, "find_cards", lambda: (nvcc.Card(name, arch, "1"),) if name else ())


def cuda(file: Path | None = None, arch: str = "sm_90a") -> Compilation:
    options = CompileOptions(target="cuda", arch=arch, emit="source", tuning_records=file)
    return prepare(product().SerializeToString(), options)


def test_records_are_of_a_card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That of this machine, by its name and architecture; another with the same architecture is another card."""
    on_card(monkeypatch, "NVIDIA H200")
    usual, tile = cuda(), "tile=32x32x32x16x16"
    assert tuning_key(usual.target, usual.isa).machine == CARD
    file = written(tmp_path / "r", usual, tile)
    found = cuda(file)
    assert found.units[0].tuned == tile and not found.warnings
    on_card(monkeypatch, "NVIDIA H100 PCIe")
    (line,) = cuda(file).warnings
    assert (
        line
        == f"{file}: records for cuda {CARD} torshc {records.__version__} are ignored: this is cuda {OTHER} "
        + (f"torshc {records.__version__}")
    )
    assert not cuda(file).units[0].tuned


def test_without_a_card_the_only_one_of_the_architecture_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where bundles are built for machines with cards; a card of another architecture is no help."""
    on_card(monkeypatch, "NVIDIA H200")
    file = written(tmp_path / "r", cuda(), "tile=32x32x32x16x16")
    for name, arch in (("", ""), ("NVIDIA A100", "sm_80")):
        on_card(monkeypatch, name, arch)
        found = cuda(file)
        assert found.units[0].tuned and not found.warnings
        (line,) = cuda(file, "sm_80").warnings
        assert "are ignored: this is cuda " in line
    on_card(monkeypatch, "")
    file.write_text(file.read_text() + f"\n[cuda {OTHER} torshc {records.__version__}]\n")
    (line,) = cuda(file).warnings
    assert CARD in line and OTHER in line and line.endswith(f"this is cuda sm_90a torshc {records.__version__}")


def test_a_heavy_kernel_names_its_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """And not the loops that prepare its operands or join its pieces, though their templates have parameters too."""
    usual = cuda()
    (unit,) = usual.units
    loops = GridMap(buffers=(), tasks=const(1), flops=const(0), nbytes=const(0), axes=(), stores=(), rows=1, chunk=1)
    assert tunable(usual.target, [loops, *unit.kernels]) is unit.kernels[0]
    assert tunable(usual.target, [loops]) is loops
