"""Models that say themselves how they are cut."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import torshc
from tests.support.models import node, save
from tests.support.ranks import World
from torshc.base.errors import ConfigError, UnsupportedError
from torshc.base.options import CompileOptions
from torshc.pipeline.ranks import cut_model
from torshc.sharding import Cut

from .models import decoder, mlp
from .test_stages import IDS, X
from .test_tensors import close

Blocks = list[tuple[int | None, int]]


def spec(
    tensor: str, axis: int = 0, blocks: Blocks | None = None, devices: list[int] | None = None, **groups: Any
) -> onnx.ShardingSpecProto:
    """How a node has a tensor: with blocks split along an axis, else whole."""
    found = onnx.ShardingSpecProto(tensor_name=tensor, device=[0, 1] if devices is None else devices)
    for key, group in groups.items():
        found.index_to_device_group_map.add(key=int(key[1:]), value=group)
    if blocks:
        dim = found.sharded_dim.add(axis=axis)
        for length, shards in blocks:
            more = {} if length is None else {"dim_value": length}
            dim.simple_sharding.add(num_shards=shards, **more)
    return found


def annotated(
    made: onnx.ModelProto, specs: dict[str, list[onnx.ShardingSpecProto]], devices: int = 2, **stages: int
) -> onnx.ModelProto:
    """A model with what nodes, by what they make, say of tensors and stages."""
    made.ir_version = 11
    made.configuration.add(name="pair", num_devices=devices)
    for n in made.graph.node:
        if n.output[0] in specs or n.output[0] in stages:
            own = n.device_configurations.add(configuration_id="pair", sharding_spec=specs.get(n.output[0], []))
            if n.output[0] in stages:
                own.pipeline_stage = stages[n.output[0]]
    return made


def cut(made: onnx.ModelProto, folder: Path, how: str = "model") -> Cut:
    return cut_model(save(made, folder / "m.onnx"), CompileOptions(shard=Path(how)))


def answers(made: onnx.ModelProto, folder: Path, feeds: dict[str, Any], ranks: int = 2) -> tuple[list[Any], Any, World]:
    file = save(made, folder / "m.onnx")
    torshc.compile(file, folder / "r.tsc", shard="model")
    world = World(ranks)
    found = world.run(folder / "r.tsc", feeds)
    for each in found:
        if isinstance(each, Exception):
            raise each
    return [each["y"] for each in found], torshc.compile(file).run(feeds)["y"], world


COLUMNS = {"h0": [spec("a.up", 1, [(24, 2)])], "h4": [spec("b.up", -1, [(None, 2)])]}


def test_columns_of_products(tmp_path: Path) -> None:
    """What follows is as where a file says the same."""
    found, whole, world = answers(annotated(mlp(), COLUMNS), tmp_path, {"x": X})
    assert close(found, whole) and [kind for kind, _ in world.log[0]] == ["sum", "sum"]


def test_queries_keys_and_values_are_blocks_of_an_axis(tmp_path: Path) -> None:
    """One axis of 3 x 16, of which the second is split."""
    specs = {
        "p0": [spec("attn.qkv", 1, [(3, 1), (16, 2)])],
        "u0": [spec("mlp.up", 0, [(64, 2)]), spec("row")],
        "e": [spec("table", 0, [(24, 2)])],
    }
    found, whole, world = answers(annotated(decoder(), specs), tmp_path, {"ids": IDS})
    assert close(found, whole) and [kind for kind, _ in world.log[0]] == ["sum", "sum", "sum"]


def test_rows_of_a_batch(tmp_path: Path) -> None:
    """Replicas of the model, of which each has a part of the batch, gathered at the end."""
    made = annotated(mlp(batch=4), {"h0": [spec("x", 0, [(4, 2)])], "h3": [spec("x", 0, [(4, 2)])]})
    found, whole, world = answers(made, tmp_path, {"x": X[:4]})
    assert close(found, whole) and [kind for kind, _ in world.log[0]] == ["gather"]


def test_a_sum_is_scattered_where_its_result_is_split(tmp_path: Path) -> None:
    specs = {**COLUMNS, "h2": [spec("h2", 0, [(4, 2)])]}
    found, whole, world = answers(annotated(mlp(batch=4), specs), tmp_path, {"x": X[:4]})
    assert close(found, whole) and [kind for kind, _ in world.log[0]] == ["scatter", "gather", "sum", "gather"]


def test_a_result_is_whole_where_that_is_said(tmp_path: Path) -> None:
    specs = {**COLUMNS, "h1": [spec("h1", devices=[5], _5=[0, 1])]}
    found, whole, world = answers(annotated(mlp(), specs), tmp_path, {"x": X})
    assert close(found, whole) and [kind for kind, _ in world.log[0]] == ["gather", "sum"]


def test_stages(tmp_path: Path) -> None:
    found, whole, _ = answers(annotated(mlp(), {}, h0=0, h4=1), tmp_path, {"x": X})
    assert all(np.array_equal(y, whole) for y in found)
    done = cut(annotated(mlp(), {"h0": [spec("x", devices=[0])]}, h0=0, h4=1), tmp_path)
    assert [(t.source, t.target, t.name) for t in done.transfers] == [(0, 1, "h3"), (1, 0, "y")]


def test_one_configuration_of_several_is_named(tmp_path: Path) -> None:
    made = annotated(mlp(), COLUMNS)
    made.configuration.add(name="four", num_devices=4)
    with pytest.raises(ConfigError, match="the configurations 'pair', 'four'") as caught:
        cut(made, tmp_path)
    assert "--shard model:pair" in caught.value.remedy
    assert len(cut(made, tmp_path, "model:pair").graphs) == 2 and len(cut(made, tmp_path, "model:four").graphs) == 4
    with pytest.raises(ConfigError, match="did you mean 'pair'"):
        cut(made, tmp_path, "model:pai")


WRONG: dict[str, tuple[dict[str, list[onnx.ShardingSpecProto]], dict[str, int], str]] = {
    "two axes": (
        {"h0": [onnx.ShardingSpecProto(tensor_name="a.up", sharded_dim=[*spec("", 0, [(8, 2)]).sharded_dim,
                                                                        *spec("", 1, [(24, 2)]).sharded_dim])]},
        {}, "MatMul node[0], tensor 'a.up': 2 axes are split",
    ),
    "other shards": ({"h0": [spec("a.up", 1, [(24, 3)])]}, {}, "cut into 3 shards, and there are 2 ranks"),
    "other order": ({"h0": [spec("a.up", 1, [(24, 2)], [1, 0])]}, {}, "on the devices 1, 0, and of 2 ranks part k"),
    "part of devices": ({"h0": [spec("a.up", devices=[1])]}, {}, "on the devices 1, and of 2 ranks all devices"),
    "no axis": ({"h0": [spec("a.up", 2, [(24, 2)])]}, {}, "2 dimensions and no axis 2"),
    "another length": ({"h0": [spec("a.up", 1, [(5, 1), (4, 2)])]}, {}, "24 long, and is annotated as 5 x 4"),
    "odd": ({"h0": [spec("a.up", 1, [(8, 1), (3, 2)])]}, {}, "24 long, which 2 ranks cannot share as 8 sections"),
    "symbolic": ({"h0": [spec("x", 0, [(None, 2)])]}, {}, "which only a run knows"),
    "no tensor": ({"h0": [spec("b.up", 1, [(24, 2)])]}, {}, "no such tensor there"),
    "both": ({"h0": COLUMNS["h0"]}, {"h0": 0, "h4": 1}, "MatMul node[0] has parts of tensors, and others have stages"),
    "stage": ({}, {"h0": 0, "h4": 2}, "MatMul node[4] is in stage 2 of a configuration of 2 devices"),
    "no nodes": ({}, {"h0": 1}, "stage 0 has no nodes"),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_what_ranks_cannot_do_is_refused(what: str, tmp_path: Path) -> None:
    specs, stages, message = WRONG[what]
    with pytest.raises(ConfigError) as caught:
        cut(annotated(mlp(), specs, **stages), tmp_path)
    assert message in caught.value.message and caught.value.remedy


def test_all_of_it_is_told_at_once(tmp_path: Path) -> None:
    specs = {"h0": [spec("a.up", 2, [(24, 2)])], "h4": [spec("b.up", 1, [(24, 3)])]}
    with pytest.raises(ConfigError) as caught:
        cut(annotated(mlp(), specs), tmp_path)
    assert "node[0], tensor 'a.up'" in caught.value.message and "node[4], tensor 'b.up'" in caught.value.message


def test_an_operator_that_cannot_be_split_is_named(tmp_path: Path) -> None:
    made = mlp(batch=4)
    made.graph.node.append(node("CumSum", "y axis", "z"))
    made.graph.initializer.append(onnx.numpy_helper.from_array(np.array(0), "axis"))
    made.graph.output[0].name = "z"
    with pytest.raises(UnsupportedError, match=r"CumSum.*: the model splits what it reads, and ranks compute it whole"):
        cut(annotated(made, {"z": [spec("y", 0, [(4, 2)])]}), tmp_path)


def test_models_without_annotations_are_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no device configurations \(IR 11\)"):
        cut(mlp(), tmp_path)
    made = annotated(mlp(), COLUMNS)
    made.configuration[0].name = "two"
    with pytest.raises(ConfigError, match="nodes name the configurations 'pair', which"):
        cut(made, tmp_path)


def test_bodies_have_no_annotations(tmp_path: Path) -> None:
    body = onnx.helper.make_graph([node("Relu", "x", "r")], "body", [], [onnx.helper.make_empty_tensor_value_info("r")])
    made = annotated(mlp(), COLUMNS)
    made.graph.node.append(node("If", "c", "i", then_branch=body, else_branch=body))
    made.graph.initializer.append(onnx.numpy_helper.from_array(np.array(True), "c"))
    made.graph.node[-1].attribute[0].g.node[0].device_configurations.add(configuration_id="pair")
    with pytest.raises(ConfigError, match=r"Relu node\[0\]: annotations in branches"):
        cut(made, tmp_path)
