"""The emulator of CUDA, on kernels whose results are known."""

import ctypes
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from .emulated import BIN, HERE, missing

pytestmark = pytest.mark.skipif(missing() is not None, reason=missing() or "")

NO_KERNEL_IMAGE, OUT_OF_MEMORY, BAD_CONFIGURATION, BAD_VALUE, NO_DEVICE, SPOILT_CAPTURE = 209, 2, 9, 1, 100, 901
NOT_SUPPORTED = 801
TOO_LARGE = 720
TO_DEVICE, TO_HOST = 1, 2
ORDERS = ["forward", "reverse", "random:1", "random:2"]


class Cuda:
    """A library built by the emulator, and what a test needs of the runtime interface."""

    def __init__(self, path: Path) -> None:
        self.library = ctypes.CDLL(str(path))
        self.held: list[ctypes.c_void_p] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.library, name)

    def alloc(self, nbytes: int) -> ctypes.c_void_p:
        at = ctypes.c_void_p()
        assert self.library.api_malloc(ctypes.byref(at), ctypes.c_size_t(nbytes)) == 0
        self.held.append(at)
        return at

    def put(self, x: np.ndarray) -> ctypes.c_void_p:
        x = np.ascontiguousarray(x)
        at = self.alloc(x.nbytes)
        assert self.library.api_copy(at, x.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(x.nbytes), TO_DEVICE) == 0
        return at

    def get(self, at: ctypes.c_void_p, shape: Any, dtype: Any = np.float32) -> np.ndarray:
        x = np.zeros(shape, dtype)
        assert self.library.api_copy(x.ctypes.data_as(ctypes.c_void_p), at, ctypes.c_size_t(x.nbytes), TO_HOST) == 0
        return x

    def free_all(self) -> None:
        for at in self.held:
            assert self.library.api_free(at) == 0
        self.held.clear()


def build(folder: Path) -> Path:
    flags = [
        "-std=c++17",
        "-O3",
        "-lineinfo",
        "-Xcompiler",
        "-fPIC,-Wall",
        "-Xcompiler=-Wextra",
        "--expt-relaxed-constexpr",
    ]
    codes = [
        "-gencode",
        "arch=compute_80,code=sm_80",
        "-gencode=arch=compute_90a,code=sm_90a",
        "-gencode=arch=compute_80,code=compute_80",
    ]
    flags += ["-I", str(HERE), "-D", "UNUSED=1"]
    nvcc, library = str(BIN / "nvcc"), folder / "libcases.so"
    for command in (
        [nvcc, *flags, *codes, "-c", str(HERE / "cases.cu"), "-o", str(folder / "cases.o")],
        [nvcc, "-shared", "-cudart", "static", str(folder / "cases.o"), "-o", str(library), "-lm", "-lpthread"],
    ):
        done = subprocess.run(command, capture_output=True, text=True)
        assert not done.returncode and not done.stderr, done.stderr
    return library


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("cases"))


@pytest.fixture
def cuda(library: Path) -> Iterator[Cuda]:
    cuda = Cuda(library)
    yield cuda
    cuda.free_all()


def test_version() -> None:
    text = subprocess.run([str(BIN / "nvcc"), "--version"], capture_output=True, text=True, check=True).stdout
    assert "release 13.0, V13.0.88" in text and "emulated" in text


@pytest.mark.parametrize("order", ORDERS)
def test_block_reduction(cuda: Cuda, order: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("T_EMULATE_ORDER", order)
    x = np.random.default_rng(0).standard_normal((37, 1000)).astype(np.float32)
    sums = cuda.alloc(37 * 4)
    assert cuda.run_row_sums(cuda.put(x), sums, 37, 1000) == 0
    np.testing.assert_allclose(cuda.get(sums, 37), x.sum(1, dtype=np.float64), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("order", ORDERS)
def test_transposition(cuda: Cuda, order: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("T_EMULATE_ORDER", order)
    x = np.arange(70 * 45, dtype=np.float32).reshape(70, 45)
    y = cuda.alloc(x.nbytes)
    assert cuda.run_transpose(cuda.put(x), y, 70, 45, 1) == 0
    np.testing.assert_array_equal(cuda.get(y, (45, 70)), x.T)


def test_missing_barrier_shows_as_nan(cuda: Cuda) -> None:
    x = np.arange(70 * 45, dtype=np.float32).reshape(70, 45)
    y = cuda.alloc(x.nbytes)
    assert cuda.run_transpose(cuda.put(x), y, 70, 45, 0) == 0
    assert np.isnan(cuda.get(y, (45, 70))).any()


def test_orders_show_a_race(cuda: Cuda, monkeypatch: pytest.MonkeyPatch) -> None:
    results = {}
    for order in ORDERS:
        monkeypatch.setenv("T_EMULATE_ORDER", order)
        at = cuda.alloc(4)
        assert cuda.run_last_writer(at) == 0
        results[order] = int(cuda.get(at, 1, np.int32)[0])
    assert results["forward"] == 603 and results["reverse"] == 0
    assert len(set(results.values())) > 2


def test_random_order_lets_warps_run_ahead(cuda: Cuda, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = set()
    for seed in range(20):
        monkeypatch.setenv("T_EMULATE_ORDER", f"random:{seed}")
        out = cuda.alloc(64 * 4)
        assert cuda.run_out_of_step(out) == 0
        seen |= set(cuda.get(out, 64, np.int32).tolist())
    assert seen == {32, -1}


def test_unwritten_memory_is_nan(cuda: Cuda) -> None:
    fixed, dynamic, untouched = cuda.alloc(128 * 4), cuda.alloc(128 * 4), cuda.alloc(64)
    assert cuda.run_unwritten(fixed, dynamic) == 0
    assert np.isnan(cuda.get(fixed, 128)).all() and np.isnan(cuda.get(dynamic, 128)).all()
    assert np.isnan(cuda.get(untouched, 16)).all()


def test_votes_and_shuffles(cuda: Cuda) -> None:
    out = cuda.alloc(32 * 8 * 4)
    assert cuda.run_votes(out) == 0
    got = cuda.get(out, (32, 8), np.uint32)
    lane = np.arange(32)
    assert (got[:, 0] == sum(1 << i for i in range(0, 32, 3))).all()
    assert (got[:, 1] == 1).all() and (got[:, 2] == 7).all() and (got[:, 3] == 1).all()
    np.testing.assert_array_equal(got[:, 4], np.where(lane < 16, 3, 20))
    np.testing.assert_array_equal(got[:, 5], np.where(lane % 8 == 0, lane, lane - 1))
    np.testing.assert_array_equal(got[:, 6], lane // 4 * 4 + (lane + 1) % 4)
    assert (got[:, 7] == 0xFFFFFFFF).all()


@pytest.mark.parametrize("order", ORDERS)
def test_atomics(cuda: Cuda, order: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("T_EMULATE_ORDER", order)
    x = np.random.default_rng(1).integers(0, 1000, 5000).astype(np.int32)
    counts, total, largest = (
        cuda.put(np.zeros(10, np.int32)),
        cuda.put(np.zeros(1, np.float32)),
        cuda.put(np.zeros(1, np.uint64)),
    )
    assert cuda.run_histogram(cuda.put(x), 5000, counts, total, largest) == 0
    np.testing.assert_array_equal(cuda.get(counts, 10, np.int32), np.bincount(x % 10, minlength=10))
    assert cuda.get(total, 1)[0] == x.sum() and cuda.get(largest, 1, np.uint64)[0] == x.max()


def as_bf16(x: np.ndarray) -> np.ndarray:
    """Bits of the nearest bfloat16 towards zero."""
    return (x.view(np.uint32) >> 16).astype(np.uint16)


@pytest.mark.parametrize("bf16", [0, 1])
def test_mma_of_halves(cuda: Cuda, bf16: int) -> None:
    draw = np.random.default_rng(2)
    a, b, d = (draw.standard_normal(shape).astype(np.float32) for shape in ((16, 16), (16, 8), (16, 8)))
    bits = [as_bf16(x) if bf16 else x.astype(np.float16).view(np.uint16) for x in (a, b)]
    a, b = (
        (x.astype(np.uint32) << 16).view(np.float32) if bf16 else x.view(np.float16).astype(np.float32) for x in bits
    )
    at = cuda.put(d)
    assert cuda.run_mma16(cuda.put(bits[0]), cuda.put(bits[1]), at, bf16) == 0
    np.testing.assert_allclose(cuda.get(at, (16, 8)), d + a.astype(np.float64) @ b, rtol=1e-6, atol=1e-6)


def test_mma_of_tf32(cuda: Cuda) -> None:
    draw = np.random.default_rng(3)
    a, b, d = (draw.standard_normal(shape).astype(np.float32) for shape in ((16, 8), (8, 8), (16, 8)))
    at = cuda.put(d)
    assert cuda.run_mma_tf32(cuda.put(a), cuda.put(b), at) == 0
    short = [(x.view(np.uint32) & 0xFFFFE000).view(np.float32).astype(np.float64) for x in (a, b)]
    np.testing.assert_allclose(cuda.get(at, (16, 8)), d + short[0] @ short[1], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("trans", [0, 1])
def test_ldmatrix(cuda: Cuda, trans: int) -> None:
    x = np.arange(4 * 8 * 8, dtype=np.uint16).reshape(4, 8, 8)
    out = cuda.alloc(4 * 32 * 4)
    assert cuda.run_ldmatrix(cuda.put(x), out, trans) == 0
    pairs = cuda.get(out, (4, 32), np.uint32).view(np.uint16).reshape(4, 8, 8)
    np.testing.assert_array_equal(pairs, x.transpose(0, 2, 1) if trans else x)


def test_movmatrix(cuda: Cuda) -> None:
    x = np.arange(8 * 8, dtype=np.uint16).reshape(8, 8)
    out = cuda.alloc(32 * 4)
    assert cuda.run_transpose_words(cuda.put(x), out) == 0
    np.testing.assert_array_equal(cuda.get(out, (32,), np.uint32).view(np.uint16).reshape(8, 8), x.T)


def test_halves(cuda: Cuda) -> None:
    every = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)
    x = np.concatenate(
        [every, np.random.default_rng(4).integers(0, 1 << 32, 100000, np.uint64).astype(np.uint32).view(np.float32)]
    )
    bits, back = cuda.alloc(2 * x.size), cuda.alloc(4 * x.size)
    assert cuda.run_halves(cuda.put(x), bits, back, x.size) == 0
    with np.errstate(over="ignore", invalid="ignore"):
        want = x.astype(np.float16)
    got = cuda.get(bits, x.size, np.uint16).view(np.float16)
    np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(np.signbit(got), np.signbit(want))
    np.testing.assert_array_equal(cuda.get(back, x.size), want.astype(np.float32))


def test_dynamic_shared_memory_has_to_be_asked_for(cuda: Cuda) -> None:
    out = cuda.alloc(64 * 4)
    assert cuda.run_big(out, 0) == BAD_VALUE
    assert cuda.run_big(out, 1) == 0
    np.testing.assert_array_equal(cuda.get(out, 64), np.arange(64) ^ 1)


def test_graph_records_and_replays(cuda: Cuda) -> None:
    x = cuda.put(np.arange(100, dtype=np.float32))
    host, before = np.zeros(100, np.float32), np.zeros(100, np.float32)
    pointers = (each.ctypes.data_as(ctypes.c_void_p) for each in (host, before))
    assert cuda.run_graph(x, next(pointers), 100, 5, next(pointers)) == 0
    np.testing.assert_array_equal(before, np.arange(100))
    np.testing.assert_array_equal(host, np.arange(100) + 15)


def test_the_card_chooses_what_a_graph_does(cuda: Cuda, monkeypatch: pytest.MonkeyPatch) -> None:
    x = cuda.put(np.arange(100, dtype=np.float32))
    assert cuda.run_choice(x, 100, 7) == 0  # to 4, then -8, then twice 1
    np.testing.assert_array_equal(cuda.get(x, 100), np.arange(100) + 4 - 8 + 2)
    monkeypatch.setenv("T_EMULATE_DRIVER", "12020")
    assert cuda.run_choice(x, 100, 1) == NOT_SUPPORTED


def relayed(rounds: int, blocks: int) -> np.ndarray:
    own = 1000 * np.arange(blocks)[:, None] + np.arange(64)
    value = own
    for _ in range(rounds):
        value = np.roll(value, (-1, -1), (0, 1)) + own
    return value


@pytest.mark.parametrize("blocks", [1, 2, 17])
@pytest.mark.parametrize("order", ORDERS)
def test_blocks_that_wait_for_each_other(cuda: Cuda, order: str, blocks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("T_EMULATE_ORDER", order)
    slots, out = cuda.alloc(5 * blocks * 64 * 8), cuda.alloc(blocks * 64 * 4)
    assert cuda.run_relay(slots, out, 5, blocks, 1, None) == 0
    np.testing.assert_array_equal(cuda.get(out, (blocks, 64), np.int32), relayed(5, blocks))


def test_blocks_that_wait_for_each_other_are_recorded(cuda: Cuda) -> None:
    slots, out = cuda.alloc(3 * 4 * 64 * 8), cuda.alloc(4 * 64 * 4)
    assert cuda.run_recorded_relay(slots, out, 3, 4) == 0
    np.testing.assert_array_equal(cuda.get(out, (4, 64), np.int32), relayed(3, 4))


def test_more_blocks_than_run_at_the_same_time(cuda: Cuda, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("T_EMULATE_UNITS", "2")
    slots, out = cuda.alloc(65 * 64 * 8), cuda.alloc(65 * 64 * 4)
    assert cuda.run_relay(slots, out, 1, 64, 1, None) == 0
    assert cuda.run_relay(slots, out, 1, 65, 1, None) == TOO_LARGE
    assert cuda.run_relay(slots, out, 0, 65, 0, None) == 0
    cuda.library.api_error_name.restype = ctypes.c_char_p
    assert cuda.api_error_name(TOO_LARGE) == b"cudaErrorCooperativeLaunchTooLarge"


def test_waiting_spoils_a_recording(cuda: Cuda) -> None:
    assert cuda.run_spoilt_capture() == SPOILT_CAPTURE


def test_work_runs_when_it_is_waited_for(cuda: Cuda) -> None:
    stream, pinned = ctypes.c_void_p(), ctypes.c_void_p()
    assert cuda.api_stream(ctypes.byref(stream)) == 0
    assert cuda.api_malloc_host(ctypes.byref(pinned), ctypes.c_size_t(40)) == 0
    assert pinned.value
    host = np.ctypeslib.as_array((ctypes.c_float * 10).from_address(pinned.value))
    x = cuda.put(np.arange(10, dtype=np.float32))
    assert cuda.run_add(x, ctypes.c_float(1), 10, 1, 32, stream) == 0
    assert cuda.api_copy_async(pinned, x, ctypes.c_size_t(40), TO_HOST, stream) == 0
    assert np.isnan(host).all()
    assert cuda.api_wait(stream) == 0
    np.testing.assert_array_equal(host, np.arange(10) + 1)
    assert cuda.api_free_host(pinned) == 0


def test_events(cuda: Cuda) -> None:
    took = ctypes.c_float(-1)
    assert cuda.run_events(cuda.put(np.zeros(10, np.float32)), 10, ctypes.byref(took)) == 0
    assert 0 <= took.value < 1000


def test_bad_launches(cuda: Cuda) -> None:
    x = cuda.put(np.zeros(10, np.float32))
    assert cuda.run_add(x, ctypes.c_float(1), 10, 0, 32, None) == BAD_CONFIGURATION
    assert cuda.run_add(x, ctypes.c_float(1), 10, 1, 1025, None) == BAD_CONFIGURATION
    assert cuda.api_last_error() == 0


def test_copies_are_checked(cuda: Cuda) -> None:
    x, host = cuda.alloc(16), np.zeros(32, np.float32)
    there = host.ctypes.data_as(ctypes.c_void_p)
    assert cuda.api_copy(x, there, ctypes.c_size_t(20), TO_DEVICE) == BAD_VALUE
    assert cuda.api_copy(there, x, ctypes.c_size_t(16), TO_DEVICE) == BAD_VALUE


def test_out_of_memory(cuda: Cuda, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("T_EMULATE_MEMORY", "1000")
    at = cuda.alloc(600)
    more = ctypes.c_void_p()
    assert cuda.api_malloc(ctypes.byref(more), ctypes.c_size_t(600)) == OUT_OF_MEMORY and not more.value
    assert cuda.api_free(at) == 0
    cuda.held.clear()
    assert cuda.alloc(600).value


@pytest.mark.parametrize("arch,error", [("70", NO_KERNEL_IMAGE), ("80", 0), ("86", 0), ("90", 0), ("120", 0)])
def test_old_card(cuda: Cuda, arch: str, error: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("T_EMULATE_ARCH", arch)
    assert cuda.run_add(cuda.put(np.zeros(10, np.float32)), ctypes.c_float(1), 10, 1, 32, None) == error


def test_no_card(cuda: Cuda, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("T_EMULATE_DEVICES", "0")
    count = ctypes.c_int(-1)
    assert cuda.api_count(ctypes.byref(count)) == NO_DEVICE and count.value == 0
    assert cuda.run_last_writer(None) == NO_DEVICE
    cuda.library.api_error_name.restype = ctypes.c_char_p
    assert cuda.api_error_name(NO_DEVICE) == b"cudaErrorNoDevice"


def in_child(library: Path, body: str) -> "subprocess.CompletedProcess[str]":
    """Runs statements with the library as `cuda`, in a process that may die."""
    script = f"import ctypes\ncuda = ctypes.CDLL({str(library)!r})\n{body}"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("T_EMULATE")}
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=20, env=environment)


def test_address_sanitizer(tmp_path: Path) -> None:
    """Fibers are announced to it, and it watches memory of the device."""
    main = (
        '#include <stddef.h>\nextern "C" { int api_malloc(void **, size_t); int api_free(void *);',
        "int run_add(float *, float, int, int, int, void *); int run_row_sums(const float *, float *, int, int);",
        "int run_recorded_relay(void *, void *, int, int); }",
        "int main(int count, char **) {",
        "    float *x, *sums;",
        "    if (api_malloc((void **)&x, 4000) || api_malloc((void **)&sums, 16)) return 1;",
        "    run_row_sums(x, sums, 4, 250);",
        "    if (run_recorded_relay(x, x + 2 * 2 * 64 * 2, 2, 2)) return 2;",
        "    if (count > 1) run_add(sums, 1, 5, 1, 32, nullptr);",
        "    return api_free(x) || api_free(sums);",
        "}",
    )
    (tmp_path / "main.cpp").write_text("\n".join(main) + "\n")
    environment = {**os.environ, "T_EMULATE_SANITIZE": "address", "ASAN_OPTIONS": "symbolize=0"}
    build = [str(BIN / "nvcc"), "-std=c++17", "main.cpp", str(HERE / "cases.cu"), "-o", "main"]
    done = subprocess.run(build, capture_output=True, text=True, cwd=tmp_path, env=environment)
    if done.returncode and "asan" in done.stderr:
        pytest.skip("no address sanitizer here")
    assert not done.returncode, done.stderr
    good = subprocess.run([str(tmp_path / "main")], capture_output=True, text=True, env=environment)
    assert good.returncode == 0, good.stderr
    bad = subprocess.run([str(tmp_path / "main"), "bad"], capture_output=True, text=True, env=environment)
    assert bad.returncode and "use-after-poison" in bad.stderr


def test_deadlock_aborts(library: Path) -> None:
    done = in_child(library, "cuda.run_stuck()")
    assert done.returncode < 0
    assert (
        "block (0, 0, 0) is stuck: 63 threads at a barrier of the block, 1 at an operation of the warp" in done.stderr
    )


def test_waiting_in_vain_aborts(library: Path) -> None:
    done = in_child(library, "x = ctypes.c_void_p()\ncuda.api_malloc(ctypes.byref(x), 12)\ncuda.run_in_vain(x)")
    assert done.returncode < 0 and "waits for other blocks in vain: 32 threads" in done.stderr


def test_waiting_without_a_cooperative_launch_aborts(library: Path) -> None:
    body = (
        "x, y = ctypes.c_void_p(), ctypes.c_void_p()",
        "cuda.api_malloc(ctypes.byref(x), 2 * 64 * 8)",
        "cuda.api_malloc(ctypes.byref(y), 2 * 64 * 4)",
        "cuda.run_relay(x, y, 1, 2, 0, None)",
        "cuda.api_free(y)",
    )
    done = in_child(library, "\n".join(body))
    assert done.returncode < 0 and "not launched with cudaLaunchCooperativeKernel" in done.stderr


def test_write_behind_the_end_aborts(library: Path) -> None:
    body = (
        "x = ctypes.c_void_p()",
        "cuda.api_malloc(ctypes.byref(x), 36)",
        "cuda.run_add(x, ctypes.c_float(1), 10, 1, 32, None)",
        "cuda.api_free(x)",
    )
    done = in_child(library, "\n".join(body))
    assert done.returncode < 0 and "behind the end of memory of 36 bytes" in done.stderr


def test_a_closed_library_leaves_no_stacks(library: Path) -> None:
    """A process that opens many would run into the number of mappings that it may have."""
    body = (
        "import _ctypes",
        "maps = lambda: len(open('/proc/self/maps').readlines())",
        "before, x, y = maps(), ctypes.c_void_p(), ctypes.c_void_p()",
        "cuda.api_malloc(ctypes.byref(x), 4000)",
        "cuda.api_malloc(ctypes.byref(y), 16)",
        "assert cuda.run_row_sums(x, y, 4, 250) == cuda.api_wait(None) == 0",
        "cuda.api_free(x), cuda.api_free(y)",
        "assert maps() > before + 100",
        "_ctypes.dlclose(cuda._handle)",
        "assert maps() < before + 20, (before, maps())",
    )
    done = in_child(library, "\n".join(body))
    assert done.returncode == 0, done.stderr
