"""ONNX's Attention in one kernel, against onnx's reference evaluator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto as T
from onnx import helper
from onnx.reference import ReferenceEvaluator

import torshc
from torshc.base.options import CompileOptions
from torshc.pipeline.compiler import prepare

Array = np.ndarray[Any, Any]
Dims = tuple[int | str, ...]
SIZES = ({"b": 2, "s": 7, "t": 9, "p": 3, "n": 10}, {"b": 1, "s": 1, "t": 1, "p": 0, "n": 1})


@dataclass(frozen=True)
class Form:
    """Operands by their shapes, of which sizes are bound by their names, and attributes."""

    q: Dims = ("b", 4, "s", 8)
    k: Dims = ("b", 4, "t", 8)
    v: Dims = ("b", 4, "t", 5)
    mask: Dims | None = None
    boolean: bool = False
    past: tuple[Dims, Dims] | None = None
    opset: int = 23
    dtype: int = T.FLOAT
    attributes: Mapping[str, int | float] = field(default_factory=dict)

    def operands(self) -> dict[str, tuple[int, Dims]]:
        found = {name: (self.dtype, dims) for name, dims in (("q", self.q), ("k", self.k), ("v", self.v))}
        if self.mask is not None:
            found["m"] = (T.BOOL if self.boolean else self.dtype, self.mask)
        if self.past is not None:
            found |= {"pk": (self.dtype, self.past[0]), "pv": (self.dtype, self.past[1])}
        return found

    def model(self) -> onnx.ModelProto:
        operands = self.operands()
        names = ["q", "k", "v", "m" if self.mask else "", *(["pk", "pv"] if self.past else [])]
        results = ["y", *(["ok", "ov"] if self.past else [])]
        graph = helper.make_graph(
            [helper.make_node("Attention", names, results, **self.attributes)],
            "g",
            [helper.make_tensor_value_info(name, dtype, dims) for name, (dtype, dims) in operands.items()],
            [helper.make_tensor_value_info(name, self.dtype, None) for name in results],
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=11)

    def feeds(self, sizes: Mapping[str, int]) -> dict[str, Array]:
        """Random values; the mask hides all of the first row, and some of the others."""
        rng = np.random.default_rng(sizes["t"])
        found: dict[str, Array] = {}
        for name, (dtype, dims) in self.operands().items():
            shape = tuple(sizes[d] if isinstance(d, str) else d for d in dims)
            values = rng.standard_normal(shape)
            if name == "m":
                seen = rng.random(shape) < 0.6
                seen[..., 0, :] = False
                values = seen if self.boolean else np.where(seen, values, -np.inf)
            found[name] = values.astype(helper.tensor_dtype_to_np_dtype(dtype))
        return found


PAST = (("b", 4, "p", 8), ("b", 4, "p", 5))
FORMS = {
    "plain": Form(),
    "causal over other keys": Form(attributes={"is_causal": 1, "scale": 0.3}),
    "added mask": Form(mask=("b", 1, "s", "t")),
    "shorter mask": Form(mask=(4, "s", "n"), k=("b", 4, 13, 8), v=("b", 4, 13, 5), opset=24),
    "causal behind a past": Form(k=("b", 4, "s", 8), v=("b", 4, "s", 5), past=PAST, attributes={"is_causal": 1}),
    "shared heads": Form(
        q=("b", 4, 1, 8),
        k=("b", 2, 1, 8),
        v=("b", 2, 1, 5),
        mask=("b", 4, 1, "n"),
        boolean=True,
        past=(("b", 2, 9, 8), ("b", 2, 9, 5)),
        opset=24,
    ),
    "shared heads of many queries": Form(k=("b", 2, "t", 8), v=("b", 2, "t", 5), mask=("b", 4, "s", "t")),
    "flat": Form(
        q=("b", "s", 32), k=("b", "t", 16), v=("b", "t", 10), attributes={"q_num_heads": 4, "kv_num_heads": 2}
    ),
    "window": Form(
        mask=("s", "t"), opset=25, attributes={"left_window_size": 2, "right_window_size": 1}
    ),
    "halves": Form(mask=("b", 1, "s", "t"), dtype=T.FLOAT16),
}  # fmt: skip


@pytest.mark.parametrize("name", FORMS)
def test_as_the_reference(name: str, tmp_path: Path) -> None:
    form = FORMS[name]
    model = form.model()
    reference = ReferenceEvaluator(model)
    made = torshc.compile(model, tmp_path / "m.tsc")
    kernels = [k.template for unit in made.units for k in unit.kernels]
    assert not [k for k in kernels if k.startswith(("gemm", "row"))] and "attention.c.j2" in kernels
    with torshc.load(tmp_path / "m.tsc", threads=1) as compiled:
        for sizes in SIZES:
            feeds = form.feeds(sizes)
            for got, want in zip(compiled.run(feeds).values(), reference.run(None, feeds), strict=True):
                assert got.shape == want.shape and got.dtype == want.dtype
                # f32: sums of 8 terms, of weights up to 1; f16: onnx rounds scores of up to 8 and weights to 11 bits.
                np.testing.assert_allclose(got, want, atol=1e-5 if form.dtype == T.FLOAT else 2e-2)


@pytest.mark.parametrize(("precision", "one"), [(T.FLOAT, True), (T.DOUBLE, False)])
def test_a_softmax_of_another_precision_is_a_kernel_of_its_own(precision: int, one: bool) -> None:
    model = Form(attributes={"softmax_precision": precision}).model()
    made = prepare(model.SerializeToString(), CompileOptions())
    assert ("attention.c.j2" in [k.template for unit in made.units for k in unit.kernels]) == one


def test_a_nan_is_not_taken_for_a_hidden_row(tmp_path: Path) -> None:
    form = Form(mask=("b", 1, "s", "t"))
    feeds = form.feeds(SIZES[0])
    feeds["q"][0, 0, 1, 3] = np.nan
    torshc.compile(form.model(), tmp_path / "m.tsc")
    with torshc.load(tmp_path / "m.tsc", threads=1) as compiled:
        y = compiled.run(feeds)["y"]
    assert np.isnan(y[0, 0, 1]).all() and np.isnan(y).sum() == 5 and not y[:, :, 0].any()
