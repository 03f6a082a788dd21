"""The rows of the benchmark of operators, and its table."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from torshc.ops import REGISTRY

from .operands import drawn, shape_of
from .operators import HEAD, chosen, entry, line, summary
from .rows import WITHOUT, Row, all_rows


def test_each_operator_has_a_row_or_a_reason() -> None:
    rows = {r.op for r in all_rows()}
    without = {name for names in WITHOUT.values() for name in names.split()}
    known = {name for domain, name in REGISTRY if domain != "torshc"}
    assert not known - rows - without
    assert without <= known


def test_rows_are_told_apart() -> None:
    names = Counter((r.domain, r.op, r.type, r.label) for r in all_rows())
    assert [name for name, count in names.items() if count > 1] == []


def test_rows_fit_the_table() -> None:
    found = {"ours_ms": 1234.5, "ort_ms": 1234.5, "ratio": 123.45, "copy": 1.0}
    for row in all_rows():
        assert len(line({"operator": row.op, "type": row.type, "shape": row.label} | found)) <= 80
        assert len(row.label) <= 22, row
    assert len(HEAD) <= 80


def test_operands_are_read() -> None:
    arrays, fixed = drawn("4x8[0..1] !i64:3[5..6] =u8:7 =2,3 _", "f32")
    x, indices, zero, values, absent = arrays
    assert x is not None and x.shape == (4, 8) and x.dtype == np.float32 and x.min() >= 0
    assert indices is not None and indices.tolist() == [5, 5, 5]
    assert zero is not None and zero.shape == () and zero.dtype == np.uint8
    assert values is not None and values.tolist() == [2, 3]
    assert absent is None and fixed == (1, 2, 3)
    assert shape_of("=2 !3x4 5x6[0..1]") == "5x6"


def test_words_choose_rows() -> None:
    row = Row("ReduceSum", "64x1024 =i64:0,", "f64", "columns")
    assert chosen(row, []) and chosen(row, ["Reduce*", "f64"]) and not chosen(row, ["Reduce*", "f32"])


def test_a_row_is_measured(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    found = entry(Row("Add", "4x8 4x8"), tmp_path, 1, 1e-6)
    assert found["ratio"] > 0 and 0 < found["copy"] <= 1
    assert summary([found])[0].startswith("1 rows")
    assert "failed" in entry(Row("Add", "4x8 4x9"), tmp_path, 1, 1e-6)
