"""What `explain` shows of a model that several processes share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sharding.models import mlp
from tests.support.models import save
from torshc.base.options import CompileOptions
from torshc.explain.ranks import ranks_json, ranks_text
from torshc.pipeline.ranks import Ranks, prepare_ranks

TENSORS = "tensors:\n  ranks: 2\n  split:\n    - {names: '[ab].up', axis: 1}\n"


def prepared(shard: str, folder: Path) -> Ranks:
    (folder / "shard.yaml").write_text(shard)
    return prepare_ranks(save(mlp(), folder / "m.onnx"), CompileOptions(shard=folder / "shard.yaml"))


def test_stages_are_linked(tmp_path: Path) -> None:
    found = ranks_json(prepared("stages: [h0, h4]", tmp_path), {"n": 5})
    exchanged = [(e["kind"], e["from"], e["to"], e["bytes"]) for e in found["exchanges"]]
    assert exchanged == [("Send", 0, 1, 5 * 8 * 4), ("Send", 1, 0, 5 * 8 * 4)]
    assert [r["launches"] for r in found["ranks"]] == [4, 4]
    # Of two products by matrices of 8 x 24: 2 x 2 x 8 x 24 operations a row, and what follows them.
    assert all(2 * 2 * 8 * 24 * 5 <= r["flops"] <= 2 * 2 * 8 * 24 * 5 * 1.5 for r in found["ranks"])


@pytest.mark.parametrize(
    ("shard", "line"),
    [
        ("stages: [h0, h4]", "0 -> 1           Send                  1          160 B          160 B"),
        (TENSORS, "all ranks        AllReduce             2          320 B          320 B"),
    ],
)
def test_the_text_adds_up_links(shard: str, line: str, tmp_path: Path) -> None:
    text = ranks_text(prepared(shard, tmp_path), {"n": 5})
    assert any(found.startswith(line) for found in text.splitlines()) and text.endswith("at n=5\n")
