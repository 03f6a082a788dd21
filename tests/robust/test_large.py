"""Models that are large: weights are read where they lie and written in parts, so that memory holds them once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

import torshc

from ..support.slow import SLOW

_PEAK = """
import sys, torshc
torshc.compile(sys.argv[1], sys.argv[2])
# Not getrusage, whose peak is that of the process that started this one too.
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


def sparse_product(folder: Path, rows: int, columns: int) -> Path:
    """MatMul by an external weight, a file of holes with a 1 at its first element and a 2 at its last."""
    size = 4 * rows * columns
    with (folder / "w.bin").open("wb") as file:
        file.write(np.float32(1).tobytes())
        file.truncate(size - 4)
        file.seek(size - 4)
        file.write(np.float32(2).tobytes())
    w = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[rows, columns], data_location=TensorProto.EXTERNAL)
    for key, value in (("location", "w.bin"), ("offset", "0"), ("length", str(size))):
        w.external_data.add(key=key, value=value)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, rows])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, columns])
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", [x], [y], [w])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    (folder / "m.onnx").write_bytes(made.SerializeToString())  # onnx.save would look for the bytes of the weight
    return folder / "m.onnx"


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_holds_weights_once(tmp_path: Path) -> None:
    path, size = sparse_product(tmp_path, 5000, 10000), 200e6
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", _PEAK, str(path), str(tmp_path / "m.tsc")]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    # The file's own pages, and about 110 MB of Python with onnx and numpy.
    assert int(done.stdout) * 1024 < 1.2 * size + 200e6


@pytest.mark.parametrize(("rows", "columns"), [pytest.param(1200, 1 << 20, marks=SLOW), (3, 1 << 15)])
def test_a_weight_past_4_gib(rows: int, columns: int, tmp_path: Path) -> None:
    torshc.compile(sparse_product(tmp_path, rows, columns), tmp_path / "m.tsc")
    x = np.arange(1, rows + 1, dtype=np.float32)[None]
    with torshc.load(tmp_path / "m.tsc") as model:
        (y,) = model.run({"x": x}).values()
    wanted = np.zeros((1, columns), np.float32)
    wanted[0, 0], wanted[0, -1] = 1, 2 * rows
    np.testing.assert_array_equal(y, wanted)
