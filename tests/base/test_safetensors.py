"""Arrays of .safetensors files, whole and damaged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from torshc.base.arrays import TooLarge
from torshc.base.safetensors import Safetensors

A = np.arange(6, dtype=np.float32).reshape(2, 3)
ENTRIES: dict[str, Any] = {
    "a": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
    "torshc.step": {"dtype": "I64", "shape": [], "data_offsets": [24, 32]},
}


def written(folder: Path, entries: Any, data: bytes = A.tobytes() + (7).to_bytes(8, "little")) -> Path:
    file = folder / "x.safetensors"
    header = entries if isinstance(entries, bytes) else json.dumps(entries).encode()
    file.write_bytes(len(header).to_bytes(8, "little") + header + data)
    return file


def test_entries_are_arrays(tmp_path: Path) -> None:
    with Safetensors(written(tmp_path, ENTRIES)) as found:
        assert found.names == ("a", "torshc.step")
        assert np.array_equal(found.array("a"), A) and found.array("torshc.step") == 7
        with pytest.raises(TooLarge, match=r"'a' is float32\[2, 3\] of 24 bytes, and at most 8"):
            found.array("a", 8)


def test_a_state_file_shows_its_weights(tmp_path: Path) -> None:
    state = {"__metadata__": {"format": "torshc-state"}, **ENTRIES}
    with Safetensors(written(tmp_path, state)) as found:
        assert found.names == ("a",)


@pytest.mark.parametrize("header", [b"", b"{", b"[]", b"7", b"[" * 100000])
def test_a_header_that_is_none_is_refused(header: bytes, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"it is no \.safetensors file, or damaged"):
        Safetensors(written(tmp_path, header))
    (tmp_path / "long").write_bytes(b"\xff" * 20)
    with pytest.raises(ValueError, match="longer than the file"):
        Safetensors(tmp_path / "long")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dtype": "BF16"}, "BF16, which NumPy lacks"),
        ({"shape": [2, 4]}, "which is not what its shape says"),
        ({"shape": [-2, -3]}, "which is not what its shape says"),
        ({"shape": "x"}, "is no array"),
        ({"shape": [float("inf")]}, "is no array"),
        ({"shape": [10**30, 0], "data_offsets": [0, 0]}, "a shape that NumPy lacks"),
        ({"shape": [1] * 70, "data_offsets": [0, 4]}, "a shape that NumPy lacks"),
        ({"dtype": []}, "which NumPy lacks"),
        ({"data_offsets": [16, 40]}, "it is cut off within 'a'"),
        ({"data_offsets": [-8, 16]}, "which is not what its shape says"),
        ({"data_offsets": [24, 0]}, "which is not what its shape says"),
        ({"data_offsets": None}, "is no array"),
    ],
)
def test_an_entry_that_is_damaged_is_refused(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    with (
        Safetensors(written(tmp_path, {"a": {**ENTRIES["a"], **change}})) as found,
        pytest.raises(ValueError, match=message),
    ):
        found.array("a")
