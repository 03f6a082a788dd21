"""Files of arrays, whole and damaged."""

from __future__ import annotations

import os
import tracemalloc
import zipfile
from io import FileIO
from pathlib import Path

import numpy as np
import pytest

from torshc.base import arrays
from torshc.base.arrays import Archive, Cut, TooLarge, load_array, read_bytes


def test_arrays_come_back(tmp_path: Path) -> None:
    square = np.arange(6.0).reshape(2, 3)
    several = {"a": square, "b": np.asfortranarray(square), "c": np.zeros((0, 3), np.int8), "d": np.array(True)}
    several |= {"e": np.array(["x", "yz"]), "f": np.zeros((2, 0), "<U0")}
    np.savez(tmp_path / "plain.npz", **several)
    np.savez_compressed(tmp_path / "packed.npz", **several)
    with Archive(tmp_path / "plain.npz") as plain, Archive(tmp_path / "packed.npz") as packed:
        assert plain.names == packed.names == tuple(several)
        for name, array in several.items():
            np.save(tmp_path / "x.npy", array)
            for found in (load_array(tmp_path / "x.npy"), plain.array(name), packed.array(name)):
                assert type(found) is np.ndarray and found.dtype == array.dtype and found.flags.aligned
                np.testing.assert_array_equal(found, array)


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
        archive.writestr("z.npy", "hello", zipfile.ZIP_LZMA)
    with Archive(tmp_path / "x.npz") as found:
        with pytest.raises(ValueError, match=r"'readme\.txt' in it is no array"):
            found.array("readme.txt")
        with pytest.raises(ValueError, match="'z' in it is packed otherwise"):
            found.array("z")
    (tmp_path / "y.npz").write_bytes(b"PK\x03\x04 and no more")
    with pytest.raises(ValueError, match=r"no \.npz file"):
        Archive(tmp_path / "y.npz")


def packed(path: Path, shape: str, data: bytes) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", header(f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}}}") + data)
    return path


def test_nothing_is_unpacked_that_is_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither where a limit is known nor where none is; what lies there as it is may be as large as the file."""
    np.save(tmp_path / "x.npy", np.zeros(1000, np.float32))
    np.savez(tmp_path / "plain.npz", x=np.zeros(1000, np.float32))
    archive = packed(tmp_path / "a.npz", "(1000,)", bytes(4000))
    monkeypatch.setattr(arrays, "UNPACKED", 3999)
    with Archive(archive) as found, Archive(tmp_path / "plain.npz") as plain:
        assert plain.array("x").size == found.array("x", 4000).size == load_array(tmp_path / "x.npy").size == 1000
        monkeypatch.setattr(arrays, "read_bytes", None)
        for read in (lambda: found.array("x", 3999), lambda: found.array("x"), lambda: plain.array("x", 3999)):
            with pytest.raises(TooLarge, match=r"'x' is float32\[1000\] of 4000 bytes, and at most 3999 are allowed"):
                read()
        with pytest.raises(TooLarge, match=r"it is float32\[1000\] of 4000 bytes"):
            load_array(tmp_path / "x.npy", 3999)


@pytest.mark.parametrize("shape", ["(2,)", "(999,)", "(1 << 40,)", "(-1,)", "(1073741824,)"])
def test_headers_that_do_not_fit_their_entry(shape: str, tmp_path: Path) -> None:
    with (
        Archive(packed(tmp_path / "a.npz", shape, bytes(400))) as found,
        pytest.raises(ValueError, match="is no array"),
    ):
        found.array("x")


def test_a_header_as_long_as_memory(tmp_path: Path) -> None:
    """It is not read as far as it says."""
    with zipfile.ZipFile(tmp_path / "a.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", b"\x93NUMPY\x02\x00" + (50 << 20).to_bytes(4, "little") + b" " * (50 << 20))
    with Archive(tmp_path / "a.npz") as found:
        tracemalloc.start()
        with pytest.raises(ValueError, match="'x' in it is no array"):
            found.array("x")
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert most < 4 << 20


@pytest.mark.parametrize("start", [0, 7])
def test_two_threads_read_a_large_file(start: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each its half, and where it ends too early the message says after how many bytes."""
    monkeypatch.setattr(arrays, "_AT_ONCE", 10)
    content = os.urandom(120)
    (tmp_path / "x").write_bytes(content)
    with FileIO(tmp_path / "x") as file:
        for count in (113, 40, 39, 0):
            file.seek(start)
            assert read_bytes(file, count).tobytes() == content[start : start + count] and file.tell() == start + count
        for there in (100, 20):  # in the second half, and in the first
            os.truncate(tmp_path / "x", start + there)
            file.seek(start)
            with pytest.raises(Cut, match=f"it ends after {there} of 110 bytes"):
                read_bytes(file, 110)
