"""Bundles: whole or not at all, whatever happens while they are written; weights; manifests."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import resource
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import jsonschema
import ml_dtypes
import numpy as np
import pytest

from tests.support.forks import in_child
from torshc.base.digest import file_sha256
from torshc.base.errors import BundleError, ConfigError, OutputError
from torshc.base.manifest import Manifest, TensorSpec, manifest_hash
from torshc.bundle import manifest, package, weights
from torshc.bundle.package import BundleWriter
from torshc.bundle.weights import WeightsInfo, weight_offsets, write_weights
from torshc.runtime.manifest import read_manifest

from . import tiny

LIBRARY = b"library" * 1000


def small(place: Path, mark: float = 1.0) -> Path:
    """Writes a bundle around a library that is none: all of the writing, none of the compiling."""
    library = place.parent / f"library-{os.getpid()}"
    library.write_bytes(LIBRARY)
    with BundleWriter(place) as bundle:
        info = bundle.write_weights([[np.full(1000, mark, np.float32)], [np.arange(10)]])
        digest = bundle.add_library(library)
        bundle.add_text("model.h", "/* header */")
        bundle.add_sources({"k0.c": "int x;"})
        return bundle.commit(tiny.manifest_of(None, info, False, digest, False))


def check(place: Path, marks: tuple[float, ...]) -> None:
    """The bundle at ``place`` is whole and is one of those."""
    assert sorted(p.name for p in place.iterdir()) == ["libmodel.so", "manifest.json", "model.h", "src", "weights.bin"]
    found = read_manifest(place)
    assert found.library_sha256 == file_sha256(place / "libmodel.so")
    assert found.weights_sha256 == file_sha256(place / "weights.bin")
    assert np.fromfile(place / "weights.bin", np.float32, 1)[0] in marks


WATCHED = ("open", "os.", "shutil.", "fcntl.", "ctypes.call_function")


def killed_at(step: int, place: Path) -> int:
    """Writes in a child that is killed at its ``step``-th call to the system."""

    def work() -> None:
        left = step

        def hook(event: str, args: object) -> None:
            nonlocal left
            if event.startswith(WATCHED):
                left -= 1
                if left == -1:  # os.kill is such a call itself
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(hook)
        small(place, 2.0)

    return in_child(work)


@pytest.mark.parametrize("replace", [False, True], ids=["new", "replaced"])
def test_killed_at_any_moment(tmp_path: Path, replace: bool, record_property: Callable[[str, object], None]) -> None:
    place, steps = tmp_path / "out.tsc", 0
    while True:
        if replace:
            small(place, 1.0)
        status = killed_at(steps, place)
        if place.exists():
            check(place, (1.0, 2.0) if replace else (2.0,))
        else:
            assert not replace
        if status == 0:
            break
        assert status == -signal.SIGKILL
        steps += 1
        small(place, 3.0)  # the next writer removes what the killed one left
        check(place, (3.0,))
        left = {p.name for p in tmp_path.iterdir() if not p.name.startswith("library")}
        assert left == {"out.tsc"}, (steps, left)
        if not replace:
            package.shutil.rmtree(place)
    assert steps > 10
    record_property("kills at calls to the system", steps)
    check(place, (2.0,))


def test_where_names_cannot_be_swapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(package, "_exchange", lambda a, b: False)
    small(tmp_path / "out.tsc", 1.0)
    small(tmp_path / "out.tsc", 2.0)
    check(tmp_path / "out.tsc", (2.0,))
    assert {p.name for p in tmp_path.iterdir()} == {"out.tsc"}


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EMFILE, errno.EROFS, errno.EACCES])
def test_any_failing_call_is_named_and_leaves_nothing(
    tmp_path: Path, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    small(tmp_path / "old.tsc", 1.0)

    def fail(*args: object, **kwargs: object) -> None:
        raise OSError(code, os.strerror(code))

    for name in ("mkdir", "open", "rename", "write_text"):
        with monkeypatch.context() as patch:
            library = tmp_path / f"library-{os.getpid()}"
            patch.setattr(Path, name, fail) if name != "open" else patch.setattr(
                weights, "write_weights", spoiled(fail)
            )
            with pytest.raises(OutputError, match=os.strerror(code)):
                small(tmp_path / "old.tsc", 2.0) if name != "write_text" else small(tmp_path / "new.tsc", 2.0)
        library.unlink(missing_ok=True)
        assert {p.name for p in tmp_path.iterdir()} == {"old.tsc"}, name
        check(tmp_path / "old.tsc", (1.0,))


def test_a_bundle_that_cannot_be_read_is_not_said_to_be_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small(tmp_path / "old.tsc")

    def fail(path: Path) -> bytes:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_bytes", fail)
        with pytest.raises(OutputError, match=r"cannot write .*old\.tsc: Input/output error"):
            BundleWriter(tmp_path / "old.tsc").__enter__()
    check(tmp_path / "old.tsc", (1.0,))


def spoiled(fail: Callable[..., None]) -> Callable[..., WeightsInfo]:
    def write(path: Path, arrays: object, identity: int | None = None) -> WeightsInfo:
        def arrays_that_fail() -> object:
            yield [np.zeros(5)]
            fail()

        return write_weights(path, arrays_that_fail())  # type: ignore[arg-type]

    return write


def test_a_full_disk(tmp_path: Path) -> None:
    def fill() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
        with pytest.raises(OutputError, match="File too large"), BundleWriter(tmp_path / "out.tsc") as bundle:
            bundle.write_weights([[np.zeros(1 << 20, np.float32)]])
        assert list(tmp_path.iterdir()) == []

    assert in_child(fill) == 0


def test_an_interrupt_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), BundleWriter(tmp_path / "out.tsc") as bundle:
        bundle.write_weights([[np.zeros(10)]])
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


def test_what_is_not_ours_is_left_alone(tmp_path: Path) -> None:
    def refused(place: Path) -> None:
        before = sorted(tmp_path.rglob("*"))
        with pytest.raises(OutputError) as caught:
            small(place)
        assert caught.value.remedy
        (place.parent / f"library-{os.getpid()}").unlink(missing_ok=True)
        assert sorted(tmp_path.rglob("*")) == before

    (tmp_path / "file").write_text("mine")
    refused(tmp_path / "file")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "thesis.txt").write_text("mine")
    refused(tmp_path / "folder")
    refused_bundle = small(tmp_path / "more.tsc")
    (refused_bundle / "notes.txt").write_text("mine")
    refused(tmp_path / "more.tsc")
    (tmp_path / "dangling").symlink_to("file")
    refused(tmp_path / "dangling")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "manifest.json").write_text('{"format": "another"}')
    refused(tmp_path / "other")
    with pytest.raises(OutputError, match="no folder"), BundleWriter(tmp_path / "nowhere" / "out.tsc"):
        pass


def test_an_empty_folder_and_a_link_to_a_bundle_are_replaced(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    check(small(tmp_path / "empty", 1.0), (1.0,))
    (tmp_path / "link").symlink_to("empty")
    small(tmp_path / "link", 2.0)
    check(tmp_path / "empty", (2.0,))
    assert (tmp_path / "link").is_symlink()


def test_names_as_long_as_they_may_be(tmp_path: Path) -> None:
    check(small(tmp_path / ("n" * 255), 1.0), (1.0,))
    check(small(tmp_path / 'quote" $(x) \n *', 1.0), (1.0,))


def test_two_writers_at_once(tmp_path: Path) -> None:
    place = tmp_path / "out.tsc"
    with BundleWriter(place) as slow:
        slow.write_weights([[np.full(10, 1.0, np.float32)]])
        small(place, 2.0)
        assert slow.weights.exists()  # the other one did not take it for a leftover
        check(place, (2.0,))
    check(place, (2.0,))


def test_weights_too_large_to_embed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(package, "EMBED_MAX", 100)
    with pytest.raises(ConfigError, match="embed"), BundleWriter(tmp_path / "out.tsc") as bundle:
        bundle.write_weights([[np.zeros(100)]], embed=True)
    assert list(tmp_path.iterdir()) == []


def test_weights_file(tmp_path: Path) -> None:
    arrays = [
        np.arange(5, dtype=np.float32),
        np.array(7, np.int64),
        np.zeros((0, 3)),
        np.arange(12, dtype=np.int16).reshape(3, 4).T,
        np.ones(64, ml_dtypes.bfloat16),
        np.array([True, False]),
    ]
    info = write_weights(tmp_path / "w", ([a[:1], a[1:]] if a.ndim else [a] for a in arrays))
    raw = (tmp_path / "w").read_bytes()
    assert info.offsets == weight_offsets([a.nbytes for a in arrays]) == (0, 256, 512, 512, 768, 1024)
    for array, offset in zip(arrays, info.offsets, strict=True):
        assert raw[offset : offset + array.nbytes] == array.tobytes()
    assert info.bytes == 1088 == len(raw) - 64 and info.sha256 == file_sha256(tmp_path / "w")
    assert raw[1088:1104] == b"TORSHC WEIGHTS 1" and raw[1104:1120] == info.bytes.to_bytes(
        8, "little"
    ) + info.id.to_bytes(8, "little")
    assert write_weights(tmp_path / "none", []) == WeightsInfo(0, 0, "", ()) and not (tmp_path / "none").exists()


def hostile() -> Manifest:
    names = ['"', "*/", "\n", "{{ }}", "../", "\u202e", "\x00", "é", "x" * 5000]
    base = tiny.manifest_of(None, WeightsInfo(64, 1, "0" * 64, (0,)), False, "0" * 64, True)
    tensors = tuple(TensorSpec(name, "f32", (name, 3)) for name in names)
    return dataclasses.replace(base, inputs=tensors, fallbacks=tuple(names), model="".join(names))


def test_manifest_schema() -> None:
    schema = json.loads(manifest.SCHEMA.read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    whole = hostile()
    for each in (whole, dataclasses.replace(whole, weights=None, arena_bytes="64*batch")):
        text = each.to_json()
        jsonschema.validate(json.loads(text), schema)
        assert text.isascii() and each.to_json() == text
    extra = json.loads(text) | {"extra": 1}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(extra, schema)


def test_the_schema_lists_every_field() -> None:
    schema = json.loads(manifest.SCHEMA.read_text())
    assert list(schema["properties"]) == list(json.loads(hostile().to_json())) == list(schema["required"])


@pytest.mark.parametrize(
    "change",
    [{"model": "other"}, {"format_version": 99}, {"format": "x"}, {"extra": 1}, {"opt_level": "3"}, {"steps": None}],
)
def test_altered_manifests(change: dict[str, object], tmp_path: Path) -> None:
    body = json.loads(hostile().to_json()) | change
    (tmp_path / "manifest.json").write_text(json.dumps(body))
    with pytest.raises(BundleError):
        read_manifest(tmp_path)
    body.pop("sha256")
    if not {"model", "extra", "opt_level"} & change.keys():  # what a run reads, even with a hash that matches
        body["sha256"] = manifest_hash(body)
        (tmp_path / "manifest.json").write_text(json.dumps(body))
        with pytest.raises(BundleError):
            read_manifest(tmp_path)


@pytest.mark.parametrize("text", ["", "[]", "{", "null", "[" * 100000])
def test_what_is_no_manifest(text: str, tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(BundleError):
        read_manifest(tmp_path)
