"""What clang makes of the vector prelude for x86-64: instructions for whole registers, not for each lane."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support import compilers
from tests.support.functions import functions_header
from torshc.base.resources import templates

LEVELS = {8: "x86-64-v3", 16: "x86-64-v4"}
FLAGS = ["-O3", "-std=gnu11", "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math", "-Wno-psabi"]
ONE = {
    "sigmoid of halves": ("uint16_t", "t_store_f16(y, t_sigmoid_f32(t_load_f16(x)))", "ucomiss"),
    "floor of halves": ("uint16_t", "t_store_f16(y, t_floor_f32(t_load_f16(x)))", "vroundss vrndscaless"),
    "log of halves": ("uint16_t", "t_store_f16(y, t_log_f32(t_load_f16(x)))", "ucomiss"),
    "square root of doubles": ("double", "t_store_f64(y, t_sqrt_f64(t_load_f64(x)))", "vsqrtsd"),
}


def assembled(kind: str, call: str, lanes: int, folder: Path) -> str:
    """The instructions of a call of the prelude between memory x and y."""
    host = compilers.needed("clang")
    if host.kind == "zig":
        pytest.skip("Zig's driver names processors in a way of its own")
    compiler = host.cc
    target = subprocess.run([compiler, "-dumpmachine"], capture_output=True, text=True, check=True).stdout
    if not target.startswith("x86_64"):
        pytest.skip("the compiler is for another processor")
    source = folder / "one.c"
    source.write_text(
        f'#include "t_kernel.h"\n#include "t_functions.h"\nvoid one(const {kind} *x, {kind} *y) {{ {call}; }}\n'
    )
    command = [compiler, *FLAGS, f"-march={LEVELS[lanes]}", "-mprefer-vector-width=512", f"-DTORSHC_LANES={lanes}"]
    command += [
        "-I",
        str(templates("c") / "prelude"),
        "-I",
        str(functions_header(folder, lanes=lanes)),
        "-S",
        str(source),
        "-o",
        "-",
    ]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("lanes", LEVELS)
@pytest.mark.parametrize("name", ONE)
def test_no_lane_is_computed_alone(name: str, lanes: int, tmp_path: Path) -> None:
    kind, call, scalar = ONE[name]
    text = assembled(kind, call, lanes, tmp_path)
    assert not [line for line in text.splitlines() if any(word in line for word in scalar.split())]


def test_powers_of_two_scale_by_one_instruction(tmp_path: Path) -> None:
    """As wide as AVX-512; narrower vectors multiply by powers, whose bits are shifted into place."""
    for lanes in LEVELS:
        text = assembled("float", "t_store_f32(y, t_exp_f32(t_load_f32(x)))", lanes, tmp_path)
        assert ("vscalefps" in text, "vpslld" in text) == (lanes == 16, lanes != 16)
