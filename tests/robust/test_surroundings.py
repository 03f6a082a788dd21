"""Programs in C that call a bundle in processes that fork, whose signals have handlers, and on small stacks."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import torshc

from ..support import compilers
from ..support.slow import some
from ..support.zoo import zoo
from .callers import SURROUNDINGS, calls, written
from .test_callers import NAMES, Record, bundle_of, told

ZOO = zoo()
HEADER = Path(__file__).parents[2] / "templates" / "c" / "host" / "model.h"
STATED = int(re.findall(r"TORSHC_STACK_BYTES (\d+)", HEADER.read_text())[0])
FEW, MANY = 3, 300  # inputs and outputs, and symbols
# Bytes of stack by which functions of other lengths may differ: registers that compilers spill, arguments.
SPILLS = 4096


@pytest.mark.parametrize("name", some(NAMES, 8))
def test_after_fork(name: str, tmp_path: Path, record_property: Record) -> None:
    """Children are told, of models with one thread too, while other threads of the parent run these."""
    told(record_property, calls(*bundle_of(name, tmp_path), "fork", 10, source=SURROUNDINGS), 10)


@pytest.mark.parametrize("name", some(NAMES, 8))
def test_threads_of_a_model_take_no_signals(name: str, tmp_path: Path, record_property: Record) -> None:
    told(record_property, calls(*bundle_of(name, tmp_path), "workers", 20, source=SURROUNDINGS), 180)


def stack(folder: tuple[Path, Path], cc: str = "") -> int:
    (found,) = calls(*folder, "stack", 1, cc, source=SURROUNDINGS).values()
    return found


@pytest.mark.parametrize("name", some([*ZOO], 12))
def test_the_stack_that_a_call_needs(name: str, tmp_path: Path, record_property: Record) -> None:
    """A stack is painted, and looked at after the calls: no more is gone than model.h says."""
    found = stack(bundle_of(name, tmp_path))
    record_property("at most bytes of stack", found)
    assert found <= STATED


def wide(count: int, dims: list[int | str], op: str, result: list[int | str]) -> onnx.ModelProto:
    """As many nodes, each with an input and an output of its own; `#` in a dimension is the number of the node."""

    def info(name: str, k: int, of: list[int | str]) -> onnx.ValueInfoProto:
        shape = [d.replace("#", str(k)) if isinstance(d, str) else d for d in of]
        return helper.make_tensor_value_info(f"{name}{k}", kind if name == "y" else TensorProto.FLOAT, shape)

    script = op == "NonZero"  # whose sizes only a run shows, and a sum over them
    kind = TensorProto.INT64 if script else TensorProto.FLOAT
    nodes = [helper.make_node(op, [f"x{k}"], [f"z{k}" if script else f"y{k}"]) for k in range(count)]
    nodes += [helper.make_node("ReduceSum", [f"z{k}"], [f"y{k}"], keepdims=0) for k in range(count) if script]
    inputs, outputs = ([info(name, k, of) for k in range(count)] for name, of in (("x", dims), ("y", result)))
    graph = helper.make_graph(nodes, "wide", inputs, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


@pytest.mark.parametrize("kind", ["static", "symbolic", "script"])
def test_the_stack_does_not_grow_with_the_model(kind: str, tmp_path: Path) -> None:
    shapes: dict[str, tuple[list[int | str], str, list[int | str]]] = {
        "static": ([2], "Neg", [2]), "symbolic": (["n#", 2], "Neg", ["n#", 2]), "script": ([4], "NonZero", []),
    }  # fmt: skip
    found = []
    for count in (FEW, MANY):
        folder = tmp_path / str(count)
        folder.mkdir()
        dims, op, result = shapes[kind]
        onnx.save(wide(count, dims, op, result), folder / "m.onnx")
        torshc.compile(folder / "m.onnx", folder / "m.tsc")
        fixed = tuple(4 if isinstance(d, str) else d for d in dims)
        feeds = {f"x{k}": np.arange(np.prod(fixed), dtype=np.float32).reshape(fixed) + 1 for k in range(count)}
        found.append(stack((folder / "m.tsc", written(feeds, folder / "inputs"))))
    assert found[1] <= found[0] + SPILLS and found[1] <= STATED, found


def test_the_stack_of_a_call_by_name(tmp_path: Path) -> None:
    """What NAME_call puts on its caller's stack is in NAME.h."""
    onnx.save(wide(MANY, ["n", 2], "Neg", ["n", 2]), tmp_path / "net.onnx")
    torshc.compile(tmp_path / "net.onnx", tmp_path / "net.tsc")
    stated = int(re.findall(r"(\d+) bytes of the caller's stack", (tmp_path / "net.tsc" / "net.h").read_text())[0])
    (tmp_path / "size.c").write_text(
        "#include <net.h>\nint take(net_model *m, net_tensors *t) { return net_call(m, t); }\n"
    )
    command = [compilers.needed().cc, "-O1", "-Wframe-larger-than=%d", "-Werror", f"-I{tmp_path / 'net.tsc'}", "-c"]
    room = 512  # registers, and what the compiler keeps beside the arrays
    for most, fits in ((stated + room, True), (stated * 9 // 10, False)):
        words = [w % most if "%d" in w else w for w in command]
        command_ = [*words, tmp_path / "size.c", "-o", tmp_path / "size.o"]
        done = subprocess.run(command_, capture_output=True, text=True, check=False)
        assert (done.returncode == 0) is fits, done.stderr
