"""--with-test: what a bundle carries checks the model where it lands."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from onnx import TensorProto as T
from onnx import helper, numpy_helper, save

import torshc
from tests.support import compilers
from torshc.cli import cli

info, node = helper.make_tensor_value_info, helper.make_node


def bundle(folder: Path, graph: object, *more: str) -> Path:
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    save(model, folder / "net.onnx")
    command = ["compile", str(folder / "net.onnx"), "-o", str(folder / "net.tsc"), "--with-test", *more]
    done = CliRunner().invoke(cli, command, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return folder / "net.tsc"


def ran(place: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "CC": compilers.needed().cc, "CFLAGS": "-Werror"}
    command = ["sh", place / "test" / "run.sh", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=env, check=False)


def test_types_and_shapes(tmp_path: Path) -> None:
    """Of every width, with NaN and infinities; the bundle is moved before."""
    types = {"f": T.FLOAT, "d": T.DOUBLE, "h": T.FLOAT16, "b": T.BFLOAT16, "i": T.INT8, "u": T.UINT16, "t": T.BOOL}
    # A negative number has no unsigned one.
    source = {"u": "size"}
    nodes = [node("Abs", ["x"], ["size"])]
    nodes += [node("Cast", [source.get(name, "x")], [f"{name}_"], to=kind) for name, kind in types.items()]
    nodes += [node("Identity", [f"{name}_"], [name]) for name in types]
    nodes += [node("Sub", ["x", "x"], ["zero"]), node("Div", ["x", "zero"], ["odd"]), node("Neg", ["x"], ["minus"])]
    outputs = [info(name, kind, ["n", 3]) for name, kind in types.items()]
    graph = helper.make_graph(
        nodes,
        "types",
        [info("x", T.FLOAT, ["n", 3])],
        [*outputs, *(info(n, T.FLOAT, ["n", 3]) for n in ("odd", "minus"))],
    )
    made = bundle(tmp_path, graph)
    moved = made.rename(tmp_path / "moved.tsc")
    done = ran(moved, "3", "2")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(" ok\n") == 9 and "3 runs: median" in done.stdout
    assert torshc.load(moved).name == "net"

    wrong = np.fromfile(moved / "test" / "output8.bin", np.float32)
    wrong[1] += 1
    wrong.tofile(moved / "test" / "output8.bin")
    done = ran(moved, "1")
    assert done.returncode == 1 and done.stdout.count("DIFFERS") == 1 and "minus" in done.stdout
    (moved / "test" / "input0.bin").unlink()
    assert "input0.bin: cannot be read" in ran(moved).stderr
    assert "at least one run" in ran(moved, "0").stderr


def test_large_integers_are_compared_exactly(tmp_path: Path) -> None:
    """Not each integer above 2^53 is a float of 64 bits."""
    large = numpy_helper.from_array(np.array(2**60), "large")
    graph = helper.make_graph([node("Add", ["x", "large"], ["y"])], "g", [info("x", T.INT64, [3])], [], [large])
    graph.output.append(info("y", T.INT64, [3]))
    made = bundle(tmp_path, graph)
    assert ran(made, "1").returncode == 0
    wrong = np.fromfile(made / "test" / "output0.bin", np.int64) + 1
    wrong.tofile(made / "test" / "output0.bin")
    assert ran(made, "1").stdout.count("DIFFERS") == 1


def test_sizes_that_only_a_run_shows(tmp_path: Path) -> None:
    if compilers.needed().kind == "zig":
        pytest.skip("the script is for clang and gcc")
    nodes = [node("NonZero", ["x"], ["at"]), node("Neg", ["x"], ["y"])]
    outputs = [info("at", T.INT64, [2, None]), info("y", T.FLOAT, [2, 3])]
    made = bundle(tmp_path, helper.make_graph(nodes, "g", [info("x", T.FLOAT, [2, 3])], outputs), "--emit", "source")
    assert subprocess.run(["sh", made / "src" / "build.sh"], check=False).returncode == 0
    done = ran(made, "2")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(" ok\n") == 2


def test_the_program_is_strict(tmp_path: Path) -> None:
    ends = [info("x", T.FLOAT, [2])], [info("y", T.FLOAT, [2])]
    made = bundle(tmp_path, helper.make_graph([node("Neg", ["x"], ["y"])], "g", *ends))
    for host in compilers.hosts():
        strict = ["-std=c11", "-Wpedantic", "-Wall", "-Wextra", "-Werror", f"-I{made}"]
        compilers.build([host.cc, *strict, "-c", made / "test" / "test.c", "-o", tmp_path / "test.o"])


def test_what_holds_no_numbers_is_refused(tmp_path: Path) -> None:
    ends = [info("s", T.STRING, [2])], [info("y", T.STRING, [2])]
    graph = helper.make_graph([node("Identity", ["s"], ["y"])], "g", *ends)
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), tmp_path / "s.onnx")
    done = CliRunner().invoke(cli, ["compile", str(tmp_path / "s.onnx"), "-o", str(tmp_path / "s.tsc"), "--with-test"])
    assert done.exit_code == 3 and "'s' is a string" in done.output and not (tmp_path / "s.tsc").exists()
