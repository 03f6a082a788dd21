"""Generated code under the address and undefined-behaviour sanitizers: no read past an end, no bad shift."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import torshc

from ..support import sanitize
from ..support.slow import some
from ..support.zoo import zoo

ZOO = zoo()


@pytest.mark.parametrize("name", some(ZOO, 6))
def test_clean_under_sanitizers(name: str, tmp_path: Path, record_property: Callable[[str, object], None]) -> None:
    """For this processor; of other widths of vectors, the tests of kernels see each read past an end."""
    specimen = ZOO[name]
    check(specimen.model, [specimen.feeds(k) for k in range(len(specimen.shapes))], tmp_path)
    record_property("specimens", 1)


def test_gathers_of_joined_and_padded_tensors(tmp_path: Path) -> None:
    """The one kernel of both reads an operand only within it, wherever the index falls."""
    made = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["" : 20]>
        g (float[2] a, float[n] b, float[3] c, int64[k] at) => (float[k] y, float[k] z) {
            joined = Concat<axis = 0>(a, b, c)
            taken = Gather(joined, at)
            y = Neg(taken)
            edges = Constant <value_ints = [2, 3]> ()
            padded = Pad(c, edges)
            eight = Constant <value_int = 8> ()
            spot = Mod(at, eight)
            z0 = Gather(padded, spot)
            z = Exp(z0)
        }""")
    a, b, c = (np.arange(n, dtype=np.float32) for n in (2, 9, 3))
    check(made, [{"a": a, "b": b, "c": c, "at": np.arange(-14, 14)[:k]} for k in (28, 3)], tmp_path)


def test_both_forms_of_a_script_under_sanitizers(tmp_path: Path) -> None:
    """Runs that take them in turns, and ones that begin again: what one form held is let go, strings too."""
    made = onnx.parser.parse_model("""<ir_version: 9, opset_import: ["" : 19]>
        g (float[k, 4] u, float[l, 4] v, float[n] x, float[m, 1] q) => (float[K, 4] y, bool[n] z, float[M, 1] r)
        <string[1] w = {"1"}> {
            y = Add(u, v)
            text = Cast <to = 8> (x)
            z = Equal(text, w)
            found = NonZero(x)
            places = Transpose(found)
            whole = Cast <to = 1> (places)
            r = Add(whole, q)
        }""")
    sizes = [(2, 2, 3), (1, 2, 3), (2, 2, 1), (2, 2, 3), (2, 1, 1), (1, 1, 3), (1, 3, 1)]
    x = np.array([1, 0, 2, 3], np.float32)
    ones = [{"u": (k, 4), "v": (m, 4), "q": (q, 1)} for k, m, q in sizes]
    feeds = [{n: np.full(s, j + 1, np.float32) for j, (n, s) in enumerate(one.items())} | {"x": x} for one in ones]
    check(made, feeds, tmp_path)


def check(made: onnx.ModelProto, feeds: list[dict[str, np.ndarray[Any, Any]]], tmp_path: Path) -> None:
    """Runs agree with those of the same bundle built with the sanitizers, which say nothing."""
    found = sanitize.usable()
    if found is None:
        pytest.skip("no compiler with the sanitizers' runtime is here")
    compiler, runtime = found
    onnx.save(made, tmp_path / "m.onnx")
    bundle = tmp_path / "m.tsc"
    torshc.compile(tmp_path / "m.onnx", bundle, keep_intermediates=True, threads=2)
    with torshc.load(bundle) as model:
        plain = [list(model.run(f).values()) for f in feeds]
    sanitize.rebuild(bundle, tmp_path / "work", compiler)
    for got, wanted in zip(sanitize.run(bundle, feeds, tmp_path, runtime), plain, strict=True):
        for a, b in zip(got, wanted, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_the_sanitizer_would_find_it(tmp_path: Path) -> None:
    found = sanitize.usable()
    if found is None:
        pytest.skip("no compiler with the sanitizers' runtime is here")
    specimen = ZOO["softmax"]
    onnx.save(specimen.model, tmp_path / "m.onnx")
    bundle = tmp_path / "m.tsc"
    torshc.compile(tmp_path / "m.onnx", bundle, keep_intermediates=True)
    for kernel in (bundle / "src").glob("k*.c"):
        kernel.write_text(kernel.read_text().replace("(b0 + ", "(b0 + 1 + "))
    sanitize.rebuild(bundle, tmp_path / "work", found[0])
    with pytest.raises(AssertionError, match="AddressSanitizer"):
        sanitize.run(bundle, [specimen.feeds(2)], tmp_path, found[1])
