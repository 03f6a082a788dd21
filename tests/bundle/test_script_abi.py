"""The C interface of a model whose result sizes are known only at run time, from C, with sanitizers."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

import torshc
from tests.emulation.emulated import emulated_tools
from tests.support import compilers, sanitize

from .test_abi import run

HERE = Path(__file__).parent


def write(folder: Path, target: str = "c") -> Path:
    """A bundle with its sources: (rounds, start) -> (last, all)."""
    info, node, int64 = helper.make_tensor_value_info, helper.make_node, TensorProto.INT64
    body = helper.make_graph(
        [node("Add", ["s", "i"], ["t"]), node("Identity", ["t"], ["each"]), node("Identity", ["go"], ["on"])],
        "body",
        [info("i", int64, []), info("go", TensorProto.BOOL, []), info("s", int64, [])],
        [info("on", TensorProto.BOOL, []), info("t", int64, []), info("each", int64, [])],
    )
    graph = helper.make_graph(
        [node("Loop", ["rounds", "", "start"], ["last", "all"], body=body)],
        "sums",
        [info("rounds", int64, []), info("start", int64, [])],
        [info("last", int64, []), info("all", int64, ["n"])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    onnx.save(model, folder / "m.onnx")
    torshc.compile(folder / "m.onnx", folder / "m.tsc", target=target, keep_intermediates=True)
    return folder / "m.tsc"


def build(bundle: Path, cc: str, flags: tuple[str, ...] = ()) -> list[str]:
    target = bundle.parent / "script_abi"
    command = [cc, "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1", f"-I{bundle}", HERE / "script_abi.c", *flags]
    compilers.build([*command, bundle / "libmodel.so", f"-Wl,-rpath,{bundle}", "-lpthread", "-o", target])
    return [str(target), str(bundle / "weights.bin")]


@pytest.mark.parametrize("target", ["c", "cuda"])
def test_scripts_from_c(target: str, tmp_path: Path) -> None:
    with emulated_tools() if target != "c" else nullcontext():
        bundle = write(tmp_path, target)
    run(build(bundle, compilers.needed().cc))


def test_scripts_from_c_with_sanitizers(tmp_path: Path) -> None:
    found = sanitize.usable()
    if found is None:
        pytest.skip("no compiler with the sanitizers' runtime is here")
    compiler, _ = found
    bundle = write(tmp_path)
    sanitize.rebuild(bundle, tmp_path / "work", compiler)
    shared = ("-shared-libasan",) if compiler.kind == "clang" else ()
    flags = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", *shared)
    program = build(bundle, compiler.command[0], flags)
    runtime = Path(found[1]).parent
    run(program, {"LD_LIBRARY_PATH": str(runtime)})
