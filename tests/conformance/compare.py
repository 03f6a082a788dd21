"""Whether outputs are what a case says.

Outputs of random operators (Bernoulli, Dropout in training, RandomNormal, RandomNormalLike, RandomUniform,
RandomUniformLike, Multinomial, and what is expanded into them) are compared in shape and element type, and their values
must be legal ones: no two implementations draw the same numbers. Of integers that floats are cast to, only those are
compared that ONNX defines (Cast: "undefined if OOR").
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from torshc.expr import from_numpy

from .cases import Array, Case

RANDOM = frozenset({
    "Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike",
})  # fmt: skip
CASTS = ("Cast", "CastLike", "(CastLike)")
# The package's tolerance is for f32; narrower types hold fewer digits (11 and 8 bits).
ROUGH = {"float16": 2e-3, "bfloat16": 2e-2}


def is_random(case: Case) -> bool:
    """Whether what a case draws decides about its outputs."""
    nodes = [*case.model.graph.node, *(n for f in case.model.functions for n in f.node)]
    return any(n.op_type in RANDOM for n in nodes) or _drops(case)


def _drops(case: Case) -> bool:
    """A Dropout in training mode that drops something."""
    inputs = case.data_sets[0][0]
    return case.operator == "Dropout" and len(inputs) == 3 and bool(inputs[2]) and float(inputs[1]) > 0


def defined(case: Case, index: int) -> Any:
    """Which elements of a data set's outputs ONNX defines: all but integers cast from floats that they cannot hold."""
    if case.operator not in CASTS:
        return ...
    x, y = (values[0] for values in case.data_sets[index])
    source, dtype = from_numpy(x.dtype), from_numpy(y.dtype)
    assert source is not None and dtype is not None
    if not (source.is_float and dtype.is_int):
        return ...
    low, high = dtype.range
    whole = np.trunc(x.astype(np.float64))
    held = (low <= whole) & (whole < high + 1)
    assert held.any(), "no element that ONNX defines"
    return held


def compare(case: Case, got: Mapping[str, Any], index: int) -> None:
    """Compares outputs with those of a data set.

    Raises:
        AssertionError: naming the output that is another one.
    """
    wanted = case.data_sets[index][1]
    drawn, held = is_random(case), defined(case, index)
    for (name, value), want in zip(got.items(), wanted, strict=True):
        _compare(name, value, want, case, drawn, held)
    if drawn:
        _legal(case, list(got.values()), index)


def _compare(name: str, got: Any, wanted: Any, case: Case, drawn: bool, held: Any) -> None:
    if wanted is None:
        assert got is None, f"{name}: {type(got).__name__} in place of an absent value"
        return
    if isinstance(wanted, list):
        assert isinstance(got, list), f"{name}: {type(got).__name__} in place of a sequence"
        assert len(got) == len(wanted), f"{name}: {len(got)} elements in place of {len(wanted)}"
        for k, (a, b) in enumerate(zip(got, wanted, strict=True)):
            _compare(f"{name}[{k}]", a, b, case, drawn, held)
        return
    assert isinstance(got, np.ndarray), f"{name}: {type(got).__name__} in place of an array"
    assert got.shape == wanted.shape, f"{name}: shape {got.shape} is not {wanted.shape}"
    assert got.dtype == wanted.dtype, f"{name}: {got.dtype} is not {wanted.dtype}"
    if not drawn:
        _compare_elements(name, got[held], wanted[held], case)


def _compare_elements(name: str, got: Array, wanted: Array, case: Case) -> None:
    if got.dtype == object:
        assert all(isinstance(text, str) for text in got.flat), f"{name}: elements that are not strings"
    if got.dtype.kind in "iubO":
        np.testing.assert_array_equal(got, wanted, err_msg=name)
        return
    wide = np.complex128 if got.dtype.kind == "c" else np.float64
    rtol, atol = max(case.rtol, ROUGH.get(got.dtype.name, 0.0)), max(case.atol, 1e-6)
    np.testing.assert_allclose(got.astype(wide), wanted.astype(wide), rtol=rtol, atol=atol, err_msg=name)


def same(a: Any, b: Any) -> bool:
    """Whether two outputs are equal, bit for bit."""
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    if not isinstance(a, np.ndarray) or not isinstance(b, np.ndarray):
        return a is b
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    return a.tolist() == b.tolist() if a.dtype == object else a.tobytes() == b.tobytes()


def _legal(case: Case, got: list[Any], index: int) -> None:
    """Values that could have been drawn."""
    inputs = case.data_sets[index][0]
    if case.operator == "Dropout":
        _legal_dropout(inputs, got)
        return
    for array in got:
        values = array.astype(np.float64)
        assert np.isfinite(values).all(), "a drawn value is not finite"
        if case.operator in ("Bernoulli", "(Bernoulli)"):
            assert np.isin(values, (0, 1)).all(), "a drawn value is neither 0 nor 1"
            certain = (inputs[0] <= 0) | (inputs[0] >= 1)
            assert (values == inputs[0])[certain].all(), "what is certain was not drawn"


def _legal_dropout(inputs: tuple[Any, ...], got: list[Any]) -> None:
    x, result = inputs[0].astype(np.float64), got[0].astype(np.float64)
    kept = x / (1.0 - float(inputs[1]))
    stays = np.isclose(result, kept, rtol=1e-5)
    assert (stays | (result == 0)).all(), "a value is neither scaled nor dropped"
    if len(got) > 1:
        assert (np.where(got[1], stays, result == 0)).all(), "the mask is not that of the result"
