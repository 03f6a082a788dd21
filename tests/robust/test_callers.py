"""Programs in C that call a bundle from threads, in other floating-point states and between signals."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest

import torshc
from torshc.targets.cc import find_compiler

from ..support import compilers, sanitize
from ..support.slow import some
from ..support.zoo import zoo
from .callers import calls, written

ZOO = zoo()
# Of every kind of kernel one, and sizes that are computed in floats.
NAMES = ("convolutions", "map", "attention", "lstm", "gemm", "reductions", "softmax", "sizes in other types")
CALLS = 10_000
Record = Callable[[str, object], None]


def bundle_of(name: str, folder: Path) -> tuple[Path, Path]:
    """The bundle of a specimen, and a file with the inputs of its largest run."""
    specimen = ZOO[name]
    onnx.save(specimen.model, folder / "m.onnx")
    torshc.compile(folder / "m.onnx", folder / "m.tsc", keep_intermediates=True)
    return folder / "m.tsc", written(specimen.feeds(len(specimen.shapes) - 1), folder / "inputs")


def told(record: Record, found: dict[str, int], at_least: int = 1) -> None:
    assert found and min(found.values()) >= at_least
    for name, value in found.items():
        record(name, value)


@pytest.mark.parametrize("name", some(NAMES, 4))
def test_eight_threads(name: str, tmp_path: Path, record_property: Record) -> None:
    """They share a model without threads and one with two."""
    told(record_property, calls(*bundle_of(name, tmp_path), "threads", CALLS), CALLS)


@pytest.mark.parametrize("name", some(NAMES, 8))
def test_eight_threads_under_the_thread_sanitizer(name: str, tmp_path: Path, record_property: Record) -> None:
    flags = ("-fsanitize=thread", "-g")
    cc = next((h for h in reversed(compilers.hosts()) if h.kind != "zig" and compilers.links(h.cc, flags[0])), None)
    if cc is None:
        pytest.skip("no compiler with the thread sanitizer is here")
    bundle, feeds = bundle_of(name, tmp_path)
    sanitize.rebuild(bundle, tmp_path / "work", find_compiler(cc.name), ("thread",))
    found = calls(bundle, feeds, "threads", 400, cc.cc, flags)
    record_property("calls under the thread sanitizer", found["calls"])


@pytest.mark.parametrize("name", some(NAMES, 7))
def test_any_floating_point_state(name: str, tmp_path: Path, record_property: Record) -> None:
    """Rounding modes, flushed denormals and exceptions that trap: neither used nor changed, sizes neither."""
    told(record_property, calls(*bundle_of(name, tmp_path), "states", 64), 64)


@pytest.mark.parametrize("name", some(NAMES, 8))
def test_between_signals(name: str, tmp_path: Path, record_property: Record) -> None:
    told(record_property, calls(*bundle_of(name, tmp_path), "signals", 500), 500)


def test_two_contexts_at_once(tmp_path: Path, record_property: Record) -> None:
    """What `make contexts` measures; how long is for an idle machine to say."""
    found = calls(*bundle_of("gemm", tmp_path), "contexts", 3)
    told(record_property, found)
    assert {"nanoseconds", "thousandths by the clock"} < found.keys()


def static() -> list[str]:
    """Specimens without symbolic dimensions, and without a script, which may allocate."""
    inputs = {n: [d for i in s.model.graph.input for d in i.type.tensor_type.shape.dim] for n, s in ZOO.items()}
    return [n for n, dims in inputs.items() if not any(d.dim_param for d in dims)]


@pytest.mark.parametrize("name", some(static(), 10))
def test_no_allocation(name: str, tmp_path: Path, record_property: Record) -> None:
    """Calls of malloc and its relatives are counted, those of the model's threads too."""
    cc = compilers.needed().cc
    if not compilers.links(cc, "-Wl,--undefined=__libc_memalign"):
        pytest.skip("the C library has no names under which malloc can be replaced")
    bundle, feeds = bundle_of(name, tmp_path)
    if json.loads((bundle / "manifest.json").read_text())["dynamic"]:
        pytest.skip("its sizes are known only at run time")
    told(record_property, calls(bundle, feeds, "memory", 1000, cc, ("-DCOUNT_ALLOCATIONS",)), 1000)
