"""The emulator of Metal, on kernels whose results are known."""

import ctypes
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from .emulated import BIN, HERE, missing

pytestmark = pytest.mark.skipif(missing(metal=True) is not None, reason=missing(metal=True) or "")

ORDERS = ["forward", "reverse", "random:1", "random:2"]
XCRUN = [str(BIN / "xcrun"), "-sdk", "macosx"]


class Metal:
    """An emulated .metallib; buffers are NumPy arrays."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.library = ctypes.CDLL(str(path))
        self.library.t_emulate_find.restype = ctypes.c_void_p

    def run(
        self,
        name: str,
        buffers: Sequence[np.ndarray[Any, Any]],
        blocks: Sequence[int],
        threads: Sequence[int],
        group: int = 0,
    ) -> int:
        """Runs a grid with `group` bytes of [[threadgroup(0)]] memory; gives the status."""
        kernel = self.library.t_emulate_find(name.encode())
        assert kernel, f"no kernel {name}"
        pointers = (ctypes.c_void_p * max(len(buffers), 1))(*(buffer.ctypes.data for buffer in buffers))
        sizes = (ctypes.c_size_t * 2)(group, 0)
        grid = [(ctypes.c_uint32 * 3)(*each, *[1] * (3 - len(each))) for each in (blocks, threads)]
        return int(self.library.t_emulate_dispatch(ctypes.c_void_p(kernel), pointers, sizes, *grid))


def compile_metal(source: Path, target: Path) -> "subprocess.CompletedProcess[str]":
    flags = ["-std=metal3.0", "-fno-fast-math", "-Wall", "-Wextra"]
    return subprocess.run(
        [*XCRUN, "metal", *flags, "-c", str(source), "-o", str(target)], capture_output=True, text=True
    )


@pytest.fixture(scope="module")
def metal(tmp_path_factory: pytest.TempPathFactory) -> Metal:
    folder = tmp_path_factory.mktemp("cases")
    done = compile_metal(HERE / "cases.metal", folder / "cases.air")
    assert not done.returncode and not done.stderr, done.stderr
    (folder / "other.metal").write_text(
        "#include <metal_stdlib>\nkernel void other(device float *x [[buffer(0)]]) { *x = 7; }\n"
    )
    assert not compile_metal(folder / "other.metal", folder / "other.air").returncode
    objects = [str(folder / "cases.air"), str(folder / "other.air")]
    subprocess.run([*XCRUN, "metallib", *objects, "-o", str(folder / "default.metallib")], check=True)
    return Metal(folder / "default.metallib")


def test_version() -> None:
    for tool in (["--version"], ["metal", "--version"], ["clang++", "--version"]):
        text = subprocess.run([str(BIN / "xcrun"), *tool], capture_output=True, text=True, check=True).stdout
        assert "emulated" in text
    text = subprocess.run([*XCRUN, "--show-sdk-version"], capture_output=True, text=True, check=True).stdout
    assert float(text) > 14


@pytest.mark.parametrize("order", ORDERS)
def test_threadgroup_reduction(metal: Metal, order: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("T_EMULATE_ORDER", order)
    x = np.random.default_rng(0).standard_normal((37, 1000)).astype(np.float32)
    sums = np.zeros(37, np.float32)
    assert metal.run("row_sums", [x, sums, np.array([1000], np.int64)], [37], [256]) == 0
    np.testing.assert_allclose(sums, x.sum(1, dtype=np.float64), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("order", ORDERS)
def test_transposition(metal: Metal, order: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("T_EMULATE_ORDER", order)
    x = np.arange(70 * 45, dtype=np.float32).reshape(70, 45)
    y = np.zeros((45, 70), np.float32)
    assert metal.run("transpose", [x, y, np.array([70, 45], np.int32)], [2, 3], [32, 32], 32 * 33 * 4) == 0
    np.testing.assert_array_equal(y, x.T)


def test_unwritten_memory_is_nan(metal: Metal) -> None:
    out = np.zeros(128, np.float32)
    assert metal.run("unwritten", [out], [2], [64]) == 0
    assert np.isnan(out).all()


def test_orders_show_a_race(metal: Metal, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    for order in ORDERS:
        monkeypatch.setenv("T_EMULATE_ORDER", order)
        at = np.full(1, -1, np.int32)
        assert metal.run("last_writer", [at], [4], [64]) == 0
        seen.append(int(at[0]))
    assert seen[:2] == [255, 0] and len(set(seen)) > 2


@pytest.mark.parametrize("order", ORDERS)
def test_atomics(metal: Metal, order: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("T_EMULATE_ORDER", order)
    x = np.random.default_rng(1).integers(0, 1000, 5000).astype(np.int32)
    counts, total = np.zeros(10, np.int32), np.zeros(1, np.float32)
    assert metal.run("histogram", [x, counts, total, np.array([5000], np.int32)], [40], [128]) == 0
    np.testing.assert_array_equal(counts, np.bincount(x % 10, minlength=10))
    assert total[0] == x.sum()


def test_matrices(metal: Metal) -> None:
    draw = np.random.default_rng(2)
    a, c = draw.standard_normal((8, 16)).astype(np.float32), draw.standard_normal((8, 8)).astype(np.float32)
    b = draw.standard_normal((8, 16)).astype(np.float16)
    want = c + a.astype(np.float64) @ b.astype(np.float64).T
    assert metal.run("product", [a, b, c], [1], [32]) == 0
    np.testing.assert_allclose(c, want, rtol=1e-5, atol=1e-5)


def test_scalars(metal: Metal) -> None:
    x = np.random.default_rng(3).standard_normal((32, 4)).astype(np.float32)
    out, bits = np.zeros((32, 4), np.float32), np.zeros(32, np.uint16)
    assert metal.run("scalars", [x, out, bits], [1], [32]) == 0
    v = x * 2 + 1
    np.testing.assert_allclose(out[:, 0], v[:, 0], rtol=1e-6)
    np.testing.assert_allclose(out[:, 1], np.exp(np.minimum(v[:, 1], 3)), rtol=1e-6)
    np.testing.assert_allclose(out[:, 2], -v[:, 2], rtol=1e-6)
    assert (out[:, 3] == 31).all()
    np.testing.assert_allclose(bits.view(np.float16), v[:, 3], rtol=1e-3)


def test_kernels_of_all_objects_are_found(metal: Metal) -> None:
    x = np.zeros(1, np.float32)
    assert metal.run("other", [x], [1], [1]) == 0 and x[0] == 7
    assert not metal.library.t_emulate_find(b"nothing")


def test_bad_grids(metal: Metal) -> None:
    at = np.zeros(1, np.int32)
    assert metal.run("last_writer", [at], [0], [64]) == 1
    assert metal.run("last_writer", [at], [1], [1025]) == 1
    assert metal.run("transpose", [at], [1], [1], 20) == 1


def test_early_exit_before_a_barrier_aborts(metal: Metal) -> None:
    script = (
        "import ctypes",
        f"metal = ctypes.CDLL({str(metal.path)!r})",
        "metal.t_emulate_find.restype = ctypes.c_void_p",
        "one, many = (ctypes.c_uint32 * 3)(1, 1, 1), (ctypes.c_uint32 * 3)(64, 1, 1)",
        "metal.t_emulate_dispatch(ctypes.c_void_p(metal.t_emulate_find(b'early_exit')), None, None, one, many)",
    )
    done = subprocess.run([sys.executable, "-c", "\n".join(script)], capture_output=True, text=True, timeout=20)
    assert done.returncode < 0 and "a barrier that 1 of 64 threads do not reach" in done.stderr


def test_library_inside_a_library(tmp_path: Path) -> None:
    """As the product embeds it: -sectcreate at the link, loaded by the host from its own bytes."""
    for value in (3, 4):
        kernel = f"#include <metal_stdlib>\nkernel void k(device float *x [[buffer(0)]]) {{ *x = {value}; }}\n"
        (tmp_path / "k.metal").write_text(kernel)
        host = (
            '#include "library.h"\n',
            '__attribute__((visibility("default"))) float run(void) {\n',
            "    void *library = t_emulate_open_metallib();\n",
            '    t_emulate_find_kernel *find = (t_emulate_find_kernel *)dlsym(library, "t_emulate_find");\n',
            '    void *dispatch = dlsym(library, "t_emulate_dispatch");\n',
            "    float x = 0; void *buffers[] = {&x}; const uint32_t one[3] = {1, 1, 1};\n",
            '    ((t_emulate_dispatch_kernel *)dispatch)(find("k"), buffers, NULL, one, one);\n',
            "    return x;\n}\n",
        )
        (tmp_path / "host.c").write_text("".join(host))
        link = ["-dynamiclib", "-install_name", "@rpath/libmodel.so", "-framework", "Metal"]
        link += ["-Wl,-sectcreate,__TEXT,__metallib,default.metallib"]
        for command in (
            ["metal", "-c", "k.metal", "-o", "k.air"],
            ["metallib", "k.air", "-o", "default.metallib"],
            ["clang", "-std=gnu11", "-O2", "-fvisibility=hidden", "-c", "host.c", "-o", "host.o"],
            ["clang++", *link, "host.o", "-o", f"model{value}.so"],
        ):
            subprocess.run([*XCRUN, *command], check=True, cwd=tmp_path)
        library = ctypes.CDLL(str(tmp_path / f"model{value}.so"))
        library.run.restype = ctypes.c_float
        assert library.run() == library.run() == value


@pytest.mark.parametrize(
    "body,message",
    [
        ("kernel void k(device float *x [[buffer(0)]]) { double y = 1; x[0] = y; }", "Metal has no double"),
        ("kernel void k(device float *x) { x[0] = 1; }", "no attribute at 'float *x'"),
        ("kernel void k(device float *x [[buffer(0)]]) { const int thread = 1; x[0] = thread; }", "error"),
    ],
)
def test_what_metal_refuses(tmp_path: Path, body: str, message: str) -> None:
    (tmp_path / "k.metal").write_text(f"#include <metal_stdlib>\n{body}\n")
    done = compile_metal(tmp_path / "k.metal", tmp_path / "k.air")
    assert done.returncode and message in done.stderr
