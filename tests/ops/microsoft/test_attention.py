"""Attention of ONNX Runtime's own domain against ONNX Runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.compare import onnx_runtime
from tests.support.contrib import check, compiled, model_of, some_bytes
from tests.support.evaluate import run
from tests.support.models import Array, feeds_of
from tests.support.nodes import numbers
from torshc.base.errors import ModelError, RunError, TorshcError, UnsupportedError
from torshc.formats import import_model

F32, I32, I64 = np.float32, np.int32, np.int64
CLOSE: dict[str, Any] = {"rtol": 1e-4, "atol": 1e-5}  # exponentials of other digits, a sum of products each
MASKS = {
    "none": None,
    "keys": np.array([[1, 1, 0, 1], [1, 0, 0, 0]], I32),
    "pairs": np.tril(np.ones((2, 4, 4), I32)),
    "ends": np.array([3, 1], I32),
    "ranges": np.array([4, 3, 1, 0], I32),
}


@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize("mask", MASKS)
def test_attention_of_itself(mask: str, causal: int) -> None:
    x, w, bias = numbers(2, 4, 6), numbers(6, 24, seed=1), numbers(24, seed=2)
    check("Attention", x, w, bias, MASKS[mask], num_heads=2, unidirectional=causal, **CLOSE)


def test_attention_with_a_past_and_an_addend() -> None:
    x, w, bias = numbers(2, 3, 6), numbers(6, 24, seed=1), numbers(24, seed=2)
    past, addend = numbers(2, 2, 2, 5, 4), numbers(1, 2, 3, 8)
    for causal in (0, 1):
        form: dict[str, Any] = {"num_heads": 2, "unidirectional": causal, "outputs": 2, **CLOSE}
        check("Attention", x, w, bias, None, past, **form)
        check("Attention", x, w, bias, np.ones((2, 8), I32), past, **form)
        check("Attention", x, w, bias, None, None, addend[..., :3].copy(), **form)
    sizes = numbers(6, 8 + 8 + 4, seed=1), numbers(20, seed=2)
    check("Attention", x, *sizes, num_heads=2, qkv_hidden_sizes=[8, 8, 4], scale=0.3, **CLOSE)


@pytest.mark.parametrize("mask", ["none", "ends"])
def test_attention_of_quantised_operands(mask: str) -> None:
    x, w, bias = some_bytes(2, 4, 6), some_bytes(6, 24, dtype=np.int8), numbers(24)
    scales = np.asarray(0.01, F32), np.asarray(0.02, F32)
    zeros = np.asarray(120, np.uint8), np.asarray(3, np.int8)
    for causal in (0, 1):
        form: dict[str, Any] = {"num_heads": 2, "unidirectional": causal, **CLOSE}
        check("QAttention", x, w, bias, *scales, MASKS[mask], *zeros, fixed=(1, 2, 3, 4, 6, 7), **form)


@pytest.mark.parametrize("shape", [(), (1,), (24,)])
@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_attention_of_quantised_operands_with_few_and_many_scales(dtype: Any, shape: tuple[int, ...]) -> None:
    """Weights have one scale and zero point, or one of each column; those of x may be vectors of one element."""
    x, w, bias, past = some_bytes(2, 3, 6), some_bytes(6, 24, dtype=dtype), numbers(24), numbers(2, 2, 2, 5, 4)
    scales, zeros = numbers(*shape, low=0.01, high=0.02), some_bytes(*shape, dtype=dtype, seed=1)
    for own in ((), (1,)):
        left = np.full(own, 0.01, F32), np.full(own, 120, np.uint8)
        operands = x, w, bias, left[0], scales, None, left[1], zeros
        check("QAttention", *operands, num_heads=2, **CLOSE)
        check("QAttention", *operands, past, num_heads=2, unidirectional=1, outputs=2, **CLOSE)
        check("QAttention", *operands[:5], num_heads=2, **CLOSE)


@pytest.mark.parametrize("mask", [m for m in MASKS if m != "ranges"])
def test_attention_of_many_heads(mask: str) -> None:
    q, k, v = numbers(2, 4, 8), numbers(2, 4, 8, seed=1), numbers(2, 4, 4, seed=2)
    check("MultiHeadAttention", q, k, v, None, MASKS[mask], num_heads=2, **CLOSE)
    check("MultiHeadAttention", q, k, v, numbers(20), MASKS[mask], num_heads=2, unidirectional=1, scale=0.4, **CLOSE)


def test_forms_of_keys_and_values() -> None:
    q, form = numbers(2, 3, 8), {"num_heads": 2, **CLOSE}
    for count in (3, 2):  # packed, which ONNX Runtime has for devices only
        packed = numbers(2, 3, 2, count, 4)
        parts = [packed[..., n, :].reshape(2, 3, 8).copy() for n in range(count)]
        before = (q,) if count == 2 else ()
        made = model_of("MultiHeadAttention", (*before, packed), num_heads=2)
        (got,) = run(import_model(made.SerializeToString()), {f"x{k}": v for k, v in enumerate((*before, packed))})
        np.testing.assert_allclose(got, check("MultiHeadAttention", *before, *parts, **form)[0], rtol=1e-6)
    k, v = numbers(2, 2, 5, 4), numbers(2, 2, 5, 4, seed=1)
    check("MultiHeadAttention", q, k, v, **form)
    check("MultiHeadAttention", q, numbers(2, 5, 8), numbers(2, 5, 8, seed=1), None, None, numbers(1, 2, 3, 5), **form)
    past = numbers(2, 2, 5, 4), numbers(2, 2, 5, 4, seed=1)
    new = q, numbers(2, 3, 8, seed=2), numbers(2, 3, 8, seed=3)
    for causal in (0, 1):
        check("MultiHeadAttention", *new, None, None, None, *past, outputs=3, unidirectional=causal, **form)


@pytest.mark.parametrize("interleaved", [0, 1])
def test_rotary_positions(interleaved: int) -> None:
    cos, sin = numbers(9, 4), numbers(9, 4, seed=1)
    flat, form = numbers(2, 3, 24), {"interleaved": interleaved}
    check("RotaryEmbedding", flat, np.array([[0, 1, 2], [4, 3, 8]], I64), cos, sin, **form)
    check("RotaryEmbedding", flat, np.array([2], I64), cos, sin, **form)
    check("RotaryEmbedding", numbers(2, 3, 5, 8), np.arange(10).reshape(2, 5) % 9, cos, sin, **form)
    narrow = {"num_heads": 2, "rotary_embedding_dim": 8, **form}
    check("RotaryEmbedding", flat, np.array([[0, 1, 2], [4, 3, 8]], I64), cos, sin, **narrow)


def grouped(batch: int, new: int, past: int, room: int = 0, dtype: Any = F32) -> list[Array | None]:
    """Operands of a step: 4 heads of queries in 2 groups, each head 16 wide; `past` positions in a cache of `room`."""
    q, k, v = (numbers(batch, new, n * 16, seed=n, dtype=dtype) for n in (4, 2, 2))
    caches = [numbers(batch, 2, room or past, 16, seed=n, dtype=dtype) for n in (5, 6)]
    last = np.full(batch, past + new - 1, I32)
    return [q, k, v, *caches, last, np.asarray(past + new, I32)]


TABLES = [numbers(16, 8, seed=8), numbers(16, 8, seed=9)]


@pytest.mark.parametrize(("new", "past", "room"), [(3, 0, 0), (1, 5, 0), (3, 0, 8), (1, 5, 8)])
@pytest.mark.parametrize("rotary", [0, 1])
def test_groups_of_heads(new: int, past: int, room: int, rotary: int) -> None:
    operands, form = grouped(2, new, past, room), {"num_heads": 4, "kv_num_heads": 2, "fixed": (6,), **CLOSE}
    tables = TABLES if rotary else []
    # Behind what is written, caches hold whatever was there; only ours is sure to keep it.
    if room:
        form["only"] = 1
    check("GroupQueryAttention", *operands, *tables, outputs=3, do_rotary=rotary, **form)
    if past and not rotary:
        check("GroupQueryAttention", *operands, outputs=3, local_window_size=3, **form)
        check("GroupQueryAttention", *operands, outputs=3, softcap=2.0, **form)
        check("GroupQueryAttention", *operands, outputs=3, smooth_softmax=1, **form)
        sink = [None] * 4 + [numbers(4)]
        check("GroupQueryAttention", *operands, *sink, outputs=3, **form)
    for outer in ((1, 1), (2, 4)):  # of as many keys as there are, whatever room the caches have
        addend = numbers(*outer, new, past + new, seed=7)
        check(
            "GroupQueryAttention", *operands, *(tables or [None] * 2), None, addend, outputs=3, do_rotary=rotary, **form
        )


@pytest.mark.parametrize(
    "epsilons", [{}, {"qk_norm_epsilon": 0.5}, {"q_norm_epsilon": 0.5}, {"qk_norm_epsilon": 0.1, "k_norm_epsilon": 2.0}]
)
@pytest.mark.parametrize("rotary", [0, 1])
def test_queries_and_keys_that_are_normalised(rotary: int, epsilons: dict[str, float]) -> None:
    """Each head by its root mean square, ahead of rotary positions; ONNX Runtime, which does so on cards alone, gets
    operands that were."""
    weights = numbers(16, seed=3), numbers(16, seed=4)
    tables = TABLES if rotary else [None, None]
    form: dict[str, Any] = {"num_heads": 4, "kv_num_heads": 2, "do_rotary": rotary, "outputs": 3, "fixed": (6,)}
    usual = epsilons.get("qk_norm_epsilon", 1e-6)
    for new, past in ((3, 0), (1, 5)):
        operands = grouped(2, new, past)
        given = (*operands, *tables, *[None] * 5, *weights)
        model, feeds = model_of("GroupQueryAttention", given, **form, **epsilons), feeds_of(given, (6,))
        got = run(import_model(model.SerializeToString()), feeds)
        for k, (name, weight) in enumerate(zip("qk", weights, strict=True)):
            x = np.asarray(operands[k]).reshape(2, new, -1, 16)
            scale = 1 / np.sqrt((x * x).mean(-1, keepdims=True) + epsilons.get(f"{name}_norm_epsilon", usual))
            operands[k] = (x * scale * weight).reshape(2, new, -1).astype(F32)
        plain = (*operands, *tables)
        wanted = onnx_runtime(model_of("GroupQueryAttention", plain, **form), feeds_of(plain, (6,)))
        for g, w in zip(got, wanted, strict=True):
            np.testing.assert_allclose(g, w, **CLOSE)
    one = model_of("GroupQueryAttention", given[:-1], **form)
    with pytest.raises(ModelError, match="normalises queries but no keys"):
        import_model(one.SerializeToString())


def test_groups_of_heads_in_one_operand() -> None:
    operands = grouped(1, 3, 0)
    operands[0] = np.concatenate([np.asarray(v) for v in operands[:3]], -1)
    operands[1] = operands[2] = None
    form: dict[str, Any] = {"num_heads": 4, "kv_num_heads": 2, "fixed": (6,), "outputs": 3, **CLOSE}
    check("GroupQueryAttention", *operands, *TABLES, do_rotary=1, rotary_interleaved=1, **form)
    operands[3] = operands[4] = None
    check("GroupQueryAttention", *operands, *TABLES, do_rotary=1, **form)


def test_sequences_of_different_lengths() -> None:
    """A step of two sequences, of which one has fewer positions in its cache."""
    operands = grouped(2, 1, 5, 8)
    operands[5] = np.array([5, 3], I32)
    form: dict[str, Any] = {"num_heads": 4, "kv_num_heads": 2, "fixed": (6,), "outputs": 3, "only": 1, **CLOSE}
    check("GroupQueryAttention", *operands, *TABLES, do_rotary=1, **form)


def test_compiled_steps_of_any_length(tmp_path: Path) -> None:
    """Run-time sizes, as exporters declare them, and the length of the longest sequence as an operand."""
    operands = grouped(2, 1, 5)
    dims: dict[int, list[Any]] = {0: ["B", "S", 64], 1: ["B", "S", 32], 2: ["B", "S", 32], 3: ["B", 2, "P", 16],
                                  4: ["B", 2, "P", 16], 5: ["B"]}  # fmt: skip
    form: dict[str, Any] = {"num_heads": 4, "kv_num_heads": 2, "do_rotary": 1, "dims": dims}
    made = model_of("GroupQueryAttention", (*operands, *TABLES), (7, 8), 3, **form)
    for new, past in ((1, 5), (4, 0)):
        feeds = {f"x{k}": v for k, v in enumerate(grouped(2, new, past)) if v is not None}
        for got, wanted in zip(compiled(made, feeds, tmp_path), onnx_runtime(made, feeds), strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)
    feeds["x5"] = np.array([2, 4], I32)  # of 4 positions
    with pytest.raises(RunError, match=r"\(GroupQueryAttention\): an index or a length is out of range"):
        compiled(made, feeds, tmp_path)


def test_compiled_attention_of_any_batch(tmp_path: Path) -> None:
    x, w, mask = numbers(2, 4, 6), numbers(6, 24, seed=1), MASKS["keys"]
    dims: dict[int, list[Any]] = {0: ["B", "S", 6], 3: ["B", "S"]}
    made = model_of("Attention", (x, w, numbers(24), mask), (1, 2), num_heads=2, unidirectional=1, dims=dims)
    feeds = {"x0": x, "x3": np.asarray(mask)}
    np.testing.assert_allclose(compiled(made, feeds, tmp_path)[0], onnx_runtime(made, feeds)[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["lengths", "batch", None, 2, 4])
def test_a_mask_of_lengths_whose_dimension_has_a_name_of_its_own(name: str | int | None, tmp_path: Path) -> None:
    """Twice the batch, it is starts behind ends; anything else is the batch."""
    x, w = numbers(2, 4, 6), numbers(6, 24, seed=1)
    mask = np.array([3, 2, 1, 0] if name == 4 else [3, 2], I32)
    dims = {0: [2 if name == 4 else "batch", "length", 6], 3: [name]}
    made = model_of("Attention", (x, w, numbers(24), mask), (1, 2), num_heads=2, dims=dims)
    feeds = {"x0": x, "x3": mask}
    np.testing.assert_allclose(compiled(made, feeds, tmp_path)[0], onnx_runtime(made, feeds)[0], **CLOSE)
    if isinstance(name, str) and name != "batch":
        with pytest.raises(TorshcError):
            compiled(made, feeds | {"x3": mask[:1]}, tmp_path)


def test_a_masked_score_is_not_hidden_altogether() -> None:
    """A row that is masked as a whole attends to all alike, with whatever the filter is."""
    x, w = numbers(1, 2, 6), numbers(6, 24, seed=1)
    check("Attention", x, w, numbers(24), np.zeros((1, 2), I32), num_heads=2, mask_filter_value=-1e4, **CLOSE)


@pytest.mark.parametrize(
    ("op", "operands", "form", "words"),
    [
        ("Attention", [numbers(2, 3, 6), numbers(6, 24)], {"num_heads": 5}, "in 5 heads"),
        ("Attention", [numbers(2, 3, 6), numbers(6, 24)], {"num_heads": 2, "do_rotary": 1}, "rotary"),
        ("Attention", [numbers(2, 3, 6), numbers(6, 24), None, np.ones((3, 3, 3, 3), I32)], {"num_heads": 2}, "a mask"),
        ("Attention", [numbers(2, 3, 6), numbers(6, 24), None, None, numbers(1, 2, 2, 5, 4)], {"num_heads": 2}, "past"),
        ("MultiHeadAttention", [numbers(2, 3, 6)], {"num_heads": 2}, "without keys"),
        ("GroupQueryAttention", grouped(2, 1, 3), {"num_heads": 4, "kv_num_heads": 3}, "in 3 groups"),
        ("GroupQueryAttention", grouped(2, 1, 3), {"num_heads": 4, "kv_num_heads": 2, "v_quant_type": "NO"}, "quant"),
        ("GroupQueryAttention", [*grouped(2, 1, 3), None, None, None, numbers(1, 1, 1, 3)],
         {"num_heads": 4, "kv_num_heads": 2, "fixed": (6,)}, "the addend of GroupQueryAttention: 3 and 4"),
        ("RotaryEmbedding", [numbers(2, 3), np.array([0]), numbers(4, 2), numbers(4, 2)], {}, "RotaryEmbedding of f32"),
    ],
)  # fmt: skip
def test_faults_name_the_node(op: str, operands: Any, form: Any, words: str) -> None:
    with pytest.raises((ModelError, UnsupportedError), match=words) as caught:
        import_model(model_of(op, tuple(operands), **form).SerializeToString())
    assert "'it'" in str(caught.value)
