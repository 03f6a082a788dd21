"""Undefined behaviour that no case of onnx's suite shows: integers at the ends of their range, no weights at all."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from tests.support.models import parsed
from torshc.base.options import CompileOptions
from torshc.formats import load_graph
from torshc.pipeline.compiler import compile_model

from ..support import sanitize
from ..support.zoo import Array

LOW, HIGH = -(2**63), 2**63 - 1
VALUES = np.array([LOW, HIGH, 0, 1, -1, LOW + 1, HIGH - 1, 2**62, -(2**62), 3, -7])
# s and t are one number for all lanes of a row, x is one for each.
ARITHMETIC = f"""(int64[N,11] x, int64[N,1] s, int64[N,1] t) => (a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q) {{
    high = Constant<value_int={HIGH - 1}>()  low = Constant<value_int={LOW}>()  one = Constant<value_ints=[1]>()
    four = Constant<value_ints=[4]>()  axis = Constant<value_int=1>()  minus = Constant<value_int=-1>()
    three = Constant<value_int=3>()  factor = Constant<value_int=5>()  at6 = Mul(x, factor)
    sa = Add(s, high)  a = Add(sa, x)  sb = Mul(s, low)  b = Sub(x, sb)  sc = Abs(s)  c = Mul(sc, x)  sd = Neg(s)
    d = Sub(sd, x)  se = Div(s, minus)  e = Add(se, x)  sf = Mod(s, minus)  f = Sub(sf, x)  sg = Sub(s, t)
    g, at = TopK(a, four)  gh = Abs(sg)  less = Less(gh, t)  h = Where(less, x, s)  st = Add(s, t)  sum = Add(st, x)
    i = ReduceSum(c, one)  j = CumSum(d, axis)  k = Add(at, gh)  l = Add(sum, sum)  m = ReduceProd<axes=[1]>(b)
    more = Add(x, one)  n = Less(more, x)  o = Min(more, x)  six = Add(at6, x)  p = Mod(six, three)
    short = Cast<to=6>(x)  wide = Cast<to=7>(short)  size = Abs(wide)  square = Mul(size, size)
    cube = Mul(square, size)  q = Less(cube, axis) }}"""
EMPTY = """(int64[N] x, int64 k) => (y) {
    e = Constant<value=int64[0] {}>()  s = SequenceConstruct(x, e)  y = SequenceAt(s, k) }"""


def sanitized(text: str, feeds: dict[str, Array], folder: Path) -> None:
    """Compares a run under the sanitizers with onnx's evaluator."""
    found = sanitize.usable()
    if found is None:
        pytest.skip("no compiler with the sanitizers' runtime is here")
    made = parsed(text, 17)
    onnx.save(made, folder / "m.onnx")
    options = CompileOptions(threads=1, keep_intermediates=True)
    compile_model(load_graph(folder / "m.onnx"), folder / "m.tsc", options)
    sanitize.rebuild(folder / "m.tsc", folder / "work", found[0])
    with np.errstate(all="ignore"):
        wanted = ReferenceEvaluator(made).run(None, feeds)
    results = sanitize.run(folder / "m.tsc", [feeds], folder, found[1])[0]
    for output, got, want in zip(made.graph.output, results, wanted, strict=True):
        np.testing.assert_array_equal(got, want, output.name)


def test_integers_wrap(tmp_path: Path) -> None:
    rows = np.array([[LOW, HIGH], [LOW, 1], [HIGH, LOW], [-1, LOW], [0, LOW]])
    feeds = {"x": np.stack([np.roll(VALUES, k) for k in range(len(rows))])}
    sanitized(ARITHMETIC, {**feeds, "s": rows[:, :1].copy(), "t": rows[:, 1:].copy()}, tmp_path)


def test_an_empty_constant_of_a_model_without_weights(tmp_path: Path) -> None:
    sanitized(EMPTY, {"x": np.array([0, 3, 1]), "k": np.array(1)}, tmp_path)
