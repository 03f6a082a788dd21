"""The kernel cache: damage, races, a full disk, limits."""

from __future__ import annotations

import multiprocessing
import os
import resource
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.forks import in_child
from torshc.base import cache as cache_module
from torshc.base import digest
from torshc.base.cache import Cache, content_key
from torshc.base.resources import cache_folder

KEY = content_key(["a"])


def files(folder: Path) -> list[Path]:
    return [p for p in folder.rglob("*") if p.is_file()]


def test_round_trip(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    assert cache.get(KEY) is None
    cache.put(KEY, b"object")
    cache.put(KEY, b"object")
    assert Cache(tmp_path).get(KEY) == b"object"
    assert [e.key for e in cache.entries()] == [KEY] and cache.size() > 6
    assert (cache.hits, cache.problem) == (0, "")


def test_large_entries_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digest, "PIECE", 4)
    cache, data = Cache(tmp_path), b"0123456789"
    parts = [data[at:end] for at, end in ((0, 4), (4, 7), (7, 10))]
    cache.put_parts(KEY, parts)
    with cache.reading(KEY) as kept:
        assert kept is not None
        assert b"".join(map(bytes, kept.parts(7))) == data[:7] and b"".join(map(bytes, kept.parts(3))) == data[7:]
        assert kept.is_intact()
    for read in (0, 9, 10, 11):  # what was read is less than there is, or is there in other parts, or more was wanted
        cache.put_parts(KEY, parts)
        with cache.reading(KEY) as kept:
            assert kept is not None and sum(map(len, kept.parts(read))) == min(read, 10)
            assert not kept.is_intact()
        assert files(tmp_path) == []
    with cache.reading(KEY) as kept:
        assert kept is None


@pytest.mark.parametrize("at", range(48, 48 + 40))
def test_a_bit_of_any_part_counts(at: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of more parts than wait for a thread at a time, whose memory is used again."""
    monkeypatch.setattr(digest, "PIECE", 4)
    cache, data = Cache(tmp_path), bytes(range(40))
    cache.put_parts(KEY, [data[k : k + 4] for k in range(0, 40, 4)])
    (path,) = files(tmp_path)
    whole = path.read_bytes()
    for entry in (whole, whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]):
        path.write_bytes(entry)
        with cache.reading(KEY) as kept:
            assert kept is not None and sum(map(len, kept.parts(40))) == 40
            assert kept.is_intact() == (entry == whole)
    assert files(tmp_path) == []


def test_a_failure_of_what_gives_the_parts_leaves_nothing(tmp_path: Path) -> None:
    def parts() -> Iterator[bytes]:
        yield b"begun"
        raise OSError(5, "Input/output error")

    cache = Cache(tmp_path)
    cache.put_parts(KEY, parts())
    assert files(tmp_path) == [] and "Input/output error" in cache.problem


def test_it_stays_within_its_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without being asked: after each large entry, and now and then after small ones."""
    monkeypatch.setattr(cache_module, "MOST", 1000)
    cache = Cache(tmp_path)
    keys = [content_key([str(k)]) for k in range(300)]
    for key in keys:
        cache.put(key, b"object")
    assert len(cache.entries()) < 300 and cache.get(keys[-1]) == b"object"
    monkeypatch.setattr(cache_module, "_LARGE", 500)
    cache.put(KEY, bytes(600))
    assert cache.size() <= 1000 and cache.get(KEY) == bytes(600)


def test_disabled() -> None:
    cache = Cache(None)
    cache.put(KEY, b"object")
    assert cache.get(KEY) is None and cache.size() == 0 and cache.clear() == 0


def test_damage_is_never_used(tmp_path: Path, record_property: Callable[[str, object], None]) -> None:
    cache = Cache(tmp_path)
    cache.put(KEY, b"object")
    (path,) = files(tmp_path)
    whole = path.read_bytes()
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        assert cache.get(KEY) is None and not path.exists()
        path.write_bytes(whole[:at])
        assert cache.get(KEY) is None
    path.write_bytes(whole + b"x")
    assert cache.get(KEY) is None
    path.mkdir()
    assert cache.get(KEY) is None and cache.problem
    path.rmdir()
    cache.put(KEY, b"object")
    assert cache.get(KEY) == b"object"
    record_property("damaged entries", 2 * len(whole) + 2)


def test_an_entry_under_another_name_is_never_used(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    cache.put(KEY, b"object")
    (path,) = files(tmp_path)
    other = content_key(["b"])
    place = tmp_path / "objects-1" / other[:2] / f"{other[2:]}.o"
    place.parent.mkdir(exist_ok=True)
    place.write_bytes(path.read_bytes())
    assert cache.get(other) is None and not place.exists() and cache.get(KEY) == b"object"


def test_nobody_else_can_write_to_it(tmp_path: Path) -> None:
    """Whatever the umask; what others could write to is not used."""

    def fill() -> None:
        os.umask(0)
        cache = Cache(tmp_path / "new" / "cache")
        cache.put(KEY, b"object")
        assert cache.get(KEY) == b"object" and not cache.problem

    assert in_child(fill) == 0
    made = sorted((tmp_path / "new").rglob("*"))
    assert [p.stat().st_mode & 0o777 for p in made] == [0o700] * 3 + [0o600]
    made[-1].chmod(0o660)
    assert Cache(tmp_path / "new" / "cache").get(KEY) is None and not made[-1].exists()
    for folder, mode in ((made[0], 0o770), (made[1], 0o1777)):
        folder.chmod(mode)
        cache = Cache(tmp_path / "new" / "cache")
        cache.put(KEY, b"object")
        assert cache.get(KEY) is None and not made[-1].exists()
        assert f"{folder} is not used: its mode is {mode:04o}" in cache.problem and "TORSHC_CACHE_DIR" in cache.problem
        folder.chmod(0o700)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_another_user_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "objects-1").mkdir(0o700)
    os.chown(tmp_path / "objects-1", 12345, -1)
    cache = Cache(tmp_path)
    assert cache.get(KEY) is None and "it belongs to user 12345" in cache.problem


def worker(folder: Path, number: int) -> None:
    cache = Cache(folder)
    for i in range(40):
        key = content_key([str(i)])
        data = cache.get(key)
        assert data in (None, key.encode() * 1000), number
        if data is None:
            cache.put(key, key.encode() * 1000)
        if number == 0 and i % 10 == 9:
            cache.trim(100_000)
    assert not cache.problem, cache.problem


def test_sixteen_processes(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    children = [context.Process(target=worker, args=(tmp_path, n)) for n in range(16)]
    for child in children:
        child.start()
    for child in children:
        child.join()
    assert [child.exitcode for child in children] == [0] * 16
    assert not [p for p in files(tmp_path) if p.suffix != ".o"]


def test_a_full_disk_leaves_nothing(tmp_path: Path) -> None:
    def fill() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
        cache = Cache(tmp_path)
        cache.put(KEY, bytes(5000))
        assert "File too large" in cache.problem
        assert cache.get(KEY) is None

    assert in_child(fill) == 0
    assert files(tmp_path) == []


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    cache = Cache(tmp_path / "file")
    cache.put(KEY, b"object")
    assert cache.get(KEY) is None and str(tmp_path) in cache.problem
    assert cache.clear() == 0


def test_trim_deletes_the_least_recently_used(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    keys = [content_key([str(i)]) for i in range(4)]
    for i, key in enumerate(keys):
        cache.put(key, bytes(100))
        path = cache.folder and cache.folder / key[:2] / f"{key[2:]}.o"
        assert path
        os.utime(path, (i, i))
    assert cache.get(keys[0])  # now the most recent
    stale = path.with_name(".0123.tmp")
    stale.write_bytes(b"x")
    os.utime(stale, (0, 0))
    assert cache.trim(2 * 148) == 2
    assert {e.key for e in cache.entries()} == {keys[0], keys[3]} and not stale.exists()
    assert cache.clear() == 2 and files(tmp_path) == []


def test_where_it_lies(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    monkeypatch.delenv("TORSHC_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert cache_folder() == Path("/home/someone/.cache/torshc")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "torshc"
    monkeypatch.setenv("TORSHC_CACHE_DIR", "/elsewhere")
    assert cache_folder() == Path("/elsewhere")
