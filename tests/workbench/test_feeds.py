"""Inputs from files, and what is drawn where there are none."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from torshc.base.errors import ConfigError, RunError
from torshc.runtime import ConditionSpec, Needs, SymbolSpec, TensorSpec, UseSpec
from torshc.workbench.feeds import make_inputs, read_inputs

IMAGE, LABELS = TensorSpec("image", "f32", (1, 3)), TensorSpec("labels", "i64", ("n",))


def test_a_wrong_key_of_an_archive_is_refused_with_the_right_one(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", images=np.zeros((1, 3), np.float32))
    with pytest.raises(RunError, match=r"a\.npz holds 'images', and there is no such input; did you mean 'image'\?"):
        read_inputs([str(tmp_path / "a.npz")], [IMAGE, LABELS])
    with pytest.raises(RunError, match=r"no such output; did you mean 'image'"):
        read_inputs([str(tmp_path / "a.npz")], [IMAGE], "output")
    with pytest.raises(RunError, match=r"holds no array 'image'; did you mean 'images'|belongs"):
        read_inputs([f"image={tmp_path / 'a.npz'}:image"], [IMAGE, LABELS])
    assert [*read_inputs([f"image={tmp_path / 'a.npz'}:images"], [IMAGE, LABELS])] == ["image"]


def test_the_remedy_lists_the_names_of_the_inputs() -> None:
    with pytest.raises(RunError, match="there is no input 'z'") as caught:
        read_inputs(["z=z.npy"], [IMAGE, LABELS])
    assert caught.value.remedy == "the inputs are 'image', 'labels'"


def test_a_size_that_contradicts_an_array_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "labels.npy", np.zeros(3, np.int64))
    files = [f"labels={tmp_path / 'labels.npy'}"]
    assert make_inputs([IMAGE, LABELS], files, {"n": 3}).dims == {"n": 3}
    with pytest.raises(ConfigError, match="'n' is 3 in the inputs that are given, and 4 is asked for"):
        make_inputs([IMAGE, LABELS], files, {"n": 4})


def test_elements_that_are_sizes_fit_the_dimensions(tmp_path: Path) -> None:
    specs = [TensorSpec("x", "f32", ("n",)), TensorSpec("k", "i64", (1,))]
    needs = Needs(
        conditions=(ConditionSpec("(1 <= k[0]) and (k[0] <= n)", "", ("k[0]", "n")),),
        elements=(SymbolSpec("k[0]", 1, 0, -9, 9, "element"),),
    )
    made = make_inputs(specs, defaults=(3, 5), needs=needs)
    assert made.dims == {"n": 3, "k[0]": 2} and made.arrays["k"] == [2]
    assert make_inputs(specs, dims={"k[0]": 1}, defaults=(3,), needs=needs).arrays["k"] == [1]
    np.save(tmp_path / "k.npy", np.array([40]))
    made = make_inputs(specs, [f"k={tmp_path / 'k.npy'}"], needs=needs)
    assert made.dims["k[0]"] == 40 and made.dims["n"] >= 40


def test_uses_are_evaluated_at_the_sizes() -> None:
    specs = [TensorSpec("x", "f32", ("b", "t")), TensorSpec("lens", "i32", ("b",))]
    made = make_inputs(specs, dims={"b": 40, "t": 6}, needs=Needs(uses=(UseSpec(1, "length", 1, "t"),)))
    assert set(made.arrays["lens"]) == {1, 2, 3, 4, 5, 6}


def test_uses_are_evaluated_at_elements_that_are_sizes() -> None:
    specs = [TensorSpec("last", "i64", ("b",)), TensorSpec("total", "i32", (1,))]
    total = SymbolSpec("total[0]", 1, 0, -9, 9, "element")
    needs = Needs(uses=(UseSpec(0, "index", 0, "max(b, total[0]) - 1"),), elements=(total,))
    made = make_inputs(specs, dims={"b": 1, "total[0]": 1}, needs=needs)
    assert made.arrays["last"] == [0] and made.arrays["total"] == [1]
