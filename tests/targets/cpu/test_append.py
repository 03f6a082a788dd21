"""Caches with new rows: in place they get the bits that a copy gets, and no other array may be written so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import torshc
from tests.support.models import parsed, save
from tests.support.seeded import seeded
from torshc.base.errors import RunError

RNG = seeded(3)
GROUPS = """<ir_version: 10, opset_import: ["": 18, "com.microsoft": 1]>
g (float[1,s,128] q, float[1,s,64] k, float[1,s,64] v, int64[1,total] mask,
   float[1,2,room,32] past_k, float[1,2,room,32] past_v)
  => (float[1,s,128] y, float[1,2,n,32] present_k, float[1,2,n,32] present_v) {
  axes = Constant<value_ints=[1]>()
  one = Constant<value_int=1>()
  count = ReduceSum<keepdims=0>(mask, axes)
  last64 = Sub(count, one)
  last = Cast<to=6>(last64)
  sizes = Shape(mask)
  total64 = Gather(sizes, one)
  longest = Cast<to=6>(total64)
  y, present_k, present_v = com.microsoft.GroupQueryAttention<num_heads=4, kv_num_heads=2>(
    q, k, v, past_k, past_v, last, longest)
}"""


def scatter(mode: str = "linear", places: str = ", at") -> str:
    """A cache that a product reads, too."""
    return f"""<ir_version: 11, opset_import: ["": 24]>
    g (float[2,3,16,8] past, float[2,3,s,8] rows, int64[2] at) => (float[2,3,16,8] present, float[2,3,16,1] y) {{
      shape = Constant<value_ints=[8,1]>()
      ones = Constant<value_floats=[1.0,1.0,1.0,1.0,1.0,1.0,1.0,1.0]>()
      w = Reshape(ones, shape)
      present = TensorScatter<mode="{mode}">(past, rows{places})
      y = MatMul(present, w)
    }}"""


def drawn(*shape: int) -> Any:
    return RNG.standard_normal(shape, np.float32)


def compiled(text: str, folder: Path, **options: Any) -> Any:
    torshc.compile(save(parsed(text, 24 if "TensorScatter" in text else 18), folder), folder / "m.tsc", **options)
    return torshc.load(folder / "m.tsc", threads=2)


def check_in_place(loaded: Any, feeds: dict[str, Any]) -> None:
    """A run gives the same whether the cache is copied or not."""
    wanted = loaded.run(feeds)
    own = {name: x.copy() for name, x in feeds.items()}
    got = loaded.run(own, out={new: own[old] for new, old in loaded.shared.items()})
    assert loaded.shared
    for name, x in wanted.items():
        np.testing.assert_array_equal(got[name], x)
    for new, old in loaded.shared.items():
        assert got[new] is own[old]


@pytest.mark.parametrize("options", [{}, {"specialize": ["s=1"]}, {"isa": "x86-64-v2,x86-64-v3"}])
def test_groups_of_heads(options: dict[str, Any], tmp_path: Path) -> None:
    """Where the cache has room for all words, as an equation of a run's sizes says alone."""
    with compiled(GROUPS, tmp_path, **options) as loaded:
        assert loaded.shared == {"present_k": "past_k", "present_v": "past_v"}
        for s, total, room in [(1, 1, 16), (1, 9, 16), (1, 16, 16), (5, 5, 7), (4, 16, 16), (1, 3, 3)]:
            feeds = {"q": drawn(1, s, 128), "k": drawn(1, s, 64), "v": drawn(1, s, 64)}
            feeds |= {"mask": np.ones((1, total), np.int64)}
            check_in_place(loaded, feeds | {n: drawn(1, 2, room, 32) for n in ("past_k", "past_v")})


@pytest.mark.parametrize("places", [", at", ""])
def test_tensor_scatter(places: str, tmp_path: Path) -> None:
    with compiled(scatter(places=places), tmp_path) as loaded:
        for s, at in [(1, (0, 15)), (3, (13, 2)), (16, (0, 0)), (0, (3, 4))]:
            check_in_place(loaded, {"past": drawn(2, 3, 16, 8), "rows": drawn(2, 3, s, 8), "at": np.array(at)})


def test_rows_beyond_the_cache_leave_it_as_it_is(tmp_path: Path) -> None:
    with compiled(scatter(), tmp_path) as loaded:
        for place in (14, -1, 2**62):
            past = drawn(2, 3, 16, 8)
            before = past.copy()
            with pytest.raises(RunError, match="out of range"):
                loaded.run({"past": past, "rows": drawn(2, 3, 3, 8), "at": np.array([0, place])}, out={"present": past})
            np.testing.assert_array_equal(past, before)


def test_other_overlaps_are_refused_by_name(tmp_path: Path) -> None:
    with compiled(GROUPS, tmp_path) as loaded:
        room = np.zeros((3, 1, 2, 16, 32), np.float32)
        feeds = {"q": drawn(1, 1, 128), "k": drawn(1, 1, 64), "v": drawn(1, 1, 64), "mask": np.ones((1, 4), np.int64)}
        feeds |= {"past_k": room[0], "past_v": room[1]}
        with pytest.raises(RunError, match='output 1 "present_k" overlaps input 5 "past_v"'):
            loaded.run(feeds, out={"present_k": room[1]})
        beside = room.reshape(-1)[32 : 32 + room[0].size].reshape(room[0].shape)
        with pytest.raises(RunError, match='"present_k" overlaps input 4 "past_k" and is not the same buffer'):
            loaded.run(feeds, out={"present_k": beside})
        with pytest.raises(RunError, match='output 2 "present_v" overlaps output 1 "present_k"'):
            loaded.run(feeds, out={"present_k": room[2], "present_v": room[2]})
        longer = feeds | {"mask": np.ones((1, 17), np.int64)}  # the result is longer than the cache
        flat = np.zeros(room[0].size + 64, np.float32)
        longer["past_k"] = flat[: room[0].size].reshape(room[0].shape)
        with pytest.raises(RunError, match='"present_k" overlaps input 4 "past_k" and is not the same buffer'):
            loaded.run(longer, out={"present_k": flat.reshape(1, 2, 17, 32)})


def test_a_cache_that_another_kernel_reads_is_not_shared(tmp_path: Path) -> None:
    """Nor one that is written around its end, or that grows."""
    late = scatter().replace("y = MatMul(present, w)", "z = MatMul(present, w)\n v = MatMul(past, w)\n y = Add(z, v)")
    for k, text in enumerate((late, scatter("circular"))):
        folder = tmp_path / str(k)
        folder.mkdir()
        with compiled(text, folder) as loaded:
            assert loaded.shared in ({}, {"present": "past"})
            past = drawn(2, 3, 16, 8)
            feeds = {"past": past, "rows": drawn(2, 3, 1, 8), "at": np.array([15, 3])}
            wanted = loaded.run(feeds)["y"]
            if loaded.shared:  # the other reader comes first
                np.testing.assert_array_equal(loaded.run(feeds, out={"present": past})["y"], wanted)
            else:
                with pytest.raises(RunError, match="overlaps"):
                    loaded.run(feeds, out={"present": past})


def test_the_manifest_says_it(tmp_path: Path) -> None:
    import json

    with compiled(scatter(), tmp_path):
        pass
    manifest = json.loads((tmp_path / "m.tsc" / "manifest.json").read_text())
    assert manifest["shared"] == [{"output": 0, "input": 0}]
