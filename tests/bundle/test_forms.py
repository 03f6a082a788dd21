"""Two forms of a model behind one interface, from C: sizes, workspaces and contexts of each run's own form."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import onnx
import pytest

import torshc
from tests.support import compilers
from tests.support.models import parsed

# Sums of rows, so that a workspace is needed: y = softmax(x) @ w, z = y + b
TEXT = """<ir_version: 8, opset_import: ["" : 18]> g (float[a,4] x, float[b,3] v) => (float[m,3] y)
    <float[4,3] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}>
    { e = Softmax<axis=0>(x) p = MatMul(e, w) q = Add(p, v) s = Softmax<axis=0>(q) y = Add(s, v) }"""
MAIN = """
#include "two.h"
#include <stdio.h>
#include <stdlib.h>

static int run(two_model *m, int64_t a, int64_t b)
{
    float x[40] = {0}, v[30], y[30];
    int64_t x_shape[] = {a, 4}, v_shape[] = {b, 3}, y_shape[2];
    const torshc_device here = {TORSHC_CPU, 0};
    const torshc_tensor in[] = {
        {x, here, 2, two_x_dtype, x_shape, NULL, 0}, {v, here, 2, two_v_dtype, v_shape, NULL, 0}};
    const torshc_tensor out = {y, here, 2, two_y_dtype, y_shape, NULL, 0};
    size_t bytes;
    for (int i = 0; i < 30; i++)
        v[i] = 1;
    if (two_output_shape(m, in, 2, 0, y_shape) || two_workspace_size(m, in, 2, &bytes))
        return puts(two_last_error());
    void *work = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (two_run(m, in, 2, &out, 1, work, bytes) || two_run(m, in, 2, &out, 1, NULL, 0))
        return puts(two_last_error());
    float total = 0;
    for (int64_t i = 0; i < y_shape[0] * 3; i++)
        total += y[i];
    const int small = bytes >= 64 && two_run(m, in, 2, &out, 1, work, 0) == TORSHC_E_WORKSPACE;
    free(work);
    return printf("%d %d %d: %.3f%s\\n", (int)a, (int)b, (int)y_shape[0], total, small ? "" : " no check");
}

int main(int argc, char **argv)
{
    const torshc_options options = {.size = sizeof options, .threads = 2, .weights_path = argv[argc - 1]};
    two_model *m, *context;
    if (two_open(&options, &m) || two_context_new(m, NULL, &context))
        return puts(two_last_error());
    for (int k = 0; k < 2; k++) {
        run(k ? context : m, 5, 5);
        run(k ? context : m, 1, 5);
        run(k ? context : m, 5, 1);
        run(k ? context : m, 2, 5);
    }
    float x[4] = {0}, v[15] = {0}, y[15];
    two_tensors t = {.a = 1, .b = 5, .x = x, .v = v, .y = y};
    printf("%d %.3f\\n", two_call(m, &t), y[14]);
    two_close(m);
    two_close(context);
    return 0;
}
"""


@pytest.mark.parametrize("specialize", [(), ("a=5", "a=1")])
def test_a_program_in_c_runs_all_forms(specialize: tuple[str, ...], tmp_path: Path) -> None:
    onnx.save(parsed(TEXT), tmp_path / "two.onnx")
    torshc.compile(tmp_path / "two.onnx", tmp_path / "two.tsc", specialize=specialize)
    (tmp_path / "main.c").write_text(MAIN)
    command = [compilers.needed().cc, "-std=gnu11", "-Wall", "-Wextra", "-Werror", "main.c", "-o", "main"]
    command += [f"-I{tmp_path / 'two.tsc'}", str(tmp_path / "two.tsc" / "libmodel.so"), "-lm", "-lpthread"]
    command += [f"-Wl,-rpath,{tmp_path / 'two.tsc'}"]
    compilers.build(command, tmp_path)
    run = [str(tmp_path / "main"), str(tmp_path / "two.tsc" / "weights.bin")]
    lines = subprocess.run(run, capture_output=True, text=True, check=True).stdout.splitlines()
    # A softmax over rows sums to 1 in each of 3 columns, and v is 1.
    each = ["5 5 5: 18.000", "1 5 5: 18.000", "5 1 5: 18.000"]
    refused = "the shapes do not fit together: in0.shape[0] == in1.shape[0] does not hold, 2 is not 5"
    assert lines == [*each, refused, *each, refused, "0 0.200"]


def test_a_dimension_that_one_form_fixes_is_a_condition_of_it(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["" : 18]> g (float[a,2] x) => (float[3,2] y, float[a,2] z)
        <float[3,1] w = {1, 2, 3}> { y = Mul(x, w) z = Relu(x) }"""
    torshc.compile(parsed(text), tmp_path / "m.tsc")
    body = json.loads((tmp_path / "m.tsc" / "manifest.json").read_bytes())
    assert [(c["left"], c["right"]) for c in body["conditions"]] == [("a", "3")]
    assert [o["dims"] for o in body["outputs"]] == [[3, 2], ["a", 2]] and body["inputs"][0]["dims"] == ["a", 2]
