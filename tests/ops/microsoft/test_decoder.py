"""Attention of a decoder's step against ONNX Runtime's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.compare import onnx_runtime
from tests.support.contrib import check, compiled, model_of
from tests.support.evaluate import Array, run
from tests.support.models import feeds_of
from tests.support.nodes import numbers
from torshc.base.errors import ModelError, TorshcError, UnsupportedError
from torshc.formats import import_model

OP = "DecoderMaskedMultiHeadAttention"
BATCH, HEADS, WIDTH, LONGEST = 2, 3, 8, 5
SELF: dict[str, Any] = {"num_heads": HEADS, "outputs": 3, "past_present_share_buffer": 1}


def step(count: int, mask: bool = False, addend: Array | None = None, bias: bool = False) -> list[Array | None]:
    """Operands of a step whose past has `count` entries."""
    new = [numbers(BATCH, 1, HEADS * WIDTH, seed=s) for s in range(3)]
    past = [numbers(BATCH, HEADS, LONGEST, WIDTH, seed=s) for s in (3, 4)]
    shown = np.random.default_rng(5).integers(0, 2, (BATCH, count + 1)).astype(np.int32)
    shown[:, -1] = 1
    rest = [None, None, numbers(3 * HEADS * WIDTH)] if bias else []
    return [*new, shown if mask else None, addend, *past, np.array([count], np.int32), *rest]


@pytest.mark.parametrize("count", [0, 2, LONGEST - 1])
@pytest.mark.parametrize(
    "form",
    [{}, {"mask": True}, {"bias": True}, {"mask": True, "bias": True, "scale": 0.3, "mask_filter_value": -5.0}],
    ids=lambda f: "-".join(f) or "plain",
)
def test_steps(count: int, form: dict[str, Any]) -> None:
    more = {k: v for k, v in form.items() if k in ("scale", "mask_filter_value")}
    check(OP, *step(count, form.get("mask", False), bias=form.get("bias", False)), **SELF, **more)


def test_an_addend_of_the_scores() -> None:
    for shape in ((1, 1, 1, 3), (BATCH, HEADS, 1, 3)):
        check(OP, *step(2, addend=numbers(*shape)), **SELF)


@pytest.mark.parametrize("bias", [False, True])
def test_keys_of_an_encoder(bias: bool) -> None:
    keys, values = (numbers(BATCH, HEADS, LONGEST, WIDTH, seed=s) for s in (1, 2))
    mask = np.array([[1, 1, 1, 1, 0], [0, 1, 1, 0, 1]], np.int32)
    rest = [None] * 6 + [numbers(3 * HEADS * WIDTH)] if bias else []
    check(OP, numbers(BATCH, 1, HEADS * WIDTH), keys, values, mask, *rest, num_heads=HEADS)


def test_a_step_side_by_side_and_a_past_that_grows_are_those_of_a_buffer() -> None:
    """ONNX Runtime's kernel for processors has neither."""
    q, k, v, mask, _, keys, values, _ = step(2, mask=True)
    assert q is not None and k is not None and v is not None and keys is not None and values is not None
    model = model_of(OP, (q, k, v, mask, None, keys, values, np.array([2], np.int32)), **SELF)
    wanted = onnx_runtime(model, feeds_of((q, k, v, mask, None, keys, values, np.array([2], np.int32)), ()))
    grown = (np.concatenate([q, k, v], 2), None, None, mask, None, keys[:, :, :2].copy(), values[:, :, :2].copy())
    got = run(import_model(model_of(OP, grown, outputs=3, num_heads=HEADS).SerializeToString()), feeds_of(grown, ()))
    np.testing.assert_allclose(got[0], wanted[0], rtol=2e-5, atol=2e-6)
    for g, w in zip(got[1:], wanted[1:], strict=True):
        np.testing.assert_array_equal(g, w[:, :, :3])


def test_a_compiled_step_with_a_past_of_any_length(tmp_path: Path) -> None:
    operands = tuple(step(2, mask=True))
    model = model_of(OP, operands, dims={3: ["batch", "total"]}, **SELF)
    for count in (2, 4, 0):
        feeds = feeds_of(tuple(step(count, mask=True)), ())
        for g, w in zip(compiled(model, feeds, tmp_path / str(count)), onnx_runtime(model, feeds), strict=True):
            np.testing.assert_allclose(g, w, rtol=2e-5, atol=2e-6)
    with pytest.raises(TorshcError):
        compiled(model, feeds_of(tuple(step(LONGEST, mask=True)), ()), tmp_path / "long")


def test_what_is_refused() -> None:
    beams = (*step(2), np.array([1], np.int32), np.zeros((BATCH, 1, LONGEST), np.int32))
    with pytest.raises(UnsupportedError, match="with beams"):
        import_model(model_of(OP, beams, **SELF).SerializeToString())
    halves = step(2)
    for lost in (5, 6):
        with pytest.raises(ModelError, match="past keys but no past values"):
            import_model(model_of(OP, (*halves[:lost], None, *halves[lost + 1 :]), **SELF).SerializeToString())
