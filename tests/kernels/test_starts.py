"""Kernels that differ by where their operands begin are one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import torshc
from tests.support.seeded import seeded
from torshc.bundle.program import Placed, _elementwise_pairs, assemble
from torshc.expr import F32, I64, U8, DType, Expr, axis, call, const, dim, load, select
from torshc.formats import import_model
from torshc.graph import Graph, TensorType, Value
from torshc.kernels.base import Buffer, Store
from torshc.kernels.machine import Machine
from torshc.kernels.nest import MapKernel
from torshc.kernels.starts import with_starts
from torshc.passes.policy import Policy
from torshc.plan.finalise import finalise
from torshc.plan.place import make_plan
from torshc.targets.cpu.c import CTarget

from ..support.models import model, node
from ..support.run_grid import GridProgram, needs_emulator

Array = np.ndarray[Any, Any]
AT = axis("i0", 10)
RNG = seeded(3)


def value(size: int | str, dtype: DType = F32) -> Value:
    return Graph().new_value(TensorType(dtype, (dim(size) if isinstance(size, str) else const(size),)))


def kernel(offset: Expr, what: Expr, *values: Value) -> MapKernel:
    """Stores into the last of some values."""
    last = len(values) - 1
    buffers = tuple(Buffer(v, v.dtype, v is values[-1]) for v in values)
    return MapKernel(buffers, const(1), const(0), const(0), (AT,), (Store(last, offset, what),), 1, 16)


def starts(k: MapKernel, step: int = 1) -> tuple[list[int], Expr, Expr]:
    made = with_starts(k, step)
    return [b.start for b in made.buffers], made.stores[0].offset, made.stores[0].value


def test_what_all_offsets_share_goes_into_the_arguments() -> None:
    x, y = value(40), value("n")
    read = load(0, (AT + 5,), F32) + load(0, (AT * 2 + 7,), F32)
    assert starts(kernel(AT + 9, read, x, y)) == ([5, 9], AT, load(0, (AT,), F32) + load(0, (AT * 2 + 2,), F32))
    before = kernel(AT, load(0, (const(9) - AT,), F32) + load(0, (AT,), F32), x, y)
    assert with_starts(before, 1) is before


def test_starts_keep_what_is_aligned() -> None:
    x, y = value(40), value(400, U8)
    made = starts(kernel(AT + 37, load(0, (AT + 7,), F32), x, y), 16)
    assert made == ([4, 32], AT + 5, load(0, (AT + 3,), F32))


def test_places_that_are_read_from_memory_move_with_it() -> None:
    table, places, y = value(40), value(40, I64), value(10)
    inner = load(1, (AT + 2,), I64)
    moved = load(1, (AT,), I64)
    expected = [3, 2, 0], AT, load(0, (moved,), F32)
    assert starts(kernel(AT, load(0, (inner + 3,), F32), table, places, y)) == expected


def test_what_is_never_reached_stays() -> None:
    x, y = value(4), value(10)
    guarded = select(call("lt", AT, -1), load(0, (AT + 5,), F32), const(0.0, F32))
    assert starts(kernel(AT, guarded, x, y))[0] == [0, 0]


def test_a_result_takes_over_memory_at_equal_starts_only() -> None:
    x, y = value(20), value(20)
    for at, taken in ((3, [(y, x)]), (4, [])):
        made = with_starts(kernel(AT + 3, load(0, (AT + at,), F32), x, y), 1)
        assert made.stores[0].offset is AT and list(_elementwise_pairs(made)) == taken


# ---- whole models ----


def split(count: int, size: int) -> onnx.ModelProto:
    """A split whose parts are negated and joined in the opposite order; one more is an input."""
    nodes = [node("Split", "x", " ".join(f"p{k}" for k in range(count)), axis=1, num_outputs=count)]
    nodes += [node("Neg", f"p{k}", f"n{k}") for k in range(count)]
    nodes += [node("Concat", " ".join(["z", *(f"n{k}" for k in reversed(range(count)))]), "y", axis=1)]
    return model(nodes, {"x": ("n", count * size), "z": ("n", 1)}, ["y"])


def feeds(count: int, size: int, n: int) -> tuple[dict[str, Array], Array]:
    x, z = (RNG.standard_normal((n, width)).astype(np.float32) for width in (count * size, 1))
    return {"x": x, "z": z}, np.concatenate([z, -x.reshape(n, count, size)[:, ::-1].reshape(n, count * size)], axis=1)


def test_parts_share_a_kernel_on_the_processor(tmp_path: Path) -> None:
    onnx.save(split(9, 5), tmp_path / "m.onnx")
    made = torshc.compile(tmp_path / "m.onnx", tmp_path / "m.tsc")
    assert len(made.units) == 10 and len(made.sources) == 2
    with torshc.load(tmp_path / "m.tsc") as loaded:
        for n in (3, 1, 0):
            given, expected = feeds(9, 5, n)
            np.testing.assert_array_equal(loaded.run(given)["y"], expected)


@needs_emulator
@pytest.mark.parametrize(("size", "most"), [(8, 1), (6, 2), (5, 4)])
def test_parts_share_kernels_of_their_alignment_on_a_device(size: int, most: int) -> None:
    """What starts at no multiple of 16 bytes has the rest of its offset in the text."""
    program = GridProgram(import_model(split(9, size).SerializeToString()), {"n": 3})
    assert len({x.symbol for x in program.launches}) == most + 1
    given, expected = feeds(9, size, 3)
    np.testing.assert_array_equal(program.run(*given.values())[0], expected)


def test_what_runs_on_the_processor_instead_is_copied_from_its_start_on() -> None:
    graph = import_model(split(2, 5).SerializeToString())
    plan = make_plan(finalise(graph, Policy.of()))
    kernels = [k for g in plan.groups for k in CTarget(Machine(4)).lower(graph, g, plan.storage)]
    steps = assemble(plan, [Placed(k, "k1", (), "", fallback=True) for k in kernels]).steps
    for k, step in zip(kernels, steps, strict=True):
        for b, place, size in zip(k.buffers, step.buffers, step.bytes, strict=True):
            whole = b.operand.type.nbytes if isinstance(b.operand, Value) else const(0)
            start = call("min", 4 * b.start, whole)
            assert place.offset is start or (b.start == 0 and place.offset == 0)
            assert size is whole - start
    assert {b.start for k in kernels for b in k.buffers} == {0, 1, 5, 6}


def test_products_of_parts_share_a_kernel(tmp_path: Path) -> None:
    """Steps that multiply a part by the same weights, with parts of other values behind the sum."""
    count, rows, size = 6, 5, 8
    nodes = [node("Split", v, " ".join(f"{v}{k}" for k in range(count)), axis=0, num_outputs=count) for v in "xz"]
    for k in range(count):
        nodes += [node("MatMul", f"x{k} w", f"p{k}"), node("Mul", f"p{k} z{k}", f"q{k}")]
    nodes.append(node("Concat", " ".join(f"q{k}" for k in range(count)), "y", axis=0))
    shape = (count * rows, size)
    onnx.save(model(nodes, {"x": shape, "z": shape, "w": (size, size)}), tmp_path / "m.onnx")
    made = torshc.compile(tmp_path / "m.onnx", tmp_path / "m.tsc")
    assert sum("gemm" in k.kind for u in made.units for k in u.kernels) == count
    assert len(made.sources) == 2  # the weights' panels, and the product
    x, z = (RNG.standard_normal(shape).astype(np.float32) for _ in range(2))
    w = RNG.standard_normal((size, size)).astype(np.float32)
    with torshc.load(tmp_path / "m.tsc") as loaded:
        got = loaded.run({"x": x, "z": z, "w": w})["y"]
    # Sums of 8 products of numbers near 1 in f32: roundings of 6e-8 each.
    np.testing.assert_allclose(got, (x.astype(np.float64) @ w) * z, rtol=1e-5, atol=1e-5)
