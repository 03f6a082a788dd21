"""Variants for values of inputs that lie in a card's memory: the card takes the form, and nothing waits for it."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import torshc
from tests.emulation.emulated import emulated_tools
from tests.runtime.test_device import to_device
from tests.support.compare import onnx_runtime
from torshc.runtime import Model

from .test_forms_guards import CLOSE, LAST, MODEL, RUNS, feeds

NODE = helper.make_node
Arrays = dict[str, np.ndarray[Any, Any]]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    out = tmp_path_factory.mktemp("guards") / "m.tsc"
    with emulated_tools():
        torshc.compile(MODEL, out, target="cuda", specialize=("n=2 seq=5 mask=1", "mask=1 kinds=0"))
        yield out


class Runs:
    """Runs of a model over tensors that stay in the card's memory: the first is not recorded, the second is."""

    def __init__(self, model: Model, given: Mapping[str, np.ndarray[Any, Any]], there: tuple[str, ...] = ()) -> None:
        self.model = model
        names = there or tuple(given)
        self.given = {n: to_device(model, a) if n in names else a.copy() for n, a in given.items()}
        (want,) = onnx_runtime(MODEL, dict(given))
        self.out = to_device(model, np.full(want.shape, np.nan, np.float32))

    def run(self, given: Arrays) -> None:
        """A run, whose answer is compared with that for these arrays."""
        self.model.run(self.given, out={"y": self.out})
        np.testing.assert_allclose(self.out.numpy(), onnx_runtime(MODEL, given)[0], rtol=CLOSE, atol=CLOSE)


def put(model: Model, there: Any, array: np.ndarray[Any, Any]) -> None:
    """Puts other elements into memory of the card."""
    assert model._opened is not None
    library, handle = model._opened.library, model._opened.handle
    assert library.torshc_copy(handle, there._data, np.ascontiguousarray(array).ctypes.data, array.nbytes) == 0


def forms(model: Model) -> dict[str, tuple[int, int]]:
    return {f.sizes: (f.runs, f.missed) for f in model.stats().forms}


def test_the_card_takes_the_form(encoder: Path) -> None:
    with torshc.load(encoder) as model:
        for k, (n, seq, mask, kinds, taken) in enumerate(RUNS):
            given = feeds(n, seq, mask, kinds, seed=k)
            runs = Runs(model, given)
            runs.run(given)
            before = forms(model)
            for _ in range(3):
                runs.run(given)
            after = forms(model)
            assert {
                f: after[f][0] - before[f][0] for f in after if after[f] > before[f] and after[f][0] > before[f][0]
            } == {taken: 3}
        # Of each four runs the first took the general form; without elements there is nothing to compare.
        assert forms(model) == {"": (20, 0), "n=2 seq=5 mask=1": (6, 10), "mask=1 kinds=0": (10, 20)}


def test_contents_may_change_from_run_to_run(encoder: Path) -> None:
    with torshc.load(encoder) as model:
        given = feeds(2, 5, 1, 0)
        runs = Runs(model, given)
        for mask in (1, 1, LAST, 1, 0, LAST, 1):
            given["mask"] = feeds(2, 5, mask, 0)["mask"]
            put(model, runs.given["mask"], given["mask"])
            runs.run(given)
        assert forms(model)["n=2 seq=5 mask=1"] == (3, 4)  # the first run of seven was not recorded
        assert forms(model)[""] == (4, 0)


def test_the_processor_does_not_wait(encoder: Path) -> None:
    """The emulated card does a piece of work when the next one comes, or something waits: the last one, which is the
    form that is left, has not begun when the call returns."""
    with torshc.load(encoder, stream=0) as model:
        given = feeds(2, 5, LAST, 0)
        runs = Runs(model, given)
        for _ in range(3):
            runs.run(given)
        put(model, runs.out, np.full(runs.out.shape, 7, np.float32))
        model.run(runs.given, out={"y": runs.out})
        shown = np.ctypeslib.as_array((ctypes.c_float * 80).from_address(runs.out._data))
        assert (shown == 7).all()
        assert forms(model)[""] == (4, 0) and (shown != 7).all()


def test_contexts_count_their_own_runs(encoder: Path) -> None:
    with torshc.load(encoder) as model, model.context() as other:
        for mine, times, mask in ((model, 3, 1), (other, 5, 1), (model, 3, LAST)):
            given = feeds(3, 5, mask, 0)
            runs = Runs(mine, given)
            for _ in range(times):
                runs.run(given)
        assert forms(model)["mask=1 kinds=0"] == (2, 4) and forms(other)["mask=1 kinds=0"] == (4, 1)


def test_the_processor_looks_at_what_it_has(encoder: Path) -> None:
    """One of two inputs is in the card's memory: the other is compared before, and may decide alone."""
    with torshc.load(encoder) as model:
        for kinds, took in ((0, (2, 1)), (LAST, (2, 4)), (0, (4, 5))):
            given = feeds(3, 4, 1, 0 if kinds == 0 else [0, 0, 0, 1])
            runs = Runs(model, given, there=("x", "mask"))
            for _ in range(3):
                runs.run(given)
            assert forms(model)["mask=1 kinds=0"] == took


@pytest.mark.parametrize("name, value", [("T_EMULATE_DRIVER", "12020"), ("CUDA_LAUNCH_BLOCKING", "1")])
def test_without_conditional_nodes_runs_take_the_general_form(
    encoder: Path, name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    with torshc.load(encoder) as model:
        given = feeds(2, 5, 1, 0)
        runs = Runs(model, given)
        for _ in range(4):
            runs.run(given)
        assert forms(model) == {"": (4, 0), "n=2 seq=5 mask=1": (0, 4), "mask=1 kinds=0": (0, 4)}


def test_a_choice_that_cannot_be_recorded_is_left_out(encoder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with torshc.load(encoder) as model:
        given = feeds(2, 5, 1, 0)
        runs = Runs(model, given)
        runs.run(given)
        monkeypatch.setenv("T_EMULATE_DRIVER", "12020")  # it gives no more handles
        for _ in range(4):
            runs.run(given)
        assert forms(model)[""] == (5, 0)


KINDS: dict[str, tuple[int, Any, int]] = {
    "a": (TensorProto.BOOL, np.bool_, 1),
    "b": (TensorProto.INT8, np.int8, -1),
    "c": (TensorProto.INT32, np.int32, 7),
    "d": (TensorProto.UINT64, np.uint64, 2**40),
}


def test_elements_of_every_size_are_compared(tmp_path: Path) -> None:
    """Bytes behind the last packet of 16, and more than one block compares: 70,001 elements."""
    nodes = [NODE("Cast", [name], [f"{name}f"], to=TensorProto.FLOAT) for name in KINDS]
    nodes += [NODE("Sum", ["x", *(f"{name}f" for name in KINDS)], ["y"])]
    made = helper.make_model(
        helper.make_graph(
            nodes,
            "g",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"])]
            + [helper.make_tensor_value_info(name, kind, ["n"]) for name, (kind, _, _) in KINDS.items()],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n"])],
        ),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
    )
    every = " ".join(f"{name}={value}" for name, (_, _, value) in KINDS.items())
    with emulated_tools():
        torshc.compile(made, tmp_path / "m.tsc", target="cuda", specialize=(every,))
        with torshc.load(tmp_path / "m.tsc") as model:
            hits = 0
            for n in (1, 3, 16, 17, 70001):
                given: Arrays = {"x": np.zeros(n, np.float32)}
                given |= {name: np.full(n, value, dtype) for name, (_, dtype, value) in KINDS.items()}
                there = {name: to_device(model, array) for name, array in given.items()}
                out = to_device(model, np.zeros(n, np.float32))
                model.run(there, out={"y": out})
                changes = [(name, at) for name in KINDS for at in {0, n // 2, n - 1}]
                for name, at in [("", 0), *changes, ("", 0)]:
                    changed = {k: a.copy() for k, a in given.items()}
                    if name:
                        changed[name][at] = 0
                        put(model, there[name], changed[name])
                    model.run(there, out={"y": out})
                    want = sum(a.astype(np.float32) for a in changed.values())
                    np.testing.assert_array_equal(out.numpy(), want)
                    hits += not name
                    assert forms(model)[every][0] == hits
                    if name:
                        put(model, there[name], given[name])


def test_the_manifest_says_that_the_card_compares(encoder: Path) -> None:
    body = json.loads((encoder / "manifest.json").read_bytes())
    assert [v["on_device"] for v in body["variants"]] == [True, True]
