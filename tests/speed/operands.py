"""Operands written as text.

========================  ======================================================================================
``8x128``                 8 x 128 numbers of the row's type, drawn between -2 and 2 (0 and 99 for integers)
``i64:8x128[0..9]``       of another type, and drawn from 0 to 9, without 9 where they are integers
``!8x128``                a constant of the model
``=i64:1,0,2``            a constant with these values; one value is a scalar, and ``1,`` a vector of one
``_``                     left out
========================  ======================================================================================
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
TYPES: dict[str, Any] = {
    "f16": np.float16, "f32": np.float32, "f64": np.float64, "i8": np.int8, "u8": np.uint8, "i16": np.int16,
    "i32": np.int32, "i64": np.int64, "bool": np.bool_,
}  # fmt: skip
_FORM = re.compile(r"(?P<mark>[!=]?)(?:(?P<type>\w+):)?(?P<body>[^\[]*)(?:\[(?P<low>.+)\.\.(?P<high>.+)\])?")


def drawn(text: str, type_: str) -> tuple[list[Array | None], tuple[int, ...]]:
    """Operands, and the places of those that are constants."""
    words, rng = text.split(), np.random.default_rng(0)
    fixed = tuple(k for k, w in enumerate(words) if w[0] in "!=")
    return [None if w == "_" else _drawn(w, type_, rng) for w in words], fixed


def _drawn(word: str, type_: str, rng: np.random.Generator) -> Array:
    form = _FORM.fullmatch(word)
    assert form, word
    dtype, body = np.dtype(TYPES[form["type"] or type_]), form["body"]
    if form["mark"] == "=":
        values = [float(v) for v in body.split(",") if v]
        return np.array(values if "," in body else values[0], dtype)
    shape = tuple(map(int, body.split("x"))) if body else ()
    if dtype.kind == "b":
        return rng.random(shape) < 0.5
    if dtype.kind == "f":
        return rng.uniform(float(form["low"] or -2), float(form["high"] or 2), shape).astype(dtype)
    return rng.integers(int(form["low"] or 0), int(form["high"] or 99), shape).astype(dtype)


def shape_of(text: str) -> str:
    """The shape of the first operand that has one and is not a constant, or of the first."""
    shapes = [(form["mark"], form["body"]) for w in text.split() if w != "_" and (form := _FORM.fullmatch(w))]
    return next((body for mark, body in shapes if body and not mark), shapes[0][1] if shapes else "")
