"""Single nodes, by our operators' own definitions, against ONNX's reference evaluator."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from torshc.base.errors import ModelError, UnsupportedError
from torshc.formats import import_model

from .compare import assert_close, evaluated, reference
from .models import Array, Opset, feeds_of, node_model

F32, F64, I64, BOOL = np.float32, np.float64, np.int64, np.bool_


def check(op: str, *operands: Array | None, fixed: tuple[int, ...] = (), opset: Opset = 20, **form: Any) -> list[Array]:
    """Run a node both ways; `fixed` are the places of operands known at compile time, `form` as of node_model()."""
    made, feeds = node_model(op, operands, fixed, version=opset, **form), feeds_of(operands, fixed)
    got = evaluated(made, feeds)
    assert_close(got, reference(made, feeds), rtol=2e-5, atol=1e-6)
    return got


def numbers(*shape: int, dtype: Any = F32, low: float = -2.0, high: float = 2.0, seed: int = 0) -> Array:
    rng = np.random.default_rng(seed + sum(shape))
    return np.asarray(rng.uniform(low, high, shape)).astype(dtype)


def refused(
    op: str,
    *operands: Array | None,
    fixed: tuple[int, ...] = (),
    match: str,
    opset: Opset = 20,
    **form: Any,
) -> None:
    """A node that must not be imported."""
    made = node_model(op, operands, fixed, version=opset, **form)
    with pytest.raises((UnsupportedError, ModelError), match=match):
        import_model(made.SerializeToString())


def given(op: str, *operands: Array | None, fixed: tuple[int, ...] = (), opset: Opset = 20, **form: Any) -> list[Array]:
    """The results of a node by our own definition alone."""
    return evaluated(node_model(op, operands, fixed, version=opset, **form), feeds_of(operands, fixed))
