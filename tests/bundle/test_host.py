"""The host program: what is refused, and that every shape of program compiles without a warning and runs."""

from __future__ import annotations

import ctypes
import dataclasses
from pathlib import Path

import numpy as np
import pytest

from tests.support.compare import check
from tests.support.models import model, node
from torshc.base.cache import Cache
from torshc.base.errors import InternalError
from torshc.base.resources import cache_folder
from torshc.bundle import build
from torshc.bundle.host import CPU, Buffer, Condition, HostProgram, Launch, Port, Symbol
from torshc.bundle.host_source import STRETCH, host_sources, render_host
from torshc.expr import call, const, dim, select
from torshc.runtime.native import CPU as CPU_DEVICE
from torshc.runtime.native import Dtype, Library, Options, Tensor
from torshc.targets.cc import find_compiler
from torshc.targets.cpu.c import CTarget
from torshc.targets.gpu.cuda.target import CudaTarget

from . import tiny

S0, S1, S2 = dim("s0"), dim("s1"), dim("s2")
NAMES = ("s0",)
X = Port("f32", (S0, 4))
FILES, GPU_FILES = CTarget.host, CudaTarget.host


def test_a_symbol_that_is_not_bound_is_refused() -> None:
    program = HostProgram((X,), (), (Symbol(0, 0),), NAMES, arena_bytes=S1 * 4)
    with pytest.raises(InternalError, match="uses 's1'"):
        render_host(program, FILES)


@pytest.mark.parametrize(
    "change",
    [
        {"steps": (Launch("k0", (), comment="*/ int x; /*"),)},
        {"steps": (Launch("k0", (), comment="a\nb"),)},
        {"steps": (Launch("printf", ()),)},
        {"steps": (Launch("k0;", ()),)},
        {"steps": (Launch("k0", (Buffer("input", 1),)),)},
        {"steps": (Launch("k0", (Buffer("weights", 0, 65),)),)},
        {"symbols": (Symbol(1, 0),)},
        {"symbols": (Symbol(0, 2),)},
        {"symbols": (Symbol(0, 0, 5, 4),)},
        {"symbols": (Symbol(0, 0, 0, 2**31),)},
        {"inputs": (Port("q8", (S0, 4)),)},
        {"arena_bytes": -1},
        {"arena_bytes": 2**48},
        {"cpu_features": ('avx2") || system("',)},
    ],
)
def test_what_contradicts_itself_is_refused(change: dict[str, object]) -> None:
    program = HostProgram((X,), (X,), (Symbol(0, 0),), NAMES, weights_bytes=64)
    render_host(program, FILES)
    with pytest.raises(InternalError):
        render_host(dataclasses.replace(program, **change), FILES)  # type: ignore[arg-type]  # wrong on purpose


def compiled(program: HostProgram, folder: Path, kernels: dict[str, str], cc: str | None) -> Library:
    compiler = find_compiler(cc)
    sources, headers = host_sources(program, FILES)
    flags = (*compiler.base_flags(1), "-Wall", "-Wextra", "-Werror")
    objects = build.build_objects({**sources, **kernels}, headers, compiler, flags, Cache(cache_folder()), 2, folder)
    return Library(build.link_library(compiler, objects, folder))


@pytest.mark.parametrize("cc", tiny.COMPILERS)
def test_program_without_inputs_and_without_work(tmp_path: Path, cc: str | None) -> None:
    program = HostProgram((), (Port("i64"),), steps=(Launch("k0", (), tasks=0),), arena_bytes=8)
    library = compiled(program, tmp_path, {"k0.c": tiny.RELU}, cc)
    assert library.info("output", 0)[1] == ()
    assert library.torshc_input_count() == 0
    library.unload()


EXPRESSIONS = {
    call("min", S0, 5): lambda a, b: min(a, 5),
    call("max", 1, S0): lambda a, b: max(1, a),
    (S0 - 10) // 4 + 3: lambda a, b: (a - 10) // 4 + 3,
    (S0 - 10) % 4: lambda a, b: (a - 10) % 4,
    S0 // S1: lambda a, b: a // b if b else 0,
    (S0 + 3) // 4 * (S1 + 1): lambda a, b: (a + 3) // 4 * (b + 1),
    call("min", call("max", S0, S1), call("min", 7, S1 + 2)): lambda a, b: min(max(a, b), min(7, b + 2)),
    select(call("gt", S0, S1), S0, S1): lambda a, b: max(a, b),
}


def test_expressions_constraints_and_overflow(tmp_path: Path) -> None:
    from ctypes import byref, c_int64

    program = HostProgram(
        inputs=(Port("u8", (S0,)), Port("u8", (S1, S0 * 2))),
        outputs=(Port("u8", tuple(EXPRESSIONS)), Port("u8", (S0 * S1 * S1 * S0 + 1, 0))),
        symbols=(Symbol(0, 0), Symbol(1, 0, 0, 1000)),
        names=("s0", "s1"),
        conditions=(
            Condition(0, select(call("eq", S1, 13), const(1), const(0)), const(0)),
            Condition(7, call("max", S0 + S1, 1999), const(1999)),
        ),
    )
    library = compiled(program, tmp_path, {}, None)
    options, model = Options(ctypes.sizeof(Options), 0, 1, None), ctypes.c_void_p()
    assert library.torshc_open(byref(options), byref(model)) == 0
    tensors = (Tensor * 2)()

    def shape(output: int, a: int, b: int, c: int) -> list[int] | int:
        dims, found = ((c_int64 * 1)(a), (c_int64 * 2)(b, c)), (c_int64 * 64)()
        for tensor, d in zip(tensors, dims, strict=True):
            tensor.device.type, tensor.ndim, tensor.dtype = CPU_DEVICE, len(d), Dtype(1, 8, 1)
            tensor.shape = ctypes.cast(d, ctypes.POINTER(c_int64))
        status = library.torshc_output_shape(model, tensors, 2, output, found)
        return int(status) or list(found)[: len(EXPRESSIONS)]

    for a, b in [(0, 0), (1, 1), (2, 7), (7, 2), (9, 0), (0, 9), (100, 999)]:
        want = [function(a, b) for function in EXPRESSIONS.values()]
        assert shape(0, a, b, 2 * a) == (want if min(want) >= 0 else 6), (a, b)
    assert shape(0, 3, 2, 7) == 6  # not 2 * s0
    assert shape(0, 3, 13, 6) == 6  # a condition
    assert (fault := library.last_fault()).condition == 0 and (fault.left, fault.right) == (1, 0)
    assert shape(0, 3, 1001, 6) == 6  # above the maximum
    assert shape(1, 2**30, 1000, 2**31) == 13  # 2^80 elements
    assert shape(0, 1999, 1, 3998) == 6  # the second constraint
    library.torshc_close(model)
    library.unload()


# Of dividends and divisors on both sides of 2^64, and of both signs.
QUOTIENTS = {
    S0 * S0 * S0 * S0 // (S0 * S0 * S0 + S1): lambda a, b: a**4 // (a**3 + b),
    (S0 * S0 * S0 + S1) // (S0 * S0 + 1): lambda a, b: (a**3 + b) // (a**2 + 1),
    (S1 - S0 * S0 * S0) // (S0 * S0 + 1): lambda a, b: (b - a**3) // (a**2 + 1),
    (S0 * S0 * S0 - S1) // (1 - S0 * S0 * S0 - S0): lambda a, b: (a**3 - b) // (1 - a**3 - a),
    (S1 - S0 * S0 * S0) % (S0 * S0 * S0 + 3) // (S0 * S0): lambda a, b: (b - a**3) % (a**3 + 3) // a**2,
}


@pytest.mark.parametrize("cc", tiny.COMPILERS)
def test_quotients_of_128_bits_need_no_library_of_the_compiler(tmp_path: Path, cc: str | None) -> None:
    """Zig takes seconds to compile its own. What a condition's left side was is read from its fault."""
    ports = tuple(Port("u8", (s,)) for s in (S0, S1, S2))
    conditions = [Condition(k, select(call("eq", S2, k), e, const(-9)), const(-9)) for k, e in enumerate(QUOTIENTS)]
    symbols, names = tuple(Symbol(k, 0) for k in range(3)), ("s0", "s1", "s2")
    program = HostProgram(ports, (Port("u8"),), symbols, names, conditions=tuple(conditions))
    compiler, (sources, headers) = find_compiler(cc), host_sources(program, FILES)
    flags = compiler.base_flags(1)
    objects = build.build_objects(sources, headers, compiler, flags, Cache(cache_folder()), 2, tmp_path)
    paths = [o.path for o in objects]
    compiler.run(["-shared", "-nostdlib", "-o", "m.so", *paths, "-Wl,-z,defs", "-lm", "-lpthread", "-lc"], tmp_path)
    library = Library(tmp_path / "m.so")
    options, model = Options(ctypes.sizeof(Options), 0, 1, None), ctypes.c_void_p()
    assert library.torshc_open(ctypes.byref(options), ctypes.byref(model)) == 0
    tensors, found = (Tensor * 3)(), (ctypes.c_int64 * 64)()
    most = 2**31 - 1
    for a, b in [(1, 1), (5, 2), (most, 7), (most - 1, most), (2**25 - 3, 999), (3**19, 0), (2**22, 2**22)]:
        for k, function in enumerate(QUOTIENTS.values()):
            dims = [(ctypes.c_int64 * 1)(size) for size in (a, b, k)]
            for tensor, shape in zip(tensors, dims, strict=True):
                tensor.device.type, tensor.ndim, tensor.dtype = CPU_DEVICE, 1, Dtype(1, 8, 1)
                tensor.shape = ctypes.cast(shape, ctypes.POINTER(ctypes.c_int64))
            assert library.torshc_output_shape(model, tensors, 3, 0, found) == 6
            fault = library.last_fault()
            assert (fault.condition, fault.left) == (k, function(a, b)), (a, b)
    library.torshc_close(model)
    library.unload()


CUDA, METAL = 2, 8  # by DLPack


def device_program(device: int = CUDA, fallback: bool = False) -> HostProgram:
    first = Launch("k0", (Buffer("input"), Buffer("arena", 0, S0 * 4)), (S0,), S0 + 1, threads=0 if fallback else 128)
    if fallback:
        first = dataclasses.replace(first, scratch=64, fallback=True, bytes=(S0 * 16, 16), written=(False, True))
    second = Launch("k1", (), (), 7, scratch=S0 * 512, threads=32)
    return HostProgram((X,), (X,), (Symbol(0, 0),), NAMES, arena_bytes=4096, steps=(first, second), device=device)


def test_steps_on_a_device() -> None:
    text = render_host(device_program(), GPU_FILES)
    assert '#include "t_device.h"' in text and ".device = 2," in text and ".fallbacks" not in text
    assert "int k0(void *const *buf, const int64_t *dim, int64_t blocks, void *stream);" in text
    assert 't_launch(r, 0, "k0", k0, buf, 2, dim, 1, 128, (s0 + 1), NULL);' in text
    assert 't_launch(r, 1, "k1", k1, NULL, 0, NULL, 0, 32, 7, NULL);' in text
    assert "512" not in text  # kernels on a device have no scratch of the host's


def test_kernels_found_by_name() -> None:
    files = dataclasses.replace(GPU_FILES, launchers=False)
    text = render_host(device_program(METAL), files)
    assert ".device = 8," in text and "k0(" not in text
    assert 't_launch(r, 0, "k0", NULL, buf, 2, dim, 1, 128, (s0 + 1), NULL);' in text


def test_a_step_on_the_processor_between_steps_on_a_device() -> None:
    text = render_host(device_program(fallback=True), GPU_FILES)
    assert ".fallbacks = 1," in text and "int k1(void *const *buf" in text
    assert "void k0(void *const *buf, const int64_t *dim, void *scratch, int64_t begin, int64_t end);" in text
    assert "const int64_t bytes[] = {(16 * s0), 16};" in text and "const unsigned char written[] = {0, 1};" in text
    assert "t_fallback(r, 0, k0, buf, 2, bytes, written, dim, 64, (s0 + 1));" in text


@pytest.mark.parametrize(
    ("device", "change"),
    [
        (CPU, {"threads": 32}),
        (CPU, {"fallback": True, "bytes": (4,), "written": (True,)}),
        (CUDA, {}),
        (CUDA, {"threads": 2048}),
        (CUDA, {"threads": 32, "fallback": True, "bytes": (4,), "written": (True,)}),
        (CUDA, {"fallback": True}),
        (CUDA, {"fallback": True, "bytes": (4,), "written": (True, True)}),
        (CUDA, {"fallback": True, "bytes": (S1,), "written": (True,)}),
        (0, {"threads": 32}),
    ],
)
def test_launches_that_a_device_cannot_make(device: int, change: dict[str, object]) -> None:
    step = dataclasses.replace(Launch("k0", (Buffer("input"),)), **change)  # type: ignore[arg-type]  # wrong on purpose
    with pytest.raises(InternalError):
        render_host(HostProgram((X,), (X,), (Symbol(0, 0),), NAMES, steps=(step,), device=device), GPU_FILES)


def test_one_kernel_is_not_both() -> None:
    both = (
        Launch("k0", (), threads=32),
        Launch("k0", (), fallback=True),
    )
    with pytest.raises(InternalError, match="fallback too"):
        render_host(HostProgram((X,), (X,), (Symbol(0, 0),), NAMES, steps=both, device=CUDA), GPU_FILES)


def test_many_steps_are_several_functions(tmp_path: Path) -> None:
    """Compilers take a time that grows with the square of a function's length."""
    names = [f"y{k}" for k in range(2 * STRETCH + 1)]
    made = model([node("Identity", "x", n) for n in names], {"x": ("n", 2)}, names)
    check(made, {"x": np.ones((3, 2), np.float32)}, tmp_path, keep_intermediates=True)
    text = (tmp_path / "m.tsc" / "src" / "host.c").read_text()
    assert text.count("T_APART int run_part") == 3 and text.count("t_launch(r,") == len(names)


@pytest.mark.parametrize("symbolic", [False, True])
def test_inputs_and_outputs_are_rows_of_tables(symbolic: bool) -> None:
    """Objects and branches for each of them took gcc a time that grew with the square of their number."""
    text = {}
    for count in (STRETCH // 2, STRETCH // 2 + 50):
        names = tuple(f"n{k}" for k in range(count)) if symbolic else ()
        ports = tuple(Port("f32", (dim(n) if symbolic else 2, 3)) for n in names or range(count))
        symbols = tuple(Symbol(k, 0) for k in range(len(names)))
        text[count] = render_host(HostProgram(ports, ports, symbols, names), CTarget.host)
    few, many = text.values()
    assert few.count("static ") == many.count("static ") and "switch" not in many
