"""Tensor parallelism: weights that ranks share."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.models import model, node, save
from tests.support.slow import SLOW
from torshc.base.errors import ConfigError
from torshc.base.options import CompileOptions
from torshc.pipeline.ranks import cut_model

from .models import decoder, mlp, run_ranks, weight
from .test_stages import IDS, X, cut

SPLIT = """\
tensors:
  ranks: 2
  split:
    - {names: attn.qkv, axis: 1, parts: 3}
    - {names: mlp.up, axis: 0}
    - {names: table, axis: 0}
    - {names: head, axis: -1}
"""


def rules(ranks: int, *each: str) -> str:
    return "\n".join(["tensors:", f"  ranks: {ranks}", "  split:", *(f"    - {{{r}}}" for r in each)]) + "\n"


def close(found: list[Any], whole: Any) -> bool:
    """Sums over ranks are taken in another order: a few units in the last place of the largest element."""
    return all(np.allclose(y, whole, rtol=0, atol=1e-6 * max(np.abs(whole).max(initial=0), 1)) for y in found)


@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=SLOW), 3])
def test_columns_and_then_rows(ranks: int, tmp_path: Path) -> None:
    """What follows the split columns stays split, and the second product is summed over ranks."""
    shard = rules(ranks, 'names: "[ab].up", axis: 1')
    found, whole, world = run_ranks(mlp(), shard, tmp_path, {"x": X}, ranks)
    assert close(found, whole) and [kind for kind, _ in world.log[0]] == ["sum", "sum"]


def test_a_rank_has_its_part_of_weights(tmp_path: Path) -> None:
    done = cut(mlp(), rules(2, 'names: "[ab].up", axis: 1'), tmp_path)
    for graph in done.graphs:
        held = {v.name: v.type.static_shape for n in graph.nodes for v in n.operands if v.const is not None and v.name}
        assert held == {"a.up": (8, 12), "a.down": (12, 8), "b.up": (8, 12), "b.bias": (12,), "b.down": (12, 8)}


@pytest.mark.parametrize("ranks", [2, 4])
def test_attention_an_embedding_and_logits(ranks: int, tmp_path: Path) -> None:
    found, whole, world = run_ranks(decoder(), SPLIT.replace("2", str(ranks), 1), tmp_path, {"ids": IDS}, ranks)
    assert close(found, whole)
    # Of the table's rows, of attention and of the second product; then each rank's logits.
    assert [kind for kind, _ in world.log[0]] == ["sum", "sum", "sum", "gather"]


def test_products_are_named_by_their_results(tmp_path: Path) -> None:
    done = cut(mlp(), rules(2, "names: h0, axis: 1"), tmp_path)
    assert [(t.kind, t.name) for t in done.transfers] == [("AllReduce", "h2")]


def test_a_column_of_a_table_is_gathered(tmp_path: Path) -> None:
    """Normalisation is over whole rows, which ranks give each other first; what is added to the rows stays split, so
    that the products over them are sums."""
    found, whole, world = run_ranks(decoder(), rules(2, "names: table, axis: 1"), tmp_path, {"ids": IDS}, 2)
    assert close(found, whole) and [kind for kind, _ in world.log[0]] == ["gather", "sum", "sum"]


# What moves or combines a split tensor: nodes from x, whose product with w of 12 columns is split.
FOLLOW: dict[str, tuple[list[Any], list[str]]] = {
    "elements": ([node("Add", "p c", "q"), node("Mul", "q q", "y")], ["gather"]),
    "softmax of rows": ([node("Softmax", "p", "y", axis=0)], ["gather"]),
    "softmax of columns": ([node("Softmax", "p", "y", axis=1)], ["gather"]),
    "sum of rows": ([node("ReduceSum", "p zero", "y", keepdims=0)], ["gather"]),
    "sum of columns": ([node("ReduceSum", "p one", "y", keepdims=0)], ["gather"]),
    "parts": ([node("Split", "p", "a b", axis=1, num_outputs=2), node("Sub", "a b", "y")], ["gather"]),
    "halves of rows": ([node("Slice", "p zero two zero", "y")], ["gather"]),
    "halves of columns": ([node("Slice", "p zero two one", "y")], ["gather"]),
    "joined rows": ([node("Concat", "p p", "y", axis=0)], ["gather"]),
    "joined columns": ([node("Concat", "p p", "y", axis=1)], ["gather"]),
    "wider": ([node("Expand", "p shape", "y")], ["gather"]),
    "finer and turned": ([node("Reshape", "p finer", "f"), node("Transpose", "f", "y", perm=[1, 0, 2])], ["gather"]),
    "too fine": ([node("Reshape", "p odd", "f"), node("Relu", "f", "y")], ["gather"]),
    "flat": ([node("Reshape", "p flat", "y")], ["gather"]),
    "running sums": ([node("CumSum", "p i", "y")], ["gather"]),
    "a product of two": ([node("Transpose", "p", "t", perm=[1, 0]), node("MatMul", "p t", "y")], ["sum"]),
    "a product of rows": ([node("Transpose", "p", "t", perm=[1, 0]), node("MatMul", "t d", "y")], ["gather"]),
}  # fmt: skip


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("what", FOLLOW)
def test_what_follows_a_split_product(what: str, ranks: int, tmp_path: Path) -> None:
    nodes, exchanged = FOLLOW[what]
    constants = {
        "w": weight(1, 8, 12), "c": weight(2, 12), "d": weight(3, 5, 4), "zero": np.array([0]), "one": np.array([1]),
        "two": np.array([2]), "i": np.array(1), "shape": np.array([3, 1, 1]), "finer": np.array([5, 4, 3]),
        "odd": np.array([5, 3, 4]), "flat": np.array([-1]),
    }  # fmt: skip
    read = {name for n in nodes for name in n.input}
    kept = {name: a for name, a in constants.items() if name in {*read, "w"}}
    made = model([node("MatMul", "x w", "p"), *nodes], {"x": (5, 8)}, ["y"], kept)
    found, whole, world = run_ranks(made, rules(ranks, "names: w, axis: 1"), tmp_path, {"x": X}, ranks)
    assert close(found, whole) and [kind for kind, _ in world.log[0]] == exchanged


def test_halves_are_added_up_in_f32(tmp_path: Path) -> None:
    constants = {"w": weight(1, 8, 12).astype(np.float16), "v": weight(2, 12, 8).astype(np.float16)}
    made = model([node("MatMul", "x w", "p"), node("MatMul", "p v", "y")], {"x": ("float16", (5, 8))}, ["y"], constants)
    done = cut(made, rules(2, "names: w, axis: 1"), tmp_path)
    assert Counter(n.op.name for n in done.graphs[0].nodes)["Cast"] == 2
    found, whole, _ = run_ranks(made, rules(2, "names: w, axis: 1"), tmp_path, {"x": X.astype(np.float16)}, 2)
    # Each rank's part is rounded to f16 (2^-11 of it) before it is added.
    assert all(np.allclose(y, whole, rtol=0, atol=2**-9 * np.abs(whole).max()) for y in found)


@pytest.mark.parametrize(("ranks", "casts"), [(2, 0), (4, 2)])
def test_two_cards_add_up_halves_as_they_are(ranks: int, casts: int, tmp_path: Path) -> None:
    """One addition of two halves rounds once, as one in f32 and a cast do; of more, each rounds."""
    constants = {"w": weight(1, 8, 12).astype(np.float16), "v": weight(2, 12, 8).astype(np.float16)}
    made = model([node("MatMul", "x w", "p"), node("MatMul", "p v", "y")], {"x": ("float16", (5, 8))}, ["y"], constants)
    (tmp_path / "shard.yaml").write_text(rules(ranks, "names: w, axis: 1"))
    options = CompileOptions(target="cuda", shard=tmp_path / "shard.yaml")
    done = cut_model(save(made, tmp_path / "m.onnx"), options)
    assert Counter(n.op.name for n in done.graphs[0].nodes)["Cast"] == casts


@pytest.mark.parametrize("ranks", [2, 4])
def test_a_sum_is_scattered_where_rules_say_so(ranks: int, tmp_path: Path) -> None:
    """Rows of the first block's sum stay apart through what is added, until the next product wants whole rows."""
    shard = rules(ranks, 'names: "[ab].up", axis: 1') + "  scatter:\n    - {names: h2, axis: -2}\n"
    found, whole, world = run_ranks(mlp(batch=8), shard, tmp_path, {"x": np.vstack([X, X])[:8]}, ranks)
    assert close(found, whole)
    # h3 is gathered for the product b.up; what is added to it last is split as it is, and y is gathered.
    assert [kind for kind, _ in world.log[0]] == ["scatter", "gather", "sum", "gather"]
    assert world.log[0][0][1] == 8 * 8 // ranks


def test_a_scattered_sum_of_a_gemm_has_its_term_once(tmp_path: Path) -> None:
    constants = {"w": weight(1, 8, 12), "v": weight(2, 12, 6), "c": weight(3, 4, 6)}
    nodes = [node("Gemm", "x w", "p"), node("Gemm", "p v c", "q", beta=0.5), node("Relu", "q", "y")]
    made = model(nodes, {"x": (4, 8)}, ["y"], constants)
    for axis in (0, 1):
        shard = rules(2, "names: w, axis: 1") + f"  scatter:\n    - {{names: q, axis: {axis}}}\n"
        found, whole, world = run_ranks(made, shard, tmp_path, {"x": X[:4]}, 2)
        assert close(found, whole) and [kind for kind, _ in world.log[0]] == ["scatter", "gather"]


WRONG = {
    rules(2, "names: a.up, axis: 1") + "  scatter: [{names: h2, axis: 0}]\n": (
        5,
        "axis 0 of the result of 'h2' is n long, which 2 ranks cannot share",
    ),
    rules(2, "names: a.up, axis: 1") + "  scatter: [{names: h22, axis: 0}]\n": (
        5,
        "no node and no tensor is called 'h22'; did you mean 'h2'?",
    ),
    rules(2, "names: a.up, axis: 1") + "  scatter: [{names: h2, axis: 2}]\n": (
        5,
        "the result of 'h2' has 2 dimensions and no axis 2",
    ),
    rules(2, "names: b.upp, axis: 1"): (4, "no node and no tensor is called 'b.upp'; did you mean 'b.up'?"),
    rules(2, "names: a.up, axis: 2"): (4, "'a.up' has 2 dimensions and no axis 2"),
    rules(5, "names: a.up, axis: 1"): (4, "axis 1 of 'a.up' is 24 long, which 5 ranks cannot share"),
    rules(2, "names: a.up, axis: 1, parts: [8, 8]"): (
        4,
        "axis 1 of 'a.up' is 24 long, which 2 ranks cannot share as 8 + 8",
    ),
}


@pytest.mark.parametrize("shard", WRONG)
def test_what_cannot_be_split_is_refused_by_name(shard: str, tmp_path: Path) -> None:
    line, message = WRONG[shard]
    with pytest.raises(ConfigError) as caught:
        cut(mlp(), shard, tmp_path)
    assert f"shard.yaml:{line}: {message}" in caught.value.message
