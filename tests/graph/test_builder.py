"""What is known of small tensors while a graph is built."""

from __future__ import annotations

import onnx
import pytest

from torshc.expr import as_int
from torshc.formats import import_model

SIZES = {
    "c = Constant<value_float=16.0>() h = Constant<value_float=0.5>() p = Pow(c, h) n = Cast<to=7>(p)": 4,
    """s = Shape(x) o = Constant<value_int=1>() g = Gather(s, o) f = Cast<to=1>(g) t = Constant<value_float=2.5>()
    d = Div(f, t) u = Ceil(d) n = Cast<to=7>(u)""": 5,
}


@pytest.mark.parametrize("steps", SIZES)
def test_sizes_that_go_through_floats(steps: str) -> None:
    body = f"{steps} e = Constant<value_ints=[0]>() v = Unsqueeze(n, e) y = Expand(x, v)"
    text = f'<ir_version: 10, opset_import: ["": 20]> g (float[1, 12] x, float[M, 1] z) => (float[M, N] y) {{ {body} }}'
    wanted = text.replace("x, v", "z, v")
    graph = import_model(onnx.parser.parse_model(wanted).SerializeToString())
    assert as_int(graph.outputs[0].shape[-1]) == SIZES[steps]
