"""DynamicQuantizeLSTM against ONNX Runtime's, whose x and h have 8 bits as well."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.compare import onnx_runtime
from tests.support.contrib import compiled, model_of
from tests.support.evaluate import Array, run
from tests.support.models import feeds_of
from torshc.base.errors import ModelError, UnsupportedError
from torshc.formats import import_model

OP, FIXED = "DynamicQuantizeLSTM", (1, 2, 8, 9, 10, 11)
HIDDEN, FEATURES, BATCH = 6, 4, 3
# Rounding of f32 in LSTM's gates, and of exp and tanh. A number that a rounding error moves to the next byte changes
# results by about 0.3 percent of a weight's part, which would show.
CLOSE: dict[str, Any] = {"rtol": 1e-5, "atol": 2e-6}

FORMS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "plain": ({}, {}),
    "one row": ({"batch": 1}, {}),
    "many steps": ({"steps": 20}, {}),
    "unsigned": ({"dtype": np.uint8, "columns": False}, {}),
    "lengths": ({"lengths": True}, {}),
    "lengths and states": ({"lengths": True, "states": True, "steps": 12}, {}),
    "reverse": ({"states": True}, {"direction": "reverse"}),
    "reverse lengths": ({"lengths": True}, {"direction": "reverse"}),
    "both ways": ({"directions": 2, "states": True}, {"direction": "bidirectional"}),
    "both ways with lengths": ({"directions": 2, "lengths": True, "peepholes": True}, {"direction": "bidirectional"}),
    "peepholes": ({"states": True, "peepholes": True}, {"clip": 0.3}),
    "coupled": ({"states": True}, {"input_forget": 1}),
    "no bias, other functions": (
        {"bias": False},
        {
            "activations": ["HardSigmoid", "Softsign", "ScaledTanh"],
            "activation_alpha": [0.3, 0.7],
            "activation_beta": [0.4, 1.2],
        },
    ),
    "linear functions": (
        {},
        {"activations": ["Sigmoid", "Affine", "LeakyRelu"], "activation_alpha": [0.3, 0.2], "activation_beta": [0.1]},
    ),
}


def operands(
    steps: int = 5,
    batch: int = BATCH,
    directions: int = 1,
    dtype: Any = np.int8,
    columns: bool = True,
    lengths: bool = False,
    states: bool = False,
    bias: bool = True,
    peepholes: bool = False,
) -> tuple[Array | None, ...]:
    rng, d = np.random.default_rng(1), directions

    def reals(*shape: int) -> Array:
        return np.asarray(rng.standard_normal(shape), np.float32)

    low, high = (-64, 64) if dtype == np.int8 else (0, 255)
    w, r = (rng.integers(low, high, (d, n, 4 * HIDDEN)).astype(dtype) for n in (FEATURES, HIDDEN))
    shape = (d, 4 * HIDDEN) if columns else (d,)
    zero = np.full(shape, 128 if dtype == np.uint8 else 0, dtype)
    scales = [rng.uniform(0.005, 0.02, shape).astype(np.float32) for _ in range(2)]
    return (
        reals(steps, batch, FEATURES), w, r, reals(d, 8 * HIDDEN) * 0.3 if bias else None,
        rng.integers(1, steps + 1, batch).astype(np.int32) if lengths else None,
        reals(d, batch, HIDDEN) * 0.5 if states else None, reals(d, batch, HIDDEN) * 0.5 if states else None,
        reals(d, 3 * HIDDEN) * 0.3 if peepholes else None, scales[0], zero, scales[1], zero,
    )  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_answers_of_onnx_runtime(form: str, tmp_path: Path) -> None:
    given, attributes = operands(**FORMS[form][0]), FORMS[form][1]
    made = model_of(OP, given, FIXED, 3, hidden_size=HIDDEN, **attributes)
    feeds = feeds_of(given, FIXED)
    for got, wanted in zip(compiled(made, feeds, tmp_path), onnx_runtime(made, feeds), strict=True):
        np.testing.assert_allclose(got, wanted, **CLOSE)


def test_any_number_of_steps_and_rows(tmp_path: Path) -> None:
    given = operands(lengths=True)
    made = model_of(OP, given, FIXED, 3, hidden_size=HIDDEN, dims={0: ["steps", "rows", FEATURES], 4: ["rows"]})
    for steps, batch in ((5, 3), (11, 1), (1, 4)):
        feeds = feeds_of(operands(steps, batch, lengths=True), FIXED)
        for got, wanted in zip(compiled(made, feeds, tmp_path / f"{steps}"), onnx_runtime(made, feeds), strict=True):
            np.testing.assert_allclose(got, wanted, **CLOSE)


def test_nothing_but_zeros() -> None:
    """The range of x and of h has no width."""
    given = (np.zeros((3, 2, FEATURES), np.float32), *operands(bias=False)[1:])
    made, feeds = model_of(OP, given, FIXED, 3, hidden_size=HIDDEN), feeds_of(given, FIXED)
    for got, wanted in zip(run(import_model(made.SerializeToString()), feeds), onnx_runtime(made, feeds), strict=True):
        np.testing.assert_array_equal(got, wanted)


def test_what_does_not_fit() -> None:
    given = operands()
    for place, wrong, fault, said in (
        (8, None, ModelError, "needs its input 8"),
        (1, np.zeros((1, FEATURES, 4 * HIDDEN), np.float32), UnsupportedError, "with weights f32"),
        (2, np.zeros((1, HIDDEN, 3 * HIDDEN), np.int8), ModelError, "with weights"),
    ):
        changed = tuple(wrong if k == place else v for k, v in enumerate(given))
        with pytest.raises(fault, match=said):
            import_model(model_of(OP, changed, FIXED, 3).SerializeToString())
    for way, directions in (("forward", 2), ("bidirectional", 1)):
        given = operands(directions=directions)
        with pytest.raises(ModelError, match="directions with w"):
            import_model(model_of(OP, given, FIXED, 3, direction=way).SerializeToString())
    given = operands()
    with pytest.raises(ModelError, match="of 7 hidden units"):
        import_model(model_of(OP, given, FIXED, 3, hidden_size=7).SerializeToString())
    with pytest.raises(ModelError, match="no activation 'Tan'; did you mean 'Tanh'"):
        import_model(model_of(OP, given, FIXED, 3, activations=["Sigmoid", "Tan", "Tanh"]).SerializeToString())
