"""Elements of small tensors, some of which wait for a run."""

from __future__ import annotations

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

import torshc
from torshc.expr import as_int
from torshc.formats import import_model

# The second start and end go the way of TensorFlow: through masks and floats, which leave them as they are.
MODEL = """<ir_version: 8, opset_import: ["" : 18]>
    g (float[6,5] x, int64[1] i) => (float[r,c] y) {
        zero = Constant <value = int64[1] {0}> ()
        two = Constant <value = int64[1] {2}> ()
        mask = Constant <value = bool[2] {1, 1}> ()
        below = Less(two, zero)
        masked = And(below, mask)
        far = Constant <value = int64[1] {1000000}> ()
        from = Concat <axis = 0> (i, zero)
        starts = Where(masked, far, from)
        next = Add(i, two)
        to = Concat <axis = 0> (next, two)
        floats = Cast <to = 1> (to)
        least = Constant <value = float[2] {-9.0, -9.0}> ()
        most = Max(floats, least)
        ends = Cast <to = 7> (most)
        y = Slice(x, starts, ends)
    }"""


def test_elements_that_no_run_changes_are_known() -> None:
    model = onnx.parser.parse_model(MODEL)
    graph = import_model(model.SerializeToString())
    rows, columns = graph.outputs[0].shape
    assert as_int(rows) is None and as_int(columns) == 2
    compiled, reference = torshc.compile(model.SerializeToString()), ReferenceEvaluator(model)
    for i in (0, 3, 5, 9):
        feed = {"x": np.arange(30, dtype=np.float32).reshape(6, 5), "i": np.array([i])}
        np.testing.assert_array_equal(compiled.run(feed)["y"], reference.run(None, feed)[0])


def test_int32_elements_are_read_and_computed_with() -> None:
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
    g (float[6,5] x, int32[1] i) => (float[r,5] a, float[s,5] b) {
        two = Constant <value = int32[1] {2}> ()
        end = Constant <value = int32[1] {9}> ()
        a = Slice(x, i, end)
        next = Add(i, two)
        b = Slice(x, i, next)
    }""")
    compiled, x = torshc.compile(model.SerializeToString()), np.arange(30, dtype=np.float32).reshape(6, 5)
    found = compiled.run({"x": x, "i": np.array([3], np.int32)})
    np.testing.assert_array_equal(found["a"], x[3:])
    np.testing.assert_array_equal(found["b"], x[3:5])
