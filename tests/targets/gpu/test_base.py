"""What a kernel for devices declares: the axes that its statements read, and the sizes that its text uses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jinja2
import numpy as np
import pytest

from torshc.expr import F16, F32, DType, Expr, acc, axis, call, cast, const, dim, load
from torshc.graph import TensorType, Value
from torshc.kernels.base import Buffer, Store, Temporary
from torshc.kernels.machine import Machine
from torshc.targets import find_target
from torshc.targets.base import environment
from torshc.targets.gpu.base import GridPrinter
from torshc.targets.gpu.cuda.target import CudaTarget
from torshc.targets.gpu.grid import GridMap

AXES = axis("i0", dim("n")), axis("i1", 5), axis("i2", 7)
UNRAVEL = '{% from "axes.j2" import unravel with context %}{{ unravel(axes, "at", among) }}'


def kernel(*offsets: Expr) -> GridMap:
    buffer = Buffer(Temporary("t", 0, const(4096)), F32, True)
    stores = tuple(Store(0, e, const(1.0, F32)) for e in offsets)
    return GridMap((buffer,), dim("n") * dim("m"), const(0), const(0), AXES, stores, 1, 1)


def decoded(among: Any) -> list[str]:
    printer = GridPrinter(kernel(*AXES), CudaTarget.words)
    text = environment(CudaTarget.search).from_string(UNRAVEL).render(p=printer, axes=AXES, among=among)
    return [line.strip() for line in text.splitlines()]


@pytest.mark.parametrize(
    ("read", "expected"),
    [
        ("", []),
        ("2", ["int i2 = at % 7"]),
        ("1", ["at_rest = at / 7", "int i1 = at_rest % 5"]),
        ("0", ["i0 = at / 35"]),
        ("02", ["i0 = at / 35", "int at_inner = (int)(at - 35 * i0)", "int i2 = at_inner % 7"]),
        ("012", ["i0 = at / 35", "int at_inner = (int)(at - 35 * i0)", "int i2 = at_inner % 7",
                 "int at_inner_rest = at_inner / 7", "int i1 = at_inner_rest"]),
    ],
)  # fmt: skip
def test_axes_that_nothing_reads_are_not_declared(read: str, expected: list[str]) -> None:
    """Of a number of 64 bits, axes of known sizes are taken off as a number of 32."""
    lines = decoded([AXES[int(k)] * 2 for k in read])
    assert [line.removeprefix("const ").removeprefix("int64_t ").rstrip(";") for line in lines] == expected
    assert decoded(AXES) == decoded(None)


def test_what_was_rounded_to_the_type_that_it_is_stored_in_is_rounded_once() -> None:
    """Alone, and as a packet of floats, which CUDA's prelude rounds two at a time."""
    packet = axis("i0", 64)
    buffers = Buffer(Temporary("t", 0, const(4096)), F16, True), Buffer(Temporary("u", 0, const(4096)), F32, True)
    store = Store(0, packet, call("as_f16", acc("x", F32)))
    made = replace(kernel(packet), buffers=buffers, axes=(packet,), stores=(store,))
    assert GridPrinter(made, CudaTarget.words).block([store], {"x": "x"}).strip() == "b0[i0] = t_encode_f16(x);"
    whole = GridPrinter(made, CudaTarget.words).block([store], {"x": "x"}, packet, 8)
    assert "q0[j] = x;" in whole and "t_write8_f16(b0 + i0, q0);" in whole
    assert "q0[j] = t_encode_f16(x);" in GridPrinter(made, replace(CudaTarget.words, packed=frozenset())).block(
        [store], {"x": "x"}, packet, 8
    )
    wider = GridPrinter(made, CudaTarget.words).block([replace(store, buffer=1)], {"x": "x"})
    assert "t_decode_f16(t_encode_f16(x))" in wider


def test_what_parts_of_a_kernel_read() -> None:
    printer = GridPrinter(kernel(*AXES), CudaTarget.words)
    read, kept = load(0, (AXES[1],), F32), load("0", (AXES[2],), F32)  # an element of a row in a register
    assert printer.axes_in(AXES, (None, [Store(0, AXES[0], read + kept)])) == AXES[:2]
    assert printer.takes("x1", acc("x1", F32) + read) and not printer.takes("x1", read, acc("x10", F32))


def test_a_kernel_gets_the_sizes_that_its_text_uses() -> None:
    made = find_target("cuda")(Machine()).render(kernel(AXES[1] * dim("k") + AXES[0]))
    assert made.dims == (dim("n"), dim("k"))  # "m" is a number of blocks alone
    assert "float *b0, const int64_t s0, const int64_t s1)" in made.source and "dim[1])" in made.source
    assert "s2" not in made.source and "(void)" not in made.source


@pytest.mark.parametrize("target", ["cuda", "metal", "webgpu"])
def test_a_kernel_is_rendered_once(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one with a size that its text does not use, and a number of an element computed by a function of indices."""
    number = cast(call("max", AXES[0] - AXES[1], const(0)), F32)
    offset = AXES[0] * 35 + AXES[1] * 7 + AXES[2]
    made = replace(kernel(offset), stores=(Store(0, offset, number),))
    rendered: list[str | None] = []
    render = jinja2.Template.render

    def counted(template: jinja2.Template, *args: Any, **words: Any) -> str:
        rendered.append(template.name)
        return render(template, *args, **words)

    monkeypatch.setattr(jinja2.Template, "render", counted)
    find_target(target)(Machine()).render(made)
    assert rendered == ["map.j2"]


def test_a_number_of_an_element_is_wide_though_indices_are_not() -> None:
    number = cast(call("max", AXES[1] - AXES[2], const(0)) * const(2**33), F32)
    made = replace(kernel(AXES[1] * 7 + AXES[2]), tasks=const(1), axes=AXES[1:])
    made = replace(made, stores=(Store(0, AXES[1] * 7 + AXES[2], number),))
    source = find_target("cuda")(Machine()).render(made).source
    assert "#define T_INDEX int\n" in source
    assert "8589934592 * t_max_i64(((int64_t)i1 - (int64_t)i2), 0)" in source


def test_kernels_of_one_key_have_one_text() -> None:
    """Whatever their operands are; but not where these are weights, are one and the same, or have other types."""
    i = axis("i0", 64)

    def copy(first: Value, second: Value, dtype: DType = F32) -> GridMap:
        read = load(0, (i,), F32) + load(1, (i,), F32)
        buffers = (
            Buffer(first, F32, False),
            Buffer(second, F32, False),
            Buffer(Temporary("t", 0, const(256)), dtype, True),
        )
        return GridMap(buffers, const(64), const(0), const(0), (i,), (Store(2, i, read),), 1, 1)

    target = CudaTarget(Machine())
    a, b, c, weight = (Value(n, f"v{n}", TensorType(F32, (const(64),))) for n in range(4))
    weight.const = np.ones(64, np.float32)
    made = [copy(a, b), copy(b, c), copy(a, a), copy(a, weight), copy(a, b, F16)]
    keys, texts = [target.text_key(k) for k in made], [target.render(k).text for k in made]
    assert keys[0] == keys[1] and texts[0] == texts[1]
    assert len({*keys}) == 4 and len({*texts}) == 2
    assert target.text_key(replace(made[0], when=dim("n") < 4)) == keys[0]
