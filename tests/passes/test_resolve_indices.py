"""Gathers at indices that are known become views."""

from __future__ import annotations

import numpy as np
import pytest

from torshc.expr import DTYPES, dim, max_of, min_of
from torshc.ops.tensor.index import Gather

from ..support.pass_graphs import Model, dims, lines, names, run_pass


def test_resolve_indices_of_an_exported_mask() -> None:
    m = Model()
    mask = m.input("batch", "seq", dtype="bool")
    b = m("Reshape", m("Range", start=dims(0)[0], step=dims(1)[0], count=dims("batch")[0]), shape=dims("batch", 1, 1))
    s = m("Reshape", m("Range", start=dims(0)[0], step=dims(1)[0], count=dims("seq")[0]), shape=dims(1, 1, "seq"))
    parts = [
        m("Reshape", m("Expand", x, shape=dims("batch", 1, "seq")), shape=dims("batch", 1, "seq", 1)) for x in (b, s)
    ]
    taken = m("GatherND", mask, m("Concat", *parts, axis=-1), depth=2)
    causal = m("GreaterOrEqual", m("Reshape", s, shape=dims(1, "seq", 1)), m.const(0, "i64"))
    graph = m.done(m("And", causal, taken))
    assert run_pass("resolve_indices", graph) == lines("""
        in   %0 bool[batch, seq]
        %1 = Transpose[perm=(0, 1)](%0) : bool[batch, seq]
        %2 = Reshape[shape=(batch, 1, seq)](%1) : bool[batch, 1, seq]
        %3 = Expand[shape=(batch, seq, seq)](%2) : bool[batch, seq, seq]
        out  %3
    """)


def test_resolve_indices_of_a_mask_as_one_row() -> None:
    """PyTorch's older exporter indexes a mask that is flattened, by the sizes that it had."""
    m = Model()
    mask = m.input("batch", "seq", dtype="bool")
    b = m("Reshape", m("Range", start=dims(0)[0], step=dims(1)[0], count=dims("batch")[0]), shape=dims("batch", 1, 1))
    s = m("Reshape", m("Range", start=dims(0)[0], step=dims(1)[0], count=dims("seq")[0]), shape=dims(1, 1, "seq"))
    width = m("Slice", m("Shape", mask), starts=dims(1), sizes=dims(1), steps=(1,))
    flat = m("Reshape", mask, shape=(dim("batch") * dim("seq"), dims(1)[0]))
    graph = m.done(m("Gather", flat, m("Add", m("Mul", b, width), s), axis=0))
    run_pass("resolve_indices", graph)
    assert "Gather" not in names(graph)


def test_running_sums_of_zeros_are_zeros() -> None:
    """As exporters tell packed sequences apart: positions that go on by ones jump nowhere."""
    m = Model()
    x, seq = m.input("seq"), dim("seq")
    at, some = m("Range", start=dims(0)[0], step=dims(1)[0], count=seq), min_of(seq, 1)
    first = m("Sub", m("Slice", at, starts=dims(0), sizes=(some,), steps=(1,)), m.const(1, "i64"))
    joined, size = m("Concat", first, at, axis=0), (max_of(seq + some - 1, 0),)
    parts = [m("Slice", joined, starts=dims(k), sizes=size, steps=(1,)) for k in (0, 1)]
    jumps = m("Not", m("Equal", m("Sub", parts[1], parts[0]), m.const(1, "i64")))
    sums = [m("CumSum", m("Cast", v, to=DTYPES["i64"]), axis=0) for v in (jumps, at)]
    graph = m.done(*(m("Equal", v, m.const(0, "i64")) for v in sums), x)
    run_pass("resolve_indices", graph)
    assert [v.producer.op.name for v in graph.outputs[:2] if v.producer] == ["Expand", "Equal"]


def test_resolve_indices_of_a_uniform_table() -> None:
    m = Model()
    at = m.input(3, dtype="i64")
    graph = m.done(m("Gather", m.const(np.full(8, 7), "i64"), at), m("Gather", m.input(8), at))
    run_pass("resolve_indices", graph)
    assert names(graph) == ["Expand", "Gather"]


@pytest.mark.parametrize("nested", [False, True])
def test_each_of_many_gathers_is_read_a_few_times(nested: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a result that is read by the next, and of one whose elements are the indices of the next."""
    reads, plain = [], Gather.nest
    monkeypatch.setattr(Gather, "nest", lambda self, *at: reads.append(self) or plain(self, *at))
    m = Model()
    x, at = m.input("n", dtype="i64"), m.input("n", dtype="i64")
    y = x
    for _ in range(50):
        y = m("Gather", x, y) if nested else m("Gather", y, at)
    graph = m.done(y)
    reads.clear()
    run_pass("resolve_indices", graph)
    assert 50 <= len(reads) <= 100
