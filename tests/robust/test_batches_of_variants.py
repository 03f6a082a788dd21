"""Rows among others in a library with a variant for one: equal bits with --exact-batches, else explain tells."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import torshc
from tests.support.models import parsed
from tests.support.seeded import seeded
from torshc.base.options import CompileOptions
from torshc.pipeline.compiler import prepare

DEPTH, COLUMNS = 2048, 1024
RNG = seeded(8)
BLOCKS = DEPTH // 32


def product(narrow: bool) -> onnx.ModelProto:
    """x [s, DEPTH] by weights, of 4 bits or of floats."""
    op = (
        f"com.microsoft.MatMulNBits<K={DEPTH}, N={COLUMNS}, bits=4, block_size=32>(x, w, scale)"
        if narrow
        else "MatMul(x, w)"
    )
    made = parsed(
        f"""<ir_version: 10, opset_import: ["": 18, "com.microsoft": 1]>
        g (float[s,{DEPTH}] x) => (float[s,{COLUMNS}] y) {{ y = {op} }}"""
    )
    if narrow:
        weights = {
            "w": RNG.integers(0, 256, (COLUMNS, BLOCKS, 16), np.uint8),
            "scale": RNG.uniform(0.5, 1.5, (COLUMNS, BLOCKS)).astype(np.float32),
        }
    else:
        weights = {"w": RNG.standard_normal((DEPTH, COLUMNS), np.float32)}
    made.graph.initializer.extend(onnx.numpy_helper.from_array(w, n) for n, w in weights.items())
    return made


@pytest.mark.parametrize(("narrow", "precision"), [(False, "f32"), (False, "bf16"), (True, "f32")])
def test_a_variant_for_one_row_gives_the_bits_of_many(narrow: bool, precision: str, tmp_path: Path) -> None:
    onnx.save(product(narrow), tmp_path / "m.onnx")
    torshc.compile(tmp_path / "m.onnx", tmp_path / "m.tsc", precision=precision, specialize=["s=1"], exact_batches=True)
    with torshc.load(tmp_path / "m.tsc", threads=2) as loaded:
        x = RNG.standard_normal((37, DEPTH), np.float32)
        whole = loaded.run({"x": x})["y"]
        for k in (0, 5, 36):
            np.testing.assert_array_equal(loaded.run({"x": x[k : k + 1]})["y"][0], whole[k])
        assert sum(f.runs for f in loaded.stats().forms if f.sizes == "s=1") in (0, 3)  # 0: its kernels are the same


def test_explain_names_the_products_that_differ(tmp_path: Path) -> None:
    """Where the processor has instructions that multiply bytes, which VNNI's are."""
    onnx.save(product(True), tmp_path / "m.onnx")

    def rows(exact: bool, *specialize: str) -> tuple[str, ...]:
        options = CompileOptions(mcpu="sapphirerapids", specialize=specialize, exact_batches=exact)
        return prepare(tmp_path / "m.onnx", options).thresholds

    assert any("up to 4 rows by weights of 4 bits" in line for line in rows(False, "s=1"))
    assert not rows(True, "s=1") and not rows(False)
