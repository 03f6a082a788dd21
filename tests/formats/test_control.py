"""Control flow whose operands make no sense is refused by the node."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from torshc.base.errors import ModelError
from torshc.formats import import_model


@pytest.mark.parametrize(("limit", "condition", "what"), [([], [True], "limit"), ([3], [True, False], "condition")])
def test_a_loop_has_one_limit_and_one_condition(limit: list[int], condition: list[bool], what: str) -> None:
    info = helper.make_tensor_value_info
    given = [info("i", TensorProto.INT64, []), info("c", TensorProto.BOOL, []), info("s", TensorProto.FLOAT, [2])]
    nodes = [helper.make_node("Identity", ["c"], ["d"]), helper.make_node("Exp", ["s"], ["t"])]
    body = helper.make_graph(nodes, "body", given, [info("d", TensorProto.BOOL, []), info("t", TensorProto.FLOAT, [2])])
    loop = helper.make_node("Loop", ["n", "go", "x"], ["y"], name="the_loop", body=body)
    known = [
        numpy_helper.from_array(np.array(limit, np.int64), "n"),
        numpy_helper.from_array(np.array(condition), "go"),
    ]
    x, y = (info(name, TensorProto.FLOAT, [2]) for name in "xy")
    model = helper.make_model(
        helper.make_graph([loop], "m", [x], [y], known), opset_imports=[helper.make_opsetid("", 21)]
    )
    with pytest.raises(ModelError, match=f"the_loop.*the {what} of a Loop is"):
        import_model(model.SerializeToString())
