"""The weights file, written by chunks beside other work."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from torshc.base.errors import OutputError
from torshc.bundle import weights
from torshc.bundle.weights import FOOTER, read_identity, weight_offsets, write_weights


@pytest.mark.parametrize("chunk", [64, 1000, 1 << 20])
def test_chunks_of_any_size_give_one_file(chunk: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "PIECE", chunk)
    arrays = [np.arange(n, dtype=np.uint8) for n in (3, 0, 700, 64)]
    path = tmp_path / "weights.bin"
    info = write_weights(path, ([a[:2], a[2:]] for a in arrays))
    data = path.read_bytes()
    assert info.offsets == weight_offsets([a.size for a in arrays])
    for offset, a in zip(info.offsets, arrays, strict=True):
        assert data[offset : offset + a.size] == a.tobytes()
    assert info.sha256 == hashlib.sha256(data).hexdigest()
    assert info.bytes == len(data) - FOOTER
    identity = int.from_bytes(hashlib.sha256(data[:-FOOTER]).digest()[:8], "little")
    assert identity == info.id == read_identity(path) == struct.unpack("<16sQQ32x", data[-FOOTER:])[2]


def test_a_failing_write_is_an_output_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "PIECE", 64)
    made = []

    class Full(weights._Chunks):
        def _store(self, data: memoryview) -> None:
            raise OSError(28, "No space left on device")

    def arrays() -> Iterator[list[np.ndarray[Any, Any]]]:
        for _ in range(100):
            made.append(1)
            yield [np.zeros(1000, np.uint8)]

    monkeypatch.setattr(weights, "_Chunks", Full)
    with pytest.raises(OutputError, match="No space left on device"):
        write_weights(tmp_path / "weights.bin", arrays())
    assert len(made) < 3
