"""Splits that the cost model chooses."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import torshc
from tests.support.models import save
from tests.support.ranks import World
from torshc.base.errors import ConfigError
from torshc.base.options import CompileOptions
from torshc.pipeline.ranks import cut_model
from torshc.sharding import Cut

from .models import decoder, mlp
from .test_tensors import close


def chosen(made: onnx.ModelProto, ranks: int | str, folder: Path) -> Cut:
    return cut_model(save(made, folder / "m.onnx"), CompileOptions(shard=Path(f"auto:{ranks}")))


@pytest.mark.parametrize("ranks", [2, 4])
def test_columns_and_then_rows(ranks: int, tmp_path: Path) -> None:
    """Splitting the second product by columns as well would exchange more, and gain nothing."""
    done = chosen(mlp(256, 1024), ranks, tmp_path)
    assert [(t.kind, t.name) for t in done.transfers] == [("AllReduce", "h2"), ("AllReduce", "h7")]


def test_queries_keys_and_values_are_sections(tmp_path: Path) -> None:
    """Each rank has heads of its own: of each third of the columns its part. Logits are small here."""
    done = chosen(decoder(64, 512, 8), 4, tmp_path)
    assert "parts: [512, 512, 512]" in done.chosen
    assert [t.kind for t in done.transfers] == ["AllReduce", "AllReduce", "AllGather"]


def test_what_is_chosen_is_a_file_that_says_the_same(tmp_path: Path) -> None:
    done = chosen(decoder(64, 512, 8), 2, tmp_path)
    (tmp_path / "shard.yaml").write_text(done.chosen)
    again = cut_model(tmp_path / "m.onnx", CompileOptions(shard=tmp_path / "shard.yaml"))
    assert [(t.kind, t.name, t.type.dtype) for t in again.transfers] == [
        (t.kind, t.name, t.type.dtype) for t in done.transfers
    ]


def test_small_products_are_left_whole(tmp_path: Path) -> None:
    """An exchange takes longer than they do; so there are stages."""
    done = chosen(mlp(), 2, tmp_path)
    assert done.chosen == "stages: 2\n" and {t.kind for t in done.transfers} == {"Send"}


def test_answers_are_those_of_the_whole_model(tmp_path: Path) -> None:
    file = save(decoder(64, 256, 8), tmp_path / "m.onnx")
    torshc.compile(file, tmp_path / "ranks.tsc", shard="auto:2")
    ids = np.random.default_rng(0).integers(-64, 64, (2, 9))
    found = World(2).run(tmp_path / "ranks.tsc", {"ids": ids})
    whole = torshc.compile(file).run({"ids": ids})["y"]
    assert close([each["y"] for each in found if isinstance(each, dict)], whole) and len(found) == 2


def test_one_rank_is_refused(tmp_path: Path) -> None:
    for ranks, message in (
        (1, "--shard auto:1: torshc cuts a model for 2 to"),
        ("two", "--shard auto:two names no number of ranks"),
    ):
        with pytest.raises(ConfigError, match=message):
            chosen(mlp(), ranks, tmp_path)
