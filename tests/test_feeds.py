"""Inputs from files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from torshc.errors import RunError
from torshc.feeds import read_inputs
from torshc.runtime import TensorSpec

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
