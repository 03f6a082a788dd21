"""Functions of vectors that kernels in C hold."""

from __future__ import annotations

import pytest

from torshc.base.resources import templates
from torshc.expr import F8E5M2, F32, F64, I4, acc, call
from torshc.expr.formulas import PRINTED
from torshc.targets.cpu.c import FEW_TYPES
from torshc.targets.cpu.vector_functions import function_text, functions_of, library, texts_of, types_of

from ...support.run_kernel import compile_source, compilers

X = acc("x", F32)


def test_a_function_stands_once_behind_what_it_calls() -> None:
    values = [call("sigmoid", X), call("exp", X), call("asinh", call("exp", X + 1.0))]
    assert functions_of(values) == ["sigmoid_f32", "exp_f32", "log1p_f32", "asinh_f32"]


def test_what_is_not_positive_needs_the_shorter_exp_alone() -> None:
    assert functions_of([call("exp", X)], low=[X]) == ["exp_low_f32"]


def test_doubles_are_formulas_or_the_c_library_s() -> None:
    x = acc("x", F64)
    assert functions_of([call("sigmoid", x), call("sin", x), X + 1.0]) == ["exp_f64", "sigmoid_f64", "sin_f64"]
    assert function_text("sin_f64", 16) == "T_LANEWISE1(t_sin_f64, f64, sin)"


def test_conversions_come_with_what_reads_and_writes_elements() -> None:
    assert functions_of([call("as_f16", X), call("as_f8e8m0_up", X)]) == ["encode_f16", "decode_f16", "as_f8e8m0_up"]
    text = texts_of(["encode_i4"], 8, [F8E5M2], [I4])
    assert text.count("T_FN ") == 2 and text.endswith("T_DEF_READS(f8e5m2, f32, u8, uint8_t)\nT_DEF_STORES(i4, i8, u8)")
    assert "#ifdef" in function_text("encode_f16", 8) and "#ifdef" not in function_text("encode_f8e5m2", 8)


@pytest.mark.parametrize("compiler", compilers())
@pytest.mark.parametrize("lanes", [16, 8, 4, 1])
def test_functions_of_few_types_need_the_prelude_of_few_types(lanes: int, compiler: str) -> None:
    calls = [call(n.removesuffix("_f32"), X) for n in sorted(PRINTED) if n.endswith("_f32") and n != "pow_f32"]
    calls += [call(n, X) for n in ("as_f16", "as_bf16", "as_f8e8m0_up", "as_f8e8m0_nearest")]
    names = functions_of(c for c in calls if types_of(functions_of([c]), lanes) <= FEW_TYPES)
    assert {"exp_f32", "erf_f32", "log1p_f32"} <= {*names}
    assert not {"sin_f32", "as_f8e8m0_up"} & {*names}
    callers = "".join(f"f32v call_{n}(f32v x) {{ return t_{n}(x); }}\n" for n in names)
    text = f'#define T_FEW_TYPES\n#include "t_kernel.h"\n{texts_of(names, lanes)}\n{callers}'
    compile_source(text, lanes, compiler, ("-Wno-psabi",))


def test_the_c_library_is_included_where_a_function_calls_it() -> None:
    assert [texts_of([n], 8).count("#include <math.h>") for n in ("exp_f64", "sin_f64", "sin_f32")] == [0, 1, 1]
    assert library(8).count("#include") == 1


@pytest.mark.parametrize("name", sorted(PRINTED))
def test_lines_fit_a_screen(name: str) -> None:
    assert max(map(len, function_text(name, 16).splitlines())) <= 140


def test_every_template_holds_the_functions_that_its_kernel_calls() -> None:
    others = ("custom.c.j2", "collective.c.j2", "winograd_inputs.c.j2")  # which compute no function themselves
    texts = {p.name: p.read_text() for p in (templates("c") / "kernels").glob("*.j2") if p.name not in others}
    including = {name for name, text in texts.items() if '#include "' in text}
    assert including == {name for name, text in texts.items() if "{{ p.called_functions }}" in text}
