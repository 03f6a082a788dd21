"""What torshc reads from files: good ones, those that once showed a fault, and changed ones."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from .readers import READERS, seeds

CORPUS = Path(__file__).parent / "corpus"
COUNT = {"model": 5, "training": 5, "manifest": 10, "kernel": 20}  # changed files of a form; of others 50


@pytest.mark.parametrize("name", READERS)
def test_good_files_and_changed_ones(name: str, tmp_path: Path) -> None:
    """Bytes flipped, cut and doubled; what `make fuzz` does by what runs."""
    rng = random.Random(name)
    good = seeds(name)
    for data in good:
        (tmp_path / "file").write_bytes(data)
        READERS[name](tmp_path / "file")
    for _ in range(COUNT.get(name, 50)):
        (tmp_path / "file").write_bytes(changed(rng.choice(good), rng))
        READERS[name](tmp_path / "file")


def changed(data: bytes, rng: random.Random) -> bytes:
    found = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 5))):
        at, end = sorted((rng.randrange(len(found) + 1), rng.randrange(len(found) + 1)))
        match rng.randrange(4):
            case 0 if end > at:
                found[at] ^= 1 << rng.randrange(8)
            case 1:
                del found[at : min(end, at + 9)]
            case 2:
                found[at:at] = found[at : min(end, at + 40)]
            case _:
                found[at:at] = rng.choice((b"-1", b"9" * 30, b"null", b"[", b"{}", b"\xff", b"1e999", b'"', b"\n"))
    return bytes(found)


@pytest.mark.parametrize("file", sorted(CORPUS.glob("*/*")), ids=lambda f: f"{f.parent.name}-{f.name}")
def test_files_that_showed_a_fault(file: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(file.read_bytes())
    READERS[file.parent.name](tmp_path / "file")
