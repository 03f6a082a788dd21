"""Operators with a function of the user's in C or CUDA: in the plan, and of the host with sizes of its own."""

from __future__ import annotations

import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import torshc
from tests.emulation.emulated import emulated_tools
from tests.support import compilers, models
from tests.support.contrib import model_of
from tests.support.models import save
from torshc.base.errors import ConfigError, ModelError, RunError, ToolchainError, TorshcError, UnsupportedError
from torshc.base.options import CompileOptions
from torshc.formats import import_model
from torshc.gradient import gradients
from torshc.graph import Builder
from torshc.ops import CustomOperators
from torshc.pipeline.compiler import prepare
from torshc.workbench.bisect import bisect_model
from torshc.workbench.depfile import write_depfile
from torshc.workbench.eject import eject
from torshc.workbench.verify import verify_model

DOMAIN = "com.example"
Array = np.ndarray[Any, Any]
FAN = """
import numpy as np
from torshc import ops

def computed(x, y=None, factor=None, powers=None, names=None):
    x = x if y is None else x + y
    return np.stack([x * factor + p for p in powers]).astype(x.dtype)

@ops.kernel("Fan", "com.example", c="fan.c", reference=computed, headers=["fan.h"], libraries=["m"])
def fan(x, y=None, *, factor: float = 2.0, powers: tuple[int, ...] = (0, 1), names: tuple[str, ...] = ("a", "bc")):
    return ops.Work(ops.TensorType(x.dtype, (len(powers), *x.shape)), tasks=x.shape[0], scratch=4 * x.shape[1])

@ops.composite("Twice", "com.example")
def twice(x):
    return ops.reduce_sum(fan(x, powers=(1, 2)), [0], keepdims=0)
"""
FAN_C = """
#include "fan.h"

int fan(torshc_op *op)
{
    const torshc_tensor *x = &op->inputs[0], *y = &op->inputs[1];
    const int64_t columns = x->shape[1], many = op->attributes[1].count;
    const float factor = (float)op->attributes[0].floats[0];
    float *row = op->scratch;
    if (op->version < 1 || op->input_count != 2 || op->outputs[0].shape[0] != many)
        return torshc_op_fail(op, "it was called in a wrong way");
    if (op->attributes[2].count != 2 || strcmp(op->attributes[2].text + strlen(op->attributes[2].text) + 1, "bc"))
        return torshc_op_fail(op, "its second name is not bc, and factor is %g", factor);
    for (int64_t i = op->begin; i < op->end; i++) {
        for (int64_t j = 0; j < columns; j++)
            row[j] = AT(x, i * columns + j) + (y->ndim < 0 ? 0 : AT(y, i * columns + j));
        for (int64_t k = 0; k < many; k++) {
            const float power = (float)op->attributes[1].ints[k];
            for (int64_t j = 0; j < columns; j++)
                AT(&op->outputs[0], (k * x->shape[0] + i) * columns + j) = row[j] * factor + power;
        }
    }
    return 0;
}
"""
FAN_H = '#include <string.h>\n#include "torshc_op.h"\n#define AT(x, i) ((float *)(x)->data)[i]\n'
KEEP = """
import numpy as np
from torshc import ops

@ops.kernel("Keep", "com.example", c="keep.c", host=True,
            reference=lambda x, above: (x[x > np.float32(above)], np.argwhere(x > np.float32(above)).astype(np.int64)))
def keep(x, *, above: float = 0.0):
    return [ops.Result(x.dtype, (None,)), ops.Result(ops.I64, (None, x.rank))]
"""
KEEP_C = """
#include "torshc_op.h"

int keep(torshc_op *op)
{
    const torshc_tensor *x = &op->inputs[0];
    const float *data = x->data, above = (float)op->attributes[0].floats[0];
    const int64_t size = torshc_op_count(x);
    int64_t count = 0;
    for (int64_t i = 0; i < size; i++)
        count += data[i] > above;
    const int64_t places[] = {count, x->ndim};
    const int status = torshc_op_make(op, 0, &count) || torshc_op_make(op, 1, places);
    if (status)
        return status;
    for (int64_t i = 0, k = 0; i < size; i++) {
        if (!(data[i] > above))
            continue;
        ((float *)op->outputs[0].data)[k] = data[i];
        for (int64_t d = x->ndim - 1, rest = i; d >= 0; rest /= x->shape[d--])
            ((int64_t *)op->outputs[1].data)[k * x->ndim + d] = rest % x->shape[d];
        k++;
    }
    return 0;
}
"""


def written(folder: Path, **texts: str) -> Path:
    """Files by name, with _ for the dot; the operator file is mine.py."""
    for name, text in texts.items():
        (folder / name.replace("_", ".")).write_text(text)
    return folder / "mine.py"


def fan_files(folder: Path, **others: str) -> Path:
    return written(folder, **{"mine_py": FAN, "fan_c": FAN_C, "fan_h": FAN_H, **others})


def model(folder: Path, nodes: list[tuple[Any, ...]], outputs: list[str], shape: tuple[Any, ...] = ("n", 7)) -> Path:
    """A model of one input, x; nodes are (op, inputs, outputs, attributes)."""
    own = {"Fan", "Keep", "Twice", "Other"}
    made = [
        helper.make_node(op, list(ins), list(outs), name=f"the_{op}", domain=DOMAIN if op in own else "", **attributes)
        for op, ins, outs, attributes in nodes
    ]
    return save(models.model(made, {"x": shape}, outputs, opset=18), folder)


def fan(x: Array, factor: float, powers: tuple[int, ...]) -> Array:
    return np.stack([x * np.float32(factor) + p for p in powers]).astype(np.float32)


CHAIN = [
    ("Exp", "x", "e", {}),
    ("Transpose", "e", "t", {"perm": [1, 0]}),
    ("Fan", "t", "f", {"factor": 3.0, "powers": [-1, 2, 5]}),
    ("Neg", "f", "z", {}),
]


@pytest.mark.parametrize("target", ["c", "cuda"])
@pytest.mark.parametrize("level", [0, 3])
def test_a_function_in_the_plan(target: str, level: int, tmp_path: Path) -> None:
    file, source = fan_files(tmp_path), model(tmp_path, CHAIN, ["z"])
    with emulated_tools() if target == "cuda" else pytest.MonkeyPatch.context():
        done = torshc.compile(source, tmp_path / "m.tsc", ops=file, opt_level=level, target=target)
        assert (target == "cuda") == bool(done.fallbacks)
        with torshc.load(tmp_path / "m.tsc", threads=3) as loaded:
            for n in (0, 1, 2, 50):
                x = np.random.default_rng(n).standard_normal((n, 7)).astype(np.float32)
                (got,) = loaded.run({"x": x}).values()
                np.testing.assert_allclose(got, -fan(np.exp(x).T, 3.0, (-1, 2, 5)), rtol=1e-5, atol=1e-5)


def test_operands_and_results_that_lie_elsewhere(tmp_path: Path) -> None:
    """A part of an operand, the second operand, and results that are parts of a concatenation."""
    nodes = [
        ("Split", "x", ("a", "b"), {"axis": 1, "num_outputs": 2}),
        ("Fan", ("a", "b"), "f", {"powers": [1, 2]}),
        ("Fan", "b", "g", {"powers": [4, 5]}),
        ("Concat", ("f", "g"), ("inner",), {"axis": 2}),
        ("Concat", ("g", "f"), ("outer",), {"axis": 0}),
    ]
    file, source = fan_files(tmp_path), model(tmp_path, nodes, ["inner", "outer"], ("n", 8))
    torshc.compile(source, tmp_path / "m.tsc", ops=file)
    x = np.random.default_rng(3).standard_normal((3, 8)).astype(np.float32)
    f, g = fan(x[:, :4] + x[:, 4:], 2.0, (1, 2)), fan(x[:, 4:], 2.0, (4, 5))
    with torshc.load(tmp_path / "m.tsc") as loaded:
        inner, outer = loaded.run({"x": x}).values()
    np.testing.assert_allclose(inner, np.concatenate([f, g], 2), rtol=1e-6)
    np.testing.assert_allclose(outer, np.concatenate([g, f], 0), rtol=1e-6)


def test_operands_that_a_node_leaves_out(tmp_path: Path) -> None:
    """More of them than a frame has places for what nodes leave out by themselves."""
    names = [f"y{k}=None" for k in range(12)]
    text = BARE.replace("WORDS", ", host=True").replace("def other(x)", f"def other(x, {', '.join(names)})")
    source = RIGHT.replace(
        "return op->end != op->tasks;",
        "int absent = 0; for (int k = 0; k < op->input_count; k++) absent += op->inputs[k].ndim < 0;"
        " const int64_t size[] = {op->input_count, absent}; const int status = torshc_op_make(op, 0, size);"
        " return status;",
    )
    file = written(tmp_path, mine_py=text.replace("x.type", "ops.Result(x.dtype, (None, None))"), other_c=source)
    torshc.compile(model(tmp_path, [("Other", "x", "y", {})], ["y"]), tmp_path / "m.tsc", ops=file)
    with torshc.load(tmp_path / "m.tsc") as loaded:
        assert loaded.run({"x": np.zeros((2, 7), np.float32)})["y"].shape == (13, 12)


def test_a_composite_calls_it_as_a_function(tmp_path: Path) -> None:
    file, source = fan_files(tmp_path), model(tmp_path, [("Twice", "x", "y", {})], ["y"])
    torshc.compile(source, tmp_path / "m.tsc", ops=file)
    x = np.random.default_rng(3).standard_normal((3, 7)).astype(np.float32)
    with torshc.load(tmp_path / "m.tsc") as loaded:
        np.testing.assert_allclose(loaded.run({"x": x})["y"], fan(x, 2.0, (1, 2)).sum(0), rtol=1e-5)
    assert verify_model(source, CompileOptions(ops=(file,))).ok


HOSTED = [("Neg", "x", "e", {}), ("Keep", "e", ("k", "p"), {"above": 0.25}), ("Mul", ("k", "k"), "z", {})]


@pytest.mark.parametrize("target", ["c", "cuda"])
@pytest.mark.parametrize("outputs", [["z", "p"], ["z"], ["p"]])
def test_a_function_of_the_host_decides_its_sizes(outputs: list[str], target: str, tmp_path: Path) -> None:
    file, source = written(tmp_path, mine_py=KEEP, keep_c=KEEP_C), model(tmp_path, HOSTED, outputs)
    with emulated_tools() if target == "cuda" else pytest.MonkeyPatch.context():
        torshc.compile(source, tmp_path / "m.tsc", ops=file, target=target)
        _check_kept(tmp_path / "m.tsc")
    assert verify_model(source, CompileOptions(ops=(file,)), dims={"n": 3}).ok


def _check_kept(bundle: Path) -> None:
    with torshc.load(bundle) as loaded:
        for n in (0, 1, 5):
            x = np.random.default_rng(n).standard_normal((n, 7)).astype(np.float32)
            kept = -x > 0.25
            wanted = {"z": (x * x)[kept], "p": np.argwhere(kept)}
            for name, got in loaded.run({"x": x}).items():
                np.testing.assert_allclose(got, wanted[name], rtol=1e-6)


SHOUT = """
from torshc import ops

@ops.kernel("Other", "com.example", c="other.c", host=True)
def other(x, *, end: str = "!"):
    return ops.Result(ops.STRING, x.shape)
"""
SHOUT_C = """
#include "torshc_op.h"

#include <ctype.h>
#include <string.h>

int other(torshc_op *op)
{
    const torshc_string *x = op->inputs[0].data;
    const char *end = op->attributes[0].text;
    const int64_t size = torshc_op_count(&op->inputs[0]), more = (int64_t)strlen(end);
    const int status = torshc_op_make(op, 0, op->inputs[0].shape);
    for (int64_t i = 0; !status && i < size; i++) {
        char *text = torshc_op_text(op, x[i].bytes + more);
        if (!text)
            return TORSHC_E_MEMORY;
        for (int64_t k = 0; k < x[i].bytes; k++)
            text[k] = (char)toupper((unsigned char)x[i].text[k]);
        memcpy(text + x[i].bytes, end, (size_t)more);
        ((torshc_string *)op->outputs[0].data)[i] = (torshc_string){text, x[i].bytes + more};
    }
    return status;
}
"""


def test_a_function_of_the_host_takes_and_makes_strings(tmp_path: Path) -> None:
    file = written(tmp_path, mine_py=SHOUT, other_c=SHOUT_C)
    x = np.array([["one", ""], ["three", "f\u00fcr"]], object)
    onnx.save(model_of("Other", (x,), domain=DOMAIN, dims={0: ["n", 2]}, end="?!"), tmp_path / "m.onnx")
    torshc.compile(tmp_path / "m.onnx", tmp_path / "m.tsc", ops=file)
    with torshc.load(tmp_path / "m.tsc") as loaded:
        got = loaded.run({"x0": x})["out0"]
    assert got.tolist() == [["ONE?!", "?!"], ["THREE?!", "F\u00fcR?!"]]
    written(tmp_path, mine_py=SHOUT.replace(", host=True", "").replace("ops.Result(ops.STRING, x.shape)", "x.type"))
    with pytest.raises(UnsupportedError, match="Other of string elements"):
        torshc.compile(tmp_path / "m.onnx", tmp_path / "m2.tsc", ops=file)


def test_contexts_call_it_at_the_same_time(tmp_path: Path) -> None:
    file, source = fan_files(tmp_path), model(tmp_path, CHAIN, ["z"])
    torshc.compile(source, tmp_path / "m.tsc", ops=file)
    x = np.random.default_rng(4).standard_normal((64, 7)).astype(np.float32)
    with torshc.load(tmp_path / "m.tsc", threads=2) as loaded, ThreadPoolExecutor(4) as pool:
        contexts = [loaded.context() for _ in range(4)]
        for got in pool.map(lambda c: c.run({"x": x})["z"], contexts * 8):
            np.testing.assert_allclose(got, -fan(np.exp(x).T, 3.0, (-1, 2, 5)), rtol=1e-5, atol=1e-5)


def test_built_from_its_sources(tmp_path: Path) -> None:
    if compilers.needed().kind == "zig":
        pytest.skip("build.sh is for clang and gcc")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "fan.h").write_text(FAN_H)
    text = FAN.replace('headers=["fan.h"]', 'includes=["elsewhere"]')
    file, source = written(tmp_path, mine_py=text, fan_c=FAN_C), model(tmp_path, CHAIN, ["z"])
    torshc.compile(source, tmp_path / "m.tsc", ops=file, emit="source")
    subprocess.run(["sh", tmp_path / "m.tsc/src/build.sh"], check=True)
    x = np.random.default_rng(4).standard_normal((5, 7)).astype(np.float32)
    with torshc.load(tmp_path / "m.tsc") as loaded:
        np.testing.assert_allclose(loaded.run({"x": x})["z"], -fan(np.exp(x).T, 3.0, (-1, 2, 5)), rtol=1e-5)
    torshc.compile(source, tmp_path / "m.tsc", ops=file)
    again = torshc.compile(source, tmp_path / "m.tsc", ops=file)
    assert again.compiled == 1  # what is in a folder of headers is no part of the cache's key
    (tmp_path / "elsewhere" / "fan.h").write_text(FAN_H.replace("torshc_op.h", "no.h"))
    with pytest.raises(ToolchainError, match=r"no\.h"):
        torshc.compile(source, tmp_path / "m.tsc", ops=file)


def test_a_changed_source_or_header_is_compiled_again(tmp_path: Path) -> None:
    file, source = fan_files(tmp_path), model(tmp_path, CHAIN, ["z"])
    torshc.compile(source, tmp_path / "m.tsc", ops=file)
    assert torshc.compile(source, tmp_path / "m.tsc", ops=file).compiled == 0
    (tmp_path / "fan.c").write_text(f"{FAN_C.replace('row[j] * factor', 'row[j]')}/* {tmp_path} */\n")
    assert torshc.compile(source, tmp_path / "m.tsc", ops=file).compiled == 1
    x = np.random.default_rng(4).standard_normal((5, 7)).astype(np.float32)
    with torshc.load(tmp_path / "m.tsc") as loaded:
        np.testing.assert_allclose(loaded.run({"x": x})["z"], -fan(np.exp(x).T, 1.0, (-1, 2, 5)), rtol=1e-5)
    write_depfile(str(tmp_path / "m.tsc"), source, CompileOptions(ops=(file,)))
    text = (tmp_path / "m.tsc.d").read_text()
    assert all(str(tmp_path / name) in text for name in ("mine.py", "fan.c", "fan.h"))


@pytest.mark.parametrize("kind", ["clang", "gcc"])
def test_compiles_without_warnings(kind: str, tmp_path: Path) -> None:
    cc, seen = compilers.needed(kind).cc, set[str]()
    warn = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-Wno-psabi", "-DTORSHC_LANES=8"]
    warn += ["-O1" if kind == "gcc" else "-O0", "-c", "-o", str(tmp_path / "o.o")]  # gcc warns by what its passes see
    for files, nodes, outputs in ((fan_files, CHAIN, ["z"]), (None, HOSTED, ["z", "p"])):
        file = files(tmp_path) if files else written(tmp_path, mine_py=KEEP, keep_c=KEEP_C)
        torshc.compile(model(tmp_path, nodes, outputs), tmp_path / "m.tsc", ops=file, emit="source")
        sources = {c: c.read_text() for c in (tmp_path / "m.tsc/src").glob("*.c")}
        for c in (c for c, text in sources.items() if text not in seen):
            subprocess.run([cc, *warn, "-I", str(c.parent), str(c)], check=True)
        seen |= set(sources.values())


def require_fault(folder: Path, message: str) -> None:
    """A run of a bundle ends with a message."""
    with torshc.load(folder / "m.tsc", threads=2) as loaded, pytest.raises(RunError, match=message):
        loaded.run({"x": np.zeros((4, 7), np.float32)})


def test_a_fault_ends_the_run_with_its_message(tmp_path: Path) -> None:
    nodes = [("Fan", "x", "y", {"names": ["a", "x"], "factor": 0.5})]
    torshc.compile(model(tmp_path, nodes, ["y"]), tmp_path / "m.tsc", ops=fan_files(tmp_path))
    require_fault(tmp_path, r"\(Fan\): its second name is not bc, and factor is 0.5")
    sources = {
        "output 1 has size 5 along dimension 1, and was declared with 2": KEEP_C.replace(
            "{count, x->ndim}", "{count, 5}"
        ),
        "its function returned status 1": '#include "torshc_op.h"\nint keep(torshc_op *o) { return o->input_count; }\n',
        r"did not call torshc_op_make\(\) for output 1": KEEP_C.replace("|| torshc_op_make(op, 1, places)", "").replace(
            "((int64_t *)op->outputs[1].data)", "((int64_t *)op->outputs[0].data)"
        ),
    }
    for message, text in sources.items():
        files = written(tmp_path, mine_py=KEEP, keep_c=text)
        torshc.compile(model(tmp_path, HOSTED, ["p"]), tmp_path / "m.tsc", ops=files)
        require_fault(tmp_path, message)


def test_a_function_that_disagrees_with_its_reference(tmp_path: Path) -> None:
    file = fan_files(tmp_path, fan_c=FAN_C.replace("row[j] * factor", "row[j]"))
    source, options = model(tmp_path, CHAIN, ["z"]), CompileOptions(ops=(file,))
    assert not verify_model(source, options, dims={"n": 2}).ok
    found = bisect_model(source, options, tmp_path / "small.onnx", dims={"n": 2})
    assert found.place is not None
    assert found.place.node == "'the_Fan' (Fan)"


BARE = """
from torshc import ops

@ops.kernel("Other", "com.example", c="other.c"WORDS)
def other(x):
    return x.type
"""
RIGHT = '#include "torshc_op.h"\nint other(torshc_op *op) { return op->end != op->tasks; }\n'


@pytest.mark.parametrize(
    ("words", "source", "error", "message"),
    [
        ("", None, ConfigError, r"mine.py:4: FileNotFoundError: .*other.c does not exist"),
        ("", RIGHT + "int more(void) { return 1 }\n", ToolchainError,
         r"other.c, which .*mine.py:4 names, does not compile(.|\n)*other.c:3:"),
        ("", RIGHT.replace("int other", "int another"), ToolchainError, r"mine.py:4:(.|\n)*other"),
        ("", RIGHT.replace("int other", "long other"), ToolchainError, r"mine.py:4:(.|\n)*int other\(torshc_op \*op\)"),
        ("", RIGHT + "int helper(void);\nint use(void) { return helper(); }\n", ToolchainError,
         r"helper(.|\n)*libraries= of com.example.Other \(.*mine.py:4\)"),
        (', libraries=["no-such-library"]', RIGHT, ToolchainError,
         r"no-such-library(.|\n)*install the library of -lno-such-library"),
        (', libraries=["a b"]', RIGHT, ConfigError, "odd name"),
        (', function="strange name"', RIGHT, ConfigError, "odd name"),
        (', headers=["none.h"]', RIGHT, ConfigError, "none.h does not exist"),
    ],
)  # fmt: skip
def test_refused_by_file_and_line(
    words: str, source: str | None, error: type[TorshcError], message: str, tmp_path: Path
) -> None:
    file = written(tmp_path, mine_py=BARE.replace("WORDS", words), **({"other_c": source} if source else {}))
    with pytest.raises(error, match=message):
        torshc.compile(model(tmp_path, [("Other", "x", "y", {})], ["y"]), tmp_path / "m.tsc", ops=file)
    assert not (tmp_path / "m.tsc").exists()


@pytest.mark.parametrize(
    ("made", "error", "message"),
    [
        ("x.shape", ConfigError, r"mine.py:4: com.example.Other: TypeError: the result is .*a type has to be"),
        ("None", ConfigError, r"mine.py:4: com.example.Other: TypeError: the result is None, where a type has to be"),
        ("ops.TensorType(x.dtype, (x.shape[5],))", ConfigError, r"mine.py:6: .*IndexError"),
        ("ops.TensorType(x.dtype, (-3,))", ConfigError, "a dimension of -3"),
        ("ops.Result(x.dtype, (None,))", ConfigError, "mine.py:4: com.example.Other leaves a dimension to the run"),
        ("[x.type, x.type]", ModelError, None),
    ],
)
def test_wrong_shapes(made: str, error: type[TorshcError], message: str | None, tmp_path: Path) -> None:
    file = written(tmp_path, mine_py=BARE.replace("WORDS", "").replace("x.type", made), other_c=RIGHT)
    source = model(tmp_path, [("Other", "x", "y", {})], ["y"])
    if message is None:
        torshc.compile(source, tmp_path / "m.tsc", ops=file)  # a result that nobody names
        return
    with pytest.raises(error, match=message):
        torshc.compile(source, tmp_path / "m.tsc", ops=file)


def test_no_reference_to_judge_by(tmp_path: Path) -> None:
    file = written(tmp_path, mine_py=BARE.replace("WORDS", ""), other_c=RIGHT)
    source = model(tmp_path, [("Other", "x", "y", {})], ["y"])
    with pytest.raises(RunError, match=r"'the_Other' \(com.example.Other\).*\n.*reference=.*mine.py:4"):
        verify_model(source, CompileOptions(ops=(file,)))


CUDA = """
#include "torshc_op.h"

__global__ static void scale_kernel(const float *x, float *y, float *row, int64_t count, float by) {
    const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) { row[i] = x[i]; y[i] = row[i] * by; }
}

extern "C" int other(torshc_op *op) {
    const int64_t count = torshc_op_count(&op->inputs[0]);
    scale_kernel<<<(unsigned)((count + 127) / 128), 128, 0, (cudaStream_t)op->stream>>>(
        (const float *)op->inputs[0].data, (float *)op->outputs[0].data, (float *)op->scratch, count,
        (float)op->attributes[0].floats[0]);
    return (int)cudaGetLastError();
}
"""
ON_CARD = """
from torshc import ops

@ops.kernel("Other", "com.example", cuda="other.cu")
def other(x, *, by: float = 3.0):
    return ops.Work(x.type, scratch=4 * x.type.size)
"""


def test_a_function_in_cuda(tmp_path: Path) -> None:
    file = written(tmp_path, mine_py=ON_CARD, other_cu=CUDA)
    nodes = [("Transpose", "x", "t", {"perm": [1, 0]}), ("Other", "t", "o", {"by": 4.0}), ("Neg", "o", "y", {})]
    source = model(tmp_path, nodes, ["y"])
    with emulated_tools():
        done = torshc.compile(source, tmp_path / "m.tsc", ops=file, target="cuda")
        assert not done.fallbacks
        with torshc.load(tmp_path / "m.tsc") as loaded:
            x = np.random.default_rng(4).standard_normal((5, 7)).astype(np.float32)
            np.testing.assert_allclose(loaded.run({"x": x})["y"], -4 * x.T, rtol=1e-6)
    with pytest.raises(UnsupportedError, match=r"\(Other, 'the_Other'\): .*mine.py:4 names no function in C"):
        torshc.compile(source, tmp_path / "c.tsc", ops=file)


def test_a_target_without_a_function(tmp_path: Path) -> None:
    file, source = fan_files(tmp_path), model(tmp_path, CHAIN, ["z"])
    with pytest.raises(UnsupportedError, match=r"mine.py:9 names no function in CUDA"):
        torshc.compile(source, tmp_path / "m.tsc", ops=file, target="cuda", emit="source", fallback=False)
    with pytest.raises(UnsupportedError, match="Fan"):
        torshc.compile(source, tmp_path / "m.tsc", ops=file, target="webgpu", emit="page")


def test_it_is_not_ejected(tmp_path: Path) -> None:
    done = prepare(model(tmp_path, CHAIN, ["z"]), CompileOptions(ops=(fan_files(tmp_path),)))
    group = next(k for k, u in enumerate(done.units) if u.group.anchor is not None)
    with pytest.raises(
        ConfigError, match=rf"group {group} calls fan\(\), a function of yours\n.*edit it where it is: .*fan.c"
    ):
        eject(done, group, tmp_path / "kernels")


HALF = """
from torshc import ops

@ops.kernel("Half", "com.example", c="half.c")
def half(x):
    return x.type
"""
SLOPES = {
    "": r"'it'\): Half has no gradient: a function in C computes it; state its gradient by @ops.gradient_of\(half\), "
    r"after .*mine.py:4",
    "return 'x'": r"mine.py:8: .*Half of node 'it': TypeError: the gradient of operand 0 is 'x', and no tensor",
    "return ops.shape(g)": r"mine.py:8: .*Half of node 'it': ValueError: the gradient of operand 0, f32\[3\], is i64",
    "return [g, g]": r"mine.py:8: .*Half of node 'it': ValueError: 2 gradients of 1 operands",
    "return 1 / 0": r"mine.py:10: .*Half of node 'it': ZeroDivisionError",
}


@pytest.mark.parametrize("body", SLOPES)
def test_kernels_without_a_gradient_are_refused(body: str, tmp_path: Path) -> None:
    (tmp_path / "half.c").write_text("")
    slope = f"\n@ops.gradient_of(half)\ndef slope(g, x):\n    {body}\n" if body else ""
    (tmp_path / "mine.py").write_text(HALF + slope)
    x = np.zeros(3, np.float32)
    graph = import_model(
        model_of("Half", (x,), domain=DOMAIN).SerializeToString(), custom=CustomOperators([tmp_path / "mine.py"])
    )
    with pytest.raises((ConfigError, UnsupportedError), match=SLOPES[body]):
        gradients(Builder(graph), graph.results[0], graph.inputs)
