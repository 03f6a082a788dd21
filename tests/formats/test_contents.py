"""Files that change while a model is compiled: what was read stays, and what changes meanwhile is told."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

import torshc
from torshc.base import arrays
from torshc.base.errors import ModelError, ResourceError
from torshc.base.options import CompileOptions
from torshc.formats import contents, load_graph
from torshc.formats.contents import Contents, read_file
from torshc.formats.model import Misfit
from torshc.pipeline.compiler import compile_model

W = np.arange(64 << 10, dtype=np.float32).reshape(256, 256)


def product(folder: Path, external: bool) -> Path:
    """A product by a weight of 256 KiB, beside the model or inside it."""
    w = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=W.shape)
    if external:
        (folder / "w.bin").write_bytes(W.tobytes())
        w.data_location = TensorProto.EXTERNAL
        w.external_data.add(key="location", value="w.bin")
    else:
        w.raw_data = W.tobytes()
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 256]) for n in "xy")
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", [x], [y], [w])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    (folder / "m.onnx").write_bytes(made.SerializeToString())
    return folder / "m.onnx"


@pytest.mark.parametrize("external", [False, True])
@pytest.mark.parametrize("happens", [lambda path: os.truncate(path, 0), Path.unlink], ids=["shortened", "gone"])
def test_after_the_import_files_are_not_needed(external: bool, happens: Callable[[Path], None], tmp_path: Path) -> None:
    """Weights of a mapped file that is shortened would end this process by SIGBUS."""
    path = product(tmp_path, external)
    file = tmp_path / "w.bin" if external else path

    def changed(stage: str, seconds: float) -> None:
        if stage == "import" and seconds:
            happens(file)

    compile_model(path, tmp_path / "m.tsc", CompileOptions(), changed)
    assert not file.exists() or not file.stat().st_size
    with torshc.load(tmp_path / "m.tsc") as model:
        (y,) = model.run({"x": np.eye(256, dtype=np.float32)[:1]}).values()
    np.testing.assert_array_equal(y[0], W[0])


@pytest.mark.parametrize("external", [False, True])
def test_every_byte_is_read_once(external: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, read = product(tmp_path, external), 0

    def count_bytes(stream: arrays.Stream, count: int) -> arrays.Array:
        nonlocal read
        read += count
        return arrays.read_bytes(stream, count)

    monkeypatch.setattr(contents, "read_bytes", count_bytes)
    load_graph(path)
    assert read == sum(file.stat().st_size for file in tmp_path.iterdir())


@pytest.mark.parametrize("external", [False, True])
def test_shortened_while_it_is_read(external: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = product(tmp_path, external)
    file = tmp_path / "w.bin" if external else path

    def short(stream: arrays.Stream, count: int) -> arrays.Array:
        if count > 1000 or not external:
            os.truncate(file, 100)
        return arrays.read_bytes(stream, count)

    monkeypatch.setattr(contents, "read_bytes", short)
    with pytest.raises(ModelError, match=r"was shortened while it was read: it ends after 100 of \d+ bytes") as error:
        load_graph(path)
    assert file.name in error.value.message and "compile again" in error.value.remedy


def test_written_while_it_is_read(tmp_path: Path) -> None:
    """Parts of one model are of one version of a file."""
    reader, path = Contents(), tmp_path / "w.bin"
    path.write_bytes(bytes(8))
    assert bytes(reader.read(path, "w.bin", 0, 4)) == bytes(4)
    path.write_bytes(b"12345678")
    os.utime(path, (1, 1))
    with pytest.raises(Misfit, match=r"w\.bin changed while it was read"):
        reader.read(path, "w.bin", 4, 4)
    assert bytes(Contents().read(path, "w.bin", 4, 4)) == b"5678"


def test_a_link_in_place_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "w.bin").symlink_to("/etc/passwd")
    with pytest.raises(Misfit, match=r"w\.bin cannot be read"):
        Contents(follow=False).read(tmp_path / "w.bin", "w.bin")
    assert Contents().read(tmp_path / "w.bin", "w.bin")


def test_what_is_held_is_not_kept_twice(tmp_path: Path) -> None:
    path = tmp_path / "w.bin"
    path.write_bytes(bytes(1000))
    one, two = read_file(path), read_file(path)
    assert one.obj is two.obj and one.readonly
    (key,) = [key for key, held in contents._HELD.items() if held is one.obj]
    del one, two
    assert key not in contents._HELD


def test_what_is_held_is_no_longer_in_the_file(tmp_path: Path) -> None:
    """Of the same size and times, as two files that are written one after the other may have."""
    path = tmp_path / "w.bin"
    path.write_bytes(b"old")
    status = path.stat()
    old = read_file(path)
    path.write_bytes(b"new")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert (bytes(old), bytes(read_file(path))) == (b"old", b"new")


def test_no_memory(tmp_path: Path) -> None:
    """A file of holes, larger than any memory."""
    with (tmp_path / "w.bin").open("wb") as file:
        file.truncate(1 << 43)
    with pytest.raises(ResourceError, match=r"w\.bin cannot be read: Cannot allocate memory"):
        Contents().read(tmp_path / "w.bin", "w.bin")
