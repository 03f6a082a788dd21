"""Stages one behind the other, each a rank."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from tests.support.models import model, node, save
from torshc.base.errors import ConfigError, UnsupportedError
from torshc.base.options import CompileOptions
from torshc.pipeline.ranks import cut_model
from torshc.sharding import Cut

from .models import decoder, mlp, run_ranks, weight


def close(found: list[Any], whole: Any) -> bool:
    """Products of fewer rows may be added up in another order: a few units in the last place of the largest."""
    return all(np.allclose(y, whole, rtol=0, atol=1e-6 * max(np.abs(whole).max(initial=0), 1)) for y in found)


X = np.random.default_rng(7).standard_normal((5, 8)).astype(np.float32)
IDS = np.array([[0, 5, 23, -1, 7], [1, -24, 12, 3, 11]], np.int64)


def cut(made: onnx.ModelProto, shard: str, folder: Path) -> Cut:
    (folder / "shard.yaml").write_text(shard)
    return cut_model(save(made, folder / "m.onnx"), CompileOptions(shard=folder / "shard.yaml"))


@pytest.mark.parametrize(
    ("shard", "ranks"),
    [("stages: 2", 2), ("stages: 3", 3), ("stages: [h0, h3]", 2), ("stages: [[h0, h1], 'h[34]', h7]", 3)],
)
def test_answers_have_the_bits_of_the_whole_model(shard: str, ranks: int, tmp_path: Path) -> None:
    """Every rank gives all outputs."""
    found, whole, _ = run_ranks(mlp(), shard, tmp_path, {"x": X}, ranks)
    assert len(found) == ranks and all(np.array_equal(y, whole) for y in found)


@pytest.mark.parametrize("count", [0, 1, 7])
def test_stages_take_any_size(count: int, tmp_path: Path) -> None:
    x = np.random.default_rng(count).standard_normal((count, 8)).astype(np.float32)
    x[:1, :1] = np.nan
    found, whole, _ = run_ranks(mlp(), "stages: 2", tmp_path, {"x": x}, 2)
    assert all(np.array_equal(y, whole, equal_nan=True) for y in found)


def test_a_decoder_in_three_stages(tmp_path: Path) -> None:
    found, whole, _ = run_ranks(decoder(), "stages: 3", tmp_path, {"ids": IDS}, 3)
    assert all(np.array_equal(y, whole) for y in found)


def test_what_no_name_says_goes_with_what_it_reads(tmp_path: Path) -> None:
    done = cut(mlp(), "stages: [h0, h4]", tmp_path)
    assert [(t.source, t.target, t.name) for t in done.transfers] == [(0, 1, "h3"), (1, 0, "y")]
    assert [n.op.name for n in done.graphs[0].nodes] == ["MatMul", "Relu", "MatMul", "Add", "Send", "Recv"]
    assert [n.op.name for n in done.graphs[1].nodes] == ["Recv", "MatMul", "Add", "Sigmoid", "MatMul", "Add", "Send"]


def test_a_rank_has_its_own_weights_alone(tmp_path: Path) -> None:
    done = cut(mlp(), "stages: 2", tmp_path)
    held = [{v.name for n in g.nodes for v in n.operands if v.const is not None and v.name} for g in done.graphs]
    assert held == [{"a.up", "a.down"}, {"b.up", "b.bias", "b.down"}]


def test_a_number_cuts_by_bytes_where_least_is_sent(tmp_path: Path) -> None:
    """Between the products of a and y one tensor is sent behind a, and two behind the nodes that read it."""
    nodes = [
        node("Relu", "x", "r"), node("MatMul", "r w", "a"), node("Relu", "a", "b"), node("Sigmoid", "a", "c"),
        node("Sub", "b c", "d"), node("MatMul", "d v", "y"),
    ]  # fmt: skip
    made = model(nodes, {"x": (3, 8)}, ["y"], {"w": weight(1, 8, 8), "v": weight(2, 8, 8)})
    assert [t.name for t in cut(made, "stages: 2", tmp_path).transfers] == ["a", "y"]


def test_checks_of_indices_are_made_by_all(tmp_path: Path) -> None:
    """So that all ranks refuse a run with an index that is out of range, and none waits for another."""
    done = cut(decoder(), "stages: 2", tmp_path)
    assert all("OutOfRange" in [n.op.name for n in g.nodes] for g in done.graphs)


def test_what_is_read_far_on_is_sent_there(tmp_path: Path) -> None:
    """From stage 0 to stages 1 and 2, in the order of the nodes."""
    nodes = [node("Relu", "x", "a"), node("Sigmoid", "a", "b"), node("Add", "a b", "y")]
    made = model(nodes, {"x": (3,)}, "y")
    done = cut(made, "stages: [a, b, y]", tmp_path)
    sent = [(t.source, t.target, t.name) for t in done.transfers]
    assert sent == [(0, 1, "a"), (0, 2, "a"), (1, 2, "b"), (2, 0, "y"), (2, 1, "y")]
    x = np.array([-1, 0, 2], np.float32)
    found, whole, _ = run_ranks(made, "stages: [a, b, y]", tmp_path, {"x": x}, 3)
    assert all(np.array_equal(y, whole) for y in found)


MICRO = "stages: 2\nmicro_batches: 3\n"


def test_stages_work_side_by_side_on_parts_of_a_batch(tmp_path: Path) -> None:
    """Each sends a part as soon as it has it; the results of all are sent once."""
    made = mlp(batch=6)
    x = np.random.default_rng(8).standard_normal((6, 8)).astype(np.float32)
    found, whole, world = run_ranks(made, MICRO, tmp_path, {"x": x}, 2)
    assert close(found, whole)
    assert [kind for kind, _ in world.log[0]] == ["send"] * 3 + ["receive"]
    done = cut(made, MICRO, tmp_path)
    kinds = [n.op.name for n in done.graphs[0].nodes]
    sends = [k for k, kind in enumerate(kinds) if kind == "Send"]
    assert [kinds[:k].count("MatMul") for k in sends] == [2, 4, 6]


def test_an_embedding_and_attention_in_parts(tmp_path: Path) -> None:
    """What does not depend on the batch is computed once, and indices are checked by all before anything is sent."""
    made = decoder(seq=5)
    shard = "stages: 2\nmicro_batches: 2\n"
    found, whole, _ = run_ranks(made, shard, tmp_path, {"ids": IDS}, 2)
    assert close(found, whole)
    kinds = [[n.op.name for n in g.nodes] for g in cut(made, shard, tmp_path).graphs]
    assert [kind.count("OutOfRange") for kind in kinds] == [1, 1] and [kind.count("Gather") for kind in kinds] == [2, 0]


def test_pictures_in_parts(tmp_path: Path) -> None:
    nodes = [
        node("Conv", "x w", "c"), node("BatchNormalization", "c s b m v", "n"), node("Relu", "n", "r"),
        node("MaxPool", "r", "p", kernel_shape=[2, 2], strides=[2, 2]), node("Conv", "p u", "d"),
        node("GlobalAveragePool", "d", "g"), node("Flatten", "g", "y"),
    ]  # fmt: skip
    constants = {"w": weight(1, 4, 1, 3, 3), "u": weight(2, 4, 4, 2, 2), "s": weight(3, 4), "b": weight(4, 4)}
    constants |= {"m": weight(5, 4), "v": 1 + weight(6, 4) ** 2}
    made = model(nodes, {"x": (4, 1, 8, 8)}, ["y"], constants)
    x = np.random.default_rng(9).standard_normal((4, 1, 8, 8)).astype(np.float32)
    found, whole, _ = run_ranks(made, "stages: [c, p]\nmicro_batches: 4\n", tmp_path, {"x": x}, 2)
    assert close(found, whole)


def test_stages_that_work_side_by_side_take_equally_long(tmp_path: Path) -> None:
    """The longest bounds a run; others have as many bytes of weights, which convolutions read for every pixel."""
    channels, nodes, constants = (16, 16, 64), [], {}
    x = "x"
    for k, (take, give) in enumerate(zip((4, *channels), channels, strict=False)):
        constants[f"w{k}"] = weight(k, give, take, 3, 3)
        nodes += [node("Conv", f"{x} w{k}", f"c{k}", pads=[1, 1, 1, 1], strides=[1 + k, 1 + k])]
        x = f"c{k}"
    made = model([*nodes, node("Relu", x, "y")], {"x": (4, 4, 24, 24)}, ["y"], constants)
    told = {}
    for shard in ("stages: 2\n", "stages: 2\nmicro_batches: 2\n"):
        told[shard] = [{n.name for n in g.nodes if n.op.name == "Conv"} for g in cut(made, shard, tmp_path).graphs]
    by_weights, by_time = told.values()  # 0.6, 2.3 and 9.2 thousand weights; 332, 332 and 147 thousand operations
    assert [len(each) for each in by_weights] == [2, 1] and [len(each) for each in by_time] == [1, 2]


def test_batches_that_have_no_parts_are_refused(tmp_path: Path) -> None:
    for batch, message in (("n", "'x' is n long"), (4, "'x' is 4 long, of which there are no 3 parts")):
        with pytest.raises(ConfigError, match=message):
            cut(mlp(batch=batch), MICRO, tmp_path)
    nodes = [node("Relu", "x", "a"), node("CumSum", "a zero", "b"), node("Relu", "b", "y")]
    made = model(nodes, {"x": (6, 4)}, "y", {"zero": np.array(0)})
    with pytest.raises(UnsupportedError, match=r"CumSum.* needs the whole batch"):
        cut(made, MICRO, tmp_path)


WRONG = {
    "stages: [h0, h44]": (1, "no node and no tensor is called 'h44'; did you mean 'h4'?"),
    "stages:\n  - h0\n  - [h3, nothing*]": (3, "no node and no tensor is called 'nothing*'"),
    "stages:\n  - [h0, h1]\n  - 'h*'": (3, "'h0' is in stage 0 and, by 'h*', in stage 1"),
    "stages: [h7, h0]": (1, "reads what node"),
    "stages: [h0, h1, y, h7]": (1, "reads what node"),
    "stages: 30": (1, "30 stages of a model of 9 nodes"),
}


@pytest.mark.parametrize("shard", WRONG)
def test_a_cut_that_cannot_be_is_refused_by_name(shard: str, tmp_path: Path) -> None:
    line, message = WRONG[shard]
    with pytest.raises(ConfigError) as caught:
        cut(mlp(), shard, tmp_path)
    assert f"shard.yaml:{line}: " in caught.value.message and message in caught.value.message


def test_a_stage_that_feeds_an_earlier_one_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"node 3 \(Add, 'h3'\) of stage 0 reads what node 2 \(MatMul, 'h2'\) of"
    ) as caught:
        cut(mlp(), "stages: [[h0, h3, h4, y], h1]", tmp_path)
    assert "a stage feeds later ones only" in str(caught.value)
