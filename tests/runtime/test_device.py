"""Models on a device from Python: through the emulator, and on a card where there is one."""

from __future__ import annotations

import gc
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.bundle import tiny, tiny_cuda
from tests.support.forks import in_child
from torshc.base.errors import BundleError, RunError
from torshc.runtime import DeviceArray, Model, dlpack, exchange, load
from torshc.runtime.device import SPARE_BLOCKS, SPARE_BYTES, Spare

from ..support.foreign import Described, Foreign
from .conftest import Write

Z = 'z"*/\n{{ }}'


def rows(n: int, seed: int = 0) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.random.default_rng(seed).standard_normal((n, 16)).astype(np.float32)


def same(found: dict[str, Any], x: np.ndarray[Any, Any]) -> bool:
    want = tiny.expected(x)
    got = {k: v.numpy() if isinstance(v, DeviceArray) else v for k, v in found.items()}
    return list(got) == list(want) and all(np.array_equal(got[k], want[k]) for k in want)


def to_device(model: Model, x: np.ndarray[Any, Any]) -> DeviceArray:
    """A copy of an array on the model's device."""
    assert model._opened is not None
    code = {"f": 2, "i": 0, "u": 1, "b": 6}[x.dtype.kind]
    array = DeviceArray(model._opened, x.shape, x.dtype, (code, x.dtype.itemsize * 8))
    if x.nbytes:
        library, handle = model._opened.library, model._opened.handle
        assert library.torshc_copy(handle, array._data, np.ascontiguousarray(x).ctypes.data, x.nbytes) == 0
    return array


def test_a_table_of_functions_is_quicker_than_a_capsule(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the library works in another stream than the model, it has to order the streams first."""
    with load(write()) as model:
        x, y = Described(to_device(model, rows(3))), Described(to_device(model, rows(3)))
        assert model.run({"x": x}, out={"y": y})["y"] is y
        assert np.array_equal(y.array.numpy(), tiny.expected(rows(3))["y"]) and x.streams == y.streams == []
        monkeypatch.setattr(Described, "works_in", 4096)
        assert same(model.run({"x": x}), rows(3)) and x.streams
        monkeypatch.setattr(Described, "works_in", 0)
        with pytest.raises(RunError, match="input 'x' is on cuda:1; the model is on cuda:0"):
            model.run({"x": Described(x.array, place=(2, 1))})
        with pytest.raises(RunError, match="expected float32"):
            model.run({"x": Described(to_device(model, rows(3).astype(np.float64)))})
    assert exchange.exchange_of(Foreign(x.array)) is None


def test_tensors_of_a_library_with_a_table_are_handed_over(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their library describes them to the model's, which checks them; nothing else looks at them."""
    with load(write()) as model:

        def there(x: np.ndarray[Any, Any]) -> Described:
            return Described(to_device(model, x))

        x, y, z = there(rows(3)), there(np.zeros((3, 16), np.float32)), there(np.zeros((3, 16), np.float32))
        assert same(model.run({"x": x}), rows(3))  # from here on the sizes are known
        with monkeypatch.context() as patch:
            patch.setattr(Model, "_borrow", lambda *_: pytest.fail("it is looked at"))
            found = model.run({"x": x}, out={Z: z, "y": y})
            assert found["y"] is y and found[Z] is z and list(found) == ["y", Z]
            assert np.array_equal(z.array.numpy(), tiny.expected(rows(3))[Z])
            for seed in range(4):  # recorded, and replayed
                other = there(rows(3, seed))
                assert same(model.run({"x": other}), rows(3, seed)) and same(model.run({"x": other}), rows(3, seed))
        for n in (5, 0, 3, 5):  # other sizes, of outputs too
            assert same(model.run({"x": there(rows(n, n))}), rows(n, n))
        assert same(model.run({"x": rows(2)}), rows(2)) and same(model.run({"x": there(rows(2, 7))}), rows(2, 7))
        with pytest.raises(RunError, match=r"out\['y'\] has shape \[3, 16\]; expected \[5, 16\]"):
            model.run({"x": there(rows(5))}, out={"y": y, Z: z})
        with pytest.raises(RunError, match="shape"):
            model.run({"x": there(rows(3)[:, :8].copy())}, out={"y": y, Z: z})
        with pytest.raises(RunError, match="expected float32"):
            model.run({"x": there(rows(3).astype(np.float64))}, out={"y": y, Z: z})
        with pytest.raises(RunError, match="input 'x' is on cuda:1; the model is on cuda:0"):
            model.run({"x": Described(x.array, place=(2, 1))}, out={"y": y, Z: z})
        assert same(model.run({"x": x}), rows(3)) and model.stats().runs > 10
    with pytest.raises(RunError, match="is closed"):
        model.run({"x": x}, out={"y": y, Z: z})


@pytest.mark.parametrize("options", [{}, {"profile": True}, {"fallback": True}, {"embed": True}], ids=str)
def test_host_arrays(write: Write, options: dict[str, Any]) -> None:
    with load(write(**options)) as model:
        assert model.device == "cuda:0"
        for n in (4, 0, 1, 2, 7, 100, 3, 3, 3, 100, 100):
            assert same(model.run({"x": rows(n, n)}), rows(n, n)), n


def test_static(write: Write) -> None:
    with load(write(4)) as model:
        for seed in range(5):
            assert same(model.run({"x": rows(4, seed)}), rows(4, seed))
        with pytest.raises(RunError, match="shape"):
            model.run({"x": rows(3)})


def test_arrays_larger_than_the_staging_memory(write: Write) -> None:
    n = (9 << 20) // 64 + 3  # more pieces than there are places for
    with load(write()) as model:
        for _ in range(3):
            assert same(model.run({"x": rows(n)}), rows(n))


def test_device_arrays_in_and_out(write: Write) -> None:
    with load(write()) as model:
        for n in (5, 1, 5, 0, 33):
            x = to_device(model, rows(n, n))
            for _ in range(4):  # recorded at the second, replayed from the third
                found = model.run({"x": x})
                assert all(isinstance(v, DeviceArray) and v.shape == (n, 16) for v in found.values())
                assert same(found, rows(n, n))
        assert repr(found["y"]) == "<float32 array [33, 16] on cuda:0>" and found["y"].dtype == np.float32


def test_more_addresses_than_recorded_runs_are_kept(write: Write) -> None:
    with load(write()) as model:
        inputs = [to_device(model, rows(6, k)) for k in range(36)]
        for _ in range(3):
            for k, x in enumerate(inputs):
                assert same(model.run({"x": x}), rows(6, k))


def test_memory_of_outputs_that_are_gone_is_used_again(write: Write) -> None:
    """Unless another library has seen it, which may still read it."""
    with load(write()) as model:
        x, freed = to_device(model, rows(4)), list[int]()
        opened = model._opened
        assert opened is not None
        free = opened.library.torshc_free

        def noted(handle: int, data: int) -> None:
            freed.append(data)
            free(handle, data)

        opened.library.torshc_free = noted
        first = model.run({"x": x})
        places = {v._data for v in first.values()}
        del first
        again = model.run({"x": x})
        assert {v._data for v in again.values()} == places and same(again, rows(4)) and not freed
        seen = again["y"]._data
        capsule = again["y"].__dlpack__()
        del again, capsule
        gc.collect()
        assert freed == [seen]
        many = [model.run({"x": x}) for _ in range(SPARE_BLOCKS)]
        assert all(same(found, rows(4)) for found in many)
        del many
        gc.collect()
        assert len(freed) == 1 + SPARE_BLOCKS  # of twice as many outputs


def test_spare_memory_gives_way(emulated: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("T_EMULATE_MEMORY", "200000")
    with load(emulated()) as model:
        to_device(model, rows(1500))  # 96,000 bytes, kept for the next of that size
        assert same(model.run({"x": rows(3)}), rows(3))
        assert to_device(model, rows(2500)).nbytes == 160000


def test_what_is_spare() -> None:
    spare = Spare()
    assert spare.take(64) is None and all(spare.keep(k, 64) for k in range(SPARE_BLOCKS)) and not spare.keep(99, 64)
    assert spare.take(64) == SPARE_BLOCKS - 1 and not spare.keep(7, SPARE_BYTES) and spare.keep(7, 128)
    assert sorted(spare.all()) == [*range(SPARE_BLOCKS - 1), 7] and spare.all() == [] and spare.keep(8, SPARE_BYTES)


def test_outputs_where_they_are_wanted(write: Write) -> None:
    with load(write()) as model:
        x, y = rows(3), to_device(model, np.zeros((3, 16), np.float32))
        found = model.run({"x": x}, out={"y": y})
        assert found["y"] is y and isinstance(found[Z], np.ndarray) and same(found, x)
        z = np.zeros((3, 16), np.float32)
        found = model.run({"x": to_device(model, x)}, out={Z: z})
        assert found[Z] is z and isinstance(found["y"], DeviceArray) and same(found, x)
        for wrong in (to_device(model, x[:2]), to_device(model, x.astype(np.float64)), to_device(model, x[0])):
            with pytest.raises(RunError, match="out\\['y'\\]"):
                model.run({"x": x}, out={"y": wrong})
        with pytest.raises(RunError, match="overlaps"):
            model.run({"x": y}, out={"y": y})


@pytest.mark.parametrize("versioned", [False, True], ids=["unversioned", "versioned"])
def test_tensors_of_other_libraries(write: Write, versioned: bool) -> None:
    with load(write()) as model:
        whole = rows(9)
        array = to_device(model, whole)
        for skip in (0, 1, 4):
            foreign = Foreign(array, skip, versioned)
            for _ in range(3):
                assert same(model.run({"x": foreign}), whole[skip:])
            assert set(foreign.streams) == {1}  # ordered with the default stream
        out = Foreign(to_device(model, np.zeros((9, 16), np.float32)), 0, versioned)
        assert model.run({"x": array}, out={"y": out})["y"] is out
        assert np.array_equal(out.array.numpy(), tiny.expected(whole)["y"])
    if versioned:
        with load(write()) as model, pytest.raises(RunError, match="read-only"):
            model.run({"x": whole}, out={"y": Foreign(to_device(model, whole), 0, True, read_only=True)})


def test_memory_that_is_not_aligned(write: Write) -> None:
    """Kernels load four floats at a time; a tensor that begins in between is copied."""
    with load(write()) as model:
        raw = to_device(model, np.zeros(16 * 4 + 1, np.float32))
        x = rows(4)
        assert model._opened is not None
        model._opened.library.torshc_copy(model._opened.handle, raw._data + 4, x.ctypes.data, x.nbytes)

        class Odd(Foreign):
            def __dlpack__(self, *, stream: Any = None, **more: Any) -> Any:
                return dlpack.export(self, self.array._data + 4, self.place, self.array.code, (4, 16))

        for _ in range(3):
            assert same(model.run({"x": Odd(raw)}), x)
        model.run({"x": x}, out={"y": Odd(raw)})
        assert np.array_equal(raw.numpy()[1:].reshape(4, 16), tiny.expected(x)["y"])


def test_exported_memory_lives_as_long_as_its_user(write: Write) -> None:
    model = load(write())
    x = rows(3)
    y = model.run({"x": to_device(model, x)})["y"]
    held = dlpack.View(y, "y", 1)
    assert held.shape == (3, 16) and held.code == (2, 32) and held.device == (2, 0)
    before = len(dlpack._exported)
    copy = y.numpy()
    model.close()
    del y, model
    gc.collect()
    assert np.array_equal(copy, tiny.expected(x)["y"]) and len(dlpack._exported) == before
    del held
    gc.collect()
    assert len(dlpack._exported) == before - 1


def test_a_stream_of_the_caller(write: Write) -> None:
    with load(write(), stream=0) as model:  # torch's number for the default stream
        for n in (4, 4, 4):
            assert same(model.run({"x": rows(n)}), rows(n))
            assert same(model.run({"x": to_device(model, rows(n))}), rows(n))
    with pytest.raises(RunError, match="not a stream"):
        load(write(), stream="default")


def test_stats(write: Write) -> None:
    with load(write(profile=True)) as model:
        x = to_device(model, rows(5))
        for _ in range(3):
            model.run({"x": x})
        model(rows(0))  # no blocks: no launch
        stats = model.stats()
        assert stats.runs == 4 and [(s.kernel, s.calls) for s in stats.steps] == [("k0", 3), ("k1", 3)]
        assert all(s.seconds > 0 for s in stats.steps)


def test_tensors_in_the_wrong_place(write: Write) -> None:
    with load(write()) as model:
        x = to_device(model, rows(2))
        for place, name in [((2, 1), "cuda:1"), ((8, 0), "metal:0"), ((10, 0), "rocm:0")]:
            with pytest.raises(RunError, match=f"input 'x' is on {name}; the model is on cuda:0"):
                model.run({"x": Foreign(x, place=place)})
        assert model._opened is not None
        here = rows(2)

        class Liar(Foreign):
            def __dlpack__(self, *, stream: Any = None, **more: Any) -> Any:
                return dlpack.export(here, here.ctypes.data, (2, 0), (2, 32), (2, 16))

        with pytest.raises(RunError, match="its data is not"):
            model.run({"x": Liar(x)})
        with pytest.raises(RunError, match="type float64; expected float32"):
            model.run({"x": to_device(model, rows(2).astype(np.float64))})
        assert same(model.run({"x": x}), rows(2))


def test_device_tensors_for_a_model_on_the_processor(write: Write, tmp_path: Path) -> None:
    with load(write()) as model, load(tiny.write(tmp_path / "c.tsc")) as other:
        with pytest.raises(RunError, match="input 'x' is on cuda:0; the model is on cpu"):
            other.run({"x": to_device(model, rows(2))})
        assert other.device == "cpu"
    wrong: list[dict[str, Any]] = [{"device": 1}, {"stream": 5}]
    for options in wrong:
        with pytest.raises(RunError, match="processor"):
            load(tmp_path / "c.tsc", **options)


def test_a_device_that_there_is_not(write: Write) -> None:
    with pytest.raises(RunError, match="no device 77; devices 0 to"):
        load(write(), device=77)
    with pytest.raises(RunError, match="no device -1"):
        load(write(), device=-1)


@pytest.mark.parametrize(
    ("setting", "value", "says"),
    [
        ("DEVICES", "0", "no CUDA-capable device.*driver of the card"),
        ("DEVICES", "-1", "driver version is insufficient.*driver of the card"),
        ("ARCH", "70", "device 0 is sm_70; the library has code for (sm_80|others) .*--arch"),
        ("MEMORY", "60", "no memory for the weights: asked 64 bytes, free 60 of 60.*free memory"),
    ],
)
def test_what_cannot_be_opened(
    emulated: Write, monkeypatch: pytest.MonkeyPatch, setting: str, value: str, says: str
) -> None:
    bundle = emulated()
    monkeypatch.setenv(f"T_EMULATE_{setting}", value)
    with pytest.raises(BundleError) as caught:
        load(bundle)
    assert re.search(says, str(caught.value), re.DOTALL), caught.value
    monkeypatch.delenv(f"T_EMULATE_{setting}")
    load(bundle).close()


def test_out_of_memory_leaves_the_model_usable(emulated: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("T_EMULATE_MEMORY", "100000")
    with load(emulated()) as model:
        for n in (10, 10000, 10, 300, 10000, 300):
            if n < 10000:
                assert same(model.run({"x": rows(n)}), rows(n))
                continue
            with pytest.raises(RunError, match=r"asked 640064 bytes, free [0-9]+ of 100000") as caught:
                model.run({"x": rows(n)})
            assert "smaller shapes" in caught.value.remedy
        with pytest.raises(RunError, match="no memory for the caller"):
            to_device(model, rows(5000))
        assert same(model.run({"x": rows(3)}), rows(3))


@pytest.mark.parametrize("fallback", [False, True])
def test_a_kernel_that_cannot_be_launched(write: Write, fallback: bool) -> None:
    with load(write(block=2048, fallback=fallback)) as model:
        for _ in range(3):
            y = np.full((2, 16), 7, np.float32)
            with pytest.raises(RunError, match=r"step 1 \(k1\).*(InvalidConfiguration|InvalidValue).*nodes 'node 1'"):
                model.run({"x": rows(2)}, out={"y": y})
            assert (y == 7).all()


def test_out_of_reach_of_fork(write: Write) -> None:
    model = load(write())
    model(rows(1))

    def run() -> None:
        with pytest.raises(RunError, match="fork"):
            model(rows(1))

    assert in_child(run) == 0
    assert same(model.run({"x": rows(2)}), rows(2))
    model.close()


def test_arrays_at_the_end_of_the_process(write: Write) -> None:
    code = (
        "import sys, numpy as np; from torshc.runtime import load\n"
        "m = load(sys.argv[1], verify=False); y, z = m(np.zeros((3, 16), np.float32))\n"
        "from torshc.runtime import DeviceArray, dlpack\n"
        "a = DeviceArray(m._opened, (3, 16), np.dtype('f4'), (2, 32)); b = dlpack.View(a, 'a', 1); m.run({'x': a})\n"
        "print('done')"
    )
    root = str(Path(__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", code, str(write())],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": root},
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


# A kernel that reads far outside its memory, in a process of its own, as the card's context does not live on.
LOST = """
import sys, numpy as np
from torshc.base.errors import TorshcError
from torshc.runtime import load
m = load(sys.argv[1], verify=False)
for _ in range(2):
    try:
        m(np.zeros((2, 16), np.float32))
    except TorshcError as error:
        print(error)
"""


def test_a_kernel_that_fails(write: Write, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "card" not in request.node.name:
        pytest.skip("the emulator cannot survive it")
    monkeypatch.setattr(tiny_cuda, "ADD", tiny_cuda.ADD.replace("float4 a = t[i];", "float4 a = t[i + (1ll << 40)];"))
    bundle = write(extra_flags=("-DLOST",))
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    for blocking in ("0", "1"):
        done = subprocess.run(
            [sys.executable, "-c", LOST, str(bundle)],
            capture_output=True,
            text=True,
            env={**env, "CUDA_LAUNCH_BLOCKING": blocking},
        )
        assert done.stdout.count("IllegalAddress") == 2 and "restart the process" in done.stdout, done
        assert ("step 1 (k1)" in done.stdout) == (blocking == "1"), done


def test_torch(write: Write, request: pytest.FixtureRequest) -> None:
    torch = pytest.importorskip("torch")
    if "card" not in request.node.name or not torch.cuda.is_available():
        pytest.skip("no card, or a torch without CUDA")
    x = torch.randn(7, 16, device="cuda")
    want = tiny.expected(x.cpu().numpy())
    stream = torch.cuda.Stream()
    for given in (None, stream):
        with load(write(), stream=given) as model, torch.cuda.stream(given):
            for _ in range(4):
                y = torch.empty_like(x)
                found = model.run({"x": x}, out={"y": y})
                assert torch.equal(y.cpu(), torch.from_numpy(want["y"]))
                assert torch.equal(torch.from_dlpack(found[Z]).cpu(), torch.from_numpy(want[Z]))
            assert same(model.run({"x": x}), x.cpu().numpy())
            with pytest.raises(RunError, match="contiguous"):
                model.run({"x": torch.randn(16, 16, device="cuda").t()[:7]})
            assert torch.cuda.current_device() == 0


@pytest.mark.parametrize("fallback", [False, True])
def test_contexts_share_the_weights_on_the_device(write: Write, fallback: bool) -> None:
    x = rows(7)
    with load(write(fallback=fallback)) as model:
        contexts = [model.context() for _ in range(3)]
        there = to_device(contexts[0], x)
        assert same(contexts[0].run({"x": there}), x) and same(model.run({"x": x}), x)
    assert all(same(context.run({"x": x}), x) for context in contexts)  # the model is closed, its weights are not
    contexts[1].close()
    assert same(contexts[2].run({"x": x}), x)
    with pytest.raises(RunError, match="is closed"):
        contexts[1].run({"x": x})
