"""Parts of a model: what they hold, and what they compute."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import parser
from onnx.reference import ReferenceEvaluator

from torshc.formats.cut import Cuttable, is_array, reads

TEXT = """
<ir_version: 8, opset_import: ["" : 18]>
whole (float[n] x, bool c) => (float[n] y, float[n] z) <float[1] w = {2.0}, float[1] unused = {1.0}> {
  one = Constant<value_float=1.0>()
  a = Mul(x, w)
  b = Add(a, one)
  y = If(c) <
    then_branch = then_graph () => (float[m] t) { t = Neg(b) },
    else_branch = else_graph () => (float[m] e) { inner = Exp(a)  e = Add(inner, b) }
  >
  [last] z = Tanh(x)
}
"""


def cuttable(folder: Path) -> Cuttable:
    onnx.save(parser.parse_model(TEXT), folder / "m.onnx")
    return Cuttable(folder / "m.onnx")


def test_what_a_value_needs(tmp_path: Path) -> None:
    model = cuttable(tmp_path)
    assert set(reads(model.nodes[3])) == {"c", "a", "b"}
    assert model.needed(["y"]) == [0, 1, 2, 3] and model.needed(["z"]) == [4]
    assert model.needed(["y"], ["a"]) == [0, 2, 3] and model.needed(["y"], ["a", "b"]) == [3]
    assert [model.border("y", k) for k in range(3)] == [{"a", "b"}, set(), set()]
    assert model.border("b", 0) == {"a"}
    assert model.behind(["y"]) == ["one", "a", "b", "y"] and model.behind(["z"]) == ["z"]
    assert [model.describe(k) for k in (1, 4)] == ["'a' (Mul)", "'last' (Tanh)"]


def test_parts_compute_what_the_whole_does(tmp_path: Path) -> None:
    model = cuttable(tmp_path)
    x = np.arange(3, dtype=np.float32)
    for c in (np.array(True), np.array(False)):
        names = ["a", "b", "y"]
        whole = dict(zip(names, ReferenceEvaluator(model.part(names)).run(None, {"x": x, "c": c}), strict=True))
        given = {n: whole[n] for n in ("a", "b")}
        part = model.part(["y"], given)
        onnx.checker.check_model(part)
        assert [v.name for v in part.graph.input] == ["c", "a", "b"] and not part.graph.initializer
        np.testing.assert_array_equal(ReferenceEvaluator(part).run(None, {**given, "c": c})[0], whole["y"])


def test_what_can_be_an_input() -> None:
    assert is_array(np.ones(2)) and is_array(np.array(True))
    assert not is_array([np.ones(2)]) and not is_array(None) and not is_array(np.array(["a"], object))
