"""Files of arrays, whole and damaged."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import pytest

from torshc.arrays import load_archive, load_array


def test_arrays_come_back(tmp_path: Path) -> None:
    for k, array in enumerate((np.arange(6.0).reshape(2, 3), np.zeros((0, 3), np.int8), np.array(True))):
        np.save(tmp_path / f"{k}.npy", array)
        found = load_array(tmp_path / f"{k}.npy")
        assert type(found) is np.ndarray and found.dtype == array.dtype
        np.testing.assert_array_equal(found, array)
    np.savez(tmp_path / "a.npz", a=np.arange(3), b=np.ones(2))
    assert sorted(load_archive(tmp_path / "a.npz")) == ["a", "b"]
    assert sorted(load_archive(tmp_path / "a.npz", {"b", "c"})) == ["b"]


def header(text: str) -> bytes:
    body = (text + "\n").encode()
    return b"\x93NUMPY\x01\x00" + len(body).to_bytes(2, "little") + body


@pytest.mark.parametrize(
    "content",
    [b"", b"not an array", header("{'descr': '<f4', 'shape': (('"), header("(" * 900),
     header("{'descr': '<f4', 'fortran_order': False, 'shape': (2000000000000,)}") + b"1234",
     header("{'descr': '|O', 'fortran_order': False, 'shape': (1,)}") + b"12345678"],
    ids=["empty", "text", "broken", "deep", "too-long", "objects"],
)  # fmt: skip
def test_damaged_files(content: bytes, tmp_path: Path) -> None:
    """NumPy raises what reading Python's words raises; here all of it is one kind of error, without talk of pickles."""
    (tmp_path / "x.npy").write_bytes(content)
    with pytest.raises(ValueError, match=r"no \.npy file") as error:
        load_array(tmp_path / "x.npy")
    assert "pickle" not in str(error.value)


def test_more_than_the_header_says(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(3))
    with (tmp_path / "x.npy").open("ab") as file:
        file.write(b"more")
    with pytest.raises(ValueError, match="156 bytes, and its header says 152"):
        load_array(tmp_path / "x.npy")


def test_archives_of_something_else(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("readme.txt", "hello")
    with pytest.raises(ValueError, match=r"'readme\.txt' in it is no array"):
        load_archive(tmp_path / "x.npz")
    (tmp_path / "y.npz").write_bytes(b"PK\x03\x04 and no more")
    with pytest.raises(ValueError, match=r"no \.npz file"):
        load_archive(tmp_path / "y.npz")
