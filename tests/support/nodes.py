"""Single nodes against ONNX's reference evaluator."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from torshc.base.errors import ModelError, UnsupportedError
from torshc.formats import import_model

from .evaluate import Array, run

F32, F64, I64, BOOL = np.float32, np.float64, np.int64, np.bool_


def model_of(
    op: str,
    inputs: dict[str, Array],
    fixed: dict[str, Array],
    order: list[str],
    opset: int,
    outputs: int = 1,
    domain: str = "",
    **attributes: Any,
) -> onnx.ModelProto:
    """A model of one node; `fixed` operands are initializers."""
    names = [f"out{k}" for k in range(outputs)]
    node = helper.make_node(op, order, names, domain=domain, name="it", **attributes)
    graph = helper.make_graph(
        [node],
        "one",
        [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
            for n, a in inputs.items()
        ],
        [helper.make_empty_tensor_value_info(n) for n in names],
        [numpy_helper.from_array(a, n) for n, a in fixed.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def check(
    op: str, *operands: Array | None, fixed: tuple[int, ...] = (), opset: int = 20, outputs: int = 1, **attributes: Any
) -> list[Array]:
    """Run a node both ways; `fixed` are the places of operands known at compile time."""
    order = ["" if a is None else f"x{k}" for k, a in enumerate(operands)]
    given = {f"x{k}": a for k, a in enumerate(operands) if a is not None and k not in fixed}
    known = {f"x{k}": a for k, a in enumerate(operands) if a is not None and k in fixed}
    model = model_of(op, given, known, order, opset, outputs, **attributes)
    with np.errstate(all="ignore"):
        wanted = ReferenceEvaluator(model).run(None, given)
    got = run(import_model(model.SerializeToString()), given)
    for g, w in zip(got, wanted, strict=True):
        w = np.asarray(w)
        assert g.shape == w.shape, (g.shape, w.shape)
        assert g.dtype == w.dtype
        np.testing.assert_allclose(g, w, rtol=2e-5, atol=1e-6)
    return got


def numbers(*shape: int, dtype: Any = F32, low: float = -2.0, high: float = 2.0, seed: int = 0) -> Array:
    rng = np.random.default_rng(seed + sum(shape))
    return np.asarray(rng.uniform(low, high, shape)).astype(dtype)


def refused(op: str, *operands: Array | None, fixed: tuple[int, ...] = (), match: str, **attributes: Any) -> None:
    """A node that must not be imported."""
    order = ["" if a is None else f"x{k}" for k, a in enumerate(operands)]
    given = {f"x{k}": a for k, a in enumerate(operands) if a is not None and k not in fixed}
    known = {f"x{k}": a for k, a in enumerate(operands) if a is not None and k in fixed}
    model = model_of(op, given, known, order, 20, attributes.pop("outputs", 1), **attributes)
    with pytest.raises((UnsupportedError, ModelError), match=match):
        import_model(model.SerializeToString())


def given(op: str, *operands: Array, outputs: int = 1, opset: int = 20, **attributes: Any) -> list[Array]:
    """The results of a node by our own definition alone."""
    feeds = {f"x{k}": a for k, a in enumerate(operands)}
    model = model_of(op, feeds, {}, list(feeds), opset, outputs, **attributes)
    return run(import_model(model.SerializeToString()), feeds)
